"""f16 and bf16 arithmetic, alone and in pairs, against rational arithmetic and torch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch

from tests.emulator import exact
from tests.emulator.lines import call, execute, refused

u16, u32, f32 = np.uint16, np.uint32, np.float32
FORMAT = {"f16": exact.F16, "bf16": exact.BF16}
TORCH = {"f16": torch.float16, "bf16": torch.bfloat16}
ALL16 = np.arange(65536, dtype=u16)
NAN = 0x7FFF


def values(bits: np.ndarray, kind: str) -> np.ndarray:
    return torch.from_numpy(bits.view(np.int16).copy()).view(TORCH[kind]).double().numpy()


def bits_of(x: np.ndarray, kind: str) -> np.ndarray:
    """Patterns of numbers that the format holds exactly; every NaN canonical."""
    bits = torch.from_numpy(x).to(TORCH[kind]).view(torch.int16).numpy().view(u16)
    return np.where(np.isnan(x), u16(NAN), bits)


def operands(rng: np.random.Generator, kind: str, count: int, n: int = 500) -> list[np.ndarray]:
    """Edge patterns in every combination of the first two, random patterns, and numbers of similar size."""
    one = 0x3C00 if kind == "f16" else 0x3F80
    top = 0x7BFF if kind == "f16" else 0x7F7F
    edge = [0, 1, 2, (one >> 4) - 1, 0x0400, 0x0080, one, one + 1, one - 1, top, top - 1, top + 1, NAN]
    edge += [e | 0x8000 for e in edge]
    grid = np.array(list(itertools.product(edge, repeat=2)), u16)
    columns = [grid[:, 0], grid[:, 1], rng.permutation(grid[:, 1])][:count]
    near = [(one + rng.integers(-900, 900, n)).astype(u16) ^ (rng.integers(0, 2, n) << 15).astype(u16) for _ in columns]
    anything = [rng.integers(0, 65536, n).astype(u16) for _ in columns]
    return [np.concatenate(parts) for parts in zip(columns, near, anything, strict=True)]


def both_halves(opcode: str, kind: str, lanes: list[np.ndarray], want: np.ndarray, note: str = "") -> None:
    """The scalar instruction gives `want`, and the packed one gives it in each half."""
    got = call(f"{opcode}.{kind}", *lanes, out=u16)
    for i in np.flatnonzero(got != want)[:1]:
        raise AssertionError(f"{opcode}.{kind} {note} of {[hex(x[i]) for x in lanes]}: {got[i]:#x}, not {want[i]:#x}")
    pairs = [x.astype(u32) | x[::-1].astype(u32) << 16 for x in lanes]
    packed = call(f"{opcode}.{kind}x2", *pairs, out=u32)
    assert (packed & 0xFFFF == want).all() and (packed >> 16 == want[::-1]).all(), opcode


def oracle(name: str, kind: str, lanes: list[np.ndarray]) -> np.ndarray:
    columns = [values(x, kind).tolist() for x in lanes]
    result = [exact.apply(name, FORMAT[kind], "rn", *lane) for lane in zip(*columns, strict=True)]
    return np.array(result)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_arithmetic_rounds_once(name: str, kind: str, rng: np.random.Generator) -> None:
    lanes = operands(rng, kind, 3 if name == "fma" else 2)
    want = oracle(name, kind, lanes)
    both_halves(f"{name}.rn", kind, lanes, bits_of(want, kind))
    if name == "fma":
        relu = np.where(want <= 0, 0.0, want)
        both_halves("fma.rn.relu", kind, lanes, bits_of(relu, kind))
    else:
        both_halves(name, kind, lanes, bits_of(want, kind))


def test_fma_needs_more_than_a_float32_sum() -> None:
    """(1 + 2**-10) * 1.5 lies halfway between two f16 numbers; taking away 2**-24 is lost on a float32 sum."""
    a, b, c = (np.array([x], np.float16) for x in (1 + 2.0**-10, 1.5, -(2.0**-24)))
    naive = (a.astype(f32) * b.astype(f32) + c.astype(f32)).astype(np.float16)
    assert naive.view(u16)[0] == 0x3E02
    assert call("fma.rn.f16", *(x.view(u16) for x in (a, b, c)), out=u16)[0] == 0x3E01


def flushed(bits: np.ndarray) -> np.ndarray:
    return np.where(bits & 0x7C00 == 0, bits & 0x8000, bits)


ENDLESS = exact.Binary(exact.F16.precision, -1000, exact.F16.emax)  # f16 without subnormals


def oracle_ftz(name: str, lanes: list[np.ndarray]) -> np.ndarray:
    """What is tiny once rounded to 11 bits is flushed, even where f16 would round it up to 2**-14 (an H200)."""
    columns = [values(flushed(x), "f16").tolist() for x in lanes]
    result = np.array([exact.apply(name, ENDLESS, "rn", *lane) for lane in zip(*columns, strict=True)])
    return bits_of(np.where(np.abs(result) < 2.0**-14, np.copysign(0.0, result), result), "f16")


@pytest.mark.parametrize("name", ["mul", "fma"])
def test_ftz_asks_whether_the_rounded_result_is_tiny(name: str) -> None:
    """Products 2**-14 * (1 - i**2 * 2**-20): what rounds to 2**-14 with 11 bits, and what does not."""
    i = np.arange(1, 64) * 2.0**-10
    a, b = (((1 + s * i) * 2.0**-7).astype(np.float16).view(u16) for s in (1, -1))
    lanes = [a, b, np.zeros_like(a)][: 3 if name == "fma" else 2]
    want = oracle_ftz(name, lanes)
    assert {*want.tolist()} == {0, 0x0400}  # both sides of the question
    both_halves(f"{name}.rn.ftz", "f16", lanes, want)


@pytest.mark.parametrize("name", ["add", "mul", "fma"])
def test_ftz_and_sat(name: str, rng: np.random.Generator) -> None:
    lanes = operands(rng, "f16", 3 if name == "fma" else 2)
    both_halves(f"{name}.rn.ftz", "f16", lanes, oracle_ftz(name, lanes))
    want = oracle(name, "f16", lanes)
    clamped = np.array([min(v, 1.0) if v > 0 else 0.0 for v in want.tolist()])
    both_halves(f"{name}.rn.sat", "f16", lanes, bits_of(clamped, "f16"))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["neg", "abs"])
def test_signs_of_every_pattern(name: str, kind: str) -> None:
    """Every NaN becomes the canonical one (seen on an H200)."""
    nan = np.isnan(values(ALL16, kind))

    def signed(bits: np.ndarray) -> np.ndarray:
        return np.where(nan, u16(NAN), bits ^ 0x8000 if name == "neg" else bits & 0x7FFF)

    both_halves(name, kind, [ALL16], signed(ALL16))
    if kind == "f16":
        both_halves(f"{name}.ftz", kind, [ALL16], signed(flushed(ALL16)))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_extremum(name: str, kind: str, rng: np.random.Generator) -> None:
    lanes = operands(rng, kind, 2)
    a, b = (values(x, kind) for x in lanes)

    def pick(x: float, y: float) -> float:
        if math.isnan(x) or math.isnan(y):
            return y if math.isnan(x) else x
        return sorted([x, y], key=lambda v: (v, math.copysign(1, v)))[name == "max"]

    def check(modifiers: str, chosen: np.ndarray) -> None:
        both_halves(f"{name}{modifiers}", kind, lanes, bits_of(chosen, kind))

    plain = np.array([pick(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)])
    check("", plain)
    check(".NaN", np.where(np.isnan(a) | np.isnan(b), np.nan, plain))
    size = np.array([pick(abs(x), abs(y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)])
    check(".xorsign.abs", np.where(np.signbit(a) ^ np.signbit(b), -size, size))


@pytest.mark.parametrize(("kind", "tanh", "ex2"), [("f16", 2.0**-10.987, 2.0**-9.9), ("bf16", 2.0**-7, 2.0**-7)])
def test_approximations_are_within_the_isas_error(kind: str, tanh: float, ex2: float) -> None:
    """tanh has an absolute bound, ex2 a relative one where the result is normal (9.7.4.9, 9.7.4.10).

    An H200 leaves 2^-8 in bf16, one unit of the last place below 1; twice that is asked for.
    """
    x = values(ALL16, kind)
    chosen = np.abs(x) < (14 if kind == "f16" else 126)
    bits, x = ALL16[chosen], x[chosen]
    got = values(call(f"tanh.approx.{kind}", bits, out=u16), kind)
    assert (np.abs(got - np.tanh(x)) <= tanh).all()
    got = values(call("ex2.approx.f16" if kind == "f16" else "ex2.approx.ftz.bf16", bits, out=u16), kind)
    assert (np.abs(got / np.exp2(x) - 1) <= ex2).all()


@pytest.mark.emulator  # hardware may differ by the ISA's error bound; the emulator gives the nearest number
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_approximations(kind: str) -> None:
    sample = np.concatenate([ALL16[::13], np.array([0, 0x8000, 0x7C00, 0xFC00, 0x7F80, 0xFF80, 0x0001, 0x8001], u16)])

    def nearest(function: Callable[[float], float], flush: bool = False) -> np.ndarray:
        tiny = 2.0**-126 if flush else 0.0
        result = [function(v if not abs(v) < tiny else 0.0) for v in values(sample, kind).tolist()]
        result = [math.copysign(0.0, v) if abs(v) < tiny else v for v in result]
        exactly = [FORMAT[kind].round(Fraction(v), "rn") if math.isfinite(v) and v else v for v in result]
        return bits_of(np.array(exactly), kind)

    def power(v: float) -> float:
        return math.nan if math.isnan(v) else math.inf if v > 1000 else 0.0 if v < -1000 else 2.0**v

    both_halves("tanh.approx", kind, [sample], nearest(math.tanh))
    both_halves("ex2.approx" if kind == "f16" else "ex2.approx.ftz", kind, [sample], nearest(power, kind == "bf16"))


@pytest.mark.parametrize(
    "opcode",
    ["fma.f16", "add.sat.bf16", "add.rz.f16", "ex2.approx.ftz.f16", "min.abs.f16", "div.rn.f16"],
)
def test_illegal_forms_are_refused(opcode: str) -> None:
    one = np.ones(32, u16)
    with refused(opcode):
        call(opcode, *[one] * {"fma": 3, "ex2": 1}.get(opcode[:3], 2), out=u16)


@pytest.mark.parametrize(
    "line",
    ["add.f16 %h2, %h1, 0x3C00;", "fma.rn.bf16x2 %r2, %r1, %r1, 0;", "setp.eq.ftz.f16 %p1, %h1, 0;",
     "set.eq.u32.f16x2 %r2, %r1, 0;", "cvt.f32.f16 %r2, 0x3C00;"],
)  # fmt: skip
def test_halves_have_no_constants(line: str) -> None:
    with refused(line.split()[0]):
        execute(line, [(np.ones(32, u16), "%h1"), (np.ones(32, u32), "%r1")], u16, "%h1")


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_oob_replaces_the_nan_that_tma_fills_in(place: int, kind: str) -> None:
    """A factor that is 0x7FF7 or 0xFFF7 makes the result zero, any other NaN, and the addend, stay one."""
    one = 0x3C00 if kind == "f16" else 0x3F80
    infinity = 0x7C00 if kind == "f16" else 0x7F80
    nans = np.arange(infinity - 2, NAN + 1, dtype=u16)  # and the largest numbers
    patterns = np.concatenate([nans, nans | 0x8000, ALL16[::37]])
    lanes = [np.full(len(patterns), one, u16)] * 3
    lanes[place] = patterns
    want = np.where((patterns & 0x7FFF == 0x7FF7) & (place < 2), u16(0), bits_of(oracle("fma", kind, lanes), kind))
    both_halves("fma.rn.oob", kind, lanes, want)
    negative = (want >> 15 == 1) & (want != NAN)
    both_halves("fma.rn.oob.relu", kind, lanes, np.where(negative, u16(0), want))


@pytest.mark.parametrize("opcode", ["fma.rn.ftz.oob.f16", "fma.rn.oob.f32", "add.oob.f16"])
def test_oob_goes_with_fma_of_halves_only(opcode: str) -> None:
    dtype = f32 if opcode.endswith("f32") else u16
    with refused(opcode):
        call(opcode, *[np.ones(32, dtype)] * (3 if "fma" in opcode else 2), out=dtype)
