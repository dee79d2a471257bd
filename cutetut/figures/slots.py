"""Figures of a warp's registers: which thread and value, Tn:vi, each element of a matrix is held by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from cutetut.figures.base import ACCENT, INK, LINE, OURS, PAPER, Picture, blank_figure, one_look

CELL = 0.42, 0.23  # inches, for a label such as T31:v3
SHADE = "#eceef1"  # behind every other pair of values
MARKS = ACCENT, OURS  # behind the elements of the threads that are pointed out


@one_look
def slot_grids(
    places: Mapping[str, npt.ArrayLike],
    *,
    threads: Sequence[int] = (0, 5),
    axes_names: tuple[str, str] = ("m", "n"),
    columns: int = 2,
    title: str = "",
) -> Picture:
    """Draw matrices side by side, each element labelled Tn:vi with the thread and the value that hold it.

    places: (threads, values, 2) row and column of each slot, by name; every element of a matrix has one slot. threads:
    one or two whose elements are coloured. axes_names: of the rows and of the columns. columns: how many matrices stand
    beside each other. Raises ValueError for a table of another shape, and unless each element has exactly one slot.
    """
    tables = {name: _labelled(name, table) for name, table in places.items()}
    columns = min(columns, len(tables))
    across = columns * max(table.shape[1] for table in tables.values()) * CELL[0]
    lines = [list(tables.values())[i : i + columns] for i in range(0, len(tables), columns)]
    heights = [max(table.shape[0] for table in line) * CELL[1] + 0.55 for line in lines]
    figure = blank_figure(across + 0.5 * columns, sum(heights) + (0.3 if title else 0.0))
    grid = figure.subplots(len(lines), columns, squeeze=False, height_ratios=heights).ravel()
    for axes, (name, table) in zip(grid, tables.items(), strict=False):
        _draw(axes, name, table, threads, axes_names)
    for axes in grid[len(tables) :]:
        axes.set_visible(False)
    if title:
        figure.suptitle(title, x=0.01, ha="left")
    return Picture(figure, "\n".join(_text(name, table, threads) for name, table in tables.items()))


def _labelled(name: str, places: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """(rows, cols, 2): the thread and the value of each element."""
    place = np.asarray(places, dtype=np.int64)
    if place.ndim != 3 or place.shape[2] != 2 or place.size == 0 or place.min() < 0:
        raise ValueError(f"{name}: a (threads, values, 2) table of rows and columns from 0 on is needed")
    rows, cols = (place.reshape(-1, 2).max(axis=0) + 1).tolist()
    table = np.full((rows, cols, 2), -1, dtype=np.int64)
    thread, value = np.indices(place.shape[:2])
    table[place[..., 0], place[..., 1]] = np.stack([thread, value], axis=-1)
    if (table < 0).any() or rows * cols != thread.size:
        raise ValueError(f"{name}: {thread.size} slots do not hold each of {rows}x{cols} elements once")
    return table


def _draw(axes: Axes, name: str, table: npt.NDArray[Any], threads: Sequence[int], names: tuple[str, str]) -> None:
    rows, cols = table.shape[:2]
    for row, col in np.ndindex(rows, cols):
        thread, value = table[row, col].tolist()
        marked = thread in threads
        face = MARKS[list(threads).index(thread) % len(MARKS)] if marked else SHADE if value // 2 % 2 else PAPER
        axes.add_patch(mpl.patches.Rectangle((col, row), 1, 1, facecolor=face, edgecolor=LINE, linewidth=0.5))
        axes.text(
            col + 0.5, row + 0.5, f"T{thread}:v{value}", ha="center", va="center", fontsize=6.5,
            color=PAPER if marked else INK, fontweight="bold" if marked else "normal",
        )  # fmt: skip
    axes.set(title=name, xlabel=names[1], ylabel=names[0], xlim=(0, cols), ylim=(rows, 0))
    axes.set_xticks(np.arange(cols) + 0.5, [str(n) for n in range(cols)], fontsize=7)
    axes.set_yticks(np.arange(rows) + 0.5, [str(n) for n in range(rows)], fontsize=7)
    axes.tick_params(length=0)


def _text(name: str, table: npt.NDArray[Any], threads: Sequence[int]) -> str:
    held = []
    for thread in threads:
        rows, cols = np.nonzero(table[..., 0] == thread)
        order = np.argsort(table[rows, cols, 1])
        held.append(f"T{thread} " + " ".join(f"({rows[i]},{cols[i]})" for i in order))
    return f"{name}: " + "; ".join(held)
