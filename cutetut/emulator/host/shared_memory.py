"""Memory of one GPU that others may be allowed to use: what there is, for whom, and what torch's functions do to it.

torch's symmetric memory (symmetric.py) and NVSHMEM's (nvshmem.py) are made of it.  What is here needs no process group,
so that a program without ranks does not import any.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence
from typing import Any

import torch

from ..machine import multicast
from . import exchanges, gpus
from .exchanges import Touch
from .torch_streams import current_stream

_shared: dict[int, torch.Tensor] = {}  # by its start, memory that `new` has given
_multicast: dict[tuple[tuple[int, ...], int], tuple[int, mmap.mmap]] = {}  # by buffers and bytes


def forget() -> None:
    """There is no such memory any more."""
    _shared.clear()
    _multicast.clear()
    gpus.unmap()
    multicast.forget()


def buffer_at(start: int) -> torch.Tensor | None:
    """What `new` gave at this address."""
    return _shared.get(start)


def several_use(tensor: torch.Tensor) -> bool:
    """Whether a tensor's memory is, or can become, open to other GPUs."""
    if not _shared:
        return False
    with torch._C.DisableTorchFunction():
        address = tensor.data_ptr()
        ranges = ((start, each.untyped_storage().nbytes()) for start, each in _shared.items())
        return any(start <= address < start + nbytes for start, nbytes in ranges)


def opened(tensor: torch.Tensor, to: Sequence[int]) -> None:
    """Let these GPUs use the memory of a tensor."""
    storage = tensor.untyped_storage()
    for gpu in to:
        gpus.map_memory(gpu, storage.data_ptr(), storage.nbytes())


def over(address: int, shape: Sequence[int], dtype: torch.dtype, gpu: int, keep: Any = None) -> torch.Tensor:
    """A tensor that counts as a GPU's, over memory that is there already and belongs to another, or to `keep`."""
    with torch._C.DisableTorchFunction():
        count = math.prod(shape)
        nbytes = max(count, 1) * dtype.itemsize
        raw = (ctypes.c_uint8 * nbytes).from_address(address)
        raw.keep = keep
        tensor = torch.frombuffer(raw, dtype=torch.uint8)[: count * dtype.itemsize].view(dtype).view(list(shape))
        setattr(tensor.untyped_storage(), gpus.ON_GPU, gpu)
        return tensor


def new(shape: Sequence[int], dtype: torch.dtype, gpu: int) -> torch.Tensor:
    """Memory of a GPU that others may be allowed to use. It is zero, like what the driver gives a new process."""
    tensor: torch.Tensor = torch.zeros(tuple(shape), dtype=dtype, device=torch.device("cuda", gpu))
    _shared[tensor.untyped_storage().data_ptr()] = tensor
    return tensor


def window(buffers: tuple[int, ...], nbytes: int) -> int:
    """The multicast address of these buffers."""
    key = buffers, nbytes
    if key not in _multicast:
        room = mmap.mmap(-1, nbytes)  # an address that nothing else has
        start = ctypes.addressof(ctypes.c_uint8.from_buffer(room))
        multicast.bind(start, nbytes, buffers)
        _multicast[key] = start, room
    return _multicast[key][0]


def noted(what: str, gpu: int, tensors: Sequence[tuple[torch.Tensor, bool]]) -> None:
    """A function of torch has used tensors, or written them; where others may use them, it is compared with theirs."""
    touches: list[Touch] = [exchanges.touch(tensor, writes) for tensor, writes in tensors if several_use(tensor)]
    if touches:
        exchanges.used(what, gpu, current_stream(gpu).number, touches)

