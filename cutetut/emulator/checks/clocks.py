"""Who knows of whom: vector clocks of the resident warps (Lamport 1978; Mattern 1989; PTX ISA section 8.9).

Every warp counts a time of its own, which goes on whenever others may learn of it: at a barrier, an arrival or a
fence.  It also knows, for each other warp, up to which time everything of that warp has happened before what it
does now itself.  Warps that meet learn what the others know.  An mbarrier passes on what those who arrived at it
knew, and has a time of its own: its completed phases, which stand for the copies whose bytes it counted.

A second set of clocks says the same of what is in view of the *async proxy*: only a proxy fence brings it forward
(sections 8.3 and 9.7.13.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..machine.machine import Machine

SPARE = 64  # columns for mbarriers before the tables grow


@dataclass(frozen=True)
class Knowledge:
    """Times of each member: what has happened, and what of it the async proxy sees."""

    happened: np.ndarray
    fenced: np.ndarray

    def join(self, other: Knowledge | None) -> Knowledge:
        """What either knows; the shorter one is from before some mbarrier was made."""
        if other is None:
            return self
        long, short = (self, other) if len(self.happened) >= len(other.happened) else (other, self)
        happened, fenced, n = long.happened.copy(), long.fenced.copy(), len(short.happened)
        np.maximum(happened[:n], short.happened, out=happened[:n])
        np.maximum(fenced[:n], short.fenced, out=fenced[:n])
        return Knowledge(happened, fenced)


class Clocks:
    """A row for every warp, a column for every warp and every mbarrier."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.warps = machine.T // 32
        self.happened = np.zeros((self.warps, self.warps + SPARE), np.int64)
        self.fenced = np.zeros_like(self.happened)
        self.reset()

    def reset(self) -> None:
        """New CTAs: every warp is at time 1, and knows of nobody else."""
        self.happened[:] = self.fenced[:] = 0
        self.members = self.warps
        own = np.arange(self.warps)
        self.happened[own, own] = 1

    def new_member(self) -> int:
        """The column of an mbarrier."""
        if self.members == self.happened.shape[1]:
            self.happened, self.fenced = (np.pad(t, ((0, 0), (0, len(t[0])))) for t in (self.happened, self.fenced))
        self.members += 1
        return self.members - 1

    def time(self, warp: int) -> int:
        """The present time of a warp."""
        return int(self.happened[warp, warp])

    def times(self, warps: np.ndarray) -> np.ndarray:
        """The present times of warps."""
        return self.happened[warps, warps]

    def knows(self, warps: np.ndarray, member: np.ndarray | int, time: np.ndarray | int) -> np.ndarray:
        """Whether what members did at a time has happened before what warps do now."""
        return self.happened[warps, member] >= time

    # -- learning -----------------------------------------------------------------------------

    def release(self, warps: np.ndarray) -> Knowledge:
        """What these warps know together, for others to learn; what they do from now on is later."""
        n = self.members
        known = Knowledge(self.happened[warps, :n].max(axis=0), self.fenced[warps, :n].max(axis=0))
        self.happened[warps, warps] += 1
        return known

    def acquire(self, warps: np.ndarray, known: Knowledge | None) -> None:
        """These warps learn something."""
        if known is None:
            return
        n = len(known.happened)
        self.happened[warps, :n] = np.maximum(self.happened[warps, :n], known.happened)
        self.fenced[warps, :n] = np.maximum(self.fenced[warps, :n], known.fenced)

    def meet(self, warps: np.ndarray) -> None:
        """A barrier of these warps."""
        self.acquire(warps, self.release(warps))

    def meet_in_ctas(self) -> None:
        """A barrier of every resident CTA."""
        ctas, n = self.machine.residents, self.members
        for table in (self.happened, self.fenced):
            of_ctas = table.reshape(ctas, self.warps // ctas, -1)[:, :, :n]
            of_ctas[:] = of_ctas.max(axis=1, keepdims=True)
        own = np.arange(self.warps)
        self.happened[own, own] = self.happened[:, : self.warps].max(axis=0) + 1

    def learn_everything(self, warps: np.ndarray) -> None:
        """Flags in memory are not followed: after a fence or an acquiring load all that has happened is known."""
        n, everyone = self.members, np.arange(self.warps)
        known = self.happened[:, :n].max(axis=0)
        self.acquire(warps, Knowledge(known, self.fenced[:, :n].max(axis=0)))
        self.happened[everyone, everyone] += 1

    def fence(self, warps: np.ndarray) -> None:
        """fence.proxy.async: what these warps know of is in view of the async proxy."""
        self.fenced[warps] = np.maximum(self.fenced[warps], self.happened[warps])
        self.happened[warps, warps] += 1
