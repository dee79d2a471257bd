"""Every page, opened once on a desktop and once on a phone: to open one takes a browser a second of CPU time.

A visit notes all that the tests here ask of a page; they say what it should have seen.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.book.browser import chromium, console_errors, requested, until
from tests.book.building import ROOT, built, notebooks, toc_files
from tests.book.pages import is_remote

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

pytestmark = pytest.mark.browser

DESKTOP, PHONE = (1280, 844), (390, 844)
FINGER = 24  # pixels, the least height and width of a target: WCAG 2.2, 2.5.8
WITH_WIDGETS = ["book/intro", *notebooks()]
PAGES = [*toc_files(), "search"]
PICKER = ".cutetut-picker"
VIEW = '<script type="application/vnd.jupyter.widget-view+json">'  # one for each widget that a page shows

DRAWN = """const pickers = [...document.querySelectorAll(arguments[0])];
    const painted = (canvas) => canvas.width > 0 && canvas.height > 0 && canvas.getContext('2d')
        .getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0);
    return document.readyState === 'complete' && !!document.querySelector('footer')
        && pickers.length === arguments[1]
        && pickers.every((picker) => [...picker.querySelectorAll('canvas')].every(painted))"""
WIDTHS = "return [document.documentElement.scrollWidth, window.innerWidth]"
SHRUNK = """return [...document.querySelectorAll("div.cell_output > img")].filter(
    (image) => image.offsetWidth < Math.min(image.naturalWidth, 700)).map((image) => image.src)"""
SHOWN = """return [...document.querySelectorAll(arguments[0])].filter((node) => node.getClientRects().length
    && (node.tagName !== 'IMG' || node.naturalWidth > 100)).length"""
SMALL = """const targets = `.cutetut-picker :is(button, select, input:is([type=text], [type=number], [type=range]),
        label:has(input[type=radio]), tbody tr[tabindex]), .cutetut-ladder a, .cutetut-actions a,
        .bd-header-article button, .bd-article summary`;
    return [...document.querySelectorAll(targets)].filter((node) => node.getClientRects().length)
        .map((node) => [node.outerHTML.slice(0, 80), node.getBoundingClientRect()])
        .filter(([, box]) => box.width < arguments[0] || box.height < arguments[0])
        .map(([html, box]) => `${html} ${box.width}x${box.height}`)"""
LOST = """const scrolls = (node) => node && node !== document.body
        && (['auto', 'scroll'].includes(getComputedStyle(node).overflowX) || scrolls(node.parentElement));
    return [...document.querySelectorAll('article :is(table, pre, img, svg)')]
        .filter((node) => node.getBoundingClientRect().right > innerWidth && !scrolls(node))
        .map((node) => node.outerHTML.slice(0, 80))"""
STACKED = """return [...document.querySelectorAll('table.stacks')].filter((table) => table.getClientRects().length)
    .map((table) => ({
        right: Math.max(...[...table.querySelectorAll('td')].map((td) => td.getBoundingClientRect().right)),
        names: [...table.querySelectorAll('thead th')].slice(1).map((th) => th.textContent.trim()),
        labels: [...table.querySelectorAll('tbody tr')].map((row) => [...row.cells].slice(1)
            .map((td) => td.textContent.trim() && getComputedStyle(td, '::before').content))}))"""
LINES = """return [...document.querySelectorAll('.cell_output pre')].map((node) => {
    const box = node.getBoundingClientRect(), prose = [...node.querySelectorAll('.cutetut-prose')];
    const wider = prose.filter((line) => line.getBoundingClientRect().right > box.right + 1);
    return [node.textContent, prose.map((line) => line.textContent), wider.map((line) => line.textContent)]})"""
NEXT = """const link = document.querySelector('.prev-next-footer .right-next');
    return link && [link.href, link.getBoundingClientRect().height]"""

Visit = dict[str, Any]
Visits = Callable[[str], Visit]


@pytest.fixture(scope="module")
def book() -> Path:
    return built()


@pytest.fixture(scope="module")
def on_a_desktop(book: Path) -> Iterator[Visits]:
    with chromium(*DESKTOP) as chrome:
        yield functools.cache(functools.partial(visit_on_a_desktop, chrome, book))


@pytest.fixture(scope="module")
def phone() -> Iterator[Chrome]:
    with chromium(*PHONE) as chrome:
        yield chrome


@pytest.fixture(scope="module")
def on_a_phone(book: Path, phone: Chrome) -> Visits:
    return functools.cache(functools.partial(visit_on_a_phone, phone, book))


def opened(chrome: Chrome, book: Path, name: str) -> str:
    """Open a page, wait until it and all its widgets are drawn, and return its address."""
    page = book / f"{name}.html"
    count = page.read_text().count(VIEW)
    chrome.get(page.as_uri())
    until(chrome, lambda c: c.execute_script(DRAWN, PICKER, count), f"{name}: {count} are not drawn")
    return page.as_uri()


def visit_on_a_desktop(chrome: Chrome, book: Path, name: str) -> Visit:
    console_errors(chrome), requested(chrome)  # what earlier pages said is theirs
    opened(chrome, book, name)
    visit = {"widths": chrome.execute_script(WIDTHS), "shrunk": chrome.execute_script(SHRUNK)}
    visit["on screen"] = [chrome.execute_script(SHOWN, css) for css in (PICKER, ".cutetut-still img")]
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    visit["on paper"] = [chrome.execute_script(SHOWN, css) for css in (PICKER, ".cutetut-still img")]
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    visit["deaf"] = [picker.get_attribute("aria-label") for picker in pickers(chrome) if not answers_a_key(picker)]
    visit["errors"] = console_errors(chrome)
    visit["elsewhere"] = [a for a in requested(chrome) if not a.startswith(book.as_uri()) and is_remote(a)]
    return visit


def visit_on_a_phone(chrome: Chrome, book: Path, name: str) -> Visit:
    opened(chrome, book, name)
    small = chrome.execute_script(SMALL, FINGER)
    scripts = {"widths": WIDTHS, "shrunk": SHRUNK, "lost": LOST, "stacked": STACKED, "next": NEXT, "outputs": LINES}
    return {"small": small, **{what: chrome.execute_script(script) for what, script in scripts.items()}}


def pickers(chrome: Chrome) -> list[WebElement]:
    return chrome.find_elements("css selector", PICKER)


def says(picker: WebElement) -> str:
    """All text in a picker, and what its fields hold."""
    fields = picker.find_elements("css selector", "input")
    return str(picker.get_property("innerText")) + ",".join(str(field.get_property("value")) for field in fields)


def press_a_key(picker: WebElement) -> None:
    """Arrow right in the picker's first drawing; without one, type into its text box."""
    from selenium.webdriver import Keys

    for canvas in picker.find_elements("css selector", "canvas")[:1]:
        return canvas.send_keys(Keys.ARROW_RIGHT)
    box = picker.find_element("css selector", "input[type=text]")
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys("1234")


