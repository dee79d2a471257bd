"""A layout as a function from coordinates to offsets, and the operations of CuTe's algebra: type, point, drag, walk."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import cutlass.cute as cute
import traitlets

from cutetut import figures, layouts
from cutetut.figures import stills
from cutetut.layouts import LayoutError
from cutetut.widgets import layout_operations as operations
from cutetut.widgets.base import Picker, source
from cutetut.widgets.layout_text import MOST, LayoutText, read_layout

OPERATIONS = tuple(operations.KINDS)
IN_LINKS = ("at", "op", "with")  # what the parts of a link are called


ALGEBRA = ("layout_text.js", "layout_algebra.js", "layout_tilings.js", "layout_operations.js", "layout_laws.js")
VIEW = ("layout_panels.js", "layout_parts.js", "layout_history.js", "layout_viewer.js")


class LayoutViewer(Picker):
    """Show a layout that the reader can change as a function, and what an operation of CuTe's algebra makes of it.

    A layout of one mode is drawn as a row; otherwise mode 0 counts the rows, and the others together count the
    columns. With an operation the result is drawn, and beside it the layouts it was made from, each with the index
    that the selected one came from. The algebra runs in the browser, so a page without a kernel can do all of it.
    The reader's view can be shared: its link holds the layout, the operation and the selected index.

    Args:
        layout: `shape:stride` as CuTe prints it, such as "((4,2),8):((1,16),4)", a swizzle in front of it or not; or a
            function that makes a CuTe layout, as `cutetut.layouts` takes it; or, where CuTe layouts can be made, such
            a layout. Whole numbers only, at most 16384 elements.
        operation: one of `OPERATIONS`, named as in CuTe DSL; nothing shows the layout alone.
        other: the operation's second argument, as text: a layout ("4:2"), a tiler ("(2,4:2)"), a number ("24"), a
            coordinate whose free parts are "_" ("(1,_)"), modes ("1,0"), their range ("0,2"), an order ("(1,0)"), a
            profile ("((0,0),0)"), new and old bits ("32,16"); or as the first argument.
            An operation that CuTe refuses can be shown: the view says why.
        index: the 1-D coordinate that is selected at first in what is drawn, counted colexicographically (the first
            mode runs fastest).
        name: what the link, `#name=shape:stride&at=index`, calls this viewer; each viewer of a page has its own.
        title: a heading.
        page: the address of the published page, to which links lead from JupyterLab. Without one the reader can copy
            the call that makes the view instead.

    Traits (both ways, also from the browser): `text` is the layout, `operation` and `other` are as above, `index` is
    the selected 1-D coordinate. A new layout keeps the index where it can, and starts again at 0 otherwise.

    Raises:
        layouts.LayoutError: a text that is no such layout or no such argument; the message says where and what to
            change.
        traitlets.TraitError: an operation, an index or a name that cannot be.
    """

    _esm = source("common.js", "tile.js", *ALGEBRA, *VIEW)
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
        operation: str = "",
        other: str | Callable[[], Any] | cute.Layout = "",
        *,
        index: int = 0,
        name: str = "layout",
        title: str = "",
        page: str = "",
    ) -> None:
        texts = {"text": _text(layout), "operation": operation, "other": _text(other)}
        super().__init__(name=name, title=title, page=page, _ramp=stills.ramp(), **texts)
        self.index = index

    @property
    def given(self) -> LayoutText:
        """The layout that was given or typed, its shape and stride as nested tuples."""
        return read_layout(self.text)

    @property
    def result(self) -> str:
        """What CuTe DSL makes of it, as CuTe prints it. Raises layouts.LayoutError where CuTe refuses."""
        return operations.result(self.operation, self.text, self.other) if self.operation else self.text

    @property
    def shown(self) -> LayoutText:
        """The layout that is drawn: the result, or the given one where there is no result to draw."""
        if not self.operation:
            return self.given
        try:
            return read_layout(self.result)
        except LayoutError:
            return self.given

    @traitlets.validate("text")
    def _check_text(self, proposal: Any) -> str:
        return str(read_layout(proposal.value))

    @traitlets.validate("operation")
    def _check_operation(self, proposal: Any) -> str:
        if proposal.value and proposal.value not in OPERATIONS:
            raise traitlets.TraitError(f"{proposal.value!r} is no operation here; there are {', '.join(OPERATIONS)}")
        return str(proposal.value)

    @traitlets.validate("other")
    def _check_other(self, proposal: Any) -> str:
        if self.operation in OPERATIONS:
            operations.read_other(self.operation, proposal.value)
        return str(proposal.value).strip()

    @traitlets.validate("index")
    def _check_index(self, proposal: Any) -> int:
        last = MOST - 1 if self.operation else self.given.size - 1  # the view keeps to what is drawn
        if not 0 <= proposal.value <= last:
            raise traitlets.TraitError(f"index {proposal.value} does not exist; {self.text} has indices 0 to {last}")
        return int(proposal.value)

    @traitlets.validate("name")
    def _check_name(self, proposal: Any) -> str:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", proposal.value) or proposal.value in IN_LINKS:
            raise traitlets.TraitError(
                f"{proposal.value!r} cannot name a viewer in a link: use letters, digits, - and _, and not "
                f"{', '.join(IN_LINKS)}"
            )
        return str(proposal.value)

    @traitlets.observe("text", "operation")
    def _keep_index(self, change: Any) -> None:
        if not self.operation and self.index >= self.given.size:
            self.index = 0

    def __repr__(self) -> str:
        if not self.operation:
            return f"LayoutViewer({self.text}, index {self.index})"
        call = f"{self.operation}({self.text}{'; ' if self.other else ''}{self.other})"
        try:
            return f"LayoutViewer({call} = {self.result}, index {self.index})"
        except LayoutError as refused:
            return f"LayoutViewer({call} is refused: {refused})"

    def still(self) -> figures.Picture:
        shown = self.shown
        offsets = _offsets(shown)
        rows = offsets.shape[0] if offsets.ndim > 1 else 1
        table = offsets.reshape((rows, -1), order="F")
        index = self.index if self.index < table.size else 0
        row, col = index % rows, index // rows
        what = f"{shown}: index {index} has offset {table[row, col]}"
        text = f"{what}\n{self!r}" if self.operation else what
        title = self.title or (f"{self.operation}: {shown}" if self.operation else self.text)
        return stills.layout_grid(table, (row, col), title=title, text=text)


def _text(given: str | Callable[[], Any] | cute.Layout) -> str:
    if isinstance(given, str | cute.Layout | cute.ComposedLayout):
        return str(given)
    return layouts.text(given)


def _offsets(shown: LayoutText) -> layouts.Ints:
    """CuTe's offsets, with one axis per top-level mode."""
    return layouts.offsets(lambda: operations.layout_of(shown))
