"""The built pages work in a browser that reaches no network: the picker, the boxes to tick."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.book.browser import chromium, console_errors, requested, until
from tests.book.building import built
from tests.book.pages import is_remote

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

pytestmark = pytest.mark.browser

PICKER_PAGES = ["notebooks/05_partition_c.html", "book/intro.html"]  # the same picker, in its chapter and in front
PICKER_PAGE = PICKER_PAGES[0]
PICKER = ".cutetut-picker"


@pytest.fixture(scope="module")
def book() -> Path:
    return built()


@pytest.fixture(scope="module")
def server(book: Path) -> Iterator[str]:
    """Serve the book on this machine's loopback address; yield where."""
    handler = functools.partial(_Quiet, directory=str(book))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}"
        httpd.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Published(_Quiet):
    """As GitHub Pages does it: the book is in a folder of its host, and 404.html is shown where there is no page."""

    def translate_path(self, path: str) -> str:
        return super().translate_path(path.removeprefix("/cutetut"))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        page = Path(self.directory, "404.html").read_bytes()
        self.send_response(code)
        self.end_headers()
        self.wfile.write(page)


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chrome]:
    with chromium() as browser:
        yield browser


@pytest.fixture(params=["file", "http"])
def address(request: pytest.FixtureRequest, book: Path, server: str) -> str:
    """Where the book is: opened from disk, or served."""
    return book.as_uri() if request.param == "file" else server


def wait(chrome: Chrome, css: str) -> WebElement:
    until(chrome, lambda c: c.find_elements("css selector", css), f"no {css} on the page")
    return chrome.find_element("css selector", css)


def open_page(chrome: Chrome, address: str) -> None:
    console_errors(chrome), requested(chrome)  # what earlier pages said is theirs
    chrome.get(address)


def assert_clean(chrome: Chrome, address: str) -> None:
    """Nothing was logged as an error, and nothing was asked of another place than the book."""
    assert console_errors(chrome) == []
    assert [a for a in requested(chrome) if not a.startswith(address) and is_remote(a)] == []


def picked(picker: WebElement) -> int:
    """Return the thread that a picker shows: its number field, which must agree with its slider."""
    number = picker.find_element("css selector", "input[type=number]").get_property("value")
    slider = picker.find_element("css selector", "input[type=range]").get_property("value")
    assert number == slider
    return int(str(number))


def owned(thread: int) -> set[str]:
    """Return the elements of a 128x128 tile that permutation (16,4):(4,1) gives a thread of a 16x16 grid."""
    row, col = divmod(thread, 16)
    rows, cols = ([4 * at + i + 64 * rest for rest in (0, 1) for i in range(4)] for at in (row, col))
    return {f"C[{r}][{c}]" for r in rows for c in cols}


def listed(picker: WebElement) -> set[str]:
    """Return the elements in the picker's table."""
    return {cell.text for cell in picker.find_elements("css selector", "tbody td:last-child")}


def test_the_register_maps_of_attention_follow_one_another(chrome: Chrome, address: str) -> None:
    """Chapter 19: wherever one goes in S, P shows the same element, in the same register of the same thread."""
    from selenium.webdriver import Keys

    def shown() -> list[str]:
        return [node.text for node in chrome.find_elements("css selector", ".cutetut-thread-picker .tp-readout")]

    open_page(chrome, f"{address}/notebooks/19_fa_wgmma.html")
    until(chrome, lambda c: len(shown()) == 2, "there are not two pickers")
    seen = [shown()]
    first, second = chrome.find_elements("css selector", ".cutetut-thread-picker")
    first.find_element("css selector", "canvas").send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    seen.append(shown())
    chrome.execute_script("arguments[0].click()", second.find_elements("css selector", "tbody tr")[17])
    seen.append(shown())
    for of_S, of_P in seen:
        assert of_S.startswith("S[") and of_P == of_S.replace("S[", "P[")
    assert len({of_S for of_S, _ in seen}) == 3
    assert_clean(chrome, address)


def test_a_wrong_address_leads_to_the_chapters(chrome: Chrome, book: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Published, directory=str(book))) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        host = f"http://127.0.0.1:{httpd.server_address[1]}"
        open_page(chrome, f"{host}/cutetut/notebooks/of/yore.html")
        assert wait(chrome, "article h1").text.startswith("Page not found")
        assert [error for error in console_errors(chrome) if "/yore.html" not in error] == []
        assert chrome.execute_script("return getComputedStyle(document.querySelector('.bd-links')).display") != "inline"
        chrome.find_element("partial link text", "01 A layout is").click()
        until(chrome, lambda c: c.current_url == f"{host}/cutetut/notebooks/01_layouts.html", "no chapter was opened")
        httpd.shutdown()