def answers_a_key(picker: WebElement) -> bool:
    """Whether a key changes what the picker says."""
    from selenium.common.exceptions import TimeoutException

    before = says(picker)
    press_a_key(picker)
    try:
        return bool(until(picker, lambda it: says(it) != before))
    except TimeoutException:
        return False


def test_these_are_all_pages(book: Path) -> None:
    """And the book's own address, which leads on to the first page, and what is shown at a wrong address."""
    html = {page.relative_to(book).with_suffix("") for page in book.rglob("*.html")}
    assert {str(page) for page in html if "_static" not in page.parts} == {*PAGES, "index", "404"}


@pytest.mark.parametrize("name", [*PAGES, "index"])
def test_every_page_opens_without_an_error(on_a_desktop: Visits, name: str) -> None:
    """Nothing was logged as an error, and nothing was asked of another place than the book."""
    visit = on_a_desktop(name)
    assert visit["errors"] == [] and visit["elsewhere"] == []


@pytest.mark.parametrize("name", PAGES)
def test_every_picker_is_drawn_and_answers_the_keyboard(on_a_desktop: Visits, name: str) -> None:
    """Whatever pickers a chapter has: its page draws all of them, and a key changes what each one says."""
    assert on_a_desktop(name)["deaf"] == []


def test_there_are_pickers(on_a_desktop: Visits) -> None:
    assert sum(on_a_desktop(name)["on screen"][0] for name in WITH_WIDGETS) > len(WITH_WIDGETS) / 2


