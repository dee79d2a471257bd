"""Comparisons, selections and moves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.emulator.exact import edges
from tests.emulator.harness import HEADER, run
from tests.emulator.lines import REGISTER, call, execute, refused

u16, u32, f32 = np.uint16, np.uint32, np.float32
KINDS: dict[str, type] = {
    "u16": np.uint16, "s16": np.int16, "u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64,
    "b16": np.uint16, "b32": np.uint32, "b64": np.uint64, "f32": np.float32, "f64": np.float64, "f16": np.float16,
}  # fmt: skip
ORDER: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
JOIN: dict[str, Callable[[bool, bool], bool]] = {
    "and": lambda a, b: a and b, "or": lambda a, b: a or b, "xor": lambda a, b: a != b,
}  # fmt: skip


def operands(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of edge values."""
    if kind[0] == "f":
        one = edges(KINDS[kind])
    else:
        info = np.iinfo(KINDS[kind])
        one = np.array(
            [0, 1, 2, info.max, info.max - 1, info.max // 2, info.max // 2 + 1, info.min, info.min + 1], info.dtype
        )
    grid: np.ndarray = np.array(list(itertools.product(one, repeat=2)), KINDS[kind])
    return grid[:, 0].copy(), grid[:, 1].copy()


def compared(name: str, kind: str, a: float, b: float) -> bool:
    """A comparison by the ISA's words (section 9.3.1)."""
    if kind[0] != "f" and not kind.startswith("bf"):
        return ORDER[UNSIGNED.get(name, name)](a, b)
    unordered = math.isnan(a) or math.isnan(b)
    if name in ("num", "nan"):
        return unordered == (name == "nan")
    return name.endswith("u") if unordered else ORDER[name.removesuffix("u")](a, b)


def names_for(kind: str) -> list[str]:
    if kind[0] == "f" or kind.startswith("bf"):
        return [*ORDER, *(f"{n}u" for n in ORDER), "num", "nan"]
    return ["eq", "ne"] if kind[0] == "b" else [*ORDER, *(UNSIGNED if kind[0] == "u" else ())]


def predicates(lines: str, inputs: list[tuple[np.ndarray, str]]) -> tuple[list[bool], list[bool]]:
    """%p1 and %p2 after the lines."""
    tail = " selp.u32 %r40, 1, 0, %p1; selp.u32 %r41, 2, 0, %p2; or.b32 %r42, %r40, %r41;"
    both = execute("setp.ne.u32 %p1, 0, 0; setp.ne.u32 %p2, 0, 0;" + lines + tail, inputs, u32, "%r42")
    return (both & 1 == 1).tolist(), (both & 2 == 2).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_setp(kind: str) -> None:
    a, b = operands(kind)
    x, y = (f"{REGISTER[a.dtype.itemsize]}{i}" for i in (1, 2))
    for name in names_for(kind):
        truth = [compared(name, kind, p, q) for p, q in zip(a.tolist(), b.tolist(), strict=True)]
        p, _ = predicates(f"setp.{name}.{kind} %p1, {x}, {y};", [(a, x), (b, y)])
        assert p == truth, name
        if kind == "f16":
            continue
        p, q = predicates(f"setp.{name}.{kind} %p1|%p2, {x}, {y};", [(a, x), (b, y)])
        assert p == truth and q == [not t for t in truth], name


@pytest.mark.parametrize("join", JOIN)
@pytest.mark.parametrize("negated", [False, True])
def test_setp_joined_with_a_predicate(join: str, negated: bool) -> None:
    a, b = operands("s32")
    c = np.arange(len(a), dtype=u32) % 2
    inputs = [(a, "%r1"), (b, "%r2"), (c, "%r3")]
    mark = "!" if negated else ""
    third = [bool(x) != negated for x in c.tolist()]
    truth = [p < q for p, q in zip(a.tolist(), b.tolist(), strict=True)]
    want_p = [JOIN[join](t, x) for t, x in zip(truth, third, strict=True)]
    want_q = [JOIN[join](not t, x) for t, x in zip(truth, third, strict=True)]
    for third_register in ("%p3", "%p1", "%p2"):  # the third operand may be one of the results
        lines = f"setp.ne.u32 {third_register}, %r3, 0; setp.lt.{join}.s32 %p1|%p2, %r1, %r2, {mark}{third_register};"
        assert predicates(lines, inputs) == (want_p, want_q), third_register
    assert predicates(f"setp.ne.u32 %p3, %r3, 0; setp.lt.{join}.s32 _|%p2, %r1, %r2, {mark}%p3;", inputs)[1] == want_q


def test_setp_flushes() -> None:
    a, b = np.array([1e-40, -1e-40, 1e-40], f32), np.array([0.0, 0.0, 2e-40], f32)
    inputs = [(a, "%r1"), (b, "%r2")]
    assert predicates("setp.eq.ftz.f32 %p1, %r1, %r2;", inputs)[0] == [True, True, True]
    assert predicates("setp.eq.f32 %p1, %r1, %r2;", inputs)[0] == [False, False, False]
    half, zero = np.array([1, 0x8001], u16), np.zeros(2, u16)
    assert predicates("setp.eq.ftz.f16 %p1, %h1, %h2;", [(half, "%h1"), (zero, "%h2")])[0] == [True, True]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_setp_of_packed_halves(kind: str, rng: np.random.Generator) -> None:
    pool = np.array([0, 0x8000, 1, 0x3C00, 0xBC00, 0x7C00, 0x7F80, 0x7FFF, 0x3F80], u16)
    low = [rng.choice(pool, 400) for _ in "ab"]
    high = [rng.choice(pool, 400) for _ in "ab"]
    dtype = torch.float16 if kind == "f16" else torch.bfloat16
    packed = [x.astype(u32) | y.astype(u32) << 16 for x, y in zip(low, high, strict=True)]
    value = [torch.from_numpy(x.view(np.int16).copy()).view(dtype).tolist() for x in (*low, *high)]
    for name in names_for(kind):
        p, q = predicates(f"setp.{name}.{kind}x2 %p1|%p2, %r1, %r2;", [(packed[0], "%r1"), (packed[1], "%r2")])
        assert p == [compared(name, kind, a, b) for a, b in zip(value[0], value[1], strict=True)]
        assert q == [compared(name, kind, a, b) for a, b in zip(value[2], value[3], strict=True)]


def test_set() -> None:
    a, b = operands("f32")
    truth = np.array([compared("ltu", "f32", p, q) for p, q in zip(a.tolist(), b.tolist(), strict=True)])
    assert (call("set.ltu.u32.f32", a, b, out=u32) == np.where(truth, 0xFFFFFFFF, 0)).all()
    assert (call("set.ltu.s32.f32", a, b, out=np.int32) == np.where(truth, -1, 0)).all()
    assert (call("set.ltu.f32.f32", a, b, out=f32) == truth).all()
    assert (call("set.ltu.f16.f32", a, b, out=np.float16) == truth).all()
    assert (call("set.ltu.bf16.f32", a, b, out=u16) == np.where(truth, 0x3F80, 0)).all()
    lines = "setp.eq.u32 %p1, 0, 1; set.ltu.or.u32.f32 %r20, %r1, %r2, !%p1;"
    assert (execute(lines, [(a, "%r1"), (b, "%r2")], u32, "%r20") == 0xFFFFFFFF).all()


def test_set_of_halves() -> None:
    a, b = operands("f16")
    truth = np.array([compared("ge", "f16", p, q) for p, q in zip(a.tolist(), b.tolist(), strict=True)])
    assert (call("set.ge.u16.f16", a, b, out=u16) == np.where(truth, 0xFFFF, 0)).all()
    assert (call("set.ge.u32.f16", a, b, out=u32) == np.where(truth, 0xFFFFFFFF, 0)).all()
    pairs = [x.view(u16).astype(u32) | x.view(u16)[::-1].astype(u32) << 16 for x in (a, b)]
    masks = call("set.ge.u32.f16x2", *pairs, out=u32)
    assert (masks & 0xFFFF == np.where(truth, 0xFFFF, 0)).all() and (
        masks >> 16 == np.where(truth[::-1], 0xFFFF, 0)
    ).all()
    ones = call("set.ge.f16x2.f16x2", *pairs, out=u32)
    assert (ones & 0xFFFF == np.where(truth, 0x3C00, 0)).all() and (
        ones >> 16 == np.where(truth[::-1], 0x3C00, 0)
    ).all()


@pytest.mark.parametrize("kind", ["b16", "u32", "s64", "f32", "f64"])
def test_selections(kind: str, rng: np.random.Generator) -> None:
    a, b = operands(kind)
    c = rng.integers(-2, 3, len(a)).astype(np.int32)
    registers = [f"{REGISTER[a.dtype.itemsize]}{i}" for i in (1, 2, 20)]
    inputs = [(a, registers[0]), (b, registers[1]), (c, "%r3")]
    unsigned = np.dtype(f"u{a.dtype.itemsize}")

    def run_line(line: str) -> np.ndarray:
        return execute(line, inputs, unsigned, registers[2])

    args = f"{registers[2]}, {registers[0]}, {registers[1]}"
    for mark, chosen in (("", c > 0), ("!", c <= 0)):
        picked = run_line(f"setp.gt.s32 %p1, %r3, 0; selp.{kind} {args}, {mark}%p1;")
        assert (picked == np.where(chosen, a.view(unsigned), b.view(unsigned))).all()
    assert (run_line(f"slct.{kind}.s32 {args}, %r3;") == np.where(c >= 0, a.view(unsigned), b.view(unsigned))).all()


def test_slct_on_floats() -> None:
    c = np.array([0.0, -0.0, 1.0, -1.0, np.nan, -1e-40], f32)
    one, two = np.full(6, 1, u32), np.full(6, 2, u32)
    assert call("slct.u32.f32", one, two, c, out=u32).tolist() == [1, 1, 1, 2, 2, 2]
    assert call("slct.ftz.u32.f32", one, two, c, out=u32).tolist() == [1, 1, 1, 2, 2, 1]


# -- mov ---------------------------------------------------------------------------------------------


def test_vectors_pack_and_unpack(rng: np.random.Generator) -> None:
    x = rng.integers(0, 2**64, 64, np.uint64)
    low, high = (x & np.uint64(0xFFFFFFFF)).astype(u32), (x >> np.uint64(32)).astype(u32)
    given = [(x, "%rd1"), (low, "%r1"), (high, "%r2")]
    assert (execute("mov.b64 {%r3, %r4}, %rd1;", given, u32, "%r3") == low).all()
    assert (execute("mov.b64 {_, %r4}, %rd1;", given, u32, "%r4") == high).all()
    assert (execute("mov.b64 %rd2, {%r1, %r2};", given, np.uint64, "%rd2") == x).all()
    assert (execute("mov.b64 %rd2, {%r2, 7};", given, np.uint64, "%rd2") == (high | np.uint64(7 << 32))).all()
    halves = "mov.b64 {%h1, %h2, %h3, %h4}, %rd1; mov.b64 %rd2, {%h4, %h3, %h2, %h1};"
    swapped = x.view(u16).reshape(-1, 4)[:, ::-1].copy().view(np.uint64).ravel()
    assert (execute(halves, given, np.uint64, "%rd2") == swapped).all()
    line = "mov.b32 {%h1, %h2}, %r1; mov.b32 %r3, {%h2, %h1};"
    assert (execute(line, given, u32, "%r3") == (low >> 16 | low << 16)).all()
    constant = "mov.b32 {%h1, %h2}, 0x12345678; mov.b32 %r3, {%h2, %h1};"
    assert (execute(constant, given, u32, "%r3") == 0x56781234).all()


def test_128_bits(rng: np.random.Generator) -> None:
    x = rng.integers(0, 2**64, 64, np.uint64)
    y = ~x
    lines = (
        "{ .reg .b128 %q1; .reg .b128 %q2; mov.b128 %q1, {%rd1, %rd2}; mov.b128 %q2, %q1; mov.b128 {%rd3, %rd4}, %q2; }"
    )
    given = [(x, "%rd1"), (y, "%rd2")]
    assert (execute(lines, given, np.uint64, "%rd3") == x).all()
    assert (execute(lines, given, np.uint64, "%rd4") == y).all()


def test_moves_in_part_of_a_warp(rng: np.random.Generator) -> None:
    """Only the lanes whose guard holds are written."""
    x = rng.integers(0, 2**32, 64, u32)
    lines = """
        mov.b32 %r20, 5;
        setp.gt.u32 %p1, %r1, 0x80000000;
        @%p1 mov.b32 {%h1, %h2}, %r1;
        @%p1 mov.b32 %r20, {%h2, %h1};
        @!%p1 mov.b32 %r20, 0f3F800000;
    """
    want = np.where(x > 0x80000000, x >> 16 | x << 16, 0x3F800000)
    assert (execute(lines, [(x, "%r1")], u32, "%r20") == want).all()


def test_special_registers_and_addresses() -> None:
    text = f"""{HEADER}
        .shared .align 8 .b8 first[24]; .shared .align 8 .b8 second[16];
        .visible .entry k(.param .b64 p0) {{
        .reg .b32 %r<9>; .reg .b64 %rd<9>;
        mov.u32 %r1, %laneid; mov.u32 %r2, %tid.x; mov.u32 %r3, %ntid.x;
        mov.u32 %r4, first; mov.u32 %r5, second; sub.u32 %r5, %r5, %r4;
        mad.lo.u32 %r6, %r1, 100, %r2; mad.lo.u32 %r6, %r3, 10000, %r6;
        ld.param.b64 %rd1, [p0]; mad.wide.u32 %rd2, %r2, 8, %rd1; st.global.v2.b32 [%rd2], {{%r6, %r5}};
        ret; }}"""
    out = np.zeros((64, 2), u32)
    run(text, out, block=(64, 1, 1))
    assert (out[:, 0] == 64 * 10000 + 100 * (np.arange(64) % 32) + np.arange(64)).all()
    assert abs(out[0, 1].view(np.int32)) in (16, 24)


@pytest.mark.parametrize(
    "line",
    ["setp.lo.s32 %p1, %r1, %r1;", "setp.lt.b32 %p1, %r1, %r1;", "setp.s32 %p1, %r1, %r1;", "mov.u32 {%h1,%h2}, %r1;",
     "setp.eq.f16 %p1|%p2, %h1, %h2;", "selp.f16 %h1, %h1, %h2, %p1;", "mov.f16 %h1, %h2;",
     "mov.b32 {%h1,%h2,%h3}, %r1;",
     "slct.f16.s32 %h1, %h1, %h1, %r1;", "set.lt.u16.f32 %h1, %r1, %r1;", "setp.lt.ftz.f64 %p1, %rd1, %rd1;",
     "selp.b32 %r1, %r1, %r1;"],
)  # fmt: skip
def test_illegal_forms_are_refused(line: str) -> None:
    with refused(line.split()[0]):
        execute(line, [(np.zeros(32, u32), "%r1")], u32, "%r1")
