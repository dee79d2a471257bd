"""The layout viewer's operations in headless Chromium; what CuTe DSL returns is the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cutetut import layouts
from cutetut.widgets import LayoutViewer
from cutetut.widgets.layout_operations import KINDS, layout_of
from cutetut.widgets.layout_text import read_layout
from tests.widgets.mounting import THEMES, View, faultless, phone, themed
from tests.widgets.test_layout_viewer import CASES

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.browser

BOX, OTHER, CHOICE = ".tp-layout", ".tp-with", "select"
COMPOSED = {"layout": "(6,2):(8,2)", "operation": "composition", "other": "(4,3):(3,1)"}


class Operated(View):
    """A mounted layout viewer with an operation."""

    def __init__(self, chrome: Chrome, path: Path, fragment: str = "", **given: Any) -> None:
        super().__init__(chrome, path, LayoutViewer(**{**COMPOSED, **given}), fragment)

    def operate(self, name: str) -> None:
        from selenium.webdriver.support.select import Select

        Select(self.one(CHOICE)).select_by_value(name)

    def button(self, text: str) -> Any:
        return next(b for b in self.chrome.find_elements("css selector", "button") if b.text == text)

    def state(self) -> tuple[str, str, str, int]:
        text, operation, other, index = (self.trait(name) for name in ("text", "operation", "other", "index"))
        return text, operation, other, index


@pytest.fixture
def view(chrome: Chrome, page: Path) -> Iterator[Operated]:
    with faultless(Operated(chrome, page)) as view:
        yield view


def offsets(text: str) -> list[int]:
    """CuTe's offsets of a layout, in order."""
    layout = read_layout(text)
    return [int(n) for n in layouts.offsets(lambda: layout_of(layout)).ravel(order="F")]


def test_the_underscore_of_a_free_coordinate_can_be_seen(chrome: Chrome, page: Path) -> None:
    """At 14 px the box cut it off, and "(2,_)" looked like "(2, )"."""
    with faultless(Operated(chrome, page, layout="(4,8):(8,1)", operation="slice_", other="(2,_)")) as view:
        box = view.one(OTHER)
        with_it = box.screenshot_as_png
        chrome.execute_script("arguments[0].value = '(2, )'", box)
        assert box.screenshot_as_png != with_it


def test_the_title_says_that_it_is_about_another_layout(chrome: Chrome, page: Path) -> None:
    with faultless(Operated(chrome, page, layout="(4,8):(8,1)", operation="", other="", title="4 rows")) as view:
        assert view.text(".tp-title") == "4 rows"
        view.assign("index", 9)
        view.wait(lambda: view.shows(".tp-readout", "index 9"))
        assert view.text(".tp-title") == "4 rows"
        view.write(BOX, "(8,4):(4,1)")
        view.wait(lambda: view.text(".tp-title") == "4 rows (changed)")
        view.button("undo").click()
        view.wait(lambda: view.text(".tp-title") == "4 rows")


def test_the_table_of_modes_fits_beside_the_drawing(chrome: Chrome, page: Path) -> None:
    """The last products of the largest layout that can be drawn, at the width that the book gives a viewer."""
    with faultless(Operated(chrome, page, layout="(128,128):(128,1)", operation="", other="")) as view:
        view.js("document.querySelector('.cutetut-picker').style.width = '792px'")
        view.assign("index", 16383)
        view.wait(lambda: view.shows(".tp-readout", "index 16383"))
        assert view.js("const box = document.querySelector('.tp-box'); return box.scrollWidth - box.clientWidth") == 0


# ---- results and laws


@pytest.mark.parametrize(("text", "operation", "other", "result"), CASES)
def test_an_operation_shows_its_result_and_that_its_law_holds(
    view: Operated, text: str, operation: str, other: str, result: str
) -> None:
    view.write(BOX, text)
    view.operate(operation)
    if KINDS[operation] != "none":
        view.write(OTHER, other or "1")
        view.keys(OTHER, "\ue003" if not other else "\ue00f")  # an empty box is typed by deleting the 1
    view.wait(lambda: view.text(".tp-result").endswith(result))
    last = len(offsets(result)) - 1
    view.assign("index", last)
    view.wait(lambda: view.text(".tp-readout").endswith(f"index {last} · offset {offsets(result)[last]}"))
    assert "✓ holds at every index" in view.text(".tp-law")
    assert view.one("canvas").get_attribute("aria-label").endswith(f"offsets of {result}")  # type: ignore[union-attr]


