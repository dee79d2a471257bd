"""Byte ranges of host memory that an asynchronous operation still needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Ranges:
    """Sorted, disjoint ranges: from `base + starts` to before `base + ends`, at least one.

    The offsets are often shared by many operations, each with its own base.
    """

    base: int
    starts: np.ndarray
    ends: np.ndarray

    @property
    def first(self) -> int:
        """The lowest address."""
        return self.base + int(self.starts[0])

    def overlap(self, start: int, end: int) -> bool:
        """Whether any byte from `start` to before `end` is in one of the ranges."""
        start, end = start - self.base, end - self.base
        if end <= self.starts[0] or start >= self.ends[-1]:
            return False
        return bool(self.starts[self.ends.searchsorted(start, "right")] < end)

    def overlapping(self, hosts: np.ndarray, nbytes: int) -> np.ndarray:
        """Which accesses of nbytes at these addresses touch one of the ranges."""
        at = self.ends.searchsorted(hosts - self.base, "right")
        inside = at < len(self.starts)
        return inside & (self.starts[np.where(inside, at, 0)] < hosts - self.base + nbytes)


def consecutive(start: int, nbytes: int) -> Ranges:
    """One range."""
    return Ranges(start, np.zeros(1, np.int64), np.array([nbytes]))


def scattered(hosts: np.ndarray, nbytes: int) -> Ranges:
    """The ranges of accesses of nbytes each, in any order."""
    return Ranges(0, *joined(np.unique(hosts), nbytes))


def joined(offsets: np.ndarray, nbytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends of the ranges that sorted pieces of nbytes make up."""
    cuts = np.flatnonzero(np.diff(offsets) != nbytes)
    starts = offsets[np.concatenate(([0], cuts + 1))]
    ends = offsets[np.concatenate((cuts, [len(offsets) - 1]))] + nbytes
    return starts, ends
