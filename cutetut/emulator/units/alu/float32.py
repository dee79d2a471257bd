"""float32 and float64 arithmetic (PTX ISA section 9.7.3).

Instructions with a rounding mode are exact to IEEE 754.  The .approx and .full ones are computed in float64 and
rounded to nearest, with the special values of the ISA's tables: hardware may differ by the error the
ISA allows (2**-22 relative or so; 2**-11 for tanh).  .ftz flushes what goes in and what comes out.

Seen on an H200: a result just below 2**-126 is flushed although it would round up to that (rounding.tiny); neg and
abs of a NaN do not just change its sign: f32 gives the canonical NaN, f64 the same NaN again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...machine.arithmetic import ROUNDING, Compute, Modifiers, Operation, rounding
from ...numbers import rounding as floats
from ...numbers.exponentials import exp2
from ...numbers.rounding import NAN32, add_odd, extreme, f32, f64, flush32, flush32_result, quiet, saturate
from ...numbers.types import DTYPES
from .forms import IllegalForm, form, same_type

SINGLE: dict[str, Callable[..., np.ndarray]] = {
    "add": floats.add32, "sub": floats.sub32, "mul": floats.mul32, "fma": floats.fma32, "mad": floats.fma32,
    "div": floats.div32, "sqrt": floats.sqrt32, "rcp": lambda a, mode: floats.div32(np.ones_like(a), a, mode),
}  # fmt: skip
DOUBLE: dict[str, Callable[..., np.ndarray]] = {
    "add": floats.add64, "sub": floats.sub64, "mul": floats.mul64, "fma": floats.fma64, "mad": floats.fma64,
    "div": floats.div64, "sqrt": floats.sqrt64, "rcp": lambda a, mode: floats.div64(np.ones_like(a), a, mode),
}  # fmt: skip
SOURCES = {"add": 2, "sub": 2, "mul": 2, "fma": 3, "mad": 3, "div": 2, "sqrt": 1, "rcp": 1}


WIDE: dict[str, Callable[..., np.ndarray]] = {  # in float64: near 2**-126 exact, to odd, or never on a boundary
    "mul": np.multiply, "fma": lambda a, b, c: add_odd(a * b, c), "mad": lambda a, b, c: add_odd(a * b, c),
    "div": np.divide, "rcp": np.reciprocal,
}  # fmt: skip


def flushed(compute: Compute, wide: Compute | None = None, mode: str = "rn") -> Compute:
    """The function with subnormals flushed on both sides; `wide` is it in float64 if it can round up to 2**-126."""
    if wide is None:
        return lambda *values: flush32(compute(*map(flush32, values)))

    def run(*values: np.ndarray) -> np.ndarray:
        given = [flush32(value) for value in values]
        return flush32_result(compute(*given), lambda lanes: wide(*(v[lanes].astype(f64) for v in given)), mode)

    return run


def single(m: Modifiers, sources: int, compute: Compute, wide: Compute | None = None) -> Operation:
    """A float32 operation with .ftz and .sat wrapped around it as the modifiers say."""
    if "ftz" in m:
        compute = flushed(compute, wide, rounding(m))
    if "sat" in m:
        inner = compute
        return same_type("f32", sources, lambda *values: saturate(inner(*values)))
    return same_type("f32", sources, compute)


# -- 9.7.3.3 to 9.7.3.8, 9.7.3.13, 9.7.3.15: rounded as IEEE 754 says ------------------------------


@form("add sub mul", "f32", f"{ROUNDING} ftz sat")
@form("fma mad", "f32", f"{ROUNDING}! ftz sat")
@form("div", "f32", f"{ROUNDING}|approx|full! ftz")
@form("rcp sqrt", "f32", f"{ROUNDING}|approx! ftz")
def _single(name: str, kind: str, m: Modifiers) -> Operation:
    sources, mode = SOURCES[name], rounding(m)
    if "approx" in m:
        return single(m, sources, APPROXIMATE[name])
    function, wide = SINGLE[name], WIDE.get(name)  # .full too: within the 2 ulp the ISA allows
    if mode == "rn" and name not in ("rcp", "sqrt"):
        return single(m, sources, function, wide)
    return single(m, sources, lambda *values: function(*values, mode=mode), wide)


@form("add sub mul", "f64", ROUNDING)
@form("fma mad div sqrt", "f64", f"{ROUNDING}!")
def _double(name: str, kind: str, m: Modifiers) -> Operation:
    function, mode = DOUBLE[name], rounding(m)
    return same_type("f64", SOURCES[name], lambda *values: function(*values, mode=mode))


@form("rcp", "f64", f"{ROUNDING}|approx! ftz")
def _reciprocal(name: str, kind: str, m: Modifiers) -> Operation:
    mode = rounding(m)
    if ("approx" in m) != ("ftz" in m):
        raise IllegalForm("for f64 .approx and .ftz come together")
    if "approx" in m:
        return same_type("f64", 1, lambda a: upper_word(a, lambda x: 1 / x))
    return same_type("f64", 1, lambda a: DOUBLE["rcp"](a, mode))


# -- 9.7.3.9 to 9.7.3.12: sign, minimum, maximum ---------------------------------------------------


SIGNS: dict[str, Compute] = {"abs": np.abs, "neg": np.negative}


@form("abs neg", "f32", "ftz")
def _sign(name: str, kind: str, m: Modifiers) -> Operation:
    """No sign flip for NaN on an H200: the unit adds -0, so every NaN becomes the canonical one."""
    function = SIGNS[name]
    return single(m, 1, lambda a: quiet(function(a)))


@form("abs neg", "f64")
def _sign_double(name: str, kind: str, m: Modifiers) -> Operation:
    """No sign flip for NaN on an H200: it passes through unchanged, as CUDA's programming guide says."""
    function = SIGNS[name]
    return same_type("f64", 1, lambda a: np.where(a != a, a + a, function(a)))  # a + a makes a NaN quiet


