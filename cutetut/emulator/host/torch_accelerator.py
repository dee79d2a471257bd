"""torch.accelerator: torch's names for the same device whoever made it, answered by those of torch.cuda."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .cuda_api import CudaCallError
from .patches import Patches

# torch.accelerator's functions by name, and what torch.cuda calls the same
_AS_CUDA = {
    "is_available": "is_available", "device_count": "device_count", "empty_cache": "empty_cache",
    "empty_host_cache": "empty_cache",
    "current_device_index": "current_device", "current_device_idx": "current_device",
    "set_device_index": "set_device", "set_device_idx": "set_device", "device_index": "device",
    "synchronize": "synchronize", "current_stream": "current_stream", "set_stream": "set_stream",
    "get_memory_info": "mem_get_info", "memory_stats": "memory_stats", "memory_allocated": "memory_allocated",
    "max_memory_allocated": "max_memory_allocated", "memory_reserved": "memory_reserved",
    "max_memory_reserved": "max_memory_reserved", "reset_peak_memory_stats": "reset_peak_memory_stats",
    "reset_accumulated_memory_stats": "reset_accumulated_memory_stats",
}  # fmt: skip


def _of_cuda(name: str) -> Callable[..., Any]:
    return lambda *args, **kwargs: getattr(torch.cuda, name)(*args, **kwargs)


def _current(check_available: bool = False) -> torch.device:
    return torch.device("cuda")


def _refused(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> None:
        raise CudaCallError(f"torch.accelerator.{name} is not emulated", hint="torch.cuda has the same")

    return refuse


def install(patches: Patches) -> None:
    """Let the accelerator be the emulated GPU."""
    patches.set(torch._C, "_get_accelerator", lambda *_: torch.device("cuda"))
    for name in torch.accelerator.__all__:
        if name == "current_accelerator":
            patches.set(torch.accelerator, name, _current)
        else:
            patches.set(torch.accelerator, name, _of_cuda(_AS_CUDA[name]) if name in _AS_CUDA else _refused(name))
