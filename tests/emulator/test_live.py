"""The collector's part in finding live tensors: what is left out of collections is found all the same."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

from cutetut import collector
from cutetut.emulator.host import live

pytestmark = pytest.mark.emulator


@pytest.fixture
def early() -> Iterator[list[torch.Tensor]]:
    """A tensor that is older than `settle`."""
    tensors = [torch.zeros(4099)]
    live.settle()
    yield tensors
    live.settle()  # as it was: this process runs in the emulator


def test_tensors_from_before_and_after_are_found_while_they_live(early: list[torch.Tensor]) -> None:
    assert not any(item is early[0] for item in gc.get_objects())
    late = torch.zeros(4099)
    for tensor in (early[0], late):
        found = live.search(tensor.data_ptr() + 8)
        assert found is not None and found[:2] == (tensor.data_ptr(), 4 * 4099)
    address = early[0].data_ptr()
    early.clear()
    assert (found := live.search(address)) is None or found[1] != 4 * 4099


def test_everything_is_collected_again_afterwards(early: list[torch.Tensor]) -> None:
    assert gc.get_freeze_count() > 1000
    live.unsettle()
    assert gc.get_freeze_count() == 0
    assert live.search(early[0].data_ptr()) is not None


def test_the_collector_rests_and_goes_on_as_it_was() -> None:
    assert gc.isenabled()
    with collector.paused():
        assert not gc.isenabled()
        with collector.paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), collector.paused():
        _ = 1 // 0
    assert gc.isenabled()
