"""Machine code of float32 arithmetic rounded to nearest even, the counterpart of units/alu/float32.py.

Other rounding modes, float64 arithmetic and the approximations that numpy computes with functions of its own (sin,
cos, lg2, tanh) stay with numpy.
"""

from __future__ import annotations

from collections.abc import Callable

from ..machine.arithmetic import Modifiers, rounding
from ..numbers.exponentials import LARGEST, MANTISSA, TERMS, TO_WHOLE
from .code import Code, Emit, Value, constant
from .table import emits

NAN = 0x7FFFFFFF
SIGN, SIZE = 0x80000000, 0x7FFFFFFF
TINY = 2.0**-126
FLUSHED_BELOW = 2.0**-126 - 2.0**-151  # what is smaller than this is smaller than TINY when rounded to 24 bits
Function = Callable[..., Value]  # of the code and the sources


def pattern(c: Code, bits: int | Value) -> Value:
    """A float32 by its bits."""
    return c.cast("bitcast", bits if isinstance(bits, Value) else constant(bits, "i32"), "float")


def is_nan(c: Code, x: Value) -> Value:
    return c.fcmp("uno", x, x)


def quiet(c: Code, x: Value) -> Value:
    """Every NaN replaced by the one that Hopper's float32 units produce."""
    return c.select(is_nan(c, x), pattern(c, NAN), x)


def sign_of(c: Code, x: Value) -> Value:
    """A zero with the sign of x."""
    return pattern(c, c.op("and", c.bits(x), SIGN))


def magnitude(c: Code, x: Value) -> Value:
    return pattern(c, c.op("and", c.bits(x), SIZE))


def flush(c: Code, x: Value) -> Value:
    """Subnormals to zeros of the same sign."""
    return c.select(c.fcmp("olt", magnitude(c, x), TINY), sign_of(c, x), x)


def saturate(c: Code, x: Value) -> Value:
    """Clamp to [0, 1]; NaN and -0 give +0."""
    capped = c.select(c.fcmp("olt", x, 1.0), x, 1.0)
    return c.select(c.fcmp("ogt", x, 0.0), capped, 0.0)


def to_double(c: Code, x: Value) -> Value:
    return c.cast("fpext", x, "double")


# -- add, subtract, multiply, divide ---------------------------------------------------------------


def fma(c: Code, a: Value, b: Value, addend: Value) -> Value:
    return c.call("fma", a, b, addend)


def root(c: Code, a: Value) -> Value:
    return c.call("sqrt", a)


def reciprocal(c: Code, a: Value) -> Value:
    return c.op("fdiv", constant(1.0, a.kind), a)


EXACT: dict[str, Function] = {
    "add": lambda c, a, b: c.op("fadd", a, b), "sub": lambda c, a, b: c.op("fsub", a, b),
    "mul": lambda c, a, b: c.op("fmul", a, b), "div": lambda c, a, b: c.op("fdiv", a, b),
    "fma": fma, "mad": fma, "sqrt": root, "rcp": reciprocal,
}  # fmt: skip


def below_tiny(c: Code, name: str, values: list[Value]) -> Value:
    """Whether an exact result is so small that .ftz flushes it, although float32 would round it up to 2**-126."""
    wide = [to_double(c, v) for v in values]
    if name not in ("fma", "mad"):
        return c.fcmp("olt", c.call("fabs", EXACT[name](c, *wide)), FLUSHED_BELOW)
    product = c.op("fmul", wide[0], wide[1])
    addend = wide[2]
    total = c.op("fadd", product, addend)
    part = c.op("fsub", total, product)
    error = c.op("fadd", c.op("fsub", product, c.op("fsub", total, part)), c.op("fsub", addend, part))  # two-sum
    size = c.call("fabs", total)
    # on the limit itself the exact sum is smaller where the error points towards zero
    inward = c.fcmp("olt", c.op("fmul", error, total), 0.0)
    on_limit = c.op("and", c.fcmp("oeq", size, FLUSHED_BELOW), inward)
    return c.op("or", c.fcmp("olt", size, FLUSHED_BELOW), on_limit)


def flush_result(c: Code, name: str, values: list[Value], result: Value) -> Value:
    """.ftz for an operation that may round up to 2**-126 what must be flushed."""
    result = flush(c, result)
    doubtful = c.fcmp("oeq", magnitude(c, result), TINY)
    return c.select(c.op("and", doubtful, below_tiny(c, name, values)), sign_of(c, result), result)


MAY_ROUND_UP = ("mul", "fma", "mad", "div", "rcp")


@emits("add sub mul fma mad div rcp sqrt", "f32")
def _arithmetic(name: str, kind: str, m: Modifiers) -> Emit | None:
    if "approx" in m:
        return _wrapped(APPROXIMATE[name], m)
    if rounding(m) != "rn":
        return None
    doubtful = "ftz" in m and name in MAY_ROUND_UP

    def emit(c: Code, *given: Value) -> Value:
        values = [flush(c, v) for v in given] if "ftz" in m else list(given)
        result = quiet(c, EXACT[name](c, *values))
        if doubtful:
            result = flush_result(c, name, values, result)
        elif "ftz" in m:
            result = flush(c, result)
        return saturate(c, result) if "sat" in m else result

    return emit


