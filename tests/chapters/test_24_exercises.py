"""Chapter 24's exercises: what their checks say of right answers in other forms, and of wrong ones."""

from __future__ import annotations

from typing import Any

import pytest

from cutetut.course import notebooks
from tests.chapters import exercises

CHAPTER = "24_flash_decode"

ANSWERS = """
import numpy as np


def nan_part(a, b):
    return a[0] * float("nan"), a[1]


def first_part(a, b):
    return a[0], a[1]


def zero_part(a, b):
    return a[0] * 0.0, a[1] * 0.0


@cute.jit
def unguarded(a, b):
    top = cute.arch.fmax(a[1], b[1])
    of_a, of_b = rows.power(a[1] - top), rows.power(b[1] - top)
    return (a[0] * of_a + b[0] * of_b) / (of_a + of_b), top + cute.math.log(of_a + of_b)


@cute.jit
def without_a_top(a, b):
    of_a, of_b = rows.power(a[1]), rows.power(b[1])
    total = of_a + of_b
    return (a[0] * of_a + b[0] * of_b) * (0.0 if total == 0.0 else 1.0 / total), cute.math.log(total)


@cute.jit
def by_sigmoid(a, b):
    out, lse = a[0], a[1]
    if b[1] > a[1]:
        out, lse = b[0], b[1]
    share = rows.power(rows.finite(cute.arch.fmin(a[1], b[1])) - lse)
    if a[1] == -cutlass.Float32.inf or b[1] == -cutlass.Float32.inf:
        share = cutlass.Float32(0.0)
    other = a[0] + b[0] - out
    return (out + share * other) / (1.0 + share), lse + cute.math.log(1.0 + share)


@cute.jit
def as_a_list(a, b):
    return list(by_weight(b, a))


@cute.jit
def in_powers_of_two(a, b):
    top = rows.finite(cute.arch.fmax(a[1], b[1]))
    of_a, of_b = (cute.math.exp2((each[1] - top) * rows.LOG2E) for each in (a, b))
    total = of_a + of_b
    safe = cutlass.Float32(1.0) if total == 0.0 else total
    return (a[0] * of_a + b[0] * of_b) / safe, top + cute.math.log2(total) / rows.LOG2E


def gather(value):
    @cute.kernel
    def kernel(mPages: cute.Tensor, mTable: cute.Tensor, mLengths: cute.Tensor, mOut: cute.Tensor):
        d, _, _ = cute.arch.thread_idx()
        key, b, _ = cute.arch.block_idx()
        value(mPages, mTable, mLengths, mOut, d, key, b)

    return kernel


@cute.jit
def turned(mPages, mTable, mLengths, mOut, d, key, b):
    if key >= mLengths[b]:
        mOut[b, key, d] = cutlass.Float32(-1.0)
    else:
        mOut[b, key, d] = mPages[mTable[b, key // 5], key - key // 5 * 5, d]


@cute.jit
def first_filled(mPages, mTable, mLengths, mOut, d, key, b):
    mOut[b, key, d] = cutlass.Float32(-1.0)
    if mLengths[b] > key:
        page = mTable[b, key // mPages.shape[1]]
        mOut[b, key, d] = mPages[page, key % mPages.shape[1], d]


@cute.jit
def flat_offset(mPages, mTable, mLengths, mOut, d, key, b):
    value = cutlass.Float32(-1.0)
    if key < mLengths[b]:
        value = (mPages.iterator + (mTable[b, key // 5] * 5 + key % 5) * 32 + d).load()
    mOut[b, key, d] = value


@cute.jit
def unlooked(mPages, mTable, mLengths, mOut, d, key, b):
    mOut[b, key, d] = mPages[b * 3 + key // 5, key % 5, d]


@cute.jit
def one_too_far(mPages, mTable, mLengths, mOut, d, key, b):
    value = cutlass.Float32(-1.0)
    if key < mLengths[b]:
        value = mPages[mTable[b, (key + 1) // 5], key % 5, d]
    mOut[b, key, d] = value


@cute.jit
def not_a_number(mPages, mTable, mLengths, mOut, d, key, b):
    mOut[b, key, d] = cutlass.Float32(float("nan"))


def sums(add, reset, atomic=False):
    @cute.kernel
    def kernel(mX: cute.Tensor, mPart: cute.Tensor, mCount: cute.Tensor, mY: cute.Tensor):
        lane, (cta, _, _) = cute.arch.lane_idx(), cute.arch.block_idx()
        ctas = mX.shape[0]
        mine = cute.arch.warp_reduction_sum(mX[cta, lane])
        if lane == 0:
            mPart[cta] = mine
            if add(mCount) == ctas - 1:
                total = cutlass.Float32(0.0)
                for other in cutlass.range_constexpr(ctas):
                    total += mPart[ctas - 1 - other]
                mY[0] = total
                if cutlass.const_expr(reset == "stored"):
                    mCount[0] = 0
                elif cutlass.const_expr(reset == "subtracted"):
                    cute.arch.atomic_add(mCount.iterator, cutlass.Int32(-ctas))

    return kernel


def ordered(mCount):
    return cute.arch.atomic_add(mCount.iterator, cutlass.Int32(1), sem="acq_rel", scope="gpu")


@cute.jit
def by_fences(mCount):
    cute.arch.fence_acq_rel_gpu()
    before = cute.arch.atomic_add(mCount.iterator, cutlass.Int32(1))
    cute.arch.fence_acq_rel_gpu()
    return before


def system_wide(mCount):
    return cute.arch.atomic_add(mCount.iterator, cutlass.Int32(1), sem="acq_rel", scope="sys")


def only_released(mCount):
    return cute.arch.atomic_add(mCount.iterator, cutlass.Int32(1), sem="release", scope="gpu")


@cute.kernel
def of_one_cta(mX: cute.Tensor, mPart: cute.Tensor, mCount: cute.Tensor, mY: cute.Tensor):
    mY[0] = cute.arch.warp_reduction_sum(mX[0, cute.arch.lane_idx()])


@cute.kernel
def of_all_by_one(mX: cute.Tensor, mPart: cute.Tensor, mCount: cute.Tensor, mY: cute.Tensor):
    total = cutlass.Float32(0.0)
    for i in cutlass.range(mX.shape[0]):
        total += cute.arch.warp_reduction_sum(mX[i, cute.arch.lane_idx()])
    if cute.arch.block_idx()[0] == 0:
        mY[0] = total


def summed(last, turn=lambda before, ctas: before):
    @cute.kernel
    def kernel(mX: cute.Tensor, mPart: cute.Tensor, mCount: cute.Tensor, mY: cute.Tensor):
        lane, (cta, _, _) = cute.arch.lane_idx(), cute.arch.block_idx()
        ctas = mX.shape[0]
        mine = cute.arch.warp_reduction_sum(mX[cta, lane])
        before = cutlass.Int32(0)
        if lane == 0:
            mPart[cta] = mine
            before = ordered(mCount)
        before = turn(cute.arch.shuffle_sync(before, 0), ctas)
        cute.arch.sync_warp()
        if before == last(ctas):
            mY[0] = cute.arch.warp_reduction_sum(mPart[lane] if lane < ctas else cutlass.Float32(0.0))
            if cutlass.const_expr(turn(ctas, ctas) != 0):
                mCount[0] = 0

    return kernel
"""
OTHER = [*exercises.OTHER, "lambda A, B: A @ B.T", "torch.ones(3, 3)"]
CHECKS: dict[str, tuple[list[str], list[str]]] = {  # wrong answers, and right ones
    "check_splits": (
        ["7, 0, 27", "5, 20, 38", "6, 7, 32", "6, 8, 31", "0, 80, 188", "-6, 8, 32", "10**30, 8, 32",
         *(f"{x}, 8, 32" for x in exercises.NUMBERS), *(f"6, 8, {x}" for x in exercises.NUMBERS)],
        ["6, 8, 32", "np.int64(6), 8.0, torch.tensor(32)", "np.float32(6), np.uint8(8), np.array([32])"],
    ),
    "check_average": (
        [*(f"{x}, [0.0]" for x in exercises.OTHER), *(f"[0.0, 0.0], {x}" for x in exercises.OTHER), "[0.0], [0.0]",
         "[], [1.0]", "[1.0, 1.0], [1.0]", "['0', '0'], [0.7]", "torch.ones(3, 3), [0.0]", "[math.inf, 0.0], [0.0]",
         "lambda A, B: A @ B.T, [0.0]", "np.array(0.0), [0.0, 0.0]", "[0.0, 0.0], torch.tensor(0.0)", "list, [0.0]"],
        ["[0.0, 0.0], [math.log(2)]", "np.zeros(4), torch.full((2,), math.log(2))",
         "(math.log(0.25),) * 3, [math.log(0.75)]", "[10.0, 10.0], [10.693147]", "[1.0], [-0.098612] * 3"],
    ),
    "check_merge_two": (
        [*OTHER, "nan_part", "first_part", "zero_part", "unguarded", "without_a_top", "merge_two"],
        ["by_sigmoid", "as_a_list", "in_powers_of_two"],
    ),
    "check_gather": (
        [*OTHER, "gather(unlooked)", "gather(one_too_far)", "gather(not_a_number)", "gather_kernel"],
        ["gather(turned)", "gather(first_filled)", "gather(flat_offset)"],
    ),
    "check_sum": (
        [*OTHER, "sums(ordered, '')", "sums(only_released, 'stored')", "of_one_cta", "of_all_by_one",
         "summed(lambda ctas: 5)", "sum_kernel"],
        ["summed(lambda ctas: ctas - 1)", "summed(lambda ctas: ctas - 1, lambda before, ctas: before % ctas)",
         "sums(ordered, 'subtracted')", "sums(by_fences, 'stored')", "sums(system_wide, 'stored')"],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The checks, what they use, and answers that are functions."""
    cells = ("ex3", "ex3-solution", "ex4", "ex5")
    given = "\n\n\n".join(notebooks.definitions(exercises.cell(CHAPTER, name)) for name in cells)
    return exercises.judges(CHAPTER, tmp_path_factory.mktemp(CHAPTER), f"{given}\n{ANSWERS}")


test_answers_are_judged = exercises.answers_are_judged(CHECKS)

EMPTY = "of the warp of empty parts: 32 of 32 lanes are wrong"
HINTS = {  # what a wrong answer is told
    "check_average([0.0, 0.0], [0.693])": "off by 2e-05, and 1e-05 is allowed",
    "check_merge_two(nan_part)": "not yet: o of the warp with parts: 32 of 32 lanes are wrong, 32 NaN; lse of",
    "check_merge_two(first_part)": "lse of the warp with parts: 32 of 32 lanes are wrong, 0 NaN",
    "check_merge_two(unguarded)": f"o {EMPTY}, 32 NaN",
    "check_merge_two(zero_part)": "o of the warp with parts: 32 of 32 lanes are wrong, 0 NaN; lse of the warp with",
    "check_merge_two(3)": "a function is asked for",
    "check_sum(sums(ordered, ''))": "not yet: in the second launch, 1 of 1 elements are wrong",
    "check_sum(sum_kernel)": "not yet: MissingBarrier: ",
    "check_sum(of_all_by_one)": "the total is right, and mPart does not hold the sum of each CTA's numbers",
    "check_sum(summed(lambda ctas: 5))": "not yet: by nine CTAs, ",
    "check_average(np.array(0.0), [0.0])": "the first part is a list of scores, not one number",
    "check_merge_two(without_a_top)": "o of the warp with parts: 32 of 32 lanes are wrong, 32 NaN",
}
test_wrong_answers_get_hints = exercises.wrong_answers_get_hints(HINTS)