@pytest.mark.parametrize("name", WITH_WIDGETS)
def test_paper_shows_the_picture_of_each_widget(on_a_desktop: Visits, name: str) -> None:
    visit = on_a_desktop(name)
    widgets, pictures = visit["on screen"]
    assert pictures == 0 and visit["on paper"] == [0, widgets]


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [DESKTOP[0], PHONE[0]])
def test_no_page_is_wider_than_the_screen(on_a_desktop: Visits, on_a_phone: Visits, name: str, width: int) -> None:
    """Wide tables, code and figures scroll inside their own boxes, on a phone too; no figure is too small to read."""
    visit = on_a_desktop(name) if width == DESKTOP[0] else on_a_phone(name)
    page, screen = visit["widths"]
    assert page <= screen == width
    assert visit["shrunk"] == []


@pytest.mark.parametrize("name", WITH_WIDGETS)
def test_a_finger_can_hit_what_it_should(on_a_phone: Visits, name: str) -> None:
    assert on_a_phone(name)["small"] == []


@pytest.mark.parametrize("name", toc_files())
def test_wide_things_scroll_in_their_own_box(on_a_phone: Visits, name: str) -> None:
    """Every table, code block and picture that is wider than the phone has an ancestor that scrolls sideways."""
    assert on_a_phone(name)["lost"] == []


@pytest.mark.parametrize("name", ["book/intro", "book/emulator", "book/errata", "book/explained"])
def test_stacked_tables_say_what_each_cell_is(on_a_phone: Visits, name: str) -> None:
    """A table of sentences fits the phone, each cell under its column's name."""
    tables = on_a_phone(name)["stacked"]
    assert tables
    for table in tables:
        assert table["right"] <= PHONE[0]
        for labels in table["labels"]:
            assert labels == [f'"{n}"' if label else "" for n, label in zip(table["names"], labels, strict=True)]


@pytest.mark.parametrize("name", ["notebooks/18_fa_tma", "notebooks/21_fa_pingpong", "notebooks/museum_of_bugs"])
def test_sentences_of_outputs_wrap_and_rows_of_tables_do_not(on_a_phone: Visits, name: str) -> None:
    """Reports are longer than a screen is wide. What one copies is what was printed: no line comes or goes."""
    outputs = on_a_phone(name)["outputs"]
    cells = json.loads((ROOT / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    streams = ["".join(out["text"]) for cell in cells for out in cell.get("outputs", ()) if "text" in out]
    assert {text.strip() for text in streams} <= {text.strip() for text, _, _ in outputs}
    prose = {line for _, lines, _ in outputs for line in lines}
    assert all(len(re.findall(r"(?<=\S) {2,}(?=\S)", line)) < 2 for line in prose)
    assert [wider for _, _, wider in outputs if wider] == []
    errors = {line for text in streams for line in text.splitlines(True) if re.match(r"[A-Z][A-Za-z]+: .{40}", line)}
    assert errors and errors <= prose


def test_a_phone_reaches_every_page(phone: Chrome, on_a_phone: Visits, book: Path) -> None:
    """The menu opens at a touch and leads to every page; the links at the foot lead through the book in order."""
    opened(phone, book, "book/intro")
    menu = "return document.querySelector('.bd-sidebar-primary').getBoundingClientRect().right > 0"
    shown = """return [...document.querySelectorAll('.bd-sidebar-primary nav a')]
        .filter((a) => a.getBoundingClientRect().width > 0).map((a) => a.href.split('#')[0])"""
    phone.find_element("css selector", ".primary-toggle").click()
    until(phone, lambda c: c.execute_script(menu), "the menu does not open")
    listed = until(phone, lambda c: c.execute_script(shown), "the menu is empty")
    assert {(book / f"{name}.html").as_uri() for name in toc_files()[1:]} <= set(listed)
    order = ["book/intro"]
    while len(order) < len(toc_files()):
        address, height = on_a_phone(order[-1])["next"]
        assert height >= FINGER
        order.append(address.removeprefix(f"{book.as_uri()}/").split(".html")[0])
    assert order == toc_files()
