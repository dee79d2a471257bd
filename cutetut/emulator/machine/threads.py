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
    """The numbers of the warps that a selection has threads of."""
    if isinstance(sel, slice):
        return np.arange(sel.start >> 5, (sel.stop + 31) >> 5)
    warps = sel >> 5
    return warps[np.concatenate(([True], warps[1:] != warps[:-1]))] if len(sel) else warps
