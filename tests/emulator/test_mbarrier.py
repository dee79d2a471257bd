"""Memory barriers: phases, arrivals, bytes, states, drops and remote arrivals, step by step as the ISA counts them."""

from __future__ import annotations

import numpy as np
import pytest

from cutetut.emulator.errors import Deadlock, EmulatorWarning, IllegalInstruction, MissingBarrier
from tests.emulator.harness import kernel, run, wait

HEADER = ".shared .align 8 .b8 bar[16];"
BEGIN = "mov.u32 %r0, %tid.x; mov.u32 %r1, bar; ld.param.b64 %rd0, [p0]; setp.ne.u32 %p1, %r0, 0;"


def ask(slot: int, parity: int | str, kind: str = "test_wait.parity") -> str:
    """Store whether a phase is complete to out[slot]."""
    return (
        f"mbarrier.{kind}.shared::cta.b64 %p2, [%r1], {parity}; selp.u32 %r2, 1, 0, %p2; "
        f"st.global.b32 [%rd0+{4 * slot}], %r2;"
    )


def one_thread(lines: str, slots: int) -> list[int]:
    """Run lines in a single thread; what they stored to out[...]."""
    out = np.full(slots, 7, np.uint32)
    run(kernel(f"{BEGIN}\n{lines}", header=HEADER), out, block=(1, 1, 1))
    return out.tolist()


def init(count: int) -> str:
    return f"mbarrier.init.shared::cta.b64 [%r1], {count};"


ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [%r1];"


def test_a_phase_completes_with_its_last_arrival() -> None:
    lines = f"{init(2)} {ask(0, 0)} {ask(1, 1)} {ARRIVE} {ask(2, 0)} {ARRIVE} {ask(3, 0)} {ask(4, 1)}"
    # before the first phase completes, parity 1 names the (complete) phase before it
    assert one_thread(lines, 5) == [0, 1, 0, 1, 0]


def test_parities_alternate_over_many_phases() -> None:
    lines, wanted = init(1), []
    for phase in range(5):
        lines += ask(2 * phase, phase & 1) + ARRIVE + ask(2 * phase + 1, phase & 1)
        wanted += [0, 1]
    assert one_thread(lines, 10) == wanted


@pytest.mark.parametrize("kind", ["test_wait", "try_wait"])
def test_a_state_names_the_phase_of_its_arrival(kind: str) -> None:
    take = "mbarrier.arrive.shared::cta.b64 %rd{}, [%r1];"
    lines = f"{init(2)} {take.format(1)} {ask(0, '%rd1', kind)} {take.format(2)} {ask(1, '%rd1', kind)} "
    lines += f"{ask(2, '%rd2', kind)} {take.format(3)} {ask(3, '%rd3', kind)} {take.format(4)} {ask(4, '%rd3', kind)}"
    assert one_thread(lines, 5) == [0, 1, 1, 0, 1]


def test_arrivals_with_a_count() -> None:
    lines = f"""{init(10)} mbarrier.arrive.shared::cta.b64 _, [%r1], 4; {ask(0, 0)}
    mov.u32 %r5, 5; mbarrier.arrive.shared::cta.b64 _, [%r1], %r5; {ask(1, 0)} {ARRIVE} {ask(2, 0)}"""
    assert one_thread(lines, 3) == [0, 0, 1]


def test_the_pending_count_in_a_state() -> None:
    count = "mbarrier.pending_count.b64 %r2, %rd{0}; st.global.b32 [%rd0+{1}], %r2;"
    lines = f"""{init(6)} mbarrier.arrive.noComplete.shared::cta.b64 %rd1, [%r1], 2; {count.format(1, 0)}
    mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %rd2, [%r1], 3; {count.format(2, 4)} {count.format(1, 8)}
    {ARRIVE} mbarrier.arrive.noComplete.shared::cta.b64 %rd3, [%r1], 1; {count.format(3, 12)}"""
    assert one_thread(lines, 4) == [6, 4, 6, 6]


def test_pending_bytes_hold_the_phase_back() -> None:
    lines = f"""{init(1)} mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 48; {ARRIVE} {ask(0, 0)}
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16; {ask(1, 0)}
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 32; {ask(2, 0)} {ARRIVE} {ask(3, 1)}"""
    assert one_thread(lines, 4) == [0, 0, 1, 1]


