"""A widget mounted in a local page, with a model of its own: no kernel, no network; and how a reader handles it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from anywidget import AnyWidget

from tests.book.browser import console_errors

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

MARGIN = {"left": 34, "top": 20, "right": 12, "bottom": 4}  # of tile.js


def page(widget: AnyWidget) -> str:
    """An HTML page that mounts the widget's module with its synced traits."""
    state = {name: value for name, value in widget.get_state().items() if name not in ("_esm", "_css")}
    text = (Path(__file__).parent / "mount.html").read_text(encoding="utf-8")
    for mark, content in (
        ("/*CSS*/", str(widget._css)),
        ("/*STATE*/", _embed(state)),
        ("/*ESM*/", _embed(str(widget._esm))),
    ):
        text = text.replace(mark, content)
    return text


def _embed(data: Any) -> str:
    return json.dumps(data).replace("<", "\\u003c")


class View:
    """One mounted widget."""

    def __init__(self, chrome: Chrome, path: Path, widget: AnyWidget, fragment: str = "") -> None:
        self.chrome = chrome
        path.write_text(page(widget), encoding="utf-8")
        chrome.get("about:blank")  # else another fragment of the same page would not load it again
        chrome.get(path.as_uri() + fragment)
        self.wait(lambda: self.js("return window.ready === true || window.errors.length > 0"))

    def js(self, script: str, *arguments: Any) -> Any:
        return self.chrome.execute_script(script, *arguments)

    def wait(self, condition: Callable[[], Any], seconds: float = 20.0) -> Any:
        """Return what `condition` returns as soon as it is true."""
        limit = time.monotonic() + seconds
        while not (result := condition()):
            assert time.monotonic() < limit, f"not seen in {seconds} s; page errors: {self.js('return window.errors')}"
            time.sleep(0.02)
        return result

    def one(self, css: str) -> WebElement:
        return self.chrome.find_element("css selector", css)

    def text(self, css: str) -> str:
        return str(self.js("return document.querySelector(arguments[0]).textContent", css))

    def shows(self, css: str, text: str) -> bool:
        return text in self.text(css)

    def listed(self, css: str) -> list[str]:
        return list(self.js("return [...document.querySelectorAll(arguments[0])].map((n) => n.textContent)", css))

    def trait(self, name: str) -> Any:
        return self.js("return window.model.get(arguments[0])", name)

    def assign(self, name: str, value: Any) -> None:
        """Set a trait as Python does."""
        self.js("window.model.set(arguments[0], arguments[1])", name, value)

    def keys(self, css: str, *keys: str) -> None:
        self.one(css).send_keys(*keys)

    def write(self, css: str, text: str) -> None:
        """Replace what a field holds, key by key."""
        from selenium.webdriver.common.keys import Keys

        self.keys(css, Keys.CONTROL, "a")
        self.keys(css, Keys.BACKSPACE, text)

    def at(self, place: tuple[int, int], shape: tuple[int, int], canvas: str = "canvas") -> tuple[int, int]:
        """Viewport coordinates of a (row, col) of a tile's shape, from the canvas and the axis labels' margins."""
        x, y = self.js(
            """const canvas = document.querySelector(arguments[0]); canvas.scrollIntoView({block: 'center'});
            const [, [row, col], [rows, cols], margin] = arguments, box = canvas.getBoundingClientRect();
            const wide = box.width - margin.left - margin.right, high = box.height - margin.top - margin.bottom;
            return [box.left + margin.left + (col + 0.5) * wide / cols,
                    box.top + margin.top + (row + 0.5) * high / rows];""",
            canvas,
            place,
            shape,
            MARGIN,
        )
        return round(x), round(y)

    def point_at(self, x: int, y: int, *, click: bool = False, kind: str = "mouse") -> None:
        """Move a pointer to viewport coordinates; click or tap there."""
        from selenium.webdriver import ActionChains
        from selenium.webdriver.common.actions.action_builder import ActionBuilder
        from selenium.webdriver.common.actions.pointer_input import PointerInput

        actions = ActionChains(self.chrome)
        actions.w3c_actions = ActionBuilder(self.chrome, mouse=PointerInput(kind, kind))
        pointer = actions.w3c_actions.pointer_action.move_to_location(x, y)
        if click:
            pointer.pointer_down().pointer_up()
        actions.perform()

    def unnamed(self) -> list[str]:
        """What a screen reader has no name for."""
        return list(
            self.js("""return [...document.querySelectorAll(
                'canvas, button, input, select, table, section, fieldset, [role=img]')]
                .filter((n) => !n.getAttribute('aria-label') && !(n.labels && n.labels.length)
                  && !(n.tagName === 'FIELDSET' && n.querySelector('legend')) && !n.textContent.trim())
                .map((n) => n.outerHTML)""")
        )

    def contrast(self) -> dict[str, float]:
        """The least contrast of each kind of text with what is behind it, as WCAG 2 defines the ratio."""
        return dict(self.js(CONTRAST))


