"""Who owns a tile: its elements in the colours of their threads, and one thread's elements close up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cutetut.figures.base import ACCENT, INK, MUTED, Picture, blank_figure, one_look


def thread_colors(rows: int, cols: int) -> npt.NDArray[np.uint8]:
    """Return (rows * cols, 3) RGB bytes, one colour per thread of a thread grid.

    The colour runs from blue to yellow (cividis, which colour-blind readers see alike) with the thread number,
    and alternates between a dark and a light tone like a chessboard, so that neighbours differ in lightness
    and not in hue alone.
    """
    thread = np.arange(rows * cols)
    base = mpl.colormaps["cividis"](0.08 + 0.8 * thread / max(1, thread.size - 1))[:, :3]
    light = ((thread // cols + thread % cols) % 2 == 1)[:, None]
    toned = np.where(light, base + 0.55 * (1.0 - base), 0.6 * base)
    return np.asarray(np.rint(toned * 255), dtype=np.uint8)


@one_look
def tile_owners(
    owner: npt.ArrayLike,
    *,
    thread: int | None = None,
    thread_grid: tuple[int, int] | None = None,
    title: str = "",
) -> Picture:
    """Draw a (rows, cols) table of owners, one colour per thread; `thread` is outlined and the rest dimmed."""
    table = np.asarray(owner)
    figure = blank_figure(4.4, 4.4 * min(1.3, max(0.4, table.shape[0] / table.shape[1])))
    _draw_owners(figure.add_subplot(), table, thread, _grid(table, thread_grid), title)
    return Picture(figure, _owners_text(table, thread, title))


@one_look
def compare_owners(
    owners: Mapping[str, npt.ArrayLike], *, thread: int = 0, thread_grid: tuple[int, int] | None = None
) -> Picture:
    """Draw several owner tables side by side, each under its name, with the same thread outlined."""
    tables = {name: np.asarray(owner) for name, owner in owners.items()}
    figure = blank_figure(3.0 * len(tables), 3.3)
    for axes, (name, table) in zip(_row(figure, len(tables)), tables.items(), strict=True):
        _draw_owners(axes, table, thread, _grid(table, thread_grid), name)
    return Picture(figure, "\n".join(_owners_text(table, thread, name) for name, table in tables.items()))


@one_look
def thread_elements(owner: npt.ArrayLike, thread: int, *, matrix: str = "C", title: str = "") -> Picture:
    """Draw one thread's elements as blocks of labelled cells; `owner` is a (rows, cols) table."""
    figure = blank_figure(5.0, 5.0)
    _draw_elements(figure.add_subplot(), np.asarray(owner), thread, matrix)
    if title:
        figure.suptitle(title, x=0.01, ha="left")
    return Picture(figure, _elements_text(np.asarray(owner), thread, matrix))


@one_look
def picker_state(
    owner: npt.ArrayLike,
    thread: int,
    *,
    thread_grid: tuple[int, int] | None = None,
    matrix: str = "C",
    title: str = "",
) -> Picture:
    """Draw what a thread picker shows: the tile with one thread outlined, and that thread's elements."""
    table = np.asarray(owner)
    figure = blank_figure(8.4, 4.3 * min(1.0, max(0.6, table.shape[0] / table.shape[1])))
    left, right = _row(figure, 2)
    _draw_owners(left, table, thread, _grid(table, thread_grid), "")
    _draw_elements(right, table, thread, matrix)
    if title:  # above both, since it is wider than the left one
        figure.suptitle(title, x=0.01, ha="left")
    return Picture(figure, f"{_owners_text(table, thread, title)}\n{_elements_text(table, thread, matrix)}")


def _row(figure: Figure, count: int) -> list[Axes]:
    return list(figure.subplots(1, count, squeeze=False)[0])


def _grid(owner: npt.NDArray[Any], grid: tuple[int, int] | None) -> tuple[int, int]:
    return grid or (1, int(owner.max()) + 1)


