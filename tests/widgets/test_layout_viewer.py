"""The layout viewer's Python side: texts are read like CuTe prints them, bad ones are refused with the place."""

from __future__ import annotations

import base64
import json
import random
from io import BytesIO
from typing import Any

import cutlass.cute as cute
import numpy as np
import pytest
import traitlets
from PIL import Image

from cutetut import layouts
from cutetut.layouts import LayoutError
from cutetut.widgets import LayoutViewer
from cutetut.widgets.layout_text import read_layout
from tests.widgets.random_layouts import evaluated, random_trees

# what a reader may type wrongly, and what both sides say
REFUSED = {
    "": "type shape:stride, such as (4,8):(8,1)",
    "  ": "type shape:stride, such as (4,8):(8,1)",
    "8": "the stride is missing: write shape:stride, such as 8:1",
    "(4,8)": "the stride is missing: write shape:stride, such as 8:1",
    "(4,8):": 'the text ends where a number or "(" should stand',
    "(4,8:(1,4)": "the parenthesis at character 1 is not closed",
    "((4,2),8):((1,16),4": "the parenthesis at character 11 is not closed",
    "4,8:1,4": 'character 2, ",": ":" and the stride should stand here',
    "(4,8):(1,4))": 'character 12, ")": the end should stand here',
    "(4 8):(1,4)": 'character 4, "8": "," or ")" should stand here',
    "(4,,8):(1,4)": 'character 4, ",": a number or "(" should stand here',
    "():()": 'character 2, ")": a number or "(" should stand here',
    "(4,x):(1,4)": 'character 4, "x": a layout has whole numbers, commas, parentheses and one colon',
    "4.5:1": 'character 2, ".": a layout has whole numbers, commas, parentheses and one colon',
    "(4,2) : (1,4)  é": 'character 16, "é": a layout has whole numbers, commas, parentheses and one colon',
    "(4,8):4": "shape and stride are nested differently: (4,8) in the shape has 4 in the stride",
    "((4,2),8):(1,4)": "shape and stride are nested differently: (4,2) in the shape has 1 in the stride",
    "(4,8):(1,4,2)": "shape and stride are nested differently: (4,8) in the shape has (1,4,2) in the stride",
    "(4,0):(1,4)": "the shape has 0: each of its numbers is at least 1",
    "(4,-2):(1,4)": "the shape has -2: each of its numbers is at least 1",
    "(256,128):(1,256)": "size 32768: layouts of up to 16384 elements are drawn",
    "(99999,99999,99999,99999):(0,0,0,0)": f"size {99999**4}: layouts of up to 16384 elements are drawn",
    "4:99999999999999999999": "99999999999999999999 is too large: numbers up to 2147483647 are drawn",
    "4:-0099999999999": "-99999999999 is too large: numbers up to 2147483647 are drawn",
    "4:2147483647": "it reaches offset 6442450941: offsets up to 2147483647 are drawn",
    "(?,4):(4,1)": '"?" is a number known only at run time: type a number in its place',
    "S<3,4,3> o 0 o (8,64):(64,1)": 'this is a swizzle in front of a layout: type what stands behind the last "o", and '
    "look at the swizzle in the swizzle view",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_bad_text_is_refused_with_what_to_change(text: str) -> None:
    with pytest.raises(LayoutError) as error:
        LayoutViewer(text)
    assert str(error.value) == REFUSED[text]


def test_texts_are_read_as_cute_prints_them() -> None:
    rng = random.Random(7)
    trees = [random_trees(rng) for _ in range(100)]
    for (shape, stride), cute_says in zip(trees, evaluated(trees), strict=True):
        read = read_layout(cute_says.text)
        assert (read.shape, read.stride, str(read)) == (shape, stride, cute_says.text)


@pytest.mark.parametrize("text", [" ( (4, 2) ,8 ):( (1,16),4) ", "((4,2,),8,):((1,16),4)"])
def test_spaces_and_trailing_commas_do_not_matter(text: str) -> None:
    assert LayoutViewer(text).text == "((4,2),8):((1,16),4)"


def test_a_builder_and_a_cute_layout_are_taken_too() -> None:
    assert LayoutViewer(lambda: cute.make_layout((8, 64), stride=(64, 1))).text == "(8,64):(64,1)"
    assert layouts.evaluate(lambda: LayoutViewer(cute.make_layout(((4, 2), 8))).text) == "((4,2),8):((1,4),8)"

    def swizzled() -> Any:
        return cute.make_composed_layout(cute.make_swizzle(3, 4, 3), 0, cute.make_layout((8, 64)))

    with pytest.raises(LayoutError, match="this is a swizzle in front of a layout"):
        LayoutViewer(swizzled)


def test_an_index_or_name_that_cannot_be_is_refused() -> None:
    with pytest.raises(traitlets.TraitError, match=r"index 64 does not exist; \(8,8\):\(1,8\) has indices 0 to 63"):
        LayoutViewer("(8,8):(1,8)", index=64)
    for name in ("", "a b", "at", "1st", "a&b"):
        with pytest.raises(traitlets.TraitError, match="cannot name a viewer in a link"):
            LayoutViewer("8:1", name=name)


def test_a_new_layout_keeps_the_index_where_it_can() -> None:
    view = LayoutViewer("(8,8):(1,8)", index=13)
    view.text = "(4,4):(4,1)"
    assert view.index == 13
    view.text = "(4,2):(2,1)"
    assert view.index == 0
    with pytest.raises(LayoutError, match="the stride is missing"):
        view.text = "4"
    assert view.text == "(4,2):(2,1)"


def test_a_message_from_the_browser_is_taken_as_it_is() -> None:
    view = LayoutViewer("4:1")
    view.set_state({"text": "((4,2),8):((1,16),4)", "index": 63})
    assert (view.text, view.index) == ("((4,2),8):((1,16),4)", 63)


def test_the_output_holds_the_view_a_text_and_a_small_picture() -> None:
    view = LayoutViewer("((4,2),8):((1,16),4)", index=29)
    data, _ = view._repr_mimebundle_()
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == view.model_id
    assert data["text/plain"] == repr(view) == "LayoutViewer(((4,2),8):((1,16),4), index 29)"
    png = base64.b64decode(data["image/png"])
    assert len(png) < 40_000 and Image.open(BytesIO(png)).width > 300
    assert len(json.dumps(view.get_state())) < 60_000


@pytest.mark.parametrize("text", ["8:1", "(3,5,2):(1,0,7)", "(128,128):(128,1)", "((2,2),(2,2)):((-1,2),(4,8))"])
def test_the_picture_shows_the_offset_of_the_index(text: str) -> None:
    view = LayoutViewer(text)
    view.index = view.shown.size - 1
    (cute_says,) = evaluated([(view.shown.shape, view.shown.stride)])
    assert view.still().text == f"{text}: index {view.index} has offset {cute_says.offsets[-1]}"
    assert np.asarray(Image.open(BytesIO(view.still().png())).convert("RGB")).std() > 10
