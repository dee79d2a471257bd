"""Floating-point arithmetic with the rounding that PTX prescribes, on numpy arrays.

Host hardware rounds float32 and float64 to nearest even, once.  Everything else here rests on one
idea: compute in float64, and where float64 itself had to round, round *to odd* (Boldo and Melquiond
2008).  A value rounded to odd never lies on a boundary between two shorter numbers unless the exact
value does, so rounding it again to 24 bits or fewer gives what one rounding of the exact value gives.

Rounding modes carry their PTX names: rn nearest even, rna nearest away from zero, rz toward zero,
rm down, rp up (PTX ISA section 9.7.3).  float64 under rm, rp and rz is rare and takes an exact rational route.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

f32, f64 = np.float32, np.float64
UINT: dict[int, type] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}  # raw bits of each width
NAN32 = np.uint32(0x7FFFFFFF).view(f32)  # the NaN that Hopper's float32 units produce
_TO_TOP, _TIE_AT_TOP = np.array(35), np.array(np.iinfo(np.int64).min)  # the 29 bits that float32 has fewer, on top
_SMALLEST_NORMAL = np.array(2.0**-126, f32)
_ONE = np.uint64(1)
_TINY = np.uint64((1023 - 126) << 53)  # 2**-126 as float64 bits, shifted left past the sign


@dataclass(frozen=True)
class Format:
    """A binary format narrower than float64: significand bits (the hidden one included), exponents.

    `nan` is the pattern results are given, `dtype` the integer that stores one value.
    """

    name: str
    precision: int
    emin: int
    emax: int
    largest: float
    nan: int
    dtype: type

    @property
    def nbytes(self) -> int:
        return np.dtype(self.dtype).itemsize


F32 = Format("f32", 24, -126, 127, (2 - 2.0**-23) * 2.0**127, 0x7FFFFFFF, np.uint32)
F16 = Format("f16", 11, -14, 15, 65504.0, 0x7FFF, np.uint16)
BF16 = Format("bf16", 8, -126, 127, (2 - 2.0**-7) * 2.0**127, 0x7FFF, np.uint16)
TF32 = Format("tf32", 11, -126, 127, (2 - 2.0**-10) * 2.0**127, 0x7FFFFFFF, np.uint32)
E5M2 = Format("e5m2", 3, -14, 15, 57344.0, 0x7F, np.uint8)
E4M3 = Format("e4m3", 4, -6, 8, 448.0, 0x7F, np.uint8)  # no infinities: 0x7E is 448
FORMATS = {fmt.name: fmt for fmt in (F32, F16, BF16, TF32, E5M2, E4M3)}


def _nearest_away(x: np.ndarray) -> np.ndarray:
    """Exact for arguments of at most 52 significant bits."""
    return np.trunc(x + np.copysign(0.5, x))


TO_INTEGRAL: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rn": np.rint, "rna": _nearest_away, "rz": np.trunc, "rm": np.floor, "rp": np.ceil,
}  # fmt: skip


# -- any format ------------------------------------------------------------------------------------


def narrow(x: np.ndarray, fmt: Format, mode: str = "rn", satfinite: bool = False) -> np.ndarray:
    """Round float64 values to a narrower format; the result is float64 again, with values of the format.

    x is exact or rounded to odd.  satfinite gives the largest finite value where the result or x is infinite.
    """
    _, exponent = np.frexp(x)
    quantum = np.ldexp(1.0, np.maximum(exponent, fmt.emin + 1) - fmt.precision)
    rounded = TO_INTEGRAL[mode](x / quantum) * quantum
    over = np.abs(rounded) > fmt.largest
    if not over.any():
        return rounded
    stays_finite = {"rz": np.isfinite(x), "rm": np.isfinite(x) & (x > 0), "rp": np.isfinite(x) & (x < 0)}
    finite = over if satfinite else over & stays_finite.get(mode, False)
    limit = np.where(finite, fmt.largest, np.inf)
    return np.where(over, np.copysign(limit, rounded), rounded)


def encode(x: np.ndarray, fmt: Format) -> np.ndarray:
    """The bit patterns of float64 values that the format can represent; every NaN becomes fmt.nan.

    For F16 the values may be any, exact or rounded to odd: numpy rounds them to nearest even, once.
    """
    if fmt is E4M3:
        bits = np.searchsorted(_E4M3_VALUES, np.abs(x)).astype(np.uint8) | (np.signbit(x).astype(np.uint8) << 7)
    elif fmt in (F16, E5M2):
        half = x.astype(np.float16).view(np.uint16)
        bits = half if fmt is F16 else (half >> 8).astype(np.uint8)
    else:
        single = x.astype(f32).view(np.uint32)
        bits = (single >> 16).astype(np.uint16) if fmt is BF16 else single
    return np.where(np.isnan(x), fmt.dtype(fmt.nan), bits)


def decode(bits: np.ndarray, fmt: Format) -> np.ndarray:
    """The float64 values of bit patterns."""
    if fmt is E4M3:
        return _E4M3_DECODE[bits]
    if fmt is F16:
        return bits.view(np.float16).astype(f64)
    if fmt is E5M2:
        return (bits.astype(np.uint16) << 8).view(np.float16).astype(f64)
    if fmt is BF16:
        return bfloat_value(bits).astype(f64)
    return bits.view(f32).astype(f64)


def _e4m3_values() -> np.ndarray:
    """The 127 non-negative values of e4m3 in the order of their patterns (PTX ISA section 5.2.3)."""
    pattern = np.arange(127)
    exponent, mantissa = pattern >> 3, pattern & 7
    return np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * np.ldexp(1.0, np.maximum(exponent, 1) - 10))


_E4M3_VALUES = _e4m3_values()
_E4M3_DECODE = np.concatenate([_E4M3_VALUES, [np.nan], -_E4M3_VALUES, [np.nan]])


def bfloat_value(bits: np.ndarray) -> np.ndarray:
    """bf16 patterns as float32, which holds them exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(f32)


