"""The timeline's Python side: spans are checked, get lanes, and the traits keep to the same work."""

from __future__ import annotations

import base64
import io
import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
import traitlets
from PIL import Image

from cutetut.figures import spans
from cutetut.widgets import Span, Timeline, TimelineError
from cutetut.widgets.timeline import lanes
from tests.seeds import seeds
from tests.widgets import pipelines

GOOD = ("producer", "loads", 10, 20)


def timeline(**options: Any) -> Timeline:
    return Timeline(pipelines.recordings(), kinds=["waits", "loads", "multiplies", "stores"], **options)


def index(spans: list[Span], row: str, kind: str, tile: int) -> int:
    return next(i for i, span in enumerate(spans) if (span.row, span.kind, span.tile) == (row, kind, tile))


# ---- spans


@pytest.mark.parametrize(
    ("spans", "says"),
    [
        ([], "at least one span; the list is empty"),
        ({}, "at least one list"),
        ({"fast": [GOOD], "slow": []}, "the list of 'slow' is empty"),
        ([GOOD, ("producer", "loads", 30)], r"span 1 is \('producer', 'loads', 30\); it must be \(row, kind"),
        ([7], "span 0 is 7"),
        ([("producer", "loads", 10, math.nan)], "span 0 has end nan; it must be a clock reading"),
        ([("producer", "loads", "10", 20)], "span 0 has start '10'"),
        ([GOOD, ("producer", "loads", 0, -1)], "span 1 ends at -1, before it starts at 0; leave out what never"),
        ([(*GOOD, 1.5)], "span 0 has tile 1.5; it must be an integer or None"),
        ([(*GOOD, 1, "0")], "span 0 has stage '0'"),
        ([("r", f"kind {n}", 0, 1) for n in range(8)], "8 kinds besides waiting, of at most 7"),
    ],
)
def test_spans_that_cannot_be_drawn_are_refused(spans: Any, says: str) -> None:
    with pytest.raises(TimelineError, match=says):
        Timeline(spans)


@pytest.mark.parametrize("what", ["rows", "kinds"])
def test_an_order_names_everything(what: str) -> None:
    with pytest.raises(TimelineError, match=f"is not among the {what}"):
        Timeline([GOOD], rows=["another"] if what == "rows" else None, kinds=["another"] if what == "kinds" else None)


def test_the_error_is_a_value_error() -> None:
    assert issubclass(TimelineError, ValueError)


def test_times_count_from_the_first_start_of_each_list_whatever_the_clock_read() -> None:
    readings = np.array([2**62 + 5, 2**62 + 105], dtype=np.int64)
    spans = [
        ("a", "loads", readings[0], readings[1], np.int64(3), np.int32(1)),
        ("a", "loads", readings[1], readings[1]),
    ]
    view = Timeline({"one": spans, "two": [GOOD]})
    assert view.spans == [Span("a", "loads", 0, 100, 3, 1), Span("a", "loads", 100, 100)]
    view.run = "two"
    assert view.spans == [Span("producer", "loads", 0, 10)]
    json.dumps(view.get_state()["_runs"])  # no number of numpy's is left


def test_floats_are_clock_readings_too() -> None:
    assert Timeline([("a", "loads", 1.5, 4.0)]).spans == [Span("a", "loads", 0.0, 2.5)]


# ---- lanes


