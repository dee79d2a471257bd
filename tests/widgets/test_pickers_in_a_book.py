"""The pickers in a page of a book that is built as this one is: no kernel, no network, one link that restores a view.

The chapters' own pages are tested in tests/book; here is a book of one notebook that is run first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import nbclient
import nbformat
import pytest
import yaml

from cutetut.inspect import descriptors
from tests.book.browser import chromium, console_errors, requested, until
from tests.book.building import ROOT, jupyter_book
from tests.book.pages import is_remote
from tests.widgets.mounting import phone

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

pytestmark = pytest.mark.browser

CELLS = (
    "import cutetut\nfrom cutetut.widgets import *\nfrom tests.widgets import maps, pipelines",
    'LayoutViewer("((4,2),8):((1,16),4)", index=29, title="A nested layout")',
    'LayoutViewer("(8,32):(32,1)", name="rows", title="Row-major")',
    'SwizzleView(word=(5, 9), title="K_SW128")',
    'DescriptorDecoder(0x4000004000012340, title="A of the first WGMMA")',
    'ThreadPicker(maps.scalar_gemm_maps(), thread_grid=(16, 16), title="Who owns C")',
    'Timeline(pipelines.recordings(), title="A pipeline")',
    "from ipywidgets import jslink\n"
    "by_rows, by_columns = maps.rows_and_columns()\n"
    'first = ThreadPicker(by_rows, element=(0, 0), title="By rows")\n'
    'second = ThreadPicker(by_columns, matrix="A", title="By columns")\n'
    '_ = jslink((first, "element"), (second, "element"))\n'
    "display(first, second)",
)
ORDER = (
    "layout-viewer", "layout-viewer", "swizzle-view", "descriptor-decoder", "thread-picker", "timeline",
    "thread-picker", "thread-picker",
)  # fmt: skip
PICKERS = len(ORDER)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a notebook with every picker and build a book of it; return its page."""
    source = tmp_path_factory.mktemp("pickers")
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        cells=[nbformat.v4.new_markdown_cell("# Pickers"), *map(nbformat.v4.new_code_cell, CELLS)],
    )
    nbclient.NotebookClient(
        notebook, timeout=300, store_widget_state=True, resources={"metadata": {"path": str(ROOT)}}
    ).execute()
    nbformat.write(notebook, source / "pickers.ipynb")
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    config["sphinx"]["local_extensions"] = {"cutetut_book": str(ROOT / "book" / "_ext")}
    config["sphinx"]["extra_extensions"].remove("notfound.extension")  # fails without a tree of pages for its sidebar
    config["sphinx"]["config"] |= {
        "include_patterns": ["*.ipynb"],
        "html_static_path": [str(ROOT / "book" / "_static")],
    }
    config["html"]["favicon"] = str(ROOT / config["html"]["favicon"])
    (source / "_config.yml").write_text(yaml.safe_dump(config))
    (source / "_toc.yml").write_text("format: jb-book\nroot: pickers\n")
    done = jupyter_book(source, source)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return source / "_build" / "html" / "pickers.html"


def opened(chrome: Chrome, book: Path, fragment: str = "") -> list[WebElement]:
    """Open the page and return its pickers in order, once all are drawn."""
    chrome.get("about:blank")
    console_errors(chrome), requested(chrome)
    chrome.get(book.as_uri() + fragment)
    drawn = """return document.querySelectorAll('.cutetut-picker').length === arguments[0]
        && [...document.querySelectorAll('.cutetut-picker canvas')].every((c) => c.width > 0
            && c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((value) => value > 0))"""
    until(chrome, lambda c: c.execute_script(drawn, PICKERS), "the pickers are not drawn")
    found = chrome.find_elements("css selector", ".cutetut-picker")
    for name, picker in zip(ORDER, found, strict=True):
        assert f"cutetut-{name}" in str(picker.get_attribute("class"))
    return found


def text(picker: WebElement, css: str) -> str:
    return str(picker.find_element("css selector", css).get_property("textContent"))


def rewrite(box: WebElement, content: str) -> None:
    from selenium.webdriver import Keys

    box.send_keys(Keys.CONTROL, "a")
    box.send_keys(Keys.BACKSPACE, content)


@pytest.fixture
def pickers(chrome: Chrome, book: Path) -> Iterator[list[WebElement]]:
    yield opened(chrome, book)
    assert console_errors(chrome) == []
    assert [address for address in requested(chrome) if is_remote(address) and not address.startswith("file:")] == []


def test_a_layout_can_be_typed_and_walked(pickers: list[WebElement]) -> None:
    from selenium.webdriver import Keys

    first, second = pickers[:2]
    rewrite(first.find_element("css selector", ".tp-text"), "(3,(2,2)):(4,(1,2))")
    canvas = first.find_element("css selector", "canvas")
    canvas.send_keys(Keys.HOME, *[Keys.ARROW_DOWN] * 7)
    assert text(first, ".tp-readout") == "coordinate (1,2) = (1,(0,1)) · index 7 · offset 6"
    rewrite(first.find_element("css selector", ".tp-text"), "(3,(2,2)):(4,1)")
    assert "nested differently: (2,2) in the shape has 1" in text(first, ".tp-message")
    assert text(second, ".tp-readout") == "coordinate (0,0) · index 0 · offset 0"  # the other viewer is its own


