"""Where a tensor map begins, and where its strides lead, as seen on an H200 beside unmapped memory."""

from __future__ import annotations

import numpy as np
import pytest

from cutetut.emulator.errors import OutOfBounds
from tests.emulator.harness import run
from tests.emulator.tensors import Map, aligned
from tests.emulator.test_tma import BOX_AT, load_text, store_text

ROWS, WIDTH, FAR = 140, 64, 2**30
PITCH = 2 * WIDTH
BOX = 8  # rows
BACK = 2**35 - PITCH  # FAR of these are 2**65 bytes, less FAR rows
EARLY = Map("u16", (WIDTH, ROWS, 2**31 - 1), (PITCH, PITCH), (WIDTH, BOX, 1))
WRAPPED = Map("u16", (WIDTH, FAR, ROWS + 1, FAR + 1), (PITCH, PITCH, BACK), (WIDTH, BOX, 1, 1))
ENDS = [40, 3, ROWS]  # the row behind a sequence


def rows() -> np.ndarray:
    """Row r is full of r + 1."""
    return aligned(np.repeat(np.arange(1, ROWS + 1, dtype=np.uint16), WIDTH))


def arrived(tensor: Map, coordinates: tuple[int, ...], early: int = 0) -> list[int]:
    """The numbers in the rows of a box after a load."""
    data, out, count = rows(), np.zeros(BOX * PITCH, np.uint8), np.zeros(1, np.uint32)
    text = load_text(tensor, 0, tensor.box_bytes, len(out) // 4)
    at = np.array(coordinates, np.int32)
    run(text, tensor.over(data, early), data, at, out, count, dynamic_smem=BOX_AT + len(out))
    assert count[0] == 1
    found = out.view(np.uint16).reshape(BOX, WIDTH)
    assert (found == found[:, :1]).all()
    return [int(n) for n in found[:, 0]]


def wanted(end: int, length: int) -> list[int]:
    """The last rows of a sequence, and zeros."""
    return [r + 1 if r < end else 0 for r in range(end - length, end - length + BOX)]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("length", [3, 1, 0])
def test_addresses_wrap(end: int, length: int) -> None:
    """Of 2**64 bytes, as in the maps of Triton and quack for tensors of ragged rows."""
    assert arrived(WRAPPED, (0, FAR - length, end, FAR)) == wanted(end, length)


@pytest.mark.emulator
def test_a_map_that_begins_before_its_tensor() -> None:
    assert arrived(EARLY, (0, ROWS - 3, 40), ROWS * PITCH) == wanted(40, 3)
    assert arrived(EARLY, (0, ROWS - BOX, 40), ROWS * PITCH) == wanted(40, BOX)


@pytest.mark.emulator
def test_a_load_of_nothing_reads_at_the_address_of_its_map() -> None:
    """There the H200 had an illegal access."""
    with pytest.raises(OutOfBounds, match=r"wholly outside the tensor, .* a GPU reads there"):
        arrived(EARLY, (0, ROWS, 40), ROWS * PITCH)


@pytest.mark.emulator
def test_a_store_of_nothing_reads_and_writes_nothing() -> None:
    data, image = rows(), np.ones(BOX * WIDTH, np.uint16)
    name = "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group"
    at = np.array((0, ROWS, 40), np.int32)
    text = store_text(EARLY, name, 0, image.nbytes // 4)
    run(text, EARLY.over(data, ROWS * PITCH), data, at, image, dynamic_smem=image.nbytes)
    np.testing.assert_array_equal(data, rows())
