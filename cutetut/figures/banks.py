"""Figures of shared memory: in which banks, or groups of banks, the elements of a tile lie."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from cutetut.figures.base import ACCENT, INK, MUTED, PAPER, Picture, blank_figure, integer_table, one_look

BANKS = 32  # of 4 bytes each
GROUPS = 8  # 128 bytes are all 32 banks once; 16 bytes of them, 4 banks, are what a core matrix row takes


@one_look
def bank_groups(offsets: Mapping[str, npt.ArrayLike], *, columns: int = 4, title: str = "") -> Picture:
    """Draw tiles side by side, each element in the colour of the bank group that holds it.

    offsets: (rows, cols) byte offsets in shared memory by name. A bank group is 4 of the 32 banks, 16 bytes:
    number offset // 16 % 8. The number is written wherever a run of neighbours in one group starts.
    Raises ValueError for an offset below 0 and for tables that are not 2-D.
    """
    groups = {name: integer_table(f"{name}: the offsets", table) // 16 % GROUPS for name, table in offsets.items()}
    rows = -(-len(groups) // columns)
    figure = blank_figure(2.2 * min(columns, len(groups)), 2.3 * rows + (0.3 if title else 0.0))
    grid = figure.subplots(rows, min(columns, len(groups)), squeeze=False).ravel()
    for axes, (name, table) in zip(grid, groups.items(), strict=False):
        _draw(axes, name, table)
    for axes in grid[len(groups) :]:
        axes.set_visible(False)
    if title:
        figure.suptitle(title, x=0.01, ha="left")
    lines = [f"{name}: first row in bank groups {_runs(table[0])}" for name, table in groups.items()]
    return Picture(figure, "\n".join(lines))


@one_look
def column_banks(words: Mapping[str, npt.ArrayLike], *, column: int = 5, title: str = "") -> Picture:
    """Draw tiles side by side, each element in the colour of its bank; the banks of a row and a column are written in.

    words: (rows, cols) offsets in shared memory by name, in words of 4 bytes; the bank is word % 32. The first row and
    the marked column are what a warp may access at once, a lane for each element. Raises ValueError for a column that
    is not in every table, and for what `bank_groups` refuses.
    """
    banks = {name: integer_table(f"{name}: the offsets", table) % BANKS for name, table in words.items()}
    if any(not 0 <= column < table.shape[1] for table in banks.values()):
        raise ValueError(f"column {column} is not in every table")
    figure = blank_figure(3.6 * len(banks), 3.9 + (0.3 if title else 0.0))
    for axes, (name, table) in zip(figure.subplots(1, len(banks), squeeze=False)[0], banks.items(), strict=True):
        _draw_banks(axes, name, table, column)
    if title:
        figure.suptitle(title, x=0.01, ha="left")
    lines = [
        f"{name}: row 0 in banks {_listed(table[0])}; column {column} in banks {_listed(table[:, column])}"
        for name, table in banks.items()
    ]
    return Picture(figure, "\n".join(lines))


def _draw_banks(axes: Axes, name: str, table: npt.NDArray[np.int64], column: int) -> None:
    rows, cols = table.shape
    colors = mpl.colormaps["cividis"](np.linspace(0.1, 0.95, BANKS))
    axes.imshow(colors[table], interpolation="nearest", extent=(0, cols, rows, 0), aspect="auto")
    written = [(0, col) for col in range(0, cols, 4) if col != column] + [(row, column) for row in range(rows)]
    for row, col in written:
        bank = int(table[row, col])
        ink = PAPER if bank < BANKS // 2 else INK
        axes.text(col + 0.5, row + 0.52, str(bank), ha="center", va="center", fontsize=5.5, color=ink)
    axes.add_patch(mpl.patches.Rectangle((column, 0), 1, rows, fill=False, edgecolor=ACCENT, linewidth=1.8))
    axes.add_patch(mpl.patches.Rectangle((0, 0), cols, 1, fill=False, edgecolor=INK, linewidth=1.2))
    axes.set(title=name, xlabel="n", ylabel="m", xticks=range(0, cols + 1, 8), yticks=range(0, rows + 1, 8))
    axes.tick_params(colors=MUTED, labelsize=7)


def _listed(banks: npt.NDArray[np.int64]) -> str:
    """The first four of them, or only one if they are all the same."""
    if (banks == banks[0]).all():
        return f"{banks[0]} only"
    return ", ".join(map(str, banks[:4].tolist())) + ", ..."


def _runs(row: npt.NDArray[np.int64]) -> str:
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    return " ".join(str(group) for group in row[starts].tolist())


def _draw(axes: Axes, name: str, table: npt.NDArray[np.int64]) -> None:
    colors = mpl.colormaps["cividis"](np.linspace(0.1, 0.95, GROUPS))
    rows, cols = table.shape
    axes.imshow(colors[table], interpolation="nearest", extent=(0, cols, rows, 0), aspect="auto")
    for row, col in np.argwhere(_corners(table)).tolist():
        group = int(table[row, col])
        width = _run(table[row, col:])
        height = _run(table[row:, col])
        axes.text(
            col + width / 2, row + height / 2, str(group), ha="center", va="center", fontsize=6.5,
            color=PAPER if group < GROUPS // 2 else INK,
        )  # fmt: skip
    axes.set_title(name, fontsize=8)
    axes.set_xticks([0, cols])
    axes.set_yticks([0, rows])
    axes.tick_params(colors=MUTED, labelsize=7)


def _corners(table: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Where a block of one group starts: other groups to the left and above."""
    left = np.diff(table, axis=1, prepend=-1) != 0
    above = np.diff(table, axis=0, prepend=-1) != 0
    return np.asarray(left & above)


def _run(values: npt.NDArray[np.int64]) -> int:
    """How many of the values, from the first on, are like the first."""
    other = np.flatnonzero(values != values[0])
    return int(other[0]) if other.size else len(values)
