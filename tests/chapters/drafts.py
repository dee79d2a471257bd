"""What the drafts of chapters have in common: the contract, and a benchmark without a clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import pytest

from cutetut.course import notebooks
from cutetut.course.difference import body, difference
from cutetut.measure import bench

WORDS, CELLS, LINES, CHANGED, PARAMETERS = 4000, 75, 90, 40, 12  # at most


def assert_one_idea(before: Callable[..., Any], after: Callable[..., Any]) -> None:
    """A short kernel that differs from the one before in few lines."""
    found = difference(before, after)
    assert found.lines and max(found.gone, found.come) <= CHANGED
    assert len(body(after)) <= LINES
    assert after.__wrapped__.__code__.co_argcount <= PARAMETERS  # type: ignore[attr-defined]


def assert_contract(chapter: str) -> None:
    """Size of the notebook, and tags that readers and tests rely on."""
    notebook = notebooks.read(chapter)
    prose = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    assert len(notebook.cells) <= CELLS and sum(len(text.split()) for text in prose) <= WORDS
    tagged = {tag for cell in notebook.cells for tag in cell.metadata.get("tags", [])}
    assert {"kernel", "bench", "exercise", "solution", "break-it", "hide-input"} <= tagged
    assert all("!" not in text.replace("!=", "") for text in prose)


def without_a_clock(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let `benchmark()` run whole on any machine; what would have been timed is launched once and listed."""
    timed: list[str] = []

    def compare(ours: Any, vendor: Any, **said: Any) -> list[bench.Row]:
        timed.append(said["kernel"])
        ours()
        several = vendor if isinstance(vendor, Mapping) else {said["vendor_name"]: vendor}
        for theirs in several.values():
            theirs()
        speed = {"method": "burst of 40 launches", "inputs": "none", "ours_us": 1.0}
        speed |= {"ours_tflops": 1.0, "vendor_tflops": 2.0, "ratio": 0.5}
        marked = {"rung": True} if said.get("rung") else {}
        names = {"kernel": said["kernel"], "vendor": next(iter(several))}
        return [{**said["size"], **names, **speed, **marked}]

    monkeypatch.setattr(chapter.bench, "compare", compare)
    if hasattr(chapter, "provenance"):  # of chapters that keep tables of their own
        monkeypatch.setattr(chapter.provenance, "collect", dict)
    return timed
