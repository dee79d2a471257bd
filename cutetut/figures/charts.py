"""Measured numbers: the ladder of speeds, bars, lines over problem sizes, and curves over steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from cutetut.figures.base import ACCENT, INK, LINE, OURS, PAPER, VENDOR, Picture, blank_figure, one_look

LINES = (("o", "-", ACCENT), ("s", "--", OURS), ("D", "-.", VENDOR), ("^", ":", INK))
CURVES = (("-", VENDOR), ("--", ACCENT), (":", INK), ("-.", OURS))


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


@one_look
def curves(series: Mapping[str, Sequence[float]], *, xlabel: str, ylabel: str, title: str = "") -> Picture:
    """Draw one curve per name over steps 1, 2, 3 ..., each thinner than the one below; the text has both ends."""
    figure = blank_figure(6.4, 3.2)
    axes = figure.add_subplot()
    for index, (name, values) in enumerate(series.items()):
        dash, color = CURVES[index % len(CURVES)]
        width = 2 + 4 * (len(series) - 1 - index)  # where two are one, both show
        axes.plot(range(1, len(values) + 1), values, linestyle=dash, color=color, linewidth=width, label=name)
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title, ylim=(0, None))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color=LINE, linewidth=0.6)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    text = (f"{name}: {len(values)} steps, from {values[0]:.1f} to {values[-1]:.1f}" for name, values in series.items())
    return Picture(figure, "\n".join(text))


@one_look
def rows(values: Mapping[str, Sequence[float]], *, unit: str, title: str = "") -> Picture:
    """Draw one panel per name, a bar for each number of its row, all to one scale; the text has the largest of each."""
    figure = blank_figure(6.4, 0.6 + 1.3 * len(values))
    panels = figure.subplots(len(values), sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (name, row) in zip(panels, values.items(), strict=True):
        axes.bar(range(len(row)), row, width=1.0, color=OURS)
        axes.axhline(0, color=LINE, linewidth=0.6)
        axes.set_ylabel(name)
    panels[0].set_title(title)
    panels[-1].set_xlabel(unit)
    text = (f"{name}: {len(row)} numbers, the largest {max(map(abs, row)):.3g}" for name, row in values.items())
    return Picture(figure, "\n".join(text))


def _bars(axes: Axes, names: list[str], values: list[float], unit: str, title: str) -> tuple[Any, list[Any]]:
    """Draw the bars, each with its number beside it; returns the bars and the numbers."""
    drawn = axes.barh(names, values, color=OURS, height=0.62)
    labels = axes.bar_label(drawn, fmt=" {:.3g} ")
    axes.invert_yaxis()
    axes.set(xlabel=unit, title=title)
    axes.margins(x=0.12)
    return drawn, labels
