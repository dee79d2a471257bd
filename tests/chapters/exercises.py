"""A chapter's exercises: a code cell, and its solution in a cell of the same id with "-solution" behind it.

A solution is a code cell that the book hides, which was recorded with the rest, or Python folded into a markdown
cell, which runs only here.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch

from cutetut.course import execute, notebooks


def pairs(cells: list[Any]) -> list[tuple[Any, Any]]:
    """The cells of exercises with those of their solutions, in their order."""
    by_id = {cell.id: cell for cell in cells}
    return [(cell, by_id[f"{cell.id}-solution"]) for cell in cells if f"{cell.id}-solution" in by_id]


def printed(cell: Any) -> str:
    """What a code cell has printed."""
    return "".join(output.get("text", "") for output in cell.outputs if output.output_type == "stream")


def printed_by(notebook: Any, name: str) -> str:
    """What the notebook's cell of this id has printed."""
    return printed(next(cell for cell in notebook.cells if cell.id == name))


def executed_with(chapter: str, checks: str, cells: Mapping[str, str], folder: Path) -> Any:
    """The chapter as it is committed, with further code cells at its end, by their ids, executed on this backend.

    They run after what they need of the chapter: imports, kernels, benchmark, helpers, and the cell of the id `checks`.
    That its other cells print here what is committed is for nbval to say, which executes every notebook.
    """
    notebook = notebooks.read(chapter)
    needed = copy.deepcopy(notebook)
    needed.cells = [cell for cell in needed.cells if cell.id == checks or _is_needed(set(notebooks.tags(cell)))]
    needed.cells += [nbformat.v4.new_code_cell(source, id=name) for name, source in cells.items()]
    notebook.cells += _executed(needed, folder / f"{chapter}.ipynb").cells[-len(cells) :]
    return notebook


def _is_needed(tags: set[str]) -> bool:
    return bool(tags & {*HELPER_TAGS}) and "break-it" not in tags


def answered(chapter: str, folder: Path) -> list[tuple[str, str]]:
    """What each exercise of a chapter prints as it stands, and with its solution; `folder` is for scratch."""
    notebook = notebooks.read(chapter)
    if any(solution.cell_type == "markdown" for _, solution in pairs(notebook.cells)):
        notebook = _executed(_unfolded(notebook), folder / f"{chapter}.ipynb")
    return [(printed(start), printed(solution)) for start, solution in pairs(notebook.cells)]


def assert_solved(notebook: Any, count: int) -> None:
    """An executed chapter has so many exercises: each is wrong as it stands, and right with its solution."""
    found = pairs(notebook.cells)
    assert len(found) == count
    for start, solution in found:
        assert printed(start).startswith("not yet: ") and printed(solution) == "right\n"


def _executed(notebook: Any, path: Path) -> Any:
    nbformat.write(notebook, path)
    return execute.executed(path)


def _unfolded(notebook: Any) -> Any:
    """The notebook with its folded solutions as code cells."""
    notebook = copy.deepcopy(notebook)
    folded = [solution for _, solution in pairs(notebook.cells) if solution.cell_type == "markdown"]
    for index, cell in enumerate(notebook.cells):
        if any(cell is solution for solution in folded):
            notebook.cells[index] = nbformat.v4.new_code_cell(_folded(cell.source), id=cell.id)
    return notebook


def _folded(source: str) -> str:
    """The Python of a markdown cell that folds a solution."""
    match = re.search(r"<summary>Solution</summary>.*?```python\n(.*?)```", source, re.DOTALL)
    assert match, f"a solution without code: {source[:80]}"
    return match[1]


# What a chapter defines for its later cells, too; the last tag is one that each chapter has, as `load` asks for.
HELPER_TAGS = (notebooks.HELPERS, "bench", *notebooks.KERNEL_TAGS)


def cell(chapter: str, name: str) -> str:
    """The source of the chapter's cell of this id."""
    return str(next(cell.source for cell in notebooks.read(chapter).cells if cell.id == name))


