"""What single lanes of a warp learn: groups of lanes, what they share, and when the warp knows it."""

from __future__ import annotations

import numpy as np
import pytest

from cutetut.emulator.checks.apart import Apart, joined
from cutetut.emulator.checks.clocks import GENERIC, Clocks
from cutetut.emulator.errors import MissingBarrier, MissingFence
from tests.emulator.harness import kernel, run
from tests.seeds import seeds

ALL = 0xFFFFFFFF


def known(apart: Apart, warp: int, lane: int) -> list[int]:
    """What a lane has learned, agent by agent."""
    found = np.zeros(4, np.int64)
    for row in apart.of(warp, 1 << lane):
        found = joined(found, row)
    return [int(v) for v in found]


def row(*times: int) -> np.ndarray:
    return np.array(times, np.int64)


def test_lanes_learn_each_for_themselves() -> None:
    apart = Apart()
    apart.learn(7, 0b0011, row(5, 0))
    apart.learn(7, 0b0110, row(0, 3, 0, 9))
    assert [known(apart, 7, lane) for lane in range(4)] == [[5, 0, 0, 0], [5, 3, 0, 9], [0, 3, 0, 9], [0, 0, 0, 0]]
    assert known(apart, 6, 0) == [0, 0, 0, 0]
    masks = [mask for mask, _ in apart.groups[7]]
    assert sum(masks) == 0b0111  # no lane is in two groups


def test_what_all_living_lanes_have_learned_is_the_warps() -> None:
    apart = Apart()
    apart.learn(0, 0b01, row(5, 2))
    assert apart.shared(0, 0b11) is None
    apart.learn(0, 0b10, row(4, 7, 1))
    shared = apart.shared(0, 0b11)
    assert shared is not None and shared.tolist() == [4, 2]
    assert apart.shared(0, ALL) is None and apart.shared(0, 0b01) is not None
    assert len(apart.take(0)) == 2 and not apart


def test_a_warp_knows_when_its_last_lane_does() -> None:
    """Two warps; warp 1 releases, the lanes of warp 0 acquire one after the other."""
    clocks = Clocks(2)
    clocks.alive[0] = 0b111
    told = clocks.release(np.array([1]))
    time = int(told.seen[GENERIC, 1])
    one = np.array([0])
    for lane, warp_knows in ((0, False), (2, False), (1, True)):
        clocks.acquire(one, told, np.array([1 << lane], np.uint32))
        assert bool(clocks.knows(one, 1, time)[0]) == warp_knows
        assert clocks.row(lane)[1] == time
        late = clocks.unknown(np.array([0, 1, 2]), np.full(3, 1), np.full(3, time))
        assert not late[lane] and (warp_knows or late.any())


def test_lanes_that_meet_share_what_one_has_learned() -> None:
    clocks = Clocks(2)
    told = clocks.release(np.array([1]))
    clocks.acquire(np.array([0]), told, np.array([1], np.uint32))
    assert not clocks.knows(np.array([0]), 1, told.seen[GENERIC, 1]).all()
    clocks.sync_lanes(np.array([0]))
    assert clocks.knows(np.array([0]), 1, told.seen[GENERIC, 1]).all() and not clocks.apart


def test_an_arrival_passes_on_what_the_arriving_lane_has_learned() -> None:
    """Warp 2 tells lane 0 of warp 1, whose lanes 0 and 1 both release: only lane 0's release has it."""
    clocks = Clocks(3)
    told = clocks.release(np.array([2]))
    clocks.acquire(np.array([1]), told, np.array([1], np.uint32))
    time = int(told.seen[GENERIC, 2])
    by_1 = clocks.release(np.array([1]), np.array([2], np.uint32))
    by_0 = clocks.release(np.array([1]), np.array([1], np.uint32))
    assert by_1.seen[GENERIC, 2] < time <= by_0.seen[GENERIC, 2]


