"""The host side: run the DSL's compiled host function on this machine and catch its launches.

CuTe DSL compiles a `@cute.jit` function into native host code that calls about a dozen functions of the
CUDA runtime.  `install` gives every such piece of code ours instead (host_calls.py): they answer queries,
load the PTX that this very compilation produced, and hand each launch to the scheduler.  A launch has
finished when it returns, so streams keep their order and synchronising is nothing.

This file, compilation.py and ffi.py alone touch private parts of the DSL; they fit version 4.8.1 exactly.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import EmulatorError, InternalError
from . import cuda_api, dlpack, launches, live, ranks, stream_order, together, torch_streams
from .compilation import compiled_once, engine_with_our_calls, keep_artifacts, once_per_context, once_per_place, unseen
from .cuda_api import CudaCallError
from .host_calls import flight
from .patches import Patches

ARCH = "sm_90a"
PREFIXES = ("CUTE_DSL", "CUTE_EXPERIMENTAL_DSL")
LOADING = "it has loaded a kernel's code: a first launch loads onto all GPUs and waits for them (`.to()` loads, too)"

_patches = Patches()
_environment: dict[str, str | None] = {}


def install(dump_dir: str) -> None:
    """Make this process's CuTe DSL compile for sm_90a and run kernels in the emulator; a second call does nothing.

    PTX and cubin of every compilation are written to `dump_dir`.
    """
    import cutlass.testing  # may activate this process's backend, which calls this function
    from cutlass._mlir import ir
    from cutlass._mlir_helpers import op
    from cutlass.base_dsl import compiler, dsl, jit_executor
    from cutlass.base_dsl.export import external_binary_module
    from cutlass.cute import runtime, testing
    from cutlass.cutlass_dsl import cuda_jit_executor

    if _patches:
        return
    for prefix in PREFIXES:
        for name, value in (("ARCH", ARCH), ("DISABLE_FILE_CACHING", "1"), ("DUMP_DIR", dump_dir)):
            _set_environment(f"{prefix}_{name}", value)
    reread_environment()
    for module, table in cuda_api.tables().items():
        for name, function in table.items():
            _patches.set(module, name, function)
    options, jit = compiler.CompileOptions, compiler.Compiler.jit
    _patches.set(options, "apply_envar_settings", keep_artifacts(compiler, options.apply_envar_settings, _use_ffi))
    _patches.set(compiler.Compiler, "compile", compiled_once(dsl, compiler.Compiler.compile))
    _patches.set(compiler.Compiler, "jit", engine_with_our_calls(dsl, jit))
    _patches.set(op, "_fast_frameinfo", once_per_place(op._fast_frameinfo))
    _patches.set(op, "_is_framework_module", functools.cache(op._is_framework_module))  # asked for every operation
    _patches.set(op, "_get_location_from_frame_info", once_per_context(op._get_location_from_frame_info, ir))
    _patches.set(runtime._Tensor, "__init__", _tensors_in_global_memory(runtime._Tensor.__init__))
    compiled, executor = jit_executor.JitCompiledFunction, jit_executor.JitExecutor
    ours = cuda_jit_executor.CudaDialectJitCompiledFunction
    _patches.set(dsl.BaseDSL, "_func", _guard(dsl.BaseDSL._func, _arguments_of_direct_call))
    _patches.set(ours, "__call__", _guard(ours.__call__, _arguments_of_compiled))
    _patches.set(ours, "to", _guard(ours.to))
    _patches.set(ours, "_load_cuda_library", _loads_onto_all_gpus(ours._load_cuda_library))
    _patches.set(compiled, "run_compiled_program", _guard(compiled.run_compiled_program))
    _patches.set(executor, "run_compiled_program", _guard(executor.run_compiled_program))
    call = executor.__call__
    _patches.set(executor, "__call__", _guard(call, lambda self, *a, **k: _bound(self.jit_module.execution_args, a, k)))
    _patches.set(external_binary_module.ExternalBinaryModule, "__init__", _refuse_exported)
    torch_streams.install(_patches)
    _patches.set(cutlass.testing, "benchmark", _benchmark)
    _patches.set(testing, "benchmark", _benchmark)
    _patches.set(cutlass.testing, "_benchmark_for_autotune", _benchmark_one_configuration)
    live.freeze()


def _loads_onto_all_gpus(load: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Load as the DSL does, onto all GPUs: wait first for what this process has them do (chapter 26 saw it).

    Among ranks nothing is waited for: the hosts, threads here, would do so with the DSL's lock in their hands.
    The loaded function owns no library: it may be collected when real CUDA is back in place.
    """

    def wrapped(self: Any) -> list[Any]:
        if not ranks.several():
            together.run_until(lambda work: True, LOADING)
        load(self)
        return []

    return wrapped


