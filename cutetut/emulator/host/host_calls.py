"""The CUDA functions that CuTe DSL's compiled host code calls, as callbacks of one compilation.

Names and C signatures are those of the wrappers in the DSL's runtime library (`_cudaLaunchKernelEx` and
so on); structures are those of the CUDA runtime API (driver_types.h).  A callback cannot raise through
native code: it keeps the exception in `flight.error`, returns an error code, and the driver raises it
again from the Python call that launched.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import ptx, scheduler
from ..errors import EmulatorError, LaunchError
from ..memory import GlobalMemory
from . import device, live
from .cuda_api import CudaCallError, new_handle
from .dlpack import Span

PTR, I32, I64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
_UNLOAD = ctypes.cast(ctypes.CDLL(None).labs, PTR)  # does nothing, also when Python is gone
FAILED = 999  # cudaErrorUnknown: what host code is told once a callback has kept an exception
SHARED_SIZE_BYTES, MAX_THREADS_PER_BLOCK = 1, 0  # CUfunction_attribute

SIGNATURES: dict[str, tuple[Any, ...]] = {
    "_cudaLibraryLoadData": (PTR, PTR, PTR, PTR, I32, PTR, PTR, I32),
    "_cudaLibraryUnload": (PTR,),
    "_cudaLibraryGetKernel": (PTR, PTR, PTR),
    "_cuKernelGetAttribute": (PTR, I32, PTR, I32),
    "_cudaKernelSetAttributeForDevice": (PTR, I32, I32, I32),
    "_cudaFuncSetAttribute": (PTR, I32, I32),
    "_cudaGetDevice": (PTR,),
    "_cudaGetDeviceCount": (PTR,),
    "_cudaSetDevice": (I32,),
    "_cudaDeviceGetAttribute": (PTR, I32, I32),
    "_cudaDeviceSynchronize": (),
    "_cudaStreamSynchronize": (PTR,),
    "_cudaOccupancyMaxActiveBlocksPerMultiprocessor": (PTR, PTR, I32, I64),
    "_cudaLaunchKernelEx": (PTR, PTR, PTR),
    "_cudaLaunchKernel": (PTR, I32, I32, I32, I32, I32, I32, PTR, I64, PTR),
    "cuda_dialect_init_library_once": (PTR, PTR, PTR, PTR),
}

# The other wrappers of the runtime library: refused by name, so that none runs into a missing driver.
REFUSED = tuple(
    f"_{name}"
    for name in """
    cuDeviceGet cuEventCreate cuEventDestroy_v2 cuEventElapsedTime_v2 cuEventQuery cuEventRecord
    cuEventRecordWithFlags cuEventSynchronize cuLibraryGetGlobal cuLibraryGetKernel cuLibraryGetKernelCount
    cuLibraryGetManaged cuLibraryGetModule cuLibraryGetUnifiedFunction cuLibraryLoadData
    cuLibraryLoadFromFile cuLibraryUnload cuTensorMapEncodeIm2col cuTensorMapEncodeIm2colWide
    cuTensorMapEncodeTiled cuTensorMapReplaceAddress cudaEventCreate cudaEventCreateWithFlags
    cudaEventDestroy cudaEventElapsedTime cudaEventQuery cudaEventRecord cudaEventRecordWithFlags
    cudaEventSynchronize cudaFree cudaFreeAsync cudaFreeHost cudaGetDeviceProperties
    cudaGraphAddKernelNode cudaGraphCreate cudaGraphDestroy cudaGraphExecDestroy cudaGraphInstantiate
    cudaGraphKernelNodeGetAttribute cudaGraphKernelNodeSetAttribute cudaGraphLaunch cudaLibraryGetGlobal
    cudaLibraryGetKernelCount cudaLibraryGetManaged cudaLibraryGetUnifiedFunction cudaLibraryLoadFromFile
    cudaMalloc cudaMallocAsync cudaMallocHost cudaMallocManaged cudaMemcpy cudaMemcpy3D cudaMemcpy3DAsync
    cudaMemcpyAsync cudaMemset cudaMemsetAsync cudaProfilerStart cudaProfilerStop cudaStreamAddCallback
    cudaStreamBeginCapture cudaStreamCreate cudaStreamDestroy cudaStreamEndCapture cudaStreamWaitEvent
    """.split()
)

# cudaLaunchAttributeID
COOPERATIVE, CLUSTER = 2, 4
# These change when a kernel may start or what stays cached, never what it computes: ignore, access policy window,
# synchronization policy, cluster scheduling preference, programmatic serialization, priority, memory
# synchronisation domains, preferred cluster, shared memory carve-out.
WITHOUT_EFFECT = {0, 1, 3, 5, 6, 8, 9, 10, 11, 14}
ATTRIBUTE_BYTES = 72


class Flight(threading.local):
    """The Python call a thread is in: its arguments by name, and the exception a callback kept."""

    arguments: dict[str, Any] | None = None
    error: BaseException | None = None


flight = Flight()


@dataclass
class Library:
    """What one cubin becomes: the PTX it was assembled from."""

    module: ptx.Module


@dataclass(frozen=True)
class Kernel:
    """A kernel handle of host code."""

    library: Library
    name: str

    @property
    def function(self) -> ptx.Function:
        return self.library.module.kernels[self.name]

    def static_shared(self) -> int:
        """Bytes of shared memory it declares, without the dynamic part."""
        variables = [*self.library.module.variables.values(), *self.function.variables.values()]
        return sum(v.nbytes for v in variables if v.space == "shared" and not v.extern)


class HostCalls:
    """The callbacks of one execution engine, which may load the PTX of its own compilation only."""

    def __init__(self, text: str | None) -> None:
        self.text = text
        self.libraries: dict[int, Library] = {}
        self.kernels: dict[int, Kernel] = {}
        self.callbacks: dict[str, Any] = {}
        for name, types in SIGNATURES.items():
            self.callbacks[name] = ctypes.CFUNCTYPE(I32, *types)(_kept(getattr(self, name.lstrip("_"))))
        for name in REFUSED:
            self.callbacks[name] = ctypes.CFUNCTYPE(I32)(_kept(_refusal(name[1:])))

    def register(self, engine: Any) -> None:
        """Make an execution engine call these; they must live as long as it does."""
        for name, callback in self.callbacks.items():
            engine.raw_register_runtime(name, ctypes.cast(callback, PTR))
        engine.raw_register_runtime("cuda_dialect_unload_library_once", _UNLOAD)

    # -- libraries and kernels -----------------------------------------------------------------

    def cudaLibraryLoadData(self, out: int, *_: Any) -> None:
        if self.text is None:
            raise CudaCallError("host code loads a kernel whose PTX the compiler did not keep")
        library = Library(ptx.parse(self.text))
        handle = new_handle()
        self.libraries[handle] = library
        _store(ctypes.c_uint64, out, handle)

    def cudaLibraryUnload(self, library: int) -> None:
        self.libraries.pop(library, None)

    def cudaLibraryGetKernel(self, out: int, library: int, name: int) -> None:
        text = ctypes.string_at(name).decode()
        found = self.libraries[library]
        if text not in found.module.kernels:
            names = ", ".join(found.module.kernels) or "none"
            raise LaunchError(f"the PTX of this compilation has no kernel {text}; it has {names}")
        handle = new_handle()
        self.kernels[handle] = Kernel(found, text)
        _store(ctypes.c_uint64, out, handle)

    def cuda_dialect_init_library_once(self, state: int, init: int, load: int, set_error: int) -> None:
        """Load a function compiled for TVM-FFI at its first call; `state` holds the library's handle from then on."""
        if ctypes.c_uint64.from_address(state).value:
            return
        if ctypes.CFUNCTYPE(I32, PTR)(init)(state) or ctypes.CFUNCTYPE(I32, PTR, I32)(load)(state, 0):
            raised = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p)(set_error)
            raised(b"RuntimeError", b"the kernels cannot be loaded")  # TVM-FFI asks for one whenever a call fails

    def cuKernelGetAttribute(self, out: int, attribute: int, kernel: int, _device: int) -> None:
        answers = {SHARED_SIZE_BYTES: self.kernels[kernel].static_shared, MAX_THREADS_PER_BLOCK: _max_threads}
        if attribute not in answers:
            raise CudaCallError(f"the emulator has no answer for the kernel attribute {attribute}")
        _store(ctypes.c_int32, out, answers[attribute]())

    def cudaKernelSetAttributeForDevice(self, *_: Any) -> None:
        """Limits of dynamic shared memory and cluster size: every kernel has the device's largest."""

    def cudaFuncSetAttribute(self, *_: Any) -> None:
        """As cudaKernelSetAttributeForDevice."""

    # -- device and streams --------------------------------------------------------------------

    def cudaGetDevice(self, out: int) -> None:
        _store(ctypes.c_int32, out, 0)

    def cudaGetDeviceCount(self, out: int) -> None:
        _store(ctypes.c_int32, out, 1)

    def cudaSetDevice(self, ordinal: int) -> None:
        if ordinal:
            raise CudaCallError(f"device {ordinal} does not exist: the emulator is one device, number 0")

    def cudaDeviceGetAttribute(self, out: int, attribute: int, _device: int) -> None:
        if attribute not in device.ATTRIBUTES:
            raise CudaCallError(f"the emulator has no answer for the device attribute {attribute}")
        _store(ctypes.c_int32, out, device.ATTRIBUTES[attribute])

    def cudaDeviceSynchronize(self) -> None:
        """Every launch has finished when it returns."""

    def cudaStreamSynchronize(self, _stream: int) -> None:
        """Every launch has finished when it returns."""

    def cudaOccupancyMaxActiveBlocksPerMultiprocessor(self, out: int, kernel: int, block: int, shared: int) -> None:
        static = self.kernels[kernel].static_shared()
        _store(ctypes.c_int32, out, device.blocks_per_sm(block, shared + static))

    # -- launches ------------------------------------------------------------------------------

    def cudaLaunchKernel(self, kernel: int, *rest: Any) -> None:
        params, shared, _stream = rest[6:]
        self._launch(kernel, params, rest[0:3], rest[3:6], (1, 1, 1), shared, False)

    def cudaLaunchKernelEx(self, config: int, kernel: int, params: int) -> None:
        """cudaLaunchConfig_t: gridDim, blockDim, dynamicSmemBytes, stream, attrs, numAttrs."""
        fields = struct.unpack("<6IQQQI", ctypes.string_at(config, 52))
        cluster, cooperative = launch_attributes(ctypes.string_at(fields[8], ATTRIBUTE_BYTES * fields[9]))
        self._launch(kernel, params, fields[0:3], fields[3:6], cluster, fields[6], cooperative)

    def _launch(
        self,
        handle: int,
        pointers: int,
        grid: Any,
        block: Any,
        cluster: tuple[int, int, int],
        shared: int,
        cooperative: bool,
    ) -> None:
        kernel = self.kernels[handle]
        params = read_params(kernel.function, pointers)
        scheduler.launch(
            kernel.library.module,
            kernel.name,
            grid=tuple(grid),
            block=tuple(block),
            cluster=cluster,
            dynamic_smem=shared,
            params=params,
            memory=reachable(params, flight.arguments or {}),
            cooperative=cooperative,
            out=sys.stdout,
        )


