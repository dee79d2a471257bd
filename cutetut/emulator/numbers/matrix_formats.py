"""The element formats of the matrix units: in as exact float64 values, out with one rounding."""

from __future__ import annotations

import numpy as np

from .rounding import FORMATS, decode

NBYTES = {"s8": 1, "u8": 1, "s32": 4, "f64": 8, **{name: fmt.nbytes for name, fmt in FORMATS.items()}}
_TF32_BITS = np.uint32(0xFFFFE000)  # the matrix units ignore the 13 bits below


def to_float64(raw: np.ndarray, name: str) -> np.ndarray:
    """Bits of a format (unsigned integers of its width) as float64, which holds the integer formats exactly too."""
    if name in ("s8", "u8"):
        return (raw.view(np.int8) if name == "s8" else raw).astype(np.float64)
    if name == "f64":
        return raw.view(np.float64)
    return decode(raw & _TF32_BITS if name == "tf32" else raw, FORMATS[name])


_RESULTS: dict[str, tuple[type, type]] = {
    "f16": (np.float16, np.uint16), "f32": (np.float32, np.uint32), "f64": (np.float64, np.uint64),
}  # fmt: skip


def add_rounded(product: np.ndarray, c: np.ndarray, d: str, saturate: bool = False) -> np.ndarray:
    """product + c in the type of D, as D's bits: float sums are rounded once, integer sums wrap or saturate.

    product is float64 and exact for integers; c holds the values of C (float32, float16, float64 or int32).
    The hardware leaves the order and the rounding of the inner sums open (PTX ISA section 9.7.14.5.14).
    """
    if d in _RESULTS:
        values, bits = _RESULTS[d]
        return (product + c).astype(values).view(bits)
    total = product.astype(np.int64) + c.astype(np.int64)
    if saturate:
        total = np.clip(total, -(1 << 31), (1 << 31) - 1)
    return (total & 0xFFFFFFFF).astype(np.uint32)