def test_arrive_with_expect_tx_announces_first() -> None:
    lines = f"""{init(1)} mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 100; {ask(0, 0)}
    mbarrier.complete_tx.shared::cta.b64 [%r1], 100; {ask(1, 0)}"""
    lines = lines.replace("complete_tx.shared", "complete_tx.relaxed.cta.shared")
    assert one_thread(lines, 2) == [0, 1]


def test_bytes_may_be_delivered_before_they_are_announced() -> None:
    lines = f"""{init(1)} mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 64; {ask(0, 0)}
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 64; {ask(1, 0)}"""
    assert one_thread(lines, 2) == [0, 1]


def test_dropping_out_lowers_the_count_of_later_phases() -> None:
    lines = f"""{init(3)} mbarrier.arrive_drop.shared::cta.b64 _, [%r1]; {ARRIVE} {ask(0, 0)} {ARRIVE} {ask(1, 0)}
    {ARRIVE} {ask(2, 1)} {ARRIVE} {ask(3, 1)}"""
    assert one_thread(lines, 4) == [0, 1, 0, 1]


def test_dropping_out_with_a_count_and_with_bytes() -> None:
    lines = f"""{init(4)} mbarrier.arrive_drop.shared::cta.b64 _, [%r1], 2;
    mbarrier.arrive_drop.expect_tx.shared::cta.b64 _, [%r1], 16; {ARRIVE} {ask(0, 0)}
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16; {ask(1, 0)} {ARRIVE} {ask(2, 1)}"""
    assert one_thread(lines, 3) == [0, 1, 1]


def test_a_barrier_made_anew_after_inval() -> None:
    lines = f"""{init(1)} {ARRIVE} {ask(0, 0)} mbarrier.inval.shared::cta.b64 [%r1]; mov.u64 %rd5, 123;
    st.shared.b64 [%r1], %rd5; ld.shared.b64 %rd6, [%r1]; st.global.b32 [%rd0+4], %rd6; {init(2)} {ARRIVE} {ask(2, 0)}
    {ARRIVE} {ask(3, 0)}"""
    lines = lines.replace("st.global.b32 [%rd0+4], %rd6", "cvt.u32.u64 %r9, %rd6; st.global.b32 [%rd0+4], %r9")
    assert one_thread(lines, 4) == [1, 123, 0, 1]


def test_the_generic_address_of_a_barrier() -> None:
    lines = f"""{init(1)} mov.u64 %rd5, bar; cvta.shared.u64 %rd5, %rd5; mbarrier.arrive.b64 %rd6, [%rd5];
    mbarrier.test_wait.b64 %p2, [%rd5], %rd6; selp.u32 %r2, 1, 0, %p2; st.global.b32 [%rd0], %r2;"""
    assert one_thread(lines, 1) == [1]


@pytest.mark.parametrize("threads", [32, 128, 256])
def test_every_thread_arrives_and_waits(threads: int) -> None:
    """A block meets at an mbarrier three times; what a thread wrote before is read by its neighbour after."""
    out = np.zeros(threads, np.uint32)
    rounds = []
    for phase in range(3):
        rounds.append(f"""add.u32 %r5, %r5, %r0; st.shared.b32 [%r3], %r5; mbarrier.arrive.shared::cta.b64 _, [%r1];
        {wait("%r1", phase & 1, str(phase))}
        ld.shared.b32 %r5, [%r4]; bar.sync 0;""")
    text = f"""{BEGIN} @!%p1 mbarrier.init.shared::cta.b64 [%r1], {threads}; bar.sync 0;
    mov.u32 %r6, data; mad.lo.u32 %r3, %r0, 4, %r6; add.u32 %r7, %r0, 1; rem.u32 %r7, %r7, {threads};
    mad.lo.u32 %r4, %r7, 4, %r6; mov.u32 %r5, 1; {"".join(rounds)}
    mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.b32 [%rd1], %r5;"""
    header = HEADER + f" .shared .align 4 .b8 data[{4 * threads}];"
    run(kernel(text, header=header), out, block=(threads, 1, 1))
    values = np.ones(threads, np.uint32)
    for _ in range(3):
        values = np.roll(values + np.arange(threads, dtype=np.uint32), -1)
    np.testing.assert_array_equal(out, values)


