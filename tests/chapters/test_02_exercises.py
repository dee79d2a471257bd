"""What chapter 02 prints, and its exercises' checks with answers of every kind."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.chapters import exercises

CHAPTER = "02_layout_algebra"
STRANGE = '''
A, B = torch.randn(8, 64), torch.randn(8, 64)
strange = [None, "", "x", float("nan"), np.float64("nan"), np.int64(3), (), (1,), (1, 2, 3, 4), 10**30, -1, True, {},
           object(), lambda: None, lambda *arguments: A @ B.T, torch.add, np.zeros(3), torch.ones(4, 8), "(4,6)", "4:",
           ((4, 6), 1),
           "S<3,4,3> o 0 o (8,8):(8,1)", "64:9", "8:0", (None,) * 5, "TFFTF", [1, 0, 1, 1, 0]]
checks = (check_transpose, check_tiler, check_answered, check_square, check_even, check_owner)
for check_it in checks:
    for answer in strange:
        check_it(answer)
print(len(strange), len(checks))
'''
WRONG = '''
@cute.kernel
def zeros_kernel(x: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    y[i] = 0.0

@cute.kernel
def nan_kernel(x: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    y[i] = float("nan")

@cute.kernel
def copies_kernel(x: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    y[i] = x[i]

@cute.kernel
def nothing_kernel(x: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()

@cute.kernel
def odd_first_kernel(x: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    y[i] = cute.composition(x, (None, cute.make_layout((32, 2), stride=(2, -1))))[i]

@cute.kernel
def far_apart_kernel(x: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    y[i] = x[2 * i]

@cute.kernel
def changes_x_kernel(x: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    x[i] = 0.0
    y[i] = 0.0

@cute.kernel
def only_the_first_tv_kernel(owner: cute.Tensor, tv: cute.Layout):
    place, _, _ = cute.arch.thread_idx()
    owner[place] = place % 128 // 32 + place % 32 // 4 * 4

@cute.kernel
def value_kernel(owner: cute.Tensor, tv: cute.Layout):
    place, _, _ = cute.arch.thread_idx()
    owner[place] = cute.right_inverse(tv)(place) // cute.size(tv, mode=[0])

@cute.kernel
def all_zero_kernel(owner: cute.Tensor, tv: cute.Layout):
    place, _, _ = cute.arch.thread_idx()
    owner[place] = 0

@cute.kernel
def tv_itself_kernel(owner: cute.Tensor, tv: cute.Layout):
    place, _, _ = cute.arch.thread_idx()
    owner[place] = tv(place)

for kernel in (zeros_kernel, nan_kernel, nothing_kernel, copies_kernel, odd_first_kernel, far_apart_kernel,
               changes_x_kernel):
    check_even(kernel)
for kernel in (only_the_first_tv_kernel, value_kernel, all_zero_kernel, tv_itself_kernel):
    check_owner(kernel)
for layout in ("((8,8),(4,4)):((32,4),(1,128))", "((8,8),(4,4)):((128,1),(32,16))", "(64,16):(1,64)",
               "((8,8),(2,8)):((64,1),(32,8))", "(16,64):(1,16)", "1024:1"):
    check_square(layout)
for five in ((True,) * 5, (False,) * 5, (True, False, True, True, True), (True, True, True, True, False)):
    check_answered(five)
'''
RIGHT = '''
for answer in ("(8,8):(8,1)", "(8,(2,4)):(8,(1,2))", ((8, 8), (8, 1)), lambda: cute.make_layout((8, 8), stride=(8, 1))):
    check_transpose(answer)
for answer in ("8:4", "(8):(4)", "(4,2):(4,16)", "(2,4):(16,4)", (8, 4)):
    check_tiler(answer)
for answer in ([True, False, True, True, False], np.array([True, False, True, True, False]),
               torch.tensor([True, False, True, True, False])):
    check_answered(answer)
for answer in ("((8,8),(4,4)):((128,1),(32,8))", "((8,(2,4)),(4,4)):((128,(4,8)),(32,1))",
               (((8, 8), (4, (2, 2))), ((128, 4), (32, (2, 1)))),
               lambda: cute.make_layout(((2, 4, 8), (4, 4)), stride=((512, 128, 1), (32, 8)))):
    check_square(answer)


@cute.kernel
def by_shape(x: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    y[i] = cute.composition(x, cute.make_layout((8, (32, 2)), stride=(1, (16, 8))))[i]

@cute.kernel
def by_divide(x: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    pairs = cute.logical_divide(x, (None, 2))  # (rows, (parity, pair))
    row, column = cute.idx2crd(i, (8, 64))
    pair, parity = cute.idx2crd(column, (32, 2))
    y[row, column] = pairs[row, (parity, pair)]

@cute.kernel
def scattered(x: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    cute.composition(y, (None, cute.make_layout((2, 32), stride=(32, 1))))[i] = x[i]

@cute.kernel
def by_left_inverse(owner: cute.Tensor, tv: cute.Layout):
    place, _, _ = cute.arch.thread_idx()
    index = cute.left_inverse(tv)(place)
    threads = cute.size(tv, mode=[0])
    owner[place] = index - index // threads * threads

@cute.kernel
def by_writing(owner: cute.Tensor, tv: cute.Layout):
    i, _, _ = cute.arch.thread_idx()
    cute.composition(owner, tv)[i] = i % cute.size(tv, mode=[0])

@cute.kernel
def by_coordinate(owner: cute.Tensor, tv: cute.Layout):
    i, _, _ = cute.arch.thread_idx()
    threads = cute.size(tv, mode=[0])
    thread, value = cute.idx2crd(i, (threads, cute.size(tv, mode=[1])))
    owner[tv((thread, value))] = thread

for kernel in (by_shape, by_divide, scattered):
    check_even(kernel)
for kernel in (by_left_inverse, by_writing, by_coordinate):
    check_owner(kernel)
'''


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The chapter, with cells behind it that have tried the checks."""
    tried = {"strange": STRANGE, "wrong": WRONG, "right": RIGHT}
    return exercises.executed_with(CHAPTER, "checks", tried, tmp_path_factory.mktemp("chapter"))


