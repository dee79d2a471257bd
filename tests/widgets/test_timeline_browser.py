"""The timeline in headless Chromium, mounted in a local page: no kernel, no network.

Every expectation comes from the spans that `pipelines.py` makes by plain loops; the page is asked only what it shows.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cutetut import plots
from cutetut.widgets import Span, Timeline
from tests.book_browser import chromium, console_errors
from tests.widgets import pipelines
from tests.widgets.mounting import THEMES, View, is_dark, phone, themed, wants_dark

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.browser

KINDS = ["waits", "loads", "multiplies", "stores"]
COLORS = dict(zip(KINDS[1:], (color for color, _ in plots.KIND_COLORS), strict=False))
ROWS = ["producer", "consumer 1", "consumer 2"]
TOP, LANE, GAP = 3, 24, 10  # CSS pixels: where timeline_chart.js puts the bars
LABEL, ABOVE = 96, 17  # room for a row's name: at the left, or above it where the page is narrow


class Timed(View):
    """A mounted timeline; `run` is the recording that the test expects to be shown."""

    def __init__(self, chrome: Chrome, page: Path, **options: Any) -> None:
        options = {"spans": pipelines.recordings(), "kinds": KINDS, "title": "One CTA", **options}
        self.widget = Timeline(**options)
        self.run = self.widget.run
        self.left, self.above = LABEL, 0
        super().__init__(chrome, page, self.widget)
        self.wait(lambda: self.js("return document.querySelector('.tp-readout').textContent !== ''"))

    @property
    def spans(self) -> list[Span]:
        return self.widget._spans[self.run]

    @property
    def duration(self) -> float:
        return max(span.end for span in self.spans)

    @property
    def window(self) -> tuple[float, float]:
        window = self.trait("window")
        return (0, self.duration) if window is None else tuple(window)

    def index(self, row: str, kind: str, tile: int) -> int:
        return next(i for i, s in enumerate(self.spans) if (s.row, s.kind, s.tile) == (row, kind, tile))

    def lane(self, index: int) -> int:
        return self.widget._lanes[self.run][index]

    def middle(self, index: int) -> tuple[float, float]:
        """CSS pixels of a bar's middle from the canvas's corner, by the layout of a wide page."""
        span = self.spans[index]
        return self.x((span.start + span.end) / 2), self.y(index)

    def x(self, time: float) -> float:
        """CSS pixels of a time from the canvas's left."""
        return self.across([time])[0]

    def across(self, times: list[float]) -> list[float]:
        width = self.js("return document.querySelector('canvas').getBoundingClientRect().width")
        start, end = self.window
        return [self.left + (width - self.left) * (time - start) / (end - start) for time in times]

    def y(self, index: int) -> float:
        """CSS pixels of a bar's middle from the canvas's top."""
        above = ROWS[: ROWS.index(self.spans[index].row)]
        lanes = [1 + max(self.lane(i) for i, s in enumerate(self.spans) if s.row == row) for row in above]
        names = (1 + len(above)) * self.above
        return TOP + names + sum(lanes) * LANE + len(above) * GAP + self.lane(index) * LANE + LANE / 2 - 2

    def on_screen(self, x: float, y: float) -> tuple[int, int]:
        left, top = self.js(
            "const c = document.querySelector('canvas'); c.scrollIntoView({block: 'center'});"
            "const box = c.getBoundingClientRect(); return [box.left, box.top]"
        )
        return round(left + x), round(top + y)

    def point(self, index: int, *, click: bool = False, kind: str = "mouse") -> None:
        """Move a pointer to the middle of a bar; click or tap there."""
        self.point_at(*self.on_screen(*self.middle(index)), click=click, kind=kind)

    def drag(self, start: tuple[float, float], by: int) -> None:
        """Press, move sideways by so many pixels, release."""
        from selenium.webdriver import ActionChains

        x, y = self.on_screen(*start)
        chain = ActionChains(self.chrome, duration=10)
        pointer = chain.w3c_actions.pointer_action.move_to_location(x, y).pointer_down()
        for step in range(1, 5):
            pointer.move_to_location(x + by * step // 4, y)
        pointer.pointer_up()
        chain.perform()

    def turn(self, x: float, y: float, up: int = 0, across: int = 0, modifiers: int = 0) -> None:
        """Turn the wheel there; modifiers as in the DevTools protocol, 2 is Ctrl."""
        left, top = self.on_screen(x, y)
        wheel = {"type": "mouseWheel", "x": left, "y": top, "deltaX": across, "deltaY": -up, "modifiers": modifiers}
        self.chrome.execute_cdp_cmd("Input.dispatchMouseEvent", wheel)

    def colors(self, indices: list[int]) -> list[list[int]]:
        """What the canvas shows in the lower left corners of bars, away from their numbers and from rings."""
        across = self.across([self.spans[i].start for i in indices])
        points = [(x + 6, self.y(i) + LANE / 2 - 7) for x, i in zip(across, indices, strict=True)]
        return list(
            self.js(
                """const canvas = document.querySelector('canvas'), context = canvas.getContext('2d');
                const scale = canvas.width / canvas.getBoundingClientRect().width;
                return arguments[0].map(([x, y]) =>
                  [...context.getImageData(x * scale, y * scale, 1, 1).data].slice(0, 3))""",
                points,
            )
        )

    def marked(self) -> list[str]:
        return list(self.js("return [...document.querySelectorAll('.tp-box tbody tr')].map((r) => r.innerText.trim())"))


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chrome]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "timeline.html"


@pytest.fixture
def view(chrome: Chrome, page: Path) -> Iterator[Timed]:
    view = Timed(chrome, page)
    yield view
    assert view.js("return window.errors") == []
    assert console_errors(chrome) == []


def rgb(color: str, opacity: float = 1.0) -> list[int]:
    """A colour over white."""
    return [round(opacity * int(color[i : i + 2], 16) + (1 - opacity) * 255) for i in (1, 3, 5)]


def far(some: list[list[int]], others: list[list[int]]) -> int:
    """The largest difference between colours."""
    return max(abs(a - b) for one, other in zip(some, others, strict=True) for a, b in zip(one, other, strict=True))


def text(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def listed(spans: list[Span], tile: int) -> list[str]:
    """The table of the bars of one tile."""
    mine = sorted((s for s in spans if s.tile == tile), key=lambda s: s.start)
    parts = [
        (s.row, s.kind, "" if s.stage is None else str(s.stage), text(s.start), text(s.end - s.start)) for s in mine
    ]
    return ["\t".join(part) for part in parts]


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
