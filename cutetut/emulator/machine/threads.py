"""Threads: their numbers, in which groups the hardware runs them, and what each is doing.

The threads of one warp have 32 consecutive numbers in the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Selection = slice | np.ndarray  # threads that execute: slice(first, end), or an array of thread numbers
Step = Callable[[Selection], Any]  # a control step returns the next block: one number, or one per thread

WARP = 32
WARPGROUP = 128

READY = 0  # may run
WAITING = 1  # asleep in a unit, which will wake it; its program counter is behind the instruction
PARKED = 2  # in front of an instruction that its warp or warpgroup executes together
DONE = 3  # has exited


def threads_of(sel: Selection) -> np.ndarray:
    """The thread numbers of a selection."""
    if isinstance(sel, slice):
        return np.arange(sel.start, sel.stop)
    return sel


def narrow(sel: Selection, keep: np.ndarray) -> np.ndarray:
    """The threads of a selection for which keep is true."""
    return threads_of(sel)[keep]


def warps_of(sel: Selection) -> np.ndarray:
    """The numbers of the warps that a selection (thread numbers in ascending order) has threads of."""
    if isinstance(sel, slice):
        return np.arange(sel.start >> 5, (sel.stop + 31) >> 5)
    warps = sel >> 5
    if len(warps) < 2 or warps[0] == warps[-1]:
        return warps[:1]
    return warps[_starts(warps)]


def _starts(warps: np.ndarray) -> np.ndarray:
    """Where in a row of warp numbers another one begins."""
    starts = np.empty(len(warps), np.bool_)
    starts[0] = True
    np.not_equal(warps[1:], warps[:-1], out=starts[1:])
    return np.flatnonzero(starts)


def lanes_of(sel: Selection) -> tuple[np.ndarray, np.ndarray | None]:
    """The warps of a selection and the mask of the lanes of each; None for whole warps."""
    if isinstance(sel, slice):
        if not (sel.start | sel.stop) & 31:
            return np.arange(sel.start >> 5, sel.stop >> 5), None
        sel = np.arange(sel.start, sel.stop)
    elif len(sel) == WARP and sel[-1] - sel[0] == WARP - 1 and not sel[0] % WARP:
        return sel[:1] >> 5, None
    warps, bits = sel >> 5, np.uint32(1) << (sel & 31).astype(np.uint32)
    if len(sel) < 2:
        return warps, bits
    starts = _starts(warps)
    if len(sel) == WARP * len(starts):
        return warps[starts], None
    return warps[starts], np.bitwise_or.reduceat(bits, starts)


def compact(threads: np.ndarray) -> Selection:
    """A slice where the threads are consecutive: slicing a row is far cheaper than indexing it."""
    if len(threads) and threads[-1] - threads[0] + 1 == len(threads):
        return slice(int(threads[0]), int(threads[-1]) + 1)
    return threads
