"""Device memory that nobody has written: what torch.empty, cudaMalloc and cuMemAlloc leave to chance.

New memory is filled with a pattern that depends on the address.  A word that still holds its own pattern has been
written neither by torch, nor by numpy, nor by a kernel, and nothing of theirs has to be followed to know it.  The
pattern is no number in any floating-point format of 16 bits or more, so what is made of it shows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ..machine.memory import HOST, GlobalMemory, index
from . import pool

WORD = 8
LARGEST = 1 << 28  # bytes; larger memory is left as it comes, since to fill it takes seconds
AT_ONCE = 4096  # words that are filled and compared at a time

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
# each half is a NaN as float16 and as bfloat16, and so are the wider types: sign and low bits are the address's
_FREE, _FIXED = np.uint64(0x800E_807E_807E_807E), np.uint64(0x7FF1_7F81_7F81_7F81)
_STEPS = np.arange(AT_ONCE, dtype=np.uint64) * _FACTOR


@dataclass
class _Range:
    """Whole words from `start` to before `end`; all before `start` have been written."""

    start: int
    end: int
    storage: StorageWeakRef | None  # that the words belong to; None: to memory of `live.allocate`

    def alive(self) -> bool:
        if self.storage is None:
            return True
        users = int(torch._C._storage_Use_Count(self.storage.cdata))
        return users > pool.holds(self.storage.cdata)


_ranges: dict[int, _Range] = {}  # by the address at which the memory begins
_order: list[int] = []  # these addresses, sorted; no two ranges overlap
_sweep_at = 1024  # ranges; then those of tensors that are no more are dropped
_starts_list: list[int] = []  # the ranges that the launch may reach, as they were when it began
_ends_list: list[int] = []
_starts = _ends = np.empty(0, np.int64)


def pattern(words: np.ndarray) -> np.ndarray:
    """What new memory holds at these addresses, multiples of 8."""
    return ((words >> 3).astype(np.uint64) * _FACTOR) & _FREE | _FIXED


def remember(start: int, nbytes: int) -> None:
    """New memory at an address that is a multiple of 8, until `forget`: its whole words are filled."""
    _add(start, nbytes, None)


def forget(start: int) -> None:
    """Forget the memory that begins here: it has been freed."""
    if _ranges.pop(start, None) is not None:
        del _order[bisect_left(_order, start)]


def clear() -> None:
    """No tensor's memory is new any more."""
    for start in [start for start, new in _ranges.items() if new.storage is not None]:
        forget(start)


def remember_tensor(tensor: torch.Tensor, nbytes: int) -> None:
    """The first bytes of a new tensor's memory, for as long as the tensor or a view of it lives."""
    storage = tensor.untyped_storage()
    _add(storage.data_ptr(), nbytes, StorageWeakRef(storage))


def _add(start: int, nbytes: int, storage: StorageWeakRef | None) -> None:
    end = start + nbytes // WORD * WORD
    if start % WORD or end == start or nbytes > LARGEST:
        return
    for first in range(start, end, AT_ONCE * WORD):
        words = HOST[WORD][_slice(first, min(first + AT_ONCE * WORD, end))]
        _chunk(first, words)
    for old in _between(start, end):
        forget(old)  # that memory has been freed, or it could not come again
    if len(_ranges) >= _sweep_at:
        _sweep()
    insort(_order, start)
    _ranges[start] = _Range(start, end, storage)


def _between(low: int, high: int) -> list[int]:
    """The ranges with a word from `low` to before `high`, by the addresses at which their memory begins."""
    first = max(bisect_right(_order, low) - 1, 0)
    found = _order[first : bisect_left(_order, high)]
    return found[1:] if found and _ranges[found[0]].end <= low else found


def _sweep() -> None:
    global _sweep_at
    for start in [start for start, new in _ranges.items() if not new.alive()]:
        forget(start)
    _sweep_at = max(1024, 2 * len(_ranges))


def _chunk(first: int, out: np.ndarray) -> np.ndarray:
    """The pattern of consecutive words."""
    np.add(_STEPS[: len(out)], np.uint64((first >> 3) * int(_FACTOR) & (1 << 64) - 1), out=out)
    out &= _FREE
    out |= _FIXED
    return out


def _slice(start: int, end: int) -> slice:
    first = int(index(np.int64(start), WORD))  # type: ignore[arg-type]
    return slice(first, first + (end - start) // WORD)


def is_fresh(words: np.ndarray) -> np.ndarray:
    """Which of these words of this process, given by their addresses, multiples of 8, nobody has written.

    Only memory is looked at that was new when the last launch began.
    """
    if not words.size or not _any_between(int(words.min()), int(words.max())):
        return np.zeros(len(words), bool)
    values = HOST[WORD][index(words, WORD)]
    found = (values & _FIXED) == _FIXED
    if found.any():  # otherwise the values alone are enough
        these = words[found]
        at = _starts.searchsorted(these, "right") - 1
        found[found] = (at >= 0) & (these < _ends[at]) & (values[found] == pattern(these))
    return found


def _any_between(low: int, high: int) -> bool:
    """Whether any new memory lies between two addresses, these included."""
    last = bisect_right(_starts_list, high) - 1
    return last >= 0 and low < _ends_list[last]


def watch(memory: GlobalMemory, others: Iterable[GlobalMemory] = ()) -> None:
    """Before a launch: let it notice loads of new memory, if it can reach any. others: of launches under way."""
    global _starts, _ends
    allocations = [each for one in (memory, *others) for each in one.allocations]
    reached = {start for each in allocations for start in _between(each.start, each.end)}
    for start in reached:
        _narrow(start)
    if memory.resolver is not None:  # the kernel may find pointers to any memory
        _sweep()
        reached = set(_ranges)
    ranges = sorted((new.start, new.end) for start in reached if (new := _ranges.get(start)) is not None)
    _starts_list[:], _ends_list[:] = [start for start, _ in ranges], [end for _, end in ranges]
    _starts, _ends = np.array(_starts_list, np.int64), np.array(_ends_list, np.int64)
    memory.fresh = is_fresh if ranges else None


def _narrow(key: int) -> None:
    """Leave out the words at the beginning that have been written since, and a tensor that is no more."""
    new = _ranges[key]
    if not new.alive():
        return forget(key)
    scratch = np.empty(AT_ONCE, np.uint64)
    while new.start < new.end:
        last = min(new.start + AT_ONCE * WORD, new.end)
        expected = _chunk(new.start, scratch[: (last - new.start) // WORD])
        same = HOST[WORD][_slice(new.start, last)] == expected
        if same.any():
            new.start += int(same.argmax()) * WORD
            return
        new.start = last
    forget(key)
