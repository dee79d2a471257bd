"""Multicast addresses: each stands for the same place in the memory of several GPUs (PTX ISA section 9.7.9.16).

Only the instructions of multimem may use them.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Window:
    """Bytes from `start` on that stand for as many of each buffer."""

    start: int
    nbytes: int
    buffers: tuple[int, ...]

    def spread(self, addresses: np.ndarray) -> list[np.ndarray]:
        """The addresses in each buffer."""
        return [addresses + (buffer - self.start) for buffer in self.buffers]


_starts: list[int] = []
_windows: dict[int, Window] = {}  # by their starts


def bind(start: int, nbytes: int, buffers: tuple[int, ...]) -> None:
    """From now on these bytes stand for those from the starts of the buffers on."""
    if start not in _windows:
        bisect.insort(_starts, start)
    _windows[start] = Window(start, nbytes, buffers)


def window(address: int) -> Window | None:
    """The window that an address is in."""
    at = bisect.bisect_right(_starts, address) - 1
    found = _windows[_starts[at]] if at >= 0 else None
    return found if found is not None and address < found.start + found.nbytes else None


def forget() -> None:
    """There are none."""
    _starts.clear()
    _windows.clear()
