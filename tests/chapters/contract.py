"""The contract of a chapter and of its kernels, as tests of single chapters assert it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cutetut.course import notebooks
from cutetut.course.difference import body, difference

WORDS, CELLS, LINES, CHANGED, PARAMETERS = 4000, 75, 90, 40, 12  # at most


def assert_short(kernel: Callable[..., Any]) -> None:
    """A kernel that can be read: not too many lines, not too many parameters."""
    assert len(body(kernel)) <= LINES
    assert len(inspect.signature(kernel).parameters) <= PARAMETERS


def assert_one_idea(before: Callable[..., Any], after: Callable[..., Any]) -> None:
    """A short kernel that differs from the one before in few lines."""
    found = difference(before, after)
    assert found.lines and max(found.gone, found.come) <= CHANGED
    assert_short(after)


def assert_few_words(chapter: str | Path) -> list[str]:
    """Not too many words by a plain split, fenced code and signs included; returns the texts of the prose."""
    prose = [cell.source for cell in notebooks.read(chapter).cells if cell.cell_type == "markdown"]
    assert sum(len(text.split()) for text in prose) <= WORDS
    return prose


def assert_contract(chapter: str) -> None:
    """Size of the notebook, and tags that readers and tests rely on."""
    notebook, prose = notebooks.read(chapter), assert_few_words(chapter)
    assert len(notebook.cells) <= CELLS
    tagged = {tag for cell in notebook.cells for tag in notebooks.tags(cell)}
    assert {"kernel", "bench", "exercise", "solution", "break-it", "hide-input"} <= tagged
    assert all("!" not in text.replace("!=", "") for text in prose)
