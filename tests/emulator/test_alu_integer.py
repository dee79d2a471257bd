"""Integer instructions against Python's unbounded integers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from tests.emulator.lines import call, execute, refused

KINDS: dict[str, type] = {
    "u16": np.uint16, "s16": np.int16, "u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64,
}  # fmt: skip
WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
Function = Callable[..., int]


def bits_of(kind: str) -> int:
    return int(kind[1:])


def values(rng: np.random.Generator, kind: str, n: int = 150) -> np.ndarray:
    """Edge values and random ones of every size."""
    info, dtype = np.iinfo(KINDS[kind]), KINDS[kind]
    small = [0, 1, 2, 3, 7, 255, 256, info.max, info.max - 1, info.max // 2, info.max // 2 + 1]
    small += [-1, -2, -128, info.min, info.min + 1] if info.min else []
    sizes: np.ndarray = rng.integers(0, info.bits - 1, n).astype(dtype)
    random = rng.integers(info.min, info.max, n, dtype, endpoint=True) >> sizes
    return np.concatenate([np.array(small, dtype), random])


def several(rng: np.random.Generator, kinds: list[str]) -> list[np.ndarray]:
    """Every pair of edge values for the first two operands, then random lanes."""
    first = [values(rng, kind) for kind in kinds]
    edge = list(itertools.product(first[0][:16], first[1 % len(first)][:16]))
    lanes = [np.concatenate([np.array([e[i % 2] for e in edge], KINDS[kinds[i]]), first[i]]) for i in range(len(first))]
    n = min(len(x) for x in lanes)
    return [rng.permutation(x[:n]) if i >= 2 else x[:n] for i, x in enumerate(lanes)]


def wrap(value: int, kind: str) -> int:
    """The low bits of a number, as this type reads them."""
    value %= 1 << bits_of(kind)
    return value - (1 << bits_of(kind)) if kind[0] == "s" and value >> (bits_of(kind) - 1) else value


def clamp(value: int, kind: str) -> int:
    info = np.iinfo(KINDS[kind])
    return max(int(info.min), min(int(info.max), value))


def check(opcode: str, operands: list[np.ndarray], result: str, function: Function) -> None:
    """The instruction gives function(operands) in every lane."""
    actual = call(opcode, *operands, out=KINDS[result])
    expected = [function(*map(int, lane)) for lane in zip(*operands, strict=True)]
    for i, (got, want) in enumerate(zip(actual.tolist(), expected, strict=True)):
        assert got == want, f"{opcode} of {[x[i] for x in operands]} gave {got:#x}, not {want:#x}"


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize("kind", KINDS)
def test_arithmetic_wraps(kind: str, rng: np.random.Generator) -> None:
    ab = several(rng, [kind, kind])
    abc = several(rng, [kind, kind, kind])
    check(f"add.{kind}", ab, kind, lambda a, b: wrap(a + b, kind))
    check(f"sub.{kind}", ab, kind, lambda a, b: wrap(a - b, kind))
    check(f"mul.lo.{kind}", ab, kind, lambda a, b: wrap(a * b, kind))
    check(f"mul.hi.{kind}", ab, kind, lambda a, b: wrap(a * b >> bits_of(kind), kind))
    check(f"mad.lo.{kind}", abc, kind, lambda a, b, c: wrap(a * b + c, kind))
    check(f"mad.hi.{kind}", abc, kind, lambda a, b, c: wrap((a * b >> bits_of(kind)) + c, kind))
    check(f"sad.{kind}", abc, kind, lambda a, b, c: wrap(c + abs(a - b), kind))
    check(f"min.{kind}", ab, kind, min)
    check(f"max.{kind}", ab, kind, max)


@pytest.mark.parametrize("kind", WIDE)
def test_wide_products(kind: str, rng: np.random.Generator) -> None:
    wide = WIDE[kind]
    check(f"mul.wide.{kind}", several(rng, [kind, kind]), wide, lambda a, b: a * b)
    check(f"mad.wide.{kind}", several(rng, [kind, kind, wide]), wide, lambda a, b, c: wrap(a * b + c, wide))


@pytest.mark.parametrize("kind", KINDS)
def test_division_truncates(kind: str, rng: np.random.Generator) -> None:
    a, b = several(rng, [kind, kind])
    b[b == 0] = 5
    check(f"div.{kind}", [a, b], kind, lambda a, b: wrap(truncated(a, b), kind))
    check(f"rem.{kind}", [a, b], kind, lambda a, b: a - b * truncated(a, b))


@pytest.mark.emulator  # the ISA leaves it open; this is what the emulator documents
@pytest.mark.parametrize("kind", KINDS)
def test_division_by_zero_sets_all_bits(kind: str) -> None:
    a: np.ndarray = np.array([0, 1, 100, np.iinfo(KINDS[kind]).max], KINDS[kind])
    for name in ("div", "rem"):
        result = call(f"{name}.{kind}", a, np.zeros_like(a), out=KINDS[kind])
        assert (result == ~KINDS[kind](0)).all()


@pytest.mark.parametrize("kind", ["s16", "s32", "s64"])
def test_signs(kind: str, rng: np.random.Generator) -> None:
    a = [values(rng, kind)]
    check(f"abs.{kind}", a, kind, lambda a: wrap(abs(a), kind))
    check(f"neg.{kind}", a, kind, lambda a: wrap(-a, kind))


def test_saturation_and_relu(rng: np.random.Generator) -> None:
    ab, abc = several(rng, ["s32", "s32"]), several(rng, ["s32", "s32", "s32"])
    check("add.sat.s32", ab, "s32", lambda a, b: clamp(a + b, "s32"))
    check("sub.sat.s32", ab, "s32", lambda a, b: clamp(a - b, "s32"))
    check("mad.hi.sat.s32", abc, "s32", lambda a, b, c: clamp((a * b >> 32) + c, "s32"))
    check("min.relu.s32", ab, "s32", lambda a, b: max(0, min(a, b)))
    check("max.relu.s32", ab, "s32", lambda a, b: max(0, a, b))


def low24(x: int, kind: str) -> int:
    x &= 0xFFFFFF
    return x - (1 << 24) if kind == "s32" and x >> 23 else x


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_24_bit_products(kind: str, rng: np.random.Generator) -> None:
    def product(a: int, b: int, shift: int) -> int:
        return wrap(low24(a, kind) * low24(b, kind) >> shift, kind)

    ab, abc = several(rng, [kind, kind]), several(rng, [kind, kind, kind])
    check(f"mul24.lo.{kind}", ab, kind, lambda a, b: product(a, b, 0))
    check(f"mul24.hi.{kind}", ab, kind, lambda a, b: product(a, b, 16))
    check(f"mad24.lo.{kind}", abc, kind, lambda a, b, c: wrap(product(a, b, 0) + c, kind))
    check(f"mad24.hi.{kind}", abc, kind, lambda a, b, c: wrap(product(a, b, 16) + c, kind))
    if kind == "s32":
        check("mad24.hi.sat.s32", abc, kind, lambda a, b, c: clamp(product(a, b, 16) + c, kind))


def parts(x: int, kind: str, width: int) -> list[int]:
    """The fields of a register, lowest first."""
    fields = [x >> i & ((1 << width) - 1) for i in range(0, 32, width)]
    return [f - (1 << width) if kind[0] == "s" and f >> (width - 1) else f for f in fields]


def join(fields: list[int], width: int = 16) -> int:
    return sum((f & ((1 << width) - 1)) << (width * i) for i, f in enumerate(fields))


@pytest.mark.parametrize("kind", ["u16x2", "s16x2"])
def test_packed_halves(kind: str, rng: np.random.Generator) -> None:
    def each(function: Function) -> Function:
        return lambda a, b: join([function(x, y) for x, y in zip(parts(a, kind, 16), parts(b, kind, 16), strict=True)])

    ab = several(rng, ["u32", "u32"])
    check(f"add.{kind}", ab, "u32", each(lambda x, y: x + y))
    check(f"min.{kind}", ab, "u32", each(min))
    check(f"max.{kind}", ab, "u32", each(max))
    if kind == "s16x2":
        check("min.relu.s16x2", ab, "u32", each(lambda x, y: max(0, min(x, y))))
        check("max.relu.s16x2", ab, "u32", each(lambda x, y: max(0, x, y)))


@pytest.mark.parametrize("kinds", list(itertools.product(["u32", "s32"], repeat=2)))
def test_dot_products(kinds: tuple[str, str], rng: np.random.Generator) -> None:
    p, q = kinds
    abc = [rng.integers(0, 2**32, 300, np.uint32) for _ in range(3)]

    def dot(a: list[int], b: list[int], c: int) -> int:
        return wrap(c + sum(x * y for x, y in zip(a, b, strict=True)), "u32")

    check(f"dp4a.{p}.{q}", abc, "u32", lambda a, b, c: dot(parts(a, p, 8), parts(b, q, 8), c))
    check(f"dp2a.lo.{p}.{q}", abc, "u32", lambda a, b, c: dot(parts(a, p, 16), parts(b, q, 8)[:2], c))
    check(f"dp2a.hi.{p}.{q}", abc, "u32", lambda a, b, c: dot(parts(a, p, 16), parts(b, q, 8)[2:], c))


# -- extended precision: chains of two and four words ---------------------------------------------------


def words(rng: np.random.Generator, count: int, n: int = 300) -> list[np.ndarray]:
    """Words that often carry."""
    special = np.array([0, 1, 0xFFFFFFFF, 0x80000000, 0xFFFFFFFE], np.uint32)
    random = [rng.integers(0, 2**32, n, np.uint32) for _ in range(count)]
    return [np.where(rng.random(n) < 0.6, rng.choice(special, n), r) for r in random]


def number(pieces: list[np.ndarray], lane: int) -> int:
    return sum(int(p[lane]) << (32 * i) for i, p in enumerate(pieces))


@pytest.mark.parametrize("name,sign", [("add", 1), ("sub", -1)])
def test_carry_chains(name: str, sign: int, rng: np.random.Generator) -> None:
    a, b = words(rng, 3), words(rng, 3)
    inputs = [(x, f"%r{i}") for i, x in enumerate(a)] + [(x, f"%r{i + 4}") for i, x in enumerate(b)]
    lines = (
        f"{name}.cc.u32 %r10, %r0, %r4; {name}c.cc.s32 %r11, %r1, %r5; {name}c.cc.u32 %r12, %r2, %r6;"
        f"{name}c.u32 %r13, 0, 0;"
    )
    result = [execute(lines, inputs, np.uint32, f"%r{10 + i}") for i in range(4)]
    for lane in range(len(a[0])):
        want = (number(a, lane) + sign * number(b, lane)) % (1 << 128)
        assert number(result, lane) == want


def test_64_bit_carries(rng: np.random.Generator) -> None:
    a, b, c, d = (x.astype(np.uint64) << np.uint64(32) | y for x, y in (words(rng, 2) for _ in range(4)))
    inputs = [(a, "%rd0"), (b, "%rd1"), (c, "%rd2"), (d, "%rd3")]
    lines = "add.cc.u64 %rd5, %rd0, %rd2; addc.u64 %rd6, %rd1, %rd3;"
    low, high = (execute(lines, inputs, np.uint64, r) for r in ("%rd5", "%rd6"))
    for i in range(len(a)):
        want = (int(a[i]) + int(c[i]) + ((int(b[i]) + int(d[i])) << 64)) % (1 << 128)
        assert int(low[i]) + (int(high[i]) << 64) == want


def test_extended_multiplication(rng: np.random.Generator) -> None:
    """[r3, r2, r1, r0] = [r5, r4] * [r7, r6], the sequence of PTX ISA section 9.7.2.6."""
    p, q = words(rng, 2), words(rng, 2)
    inputs = [(p[0], "%r4"), (p[1], "%r5"), (q[0], "%r6"), (q[1], "%r7")]
    lines = """
        mul.lo.u32 %r10, %r4, %r6;
        mul.hi.u32 %r11, %r4, %r6;
        mad.lo.cc.u32 %r11, %r5, %r6, %r11;
        madc.hi.u32 %r12, %r5, %r6, 0;
        mad.lo.cc.u32 %r11, %r4, %r7, %r11;
        madc.hi.cc.u32 %r12, %r4, %r7, %r12;
        addc.u32 %r13, 0, 0;
        mad.lo.cc.u32 %r12, %r5, %r7, %r12;
        madc.hi.u32 %r13, %r5, %r7, %r13;
    """
    result = [execute(lines, inputs, np.uint32, f"%r{10 + i}") for i in range(4)]
    for lane in range(len(p[0])):
        assert number(result, lane) == number(p, lane) * number(q, lane)


@pytest.mark.parametrize(
    "opcode", ["add.sat.u32", "mul.u32", "mul.wide.u64", "abs.u32", "add.u8", "sub.s16x2", "mad.lo.sat.s32", "min.b32"]
)
def test_illegal_forms_are_refused(opcode: str) -> None:
    one = np.ones(32, np.uint64 if "64" in opcode else np.uint32)
    count = {"abs": 1, "mad": 3}.get(opcode[:3], 2)
    with refused(opcode):
        call(opcode, *[one] * count, out=one.dtype.type)