def output(executed: Any, name: str) -> list[str]:
    """The lines that the cell has printed which tries these answers."""
    return exercises.printed_by(executed, name).splitlines()


def test_every_exercise_starts_wrong_and_has_a_right_solution(executed: Any) -> None:
    exercises.assert_solved(executed, 6)


def test_strange_answers_get_a_hint(executed: Any) -> None:
    *lines, counts = output(executed, "strange")
    answers, checks = map(int, counts.split())
    assert len(lines) == answers * checks == 28 * 6
    assert all(line.startswith("not yet: ") and len(line) < 300 for line in lines)


def test_wrong_answers_get_a_hint_that_is_not_the_answer(executed: Any) -> None:
    lines = output(executed, "wrong")
    assert len(lines) == 7 + 4 + 6 + 4
    assert all(line.startswith("not yet: ") for line in lines)


def test_a_hint_tells_one_mistake_from_another(executed: Any) -> None:
    """What stands where the even columns should be, and how many of the five are wrong, but not which."""
    lines = output(executed, "wrong")
    zeros, _, _, copies, _, far_apart, _ = lines[:7]
    assert "stands" not in zeros
    assert "row 0, column 1, where row 0, column 1 of x stands" in copies
    assert "row 0, column 32, where row 1, column 0 of x stands" in far_apart
    for line, wrong in zip(lines[-4:], (2, 3, 1, 1), strict=True):
        assert line.startswith(f"not yet: wrong in {wrong} of the five: ")
    assert not any(re.search(r"\d:\d", line) for line in lines[-4:])


def test_a_thread_that_there_is_not_is_told_from_another_one(executed: Any) -> None:
    *others, beyond = output(executed, "wrong")[7:11]
    assert all(line.endswith(", another thread's") for line in others)
    assert beyond.endswith(" is 32, and threads go from 0 to 31")


def test_right_answers_in_other_forms_are_right(executed: Any) -> None:
    assert output(executed, "right") == ["right"] * (4 + 5 + 3 + 4 + 3 + 3)


def test_the_laws_hold_and_fail_where_the_text_says_so(executed: Any) -> None:
    said = "".join(exercises.printed(cell) for cell in executed.cells if cell.cell_type == "code")
    holds, fails = ([int(count) for count in re.findall(rf"{what}: (\d+)", said)] for what in ("holds", "fails"))
    coalesce, composition, complement, divides, definition, nothing_lost, copies, products, placed, right, left = fails
    assert coalesce == divides == nothing_lost == copies == products == placed == right == left == 0
    assert min(composition, complement, definition) > 0 and min(holds) > 400
    assert 20 < 2000 / composition < 30  # "about one pair in 25"