CONTRAST = """
const probe = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const rgba = (color) => { probe.clearRect(0, 0, 1, 1); probe.fillStyle = color; probe.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = probe.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255]; };
const over = (top, under) => [0, 1, 2].map((k) => top[k] * top[3] + under[k] * (1 - top[3])).concat(1);
const ground = (node) => node ? over(rgba(getComputedStyle(node).backgroundColor), ground(node.parentElement))
  : [255, 255, 255, 1];
const light = (color) => color.slice(0, 3).map((c) => c / 255)
  .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
const worst = {};
const walker = document.createTreeWalker(document.querySelector('.cutetut-picker'), NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || node.closest('.tp-hidden')) continue;
  const under = ground(node), pair = [light(over(rgba(getComputedStyle(node).color), under)), light(under)];
  const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
  const name = node.tagName + '.' + node.className;
  worst[name] = Math.min(worst[name] ?? 99, ratio);
}
return worst;
"""


def lab(light: str) -> str:
    """JupyterLab's attributes and the variables that the picker takes from it, as the stock themes set them."""
    surface, ink, line = ("white", "rgba(0,0,0,0.87)", "#bdbdbd") if light == "true" else ("#111", "#fff", "#616161")
    return (
        f"document.body.dataset.jpThemeLight = '{light}'; const s = document.body.style;"
        f"s.setProperty('--jp-layout-color0', '{surface}'); s.setProperty('--jp-content-font-color1', '{ink}');"
        f"s.setProperty('--jp-border-color1', '{line}')"
    )


THEMES = {
    "no theme": "",
    "system dark": "",
    "book light": "document.documentElement.dataset.theme = 'light'",
    "book dark": "document.documentElement.dataset.theme = 'dark'; const s = document.documentElement.style;"
    "s.setProperty('--pst-color-background', '#121212'); s.setProperty('--pst-color-text-base', '#ced6dd')",
    "lab light": lab("true"),
    "lab dark": lab("false"),
    "book light, system dark": "document.documentElement.dataset.theme = 'light'",
}


@contextlib.contextmanager
def themed(view: View, theme: str) -> Iterator[None]:
    """One of THEMES, in a mounted page."""
    system = "dark" if "system dark" in theme else "light"
    emulate = "Emulation.setEmulatedMedia"
    view.chrome.execute_cdp_cmd(emulate, {"features": [{"name": "prefers-color-scheme", "value": system}]})
    try:
        view.js(THEMES[theme])
        yield
    finally:
        view.chrome.execute_cdp_cmd(emulate, {"features": []})


def is_dark(view: View) -> bool:
    """Whether the widget takes the page for a dark one."""
    return view.js("return getComputedStyle(document.querySelector('.cutetut-picker')).colorScheme") == "dark"


def wants_dark(theme: str) -> bool:
    return theme in ("system dark", "book dark", "lab dark")


@contextlib.contextmanager
def phone(chrome: Chrome) -> Iterator[None]:
    """A phone's screen, 390 pixels wide."""
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        yield
    finally:
        desktop = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", desktop)


V = TypeVar("V", bound=View)


@contextlib.contextmanager
def faultless(view: V) -> Iterator[V]:
    """A mounted widget whose page and console must have no error to report at the end."""
    yield view
    assert view.js("return window.errors") == []
    assert console_errors(view.chrome) == []