def test_the_law_has_the_numbers_of_the_index_and_the_panels_follow(view: Operated) -> None:
    a, b, r = offsets("(6,2):(8,2)"), offsets("(4,3):(3,1)"), offsets("((2,2),3):((24,2),8)")
    for index in (0, 5, 11):
        view.assign("index", index)
        inner = b[index]
        view.wait(lambda index=index, inner=inner: view.shows(  # type: ignore[misc]
            ".tp-law", f"R({index}) = {r[index]}, A(B({index})) = A({inner}) = {a[inner]}"))  # fmt: skip
        assert view.listed(".tp-panel .tp-panel-name") == [
            f"A = (6,2):(8,2) · index {inner} · offset {a[inner]}",
            f"B = (4,3):(3,1) · index {index} · offset {inner}",
        ]


def test_where_cutes_answer_breaks_the_law_the_page_says_so(view: Operated) -> None:
    """CuTe DSL 4.8.1 composes (4,5):(1,8) with 4:3, but 6, which is 2 steps of 3, is index 2 of the next column."""
    view.write(BOX, "(4,5):(1,8)")
    view.write(OTHER, "4:3")
    assert LayoutViewer("(4,5):(1,8)", "composition", "4:3").result == "(2,2):(3,8)"
    assert view.text(".tp-result") == "R = (2,2):(3,8)"
    fails = "CuTe returns this, but the law fails: R(2) = 8, A(B(2)) = A(6) = 10, but 8 is not 10"
    assert fails in view.text(".tp-law")
    assert "is-wrong" in str(view.one(".tp-law").get_attribute("class"))


def test_a_refusal_says_why_and_leaves_a_drawing(view: Operated) -> None:
    view.write(BOX, "(4,6):(1,7)")
    view.write(OTHER, "5:3")
    assert view.text(".tp-result").startswith("no composition: shape 5 of 5:3 does not fit the left mode 4:1")
    assert "is-wrong" in str(view.one(".tp-result").get_attribute("class"))
    assert view.js("return document.querySelector(arguments[0]).value", OTHER) == "5:3"
    assert view.text(".tp-line") == (
        "cute.composition(cute.make_layout((4, 6), stride=(1, 7)), cute.make_layout(5, stride=3))"
    )
    assert view.one("canvas").get_attribute("aria-label") == "4 by 6 offsets of (4,6):(1,7)"


def test_the_steps_of_a_composition_are_told(view: Operated) -> None:
    steps = view.listed(".tp-fold li")
    assert steps[1:] == [
        "6:8: 2 steps of 3×8 = 24 fit; 2 left",
        "2:2, the last mode, takes the other 2: steps of 1×2 = 2",
        "so 4:3 becomes (2,2):(24,2)",
        "6:8: 3 steps of 1×8 = 8 fit; 1 left",
        "so 3:1 becomes 3:8",
    ]


def test_a_thread_value_layout_has_its_tile(view: Operated) -> None:
    view.write(BOX, "(4,8):(8,1)")
    view.operate("make_layout_tv")
    view.write(OTHER, "(2,2):(2,1)")
    view.wait(lambda: view.text(".tp-result") == "R = tile (8,16), ((8,4),(2,2)):((16,2),(8,1))")
    view.assign("index", 37)
    place = offsets("((8,4),(2,2)):((16,2),(8,1))")[37]
    says = f"tile 8×16: thread 5, value 1 is row {place % 8}, column {place // 8}"
    view.wait(lambda: view.listed(".tp-panel-name")[0] == says)


# ---- typing, choosing, undoing


def test_a_mistake_is_marked_where_it_is_and_nothing_typed_is_lost(view: Operated) -> None:
    view.write(BOX, "(6,x):(8,2)")
    assert view.text(".tp-mistake") == "(6,x):(8,2)" and view.text(".tp-mistake mark") == "x"
    view.write(OTHER, "(4,3:1")
    assert view.listed(".tp-mistake")[1] == "(4,3:1" and view.listed(".tp-mistake mark")[1] == "("
    assert view.js("return document.querySelector(arguments[0]).value", BOX) == "(6,x):(8,2)"
    view.write(OTHER, "3:1")  # a right argument does not wipe out the wrong layout
    view.wait(lambda: view.state()[:3] == ("(6,2):(8,2)", "composition", "3:1"))
    assert view.listed(".tp-mistake mark") == ["x"]
    assert view.js("return document.querySelector(arguments[0]).value", BOX) == "(6,x):(8,2)"


