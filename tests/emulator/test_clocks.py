"""What a warp hears of single lanes of another, again and again."""

from __future__ import annotations

import numpy as np
import pytest

from cutetut.emulator.checks.clocks import Clocks

pytestmark = pytest.mark.emulator

READER, WRITER = np.array([0]), np.array([1])
LANE_0 = np.array([1], np.uint32)


def lane_0_releases(clocks: Clocks) -> int:
    """Lanes 0 and 1 of the writer use memory, lane 0 alone passes it on: the time of that."""
    clocks.touch(np.array([32, 33]))
    time = clocks.time(1)
    clocks.acquire(READER, clocks.release(WRITER, LANE_0))
    return time


def test_only_the_lane_that_released_is_known() -> None:
    clocks = Clocks(2)
    time = lane_0_releases(clocks)
    assert clocks.known_to_lanes(0, 7, 1, 0, time) and not clocks.known_to_lanes(0, 7, 1, 1, time)
    assert not clocks.known_to_lanes(0, 7, 1, 0, time + 1)


def test_hearing_it_often_takes_no_more_room() -> None:
    """A thread that looks at a flag hears the same at every look: what it passes on must not grow with that."""
    clocks = Clocks(2)
    times = [lane_0_releases(clocks) for _ in range(100)]
    assert all(clocks.known_to_lanes(0, 7, 1, 0, time) for time in times)
    heard = clocks.release(READER)
    assert heard.lanes == ((1, 1, times[-1]),)
    assert heard.join(clocks.release(WRITER, LANE_0)).lanes == ((1, 1, times[-1] + 1),)
