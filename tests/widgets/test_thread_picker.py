"""The picker's Python side: tables are checked, packed small, and the traits agree with each other."""

from __future__ import annotations

import base64
import json
import zlib
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import traitlets
from PIL import Image

from cutetut.widgets import MapError, ThreadMap, ThreadPicker
from tests.widgets import maps

OWNER = np.array([[0, 0], [1, 1]])
VALUE = np.array([[0, 1], [0, 1]])
OFFSET = np.array([[0, 1], [2, 3]])


def picker(**kwargs: Any) -> ThreadPicker:
    return ThreadPicker(maps.scalar_gemm_maps(), thread_grid=(16, 16), **kwargs)


def unpack(text: str) -> np.ndarray:
    """What the browser does: base64, deflate, running sum."""
    return np.cumsum(np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<i4"))


# ---- tables


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"value": VALUE[:1]}, r"value has shape \(1, 2\), but owner has \(2, 2\)"),
        ({"owner": OWNER.ravel()}, r"owner has shape \(4,\)"),
        ({"owner": np.empty((0, 2), dtype=int)}, "not empty"),
        ({"owner": OWNER * 1.0}, "owner holds float64"),
        ({"owner": np.array([[0, 0], [1, -1]])}, r"owner\[1, 1\] is -1"),
        ({"offset": OFFSET * 2**30}, r"offset\[1, 0\] is 2147483648"),
        ({"value": np.array([[0, 1], [1, 1]])}, r"elements \(1, 0\) and \(1, 1\) are both value 1 of thread 1"),
        ({"threads": 1}, "owner names thread 1, but there are 1 threads"),
        ({"coords": [(0,)]}, "1 coords for 2 values"),
        ({"coords": [(0,), (0, 1)]}, r"coords\[1\] is \(0, 1\), which is not nested like \(0,\)"),
        ({"coords": ["(0,", "(1,)"]}, "is not a coordinate"),
        ({"stride": (1,)}, "stride needs coords"),
        ({"stride": (1,), "coords": [(0,), (1,)]}, "stride needs offset"),
        (
            {"stride": (3,), "coords": [(0,), (1,)], "offset": OFFSET},
            r"element \(0, 0\), value 0 of thread 0, has offset 0, but start -2",
        ),
    ],
)
def test_a_bad_table_is_refused_by_entry(change: dict[str, Any], says: str) -> None:
    arguments = {"owner": OWNER, "value": VALUE, **change}
    with pytest.raises(MapError, match=says):
        ThreadMap(**arguments)


def test_the_error_is_a_value_error() -> None:
    assert issubclass(MapError, ValueError)