def _wrapped(function: Function, m: Modifiers) -> Emit:
    """A function whose sources and result .ftz flushes."""

    def emit(c: Code, *given: Value) -> Value:
        if "ftz" not in m:
            return function(c, *given)
        return flush(c, function(c, *(flush(c, v) for v in given)))

    return emit


# -- approximations that are computed in float64 ---------------------------------------------------


def in_double(function: Function) -> Function:
    """A function of float64 rounded to float32."""

    def emit(c: Code, *values: Value) -> Value:
        return quiet(c, c.cast("fptrunc", function(c, *(to_double(c, v) for v in values)), "float"))

    return emit


def _divide(c: Code, a: Value, b: Value) -> Value:
    """For |b| > 2**126 the reciprocal is flushed to zero."""
    zero = c.call("copysign", constant(0.0, "double"), b)
    large = c.fcmp("ogt", c.call("fabs", b), 2.0**126)
    return c.select(large, c.op("fmul", a, zero), c.op("fdiv", a, b))


def power_of_two(c: Code, x: Value) -> Value:
    """2**x, step by step as numbers/exponentials.py has it."""
    limited = c.select(c.fcmp("olt", x, -LARGEST), -LARGEST, x)
    limited = c.select(c.fcmp("ogt", limited, LARGEST), LARGEST, limited)
    shifted = c.op("fadd", limited, TO_WHOLE)
    rest = c.op("fsub", limited, c.op("fsub", shifted, TO_WHOLE))
    power = c.op("fadd", c.op("fmul", rest, TERMS[0]), TERMS[1])
    for term in TERMS[2:]:
        power = c.op("fadd", c.op("fmul", power, rest), term)
    bits = c.op("add", c.op("shl", c.bits(shifted), MANTISSA), c.bits(power))
    return c.select(is_nan(c, x), x, c.cast("bitcast", bits, "double"))


APPROXIMATE: dict[str, Function] = {
    "div": in_double(_divide),
    "rcp": in_double(reciprocal),
    "sqrt": in_double(root),
    "rsqrt": in_double(lambda c, a: reciprocal(c, root(c, a))),
    "ex2": in_double(power_of_two),
}


@emits("rsqrt ex2", "f32")
def _approximate(name: str, kind: str, m: Modifiers) -> Emit | None:
    return _wrapped(APPROXIMATE[name], m)


# -- sign, minimum, maximum ------------------------------------------------------------------------


@emits("abs neg", "f32")
def _sign(name: str, kind: str, m: Modifiers) -> Emit | None:
    def function(c: Code, a: Value) -> Value:
        changed = magnitude(c, a) if name == "abs" else pattern(c, c.op("xor", c.bits(a), SIGN))
        return c.select(is_nan(c, a), pattern(c, NAN), changed)

    return _wrapped(function, m)


def extreme(c: Code, a: Value, b: Value, smaller: bool, propagate: bool) -> Value:
    """A number beats NaN unless NaN shall propagate; -0 counts as less than +0."""
    result = c.select(c.fcmp("olt" if smaller else "ogt", a, b), a, b)
    zeros = pattern(c, c.op("or" if smaller else "and", c.bits(a), c.bits(b)))
    result = c.select(c.fcmp("oeq", a, b), zeros, result)
    if propagate:
        return c.select(c.fcmp("uno", a, b), pattern(c, NAN), result)
    return quiet(c, c.select(is_nan(c, a), b, c.select(is_nan(c, b), a, result)))


@emits("min max", "f32")
def _extremum(name: str, kind: str, m: Modifiers) -> Emit | None:
    def function(c: Code, a: Value, b: Value) -> Value:
        if "xorsign" not in m:
            return extreme(c, a, b, name == "min", "NaN" in m)
        result = extreme(c, magnitude(c, a), magnitude(c, b), name == "min", "NaN" in m)
        sign = c.op("and", c.op("xor", c.bits(a), c.bits(b)), SIGN)
        signed = pattern(c, c.op("xor", c.bits(result), sign))
        return c.select(is_nan(c, result), result, signed)

    return _wrapped(function, m)


@emits("copysign", "f32")
def _copysign(name: str, kind: str, m: Modifiers) -> Emit | None:
    return lambda c, a, b: pattern(c, c.op("or", c.op("and", c.bits(a), SIGN), c.op("and", c.bits(b), SIZE)))


@emits("testp", "f32")
def _testp(name: str, kind: str, m: Modifiers) -> Emit | None:
    (question,) = m
    infinity = 0x7F800000

    def emit(c: Code, a: Value) -> Value:
        size = c.op("and", c.bits(a), SIZE)
        if question in ("finite", "infinite", "number", "notanumber"):
            how = {"finite": "ult", "infinite": "eq", "number": "ule", "notanumber": "ugt"}[question]
            return c.icmp(how, size, infinity)
        subnormal = c.icmp("ult", c.op("sub", size, 1), 0x007FFFFF)  # zero wraps round and stays out
        if question == "subnormal":
            return subnormal
        return c.op("and", c.icmp("ult", size, infinity), c.op("xor", subnormal, 1))

    return emit
