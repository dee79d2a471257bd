"""Chapter 07's exercises: what the checks say of wrong answers, and right answers of any form."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.chapters import exercises

CHAPTER = "07_mma_sync"

MEASURED = """
slots, claimed = sort_out(measure()), cute_places()
named = names(slots, claimed)
measured = {"A": measured_place("A")}
"""
ANSWERS = """
A, B = torch.randn(16, 8), torch.randn(16, 8)
lane, v = np.arange(32)[:, None], np.arange(4)


def fetch_by(tiled_mma, tid, sA, atom):
    tCrA = tiled_mma.make_fragment_A(tiled_mma.get_slice(tid).partition_A(sA))
    fetch = cute.make_tiled_copy_A(atom, tiled_mma)
    cute.copy(fetch, fetch.get_slice(tid).partition_S(sA), fetch.retile(tCrA))
    return tCrA


def two_matrices(tiled_mma, tid, sA):
    return fetch_by(tiled_mma, tid, sA, cute.make_copy_atom(ldmatrix(2, True), sA.element_type))


def without_retile(tiled_mma, tid, sA):
    tCrA = tiled_mma.make_fragment_A(tiled_mma.get_slice(tid).partition_A(sA))
    fetch = cute.make_tiled_copy_A(cute.make_copy_atom(ldmatrix(4, True), sA.element_type), tiled_mma)
    cute.copy(fetch, fetch.get_slice(tid).partition_S(sA), tCrA)
    return tCrA


def by_elements(tiled_mma, tid, sA):
    tCsA = tiled_mma.get_slice(tid).partition_A(sA)
    tCrA = tiled_mma.make_fragment_A(tCsA)
    cute.basic_copy(tCsA, tCrA)
    return tCrA


def zeros(tiled_mma, tid, sA):
    tCrA = tiled_mma.make_fragment_A(tiled_mma.get_slice(tid).partition_A(sA))
    tCrA.fill(0.0)
    return tCrA


def not_a_number(tiled_mma, tid, sA):
    tCrA = tiled_mma.make_fragment_A(tiled_mma.get_slice(tid).partition_A(sA))
    tCrA.fill(float("nan"))
    return tCrA


def never_filled(tiled_mma, tid, sA):
    return tiled_mma.make_fragment_A(tiled_mma.get_slice(tid).partition_A(sA))


def lane_zero(tiled_mma, tid, sA):
    return fetch_transposed(tiled_mma, 0, sA)


def by_name(tiled_mma, tid, sA):
    load = warp.LdMatrix8x8x16bOp(transpose=True, num_matrices=4)
    return fetch_by(tiled_mma, tid, sA, cute.make_copy_atom(load, sA.element_type))


def step_by_step(tiled_mma, tid, sA):
    tCrA = tiled_mma.make_fragment_A(tiled_mma.get_slice(tid).partition_A(sA))
    fetch = cute.make_tiled_copy_A(cute.make_copy_atom(ldmatrix(4, True), cutlass.BFloat16), tiled_mma)
    from_, to = fetch.get_slice(tid).partition_S(sA), fetch.get_slice(tid).retile(tCrA)
    for k in range(2):
        cute.copy(fetch, from_[None, None, k], to[None, None, k])
    return tCrA


@cute.jit
def compiled_function(tiled_mma: cute.TiledMma, tid: cutlass.Int32, sA: cute.Tensor):
    return fetch_transposed(tiled_mma, tid, sA)


def first_half(tiled_mma, tCrC, tCrA, tCrB, k):
    cute.gemm(tiled_mma, tCrC, tCrA[None, None, 2 * k], tCrB[None, None, 2 * k], tCrC)


def nothing(tiled_mma, tCrC, tCrA, tCrB, k):
    pass


def nan_sums(tiled_mma, tCrC, tCrA, tCrB, k):
    tCrC.fill(float("nan"))


def from_torch(tiled_mma, tCrC, tCrA, tCrB, k):
    return A @ B.T


def whole_tile(tiled_mma, tCrC, tCrA, tCrB, k):
    cute.gemm(tiled_mma, tCrC, tCrA, tCrB, tCrC)


def whole_tile_once(tiled_mma, tCrC, tCrA, tCrB, k):
    if cutlass.const_expr(k == 0):  # right if there were two steps
        cute.gemm(tiled_mma, tCrC, tCrA, tCrB, tCrC)


def backwards(tiled_mma, tCrC, tCrA, tCrB, k):
    for half in (2 * k + 1, 2 * k):
        cute.gemm(tiled_mma, tCrC, tCrA[None, None, half], tCrB[None, None, half], tCrC)


def divided(tiled_mma, tCrC, tCrA, tCrB, k):
    by_two = (None, None, 2)
    A, B = cute.logical_divide(tCrA, by_two), cute.logical_divide(tCrB, by_two)
    cute.gemm(tiled_mma, tCrC, A[None, None, (None, k)], B[None, None, (None, k)], tCrC)