START = """mov.u32 %r0, %tid.x; ld.param.b64 %rd0, [p0]; ld.param.b64 %rd1, [p1]; mov.u32 %r1, %ctaid.x;
mul.wide.u32 %rd2, %r0, 4; add.u64 %rd3, %rd1, %rd2; add.u64 %rd4, %rd0, %rd2; setp.ne.u32 %p1, %r1, 0;"""
FLAGS = """@%p1 bra READ; st.global.b32 [%rd3], 7; {before} st.{store}.gpu.global.b32 [%rd4], 1; bra END;
READ: {poll} {behind} ld.global.b32 %r3, [%rd3]; st.global.b32 [%rd3+128], %r3; END:"""
POLL = "L: ld.{load}.gpu.global.b32 %r2, [%rd4]; setp.eq.u32 %p2, %r2, 0; @%p2 bra L;"


def flags(before: str, store: str, load: str, behind: str, schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each lane of CTA 0 raises a flag of its own for the lane of CTA 1 that reads its number."""
    monkeypatch.setenv("CUTETUT_SCHEDULE", schedule)
    text = FLAGS.format(before=before, store=store, poll=POLL.format(load=load), behind=behind)
    found = np.zeros(64, np.uint32)
    run(kernel(f"{START}\n{text}", 2), np.zeros(32, np.uint32), found, grid=(2, 1, 1))
    assert found.tolist() == [7] * 64


FENCE = "fence.acq_rel.gpu;"


@pytest.mark.emulator
@pytest.mark.parametrize("schedule", ["order", *(f"random:{seed}" for seed in seeds(6))])
def test_lanes_that_poll_flags_of_their_own(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """32 releases, each read by another lane, with acquires and with fences: in whatever order lanes run."""
    flags("", "release", "acquire", "", schedule, monkeypatch)
    flags(FENCE, "relaxed", "relaxed", FENCE, schedule, monkeypatch)
    for missing in (("", "relaxed", "relaxed", FENCE), (FENCE, "relaxed", "relaxed", "")):
        with pytest.raises(MissingBarrier):
            flags(*missing, schedule, monkeypatch)


SHARED = ".shared .align 16 .b8 s[256]; .shared .align 8 .b64 bar;"
BEGIN = """mov.u32 %r0, %tid.x; mov.u32 %r1, s; mov.u32 %r2, bar; ld.param.b64 %rd0, [p0]; shl.b32 %r3, %r0, 2;
add.u32 %r3, %r3, %r1; setp.ne.u32 %p1, %r0, 0; st.shared.b32 [%r3], %r0;"""
COPY = "cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1+128], 16; cp.async.bulk.commit_group;"
STORE = "mov.u32 %r9, 9; st.shared.v4.b32 [%r1+128], {%r9, %r9, %r9, %r9};"


def stored(fence: str) -> None:
    """Lane 0 alone stores 16 bytes and has them copied out; the others have used memory before, and not met it."""
    found = np.zeros(4, np.uint32)
    text = f"{BEGIN} @%p1 bra END; {STORE} {fence} {COPY} cp.async.bulk.wait_group 0; END:"
    run(kernel(text, header=SHARED), found)
    assert found.tolist() == [9] * 4


@pytest.mark.emulator
def test_a_lane_fences_what_it_has_stored_itself() -> None:
    """Its fence is enough for its own store, whatever the other lanes have done; without it the store is late."""
    stored("fence.proxy.async.shared::cta;")
    for wrong in ("", "fence.proxy.async.global;", "fence.acq_rel.cta;"):
        with pytest.raises(MissingFence):
            stored(wrong)


@pytest.mark.emulator
@pytest.mark.parametrize("seed", seeds(6))
def test_an_mbarrier_that_one_lane_makes_and_fences(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other lanes have used memory before, and fence before or after lane 0 does."""
    monkeypatch.setenv("CUTETUT_SCHEDULE", f"random:{seed}")
    text = f"""{BEGIN} @%p1 bra ON; mbarrier.init.shared::cta.b64 [%r2], 1; ON: fence.mbarrier_init.release.cluster;
    bar.sync 0; @%p1 bra W; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+128], [%rd0], 16, [%r2];
    W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0; @!%p2 bra W;"""
    run(kernel(text, header=SHARED), np.zeros(4, np.uint32))
