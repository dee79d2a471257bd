"""The CUDA functions that CuTe DSL's compiled host code calls, as callbacks of one compilation.

Names and C signatures are those of the wrappers in the DSL's runtime library (`_cudaLaunchKernelEx` and
so on); structures are those of the CUDA runtime API (driver_types.h).  A callback cannot raise through
native code: it keeps the exception in `flight.error`, returns an error code, and the driver raises it
again from the Python call that launched.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable
from typing import Any

from .. import ptx
from ..errors import LaunchError
from ..machine.residents import THREADS_PER_BLOCK, blocks_per_sm
from . import device, gpus, graphs, stream_order
from .cuda_api import CudaCallError, new_handle
from .launches import ATTRIBUTE_BYTES, Attributes, CudaStatus, Kernel, Launch, Library, launch_attributes, read_params
from .tensormap_encode import TensorMapError, Tiled

PTR, I32, I64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
_UNLOAD = ctypes.cast(ctypes.CDLL(None).labs, PTR)  # does nothing, also when Python is gone
FAILED = 999  # cudaErrorUnknown: what host code gets once a callback has kept an exception
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
    "_cuTensorMapEncodeTiled": (PTR, I32, I32, PTR, PTR, PTR, PTR, PTR, I32, I32, I32, I32),
    "_cuTensorMapReplaceAddress": (PTR, PTR),
    "cuda_dialect_init_library_once": (PTR, PTR, PTR, PTR),
    "cuda_dialect_assert_success": (I32,),
}

# The other wrappers of the runtime library: refused by name, so that none runs into a missing driver.
REFUSED = tuple(
    f"_{name}"
    for name in """
    cuDeviceGet cuEventCreate cuEventDestroy_v2 cuEventElapsedTime_v2 cuEventQuery cuEventRecord
    cuEventRecordWithFlags cuEventSynchronize cuLibraryGetGlobal cuLibraryGetKernel cuLibraryGetKernelCount
    cuLibraryGetManaged cuLibraryGetModule cuLibraryGetUnifiedFunction cuLibraryLoadData
    cuLibraryLoadFromFile cuLibraryUnload cuTensorMapEncodeIm2col cuTensorMapEncodeIm2colWide
    cudaEventCreate cudaEventCreateWithFlags
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


class Flight(threading.local):
    """The Python call a thread is in: its arguments by name, and the exception a callback kept."""

    arguments: dict[str, Any] | None = None
    error: BaseException | None = None


flight = Flight()


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

    def cuda_dialect_assert_success(self, status: int) -> None:
        """The host code would end the process; what went wrong is raised from the Python call instead."""
        if status:
            raise CudaCallError(f"a CUDA call of the compiled host code failed with error {status}")

    # -- tensor maps ---------------------------------------------------------------------------

    def cuTensorMapEncodeTiled(
        self, out: int, kind: int, rank: int, address: int | None, sizes: int, strides: int, box: int, steps: int,
        interleave: int, swizzle: int, l2: int, fill: int,
    ) -> None:  # fmt: skip
        if not 1 <= rank <= 5:
            raise TensorMapError(f"a tensor map cannot be made: the rank is {rank}; it must be 1 to 5")
        words, halves = ctypes.c_uint64, ctypes.c_uint32
        tiled = Tiled(
            kind, address or 0, _array(words, sizes, rank), _array(words, strides, rank - 1), _array(halves, box, rank),
            _array(halves, steps, rank), interleave, swizzle, l2, fill,
        )  # fmt: skip
        ctypes.memmove(out, tiled.pack(), 128)

    def cuTensorMapReplaceAddress(self, tensor_map: int, address: int | None) -> None:
        if (address or 0) % 16:
            raise TensorMapError(f"a tensor map cannot point to {address:#x}, which is no multiple of 16")
        _store(ctypes.c_uint64, tensor_map, address or 0)

    # -- device and streams --------------------------------------------------------------------

    def cudaGetDevice(self, out: int) -> None:
        _store(ctypes.c_int32, out, gpus.current)

    def cudaGetDeviceCount(self, out: int) -> None:
        _store(ctypes.c_int32, out, gpus.count)

    def cudaSetDevice(self, ordinal: int) -> None:
        try:
            gpus.use(ordinal)
        except ValueError as missing:
            raise CudaCallError(str(missing)) from None

    def cudaDeviceGetAttribute(self, out: int, attribute: int, _device: int) -> None:
        if attribute not in device.ATTRIBUTES:
            raise CudaCallError(f"the emulator has no answer for the device attribute {attribute}")
        _store(ctypes.c_int32, out, device.ATTRIBUTES[attribute])

    def cudaDeviceSynchronize(self) -> None:
        """Every launch has finished when it returns."""
        graphs.forbid("cudaDeviceSynchronize")
        stream_order.program.host_waits(gpu=gpus.current)

    def cudaStreamSynchronize(self, stream: int | None) -> None:
        """Every launch has finished when it returns."""
        graphs.forbid("cudaStreamSynchronize", stream or 0)
        stream_order.program.host_waits(stream_order.on_gpu(stream or 0, gpus.current))

    def cudaOccupancyMaxActiveBlocksPerMultiprocessor(self, out: int, kernel: int, block: int, shared: int) -> None:
        static = self.kernels[kernel].static_shared()
        _store(ctypes.c_int32, out, blocks_per_sm(block, shared + static))

    # -- launches ------------------------------------------------------------------------------

    def cudaLaunchKernel(self, kernel: int, *rest: Any) -> None:
        params, shared, stream = rest[6:]
        self._submit(kernel, params, rest[0:3], rest[3:6], shared, stream, Attributes())

    def cudaLaunchKernelEx(self, config: int, kernel: int, params: int) -> None:
        """cudaLaunchConfig_t: gridDim, blockDim, dynamicSmemBytes, stream, attrs, numAttrs."""
        fields = struct.unpack("<6IQQQI", ctypes.string_at(config, 52))
        attributes = launch_attributes(ctypes.string_at(fields[8], ATTRIBUTE_BYTES * fields[9]))
        self._submit(kernel, params, fields[0:3], fields[3:6], fields[6], fields[7], attributes)

    def _submit(
        self, handle: int, pointers: int, grid: Any, block: Any, shared: int, stream: int | None, attributes: Attributes
    ) -> None:
        kernel = self.kernels[handle]
        params, arguments = read_params(kernel.function, pointers), flight.arguments or {}
        Launch(kernel, params, tuple(grid), tuple(block), shared, stream or 0, attributes, arguments).submit()


def _array(kind: type[Any], address: int, count: int) -> tuple[int, ...]:
    """Integers of host memory."""
    return tuple((kind * count).from_address(address)) if count else ()


def _store(kind: type[Any], address: int, value: int) -> None:
    kind.from_address(address).value = value


def _max_threads() -> int:
    return THREADS_PER_BLOCK


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
        except CudaStatus as status:
            return status.code
        except BaseException as error:  # KeyboardInterrupt too: ctypes would print and drop it
            flight.error = error
        return FAILED if flight.error is not None else 0  # a callback may have run others

    return callback
