"""What is counted of a chapter, on pretended ones whose numbers are known by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest

from cutetut.course import contract, notebooks

TITLE = """# A title

**After this you can**

- one thing;
- another;
- a third.

**Time to read:** 10 minutes, the exercises another 20.
"""

KERNEL = '''
SIZE = 4


@cute.kernel
def some_kernel(
    a, b, *, c
):
    """Said in a line."""
    one = 1

    # a comment
    cute.copy(one)


def helper(a):
    return a


class Plan:
    def inside(self):
        pass
'''


def cell(kind: str, source: str, name: str = "", tags: tuple[str, ...] = (), printed: str = "") -> Any:
    if kind == "md":
        return nbformat.v4.new_markdown_cell(source, **({"id": name} if name else {}))
    made = nbformat.v4.new_code_cell(source, **({"id": name} if name else {}))
    made.metadata["tags"] = list(tags)
    made.outputs = [nbformat.v4.new_output("stream", text=printed)] if printed else []
    return made


@pytest.fixture
def measured(project: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Measure a chapter of these cells."""
    monkeypatch.setattr(notebooks, "project_root", lambda: project)
    (project / "book" / "data" / "exemptions.toml").write_text("[contract.00_a]\ncells = 'a reason'\n")

    def run(*cells: Any) -> contract.Measured:
        book = nbformat.v4.new_notebook()
        book.cells = list(cells)
        nbformat.write(book, project / "notebooks" / "00_a.ipynb")
        return contract.measure("00_a")

    return run


def test_sizes(measured: Any) -> None:
    found = measured(cell("md", TITLE), cell("code", KERNEL, tags=("kernel",)), cell("code", KERNEL)).values
    assert found["cells"] == 3
    assert found["words"] == 20
    assert (found["kernel"], found["helper"], found["parameters"]) == (3, 1, 3)
    assert found["diff"] is None
    assert found["goals"] == 3


def test_a_chapter_without_a_kernel_breaks_no_rule_of_kernels(measured: Any) -> None:
    broken = {rule.column for rule in measured(cell("md", TITLE)).broken()}
    assert broken == {"exercises", "of kernels", "minutes"}


def test_the_largest_diff_counts(measured: Any) -> None:
    diffs = ("+ a\n\n0 lines go, 7 come\n", "- b\n\n41 lines go, 3 come\n", "about 90 lines go, 1 come in\n")
    assert measured(cell("md", TITLE), *(cell("code", "x", printed=text) for text in diffs)).values["diff"] == 41


def test_a_replaced_line_is_one_change_and_the_sum_is_told(measured: Any) -> None:
    diffs = ("31 lines go, 20 come\n", "40 lines go, 1 come\n")
    found = measured(cell("md", TITLE), *(cell("code", "x", printed=text) for text in diffs))
    assert found.values["diff"] == 40 and "diff" not in {rule.column for rule in found.broken()}
    assert contract.long_both_ways([found]).endswith("exceed 40 in 00 (51).")
    assert contract.long_both_ways([measured(cell("md", TITLE))]).endswith("exceed 40 in no chapter.")


def test_the_time_to_read_is_that_of_prose_and_visible_code_before_the_exercises(measured: Any) -> None:
    words, lines = "word " * 1600, "\n\n".join(["x = 1"] * 40)  # 8 minutes and 2
    title = cell("md", TITLE.replace("# A title", words))
    shown, folded = cell("code", lines), cell("code", lines, tags=("hide-input",))
    exercises = cell("md", "## Exercises\n\n" + words)
    ratio = measured(title, shown, folded, exercises, cell("code", lines)).values["minutes"]
    assert ratio == pytest.approx(1, abs=0.02)  # the title's own words are there, too
    assert "minutes" not in {rule.column for rule in measured(title, shown).broken()}
    assert "minutes" in {rule.column for rule in measured(title, *(cell("code", lines) for _ in range(4))).broken()}
    assert measured(cell("md", "# No time")).values["minutes"] is None


def test_exercises_are_counted_by_their_solutions(measured: Any) -> None:
    folded = "<details>\n<summary>Solution</summary>\n\n```python\n@cute.kernel\ndef k(): pass\n```\n</details>"
    found = measured(
        cell("md", TITLE),
        cell("code", "check(1)", "ex1", ("exercise",)),
        cell("code", "check(2)", "ex1-solution", ("solution", "hide-cell")),
        cell("code", "check(1)", "ex2", ("exercise",)),
        cell("md", folded, "ex2-solution"),
        cell("code", "check(1)", "ex3", ("exercise",)),
    ).values
    assert (found["exercises"], found["of kernels"], found["untagged"]) == (2, 1, 0)


@pytest.mark.parametrize(
    ("source", "check", "writes"),
    [
        ("@cute.kernel\ndef k(): pass", "", True),
        ("@cute.jit\ndef f(x): pass", "", True),
        ("def f(a, b):\n    cute.autovec_copy(a, b)", "", True),
        ("def f():\n    cute.arch.sync_threads()", "", True),
        ("def f(mma, tCgC):\n    return cute.make_fragment_like(tCgC)", "", True),
        ("def f():\n    return cute.make_tiled_mma(atom, atoms)", "", True),
        ("check([('a', 'cute.copy(b)')])", "", True),
        ("check('i < seen')", "module = notebooks.changed(NAME, [(old, text)])", True),
        ("check('i < seen')", "print(text)", False),
        ("check(3)", "module = notebooks.changed(NAME, [(old, new)])", False),
        ("def f(shape):\n    return cute.make_layout(shape)", "", False),
        ("def f(a, b):\n    return a @ b.T", "", False),
        ("%time x", "", False),
    ],
)
def test_what_writes_kernel_code(source: str, check: str, writes: bool) -> None:
    assert contract.writes_kernel_code(source, check) is writes


def test_cells_without_their_tag_are_named(measured: Any) -> None:
    found = measured(
        cell("md", TITLE),
        cell("code", "def benchmark():\n    pass", "speed"),
        cell("md", "## Break it\n\ntext\n\n### More"),
        cell("code", "broken()", "one"),
        cell("code", "broken()", "two", ("break-it",)),
        cell("code", "table()", "three", ("hide-input",)),
        cell("code", "broken()", "break-four", ("hide-input",)),
        cell("md", "## Recap"),
        cell("code", "1", "five"),
        cell("code", "1", "ex1"),
        cell("code", "2", "ex1-solution", ("solution",)),
    )
    assert found.untagged == ("speed", "one", "break-four", "ex1", "ex1-solution")


def test_the_table_marks_what_has_a_reason_and_what_has_none(measured: Any) -> None:
    found = measured(*(cell("md", TITLE) for _ in range(76)))
    header, row = contract.rows([found])
    shown = dict(zip(header, row, strict=True))
    assert (shown["chapter"], shown["cells"], shown["kernel"]) == ("00_a", "76*", "")
    assert shown["exercises"] == "0!" and shown["goals"] == "3"
    assert contract.excused([found]) == {("00_a", "cells"): "a reason"}


def test_the_command_line_says_what_has_no_reason(measured: Any, capsys: pytest.CaptureFixture[str]) -> None:
    measured(cell("md", TITLE), cell("code", "def benchmark():\n    pass", "speed"))
    assert contract.main(["00_a"]) == 1
    said = capsys.readouterr().out
    assert "! 00_a, exercises: 3 to 99 exercises" in said
    assert said.splitlines()[-1].endswith("lack their tag: speed")
    assert contract.main(["none"]) == 1
