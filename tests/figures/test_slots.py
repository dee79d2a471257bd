"""The labelled grid of a warp's registers: each label stands at its element, and a table that is no map is refused."""

from __future__ import annotations

import numpy as np
import pytest

from cutetut import figures


def accumulators() -> np.ndarray:
    """The map of C of m16n8k16 by its formula in the PTX ISA: (32, 4, 2)."""
    lane, value = np.arange(32)[:, None], np.arange(4)
    return np.stack(np.broadcast_arrays(lane // 4 + 8 * (value // 2), 2 * (lane % 4) + value % 2), axis=-1)


def test_every_element_carries_its_thread_and_value() -> None:
    place = accumulators()
    picture = figures.slot_grids({"C": place})
    (axes,) = picture.figure.axes
    labels = {(int(t.get_position()[1]), int(t.get_position()[0])): t.get_text() for t in axes.texts}
    assert labels == {tuple(place[t, v].tolist()): f"T{t}:v{v}" for t, v in np.ndindex(32, 4)}
    assert picture.text == "C: T0 (0,0) (0,1) (8,0) (8,1); T5 (1,2) (1,3) (9,2) (9,3)"


def test_the_threads_pointed_out_are_coloured_and_no_others() -> None:
    (axes,) = figures.slot_grids({"C": accumulators()}, threads=(7,)).figure.axes
    marked = [t.get_text() for t in axes.texts if t.get_fontweight() == "bold"]
    assert sorted(marked) == ["T7:v0", "T7:v1", "T7:v2", "T7:v3"]


def test_matrices_of_different_sizes_stand_below_each_other() -> None:
    a = np.stack(np.divmod(np.arange(64).reshape(32, 2), 8), axis=-1)
    picture = figures.slot_grids({"A": accumulators(), "B": a}, columns=1, title="both")
    assert [axes.get_title(loc="left") for axes in picture.figure.axes] == ["A", "B"]
    assert picture.png().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("places", "says"),
    [
        (np.zeros((32, 4, 2)), "do not hold each"),
        (accumulators()[:, :, 0], "is needed"),
        (accumulators() - 1, "from 0 on"),
        (accumulators()[:31], "do not hold each"),
    ],
)
def test_a_table_that_is_no_map_is_refused(places: np.ndarray, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        figures.slot_grids({"C": places})
