"""The CUDA driver and runtime API as Python programs call it, answered without a GPU.

CuTe DSL and scripts call `cuda.bindings.driver` and `cuda.bindings.runtime`.  `tables` gives the
functions that replace them: device queries, streams, events, memory.  Work runs when it is issued, so
a stream is a number, every wait returns at once and an event is a time.  A function that is not
answered is refused by name, never ignored.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import time
from collections.abc import Callable
from typing import Any

import cuda.bindings.driver as driver
import cuda.bindings.runtime as runtime

from ..errors import EmulatorError
from ..machine.residents import blocks_per_sm
from . import device, gpus, graphs, live, stream_order

Function = Callable[..., Any]
_handles = itertools.count(0x1000)
_events: dict[int, float | None] = {}
_graphs: dict[int, graphs.Graph] = {}  # graphs and executable graphs
_warned = False
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING, cudaStreamNonBlocking


class CudaCallError(EmulatorError):
    """A program calls a CUDA function, or uses a launch option, that the emulator does not answer."""


class _Refused(Exception):
    """The call fails with a CUDA error code: `name` as both APIs spell it, for instance InvalidValue."""

    def __init__(self, name: str) -> None:
        self.name = name


def new_handle() -> int:
    """A number that no other stream, event, library or kernel has."""
    return next(_handles)


def warn_about_time() -> None:
    """Say once, on stderr, what a time measured here is."""
    global _warned
    if not _warned:
        _warned = True
        print("cutetut: times are the emulator's wall time; they say nothing about a GPU", file=sys.stderr)


def record(event: int, stream: int = 0) -> None:
    """Take the time of an event: everything issued before it on its stream has finished, or is captured with it."""
    _events[event] = time.perf_counter()
    graphs.recorded(event, stream)


def elapsed_ms(start: int, end: int) -> float:
    """Wall time in milliseconds between two recorded events; raises ValueError when one was not recorded."""
    first, last = _events.get(start), _events.get(end)
    stream_order.program.host_waits_for_event(end)
    if first is None or last is None:
        raise ValueError("both events must be recorded before the time between them is asked for")
    warn_about_time()
    return (last - first) * 1e3


def _nothing(*args: Any, **kwargs: Any) -> tuple[()]:
    return ()


def _attribute(attribute: Any, _device: Any = 0) -> tuple[int]:
    value = device.ATTRIBUTES.get(int(attribute))
    if value is None:
        raise CudaCallError(f"the emulator has no answer for the device attribute {attribute!r}")
    return (value,)


def _event_new(*_: Any) -> tuple[int]:
    handle = new_handle()
    _events[handle] = None
    return (handle,)


def _event_record(event: Any, stream: Any = 0, *_: Any) -> tuple[()]:
    record(int(event), _stream(stream))
    return ()


def _event_elapsed(start: Any, end: Any) -> tuple[float]:
    try:
        return (elapsed_ms(int(start), int(end)),)
    except ValueError:
        raise _Refused("InvalidHandle") from None


def _event_drop(event: Any) -> tuple[()]:
    _events.pop(int(event), None)
    return ()


def _stream(stream: Any) -> int:
    return stream_order.on_gpu(int(stream), gpus.current)


def _stream_waits(stream: Any, event: Any, *_: Any) -> tuple[()]:
    graphs.waited(_stream(stream), int(event))
    return ()


def _wait_for(stream: int | None, call: str) -> tuple[()]:
    graphs.forbid(call, stream)
    stream_order.program.host_waits(stream, gpus.current if stream is None else None)
    return ()


def _stream_done(stream: Any) -> tuple[()]:
    stream_order.program.host_waits(_stream(stream))
    return ()


def _event_done(event: Any) -> tuple[()]:
    stream_order.program.host_waits_for_event(int(event))
    return ()


def _new_stream(flags: Any = 0, *_: Any) -> tuple[int]:
    handle = new_handle()
    stream_order.program.created(handle, blocking=not int(flags) & NON_BLOCKING, gpu=gpus.current)
    return (handle,)


def _begin_capture(stream: Any, *_: Any) -> tuple[()]:
    graphs.begin(int(stream))
    return ()


def _end_capture(stream: Any) -> tuple[int]:
    handle = new_handle()
    _graphs[handle] = graphs.end(int(stream))
    return (handle,)


def _instantiate(graph: Any, *_: Any) -> tuple[int]:
    handle = new_handle()
    _graphs[handle] = _graphs[int(graph)].copy()
    return (handle,)


def _graph_launch(executable: Any, stream: Any = 0) -> tuple[()]:
    _graphs[int(executable)].launch(int(stream))
    return ()


def _graph_drop(handle: Any) -> tuple[()]:
    _graphs.pop(int(handle), None)
    return ()


def _allocate(nbytes: Any, *_: Any) -> tuple[int]:
    if int(nbytes) <= 0:
        raise _Refused("InvalidValue")
    return (live.allocate(int(nbytes)),)


def _free(address: Any, *_: Any) -> tuple[()]:
    stream_order.program.host_waits()
    if int(address) and not live.free(int(address)):
        raise _Refused("InvalidValue")
    return ()


def _device_range(address: Any, nbytes: int) -> int:
    found = live.find(int(address))
    if found is None or int(address) + nbytes > found[0] + found[1]:
        raise _Refused("InvalidValue")
    return int(address)


def _host(pointer: Any) -> int:
    """The address of what cuda-python accepts as host memory: an address or a buffer such as a numpy array."""
    if hasattr(pointer, "__array_interface__"):
        return int(pointer.__array_interface__["data"][0])
    if isinstance(pointer, bytes):
        return int(ctypes.cast(ctypes.c_char_p(pointer), ctypes.c_void_p).value or 0)
    return int(pointer)


def _copy(to_device: bool, from_device: bool) -> Function:
    def copy(target: Any, source: Any, nbytes: Any, *_: Any) -> tuple[()]:
        n = int(nbytes)
        stream_order.program.host_waits()  # more than CUDA promises of some copies: nothing right is refused
        to = _device_range(target, n) if to_device else _host(target)
        ctypes.memmove(to, _device_range(source, n) if from_device else _host(source), n)
        return ()

    return copy


def _copy_between_gpus(target: Any, _to: Any, source: Any, _from: Any, nbytes: Any, *_: Any) -> Any:
    return _copy(True, True)(target, source, nbytes)


_DIRECTIONS = {1: (True, False), 2: (False, True), 3: (True, True)}  # cudaMemcpyKind: (to device, from device)


def _copy_runtime(target: Any, source: Any, nbytes: Any, kind: Any, *_: Any) -> Any:
    return _copy(*_DIRECTIONS.get(int(kind), (False, False)))(target, source, nbytes)


def _fill(width: int) -> Function:
    def fill(address: Any, value: Any, count: Any, *_: Any) -> tuple[()]:
        n = int(count) * width
        stream_order.program.host_waits()
        pattern = (int(value) & ((1 << 8 * width) - 1)).to_bytes(width, "little") * int(count)
        ctypes.memmove(_device_range(address, n), pattern, n)
        return ()

    return fill


def _use_gpu(gpu: Any) -> tuple[()]:
    try:
        gpus.use(int(gpu))
    except ValueError:
        raise _Refused("InvalidDevice") from None
    return ()


def _enable_peer(peer: Any, _flags: Any = 0) -> tuple[()]:
    if not 0 <= int(peer) < gpus.count or int(peer) == gpus.current:
        raise _Refused("InvalidDevice")
    if not gpus.enable(gpus.current, int(peer)):
        raise _Refused("PeerEnabled")
    return ()


def _disable_peer(peer: Any) -> tuple[()]:
    if not gpus.disable(gpus.current, int(peer)):
        raise _Refused("PeerNotEnabled")
    return ()


def _library(*_: Any) -> tuple[int]:
    return (new_handle(),)


def _occupancy_clusters(_kernel: Any, config: Any) -> tuple[int]:
    size = 1
    for attribute in config.attrs:
        if attribute.id == driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
            size = attribute.value.clusterDim.x * attribute.value.clusterDim.y * attribute.value.clusterDim.z
    threads = config.blockDimX * config.blockDimY * config.blockDimZ
    return (device.active_clusters(size, threads, config.sharedMemBytes),)


_COMMON: dict[str, Function] = {
    "StreamCreateWithFlags": _new_stream,
    "StreamCreateWithPriority": _new_stream,
    "StreamWaitEvent": _stream_waits,
    "StreamSynchronize": lambda stream: _wait_for(_stream(stream), "StreamSynchronize"),
    "StreamBeginCapture": _begin_capture,
    "StreamEndCapture": _end_capture,
    "GraphInstantiate": _instantiate,
    "GraphUpload": _nothing,
    "GraphLaunch": _graph_launch,
    "GraphDestroy": _graph_drop,
    "GraphExecDestroy": _graph_drop,
    "StreamQuery": _stream_done,
    "StreamDestroy": _nothing,
    "EventCreateWithFlags": _event_new,
    "EventRecord": _event_record,
    "EventSynchronize": _event_done,
    "EventQuery": _event_done,
    "EventElapsedTime": _event_elapsed,
    "EventDestroy": _event_drop,
    "MemGetInfo": lambda: (device.MEMORY_BYTES, device.MEMORY_BYTES),
    "LibraryUnload": _nothing,
    "OccupancyMaxActiveBlocksPerMultiprocessor": lambda _k, block, shared: (blocks_per_sm(block, shared),),
    "OccupancyAvailableDynamicSMemPerBlock": lambda _k, blocks, _b: (device.shared_for(blocks),),
}

_DRIVER: dict[str, Function] = {f"cu{name}": function for name, function in _COMMON.items()} | {
    "cuInit": _nothing,
    "cuDriverGetVersion": lambda: (driver.CUDA_VERSION,),
    "cuDeviceGetCount": lambda: (gpus.count,),
    "cuDeviceCanAccessPeer": lambda device, peer: (int(int(device) != int(peer)),),
    "cuDeviceGet": lambda ordinal: (ordinal,),
    "cuDeviceGetName": lambda _length, _device: (device.NAME.encode(),),
    "cuDeviceGetAttribute": _attribute,
    "cuDeviceTotalMem": lambda _device: (device.MEMORY_BYTES,),
    "cuDevicePrimaryCtxRetain": lambda _device: (1,),
    "cuDevicePrimaryCtxRelease": _nothing,
    "cuCtxCreate": lambda *_: (1,),
    "cuCtxDestroy": _nothing,
    "cuCtxGetCurrent": lambda: (1,),
    "cuCtxSetCurrent": _nothing,
    "cuCtxPushCurrent": _nothing,
    "cuCtxPopCurrent": lambda: (1,),
    "cuCtxGetDevice": lambda: (gpus.current,),
    "cuCtxSynchronize": lambda: _wait_for(None, "cuCtxSynchronize"),
    "cuStreamIsCapturing": lambda stream: (driver.CUstreamCaptureStatus(graphs.capturing(int(stream))),),
    "cuStreamCreate": _new_stream,
    "cuEventCreate": _event_new,
    "cuMemAlloc": _allocate,
    "cuMemAllocAsync": _allocate,
    "cuMemFree": _free,
    "cuMemFreeAsync": _free,
    "cuMemcpyHtoD": _copy(True, False),
    "cuMemcpyHtoDAsync": _copy(True, False),
    "cuMemcpyDtoH": _copy(False, True),
    "cuMemcpyDtoHAsync": _copy(False, True),
    "cuMemcpyDtoD": _copy(True, True),
    "cuMemcpyDtoDAsync": _copy(True, True),
    "cuMemcpyPeer": _copy_between_gpus,
    "cuMemcpyPeerAsync": _copy_between_gpus,
    "cuMemsetD8": _fill(1),
    "cuMemsetD8Async": _fill(1),
    "cuMemsetD16": _fill(2),
    "cuMemsetD16Async": _fill(2),
    "cuMemsetD32": _fill(4),
    "cuMemsetD32Async": _fill(4),
    "cuLibraryLoadData": _library,  # CuTe DSL's occupancy queries load an empty kernel; it is never launched
    "cuLibraryEnumerateKernels": lambda count, _library: ([driver.CUkernel(new_handle()) for _ in range(count)],),
    "cuKernelGetFunction": lambda kernel: (int(kernel),),
    "cuFuncSetAttribute": _nothing,
    "cuOccupancyMaxActiveClusters": _occupancy_clusters,
}  # fmt: skip

_RUNTIME: dict[str, Function] = {f"cuda{name}": function for name, function in _COMMON.items()} | {
    "cudaGetDeviceCount": lambda: (gpus.count,),
    "cudaGetDevice": lambda: (gpus.current,),
    "cudaSetDevice": _use_gpu,
    "cudaDeviceCanAccessPeer": lambda device, peer: (int(device != peer),),
    "cudaDeviceEnablePeerAccess": _enable_peer,
    "cudaDeviceDisablePeerAccess": _disable_peer,
    "cudaDeviceSynchronize": lambda: _wait_for(None, "cudaDeviceSynchronize"),
    "cudaStreamIsCapturing": lambda stream: (runtime.cudaStreamCaptureStatus(graphs.capturing(int(stream))),),
    "cudaDeviceGetAttribute": _attribute,
    "cudaGetLastError": _nothing,
    "cudaPeekAtLastError": _nothing,
    "cudaDriverGetVersion": lambda: (driver.CUDA_VERSION,),
    "cudaRuntimeGetVersion": lambda: (driver.CUDA_VERSION,),
    "cudaStreamCreate": _new_stream,
    "cudaEventCreate": _event_new,
    "cudaMalloc": _allocate,
    "cudaMallocAsync": _allocate,
    "cudaFree": _free,
    "cudaFreeAsync": _free,
    "cudaMemcpy": _copy_runtime,
    "cudaMemcpyAsync": _copy_runtime,
    "cudaMemcpyPeer": _copy_between_gpus,
    "cudaMemcpyPeerAsync": _copy_between_gpus,
    "cudaMemset": _fill(1),
    "cudaMemsetAsync": _fill(1),
}

# what a function's first result is wrapped in, by the word its name contains
_DRIVER_TYPES = {
    "StreamCreate": driver.CUstream, "EventCreate": driver.CUevent, "MemAlloc": driver.CUdeviceptr,
    "LibraryLoadData": driver.CUlibrary, "KernelGetFunction": driver.CUfunction, "cuDeviceGet": driver.CUdevice,
    "cuCtxGetDevice": driver.CUdevice, "cuCtxCreate": driver.CUcontext, "cuCtxGetCurrent": driver.CUcontext,
    "cuCtxPopCurrent": driver.CUcontext, "CtxRetain": driver.CUcontext, "EndCapture": driver.CUgraph,
    "GraphInstantiate": driver.CUgraphExec,
}  # fmt: skip
_RUNTIME_TYPES = {
    "StreamCreate": runtime.cudaStream_t, "EventCreate": runtime.cudaEvent_t, "EndCapture": runtime.cudaGraph_t,
    "GraphInstantiate": runtime.cudaGraphExec_t,
}  # fmt: skip
_EXACT = {"cuDeviceGet"}

_DRIVER_CODES = {
    "InvalidValue": "CUDA_ERROR_INVALID_VALUE", "InvalidHandle": "CUDA_ERROR_INVALID_HANDLE",
    "Capture": "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
}  # fmt: skip
_RUNTIME_CODES = {
    "InvalidValue": "cudaErrorInvalidValue", "InvalidHandle": "cudaErrorInvalidResourceHandle",
    "Capture": "cudaErrorStreamCaptureUnsupported", "InvalidDevice": "cudaErrorInvalidDevice",
    "PeerEnabled": "cudaErrorPeerAccessAlreadyEnabled", "PeerNotEnabled": "cudaErrorPeerAccessNotEnabled",
}  # fmt: skip


def _answered(name: str, function: Function, status: Any, codes: dict[str, str], types: dict[str, Any]) -> Function:
    """Give a function the manners of cuda-python: a tuple that starts with the status."""
    wrap = next((t for word, t in types.items() if (name == word if word in _EXACT else word in name)), None)

    def call(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        try:
            results = function(*args, **kwargs)
        except _Refused as refused:
            return (getattr(status, codes[refused.name]), None)
        except graphs.CaptureError:
            return (getattr(status, codes["Capture"]), None)
        if wrap is not None and results:
            results = (wrap(results[0]), *results[1:])
        return (status(0), *results)

    call.__name__ = name
    return call


def _refusal(name: str) -> Function:
    def refuse(*_: Any, **__: Any) -> None:
        raise CudaCallError(
            f"the emulator does not answer {name}",
            hint="leave it out here; the calls that are answered stand in cutetut/emulator/host/cuda_api.py",
        )

    refuse.__name__ = name
    return refuse


def tables() -> dict[Any, dict[str, Function]]:
    """The replacement of every function of cuda.bindings.driver and cuda.bindings.runtime, by module and name."""
    result: dict[Any, dict[str, Function]] = {}
    for module, prefix, answers, status, codes, types in (
        (driver, "cu", _DRIVER, driver.CUresult, _DRIVER_CODES, _DRIVER_TYPES),
        (runtime, "cuda", _RUNTIME, runtime.cudaError_t, _RUNTIME_CODES, _RUNTIME_TYPES),
    ):
        table = {name: _refusal(name) for name in dir(module) if _is_function(module, name, prefix)}
        table |= {n: _answered(n, f, status, codes, types) for n, f in answers.items() if hasattr(module, n)}
        for word in ("Name", "String"):
            table[f"{prefix}GetError{word}"] = _answered(word, lambda error: (error.name.encode(),), status, codes, {})
        result[module] = table
    return result


def _is_function(module: Any, name: str, prefix: str) -> bool:
    value = getattr(module, name)
    rest = name.removeprefix(prefix)
    return rest != name and rest[:1].isupper() and callable(value) and not isinstance(value, type)