def test_producer_and_consumer_take_turns() -> None:
    """One warp fills a buffer, another empties it, with a full and an empty barrier; eight rounds."""
    out = np.zeros((8, 32), np.uint32)
    text = f"""{BEGIN} @!%p1 mbarrier.init.shared::cta.b64 [%r1], 32; @!%p1 mbarrier.init.shared::cta.b64 [%r1+8], 32;
    bar.sync 0; and.b32 %r9, %r0, 31; mov.u32 %r3, data; mad.lo.u32 %r3, %r9, 4, %r3; mov.u32 %r5, 0;
    setp.ge.u32 %p3, %r0, 32; @%p3 bra CONSUME;
    PRODUCE: and.b32 %r6, %r5, 1; xor.b32 %r6, %r6, 1;
    {wait("%r1+8", "%r6", "EMPTY")}
    mad.lo.u32 %r7, %r5, 100, %r9; st.shared.b32 [%r3], %r7; mbarrier.arrive.shared::cta.b64 _, [%r1];
    add.u32 %r5, %r5, 1; setp.lt.u32 %p4, %r5, 8; @%p4 bra PRODUCE; bra END;
    CONSUME: and.b32 %r6, %r5, 1;
    {wait("%r1", "%r6", "FULL")}
    ld.shared.b32 %r7, [%r3]; mbarrier.arrive.shared::cta.b64 _, [%r1+8];
    mad.lo.u32 %r8, %r5, 32, %r9; mad.wide.u32 %rd1, %r8, 4, %rd0; st.global.b32 [%rd1], %r7;
    add.u32 %r5, %r5, 1; setp.lt.u32 %p4, %r5, 8; @%p4 bra CONSUME;
    END:"""
    run(kernel(text, header=HEADER + " .shared .align 4 .b8 data[128];"), out, block=(64, 1, 1))
    np.testing.assert_array_equal(out, np.arange(8)[:, None] * 100 + np.arange(32))


MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


@pytest.mark.parametrize("form", ["arrive", "count", "expect_tx", "mapa.u64"])
def test_remote_arrivals(form: str) -> None:
    """All threads of three CTAs arrive at the barrier of CTA 0, which waits for them."""
    out = np.zeros(1, np.uint32)
    arrive = {
        "arrive": "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];",
        "count": "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4], 2;",
        "expect_tx": "mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%r4], 8; "
                     "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r4], 8;",
        "mapa.u64": "mov.u64 %rd5, bar; cvta.shared.u64 %rd5, %rd5; mapa.u64 %rd5, %rd5, 0; "
                    "cvta.to.shared.u64 %rd5, %rd5; cvt.u32.u64 %r4, %rd5; "
                    "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];",
    }[form]  # fmt: skip
    text = f"""{BEGIN} mov.u32 %r9, 99; mov.u32 %r2, %cluster_ctarank; setp.eq.u32 %p3, %r2, 0;
    @!%p1 mbarrier.init.shared::cta.b64 [%r1], {3 * 32 * (2 if form == "count" else 1)};
    fence.mbarrier_init.release.cluster; {MEET} @%p3 bra WAIT;
    mapa.shared::cluster.u32 %r4, %r1, 0; {arrive} bra END;
    WAIT: {wait("%r1", scope=".acquire.cluster")}
    @!%p1 st.global.b32 [%rd0], %r9;
    END: {MEET}"""
    run(kernel(text, header=HEADER), out, grid=(4, 1, 1), cluster=(4, 1, 1))
    assert out[0] == 99


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("lines", "message"),
    [(f"{init(1)} mbarrier.arrive.shared::cta.b64 _, [%r1], 2;", "arriv"),
     (f"{init(2)} mbarrier.arrive.noComplete.shared::cta.b64 %rd1, [%r1], 2;", "completes a phase"),
     (init(0), "1 to 1048575 are allowed"), (init(1 << 20), "1 to 1048575 are allowed"),
     (ARRIVE, "no mbarrier was initialised"),
     (f"{init(1)} mbarrier.inval.shared::cta.b64 [%r1]; {ARRIVE}", "mbarrier"),
     (f"{init(1)} mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 1048576;", "counts to 1048575")],
)  # fmt: skip
def test_misuse(lines: str, message: str) -> None:
    with pytest.raises(IllegalInstruction, match=message):
        one_thread(lines, 1)


