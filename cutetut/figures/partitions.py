"""How a tile is dealt out: strips of positions, the boxes of a derivation, and the strides of one thread's elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from cutetut.figures.base import ACCENT, INK, LINE, MUTED, PAPER, Picture, blank_figure, one_look
from cutetut.figures.tiles import WARP_HUES

MONO = "DejaVu Sans Mono"
Ints = npt.NDArray[np.int64]


@one_look
def strips(owners: Mapping[str, npt.ArrayLike], *, unit: str = "position", pitch: int = 1, title: str = "") -> Picture:
    """Draw one strip per name: who owns each position, as coloured cells with the owner's number where there is room.

    owners: (positions,) integers each. pitch: where it is not 1, a second line under the last strip has the positions
    times it. unit: what the numbers under the strips are.
    """
    figure = blank_figure(8.4, 0.75 + 0.78 * len(owners))
    rows = figure.subplots(len(owners), 1, squeeze=False)[:, 0]
    text = []
    for axes, (name, given) in zip(rows, owners.items(), strict=True):
        owner = np.asarray(given, dtype=np.int64)
        axes.imshow(_strip_colors(owner)[None], extent=(0, owner.size, 0, 1), aspect="auto", interpolation="nearest")
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        ends = np.append(starts[1:], owner.size)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            axes.axvline(start, color=PAPER, linewidth=0.6 if end - start < 3 else 1.2)
            if end - start >= 3:
                axes.text((start + end) / 2, 0.5, str(owner[start]), ha="center", va="center", fontsize=7.5)
        axes.set_title(name, fontfamily=MONO, fontsize=8.5, pad=3)
        ticks = range(0, owner.size + 1, 16)
        twice = pitch != 1 and axes is rows[-1]
        axes.set_xticks(ticks, [f"{tick}\n{tick * pitch}" if twice else str(tick) for tick in ticks], fontsize=7.5)
        axes.set_yticks([])
        first = ", ".join(map(str, owner[:20].tolist()))
        text.append(f"{name}: positions 0 to 19 belong to {first}")
    rows[-1].set_xlabel(unit)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return Picture(figure, "\n".join(text))


def _strip_colors(owner: Ints) -> npt.NDArray[np.float64]:
    """(positions, 3) light tones of the eight hues; owners 8 and up have the same hues, lighter."""
    hues = np.array([mpl.colors.to_rgb(hue) for hue in WARP_HUES])[owner % len(WARP_HUES)]
    weight = np.where(owner // len(WARP_HUES) % 2 == 0, 0.75, 0.5)[:, None]
    return np.asarray(weight * hues + (1 - weight))


@one_look
def derivation(steps: Sequence[tuple[str, str, str, str]], *, title: str = "") -> Picture:
    """Draw a chain of boxes, one per step: (operation, what it is for, how the modes are called, layout)."""
    figure = blank_figure(9.2, 0.35 + 0.8 * len(steps))
    axes = figure.add_subplot()
    for number, (operation, purpose, modes, layout) in enumerate(steps):
        top = 1.3 * number
        box = mpl.patches.FancyBboxPatch(
            (0.05, top), 9.9, 1.0, boxstyle="round,pad=0.02,rounding_size=0.08", linewidth=1.2,
            facecolor=PAPER if number else "#f3f4f6", edgecolor=ACCENT if number == len(steps) - 1 else LINE,
        )  # fmt: skip
        axes.add_patch(box)
        axes.text(0.2, top + 0.27, operation, fontsize=9.5, fontweight="bold", va="center")
        axes.text(3.85, top + 0.27, purpose, fontsize=8.5, color=MUTED, va="center")
        axes.text(0.2, top + 0.74, modes, fontsize=8, fontfamily=MONO, color=ACCENT, va="center")
        axes.text(3.85, top + 0.74, layout, fontsize=8, fontfamily=MONO, va="center")
        if number:
            arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.2}
            axes.annotate("", (5, top), (5, top - 0.3), arrowprops=arrow)
    axes.set(xlim=(0, 10), ylim=(1.3 * len(steps) - 0.2, -0.1), title=title)
    axes.axis("off")
    return Picture(figure, "\n".join(f"{operation}: {layout}" for operation, _, _, layout in steps))


@one_look
def stride_arrows(
    offsets: npt.ArrayLike,
    steps: Sequence[tuple[str, tuple[int, int], tuple[int, int]]],
    *,
    split: tuple[int, int] = (4, 4),
    title: str = "",
) -> Picture:
    """Draw one thread's (rows, columns) table of offsets, with arrows for its strides.

    steps: (label, (row, column) where the arrow starts, where it ends), in cells of the table. split: after
    how many rows and columns there is a gap, as in the tile.
    """
    table = np.asarray(offsets, dtype=np.int64)
    figure = blank_figure(6.6, 4.6)
    axes = figure.add_subplot()

    def corner(row: int, col: int) -> tuple[float, float]:
        return col + 0.45 * (col // split[1]), row + 0.45 * (row // split[0])

    for (row, col), offset in np.ndenumerate(table):
        x, y = corner(row, col)
        axes.add_patch(mpl.patches.Rectangle((x, y), 1, 1, facecolor="#dceaf5", edgecolor=PAPER, linewidth=1.5))
        axes.text(x + 0.5, y + 0.72, str(offset), ha="center", va="center", fontsize=8, fontfamily=MONO)
    for label, start, end in steps:
        _arrow(axes, label, corner(*start), corner(*end))
    right, bottom = corner(table.shape[0] - 1, table.shape[1] - 1)[0] + 1, corner(table.shape[0] - 1, 0)[1] + 1
    axes.set(xlim=(-0.9, right + 0.1), ylim=(bottom + 0.1, -0.75), title=title)
    axes.set_aspect("equal")
    axes.axis("off")
    rows = "\n".join(" ".join(f"{offset:5}" for offset in row) for row in table.tolist())
    return Picture(figure, f"{rows}\n" + ", ".join(f"{label}: {start} to {end}" for label, start, end in steps))


def _arrow(axes: Axes, label: str, start: tuple[float, float], end: tuple[float, float]) -> None:
    """From cell to cell, along the row above or along the column at the left, with the stride beside it."""
    across = start[1] == end[1]
    near = 0.2 if abs(end[0] - start[0]) + abs(end[1] - start[1]) < 2 else -0.22
    begin = (start[0] + 0.5, start[1] + near) if across else (start[0] + near, start[1] + 0.5)
    stop = (end[0] + 0.5, end[1] + near) if across else (end[0] + near, end[1] + 0.5)
    style: dict[str, Any] = {"arrowstyle": "-|>", "color": ACCENT, "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", stop, begin, arrowprops=style)
    middle = ((begin[0] + stop[0]) / 2, (begin[1] + stop[1]) / 2)
    shift, side = ((0, -0.22), "center") if across else ((-0.1, 0), "right") if near < 0 else ((0.1, 0), "left")
    axes.text(
        middle[0] + shift[0], middle[1] + shift[1] + (0.28 if side == "left" else 0), label, color=ACCENT, fontsize=9,
        fontweight="bold", ha=side, va="center", bbox={"facecolor": "none", "edgecolor": "none", "pad": 0.8},
    )  # fmt: skip
