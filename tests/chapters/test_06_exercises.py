"""Chapter 06's exercises: what the checks say of wrong answers, and right answers of any form."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.chapters import exercises

CHAPTER = "06_smem_tiling"

ANSWERS = '''
def alpha_only(tCrC, tCgC, alpha, beta):
    tCrC.store(alpha * tCrC.load())
    cute.autovec_copy(tCrC, tCgC)


def beta_of_the_product(tCrC, tCgC, alpha, beta):
    tCrC.store((alpha + beta) * tCrC.load())
    cute.autovec_copy(tCrC, tCgC)


def old_never_fetched(tCrC, tCgC, alpha, beta):
    old = cute.make_fragment_like(tCrC)
    tCrC.store(alpha * tCrC.load() + beta * old.load())
    cute.autovec_copy(tCrC, tCgC)


def nan_everywhere(tCrC, tCgC, alpha, beta):
    tCrC.fill(float("nan"))
    cute.autovec_copy(tCrC, tCgC)


def known_pairs(tCrC, tCgC, alpha, beta):
    """For the factors that the check once had, written into it, and no others."""
    old = cute.make_fragment_like(tCrC)
    cute.autovec_copy(tCgC, old)
    tCrC.store(2.0 * tCrC.load() - 0.5 * old.load() if beta else -1.0 * tCrC.load())
    cute.autovec_copy(tCrC, tCgC)


def old_always_read(tCrC, tCgC, alpha, beta):
    old = cute.make_fragment_like(tCrC)
    cute.autovec_copy(tCgC, old)
    tCrC.store(alpha * tCrC.load() + beta * old.load())
    cute.autovec_copy(tCrC, tCgC)


def from_torch(tCrC, tCgC, alpha, beta):
    return alpha * A @ B.T + beta * C


def beta_first(tCrC, tCgC, alpha, beta):
    for i in range(cute.size(tCgC)):
        tCgC[i] = beta * tCgC[i] if beta else cutlass.Float32(0.0)
        tCgC[i] = tCgC[i] + alpha * tCrC[i]


def element_by_element(tCrC, tCgC, alpha, beta):
    old = cute.make_fragment_like(tCrC)
    old.fill(0.0)
    if beta != 0:
        cute.basic_copy(tCgC, old)
    old.store(cutlass.Float32(beta) * old.load())
    tCrC.store(tCrC.load() * cutlass.Float32(alpha) + old.load())
    cute.basic_copy(tCrC, tCgC)


@cute.jit
def compiled_function(tCrC: cute.Tensor, tCgC: cute.Tensor, alpha: cutlass.Constexpr, beta: cutlass.Constexpr):
    for i in cutlass.range_constexpr(cute.size(tCgC)):
        if cutlass.const_expr(beta == 0):
            tCgC[i] = alpha * tCrC[i]
        else:
            tCgC[i] = alpha * tCrC[i] + beta * tCgC[i]


@cute.kernel
def straight_from_global_memory(
    mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor,
    tiled_mma: cute.TiledMma, g2s: cute.TiledCopy, plan: cutlass.Constexpr,
):
    """One barrier per K tile, and nothing for it to guard."""
    tid, _, _ = cute.arch.thread_idx()
    m, n, _ = cute.arch.block_idx()
    bM, bN, bK = plan.tile
    thr_mma = tiled_mma.get_slice(tid)
    tCgA = thr_mma.partition_A(cute.local_tile(mA, (bM, bK), (m, None)))
    tCgB = thr_mma.partition_B(cute.local_tile(mB, (bN, bK), (n, None)))
    tCgC = thr_mma.partition_C(cute.local_tile(mC, (bM, bN), (m, n)))
    tCrA = tiled_mma.make_fragment_A(tCgA[None, None, None, 0])
    tCrB = tiled_mma.make_fragment_B(tCgB[None, None, None, 0])
    tCrC = tiled_mma.make_fragment_C(tCgC)
    tCrC.fill(0.0)
    for kt in range(cute.size(tCgA, mode=[3])):
        cute.autovec_copy(tCgA[None, None, None, kt], tCrA)
        cute.autovec_copy(tCgB[None, None, None, kt], tCrB)
        cute.arch.sync_threads()
        cute.gemm(tiled_mma, tCrC, tCrA, tCrB, tCrC)
    cute.autovec_copy(tCrC, tCgC)
'''


FETCHED = """        cute.copy(g2s, tAgA[None, None, None, kt], tAsA[None, None, None, buffer])
        cute.copy(g2s, tBgB[None, None, None, kt], tBsB[None, None, None, buffer])
"""
ERASED = """        for gX, sX in ((tAgA, tAsA), (tBgB, tBsB)):
            zero = cute.make_fragment_like(gX[None, None, None, kt])
            zero.fill(0.0)
            cute.copy(g2s, zero, gX[None, None, None, kt])
            cute.copy(g2s, zero, sX[None, None, None, buffer])
"""
STEP = "        cute.gemm(tiled_mma, tCrC, tCrA, tCrB, tCrC)\n"
STEPS = """        for k in cutlass.range_constexpr(bK):
            cute.gemm(tiled_mma, tCrC, tCrA[None, None, k], tCrB[None, None, k], tCrC)
