"""float32 and float64 instructions against rational arithmetic."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.emulator import exact
from tests.emulator.exact import MODES, anything, edges, moderate, same_bits
from tests.emulator.lines import REGISTER, call, execute, refused

f32, f64 = np.float32, np.float64
FORMAT: dict[type, exact.Binary] = {f32: exact.F32, f64: exact.F64}
SUFFIX: dict[type, str] = {f32: "f32", f64: "f64"}


def pairs(rng: np.random.Generator, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of edge values, random bit patterns, and pairs of similar size."""
    grid: np.ndarray = np.array(list(itertools.product(edges(dtype), repeat=2)), dtype)
    a = [grid[:, 0], anything(rng, dtype, 120), moderate(rng, dtype, 120)]
    b = [grid[:, 1], anything(rng, dtype, 120), moderate(rng, dtype, 120)]
    return np.concatenate(a), np.concatenate(b)


def triples(rng: np.random.Generator, dtype: type) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random triples, and the hard ones: a product halfway between two numbers with a tiny addend on either side."""
    info = np.finfo(dtype)
    half = (info.nmant + 1) // 2
    few_bits = [(1 + rng.integers(0, 2**half, 150) * 2.0**-half) for _ in range(2)]
    tiny = np.exp2(rng.integers(info.minexp, -info.nmant * 2, 150)) * rng.choice([-1, 1], 150)
    # products just below half the smallest subnormal, (1 + i eps)(1 - i eps) / 2 of it, beside large subnormals
    i = rng.integers(1, 64, 150) * float(info.eps)
    root = 2.0 ** ((int(np.log2(info.smallest_subnormal)) - 1) // 2)
    small = [((1 + i) * root).astype(dtype), ((1 - i) * root * rng.choice([-1, 1], 150)).astype(dtype)]
    sub: np.ndarray = (rng.integers(0, 2**info.nmant, 150) * float(info.smallest_subnormal)).astype(dtype)
    grid: np.ndarray = np.array(
        list(itertools.product(edges(dtype)[::2], edges(dtype)[1::2], edges(dtype)[::3])), dtype
    )
    a = [grid[:, 0], few_bits[0].astype(dtype), small[0], moderate(rng, dtype, 150), anything(rng, dtype, 150)]
    b = [grid[:, 1], few_bits[1].astype(dtype), small[1], moderate(rng, dtype, 150), anything(rng, dtype, 150)]
    c = [grid[:, 2], tiny.astype(dtype), sub, moderate(rng, dtype, 150), anything(rng, dtype, 150)]
    return np.concatenate(a), np.concatenate(b), np.concatenate(c)


def oracle(name: str, dtype: type, mode: str, *operands: np.ndarray) -> np.ndarray:
    values = [exact.apply(name, FORMAT[dtype], mode, *map(float, lane)) for lane in zip(*operands, strict=True)]
    return np.array(values, f64).astype(dtype)


@pytest.mark.parametrize("dtype", [f32, f64], ids=["f32", "f64"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_two_operands_round_once(name: str, mode: str, dtype: type, rng: np.random.Generator) -> None:
    a, b = pairs(rng, dtype)
    same_bits(call(f"{name}.{mode}.{SUFFIX[dtype]}", a, b, out=dtype), oracle(name, dtype, mode, a, b))


@pytest.mark.parametrize("dtype", [f32, f64], ids=["f32", "f64"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["fma", "mad"])
def test_fma_rounds_once(name: str, mode: str, dtype: type, rng: np.random.Generator) -> None:
    operands = triples(rng, dtype)
    same_bits(call(f"{name}.{mode}.{SUFFIX[dtype]}", *operands, out=dtype), oracle("fma", dtype, mode, *operands))


@pytest.mark.parametrize("dtype", [f32, f64], ids=["f32", "f64"])
@pytest.mark.parametrize("mode", MODES)
def test_sqrt_and_reciprocal_round_once(mode: str, dtype: type, rng: np.random.Generator) -> None:
    a = np.concatenate([edges(dtype), anything(rng, dtype, 200), np.abs(moderate(rng, dtype, 200)) ** 2])
    same_bits(call(f"sqrt.{mode}.{SUFFIX[dtype]}", a, out=dtype), oracle("sqrt", dtype, mode, a))
    same_bits(call(f"rcp.{mode}.{SUFFIX[dtype]}", a, out=dtype), oracle("div", dtype, mode, np.ones_like(a), a))


def test_the_hard_cases_are_in_the_triples(rng: np.random.Generator) -> None:
    """A float64 sum rounded again to float32 gets some of them wrong, or the test above would prove nothing."""
    a, b, c = triples(rng, f32)
    with np.errstate(all="ignore"):
        naive = (a.astype(f64) * b + c.astype(f64)).astype(f32)
    right = oracle("fma", f32, "rn", a, b, c)
    wrong = (naive != right) & ~np.isnan(right)
    assert wrong.sum() > 10 and (wrong & (np.abs(right) < np.finfo(f32).tiny)).any()


def test_defaults_round_to_nearest(rng: np.random.Generator) -> None:
    a, b = pairs(rng, f32)
    for name in ("add", "sub", "mul"):
        same_bits(call(f"{name}.f32", a, b, out=f32), oracle(name, f32, "rn", a, b))


def flush(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < np.finfo(f32).tiny, np.copysign(f32(0), x), x)


ENDLESS = exact.Binary(exact.F32.precision, -1000, exact.F32.emax)  # float32 without subnormals


def oracle_ftz(name: str, mode: str, *operands: np.ndarray) -> np.ndarray:
    """What is tiny once rounded to 24 bits is flushed, even where float32 would round it up to 2**-126 (an H200)."""
    given = [flush(x) for x in operands]
    values = [exact.apply(name, ENDLESS, mode, *map(float, lane)) for lane in zip(*given, strict=True)]
    tiny = np.abs(values) < 2.0**-126
    return np.where(tiny, np.copysign(0.0, values), values).astype(f32)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "fma", "sqrt"])
def test_ftz_flushes_both_sides_and_keeps_the_sign(name: str, mode: str, rng: np.random.Generator) -> None:
    operands = triples(rng, f32)[: {"fma": 3, "sqrt": 1}.get(name, 2)]
    same_bits(call(f"{name}.{mode}.ftz.f32", *operands, out=f32), oracle_ftz(name, mode, *operands))


@pytest.mark.parametrize("mode", MODES)
def test_ftz_of_quotients_near_the_smallest_normal(mode: str, rng: np.random.Generator) -> None:
    """Up to 2**-127 of slack on either side of 2**-126: a divisor a little above 2**126 is where rp rounds up."""
    near = np.concatenate([2.0**126 * (1 + np.arange(-3, 4) * 2.0**-23), 2.0**126 * rng.uniform(0.5, 2, 60)])
    x = np.concatenate([near, -near]).astype(f32)
    same_bits(call(f"rcp.{mode}.ftz.f32", x, out=f32), oracle_ftz("div", mode, np.ones_like(x), x))
    y = rng.uniform(1, 2, len(x)).astype(f32)
    same_bits(call(f"div.{mode}.ftz.f32", y, x, out=f32), oracle_ftz("div", mode, y, x))


def below_the_smallest_normal() -> tuple[np.ndarray, np.ndarray]:
    """Pairs whose product is 2**-126 * (1 - i**2 * 2**-46): what rounds to 2**-126 with 24 bits, and what does not."""
    i = np.arange(1, 4096, 13) * 2.0**-23
    sign = np.where(np.arange(len(i)) % 2, -1, 1)
    return ((1 + i) * 2.0**-63).astype(f32), (sign * (1 - i) * 2.0**-63).astype(f32)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["mul", "fma"])
def test_ftz_asks_whether_the_rounded_result_is_tiny(name: str, mode: str) -> None:
    a, b = below_the_smallest_normal()
    operands = (a, b) if name == "mul" else (a, b, np.zeros_like(a))
    expected = oracle_ftz(name, mode, *operands)
    assert len({*np.abs(expected).tolist()}) == (1 if mode == "rz" else 2)  # both sides of the question, but for rz
    same_bits(call(f"{name}.{mode}.ftz.f32", *operands, out=f32), expected)


def test_ftz_of_a_sum_just_below_the_smallest_normal() -> None:
    """2**-126 less a product too small to see: under rn it stays, although the exact sum is below it."""
    a, b, c = (np.array([x], f32) for x in (2.0**-80, -(2.0**-80), 2.0**-126))
    same_bits(call("fma.rn.ftz.f32", a, b, c, out=f32), c)
    same_bits(call("fma.rz.ftz.f32", a, b, c, out=f32), np.zeros(1, f32))


def test_sat_clamps_to_the_unit_interval(rng: np.random.Generator) -> None:
    a, b, c = triples(rng, f32)
    for name, operands in (("add", (a, b)), ("mul", (a, b)), ("fma", (a, b, c))):
        value = oracle(name, f32, "rn", *operands)
        expected = np.array([0.0 if not v > 0 else min(v, 1.0) for v in value.tolist()], f32)
        same_bits(call(f"{name}.rn.sat.f32", *operands, out=f32), expected)
    assert call("add.sat.f32", np.array([np.nan, -0.0], f32), np.zeros(2, f32) * -1, out=f32).tobytes() == bytes(8)


def test_nan_results_are_hoppers(rng: np.random.Generator) -> None:
    a = np.array([np.inf, np.nan, 0.0, -1.0], f32)
    b = np.array([-np.inf, 1.0, np.inf, np.nan], f32)
    for opcode in ("add.f32", "mul.f32", "div.rn.f32", "min.NaN.f32"):
        result = call(opcode, a, b, out=f32)
        assert set(result.view(np.uint32)[np.isnan(result)].tolist()) <= {0x7FFFFFFF}, opcode
    assert call("sqrt.rn.f32", a, out=f32).view(np.uint32)[3] == 0x7FFFFFFF


# -- minimum, maximum, sign --------------------------------------------------------------------------


def pick(a: float, b: float, smaller: bool) -> float:
    """min or max by the ISA's words: a number beats NaN, -0 is less than +0."""
    if np.isnan(a) or np.isnan(b):
        return b if np.isnan(a) else a
    order = sorted([a, b], key=lambda x: (x, np.copysign(1, x)))
    return order[0] if smaller else order[1]


