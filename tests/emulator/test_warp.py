"""Warp-wide instructions against Python loops over the lanes of each warp."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from cutetut.emulator.errors import DivergentBarrier, IllegalInstruction, Uninitialized, UnknownInstruction
from tests.emulator.harness import elementwise, kernel, run

u32 = np.uint32
FULL = 0xFFFFFFFF


def warps(values: np.ndarray) -> list[list[int]]:
    return [values[i : i + 32].tolist() for i in range(0, len(values), 32)]


# -- shfl.sync ------------------------------------------------------------------------------------


def shuffle(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """The pseudo-code of section 9.7.9.6: the lane read from, and the predicate."""
    bval, cval, segmask = b & 31, c & 31, (c >> 8) & 31
    max_lane = (lane & segmask) | (cval & ~segmask & 31)
    min_lane = lane & segmask
    if mode == "up":
        j, p = lane - bval, lane - bval >= max_lane
    elif mode == "down":
        j, p = lane + bval, lane + bval <= max_lane
    elif mode == "bfly":
        j, p = lane ^ bval, lane ^ bval <= max_lane
    else:
        j = min_lane | (bval & ~segmask & 31)
        p = j <= max_lane
    return (j if p else lane), p


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("segments", [32, 16, 8, 4, 2])
@pytest.mark.parametrize("b", [0, 1, 3, 7, 16, 31, 33])
def test_shuffle_in_segments(rng: np.random.Generator, mode: str, segments: int, b: int) -> None:
    c = ((32 - segments) << 8) | (0 if mode == "up" else 31)
    x = rng.integers(0, 1 << 30, 64, dtype=u32)
    lines = f"shfl.sync.{mode}.b32 %r2|%p1, %r1, {b}, {c}, -1; shl.b32 %r2, %r2, 1; @%p1 or.b32 %r2, %r2, 1;"
    got = elementwise(lines, [(x, "%r1")], u32, "%r2")
    wanted = []
    for warp in warps(x):
        for lane in range(32):
            j, p = shuffle(mode, lane, b, c)
            wanted.append(warp[j] << 1 | p)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffle_with_its_own_operands_in_every_lane(rng: np.random.Generator, mode: str) -> None:
    x = rng.integers(0, 1 << 30, 256, dtype=u32)
    b = rng.integers(0, 64, 256, dtype=u32)
    c = rng.integers(0, 1 << 13, 256, dtype=u32)
    lines = f"shfl.sync.{mode}.b32 %r4|%p1, %r1, %r2, %r3, -1; shl.b32 %r4, %r4, 1; @%p1 or.b32 %r4, %r4, 1;"
    got = elementwise(lines, [(x, "%r1"), (b, "%r2"), (c, "%r3")], u32, "%r4")
    wanted = []
    for i in range(256):
        j, p = shuffle(mode, i % 32, int(b[i]), int(c[i]))
        j %= 32
        wanted.append(int(x[i - i % 32 + j]) << 1 | p)
    np.testing.assert_array_equal(got, wanted)


def test_a_shuffle_may_overwrite_its_source_and_drop_its_result() -> None:
    x = np.arange(64, dtype=u32)
    got = elementwise("shfl.sync.idx.b32 %r1, %r1, 5, 31, -1;", [(x, "%r1")], u32, "%r1")
    np.testing.assert_array_equal(got, np.repeat([5, 37], 32))


def test_halves_of_a_warp_shuffle_in_their_own_branches() -> None:
    lines = """setp.lt.u32 %p1, %r1, 48; and.b32 %r3, %r1, 31; setp.lt.u32 %p2, %r3, 16; @%p2 bra LOW;
    shfl.sync.bfly.b32 %r2, %r1, 1, 31, 0xffff0000; bra END;
    LOW: shfl.sync.down.b32 %r2, %r1, 8, 0x100f, 0x0000ffff;
    END:"""
    got = elementwise(lines, [(np.arange(64, dtype=u32), "%r1")], u32, "%r2")
    lane = np.arange(64) % 32
    wanted = np.where(lane >= 16, np.arange(64) ^ 1, np.where(lane < 8, np.arange(64) + 8, np.arange(64)))
    np.testing.assert_array_equal(got, wanted)


def test_a_tree_sum() -> None:
    x = np.arange(1000, 1128, dtype=u32)
    lines = "mov.u32 %r2, %r1;" + "".join(
        f"shfl.sync.bfly.b32 %r3, %r2, {1 << k}, 31, -1; add.u32 %r2, %r2, %r3;" for k in range(5)
    )
    got = elementwise(lines, [(x, "%r1")], u32, "%r2")
    np.testing.assert_array_equal(got, np.repeat(x.reshape(4, 32).sum(axis=1), 32))


# -- votes, match, redux, elect -------------------------------------------------------------------


def by_group(values: np.ndarray, masks: np.ndarray, combine: Callable[[list[int], list[int], int], int]) -> list[int]:
    """combine(lanes, their values, own lane) for each thread, over the existing lanes of its own mask."""
    result = []
    for i in range(len(values)):
        first, mask = i - i % 32, int(masks[i])
        lanes = [k for k in range(32) if mask >> k & 1 and first + k < len(values)]
        result.append(combine(lanes, [int(values[first + k]) for k in lanes], i % 32))
    return result


def signed(values: list[int]) -> list[int]:
    return [v - (1 << 32) if v >= 1 << 31 else v for v in values]


def bits(lanes: list[int]) -> int:
    return sum(1 << k for k in lanes)


OPERATIONS: dict[str, Callable[[list[int], list[int], int], int]] = {
    "redux.sync.add.u32 %r2, %r1, {m};": lambda lanes, v, own: sum(v) & FULL,
    "redux.sync.add.s32 %r2, %r1, {m};": lambda lanes, v, own: sum(v) & FULL,
    "redux.sync.min.u32 %r2, %r1, {m};": lambda lanes, v, own: min(v),
    "redux.sync.max.u32 %r2, %r1, {m};": lambda lanes, v, own: max(v),
    "redux.sync.min.s32 %r2, %r1, {m};": lambda lanes, v, own: min(signed(v)) & FULL,
    "redux.sync.max.s32 %r2, %r1, {m};": lambda lanes, v, own: max(signed(v)) & FULL,
    "redux.sync.and.b32 %r2, %r1, {m};": lambda lanes, v, own: int(np.bitwise_and.reduce(v)),
    "redux.sync.or.b32 %r2, %r1, {m};": lambda lanes, v, own: int(np.bitwise_or.reduce(v)),
    "redux.sync.xor.b32 %r2, %r1, {m};": lambda lanes, v, own: int(np.bitwise_xor.reduce(v)),
    "and.b32 %r3, %r1, 3; match.any.sync.b32 %r2, %r3, {m};": lambda lanes, v, own: bits(
        [k for k, x in zip(lanes, v, strict=True) if x & 3 == v[lanes.index(own)] & 3]
    ),
    "and.b32 %r3, %r1, 1; mov.b64 %rd9, {{%r9, %r3}}; match.any.sync.b64 %r2, %rd9, {m};": lambda lanes, v, own: bits(
        [k for k, x in zip(lanes, v, strict=True) if x & 1 == v[lanes.index(own)] & 1]
    ),
    "setp.lt.s32 %p1, %r1, 0; vote.sync.ballot.b32 %r2, %p1, {m};": lambda lanes, v, own: bits(
        [k for k, x in zip(lanes, signed(v), strict=True) if x < 0]
    ),
    "setp.ne.u32 %p1, %r1, %r8; vote.sync.all.pred %p2, %p1, {m}; selp.u32 %r2, 1, 0, %p2;": lambda lanes, v, own: int(
        all(x != 5 for x in v)
    ),
    "setp.ne.u32 %p1, %r1, %r8; vote.sync.any.pred %p2, !%p1, {m}; selp.u32 %r2, 1, 0, %p2;": lambda lanes, v, own: int(
        any(x == 5 for x in v)
    ),
    "setp.ne.u32 %p1, %r1, %r8; vote.sync.uni.pred %p2, %p1, {m}; selp.u32 %r2, 1, 0, %p2;": lambda lanes, v, own: int(
        len({x == 5 for x in v}) == 1
    ),
    "match.all.sync.b32 %r2|%p2, %r1, {m}; @%p2 xor.b32 %r2, %r2, -1;": lambda lanes, v, own: (
        bits(lanes) ^ FULL if len(set(v)) == 1 else 0
    ),
    "elect.sync %r2|%p2, {m}; @%p2 or.b32 %r2, %r2, 256;": lambda lanes, v, own: (
        lanes[0] | (256 if own == lanes[0] else 0)
    ),
}


def values_for(rng: np.random.Generator, n: int) -> np.ndarray:
    """Random words; the second warp is constant and the third holds a few fives, so that votes differ."""
    x = rng.integers(0, 1 << 32, n, dtype=u32)
    x[32:64], x[64:70] = 5, 5
    return x


@pytest.mark.parametrize("line", OPERATIONS)
@pytest.mark.parametrize("threads", [128, 128 + 20])
def test_whole_warps(rng: np.random.Generator, line: str, threads: int) -> None:
    """The full mask, with a last warp that is not full."""
    x = values_for(rng, threads)
    got = elementwise("mov.u32 %r9, 77; mov.u32 %r8, 5;" + line.format(m="-1"), [(x, "%r1")], u32, "%r2")
    np.testing.assert_array_equal(got, by_group(x, np.full(threads, FULL), OPERATIONS[line]))


@pytest.mark.parametrize("line", OPERATIONS)
def test_groups_inside_a_warp(rng: np.random.Generator, line: str) -> None:
    """Odd and even lanes, and four quarters, in different branches with their own masks."""
    x, lane = values_for(rng, 128), np.arange(128) % 32
    for masks in (
        np.where(lane % 2 == 0, 0x55555555, 0xAAAAAAAA),
        np.left_shift(0xFF, lane // 8 * 8),
    ):
        lines = f"""mov.u32 %r9, 77; mov.u32 %r8, 5;
        and.b32 %r6, %r5, 0x1; setp.eq.u32 %p5, %r6, 0; @%p5 bra OTHER;
        {line.format(m="%r5")} bra END;
        OTHER: {line.format(m="%r5")}
        END:"""
        got = elementwise(lines, [(x, "%r1"), (masks.astype(u32), "%r5")], u32, "%r2")
        np.testing.assert_array_equal(got, by_group(x, masks, OPERATIONS[line]))


@pytest.mark.emulator
def test_groups_with_different_masks_at_one_instruction(rng: np.random.Generator) -> None:
    """Masks may differ between groups that execute the very same instruction; on hardware they come in turns."""
    x, lane = values_for(rng, 64), np.arange(64) % 32
    masks = np.left_shift(0xF, lane // 4 * 4)
    for line, combine in OPERATIONS.items():
        lines = "mov.u32 %r9, 77; mov.u32 %r8, 5;" + line.format(m="%r5")
        got = elementwise(lines, [(x, "%r1"), (masks.astype(u32), "%r5")], u32, "%r2")
        np.testing.assert_array_equal(got, by_group(x, masks, combine), err_msg=line)


def test_lanes_that_exited_do_not_take_part() -> None:
    out = np.zeros(32, u32)
    body = """mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 12; @%p1 ret;
    redux.sync.add.u32 %r2, %r1, -1; activemask.b32 %r3; xor.b32 %r2, %r2, %r3;
    ld.param.b64 %rd1, [p0]; mad.wide.u32 %rd2, %r1, 4, %rd1; st.global.b32 [%rd2], %r2;"""
    run(kernel(body), out)
    wanted = sum(range(12, 32)) ^ 0xFFFFF000
    np.testing.assert_array_equal(out, np.where(np.arange(32) < 12, 0, wanted))


# -- what must be an error ------------------------------------------------------------------------


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("threads", "lines", "error", "says"),
    [
        (50, "shfl.sync.down.b32 %r2, %r1, 4, 31, -1;", Uninitialized, "lanes 14, 15, 16, 17 read from lanes 18, 19"),
        (64, "shfl.sync.idx.b32 %r2, %r1, 31, 31, 0xffff;", IllegalInstruction, "not in its own member mask"),
        (32, "setp.lt.u32 %p1, %r1, 16; @%p1 shfl.sync.idx.b32 %r2, %r1, 20, 31, 0xffff;", Uninitialized,
         "from lanes 20"),
        (32, "setp.lt.u32 %p1, %r1, 16; @%p1 redux.sync.add.u32 %r2, %r1, -1;", DivergentBarrier, "do not execute it"),
        (32, "setp.lt.u32 %p1, %r1, 16; @%p1 bra E; elect.sync %r2|%p2, -1; E: bar.warp.sync -1;", DivergentBarrier,
         "only lanes 16-31"),
        (32, "setp.lt.u32 %p1, %r1, 16; selp.b32 %r3, 0xffff, -1, %p1; vote.sync.any.pred %p2, %p1, %r3;",
         IllegalInstruction, "pass a different one"),
        (32, "setp.lt.u32 %p1, %r1, 16; @%p1 bra E; bar.warp.sync 0xffff; E:", IllegalInstruction,
         "bar.warp.sync: the executing lane is not in its own member mask"),
        (64, "bar.warp.sync 0xffff;", IllegalInstruction,
         "bar.warp.sync: the executing lane is not in its own member mask"),
    ],
)  # fmt: skip
def test_undefined_uses_are_errors(threads: int, lines: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        elementwise(f"mov.u32 %r2, 0; {lines}", [(np.arange(threads, dtype=u32), "%r1")], u32, "%r2")


@pytest.mark.emulator
@pytest.mark.parametrize(
    "line",
    ["shfl.down.b32 %r2, %r1, 1, 31;", "vote.all.pred %p1, %p2;", "redux.sync.add.f32 %r2, %r1, -1;",
     "redux.sync.mul.u32 %r2, %r1, -1;", "shfl.sync.down.b64 %rd2, %rd1, 1, 31, -1;",
     "match.some.sync.b32 %r2, %r1, -1;",
     "vote.sync.none.pred %p1, %p2, -1;", "shfl.sync.idx.b32 %r2, %r1, 1, 31;", "activemask.b64 %rd1;"],
)  # fmt: skip
def test_forms_that_sm_90_does_not_have(line: str) -> None:
    with pytest.raises(UnknownInstruction, match=re.escape(line.split()[0])):
        run(kernel(line), np.zeros(1, u32))
