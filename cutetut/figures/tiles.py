"""Who owns a tile: its elements in the colours of their warps and lanes, and one thread's elements close up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cutetut.figures.base import ACCENT, INK, MUTED, Picture, blank_figure, one_look

# One hue per warp, by turns bluish and yellowish: with the commonest colour blindness that difference is left. The
# orange and red of such palettes (Okabe and Ito's, of which some of these are) are left to what is selected.
WARP_HUES = ("#0072b2", "#e6c619", "#9467c9", "#00a06d", "#4bb3e6", "#a3b319", "#d070a8", "#c9a06a")
DARKEST, BY_LANE, BY_TURNS = 26.0, 34.0, 15.5  # lightness: of lane 0, how much lane 31 adds, and every second thread
APART = 8  # lanes that differ enough in lightness to lie above each other without an alternation
DIMMED = 0.5  # how much of the paper's colour threads take on that are not selected


def thread_colors(rows: int, cols: int) -> npt.NDArray[np.uint8]:
    """Return (rows * cols, 3) RGB bytes, one colour per thread of a thread grid.

    The hue is the warp's (it comes again after eight warps), the lightness grows with the lane. It also alternates
    from thread to thread, and from row to row where a row has few lanes or whole warps, so that neighbours differ in
    lightness by more than 10 (CIE L*), hue or no hue, in grids of 4, 16 or 32 columns.
    """
    thread = np.arange(rows * cols)
    hues = _linear(np.array([mpl.colors.to_rgb(hue) for hue in WARP_HUES]))[thread // 32 % len(WARP_HUES)]
    down = 0 if APART <= cols % 32 <= 32 - APART else thread // cols
    lightness = DARKEST + BY_LANE * (thread % 32) / 31 + BY_TURNS * ((thread % cols + down) % 2)
    wanted, has = ((lightness + 16) / 116) ** 3, hues @ [0.2126, 0.7152, 0.0722]  # luminance
    darker = hues * np.minimum(wanted / has, 1)[:, None]
    white = np.clip((wanted - has) / (1 - has), 0, 1)[:, None]
    return np.asarray(np.rint(255 * _encoded(darker + white * (1 - darker))), dtype=np.uint8)


def _linear(srgb: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def _encoded(linear: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


@one_look
def tile_owners(
    owner: npt.ArrayLike,
    *,
    thread: int | None = None,
    thread_grid: tuple[int, int] | None = None,
    title: str = "",
) -> Picture:
    """Draw a (rows, cols) table of owners, a hue per warp; `thread` is outlined and the rest dimmed."""
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
        image = np.where(owned[..., None], mpl.colors.to_rgb(ACCENT), (1 - DIMMED) * image + DIMMED)
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
