"""torch.distributed._symmetric_memory among the ranks of one process: memory of each that all may use.

A peer's buffer is a tensor that counts as this rank's GPU's, over memory that stays the peer's.  `rendezvous` gives the
GPUs of a group access to these buffers and signal pads, and to nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d
from torch.distributed import _symmetric_memory as symm_mem
from torch.distributed import distributed_c10d

from . import collectives, ranks, shared_memory
from .collectives import Call
from .cuda_api import CudaCallError
from .patches import Patches
from .process_group import Group
from .shared_memory import buffer_at, new, opened, over, window

SIGNAL_PAD = 32 * 72 * 4  # bytes: 32 channels of as many ranks as NVLink joins, PyTorch's default
_handles: dict[tuple[int, str, int], SymmetricMemory] = {}  # by start, group and rank


def forget() -> None:
    """There is no symmetric memory any more."""
    _handles.clear()
    shared_memory.forget()


class SymmetricMemory:
    """What `rendezvous` returns: the buffers and signal pads of all ranks of a group, as one of them sees them."""

    signal_pad_size = SIGNAL_PAD

    def __init__(self, group: Group, buffers: list[torch.Tensor], pads: list[torch.Tensor], offset: int) -> None:
        self.group, self.rank, self.world_size, self.offset = group, group.rank(), group.size(), offset
        self._buffers, self._pads = buffers, pads
        self._gpu = torch.cuda.current_device()
        self.device = torch.device("cuda", self._gpu)
        self.buffer_ptrs = [buffer.untyped_storage().data_ptr() for buffer in buffers]
        self.signal_pad_ptrs = [pad.data_ptr() for pad in pads]
        self.buffer_size = buffers[self.rank].untyped_storage().nbytes()
        self._tables = [torch.tensor(ptrs, device=self.device) for ptrs in (self.buffer_ptrs, self.signal_pad_ptrs)]
        self.buffer_ptrs_dev, self.signal_pad_ptrs_dev = (table.data_ptr() for table in self._tables)

    @property
    def multicast_ptr(self) -> int:
        """The address that stands for all buffers, for multimem's instructions."""
        return window(tuple(self.buffer_ptrs), self.buffer_size)

    def _view(self, base: int, nbytes: int, shape: Sequence[int], dtype: torch.dtype, offset: int) -> torch.Tensor:
        if (math.prod(shape) + offset) * dtype.itemsize > nbytes:
            raise RuntimeError(f"{tuple(shape)} of {dtype} from {offset} on are more than the {nbytes} bytes there are")
        return over(base + offset * dtype.itemsize, shape, dtype, self._gpu, self)

    def get_buffer(self, rank: int, sizes: Any, dtype: torch.dtype, storage_offset: int = 0) -> torch.Tensor:
        """The buffer of a rank, or part of it."""
        return self._view(self.buffer_ptrs[rank], self.buffer_size, sizes, dtype, storage_offset)

    def get_remote_tensor(self, peer: int, sizes: Any, dtype: torch.dtype) -> torch.Tensor:
        return self.get_buffer(peer, sizes, dtype, self.offset // dtype.itemsize)

    def get_signal_pad(
        self, rank: int, sizes: Any = (), dtype: torch.dtype | None = None, storage_offset: int = 0
    ) -> torch.Tensor:
        """The signal pad of a rank, or part of it; all of it as unsigned 32-bit numbers where nothing else is asked."""
        dtype = dtype or torch.uint32
        nbytes = self._pads[rank].untyped_storage().nbytes()
        return self._view(
            self.signal_pad_ptrs[rank], nbytes, sizes or (nbytes // dtype.itemsize,), dtype, storage_offset
        )

    # -- on the current stream --------------------------------------------------------------------

    def barrier(self, channel: int = 0, timeout_ms: int = 0) -> None:
        """All ranks' current streams wait for each other; hosts do not."""
        call = Call("symmetric memory's barrier", collectives.nothing, [], [], (channel,))
        self.group._collective(call, gpu=self._gpu).wait()

    def put_signal(self, dst_rank: int, channel: int = 0, timeout_ms: int = 0) -> None:
        """Tell a rank's current stream that this one's work so far is done. Nobody waits here."""
        self.group.signal(channel, self.rank, dst_rank, self._gpu)

    def wait_signal(self, src_rank: int, channel: int = 0, timeout_ms: int = 0) -> None:
        """The current stream waits for a signal of a rank."""
        self.group.signal(channel, src_rank, self.rank, self._gpu).wait()

    # -- what the module calls --------------------------------------------------------------------

    @staticmethod
    def empty_strided_p2p(
        size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: Any, group_name: Any = None,
        alloc_id: Any = None,
    ) -> torch.Tensor:  # fmt: skip
        where = torch.device(device)
        if where.type != "cuda":
            raise RuntimeError(f"symmetric memory is a GPU's, not in memory of {where}")
        count = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if math.prod(size) else 0
        gpu = torch.cuda.current_device() if where.index is None else where.index
        return new((count,), dtype, gpu).as_strided(size, stride)

    @staticmethod
    def rendezvous(tensor: torch.Tensor, group_name: str | None = None) -> SymmetricMemory:
        """All ranks of a group come with a tensor of `empty`; each returns with access to all of them."""
        start = tensor.untyped_storage().data_ptr()
        if (shared := buffer_at(start)) is None:
            raise RuntimeError("rendezvous: the tensor's memory is not of torch.distributed._symmetric_memory.empty")
        group = _group(group_name)
        key = start, group.name, ranks.number()
        if key not in _handles:
            gpu = torch.cuda.current_device()
            pad = new((SymmetricMemory.signal_pad_size // 4,), torch.int32, gpu)
            offset = tensor.data_ptr() - start
            found = group.everyone("rendezvous", (shared, pad, gpu, tensor.numel() * tensor.element_size()))
            if len({nbytes for *_, nbytes in found}) > 1:
                raise RuntimeError("rendezvous: the ranks' tensors are not of one size")
            for buffer, other, *_ in found:
                opened(buffer, [each for *_, each, _ in found])
                opened(other, [each for *_, each, _ in found])
            _handles[key] = SymmetricMemory(group, [each[0] for each in found], [each[1] for each in found], offset)
        return _handles[key]

    @staticmethod
    def has_multicast_support(device_type: Any, device_idx: int) -> bool:
        return True

    @staticmethod
    def set_group_info(*_: Any, **__: Any) -> None:
        """The groups of this process are known."""

    @staticmethod
    def is_symm_mem_tensor(tensor: torch.Tensor) -> bool:
        return buffer_at(tensor.untyped_storage().data_ptr()) is not None

    @staticmethod
    def set_backend(name: str) -> None:
        if name != "CUDA":
            raise CudaCallError(f"symmetric memory of {name} is not emulated", hint='"CUDA", which is the default')

    @staticmethod
    def get_backend(device: Any) -> str:
        return "CUDA"


def _group(name: str | None) -> Group:
    found = [group for group, known in distributed_c10d._world.pg_names.items() if known == name]
    group = found[0] if found else distributed_c10d._get_default_group()
    assert isinstance(group, Group)
    return group


def install(patches: Patches) -> None:
    """Let torch's module use this memory."""
    for module in (symm_mem, c10d):
        patches.set(module, "_SymmetricMemory", SymmetricMemory)
    for name in ("is_nvshmem_available", "_should_use_implicit_mempool"):
        patches.set(symm_mem, name, lambda: False)