def launch_attributes(raw: bytes) -> tuple[tuple[int, int, int], bool]:
    """Cluster shape and cooperative flag of an array of cudaLaunchAttribute.

    Raises CudaCallError for an attribute that would change what the kernel does and is not emulated.
    """
    cluster, cooperative = (1, 1, 1), False
    for start in range(0, len(raw), ATTRIBUTE_BYTES):
        identifier, first, second, third = struct.unpack_from("<I4x3I", raw, start)
        if identifier == CLUSTER:
            cluster = (first or 1, second or 1, third or 1)
        elif identifier == COOPERATIVE:
            cooperative = bool(first)
        elif identifier not in WITHOUT_EFFECT:
            raise CudaCallError(f"the launch attribute {identifier} (cudaLaunchAttributeID) is not emulated")
    return cluster, cooperative


def read_params(function: ptx.Function, pointers: int) -> list[bytes]:
    """The bytes of each kernel parameter, from the array of pointers a launch is given."""
    addresses = (ctypes.c_uint64 * len(function.params)).from_address(pointers) if function.params else ()
    return [ctypes.string_at(a, p.nbytes) for a, p in zip(addresses, function.params, strict=True)]


def reachable(params: list[bytes], arguments: dict[str, Any]) -> GlobalMemory:
    """The memory a launch may touch: the call's tensors, and whatever else its parameters point into.

    A pointer that is only found in memory, in a table of pointers, is resolved when the kernel uses it.
    Raises LaunchError when a parameter points into a tensor that is not on the device.
    """
    found = [item for name, value in arguments.items() for item in live.spans(name, value)]
    host = [span for span, on_device in found if not on_device]
    memory = GlobalMemory(live.find if any(_may_hold_pointers(span) for span, _ in found) else None)
    spans = [span for span, on_device in found if on_device and span.nbytes]
    for span in spans:
        memory.add(span.start, span.nbytes, span.label)
    with live.one_search():
        _add_pointers(memory, params, spans, host)
    return memory


