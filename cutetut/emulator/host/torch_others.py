"""Parts of torch besides torch.cuda that know devices: threads, processes, files, autocast, attention, the profiler."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.nn.attention
from torch.multiprocessing.reductions import reduce_storage
from torch.profiler import ProfilerActivity
from torch.profiler import profiler as torch_profiler

from .cuda_api import CudaCallError
from .patches import Patches
from .torch_functions import is_cuda

Wrapped = Callable[..., Any]


@dataclass(frozen=True)
class Marks:
    """What the device "cuda" is, from cuda_torch.py: what is on it, how to put it there, the mode to enter for it."""

    on_device: Callable[[torch.Tensor], bool]
    storage_on_device: Callable[[Any], bool]
    put: Callable[[torch.Tensor], torch.Tensor]
    mode: Callable[[], AbstractContextManager[Any]]


def install(patches: Patches, marks: Marks) -> None:
    """Let these parts serve the device "cuda"."""
    serialization, attention = torch.serialization, torch.nn.attention
    thread, autocast, profile = threading.Thread, torch.amp.autocast_mode.autocast, torch_profiler._KinetoProfile
    patches.set(thread, "_bootstrap_inner", _in_mode(vars(thread)["_bootstrap_inner"], marks))
    ForkingPickler.register(torch.UntypedStorage, _of_one_process(marks))
    patches.later(lambda: ForkingPickler.register(torch.UntypedStorage, reduce_storage))
    patches.set(torch.UntypedStorage, "resize_", _as_large(torch.UntypedStorage.resize_, marks))
    patches.set(serialization, "location_tag", _tag(serialization.location_tag, marks))
    patches.set(serialization, "default_restore_location", _restore(serialization.default_restore_location, marks))
    patches.set(torch, "from_dlpack", _shared(torch.from_dlpack, marks))
    patches.set(autocast, "__init__", _autocast(vars(autocast)["__init__"]))
    patches.set(attention, "_sdpa_kernel", _also_plain(attention._sdpa_kernel))
    patches.set(profile, "__init__", _host_only(vars(profile)["__init__"]))
    patches.set(torch.cuda, "default_generators", (torch.default_generator,))


def _in_mode(original: Wrapped, marks: Marks) -> Wrapped:
    """Thread._bootstrap_inner: a function mode is one thread's; those that start meanwhile get their own."""

    @functools.wraps(original)
    def run(self: threading.Thread) -> Any:
        with marks.mode():
            return original(self)

    return run


def _of_one_process(marks: Marks) -> Wrapped:
    """What multiprocessing sends to another process: memory of the device is this process's."""

    def reduce(storage: torch.UntypedStorage) -> Any:
        if marks.storage_on_device(storage):
            raise CudaCallError(
                "a tensor on the device is sent to another process, which is not emulated", hint="send its .cpu()"
            )
        return reduce_storage(storage)

    return reduce


def _as_large(original: Wrapped, marks: Marks) -> Wrapped:
    """UntypedStorage.resize_: the device's memory has another alignment than torch's, and keeps its size."""

    @functools.wraps(original)
    def resize_(self: Any, size: int) -> Any:
        if marks.storage_on_device(self) and not self.resizable() and size <= self.nbytes():
            return self
        return original(self, size)

    return resize_


def _tag(original: Wrapped, marks: Marks) -> Wrapped:
    """torch.save notes where a tensor was."""

    @functools.wraps(original)
    def location_tag(storage: Any) -> Any:
        return "cuda:0" if marks.storage_on_device(storage) else original(storage)

    return location_tag


def _restore(original: Wrapped, marks: Marks) -> Wrapped:
    """torch.load puts a tensor where it was, or where `map_location` says."""

    @functools.wraps(original)
    def default_restore_location(storage: Any, location: Any) -> Any:
        if not is_cuda(location):
            return original(storage, location)
        marks.put(torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage))
        return storage

    return default_restore_location


def _shared(original: Wrapped, marks: Marks) -> Wrapped:
    """torch.from_dlpack of a tensor on the device shares its memory."""

    @functools.wraps(original)
    def from_dlpack(ext_tensor: Any, **options: Any) -> Any:
        if not isinstance(ext_tensor, torch.Tensor) or not marks.on_device(ext_tensor):
            return original(ext_tensor, **options)
        where = is_cuda(options.pop("device", None))
        result = marks.put(original(ext_tensor, **options))
        return result.cpu() if where is False else result

    return from_dlpack


def _autocast(original: Wrapped) -> Wrapped:
    """autocast("cuda") casts for the CPU, where the work is done, to the type that "cuda" would choose."""

    @functools.wraps(original)
    def __init__(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.get_autocast_dtype("cuda")
        original(self, device_type, dtype, *args, **kwargs)

    return __init__


def _also_plain(original: Wrapped) -> Wrapped:
    """sdpa_kernel: most backends are for GPUs; whichever is asked for, the plain one may do its work."""

    @functools.wraps(original)
    def _sdpa_kernel(backends: Any, *args: Any, **kwargs: Any) -> None:
        plain = torch.nn.attention.SDPBackend.MATH
        original([*backends, *([] if plain in backends else [plain])], *args, **kwargs)

    return _sdpa_kernel


def _host_only(original: Wrapped) -> Wrapped:
    """torch.profiler.profile: there are no activities of a GPU to record."""

    @functools.wraps(original)
    def __init__(self: Any, *, activities: Any = None, **options: Any) -> None:
        if activities is not None:
            activities = [each for each in activities if each != ProfilerActivity.CUDA] or [ProfilerActivity.CPU]
        original(self, activities=activities, **options)

    return __init__
