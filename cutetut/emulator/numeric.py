"""The element formats of the matrix units, as exact float64 values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np


@dataclass(frozen=True)
class Format:
    """Width and, for 8-bit floats, exponent and mantissa bits."""

    nbytes: int
    exponent: int = 0
    mantissa: int = 0


FORMATS = {
    "f16": Format(2), "bf16": Format(2), "tf32": Format(4), "f32": Format(4), "e4m3": Format(1, 4, 3),
    "e5m2": Format(1, 5, 2), "s8": Format(1), "u8": Format(1), "s32": Format(4), "f64": Format(8),
}  # fmt: skip


@lru_cache(maxsize=2)
def _fp8_values(name: str) -> np.ndarray:
    """All 256 values of an 8-bit float: e5m2 is IEEE-like, e4m3 has no infinity and one NaN (PTX ISA section 5.2.3)."""
    f = FORMATS[name]
    bits = np.arange(256)
    sign = np.where(bits & 0x80, -1.0, 1.0)
    exponent, mantissa = bits >> f.mantissa & (1 << f.exponent) - 1, bits & (1 << f.mantissa) - 1
    bias = (1 << f.exponent - 1) - 1
    normal = np.ldexp(1 + mantissa / (1 << f.mantissa), exponent - bias)
    subnormal = np.ldexp(mantissa / (1 << f.mantissa), 1 - bias)
    values = sign * np.where(exponent == 0, subnormal, normal)
    if name == "e4m3":
        values[bits & 0x7F == 0x7F] = np.nan
    else:
        top = exponent == (1 << f.exponent) - 1
        values[top] = np.where(mantissa[top] == 0, sign[top] * np.inf, np.nan)
    return values


def to_float64(raw: np.ndarray, name: str) -> np.ndarray:
    """Bits of a format (unsigned integers of its width) as float64, which holds the integer formats exactly too."""
    if name == "f16":
        return raw.view(np.float16).astype(np.float64)
    if name == "bf16":
        return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if name == "tf32":  # the low 13 bits are ignored
        return (raw & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    if name == "f32":
        return raw.view(np.float32).astype(np.float64)
    if name == "f64":
        return raw.view(np.float64)
    if name in ("s8", "u8"):
        return (raw.view(np.int8) if name == "s8" else raw).astype(np.float64)
    return _fp8_values(name)[raw]


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