def _draw_owners(axes: Axes, owner: npt.NDArray[Any], thread: int | None, grid: tuple[int, int], title: str) -> None:
    rows, cols = owner.shape
    image = thread_colors(*grid)[owner].astype(np.float64) / 255
    if thread is not None:
        owned = owner == thread
        image = np.where(owned[..., None], mpl.colors.to_rgb(ACCENT), 0.35 * image + 0.65)
        axes.add_collection(mpl.collections.LineCollection(_outline(owned), colors=INK, linewidths=1.2))
    axes.imshow(image, interpolation="nearest", extent=(0, cols, rows, 0), aspect="equal")
    axes.set(title=title, xlabel="column", ylabel="row")
    axes.set_xticks(_ticks(cols))
    axes.set_yticks(_ticks(rows))


def _outline(mask: npt.NDArray[np.bool_]) -> list[list[tuple[int, int]]]:
    """Return the segments between elements inside and outside a mask, as ((x, y), (x, y))."""
    padded = np.pad(mask, 1).astype(np.int8)
    across = np.argwhere(np.diff(padded, axis=0)[:, 1:-1])
    down = np.argwhere(np.diff(padded, axis=1)[1:-1, :])
    return [[(int(x), int(y)), (int(x) + 1, int(y))] for y, x in across] + [
        [(int(x), int(y)), (int(x), int(y) + 1)] for y, x in down
    ]


def _draw_elements(axes: Axes, owner: npt.NDArray[Any], thread: int, matrix: str) -> None:
    """Draw a thread's elements close together, with a gap where rows or columns are not neighbours."""
    places = np.argwhere(owner == thread)
    left, top = _squeezed(places[:, 1]), _squeezed(places[:, 0])
    size = 6.5 if max(len(left), len(top)) <= 8 else 4.5
    for row, col in places.tolist():
        x, y = left[col], top[row]
        axes.add_patch(mpl.patches.Rectangle((x, y), 1, 1, facecolor="#fde8dc", edgecolor=MUTED, linewidth=0.6))
        if max(len(left), len(top)) <= 16:
            label = f"{matrix}[{row}]\n[{col}]"
            axes.text(x + 0.5, y + 0.5, label, ha="center", va="center", fontsize=size, linespacing=1.1)
    axes.set(xlim=(-0.1, max(left.values(), default=0) + 1.1), ylim=(max(top.values(), default=0) + 1.1, -0.1))
    axes.set(aspect="equal", title=f"thread {thread}: {len(places)} elements", xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _squeezed(indices: npt.NDArray[Any]) -> dict[int, float]:
    """Return where each distinct index is drawn: neighbours touch, others stand half a cell apart."""
    place: dict[int, float] = {}
    at, previous = 0.0, None
    for index in np.unique(indices).tolist():
        at += 0.0 if previous is None else 1.0 if index == previous + 1 else 1.5
        place[index], previous = at, index
    return place


def _ticks(size: int) -> list[int]:
    step = max(1, size // 8 if size <= 16 else size // 4)
    return list(range(0, size + 1, step))


def _owners_text(owner: npt.NDArray[Any], thread: int | None, title: str) -> str:
    head = f"{title}: " if title else ""
    count = np.unique(owner).size
    body = f"{owner.shape[0]}x{owner.shape[1]} tile owned by {count} threads"
    return head + body + ("" if thread is None else f", {int((owner == thread).sum())} elements by thread {thread}")


def _elements_text(owner: npt.NDArray[Any], thread: int, matrix: str) -> str:
    rows, cols = np.nonzero(owner == thread)
    listed = ", ".join(f"{matrix}[{r}][{c}]" for r, c in zip(rows[:4].tolist(), cols[:4].tolist(), strict=True))
    return f"thread {thread} owns {rows.size} elements: {listed}" + (", ..." if rows.size > 4 else "")