@pytest.mark.parametrize("lanes", [1, 4, 33])
@pytest.mark.parametrize("name", ["min", "max"])
def test_a_signalling_nan_loses_too(name: str, lanes: int) -> None:
    """However many lanes there are: numpy's fmin gives NaN in the last ones."""
    nan, one = np.full(lanes, 0x7F810000, np.uint32).view(f32), np.ones(lanes, f32)
    assert call(f"{name}.f32", nan, one, out=f32).tolist() == [1.0] * lanes
    assert call(f"{name}.f32", one, nan, out=f32).tolist() == [1.0] * lanes


@pytest.mark.parametrize("dtype", [f32, f64], ids=["f32", "f64"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_extremum(name: str, dtype: type, rng: np.random.Generator) -> None:
    a, b = pairs(rng, dtype)
    lanes = list(zip(a.tolist(), b.tolist(), strict=True))
    expected: np.ndarray = np.array([pick(x, y, name == "min") for x, y in lanes], dtype)
    same_bits(call(f"{name}.{SUFFIX[dtype]}", a, b, out=dtype), expected)
    if dtype is f64:
        return
    with_nan = np.where(np.isnan(a) | np.isnan(b), f32(np.nan), expected)
    same_bits(call(f"{name}.NaN.f32", a, b, out=f32), with_nan)
    signs = np.signbit(a) ^ np.signbit(b)
    size = np.array([pick(abs(x), abs(y), name == "min") for x, y in lanes], f32)
    signed = np.where(signs, -size, size)
    same_bits(call(f"{name}.xorsign.abs.f32", a, b, out=f32), signed)
    flushed = np.array([pick(x, y, name == "min") for x, y in zip(flush(a), flush(b), strict=True)], f32)
    same_bits(call(f"{name}.ftz.f32", a, b, out=f32), flushed)


@pytest.mark.parametrize("dtype", [f32, f64], ids=["f32", "f64"])
def test_signs_and_properties(dtype: type, rng: np.random.Generator) -> None:
    a, b = pairs(rng, dtype)
    kind = SUFFIX[dtype]
    unsigned: type[np.unsignedinteger] = np.uint32 if dtype is f32 else np.uint64
    sign = unsigned(1 << (8 * np.dtype(dtype).itemsize - 1))
    bits, other = a.view(unsigned), b.view(unsigned)
    number = ~np.isnan(a)
    assert (call(f"neg.{kind}", a, out=dtype).view(unsigned) == bits ^ sign)[number].all()
    assert (call(f"abs.{kind}", a, out=dtype).view(unsigned) == bits & ~sign)[number].all()
    assert (call(f"copysign.{kind}", a, b, out=dtype).view(unsigned) == (other & ~sign) | (bits & sign)).all()
    tiny = np.finfo(dtype).tiny
    zero_or_normal = (a == 0) | ((np.abs(a) >= tiny) & np.isfinite(a))
    expected: dict[str, np.ndarray] = {
        "finite": np.isfinite(a), "infinite": np.isinf(a), "number": ~np.isnan(a), "notanumber": np.isnan(a),
        "normal": zero_or_normal, "subnormal": np.isfinite(a) & ~zero_or_normal,
    }  # fmt: skip
    register = f"{REGISTER[np.dtype(dtype).itemsize]}1"
    for question, answer in expected.items():
        line = f"testp.{question}.{kind} %p1, {register}; selp.u32 %r20, 1, 0, %p1;"
        assert (execute(line, [(a, register)], np.uint32, "%r20") == answer).all(), question


@pytest.mark.parametrize("name", ["neg", "abs"])
def test_signs_of_nan(name: str) -> None:
    """No sign flip on an H200: float32 gives the canonical NaN, float64 passes it through, made quiet."""
    single = np.array([0x7F800001, 0xFF800001, 0x7FC00000, 0xFFC12345, 0x7FFFFFFF], np.uint32)
    result = call(f"{name}.f32", single.view(f32), out=f32).view(np.uint32)
    assert list(map(hex, result)) == [hex(0x7FFFFFFF)] * len(single)
    double = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FFD809A3CFD3DD1, 0xFFF8000000000001], np.uint64)
    result = call(f"{name}.f64", double.view(f64), out=f64).view(np.uint64)
    assert list(map(hex, result)) == list(map(hex, double))


