"""Write the chapters as Colab needs them: with a first cell that installs the course.  Usage: notebooks.py FOLDER

The chapters themselves have no such cell: where the course is set up it would only be in the way.  The workflow
`book.yml` publishes what this writes as the branch `colab`, which the book's buttons open.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat

HERE = Path(__file__).resolve().parent
CHAPTERS = HERE.parents[1] / "notebooks"


def with_bootstrap(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return a copy of a notebook whose first code cell is bootstrap.py, right after the title."""
    source = (HERE / "bootstrap.py").read_text().rstrip("\n")
    cell = nbformat.v4.new_code_cell(source, id="bootstrap", metadata={"cellView": "form"})
    copy = nbformat.from_dict({**notebook, "cells": [*notebook.cells]})
    copy.cells.insert(1 if copy.cells and copy.cells[0].cell_type == "markdown" else 0, cell)
    return copy


def main(folder: Path) -> None:
    """Write every chapter into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(CHAPTERS.glob("*.ipynb")):
        nbformat.write(with_bootstrap(nbformat.read(path, as_version=4)), folder / path.name)
        print(folder / path.name)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
