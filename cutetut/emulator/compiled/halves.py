"""Machine code of half precision, the counterpart of units/alu/half.py; values are patterns of 16 bits.

Sums, differences and products are computed in float32.  It has more than twice a half's bits, so that rounding its
result again gives what one rounding would give; subnormal halves are exact in it or round alike.  fma, whose float32
result can be just on a boundary, and .relu, .oob and .xorsign stay with numpy.
"""

from __future__ import annotations

from collections.abc import Callable

from ..machine.arithmetic import Modifiers
from .code import Code, Emit, Value, constant
from .floats import EXACT, extreme, is_nan, pattern, saturate
from .table import emits

NAN = 0x7FFF
FLUSHED_BELOW = 2.0**-14 - 2.0**-26  # what is smaller than this is smaller than 2**-14 when rounded to 11 bits


def from_f16(c: Code, bits: Value) -> Value:
    return c.cast("fpext", c.cast("bitcast", bits, "half"), "float")


def from_bf16(c: Code, bits: Value) -> Value:
    return pattern(c, c.op("shl", c.resize(bits, 32), 16))


def to_f16(c: Code, x: Value) -> Value:
    """float32 to f16 rounded to nearest even."""
    return c.select(is_nan(c, x), NAN, c.cast("bitcast", c.cast("fptrunc", x, "half"), "i16"))


def to_bf16(c: Code, x: Value) -> Value:
    """float32 to bf16 rounded to nearest even, on the bits."""
    bits = c.bits(x)
    even = c.op("and", c.op("lshr", bits, 16), 1)
    rounded = c.op("lshr", c.op("add", bits, c.op("add", even, 0x7FFF)), 16)
    return c.select(is_nan(c, x), NAN, c.resize(rounded, 16))


READ: dict[str, Callable[[Code, Value], Value]] = {"f16": from_f16, "bf16": from_bf16}
WRITE: dict[str, Callable[[Code, Value], Value]] = {"f16": to_f16, "bf16": to_bf16}


def both(c: Code, function: Callable[..., Value], values: tuple[Value, ...]) -> Value:
    """Apply a function of 16-bit values to the two halves of 32-bit ones."""
    low = function(c, *(c.resize(v, 16) for v in values))
    high = function(c, *(c.resize(c.op("lshr", v, 16), 16) for v in values))
    return join(c, high, low)


def join(c: Code, high: Value, low: Value) -> Value:
    return c.op("or", c.op("shl", c.resize(high, 32), 16), c.resize(low, 32))


def packed(kind: str, function: Callable[..., Value]) -> Emit:
    """The function, or for x2 types the function of both halves."""
    if kind.endswith("x2"):
        return lambda c, *values: both(c, function, values)
    return function


def flush16(c: Code, bits: Value) -> Value:
    """f16 subnormals to zeros of the same sign."""
    return c.select(c.icmp("eq", c.op("and", bits, 0x7C00), 0), c.op("and", bits, 0x8000), bits)


@emits("add sub mul", "f16 f16x2 bf16 bf16x2")
def _arithmetic(name: str, kind: str, m: Modifiers) -> Emit | None:
    element = kind.removesuffix("x2")

    def function(c: Code, *given: Value) -> Value:
        values = [flush16(c, v) for v in given] if "ftz" in m else given
        result = EXACT[name](c, *(READ[element](c, v) for v in values))
        if "ftz" in m:  # exact as far down as here
            tiny = c.fcmp("olt", c.call("fabs", result), FLUSHED_BELOW)
            result = c.select(tiny, c.call("copysign", constant(0.0, "float"), result), result)
        return WRITE[element](c, saturate(c, result) if "sat" in m else result)

    return packed(kind, function)


@emits("abs neg", "f16 f16x2 bf16 bf16x2")
def _sign(name: str, kind: str, m: Modifiers) -> Emit | None:
    infinity = 0x7F80 if kind.startswith("bf16") else 0x7C00

    def function(c: Code, bits: Value) -> Value:
        bits = flush16(c, bits) if "ftz" in m else bits
        size = c.op("and", bits, 0x7FFF)
        changed = size if name == "abs" else c.op("xor", bits, 0x8000)
        return c.select(c.icmp("ugt", size, infinity), NAN, changed)

    return packed(kind, function)


@emits("min max", "f16 f16x2 bf16 bf16x2")
def _extremum(name: str, kind: str, m: Modifiers) -> Emit | None:
    if m - {"NaN"}:
        return None
    element = kind.removesuffix("x2")

    def function(c: Code, a: Value, b: Value) -> Value:
        result = extreme(c, READ[element](c, a), READ[element](c, b), name == "min", "NaN" in m)
        return WRITE[element](c, result)

    return packed(kind, function)


@emits("add", "u16x2 s16x2")
@emits("min max", "u16x2 s16x2")
def _integers(name: str, kind: str, m: Modifiers) -> Emit | None:
    how = kind[0]

    def function(c: Code, a: Value, b: Value) -> Value:
        if name == "add":
            return c.op("add", a, b)
        result = c.call(how + name, a, b)
        return c.call("smax", result, 0) if "relu" in m else result

    return packed(kind, function)