@pytest.mark.parametrize("page", PICKER_PAGES)
def test_picker_without_kernel_or_network(chrome: Chrome, address: str, page: str) -> None:
    from selenium.webdriver import ActionChains, Keys

    open_page(chrome, f"{address}/{page}")
    picker = wait(chrome, PICKER)
    tile = picker.find_element("css selector", "canvas")
    chrome.execute_script("arguments[0].scrollIntoView({block: 'center'})", tile)
    start = picked(picker)

    ActionChains(chrome).move_to_element_with_offset(tile, -100, -100).click().perform()  # from its middle
    clicked = picked(picker)
    assert clicked != start
    assert listed(picker) == owned(clicked)

    tile.send_keys(Keys.ARROW_RIGHT)
    assert picked(picker) == clicked + 1
    assert listed(picker) == owned(clicked + 1)
    tile.send_keys(Keys.ARROW_DOWN, Keys.ARROW_LEFT)
    assert picked(picker) == clicked + 16

    assert_clean(chrome, address)


def test_picture_stands_in_without_javascript(book: Path) -> None:
    with chromium() as browser:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        browser.get(f"{book.as_uri()}/{PICKER_PAGE}")
        images = browser.find_elements("css selector", ".cutetut-still img")
        assert browser.find_elements("css selector", PICKER) == []
        assert images and all(int(str(image.get_property("naturalWidth"))) > 100 for image in images)


TICKS = "table.exercises tbody tr input[type=checkbox]"


def ticked(chrome: Chrome) -> list[str]:
    """The rows of the page of exercises whose boxes are ticked."""
    script = "return [...document.querySelectorAll(arguments[0])].map((box) => box.closest('tr').id)"
    return [str(key) for key in chrome.execute_script(script, f"{TICKS}:checked")]


def test_lines_of_a_diff_are_coloured_and_their_text_is_as_it_was(chrome: Chrome, book: Path) -> None:
    open_page(chrome, f"{book.as_uri()}/notebooks/20_fa_warp_specialized.html")
    wait(chrome, ".cutetut-comes")
    outputs = chrome.find_elements("css selector", ".cell_output pre")
    texts = [str(pre.get_property("textContent")) for pre in outputs]
    diffs = [(pre, text.splitlines()) for pre, text in zip(outputs, texts, strict=True) if " lines go, " in text]
    assert len(diffs) == 2
    for pre, lines in diffs:
        gone, come = (sum(line.startswith(sign) for line in lines) for sign in ("- ", "+ "))
        assert f"{gone} lines go, {come} come" in lines
        for kind, count in (("goes", gone), ("comes", come)):
            assert len(pre.find_elements("css selector", f".cutetut-{kind}")) == count
    assert_clean(chrome, book.as_uri())


def test_ticks_of_exercises_stay_in_the_browser(chrome: Chrome, address: str) -> None:
    """By the keyboard alone, over a reload; a box has a name, and what is kept can be damaged without harm."""
    from selenium.webdriver import Keys

    page = f"{address}/book/exercises.html"
    open_page(chrome, page)
    chrome.execute_script("localStorage.clear()")
    chrome.refresh()
    wait(chrome, TICKS)
    rows = chrome.find_elements("css selector", "table.exercises tbody tr")
    boxes = chrome.find_elements("css selector", TICKS)
    assert len(boxes) == len(rows) > 100 and ticked(chrome) == []
    names = [box.get_attribute("aria-label") for box in boxes]
    assert all(name and name.startswith("done: ") for name in names)
    first, second = (str(row.get_attribute("id")) for row in rows[:2])
    boxes[0].send_keys(Keys.SPACE)
    boxes[0].send_keys(Keys.TAB, Keys.TAB)  # over the link to the exercise, to the next box
    chrome.switch_to.active_element.send_keys(Keys.SPACE)
    assert ticked(chrome) == [first, second]
    status = chrome.find_element("css selector", ".cutetut-ticked")
    assert status.get_attribute("role") == "status" and status.text.startswith(f"2 of {len(boxes)} ticked.")
    chrome.refresh()
    wait(chrome, TICKS)
    assert ticked(chrome) == [first, second]
    chrome.find_elements("css selector", TICKS)[0].send_keys(Keys.SPACE)
    chrome.refresh()
    wait(chrome, TICKS)
    assert ticked(chrome) == [second]
    for damaged in ("{", "3", '{"a": 1}'):
        chrome.execute_script("localStorage.setItem('cutetut.exercises', arguments[0])", damaged)
        chrome.refresh()
        wait(chrome, TICKS)
        assert ticked(chrome) == []
    chrome.execute_script("localStorage.clear()")
    assert_clean(chrome, address)


def test_ticks_without_storage_say_so(book: Path) -> None:
    """Where a browser keeps nothing, boxes can be ticked all the same, and the page says what becomes of that."""
    from selenium.webdriver import Keys

    refuse = "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('no', 'SecurityError'); }})"
    with chromium() as browser:
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": refuse})
        browser.get(f"{book.as_uri()}/book/exercises.html")
        wait(browser, TICKS).send_keys(Keys.SPACE)
        assert len(ticked(browser)) == 1
        assert browser.find_element("css selector", ".cutetut-ticked").text.endswith("they go with this page.")


def test_boxes_to_tick_are_large_enough_for_a_finger(book: Path) -> None:
    with chromium(390, 844) as browser:
        browser.get(f"{book.as_uri()}/book/exercises.html")
        wait(browser, TICKS)
        labels = browser.find_elements("css selector", ".cutetut-tick")
        assert labels and all(min(label.size["width"], label.size["height"]) >= 24 for label in labels)
        left = [label.location["x"] for label in labels]
        assert min(left) >= 0
