"""Matplotlib figures with one look: who owns a tile, one thread's elements, and measured ladders.

Every function returns a `Picture`. A notebook shows it as a small PNG, with text that says the same.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import product
from typing import Any, ParamSpec

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from PIL import Image

INK, MUTED, LINE, PAPER = "#1b1f24", "#57606a", "#c8ccd2", "#ffffff"
ACCENT, OURS, VENDOR = "#b3400a", "#00457c", "#8a8f98"

LINES = (("o", "-", ACCENT), ("s", "--", OURS), ("D", "-.", VENDOR), ("^", ":", INK))

# What somebody does in a timeline, as (bar, text on it): a contrast of 3 to a light page and to a dark one, and
# of 4.5 between text and bar.
KIND_COLORS = (
    ("#2f74b8", "#ffffff"),
    ("#d97a0f", "#000000"),
    ("#8054ab", "#ffffff"),
    ("#aa8f08", "#000000"),
    ("#14796d", "#ffffff"),
    ("#d96f9f", "#000000"),
    ("#9a5632", "#ffffff"),
)

LOOK: Any = {  # matplotlib types its settings by name; the values below are checked when they are used
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "figure.facecolor": PAPER,
    "figure.dpi": 100,
}


@dataclass(frozen=True)
class Picture:
    """A figure and a sentence that says what it shows; displays as PNG in a notebook."""

    figure: Figure
    text: str

    def png(self) -> bytes:
        """Return the figure as PNG bytes with 128 colours: a third of the size, and the same to the eye."""
        canvas = FigureCanvasAgg(self.figure)
        canvas.draw()
        image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
        buffer = io.BytesIO()
        small = image.quantize(128, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        small.save(buffer, "PNG", optimize=True)
        return buffer.getvalue()

    def svg(self) -> str:
        """Return the figure as SVG that is the same on every run and states in its metadata what it shows."""
        buffer = io.StringIO()
        with mpl.rc_context({"svg.hashsalt": "cutetut", "svg.fonttype": "none"}):  # text as text
            self.figure.savefig(buffer, format="svg", metadata={"Date": None, "Description": self.text})
        return buffer.getvalue()

    def __repr__(self) -> str:
        return self.text

    def _repr_png_(self) -> bytes:
        return self.png()


Arguments = ParamSpec("Arguments")


def one_look(draw: Callable[Arguments, Picture]) -> Callable[Arguments, Picture]:
    """A decorator: draw with the book's fonts and lines, and leave the reader's own matplotlib settings as they are."""

    @wraps(draw)
    def drawn(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Picture:
        with mpl.rc_context(LOOK):
            return draw(*args, **kwargs)

    return drawn


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
    _draw_owners(left, table, thread, _grid(table, thread_grid), title)
    _draw_elements(right, table, thread, matrix)
    return Picture(figure, f"{_owners_text(table, thread, title)}\n{_elements_text(table, thread, matrix)}")


def kind_styles(kinds: Sequence[str]) -> list[dict[str, Any]]:
    """Return {name, wait, color, ink} per kind; one that begins with "wait" is hatched and takes no colour.

    Raises ValueError when there are more kinds than colours.
    """
    colored = [kind for kind in kinds if not kind.startswith("wait")]
    if len(colored) > len(KIND_COLORS):
        raise ValueError(f"{len(colored)} kinds besides waiting, of at most {len(KIND_COLORS)}: {', '.join(colored)}")
    colors = dict(zip(colored, KIND_COLORS, strict=False))
    styled = ((kind, *colors.get(kind, ("none", INK))) for kind in kinds)
    return [{"name": kind, "wait": kind not in colors, "color": color, "ink": ink} for kind, color, ink in styled]


@one_look
def timeline(
    spans: Sequence[tuple[str, str, float, float, int | None, int]],
    *,
    rows: Sequence[str],
    kinds: Sequence[str],
    selected: int | None = None,
    window: tuple[float, float] | None = None,
    unit: str = "cycles",
    title: str = "",
) -> Picture:
    """Draw a bar per (row, kind, start, end, tile, lane); those of the selected one's tile stand out.

    Lanes of one row lie below one another. window: the part of time that is shown; all of it by default.
    """
    lanes = {row: 1 + max((span[5] for span in spans if span[0] == row), default=-1) for row in rows}
    shown = [row for row in rows if lanes[row]]
    top = {row: sum(lanes[r] + 0.4 for r in shown[:at]) for at, row in enumerate(shown)}
    height = sum(lanes[row] + 0.4 for row in shown)
    figure = blank_figure(8.6, 1.1 + 0.24 * height)
    axes = figure.add_subplot()
    tile = None if selected is None else spans[selected][4]
    marked = [selected in (None, at) or (tile is not None and span[4] == tile) for at, span in enumerate(spans)]
    styles = kind_styles(kinds)
    for style, stands_out in product(styles, (False, True)):
        bars = [
            (top[row] + lane, start, end - start)
            for (row, kind, start, end, _, lane), mark in zip(spans, marked, strict=True)
            if kind == style["name"] and mark == stands_out
        ]
        for y, left, width in bars:
            axes.barh(y, width, 0.84, left, align="edge", alpha=1.0 if stands_out else 0.25, **_face(style))
    handles = [mpl.patches.Patch(**_face(style), label=style["name"]) for style in styles]
    axes.legend(handles=handles, ncols=len(handles), frameon=False, loc="lower right", bbox_to_anchor=(1.0, 0.99))
    axes.set_yticks([top[row] + lanes[row] / 2 - 0.1 for row in shown], shown)
    axes.set(xlim=window or (0, max(span[3] for span in spans)), ylim=(height, -0.2), xlabel=unit)
    axes.set_title(title, pad=22)  # above the legend
    axes.tick_params(axis="y", length=0)
    head = f"{title}: " if title else ""
    return Picture(figure, f"{head}{len(spans)} bars in {len(shown)} rows, {max(s[3] for s in spans):.6g} {unit}")


@one_look
def ladder(
    speeds: Mapping[str, float],
    *,
    vendor: tuple[str, float | Sequence[float]] | None = None,
    unit: str = "TFLOP/s",
    title: str = "",
) -> Picture:
    """Draw measured speeds as rungs in the order given, the last one marked, and the vendor's as a line.

    vendor: its name and its speed, or one speed per rung, where each was measured in the rung's own run.
    """
    figure = blank_figure(6.4, 0.9 + 0.36 * len(speeds))
    axes = figure.add_subplot()
    rungs, numbers = _bars(axes, list(speeds), list(speeds.values()), f"{unit}, more is better", title)
    text = [f"{name}: {speed:.3g} {unit}" for name, speed in speeds.items()]
    if vendor is not None:
        name, given = vendor
        each = [float(given)] * len(speeds) if isinstance(given, int | float) else [float(speed) for speed in given]
        most = max(*each, *speeds.values())
        for place, (number, own, speed) in enumerate(zip(numbers, speeds.values(), each, strict=True)):
            axes.vlines(speed, place - 0.5, place + 0.5, color=INK, linestyle="--", linewidth=1)
            if 0 <= speed - own < 0.1 * most:  # the line would run through the number
                number.set(horizontalalignment="right", color=PAPER)
        one = f" {each[0]:.3g}" if len(set(each)) == 1 else ""
        above = ("data", "axes fraction")
        axes.annotate(f"{name}{one}", (max(each), 1), (0, 5), above, "offset points", ha="center")
        axes.set_title(title, pad=22)  # above the vendor's name
        axes.set(xlim=(0, most * 1.12), ylim=(len(speeds) - 0.5, -0.5))
        beside = zip(text, speeds.values(), each, strict=True)
        text = [f"{line}, {speed / theirs:.1%} of {name}" for line, speed, theirs in beside]
        text.append(f"{name}:{one} {unit}" if one else f"{name}: {', '.join(f'{s:.3g}' for s in each)} {unit}")
    rungs[-1].set_color(ACCENT)
    return Picture(figure, "\n".join(text))


@one_look
def bars(values: Mapping[str, float], *, unit: str, title: str = "") -> Picture:
    """Draw one horizontal bar per name, such as sectors per request by permutation; `unit` labels the axis."""
    figure = blank_figure(6.4, 0.9 + 0.36 * len(values))
    _bars(figure.add_subplot(), list(values), list(values.values()), unit, title)
    return Picture(figure, "\n".join(f"{name}: {value:.3g} {unit}" for name, value in values.items()))


@one_look
def lines(
    sizes: Sequence[int], series: Mapping[str, Sequence[float]], *, xlabel: str, ylabel: str, title: str = ""
) -> Picture:
    """Draw one line per name over problem sizes; lines differ in marker and dash as well as in colour."""
    figure = blank_figure(6.4, 3.8)
    axes = figure.add_subplot()
    for index, (name, values) in enumerate(series.items()):
        marker, dash, color = LINES[index % len(LINES)]
        axes.plot(sizes, values, marker=marker, linestyle=dash, color=color, label=name)
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title, ylim=(0, None))
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(sizes), [str(s) for s in sizes])
    axes.grid(axis="y", color=LINE, linewidth=0.6)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)  # beside the lines it would cover some
    points = {n: ", ".join(f"{s}: {v:.3g}" for s, v in zip(sizes, vs, strict=True)) for n, vs in series.items()}
    return Picture(figure, "\n".join(f"{name}: {listed}" for name, listed in points.items()))


def _face(style: dict[str, Any]) -> dict[str, Any]:
    if style["wait"]:
        return {"facecolor": PAPER, "edgecolor": VENDOR, "linewidth": 0.5, "hatch": "////"}
    return {"facecolor": style["color"], "edgecolor": PAPER, "linewidth": 0.3}


def blank_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches, which no global state of matplotlib knows of."""
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(rect=(0.01, 0.015, 0.98, 0.965)))


