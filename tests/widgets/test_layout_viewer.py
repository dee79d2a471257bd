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
    "S<3,4,3> o (8,64):(64,1)": "a swizzled layout is S<B,M,S> o offset o shape:stride, such as "
    "S<3,4,3> o 0 o (8,64):(64,1)",
    "S<3,4> o 0 o 8:1": "a swizzled layout is S<B,M,S> o offset o shape:stride, such as S<3,4,3> o 0 o (8,64):(64,1)",
    "S<3,4,3> o 0 o (8,64)": "the stride is missing: write shape:stride, such as 8:1",
    "S<3,4,3> o 0 o (8,x):(64,1)": 'character 19, "x": a layout has whole numbers, commas, parentheses and one colon',
    "S<3,4,2> o 0 o 8:1": "S<3,4,2>: S is less than B, so the bits that are read would be bits that are changed",
    "S<3,-1,3> o 0 o 8:1": "S<3,-1,3>: B and M are whole numbers from 0 on",
    "S<9,9,20> o 0 o 8:1": "S<9,9,20>: B + M + S is above 30, the bits of an offset here",
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

    assert LayoutViewer(swizzled).text == "S<3,4,3> o 0 o (8,64):(1,8)"


def test_an_index_or_name_that_cannot_be_is_refused() -> None:
    with pytest.raises(traitlets.TraitError, match=r"index 64 does not exist; \(8,8\):\(1,8\) has indices 0 to 63"):
        LayoutViewer("(8,8):(1,8)", index=64)
    for name in ("", "a b", "at", "op", "with", "1st", "a&b"):
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
    assert len(json.dumps(view.get_state())) < 110_000  # the algebra of the browser is in it


@pytest.mark.parametrize("text", ["8:1", "(3,5,2):(1,0,7)", "(128,128):(128,1)", "((2,2),(2,2)):((-1,2),(4,8))"])
def test_the_picture_shows_the_offset_of_the_index(text: str) -> None:
    view = LayoutViewer(text)
    view.index = view.shown.size - 1
    (cute_says,) = evaluated([(view.shown.shape, view.shown.stride)])
    assert view.still().text == f"{text}: index {view.index} has offset {cute_says.offsets[-1]}"
    assert np.asarray(Image.open(BytesIO(view.still().png())).convert("RGB")).std() > 10


# ---- operations

BAD_ARGUMENTS = [
    ("composition", "", "type a layout, such as 4:2, or a tuple of tilers, such as (2,4:2)"),
    ("composition", "4:", 'the text ends where a number or "(" should stand'),
    ("composition", "(2,4:2):(1,1)", 'character 8, ":": "," or ")" should stand here'),
    ("composition", "(2,(4,2):2)", "shape and stride are nested differently: (4,2) in the shape has 2 in the stride"),
    ("composition", "(2,4:2", "the parenthesis at character 1 is not closed"),
    ("composition", "4:2)", 'character 4, ")": the end should stand here'),
    ("composition", "0:1", "the shape has 0: each of its numbers is at least 1"),
    ("composition", "S<3,4,3> o 0", "a swizzled layout is S<B,M,S> o offset o shape:stride, such as "
     "S<3,4,3> o 0 o (8,64):(64,1)"),
    ("raked_product", "4", "the stride is missing: write shape:stride, such as 8:1"),
    ("complement", "", "type a number, such as 24"),
    ("complement", "(4,2)", "(4,2) is a tuple: type a number, such as 24"),
    ("slice_", "", "type a coordinate, such as (1,_)"),
    ("slice_", "(1,_", "the parenthesis at character 1 is not closed"),
    ("recast_layout", "32", "type the new bits and the old bits, such as 32,16"),
    ("select", "", "type the numbers of modes, such as 1,0"),
    ("select", "(1,(0,2))", "type the numbers of modes, such as 1,0"),
    ("make_ordered_layout", "", "type the order of the modes, such as (1,0)"),
    ("make_ordered_layout", "1,0", 'character 2, ",": the end should stand here'),
    ("unflatten", " ", "type a profile, such as ((0,0),0)"),
    ("tile_to_shape", "(16,(4,2))", "type the shape to fill, such as 16,64"),
    ("group_modes", "1", "type the first mode and the one behind the last, such as 0,2"),
    ("slice_", "(1,?)", '"?" is a number known only at run time: type a number in its place'),
]  # fmt: skip

