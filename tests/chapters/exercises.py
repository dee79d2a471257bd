"""A chapter's exercises: a code cell, and its solution in a cell of the same id with "-solution" behind it.

A solution is a code cell that the book hides, which was recorded with the rest, or Python folded into a markdown
cell, which runs only here.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch

from cutetut.course import execute, notebooks
from cutetut.measure import bench


def pairs(cells: list[Any]) -> list[tuple[Any, Any]]:
    """The cells of exercises with those of their solutions, in their order."""
    by_id = {cell.id: cell for cell in cells}
    return [(cell, by_id[f"{cell.id}-solution"]) for cell in cells if f"{cell.id}-solution" in by_id]


def printed(cell: Any) -> str:
    """What a code cell has printed."""
    return "".join(output.get("text", "") for output in cell.outputs if output.output_type == "stream")


def answered(chapter: str, folder: Path) -> list[tuple[str, str]]:
    """What each exercise of a chapter prints as it stands, and with its solution; `folder` is for scratch."""
    notebook = notebooks.read(chapter)
    if any(solution.cell_type == "markdown" for _, solution in pairs(notebook.cells)):
        notebook = _executed_with_solutions(notebook, folder / f"{chapter}.ipynb")
    return [(printed(start), printed(solution)) for start, solution in pairs(notebook.cells)]


def _executed_with_solutions(notebook: Any, path: Path) -> Any:
    """The notebook with its folded solutions as code cells, executed on this session's backend."""
    notebook = copy.deepcopy(notebook)
    folded = [solution for _, solution in pairs(notebook.cells) if solution.cell_type == "markdown"]
    for index, cell in enumerate(notebook.cells):
        if any(cell is solution for solution in folded):
            notebook.cells[index] = nbformat.v4.new_code_cell(_folded(cell.source), id=cell.id)
    nbformat.write(notebook, path)
    return execute.executed(path)


def _folded(source: str) -> str:
    """The Python of a markdown cell that folds a solution."""
    match = re.search(r"<summary>Solution</summary>.*?```python\n(.*?)```", source, re.DOTALL)
    assert match, f"a solution without code: {source[:80]}"
    return match[1]


HELPER_TAGS = (*bench.BENCH_TAGS, notebooks.HELPERS)  # what a chapter defines for its own later cells, too


def cell(chapter: str, name: str) -> str:
    """The source of the chapter's cell of this id."""
    return str(next(cell.source for cell in notebooks.read(chapter).cells if cell.id == name))


def from_file(source: str, file: Path, names: dict[str, Any]) -> dict[str, Any]:
    """`names` after running a source with them from a file: CuTe DSL reads the source of kernels from one."""
    file.write_text(source)
    exec(compile(source, str(file), "exec"), names)
    return names


def defined(chapter: str, cells: Iterable[str], folder: Path, extra: str = "", **more: Any) -> dict[str, Any]:
    """What these cells of a chapter and then `extra` define, after its kernels, benchmark and helpers.

    `more` are names that its helpers find beside their own, such as the generator that an untagged cell has made.
    """
    helpers = vars(notebooks.load(chapter, HELPER_TAGS))
    helpers.update(more)
    source = "\n\n".join([*(cell(chapter, name) for name in cells), extra])
    return from_file(source, folder / "cells.py", dict(helpers))


def tries(answers: Mapping[int, Iterable[str]]) -> list[tuple[int, str]]:
    """Each exercise's number with each of its answers."""
    return [(number, answer) for number, listed in answers.items() for answer in listed]


def verdict(check: str, call: str, names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    """What a check, given as the source of its cell, says of an answer."""
    exec(check, names)
    capsys.readouterr()
    exec(call, names)
    return capsys.readouterr().out


def refused(check: str, call: str, names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    """What it says of a wrong answer; fails unless that begins "not yet"."""
    said = verdict(check, call, names, capsys)
    assert said.startswith("not yet"), said
    return said


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
    """A chapter's checks, from its cells ex1-check and so on, what they use, and answers that are functions.

    cells: whose definitions the checks use; computed, more: source that stands before them and behind.
    """
    source = "\n\n".join(notebooks.definitions(cell(chapter, name)) for name in cells) + f"\n\n{computed}\n\n"
    ids = [c.id for c in notebooks.read(chapter).cells if re.fullmatch(r"ex\d+-check", c.id)]
    source += "\n\n".join(cell(chapter, name) for name in ids) + ANSWERS + more
    known = dict(vars(notebooks.load(chapter, HELPER_TAGS)))
    known["CHAPTER"] = chapter
    if chapter != "08_wgmma":  # later ones use its judge of a kernel
        known["chapter08"] = notebooks.load("08_wgmma", HELPER_TAGS)
    torch.manual_seed(3)
    return from_file(source, folder / "cells.py", known)


def assert_judged(
    check: str, answers: Iterable[str], right: bool, names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """A check says "right", or "not yet" and why in one line, of each of these answers."""
    for answer in answers:
        said = verdict("", f"{check}({answer})", names, capsys)
        if right:
            assert said == "right\n", (answer, said)
        else:
            assert said.startswith("not yet: ") and len(said) > 12 and said.count("\n") == 1, (answer, said)


def assert_paired(chapter: str) -> None:
    """At least four exercises, each with a folded solution behind it that is tagged as such."""
    cells = notebooks.read(chapter).cells
    found = pairs(cells)
    assert [solution.id for _, solution in found] == [c.id for c in cells if c.id.endswith("-solution")]
    assert len(found) >= 4
    for exercise, solution in found:
        assert "exercise" in notebooks.tags(exercise) and set(notebooks.tags(solution)) == {"solution", "hide-cell"}
