"""Chapter 02 as a reader runs it, its outputs deleted, and its exercises' checks with answers of every kind."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from cutetut.course import execute
from tests.chapters.exercises import pairs, printed

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "02_layout_algebra.ipynb"
STRANGE = '''
import numpy as np

strange = [None, "", "x", float("nan"), (), (1,), (1, 2, 3, 4), 10**30, -1, True, {}, object(), lambda: None,
           np.zeros(3), "(4,6)", "4:", ((4, 6), 1), np.nan,
           "S<3,4,3> o 0 o (8,8):(8,1)", "64:9", "8:0", (None,) * 4, "TFFT"]
for check_it in (check_transpose, check_tiler, check_refused):
    for answer in strange:
        check_it(answer)
'''
RIGHT = '''
import numpy as np

for answer in ("(8,8):(8,1)", "(8,(2,4)):(8,(1,2))", ((8, 8), (8, 1)), lambda: cute.make_layout((8, 8), stride=(8, 1))):
    check_transpose(answer)
for answer in ("8:4", "(8):(4)", "(4,2):(4,16)", "(2,4):(16,4)", (8, 4)):
    check_tiler(answer)
for answer in ([True, False, False, True], np.array([True, False, False, True])):
    check_refused(answer)
'''


@pytest.fixture(scope="module")
def chapter(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The chapter, executed, with cells behind it that try the checks."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for name, source in (("strange", STRANGE), ("right", RIGHT)):
        notebook.cells.append(nbformat.v4.new_code_cell(source, id=name))
    path = tmp_path_factory.mktemp("chapter") / NOTEBOOK.name
    nbformat.write(notebook, path)
    return execute.executed(path)


def output(chapter: Any, name: str) -> str:
    return printed(next(cell for cell in chapter.cells if cell.id == name))


def test_every_exercise_starts_wrong_and_has_a_right_solution(chapter: Any) -> None:
    found = pairs(chapter.cells)
    assert len(found) == 3
    for start, solution in found:
        assert printed(start).startswith("not yet: ") and printed(solution) == "right\n"


def test_strange_answers_get_a_hint(chapter: Any) -> None:
    lines = output(chapter, "strange").splitlines()
    assert len(lines) == 3 * 23 and all(line.startswith("not yet: ") for line in lines)


def test_right_answers_in_other_forms_are_right(chapter: Any) -> None:
    assert output(chapter, "right").splitlines() == ["right"] * 11


def test_the_laws_hold_and_fail_where_the_text_says_so(chapter: Any) -> None:
    said = "".join(printed(cell) for cell in chapter.cells if cell.cell_type == "code")
    fails = [int(count) for count in re.findall(r"'fails': (\d+)", said)]
    coalesce, composition, complement, divide, inverse = fails
    assert coalesce == inverse == 0 and min(composition, complement, divide) > 0
