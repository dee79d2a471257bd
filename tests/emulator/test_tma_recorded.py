"""The emulator's TMA against what an H200's did, copy by copy: data/tma.json, which probe_tma.py records.

Byte counts, edges, narrow rows under a swizzle, conversions of float32, stores, interleaved layouts, and what faults.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cutetut.emulator.errors import IllegalInstruction, OutOfBounds
from tests.emulator.harness import run
from tests.emulator.probe_tma import FLOATS, INTERLEAVED_BOX, NUMBERS, RECORDED, UNWRITTEN, runs_of, words_of
from tests.emulator.tensors import Map, aligned
from tests.emulator.test_tma import BOX_AT, load_text, store_text

pytestmark = pytest.mark.emulator

FILE = json.loads(RECORDED.read_text())
SLACK = 16  # bytes behind a tensor: a store writes whole pieces of 16


def copies(*parts: str) -> Iterator[Any]:
    """Every recorded copy of some parts of the file, with its map."""
    for part in parts:
        for group in FILE[part]:
            case: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in group["case"].items()}
            case.pop("address")
            tensor = Map(**case)
            for n, copy in enumerate(group["copies"]):
                name = f"{part}-{tensor.type}-{tensor.box}-{tensor.element_strides}"
                name += f"-{tensor.interleave}{tensor.swizzle}-{n}"
                yield pytest.param(part, tensor, copy, id=name.replace(" ", ""))


LOADS = [p for p in copies("counts", "conversions", "interleaved") if "bytes" in p.values[2]]
STORES = [p for p in copies("conversions", "stored", "interleaved_stores") if "store" in p.values[2]]


def loaded(tensor: Map, copy: dict[str, Any], data: np.ndarray) -> np.ndarray:
    """Shared memory after a load, as 16-bit words; fails unless exactly the recorded number of bytes was counted."""
    wanted = words_of(copy["words"])
    size = -(-2 * len(wanted) // 128) * 128
    out, arrived = np.zeros(size, np.uint8), np.zeros(1, np.uint32)
    text = load_text(tensor, copy["offset"], copy["bytes"], size // 4)
    run(text, tensor.over(data), data, np.array(copy["at"], np.int32), out, arrived, dynamic_smem=BOX_AT + size)
    assert arrived[0] == 1, f"not {copy['bytes']} bytes"
    return out.view(np.uint16)


@pytest.mark.parametrize(("part", "tensor", "copy"), LOADS)
def test_loads(part: str, tensor: Map, copy: dict[str, Any]) -> None:
    words = loaded(tensor, copy, aligned(FLOATS if part == "conversions" else NUMBERS))
    wanted = words_of(copy["words"])
    assert runs_of(words[: len(wanted)]) == copy["words"]
    assert (words[len(wanted) :] == UNWRITTEN).all()


def stored(tensor: Map, copy: dict[str, Any], part: str, slack: int = SLACK) -> np.ndarray:
    """The tensor after a store, as 16-bit words, and so many bytes behind it."""
    size = -(-(copy["offset"] + tensor.shared_bytes) // 128) * 128
    images: dict[str, np.ndarray] = {"conversions": FLOATS, "interleaved_stores": INTERLEAVED_BOX}
    image = images.get(part, np.arange(1, size // 2 + 1, dtype=np.uint16)).copy()
    name = f"cp.async.bulk.tensor.{tensor.rank}d.global.shared::cta.tile.bulk_group"
    if copy["store"] != "copy":
        name = f"cp.reduce.async.bulk.tensor.{tensor.rank}d.global.shared::cta.{copy['store']}.tile.bulk_group"
    words = len(NUMBERS) if tensor.interleave else (tensor.tensor_bytes + slack) // 2
    data = aligned(np.full(words, UNWRITTEN, np.uint16))
    text = store_text(tensor, name, copy["offset"], image.nbytes // 4)
    run(text, tensor.over(data), data, np.array(copy["at"], np.int32), image, dynamic_smem=image.nbytes)
    return data


@pytest.mark.parametrize(("part", "tensor", "copy"), [p for p in STORES if "words" in p.values[2]])
def test_stores(part: str, tensor: Map, copy: dict[str, Any]) -> None:
    data = stored(tensor, copy, part)
    assert runs_of(data[: len(words_of(copy["words"]))]) == copy["words"]


@pytest.mark.parametrize(("part", "tensor", "copy"), [p for p in STORES if "fault" in p.values[2]])
def test_stores_that_fault(part: str, tensor: Map, copy: dict[str, Any]) -> None:
    assert "illegal instruction" in copy["fault"]
    with pytest.raises(IllegalInstruction):
        stored(tensor, copy, part)


def test_the_last_piece_of_a_store_may_not_leave_the_memory() -> None:
    """The H200 writes it all the same, over whatever lies there."""
    tensor = Map("u16", (60,), (), (32,))
    with pytest.raises(OutOfBounds):
        stored(tensor, {"at": [56], "offset": 0, "store": "copy"}, "stored", slack=0)


def test_runs_of_words_are_read_back(rng: np.random.Generator) -> None:
    for words in (np.array([1, 2, 3, 0, 0, UNWRITTEN, UNWRITTEN, 9, 65535, 0, 1]), rng.integers(0, 4, 100)):
        np.testing.assert_array_equal(words_of(runs_of(words.astype(np.uint16))), words)
