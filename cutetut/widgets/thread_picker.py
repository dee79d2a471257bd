"""A tile, its threads and one thread's layout, linked: pick in any view and the others follow."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import traitlets

from cutetut import figures
from cutetut.widgets.base import Picker, source
from cutetut.widgets.thread_map import MapError, ThreadMap


class ThreadPicker(Picker):
    """Show which thread owns each element of a tile; hover, click, drag the slider or use the arrow keys.

    All interaction runs in the browser, so it also works in a published page with no kernel. Where JavaScript
    is missing, a figure of the same state stands in.

    Args:
        maps: one `ThreadMap`, or several by name; the reader switches between them. All have as many threads.
        title: a heading.
        matrix: the tensor's name in labels such as `C[66][3]`.
        thread_grid: (rows, cols) of the thread grid; arrow up and down move by `cols`. One row by default.
        thread, map, element: what is selected at first.

    Traits (both ways, also from the browser): `thread` is the selected thread, `map` the name of the map
    shown, `element` the selected (row, col) or None. Selecting an element selects its owner; changing the
    thread or the map keeps the value index, so the element moves to the same register.

    Raises:
        MapError: no maps, maps that differ in threads, or a thread grid of another size.
        traitlets.TraitError: a thread, map or element that does not exist.
    """

    _esm = source("common.js", "tile.js", "thread_picker.js")
    _css = source("common.css", "thread_picker.css")

    title = traitlets.Unicode("").tag(sync=True)
    matrix = traitlets.Unicode("C").tag(sync=True)
    thread = traitlets.Int(0).tag(sync=True)
    map = traitlets.Unicode("").tag(sync=True)
    element = traitlets.Tuple(traitlets.Int(), traitlets.Int(), default_value=None, allow_none=True).tag(sync=True)
    _maps = traitlets.List().tag(sync=True)
    _colors = traitlets.Unicode("").tag(sync=True)
    _width = traitlets.Int(1).tag(sync=True)

    def __init__(
        self,
        maps: ThreadMap | Mapping[str, ThreadMap],
        *,
        title: str = "",
        matrix: str = "C",
        thread_grid: tuple[int, int] | None = None,
        thread: int = 0,
        map: str | None = None,
        element: tuple[int, int] | None = None,
    ) -> None:
        self._tables = {maps.layout: maps} if isinstance(maps, ThreadMap) else dict(maps)
        self._grid = _common_grid(self._tables, thread_grid)
        self._value: int | None = None
        name = next(iter(self._tables)) if map is None else map
        super().__init__(
            title=title,
            matrix=matrix,
            map=name,
            _maps=[{"name": key, **table.pack()} for key, table in self._tables.items()],
            _colors=base64.b64encode(figures.thread_colors(*self._grid).tobytes()).decode("ascii"),
            _width=self._grid[1],
        )
        self.thread = thread
        if element is not None:
            self.element = element

    @property
    def table(self) -> ThreadMap:
        """The map that is shown."""
        return self._tables[self.map]

    @traitlets.validate("thread")
    def _check_thread(self, proposal: Any) -> int:
        if not 0 <= proposal.value < self.table.threads:
            raise traitlets.TraitError(
                f"thread {proposal.value} does not exist; the map has threads 0 to {self.table.threads - 1}"
            )
        return int(proposal.value)

    @traitlets.validate("map")
    def _check_map(self, proposal: Any) -> str:
        if proposal.value not in self._tables:
            names = ", ".join(repr(name) for name in self._tables)
            raise traitlets.TraitError(f"no map {proposal.value!r}; there is {names}")
        return str(proposal.value)

    @traitlets.validate("element")
    def _check_element(self, proposal: Any) -> tuple[int, int] | None:
        rows, cols = self.table.shape
        element: tuple[int, int] | None = proposal.value
        if element is not None and not (0 <= element[0] < rows and 0 <= element[1] < cols):
            raise traitlets.TraitError(f"element {element} is outside the {rows}x{cols} tile")
        return element

    @traitlets.observe("thread", "map", "element")
    def _follow(self, change: Any) -> None:
        """Keep thread and element in agreement, by the same rule as the view."""
        if self.element is None:
            self._value = None if change.name == "element" else self._value
            return
        row, col = self.element
        inside = row < self.table.shape[0] and col < self.table.shape[1]
        if inside and (change.name == "element" or self.table.owner[row, col] == self.thread):
            self._value = int(self.table.value[row, col])
            self.thread = int(self.table.owner[row, col])
        else:
            self.element = None if self._value is None else self.table.find(self.thread, self._value)

    def __repr__(self) -> str:
        rows, cols = self.table.shape
        threads = f"{self._grid[0]}x{self._grid[1]}" if self._grid[0] > 1 else str(self._grid[1])
        shown = f", map '{self.map}'" if len(self._tables) > 1 else ""
        return f"ThreadPicker({threads} threads over {rows}x{cols}{shown}, thread {self.thread})"

    def still(self) -> figures.Picture:
        return figures.picker_state(
            self.table.owner,
            self.thread,
            thread_grid=self._grid,
            matrix=self.matrix,
            title=" - ".join(part for part in (self.title, self.map) if part),
        )


def _common_grid(tables: Mapping[str, ThreadMap], grid: tuple[int, int] | None) -> tuple[int, int]:
    """Return the thread grid that all maps share."""
    if not tables:
        raise MapError("a picker needs at least one map")
    counts = {name: table.threads for name, table in tables.items()}
    threads = next(iter(counts.values()))
    if set(counts.values()) != {threads}:
        raise MapError(f"the maps differ in threads, {counts}; one picker compares maps of as many threads")
    rows, cols = grid or (1, threads)
    if rows * cols != threads:
        raise MapError(f"a {rows}x{cols} thread grid has {rows * cols} threads, but the map has {threads}")
    return rows, cols
