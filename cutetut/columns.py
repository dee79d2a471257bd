"""Tables as plain text."""

from __future__ import annotations

from collections.abc import Container, Sequence


def aligned(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> str:
    """The rows as lines with aligned columns: flush right where their number is in `right`, flush left otherwise.

    Raises ValueError for rows of different lengths.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = (
        [cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))]
        for row in rows
    )
    lines = ["  ".join(cells) for cells in padded]
    # a line is as long as the others where its last column is, and ends with its text otherwise
    return "\n".join(lines if len(widths) - 1 in right else [line.rstrip() for line in lines])
