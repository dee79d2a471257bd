"""Which memory of this process a kernel may reach: the tensors that are alive, found by address.

A kernel's arguments name most of what it touches.  Pointers that come another way (a table of
pointers in memory, `make_ptr(dtype, tensor.data_ptr())`) are looked up here, so a wild pointer is
an error and never a crash.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..machine import multicast
from . import fresh, gpus, pool
from .dlpack import Span, label

# Whether a tensor counts as device memory.  Without a GPU every tensor does, unless a script that was
# written for a GPU runs: then only what it moved to "cuda" does.
on_device: Callable[[object], bool] = lambda tensor: True  # noqa: E731
_any_tensor = on_device

_wrappers: weakref.WeakKeyDictionary[Any, tuple[Span, bool]] = weakref.WeakKeyDictionary()
_buffers: dict[int, ctypes.Array[ctypes.c_uint8]] = {}
_gpus: dict[int, int] = {}  # the GPU of each
_serials: dict[int, int] = {}  # the number of each allocation, from 1
_allocated = itertools.count(1)
_found: list[weakref.ref[torch.Tensor]] = []  # tensors a search has found: they are usually asked for again
THRESHOLDS = 10_000, 5, 5  # of the collector of garbage while kernels run here, in place of Python's 700, 10, 10
_thresholds: list[int] = []  # what they were before `freeze`
_frozen: list[weakref.ref[torch.Tensor]] = []  # tensors that no search comes across any more, see `freeze`
_gone: dict[int, Span] = {}  # what launches could reach or programs have freed, by its start, oldest first: it may be
GONE = 4096  # alive still; at most this many are remembered
_tensors: list[torch.Tensor] | None = None  # every live tensor, while `one_search` lasts
_searching = False
_libc = ctypes.CDLL(None)


def remember(wrapper: object, span: Span, device: bool) -> None:
    """Note the memory of a CuTe tensor; it counts for as long as the object lives."""
    _wrappers[wrapper] = span, device


def span_of(wrapper: object) -> tuple[Span, bool] | None:
    """The memory of a CuTe tensor noted before, and whether it is device memory."""
    try:
        return _wrappers.get(wrapper)
    except TypeError:  # not hashable or not weakly referable: never noted
        return None


def allocate(nbytes: int) -> int:
    """Device memory for cuMemAlloc and cudaMalloc: its address, a multiple of 256."""
    buffer = (ctypes.c_uint8 * (nbytes + 256))()
    address = -(-ctypes.addressof(buffer) // 256) * 256
    _buffers[address], _serials[address], _gpus[address] = buffer, next(_allocated), gpus.current
    fresh.remember(address, nbytes)
    return address


def reached(span: Span) -> None:
    """A launch can reach this memory: remembered for the message of one that comes when it has been freed."""
    _gone.pop(span.start, None)
    _gone[span.start] = span
    if len(_gone) > GONE:
        del _gone[next(iter(_gone))]


def freed(address: int) -> str | None:
    """For an address that no live memory holds: what it belonged to, if that is known."""
    return next((span.label for span in reversed(_gone.values()) if span.holds(address)), None)


def free(address: int) -> bool:
    """Release memory of `allocate`; False when there is none at this address."""
    fresh.forget(address)
    buffer = _buffers.pop(address, None)
    if buffer is not None:
        nbytes = len(buffer) - 256
        reached(Span(address, nbytes, f"an allocation of {nbytes} bytes"))
    return buffer is not None


def owner(address: int) -> tuple[str, int] | None:
    """What identifies the allocation of cuMemAlloc or cudaMalloc that holds an address; None when none does."""
    for start, buffer in _buffers.items():
        if start <= address < start + len(buffer) - 256:
            return "allocation", _serials[start]
    return None


def gpu_of(address: int) -> int | None:
    """The GPU of an allocation of cuMemAlloc or cudaMalloc which holds an address; None when none does."""
    for start, buffer in _buffers.items():
        if start <= address < start + len(buffer) - 256:
            return _gpus[start]
    return None


def find(address: int) -> tuple[int, int, str] | None:
    """(start, bytes, label) of the live memory that holds an address; None when nothing does."""
    for start, buffer in _buffers.items():
        nbytes = len(buffer) - 256
        if start <= address < start + nbytes:
            return start, nbytes, f"allocation of {nbytes} bytes"
    if not _is_mapped(address):
        return None
    if (found := lookup(address)) is not None:
        return found
    for span, device in list(_wrappers.values()):
        if device and span.holds(address) and multicast.window(address) is None:
            return span.start, span.nbytes, span.label
    return None


@contextlib.contextmanager
def one_search() -> Iterator[None]:
    """Look through Python's objects at most once, however many addresses are asked for meanwhile."""
    global _searching, _tensors
    _searching = True
    try:
        yield
    finally:
        _searching, _tensors = False, None


