"""One phase of a named barrier: who has arrived, and who of them waits."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..checks.clocks import GENERIC, Clocks, Knowledge
from ..machine.threads import Step
from ..ptx.syntax import Instruction


@dataclass
class NamedBarrier:
    """Arrivals of the current phase, in threads; a warp always counts as 32 of them."""

    expected: int
    arrived: int = 0
    waiting: list[tuple[Instruction, np.ndarray]] = field(default_factory=list)  # threads asleep here,
    passing: list[tuple[Instruction, np.ndarray]] = field(default_factory=list)  # and those that went on
    on_release: Step | None = None
    known: Knowledge | None = None  # what those who have arrived knew
    came: dict[int, int] = field(default_factory=dict)  # warp -> up to which time its arrival passed on what it did

    @property
    def arrivals(self) -> list[tuple[Instruction, np.ndarray]]:
        return self.waiting + self.passing

    def has(self, warp: int) -> bool:
        """Whether a warp takes part in this phase."""
        return warp in self.came

    def arrive(self, inst: Instruction, threads: np.ndarray, wait: bool, known: Knowledge) -> None:
        """Whole warps arrive, and pass on what they know."""
        warps = np.unique(threads >> 5)
        self.arrived += 32 * len(warps)
        self.came.update(zip(warps.tolist(), known.seen[GENERIC, warps].tolist(), strict=True))
        self.known = known.join(self.known)
        (self.waiting if wait else self.passing).append((inst, threads))

    def unknown_to(self, warp: int, clocks: Clocks) -> tuple[Instruction, int] | None:
        """An arrival that nothing orders before what a warp does now, if the warp took no part: where, and a thread.

        A phase that one warp completed by itself was never open for another.
        """
        if warp in self.came or len(self.came) == 1:
            return None
        for inst, threads in self.arrivals:
            for first in threads[np.unique(threads >> 5, return_index=True)[1]].tolist():
                if clocks.seen[GENERIC, warp, first >> 5] < self.came[first >> 5]:
                    return inst, first
        return None
