"""The harness on silicon: the same PTX text, loaded through the CUDA driver."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from cuda.bindings import driver

Dim = tuple[int, int, int]
LOG_BYTES = 8192


def _call(function: Any, *arguments: Any) -> Any:
    """Call a driver function; returns its result and raises RuntimeError with the driver's words."""
    status, *results = function(*arguments)
    if status != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(status)
        raise RuntimeError(f"{function.__name__}: {text.decode() if text else status}")
    return results[0] if len(results) == 1 else results


@cache
def context() -> Any:
    """The primary context of device 0, which torch uses too."""
    _call(driver.cuInit, 0)
    device = _call(driver.cuDeviceGet, 0)
    context = _call(driver.cuDevicePrimaryCtxRetain, device)
    _call(driver.cuCtxSetCurrent, context)
    return context


def _load(text: str) -> Any:
    """Assemble a PTX text; the assembler's complaint is in the error."""
    log = bytearray(LOG_BYTES)
    options = [driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER, driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    try:
        return _call(driver.cuModuleLoadDataEx, text.encode() + b"\0", 2, options, [log, LOG_BYTES])
    except RuntimeError as error:
        raise RuntimeError(f"{error}\n{log.split(bytes(1), 1)[0].decode(errors='replace')}") from None


def run_on_gpu(
    text: str,
    *arrays: np.ndarray | bytes,
    grid: Dim = (1, 1, 1),
    block: Dim = (32, 1, 1),
    cluster: Dim = (1, 1, 1),
    dynamic_smem: int = 0,
    budget: int | None = None,
) -> str:
    """Launch the only kernel of a PTX text on GPU 0 and copy the arrays back; same arguments as harness.run.

    `budget` has no meaning here.  What the kernel prints goes to the process's standard output, so
    the result is empty.  Raises RuntimeError with the driver's message when anything fails.
    """
    context()
    module = _load(text)
    function = _call(driver.cuModuleGetFunction, module, kernel_name(text).encode())
    buffers: list[tuple[np.ndarray, Any]] = []
    values: list[np.ndarray] = []
    try:
        for array in arrays:
            if isinstance(array, bytes):
                values.append(np.frombuffer(array, np.uint8).copy())
                continue
            pointer = _call(driver.cuMemAlloc, max(array.nbytes, 1))
            buffers.append((array, pointer))
            _call(driver.cuMemcpyHtoD, pointer, array.ctypes.data, array.nbytes)
            values.append(np.array([int(pointer)], np.uint64))
        _launch(function, values, grid, block, cluster, dynamic_smem)
        _call(driver.cuCtxSynchronize)
        for array, pointer in buffers:
            _call(driver.cuMemcpyDtoH, array.ctypes.data, pointer, array.nbytes)
    finally:
        for _, pointer in buffers:
            driver.cuMemFree(pointer)
        driver.cuModuleUnload(module)
    return ""


def kernel_name(text: str) -> str:
    """The name behind the first .entry."""
    return text.split(".entry", 1)[1].split("(", 1)[0].strip()


def _launch(function: Any, values: list[np.ndarray], grid: Dim, block: Dim, cluster: Dim, dynamic_smem: int) -> None:
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
