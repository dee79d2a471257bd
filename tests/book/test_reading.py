"""The book as it is read: found by searching, in the dark theme, and on paper; test_every_page.py has the phone."""

from __future__ import annotations

import base64
import functools
import http.server
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.book import browser
from tests.book.browser import chromium
from tests.book.building import built

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.browser

PHONE = 390  # pixels, the width


@pytest.fixture(scope="module")
def book() -> Path:
    return built()


@pytest.fixture(scope="module")
def desktop() -> Iterator[Chrome]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def server(book: Path) -> Iterator[str]:
    """Serve the book on this machine's loopback address; yield where."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(book))) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}"
        httpd.shutdown()


def until(chrome: Chrome, script: str, why: str) -> Any:
    """Wait until the script returns something true; return it."""
    return browser.until(chrome, lambda c: c.execute_script(script), why)


def opened(browser: Chrome, book: Path, name: str) -> None:
    """Open a page and wait until all its widgets are drawn."""
    browser.get((book / f"{name}.html").as_uri())
    views = "[type='application/vnd.jupyter.widget-view+json']"
    # the manager replaces each view's script by the widget
    drawn = f"""return document.readyState === 'complete' && !!document.querySelector('footer')
        && document.querySelectorAll(".cutetut-picker").length >= Math.max(
            document.querySelectorAll(`script{views}`).length, document.querySelectorAll(".cutetut-still").length)"""
    until(browser, drawn, f"{name}: its widgets are not drawn")


# --- search


@pytest.mark.parametrize("width", [PHONE, 1280])
@pytest.mark.parametrize("served", [False, True])
def test_the_whole_text_can_be_searched(book: Path, server: str, width: int, served: bool) -> None:
    """From disk as well as from a server, from the button that this width shows; a server also gives excerpts."""
    from selenium.webdriver import Keys

    with chromium(width, 900) as browser:
        browser.get(f"{server if served else book.as_uri()}/book/how_it_runs.html")
        shown = "return [...document.querySelectorAll('{}')].find((node) => node.getClientRects().length)"
        until(browser, shown.format(".search-button__button"), "no button for searching").click()
        field = until(browser, shown.format("input[type=search]"), "no field for searching")
        field.send_keys("colexicographic", Keys.ENTER)
        until(browser, "return document.querySelectorAll('#search-results li').length > 1", "nothing was found")
        addresses = [link.get_attribute("href") for link in browser.find_elements("css selector", "#search-results a")]
        assert any("/book/glossary.html" in str(address) for address in addresses)
        if served:
            until(browser, "return !!document.querySelector('#search-results .context')", "no excerpt")


# --- the dark theme


def picture(browser: Chrome, node: Any) -> Any:
    """Return what the browser shows of a node, as floats from 0 to 1, rows by columns."""
    import numpy as np
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(base64.b64decode(node.screenshot_as_base64))).convert("L")) / 255


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["notebooks/04_scalar_fma_gemm", "notebooks/21_fa_pingpong"])
def test_pictures_are_legible_in_both_themes(desktop: Chrome, book: Path, name: str, theme: str) -> None:
    """A figure's ground is the page's, light or dark, and what is drawn on it differs from it by half the scale."""
    import numpy as np

    opened(desktop, book, name)
    desktop.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    shown = [image for image in desktop.find_elements("css selector", "article img") if image.is_displayed()]
    assert shown
    for image in shown:
        desktop.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", image)
        seen = picture(desktop, image)
        ground = float(np.median(seen[:3]))
        assert ground > 0.9 if theme == "light" else ground < 0.15
        assert np.abs(seen - ground).max() > 0.5


LUMINANCE = """const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
    const channels = (color) => { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3); };
    const light = (color) => { const [r, g, b] = channels(color).map((c) => c / 255)
        .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const ground = (node) => { const color = getComputedStyle(node).backgroundColor;
        return node === document.documentElement || !/, 0\\)$|transparent/.test(color) ? color
            : ground(node.parentElement); };"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["book/intro", "book/emulator", "book/benchmarks", "notebooks/05_partition_c"])
def test_text_has_contrast_in_both_themes(desktop: Chrome, book: Path, name: str, theme: str) -> None:
    """Prose, links, code in the text, captions and tables reach a contrast of 4.5 to what is behind them (WCAG AA)."""
    opened(desktop, book, name)
    desktop.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    until(desktop, "return document.getAnimations().every((a) => a.playState === 'finished')", "still changing")
    poor = desktop.execute_script(
        LUMINANCE
        + """return [...document.querySelectorAll(`article :is(p, li, h1, h2, h3, td, th, a, small, .number, .speed,
                code.literal), .bd-sidebar-primary a`)]
            .filter((node) => node.getClientRects().length && node.textContent.trim() && !node.closest('.headerlink'))
            .map((node) => [node, [light(getComputedStyle(node).color), light(ground(node))].sort((a, b) => b - a)])
            .filter(([, [high, low]]) => (high + 0.05) / (low + 0.05) < 4.5)
            .map(([node]) => node.outerHTML.slice(0, 100))"""
    )
    assert poor == []


# --- paper


def test_paper_is_light_and_everything_on_it_is_unfolded(desktop: Chrome, book: Path) -> None:
    """Solutions are printed open and in the light theme; afterwards the page is as it was."""
    opened(desktop, book, "notebooks/05_partition_c")
    state = "({theme: document.documentElement.dataset.theme, open: document.querySelectorAll('details[open]').length})"
    desktop.execute_script(
        f"""document.documentElement.dataset.theme = 'dark';
        document.querySelector('details').open = true;
        addEventListener('beforeprint', () => {{ window.printed = {state}; }});"""
    )
    folded = desktop.execute_script("return document.querySelectorAll('details').length")
    before = desktop.execute_script(f"return {state}")
    desktop.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert folded > 3 and before == {"theme": "dark", "open": 1}
    assert desktop.execute_script("return window.printed") == {"theme": "light", "open": folded}
    until(desktop, f"return JSON.stringify({state}) === '{{\"theme\":\"dark\",\"open\":1}}'", "not as it was")


def test_a_widget_that_cannot_be_drawn_leaves_its_picture(book: Path) -> None:
    with chromium() as browser:
        browser.execute_cdp_cmd("Network.enable", {})
        browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*anywidget.js*"]})
        browser.get((book / "book/intro.html").as_uri())
        seen = """const image = document.querySelector('.cutetut-still img');
            return image && image.getClientRects().length && image.naturalWidth > 300"""
        until(browser, seen, "no picture")
        assert browser.find_elements("css selector", ".cutetut-picker") == []