@pytest.mark.parametrize("operation", KINDS)
def test_choosing_an_operation_gives_something_to_begin_with(chrome: Chrome, page: Path, operation: str) -> None:
    with faultless(Operated(chrome, page, layout="(4,8):(8,1)", operation="", other="")) as view:
        view.operate(operation)
        given = LayoutViewer("(4,8):(8,1)", operation, view.trait("other"))
        assert view.text(".tp-result").endswith(given.result)
        assert "✓" in view.text(".tp-law")


def test_undo_and_redo_go_through_the_views(view: Operated) -> None:
    first = view.state()[:3]
    view.operate("logical_divide")
    view.write(BOX, "(8,8):(1,8)")
    view.write(OTHER, "(4,4)")
    last = view.state()[:3]
    assert view.button("redo").get_property("disabled") is True
    seen = [last]
    while not view.button("undo").get_property("disabled"):
        view.button("undo").click()
        seen.append(view.state()[:3])
    assert seen[-1] == first and len(seen) == len(set(seen)) == 4
    assert view.js("return document.querySelector(arguments[0]).value", OTHER) == "(4,3):(3,1)"
    while not view.button("redo").get_property("disabled"):
        view.button("redo").click()
    assert view.state()[:3] == last


def test_the_keyboard_undoes_too(view: Operated) -> None:
    from selenium.webdriver.common.keys import Keys

    view.operate("coalesce")
    view.keys("canvas", Keys.CONTROL, "z")
    view.wait(lambda: view.trait("operation") == "composition")
    view.keys("canvas", Keys.CONTROL, "y")
    view.wait(lambda: view.trait("operation") == "coalesce")


# ---- coordinates


def test_a_slider_moves_one_coordinate(view: Operated) -> None:
    from selenium.webdriver.common.keys import Keys

    view.keys("input[aria-label='coordinate of mode 1']", Keys.ARROW_RIGHT)
    view.keys("input[aria-label='coordinate of mode 0.1']", Keys.ARROW_RIGHT)
    view.wait(lambda: view.shows(".tp-readout", "((0,1),1) · index 6"))
    view.keys("input[aria-label='coordinate of mode 1']", Keys.ARROW_LEFT)
    view.wait(lambda: view.shows(".tp-readout", "((0,1),0) · index 2"))


def test_dragging_over_the_cells_selects_what_is_passed(view: Operated) -> None:
    from selenium.webdriver import ActionChains

    view.js("window.seen = []; model.on('change:index', () => seen.push(model.get('index')))")
    actions = ActionChains(view.chrome)
    start, end = view.at((0, 0), (4, 3)), view.at((2, 2), (4, 3))
    pointer = actions.w3c_actions.pointer_action
    pointer.move_to_location(*start).pointer_down().move_to_location(*end).pointer_up()
    actions.perform()
    view.wait(lambda: view.trait("index") == 10)


def test_a_click_in_a_panel_or_in_memory_selects_what_comes_from_there(view: Operated) -> None:
    view.point_at(*view.at((4, 0), (6, 2), ".tp-panel canvas"), click=True)
    view.wait(lambda: view.trait("index") == 5)  # A's index 4 is B's value at 5
    view.point_at(*view.at((1, 8), (2, 32), ".tp-strip canvas"), click=True)
    view.wait(lambda: view.trait("index") == offsets("((2,2),3):((24,2),8)").index(40))


# ---- what is large, swizzled, linked


def test_a_swizzled_layout_is_drawn_as_cute_evaluates_it(view: Operated) -> None:
    text = "S<2,1,3> o 0 o (8,16):(16,1)"
    view.operate("")
    view.write(BOX, text)
    for index in (1, 77, 127):
        view.assign("index", index)
        view.wait(lambda index=index: view.shows(".tp-readout", f"offset {offsets(text)[index]}"))  # type: ignore[misc]
    assert view.text(".tp-line").startswith("cute.make_composed_layout(cute.make_swizzle(2, 1, 3), 0, ")


