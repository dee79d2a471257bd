"""Atomic operations against a serial loop in Python, with several threads on one address."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest

from cutetut.emulator.errors import Misaligned, OutOfBounds, Uninitialized, UnknownInstruction
from tests.emulator.harness import kernel, run

N = 96
Serial = Callable[[int, list[int], int], int]


def signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> (width - 1) else value


def bits_of(width: int, rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(0, 256, n * width // 8, dtype=np.uint8).view(f"u{width // 8}")


def wrap(value: int, width: int) -> int:
    return value & ((1 << width) - 1)


SERIAL: dict[str, tuple[tuple[int, ...], Serial]] = {  # widths, and (old, values, width) -> new
    "add.u": ((32, 64), lambda old, v, w: wrap(old + v[0], w)),
    "add.s": ((32,), lambda old, v, w: wrap(old + v[0], w)),
    "min.u": ((32, 64), lambda old, v, w: min(old, v[0])),
    "max.u": ((32, 64), lambda old, v, w: max(old, v[0])),
    "min.s": ((32, 64), lambda old, v, w: wrap(min(signed(old, w), signed(v[0], w)), w)),
    "max.s": ((32, 64), lambda old, v, w: wrap(max(signed(old, w), signed(v[0], w)), w)),
    "and.b": ((32, 64), lambda old, v, w: old & v[0]),
    "or.b": ((32, 64), lambda old, v, w: old | v[0]),
    "xor.b": ((32, 64), lambda old, v, w: old ^ v[0]),
    "exch.b": ((32, 64), lambda old, v, w: v[0]),
    "cas.b": ((16, 32, 64), lambda old, v, w: v[1] if old == v[0] else old),
    "inc.u": ((32,), lambda old, v, w: 0 if old >= v[0] else old + 1),
    "dec.u": ((32,), lambda old, v, w: v[0] if old == 0 or old > v[0] else old - 1),
}
INTEGERS = {f"{name}{width}": (width, serial) for name, (widths, serial) in SERIAL.items() for width in widths}
PATTERNS: dict[str, np.ndarray] = {  # which word each thread takes
    "own": np.arange(N),
    "one": np.full(N, 3),
    "few": np.arange(N) % 3,
    "pairs": np.arange(N) // 2,
    "random": np.random.default_rng(5).integers(0, 20, N),
}
SPACES = {
    "global": ("global", "%rd10"),
    "shared": ("shared", "%r20"),
    "generic shared": ("", "%rd12"),
    "generic global": ("", "%rd10"),
}


def launch(
    instruction: str, space: str, memory: np.ndarray, where: np.ndarray, values: Sequence[np.ndarray]
) -> np.ndarray:
    """Each thread i performs the instruction on memory[where[i]] with values[k][i]; returns what it left in `old`.

    `instruction` has the fields {space} {address} {old} {b} {c}.  Shared memory is filled from `memory` and read back.
    """
    size = memory.itemsize
    kind, prefix = {2: ("b16", "h"), 4: ("b32", "r"), 8: ("b64", "rd")}[size]
    old = np.zeros(N, memory.dtype)
    dot, address = SPACES[space]
    line = instruction.format(
        space=f".{dot}" if dot else "", address=f"[{address}]", old=f"%{prefix}40", b=f"%{prefix}41", c=f"%{prefix}42"
    )
    loads = "".join(
        f"ld.param.b64 %rd5, [p{3 + i}]; mad.wide.u32 %rd5, %r1, {size}, %rd5;"
        f"ld.global.{kind} %{prefix}{41 + i}, [%rd5];"
        for i in range(len(values))
    )
    fill = f"""mov.u32 %r20, s; mad.lo.u32 %r21, %r1, {size}, %r20; mad.wide.u32 %rd13, %r1, {size}, %rd1;
    mov.u32 %r22, {len(memory)}; setp.lt.u32 %p1, %r1, %r22;
    @%p1 ld.global.{kind} %{prefix}43, [%rd13]; @%p1 st.shared.{kind} [%r21], %{prefix}43; bar.sync 0;
    mad.lo.u32 %r20, %r2, {size}, %r20; cvt.u64.u32 %rd12, %r20; cvta.shared.u64 %rd12, %rd12;"""
    back = f"bar.sync 0; @%p1 ld.shared.{kind} %{prefix}43, [%r21]; @%p1 st.global.{kind} [%rd13], %{prefix}43;"
    if "shared" not in space:
        fill = back = ""
    body = f""".shared .align 16 .b8 s[{memory.nbytes}];
    mov.u32 %r1, %tid.x; ld.param.b64 %rd1, [p0]; ld.param.b64 %rd2, [p1]; ld.param.b64 %rd3, [p2];
    mad.wide.u32 %rd4, %r1, 4, %rd2; ld.global.b32 %r2, [%rd4]; mad.wide.u32 %rd10, %r2, {size}, %rd1;
    mad.wide.u32 %rd11, %r1, {size}, %rd3; {loads} {fill} mov.{kind} %{prefix}40, 0;
    {line}
    st.global.{kind} [%rd11], %{prefix}40; {back}"""
    run(kernel(body, 3 + len(values)), memory, where.astype(np.uint32), old, *values, block=(N, 1, 1))
    return old


def is_some_order(start: int, end: int, operations: list[tuple[list[int], int]], serial: Serial, width: int) -> bool:
    """Whether the threads' operations (values, old value seen) fit a chain from start to end.

    Follows the old values: each step takes an operation that saw the present value and has not been used.  That
    needs no search, because the tests' operations never come back to a value by different ways.
    """
    present, left = start, list(operations)
    while left:
        choices = [o for o in left if o[1] == present]
        if not choices:
            return False
        moving = [o for o in choices if serial(present, o[0], width) == present]
        taken = moving[0] if moving else choices[0]  # what changes nothing can go first
        left.remove(taken)
        present = serial(present, taken[0], width)
    return present == end


@pytest.mark.parametrize("operation", INTEGERS)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("space", SPACES)
def test_integer_operations(rng: np.random.Generator, operation: str, pattern: str, space: str, on_gpu: bool) -> None:
    width, serial = INTEGERS[operation]
    where = PATTERNS[pattern]
    memory = bits_of(width, rng, N)
    values = [bits_of(width, rng, N) for _ in range(2 if operation.startswith("cas") else 1)]
    if operation.startswith(("inc", "dec")):
        memory, values = memory % 7, [np.full(N, 5, np.uint32)]
    if operation.startswith("cas"):  # from a small set, so that some compares succeed
        memory, values = memory % 3, [values[0] % 3, values[1] % 3]
        if on_gpu:  # one thread succeeds on each word, which makes the order it belongs to checkable
            values = [memory[where], np.arange(3, N + 3).astype(memory.dtype)]
    start = memory.copy()
    op, _, kind = operation.partition(".")
    more = ", {c}" if op == "cas" else ""
    old = launch(f"atom{{space}}.{op}.{kind} {{old}}, {{address}}, {{b}}{more};", space, memory, where, values)
    if on_gpu:  # any order will do, but there must be one
        for word in np.unique(where).tolist():
            mine = np.flatnonzero(where == word).tolist()
            seen = [([int(v[i]) for v in values], int(old[i])) for i in mine]
            assert is_some_order(int(start[word]), int(memory[word]), seen, serial, width)
        return
    wanted, before = [int(x) for x in start], []
    for i, word in enumerate(where.tolist()):  # the emulator's order is by thread
        before.append(wanted[word])
        wanted[word] = serial(wanted[word], [int(v[i]) for v in values], width)
    assert memory.tolist() == wanted
    assert old.tolist() == before


@pytest.mark.parametrize("operation", [o for o in INTEGERS if not o.startswith(("exch", "cas"))])
def test_red_leaves_what_atom_leaves(rng: np.random.Generator, operation: str) -> None:
    width, serial = INTEGERS[operation]
    memory, value = bits_of(width, rng, N), np.full(N, 5, f"u{width // 8}")
    start = memory.copy()
    op, _, kind = operation.partition(".")
    launch(f"red{{space}}.relaxed.gpu.{op}.{kind} {{address}}, {{b}};", "global", memory, PATTERNS["few"], [value])
    wanted = [int(x) for x in start]
    for word in PATTERNS["few"].tolist():
        wanted[word] = serial(wanted[word], [5], width)
    assert memory.tolist() == wanted


# -- floating point -------------------------------------------------------------------------------


def exact_sum(numbers: list[float], dtype: type) -> np.ndarray:
    """The sum of numbers that every order gives, because all partial sums are exact in dtype."""
    return np.array(float(sum(Fraction(float(x)) for x in numbers)), dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_float_sums(rng: np.random.Generator, dtype: type, space: str, pattern: str) -> None:
    raw = f"u{np.dtype(dtype).itemsize}"
    memory, values = (rng.integers(-1000, 1000, N).astype(dtype) / 8 for _ in range(2))
    start = memory.copy()
    kind = f"f{8 * np.dtype(dtype).itemsize}"
    old = launch(f"atom{{space}}.add.{kind} {{old}}, {{address}}, {{b}};", space, memory.view(raw), PATTERNS[pattern],
                 [values.view(raw)])  # fmt: skip
    for word in range(N):
        mine = PATTERNS[pattern] == word
        assert memory[word] == exact_sum([start[word], *values[mine].tolist()], dtype)
        assert not mine.any() or start[word] in old.view(dtype)[mine]


def test_float32_sums_flush_subnormals_in_global_memory_only() -> None:
    tiny = np.float32(2.0**-130)
    small = np.float32(1.5 * 2.0**-126)
    memory = np.zeros(N, np.float32)
    memory[:4] = np.array([tiny, small, -tiny, 0], np.float32)
    values = np.zeros(N, np.float32)
    values[:4] = np.array([tiny, -(2.0**-126), 0, tiny], np.float32)
    for space, wanted in (
        ("global", [0, 0, -0.0, 0]),
        ("shared", [2.0**-129, 2.0**-127, -(2.0**-130), 2.0**-130]),
    ):
        got = memory.copy()
        where = np.arange(N)
        launch("red{space}.add.f32 {address}, {b};", space, got.view(np.uint32), where, [values.view(np.uint32)])
        np.testing.assert_array_equal(got[:4], np.array(wanted, np.float32))


def round_to_bf16(value: float) -> float:
    """Nearest bfloat16, ties to even, by exact arithmetic."""
    if value == 0:
        return 0.0
    exponent = max(int(np.floor(np.log2(abs(value)))), -126)
    step = Fraction(2) ** (exponent - 7)
    return float(round(Fraction(float(value)) / step) * step)  # round() of a Fraction ties to even


@pytest.mark.parametrize("kind", ["f16", "bf16", "f16x2", "bf16x2"])
@pytest.mark.parametrize("form", ["atom", "red"])
def test_half_sums_round_to_nearest(rng: np.random.Generator, kind: str, form: str) -> None:
    """One addition per word: the rounded sum of two halves."""
    packed = 2 if kind.endswith("x2") else 1
    a, b = (np.float32(rng.standard_normal((N, packed)) * 10) for _ in range(2))
    if kind.startswith("b"):
        low = [np.vectorize(round_to_bf16)(x).astype(np.float32) for x in (a, b)]
        bits = [(x.view(np.uint32) >> 16).astype(np.uint16) for x in low]
        wanted = np.vectorize(round_to_bf16)(low[0].astype(np.float64) + low[1])
    else:
        bits = [x.astype(np.float16).view(np.uint16) for x in (a, b)]
        wanted = (a.astype(np.float16).astype(np.float64) + b.astype(np.float16)).astype(np.float16)
    raw = np.uint16 if packed == 1 else np.uint32
    memory, values = (x.reshape(-1).view(raw).copy() for x in bits)
    line = f"{form}{{space}}.add.noftz.{kind} " + ("{old}, " if form == "atom" else "") + "{address}, {b};"
    old = launch(line, "global", memory, np.arange(N), [values])
    if form == "atom":
        assert old.tolist() == bits[0].reshape(-1).view(raw).tolist()
    got = memory.view(np.uint16).reshape(N, packed)
    if kind.startswith("b"):
        np.testing.assert_array_equal((got.astype(np.uint32) << 16).view(np.float32), wanted)
    else:
        np.testing.assert_array_equal(got.view(np.float16), wanted)


def test_nan_is_canonical() -> None:
    memory, values = np.full(N, 0x7FC12345, np.uint32), np.full(N, 0x3F800000, np.uint32)
    launch("red{space}.add.f32 {address}, {b};", "global", memory, np.arange(N), [values])
    assert set(memory.tolist()) == {0x7FFFFFFF}


@pytest.mark.parametrize("name", ["min", "max"])
def test_a_number_beats_a_signalling_nan(name: str) -> None:
    memory, values = np.full(N, 0x3F803F80, np.uint32), np.full(N, 0x7F817F81, np.uint32)
    launch(f"red{{space}}.{name}.noftz.v2.bf16x2 {{address}}, {{{{{{b}}, {{b}}}}}};", "global",
           memory, np.arange(N) // 2 * 2, [values])  # fmt: skip
    assert set(memory.tolist()) == {0x3F803F80}


@pytest.mark.parametrize(("vector", "kind", "dtype"), [("v2", "f32", np.float32), ("v4", "f32", np.float32),
                                                       ("v4", "f16x2", np.float16), ("v8", "f16", np.float16),
                                                       ("v2", "f16x2", np.float16)])  # fmt: skip
@pytest.mark.parametrize("form", ["atom", "red"])
def test_vectors(rng: np.random.Generator, vector: str, kind: str, dtype: type, form: str) -> None:
    """Every lane adds a vector to one of eight places; small integers, so that all orders agree."""
    packed, count = 2 if kind == "f16x2" else 1, int(vector[1])
    elements, letter = packed * count, {"f32": "f", "f16x2": "r", "f16": "h"}[kind]
    step = elements * np.dtype(dtype).itemsize
    each, move = step // count, {2: "b16", 4: "b32"}[step // count]
    memory: np.ndarray = rng.integers(-8, 8, (8, elements)).astype(dtype)
    values: np.ndarray = rng.integers(-8, 8, (N, elements)).astype(dtype)
    olds: np.ndarray = np.zeros((N, elements), dtype)
    start = memory.copy()
    regs = [f"%{letter}{i}" for i in range(40, 40 + count)]
    olds_in = [f"%{letter}{i}" for i in range(20, 20 + count)]
    loads = "".join(f"ld.global.{move} {r}, [%rd5+{i * each}];" for i, r in enumerate(regs))
    stores = "".join(f"st.global.{move} [%rd6+{i * each}], {r};" for i, r in enumerate(olds_in))
    noftz = "" if kind == "f32" else ".noftz"
    operands = f"[%rd4], {{{', '.join(regs)}}};"
    line = f"red.global.add{noftz}.{vector}.{kind} {operands}"
    if form == "atom":
        line = f"atom.global.add{noftz}.{vector}.{kind} {{{', '.join(olds_in)}}}, {operands}"
    body = f"""mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 7; ld.param.b64 %rd1, [p0]; ld.param.b64 %rd2, [p1];
    ld.param.b64 %rd3, [p2]; mad.wide.u32 %rd4, %r2, {step}, %rd1; mad.wide.u32 %rd5, %r1, {step}, %rd2;
    mad.wide.u32 %rd6, %r1, {step}, %rd3; {loads} {line} {stores if form == "atom" else ""}"""
    run(kernel(body, 3), memory, values, olds, block=(N, 1, 1))
    wanted = start.astype(np.float64)
    for i in range(N):
        wanted[i % 8] += values[i]
    np.testing.assert_array_equal(memory, wanted)
    if form == "atom":  # some thread came first
        for place in range(8):
            assert (olds[place::8] == start[place]).any(axis=0).all()


# -- forms, order, errors -------------------------------------------------------------------------


def test_modifiers_cache_policies_and_the_sink() -> None:
    out = np.zeros(8, np.uint32)
    body = """ld.param.b64 %rd1, [p0]; mov.u32 %r1, 1; createpolicy.fractional.L2::evict_last.b64 %rd5, 1.0;
    atom.acq_rel.gpu.global.add.u32 %r2, [%rd1], %r1; atom.relaxed.sys.global.add.u32 _, [%rd1+4], 2;
    atom.global.add.L2::cache_hint.u32 %r3, [%rd1+8], %r1, %rd5;
    red.release.cta.global.max.s32 [%rd1+12], %r1; red.global.add.L2::cache_hint.u32 [%rd1+16], 3, %rd5;
    atom.add.f32 %f1, [%rd1+20], 0f3F800000; atom.global.exch.b32 %r4, [%rd1+24], -1;"""
    run(kernel(body), out, block=(32, 1, 1))
    assert out.tolist() == [32, 64, 32, 1, 96, np.float32(32).view(np.uint32), 0xFFFFFFFF, 0]


def test_a_counter_hands_out_every_ticket_once() -> None:
    counter, tickets = np.zeros(1, np.uint32), np.zeros(5 * 256, np.uint32)
    body = """ld.param.b64 %rd1, [p0]; ld.param.b64 %rd2, [p1]; atom.global.add.u32 %r1, [%rd1], 1;
    mad.wide.u32 %rd3, %r1, 4, %rd2; atom.global.add.u32 %r2, [%rd3], 1;"""
    run(kernel(body, 2), counter, tickets, grid=(5, 1, 1), block=(256, 1, 1))
    assert counter[0] == 1280 and (tickets == 1).all()


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("line", "error", "says"),
    [
        ("atom.global.add.u32 %r2, [%rd1+400], 1;", OutOfBounds, "outside every tensor"),
        ("atom.global.add.u64 %rd2, [%rd1+4], 1;", Misaligned, "multiple of 8"),
        ("atom.shared.add.u32 %r2, [%r3], 1;", Uninitialized, "nothing has written"),
        ("atom.shared.add.u32 %r2, [%r3+8], 1;", OutOfBounds, "of shared memory"),
        ("red.global.add.u32 [table], 1;", OutOfBounds, "read-only"),
        ("red.global.add.u32 [%rd1], %r50;", Uninitialized, "register %r50"),
    ],
)
def test_bad_addresses(line: str, error: type[Exception], says: str) -> None:
    body = f".shared .align 4 .b8 s[8]; ld.param.b64 %rd1, [p0]; mov.u32 %r3, s; {line}"
    with pytest.raises(error, match=says):
        run(kernel(body, header=".const .align 4 .b32 table[2] = {1, 2};"), np.zeros(100, np.uint32))


@pytest.mark.emulator
@pytest.mark.parametrize(
    "line",
    ["atom.global.sub.u32 %r1, [%rd1], 1;", "atom.global.add.s64 %rd2, [%rd1], 1;", "red.global.exch.b32 [%rd1], 1;",
     "atom.global.add.f16 %h1, [%rd1], %h2;", "atom.global.inc.u64 %rd2, [%rd1], 1;",
     "red.async.relaxed.cluster.global.add.u32 [%rd1], 1;", "atom.shared.add.v2.f32 {%f1, %f2}, [%r1], {%f3, %f4};",
     "atom.global.add.u32 %r1, [%rd1];", "atom.global.cas.b32 %r1, [%rd1], 1;", "atom.const.add.u32 %r1, [%rd1], 1;"],
)  # fmt: skip
def test_forms_that_do_not_exist(line: str) -> None:
    with pytest.raises(UnknownInstruction, match=re.escape(line.split()[0])):
        run(kernel(line), np.zeros(1, np.uint32))
