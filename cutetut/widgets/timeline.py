"""A pipeline over time: who waited, loaded, multiplied and stored, from clock readings taken inside a kernel."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import traitlets

from cutetut import figures
from cutetut.widgets.base import Picker, source


class TimelineError(ValueError):
    """Spans that cannot be drawn; the message names the span and what to change."""


class Span(NamedTuple):
    """One bar: somebody did something from `start` to `end`, as read from a clock.

    row: who, such as "consumer 1". kind: what, such as "multiplies"; a kind that begins with "wait" is hatched.
    tile: the number that spans about the same data share, such as the K tile. stage: the buffer in shared
    memory. note: what else to say about it.
    """

    row: str
    kind: str
    start: float
    end: float
    tile: int | None = None
    stage: int | None = None
    note: str = ""


Spans: TypeAlias = "Iterable[Span | Sequence[Any]]"


class Timeline(Picker):
    """Show one row per role and a bar per span; zoom, pan, and click a bar to mark all bars of the same tile.

    All interaction runs in the browser, so it also works in a published page with no kernel. Where JavaScript
    is missing, a figure of the same state stands in.

    Args:
        spans: a list of `Span` (plain tuples will do), or several by name; the reader switches between them.
            `start` and `end` are clock readings; what is shown counts from the first start of each list.
        title: a heading.
        unit: what the clock counts, such as "cycles" or "ns".
        tile: what `Span.tile` numbers, such as "K tile".
        rows, kinds: their order, top to bottom and left to right; by default that of first appearance.
        run, selected, window: which list is shown at first, the index of the span selected in it, and the
            part of time shown, in units after the first start; by default the first, none and everything.

    Traits (both ways, also from the browser): `run`, `selected` and `window` as above. When the run changes,
    the selection moves to the span of the same row, kind and tile, or goes.

    Raises:
        TimelineError: no spans, a span that is not one, a row or kind that is not listed, too many kinds.
        traitlets.TraitError: a run, span or window that does not exist.
    """

    _esm = source("common.js", "timeline_chart.js", "timeline.js")
    _css = source("common.css", "timeline.css")

    title = traitlets.Unicode("").tag(sync=True)
    unit = traitlets.Unicode("cycles").tag(sync=True)
    tile = traitlets.Unicode("K tile").tag(sync=True)
    run = traitlets.Unicode("").tag(sync=True)
    selected = traitlets.Int(None, allow_none=True).tag(sync=True)
    window = traitlets.Tuple(traitlets.Float(), traitlets.Float(), default_value=None, allow_none=True).tag(sync=True)
    _runs = traitlets.List().tag(sync=True)
    _rows = traitlets.List().tag(sync=True)
    _kinds = traitlets.List().tag(sync=True)

    def __init__(
        self,
        spans: Spans | Mapping[str, Spans],
        *,
        title: str = "",
        unit: str = "cycles",
        tile: str = "K tile",
        rows: Sequence[str] | None = None,
        kinds: Sequence[str] | None = None,
        run: str | None = None,
        selected: int | None = None,
        window: tuple[float, float] | None = None,
    ) -> None:
        named = spans if isinstance(spans, Mapping) else {"": spans}
        self._spans = {name: _checked(name, listed) for name, listed in named.items()}
        if not self._spans:
            raise TimelineError("a timeline needs at least one list of spans")
        every = [span for listed in self._spans.values() for span in listed]
        names = {"row": _order("row", rows, every), "kind": _order("kind", kinds, every)}
        self._lanes = {name: lanes(listed, names["kind"]) for name, listed in self._spans.items()}
        first = next(iter(self._spans)) if run is None else run
        self._shown: tuple[str, int | None] = (first, None)
        super().__init__(
            title=title,
            unit=unit,
            tile=tile,
            run=first,
            _rows=names["row"],
            _kinds=figures.kind_styles(names["kind"]),
            _runs=[self._pack(name, names) for name in self._spans],
        )
        self.selected = selected
        self.window = window

    @property
    def spans(self) -> list[Span]:
        """The spans that are shown, their times counted from the first start."""
        return self._spans[self.run]

    def _pack(self, name: str, names: Mapping[str, list[str]]) -> dict[str, Any]:
        """Columns of a run: small in a notebook, and what the view reads."""
        spans = self._spans[name]
        columns: dict[str, Any] = {key: [getattr(span, key) for span in spans] for key in Span._fields}
        for key, order in names.items():
            columns[key] = [order.index(value) for value in columns[key]]
        return {"name": name, **columns, "lane": self._lanes[name]}

    @traitlets.validate("run")
    def _check_run(self, proposal: Any) -> str:
        if proposal.value not in self._spans:
            raise traitlets.TraitError(f"no run {proposal.value!r}; there is {', '.join(map(repr, self._spans))}")
        return str(proposal.value)

    @traitlets.validate("selected")
    def _check_selected(self, proposal: Any) -> int | None:
        selected: int | None = proposal.value
        if selected is not None and not 0 <= selected < len(self.spans):
            raise traitlets.TraitError(f"span {selected} does not exist; there are 0 to {len(self.spans) - 1}")
        return selected

    @traitlets.validate("window")
    def _check_window(self, proposal: Any) -> tuple[float, float] | None:
        window: tuple[float, float] | None = proposal.value
        if window is not None and not (math.isfinite(window[0]) and window[0] < window[1] < math.inf):
            raise traitlets.TraitError(f"window {window} is not a start before an end")
        return window

    @traitlets.observe("run", "selected")
    def _follow(self, change: Any) -> None:
        """Keep the selection on the same work when another run is shown, by the same rule as the view."""
        run, selected = self._shown
        if change.name == "run" and selected is not None and self.selected == selected:
            self.selected = _counterpart(self._spans[run][selected], self.spans)
        self._shown = (self.run, self.selected)

    def __repr__(self) -> str:
        run = f", run '{self.run}'" if len(self._spans) > 1 else ""
        return f"Timeline({len(self.spans)} spans in {len(self._rows)} rows{run})"

    def still(self) -> figures.Picture:
        return figures.timeline(
            [(*span[:5], lane) for span, lane in zip(self.spans, self._lanes[self.run], strict=True)],
            rows=self._rows,
            kinds=[kind["name"] for kind in self._kinds],
            selected=self.selected,
            window=self.window,
            unit=self.unit,
            title=" - ".join(part for part in (self.title, self.run) if part),
        )


def lanes(spans: Sequence[Span], kinds: Sequence[str]) -> list[int]:
    """Return a lane per span, so that no two spans of one row and lane overlap.

    A kind stays in one lane of its row, the first where it overlaps nothing, in the order of `kinds`; a kind
    that overlaps itself, such as loads in flight, takes as many lanes of its own as it needs.
    """
    found = [0] * len(spans)
    for row in dict.fromkeys(span.row for span in spans):
        filled: list[list[int]] = []  # the indices of the spans in each lane
        for kind in kinds:
            mine = [i for i, span in enumerate(spans) if (span.row, span.kind) == (row, kind)]
            together = _disjoint(spans, mine)
            free = 0 if together else len(filled)
            mine.sort(key=lambda i: spans[i].start)
            for group in [mine] if together else [[i] for i in mine]:
                fitting = (lane for lane in range(free, len(filled)) if _disjoint(spans, filled[lane] + group))
                lane = next(fitting, len(filled))
                filled += [[]] if lane == len(filled) and group else []
                for i in group:
                    filled[lane].append(i)
                    found[i] = lane
    return found


def _disjoint(spans: Sequence[Span], indices: Iterable[int]) -> bool:
    """Whether no two of these spans overlap; they may touch."""
    times = sorted((spans[i].start, spans[i].end) for i in indices)
    return all(before[1] <= after[0] for before, after in zip(times, times[1:], strict=False))


def _checked(name: str, listed: Spans) -> list[Span]:
    """Return spans whose times count from the first start. Raises TimelineError."""
    of = f" of {name!r}" if name else ""
    spans = [_span(f"span {number}{of}", span) for number, span in enumerate(listed)]
    if not spans:
        raise TimelineError(f"a timeline needs at least one span; the list{of} is empty")
    first = min(span.start for span in spans)
    return [span._replace(start=span.start - first, end=span.end - first) for span in spans]


def _span(what: str, given: Span | Sequence[Any]) -> Span:
    """Return a span of Python's own numbers. Raises TimelineError."""
    try:
        span = Span(*given)
    except TypeError:
        raise TimelineError(f"{what} is {given!r}; it must be (row, kind, start, end, tile, stage, note)") from None
    start, end = _reading(f"{what} has start", span.start), _reading(f"{what} has end", span.end)
    if end < start:
        raise TimelineError(f"{what} ends at {end}, before it starts at {start}; leave out what never happened")
    tile, stage = _index(f"{what} has tile", span.tile), _index(f"{what} has stage", span.stage)
    return Span(str(span.row), str(span.kind), start, end, tile, stage, str(span.note))