@pytest.mark.emulator
def test_bytes_that_never_come_are_a_deadlock() -> None:
    lines = f"""{init(1)} mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 64;
    WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra WAIT;"""
    with pytest.raises(Deadlock, match="64"):
        one_thread(lines, 1)


PARITIES_2_AND_3 = (
    f"{init(1)} {ARRIVE} mov.u32 %r3, 2; mov.u32 %r4, 3; {ask(0, '%r3')}\n{ask(1, '%r4')} {ask(2, 0)}"
)


@pytest.mark.filterwarnings("ignore:the parity of this wait")
def test_the_lowest_bit_of_a_parity_counts() -> None:
    """PTX defines 0 and 1 only; ptxas shifts the operand left by 31 in front of SYNCS.PHASECHK."""
    assert one_thread(PARITIES_2_AND_3, 3) == [1, 0, 1]


@pytest.mark.emulator
def test_a_parity_that_is_neither_0_nor_1_is_told() -> None:
    with pytest.warns(EmulatorWarning, match="the parity of this wait is [23]: a parity is 0 or 1") as told:
        one_thread(PARITIES_2_AND_3, 3)
    assert len(told) == 2


# -- which phase a parity means ---------------------------------------------------------------------

TWO_WARPS = """mov.u32 %r1, bar; mov.u32 %r0, %tid.x; setp.ne.u32 %p1, %r0, 0; shr.u32 %r3, %r0, 5;
and.b32 %r4, %r0, 31; setp.ne.u32 %p7, %r4, 0; setp.eq.u32 %p3, %r3, 1;
@!%p1 mbarrier.init.shared::cta.b64 [%r1], 1; @!%p1 mbarrier.init.shared::cta.b64 [%r1+8], 1;
fence.mbarrier_init.release.cluster; bar.sync 0; @%p3 bra WARP1;"""
BARS = ".shared .align 8 .b64 bar[2];"


def arrival(offset: int) -> str:
    return f"@!%p7 mbarrier.arrive.shared::cta.b64 _, [%r1+{offset}];"


def phase(offset: int, parity: int, name: str) -> str:
    return f"{name}: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+{offset}], {parity}; @!%p2 bra {name};"


def turns(waits: str, arrives: str) -> None:
    """Warp 0 arrives three times, warp 1 waits."""
    text = f"{TWO_WARPS} {arrives} bra END; WARP1: {waits} END:"
    run(kernel(text, header=BARS), np.zeros(1, np.uint32), block=(64, 1, 1))


BACK = arrival(8)  # warp 1 has seen a phase, and says so
SLOWLY = "mov.u32 %r7, 0; S: add.u32 %r7, %r7, 1; setp.lt.u32 %p4, %r7, 9; @%p4 bra S;"
ALL_WAITS = phase(0, 0, "A") + BACK + phase(0, 1, "B") + BACK + phase(0, 0, "C")
IN_TURN = arrival(0) + phase(8, 0, "X") + arrival(0) + phase(8, 1, "Y") + arrival(0)


@pytest.mark.emulator
@pytest.mark.parametrize("schedule", ["order", "random:1", "random:2", "random:3"])
def test_a_parity_means_one_phase_where_each_is_waited_for(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTETUT_SCHEDULE", schedule)
    turns(ALL_WAITS, IN_TURN)
    turns(phase(0, 0, "A"), arrival(0))


@pytest.mark.emulator
def test_a_parity_means_one_phase_where_a_barrier_says_so() -> None:
    """Nobody waits for the phases before the last; the barrier comes behind all arrivals but the last."""
    turns("bar.sync 1;" + phase(0, 0, "A"), arrival(0) + arrival(0) + "bar.sync 1;" + arrival(0))


@pytest.mark.emulator
def test_a_wait_that_may_be_two_phases_behind() -> None:
    """The wait passes for the third phase; a moment earlier it would have passed for the first."""
    with pytest.raises(MissingBarrier, match="might as well have passed for phase 0, which has the same") as caught:
        turns("bar.sync 1;" + SLOWLY + phase(0, 0, "A"), arrival(0) + "bar.sync 1;" + arrival(0) + arrival(0))
    error = caught.value
    assert error.place is not None and "try_wait" in error.place.ptx_text and error.place.warp == 1
    assert error.report.kind == "ambiguous-phase"
    assert [side.role for side in error.report.sides] == ["waits", "initialises"]
    assert error.report.locations[0].offset == 0