@cute.jit
def in_a_loop(
    tiled_mma: cute.TiledMma, tCrC: cute.Tensor, tCrA: cute.Tensor, tCrB: cute.Tensor, k: cutlass.Constexpr
):
    for half in cutlass.range_constexpr(2):
        cute.gemm(tiled_mma, tCrC, tCrA[None, None, 2 * k + half], tCrB[None, None, 2 * k + half], tCrC)
"""


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The exercises' checks with what they use, and answers that are parts of a kernel."""
    cells = ["look", "probe", "classes", "compare", "named", "permutation", "fetch", "conflicts", "ex-checks"]
    rng = torch.Generator().manual_seed(7)  # of the cell that random_problem is in
    folder = tmp_path_factory.mktemp("cells")
    return exercises.defined(CHAPTER, [*cells, "ex4-solution"], folder, MEASURED + ANSWERS, rng=rng)


CHECKS = {1: "check_slot", 2: "check_pitch", 3: "check_renamed", 4: "check_m_major", 5: "check_product"}
WRONG = {  # a part of what the check has to say
    1: {
        "14, 2": "A[11][4]",
        "3, 2": "is A[",
        "15, 3": "A[11][7]",
        "15, 6": "is A[",
        "15.5, 2": "whole number",
        "None, -1": "not None",
        "-17, 2": "lanes go from",
        "float('nan'), 2": "whole number",
        "'15', '2'": "not text",
        "(15, 2), 2": "whole number",
        "True, 2": "whole number",
        "lane, v": "one number",
        "A @ B.T, 2": "one number",
        "np.float32(3), 2": "is A[",
    },
    2: {
        "64": "32 wavefronts",
        "80": "8 wavefronts",
        "96": "16 wavefronts",
        "65": "not a multiple of 16",
        "136": "twice the room",
        "56": "overlap",
        "72.5": "whole number",
        "float('nan')": "whole number",
        "float('inf')": "whole number",
        "None": "not None",
        "'72'": "not text",
        "(72,)": "whole number",
        "A @ B.T": "one number",
        "lambda pitch: 72": "whole number",
        "np.float32(64)": "32 wavefronts",
    },
    3: {
        "((16,), (1,))": "[0, 1, 8, 9]",
        "((2, 4, 2), (8, 2, 1))": "a lane has k",
        "((2, 4, 2), (2, 4, 1))": "[0, 2, 1, 3]",
        "((2, 4, 2), (1, 1, 1))": "",
        "((8, 2), (-1, 2))": "stride -1: it leads to places before 0",
        "((2, 4, 2), (1, 4, -2))": "stride -2: it leads to places before 0",
        "((16,), (0,))": "",
        "((4, 4), (1, 8))": "",
        "((2, 4, 2, 2), (1, 4, 2, 16))": "has 32 values of k",
        "((8,), (1,))": "has 8 values of k",
        "'S<1,2,1> o 0 o (2,4,2):(1,4,2)'": "the permutation has no swizzle",
        "None": "not None",
        "float('nan')": "such as",
        "'16'": "",
        "torch.ones(2, 3)": "",
        "np.float32(3)": "",
        "A @ B.T": "",
    },
    4: {
        "lambda tiled_mma, tid, sA: sA": "",
        "two_matrices": "with 16 loads",
        "without_retile": "CuTe DSL would end this process",
        "by_elements": "loads per warp",
        "zeros": "values are not what",
        "not_a_number": "8192 of 8192",
        "never_filled": "",
        "lane_zero": "values are not what",
        "lambda tiled_mma, tid, sA: A @ B.T": "",
        "lambda *arguments: None": "",
        "None": "",
        "'fetch'": "",
        "(1, 2)": "",
        "np.float64(1)": "",
    },
    5: {
        "first_half": "elements are wrong: which atoms",
        "nothing": "elements are wrong",
        "nan_sums": "16384 of 16384",
        "from_torch": "",
        "whole_tile": "",
        "whole_tile_once": "",
        "None": "",
        "'gemm'": "",
        "(1, 2)": "",
        "np.float64(1)": "",
        "torch.mm": "",
    },
}
RIGHT = {
    1: ["15, 2", "15.0, np.int64(2)", "torch.tensor(15), np.array([2])", "value=np.uint8(2), lane=np.float64(15)"],
    2: ["72", "88", "np.int64(120)", "72.0"],
    3: [
        "((2, 4, 2), (1, 4, 2))",
        "(((2, 2, 2), 2), ((1, 8, 4), 2))",
        "(np.array([2, 4, 2]), (np.int64(1), 4, torch.tensor(2)))",
        "((2, (2, 2), (2, 1)), (1, (4, 8), (2, 0)))",
        "'(2,4,2):(1,4,2)'",
        "np.array([[2, 4, 2], [1, 4, 2]])",
        "lambda: cute.make_layout((2, 4, 2), stride=(1, 4, 2))",
    ],
    4: ["fetch_transposed", "by_name", "step_by_step", "compiled_function"],
    5: ["backwards", "divided", "in_a_loop"],
}


test_wrong_answers_are_told_why = exercises.wrong_answers_are_told_why(CHECKS, WRONG)
test_right_answers_of_any_form_are_accepted = exercises.right_answers_are_accepted(CHECKS, RIGHT)