def overlap(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end


@pytest.mark.parametrize("seed", seeds(20))
def test_no_two_spans_of_a_lane_overlap(seed: int) -> None:
    random = np.random.default_rng(seed)
    spans = []
    for _ in range(40):
        start, length = random.integers(0, 300).item(), random.integers(1, 40).item()
        spans.append(Span(f"row {random.integers(2)}", f"kind {random.integers(3)}", start, start + length))
    found = lanes(spans, ["kind 2", "kind 0", "kind 1"])
    for (one, a), (other, b) in itertools.combinations(zip(spans, found, strict=True), 2):
        assert not (one.row == other.row and a == b and overlap(one, other))
    for row in ("row 0", "row 1"):  # no lane is left empty
        used = {lane for span, lane in zip(spans, found, strict=True) if span.row == row}
        assert used == set(range(len(used)))


def test_kinds_that_take_turns_share_a_lane_and_one_that_overlaps_gets_its_own() -> None:
    spans = pipelines.ping_pong()
    found = lanes(spans, ["waits", "QK", "PV", "softmax"])
    assert {(s.kind, lane) for s, lane in zip(spans, found, strict=True)} == {
        ("waits", 0), ("QK", 0), ("PV", 0), ("softmax", 1)
    }  # fmt: skip


def test_loads_in_flight_take_as_many_lanes_as_there_are_at_once() -> None:
    spans = [s for s in pipelines.producer_consumer() if s.row == "producer"]
    found = lanes(spans, ["waits", "loads"])
    loads = [(s, lane) for s, lane in zip(spans, found, strict=True) if s.kind == "loads"]
    most = max(sum(other.start <= s.start < other.end for other, _ in loads) for s, _ in loads)
    assert {lane for _, lane in loads} == set(range(1, 1 + most))
    assert {lane for s, lane in zip(spans, found, strict=True) if s.kind == "waits"} == {0}


# ---- traits


@pytest.mark.parametrize(
    ("trait", "value", "says"),
    [
        ("run", "other", "no run 'other'; there is 'fast', 'slow'"),
        ("selected", -1, "span -1 does not exist"),
        ("selected", 10_000, "span 10000 does not exist; there are 0 to 149"),
        ("window", (5.0, 5.0), r"window \(5.0, 5.0\) is not a start before an end"),
        ("window", (math.nan, 5.0), "is not a start before an end"),
        ("window", (0.0, math.inf), "is not a start before an end"),
    ],
)
def test_a_view_that_does_not_exist_is_refused(trait: str, value: Any, says: str) -> None:
    view = timeline()
    with pytest.raises(traitlets.TraitError, match=says):
        setattr(view, trait, value)
    with pytest.raises(traitlets.TraitError, match=says):
        timeline(**{trait: value})


def test_another_run_keeps_the_selection_on_the_same_work() -> None:
    recordings = pipelines.recordings()
    view = timeline(selected=index(recordings["fast"], "consumer 2", "multiplies", 11))
    view.run = "slow"
    assert view.selected is not None
    chosen = view.spans[view.selected]
    assert (chosen.row, chosen.kind, chosen.tile) == ("consumer 2", "multiplies", 11)


def test_work_that_the_other_run_lacks_is_deselected() -> None:
    view = Timeline({"one": [GOOD, ("producer", "loads", 30, 40, 1)], "two": [GOOD]}, selected=1)
    view.run = "two"
    assert view.selected is None


def test_a_message_from_the_browser_is_taken_as_it_is() -> None:
    view = timeline(selected=3)
    view.set_state({"run": "slow", "selected": 8, "window": [100, 900]})
    assert (view.run, view.selected, view.window) == ("slow", 8, (100.0, 900.0))


# ---- what a notebook stores


def test_text_is_the_same_on_every_run() -> None:
    assert repr(timeline()) == "Timeline(150 spans in 3 rows, run 'fast')"
    assert repr(Timeline([GOOD], title="x")) == "Timeline(1 spans in 1 rows)"


def test_the_state_is_small() -> None:
    view = Timeline(pipelines.producer_consumer(k_tiles=64))
    assert len(json.dumps({name: view.get_state()[name] for name in ("_runs", "_rows", "_kinds")})) < 16_000


def test_the_output_holds_the_view_and_a_small_picture() -> None:
    view = timeline()
    data, _ = view._repr_mimebundle_()
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == view.model_id
    assert data["text/plain"] == repr(view)
    png = base64.b64decode(data["image/png"])
    assert len(png) < 60_000
    assert Image.open(io.BytesIO(png)).width > 500


@pytest.mark.parametrize(("trait", "value"), [("selected", 30), ("run", "slow"), ("window", (1000.0, 4000.0))])
def test_the_picture_follows_the_view(trait: str, value: Any) -> None:
    view = timeline()
    before = view.still().png()
    setattr(view, trait, value)
    assert view.still().png() != before


def bars(view: Timeline) -> list[tuple[float, float, float]]:
    """(start, length, opacity) of every bar that the picture draws."""
    (axes,) = view.still().figure.axes
    drawn = [bar for bars in axes.containers for bar in bars]
    return sorted((bar.get_x(), bar.get_width(), bar.get_alpha()) for bar in drawn)


def test_the_picture_draws_every_span_and_marks_those_of_a_tile() -> None:
    view = timeline()
    assert bars(view) == sorted((s.start, s.end - s.start, 1.0) for s in view.spans)
    view.selected = index(view.spans, "producer", "loads", 7)
    assert bars(view) == sorted((s.start, s.end - s.start, 1.0 if s.tile == 7 else 0.25) for s in view.spans)


# ---- colours


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2.2 between two #rrggbb colours."""
    shades = []
    for color in (one, other):
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        shades.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(shades) + 0.05) / (min(shades) + 0.05)


@pytest.mark.parametrize(("color", "ink"), spans.KIND_COLORS)
def test_bars_stand_out_from_light_and_dark_pages_and_their_text_from_them(color: str, ink: str) -> None:
    assert contrast(color, ink) >= 4.5
    assert min(contrast(color, page) for page in ("#ffffff", "#14181e", "#121212")) >= 3


def test_waiting_takes_no_colour() -> None:
    styles = spans.kind_styles(["waits", "loads", "wait for C", "stores"])
    assert [style["wait"] for style in styles] == [True, False, True, False]
    assert [style["color"] for style in styles if not style["wait"]] == [color for color, _ in spans.KIND_COLORS[:2]]