def test_find_is_the_inverse_of_the_tables() -> None:
    table = maps.scalar_gemm("(16,4):(4,1)")
    for thread in (0, 17, 255):
        found = [table.find(thread, value) for value in range(64)]
        rows, cols = maps.positions(thread // 16, "(16,4):(4,1)"), maps.positions(thread % 16, "(16,4):(4,1)")
        assert found == [(row, col) for col in cols for row in rows]
    assert table.find(0, 64) is None and table.find(256, 0) is None and table.find(-1, 0) is None


def test_threads_may_own_nothing_and_values_may_be_missing() -> None:
    table = ThreadMap([[0, 2]], [[1, 0]], threads=4)
    assert table.threads == 4
    assert [table.find(thread, 0) for thread in range(4)] == [None, None, (0, 1), None]


def test_coordinates_as_text_and_as_tuples_are_the_same() -> None:
    tuples = ThreadMap(OWNER, VALUE, offset=OFFSET, coords=[(0, (0,)), (0, (1,))], stride=(7, (1,)))
    text = ThreadMap(OWNER, VALUE, offset=OFFSET, coords=["(0,(0,))", "(0,(1,))"], stride=(7, (1,)))
    assert tuples.pack() == text.pack()


@pytest.mark.parametrize("permutation", maps.PERMUTATIONS)
def test_packing_is_lossless(permutation: str) -> None:
    packed = json.loads(json.dumps(maps.scalar_gemm(permutation).pack()))
    for name, table in zip(("owner", "value", "offset"), maps.scalar_gemm_tables(permutation), strict=True):
        assert (unpack(packed[name]) == table.ravel()).all(), name


def test_cute_and_the_index_loops_make_the_same_map() -> None:
    import cutlass
    import cutlass.cute as cute

    from cutetut import layouts

    def tiled_mma() -> cute.TiledMma:
        permutation = cute.make_layout((16, 4), stride=(4, 1))
        grid = cute.make_layout((16, 16, 1), stride=(16, 1, 0))
        atom = cute.nvgpu.MmaUniversalOp(cutlass.Float32)
        return cute.make_tiled_mma(atom, grid, permutation_mnk=(permutation, permutation, None))

    ours = ThreadMap(**layouts.partition(tiled_mma, (128, 128)).tables())
    assert ours.pack() == maps.scalar_gemm("(16,4):(4,1)").pack()


# ---- traits


def test_the_state_is_small() -> None:
    state = picker(title="Who owns C").get_state()
    assert len(json.dumps(state)) < 60_000  # of which the module and the style are most
    tables = {name: state[name] for name in ("_maps", "_colors")}
    assert len(json.dumps(tables)) < 8_000


def test_selecting_an_element_selects_its_owner() -> None:
    view = picker()
    view.element = (66, 3)
    assert view.thread == 0
    view.element = (69, 7)
    assert view.thread == 17


def test_changing_thread_or_map_keeps_the_register() -> None:
    view = picker(thread=0, element=(66, 3))
    value = view.table.value[66, 3]
    view.thread = 17
    assert view.element == view.table.find(17, value) == (70, 7)
    view.map = "(16,8):(8,1)"
    assert view.element is not None and view.table.owner[view.element] == 17
    assert view.table.value[view.element] == value


def test_an_element_stays_where_its_owner_stays() -> None:
    view = picker(element=(0, 0))
    view.map = "(16,8):(8,1)"
    assert (view.thread, view.element) == (0, (0, 0))
    view.element = None
    view.thread = 3
    assert view.element is None


def test_a_register_that_the_thread_lacks_clears_the_element() -> None:
    view = ThreadPicker(ThreadMap([[0, 0, 1]], [[0, 1, 0]]), element=(0, 1))
    view.thread = 1
    assert view.element is None


def test_a_message_from_the_browser_is_taken_as_it_is() -> None:
    view = picker(element=(66, 3))
    view.set_state({"thread": 17, "map": "(16,4):(1,16)", "element": [1, 1]})
    assert (view.thread, view.map, view.element) == (17, "(16,4):(1,16)", (1, 1))


@pytest.mark.parametrize(
    ("trait", "value", "says"),
    [
        ("thread", 256, "thread 256 does not exist; the map has threads 0 to 255"),
        ("thread", -1, "thread -1 does not exist"),
        ("map", "(8,8)", r"no map '\(8,8\)'; there is '\(16,4\):\(4,1\)'"),
        ("element", (128, 0), r"element \(128, 0\) is outside the 128x128 tile"),
        ("element", (0, -1), "outside the 128x128 tile"),
    ],
)
def test_a_selection_that_does_not_exist_is_refused(trait: str, value: object, says: str) -> None:
    view = picker()
    with pytest.raises(traitlets.TraitError, match=says):
        setattr(view, trait, value)
    with pytest.raises(traitlets.TraitError, match=says):
        picker(**{trait: value})


def test_maps_of_one_picker_share_their_threads() -> None:
    with pytest.raises(MapError, match="the maps differ in threads"):
        ThreadPicker({"C": maps.mma_m16n8k16_c(), "D": maps.wgmma_m64(8)})
    with pytest.raises(MapError, match="at least one map"):
        ThreadPicker({})
    with pytest.raises(MapError, match="a 3x4 thread grid has 12 threads, but the map has 32"):
        ThreadPicker(maps.mma_m16n8k16_c(), thread_grid=(3, 4))


# ---- what a notebook stores


def test_text_is_the_same_on_every_run() -> None:
    assert repr(picker()) == "ThreadPicker(16x16 threads over 128x128, map '(16,4):(4,1)', thread 0)"
    assert repr(ThreadPicker(maps.mma_m16n8k16_c(), thread=5)) == "ThreadPicker(32 threads over 16x8, thread 5)"


@pytest.mark.parametrize("make", [picker, lambda: ThreadPicker(maps.wgmma_m64(256), thread_grid=(32, 4))])
def test_the_output_holds_the_view_and_a_small_picture(make: Any) -> None:
    view = make()
    data, _ = view._repr_mimebundle_()
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == view.model_id
    assert data["text/plain"] == repr(view)
    png = base64.b64decode(data["image/png"])
    assert len(png) < 60_000
    assert Image.open(BytesIO(png)).width > 500


def test_the_picture_follows_the_selection() -> None:
    view = picker()
    before = view._repr_mimebundle_()[0]["image/png"]
    view.thread = 100
    assert view._repr_mimebundle_()[0]["image/png"] != before
