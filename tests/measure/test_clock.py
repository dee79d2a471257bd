"""The SMs' clock: the arithmetic of two readings, and on a GPU against a kernel that counts cycles for a known time."""

from __future__ import annotations

import pytest
import torch

from cutetut.measure import clock
from cutetut.measure.clock import NOT_READ, between

SPIN = 50_000_000  # cycles, some 25 ms


def test_the_clock_is_cycles_over_nanoseconds() -> None:
    """Of three SMs whose counters began at any time, the median; one that only one reading saw does not count."""
    before = [(100, 5_000), (7_000_000, 5_032), (NOT_READ, NOT_READ), (40, 5_000), (0, 5_000)]
    after = [(1_100, 6_000), (7_001_800, 6_032), (9_000, 6_000), (NOT_READ, NOT_READ), (1_500, 6_000)]
    assert between(before, after) == 1500


@pytest.mark.parametrize("after", [[(NOT_READ, NOT_READ)], [(900, 5_000)]])
def test_without_time_between_two_readings_there_is_no_clock(after: list[tuple[int, int]]) -> None:
    assert between([(100, 5_000)], after) is None


@pytest.mark.gpu
def test_a_kernel_of_so_many_cycles_takes_so_long_at_that_clock() -> None:
    """PyTorch's own kernel that waits for a number of cycles, timed by CUDA events."""
    reader = clock.SMClock()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(2):  # the first launch has the host's time to load it
        torch.cuda.synchronize()
        reader.begin()
        start.record()
        torch.cuda._sleep(SPIN)
        end.record()
        reader.end()
        torch.cuda.synchronize()
    found = reader.mhz()
    assert found is not None and 600 < found <= 1980
    assert found == pytest.approx(SPIN / start.elapsed_time(end) / 1e3, rel=0.01)
