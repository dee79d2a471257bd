"""Machine code of cvt, the counterpart of units/alu/convert.py; what is not here stays with numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..machine.arithmetic import Modifiers, Operation
from ..numbers.types import DTYPES, INTEGER, PAIR_DTYPES
from .code import Code, Emit, Value
from .floats import SIZE, flush, is_nan, quiet, saturate
from .halves import NAN, from_bf16, from_f16, join, to_bf16, to_f16

INTEGRAL = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
Found = tuple[Operation, Emit]


def conversion(to: str, of: str, m: Modifiers) -> Found | None:
    """The operation of cvt.to.of, without its numpy function, and its code; None if numpy must do it."""
    if to in PAIR_DTYPES:
        return _pair(to, of, m)
    emit = _scalar(to, of, m)
    if emit is None:
        return None
    result = np.uint32 if to == "tf32" else DTYPES[to]
    return Operation(result, (DTYPES[of],), _never), emit


def _never(*values: np.ndarray) -> np.ndarray:
    raise AssertionError("only the types of this operation are meant")


def _scalar(to: str, of: str, m: Modifiers) -> Emit | None:
    if to in INTEGER:
        return _to_same_or_other_integer(to, of, m) if of in INTEGER else _to_integer(to, of, m)
    if of in INTEGER:
        return _from_integer(to, of) if to in ("f32", "f64") and m == {"rn"} else None
    if to == "tf32":
        return _to_tf32(m)
    if (to, of) == ("f64", "f32") and not m:
        return lambda c, a: c.cast("fpext", a, "double")
    if to == "f32" and of in ("f16", "bf16"):
        return _widened(of) if not m else None
    if to in ("f16", "bf16") and of == "f32":
        return _to_half(to, m)
    return _f32_to_f32(m) if to == of == "f32" else None


# -- integers --------------------------------------------------------------------------------------


def _to_same_or_other_integer(to: str, of: str, m: Modifiers) -> Emit:
    target, source = np.iinfo(INTEGER[to]), np.iinfo(INTEGER[of])
    signed = of[0] == "s"
    low, high = max(int(target.min), int(source.min)), min(int(target.max), int(source.max))

    def emit(c: Code, a: Value) -> Value:
        if "sat" in m:
            a = c.call("smax" if signed else "umax", a, low)
            a = c.call("smin" if signed else "umin", a, high)
        return c.resize(a, int(to[1:]), signed)

    return emit


def _from_integer(to: str, of: str) -> Emit:
    return lambda c, a: c.cast("sitofp" if of[0] == "s" else "uitofp", a, {"f32": "float", "f64": "double"}[to])


READ: dict[str, Callable[[Code, Value], Value]] = {
    "f32": lambda c, a: a, "f64": lambda c, a: a, "f16": from_f16, "bf16": from_bf16,
}  # fmt: skip


def _to_integer(to: str, of: str, m: Modifiers) -> Emit:
    """Round, clamp to the range; NaN becomes 0, or the number with only the top bit where 64 bits take part."""
    width, signed = int(to[1:]), to[0] == "s"
    rounding = INTEGRAL[next(name for name in INTEGRAL if name in m)]
    top = of == "f64" or width == 64
    nan = 1 << width - 1 if top else 0

    def emit(c: Code, a: Value) -> Value:
        value = READ[of](c, a)
        if "ftz" in m and of == "f32":
            value = flush(c, value)
        value = c.call(rounding, value)
        result = c.call("fptosi.sat" if signed else "fptoui.sat", value, result=f"i{width}")
        return c.select(is_nan(c, value), nan, result)

    return emit


# -- floats ----------------------------------------------------------------------------------------


def _widened(of: str) -> Emit:
    return lambda c, a: quiet(c, READ[of](c, a))


def _f32_to_f32(m: Modifiers) -> Emit:
    rounding = next((INTEGRAL[name] for name in INTEGRAL if name in m), None)

    def emit(c: Code, a: Value) -> Value:
        value = flush(c, a) if "ftz" in m else a
        if rounding is not None:
            value = c.call(rounding, value)
        return quiet(c, saturate(c, value) if "sat" in m else value)

    return emit


WRITE = {"f16": to_f16, "bf16": to_bf16}
INFINITY = {"f16": 0x7C00, "bf16": 0x7F80}


def _to_half(to: str, m: Modifiers) -> Emit | None:
    if "rn" not in m or m - {"rn", "relu", "satfinite"}:
        return None

    def emit(c: Code, a: Value) -> Value:
        if "relu" in m:
            a = c.select(c.fcmp("ole", a, 0.0), 0.0, a)
        result = WRITE[to](c, a)
        if "satfinite" in m:
            infinite = c.icmp("eq", c.op("and", result, NAN), INFINITY[to])
            result = c.select(infinite, c.op("sub", result, 1), result)  # the largest number has the pattern before
        return result

    return emit


def _pair(to: str, of: str, m: Modifiers) -> Found | None:
    one = _to_half(to.removesuffix("x2"), m) if of == "f32" and to in ("f16x2", "bf16x2") else None
    if one is None:
        return None

    def emit(c: Code, a: Value, b: Value) -> Value:
        high, low = one(c, a), one(c, b)
        assert isinstance(high, Value) and isinstance(low, Value)
        return join(c, high, low)

    return Operation(PAIR_DTYPES[to], (np.float32, np.float32), _never), emit


def _to_tf32(m: Modifiers) -> Emit | None:
    """float32 with 10 fraction bits, on the bits; a carry out of the fraction goes on into the exponent."""
    if len(m) != 1:
        return None
    (mode,) = m

    def emit(c: Code, a: Value) -> Value:
        bits = c.bits(a)
        even = c.op("and", c.op("lshr", bits, 13), 1)
        add = {"rna": 0x1000, "rz": 0}.get(mode)
        rounded = c.op("add", bits, c.op("add", even, 0xFFF) if add is None else add)
        return c.select(is_nan(c, a), SIZE, c.op("and", rounded, ~0x1FFF))

    return emit