CASES = [
    ("(6,2):(8,2)", "composition", "(4,3):(3,1)", "((2,2),3):((24,2),8)"),
    ("(4,8):(8,1)", "composition", "(2,4:2)", "(2,4):(8,2)"),
    ("((4,1),(2,3)):((1,7),(4,8))", "coalesce", "", "24:1"),
    ("(2,(1,6)):(1,(6,2))", "coalesce", "(1,1)", "(2,6):(1,2)"),
    ("((2,(3,1)),4):((1,(2,0)),0)", "flatten", "", "(2,3,1,4):(1,2,0,0)"),
    ("((2,3),4,5):((1,2),6,24)", "unflatten", "(0,((0,0),0))", "(2,((3,4),5)):(1,((2,6),24))"),
    ("(4,8):(0,1)", "filter", "", "8:1"),
    ("(4,8):(0,1)", "filter_zeros", "", "(1,8):(0,1)"),
    ("(8,64):(64,1)", "tile_to_shape", "128,64", "((8,16),(64,1)):((64,512),(1,0))"),
    ("S<3,4,3> o 0 o (8,64):(64,1)", "tile_to_shape", "(60,64,3)",
     "S<3,4,3> o 0 o ((8,8),(64,1),(1,3)):((64,512),(1,0),(0,4096))"),
    ("4:2", "complement", "24", "(2,3):(1,8)"),
    ("(4,8):(8,1)", "slice_", "(2,_)", "(8):(1)"),
    ("((2,3),4,5):((1,2),6,24)", "dice", "((1,_),_,0)", "(2,5):(1,24)"),
    ("S<3,4,3> o 0 o (8,64):(64,1)", "dice", "(_,0)", "S<3,4,3> o 0 o (64):(1)"),
    ("((2,3),4,5):((0,2),0,6)", "nullspace", "", "(2,4):(1,6)"),
    ("(4,8):(8,1)", "max_common_layout", "(4,8):(16,1)", "8:4"),
    ("((2,3),4):((7,7),7)", "make_ordered_layout", "((2,0),1)", "((2,3),4):((12,1),3)"),
    ("(4,2,3):(20,0,5)", "make_layout_like", "", "(4,2,3):(3,0,1)"),
    ("((2,3),4,5):((1,2),6,24)", "select", "2,0", "(5,(2,3)):(24,(1,2))"),
    ("((2,3),4,5):((1,2),6,24)", "group_modes", "1,3", "((2,3),(4,5)):((1,2),(6,24))"),
    ("(8,64):(64,1)", "recast_layout", "16,32", "(8,128):(128,1)"),
    ("(4,8):(8,1)", "make_layout_tv", "(2,2):(2,1)", "((8,4),(2,2)):((16,2),(8,1))"),
    ("S<3,4,3> o 0 o (8,64):(64,1)", "zipped_divide", "(4,8)", "S<3,4,3> o 0 o ((4,8),(2,8)):((64,1),(256,8))"),
]


@pytest.mark.parametrize(("text", "operation", "other", "result"), CASES)
def test_an_operation_has_cutes_result(text: str, operation: str, other: str, result: str) -> None:
    """These are worked out by hand or are in CuTe's documentation; the picture shows the result."""
    view = LayoutViewer(text, operation, other)
    assert (view.result, str(view.shown)) == (result, result)
    assert f"= {result}, index 0" in repr(view) and view.still().text.startswith(f"{result}: index 0 has offset 0")


def test_a_refusal_can_be_shown() -> None:
    view = LayoutViewer("(4,6):(1,7)", "composition", "5:3")
    with pytest.raises(LayoutError, match=r"CuTe has no composition of \(4,6\):\(1,7\) and 5:3"):
        _ = view.result
    assert str(view.shown) == "(4,6):(1,7)" and "is refused" in repr(view)
    assert view._repr_mimebundle_()[0]["image/png"]


@pytest.mark.parametrize(
    ("text", "operation", "other"),
    [
        ("(2,2):(4,4)", "logical_product", "3:2"),
        ("(8,3):(1,2)", "complement", "100"),
        ("64:1", "zipped_divide", "(4,4):(1,2)"),
        ("4:-1", "complement", "8"),
    ],
)
def test_what_would_end_cutes_process_is_refused(text: str, operation: str, other: str) -> None:
    with pytest.raises(LayoutError, match="nothing completes such a layout"):
        _ = LayoutViewer(text, operation, other).result


@pytest.mark.parametrize(("operation", "other", "says"), BAD_ARGUMENTS)
def test_a_bad_second_argument_is_refused_with_what_to_change(operation: str, other: str, says: str) -> None:
    with pytest.raises(LayoutError) as error:
        LayoutViewer("(4,8):(8,1)", operation, other)
    assert str(error.value) == says


def test_an_operation_that_is_none_is_refused() -> None:
    with pytest.raises(traitlets.TraitError, match="'compose' is no operation here; there are composition, coalesce"):
        LayoutViewer("4:1", "compose", "2:1")


def test_an_operation_from_the_browser_is_taken_as_it_is() -> None:
    view = LayoutViewer("(4,8):(8,1)", index=31)
    view.set_state({"operation": "composition", "other": "4:2", "index": 3})
    assert (view.operation, view.other, view.index, view.result) == ("composition", "4:2", 3, "(2,2):(16,1)")
    view.set_state({"operation": "", "other": ""})
    assert view.result == "(4,8):(8,1)"
