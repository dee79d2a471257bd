"""cvt: every pattern of the 8- and 16-bit formats against torch, everything else against exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch

from tests.emulator import exact
from tests.emulator.exact import MODES, anything, edges, moderate, same_bits
from tests.emulator.lines import call, execute, refused

f16, f32, f64, u16, u32 = np.float16, np.float32, np.float64, np.uint16, np.uint32
ALL16 = np.arange(65536, dtype=u16)
INTEGERS: dict[str, type] = {
    "u8": np.uint8, "s8": np.int8, "u16": np.uint16, "s16": np.int16,
    "u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64,
}  # fmt: skip
TORCH = {"f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}


def as_torch(bits: np.ndarray, kind: str) -> torch.Tensor:
    """Bit patterns as a tensor of their format."""
    signed = bits.view(np.int16 if bits.dtype.itemsize == 2 else np.int8)
    return torch.from_numpy(signed.copy()).view(TORCH[kind])


def patterns(x: torch.Tensor) -> np.ndarray:
    """The bit patterns of a tensor, with every NaN as the one that PTX calls canonical."""
    nan = torch.isnan(x.float()).numpy()
    bits = x.view(torch.int16 if x.element_size() == 2 else torch.int8).numpy()
    unsigned = bits.view(u16 if x.element_size() == 2 else np.uint8)
    return np.where(nan, unsigned.dtype.type(0x7FFF if x.element_size() == 2 else 0x7F), unsigned)


def between(kind: str) -> np.ndarray:
    """float32 numbers around every pattern of a 16-bit format: itself, halfway to the next, and just beside that."""
    value = as_torch(ALL16, kind).double().numpy()
    value = np.sort(value[np.isfinite(value)])
    middle = ((value[:-1] + value[1:]) / 2).astype(f32)
    near = [np.nextafter(middle, f32(side)) for side in (-np.inf, np.inf)]
    return np.concatenate([value.astype(f32), middle, *near, edges(f32)])


# -- widening is exact ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_every_half_pattern_widens(kind: str) -> None:
    truth = as_torch(ALL16, kind)
    same_bits(call(f"cvt.f32.{kind}", ALL16, out=f32), truth.float().numpy())
    same_bits(call(f"cvt.f64.{kind}", ALL16, out=f64), truth.double().numpy())


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_every_byte_pattern_widens(kind: str) -> None:
    truth = patterns(as_torch(np.arange(256, dtype=np.uint8), kind).half())
    pairs = call(f"cvt.rn.f16x2.{kind}x2", ALL16, out=u32)  # all 65536 pairs: each byte keeps its place
    assert (pairs & 0xFFFF == truth[ALL16 & 0xFF]).all() and (pairs >> 16 == truth[ALL16 >> 8]).all()
    positive = np.where((truth >> 15 == 1) & (truth != 0x7FFF), 0, truth)
    pairs = call(f"cvt.rn.relu.f16x2.{kind}x2", ALL16, out=u32)
    assert (pairs & 0xFFFF == positive[ALL16 & 0xFF]).all() and (pairs >> 16 == positive[ALL16 >> 8]).all()


# -- narrowing: nearest against torch, all modes against rational arithmetic -----------------------------------


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_float32_to_half_at_every_boundary(kind: str) -> None:
    x = between(kind)
    want = patterns(torch.from_numpy(x).to(TORCH[kind]))
    assert (call(f"cvt.rn.{kind}.f32", x, out=u16) == want).all()
    packed = call(f"cvt.rn.{kind}x2.f32", x, x[::-1].copy(), out=u32)
    assert (packed >> 16 == want).all() and (packed & 0xFFFF == want[::-1]).all()  # the first operand goes on top
    positive = np.where((want >> 15 == 1) & (want != 0x7FFF), 0, want)
    assert (call(f"cvt.rn.relu.{kind}.f32", x, out=u16) == positive).all()
    finite = torch.from_numpy(x).clamp(-torch.finfo(TORCH[kind]).max, torch.finfo(TORCH[kind]).max).to(TORCH[kind])
    assert (call(f"cvt.rn.satfinite.{kind}.f32", x, out=u16) == patterns(finite)).all()


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_to_bytes_at_every_half_pattern(kind: str) -> None:
    half = as_torch(ALL16, "f16")
    want = patterns(half.float().clamp(-LARGEST[kind], LARGEST[kind]).to(TORCH[kind]))
    pairs = ALL16.astype(u32) | (ALL16[::-1].astype(u32) << 16)
    result = call(f"cvt.rn.satfinite.{kind}x2.f16x2", pairs, out=u16)
    assert (result & 0xFF == want).all() and (result >> 8 == want[::-1]).all()
    x = np.concatenate([half.float().numpy(), between("bf16")])
    want = patterns(torch.from_numpy(x).clamp(-LARGEST[kind], LARGEST[kind]).to(TORCH[kind]))
    result = call(f"cvt.rn.satfinite.{kind}x2.f32", x, x[::-1].copy(), out=u16)
    assert (result >> 8 == want).all() and (result & 0xFF == want[::-1]).all()
    result = call(f"cvt.rn.satfinite.relu.{kind}x2.f32", x, x, out=u16)
    assert (result & 0xFF == np.where((want >> 7 == 1) & (want != 0x7F), 0, want)).all()


def wide_values(rng: np.random.Generator, dtype: type, n: int = 700) -> np.ndarray:
    """Edge values of every narrower format, and random ones."""
    with np.errstate(all="ignore"):
        narrow: list[np.ndarray] = [edges(t).astype(f64).astype(dtype) for t in (f16, f32, f64)]
        ties = np.array([2.0**-25, 3 * 2.0**-25, 65519.999, 65520.0, 2.0**-133, 2.0**-134, 3 * 2.0**-134, 448, 464])
        return np.concatenate([*narrow, ties.astype(dtype), -ties.astype(dtype), anything(rng, dtype, n),
                               moderate(rng, dtype, n, 20)])  # fmt: skip


def rounded(x: np.ndarray, fmt: exact.Binary, mode: str) -> np.ndarray:
    """Each number rounded to a format, by definition."""
    return np.array(
        [v if v == 0 or not math.isfinite(v) else fmt.round(Fraction(v), mode) for v in x.astype(f64).tolist()], f64
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("source", ["f32", "f64"])
def test_narrowing_under_every_mode(source: str, mode: str, rng: np.random.Generator) -> None:
    x = wide_values(rng, {"f32": f32, "f64": f64}[source])
    with np.errstate(over="ignore", invalid="ignore"):
        same_bits(call(f"cvt.{mode}.f16.{source}", x, out=f16), rounded(x, exact.F16, mode).astype(f16))
        brain = call(f"cvt.{mode}.bf16.{source}", x, out=u16)
        same_bits((brain.astype(u32) << 16).view(f32), rounded(x, exact.BF16, mode).astype(f32))
        if source == "f32":
            assert (brain[np.isnan(x)] == 0x7FFF).all()
        else:
            same_bits(call(f"cvt.{mode}.f32.f64", x, out=f32), rounded(x, exact.F32, mode).astype(f32))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "kept", "bits"), [("bf16", 7, 16), ("f16", 10, 16), ("f32", 23, 32)])
def test_nan_of_float64_keeps_its_upper_bits(kind: str, kept: int, bits: int, mode: str) -> None:
    """The sign and the upper bits of the fraction stay and the quiet bit is set; seen on an H200 for bf16."""
    x = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FFD809A3CFD3DD1, 0xFFFFFFFFFFFFFFFF, 0xFFF8000000000001,
                  0x7FF0000000000001, 0xFFF123456789ABCD], np.uint64)  # fmt: skip
    digits = [f"{v:064b}" for v in x.tolist()]  # sign, 11 of exponent, 52 of fraction
    want = [int(d[0] + "1" * (bits - kept - 1) + "1" + d[13 : 12 + kept], 2) for d in digits]
    result = call(f"cvt.{mode}.{kind}.f64", x.view(f64), out=u16 if bits == 16 else u32)
    assert list(map(hex, result.tolist())) == list(map(hex, want))


@pytest.mark.parametrize("mode", MODES)
def test_ftz_of_float64_asks_whether_the_rounded_result_is_tiny(mode: str) -> None:
    """Around 2**-126 less a half and a whole unit of 24 bits, where the float32 rounds up to 2**-126 or not."""
    units = np.array([0, 0.25, 0.5, 0.75, 1, 1.25, 2, 3, 4])
    x = np.concatenate([1 - units * 2.0**-25, -1 + units * 2.0**-25]) * 2.0**-126
    endless = rounded(x, exact.Binary(24, -1000, 127), mode)
    want = np.where(np.abs(endless) < 2.0**-126, np.copysign(0.0, endless), endless)
    same_bits(call(f"cvt.{mode}.ftz.f32.f64", x, out=f32), want.astype(f32))


@pytest.mark.parametrize("mode", ["rna", "rn", "rz"])
def test_tf32(mode: str, rng: np.random.Generator) -> None:
    x = wide_values(rng, f32)
    result = call(f"cvt.{mode}.tf32.f32", x, out=f32)
    with np.errstate(invalid="ignore"):
        same_bits(result, rounded(x, exact.TF32, mode).astype(f32))
    assert not (result.view(u32)[~np.isnan(x)] & 0x1FFF).any()


def test_tf32_modifiers() -> None:
    x = np.array([3.4028e38, np.inf, -np.inf, np.nan, -1.5], f32)
    top = float(np.uint32(0x7F7FE000).view(f32))
    same_bits(call("cvt.rna.satfinite.tf32.f32", x, out=f32), np.array([top, top, -top, np.nan, -1.5], f32))
    same_bits(call("cvt.rn.relu.tf32.f32", x, out=f32), np.array([np.inf, np.inf, 0, np.nan, 0], f32))


def test_halves_into_each_other() -> None:
    want = patterns(as_torch(ALL16, "f16").to(torch.bfloat16))
    assert (call("cvt.rn.bf16.f16", ALL16, out=u16) == want).all()
    want = patterns(as_torch(ALL16, "bf16").to(torch.float16))
    assert (call("cvt.rn.f16.bf16", ALL16, out=u16) == want).all()


# -- flushing and saturation of floats ---------------------------------------------------------------------


def test_ftz_applies_to_float32_only() -> None:
    x = np.array([1e-40, -1e-40, 6e-8, 1.0], f32)
    same_bits(call("cvt.ftz.f64.f32", x, out=f64), np.array([0.0, -0.0, f64(x[2]), 1.0]))
    same_bits(call("cvt.rn.ftz.f32.f64", x.astype(f64), out=f32), np.array([0.0, -0.0, x[2], 1.0], f32))
    same_bits(call("cvt.rn.ftz.f16.f32", x, out=f16), np.array([0.0, -0.0, 2.0**-24, 1.0], f16))
    assert call("cvt.rpi.ftz.s32.f32", x, out=np.int32).tolist() == [0, 0, 1, 1]
    assert call("cvt.rpi.s32.f32", x, out=np.int32).tolist() == [1, 0, 1, 1]


def test_sat_of_floats() -> None:
    x = np.array([-1.0, -0.0, 0.25, 1.5, np.inf, np.nan], f64)
    want = np.array([0.0, 0.0, 0.25, 1.0, 1.0, 0.0])
    same_bits(call("cvt.rn.sat.f32.f64", x, out=f32), want.astype(f32))
    same_bits(call("cvt.sat.f32.f32", x.astype(f32), out=f32), want.astype(f32))
    same_bits(call("cvt.rn.sat.f16.f32", x.astype(f32), out=f16), want.astype(f16))
    same_bits(call("cvt.sat.f64.f64", x, out=f64), want)
    assert call("cvt.rn.sat.f32.s32", np.array([-3, 0, 1, 9], np.int32), out=f32).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
def test_round_to_an_integral_float(mode: str, rng: np.random.Generator) -> None:
    for kind, dtype in (("f16", f16), ("f32", f32), ("f64", f64)):
        x = np.concatenate([edges(dtype), moderate(rng, dtype, 300), (rng.integers(-40, 40, 80) / 2).astype(dtype)])
        want = [v if not math.isfinite(v) else math.copysign(float(integral(v, mode)), v) for v in x.tolist()]
        same_bits(call(f"cvt.{mode}.{kind}.{kind}", x, out=dtype), np.array(want, dtype))


# -- integers ----------------------------------------------------------------------------------------------


def integral(value: float, mode: str) -> int:
    """A number rounded to an integer by definition."""
    towards: dict[str, Callable[[Fraction], int]] = {
        "rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil,
    }  # fmt: skip
    return towards[mode](Fraction(value))


def integers(rng: np.random.Generator, kind: str, n: int = 200) -> np.ndarray:
    info, dtype = np.iinfo(INTEGERS[kind]), INTEGERS[kind]
    near = [b + d for b in (0, info.max, info.max // 2) for d in (-2, -1, 0, 1, 2)]
    powers = [(1 << p) + d for p in range(info.bits) for d in (-1, 0, 1)]
    edge = [v for v in [*near, *powers, *(-p for p in powers), info.min] if info.min <= v <= info.max]
    random = rng.integers(info.min, info.max, n, dtype, endpoint=True)
    return np.concatenate([np.array(edge, dtype), random])


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("result", INTEGERS)
def test_integer_to_integer(result: str, source: str, rng: np.random.Generator) -> None:
    a, info = integers(rng, source), np.iinfo(INTEGERS[result])
    plain = call(f"cvt.{result}.{source}", a, out=INTEGERS[result])
    for got, value in zip(plain.tolist(), a.tolist(), strict=True):
        assert (got - value) % (1 << info.bits) == 0 and info.min <= got <= info.max
    if int(np.iinfo(INTEGERS[source]).max) > info.max or int(np.iinfo(INTEGERS[source]).min) < info.min:
        clamped = call(f"cvt.sat.{result}.{source}", a, out=INTEGERS[result])
        assert clamped.tolist() == [max(info.min, min(info.max, v)) for v in a.tolist()]


def test_results_fill_a_wider_register() -> None:
    a = np.array([0x1FF, 0x80, 0x7F, 0xFFFFFF80], u32)
    for line, want in {
        "cvt.s8.u32 %r20, %r1;": [0xFFFFFFFF, 0xFFFFFF80, 0x7F, 0xFFFFFF80],
        "cvt.u8.u32 %r20, %r1;": [0xFF, 0x80, 0x7F, 0x80],
        "cvt.s16.s8 %r20, %r1;": [0xFFFFFFFF, 0xFFFFFF80, 0x7F, 0xFFFFFF80],
        "cvt.u16.s8 %r20, %r1;": [0xFFFF, 0xFF80, 0x7F, 0xFF80],
        "cvt.s8.s8 %r20, %r1;": [0xFFFFFFFF, 0xFFFFFF80, 0x7F, 0xFFFFFF80],
    }.items():
        assert execute(line, [(a, "%r1")], u32, "%r20").tolist() == want, line
    wide = execute("cvt.s32.s16 %rd20, %r1;", [(a, "%r1")], np.int64, "%rd20")
    assert wide.tolist() == [0x1FF, 0x80, 0x7F, -128]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("source", INTEGERS)
def test_integer_to_float(source: str, mode: str, rng: np.random.Generator) -> None:
    a = integers(rng, source)
    formats = {"f16": (exact.F16, f16), "f32": (exact.F32, f32), "f64": (exact.F64, f64)}
    for kind, (fmt, dtype) in formats.items():
        want = [0.0 if v == 0 else fmt.round(Fraction(v), mode) for v in a.tolist()]
        same_bits(call(f"cvt.{mode}.{kind}.{source}", a, out=dtype), np.array(want).astype(dtype), f"{kind} ")
    if source[1:] != "8":
        want = [0.0 if v == 0 else exact.BF16.round(Fraction(v), mode) for v in a.tolist()]
        brain = call(f"cvt.{mode}.bf16.{source}", a, out=u16)
        same_bits((brain.astype(u32) << 16).view(f32), np.array(want, f32))


def clamped_integer(value: float, mode: str, result: str, source: str) -> int:
    """Clamped to the range; NaN is 0 between types of at most 32 bits, else the pattern 100...0 (9.7.9.21)."""
    info = np.iinfo(INTEGERS[result])
    if math.isnan(value):
        wide = source == "f64" or info.bits == 64
        return (int(info.min) or 1 << (info.bits - 1)) if wide else 0
    if math.isinf(value):
        return int(info.max if value > 0 else info.min)
    return max(int(info.min), min(int(info.max), integral(value, mode)))


@pytest.mark.parametrize("result", INTEGERS)
@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
def test_float_to_integer(mode: str, result: str, rng: np.random.Generator) -> None:
    info = np.iinfo(INTEGERS[result])
    limits = [float(bound) + d for bound in (0, int(info.min), int(info.max)) for d in (-1.5, -0.5, 0, 0.5, 1, 1.5)]
    for source, dtype in (("f16", f16), ("f32", f32), ("f64", f64)):
        with np.errstate(over="ignore"):
            x = np.concatenate([np.array(limits).astype(dtype), edges(dtype), moderate(rng, dtype, 200, 40),
                                anything(rng, dtype, 200)])  # fmt: skip
        want = [clamped_integer(v, mode, result, source) for v in x.tolist()]
        assert call(f"cvt.{mode}.{result}.{source}", x, out=INTEGERS[result]).tolist() == want, source
    if info.bits > 8:
        x = as_torch(ALL16[::7].copy(), "bf16").double().tolist()
        want = [clamped_integer(v, mode, result, "bf16") for v in x]
        assert call(f"cvt.{mode}.{result}.bf16", ALL16[::7].copy(), out=INTEGERS[result]).tolist() == want


@pytest.mark.parametrize("kind", ["s8", "u8"])
def test_bytes_and_bfloat16(kind: str) -> None:
    """The byte must be in an 8-bit register."""
    every = np.arange(256, dtype=np.uint8)
    line = f".reg .b8 %b<2>; cvt.u8.u16 %b1, %h1; cvt.rn.bf16.{kind} %h2, %b1;"
    got = execute(line, [(every.astype(u16), "%h1")], u16, "%h2")
    same_bits((got.astype(u32) << 16).view(f32), every.view(INTEGERS[kind]).astype(f32))
    numbers = as_torch(ALL16[::7].copy(), "bf16").double().tolist()
    line = f".reg .b8 %b<2>; cvt.rni.{kind}.bf16 %b1, %h1; cvt.u16.u8 %h2, %b1;"
    low = execute(line, [(ALL16[::7].copy(), "%h1")], u16, "%h2").astype(np.uint8)
    assert low.view(INTEGERS[kind]).tolist() == [clamped_integer(v, "rni", kind, "bf16") for v in numbers]


def test_pack(rng: np.random.Generator) -> None:
    a, b = (rng.integers(-(2**31), 2**31, 300, np.int32) >> rng.integers(0, 31, 300).astype(np.int32) for _ in "ab")
    c = rng.integers(0, 2**32, 300, u32)
    for sign in "us":
        for bits in (2, 4, 8, 16):
            low, high = (0, (1 << bits) - 1) if sign == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)
            x, y = ([max(low, min(high, v)) & ((1 << bits) - 1) for v in z.tolist()] for z in (a, b))
            pair = [p << bits | q for p, q in zip(x, y, strict=True)]
            if bits == 16:
                assert call(f"cvt.pack.sat.{sign}16.s32", a, b, out=u32).tolist() == pair
                continue
            want = [(r << 2 * bits | p) & 0xFFFFFFFF for r, p in zip(c.tolist(), pair, strict=True)]
            assert call(f"cvt.pack.sat.{sign}{bits}.s32.b32", a, b, c, out=u32).tolist() == want


@pytest.mark.parametrize(
    "opcode",
    ["cvt.s32.f32", "cvt.f16.f32", "cvt.f32.s32", "cvt.rn.f64.f32", "cvt.sat.u32.u8", "cvt.rn.satfinite.tf32.f32",
     "cvt.rn.bf16.s8", "cvt.ftz.s32.f64", "cvt.rn.sat.bf16.f32", "cvt.u32.b32", "cvt.rn.frob.f16.f32"],
)  # fmt: skip
def test_illegal_forms_are_refused(opcode: str) -> None:
    result, source = ({"8": u16, "6": u16, "2": u32, "4": np.uint64}[kind[-1]] for kind in opcode.split(".")[-2:])
    with refused(opcode):
        call(opcode, np.ones(32, source), out=result)


@pytest.mark.parametrize("opcode", ["cvt.rn.e4m3x2.f32", "cvt.rn.satfinite.e2m3x2.f32", "cvt.rs.f16x2.f32"])
def test_illegal_pairs_are_refused(opcode: str) -> None:
    with refused(opcode):
        call(opcode, np.ones(32, f32), np.ones(32, f32), out=u32 if "f16x2" in opcode else u16)
