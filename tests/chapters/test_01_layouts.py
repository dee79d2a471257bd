"""What chapter 01 prints, and its exercises' checks with answers of every kind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chapters import exercises

CHAPTER = "01_layouts"
TRIED = '''
class Bare:
    """An answer that is nothing the checks know."""

A, B = torch.randn(8, 16), torch.randn(8, 16)
strange = [None, "", "x", float("nan"), (), (1,), (1, 2, 3), 10**30, -1, True, {}, Bare(), lambda: None, torch.zeros(3),
           "(4,6)", "4:", ((4, 6), 1), np.nan, torch.tensor(float("nan")), np.float32(3), A @ B.T, lambda x, y: A @ B.T]
for check_it in (check_offset, check_blocks, check_equal, check_transpose, check_bias):
    print(check_it.__name__)
    for answer in strange:
        check_it(answer)
'''
RIGHT = """
for answer in (11, np.int64(11), torch.tensor(11), 11.0):
    check_offset(answer)
for answer in ("((2,2),(2,3)):((1,12),(2,4))", "(2,2,2,3):(1,12,2,4)", ((2, 2, 2, 3), (1, 12, 2, 4)),
               lambda: cute.make_layout(((2, 2), (2, 3)), stride=((1, 12), (2, 4)))):
    check_blocks(answer)
for answer in ("(2,2,3):(1,0,5)", "(2,6):(11,0)", ((2, 3, 2), (1, 1, 8)), LayoutViewer("((2,2),3):((1,0),5)")):
    check_equal(answer)
"""
NOT_EQUAL = """
for answer in ("12:1", "(3,4):(4,1)", "(3,4):(1,2)", "13:1", "(3,4):(0,4)", "(6,2):(1,12)", "(2,6):(11,-1)"):
    check_equal(answer)
"""
BLOCKS = """
for answer in ("((2,2),(2,3)):((2,12),(1,4))", "((2,2),(2,3)):((1,4),(2,8))", "(4,6):(1,4)"):
    check_blocks(answer)
"""
# Kernels: right ones, and A in place of its transpose, constants, nothing at all, and one past the end.
KERNELS = {
    "right, by columns": "y[cute.make_layout((16, 8), stride=(8, 1))(i)] = x[i]",
    "right, by hand": "y[i] = x[i % 8 * 16 + i // 8]",
    "right, by a coordinate": "y[i] = x[cute.make_layout((8, 16), stride=(16, 1))(cute.idx2crd(i, (8, 16)))]",
    "copies": "y[i] = x[i]",
    "wrong direction": "y[i] = x[cute.make_layout((16, 8), stride=(8, 1))(i)]",
    "constant": "y[i] = cutlass.Float32(0.0)",
    "not a number": "y[i] = cutlass.Float32(float('nan'))",
    "nothing": "pass",
    "changes x": "x[i] = y[i] = cutlass.Float32(0.0)",
    "past the end": "y[i] = x[i + 1000]",
    "no CuTe": "y[i] = nothing_of_this_name",
}
KERNEL = """
@cute.kernel
def tried_kernel(x: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    {}


check_transpose(tried_kernel)
"""
BIASES = {
    "right, nested": "y[i] = x[i] + bias[cute.make_layout(((4, 4), 8), stride=((1, 4), 0))(i)]",
    "right, by hand": "y[i] = x[i] + bias[i % 16]",
    "right, by a coordinate": "y[i] = bias[cute.idx2crd(i, (16, 8))[0]] + x[i]",
    "of the row": "y[i] = x[i] + bias[i // 16]",
    "down the columns": "y[i] = x[i] + bias[cute.make_layout((8, 16), stride=(0, 1))(i)]",
    "no bias": "y[i] = x[i]",
    "no x": "y[i] = bias[i % 16]",
    "not a number": "y[i] = cutlass.Float32(float('nan'))",
    "past the end": "y[i] = x[i] + bias[i]",
    "changes x": "x[i], y[i] = -bias[i % 16], cutlass.Float32(0.0)",
    "nothing": "pass",
}
BIAS = """
@cute.kernel
def tried_kernel(x: cute.Tensor, bias: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    {}


check_bias(tried_kernel)
"""
ANSWERS = [
    *(("strange", TRIED), ("right", RIGHT), ("not equal", NOT_EQUAL), ("blocks", BLOCKS)),
    *((name, KERNEL.format(body)) for name, body in KERNELS.items()),
    *((f"bias {name}", BIAS.format(body)) for name, body in BIASES.items()),
]


def named(name: str) -> str:
    """The id of the cell that tries it."""
    return f"tried-{name}".replace(" ", "-").replace(",", "")


@pytest.fixture(scope="module")
def chapter(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The chapter, with cells behind it that have tried the checks."""
    tried = {named(name): source for name, source in ANSWERS}
    return exercises.executed_with(CHAPTER, "cell-37", tried, tmp_path_factory.mktemp("chapter"))


def output(chapter: Any, name: str) -> str:
    """What the cell printed that tries these answers."""
    return exercises.printed_by(chapter, named(name))


def test_every_exercise_starts_wrong_and_has_a_right_solution(chapter: Any) -> None:
    exercises.assert_solved(chapter, 5)


def test_strange_answers_get_a_hint(chapter: Any) -> None:
    lines = output(chapter, "strange").splitlines()
    names = [line for line in lines if line.startswith("check_")]
    assert names == ["check_offset", "check_blocks", "check_equal", "check_transpose", "check_bias"]
    assert len(lines) == 5 * 23 and all(line.startswith("not yet: ") for line in lines if line not in names)
    kernels = lines[lines.index("check_transpose") :]
    told = sum("a function with @cute.kernel above it is asked for, not " in line for line in kernels)
    assert told == 2 * 20  # of the 22, all but the two functions


def test_right_answers_in_other_forms_are_right(chapter: Any) -> None:
    assert output(chapter, "right").splitlines() == ["right"] * 12


def test_layouts_of_another_size_or_without_shared_offsets_are_not_yet_right(chapter: Any) -> None:
    lines = output(chapter, "not equal").splitlines()
    assert len(lines) == 7 and all(line.startswith("not yet: ") for line in lines)
    alone = [lines[0], lines[1], lines[6]]  # the last reaches below 0: no offset is shared, and it is no permutation
    assert all("no two of the 12 coordinates of" in line for line in alone)


def test_a_wrong_block_and_a_wrong_place_in_the_right_one_get_different_hints(chapter: Any) -> None:
    inside, *others = output(chapter, "blocks").splitlines()
    assert "(1,0)" in inside and "place of the block" in inside
    assert len(others) == 2 and all("how many come before" in line for line in others)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("copies", "column 0; it holds x[1]\n"),
        ("wrong direction", "column 0; it holds x[8]\n"),
        ("constant", "column 0\n"),
        ("bias down the columns", "which of 8 and 16 runs fastest?"),
        ("bias of the row", "in row 0, column 1"),
    ],
)
def test_a_hint_tells_one_mistake_from_another(chapter: Any, name: str, says: str) -> None:
    assert says in output(chapter, name)


