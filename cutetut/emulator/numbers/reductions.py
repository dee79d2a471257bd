"""How a reduction combines the value in memory with the one that arrives (PTX ISA sections 9.7.13.5 to 9.7.13.7).

atom, red, red.async and the reducing bulk copies (sections 9.7.9.25.4.2 and 9.7.9.27.2) share these functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from .rounding import F16, F32, UINT, bfloat_nearest, bfloat_value, extreme, flush32

Update = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (old values, others) -> new values, of one of ELEMENTS
ELEMENTS: dict[str, type] = {  # how numpy sees an element; it has no bfloat16, so that stays bits
    "u8": np.uint8, "u16": np.uint16, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64, "u32": np.uint32,
    "s32": np.int32, "u64": np.uint64, "s64": np.int64, "f32": np.float32, "f64": np.float64, "f16": np.float16,
    "bf16": np.uint16,
}  # fmt: skip
UFUNCS: dict[str, np.ufunc] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip
OPERATIONS = (*UFUNCS, "inc", "dec")
_OF_FLOATS: dict[str, Update] = {
    "add": np.add, "min": partial(extreme, smaller=True), "max": partial(extreme, smaller=False),
}  # fmt: skip
_NAN = {"f16": F16.nan, "f32": F32.nan}


def update(operation: str, kind: str, flush: bool = False) -> Update:
    """The function of a reduction on elements of a type; with flush, float32 subnormals count as zeros."""
    if kind.startswith(("f", "bf")):
        return _of_floats(_OF_FLOATS[operation], kind, flush)
    if operation in UFUNCS:
        return UFUNCS[operation]
    one, zero = np.uint32(1), np.uint32(0)
    if operation == "inc":
        return lambda old, limit: np.where(old >= limit, zero, old + one)
    return lambda old, limit: np.where((old == zero) | (old > limit), limit, old - one)


def _of_floats(function: Update, kind: str, flush: bool) -> Update:
    """Sums round to nearest even; a NaN that comes out is the canonical one, except in float64."""
    if kind == "bf16":
        return lambda old, other: bfloat_nearest(function(bfloat_value(old), bfloat_value(other)))
    if flush:
        return lambda old, other: _canonical(flush32(function(flush32(old), flush32(other))), kind)
    return lambda old, other: _canonical(function(old, other), kind)


def _canonical(values: np.ndarray, kind: str) -> np.ndarray:
    bad = values != values
    if kind in _NAN and bad.any():
        values.view(UINT[values.dtype.itemsize])[bad] = _NAN[kind]
    return values
