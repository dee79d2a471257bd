"""torch.cuda's functions without a GPU: they report the one device there is and take every argument torch's own do."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from ..machine import residents
from . import device, gpus, graphs, torch_graphs
from .cuda_api import CudaCallError
from .patches import Patches
from .torch_streams import current_stream, get_stream_from_external, index_of

_BYTES = device.MEMORY_BYTES


def is_cuda(value: object) -> bool | None:
    """Whether a device argument names the GPU; None when the value is no device.

    Raises RuntimeError, as CUDA does, for a GPU that does not exist.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | torch.device):
        return None
    try:
        where = torch.device("cuda", value) if isinstance(value, int) else torch.device(value)
    except RuntimeError:
        return None
    if where.type == "cuda" and where.index is not None and where.index >= gpus.count:
        raise RuntimeError(f"CUDA error: {gpus.missing(where.index)}")
    return where.type == "cuda"


class Device:
    """torch.cuda.device: the current one inside."""

    def __init__(self, device: Any = None) -> None:
        if device is not None:
            is_cuda(device)
        self.idx, self.prev_idx = index_of(device), gpus.current

    def __enter__(self) -> Device:
        self.prev_idx = gpus.current
        gpus.use(self.idx)
        return self

    def __exit__(self, *_: object) -> None:
        gpus.use(self.prev_idx)


class DeviceOf(Device):
    """torch.cuda.device_of: the device of a tensor."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device if obj.is_cuda else None)


def _set_device(device: Any) -> None:
    if is_cuda(device):
        gpus.use(index_of(device))


def _can_access_peer(device: Any, peer_device: Any) -> bool:
    is_cuda(device), is_cuda(peer_device)
    return index_of(device) != index_of(peer_device)


class Generator(torch._C.Generator):
    """torch.Generator whose device may be "cuda"; both draw from a CPU generator."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        self: Generator = super().__new__(cls, "cpu")
        self._where = torch.device("cuda", index_of(device)) if is_cuda(device) else torch.device("cpu")
        return self

    @property
    def device(self) -> torch.device:
        return self._where


def _properties(**_: Any) -> SimpleNamespace:
    return SimpleNamespace(
        name=device.NAME, major=device.CAPABILITY[0], minor=device.CAPABILITY[1], total_memory=_BYTES,
        multi_processor_count=residents.SM_COUNT, warp_size=residents.WARP, L2_cache_size=device.L2_BYTES,
        max_threads_per_multi_processor=residents.THREADS_PER_SM, max_threads_per_block=residents.THREADS_PER_BLOCK,
        regs_per_multiprocessor=65536, shared_memory_per_block=device.SHARED_DEFAULT,
        shared_memory_per_block_optin=residents.SHARED_OPTIN, shared_memory_per_multiprocessor=residents.SHARED_PER_SM,
        clock_rate=device.CLOCK_KHZ, memory_clock_rate=device.MEMORY_CLOCK_KHZ,
        memory_bus_width=device.MEMORY_BUS_BITS, is_integrated=False, is_multi_gpu_board=False,
    )  # fmt: skip


def _refuse(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> None:
        raise CudaCallError(f"torch.cuda.{name} is not emulated", hint="run the work without it on this machine")

    return refuse


def _constant(value: Any) -> Callable[..., Any]:
    return lambda **_: value


def _seed(seed: int) -> None:
    torch.default_generator.manual_seed(int(seed))  # not torch.manual_seed: that calls this


def _new_seed() -> None:
    torch.default_generator.seed()


def _seeded_state(new_state: torch.Tensor, **_: Any) -> None:
    torch.set_rng_state(new_state)


def _seeded_states(new_states: Any) -> None:
    for state in new_states:
        torch.set_rng_state(state)


# By name, what answers; each takes torch's parameters by their names.
_ANSWERS: dict[str, Callable[..., Any]] = {
    name: _constant(value)
    for name, value in {
        "is_available": True, "is_initialized": True,
        "get_device_name": device.NAME, "get_device_capability": device.CAPABILITY, "mem_get_info": (_BYTES, _BYTES),
        "memory_allocated": 0, "max_memory_allocated": 0, "memory_reserved": 0, "max_memory_reserved": 0,
        "is_bf16_supported": True, "is_tf32_supported": True, "get_arch_list": ["sm_90"], "get_sync_debug_mode": 0,
        "get_per_process_memory_fraction": 1.0, "memory_summary": "",
        "init": None, "_lazy_init": None, "empty_cache": None, "ipc_collect": None, "reset_peak_memory_stats": None,
        "reset_max_memory_allocated": None, "reset_max_memory_cached": None, "reset_accumulated_memory_stats": None,
        "set_sync_debug_mode": None, "set_per_process_memory_fraction": None, "_sleep": None,
    }.items()
} | {
    "device_count": lambda: gpus.count,
    "current_device": lambda: gpus.current,
    "set_device": _set_device,
    "graph_pool_handle": torch_graphs.graph_pool_handle,
    "is_current_stream_capturing": lambda: graphs.capturing(current_stream().cuda_stream),
    "get_stream_from_external": get_stream_from_external,
    "get_device_properties": _properties,
    "memory_stats": lambda **_: {},
    "manual_seed": _seed,
    "manual_seed_all": _seed,
    "seed": _new_seed,
    "seed_all": _new_seed,
    "initial_seed": lambda: torch.default_generator.initial_seed(),
    "get_rng_state": lambda **_: torch.get_rng_state(),
    "set_rng_state": _seeded_state,
    "get_rng_state_all": lambda: [torch.get_rng_state()],
    "set_rng_state_all": _seeded_states,
    "can_device_access_peer": _can_access_peer,
    "make_graphed_callables": _refuse("make_graphed_callables"),
}  # fmt: skip
_CLASSES: dict[str, type[Any]] = {
    "CUDAGraph": torch_graphs.CUDAGraph, "graph": torch_graphs.graph, "device": Device, "device_of": DeviceOf,
}  # fmt: skip
_NVTX = ("range_push", "range_pop", "mark", "range_start", "range_end")


def _declared_like(original: Callable[..., Any], answer: Callable[..., Any]) -> Callable[..., Any]:
    """Takes the arguments that a function of torch declares, whatever this version's are, and checks a `device`."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        where = given.get("device")
        if where is not None and is_cuda(where) is False:
            raise ValueError(f"Expected a cuda device, but got: {where}")
        return answer(**given)

    return call


def _replace(patches: Patches, name: str, original: Any, value: Any) -> None:
    """In torch.cuda, and in the module of it that defines the name."""
    patches.set(torch.cuda, name, value)
    home = sys.modules.get(getattr(original, "__module__", ""))
    if home not in (None, torch.cuda) and vars(home).get(name) is original:
        patches.set(home, name, value)


def install(patches: Patches) -> None:
    """Make torch.cuda report one GPU."""
    for name, answer in _ANSWERS.items():
        if (original := vars(torch.cuda).get(name)) is not None:  # not every version of torch has all
            _replace(patches, name, original, _declared_like(original, answer))
    for name, kind in _CLASSES.items():
        _replace(patches, name, vars(torch.cuda)[name], kind)
    for name in _NVTX:
        if (original := getattr(torch.cuda.nvtx, name, None)) is not None:
            patches.set(torch.cuda.nvtx, name, _declared_like(original, _constant(0)))
    for name in ("start", "stop"):
        patches.set(torch.cuda.profiler, name, lambda: None)
    patches.set(torch, "Generator", Generator)
