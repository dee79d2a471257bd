"""The collector's part in finding live tensors: what is left out of collections is found all the same."""

from __future__ import annotations

import gc
import struct
from collections.abc import Iterator

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from cutetut import backend
from cutetut.emulator import ptx
from cutetut.emulator.host import launches, live
from cutetut.emulator.host.dlpack import Span

pytestmark = pytest.mark.emulator


@pytest.fixture
def early() -> Iterator[list[torch.Tensor]]:
    """A tensor that is older than `freeze`."""
    tensors = [torch.zeros(4099)]
    live.freeze()
    yield tensors
    live.freeze()  # as it was: this process runs in the emulator


def test_tensors_from_before_two_freezes_are_found(early: list[torch.Tensor]) -> None:
    live.freeze()
    found = live.search(early[0].data_ptr() + 8)
    assert found is not None and found[:2] == (early[0].data_ptr(), 4 * 4099)


def test_tensors_from_before_and_after_are_found_while_they_live(early: list[torch.Tensor]) -> None:
    assert not any(item is early[0] for item in gc.get_objects())
    late = torch.zeros(4099)
    for tensor in (early[0], late):
        found = live.search(tensor.data_ptr() + 8)
        assert found is not None and found[:2] == (tensor.data_ptr(), 4 * 4099)
    address = early[0].data_ptr()
    early.clear()
    assert (found := live.search(address)) is None or found[1] != 4 * 4099


def test_tensors_without_bytes_are_no_memory() -> None:
    """torch.compile leaves such tensors behind; a later launch must not trip over them."""
    tensor = torch.zeros(4099)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(tensor)
    alive = [fake, torch.zeros(4099, device="meta"), torch.zeros(3).to_sparse()]
    found: list[object] = []

    def search_and_return(row: torch.Tensor) -> torch.Tensor:
        found.append(live.search(tensor.data_ptr()))
        return row

    torch.vmap(search_and_return)(torch.zeros(2, 4099))
    found.append(live.search(tensor.data_ptr()))
    assert [one is not None and one[:2] for one in found] == [(tensor.data_ptr(), 4 * 4099)] * 2  # type: ignore[index]
    assert len(alive) == 3


def test_what_a_launch_has_reached_is_known_by_name_when_it_is_gone() -> None:
    """A tensor of the same place later takes the name over."""
    first = Span(1 << 40, 64, "x (16,) float32")
    live.reached(first)
    assert live.freed((1 << 40) + 63) == "x (16,) float32" and live.freed((1 << 40) + 64) is None
    live.reached(Span(1 << 40, 32, "y (8,) float32"))
    assert live.freed(1 << 40) == "y (8,) float32" and live.freed((1 << 40) + 32) is None


def test_of_a_tensor_map_only_the_first_word_is_a_pointer() -> None:
    """The bytes behind the map are whatever was on the stack, pointers included."""
    text = """.version 8.8\n.target sm_90a\n.address_size 64
    .visible .entry k(.param .align 64 .b8 map[128], .param .align 8 .b8 pair[16], .param .align 4 .b8 size[4],
    .param .align 64 .b8 two[256]) { ret; }"""
    words = [struct.pack("<16Q", *range(first, first + 16)) for first in (5000, 6000, 7000, 7016)]
    params = [words[0], struct.pack("<QQ", 8000, 12), b"1234", words[2] + words[3]]
    found = launches.possible_pointers(ptx.parse(text).kernels["k"], params)
    assert found == {5000, 8000, *range(7000, 7032)}


def test_everything_is_collected_again_afterwards_and_as_often_as_before(early: list[torch.Tensor]) -> None:
    assert gc.get_freeze_count() > 1000 and gc.get_threshold() == live.THRESHOLDS
    live.unfreeze()
    assert gc.get_freeze_count() == 0
    gc.set_threshold(600, 9, 8)
    live.freeze()
    live.freeze()
    live.unfreeze()
    assert gc.get_threshold() == (600, 9, 8)
    gc.set_threshold(700, 10, 10)
    assert live.search(early[0].data_ptr()) is not None


def test_the_collector_rests_and_goes_on_as_it_was() -> None:
    assert gc.isenabled()
    with backend.collection_paused():
        assert not gc.isenabled()
        with backend.collection_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), backend.collection_paused():
        _ = 1 // 0
    assert gc.isenabled()
