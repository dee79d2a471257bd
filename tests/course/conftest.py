"""A project of pretended notebooks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from cutetut.course import notebooks

Make = Callable[..., Path]


@pytest.fixture
def make(project: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Write a notebook of (source, tags) cells into an empty project, list it in _toc.yml, return its path."""
    monkeypatch.setattr(notebooks, "project_root", lambda: project)
    listed: list[str] = []

    def write(name: str, *cells: str | tuple[str, list[str]]) -> Path:
        made = nbformat.v4.new_notebook()
        made.cells.append(nbformat.v4.new_markdown_cell("# A title"))
        for cell in cells:
            source, tags = cell if isinstance(cell, tuple) else (cell, [])
            made.cells.append(nbformat.v4.new_code_cell(source, metadata={"tags": tags} if tags else {}))
        path = project / "notebooks" / f"{name}.ipynb"
        nbformat.write(made, path)
        listed.append(f"      - file: notebooks/{name}\n")
        toc = "format: jb-book\nroot: book/intro\nparts:\n  - caption: One\n    chapters:\n" + "".join(listed)
        (project / "_toc.yml").write_text(toc + "      - file: book/glossary\n")
        return path

    return write
