"""Chapter 05's exercises: what the checks say of wrong answers, and right answers of any form."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chapters import exercises

CHAPTER = "05_partition_c"

COMPUTED = """
P = PERMUTATIONS["(16,4):(4,1)"]
maps = {name: ThreadMap.of(partition_by(p)) for name, p in PERMUTATIONS.items()}
"""
ANSWERS = """
PRODUCT = torch.ones(3, 3) @ torch.ones(3, 3).T


def plain(tCrC, tCgC):
    cute.autovec_copy(tCrC, tCgC)


def nan_by_rows(tCrC, tCgC):
    out = cute.make_fragment_like(tCgC)
    out.fill(float("nan"))
    cute.autovec_copy(out, tCgC)


def zeros_by_rows(tCrC, tCgC):
    out = cute.make_fragment_like(tCgC)
    out.fill(0.0)
    cute.autovec_copy(out, tCgC)


def registers_as_they_are(tCrC, tCgC):
    out = cute.make_fragment_like(tCgC)
    for v in range(cute.size(out)):
        (out.iterator + v)[0] = (tCrC.iterator + v)[0]
    cute.autovec_copy(out, tCgC)


def half_of_it(tCrC, tCgC):
    out = cute.make_fragment_like(tCgC)
    out.store(tCrC.load())
    cute.autovec_copy(out[None, 0, None], tCgC[None, 0, None])


def with_store(tCrC, tCgC):
    out = cute.make_fragment_like(tCgC)
    out.store(tCrC.load())
    cute.autovec_copy(out, tCgC)


def with_basic_copy(tCrC, tCgC):
    cute.basic_copy(tCrC, out := cute.make_fragment_like(tCgC))
    cute.autovec_copy(out, tCgC)


def row_by_row(tCrC, tCgC):
    for m in range(cute.size(tCgC, mode=[1])):
        row = cute.make_fragment_like(tCgC[None, m, None])
        for n in range(cute.size(row)):
            row[n] = tCrC[None, m, None][n]
        cute.autovec_copy(row, tCgC[None, m, None])


def first_block(tile, tid):
    return cute.local_tile(tile, (8, 8), (0, 0))


