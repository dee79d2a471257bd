"""What a chapter shows of the change from one kernel to the next; and loading a change of cells with other tags."""

from __future__ import annotations

import pytest

from cutetut.course import notebooks
from cutetut.course.difference import body, difference


def before(a: int, b: int) -> int:
    # a comment
    total = a + b
    total += 1  # why
    return total


def after(
    a: int, b: int,
) -> int:  # fmt: skip
    total = a + b  # another comment

    if total:
        total += 1
    print("# not a comment")
    return total


def test_only_code_is_compared() -> None:
    found = difference(before, after)
    assert found.lines == ("+ if total:", '+ print("# not a comment")')
    assert (found.gone, found.come) == (0, 2)
    assert str(found).endswith("0 lines go, 2 come")


def test_both_directions() -> None:
    assert difference(after, before).lines == ("- if total:", '- print("# not a comment")')
    assert difference(before, before).lines == ()


def test_a_body_is_lines_without_comments() -> None:
    assert body(before) == ["total = a + b", "total += 1", "return total"]


def test_lines_are_shown_as_they_are_indented() -> None:
    def loop(a: int) -> int:
        for step in range(a):
            if step:
                a += step  # within two blocks
        return a

    def nothing(a: int) -> int:
        return a

    assert difference(nothing, loop).lines == (
        "+ for step in range(a):", "+     if step:", "+         a += step",
    )  # fmt: skip


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="not a function"):
        body(notebooks.Cell)


def test_cells_with_other_tags_can_be_changed(make) -> None:
    make("04_a", ("x = 1", ["kernel"]), ("y = 1", ["bench"]))
    changed = notebooks.changed("04_a", [("y = 1", "y = 2")], ("kernel", "bench"))
    assert (changed.x, changed.y) == (1, 2)
    with pytest.raises(notebooks.NotebookError, match="found 0 times"):
        notebooks.changed("04_a", [("y = 1", "y = 2")])
