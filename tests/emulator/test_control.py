"""Control flow: divergence, barriers, waves, special registers, and the reports when a kernel cannot go on."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from cutetut.emulator.errors import (
    BudgetExceeded,
    Deadlock,
    DivergentBarrier,
    IllegalInstruction,
    LaunchError,
    PtxSyntaxError,
    Trap,
    Uninitialized,
)
from tests.emulator.harness import Dim, kernel, run

# %r1 is this thread's number in its block, %rd2 the address of its word of p0
START = "mov.u32 %r1, %tid.x; ld.param.b64 %rd1, [p0]; mad.wide.u32 %rd2, %r1, 4, %rd1;"
STORE = "st.global.b32 [%rd2], %r2;"


def per_thread(body: str, threads: int = 64, **options: int) -> np.ndarray:
    """What each thread leaves in %r2."""
    out = np.zeros(threads, np.uint32)
    run(kernel(f"{START}\n{body}\n{STORE}"), out, block=(threads, 1, 1), **options)  # type: ignore[arg-type]
    return out


# -- divergence -----------------------------------------------------------------------------------


def test_nested_branches_meet_again() -> None:
    body = """
    mov.u32 %r2, 0; and.b32 %r3, %r1, 1; setp.eq.u32 %p1, %r3, 0; @%p1 bra EVEN;
    add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r1, 20; @!%p2 bra BIG; add.u32 %r2, %r2, 10; bra.uni JOIN;
    BIG: add.u32 %r2, %r2, 100; bra JOIN;
    EVEN: add.u32 %r2, %r2, 1000;
    JOIN: add.u32 %r2, %r2, %r1;"""
    i = np.arange(64)
    np.testing.assert_array_equal(per_thread(body), i + np.where(i % 2 == 0, 1000, np.where(i < 20, 11, 101)))


def test_every_lane_has_its_own_trip_count() -> None:
    """Collatz steps: a loop whose length is different for every lane, with a branch inside."""
    body = """
    mov.u32 %r2, 0; add.u32 %r4, %r1, 1;
    LOOP: setp.eq.u32 %p1, %r4, 1; @%p1 bra DONE;
    and.b32 %r5, %r4, 1; setp.eq.u32 %p2, %r5, 0; add.u32 %r2, %r2, 1;
    @%p2 shr.u32 %r4, %r4, 1; @%p2 bra LOOP;
    mad.lo.u32 %r4, %r4, 3, 1; bra LOOP;
    DONE:"""

    def collatz(n: int) -> int:
        steps = 0
        while n != 1:
            n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
        return steps

    np.testing.assert_array_equal(per_thread(body, 200), [collatz(i + 1) for i in range(200)])


def test_loops_in_loops() -> None:
    body = """
    mov.u32 %r2, 0; mov.u32 %r3, 0;
    OUTER: setp.ge.u32 %p1, %r3, %r1; @%p1 bra END; mov.u32 %r4, 0;
    INNER: setp.gt.u32 %p2, %r4, %r3; @%p2 bra NEXT; mad.lo.u32 %r2, %r3, %r4, %r2; add.u32 %r4, %r4, 1; bra INNER;
    NEXT: add.u32 %r3, %r3, 1; bra OUTER;
    END:"""
    wanted = [sum(a * b for a in range(i) for b in range(a + 1)) for i in range(40)]
    np.testing.assert_array_equal(per_thread(body, 40), wanted)


def test_a_jump_table() -> None:
    body = """
    and.b32 %r3, %r1, 3;
    TABLE: .branchtargets A, B, C, B;
    brx.idx %r3, TABLE;
    A: mov.u32 %r2, 10; bra END;
    B: mov.u32 %r2, 20; bra END;
    C: mov.u32 %r2, 30;
    END: add.u32 %r2, %r2, %r1;"""
    i = np.arange(64)
    np.testing.assert_array_equal(per_thread(body), np.choose(i % 4, [10, 20, 30, 20]) + i)


GUARDED_TABLE = """
    setp.lt.u32 %p1, %r1, 16; and.b32 %r3, %r1, 1; mov.u32 %r4, 5;
    TABLE: .branchtargets A, B;
    @%p1 brx.idx %r3, TABLE;
    add.u32 %r2, %r4, 1; bra END;
    A: mov.u32 %r2, 10; bra END;
    B: mov.u32 %r2, 20;
    END:"""


def test_a_guarded_jump_table_lets_the_others_go_on() -> None:
    i = np.arange(32)
    np.testing.assert_array_equal(per_thread(GUARDED_TABLE, 32), np.where(i < 16, np.where(i & 1, 20, 10), 6))


@pytest.mark.emulator
def test_what_only_the_others_use_has_to_be_written() -> None:
    with pytest.raises(Uninitialized, match=r"16 threads at once|%r2"):
        per_thread(GUARDED_TABLE.replace("mov.u32 %r4, 5;", ""), 32)


def test_early_exits_leave_the_others_running() -> None:
    out = np.zeros(96, np.uint32)
    body = f"""{START} setp.eq.u32 %p1, %r1, 5; @%p1 exit; setp.lt.u32 %p2, %r1, 40; @%p2 bra GO; ret;
    GO: mov.u32 %r2, 7; {STORE}"""
    run(kernel(body), out, block=(96, 1, 1))
    wanted = np.where((np.arange(96) < 40) & (np.arange(96) != 5), 7, 0)
    np.testing.assert_array_equal(out, wanted)


def test_predicated_instructions_touch_only_their_lanes() -> None:
    body = "mov.u32 %r2, 1; setp.gt.u32 %p1, %r1, 9; @%p1 mov.u32 %r2, 2; @!%p1 add.u32 %r2, %r2, 10;"
    np.testing.assert_array_equal(per_thread(body), np.where(np.arange(64) > 9, 2, 11))


# -- barriers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [33, 64, 100, 256])
@pytest.mark.parametrize("sync", ["bar.sync 0;", "barrier.sync 3;", "bar.cta.sync 1;", "barrier.cta.sync.aligned 15;"])
def test_a_barrier_orders_shared_memory(threads: int, sync: str) -> None:
    """A ring: each thread passes a number to the next, several times."""
    body = f"""
    .shared .align 4 .b32 s[256]; mov.u32 %r10, s; mad.lo.u32 %r11, %r1, 4, %r10;
    add.u32 %r12, %r1, 1; rem.u32 %r12, %r12, {threads}; mad.lo.u32 %r13, %r12, 4, %r10;
    mov.u32 %r2, %r1; mov.u32 %r5, 0;
    LOOP: st.shared.b32 [%r11], %r2; {sync} ld.shared.b32 %r2, [%r13]; {sync}
    add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 5; @%p1 bra LOOP;"""
    np.testing.assert_array_equal(per_thread(body, threads), (np.arange(threads) + 5) % threads)


def test_producer_and_consumer_on_named_barriers() -> None:
    """Warp 0 fills, warps 1 and 2 read: bar.arrive does not wait, bar.sync does; six phases."""
    body = """
    .shared .align 4 .b32 s[32]; mov.u32 %r10, s; and.b32 %r3, %r1, 31; mad.lo.u32 %r11, %r3, 4, %r10;
    mov.u32 %r2, 0; mov.u32 %r5, 0; setp.lt.u32 %p1, %r1, 32; @%p1 bra PRODUCER;
    CONSUMER: bar.sync 1, 96; ld.shared.b32 %r6, [%r11]; add.u32 %r2, %r2, %r6; bar.arrive 2, 96;
    add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 6; @%p2 bra CONSUMER; bra END;
    PRODUCER: setp.eq.u32 %p3, %r5, 0; @%p3 bra FILL; bar.sync 2, 96;
    FILL: mad.lo.u32 %r7, %r5, 100, %r3; st.shared.b32 [%r11], %r7; bar.arrive 1, 96;
    add.u32 %r5, %r5, 1; setp.lt.u32 %p4, %r5, 6; @%p4 bra PRODUCER; bar.sync 2, 96;
    END:"""
    wanted = np.where(np.arange(96) < 32, 0, 6 * (np.arange(96) % 32) + 1500)
    np.testing.assert_array_equal(per_thread(body, 96), wanted)


def test_barriers_of_some_warps_only() -> None:
    """Two pairs of warps each use the same barrier number register-indexed, at their own pace."""
    body = """
    .shared .align 4 .b32 s[128]; mov.u32 %r10, s; mad.lo.u32 %r11, %r1, 4, %r10; xor.b32 %r12, %r1, 32;
    mad.lo.u32 %r13, %r12, 4, %r10; shr.u32 %r3, %r1, 6; add.u32 %r4, %r3, 4;
    st.shared.b32 [%r11], %r1; bar.sync %r4, 64; ld.shared.b32 %r2, [%r13];"""
    np.testing.assert_array_equal(per_thread(body, 128), np.arange(128) ^ 32)


@pytest.mark.parametrize(("kind", "wanted"), [("popc.u32", 40), ("and.pred", 0), ("or.pred", 1)])
def test_a_barrier_reduces_a_predicate(kind: str, wanted: int) -> None:
    result, tail = ("%r2", "") if kind.startswith("popc") else ("%p5", "selp.u32 %r2, 1, 0, %p5;")
    body = f"setp.lt.u32 %p1, %r1, 40; bar.red.{kind} {result}, 0, %p1; {tail}"
    np.testing.assert_array_equal(per_thread(body, 96), np.full(96, wanted))
    body = f"setp.lt.u32 %p1, %r1, 40; bar.red.{kind} {result}, 2, 96, !%p1; {tail}"
    opposite = {"popc.u32": 56, "and.pred": 0, "or.pred": 1}[kind]
    np.testing.assert_array_equal(per_thread(body, 96), np.full(96, opposite))


def test_a_barrier_does_not_wait_for_threads_that_exited() -> None:
    """Whole warps and single lanes that are gone no longer count."""
    out = np.zeros(96, np.uint32)
    body = f"""{START} setp.ge.u32 %p1, %r1, 50; @%p1 bra END; bar.sync 0; mov.u32 %r2, 1; {STORE}
    END:"""
    run(kernel(body), out, block=(96, 1, 1))
    np.testing.assert_array_equal(out, np.arange(96) < 50)


def test_a_warp_alone_completes_phase_after_phase() -> None:
    """A count of 32: the warps do not meet, each completes a phase of the same barrier by itself."""
    body = "mov.u32 %r2, 0; L: bar.sync 1, 32; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 3; @%p1 bra L;"
    np.testing.assert_array_equal(per_thread(body, 96), np.full(96, 3))


def test_bar_warp_sync_lets_a_part_of_a_warp_meet() -> None:
    body = """
    .shared .align 4 .b32 s[32]; mov.u32 %r10, s; mad.lo.u32 %r11, %r1, 4, %r10; mov.u32 %r2, 0;
    setp.ge.u32 %p1, %r1, 16; @%p1 bra END; st.shared.b32 [%r11], %r1; bar.warp.sync 0xffff;
    xor.b32 %r12, %r1, 15; mad.lo.u32 %r12, %r12, 4, %r10; ld.shared.b32 %r2, [%r12];
    END:"""
    np.testing.assert_array_equal(per_thread(body, 32), np.where(np.arange(32) < 16, np.arange(32) ^ 15, 0))


# -- progress -------------------------------------------------------------------------------------

LOCK = """
SPIN: atom.global.cas.b32 %r3, [%rd1], 0, 1; setp.ne.u32 %p1, %r3, 0; @%p1 bra SPIN;
membar.gl; ld.global.b32 %r4, [%rd1+4]; add.u32 %r4, %r4, 1; st.global.b32 [%rd1+4], %r4; membar.gl;
atom.global.exch.b32 %r5, [%rd1], 0;"""


@pytest.mark.parametrize("threads", [32, 64])
def test_a_spin_lock_makes_progress_between_lanes_of_a_warp(threads: int) -> None:
    out = np.zeros(2, np.uint32)
    run(
        kernel(f"ld.param.b64 %rd1, [p0];{LOCK}".replace("ld.global", "ld.volatile.global")), out, block=(threads, 1, 1)
    )
    assert out.tolist() == [0, threads]


def test_a_flag_between_two_warps() -> None:
    """Warp 1 spins on a flag that warp 0 raises after a long loop."""
    body = """
    mov.u32 %r2, 0; setp.ge.u32 %p1, %r1, 32; @%p1 bra WAIT;
    mov.u32 %r5, 0; WORK: add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 500; @%p2 bra WORK;
    st.global.b32 [%rd1+256], %r5; membar.gl; mov.u32 %r6, 1; st.volatile.global.b32 [%rd1+260], %r6; bra END;
    WAIT: ld.volatile.global.b32 %r7, [%rd1+260]; setp.eq.u32 %p3, %r7, 0; @%p3 bra WAIT;
    membar.gl; ld.volatile.global.b32 %r2, [%rd1+256];
    END:"""
    out = np.zeros(66, np.uint32)
    run(kernel(f"{START}\n{body}\n{STORE}"), out, block=(64, 1, 1))
    np.testing.assert_array_equal(out[:64], np.where(np.arange(64) < 32, 0, 500))


def test_more_ctas_than_fit_run_in_waves() -> None:
    """Shared memory and registers of a wave are fresh: every CTA sums its own numbers."""
    ctas, threads = 37, 256
    body = """
    .shared .align 4 .b32 total[1]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r10, total;
    setp.ne.u32 %p1, %r1, 0; mov.u32 %r3, 0; @%p1 bra ADD; st.shared.b32 [%r10], %r3;
    ADD: bar.sync 0; add.u32 %r4, %r1, %r2; red.shared.add.u32 [%r10], %r4; bar.sync 0; @%p1 bra END;
    ld.shared.b32 %r5, [%r10]; ld.param.b64 %rd1, [p0]; mad.wide.u32 %rd2, %r2, 4, %rd1; st.global.b32 [%rd2], %r5;
    END:"""
    out = np.zeros(ctas, np.uint32)
    run(kernel(body), out, grid=(ctas, 1, 1), block=(threads, 1, 1))
    np.testing.assert_array_equal(out, threads * np.arange(ctas) + threads * (threads - 1) // 2)


# -- special registers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grid", "block", "cluster"),
    [((1, 1, 1), (32, 1, 1), (1, 1, 1)), ((3, 2, 2), (5, 3, 3), (1, 1, 1)), ((2, 3, 1), (7, 11, 1), (1, 1, 1)),
     ((4, 2, 2), (16, 2, 1), (2, 1, 1)), ((2, 4, 2), (40, 1, 1), (1, 2, 2))],
)  # fmt: skip
def test_special_registers(grid: Dim, block: Dim, cluster: Dim) -> None:
    names = [f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid",
                                            "cluster_ctaid", "cluster_nctaid") for axis in "xyz"]  # fmt: skip
    names += ["%laneid", "%cluster_ctarank", "%cluster_nctarank", "%lanemask_eq", "%lanemask_lt",
              "%lanemask_le", "%lanemask_gt", "%lanemask_ge"]  # fmt: skip
    stores = "".join(f"mov.u32 %r9, {name}; st.global.b32 [%rd2+{4 * i}], %r9;" for i, name in enumerate(names))
    body = f"""
    mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ctaid.y;
    mov.u32 %r6, %ctaid.z; mad.lo.u32 %r6, %r6, {grid[1]}, %r5; mad.lo.u32 %r6, %r6, {grid[0]}, %r4;
    mad.lo.u32 %r6, %r6, {block[2]}, %r3; mad.lo.u32 %r6, %r6, {block[1]}, %r2; mad.lo.u32 %r6, %r6, {block[0]}, %r1;
    ld.param.b64 %rd1, [p0]; mad.wide.u32 %rd2, %r6, {4 * len(names)}, %rd1; {stores}"""
    threads = int(np.prod(block))
    out = np.full((int(np.prod(grid)) * threads, len(names)), 0xDEAD, np.uint32)
    run(kernel(body), out, grid=grid, block=block, cluster=cluster)
    row = 0
    for cz, cy, cx in itertools.product(*(range(n) for n in reversed(grid))):
        for z, y, x in itertools.product(*(range(n) for n in reversed(block))):
            lane = (x + block[0] * (y + block[1] * z)) % 32
            cta = (cx, cy, cz)
            inner = [c % n for c, n in zip(cta, cluster, strict=True)]
            wanted = [x, y, z, *block, *cta, *grid, *(c // n for c, n in zip(cta, cluster, strict=True)),
                      *(g // n for g, n in zip(grid, cluster, strict=True)), *inner, *cluster, lane,
                      inner[0] + cluster[0] * (inner[1] + cluster[1] * inner[2]), int(np.prod(cluster)),
                      1 << lane, (1 << lane) - 1, (2 << lane) - 1,
                      (0xFFFFFFFF << (lane + 1)) & 0xFFFFFFFF, (0xFFFFFFFF << lane) & 0xFFFFFFFF]  # fmt: skip
            assert out[row].tolist() == wanted, (cta, (x, y, z))
            row += 1


def test_clocks_run_forwards() -> None:
    body = """mov.u64 %rd5, %clock64; mov.u32 %r3, 0;
    LOOP: add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 50; @%p1 bra LOOP;
    mov.u64 %rd6, %clock64; setp.gt.u64 %p2, %rd6, %rd5; selp.u32 %r2, 1, 0, %p2; mov.u64 %rd7, %globaltimer;
    setp.eq.u64 %p3, %rd7, 0; @%p3 mov.u32 %r2, 99;"""
    assert (per_thread(body) == 1).all()


# -- what must be an error ------------------------------------------------------------------------


@pytest.mark.emulator
def test_a_barrier_inside_a_divergent_if() -> None:
    body = f"{START} setp.lt.u32 %p1, %r1, 10; @%p1 bra SKIP; bar.sync 0; SKIP: bar.sync 1;"
    with pytest.raises(DivergentBarrier) as error:
        run(kernel(body), np.zeros(64, np.uint32), block=(64, 1, 1))
    text = str(error.value)
    assert "only lanes 10-31" in text and "lanes 0-9 stand at bar.sync" in text
    assert error.value.place is not None and (error.value.place.warp, error.value.place.lane) == (0, 10)


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("body", "error", "says"),
    [
        ("bar.sync 0, 48;", IllegalInstruction, "multiple of 32"),
        ("bar.sync 16;", IllegalInstruction, "barriers 0 to 15"),
        ("setp.lt.u32 %p1, %r1, 32; @%p1 bra A; bar.sync 1, 96; A: bar.sync 1, 64;", IllegalInstruction, "pending"),
        ("shr.u32 %r3, %r1, 5; mad.lo.u32 %r3, %r3, 32, 64; bar.sync 1, %r3;", IllegalInstruction, "pending"),
    ],
)
def test_wrong_thread_counts(body: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        run(kernel(f"{START} {body}"), np.zeros(64, np.uint32), block=(64, 1, 1))


@pytest.mark.emulator
def test_a_deadlock_lists_every_barrier_that_is_waited_for() -> None:
    body = f"""{START} setp.lt.u32 %p1, %r1, 32; @%p1 bra A;
    bar.sync 2, 96; ret;
    A: bar.sync 5, 64;"""
    text = kernel(body)
    lines = {n: 1 + text[: text.index(f"bar.sync {n}")].count("\n") for n in (2, 5)}
    with pytest.raises(Deadlock) as error:
        run(text, np.zeros(96, np.uint32), grid=(2, 1, 1), block=(64, 1, 1))
    report = str(error.value)
    for cta in ("(0, 0, 0)", "(1, 0, 0)"):
        assert f"CTA {cta}, warps [1] wait at barrier 2: 32 of 96 threads have arrived (PTX line {lines[2]})" in report
        assert f"CTA {cta}, warps [0] wait at barrier 5: 32 of 64 threads have arrived (PTX line {lines[5]})" in report
    assert "thread count" in report


@pytest.mark.emulator
def test_different_barriers_for_all_threads_deadlock() -> None:
    with pytest.raises(Deadlock, match="barrier 1: 32 of 64"):
        run(kernel(f"{START} shr.u32 %r3, %r1, 5; bar.sync %r3;"), np.zeros(64, np.uint32), block=(64, 1, 1))


@pytest.mark.emulator
def test_an_endless_loop_runs_out_of_its_budget() -> None:
    with pytest.raises(BudgetExceeded, match="CUTETUT_BUDGET") as error:
        run(kernel(f"{START}\nLOOP: add.u32 %r1, %r1, 1;\nbra LOOP;"), np.zeros(32, np.uint32), budget=1000)
    assert error.value.place is not None and error.value.place.ptx_line is not None
    assert re.search(r"has taken 100\d steps and has not ended; its budget is 1000\n", str(error.value))


@pytest.mark.emulator
def test_a_budget_that_is_only_too_small_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine instructions in three blocks; the budget is looked at behind each."""
    three = kernel(f"{START} bra A;\nA: add.u32 %r1, %r1, 1; bra B;\nB: add.u32 %r1, %r1, 1;")
    monkeypatch.setenv("CUTETUT_BUDGET", "2")
    with pytest.raises(BudgetExceeded, match=r"steps and has not ended; its budget is 2\n(.|\n)*if there is none"):
        run(three, np.zeros(32, np.uint32))
    monkeypatch.setenv("CUTETUT_BUDGET", "1e2")
    run(three, np.zeros(32, np.uint32))


@pytest.mark.emulator
@pytest.mark.parametrize("text", ["ten", "0", "-5", "0.5", "nan", "inf"])
def test_what_is_no_budget_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTETUT_BUDGET", text)
    with pytest.raises(LaunchError, match=f"CUTETUT_BUDGET='{text}' is not a number of steps, of 1 or more"):
        run(kernel(START), np.zeros(32, np.uint32))


@pytest.mark.emulator
def test_trap_names_the_thread() -> None:
    with pytest.raises(Trap) as error:
        run(kernel(f"{START} setp.eq.u32 %p1, %r1, 37; @%p1 trap;"), np.zeros(64, np.uint32), block=(64, 1, 1))
    assert error.value.place is not None and error.value.place.thread == (37, 0, 0)


@pytest.mark.emulator
def test_a_call_of_an_unknown_function() -> None:
    with pytest.raises(PtxSyntaxError, match="helper is not declared"):
        run(kernel("call.uni helper, ();"), np.zeros(1, np.uint32))
