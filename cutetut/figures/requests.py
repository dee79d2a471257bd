"""What a warp asks of a tile in global memory, request by request, between the bounds of sectors."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from cutetut.figures.base import ACCENT, INK, LINE, MUTED, Picture, blank_figure, integer_table, one_look

LATER, NEVER = "#a9c6e3", "#f6f7f8"


@one_look
def warp_requests(asked: Mapping[str, npt.ArrayLike], *, sector: int = 8, title: str = "") -> Picture:
    """Draw tiles below one another: what a warp's first request asks for, what its later ones do, and the sectors.

    asked: by name a (rows, cols) table of integers, the number of the warp's request that asks for the element, and -1
    where none does; rows lie in memory as they are drawn. sector: elements of one sector, at whose bounds there is a
    line. Raises ValueError for tables that are not 2-D or have numbers below -1.
    """
    tables = {name: integer_table(f"{name}: the requests", table, least=-1) for name, table in asked.items()}
    heights = [0.5 + 6.6 * len(table) / table.shape[1] for table in tables.values()]
    figure = blank_figure(7.0, sum(heights) + 0.3)
    grid = figure.subplots(len(tables), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (name, table) in zip(grid, tables.items(), strict=True):
        _draw(axes, name, table, sector)
    names = ((ACCENT, "first request"), (LATER, "later requests"), (NEVER, "other warps"))
    handles = [mpl.patches.Patch(facecolor=color, edgecolor=LINE, label=name) for color, name in names]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    if title:
        figure.suptitle(title, x=0.01, ha="left")
    return Picture(figure, "\n".join(_first_request(name, table) for name, table in tables.items()))


def _draw(axes: Axes, name: str, table: npt.NDArray[np.int64], sector: int) -> None:
    rows, cols = table.shape
    kinds = np.where(table < 0, 0, np.where(table == 0, 2, 1))
    colors = mpl.colors.ListedColormap([NEVER, LATER, ACCENT])
    axes.imshow(kinds, cmap=colors, vmin=0, vmax=2, interpolation="nearest", extent=(0, cols, rows, 0), aspect="equal")
    axes.vlines(np.arange(0, cols + 1, sector), 0, rows, color=INK, linewidth=0.5)
    axes.hlines(np.arange(rows + 1), 0, cols, color=LINE, linewidth=0.3)
    axes.set_title(name, fontsize=9)
    axes.set_xticks(np.arange(0, cols + 1, 4 * sector))
    axes.set_yticks([0, rows])
    axes.tick_params(colors=MUTED, labelsize=7, length=2)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _first_request(name: str, table: npt.NDArray[np.int64]) -> str:
    """The first request's columns in the first row that it touches, in runs of neighbours."""
    rows = np.flatnonzero((table == 0).any(axis=1))
    if not rows.size:
        return f"{name}: no first request"
    columns = np.flatnonzero(table[rows[0]] == 0)
    runs = np.split(columns, np.flatnonzero(np.diff(columns) > 1) + 1)
    listed = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs[:4])
    more = ", ..." if len(runs) > 4 else ""
    there = f"row {rows[0]}" if len(rows) == 1 else f"each of {len(rows)} rows"
    return f"{name}: the first request asks for columns {listed}{more} in {there}"
