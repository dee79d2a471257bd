"""What is loaded of a cell tagged `helpers`: what it defines, and nothing that it does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from cutetut.course import notebooks
from cutetut.course.notebooks import NotebookError, definitions
from cutetut.measure import bench
from tests.chapters import exercises
from tests.course.conftest import Make

CELL = """import math; from os import path
LIMIT, OTHER = 3, math.pi
COUNT: int = 4
rng = object()
MADE = print("made")
lower = 5

@staticmethod
def twice(x):
    '''Text with
  a line'''
    return 2 * x * LIMIT


class Pair:
    first = print
print("ran"); LATE = 1; print("again")
for i in range(3):
    def inner(): ...
"""


def test_definitions_are_imports_functions_classes_and_constants() -> None:
    found = definitions(CELL)
    kinds = [type(node).__name__ for node in ast.parse(found).body]
    assert kinds == ["Import", "ImportFrom", "Assign", "AnnAssign", "FunctionDef", "ClassDef", "Assign"]
    names: dict[str, object] = {}
    exec(found, names)
    assert names["LIMIT"] == 3 and names["COUNT"] == 4 and names["LATE"] == 1 and "path" in names
    assert not {"MADE", "rng", "lower", "i", "inner"} & names.keys()
    assert "@staticmethod\ndef twice" in found and "Text with\n  a line" in found


def test_a_helper_cell_is_loaded_without_what_it_does(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("04_a", ("x = 1", ["kernel"]), ("def f():\n    return x\n\n\nprint(f())", ["helpers", "break-it"]))
    assert notebooks.load("04_a", ("kernel", "helpers")).f() == 1
    assert capsys.readouterr().out == ""
    assert not hasattr(notebooks.load("04_a"), "f")


def test_a_cell_that_is_wanted_for_more_is_loaded_whole(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("04_a", ("print('ran')", ["kernel", "helpers"]))
    notebooks.load("04_a", ("kernel", "helpers"))
    assert capsys.readouterr().out == "ran\n"


def test_no_helper_is_an_error(make: Make) -> None:
    make("04_a", ("x = 1", ["kernel"]))
    with pytest.raises(NotebookError, match="04_a has no cell tagged `helpers`"):
        notebooks.load("04_a", ("kernel", "helpers"))


def test_a_notebook_is_read_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make("04_a", ("x = 1", ["kernel"]))
    chapter = notebooks.notebook("04_a")
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: pytest.fail("read again"))
    assert chapter.path == path and chapter.name == "04_a" and chapter.load().x == 1
    assert chapter.changed([("x = 1", "x = 2")]).x == 2 and len(chapter.code_hash(("kernel",))) == 64


def test_a_cell_that_only_chooses_ages_no_measurement(make: Make) -> None:
    hashes = []
    for kernel, choice in (("x = 1", "y = 1"), ("x = 1", "y = 2"), ("x = 2", "y = 1")):
        make("04_a", (kernel, ["kernel"]), (choice, ["kernel", "choice"]), ("z = 1", ["bench"]))
        assert notebooks.load("04_a", bench.BENCH_TAGS).y == int(choice[-1])
        hashes.append(bench.current_hash("04_a"))
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_cell_that_is_put_before_others_ages_no_measurement(make: Make) -> None:
    hashes = []
    befores: list[list[tuple[str, list[str]]]] = [[], [("y = 1", [])], [("y = 1", ["kernel", "choice"])]]
    for before in befores:
        make("04_a", *before, ("x = 1", ["kernel"]), ("z = 1", ["bench"]))
        hashes.append(bench.current_hash("04_a"))
    assert len(set(hashes)) == 1


@pytest.mark.parametrize("chapter", [path.stem for path in notebooks.toc()])
def test_helpers_of_the_chapters_are_defined_by_them(chapter: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every tagged cell defines something, and to load it prints nothing."""
    cells = [cell for cell in notebooks.notebook(chapter).cells if notebooks.HELPERS in cell.tags]
    assert all(definitions(cell.source) for cell in cells)
    if cells:
        notebooks.load(chapter, exercises.HELPER_TAGS)
        assert capsys.readouterr().out == ""
