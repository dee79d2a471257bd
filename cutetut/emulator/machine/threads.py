"""Threads by their numbers in the machine: those of one warp are 32 consecutive ones."""

from __future__ import annotations

import numpy as np

Selection = slice | np.ndarray  # threads that execute: slice(first, end), or an array of thread numbers

WARP, WARPGROUP = 32, 128


def threads_of(sel: Selection) -> np.ndarray:
    """The thread numbers of a selection."""
    if isinstance(sel, slice):
        return np.arange(sel.start, sel.stop)
    return sel


def warps_of(sel: Selection) -> np.ndarray:
    """The numbers of the warps that a selection has threads of."""
    if isinstance(sel, slice):
        return np.arange(sel.start >> 5, (sel.stop + 31) >> 5)
    warps = sel >> 5
    return warps[np.concatenate(([True], warps[1:] != warps[:-1]))] if len(sel) else warps
