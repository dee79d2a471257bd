"""What somebody does and for how long: bars along time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import matplotlib as mpl

from cutetut.figures.base import INK, PAPER, VENDOR, Picture, blank_figure, one_look

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


def _face(style: dict[str, Any]) -> dict[str, Any]:
    if style["wait"]:
        return {"facecolor": PAPER, "edgecolor": VENDOR, "linewidth": 0.5, "hatch": "////"}
    return {"facecolor": style["color"], "edgecolor": PAPER, "linewidth": 0.3}
