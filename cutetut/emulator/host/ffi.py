"""Functions that CuTe DSL compiles for TVM-FFI (`options="--enable-tvm-ffi"`): torch tensors in, no CuTe tensors.

Such a function carries an entry of its own in the compiled host code, which checks the arguments and unpacks
them.  It runs here as it is; only its tensors, which lie in this process's memory, must say that they are on
the GPU.  Importing this module needs the package apache-tvm-ffi.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import tvm_ffi
from cutlass.cutlass_dsl import tvm_ffi_provider

from . import dlpack, live
from .patches import Patches
from .torch_streams import current_stream

Guard = Callable[[Callable[..., Any]], Callable[..., Any]]


def install(patches: Patches, guard: Guard) -> None:
    """Let functions compiled for TVM-FFI run on the execution engine that calls us; a second call does nothing.

    `guard` wraps a call that may launch, so that it raises what a launch raised.
    """
    base = tvm_ffi_provider.TVMFFIJitCompiledFunctionBase
    if vars(base)["_create_tvm_ffi_function"] is _entry:
        return
    patches.set(base, "_create_tvm_ffi_function", _entry)
    for compiled in (
        tvm_ffi_provider.TVMFFIJitCompiledFunction,
        tvm_ffi_provider.TVMFFIJitCompiledFunctionWithKwargs,
    ):
        patches.set(compiled, "__call__", guard(_with_tensors_on_device(compiled.__call__)))


def _entry(compiled: Any) -> Any:
    """The function's TVM-FFI entry, from the engine it was compiled by; None when it was not compiled to run here."""
    if compiled.engine is None:
        return None
    address = compiled.engine.raw_lookup(f"__tvm_ffi_{compiled.function_name}")
    return tvm_ffi.Function.__from_mlir_packed_safe_call__(address, keep_alive_object=compiled.engine)


def _with_tensors_on_device(original: Callable[..., Any]) -> Callable[..., Any]:
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        on_device = {name: argument(value) for name, value in kwargs.items()}
        stream = current_stream().cuda_stream  # which torch's tensors bring along on a GPU
        with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda:0"), stream):
            return original(self, *map(argument, args), **on_device)

    return __call__


class _OnDevice:
    """A tensor of this process's memory as DLPack shows one on GPU 0."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, 0

    def __dlpack__(self, **_: Any) -> Any:
        with torch._C.DisableTorchFunction():
            tensor = self.tensor.detach() if isinstance(self.tensor, torch.Tensor) else self.tensor
            capsule = tensor.__dlpack__()
        dlpack.set_device_type(capsule, dlpack.CUDA)
        return capsule


def on_device(value: Any) -> Any:
    """A tensor that counts as device memory, as DLPack shows one on GPU 0; any other value as it is."""
    if not hasattr(value, "__dlpack__") or not live.on_device(value):
        return value
    with torch._C.DisableTorchFunction():
        return _OnDevice(value) if value.__dlpack_device__()[0] == dlpack.CPU else value


def argument(value: Any) -> Any:
    """An argument of a call with every tensor of the device in it, also in containers, as one on GPU 0."""
    if isinstance(labelled := on_device(value), _OnDevice):
        return tvm_ffi.from_dlpack(labelled)
    if isinstance(value, list | tuple):
        return tuple(map(argument, value))
    if isinstance(value, dict):
        return {key: argument(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        twin = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(twin, field.name, argument(getattr(value, field.name)))
        return twin
    return value
