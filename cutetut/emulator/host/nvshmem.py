"""nvshmem.core and cuda.core's Device, as far as programs use them to get memory that several GPUs share.

The real packages call the CUDA driver from compiled code, so among emulated ranks these stand in for them.
"""

from __future__ import annotations

import math
import sys
import types
from enum import IntEnum
from typing import Any

import numpy as np
import torch
from torch.distributed import distributed_c10d

from . import collectives, gpus, ranks, shared_memory
from .collectives import Call
from .patches import Patches
from .process_group import Group
from .torch_streams import Stream


class Teams(IntEnum):
    """nvshmem.core.Teams, whose members are all the ranks of one host here."""

    TEAM_WORLD = 0
    TEAM_SHARED = 1
    TEAM_NODE = 2


class Device:
    """cuda.core.Device."""

    def __init__(self, device_id: int | None = None) -> None:
        self.device_id = gpus.current if device_id is None else device_id

    def set_current(self) -> None:
        gpus.use(self.device_id)

    def create_stream(self, *_: Any, **__: Any) -> Stream:
        return Stream(self.device_id)

    def sync(self) -> None:
        torch.cuda.synchronize(self.device_id)


class UniqueID:
    """What the ranks agree on before they share memory."""

    def __init__(self) -> None:
        self._data = np.zeros(128, np.uint8)


_shared: dict[tuple[int, int], tuple[list[torch.Tensor], torch.Tensor]] = {}  # by rank and start: all buffers, and one


def forget() -> None:
    _shared.clear()


def _group() -> Group:
    group = distributed_c10d._get_default_group()
    assert isinstance(group, Group)
    return group


def _nothing(*_: Any, **__: Any) -> None:
    """There is nothing to prepare or to end."""


def tensor(shape: Any, dtype: torch.dtype = torch.float32, **_: Any) -> torch.Tensor:
    """Memory of every rank; all have to ask for as much. It is zero."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    own = shared_memory.new((max(math.prod(shape), 1),), dtype, gpus.current)
    found = _group().everyone("nvshmem.core.tensor", (own, gpus.current, own.numel() * own.element_size()))
    if len({nbytes for *_, nbytes in found}) > 1:
        raise RuntimeError("nvshmem.core.tensor: the ranks ask for different sizes")
    for buffer, *_ in found:
        shared_memory.opened(buffer, [gpu for _, gpu, _ in found])
    result = own[: math.prod(shape)].view(shape)
    _shared[ranks.number(), result.data_ptr()] = [buffer for buffer, *_ in found], own
    return result


def get_peer_tensor(tensor: torch.Tensor, peer_pe: int) -> torch.Tensor:
    """The same tensor of another rank."""
    if peer_pe == ranks.number():
        return tensor
    buffers, _ = _shared[ranks.number(), tensor.data_ptr()]
    return shared_memory.over(buffers[peer_pe].data_ptr(), tensor.shape, tensor.dtype, gpus.current, buffers)


def get_multicast_tensor(team: Any, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor whose address stands for that of all ranks: only multimem's instructions may use it."""
    buffers, own = _shared[ranks.number(), tensor.data_ptr()]
    nbytes = own.untyped_storage().nbytes()
    start = shared_memory.window(tuple(buffer.data_ptr() for buffer in buffers), nbytes)
    return shared_memory.over(start, tensor.shape, tensor.dtype, gpus.current, buffers)


def barrier(*_: Any, **__: Any) -> None:
    """All ranks' current streams wait for each other."""
    call = Call("nvshmem.core.barrier", collectives.nothing, [], [])
    _group()._collective(call, gpu=gpus.current).wait()


def install(patches: Patches) -> None:
    """Let programs import these in place of the packages."""
    core = types.ModuleType("nvshmem.core")
    answers: dict[str, Any] = {
        "init": _nothing, "finalize": _nothing, "free_tensor": _nothing, "tensor": tensor, "Teams": Teams,
        "get_unique_id": lambda empty=False: UniqueID(), "my_pe": ranks.number, "n_pes": ranks.count,
        "get_peer_tensor": get_peer_tensor, "get_multicast_tensor": get_multicast_tensor, "barrier": barrier,
        "barrier_all": barrier, "UniqueID": UniqueID,
    }  # fmt: skip
    for name, value in answers.items():
        setattr(core, name, value)
    nvshmem = types.ModuleType("nvshmem")
    nvshmem.core = core  # type: ignore[attr-defined]
    cuda_core = types.ModuleType("cuda.core")
    cuda_core.Device = Device  # type: ignore[attr-defined]
    before = {name: sys.modules.get(name) for name in ("nvshmem", "nvshmem.core", "cuda.core")}
    sys.modules.update({"nvshmem": nvshmem, "nvshmem.core": core, "cuda.core": cuda_core})
    patches.later(lambda: _put_back(before))
    import cuda.pathfinder

    load = cuda.pathfinder.load_nvidia_dynamic_lib
    patches.set(
        cuda.pathfinder, "load_nvidia_dynamic_lib", lambda name: None if name == "nvshmem_host" else load(name)
    )


def _put_back(modules: dict[str, Any]) -> None:
    for name, module in modules.items():
        if module is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = module
