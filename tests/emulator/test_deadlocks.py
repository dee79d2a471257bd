"""What is said of threads that wait for ever: the cause first, its victims after it, and nobody who could not help."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import pytest

from cutetut.emulator.errors import (
    Deadlock,
    DivergentBarrier,
    EmulatorError,
    IllegalInstruction,
    InFlight,
    MissingBarrier,
)
from cutetut.emulator.machine.scheduler import Scheduler
from cutetut.explore import first_failure
from tests.emulator.harness import kernel, run
from tests.seeds import seeds

pytestmark = pytest.mark.emulator

SHARED = ".shared .align 8 .b64 bar[4]; .shared .align 16 .b8 s[256];"
START = """mov.u32 %r0, %tid.x; mov.u32 %r1, bar; mov.u32 %r2, s; ld.param.b64 %rd0, [p0]; shr.u32 %r3, %r0, 5;
and.b32 %r4, %r0, 31; setp.ne.u32 %p1, %r0, 0; setp.ne.u32 %p7, %r4, 0;"""


def init(*counts: int) -> str:
    made = "".join(f"@!%p1 mbarrier.init.shared::cta.b64 [%r1+{8 * i}], {n};" for i, n in enumerate(counts))
    return f"{made} fence.mbarrier_init.release.cluster; bar.sync 0;"


def arrive(at: int, guard: str = "@!%p7 ") -> str:
    return f"{guard}mbarrier.arrive.shared::cta.b64 _, [%r1+{at}];"


def forever(at: int, parity: int | str, name: str) -> str:
    """Wait for a phase without an end, as the DSL does."""
    return f"{name}: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+{at}], {parity}; @!%p2 bra {name};\n"


def roles(*lines: str) -> str:
    """A role for each warp of a CTA."""
    jumps = "".join(f"setp.eq.u32 %p3, %r3, {i}; @%p3 bra ROLE{i};" for i in range(len(lines)))
    return f"{jumps}\n" + "".join(f"ROLE{i}:\n{text}\nbra END;\n" for i, text in enumerate(lines)) + "END:"


def attempt(lines: str, warps: int) -> None:
    run(kernel(f"{START}\n{lines}", header=SHARED), np.zeros(64, np.uint32), block=(32 * warps, 1, 1))


def stuck(lines: str, warps: int) -> tuple[str, str]:
    """The report of a deadlock, and its hint."""
    with pytest.raises(Deadlock) as caught:
        attempt(lines, warps)
    return str(caught.value), caught.value.hint


PARITY = "the parity of the waits"


def chain(passes_on: str) -> str:
    """Warp 1 waits for its turn from warp 0 (barrier 0), warp 2 for warp 1 (8), warp 3 for warp 2 (16)."""
    return init(1, 1, 1) + roles(
        passes_on,
        forever(0, 0, "A") + arrive(8),
        forever(8, 0, "B") + arrive(16),
        forever(16, 0, "C"),
    )


def test_a_turn_that_is_never_passed_on() -> None:
    report, hint = stuck(chain(""), 4)
    cause, victims = report.split("these only wait for those above:")
    assert "warps [1] wait for phase 0 of the mbarrier at shared offset 0" in cause
    assert "could still arrive: nobody" in cause and "warps [2]" not in cause and "warps [3]" not in cause
    assert victims.index("warps [2] wait") < victims.index("warps [3] wait")
    assert "could still arrive: warp 1 (" in victims and "could still arrive: warp 2 (" in victims
    assert "mbarrier at shared offset 0" in hint and PARITY not in hint
    attempt(chain(arrive(0)), 4)


def pipeline(produce: str, consume: str, rounds: int = 3) -> str:
    """Warp 0 fills and warp 1 empties one stage: full at offset 0, empty at offset 8."""
    count = f"add.u32 %r5, %r5, 1; setp.lt.u32 %p4, %r5, {rounds}; @%p4 bra"
    parities = "mov.u32 %r5, 0; and.b32 %r6, %r5, 1; xor.b32 %r7, %r6, 1;"
    again = "and.b32 %r6, %r5, 1; xor.b32 %r7, %r6, 1;"
    return init(1, 1) + parities + roles(f"P: {again} {produce} {count} P;", f"C: {again} {consume} {count} C;")


FILL, EMPTY = forever(8, "%r7", "E") + arrive(0), forever(0, "%r6", "F") + arrive(8)


def test_the_pipeline_is_right() -> None:
    attempt(pipeline(FILL, EMPTY), 2)


def test_a_stage_released_twice() -> None:
    """The empty barrier runs ahead by a phase, so the producer waits for a parity that has come and gone."""
    report, hint = stuck(pipeline(FILL, EMPTY + arrive(8)), 2)
    assert "warps [0] wait for phase 2 of the mbarrier at shared offset 8" in report
    assert "completed twice since this thread last waited" in report
    assert "arrives twice at the mbarrier at shared offset 8" in hint and PARITY not in hint


def test_a_stage_never_released() -> None:
    report, hint = stuck(pipeline(FILL, forever(0, "%r6", "F")), 2)
    cause, victims = report.split("these only wait for those above:")
    assert "warps [0] wait for phase 0 of the mbarrier at shared offset 8" in cause
    assert "could still arrive: nobody" in cause and "warps [1] wait for phase 1" in victims
    assert "nobody has arrived there so far" in hint and PARITY not in hint


def test_the_producer_begins_with_the_wrong_parity() -> None:
    report, hint = stuck(pipeline(FILL.replace("%r7", "%r6"), EMPTY), 2)
    assert PARITY in hint and "completed" not in report


@pytest.mark.parametrize("passed_on", [True, False])
def test_a_turn_that_is_passed_on_too_late_for_the_others(passed_on: bool) -> None:
    """Two consumers; the second waits for its turn from the first, who has gone round: no parity is to blame."""
    count = "add.u32 %r5, %r5, 1; setp.lt.u32 %p4, %r5, 3; @%p4 bra"
    begin, again = "mov.u32 %r5, 0;", "and.b32 %r6, %r5, 1; xor.b32 %r7, %r6, 1;"
    turn = arrive(16, "setp.eq.u32 %p5, %r5, 0; @%p7 bra ON; @%p5 ") + "ON:" if passed_on else ""
    lines = init(1, 2, 1) + begin + roles(
        f"P: {again} {forever(8, '%r7', 'E')} {arrive(0)} {count} P;",
        f"C: {again} {forever(0, '%r6', 'F')} {turn} {arrive(8)} {count} C; {'' if passed_on else arrive(16)}",
        f"{forever(16, 0, 'T')} D: {again} {forever(0, '%r6', 'G')} {arrive(8)} {count} D;",
    )  # fmt: skip
    if passed_on:
        attempt(lines, 3)
        return
    report, hint = stuck(lines, 3)
    assert "warps [2] wait for phase 0 of the mbarrier at shared offset 16" in report
    assert "warps [1] wait for phase 1 of the mbarrier at shared offset 0" in report
    assert "who arrives at the mbarrier at shared offset 16: nobody has so far" in hint and PARITY not in hint


def test_another_stage_is_released() -> None:
    """Two stages; the consumer always gives the second one back."""
    both = forever(8, "%r7", "E") + arrive(0) + forever(24, "%r7", "G") + arrive(16)
    use = forever(0, "%r6", "F") + forever(16, "%r6", "H")
    stages = "mov.u32 %r8, 24; mov.u32 %r9, 2; L: add.u32 %r10, %r1, %r8;"
    release = f"{stages} @!%p7 mbarrier.arrive.shared::cta.b64 _, [%r10]; sub.u32 %r8, %r8, {{}}; sub.u32 %r9, %r9, 1;"
    release += "setp.ne.u32 %p5, %r9, 0; @%p5 bra L;"
    attempt(pipeline(both, use + release.format(16)).replace(init(1, 1), init(1, 1, 1, 1)), 2)
    wrong = pipeline(both, use + release.format(0)).replace(init(1, 1), init(1, 1, 1, 2))
    report, _ = stuck(wrong, 2)
    assert "warps [0] wait for phase 0 of the mbarrier at shared offset 8" in report.split("these only wait")[0]


def test_bytes_that_nobody_announced() -> None:
    lines = (
        init(1)
        + """@%p1 bra W; mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 32;
    mbarrier.arrive.shared::cta.b64 _, [%r1];"""
        + forever(0, 0, "W")
    )
    report, hint = stuck(lines, 1)
    assert "0 of 1 arrivals pending, and 32 bytes more than announced have come" in report
    assert "0 announced, and copies brought 32 bytes that nobody announced" in report
    assert "-32" not in report and "byte count of expect_tx" in hint and PARITY not in hint


def test_those_who_wait_for_a_phase_cannot_complete_it() -> None:
    """All threads would arrive after the wait; that is no help."""
    report, _ = stuck(init(1) + forever(0, 0, "W") + arrive(0, ""), 2)
    assert "could still arrive: nobody" in report


def test_arrivals_that_are_too_few() -> None:
    report, hint = stuck(init(3) + arrive(0) + forever(0, 0, "W") + arrive(0), 2)
    assert "1 of 3 arrivals" in report and "this phase: 2 arrivals by warps 0-1" in report
    assert "the arrival count of mbarrier_init" in hint and PARITY not in hint


def test_bytes_that_nobody_announces() -> None:
    """The copy comes without the arrive.expect_tx before it: the count of its bytes is not to blame."""
    copy = "@!%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r2], [%rd0], 64, [%r1];"
    report, hint = stuck(init(1) + copy + forever(0, 0, "W"), 1)
    assert "0 announced, and copies brought 64 bytes that nobody announced" in report
    assert hint.startswith("the arrive with expect_tx")


# -- named barriers -------------------------------------------------------------------------------


def test_a_barrier_that_waits_for_more_threads_than_can_come() -> None:
    """Warps 0 and 1 would meet, and warp 2 waits for them behind that: with it 96 of 128 threads would come."""
    meet = "bar.sync 1, 128;"
    report, hint = stuck(init(1) + roles(meet + arrive(0), meet + arrive(0), forever(0, 0, "A") + meet), 3)
    assert "64 of 128 threads have arrived" in report
    cause, victims = report.split("these only wait for those above")
    assert "wait at barrier 1" in cause and "wait for phase 0 of" in victims
    assert hint == "the thread count of barrier 1: it waits for 128 threads, and at most 96 can come"


def test_an_arrival_at_the_barrier_of_another_number() -> None:
    """Warp 0 passes the turn on at barrier 2, and warp 1 waits for it at barrier 1."""
    report, _ = stuck(init(1) + roles("bar.arrive 2, 64;", "bar.sync 1, 64;"), 2)
    assert "32 of 64 threads have arrived" in report
    assert "arrived at barrier 2, where nobody waits: warp 0 (PTX line" in report


# -- lanes that spin ------------------------------------------------------------------------------

SPIN = "L: ld.volatile.global.b32 %r5, [%rd0]; setp.eq.u32 %p3, %r5, 0; @%p3 bra L;"


def test_one_lane_spins_and_the_others_wait_for_it() -> None:
    report, hint = stuck(f"@%p7 bra ON; {SPIN} ON: bar.warp.sync 0xffffffff;", 1)
    assert "look again and again at memory that nobody changes" in report and "exited" not in report
    assert "it holds 0: byte 0 of p0" in report and "which no thread of this launch has written" in report
    assert "who writes what it looks at" in hint


def test_a_loop_that_waits_for_a_value_which_has_passed() -> None:
    """Warp 0 waits for the number 5, warp 1 leaves a 6, and the barrier behind the loop is not to blame."""
    wait_for_5 = SPIN.replace("setp.eq.u32 %p3, %r5, 0", "setp.ne.u32 %p3, %r5, 5")
    write_6 = "mov.u32 %r6, 6; @!%p7 st.volatile.global.b32 [%rd0], %r6;"
    report, hint = stuck(f"setp.eq.u32 %p2, %r3, 1; @%p2 bra B; {wait_for_5} bra M; B: {write_6} M: bar.sync 0;", 2)
    assert "it holds 6: byte 0 of p0" in report and "written last by warp 1 (PTX line" in report
    assert report.index("look again and again") < report.index("wait at barrier 0")
    assert hint.startswith("the value that the loop waits for")


def test_one_lane_spins_and_never_comes() -> None:
    """It leaves the kernel after its loop, if ever."""
    with pytest.raises(DivergentBarrier, match=r"only lanes 1-31 of the warp reached it; lane 0 goes round") as caught:
        attempt(f"@%p7 bra ON; {SPIN} ret; ON: bar.warp.sync 0xffffffff;", 1)
    assert "exited" not in caught.value.what and "ld.volatile.global.b32" in caught.value.what


ELECT = "elect.sync %r8|%p4, 0xffffffff;"


@pytest.mark.parametrize(
    ("ended", "first", "told"),
    [
        (0, 1, "only lane 0 of the warp reached it; lanes 1-31 stand at elect.sync"),
        (0, 31, "only lanes 0-30 of the warp reached it; lane 31 stands at elect.sync"),
        (1, 2, "only lane 1 of the warp reached it; lanes 2-31 stand at elect.sync {}; lane 0 has exited"),
        (2, 31, "only lanes 2-30 of the warp reached it; lane 31 stands at elect.sync {}; lanes 0-1 have exited"),
    ],
)
def test_a_lane_and_several_are_told_in_words_that_fit(ended: int, first: int, told: str) -> None:
    """Lanes below `ended` return; those from `first` on meet at a line of their own."""
    split = f"setp.lt.u32 %p5, %r4, {ended}; @%p5 ret; setp.ge.u32 %p6, %r4, {first}; @%p6 bra ON;"
    with pytest.raises(DivergentBarrier) as caught:
        attempt(f"{split} {ELECT} ret; ON: {ELECT}", 1)
    assert told.format("(PTX line 9)") in caught.value.what


@pytest.mark.parametrize("copies", [0, 3])
def test_it_is_told_as_soon_as_nothing_changes(monkeypatch: pytest.MonkeyPatch, copies: int) -> None:
    """Not before the copies under way have completed; the wait has only asked once for these, and goes on."""
    taken, give_up = [], Scheduler.give_up

    def noted(self: Scheduler) -> NoReturn:
        taken.append(self.turn)
        give_up(self)

    monkeypatch.setattr(Scheduler, "give_up", noted)
    copy = "".join(f"@!%p1 cp.async.ca.shared.global [%r2+{16 * i}], [%rd0], 16;" for i in range(copies))
    stuck(f"{copy} {SPIN}", 2)
    assert taken and taken[0] < 200 * (1 + copies)


@pytest.mark.parametrize("schedule", ["order", "random:1", "random:2"])
def test_a_loop_that_gives_up_by_itself_is_no_deadlock(monkeypatch: pytest.MonkeyPatch, schedule: str) -> None:
    """Its counter goes through two registers, so that no instruction changes one by its own value."""
    monkeypatch.setenv("CUTETUT_SCHEDULE", schedule)
    out = np.zeros(64, np.uint32)
    bounded = SPIN.replace("setp", "add.u32 %r7, %r6, 1; mov.u32 %r6, %r7; setp.lt.u32 %p4, %r7, 1500; setp")
    bounded = bounded.replace("@%p3 bra L", "and.pred %p3, %p3, %p4; @%p3 bra L")
    run(kernel(f"{START} mov.u32 %r6, 0; {bounded} st.global.b32 [%rd0+4], %r7;", header=SHARED), out, block=(1, 1, 1))
    assert out[1] == 1500


# -- a barrier in a branch ------------------------------------------------------------------------

# Each warp stores a value, warp 0 adds them up, and all read the sum; twice, with one buffer
PUT = "mad.lo.u32 %r5, %r3, 4, %r2; add.u32 %r6, %r3, {}; @!%p7 st.shared.b32 [%r5], %r6; bar.sync 0;"
SUM = """ld.shared.b32 %r7, [%r2]; ld.shared.b32 %r8, [%r2+4]; add.u32 %r7, %r7, %r8; bar.warp.sync 0xffffffff;
@!%p7 st.shared.b32 [%r2+16], %r7;"""
GET = "ld.shared.b32 %r9, [%r2+16]; bar.sync 1;"


def reductions(inside: str, behind: str) -> str:
    text = "setp.ne.u32 %p3, %r3, 0; mov.u32 %r7, 0; @!%p1 st.shared.b32 [%r2+16], %r7; bar.sync 0;"
    for i in range(2):
        text += f"{PUT.format(i)} @%p3 bra S{i}; {SUM} {inside} S{i}: {behind} {GET}\n"
    return text.replace("bar.sync 1;", "bar.sync 0;")


def test_a_barrier_in_a_branch_of_a_loop() -> None:
    """Each round the two warps are to meet twice: the first barrier is in a branch that warp 1 does not take."""
    text = """setp.ne.u32 %p3, %r3, 0; mov.u32 %r7, 0; mad.lo.u32 %r5, %r0, 4, %r2; xor.b32 %r6, %r0, 63;
    mad.lo.u32 %r6, %r6, 4, %r2;
    L: st.shared.b32 [%r5], %r7; @%p3 bra S; bar.sync 0;
    S: ld.shared.b32 %r8, [%r6]; bar.sync 0; add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, 3; @%p2 bra L;"""
    attempt(text.replace("@%p3 bra S;", ""), 2)
    with pytest.raises(DivergentBarrier, match="barrier 0 is met at different lines") as caught:
        attempt(text, 2)
    assert "what came of it: load of shared memory" in str(caught.value)


def test_a_barrier_in_a_branch_that_one_warp_takes() -> None:
    with pytest.raises(DivergentBarrier, match="barrier 0 is met at different lines") as caught:
        attempt(reductions("bar.sync 0;", ""), 2)
    report = str(caught.value)
    assert "warp 0 " in caught.value.what and "warp 1 " in caught.value.what
    assert "what came of it: " in report and "every warp must come to it" in caught.value.hint
    attempt(reductions("", "bar.sync 0;"), 2)


def test_roles_with_barriers_of_their_own_are_no_fault() -> None:
    attempt(roles("st.shared.b32 [%r2], 7; bar.sync 0;", "bar.sync 0; ld.shared.b32 %r5, [%r2];"), 2)


def test_nor_are_they_to_blame_for_a_race() -> None:
    with pytest.raises(MissingBarrier, match="nothing orders the two"):
        attempt(roles("bar.sync 0; st.shared.b32 [%r2], 7;", "bar.sync 0; ld.shared.b32 %r5, [%r2];"), 2)


# -- a stage that is released too early ------------------------------------------------------------

COPY = """mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 64;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd0], 64, [%r1];"""


def stage(use: str) -> str:
    fill = forever(8, "%r7", "E") + f"@%p7 bra Q; {COPY} Q:"
    return pipeline(fill, forever(0, "%r6", "F") + use, rounds=2)


def test_a_stage_released_before_its_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTETUT_ASYNC", "late")
    load = "ld.shared.b32 %r9, [%r2];"
    attempt(stage(f"{load} bar.warp.sync 0xffffffff; {arrive(8)}"), 2)
    pause = "nanosleep.u32 1; bar.warp.sync 0xffffffff;" * 8  # the producer comes to its next copy meanwhile
    with pytest.raises(EmulatorError) as caught:
        attempt(stage(f"{arrive(8)} {pause} {load}"), 2)
    assert isinstance(caught.value, InFlight), caught.value
    report = str(caught.value)
    assert "its warp has waited for phase 0 of that mbarrier" in report and "belongs to phase 1" in report
    assert "the release of the stage, which must come after this use of phase 0" in caught.value.hint


def test_a_consumer_that_does_not_wait_is_named_where_the_producer_fails() -> None:
    """Its wait has the wrong parity and passes at once: it releases, and the producer comes too early."""
    announce = "@!%p7 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 64;"
    copy = "@!%p7 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r2], [%rd0], 64, [%r1];"
    produce = announce + copy + forever(8, 0, "E") + announce
    consume = forever(0, 1, "F") + "ld.shared.b32 %r9, [%r2+128]; bar.warp.sync 0xffffffff;" + arrive(8)
    with pytest.raises(IllegalInstruction, match="one more arrival at the mbarrier") as caught:
        attempt(init(1, 1) + roles(produce, consume), 2)
    report = str(caught.value)
    assert "before that: load of shared memory that nothing has written: offset 160" in report
    assert "passed at once: parity 1 names the phase before the first" in report
    assert "the wait for such a copy" in caught.value.hint and "released the stage" in caught.value.hint


# -- CTAs that take turns -------------------------------------------------------------------------

# Each CTA waits until the semaphore says that it is its turn, and passes it on; the last one sets it back to zero.
TURNS = """mov.u32 %r5, %ctaid.x; mov.u32 %r6, %nctaid.x; sub.u32 %r6, %r6, 1; setp.eq.u32 %p4, %r5, %r6;
@%p1 bra MET; {skip}
W: ld.acquire.gpu.global.b32 %r7, [%rd0]; setp.ne.u32 %p3, %r7, %r5; @%p3 bra W;
MET: bar.sync 0; @%p1 bra END; add.u32 %r8, %r5, 1; selp.u32 %r8, 0, %r8, %p4;
atom.exch.acq_rel.gpu.global.b32 %r9, [%rd0], %r8; END:"""


def take_turns(skip: str) -> None:
    run(kernel(f"{START}\n{TURNS.format(skip=skip)}", header=SHARED), np.zeros(1, np.uint32), grid=(4, 1, 1),
        block=(64, 1, 1))  # fmt: skip


@pytest.mark.parametrize("seed", seeds(6))
def test_a_turn_taken_without_waiting_for_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last CTA does not wait: if the others still do, its zero may leave them waiting for ever.

    Lane 0 of each looks at the semaphore, and its mates stand at the barrier: none of that is divergence.
    """
    monkeypatch.setenv("CUTETUT_ASYNC", f"random:{seed}")
    monkeypatch.setenv("CUTETUT_SCHEDULE", f"random:{seed}")
    take_turns("")
    try:
        take_turns("@%p4 bra MET;")
    except Deadlock as stuck:
        assert "look again and again at memory that nobody changes" in str(stuck)
        assert "who writes what it looks at" in stuck.hint


def test_such_a_turn_does_end_in_a_deadlock_under_some_schedule() -> None:
    failure = first_failure(lambda: take_turns("@%p4 bra MET;"), ("late",))
    assert failure is not None and isinstance(failure.error, Deadlock)
