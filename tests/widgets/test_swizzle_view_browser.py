"""The swizzle view in headless Chromium, against CuTe's swizzle and the emulator's counters."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cutetut.widgets import SwizzleView
from tests.widgets.mounting import THEMES, View, faultless, is_dark, phone, themed, wants_dark
from tests.widgets.swizzle_oracle import ACCESSES, ATOMS, asked_for, counted, moved_by_cute, random_swizzle

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = [pytest.mark.browser, pytest.mark.emulator]  # it counts with the emulator

WITHOUT, WITH = "[data-side=without]", "[data-side=with]"


class Viewed(View):
    """A mounted swizzle view."""

    def __init__(self, chrome: Chrome, page: Path, **view: Any) -> None:
        super().__init__(chrome, page, SwizzleView(**view))

    @property
    def shape(self) -> tuple[int, int]:
        return 8 if self.trait("access") == "core matrix" else 32, self.trait("row_bytes") // 4

    def point(self, row: int, col: int, side: str = WITHOUT, **how: Any) -> None:
        self.point_at(*self.at((row, col), self.shape, f"{side} canvas"), **how)

    def choose(self, name: str) -> None:
        """Click a tab."""
        next(n for n in self.chrome.find_elements("css selector", ".tp-tabs label") if n.text == name).click()

    def counts(self) -> tuple[int, int]:
        """Wavefronts that the page gives without and with the swizzle."""
        texts = [self.text(f"{side} .tp-count") for side in (WITHOUT, WITH)]
        first, second = (int(text.split()[0]) for text in texts)
        for count, text in zip((first, second), texts, strict=True):
            assert text.split(": ")[1] == (f"{count - 1} more than needed" if count > 1 else "no bank conflict")
        return first, second


@pytest.fixture
def view(chrome: Chrome, page: Path) -> Iterator[Viewed]:
    with faultless(Viewed(chrome, page, title="A swizzle")) as view:
        yield view


# ---- the arithmetic


def test_the_swizzle_is_cutes(view: Viewed) -> None:
    rng = random.Random(11)
    for swizzle in [swizzle for swizzle, _ in ATOMS.values()] + [random_swizzle(rng) for _ in range(8)]:
        ours = view.js("return [...Array(4096).keys()].map((x) => module.swizzled(arguments[0], x))", swizzle)
        assert ours == moved_by_cute(swizzle), swizzle


def test_counts_are_the_emulators(view: Viewed) -> None:
    """Every access of every row length, through random swizzles, against instructions that the emulator ran."""
    rng = random.Random(5)
    cases = [
        (
            swizzle,
            row_bytes,
            access,
            (rng.randrange(8 if access == "core matrix" else 32), rng.randrange(row_bytes // 4)),
        )
        for swizzle in [swizzle for swizzle, _ in ATOMS.values()] + [random_swizzle(rng) for _ in range(8)]
        for row_bytes in (16, 32, 64, 128)
        for access in ACCESSES
    ]
    ours = view.js(
        """return arguments[0].map(([swizzle, rowBytes, access, word]) => {
             const asked = module.askedFor(access, rowBytes, word);
             return [module.wavefronts(asked), module.wavefronts(asked.map((x) => module.swizzled(swizzle, x)))];
           });""",
        cases,
    )
    seen = set()
    for (swizzle, row_bytes, access, word), counts in zip(cases, ours, strict=True):
        offsets = asked_for(access, row_bytes, word)
        moved = [moved_by_cute(swizzle)[offset] for offset in offsets]
        assert counts == [counted(access, offsets), counted(access, moved)], (swizzle, row_bytes, access, word)
        seen.add(tuple(counts))
    assert {1, 2, 4, 8} <= {count for pair in seen for count in pair}


def test_what_is_no_swizzle_is_refused_as_in_python(view: Viewed) -> None:
    import traitlets

    for swizzle in ((3, 4, 2), (-1, 4, 3), (3, 7, 3), (12, 4, 1), (0, 0, 0), (3, 4, 3), (2, 3, 3), (4, 4, 4)):
        wrong = view.js("return module.wrongWith(arguments[0])", swizzle)
        try:
            SwizzleView(swizzle)
            assert wrong is None, swizzle
        except traitlets.TraitError as error:
            assert wrong and wrong in str(error), swizzle


# ---- what is shown


@pytest.mark.parametrize("access", ACCESSES)
def test_the_layout_atoms_and_accesses_can_be_chosen(view: Viewed, access: str) -> None:
    view.choose(access)
    assert view.trait("access") == access
    for atom, (swizzle, row_bytes) in ATOMS.items():
        view.choose(atom)
        assert (tuple(view.trait("swizzle")), view.trait("row_bytes")) == (swizzle, row_bytes)
        view.point(3, 2, click=True)
        view.wait(lambda: view.trait("word") == [3, 2])
        offsets = asked_for(access, row_bytes, (3, 2))
        moved = [moved_by_cute(swizzle)[offset] for offset in offsets]
        assert view.counts() == (counted(access, offsets), counted(access, moved))
        assert view.text(f"{WITH} .tp-side") == "with S<{},{},{}>".format(*swizzle)
        numbers = view.js("return [...document.querySelectorAll('input[type=number]')].map((n) => n.valueAsNumber)")
        assert tuple(numbers) == swizzle


def test_the_bars_are_the_words_of_each_bank(view: Viewed) -> None:
    view.point(5, 9, click=True)
    view.wait(lambda: view.trait("word") == [5, 9])
    labels = [view.one(f"{side} .tp-banks").get_attribute("aria-label") for side in (WITHOUT, WITH)]
    assert labels[0] == "words asked of each bank: " + " ".join("8" if 8 <= bank < 12 else "0" for bank in range(32))
    assert labels[1] == "words asked of each bank: " + " ".join(["1"] * 32)
    heights = view.js("""return [...document.querySelectorAll('[data-side=without] .tp-banks span')]
        .map((n) => n.getBoundingClientRect().height)""")
    assert [height > 20 for height in heights] == [8 <= bank < 12 for bank in range(32)]


@pytest.mark.parametrize("side", [WITHOUT, WITH])
def test_pointing_at_a_word_shows_its_bits(view: Viewed, side: str) -> None:
    for row, col in ((5, 9), (0, 31), (7, 0), (2, 2)):
        view.point(row, col, side)
        byte = 128 * row + 4 * col
        to = moved_by_cute((3, 4, 3))[byte]
        expected = f"row {row}, word {col} · byte {byte} → {to} · bank {byte // 4 % 32} → {to // 4 % 32}"
        view.wait(functools.partial(view.shows, ".tp-readout", expected))
        assert view.text(".tp-readout") == expected
        lines = [view.listed(f".tp-bits tbody tr:nth-child({line}) td") for line in (1, 2, 3)]
        assert "".join(lines[0]) == f"{byte:012b}"
        assert lines[1] == [""] * 5 + list(f"{byte >> 7 & 7:03b}") + [""] * 4
        assert "".join(lines[2]) == f"{to:012b}"
        high, low = byte >> 7 & 7, byte >> 4 & 7
        sums = dict(zip(view.listed(".tp-sums dt"), view.listed(".tp-sums dd"), strict=True))
        assert sums["bits 9-7 onto bits 6-4"] == f"{high:03b} xor {low:03b} = {high ^ low:03b}"
    assert view.listed(".tp-bits tbody tr:first-child .is-source") == list(f"{2:03b}")  # row 2
    assert view.listed(".tp-bits tbody tr:first-child .is-target") == list(f"{0:03b}")
    assert view.trait("word") == [0, 0]


def test_words_that_wait_are_drawn_in_the_accent_colour(view: Viewed) -> None:
    def accented(side: str) -> set[int]:
        places: list[int] = view.js(
            """const canvas = document.querySelector(arguments[0] + ' canvas');
            const image = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height), found = [];
            const wide = (canvas.width - 46) / 32, high = (canvas.height - 24) / 8;
            for (let place = 0; place < 256; place++) {
              const x = Math.floor(34 + (place % 32 + 0.5) * wide);
              const y = Math.floor(20 + (Math.floor(place / 32) + 0.75) * high);
              const at = 4 * (y * canvas.width + x);
              if ([179, 64, 10].every((c, k) => image.data[at + k] === c)) found.push(place);
            }
            return found;""",
            side,
        )
        return set(places)

    view.point(0, 9, click=True)
    view.wait(lambda: view.trait("word") == [0, 9])
    assert accented(WITHOUT) == {32 * row + col for row in range(1, 8) for col in range(8, 12)}
    assert accented(WITH) == set()


def test_keys_move_the_word(view: Viewed) -> None:
    from selenium.webdriver.common.keys import Keys

    steps = [
        (Keys.ARROW_LEFT, [0, 0]),
        (Keys.ARROW_UP, [0, 0]),
        (Keys.ARROW_RIGHT, [0, 1]),
        (Keys.ARROW_DOWN, [1, 1]),
        (Keys.ARROW_DOWN, [2, 1]),
        (Keys.ARROW_LEFT, [2, 0]),
    ]
    for key, word in steps:
        view.keys(f"{WITH} canvas", key)
        assert view.trait("word") == word
    view.assign("word", [7, 31])
    view.keys(f"{WITHOUT} canvas", Keys.ARROW_DOWN)
    view.keys(f"{WITHOUT} canvas", Keys.ARROW_RIGHT)
    assert view.trait("word") == [7, 31]
    assert view.js("return window.scrollY") == 0


def test_b_m_and_s_can_be_typed(view: Viewed) -> None:
    b, m, s = ("input[id$='-B']", "input[id$='-M']", "input[id$='-S']")
    view.write(b, "2")
    assert view.trait("swizzle") == [2, 4, 3]
    assert view.listed(".tp-tabs input:checked + span") == ["core matrix"]  # rows of 128 bytes: none of the atoms
    assert view.counts()[1] == counted("core matrix", [moved_by_cute((2, 4, 3))[128 * row] for row in range(8)])
    view.write(s, "1")
    assert view.text(".tp-message") == "S is 1, less than B, 2: the bits that are read would be bits that are changed"
    assert view.trait("swizzle") == [2, 4, 3]
    assert view.one(s).get_attribute("aria-invalid") == "true"
    view.write(s, "5")
    view.write(m, "3")
    assert view.shows(".tp-message", "M is 3: at least 4 bits stay")
    view.write(m, "5")
    assert view.trait("swizzle") == [2, 5, 5]
    assert view.text(".tp-message") == ""
    view.write(m, "")
    assert view.shows(".tp-message", "whole numbers")


def test_a_shorter_row_wraps_the_word_around(view: Viewed) -> None:
    from selenium.webdriver.support.ui import Select

    view.assign("word", [3, 30])
    Select(view.one("select")).select_by_visible_text("64")
    assert (view.trait("row_bytes"), view.trait("word")) == (64, [3, 14])


# ---- Python's side, readers and places


def test_python_moves_the_view(view: Viewed) -> None:
    for name, value in (("swizzle", [1, 4, 3]), ("row_bytes", 32), ("access", "column"), ("word", [9, 3])):
        view.assign(name, value)
    view.wait(lambda: view.text(".tp-readout").startswith("row 9, word 3 · byte 300 → "))
    assert view.listed(".tp-tabs input:checked + span") == ["SW32", "column"]
    without, with_it = view.counts()
    assert view.text(".tp-hidden[role=status]").startswith(f"without a swizzle: {without} wavefronts")
    assert f"with S<1,4,3>: {with_it} wavefronts" in view.text(".tp-hidden[role=status]")


def test_everything_has_a_name_and_the_view_stops_listening(view: Viewed) -> None:
    assert view.unnamed() == []
    view.js("stop()")
    assert view.js("return Object.values(model.handlers).every((set) => set.size === 0)")


@pytest.mark.parametrize("theme", THEMES)
def test_text_is_readable_in_every_theme(view: Viewed, theme: str) -> None:
    with themed(view, theme):
        view.write("input[id$='-S']", "1")
        worst = view.contrast()
        assert {"TD.", "TD.is-source", "TD.is-target", "DIV.tp-count is-conflict", "P.tp-message is-wrong"} <= set(
            worst
        )
        assert {name: ratio for name, ratio in worst.items() if ratio < 4.5} == {}
        assert is_dark(view) == wants_dark(theme)


@pytest.mark.parametrize("access", ACCESSES)
def test_a_phone_shows_everything_without_sideways_scrolling(chrome: Chrome, page: Path, access: str) -> None:
    with phone(chrome):
        view = Viewed(chrome, page, title="A swizzle", access=access)
        assert view.js("return document.documentElement.scrollWidth") <= 390
        wide = view.js("""return [...document.querySelectorAll('.cutetut-picker *')]
            .filter((n) => n.getBoundingClientRect().right > 390).map((n) => n.outerHTML.slice(0, 80))""")
        assert wide == []
        view.point(5, 20, WITH, click=True, kind="touch")
        view.wait(lambda: view.trait("word") == [5, 20])
