"""The book's exercises: each says "not yet" as it stands, and its own solution is right."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from cutetut.course import notebooks
from tests.chapters import exercises


def verdict(said: str) -> str | None:
    """How the check's last line begins."""
    found = re.match(r"not yet\b|right\b", said.rstrip().rsplit("\n", 1)[-1])
    return found and found[0]


@pytest.mark.parametrize("chapter", [path.stem for path in notebooks.listed()])
def test_exercises_start_with_not_yet_and_their_solutions_are_right(chapter: str, tmp_path: Path) -> None:
    answered = exercises.answered(chapter, tmp_path)
    assert len(answered) >= 3
    for start, solution in answered:
        assert verdict(start) == "not yet", start
        assert verdict(solution) == "right", solution


@pytest.mark.parametrize("chapter", [path.stem for path in notebooks.listed()])
def test_no_solution_stands_alone(chapter: str) -> None:
    """A solution whose exercise has another id, or none, would not be tested above."""
    cells = notebooks.read(chapter).cells
    found = [cell.id for cell in cells if cell.id.endswith("-solution") or "<summary>Solution" in cell.source]
    assert found == [solution.id for _, solution in exercises.pairs(cells)]


def test_a_folded_solution_runs_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The solution comes after its exercise and before what follows, in one kernel."""
    text = "<details>\n<summary>Solution</summary>\n\n```python\ncheck(2)\n```\n</details>"
    book = nbformat.v4.new_notebook()
    book.cells = [
        nbformat.v4.new_code_cell("def check(n):\n    print('right' if n == 2 else 'not yet')\n\ncheck(1)", id="ex1"),
        nbformat.v4.new_markdown_cell(text, id="ex1-solution"),
        nbformat.v4.new_code_cell("def check(n):\n    print('redefined')", id="after"),
    ]
    monkeypatch.setattr(notebooks, "read", lambda path: nbformat.read(path, 4) if Path(path).is_file() else book)
    assert exercises.answered("any", tmp_path) == [("not yet\n", "right\n")]


@pytest.mark.parametrize(
    "said",
    ["right", "", "not yet", "not yet: x", "not yet: a reason", "not yet: 2 and 3 are wrong: 23", "1\nnot yet: 2"],
)
def test_a_check_that_does_not_say_why_fails(capsys: pytest.CaptureFixture[str], said: str) -> None:
    """No verdict, none of the reason that is asked for, the answer, or lines before it."""
    told_why = exercises.wrong_answers_are_told_why({1: "check"}, {1: {"0": "2"}}, secret=lambda number: "23")
    names = {"check": lambda answer: print(said), "fair": lambda answer: print("not yet: 2 is not it")}
    with pytest.raises(AssertionError):
        told_why(names, capsys, 1, "0")
    fair = exercises.wrong_answers_are_told_why({1: "fair"}, {1: {"0": "2"}}, secret=lambda number: "23")
    fair(names, capsys, 1, "0")


@pytest.mark.parametrize("said", ["not yet: x", "", "right, but slow", "12\nright"])
def test_a_check_that_refuses_a_right_answer_fails(capsys: pytest.CaptureFixture[str], said: str) -> None:
    accepted = exercises.right_answers_are_accepted({1: "check"}, {1: ["0"]})
    with pytest.raises(AssertionError):
        accepted({"check": lambda answer: print(said)}, capsys, 1, "0")
    accepted({"check": lambda answer: print("right")}, capsys, 1, "0")
