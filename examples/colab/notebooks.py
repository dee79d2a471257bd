"""Write the chapters as Colab needs them.  Usage: notebooks.py FOLDER

They get a first cell that installs the course, which would only be in the way where the course is set up, and links
that lead somewhere from Colab: to the published book, and to other chapters on Colab.  The workflow `book.yml`
publishes what this writes as the branch `colab`, which the book's buttons open.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat

HERE = Path(__file__).resolve().parent
CHAPTERS = HERE.parents[1] / "notebooks"
BOOK = "https://cutetut.github.io/cutetut/book/"
ON_COLAB = "https://colab.research.google.com/github/cutetut/cutetut/blob/colab/notebooks/"


def with_addresses(text: str) -> str:
    """Return a text whose links to pages of the book and to chapters are addresses of what is published."""
    text = re.sub(r"\]\(\.\./book/(\w+)\.md", rf"]({BOOK}\1.html", text)
    return re.sub(r"\]\((\w+\.ipynb)\)", rf"]({ON_COLAB}\1)", text)


def for_colab(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return a copy of a notebook with such links, whose first code cell is bootstrap.py, right after the title."""
    source = (HERE / "bootstrap.py").read_text().rstrip("\n")
    bootstrap = nbformat.v4.new_code_cell(source, id="bootstrap", metadata={"cellView": "form"})
    copy = nbformat.from_dict(notebook)
    for cell in copy.cells:
        if cell.cell_type == "markdown":
            cell.source = with_addresses(cell.source)
    copy.cells.insert(1 if copy.cells and copy.cells[0].cell_type == "markdown" else 0, bootstrap)
    return copy


def main(folder: Path) -> None:
    """Write every chapter into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(CHAPTERS.glob("*.ipynb")):
        nbformat.write(for_colab(nbformat.read(path, as_version=4)), folder / path.name)
        print(folder / path.name)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