def prose(chapter: str, name: str) -> str:
    """The text of the chapter's cell of this id on one line, wherever its lines are broken."""
    return " ".join(cell(chapter, name).split())


def definitions(chapter: str, name: str) -> str:
    """The source of what the chapter's cell of this id defines, without what it does besides."""
    return notebooks.definitions(cell(chapter, name))


def renamed(chapter: str, name: str, old: str, new: str) -> str:
    """What the chapter's cell of this id defines, with `new` in place of a name or any other text that is there."""
    source = definitions(chapter, name)
    assert old in source, f"{chapter}, {name}: no {old}"
    return source.replace(old, new)


def from_file(source: str, file: Path, names: dict[str, Any]) -> dict[str, Any]:
    """`names` after running a source with them from a file: CuTe DSL reads the source of kernels from one."""
    file.write_text(source)
    exec(compile(source, str(file), "exec"), names)
    return names


def defined(chapter: str, cells: Iterable[str], folder: Path, extra: str = "", **more: Any) -> dict[str, Any]:
    """What these cells of a chapter define, and what `extra` does then, after its kernels, benchmark and helpers.

    `more` are names that its helpers find beside their own, such as the generator that an untagged cell has made.
    """
    helpers = vars(notebooks.load(chapter, HELPER_TAGS))
    helpers.update(more)
    source = "\n\n\n".join([*(definitions(chapter, name) for name in cells), extra])
    return from_file(source, folder / "cells.py", dict(helpers))


def tries(answers: Mapping[int, Iterable[str]]) -> list[tuple[int, str]]:
    """Each exercise's number with each of its answers."""
    return [(number, answer) for number, listed in answers.items() for answer in listed]


NO_ANSWERS = ("float('nan')", "'text'", "(1,)", "None", "np.float32(3)", "lambda A, B: A @ B.T", "torch.ones(3, 3)")


def with_no_answers(wrong: Mapping[int, Mapping[str, str]]) -> dict[int, dict[str, str]]:
    """The wrong answers of each exercise, and those that are no answer to any, of which a check may say anything."""
    return {number: {**listed, **dict.fromkeys(NO_ANSWERS, "")} for number, listed in wrong.items()}


