"""Chapter 01 as a reader runs it, its outputs deleted, and its exercises' checks with answers of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest

from cutetut.course import execute
from tests.chapters.exercises import pairs, printed

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "01_layouts.ipynb"
TRIED = '''
class Bare:
    """An answer that is nothing the checks know."""

strange = [None, "", "x", float("nan"), (), (1,), (1, 2, 3), 10**30, -1, True, {}, Bare(), lambda: None, torch.zeros(3),
           "(4,6)", "4:", ((4, 6), 1), np.nan, torch.tensor(float("nan"))]
for check_it in (check_offset, check_blocks, check_pairs):
    print(check_it.__name__)
    for answer in strange:
        check_it(answer)
'''
RIGHT = '''
for answer in (11, np.int64(11), torch.tensor(11), 11.0):
    check_offset(answer)
for answer in ("((2,2),(2,3)):((1,12),(2,4))", "(2,2,2,3):(1,12,2,4)", ((2, 2, 2, 3), (1, 12, 2, 4)),
               lambda: cute.make_layout(((2, 2), (2, 3)), stride=((1, 12), (2, 4)))):
    check_blocks(answer)
for answer in ("((4,8),2):((0,2),1)", "(4,8,2):(0,2,1)", "((2,2,8),2):((0,0,2),1)", LayoutViewer("(4,8,2):(0,2,1)")):
    check_pairs(answer)
'''
# Kernels: two right ones, and A in place of its transpose, constants, nothing at all, and one past the end.
KERNELS = {
    "right, by columns": "y[cute.make_layout((16, 8), stride=(8, 1))(i)] = x[i]",
    "right, by hand": "y[i] = x[i % 8 * 16 + i // 8]",
    "copies": "y[i] = x[i]",
    "constant": "y[i] = cutlass.Float32(0.0)",
    "nothing": "pass",
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


@pytest.fixture(scope="module")
def chapter(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The chapter, executed, with cells behind it that try the checks."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    tried = [("strange", TRIED), ("right", RIGHT)] + [(name, KERNEL.format(body)) for name, body in KERNELS.items()]
    for name, source in tried:
        notebook.cells.append(nbformat.v4.new_code_cell(source, id=name.replace(" ", "-").replace(",", "")))
    path = tmp_path_factory.mktemp("chapter") / NOTEBOOK.name
    nbformat.write(notebook, path)
    return execute.executed(path)


def output(chapter: Any, name: str) -> str:
    return printed(next(cell for cell in chapter.cells if cell.id == name.replace(" ", "-").replace(",", "")))


def test_every_exercise_starts_wrong_and_has_a_right_solution(chapter: Any) -> None:
    found = pairs(chapter.cells)
    assert len(found) == 4
    for start, solution in found:
        assert printed(start).startswith("not yet: ") and printed(solution) == "right\n"


def test_strange_answers_get_a_hint(chapter: Any) -> None:
    lines = output(chapter, "strange").splitlines()
    names = [line for line in lines if line.startswith("check_")]
    assert names == ["check_offset", "check_blocks", "check_pairs"]
    assert len(lines) == 3 * 20 and all(line.startswith("not yet: ") for line in lines if line not in names)


def test_right_answers_in_other_forms_are_right(chapter: Any) -> None:
    assert output(chapter, "right").splitlines() == ["right"] * 12


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_judged_by_what_they_write(chapter: Any, name: str) -> None:
    said = output(chapter, name)
    assert said == "right\n" if name.startswith("right") else said.startswith("not yet: ")


def test_the_break_it_report_names_the_predicted_thread(chapter: Any) -> None:
    (cell,) = (cell for cell in chapter.cells if "break-it" in cell.metadata.get("tags", []))
    said = printed(cell)
    assert "OutOfBounds" in said and "thread (11, 0, 0)" in said