def _row(figure: Figure, count: int) -> list[Axes]:
    return list(figure.subplots(1, count, squeeze=False)[0])


def _grid(owner: npt.NDArray[Any], grid: tuple[int, int] | None) -> tuple[int, int]:
    return grid or (1, int(owner.max()) + 1)


def _draw_owners(axes: Axes, owner: npt.NDArray[Any], thread: int | None, grid: tuple[int, int], title: str) -> None:
    rows, cols = owner.shape
    image = thread_colors(*grid)[owner].astype(np.float64) / 255
    if thread is not None:
        mine = owner == thread
        image = np.where(mine[..., None], mpl.colors.to_rgb(ACCENT), 0.35 * image + 0.65)
        axes.add_collection(mpl.collections.LineCollection(_outline(mine), colors=INK, linewidths=1.2))
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


def _bars(axes: Axes, names: list[str], values: list[float], unit: str, title: str) -> tuple[Any, list[Any]]:
    """Draw the bars, each with its number behind it; returns the bars and the numbers."""
    drawn = axes.barh(names, values, color=OURS, height=0.62)
    labels = axes.bar_label(drawn, fmt=" {:.3g} ")
    axes.invert_yaxis()
    axes.set(xlabel=unit, title=title)
    axes.margins(x=0.12)
    return drawn, labels


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