def verdict(call: str, names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    """What the call of a check prints, where `names` has the check and whatever the answer uses."""
    capsys.readouterr()
    exec(call, names)
    return capsys.readouterr().out


def wrong_answers_are_told_why(
    checks: Mapping[int, str],
    wrong: Mapping[int, Mapping[str, str]],
    alone: bool = True,
    secret: Callable[[int], str] | None = None,
) -> Callable[..., None]:
    """The test that each wrong answer is told why in one line, for a module whose fixture `names` has the checks.

    checks: by the exercise's number, the function that judges it; wrong: by number, each answer, as it would be typed,
    with a part of what the check has to say; alone: whether nothing is said before that line; secret: what the check
    of a number may not give away.
    """

    @pytest.mark.emulator
    @pytest.mark.parametrize(("number", "answer"), tries(wrong))
    def told_why(names: dict[str, Any], capsys: pytest.CaptureFixture[str], number: int, answer: str) -> None:
        *before, said = verdict(f"{checks[number]}({answer})", names, capsys).splitlines() or [""]
        assert said.startswith("not yet: ") and wrong[number][answer] in said, said
        assert len(said) > len("not yet: x") and not (alone and before), (before, said)
        assert secret is None or secret(number) not in said, said

    return told_why


def right_answers_are_accepted(
    checks: Mapping[int, str], right: Mapping[int, Iterable[str]], alone: bool = True
) -> Callable[..., None]:
    """The test that each right answer is accepted, whatever its form, for a module like that above."""

    @pytest.mark.emulator
    @pytest.mark.parametrize(("number", "answer"), tries(right))
    def accepted(names: dict[str, Any], capsys: pytest.CaptureFixture[str], number: int, answer: str) -> None:
        *before, said = verdict(f"{checks[number]}({answer})", names, capsys).splitlines() or [""]
        assert said == "right" and not (alone and before), (before, said)

    return accepted


# Chapters whose checks are ex1-check and so on, each tried with several answers at once -----------------------------

OTHER = ["None", "'text'", "(1, 2)", "np.float64(3)", "float('nan')"]  # where a function is asked for
FUNCTIONS = [*OTHER, "nothing", "from_torch"]
NUMBERS = ["None", "'8'", "float('nan')", "(1,)", "True", "1.5"]  # where a number is asked for
ANSWERS = """
def nothing(*arguments):
    pass


def from_torch(*arguments):
    return torch.zeros(64, 64) @ torch.zeros(64, 64).T


def ones(*arguments):
    arguments[0].fill(1.0)


def nans(*arguments):
    arguments[0].fill(float("nan"))
"""


def judges(chapter: str, folder: Path, more: str, cells: Iterable[str] = (), computed: str = "") -> dict[str, Any]:
    """A chapter's checks with what they use, and answers that are functions.

    cells: whose definitions the checks use; computed, more: source that the checks and the answers need besides.
    """
    ids = [cell.id for cell in notebooks.read(chapter).cells if re.fullmatch(r"ex\d+-check", cell.id)]
    known: dict[str, Any] = {"CHAPTER": chapter}
    if chapter != "08_wgmma":  # later ones use its judge of a kernel
        known["chapter08"] = notebooks.load("08_wgmma", HELPER_TAGS)
    torch.manual_seed(3)
    return defined(chapter, [*cells, *ids], folder, f"{computed}\n{ANSWERS}{more}", **known)


def judges_of(chapter: str, more: str, cells: Iterable[str] = ()) -> Callable[..., dict[str, Any]]:
    """The fixture `names` of a module: what `judges` returns for the chapter."""

    @pytest.fixture(scope="module")
    def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
        return judges(chapter, tmp_path_factory.mktemp(chapter), more, cells)

    return names


def assert_judged(
    check: str, answers: Iterable[str], right: bool, names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """A check says "right", or "not yet" and why in one line, of each of these answers."""
    for answer in answers:
        said = verdict(f"{check}({answer})", names, capsys)
        if right:
            assert said == "right\n", (answer, said)
        else:
            assert said.startswith("not yet: ") and len(said) > 12 and said.count("\n") == 1, (answer, said)


def answers_are_judged(checks: Mapping[str, tuple[Iterable[str], Iterable[str]]]) -> Callable[..., None]:
    """The test that each check refuses its first answers and accepts its second, for a module like those above."""

    @pytest.mark.emulator
    @pytest.mark.parametrize("right", [False, True])
    @pytest.mark.parametrize("check", checks)
    def judged(names: dict[str, Any], capsys: pytest.CaptureFixture[str], check: str, right: bool) -> None:
        assert_judged(check, checks[check][right], right, names, capsys)

    return judged


def wrong_answers_get_hints(hints: Mapping[str, str]) -> Callable[..., None]:
    """The test that calls of checks print "not yet", a hint, and no file of ours, for a module like those above."""

    @pytest.mark.emulator
    @pytest.mark.parametrize(("call", "hint"), hints.items())
    def hinted(names: dict[str, Any], capsys: pytest.CaptureFixture[str], call: str, hint: str) -> None:
        said = verdict(call, names, capsys)
        assert said.startswith("not yet: ") and hint in said and ".py" not in said

    return hinted


def solutions_belong_to_exercises(chapter: str) -> Callable[[], None]:
    """The test that a chapter's exercises and solutions are those that `assert_paired` asks for."""
    return lambda: assert_paired(chapter)


def assert_paired(chapter: str) -> None:
    """At least four exercises, each with a folded solution behind it that is tagged as such."""
    cells = notebooks.read(chapter).cells
    found = pairs(cells)
    assert [solution.id for _, solution in found] == [cell.id for cell in cells if cell.id.endswith("-solution")]
    assert len(found) >= 4
    for exercise, solution in found:
        assert "exercise" in notebooks.tags(exercise) and set(notebooks.tags(solution)) == {"solution", "hide-cell"}