def other_permutation(tile, tid):
    return cute.local_tile(tile, (8, 8), (tid % 16, tid // 16))


def rows(tile, tid):
    return cute.local_tile(tile, (1, 64), (tid // 2, tid % 2))


def overlapping(tile, tid):
    return cute.local_tile(tile, (8, 8), (tid // 16, tid % 8))


def too_far(tile, tid):
    return cute.local_tile(tile, (8, 8), (tid // 8, tid % 16))


def by_local_tile(tile, tid):
    return cute.local_tile(tile, (8, 8), (tid // 16, tid % 16))


def by_zipped_divide(tile, tid):
    return cute.zipped_divide(tile, (8, 8))[(None, None), (tid // 16, tid % 16)]


def transposed_order(tile, tid):
    part = cute.flat_divide(tile, (8, 8))[None, None, tid // 16, tid % 16]
    return cute.make_tensor(part.iterator, cute.make_layout((8, 8), stride=(1, 128)))


def by_partition(tile, tid):
    blocks = PERMUTATIONS["(16,8):(8,1)"]
    return make_mma(blocks, blocks).get_slice(tid).partition_C(tile)
"""


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The exercises' checks with what they use, and answers that are parts of a kernel."""
    cells = ["picker", "atom", "exercise-checks"]
    return exercises.defined(CHAPTER, cells, tmp_path_factory.mktemp("cells"), COMPUTED + ANSWERS)


CHECKS = {
    1: "check_owner", 2: "check_layout_a", 3: "check_pair", 4: "check_row", 5: "check_operand_a", 6: "check_store",
    7: "check_by_hand",
}  # fmt: skip
A_LAYOUT = "((2,2,2),2,2):((1,256,8),1024,16)"
WRONG = {  # a part of what the check has to say
    1: {
        "0, 0": "is C[0][0]",
        "201, 45": "of thread 201 is C[",
        "256, 0": "threads go from",
        "-1, 3": "threads go from",
        "201.5, 44": "whole number",
        "float('nan'), 44": "whole number",
        "'201', 44": "whole number",
        "(201, 44), 0": "",
        "None, None": "whole number",
        "np.arange(3), 0": "one number",
        "True, 44": "whole number",
        "PRODUCT, 44": "one number",
        "np.float32(3), 0": "of thread 3 is C[",
    },
    2: {
        '"(1,(4,2),8):(0,(8,512),1)"': "the offset at V 0, M 0, K 1 is not 1",
        '"(8,8):(1,128)"': "2 modes",
        '"(1,8,8):(0,1,128)"': "the offset at",
        '"(1,(4,2),4):(0,(1,64),128)"': "mode K",
        '""': "",
        '"nonsense"': "",
        "None": "such as",
        "float('nan')": "such as",
        "3": "such as",
        "(4, 2)": "",
        "np.float64(2)": "",
        "lambda: None": "",
        "PRODUCT": "",
    },
    3: {
        "((16, 4), (4, 1)), ((16, 4), (4, 1))": "thread 17 owns rows 4 5 6 7",
        "((16, 8), (8, 1)), ((16, 8), (8, 1))": "sectors per request",
        "((16, 5), (5, 1)), None": "outside",
        "((16, 4), (2, 1)), None": "stride 2 inside",
        "((8, 3), (3, 1)), None": "",
        "None, None": "thread 17 owns rows 1 17",
        "'(16,4):(4,1)', None": "thread 17 owns rows 4 5 6 7",
        "((16, float('nan')), (8, 1)), None": "",
        "float('nan'), 1.0": "",
        "(1,), None": "",
        "3, 4": "",
        "np.ones(2), None": "",
        "np.float32(3), None": "",
        "PRODUCT, PRODUCT": "",
        "lambda A, B: A @ B.T, None": "",
    },
    4: {
        "((16, 4), (4, 1)), ((16, 4), (4, 1)), GRID": "rows 0 4",
        "None, None, GRID": "fours",
        "None, ((32, 4), (4, 1)), ((4, 32, 1), (32, 1, 0))": "not 256",
        "None, ((16, 8), (8, 1)), GRID": "",
        "None, None, None": "",
        "None, None, 'grid'": "",
        "None, None, float('nan')": "",
        "1, 2, 3": "",
        "None, ((32, 4), (4, float('nan'))), GRID": "",
        "'text', (1,), np.float32(3)": "",
        "None, None, PRODUCT": "",
    },
    5: {
        f'"{A_LAYOUT}", 0': "thread 37 does not start at 0",
        f'"{A_LAYOUT}", None': "whole number",
        f'"{A_LAYOUT}", float("nan")': "whole number",
        f'"{A_LAYOUT}", "546"': "whole number",
        '"((2,2,2),2,2):((1,8,256),1024,16)", 546': "the offset at",
        '"((2,2,2),4,2):((1,256,8),512,16)", 546': "mode M",
        '"(8,2,2):(1,1024,16)", 546': "the offset at",
        "546, 546": "such as",
        "None, 546": "such as",
        "(1, 2), (3, 4)": "",
        f'"{A_LAYOUT}", (546,)': "whole number",
        "PRODUCT, PRODUCT": "",
        "np.float32(3), 546": "",
    },
    6: {
        "plain": "64 requests per warp",
        "nan_by_rows": "16384 of 16384",
        "zeros_by_rows": "elements are wrong",
        "registers_as_they_are": "",
        "half_of_it": "elements are wrong",
        "lambda *arguments: None": "elements are wrong",
        "lambda tCrC, tCgC: torch.ones(128, 8) @ torch.ones(128, 8).T": "elements are wrong",
        "None": "",
        "'store'": "",
        "float('nan')": "",
        "(plain, plain)": "",
        "np.float32(3)": "",
    },
    7: {
        "first_block": "several threads store",
        "other_permutation": "belongs to thread",
        "rows": "belongs to thread",
        "overlapping": "owners",
        "too_far": "",
        "by_partition": "no TiledMMA",
        "lambda tile, tid: None": "your function returns NoneType, not a cute.Tensor",
        "lambda tile, tid: tid": "not a cute.Tensor",
        "lambda tile, tid: cute.make_layout((8, 8), stride=(1, 128))": "not a cute.Tensor",
        "lambda tile, tid: (tile, tile)": "your function returns tuple, not a cute.Tensor",
        "lambda tile, tid: tile": "16384 elements",
        "lambda tile, tid: cute.local_tile(tile, (8, 4), (tid // 16, tid % 16))": "32 elements",
        "lambda A, B: A @ B.T": "",
        "float('nan')": "",
        "(1,)": "a function of a tile and a thread's number is asked for, not tuple (1,)",
        "None": "is asked for, not None",
        "'(16,8):(8,1)'": "is asked for, not text",
        "np.float64(8)": "is asked for, not float64",
    },
}
RIGHT = {
    1: ["201, 44", "np.int64(201), 44.0", "torch.tensor(201), np.float32(44)", "thread=16 * 12 + 9, value=4 + 8 * 5"],
    2: [
        '"(1,(4,2),8):(0,(1,64),128)"',
        '"(1,(4,2),8):(77,(1,64),128)"',  # nobody takes a step in a mode of size 1
        "((1, (4, 2), 8), (0, (1, 64), 128))",
        '"(1,(4,2),(2,4)):(1,(1,64),(128,256))"',
        "lambda: cute.make_layout((1, (4, 2), 8), stride=(0, (1, 64), 128))",
    ],
    3: [
        "((16, 8), (8, 1)), ((16, 4), (1, 16))",
        "((16, 8), (8, 1)), None",
        "'(16,8):(8,1)', None",
        "((np.int64(16), 8), (np.int32(8), 1)), lambda: cute.make_layout((16, 4), stride=(1, 16))",
        "(np.array([16, 8]), torch.tensor([8, 1])), None",
        "[(16, 8), (8, 1)], ((16, 8), (1, 16))",
        "((16, (2, 4)), (8, (1, 2))), None",
    ],
    4: [
        "None, ((32, 4), (4, 1)), ((8, 32, 1), (32, 1, 0))",
        "((8, 16), (16, 1)), ((32, 4), (4, 1)), ((8, 32, 1), (32, 1, 0))",
        "None, '(32,4):(4,1)', (np.array([8, 32, 1]), (32, np.int64(1), 0))",
        "((8, 16), (1, 8)), ((32, (2, 2)), (4, (1, 2))), ((8, 32, 1), (32, 1, 256))",
    ],
    5: [
        f'"{A_LAYOUT}", 546',
        f'"{A_LAYOUT}", np.int32(546)',
        "(((2, 2, 2), 2, 2), ((1, 256, 8), 1024, 16)), 546.0",
        '"((2,(2,2)),2,2):((1,(256,8)),1024,16)", torch.tensor([546])',
    ],
    6: ["with_store", "with_basic_copy", "row_by_row"],
    7: ["by_local_tile", "by_zipped_divide", "transposed_order"],
}


def solution(number: int) -> str:
    """What the solution passes to its check, which no hint gives away."""
    call = exercises.cell(CHAPTER, f"exercise-{number}-solution").splitlines()[-1]
    return call.split("(", 1)[1].rsplit(")", 1)[0].strip('"')


test_wrong_answers_are_told_why = exercises.wrong_answers_are_told_why(CHECKS, WRONG, secret=solution)
test_right_answers_of_any_form_are_accepted = exercises.right_answers_are_accepted(CHECKS, RIGHT)