@pytest.mark.parametrize("name", [*KERNELS, *(f"bias {name}" for name in BIASES)])
def test_kernels_are_judged_by_what_they_write(chapter: Any, name: str) -> None:
    said = output(chapter, name)
    if name.removeprefix("bias ").startswith("right"):
        assert said == "right\n"
    else:
        assert said.startswith("not yet: ") and said.count("\n") == 1
        assert ("your answer changes x" in said) == name.endswith("changes x")


def test_the_break_it_reports_are_those_that_the_text_predicts(chapter: Any) -> None:
    """Thread 129 of CTA 15 for a stride too long, no report for one too short, and threads 0 and 255 for the stores."""
    too_long, too_short = exercises.printed_by(chapter, "break-first").split("\n\n")
    assert "OutOfBounds: load" in too_long and "CTA (15, 0, 0)" in too_long and "thread (129, 0, 0)" in too_long
    assert "no fault" in too_short and "127 of 16384 elements are wrong" in too_short
    elsewhere = exercises.printed_by(chapter, "break-elsewhere")
    assert "MissingBarrier: store to byte 1020" in elsewhere
    assert "thread (0, 0, 0)" in elsewhere and "thread (255, 0, 0)" in elsewhere


def test_what_the_errata_page_says_of_slices_and_tiles_is_printed(chapter: Any) -> None:
    planes = [line for line in exercises.printed_by(chapter, "cell-22").splitlines() if line.startswith("plane")]
    assert planes == [
        f"plane: of the layout (4,3):(1,4), of the tensor tensor<{start} o (4,3):(1,4)>" for start in (0, 12)
    ]
    tiles = exercises.printed_by(chapter, "cell-24")
    assert "(64,128,16,1)" in tiles and "refused" in tiles and "starts at 24576" in tiles


def test_size_and_cosize_alone_do_not_make_a_permutation(chapter: Any) -> None:
    """The rule never fails, and the plausible guess does."""
    counts = [int(line.split(":")[1]) for line in exercises.printed_by(chapter, "permutation-check").splitlines()]
    assert counts[0] == 0 and counts[1] > 100 and counts[2] > 0