def bfloat_nearest(x: np.ndarray) -> np.ndarray:
    """float32 to bf16 rounded to nearest even, on the bits: the common case of an epilogue, so it is quick."""
    bits = x.view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    return np.where(x != x, np.uint16(BF16.nan), rounded.astype(np.uint16))


def half_nearest(x: np.ndarray) -> np.ndarray:
    """float32 to f16 rounded to nearest even."""
    return np.where(x != x, np.uint16(F16.nan), x.astype(np.float16).view(np.uint16))


def quiet(x: np.ndarray) -> np.ndarray:
    """float32 results with every NaN replaced by the one Hopper produces (unspecified in PTX ISA 9.7.3)."""
    bad = x != x
    if np.count_nonzero(bad):
        x[bad] = NAN32
    return x


def flush32(x: np.ndarray) -> np.ndarray:
    """float32 subnormals to zeros of the same sign, as .ftz asks for."""
    small = ((x.view(np.uint32) << 1) - 1) < 0x00FFFFFF  # zero wraps round to the largest and stays out
    return np.where(small, np.copysign(f32(0), x), x) if np.count_nonzero(small) else x


def tiny(x: np.ndarray, fmt: Format, mode: str = "rn") -> np.ndarray:
    """Which results .ftz flushes: those below the smallest normal after rounding as if exponents had no end.

    x is float64, exact or rounded to odd.  So 2**-126 - 2**-150 goes to zero (seen on an H200), although in float32
    it rounds to 2**-126.  Rounding comes first in the code that NVIDIA's assembler makes of div.ftz and cvt.ftz.
    """
    return np.abs(narrow(x, replace(fmt, emin=-1000), mode)) < 2.0**fmt.emin


def flush32_result(x: np.ndarray, exact: Callable[[np.ndarray], np.ndarray], mode: str) -> np.ndarray:
    """Flush rounded results; exact(lanes) gives float64 values, exact or rounded to odd, of the lanes in doubt.

    In doubt is +-2**-126, which may have been rounded up from a tiny value.
    """
    small = ((x.view(np.uint32) << 1) - 1) < 0x01000000  # zero wraps round to the largest and stays out
    if not np.count_nonzero(small):
        return x
    lanes = np.flatnonzero(small)
    result = np.array(x)
    result[lanes] = np.where(tiny(exact(lanes), F32, mode), np.copysign(f32(0), x[lanes]), x[lanes])
    return result


def saturate(x: np.ndarray) -> np.ndarray:
    """Clamp to [0, 1]; NaN and -0 give +0, as .sat asks for."""
    return np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))


def extreme(a: np.ndarray, b: np.ndarray, smaller: bool, propagate: bool = False) -> np.ndarray:
    """The smaller or larger of floats: a number beats NaN unless NaN shall propagate, and -0 counts as less than +0.

    numpy's fmin is no help: in the last lanes of an array a signalling NaN wins.
    """
    result = (np.minimum if smaller else np.maximum)(a, b)
    if not propagate:
        result = np.where(a != a, b, np.where(b != b, a, result))
    unsigned = UINT[a.dtype.itemsize]
    first: np.ndarray = a.view(unsigned)
    second: np.ndarray = b.view(unsigned)
    zeros = (first | second if smaller else first & second).view(a.dtype)
    return np.where(a == b, zeros, result)


