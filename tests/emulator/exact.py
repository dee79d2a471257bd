"""An oracle for rounded arithmetic: rational numbers, rounded by definition, independent of the emulator."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

MODES = ("rn", "rz", "rm", "rp")


@dataclass(frozen=True)
class Binary:
    """A binary format: bits of the significand with the hidden one, exponents of the smallest and largest normal."""

    precision: int
    emin: int
    emax: int

    def round(self, exact: Fraction, mode: str) -> float:
        """The number of this format that a nonzero exact value rounds to; +-0 and +-inf included."""
        size, negative = abs(exact), exact < 0
        exponent = self.emin
        while size >= Fraction(2) ** (exponent + 1):
            exponent += max(1, (size.numerator.bit_length() - size.denominator.bit_length() - exponent) // 2)
        while exponent > self.emin and size < Fraction(2) ** exponent:
            exponent -= 1
        ulp = Fraction(2) ** (exponent - self.precision + 1)
        below = math.floor(size / ulp)
        rest = size / ulp - below
        up = {
            "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and below % 2 == 1),
            "rna": rest >= Fraction(1, 2),
            "rz": False,
            "rm": negative and rest > 0,
            "rp": not negative and rest > 0,
        }[mode]
        value = (below + up) * ulp
        largest = (2 - Fraction(2) ** (1 - self.precision)) * Fraction(2) ** self.emax
        if value > largest:
            away = mode in ("rn", "rna") or (mode == "rm" and negative) or (mode == "rp" and not negative)
            result = math.inf if away else float(largest)
        else:
            result = float(value)
        return -result if negative else result


F16, BF16, F32, F64, TF32 = (
    Binary(11, -14, 15), Binary(8, -126, 127), Binary(24, -126, 127), Binary(53, -1022, 1023), Binary(11, -126, 127),
)  # fmt: skip
Exact = Callable[..., Fraction]


def apply(name: str, fmt: Binary, mode: str, *operands: float) -> float:
    """add, sub, mul, div, sqrt or fma of numbers of a format, rounded once, special values as IEEE 754 says."""
    special = _special(name, operands)
    if special is not None:
        return special
    if name == "sqrt":
        return _sqrt(fmt, mode, Fraction(operands[0]))
    exact = _EXACT[name](*map(Fraction, operands))
    if exact != 0:
        return fmt.round(exact, mode)
    return _zero(name, mode, operands)


_EXACT: dict[str, Exact] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "fma": lambda a, b, c: a * b + c,
}


def _special(name: str, x: tuple[float, ...]) -> float | None:
    """The result where an operand is infinite or NaN, the divisor zero or the radicand not positive."""
    if any(map(math.isnan, x)):
        return math.nan
    if name == "sqrt":
        return math.nan if x[0] < 0 else x[0] if x[0] == 0 or math.isinf(x[0]) else None
    if not any(map(math.isinf, x)) and not (name == "div" and x[1] == 0):
        return None
    with np.errstate(all="ignore"):
        a, b = np.float64(x[0]), np.float64(x[1])
        if name == "fma":
            product = a * b if math.isinf(a) or math.isinf(b) else np.float64(0)  # a finite one cannot matter
            return float(product + x[2])
        return float({"add": a + b, "sub": a - b, "mul": a * b, "div": a / b}[name])


def _zero(name: str, mode: str, x: tuple[float, ...]) -> float:
    """The sign of an exact zero (IEEE 754 section 6.3)."""
    sign = [math.copysign(1, v) for v in x]
    if name in ("mul", "div"):
        return math.copysign(0.0, sign[0] * sign[1])
    terms = {"add": sign, "sub": [sign[0], -sign[-1]], "fma": [sign[0] * sign[1 % len(x)], sign[-1]]}[name]
    if terms[0] == terms[1] and (name == "fma" and Fraction(x[0]) * Fraction(x[1]) == 0 or name != "fma"):
        return math.copysign(0.0, terms[0])
    return -0.0 if mode == "rm" else 0.0


def _sqrt(fmt: Binary, mode: str, x: Fraction) -> float:
    """Digits far beyond the format plus one more bit for what is left."""
    bits = 1400
    root = math.isqrt((x.numerator << 2 * bits) // x.denominator)
    inexact = Fraction(root, 1 << bits) ** 2 != x
    return fmt.round(Fraction(2 * root + inexact, 2 << bits), mode)


def edges(dtype: type) -> np.ndarray:
    """Numbers at which rounding, overflow, underflow and special cases happen."""
    info = np.finfo(dtype)
    one = dtype(1)
    values = [
        0.0, info.smallest_subnormal, 3 * info.smallest_subnormal, info.tiny - info.smallest_subnormal, info.tiny,
        info.tiny + info.smallest_subnormal, info.eps / 2, info.eps, 0.5, one - info.epsneg, 1.0, one + info.eps,
        1.5, 2.0, 3.0,
        1 / info.eps, 2 / info.eps - 1, float(info.max) / 2, float(info.max), np.inf, np.nan,
    ]  # fmt: skip
    positive: np.ndarray = np.array(values, dtype)
    return np.concatenate([positive, -positive])


def anything(rng: np.random.Generator, dtype: type, n: int) -> np.ndarray:
    """Random bit patterns: every exponent, subnormals, infinities and NaN."""
    unsigned: type = {2: np.uint16, 4: np.uint32, 8: np.uint64}[np.dtype(dtype).itemsize]
    return rng.integers(0, np.iinfo(unsigned).max, n, unsigned, endpoint=True).view(dtype)


def moderate(rng: np.random.Generator, dtype: type, n: int, spread: int = 8) -> np.ndarray:
    """Random numbers of similar size, so that sums cancel and round."""
    return (rng.standard_normal(n) * np.exp2(rng.integers(-spread, spread, n))).astype(dtype)


def same_bits(actual: np.ndarray, expected: np.ndarray, note: str = "") -> None:
    """Fail with the first lane whose bits differ; any NaN equals any NaN."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    unsigned = {2: np.uint16, 4: np.uint32, 8: np.uint64}[actual.dtype.itemsize]
    differ = (actual.view(unsigned) != expected.view(unsigned)) & ~(np.isnan(actual) & np.isnan(expected))
    if differ.any():
        i = int(np.flatnonzero(differ)[0])
        got, want = float(actual[i]), float(expected[i])
        raise AssertionError(f"{note}lane {i}: {got.hex()} instead of {want.hex()}; {differ.sum()} lanes differ")
