"""A mounted timeline, where its bars are on the screen, and how a reader handles them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutetut.figures import spans
from cutetut.widgets import Span, Timeline
from tests.widgets import pipelines
from tests.widgets.mounting import View

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

KINDS = ["waits", "loads", "multiplies", "stores"]
COLORS = dict(zip(KINDS[1:], (color for color, _ in spans.KIND_COLORS), strict=False))
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
