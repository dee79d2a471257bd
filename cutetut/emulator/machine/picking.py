"""Which warps run next, and at which block: those that have waited longest, or what is drawn (schedule.py)."""

from __future__ import annotations

import numpy as np

from .schedule import Schedule
from .threads import READY, WARP, Selection, compact

PATIENCE = 32  # turns of a warp after which its longest waiting lane is next: spinning lanes starve no others
NOWHERE, NEVER = np.iinfo(np.int32).max, np.iinfo(np.int64).max


class Picker:
    """Where every thread stands (`pc`, a block number) and what it is doing (`status`), and whose turn it is."""

    def __init__(self, threads: int, schedule: Schedule, warps_per_cta: int) -> None:
        self.schedule, self.warps_per_cta = schedule, warps_per_cta
        self.warps = threads // WARP
        self.pc = np.zeros(threads, np.int32)
        self.status = np.zeros(threads, np.uint8)
        self.last_run = np.zeros(self.warps, np.int64)  # the turn in which each warp ran last
        self.warp_turns = np.zeros(self.warps, np.int64)  # how often a warp was picked,
        self.lane_turn = np.zeros(threads, np.int64)  # and its count when each thread last ran

    def reset(self) -> None:
        """New CTAs: nobody has run yet."""
        self.last_run[:] = self.warp_turns[:] = self.lane_turn[:] = 0

    def pick(self, turn: int) -> tuple[int, Selection] | None:
        """The block that executes in this turn, and the threads that execute it; None: nobody is ready."""
        at = np.where(self.status == READY, self.pc, NOWHERE)  # where each ready thread stands
        lowest = at.reshape(self.warps, WARP).min(axis=1)
        ready = lowest != NOWHERE
        if not ready.any():
            return None
        number, warps = self._draw(at, lowest, ready) if self.schedule.drawn else self._longest_waiting(at, lowest)
        threads = np.flatnonzero((at.reshape(self.warps, WARP) == number) & warps[:, None])
        self.last_run[warps] = turn
        self.warp_turns[warps] += 1
        self.lane_turn[threads] = self.warp_turns[threads // WARP]
        return number, compact(threads)

    def _longest_waiting(self, at: np.ndarray, lowest: np.ndarray) -> tuple[int, np.ndarray]:
        """A block, and the warps that execute it: the warp that has waited longest, and those beside it."""
        warp = int(np.where(lowest != NOWHERE, self.last_run, NEVER).argmin())
        number = int(lowest[warp])
        starved = self.starved_block(warp) if self.warp_turns[warp] % PATIENCE == 0 else number
        if starved != number:
            return starved, np.arange(self.warps) == warp
        return number, lowest == number

    def _draw(self, at: np.ndarray, lowest: np.ndarray, ready: np.ndarray) -> tuple[int, np.ndarray]:
        """A block, and the warps that execute it, drawn."""
        warp = self.schedule.warp(np.flatnonzero(ready))
        if not self.schedule.lowest():
            blocks = at[WARP * warp : WARP * warp + WARP]
            return self.schedule.block_of(blocks[blocks != NOWHERE]), np.arange(self.warps) == warp
        number = int(lowest[warp])
        return number, self.schedule.along(warp, lowest == number, self.warps_per_cta)

    def starved_block(self, warp: int) -> int:
        """The block of the ready lane of a warp that has waited longest."""
        lanes = slice(WARP * warp, WARP * warp + WARP)
        waited = np.where(self.status[lanes] == READY, self.warp_turns[warp] - self.lane_turn[lanes], -1)
        return int(self.pc[lanes][waited.argmax()])
