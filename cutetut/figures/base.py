"""One look for all figures: colours, fonts, and the `Picture` that every drawing function returns.

A notebook shows a picture as a small PNG, with text that says the same.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from PIL import Image

INK, MUTED, LINE, PAPER = "#1b1f24", "#57606a", "#c8ccd2", "#ffffff"
ACCENT, OURS, VENDOR = "#b3400a", "#00457c", "#8a8f98"

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


def blank_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches, which no global state of matplotlib knows of."""
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(rect=(0.01, 0.015, 0.98, 0.965)))


def integer_table(what: str, given: npt.ArrayLike, least: int = 0) -> npt.NDArray[np.int64]:
    """Return (rows, cols) integers; raises ValueError, which begins with `what` they are, for any other table."""
    table = np.asarray(given, dtype=np.int64)
    if table.ndim != 2 or table.size == 0 or table.min() < least:
        raise ValueError(f"{what} must be a table of (rows, cols) numbers from {least} on")
    return table