def extremum(name: str, m: Modifiers, nan: np.floating) -> Compute:
    """min or max: a number beats NaN unless .NaN is given, and -0 counts as less than +0."""
    if ("xorsign" in m) != ("abs" in m):
        raise IllegalForm(".xorsign and .abs come together")
    smaller, propagate = name == "min", "NaN" in m

    def compute(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        result = extreme(a, b, smaller, propagate)
        return np.where(result != result, nan, result)

    if "xorsign" not in m:
        return compute

    def with_sign(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        result = compute(np.abs(a), np.abs(b))
        signed = np.where(np.signbit(a) ^ np.signbit(b), -result, result)
        return np.where(result != result, result, signed)

    return with_sign


@form("min max", "f32", "ftz NaN xorsign abs")
def _extremum_single(name: str, kind: str, m: Modifiers) -> Operation:
    compute = extremum(name, m, NAN32)
    return single(m, 2, compute)


@form("min max", "f64")
def _extremum_double(name: str, kind: str, m: Modifiers) -> Operation:
    return same_type("f64", 2, extremum(name, m, f64(np.nan)))


@form("copysign", "f32 f64")
def _copysign(name: str, kind: str, m: Modifiers) -> Operation:
    return same_type(kind, 2, lambda a, b: np.copysign(b, a))


PROPERTIES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda a: a == a,
    "notanumber": lambda a: a != a,
    "normal": lambda a: np.isfinite(a) & ((np.abs(a) >= np.finfo(a.dtype).tiny) | (a == 0)),  # zero counts as normal
    "subnormal": lambda a: (np.abs(a) < np.finfo(a.dtype).tiny) & (a != 0),
}


@form("testp", "f32 f64", "finite|infinite|number|notanumber|normal|subnormal!")
def _testp(name: str, kind: str, m: Modifiers) -> Operation:
    (question,) = m
    return Operation(np.bool_, (DTYPES[kind],), PROPERTIES[question])


# -- 9.7.3.8, 9.7.3.13 to 9.7.3.22: approximations -------------------------------------------------


def in_double(function: Callable[..., np.ndarray]) -> Compute:
    """A float64 function rounded to float32."""
    return lambda *values: quiet(function(*(v.astype(f64) for v in values)).astype(f32))


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a * (1/b): for |b| > 2**126 the reciprocal is flushed to zero, so infinity gives NaN and the rest zero."""
    return np.where(np.abs(b) > 2.0**126, a * np.copysign(0.0, b), a / b)


APPROXIMATE: dict[str, Compute] = {
    "div": in_double(_divide),
    "rcp": in_double(np.reciprocal),
    "sqrt": in_double(np.sqrt),
    "rsqrt": in_double(lambda a: 1 / np.sqrt(a)),
    "sin": in_double(np.sin),
    "cos": in_double(np.cos),
    "lg2": in_double(np.log2),
    "ex2": in_double(exp2),
    "tanh": in_double(np.tanh),
}


@form("rsqrt sin cos lg2 ex2", "f32", "approx! ftz")
@form("tanh", "f32", "approx!")
def _approximate(name: str, kind: str, m: Modifiers) -> Operation:
    return single(m, 1, APPROXIMATE[name])


@form("rsqrt", "f64", "approx! ftz")
def _rsqrt_double(name: str, kind: str, m: Modifiers) -> Operation:
    if "ftz" in m:
        return same_type("f64", 1, lambda a: upper_word(a, lambda x: 1 / np.sqrt(x)))
    return same_type("f64", 1, lambda a: 1 / np.sqrt(a))


def upper_word(a: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """A float64 function of the upper 32 bits that gives the upper 32 bits, subnormals flushed (9.7.3.14, 9.7.3.17)."""
    kept = np.uint64(0xFFFFFFFF << 32)
    result = _flush64(function(_flush64((a.view(np.uint64) & kept).view(f64))))
    bits = np.where(result != result, np.uint64(0x7FFFFFFF << 32), result.view(np.uint64) & kept)
    return bits.view(f64)


def _flush64(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < np.finfo(f64).tiny, np.copysign(0.0, x), x)
