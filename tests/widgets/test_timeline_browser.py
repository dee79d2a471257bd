"""The timeline's views in headless Chromium, mounted in a local page: no kernel, no network.

Every expectation comes from the spans that `pipelines.py` makes by plain loops; the page is asked only what it shows.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.widgets import pipelines
from tests.widgets.mounting import THEMES, faultless, is_dark, phone, themed, wants_dark
from tests.widgets.timed import ABOVE, COLORS, GAP, KINDS, LANE, ROWS, Timed, far, listed, rgb, text

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.browser


@pytest.fixture
def view(chrome: Chrome, page: Path) -> Iterator[Timed]:
    with faultless(Timed(chrome, page)) as view:
        yield view


# ---- what is drawn


@pytest.mark.parametrize("run", pipelines.MATH)
def test_every_bar_is_where_its_span_says(view: Timed, run: str) -> None:
    view.run = run
    view.assign("run", run)
    view.wait(lambda: view.shows(".tp-readout", f"{len(view.spans)} bars in {text(view.duration)} cycles"))
    colored = [i for i, span in enumerate(view.spans) if span.kind in COLORS]
    assert view.colors(colored) == [rgb(COLORS[view.spans[i].kind]) for i in colored]


def test_a_part_of_the_time_is_drawn_to_its_own_scale(view: Timed) -> None:
    view.assign("window", [2000, 5000])
    view.wait(lambda: view.shows(".tl-caption", "cycles 2000 to 5000, of which"))
    inside = [i for i, s in enumerate(view.spans) if s.kind in COLORS and 2000 <= s.start < s.end <= 5000]
    assert len(inside) > 8
    assert view.colors(inside) == [rgb(COLORS[view.spans[i].kind]) for i in inside]


def test_rows_and_kinds_are_named(view: Timed) -> None:
    assert view.listed(".tl-legend li") == KINDS
    assert view.listed(".tl-shares tbody th") == ROWS
    assert view.listed(".tl-shares thead th") == KINDS


def test_a_row_without_bars_in_a_recording_takes_no_room_there(chrome: Chrome, page: Path) -> None:
    spans = {"two": [("a", "loads", 0, 9), ("b", "loads", 0, 9)], "one": [("b", "loads", 0, 9)]}
    view = Timed(chrome, page, spans=spans, kinds=None)
    assert view.listed(".tl-shares tbody th") == ["a", "b"]
    high = view.js("return document.querySelector('canvas').clientHeight")
    view.assign("run", "one")
    view.wait(lambda: view.listed(".tl-shares tbody th") == ["b"])
    assert view.js("return document.querySelector('canvas').clientHeight") == high - LANE - GAP


@pytest.mark.parametrize("window", [None, (2500, 6100), (900, 901)])
def test_the_shares_are_those_of_each_cycle_counted(view: Timed, window: tuple[int, int] | None) -> None:
    view.assign("window", window)
    start, end = window or (0, int(view.duration))
    view.wait(lambda: view.shows(".tl-caption", f"cycles {start} to {end}, of which"))
    expected = []
    for row in ROWS:
        for kind in KINDS:
            busy = {t for s in view.spans if (s.row, s.kind) == (row, kind) for t in range(int(s.start), int(s.end))}
            share = len(busy & set(range(start, end))) / (end - start)
            expected.append(f"{100 * share:.0f}%" if share else "")
    shown = view.listed(".tl-shares tbody td")
    assert [bool(text) for text in shown] == [bool(text) for text in expected]
    # JavaScript rounds halves up, Python to even
    assert all(abs(int(a[:-1]) - int(b[:-1])) <= 1 for a, b in zip(shown, expected, strict=True) if a)
    assert sum(a != b for a, b in zip(shown, expected, strict=True)) <= 1


# ---- pointing and picking


def test_hover_says_what_is_under_the_pointer_and_selects_nothing(view: Timed) -> None:
    index = view.index("consumer 2", "multiplies", 5)
    span = view.spans[index]
    view.point(index)
    said = f"consumer 2 multiplies · K tile 5 · stage 1 · starts at {span.start} · {span.end - span.start} cycles"
    view.wait(lambda: view.text(".tp-readout") == said)
    assert view.trait("selected") is None
    view.point(view.index("consumer 1", "stores", 7))
    view.wait(lambda: view.text(".tp-readout").endswith("800 cycles · C tile 0"))


@pytest.mark.parametrize("kind", ["mouse", "touch"])
def test_a_picked_load_marks_the_wait_and_the_math_of_its_tile(view: Timed, kind: str) -> None:
    index = view.index("producer", "loads", 9)
    view.point(index, click=True, kind=kind)
    view.wait(lambda: view.trait("selected") == index)
    view.wait(lambda: view.marked() == listed(view.spans, 9))
    assert view.js("return model.saves") > 0
    view.point_at(5, 5)  # no hover
    others = [i for i, span in enumerate(view.spans) if span.kind in COLORS and i != index]
    opacity = [1.0 if view.spans[i].tile == 9 else 0.25 for i in others]
    expected = [rgb(COLORS[view.spans[i].kind], part) for i, part in zip(others, opacity, strict=True)]
    view.wait(lambda: far(view.colors(others), expected) <= 2)


def test_a_click_beside_the_bars_clears(view: Timed) -> None:
    view.assign("selected", 3)
    view.wait(lambda: view.marked())
    x, y = view.middle(view.index("producer", "loads", 23))
    view.point_at(*view.on_screen(x, y + 2 * LANE), click=True)
    view.wait(lambda: view.trait("selected") is None)
    assert view.marked() == [] and view.text(".tl-tables div:last-child .tl-caption") == "no K tile selected"


def test_a_span_without_a_tile_is_marked_alone(chrome: Chrome, page: Path) -> None:
    view = Timed(chrome, page, spans=[("a", "loads", 0, 5), ("a", "loads", 9, 12)], kinds=None, selected=1)
    assert view.marked() == ["a\tloads\t\t9\t3"]


def test_the_list_picks_too_by_pointer_and_keys(view: Timed) -> None:
    from selenium.webdriver.common.keys import Keys

    view.assign("selected", view.index("producer", "loads", 4))
    view.wait(lambda: view.marked() == listed(view.spans, 4))
    order = sorted((i for i, s in enumerate(view.spans) if s.tile == 4), key=lambda i: view.spans[i].start)
    view.one(f"tr[data-span='{order[3]}']").click()
    assert view.trait("selected") == order[3]
    view.keys(f"tr[data-span='{order[3]}']", Keys.ARROW_DOWN)
    assert view.trait("selected") == order[4]
    view.wait(lambda: view.js("return document.querySelector('tr.is-selected').dataset.span") == str(order[4]))
    assert view.js("return document.activeElement.dataset.span") == str(order[4])


def test_another_recording_keeps_the_tile(view: Timed) -> None:
    view.assign("selected", view.index("consumer 1", "multiplies", 6))
    next(n for n in view.chrome.find_elements("css selector", ".tp-tabs label") if n.text == "slow").click()
    view.run = "slow"
    view.wait(lambda: view.trait("run") == "slow")
    assert view.trait("selected") == view.index("consumer 1", "multiplies", 6)
    view.wait(lambda: view.marked() == listed(view.spans, 6))


def test_a_window_beyond_the_end_of_a_shorter_recording_shows_its_end(view: Timed) -> None:
    slow, fast = (max(s.end for s in view.widget._spans[name]) for name in ("slow", "fast"))
    assert fast < slow - 1000
    view.assign("run", "slow")
    view.assign("window", [slow - 1000, slow])
    view.wait(lambda: view.shows(".tl-caption", f"cycles {text(slow - 1000)} to {text(slow)}, of which"))
    view.assign("run", "fast")
    view.wait(lambda: view.shows(".tl-caption", f"cycles {text(fast - 1000)} to {text(fast)}, of which"))


# ---- everywhere


def test_nothing_is_without_a_name(view: Timed) -> None:
    view.assign("selected", 10)
    view.wait(lambda: view.marked())
    assert view.unnamed() == []
    assert view.text("[role=status]") == view.text(".tp-readout")


@pytest.mark.parametrize("theme", THEMES)
def test_text_is_readable_in_every_theme(view: Timed, theme: str) -> None:
    with themed(view, theme):
        view.assign("selected", view.index("producer", "loads", 4))
        view.wait(lambda: view.marked())
        worst = view.contrast()
        assert {"TD.", "TH.", "LI.", "BUTTON.", "P.tp-keys", "DIV.tl-caption"} <= set(worst)
        assert {name: ratio for name, ratio in worst.items() if ratio < 4.5} == {}
        assert is_dark(view) == wants_dark(theme)
        # The canvas follows the theme without a reload: what is not of the tile is drawn faintly over the page.
        surface = view.js("return getComputedStyle(document.querySelector('.cutetut-picker')).backgroundColor")
        page = [int(part) for part in surface.removeprefix("rgb(").removesuffix(")").split(",")]
        bar = rgb(COLORS["multiplies"])
        faint = [round(0.25 * c + 0.75 * p) for c, p in zip(bar, page, strict=True)]
        other = view.index("consumer 1", "multiplies", 12)
        view.wait(lambda: far(view.colors([other]), [faint]) <= 2)


def test_a_phone_shows_everything_without_sideways_scrolling(chrome: Chrome, page: Path) -> None:
    with phone(chrome):
        view = Timed(chrome, page)
        view.assign("selected", view.index("producer", "loads", 4))
        view.wait(lambda: view.marked() == listed(view.spans, 4))
        assert view.js("return document.documentElement.scrollWidth") <= 390
        wide = view.js("""return [...document.querySelectorAll('.cutetut-picker *')]
            .filter((n) => n.getBoundingClientRect().right > 390).map((n) => n.outerHTML.slice(0, 80))""")
        assert wide == []
        small = view.js("""return [...document.querySelectorAll('button, input, .tp-tabs span')]
            .filter((n) => getComputedStyle(n).opacity !== '0' && n.getBoundingClientRect().height < 30)
            .map((n) => n.outerHTML.slice(0, 80))""")
        assert small == []


@pytest.mark.parametrize("scale", [1, 2])
def test_the_hatching_of_waits_is_as_fine_on_a_dense_screen(chrome: Chrome, page: Path, scale: int) -> None:
    with phone(chrome) if scale == 2 else contextlib.nullcontext():
        view = Timed(chrome, page, spans=[("a", "waits", 0, 100)], kinds=None)
        assert view.js("return window.devicePixelRatio") == scale
        rows = [view.js(HATCHING, y) for y in (8, 12)]
    for dark in rows:
        steps = {after - before for before, after in itertools.pairwise(dark)}
        assert len(dark) > 20 and steps == {6 * scale}, dark


HATCHING = """const canvas = document.querySelector('canvas'), scale = window.devicePixelRatio;
const narrow = canvas.width / scale < 560, left = (narrow ? 0 : 96) * scale + 20, wide = 240 * scale;
const y = (3 + (narrow ? 17 : 0) + arguments[0]) * scale;
const row = canvas.getContext('2d').getImageData(left, y, wide, 1).data;
const light = (x) => row[4 * x] > 200;  // a line of the hatching is darker, and begins where the pixel before was light
return Array.from({ length: wide }, (_, x) => x).filter((x) => x > 0 && light(x - 1) && !light(x));"""


@pytest.mark.parametrize(("row", "kind", "tile"), [("producer", "loads", 11), ("consumer 2", "multiplies", 8)])
def test_on_a_phone_a_tap_picks_the_bar_below_its_rows_name(
    chrome: Chrome, page: Path, row: str, kind: str, tile: int
) -> None:
    with phone(chrome):
        view = Timed(chrome, page, window=(4000, 8000))
        view.left, view.above = 0, ABOVE
        index = view.index(row, kind, tile)
        view.point(index, click=True, kind="touch")
        view.wait(lambda: view.trait("selected") == index)
        view.wait(lambda: view.marked() == listed(view.spans, tile))


def test_a_redraw_is_far_under_a_frame(chrome: Chrome, page: Path) -> None:
    """A thousand bars, panned. A busy machine stretches most of the steps, so the fastest tenth counts."""
    view = Timed(chrome, page, spans=pipelines.producer_consumer(k_tiles=160))
    assert len(view.spans) == 1000
    fast = view.chrome.execute_async_script("""
        const done = arguments[arguments.length - 1], canvas = document.querySelector('canvas'), times = [];
        (async () => {
          for (let step = 0; step < 100; step++) {
            const start = performance.now();
            model.set('window', [step, step + 50000]);
            await null; await null;
            canvas.getContext('2d').getImageData(0, 0, 1, 1);
            document.body.offsetHeight;
            times.push(performance.now() - start);
          }
          done(times.sort((a, b) => a - b)[10]);
        })();""")
    assert fast < 25, f"{fast} ms"
