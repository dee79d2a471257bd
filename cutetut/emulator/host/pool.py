"""Device memory as PyTorch's caching allocator keeps it: the bytes of a tensor stay mapped after its end.

A program may therefore use a freed tensor's memory without a fault, as some benchmarks do by mistake.  Here it may
too, with a warning.
"""

from __future__ import annotations

import collections
import itertools

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ..errors import EmulatorError, warn
from ..findings import Location
from . import gpus
from .dlpack import label

LIMIT = 1 << 28  # bytes of freed memory that are kept at least

_kept: dict[int, tuple[torch.UntypedStorage, str]] = {}  # by the storage's identity, oldest first
_numbers: dict[int, int] = {}  # of storages, that no two have had
_count = itertools.count(1)
_recent: collections.deque[int] = collections.deque(maxlen=32)  # found before: usually asked for again
_bytes = 0
_sweep_at = LIMIT


def keep(tensor: torch.Tensor) -> None:
    """Note the memory of a new tensor on the device, and how messages call it."""
    global _bytes
    storage = tensor.untyped_storage()
    if storage._cdata in _kept or not has_memory(tensor):
        return
    shape, dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
    _kept[storage._cdata] = storage, label("a tensor", shape, dtype)
    _bytes += storage.nbytes()
    if _bytes > _sweep_at:
        _sweep()


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor has bytes of its own: fake ones have none, nor have wrappers around others, as DTensor is."""
    if isinstance(tensor, FakeTensor):
        return False
    try:
        return bool(tensor.untyped_storage().data_ptr())
    except RuntimeError:
        return False


def find(address: int) -> tuple[int, int, str] | None:
    """(start, bytes, label) of the device memory that holds an address, that of freed tensors included."""
    for key in itertools.chain(reversed(_recent), reversed(_kept)):
        storage, name = _kept.get(key, (None, ""))
        if storage is None:
            continue
        start, nbytes = storage.data_ptr(), storage.nbytes()
        if start <= address < start + nbytes:
            if not _in_use(storage):
                text = f"a kernel uses the memory of {name}, which has been freed: PyTorch may hand it out again"
                where = Location("global", address - start, None, name, address=address)
                freed = EmulatorError(text, kind="freed-memory", locations=(where,))
                warn(text, freed, "cutetut emulate", 0)
            if key not in _recent:
                _recent.append(key)
            return start, nbytes, name
    return None


def owner(address: int) -> int | None:
    """A number that identifies the storage of the live tensor that holds an address; None when none does."""
    for key in itertools.chain(reversed(_recent), reversed(_kept)):
        found = _kept.get(key)
        if found is None:
            continue
        start, nbytes = found[0].data_ptr(), found[0].nbytes()
        if start <= address < start + nbytes and _in_use(found[0]):
            return _numbers.setdefault(key, next(_count))
    return None


def gpu_of(address: int) -> int | None:
    """The GPU of the tensor whose memory holds an address; None when none does."""
    for storage, _ in reversed(_kept.values()):
        start = storage.data_ptr()
        if start <= address < start + storage.nbytes():
            return int(getattr(storage, gpus.ON_GPU, 0))
    return None


def holds(storage: int) -> bool:
    """Whether this list is one of a storage's users; a storage is known by its identity."""
    return storage in _kept


def clear() -> None:
    """Forget all memory: the device is no more."""
    global _bytes, _sweep_at
    _kept.clear()
    _numbers.clear()
    _recent.clear()
    _bytes, _sweep_at = 0, LIMIT


def _in_use(storage: torch.UntypedStorage) -> bool:
    return int(torch._C._storage_Use_Count(storage._cdata)) > 1  # this list is one user


def _sweep() -> None:
    """Give back freed memory, oldest first, until half of LIMIT is left of it."""
    global _bytes, _sweep_at
    freed = [key for key, (storage, _) in _kept.items() if not _in_use(storage)]
    surplus = sum(_kept[key][0].nbytes() for key in freed) - LIMIT // 2
    for key in freed:
        if surplus <= 0:
            break
        _numbers.pop(key, None)
        surplus -= _kept.pop(key)[0].nbytes()
    _bytes = sum(storage.nbytes() for storage, _ in _kept.values())
    _sweep_at = _bytes + LIMIT // 2
