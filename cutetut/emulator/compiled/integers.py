"""Machine code of integer arithmetic, the counterpart of units/alu/integer.py."""

from __future__ import annotations

from ..machine.arithmetic import Modifiers
from .code import Code, Emit, Value
from .table import emits

SINGLE = "u16 s16 u32 s32 u64 s64"


def is_signed(kind: str) -> bool:
    return kind[0] == "s"


@emits("add sub", SINGLE)
def _add(name: str, kind: str, m: Modifiers) -> Emit | None:
    if "sat" in m:
        return lambda c, a, b: c.call(f"s{name}.sat", a, b)
    return lambda c, a, b: c.op(name, a, b)


def multiply(c: Code, a: Value, b: Value, signed: bool, part: str) -> Value:
    """The lower half, the upper half or the whole of a product."""
    if part == "lo":
        return c.op("mul", a, b)
    width = a.bits
    product = c.op("mul", c.resize(a, 2 * width, signed), c.resize(b, 2 * width, signed))
    return product if part == "wide" else c.resize(c.op("lshr", product, width), width)


def _part(m: Modifiers) -> str:
    return next(part for part in ("lo", "hi", "wide") if part in m)


@emits("mul", SINGLE)
def _mul(name: str, kind: str, m: Modifiers) -> Emit | None:
    return lambda c, a, b: multiply(c, a, b, is_signed(kind), _part(m))


@emits("mad", SINGLE)
def _mad(name: str, kind: str, m: Modifiers) -> Emit | None:
    def emit(c: Code, a: Value, b: Value, addend: Value) -> Value:
        product = multiply(c, a, b, is_signed(kind), _part(m))
        return c.call("sadd.sat", product, addend) if "sat" in m else c.op("add", product, addend)

    return emit


@emits("mul24 mad24", "u32 s32")
def _mul24(name: str, kind: str, m: Modifiers) -> Emit | None:
    signed = is_signed(kind)

    def emit(c: Code, a: Value, b: Value, *addend: Value) -> Value:
        a, b = (c.op("ashr" if signed else "lshr", c.op("shl", v, 8), 8) for v in (a, b))
        product = multiply(c, a, b, signed, "wide")
        result = c.resize(c.op("lshr", product, 16) if "hi" in m else product, 32)
        if not addend:
            return result
        return c.call("sadd.sat", result, *addend) if "sat" in m else c.op("add", result, *addend)

    return emit


@emits("sad", SINGLE)
def _sad(name: str, kind: str, m: Modifiers) -> Emit | None:
    def emit(c: Code, a: Value, b: Value, addend: Value) -> Value:
        less = c.icmp("slt" if is_signed(kind) else "ult", a, b)
        return c.op("add", addend, c.select(less, c.op("sub", b, a), c.op("sub", a, b)))

    return emit


@emits("div rem", SINGLE)
def _divide(name: str, kind: str, m: Modifiers) -> Emit | None:
    """The host's division must not see what it traps at: a zero divisor, and the lowest number by -1."""
    signed = is_signed(kind)

    def emit(c: Code, a: Value, b: Value) -> Value:
        zero = c.icmp("eq", b, 0)
        unsafe = zero
        if signed:
            lowest = c.op("and", c.icmp("eq", a, 1 << a.bits - 1), c.icmp("eq", b, -1))
            unsafe = c.op("or", zero, lowest)
        result = c.op(("s" if signed else "u") + name, a, c.select(unsafe, 1, b))
        return c.select(zero, -1, result)

    return emit


@emits("abs neg", "s16 s32 s64")
def _sign(name: str, kind: str, m: Modifiers) -> Emit | None:
    def emit(c: Code, a: Value) -> Value:
        if name == "abs":
            return c.call("abs", a, flag="false")
        return c.op("xor", c.op("sub", a, 1), -1)  # two's complement: -a is ~(a - 1)

    return emit


@emits("min max", SINGLE)
def _extremum(name: str, kind: str, m: Modifiers) -> Emit | None:
    intrinsic = ("s" if is_signed(kind) else "u") + name

    def emit(c: Code, a: Value, b: Value) -> Value:
        result = c.call(intrinsic, a, b)
        return c.call("smax", result, 0) if "relu" in m else result

    return emit