def test_layouts_can_be_composed_without_a_kernel(pickers: list[WebElement]) -> None:
    from selenium.webdriver.support.select import Select

    first = pickers[0]
    rewrite(first.find_element("css selector", ".tp-text"), "(6,2):(8,2)")
    Select(first.find_element("css selector", "select")).select_by_value("composition")
    rewrite(first.find_element("css selector", ".tp-with"), "(4,3):(3,1)")
    assert text(first, ".tp-result") == "R = ((2,2),3):((24,2),8)"
    assert "✓ holds at every index" in text(first, ".tp-law")
    assert len(first.find_elements("css selector", ".tp-panel canvas")) == 2


def test_a_cell_can_be_clicked(chrome: Chrome, pickers: list[WebElement]) -> None:
    from selenium.webdriver import ActionChains

    canvas = pickers[0].find_element("css selector", "canvas")
    chrome.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    corner = (34 - canvas.size["width"] / 2 + 6, 20 - canvas.size["height"] / 2 + 6)
    ActionChains(chrome).move_to_element_with_offset(canvas, *map(int, corner)).click().perform()
    assert text(pickers[0], ".tp-readout") == "coordinate (0,0) = ((0,0),0) · index 0 · offset 0"


def test_a_swizzle_can_be_chosen_and_typed(pickers: list[WebElement]) -> None:
    view = pickers[2]
    counts = lambda: [c.text for c in view.find_elements("css selector", ".tp-count")]  # noqa: E731
    assert counts() == ["8 wavefronts: 7 more than needed", "1 wavefront: no bank conflict"]
    for label in view.find_elements("css selector", ".tp-tabs label"):
        if label.text in ("SW64", "column"):
            label.click()
    assert counts() == ["16 wavefronts: 15 more than needed", "4 wavefronts: 3 more than needed"]
    rewrite(view.find_element("css selector", "input[id$='-B']"), "3")
    assert text(view, "[data-side=with] .tp-side") == "with S<3,4,3>"


def test_a_descriptor_can_be_typed_and_edited(pickers: list[WebElement]) -> None:
    view = pickers[3]
    box = view.find_element("css selector", ".tp-text")
    bits = descriptors.encode(1024, 4096, 512, 0, 2)
    rewrite(box, f"{bits:x}")
    fields = view.find_elements("css selector", ".tp-row :is(input, select)")
    assert [field.get_property("value") for field in fields] == ["1024", "4096", "512", "0", "2"]
    rewrite(fields[2], "2048")
    assert box.get_property("value") == f"{descriptors.encode(1024, 4096, 2048, 0, 2):#018x}"


def test_two_linked_pickers_show_the_same_element(chrome: Chrome, pickers: list[WebElement]) -> None:
    """A notebook links them by `jslink`; the page has no kernel that could."""
    from selenium.webdriver import Keys

    rows, columns = pickers[6:]
    assert (text(rows, ".tp-readout"), text(columns, ".tp-readout")) == (
        "C[0][0] · thread 0 · value 0",
        "A[0][0] · thread 0 · value 0",
    )
    rows.find_element("css selector", "canvas").send_keys(Keys.ARROW_RIGHT)  # its next thread: the next row
    assert text(rows, ".tp-readout") == "C[1][0] · thread 1 · value 0"
    assert text(columns, ".tp-readout") == "A[1][0] · thread 0 · value 1"
    columns.find_elements("css selector", "tbody tr")[3].click()
    assert text(columns, ".tp-readout") == "A[3][0] · thread 0 · value 3"
    assert text(rows, ".tp-readout") == "C[3][0] · thread 3 · value 0"


def test_a_link_opens_its_viewer_and_leaves_the_others(chrome: Chrome, book: Path) -> None:
    first, second = opened(chrome, book, "#rows=(4,(2,3)):(6,(3,1))&at=17")[:2]
    assert text(second, ".tp-readout") == "coordinate (1,4) = (1,(0,2)) · index 17 · offset 8"
    assert text(first, ".tp-readout").endswith("index 29 · offset 29")
    on_screen = """const box = arguments[0].getBoundingClientRect();
        return box.top >= 0 && box.bottom <= window.innerHeight"""
    canvas = second.find_element("css selector", "canvas")
    until(chrome, lambda c: c.execute_script(on_screen, canvas), "the page does not scroll there")
    assert console_errors(chrome) == []

    second.find_element("css selector", ".tp-link").click()
    assert chrome.current_url == book.as_uri() + "#rows=(4,(2,3)):(6,(3,1))&at=17"


def test_no_rule_of_one_widget_depends_on_which_came_last(chrome: Chrome, pickers: list[WebElement]) -> None:
    """Each widget brings the common style, so a widget's own rules must outweigh it in any order."""
    before = chrome.execute_script(WIDTHS)
    chrome.execute_script("""for (const style of [...document.querySelectorAll('style')].reverse())
        if (style.textContent.includes('cutetut-picker')) style.parentElement.append(style)""")
    assert chrome.execute_script(WIDTHS) == before


WIDTHS = """return [...document.querySelectorAll('.cutetut-picker *')].map((n) => n.getBoundingClientRect().width)"""


def test_the_page_fits_a_phone(chrome: Chrome, book: Path) -> None:
    with phone(chrome):
        opened(chrome, book)
        assert chrome.execute_script("return document.documentElement.scrollWidth") <= 390


def test_pictures_stand_in_without_javascript(book: Path) -> None:
    with chromium() as browser:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        browser.get(book.as_uri())
        images = browser.find_elements("css selector", ".cutetut-still img")
        assert len(images) == PICKERS
        assert all(int(str(image.get_property("naturalWidth"))) > 300 for image in images)
