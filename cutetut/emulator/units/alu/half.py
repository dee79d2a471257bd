"""Half precision: f16 and bf16, single and packed in pairs (PTX ISA section 9.7.4).

Operands are bit patterns.  They are decoded to float64, where products are exact and sums are rounded to odd,
and the result is rounded once to the format.

Seen on an H200: neg and abs give 0x7FFF for every NaN, f16 and bf16; mul.ftz and fma.ftz flush 2**-14 - 2**-25,
which f16 rounds to its smallest normal number (rounding.tiny).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...machine.arithmetic import Compute, Modifiers, Operation
from ...numbers.rounding import BF16, F16, Format, add_odd, decode, encode, f64, narrow, saturate, tiny
from ...numbers.types import DTYPES
from .float32 import extremum
from .forms import IllegalForm, form
from .integer import split

OOB_NAN = 0x7FF7  # what TMA fills in, of f16 and of bf16


def format_of(kind: str) -> Format:
    """The element format of f16, f16x2, bf16 or bf16x2."""
    return BF16 if kind.startswith("bf16") else F16


def packed(kind: str, sources: int, compute: Compute) -> Operation:
    """An operation on 16-bit patterns; for x2 types it applies to both halves of the registers."""
    dtype = DTYPES[kind]
    if dtype is np.uint16:
        return Operation(dtype, (dtype,) * sources, lambda *values: compute(*map(np.ascontiguousarray, values)))

    def both(*values: np.ndarray) -> np.ndarray:
        return compute(*(split(v, np.uint16) for v in values)).view(dtype)

    return Operation(dtype, (dtype,) * sources, both)


def flush16(bits: np.ndarray) -> np.ndarray:
    """f16 subnormals to zeros of the same sign."""
    return np.where((bits & 0x7C00) == 0, bits & 0x8000, bits)


def half(kind: str, m: Modifiers, sources: int, function: Callable[..., np.ndarray]) -> Operation:
    """A float64 function with the result rounded to the format; .ftz, .sat and .relu as the modifiers say."""
    fmt = format_of(kind)
    if "oob" in m and "ftz" in m:
        raise IllegalForm(".oob does not go with .ftz")

    def compute(*values: np.ndarray) -> np.ndarray:
        inputs = map(flush16, values) if "ftz" in m and fmt is F16 else values
        result = function(*(decode(bits, fmt) for bits in inputs))
        if fmt is BF16:  # encode rounds to f16 itself
            result = narrow(result, fmt)
        elif "ftz" in m:
            result = np.where(tiny(result, fmt), np.copysign(0.0, result), result)
        if "oob" in m:
            result = np.where(_filled(values[0]) | _filled(values[1]), 0.0, result)
        if "sat" in m:
            result = saturate(result)
        if "relu" in m:
            result = relu(result)
        return encode(result, fmt)

    return packed(kind, sources, compute)


def _filled(factor: np.ndarray) -> np.ndarray:
    """Where a factor is the NaN with which TMA fills in what lies out of bounds: .oob makes the result zero there.

    On an H200 its sign does not matter, and the addend is no factor.
    """
    return (factor & 0x7FFF) == OOB_NAN


def relu(x: np.ndarray) -> np.ndarray:
    """Negative values and -0 to +0; NaN stays."""
    return np.where(x <= 0, x.dtype.type(0), x)


# -- 9.7.4.1 to 9.7.4.4 ----------------------------------------------------------------------------

ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,  # the sum of two halves needs no odd rounding: float64 has more than twice their bits
    "sub": np.subtract,
    "mul": np.multiply,
    "fma": lambda a, b, c: add_odd(a * b, c),
}


@form("add sub mul", "f16 f16x2", "rn ftz sat")
@form("add sub mul", "bf16 bf16x2", "rn")
@form("fma", "f16 f16x2", "rn! ftz oob sat|relu")
@form("fma", "bf16 bf16x2", "rn! oob relu")
def _arithmetic(name: str, kind: str, m: Modifiers) -> Operation:
    return half(kind, m, 3 if name == "fma" else 2, ARITHMETIC[name])


# -- 9.7.4.5 to 9.7.4.8 ----------------------------------------------------------------------------


@form("abs neg", "f16 f16x2", "ftz")
@form("abs neg", "bf16 bf16x2")
def _sign(name: str, kind: str, m: Modifiers) -> Operation:
    infinity = np.uint16(0x7F80 if format_of(kind) is BF16 else 0x7C00)

    def compute(bits: np.ndarray) -> np.ndarray:
        if "ftz" in m:
            bits = flush16(bits)
        size = bits & np.uint16(0x7FFF)
        return np.where(size > infinity, np.uint16(0x7FFF), size if name == "abs" else bits ^ np.uint16(0x8000))

    return packed(kind, 1, compute)


@form("min max", "f16 f16x2", "ftz NaN xorsign abs")
@form("min max", "bf16 bf16x2", "NaN xorsign abs")
def _extremum(name: str, kind: str, m: Modifiers) -> Operation:
    return half(kind, m, 2, extremum(name, m, f64(np.nan)))


# -- 9.7.4.9, 9.7.4.10: approximations, computed in float64 and rounded to nearest -----------------


@form("tanh", "f16 f16x2 bf16 bf16x2", "approx!")
@form("ex2", "f16 f16x2", "approx!")
@form("ex2", "bf16 bf16x2", "approx! ftz!")
def _approximate(name: str, kind: str, m: Modifiers) -> Operation:
    function = np.tanh if name == "tanh" else np.exp2
    if "ftz" in m:  # bf16 has float32's exponents, so its subnormals are float32's
        return half(kind, m, 1, lambda a: _flush_bf16(function(_flush_bf16(a))))
    return half(kind, m, 1, function)


def _flush_bf16(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 2.0**-126, np.copysign(0.0, x), x)
