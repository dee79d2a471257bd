"""The picker's views in headless Chromium, mounted in a local page: no kernel, no network.

Every expectation comes from the index loops of `maps.py`; the page is asked only what it shows.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cutetut import figures
from cutetut.widgets import ThreadPicker
from tests.widgets import maps
from tests.widgets.mounting import THEMES, View, faultless, is_dark, lab, phone, themed, wants_dark

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.browser

BLOCK = "(16,4):(4,1)"
SPREAD = "(16,4):(1,16)"


class Picked(View):
    """A mounted thread picker; its tile is the canvas."""

    def __init__(self, chrome: Chrome, page: Path, **picker: Any) -> None:
        picker = {"maps": maps.scalar_gemm_maps(), "thread_grid": (16, 16), "title": "Who owns C", **picker}
        super().__init__(chrome, page, ThreadPicker(**picker))
        self.wait(lambda: self.js("return document.querySelector('.tp-readout').textContent !== ''"))

    @property
    def shape(self) -> tuple[int, int]:
        rows, cols = self.js(
            "const m = model.get('_maps').find((m) => m.name === model.get('map'));return [m.rows, m.cols]"
        )
        return rows, cols

    def point(self, row: int, col: int, *, click: bool = False, kind: str = "mouse") -> None:
        """Move a pointer to an element; click or tap there."""
        self.point_at(*self.at((row, col), self.shape), click=click, kind=kind)

    def accented(self) -> set[tuple[int, int]]:
        """The elements whose centre the canvas paints in the accent colour."""
        places: list[list[int]] = self.js(
            """const canvas = document.querySelector('canvas'), [rows, cols] = arguments;
            const probe = document.createElement('canvas').getContext('2d');
            const named = document.querySelector('.cutetut-picker').appendChild(document.createElement('i'));
            named.style.color = 'var(--tp-accent)';
            probe.fillStyle = getComputedStyle(named).color;
            named.remove();
            probe.fillRect(0, 0, 1, 1);
            const accent = probe.getImageData(0, 0, 1, 1).data;
            const image = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            const scale = canvas.width / canvas.getBoundingClientRect().width;
            const cell = Math.floor((canvas.width - 34 * scale) / cols);
            const [left, top] = [Math.round(34 * scale), Math.round(20 * scale)], found = [];
            for (let r = 0; r < rows; r++) for (let c = 0; c < cols; c++) {
              const x = left + c * cell + (cell >> 1), y = top + r * cell + (cell >> 1);
              const at = 4 * (y * canvas.width + x);
              if ([0, 1, 2].every((k) => image.data[at + k] === accent[k])) found.push([r, c]);
            }
            return found;""",
            *self.shape,
        )
        return {(row, col) for row, col in places}


@pytest.fixture
def view(chrome: Chrome, page: Path) -> Iterator[Picked]:
    with faultless(Picked(chrome, page)) as view:
        yield view


def elements(thread: int, permutation: str = BLOCK) -> list[str]:
    """C[row][col] of a thread's 64 values, in register order."""
    rows, cols = maps.positions(thread // 16, permutation), maps.positions(thread % 16, permutation)
    return [f"C[{row}][{col}]" for col in cols for row in rows]


def owned(thread: int, permutation: str = BLOCK) -> set[tuple[int, int]]:
    rows, cols = maps.positions(thread // 16, permutation), maps.positions(thread % 16, permutation)
    return {(row, col) for col in cols for row in rows}


# ---- the views agree with the tables


@pytest.mark.parametrize("permutation", maps.PERMUTATIONS)
def test_every_view_shows_the_thread_of_every_map(view: Picked, permutation: str) -> None:
    label = next(n for n in view.chrome.find_elements("css selector", ".tp-tabs label") if n.text == permutation)
    label.click()
    view.assign("thread", 35)
    view.wait(lambda: view.listed("tbody td:last-child") == elements(35, permutation))
    assert view.trait("map") == permutation
    assert view.accented() == owned(35, permutation)
    assert sorted(view.listed(".tp-cell:not(.tp-hole)")) == sorted(elements(35, permutation))
    assert view.listed("tbody td:first-child") == [str(v) for v in range(64)]


def test_a_thread_owns_four_labelled_four_by_four_blocks(view: Picked) -> None:
    blocks = view.js(
        "return [...document.querySelectorAll('.tp-block')].map((b) => [...b.children].map((c) => c.textContent))"
    )
    assert len(blocks) == 4
    assert blocks[3] == [f"C[{row}][{col}]" for row in range(64, 68) for col in range(64, 68)]


@pytest.mark.parametrize("thread", [0, 5, 31])
def test_a_tensor_core_tile_labels_its_cells(chrome: Chrome, page: Path, thread: int) -> None:
    view = Picked(chrome, page, maps=maps.mma_m16n8k16_c(), thread_grid=(8, 4), title="", thread=thread)
    row, col = thread // 4, 2 * (thread % 4)
    expected = [(row, col), (row, col + 1), (row + 8, col), (row + 8, col + 1)]
    assert view.listed("tbody td:last-child") == [f"C[{r}][{c}]" for r, c in expected]
    assert view.listed("thead th") == ["v", "element"]


def test_a_warpgroup_tile_is_drawn(chrome: Chrome, page: Path) -> None:
    table = maps.wgmma_m64(128)
    view = Picked(chrome, page, maps=table, thread_grid=(32, 4), thread=77)
    assert view.accented() == {(r, c) for r in range(64) for c in range(128) if table.owner[r, c] == 77}
    assert "my_cols[2, 3, 10, 11," in view.text(".tp-sums")
    assert "= 2 + (2,16):(1,8)" in view.text(".tp-sums")


# ---- colours


def test_a_legend_names_the_warps_in_the_colours_of_the_tile(view: Picked) -> None:
    assert view.listed(".tp-warp") == [str(warp) for warp in range(8)]
    shown = view.js("""const swatch = document.querySelectorAll('.tp-warp i')[3];
        return [swatch.style.opacity, swatch.style.backgroundImage]""")
    colors = figures.thread_colors(16, 16)[96:128]
    tones = [colors[np.argmin(colors[:, 1])], colors[np.argmax(colors[:, 1])]]
    assert shown[0] == "0.5"
    assert re.findall(r"rgb\((\d+), (\d+), (\d+)\)", shown[1]) == [tuple(map(str, tone)) for tone in tones]


def test_a_single_warp_needs_no_legend(chrome: Chrome, page: Path) -> None:
    view = Picked(chrome, page, maps=maps.mma_m16n8k16_c(), thread_grid=(8, 4))
    assert view.listed(".tp-warp") == []
    assert view.text(".tp-readout") == "thread 0: 4 elements"


def test_warps_are_parted_by_lines_even_where_cells_are_small(view: Picked) -> None:
    """Between rows 7 and 8 of (16,4):(4,1) warp 0 ends; between rows 3 and 4 only threads do."""
    lines = view.js(
        """const canvas = document.querySelector('canvas'), context = canvas.getContext('2d');
        const cell = Math.floor((canvas.width - 34) / 128), x = 34 + 20 * cell + 2;
        return arguments[0].map((row) => {
          const [above, on] = [-1, 0].map((dy) => [...context.getImageData(x, 20 + row * cell + dy, 1, 1).data]);
          return [Math.max(...above.slice(0, 3)), Math.max(...on.slice(0, 3))];
        });""",
        [8, 16, 120],
    )
    assert all(on < above - 20 for above, on in lines)


# ---- mouse, touch, keys


def test_hover_says_what_is_under_the_pointer_and_selects_nothing(view: Picked) -> None:
    view.point(66, 9)
    view.wait(lambda: view.text(".tp-readout") == "C[66][9] · thread 2 (warp 0, lane 2) · value 14 · offset 8457")
    assert view.trait("thread") == 0 and view.trait("element") is None
    view.point(66, 3)
    view.wait(lambda: view.listed("tr.is-hovered td:last-child") == ["C[66][3]"])
    assert view.listed(".tp-cell.is-hovered") == ["C[66][3]"]


@pytest.mark.parametrize("kind", ["mouse", "touch"])
def test_click_and_tap_select_element_and_thread(view: Picked, kind: str) -> None:
    view.point(101, 90, click=True, kind=kind)
    view.wait(lambda: view.trait("element") == [101, 90])
    thread = 16 * ((101 - 64) // 4) + (90 - 64) // 4
    assert view.trait("thread") == thread
    assert view.js("return model.saves") > 0
    view.wait(lambda: view.listed("tr.is-selected td:last-child") == ["C[101][90]"])
    assert view.listed(".tp-cell.is-selected") == ["C[101][90]"]
    assert view.js("return document.querySelector('.tp-controls input[type=number]').value") == str(thread)
    assert (101, 90) in view.accented() or len(view.accented()) >= 60  # the ring may cover the centre


def test_arrow_keys_walk_the_thread_grid(view: Picked) -> None:
    from selenium.webdriver.common.keys import Keys

    steps = [
        (Keys.ARROW_RIGHT, 1),
        (Keys.ARROW_DOWN, 17),
        (Keys.ARROW_LEFT, 16),
        (Keys.ARROW_UP, 0),
        (Keys.ARROW_UP, 0),
        (Keys.ARROW_LEFT, 0),
        (Keys.END, 255),
        (Keys.ARROW_DOWN, 255),
        (Keys.HOME, 0),
    ]
    for key, thread in steps:
        view.keys("canvas", key)
        assert view.trait("thread") == thread
    assert view.js("return window.scrollY") == 0


def test_number_slider_and_buttons_move_the_thread(view: Picked) -> None:
    from selenium.webdriver.common.keys import Keys

    number = "input[type=number]"
    view.keys(number, Keys.CONTROL, "a")
    view.keys(number, "200")
    assert view.trait("thread") == 200
    view.keys(number, "0")  # 2000 does not exist
    assert view.trait("thread") == 200
    view.one("button[aria-label='next thread']").click()
    assert view.trait("thread") == 201
    view.one("button[aria-label='previous thread']").click()
    view.keys("input[type=range]", Keys.ARROW_LEFT)
    assert view.trait("thread") == 199
    assert view.js("return document.querySelector('input[type=number]').value") == "199"


def test_table_and_tile_are_linked_both_ways(view: Picked) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    row = view.one("tbody tr[data-value='6']")
    ActionChains(view.chrome).move_to_element(row).perform()
    view.wait(lambda: view.text(".tp-readout").startswith("C[66][0] "))
    row.click()
    assert view.trait("element") == [66, 0]
    view.keys("tbody tr[data-value='6']", Keys.ARROW_DOWN)
    assert view.trait("element") == [67, 0]
    assert view.js("return document.activeElement.dataset.value") == "7"
    view.point(67, 67, click=True)  # value 63: the table scrolls to it, the page stays
    view.wait(lambda: view.listed("tr.is-selected td:last-child") == ["C[67][67]"])
    inside = view.js("""const box = document.querySelector('.tp-box').getBoundingClientRect();
        const row = document.querySelector('tr.is-selected').getBoundingClientRect();
        return row.top >= box.top && row.bottom <= box.bottom + 1""")
    assert inside


def test_the_zoomed_cells_select_too(view: Picked) -> None:
    view.one(".tp-cell[data-value='46']").click()
    assert view.trait("element") == [66, 65]


# ---- arithmetic


def test_the_arithmetic_is_right_for_every_value_of_every_map(view: Picked) -> None:
    for permutation in maps.PERMUTATIONS:
        view.assign("map", permutation)
        for thread in (0, 17, 255):
            places = sorted(owned(thread, permutation))
            for row, col in places[::5]:
                view.assign("element", [row, col])
                view.wait(functools.partial(view.shows, ".tp-sums", f"C[{row}][{col}]{row}×128"))
                sums = dict(zip(view.listed(".tp-sums dt"), view.listed(".tp-sums dd"), strict=True))
                product, total = sums["coordinate × stride"].split(" → ")[1].split(" = ")
                terms = [int(a) * int(b) for a, b in (term.split("×") for term in product.split(" + "))]
                assert sum(terms) == int(total)
                start, inner, offset = map(int, re.findall(r"\d+", sums["offset"])[1:])
                assert inner == int(total) and start + inner == offset == row * 128 + col
                assert sums[f"C[{row}][{col}]"].endswith(f"= {row * 128 + col}")


def test_index_arrays_and_their_strides(view: Picked) -> None:
    view.assign("thread", 17)
    view.wait(lambda: "my_rows[4, 5, 6, 7, 68, 69, 70, 71] = 4 + (4,2):(1,64)" in view.text(".tp-sums"))
    view.assign("map", SPREAD)
    view.wait(lambda: "my_cols[1, 17, 33, 49, 65, 81, 97, 113] = 1 + 8:16" in view.text(".tp-sums"))


# ---- Python's side of the link


def test_python_moves_the_view(view: Picked) -> None:
    view.assign("thread", 17)
    view.wait(lambda: view.text(".tp-readout") == "thread 17 (warp 0, lane 17): 64 elements")
    assert view.text("[role=status]") == "thread 17 (warp 0, lane 17): 64 elements"
    view.assign("element", [66, 3])
    view.wait(lambda: view.trait("thread") == 0)
    view.assign("thread", 1)
    view.wait(lambda: view.trait("element") == [66, 7])
    view.assign("map", SPREAD)
    view.wait(lambda: view.listed("tr.is-selected td:first-child") == ["30"])
    assert maps.scalar_gemm_tables(SPREAD)[1][tuple(view.trait("element"))] == 30


def test_the_view_stops_listening_when_it_is_removed(view: Picked) -> None:
    assert view.js("return Object.values(model.handlers).every((set) => set.size === 1)")
    view.js("stop()")
    assert view.js("return Object.values(model.handlers).every((set) => set.size === 0)")


# ---- readers and places


def test_everything_has_a_name_for_a_screen_reader(view: Picked) -> None:
    assert view.unnamed() == []
    assert view.one("canvas").get_attribute("aria-label") == "128 by 128 tile, thread 0 selected"
    assert (
        view.js(
            "return document.getElementById(document.querySelector('canvas').getAttribute("
            "'aria-describedby')).textContent.length"
        )
        > 20
    )


@pytest.mark.parametrize("theme", THEMES)
def test_text_is_readable_in_every_theme(view: Picked, theme: str) -> None:
    with themed(view, theme):
        view.assign("element", [66, 3])
        view.wait(lambda: view.listed("tr.is-selected"))
        view.point(67, 2)
        view.wait(lambda: view.listed("tr.is-hovered"))
        worst = view.contrast()
        assert {"TD.", "TH.", "DT.", "DD.", "SPAN.", "BUTTON."} <= set(worst)
        assert {name: ratio for name, ratio in worst.items() if ratio < 4.5} == {}
        assert is_dark(view) == wants_dark(theme)
        # The canvas follows the theme without a reload.
        view.wait(lambda: owned(0) - {(r, c) for r in (65, 66, 67) for c in (1, 2, 3)} <= view.accented())


def test_a_theme_that_changes_while_the_page_is_hidden_is_drawn(view: Picked) -> None:
    """JupyterLab hides its page while it loads another theme."""
    view.chrome.execute_async_script(
        "const done = arguments[arguments.length - 1]; document.body.style.display = 'none';"
        + lab("false")
        + "; (async () => { for (let i = 0; i < 9; i++) await null; document.body.style.display = ''; done(); })()"
    )
    view.wait(lambda: view.accented() == owned(0))


def test_a_phone_shows_everything_without_sideways_scrolling(chrome: Chrome, page: Path) -> None:
    with phone(chrome):
        view = Picked(chrome, page)
        assert view.js("return document.documentElement.scrollWidth") <= 390
        wide = view.js("""return [...document.querySelectorAll('.cutetut-picker *')]
            .filter((n) => n.getBoundingClientRect().right > 390).map((n) => n.outerHTML.slice(0, 80))""")
        assert wide == []
        view.point(66, 3, click=True, kind="touch")
        view.wait(lambda: view.trait("element") == [66, 3])
        small = view.js("""return [...document.querySelectorAll('button, input, .tp-tabs span')]
            .filter((n) => getComputedStyle(n).opacity !== '0' && n.getBoundingClientRect().height < 30)
            .map((n) => n.outerHTML.slice(0, 80))""")
        assert small == []


def test_a_redraw_is_far_under_a_frame(view: Picked) -> None:
    """A thread change with layout and canvas. A busy machine stretches most of the 256, so the fastest tenth counts."""
    fast = view.chrome.execute_async_script("""
        const done = arguments[arguments.length - 1], canvas = document.querySelector('canvas'), times = [];
        (async () => {
          for (let thread = 0; thread < 256; thread++) {
            const start = performance.now();
            model.set('thread', thread);
            await null; await null;
            canvas.getContext('2d').getImageData(0, 0, 1, 1);
            document.body.offsetHeight;
            times.push(performance.now() - start);
          }
          done(times.sort((a, b) => a - b)[25]);
        })();""")
    assert view.text(".tp-readout") == "thread 255 (warp 7, lane 31): 64 elements"
    assert fast < 25, f"{fast} ms; about 6 ms where this was written"
