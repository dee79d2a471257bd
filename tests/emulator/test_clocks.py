"""What a warp hears of single lanes of another, again and again."""

from __future__ import annotations

import numpy as np
import pytest

from cutetut.emulator.checks.clocks import ASYNC_SHARED, Clocks

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


def fenced_by_lanes(*steps: tuple[str, int]) -> bool:
    """Whether a warp that meets the writer finds all that its lanes did fenced; ("use" or "fence", lane)."""
    clocks, used = Clocks(2), dict[int, int]()
    for step, lane in steps:
        if step == "use":
            clocks.touch(np.array([32 + lane]))
            used[lane] = int(clocks.time(1))
        else:
            clocks.fence(WRITER, (ASYNC_SHARED,), np.array([1 << lane], np.uint32))
    clocks.meet(np.arange(2))
    return all(
        clocks.seen[ASYNC_SHARED, 0, 1] >= time or clocks.fenced_by_lane(ASYNC_SHARED, 32 + lane, time, 0)
        for lane, time in used.items()
    )


def test_lanes_may_come_to_a_fence_one_after_the_other() -> None:
    """A warp that has diverged executes the fence once for each part of its lanes: the last one completes it."""
    both = ("use", 0), ("use", 1), ("fence", 0)
    assert not fenced_by_lanes(*both) and fenced_by_lanes(*both, ("fence", 1))
    assert not fenced_by_lanes(*both, ("use", 0), ("fence", 1))
    assert fenced_by_lanes(*both, ("use", 0), ("fence", 1), ("fence", 0))
