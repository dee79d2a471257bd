"""The timeline's keys, buttons, wheel, drag and pinch, in headless Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cutetut.widgets import Span
from tests.widgets.mounting import faultless, phone
from tests.widgets.timed import ROWS, Timed

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.browser


@pytest.fixture
def view(chrome: Chrome, page: Path) -> Iterator[Timed]:
    with faultless(Timed(chrome, page)) as view:
        yield view


# ---- keys


def test_arrow_keys_go_along_a_row_and_between_rows(view: Timed) -> None:
    from selenium.webdriver.common.keys import Keys

    view.assign("selected", view.index("consumer 1", "multiplies", 3))

    def after(*keys: str) -> Span:
        view.keys("canvas", *keys)
        return view.spans[view.trait("selected")]

    span = after(Keys.ARROW_RIGHT)
    assert (span.row, span.kind, span.tile) == ("consumer 1", "waits", 4)
    span = after(Keys.ARROW_RIGHT)
    assert (span.row, span.kind, span.tile) == ("consumer 1", "multiplies", 4)
    span = after(Keys.ARROW_DOWN)
    assert (span.row, span.tile) == ("consumer 2", 4)
    assert after(Keys.ARROW_DOWN) == span  # there is no row below
    assert after(Keys.ARROW_UP).row == "consumer 1" and after(Keys.ARROW_UP).row == "producer"
    row = sorted((s for s in view.spans if s.row == "producer"), key=lambda s: s.start)
    assert after(Keys.HOME).start == row[0].start
    assert after(Keys.END) == row[-1]
    view.keys("canvas", Keys.ESCAPE)
    assert view.trait("selected") is None
    assert view.js("return window.scrollY") == 0


def test_every_bar_can_be_reached_by_keys(view: Timed) -> None:
    from selenium.webdriver.common.keys import Keys

    view.js("window.seen = []; model.on('change:selected', () => seen.push(model.get('selected')))")
    for row in ROWS:
        mine = [i for i, span in enumerate(view.spans) if span.row == row]
        view.assign("selected", mine[-1])
        view.keys("canvas", Keys.HOME, *[Keys.ARROW_RIGHT] * len(mine))
    assert set(view.js("return seen")) == set(range(len(view.spans)))


def test_a_bar_picked_by_key_is_brought_into_view(view: Timed) -> None:
    from selenium.webdriver.common.keys import Keys

    view.assign("window", [0, 1000])
    view.assign("selected", view.index("consumer 1", "multiplies", 0))
    view.keys("canvas", Keys.END)
    last = max((s for s in view.spans if s.row == "consumer 1"), key=lambda s: s.start)
    view.wait(lambda: view.window[0] <= last.start and last.end <= view.window[1])
    assert view.window[1] - view.window[0] == 1000


def test_keys_zoom_and_move(view: Timed) -> None:
    from selenium.webdriver.common.keys import Keys

    view.keys("canvas", "+")
    start, end = view.window
    assert end - start == pytest.approx(view.duration / 1.6)
    assert start + end == pytest.approx(view.duration)
    view.keys("canvas", Keys.PAGE_UP)
    assert view.window == pytest.approx((0, end - start))
    view.keys("canvas", "-")
    assert view.trait("window") is None
    view.keys("canvas", "+", "+", "0")
    assert view.trait("window") is None


def test_zooming_by_key_keeps_the_selected_bar_where_it_is(view: Timed) -> None:
    index = view.index("consumer 1", "multiplies", 20)
    span = view.spans[index]
    view.assign("selected", index)
    view.wait(lambda: view.marked())
    middle = (span.start + span.end) / 2
    x = view.x(middle)
    view.keys("canvas", "+", "+", "+", "+")
    view.wait(lambda: view.window[1] - view.window[0] < view.duration / 5)
    assert view.x(middle) == pytest.approx(x, abs=1.5)


# ---- buttons, slider, wheel, drag, pinch


def test_buttons_zoom_and_move_and_stop_at_the_ends(view: Timed) -> None:
    def press(label: str) -> tuple[float, float]:
        view.one(f"button[aria-label='{label}']").click()
        return view.window

    length = view.duration / 1.6
    assert press("zoom in") == pytest.approx(((view.duration - length) / 2, (view.duration + length) / 2))
    assert press("later") == pytest.approx((view.duration - length, view.duration))
    assert press("later") == pytest.approx((view.duration - length, view.duration))
    assert press("earlier") == pytest.approx((view.duration - 1.5 * length, view.duration - 0.5 * length))
    for _ in range(40):
        start, end = press("zoom in")
    assert end - start == pytest.approx(view.duration / 2000)  # the deepest
    assert press("everything") == (0, view.duration)


def test_the_slider_moves_through_the_whole_recording(view: Timed) -> None:
    from selenium.webdriver.common.keys import Keys

    slider = "input[type=range]"
    assert view.js("return document.querySelector(arguments[0]).disabled", slider)
    view.assign("window", [0, 1000])
    view.wait(lambda: not view.js("return document.querySelector(arguments[0]).disabled", slider))
    view.keys(slider, Keys.END)
    view.wait(lambda: view.window == pytest.approx((view.duration - 1000, view.duration)))
    view.keys(slider, Keys.HOME)
    view.wait(lambda: view.window == pytest.approx((0, 1000)))


def test_the_wheel_zooms_where_it_points_once_the_chart_has_the_focus(view: Timed) -> None:
    view.js("document.body.style.height = '3000px'")
    x, y = view.middle(view.index("consumer 1", "multiplies", 4))
    time = (view.spans[view.index("consumer 1", "multiplies", 4)].start + 256) * 1.0

    view.turn(x, y, up=-120)  # the page's, as long as the chart has not the focus
    view.wait(lambda: view.js("return window.scrollY") > 0)
    assert view.trait("window") is None
    view.js("window.scrollTo(0, 0)")

    view.turn(x, y, up=120, modifiers=2)
    view.wait(lambda: view.trait("window") is not None)
    assert view.x(time) == pytest.approx(x, abs=1.5)
    assert view.window[1] - view.window[0] < view.duration

    view.assign("window", None)
    view.js("document.querySelector('canvas').focus()")
    view.turn(x, y, up=120)
    view.wait(lambda: view.trait("window") is not None)
    assert view.x(time) == pytest.approx(x, abs=1.5)
    start, end = view.window
    view.turn(x, y, across=100)
    view.wait(lambda: view.window[0] > start)
    assert view.window[1] - view.window[0] == pytest.approx(end - start)


def test_dragging_moves_time_with_the_pointer_and_selects_nothing(view: Timed) -> None:
    view.assign("window", [4000, 8000])
    index = view.index("consumer 1", "multiplies", 8)
    x, y = view.middle(index)
    time = (view.spans[index].start + view.spans[index].end) / 2
    view.drag((x, y), by=-200)
    view.wait(lambda: view.window[0] > 4000)
    assert view.x(time) == pytest.approx(x - 200, abs=8)  # a few pixels still count as a click
    assert view.window[1] - view.window[0] == pytest.approx(4000)
    assert view.trait("selected") is None


def test_two_fingers_zoom_to_what_is_between_them(chrome: Chrome, page: Path) -> None:
    with phone(chrome):
        view = Timed(chrome, page)
        left, top = view.on_screen(0, 60)

        def touch(kind: str, *xs: int) -> None:
            points = [{"x": left + x, "y": top, "id": n} for n, x in enumerate(xs)]
            chrome.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        touch("touchStart", 150)
        touch("touchStart", 150, 200)
        for spread in (10, 20, 40, 50):
            touch("touchMove", 150 - spread, 200 + spread)
        touch("touchEnd")
        view.wait(lambda: view.trait("window") is not None)
        start, end = view.window
        assert end - start == pytest.approx(view.duration * 50 / 150, rel=0.1)
        assert (start + end) / 2 == pytest.approx(view.duration / 2, rel=0.1)
        assert view.trait("selected") is None