def _add_pointers(memory: GlobalMemory, params: list[bytes], spans: list[Span], host: list[Span]) -> None:
    """Whatever the words of the parameters point into."""
    for word in _words(params):
        if any(span.holds(word) for span in spans):
            continue
        for span in host:
            if span.holds(word):
                raise LaunchError(
                    f"{span.label} is in the host's memory, which a kernel cannot reach",
                    hint='allocate it with device="cuda" or move it with .cuda()',
                )
        if (other := live.find(word)) is not None:
            memory.add(*other)
            if memory.resolver is None and _may_hold_pointers(Span(*other)):
                memory.resolver = live.find


def _may_hold_pointers(span: Span) -> bool:
    """Whether the elements may be addresses: 64-bit integers, or memory without a type."""
    return span.label.endswith("int64") or span.label.startswith("allocation of")


def _words(params: list[bytes]) -> set[int]:
    """Every aligned 64-bit word of the parameters that could be an address of this process."""
    words = {w for p in params for (w,) in struct.iter_unpack("<Q", p[: len(p) // 8 * 8])}
    return {w for w in words if 4096 <= w < 1 << 47}


def _store(kind: type[Any], address: int, value: int) -> None:
    kind.from_address(address).value = value


def _max_threads() -> int:
    return device.THREADS_PER_BLOCK


def _refusal(name: str) -> Callable[..., None]:
    def refuse() -> None:
        raise CudaCallError(f"compiled host code calls {name}, which the emulator does not answer")

    return refuse


def _kept(function: Callable[..., None]) -> Callable[..., int]:
    """A callback that keeps its exception for the caller and does nothing once there is one."""

    def callback(*args: Any) -> int:
        if flight.error is not None:
            return FAILED
        try:
            function(*args)
        except BaseException as error:  # KeyboardInterrupt too: ctypes would print and drop it
            flight.error = error
        return FAILED if flight.error is not None else 0  # a callback may have run others

    return callback


__all__ = ["EmulatorError", "HostCalls", "flight", "launch_attributes", "reachable", "read_params"]
