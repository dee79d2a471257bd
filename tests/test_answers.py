"""Answers to exercises: any form of a right one is read, and nothing that is wrong ends in a traceback."""

from __future__ import annotations

import sys
from fractions import Fraction
from typing import Any

import cutlass.cute as cute
import numpy as np
import pytest
import torch

from cutetut import answers
from cutetut.answers import NotYet
from cutetut.widgets import LayoutViewer

ONE_NAN = torch.tensor(float("nan"))
STRANGE: list[Any] = [None, "7", b"7", float("nan"), float("inf"), True, 7.5, {}, {7}, object(), 7j, len, (), []]


@pytest.mark.parametrize("answer", [7, 7.0, np.int32(7), np.float64(7), np.array(7), np.array([7]), torch.tensor(7)])
def test_a_number_in_any_form_is_read(answer: Any) -> None:
    assert answers.number(answer) == 7 and type(answers.number(answer)) is int


def test_a_number_of_any_size_is_read() -> None:
    assert answers.number(10**400) == 10**400


@pytest.mark.parametrize("answer", [*STRANGE, (7,), [7], torch.tensor([7, 8]), np.array([]), ONE_NAN])
def test_what_is_no_number_is_a_hint(answer: Any) -> None:
    with pytest.raises(NotYet, match="number"):
        answers.number(answer)


@pytest.mark.parametrize("answer", [2.5, np.float32(2.5), np.array([2.5]), torch.tensor(2.5), Fraction(5, 2)])
def test_a_real_number_in_any_form_is_read(answer: Any) -> None:
    assert answers.real(answer) == 2.5 and type(answers.real(answer)) is float


@pytest.mark.parametrize("answer", [None, True, "2.5", (2.5,), [2.5], float("nan"), -float("inf"), 10**400, ONE_NAN])
def test_what_is_no_real_number_is_a_hint(answer: Any) -> None:
    with pytest.raises(NotYet, match="number"):
        answers.real(answer)


@pytest.mark.parametrize(
    "answer", [(1, 2, 3), [1, 2, 3], range(1, 4), np.arange(1, 4), torch.arange(1, 4), (1.0, 2, 3)]
)
def test_numbers_in_any_form_are_read(answer: Any) -> None:
    assert answers.numbers(answer, 3) == (1, 2, 3)


@pytest.mark.parametrize("answer", [*STRANGE, 3, (1, 2), (1, 2, 3, 4), "123", (1, 2, None), (1, 2, "3"), np.array(3)])
def test_what_are_no_three_numbers_is_a_hint(answer: Any) -> None:
    with pytest.raises(NotYet):
        answers.numbers(answer, 3)


@pytest.mark.parametrize(
    "answer",
    [(True, False), [np.True_, np.False_], np.array([True, False]), torch.tensor([True, False])],
)
def test_truth_values_in_any_form_are_read(answer: Any) -> None:
    assert answers.truths(answer, 2) == (True, False)


@pytest.mark.parametrize("answer", [*STRANGE, (1, 0), (True,), (True, None), "TF", ((4, 6), 1), (True, np.ones(2))])
def test_what_are_no_two_truth_values_is_a_hint(answer: Any) -> None:
    with pytest.raises(NotYet):
        answers.truths(answer, 2)


@pytest.mark.parametrize(
    "answer",
    [
        "(4,8):(8,1)",
        " ( 4, 8 ) : ( 8, 1 ) ",
        ((4, 8), (8, 1)),
        [[4, 8], [8, 1]],
        (np.array([4, 8]).tolist(), (8, 1)),
        lambda: cute.make_layout((4, 8), stride=(8, 1)),
        LayoutViewer("(4,8):(8,1)"),
        LayoutViewer("32:1", "composition", "(4,8):(8,1)"),
    ],
)
def test_a_layout_in_any_form_is_read(answer: Any) -> None:
    assert str(answers.layout(answer)) == "(4,8):(8,1)"


NO_LAYOUTS = [*STRANGE, "(4,8)", ((4, 8), 8), (4, None), lambda: 1, lambda: cute.nothing, "a:b", torch.ones(4, 8)]


@pytest.mark.parametrize("answer", NO_LAYOUTS)
def test_what_is_no_layout_is_a_hint_of_one_line(answer: Any) -> None:
    with pytest.raises(NotYet) as hint:
        answers.layout(answer)
    assert "\n" not in str(hint.value)


def test_a_check_says_right_or_not_yet(capsys: pytest.CaptureFixture[str]) -> None:
    @answers.judged
    def check(answer: Any) -> None:
        if answers.number(answer) != 3:
            raise NotYet("count again")

    for answer in (3, 4, None):
        check(answer)
    assert capsys.readouterr().out.splitlines() == [
        "right",
        "not yet: count again",
        "not yet: the answer is a whole number, not None",
    ]


def test_an_answer_that_ends_the_program_is_not_right(capsys: pytest.CaptureFixture[str]) -> None:
    @answers.judged
    def check(answer: Any) -> None:
        answer()

    check(lambda: sys.exit("done"))
    assert capsys.readouterr().out == "not yet: your answer calls exit()\n"
