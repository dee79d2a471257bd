"""The harness on silicon: the same PTX text, loaded through the CUDA driver by a process of its own.

A fault ("illegal instruction", "misaligned address") spoils its process's CUDA context for good, and a kernel that
never ends cannot be stopped.  So launches happen in a worker process: after a fault or a timeout it is ended, the
test that caused it fails, and the next launch gets a fresh worker.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import subprocess
import sys
import tempfile
from functools import cache
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import IO, Any

import numpy as np

from tests.emulator.harness import Argument, Dim, OfAddress

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "tests.emulator.hardware")  # the worker; its argument is a connection's number
LOG_BYTES = 8192
START_SECONDS = 90.0  # for a worker to import this module and make a context
SECONDS = 15.0  # for one launch, the assembly of its text included


class GpuFault(RuntimeError):
    """The driver refused a call or a kernel failed; the message has the driver's words."""


class GpuTimeout(GpuFault):
    """A kernel did not end in time; its process was killed."""


# -- in the tests' process -------------------------------------------------------------------------


class _Worker:
    """A process that launches kernels; started on the first launch and after each fault."""

    def __init__(self) -> None:
        self.connection, theirs = Pipe()
        command = [*COMMAND, str(theirs.fileno())]
        environment = {**os.environ, "CUTETUT_BACKEND": "gpu"}
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, pass_fds=[theirs.fileno()])
        theirs.close()
        state, answer = self.ask(("start",), START_SECONDS)
        if state != "ok":
            self.end(kill=True)
            raise GpuFault(answer)

    def ask(self, request: tuple[Any, ...], seconds: float) -> tuple[str, Any]:
        """("ok", answer), ("error", message), or that the worker is lost: ("fault" or "timeout", message)."""
        try:
            self.connection.send(request)
            if not self.connection.poll(seconds):
                return "timeout", f"no answer within {seconds:g} s: the kernel hangs"
            answer: tuple[str, Any] = self.connection.recv()
            return answer
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return "fault", f"the process that launches kernels ended with status {self.process.wait(10)}"

    def end(self, kill: bool) -> None:
        self.connection.close()
        if kill:
            self.process.kill()
        self.process.wait(20)


_worker: _Worker | None = None


def _end_worker(kill: bool = False) -> None:
    global _worker
    if _worker is not None:
        _worker.end(kill)
    _worker = None


atexit.register(_end_worker)


def _ask(request: tuple[Any, ...], seconds: float = SECONDS) -> Any:
    """The worker's answer; raises GpuFault or GpuTimeout, after which the next call gets a fresh worker."""
    global _worker
    if _worker is None:
        _worker = _Worker()
    state, answer = _worker.ask(request, seconds)
    if state == "ok":
        return answer
    if state != "error":
        _end_worker(kill=True)
    raise (GpuTimeout if state == "timeout" else GpuFault)(answer)


def run_on_gpu(text: str, *arguments: Argument, seconds: float = SECONDS, **launch: Any) -> str:
    """Launch the only kernel of a PTX text on GPU 0 and copy the arrays back; same arguments as harness.run.

    Returns what the kernel printed.  Raises GpuFault with the driver's message when anything fails and
    GpuTimeout when there is no answer within `seconds`; both leave later launches unharmed.
    """
    printed, arrays = _ask(("run", text, arguments, launch), seconds)
    for argument, changed in zip(arguments, arrays, strict=True):
        if isinstance(argument, np.ndarray):
            argument[...] = changed
    return str(printed)


def encode(case: dict[str, Any]) -> str:
    """What cuTensorMapEncodeTiled makes of a case (see tensors.Map.case): 128 bytes in hex, or its error's name."""
    return str(_ask(("encode", case)))


# -- in the worker ---------------------------------------------------------------------------------


def _serve(connection: Connection) -> None:
    """Answer requests until the other side hangs up; C's standard output goes to a file that answers quote."""
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 1)
        while True:
            try:
                request = connection.recv()
            except EOFError:
                return
            try:
                connection.send(("ok", _answer(request, printed)))
            except RuntimeError as error:
                connection.send(("error" if _alive() else "fault", str(error)))


def _answer(request: tuple[Any, ...], printed: IO[bytes]) -> Any:
    """What _ask returns for a request."""
    kind, *rest = request
    if kind == "start":
        context()
        return None
    if kind == "encode":
        return encode_here(*rest)
    text, arguments, launch = rest
    start = printed.seek(0, os.SEEK_END)
    launch_here(text, *arguments, **launch)
    ctypes.CDLL(None).fflush(None)
    printed.seek(start)
    return printed.read().decode(), [a if isinstance(a, np.ndarray) else None for a in arguments]


def _call(function: Any, *arguments: Any) -> Any:
    """Call a driver function; returns its result and raises RuntimeError with the driver's words."""
    from cuda.bindings import driver

    status, *results = function(*arguments)
    if status != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(status)
        raise RuntimeError(f"{function.__name__}: {text.decode() if text else status}")
    return results[0] if len(results) == 1 else results


