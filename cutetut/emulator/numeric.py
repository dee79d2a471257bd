"""The element formats of the matrix units, as exact float64 or int64 values."""

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
    "e5m2": Format(1, 5, 2), "s8": Format(1), "u8": Format(1), "f64": Format(8),
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
    """Bits of a float format (unsigned integers of its width) as float64."""
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
    return _fp8_values(name)[raw]


def to_int64(raw: np.ndarray, name: str) -> np.ndarray:
    """Bits of s8 or u8 as int64."""
    return raw.view(np.int8).astype(np.int64) if name == "s8" else raw.astype(np.int64)