# -- float64 sums rounded to odd -------------------------------------------------------------------


def add_odd(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b in float64, rounded to odd where it is inexact.  No overflow may occur."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)  # exact: Knuth's two-sum
    bits = total.view(np.int64)
    fix = (error != 0) & ((bits & 1) == 0) & np.isfinite(total)
    outward = (error > 0) == (total > 0)
    return (bits + np.where(fix, np.where(outward, 1, -1), 0)).view(f64)


def integer_odd(x: np.ndarray) -> np.ndarray:
    """A 32- or 64-bit integer as float64, rounded to odd."""
    if x.dtype.itemsize < 8:
        return x.astype(f64)
    high, low = (x >> 32).astype(f64) * 2.0**32, (x & x.dtype.type(0xFFFFFFFF)).astype(f64)
    return add_odd(high, low)


# -- float32 ---------------------------------------------------------------------------------------


def round32(x: np.ndarray, mode: str) -> np.ndarray:
    """float64 values, exact or rounded to odd, to float32."""
    nearest = x.astype(f32)
    if mode == "rn":
        return nearest
    wide = nearest.astype(f64)
    if mode == "rz":
        wrong, toward = np.abs(wide) > np.abs(x), f32(0)
    elif mode == "rm":
        wrong, toward = wide > x, f32(-np.inf)
    else:
        wrong, toward = wide < x, f32(np.inf)
    return np.where(wrong, np.nextafter(nearest, toward), nearest)


# Rounding a sum down is rounding its negative up and negating; it gives the exact zero of x + (-x) the
# sign -0 that IEEE 754 section 6.3 asks for under rm.


def add32(a: np.ndarray, b: np.ndarray, mode: str = "rn") -> np.ndarray:
    """a + b in float32."""
    if mode == "rn":
        return quiet(a + b)
    if mode == "rm":
        return quiet(-add32(-a, -b, "rp"))
    return quiet(round32(add_odd(a.astype(f64), b.astype(f64)), mode))


def sub32(a: np.ndarray, b: np.ndarray, mode: str = "rn") -> np.ndarray:
    """a - b in float32."""
    return quiet(a - b) if mode == "rn" else add32(a, -b, mode)


def mul32(a: np.ndarray, b: np.ndarray, mode: str = "rn") -> np.ndarray:
    """a * b in float32: the product of two float32 is exact in float64."""
    return quiet(a * b if mode == "rn" else round32(a.astype(f64) * b.astype(f64), mode))


def div32(a: np.ndarray, b: np.ndarray, mode: str = "rn") -> np.ndarray:
    """a / b in float32: a quotient of 24-bit numbers is never so near a boundary that float64 rounds onto it."""
    return quiet(a / b if mode == "rn" else round32(a.astype(f64) / b.astype(f64), mode))


def sqrt32(a: np.ndarray, mode: str = "rn") -> np.ndarray:
    """The square root in float32, by the same argument as div32."""
    return quiet(np.sqrt(a) if mode == "rn" else round32(np.sqrt(a.astype(f64)), mode))


def fma32(a: np.ndarray, b: np.ndarray, c: np.ndarray, mode: str = "rn") -> np.ndarray:
    """a * b + c in float32 with one rounding.

    The product is exact in float64.  Rounding the float64 sum again to float32 goes wrong only where
    the sum lies exactly between two float32 numbers, which its low 29 bits show, or where the
    result is subnormal.  Those lanes are computed again through a sum rounded to odd.
    """
    if mode == "rm":
        return quiet(-fma32(-a, b, -c, "rp"))
    product, addend = a.astype(f64) * b.astype(f64), c.astype(f64)
    if mode != "rn":
        return quiet(round32(add_odd(product, addend), mode))
    total = product + addend
    result: np.ndarray = total.astype(f32)
    rare = (total.view(np.int64) << _TO_TOP) == _TIE_AT_TOP
    plain = np.count_nonzero(np.abs(result) > _SMALLEST_NORMAL) == result.size  # no zero, no subnormal, no NaN
    if not plain:
        rare |= ((total.view(np.uint64) << _ONE) - _ONE) < _TINY  # zero wraps round to the largest and stays out
    if np.count_nonzero(rare):
        result[rare] = add_odd(product[rare], addend[rare]).astype(f32)
    return result if plain else quiet(result)


# -- float64 ---------------------------------------------------------------------------------------


def round_fraction(exact: Fraction, mode: str) -> float:
    """An exact value to float64 under any mode; zero gives +0."""
    if exact == 0:
        return 0.0
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
    if abs(exact) < Fraction(2) ** exponent:
        exponent -= 1
    scale = max(exponent, -1022) - 52
    units = exact / Fraction(2) ** scale
    down = math.floor(units)
    count = {
        "rn": round(units), "rm": down, "rp": -math.floor(-units), "rz": down if exact > 0 else -math.floor(-units),
    }[mode]  # fmt: skip
    if count == 0:
        return -0.0 if exact < 0 else 0.0
    if abs(count).bit_length() + scale > 1024:
        finite = mode == "rz" or (mode == "rm" and exact > 0) or (mode == "rp" and exact < 0)
        limit = float(np.finfo(f64).max) if finite else math.inf
        return -limit if exact < 0 else limit
    return math.ldexp(count, scale)


def _exactly(
    nearest: np.ndarray, mode: str, exact: Callable[..., Fraction], *operands: np.ndarray, where: np.ndarray
) -> np.ndarray:
    """Replace the chosen lanes by rational arithmetic; exact zeros keep what `nearest` says."""
    result = np.array(nearest, f64)
    for lane in np.flatnonzero(where):
        value = exact(*(Fraction(float(x[lane])) for x in operands))
        if value != 0:
            result[lane] = round_fraction(value, mode)
    return result


def _finite(*operands: np.ndarray) -> np.ndarray:
    return np.logical_and.reduce([np.isfinite(x) for x in operands])


def add64(a: np.ndarray, b: np.ndarray, mode: str = "rn") -> np.ndarray:
    """a + b in float64."""
    if mode == "rn":
        return a + b
    if mode == "rm":
        return -add64(-a, -b, "rp")
    return _exactly(a + b, mode, lambda x, y: x + y, a, b, where=_finite(a, b))


def sub64(a: np.ndarray, b: np.ndarray, mode: str = "rn") -> np.ndarray:
    """a - b in float64."""
    return a - b if mode == "rn" else add64(a, -b, mode)


def mul64(a: np.ndarray, b: np.ndarray, mode: str = "rn") -> np.ndarray:
    """a * b in float64."""
    return a * b if mode == "rn" else _exactly(a * b, mode, lambda x, y: x * y, a, b, where=_finite(a, b))


def div64(a: np.ndarray, b: np.ndarray, mode: str = "rn") -> np.ndarray:
    """a / b in float64."""
    if mode == "rn":
        return a / b
    return _exactly(a / b, mode, lambda x, y: x / y, a, b, where=_finite(a, b) & (b != 0))


def sqrt64(a: np.ndarray, mode: str = "rn") -> np.ndarray:
    """The square root in float64."""
    root = np.sqrt(a)
    return root if mode == "rn" else _exactly(root, mode, _sqrt_odd, a, where=np.isfinite(a) & (a > 0))


def _sqrt_odd(x: Fraction) -> Fraction:
    """A root of over 100 bits whose last bit is odd where it is inexact: enough to round any way."""
    shift = 1300
    scaled = (x.numerator << 2 * shift) // x.denominator
    root = math.isqrt(scaled)
    return Fraction(2 * root + (root * root != scaled), 2 << shift)


def fma64(a: np.ndarray, b: np.ndarray, c: np.ndarray, mode: str = "rn") -> np.ndarray:
    """a * b + c in float64 with one rounding.

    Under rn, lanes of moderate exponents use Boldo and Melquiond's algorithm (2008): the product as an exact
    pair, the low parts summed to odd.  The other lanes use rational arithmetic.
    """
    if mode == "rm":
        return -fma64(-a, b, -c, "rp")
    finite = _finite(a, b, c)
    nearest = np.where(_finite(a, b) & np.isinf(c), c, a * b + c)
    if mode != "rn":
        return _exactly(nearest, mode, lambda x, y, z: x * y + z, a, b, c, where=finite)
    moderate = _moderate(a) & _moderate(b) & _moderate(c)
    result = _fma_moderate(a, b, c)
    result = np.where(moderate & (result != 0), result, nearest)  # exact zeros take their sign from a * b + c
    if (finite & ~moderate).any():
        result = _exactly(result, mode, lambda x, y, z: x * y + z, a, b, c, where=finite & ~moderate)
    return result


def _moderate(x: np.ndarray) -> np.ndarray:
    size = np.abs(x)
    return (size < 2.0**400) & (size > 2.0**-400) | (x == 0)


def _fma_moderate(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    high, low = _two_product(a, b)
    t_high, t_low = _two_sum(c, low)
    v_high, v_low = _two_sum(high, t_high)
    return v_high + add_odd(t_low, v_low)


def _two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a * b as a rounded product and its exact error (Dekker 1971)."""
    product = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    return product, a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _split(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scaled = x * 134217729.0  # 2**27 + 1
    high = scaled - (scaled - x)
    return high, x - high
