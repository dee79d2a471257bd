"""A layout as a function from coordinates to offsets: type one, point at a cell, walk through its coordinates."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import cutlass.cute as cute
import traitlets

from cutetut import layouts, plots
from cutetut.widgets import stills
from cutetut.widgets.base import Picker, source
from cutetut.widgets.layout_text import LayoutText, read_layout

Tree = layouts.IntTree


ALGEBRA = ("layout_text.js", "layout_algebra.js", "layout_tilings.js", "layout_operations.js", "layout_laws.js")


class LayoutViewer(Picker):
    """Show the offsets of a layout that the reader can change, and how one coordinate becomes its offset.

    A layout of one mode is drawn as a row; otherwise mode 0 counts the rows, and the others together count the
    columns. The reader's view can be shared: its link holds the layout and the selected index.

    Args:
        layout: `shape:stride` as CuTe prints it, such as "((4,2),8):((1,16),4)"; or a function that makes a CuTe
            layout, as `cutetut.layouts` takes it; or, where CuTe layouts can be made, such a layout. Whole numbers
            only, at most 16384 elements, no swizzle.
        index: the 1-D coordinate that is selected at first, counted colexicographically (the first mode runs fastest).
        name: what the link, `#name=shape:stride&at=index`, calls this viewer; each viewer of a page has its own.
        title: a heading.

    Traits (both ways, also from the browser): `text` is the layout, `index` the selected 1-D coordinate. A new
    layout keeps the index where it can, and starts again at 0 otherwise.

    Raises:
        layouts.LayoutError: a text that is no such layout; the message says where and what to change.
        traitlets.TraitError: an index or a name that cannot be.
    """

    _esm = source("common.js", "tile.js", *ALGEBRA, "layout_panels.js", "layout_parts.js", "layout_history.js", "layout_viewer.js")
    _css = source("common.css", "layout_viewer.css")

    title = traitlets.Unicode("").tag(sync=True)
    name = traitlets.Unicode("layout").tag(sync=True)
    text = traitlets.Unicode("1:0").tag(sync=True)
    operation = traitlets.Unicode("").tag(sync=True)
    other = traitlets.Unicode("").tag(sync=True)
    index = traitlets.Int(0).tag(sync=True)
    page = traitlets.Unicode("").tag(sync=True)
    _ramp = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        layout: str | Callable[[], Any] | cute.Layout,
        *,
        index: int = 0,
        name: str = "layout",
        title: str = "",
    ) -> None:
        if isinstance(layout, str | cute.Layout | cute.ComposedLayout):
            text = str(layout)
        else:
            text = layouts.text(layout)
        super().__init__(text=text, name=name, title=title, _ramp=stills.ramp())
        self.index = index

    @property
    def shown(self) -> LayoutText:
        """The layout that is shown, its shape and stride as nested tuples."""
        return read_layout(self.text)

    @traitlets.validate("text")
    def _check_text(self, proposal: Any) -> str:
        return str(read_layout(proposal.value))

    @traitlets.validate("index")
    def _check_index(self, proposal: Any) -> int:
        if not 0 <= proposal.value < self.shown.size:
            raise traitlets.TraitError(
                f"index {proposal.value} does not exist; {self.text} has indices 0 to {self.shown.size - 1}"
            )
        return int(proposal.value)

    @traitlets.validate("name")
    def _check_name(self, proposal: Any) -> str:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", proposal.value) or proposal.value == "at":
            raise traitlets.TraitError(
                f"{proposal.value!r} cannot name a viewer in a link: use letters, digits, - and _, and not 'at'"
            )
        return str(proposal.value)

    @traitlets.observe("text")
    def _keep_index(self, change: Any) -> None:
        if self.index >= self.shown.size:
            self.index = 0

    def __repr__(self) -> str:
        return f"LayoutViewer({self.text}, index {self.index})"

    def still(self) -> plots.Picture:
        shape, stride = self.shown.shape, self.shown.stride
        offsets = layouts.offsets(lambda: cute.make_layout(shape, stride=stride))
        rows = offsets.shape[0] if offsets.ndim > 1 else 1
        table = offsets.reshape((rows, -1), order="F")
        row, col = self.index % rows, self.index // rows
        text = f"{self.text}: index {self.index} has offset {table[row, col]}"
        return stills.layout_grid(table, (row, col), title=self.title or self.text, text=text)