def test_signs_of_signaling_nan() -> None:
    double = np.array([0x7FF0000000000001, 0xFFF0000000000001, 0xFFF123456789ABCD], np.uint64)
    for name in ("neg", "abs"):
        result = call(f"{name}.f64", double.view(f64), out=f64).view(np.uint64)
        assert list(map(hex, result)) == list(map(hex, double | np.uint64(1 << 51))), name


def test_abs_and_neg_flush() -> None:
    a = np.array([1e-40, -1e-40, 1.0], f32)
    same_bits(call("abs.ftz.f32", a, out=f32), np.array([0.0, 0.0, 1.0], f32))
    same_bits(call("neg.ftz.f32", a, out=f32), np.array([-0.0, 0.0, -1.0], f32))


# -- approximations ----------------------------------------------------------------------------------

INF, NAN = np.inf, np.nan
SPECIAL = {  # the ISA's tables: -inf, -0, +0, +inf, nan
    "rcp": (-0.0, -INF, INF, 0.0, NAN), "sqrt": (NAN, -0.0, 0.0, INF, NAN), "rsqrt": (NAN, -INF, INF, 0.0, NAN),
    "sin": (NAN, -0.0, 0.0, NAN, NAN), "cos": (NAN, 1.0, 1.0, NAN, NAN), "lg2": (NAN, -INF, -INF, INF, NAN),
    "ex2": (0.0, 1.0, 1.0, INF, NAN), "tanh": (-1.0, -0.0, 0.0, 1.0, NAN),
}  # fmt: skip
FLUSHED = {  # results for -subnormal and +subnormal under .ftz
    "rcp": (-INF, INF), "sqrt": (-0.0, 0.0), "rsqrt": (-INF, INF), "sin": (-0.0, 0.0), "cos": (1.0, 1.0),
    "lg2": (-INF, -INF), "ex2": (1.0, 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values_of_approximations(name: str) -> None:
    given = np.array([-INF, -0.0, 0.0, INF, NAN], f32)
    same_bits(call(f"{name}.approx.f32", given, out=f32), np.array(SPECIAL[name], f32))
    if name in FLUSHED:
        same_bits(call(f"{name}.approx.ftz.f32", given, out=f32), np.array(SPECIAL[name], f32))
        tiny = np.array([-1e-39, 1e-39], f32)
        same_bits(call(f"{name}.approx.ftz.f32", tiny, out=f32), np.array(FLUSHED[name], f32))


def within(actual: np.ndarray, truth: np.ndarray, relative: float = 0.0, absolute: float = 0.0) -> None:
    """Fail unless every error is at most the larger of the two bounds."""
    np.testing.assert_array_less(np.abs(actual - truth), np.maximum(np.abs(truth) * relative, absolute) + 2.0**-140)


def test_approximations_are_within_the_isas_error(rng: np.random.Generator) -> None:
    """The bounds are those of the ISA (9.7.3.13 to 9.7.3.22), so that hardware passes too."""
    a = np.abs(moderate(rng, f32, 500)) + f32(1e-3)
    x = a.astype(f64)
    for name, truth, bound in (("rcp", 1 / x, 2.0**-23), ("sqrt", x**0.5, 2.0**-23), ("rsqrt", x**-0.5, 2.0**-22.9)):
        within(call(f"{name}.approx.ftz.f32", a, out=f32), truth, relative=bound)
    middle = (a > 0.5) & (a < 2)
    logarithm = call("lg2.approx.ftz.f32", a, out=f32)
    within(logarithm[middle], np.log2(x[middle]), absolute=2.0**-22)  # as the logarithm goes through zero there
    within(logarithm[~middle], np.log2(x[~middle]), relative=2.0**-22)
    angle = rng.uniform(-2 * np.pi, 2 * np.pi, 500).astype(f32)
    within(call("sin.approx.f32", angle, out=f32), np.sin(angle.astype(f64)), absolute=2.0**-20.5)
    within(call("cos.approx.f32", angle, out=f32), np.cos(angle.astype(f64)), absolute=2.0**-20.5)
    power = rng.uniform(-120, 120, 500).astype(f32)
    within(call("ex2.approx.ftz.f32", power, out=f32), 2.0 ** power.astype(f64), relative=2.0**-22)
    within(call("tanh.approx.f32", angle, out=f32), np.tanh(angle.astype(f64)), relative=2.0**-11)


@pytest.mark.emulator  # documented: the emulator gives the number nearest to the true value
def test_approximations_are_the_nearest_number(rng: np.random.Generator) -> None:
    a = np.abs(moderate(rng, f32, 500)) + f32(1e-3)
    x = a.astype(f64)
    for name, truth in (("rcp", 1 / x), ("sqrt", x**0.5), ("ex2", 2.0 ** np.minimum(x, 127)), ("tanh", np.tanh(x))):
        given = np.minimum(a, f32(127)) if name == "ex2" else a
        np.testing.assert_allclose(call(f"{name}.approx.f32", given, out=f32), truth, rtol=2.0**-24 * 1.001)


def test_approximate_division() -> None:
    a = np.array([INF, 1.0, 1.0, -1.0, 0.0, 1.0, 1.0], f32)
    b = np.array([1e38, 1e38, 0.0, 0.0, 0.0, -1e38, INF], f32)
    expected = np.array([NAN, 0.0, INF, -INF, NAN, -0.0, 0.0], f32)  # above 2**126 the reciprocal vanishes
    same_bits(call("div.approx.f32", a, b, out=f32), expected)
    full = np.array([INF, 1e-38, INF, -INF, NAN, -1e-38, 0.0], f32)
    np.testing.assert_allclose(call("div.full.f32", a, b, out=f32), full, rtol=2.0**-22)
    x, y = np.array([6.0, 1.0, -7.5], f32), np.array([3.0, 7.0, 0.3], f32)
    for opcode in ("div.approx.f32", "div.approx.ftz.f32", "div.full.f32", "div.full.ftz.f32"):
        np.testing.assert_allclose(call(opcode, x, y, out=f32), x.astype(f64) / y, rtol=2.0**-22)
    assert call("div.full.ftz.f32", np.array([1e-40], f32), np.ones(1, f32), out=f32)[0] == 0


@pytest.mark.parametrize("name", ["rcp", "rsqrt"])
def test_upper_word_approximations(name: str, rng: np.random.Generator) -> None:
    a = np.concatenate([np.abs(moderate(rng, f64, 100)) + 1e-3, np.array([0.0, -0.0, INF, NAN, 1e-310])])
    result = call(f"{name}.approx.ftz.f64", a, out=f64)
    assert not (result.view(np.uint64) & np.uint64(0xFFFFFFFF)).any()
    np.testing.assert_allclose(result[:100], 1 / a[:100] if name == "rcp" else a[:100] ** -0.5, rtol=2.0**-19)
    same_bits(result[100:], np.array([INF, -INF, 0.0, NAN, INF]))
    assert result.view(np.uint64)[103] == 0x7FFFFFFF00000000


@pytest.mark.parametrize(
    "opcode",
    ["add.f32x2", "fma.f32", "div.f32", "add.sat.f64", "max.xorsign.f32", "tanh.approx.ftz.f32", "rcp.approx.f64",
     "sin.f32", "add.rn.rz.f32", "add.rn.frob.f32"],
)  # fmt: skip
def test_illegal_forms_are_refused(opcode: str) -> None:
    count = 3 if opcode.startswith("fma") else 1 if opcode.split(".")[0] in ("tanh", "rcp", "sin") else 2
    one = np.ones(32, f64 if "64" in opcode or "x2" in opcode else f32)
    with refused(opcode):
        call(opcode, *[one] * count, out=one.dtype.type)