"""
OTHERS = {  # the solution of exercise 4 with these lines replaced
    "zeros_for_the_inputs": (FETCHED, ERASED),
    "not_a_number": (STEP, '        tCrC.fill(float("nan"))\n'),
    "one_step_at_a_time": (STEP, STEPS),
    "second_buffer_first": ("buffer = kt % 2\n", "buffer = (kt + 1) % 2\n"),
}


SECOND = "        cute.arch.sync_threads()  # everybody has read, before anybody writes the next tile\n"


def _one_buffer() -> str:
    """staged_kernel without its second barrier: a race."""
    one = exercises.renamed(CHAPTER, "staged", "staged_kernel", "one_buffer_one_barrier")
    assert one.count(SECOND) == 1
    return one.replace(SECOND, "")


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The exercises' checks with what they use, and answers that are kernels or parts of one."""
    two = exercises.renamed(CHAPTER, "ex4-solution", "two_buffers_kernel", "OTHER")
    others = (two.replace("OTHER", name).replace(old, new) for name, (old, new) in OTHERS.items())
    answers = "\n\n\n".join([ANSWERS, _one_buffer(), *others])
    cells = [*(f"ex{number}-check" for number in (1, 2, 3, 4)), "ex4-solution"]
    rng = torch.Generator().manual_seed(6)  # of the cell that random_problem is in
    A, B, C = (torch.randn(128, 128, generator=rng) for _ in range(3))  # as a reader has them who answers A @ B.T
    return exercises.defined(CHAPTER, cells, tmp_path_factory.mktemp("cells"), answers, rng=rng, A=A, B=B, C=C)


CHECKS = {1: "check_pad", 2: "check_lanes", 3: "check_epilogue", 4: "check_one_barrier"}
WRONG = {  # a part of what the check has to say
    1: {
        "8": "8 wavefronts",
        "4": "another one is asked for",
        "0": "32 wavefronts",
        "2": "not a multiple of 16",
        "36": "less than the row",
        "-4": "less than the row",
        "4.5": "whole number",
        "float('nan')": "whole number",
        "float('inf')": "whole number",
        "True": "whole number",
        "np.ones(2)": "one number",
        "A @ B.T": "one number",
        "[4]": "whole number",
        "'4'": "whole number",
        "None": "whole number",
        "(4,)": "whole number",
    },
    2: {
        "(((2, 2), (2, 4)), ((1, 4), (2, 8)))": "another one is asked for",
        "((4, 8), (1, 4))": "4 wavefronts for a load of tCsA",
        "((4, 8), (8, 1))": "4 wavefronts for a load of tCsB",
        "((8, 4), (1, 8))": "8x4 lanes",
        "((4, 8), (1, 3))": "each of 32 lanes",
        "((4, 8), (0, 0))": "each of 32 lanes",
        "None": "",
        "'4x8'": "",
        "'(4,8):(1,4)'": "4 wavefronts for a load of tCsA",
        "((4, 8, 1), (8, 1, 0))": "",
        "'S<2,0,3> o 0 o (4,8):(8,1)'": "",
        "4": "",
        "((4, 8), (float('nan'), 1))": "",
        "torch.ones(4, 8)": "",
    },
    3: {
        "lambda *arguments: None": "elements are wrong",
        "alpha_only": "elements are wrong",
        "beta_of_the_product": "elements are wrong",
        "nan_everywhere": "16384 of 16384",
        "known_pairs": "elements are wrong",
        "old_never_fetched": "elements are wrong",
        "old_always_read": "with beta = 0 the old C was NaN",
        "from_torch": "",
        "None": "a function of tCrC, tCgC, alpha and beta is asked for, not None",
        "'C'": "is asked for, not text",
        "3.0": "is asked for, not float 3.0",
    },
    4: {
        "staged_kernel": "2 barriers per K tile",
        "one_buffer_one_barrier": "MissingBarrier",
        "ring_kernel": "groups of cp.async",
        "not_a_number": "16384 of 16384",
        "zeros_for_the_inputs": "your answer changes mA",
        "scalar.scalar_gemm_kernel": "",
        "straight_from_global_memory": "nothing is stored to shared memory",
        "lambda A, B, *rest: A @ B.T": "",
        "None": "a function with @cute.kernel above it is asked for, not None",
        "'kernel'": "is asked for, not text",
        "torch.mm": "",
    },
}
RIGHT = {
    1: ["12", "28.0", "np.int64(20)", "torch.tensor([12])", "np.float32(28)"],
    2: [
        "(((2, 2), (2, 4)), ((2, 4), (1, 8)))",
        "(((2, 2), (2, 2, 2)), ((2, 8), (1, 4, 16)))",
        "[((2, 2), 8), ((1, 16), 2)]",
        "((np.array([2, 2]), (2, np.int64(4))), ((np.int32(2), 4), torch.tensor([1, 8])))",
        "'((2,2),(2,4)):((2,4),(1,8))'",
        "lambda: cute.make_layout(((2, 2), (2, 4)), stride=((2, 4), (1, 8)))",
    ],
    3: ["element_by_element", "compiled_function", "beta_first"],
    4: ["two_buffers_kernel", "one_step_at_a_time", "second_buffer_first"],
}


test_wrong_answers_are_told_why = exercises.wrong_answers_are_told_why(CHECKS, exercises.with_no_answers(WRONG))
test_right_answers_of_any_form_are_accepted = exercises.right_answers_are_accepted(CHECKS, RIGHT)