def test_what_is_too_large_says_so(view: Operated) -> None:
    view.operate("")
    view.write(BOX, "(2,2):(1,5000)")
    assert view.text(".tp-strip") == "memory: the offsets span 5002; up to 2048 are drawn here"
    view.write(BOX, "(128,128):(128,1)")
    view.operate("logical_product")
    view.write(OTHER, "4:1")
    assert view.text(".tp-result") == (
        "R = ((128,128),4):((128,1),16384); size 65536: layouts of up to 16384 elements are drawn"
    )
    view.write(BOX, "(4,8):(8,1)")
    view.operate("slice_")
    view.write(OTHER, "(1,2)")
    assert view.text(".tp-result") == "R = ():(); every coordinate is fixed, so there is nothing to draw"


def test_a_link_carries_the_operation(chrome: Chrome, page: Path) -> None:
    given = {"layout": "S<3,4,3> o 0 o (8,64):(64,1)", "operation": "zipped_divide", "other": "(4,8:2)"}
    view = Operated(chrome, page, **given, index=70)
    view.one(".tp-link").click()
    link = view.js("return location.hash")
    assert link == "#layout=S%3C3,4,3%3E+o+0+o+(8,64):(64,1)&op=zipped_divide&with=(4,8:2)&at=70"
    with faultless(Operated(chrome, page, link)) as other:
        other.wait(lambda: other.state() == view.state())
        assert view.trait("operation") == "zipped_divide"


@pytest.mark.parametrize(
    ("fragment", "state"),
    [
        ("#layout=4:1&op=compose&with=2:1", ("4:1", "", "2:1", 0)),
        ("#layout=(4,2):(2,1)&op=composition&with=2:", ("(4,2):(2,1)", "composition", "(4,3):(3,1)", 0)),
        ("#layout=4:1&op=filter&at=99", ("4:1", "filter", "", 0)),
    ],
)
def test_a_link_that_is_partly_wrong_shows_what_it_can(
    chrome: Chrome, page: Path, fragment: str, state: tuple[str, str, str, int]
) -> None:
    with faultless(Operated(chrome, page, fragment)) as view:
        view.wait(lambda: view.state() == state)


def test_inside_jupyterlab_a_call_or_the_published_page_is_copied(chrome: Chrome, page: Path) -> None:
    chrome.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    mount = """const lab = document.createElement('div'); lab.className = 'jp-Notebook'; document.body.append(lab);
        document.getElementById('el').replaceChildren(); stop();
        return window.module.default.render({ model, el: document.getElementById('el') }) && null"""
    view = Operated(chrome, page)
    view.js(mount)
    view.one(".tp-call").click()
    call = 'LayoutViewer("(6,2):(8,2)", operation="composition", other="(4,3):(3,1)")'
    view.wait(lambda: view.js("return navigator.clipboard.readText()") == call)
    assert eval(call, {"LayoutViewer": LayoutViewer}).result == "((2,2),3):((24,2),8)"

    view = Operated(chrome, page, page="https://example.org/01_layouts.html")
    view.js(mount)
    view.one(".tp-link").click()
    link = "https://example.org/01_layouts.html#layout=(6,2):(8,2)&op=composition&with=(4,3):(3,1)&at=0"
    view.wait(lambda: view.js("return navigator.clipboard.readText()") == link)


# ---- readers


@pytest.mark.parametrize("theme", THEMES)
def test_text_is_readable_in_every_theme(view: Operated, theme: str) -> None:
    with themed(view, theme):
        view.write(BOX, "(6,2):(8,x)")
        view.write(OTHER, "5:4")
        worst = view.contrast()
        assert {"MARK.", "P.tp-result is-wrong", "P.tp-panel-name", "PRE.tp-line", "SUMMARY."} <= set(worst)
        assert {name: ratio for name, ratio in worst.items() if ratio < 4.5} == {}


def test_everything_has_a_name(view: Operated) -> None:
    assert view.unnamed() == []


@pytest.mark.parametrize("operation", ["composition", "make_layout_tv", "zipped_divide"])
def test_a_phone_shows_an_operation_without_sideways_scrolling(chrome: Chrome, page: Path, operation: str) -> None:
    with phone(chrome):
        given = {"layout": "(4,8):(8,1)", "other": "(2,2):(2,1)"} if operation == "make_layout_tv" else {}
        view = Operated(chrome, page, operation=operation, **given)
        assert view.js("return document.documentElement.scrollWidth") <= 390
        small = view.js("""return [...document.querySelectorAll('button, input, select, summary')]
            .filter((n) => n.getBoundingClientRect().height < 30).map((n) => n.outerHTML.slice(0, 80))""")
        assert small == []