def freeze() -> None:
    """Spare later collections of garbage, and searches, the objects that exist now: most are modules, which stay.

    Importing torch and CuTe DSL leaves some 300,000 of them, and looking through these takes the collector 0.2 s each
    time.  Tensors among them are remembered.  Of the much that tracing a kernel allocates little is garbage: to look
    for it less often takes half of the time.
    """
    _frozen[:] = [weakref.ref(tensor) for tensor in _all_tensors()]
    gc.freeze()
    _thresholds[:] = _thresholds or gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)


def unfreeze() -> None:
    """Undo `freeze`, after a last collection of what has been made since."""
    gc.collect()
    gc.unfreeze()
    if _thresholds:
        gc.set_threshold(*_thresholds)
    _thresholds.clear()
    _frozen.clear()


def _is_mapped(address: int) -> bool:
    """Whether the address is in this process's memory at all: spares a search for integers that are no address."""
    page = ctypes.c_void_p(address & ~4095)
    return not _libc.mincore(page, ctypes.c_size_t(1), ctypes.byref(ctypes.c_ubyte()))


def search(address: int) -> tuple[int, int, str] | None:
    """What `find` returns, for the live torch tensors of this process, whichever they are."""
    tensor = _known_tensor(address)
    if tensor is None:
        tensor = _search_tensor(address)
    if tensor is None:
        return None
    with torch._C.DisableTorchFunction():
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes(), torch_span(tensor, "a tensor").label


# Finds the torch tensor that counts as device memory at an address: any live one, or one that was moved to "cuda".
lookup: Callable[[int], tuple[int, int, str] | None] = search


@contextlib.contextmanager
def host_memory_counts() -> Iterator[None]:
    """Every tensor counts as device memory meanwhile, also where a script that was written for a GPU runs."""
    global on_device, lookup
    before = on_device, lookup
    on_device, lookup = _any_tensor, search
    try:
        yield
    finally:
        on_device, lookup = before


def _known_tensor(address: int) -> torch.Tensor | None:
    """A tensor found before that is alive and still holds the address."""
    with torch._C.DisableTorchFunction():
        for reference in reversed(_found):
            tensor = reference()
            if tensor is not None and _holds(tensor, address):
                return tensor
    return None


def _search_tensor(address: int) -> torch.Tensor | None:
    """The live torch tensor whose storage holds an address, the largest view of it."""
    best: torch.Tensor | None = None
    with torch._C.DisableTorchFunction():
        for item in _all_tensors():
            if _holds(item, address) and (best is None or item.numel() > best.numel()):
                best = item
    if best is not None:
        _found[:] = [reference for reference in _found if reference() is not None][-63:]
        _found.append(weakref.ref(best))
    return best


def _all_tensors() -> list[torch.Tensor]:
    global _tensors
    found = _tensors
    if found is None:
        older = [tensor for reference in _frozen if (tensor := reference()) is not None]
        found = [*older, *_reachable()]
        if _searching:
            _tensors = found
    return found


def _reachable() -> list[torch.Tensor]:
    """There are some hundred thousand objects, of some thousand types: Python looks at the types alone one by one."""
    items = gc.get_objects()
    types = [*map(type, items)]
    tensors = {each for each in set(types) if issubclass(each, torch.Tensor)}
    return [*itertools.compress(items, map(tensors.__contains__, types))]


def _holds(tensor: torch.Tensor, address: int) -> bool:
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or not pool.has_memory(tensor):
        return False
    storage = tensor.untyped_storage()
    start = storage.data_ptr()
    return start <= address < start + storage.nbytes()


def torch_span(tensor: torch.Tensor, name: str) -> Span:
    """The bytes of a strided torch tensor, from its first element to its last."""
    with torch._C.DisableTorchFunction():
        shape, size = tuple(tensor.shape), tensor.element_size()
        reach = sum((n - 1) * stride for n, stride in zip(shape, tensor.stride(), strict=True))
        elements = reach + 1 if tensor.numel() else 0
        dtype = str(tensor.dtype).removeprefix("torch.")
        return Span(tensor.data_ptr(), elements * size, label(name, shape, dtype))


def spans(name: str, value: object, depth: int = 4) -> Iterator[tuple[Span, bool]]:
    """Every tensor in an argument, nested containers included, each with whether it is device memory."""
    if issubclass(type(value), torch.Tensor):
        if value.layout == torch.strided:  # type: ignore[attr-defined]
            yield torch_span(value, name), on_device(value)
    elif (known := span_of(value)) is not None:
        span, device = known
        yield Span(span.start, span.nbytes, span.label.replace("tensor", name, 1)), device
    elif depth == 0:
        return
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from spans(f"{name}[{i}]", item, depth - 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from spans(f"{name}[{key!r}]", item, depth - 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from spans(f"{name}.{field.name}", getattr(value, field.name, None), depth - 1)