def uninstall() -> None:
    """Undo `install`: the DSL and its environment are as before."""
    _patches.restore()
    launches.forget()
    live.unfreeze()
    for name, value in _environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _environment.clear()
    reread_environment()


def installed() -> bool:
    """Whether kernels of this process run in the emulator."""
    return bool(_patches)


def _set_environment(name: str, value: str) -> None:
    _environment[name] = os.environ.get(name)
    os.environ[name] = value


def reread_environment() -> None:
    """Let a CuTe DSL that was imported before see the environment as it is now."""
    if "cutlass" not in sys.modules:
        return
    from cutlass.base_dsl import env_manager
    from cutlass.base_dsl.dsl import DSLSingletonMeta

    for value in vars(env_manager).values():
        if getattr(value, "__module__", "") == env_manager.__name__ and hasattr(value, "cache_clear"):
            value.cache_clear()
    for dsl in DSLSingletonMeta._instances.values():
        dsl.envar.__init__(dsl.envar.prefix)


def _use_ffi() -> None:
    from . import ffi  # needs a package that only functions called by TVM-FFI need

    ffi.install(_patches, lambda call: _guard(call, _arguments_of_compiled))


def _refuse_exported(_module: Any, file_path: str, *_: Any, **__: Any) -> None:
    """A function exported with `export_to_c` is machine code only, without the PTX that runs here."""
    raise CudaCallError(
        f"{file_path} holds a kernel as machine code of the GPU, which cannot be emulated",
        hint="call the compiled function in the process that compiled it",
    )


def _tensors_in_global_memory(original: Callable[..., None]) -> Callable[..., None]:
    """A tensor on the device is in global memory, as a CUDA tensor is: TMA and cp.async ask for that."""

    def __init__(self: Any, tensor: Any, *args: Any, enable_tvm_ffi: bool = False, **kwargs: Any) -> None:
        exported = tensor
        if enable_tvm_ffi:
            from . import ffi

            exported = ffi.on_device(tensor)
        original(self, exported, *args, enable_tvm_ffi=enable_tvm_ffi, **kwargs)
        capsule = self._dlpack_data
        if type(capsule).__name__ != "PyCapsule" or (
            exported is tensor and dlpack.device_type(capsule) != dlpack.CPU  # in memory that is not ours
        ):
            return
        if live.on_device(tensor):
            dlpack.set_device_type(capsule, dlpack.CUDA)
        if (span := dlpack.span(capsule)) is not None:
            live.remember(self, span, live.on_device(tensor))

    return unseen(__init__)


# -- calls -----------------------------------------------------------------------------------------