def _reading(what: str, value: Any) -> float:
    number = value.item() if isinstance(value, np.number) else value
    if not isinstance(number, int | float) or not math.isfinite(number):
        raise TimelineError(f"{what} {value!r}; it must be a clock reading")
    return number


def _index(what: str, value: Any) -> int | None:
    if value is not None and not isinstance(value, int | np.integer):
        raise TimelineError(f"{what} {value!r}; it must be an integer or None")
    return None if value is None else int(value)


def _order(what: str, given: Sequence[str] | None, spans: Iterable[Span]) -> list[str]:
    """Return the names of all rows or kinds, in the order that was given, or that of first appearance."""
    found = list(dict.fromkeys(getattr(span, what) for span in spans))
    if what == "kind":
        try:
            figures.kind_styles(found)
        except ValueError as error:
            raise TimelineError(str(error)) from None
    if given is None:
        return found
    missing = [name for name in found if name not in given]
    if missing:
        raise TimelineError(f"{what} {missing[0]!r} is not among the {what}s {list(given)}")
    return list(given)


def _counterpart(span: Span, spans: Sequence[Span]) -> int | None:
    """Return the index of the span of the same row, kind and tile, if there is one."""
    wanted = (span.row, span.kind, span.tile)
    return next((i for i, other in enumerate(spans) if (other.row, other.kind, other.tile) == wanted), None)
