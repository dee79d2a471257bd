"""The descriptor decoder in headless Chromium: random descriptors against inspect.descriptors, typing and editing."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cutetut.inspect import descriptors
from cutetut.widgets import DescriptorDecoder
from tests.widgets.mounting import THEMES, View, faultless, is_dark, phone, themed, wants_dark
from tests.widgets.test_descriptor_decoder import REFUSED, random_fields

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.browser

BITS = descriptors.encode(0x2340 << 4, 16, 1024, 0, 1)  # K_SW128
BOX = ".tp-text"
NAMES = [name for name, *_ in descriptors.FIELDS]


class Viewed(View):
    """A mounted decoder."""

    def __init__(self, chrome: Chrome, page: Path, value: int = BITS, **more: Any) -> None:
        super().__init__(chrome, page, DescriptorDecoder(value, **more))

    def held(self) -> list[int]:
        """What the boxes hold: bytes, the base offset, the swizzle."""
        return [
            int(value)
            for value in self.js(
                "return [...document.querySelectorAll('.tp-row :is(input, select)')].map((n) => n.value)"
            )
        ]

    def holds(self, *fields: int) -> bool:
        return tuple(self.held()) == fields

    def field(self, name: str) -> str:
        return f".tp-row[data-field='{NAMES.index(name)}'] :is(input, select)"

    def means(self) -> dict[str, str]:
        return dict(zip(NAMES, self.listed(".tp-row .tp-means"), strict=True))

    def bits(self) -> str:
        """The 64 bits as they are drawn, without their numbers."""
        return str(self.js("return [...document.querySelectorAll('.tp-bit')].map((n) => n.lastChild.data).join('')"))


@pytest.fixture
def view(chrome: Chrome, page: Path) -> Iterator[Viewed]:
    with faultless(Viewed(chrome, page, title="A descriptor")) as view:
        yield view


def test_random_descriptors_are_taken_apart_as_in_python(view: Viewed) -> None:
    rng = random.Random(2)
    for _ in range(25):
        fields = random_fields(rng)
        view.assign("value", f"{descriptors.encode(*fields):#018x}")
        view.wait(functools.partial(view.holds, *fields))
        bits = int(view.trait("value"), 16)
        assert view.bits() == f"{bits:064b}"
        raws = [int(text, 16) for text in view.listed(".tp-raw")]
        assert raws == [raw for _, _, raw, _ in descriptors.fields(bits)]
        assert view.js("return document.querySelector(arguments[0]).value", BOX) == view.trait("value")


def test_random_fields_are_put_together_as_in_python(view: Viewed) -> None:
    from selenium.webdriver.support.ui import Select

    rng = random.Random(3)
    for _ in range(3):
        fields = random_fields(rng)
        for name, value in zip(NAMES[:-1], fields, strict=False):
            view.write(view.field(name), str(value))
        Select(view.one(view.field("swizzle"))).select_by_value(str(fields[-1]))
        assert int(view.trait("value"), 16) == descriptors.encode(*fields)
        assert view.bits() == f"{descriptors.encode(*fields):064b}"
        assert view.js("return document.querySelector(arguments[0]).value", BOX) == view.trait("value")


def test_the_bits_of_each_field_are_marked_with_their_numbers(view: Viewed) -> None:
    marked = view.js("""return [...document.querySelectorAll('.tp-bit')].map((n, i) =>
        [63 - i, Number(n.dataset.field), n.firstChild.textContent])""")
    for bit, owner, number in marked:
        inside = [i for i, (_, low, width, _) in enumerate(descriptors.FIELDS) if low <= bit < low + width]
        assert owner == (inside[0] if inside else -1)
        assert number in ("", str(bit))
    numbered = {int(number) for _, _, number in marked if number}
    assert {low + width - 1 for _, low, width, _ in descriptors.FIELDS} <= numbered
    ranges = view.listed(".tp-row label small")
    assert ranges == [f" bits {low + width - 1}-{low}" for _, low, width, _ in descriptors.FIELDS]


def test_pointing_at_a_bit_or_a_field_marks_both(view: Viewed) -> None:
    from selenium.webdriver import ActionChains

    for css in (".tp-bit[data-field='2']", ".tp-row[data-field='2'] label"):
        ActionChains(view.chrome).move_to_element(view.one(".tp-title")).perform()
        view.wait(lambda: not view.listed(".is-hovered"))
        ActionChains(view.chrome).move_to_element(view.one(css)).perform()
        view.wait(lambda: len(view.listed(".tp-bit.is-hovered")) == 14)
        assert len(view.listed(".tp-row.is-hovered")) == 1
        assert view.shows(".tp-row.is-hovered label", "stride byte offset (SBO)")


@pytest.mark.parametrize("major", ["K", "MN"])
def test_it_says_which_offset_matters(view: Viewed, major: str) -> None:
    from selenium.webdriver.support.ui import Select

    next(n for n in view.chrome.find_elements("css selector", ".tp-tabs label") if n.text == f"{major}-major").click()
    assert view.trait("major") == major
    for code in range(4):
        Select(view.one(view.field("swizzle"))).select_by_value(str(code))
        lbo, sbo = descriptors.roles(code, major == "MN")
        means = view.means()
        assert (means["leading byte offset"], means["stride byte offset"]) == (lbo, sbo)
        kind = {0: "no swizzle", 1: "128-byte swizzle", 2: "64-byte swizzle", 3: "32-byte swizzle"}[code]
        assert view.text(".tp-message") == f"{major}-major, {kind}. LBO: {lbo}. SBO: {sbo}."
        unused = view.listed(".tp-row.is-unused label")
        assert any("LBO" in text for text in unused) == (lbo == "not used")
        assert any("base offset" in text for text in unused) == (code == 0)
        if code:
            pattern = {1: 1024, 2: 512, 3: 256}[code]
            assert means["base offset"] == f"0 where the swizzle's pattern begins at a multiple of {pattern} bytes"


def test_typing_and_pasting_a_value(view: Viewed) -> None:
    view.write(BOX, "8000_0040_0200_0400")
    assert view.trait("value") == "0x8000004002000400"
    assert view.held() == [16384, 8192, 1024, 0, 2]
    view.one(view.field("base offset")).click()  # leaving the box writes the value out
    view.wait(lambda: view.js("return document.querySelector(arguments[0]).value", BOX) == "0x8000004002000400")


@pytest.mark.parametrize("text", REFUSED)
def test_a_bad_value_says_what_is_wrong_and_changes_nothing(view: Viewed, text: str) -> None:
    view.js(
        "const box = document.querySelector(arguments[0]); box.value = arguments[1];"
        "box.dispatchEvent(new Event('input'))",
        BOX,
        text,
    )
    assert view.text(".tp-message") == REFUSED[text]
    assert view.one(BOX).get_attribute("aria-invalid") == "true"
    assert int(view.trait("value"), 16) == BITS
    view.write(BOX, "0x1")
    assert view.one(BOX).get_attribute("aria-invalid") == "false"
    assert view.trait("value") == "0x0000000000000001"


def test_a_field_that_cannot_be_says_so_as_python_does(view: Viewed) -> None:
    for name, value, says in (
        ("start address", "8", "start address: a multiple of 16 from 0 to 262128"),
        ("stride byte offset", "262144", "stride byte offset: a multiple of 16 from 0 to 262128"),
        ("leading byte offset", "-16", "leading byte offset: a multiple of 16 from 0 to 262128"),
        ("base offset", "8", "base offset: a whole number from 0 to 7"),
        ("base offset", "", "base offset: a whole number from 0 to 7"),
    ):
        before = view.trait("value")
        view.write(view.field(name), value)
        assert view.text(".tp-message") == says
        assert view.one(view.field(name)).get_attribute("aria-invalid") == "true"
        assert view.trait("value") == before or value != ""  # clearing the box on the way changes nothing either
        view.write(view.field(name), "0")
        assert "is-wrong" not in str(view.one(".tp-message").get_attribute("class"))
        with pytest.raises(descriptors.DescriptorError, match=says.split(":")[0]):
            arguments = dict(zip(("start", "leading", "stride", "base_offset"), [0] * 4, strict=True))
            keys = dict(zip(NAMES, arguments, strict=False))
            descriptors.encode(**{**arguments, keys[name]: int(value or -1)})


def test_bits_that_belong_to_no_field_are_pointed_out(view: Viewed) -> None:
    view.write(BOX, f"{BITS | 1 << 14 | 1 << 47:x}")
    assert view.text(".tp-message") == "bits 14, 47 are set, but part of no field"
    assert "is-wrong" in str(view.one(".tp-message").get_attribute("class"))
    assert view.held() == [144384, 16, 1024, 0, 1]


def test_python_moves_the_view(view: Viewed) -> None:
    view.assign("value", "0x0000002000100000")
    view.assign("major", "MN")
    view.wait(lambda: view.held() == [0, 256, 512, 0, 0])
    assert view.listed(".tp-tabs input:checked + span") == ["MN-major"]
    assert view.shows(".tp-message", "MN-major, no swizzle. LBO: step along K")


def test_everything_has_a_name_and_the_view_stops_listening(view: Viewed) -> None:
    assert view.unnamed() == []
    assert view.one(".tp-bitgrid").get_attribute("aria-label") == f"bits 63 to 0: {BITS:064b}"
    view.js("stop()")
    assert view.js("return Object.values(model.handlers).every((set) => set.size === 0)")


@pytest.mark.parametrize("theme", THEMES)
def test_text_is_readable_in_every_theme(view: Viewed, theme: str) -> None:
    from selenium.webdriver import ActionChains

    with themed(view, theme):
        ActionChains(view.chrome).move_to_element(view.one(".tp-row[data-field='1'] label")).perform()
        view.wait(lambda: view.listed(".tp-row.is-hovered"))
        worst = view.contrast()
        view.write(view.field("base offset"), "9")
        worst |= view.contrast()
        assert {"SMALL.", "SPAN.tp-raw", "SPAN.tp-means", "P.tp-message is-wrong"} <= set(worst)
        assert {name: ratio for name, ratio in worst.items() if ratio < 4.5} == {}
        assert is_dark(view) == wants_dark(theme)


def test_a_phone_shows_everything_without_sideways_scrolling(chrome: Chrome, page: Path) -> None:
    with phone(chrome):
        view = Viewed(chrome, page, title="A descriptor", major="MN")
        assert view.js("return document.documentElement.scrollWidth") <= 390
        wide = view.js("""return [...document.querySelectorAll('.cutetut-picker *')]
            .filter((n) => n.getBoundingClientRect().right > 390).map((n) => n.outerHTML.slice(0, 80))""")
        assert wide == []
        small = view.js("""return [...document.querySelectorAll('button, select, input:not([type=radio])')]
            .filter((n) => n.getBoundingClientRect().height < 30).map((n) => n.outerHTML.slice(0, 80))""")
        assert small == []