def _alive() -> bool:
    """Whether the context still takes work; after a fault every call returns that fault."""
    from cuda.bindings import driver

    return bool(driver.cuCtxSynchronize()[0] == driver.CUresult.CUDA_SUCCESS)


@cache
def context() -> Any:
    """The primary context of device 0."""
    from cuda.bindings import driver

    _call(driver.cuInit, 0)
    device = _call(driver.cuDeviceGet, 0)
    context = _call(driver.cuDevicePrimaryCtxRetain, device)
    _call(driver.cuCtxSetCurrent, context)
    return context


def _load(text: str) -> Any:
    """Assemble a PTX text; the assembler's complaint is in the error."""
    from cuda.bindings import driver

    log = bytearray(LOG_BYTES)
    options = [driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER, driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    try:
        return _call(driver.cuModuleLoadDataEx, text.encode() + b"\0", 2, options, [log, LOG_BYTES])
    except RuntimeError as error:
        raise RuntimeError(f"{error}\n{log.split(bytes(1), 1)[0].decode(errors='replace')}") from None


def launch_here(
    text: str,
    *arguments: Argument,
    grid: Dim = (1, 1, 1),
    block: Dim = (32, 1, 1),
    cluster: Dim = (1, 1, 1),
    dynamic_smem: int = 0,
) -> None:
    """Launch a text's kernel from this process, wait for it and copy the arrays back in place."""
    from cuda.bindings import driver

    context()
    module = _load(text)
    pointers: list[Any] = []

    def place(array: np.ndarray) -> int:
        pointers.append(_call(driver.cuMemAlloc, max(array.nbytes, 1)))
        _call(driver.cuMemcpyHtoD, pointers[-1], array.ctypes.data, array.nbytes)
        return int(pointers[-1])

    try:
        function = _call(driver.cuModuleGetFunction, module, kernel_name(text).encode())
        placed = {id(a): place(a) for a in arguments if isinstance(a, np.ndarray)}
        values = []
        for argument in arguments:
            if isinstance(argument, bytes):
                values.append(np.frombuffer(argument, np.uint8).copy())
            elif isinstance(argument, OfAddress):
                values.append(np.array([place(argument.at(placed[id(argument.array)], encode_here))], np.uint64))
            else:
                values.append(np.array([placed[id(argument)]], np.uint64))
        _launch(function, values, grid, block, cluster, dynamic_smem)
        _call(driver.cuCtxSynchronize)
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                _call(driver.cuMemcpyDtoH, argument.ctypes.data, placed[id(argument)], argument.nbytes)
    finally:
        for pointer in pointers:
            driver.cuMemFree(pointer)
        driver.cuModuleUnload(module)


def kernel_name(text: str) -> str:
    """The name behind the first .entry."""
    return text.split(".entry", 1)[1].split("(", 1)[0].strip()


def _launch(function: Any, values: list[np.ndarray], grid: Dim, block: Dim, cluster: Dim, dynamic_smem: int) -> None:
    from cuda.bindings import driver

    if dynamic_smem > 48 * 1024:
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _call(driver.cuFuncSetAttribute, function, attribute, dynamic_smem)
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.sharedMemBytes = dynamic_smem
    if cluster != (1, 1, 1):
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        shape = attribute.value.clusterDim
        shape.x, shape.y, shape.z = cluster
        config.attrs, config.numAttrs = [attribute], 1
    pointers = np.array([value.ctypes.data for value in values], np.uint64)
    _call(driver.cuLaunchKernelEx, config, function, pointers.ctypes.data, 0)


def encode_here(case: dict[str, Any]) -> str:
    """Ask this process's driver for a tensor map; see `encode`."""
    from cuda.bindings import driver

    from tests.emulator.tensors import TYPES

    context()
    kinds = list(driver.CUtensorMapDataType)
    strides = case["strides"] or [0]  # the binding wants a list with something in it, for rank 1 too
    status, image = driver.cuTensorMapEncodeTiled(
        kinds[TYPES[case["type"]]], len(case["sizes"]), case["address"],
        [driver.cuuint64_t(s) for s in case["sizes"]], [driver.cuuint64_t(s) for s in strides],
        [driver.cuuint32_t(b) for b in case["box"]], [driver.cuuint32_t(e) for e in case["element_strides"]],
        driver.CUtensorMapInterleave(case["interleave"]), driver.CUtensorMapSwizzle(case["swizzle"]),
        driver.CUtensorMapL2promotion(case["l2"]), driver.CUtensorMapFloatOOBfill(case["nan"]),
    )  # fmt: skip
    if status != driver.CUresult.CUDA_SUCCESS:
        return str(status.name)
    return b"".join(int(word).to_bytes(8, "little") for word in image.opaque).hex()


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])))
