"""Boxes of tensors and rings of stages: what they draw, against a count by numpy and against counted phases."""

from __future__ import annotations

import re

import numpy as np
import pytest

from cutetut import figures


@pytest.mark.parametrize(("shape", "box", "which"), [((13, 24), (8, 16), (1, 1)), ((100, 200), (32, 64), (0, 0))])
def test_a_box_says_how_much_of_it_lies_inside(
    shape: tuple[int, int], box: tuple[int, int], which: tuple[int, int]
) -> None:
    inside = np.ones(shape)[which[0] * box[0] :, which[1] * box[1] :][: box[0], : box[1]].shape
    picture = figures.tensor_box(shape, box, which, title="a box")
    assert f"{inside[0]}x{inside[1]} elements lie inside" in picture.text and picture.png().startswith(b"\x89PNG")


@pytest.mark.parametrize("which", [(2, 0), (0, -1), (0, 2)])
def test_a_box_outside_the_tensor_is_refused(which: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="outside a tensor"):
        figures.tensor_box((13, 24), (8, 16), which)


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
def test_a_ring_shows_the_parities_with_which_waits_pass(stages: int) -> None:
    """`full` and `empty` have completed as many phases as turns before; wait(p) passes if the last one had parity p."""
    picture = figures.ring_turns(stages, 3 * stages + 1)
    said = re.findall(r"tile (\d+) in stage (\d+): wait\(empty, (\d)\) to fill it, wait\(full, (\d)\)", picture.text)
    assert len(said) == 3 * stages + 1
    for tile, stage, empty, full in (map(int, words) for words in said):
        turn = tile // stages
        assert stage == tile % stages
        assert (turn - 1) % 2 == empty  # turn phases of `empty` are complete, the last of them number turn - 1
        assert turn % 2 == full  # with this tile's bytes turn + 1 are


def test_a_ring_needs_a_stage_and_a_tile() -> None:
    for stages, tiles in ((0, 3), (3, 0)):
        with pytest.raises(ValueError, match="at least one of each"):
            figures.ring_turns(stages, tiles)
