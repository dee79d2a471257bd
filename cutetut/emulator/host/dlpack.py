"""Read, and where needed relabel, the DLPack capsule a tensor exports (DLPack 1.0, dlpack.h)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

CPU, CUDA = 1, 2  # kDLCPU, kDLCUDA
_KINDS = {0: "int", 1: "uint", 2: "float", 3: "pointer", 4: "bfloat", 5: "complex", 6: "bool"}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


# DLManagedTensorVersioned puts version (2 x u32), manager_ctx, deleter and flags (u64) before the tensor
_OFFSET = {b"dltensor": 0, b"dltensor_versioned": 32}

_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


@dataclass(frozen=True)
class Span:
    """The bytes from a tensor's first element to its last, and how to call them in a message."""

    start: int
    nbytes: int
    label: str

    def holds(self, address: int) -> bool:
        return self.start <= address < self.start + self.nbytes


def _header(capsule: Any) -> _Tensor | None:
    name = _name(capsule)
    if name not in _OFFSET:
        return None  # already consumed
    return _Tensor.from_address(_pointer(capsule, name) + _OFFSET[name])


def device_type(capsule: Any) -> int | None:
    """The DLDeviceType of a tensor capsule; None for a capsule already consumed."""
    header = _header(capsule)
    return None if header is None else int(header.device_type)


def set_device_type(capsule: Any, value: int) -> None:
    """Relabel the device of a capsule nobody has consumed; the data stays where it is."""
    header = _header(capsule)
    if header is not None:
        header.device_type = value


def span(capsule: Any, name: str = "tensor") -> Span | None:
    """The bytes a tensor capsule covers; None for a capsule already consumed."""
    header = _header(capsule)
    if header is None:
        return None
    shape = [header.shape[i] for i in range(header.ndim)]
    dtype = f"{_KINDS.get(header.code, 'type')}{header.bits}"
    start, low, high = header.data + header.byte_offset, 0, 0
    packed = 1
    for i in reversed(range(header.ndim)):
        stride = header.strides[i] if header.strides else packed
        packed *= shape[i]
        reach = (shape[i] - 1) * stride
        low, high = low + min(reach, 0), high + max(reach, 0)
    bits = header.bits * header.lanes
    elements = 0 if 0 in shape else high - low + 1
    return Span(start + low * bits // 8, -(-elements * bits // 8), label(name, tuple(shape), dtype))


def label(name: str, shape: tuple[int, ...], dtype: str) -> str:
    """How a message calls a tensor: `mA (256, 128) float32`."""
    return f"{name} {shape} {dtype}"
