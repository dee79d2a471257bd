"""Multicast addresses: each stands for the same place in the memory of several GPUs (PTX ISA section 9.7.9.16).

They are addresses at which this process has no memory, so that only what knows them can use them.
"""

from __future__ import annotations

import bisect
import itertools

PAGE = 1 << 21
_first = 1 << 46  # above what a process of today gets from its system
_next = itertools.count(_first, PAGE)
_starts: list[int] = []
_bound: dict[int, tuple[tuple[int, ...], int]] = {}  # by the first address, the buffers behind it and their bytes


def bind(buffers: tuple[int, ...], nbytes: int) -> int:
    """One address for the buffers that begin at these; the same for the same."""
    for start, (known, size) in _bound.items():
        if known == buffers and size == nbytes:
            return start
    start = next(_next)
    for _ in range(nbytes // PAGE):
        next(_next)
    _bound[start] = buffers, nbytes
    bisect.insort(_starts, start)
    return start


def behind(address: int) -> tuple[int, ...]:
    """The addresses that a multicast address stands for; none for any other address."""
    at = bisect.bisect_right(_starts, address) - 1
    if at < 0:
        return ()
    buffers, nbytes = _bound[_starts[at]]
    offset = address - _starts[at]
    return tuple(buffer + offset for buffer in buffers) if offset < nbytes else ()


def forget() -> None:
    """There are none."""
    _starts.clear()
    _bound.clear()