def _guard(original: Callable[..., Any], arguments: Callable[..., dict[str, Any]] | None = None) -> Callable[..., Any]:
    """Run a call of the DSL that may launch; raise what a callback kept in place of the DSL's error code."""

    def guarded(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        outer = flight.arguments
        if outer is None and arguments is not None:
            flight.arguments = arguments(*args, **kwargs)
        try:
            result = original(*args, **kwargs)
            if flight.error is None:
                return result
            error, flight.error = flight.error, None
        except BaseException as failure:
            if flight.error is None and not isinstance(failure, EmulatorError):
                raise
            error, flight.error = flight.error or failure, None
        finally:
            flight.arguments = outer
        raise _clean(error)

    return functools.wraps(original)(unseen(guarded))


def _clean(error: BaseException) -> BaseException:
    """An error that shows its reader where the launch was, not how the emulator got there."""
    if isinstance(error, EmulatorError) and not os.environ.get("CUTETUT_TRACEBACK"):
        if not isinstance(error, InternalError):  # whose cause is for those who mend it
            error.__context__ = error.__cause__ = None
        return error.with_traceback(None)
    return error


def _arguments_of_compiled(compiled: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return _bound(compiled.execution_args, args, kwargs)


def _bound(execution_args: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a compiled function by name; the DSL itself complains about wrong ones."""
    try:
        return dict(execution_args.bound_call_arguments(args, kwargs))
    except Exception:
        return {}


def runtime_arguments(compiled: Any, args: Sequence[Any]) -> list[Any]:
    """Of the arguments a function was compiled with, those that calling it takes: all but its Constexpr ones."""
    constants = {each["argument_index"] for each in compiled.execution_args.get_constexpr_args()}
    return [arg for i, arg in enumerate(args) if i not in constants]


def _arguments_of_direct_call(_dsl: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    try:
        return dict(inspect.signature(function).bind_partial(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return {}


# -- on a GPU --------------------------------------------------------------------------------------


class HostTensor(TypeError):
    """A function that launches kernels on a GPU is given a tensor in host memory."""


def reject_host_tensors() -> None:
    """On a GPU: refuse to compile kernels for pageable CPU tensors, which they would fault on."""
    from cutlass.cutlass_dsl import cuda_jit_executor

    compiled = cuda_jit_executor.CudaDialectJitCompiledFunction
    original = compiled.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("has_gpu_module", True):
            values = [*(kwargs.get("dynamic_args") or ()), *(kwargs.get("dynamic_kwargs") or {}).values()]
            for value in values:
                if in_host_memory(value):
                    raise HostTensor(
                        f"a kernel cannot reach {value!s:.80}: it is a CPU tensor; allocate with device='cuda'"
                    )
        original(self, *args, **kwargs)

    compiled.__init__ = __init__


def in_host_memory(value: Any) -> bool:
    """Whether an argument is a torch or CuTe tensor in pageable memory of the CPU."""
    if isinstance(value, torch.Tensor):
        return value.device.type == "cpu" and not value.is_pinned()
    capsule = getattr(value, "_dlpack_data", None)
    return type(capsule).__name__ == "PyCapsule" and dlpack.device_type(capsule) == dlpack.CPU


# -- times -----------------------------------------------------------------------------------------


_explained_one_call = False


def _one_call(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> float:
    """Call a function once and return the wall time in microseconds; the first call prints what that means."""
    global _explained_one_call
    cuda_api.warn_about_time()
    if not _explained_one_call:
        _explained_one_call = True
        print("cutetut: a benchmark calls its function once here, without warm-up or repetition", file=sys.stderr)
    started = time.perf_counter()
    function(*args, **kwargs)
    stream_order.program.host_waits()
    return (time.perf_counter() - started) * 1e6


def _benchmark(function: Callable[..., Any], *_: Any, **options: Any) -> float:
    """cutlass.testing.benchmark in the emulator: one call, its wall time in microseconds.

    The times it gives say nothing about a GPU; `cutetut.measure.bench` refuses to give any.
    """
    generator = options.get("workspace_generator")
    workspace: Any = generator() if generator is not None else options.get("kernel_arguments")
    return _one_call(function, workspace.args, workspace.kwargs)


_OPTIONS_OF_TUNING = ("warmup_iterations", "iterations", "use_cold_l2", "print_verbose", "current_stream")


def _benchmark_one_configuration(function: Callable[..., Any], *args: Any, **kwargs: Any) -> float:
    """What cutlass.testing.tune and autotune_jit call for each configuration: as `_benchmark`, infinity if it fails."""
    rest = {name: value for name, value in kwargs.items() if name not in _OPTIONS_OF_TUNING}
    try:
        return _one_call(function, args, rest)
    except Exception as error:
        print(f"cutetut: a configuration of the kernel fails: {error}", file=sys.stderr)
        return float("inf")
