"""What the emulator's report of each mutant must hold (tests/emulator/mutants.py)."""

from __future__ import annotations

from dataclasses import dataclass

from cutetut.emulator.errors import (
    AsyncMismatch,
    Deadlock,
    DivergentBarrier,
    EmulatorError,
    IllegalInstruction,
    InFlight,
    Misaligned,
    MissingBarrier,
    MissingFence,
    Uninitialized,
)


@dataclass(frozen=True)
class Expected:
    """What a report must hold: the type, regular expressions, and source lines by a part of their text.

    `at` is the line the error happened on; empty where it belongs to no single one.
    """

    error: type[EmulatorError]
    at: str
    says: tuple[str, ...]
    lines: tuple[str, ...] = ()
    hint: str = ""


GEMM_LINE = "cute.gemm(tiled_mma"
LOAD_A, LOAD_B = "cute.copy(load_a", "cute.copy(load_b"
EXPECT_TX = "mbarrier_arrive_and_expect_tx"
INIT_FULL, INIT_EMPTY = "mbarrier_init(full", "mbarrier_init(empty"

EXPECTED = {
    "no_wait_before_wgmma": Expected(
        Uninitialized,
        GEMM_LINE,
        (
            r"operand A of the WGMMA reads shared memory that nothing has written: offset 1024",
            "no copy to it has been issued yet",
        ),
        (LOAD_A, LOAD_B),
        "the wait for such a copy to complete",
    ),
    "no_wait_before_load": Expected(
        Uninitialized,
        "values[i] = sX",
        ("load of shared memory that nothing has written", "96 threads at once"),
        ("cute.copy(load,",),
        "the wait for such a copy to complete",
    ),
    "accumulators_read_in_flight": Expected(
        InFlight,
        "cute.autovec_copy(accumulators",
        (r"register %r\d+ is read while the WGMMA m64n64k16 is still under way",),
        (GEMM_LINE,),
        r"wait_group\(0\) before the accumulators are used; 1 committed group",
    ),
    "accumulators_written_in_flight": Expected(
        InFlight,
        "",
        (r"register %r\d+ is written while the WGMMA m64n64k16 is still under way",),
        (GEMM_LINE,),
        r"wait_group\(0\) before the accumulators are used",
    ),
    "no_wgmma_fence": Expected(
        MissingFence,
        GEMM_LINE,
        ("a WGMMA without any wgmma.fence before it",),
        (),
        "warpgroup.fence",
    ),
    "written_after_wgmma_fence": Expected(
        MissingFence,
        GEMM_LINE,
        (
            "registers of this WGMMA were written since the last wgmma.fence",
            r"they were written here:\n.*\n.*\n  PTX line \d+:  add.f32",
        ),
        (),
        "warpgroup.fence",
    ),
    "no_wgmma_commit": Expected(
        InFlight,
        "cute.autovec_copy(accumulators",
        ("is read while the WGMMA",),
        (GEMM_LINE,),
        "commit_group between the operation and that wait",
    ),
    "no_cp_async_wait": Expected(
        InFlight,
        "cute.copy(read_a,",
        ("still being written by the cp.async of 16 bytes per thread",),
        ("cute.copy(copy, tAgA[None, None, None, stage]",),
        "cp.async.wait_group",
    ),
    "cp_async_wait_off_by_one": Expected(
        InFlight,
        "cute.copy(read_a,",
        ("still being written by the cp.async of 16 bytes per thread",),
        ("cute.copy(copy, tAgA[None, None, None, stage]",),
        "a smaller number of groups",
    ),
    "no_barrier_after_cp_async_wait": Expected(
        MissingBarrier,
        "cute.copy(read_a,",
        ("warp 1 copied with cp.async, and the two have not met since its wait",),
        ("cute.copy(copy, tAgA[None, None, None, stage]",),
        "sync_threads",
    ),
    "no_bulk_wait_before_reuse": Expected(
        InFlight,
        "sY[i * 4 + tid // 32, tid % 32] = values[i]",
        (r"a store to shared memory that is still being read by the TMA store of 8192 bytes at coordinates \(0, 0\)",),
        ("cute.copy(store,",),
        "cp.async.bulk.wait_group.read",
    ),
    "no_proxy_fence_before_tma_store": Expected(
        MissingFence,
        "cute.copy(store_c",
        (r"the TMA store reads shared memory .* warp 4 wrote it with an ordinary store",),
        ("cute.autovec_copy(narrow, tCsC)",),
        "fence.proxy.async",
    ),
    "no_proxy_fence_before_wgmma": Expected(
        MissingFence,
        GEMM_LINE,
        ("operand A of the WGMMA reads shared memory .* with an ordinary store",),
        ("sA[i * 2 + tid // 64, tid % 64] =",),
        "fence.proxy.async",
    ),
    "no_barrier_after_proxy_fence": Expected(
        MissingBarrier,
        "cute.copy(store,",
        ("warp 1 wrote it .* the fence has no barrier behind it that both threads pass",),
        ("sY[i * 4 + tid // 32, tid % 32] = values[i]",),
        "a barrier between",
    ),
    "too_few_bytes_expected": Expected(
        AsyncMismatch,
        LOAD_A,
        (
            r"phase 0 of the mbarrier at shared offset 0 completes here while the TMA load of 8192 bytes "
            r"at coordinates \(0, 0\) is still under way: expect_tx announced 8192 bytes, and 8192 more",
        ),
        (EXPECT_TX, LOAD_B),
        "the byte count of expect_tx",
    ),
    "too_many_bytes_expected": Expected(
        Deadlock,
        "",
        (
            r"warps \[4-7\] wait for phase 0 of the mbarrier at shared offset 0.* 8192 bytes pending",
            "24576 announced, 16384 delivered, 8192 missing",
            r"warps \[1-3\] have exited",
        ),
        ("mbarrier_wait(full + stage", EXPECT_TX, INIT_FULL),
        "the byte count of expect_tx",
    ),
    "too_few_arrivals": Expected(
        Deadlock,
        "",
        (
            r"warps \[0\] wait for phase 0 of the mbarrier at shared offset 24.* 1 of 5 arrivals",
            "each phase takes 5 arrivals",
            r"this phase: 4 arrivals by warps 4-7",
            r"could still arrive: nobody else; warps 4-7 \(tma_gemm.py:\d+, tma_gemm.py:\d+\) only a second time",
        ),
        ("mbarrier_wait(empty + stage", INIT_EMPTY, "mbarrier_arrive(empty + freed)", "mbarrier_arrive(empty + (n"),
        "the arrival count of mbarrier_init",
    ),
    "too_many_arrivals": Expected(
        IllegalInstruction,
        "mbarrier_arrive(empty + freed)",
        (r"4 more arrivals at the mbarrier at shared offset 24: phase 0 \(parity 0\), 1 of 1 arrivals",),
        (INIT_EMPTY,),
        "the arrival count given to mbarrier_init",
    ),
    "producer_parity": Expected(
        Deadlock,
        "",
        (
            r"warps \[0\] wait for phase 0 of the mbarrier at shared offset 24.* 4 of 4 arrivals",
            "this phase: nobody has arrived yet",
        ),
        ("mbarrier_wait(empty + stage", "mbarrier_wait(full + stage"),
        "the parity of the waits",
    ),
    "consumer_parity": Expected(
        Uninitialized,
        GEMM_LINE,
        (
            "shared memory that nothing has written",
            r"its wait at tma_gemm.py:\d+ for the mbarrier at "
            "shared offset 0 passed at once: parity 1 names the phase before the first",
        ),
        ("mbarrier_wait(full + stage", LOAD_A, LOAD_B),
    ),
    "released_too_early": Expected(
        InFlight,
        LOAD_A,
        ("a copy overwrites shared memory that is still being read by the WGMMA m64n64k16",),
        (GEMM_LINE,),
        "wait_group before the stage is released",
    ),
    "no_wait_for_empty": Expected(
        IllegalInstruction,
        EXPECT_TX,
        (
            r"one more arrival at the mbarrier at shared offset 0: phase 0 \(parity 0\), "
            r"0 of 1 arrivals and 32768 bytes pending",
            "the last arrival was here",
        ),
        (INIT_FULL,),
        "a producer must wait until the consumers have released the stage",
    ),
    "no_init_fence": Expected(
        MissingFence,
        "cute.copy(load,",
        ("signals the mbarrier at shared offset 0 through the async proxy, and no fence",),
        ("mbarrier_init(full, 1)",),
        "mbarrier_init_fence",
    ),
    "no_barrier_after_init": Expected(
        MissingBarrier,
        "mbarrier_wait(empty + stage",  # the other lanes of the warp that initialises it
        ("cannot know yet that it is initialised", "31 threads at once"),
        (INIT_EMPTY,),
        "sync_threads",
    ),
    "named_barrier_counts_differ": Expected(
        IllegalInstruction,
        "barrier(barrier_id=FULL",
        (
            "barrier 1 is used with a count of 128 here and with a count of 256 elsewhere",
            "what came of it: load of shared memory at offset 0, which warp 0 has stored to, and nothing",
        ),
        ("barrier_arrive(barrier_id=FULL", "buffer[tid - 128] * 2", "buffer[tid] = mX"),
        "the same number of threads",
    ),
    "named_barrier_count_too_large": Expected(
        Deadlock,
        "",
        (
            r"warps \[0-3\] wait at barrier 2: 256 of 288 threads",
            r"warps \[4-7\] wait at barrier 1: 128 of 288",
            r"arrived without waiting: warps 4-7 \(ping_pong.py:\d+\)",
            "could still arrive: nobody",
        ),
        ("cute.arch.barrier(barrier_id=EMPTY", "cute.arch.barrier(barrier_id=FULL"),
        "the thread count of barrier 1: it waits for 288 threads, and at most 256 can come",
    ),
    "named_barrier_number": Expected(
        Deadlock,
        "",
        (r"warps \[0-3\] wait at barrier 3: 128 of 256 threads", r"warps \[4-7\] wait at barrier 1: 128 of 256"),
        ("barrier(barrier_id=3",),
        "the number and the thread count",
    ),
    "no_barrier_before_load": Expected(
        MissingBarrier,
        "mY[n, tid] = row",
        ("load of shared memory at offset 508, which warp 3 has stored to, and nothing orders the two",),
        ("row[tid] = mX",),
        "a barrier that both warps pass",
    ),
    "no_barrier_before_store": Expected(
        MissingBarrier,
        "row[tid] = mX",
        (r"store to shared memory at offset \d+, which warp \d has loaded from, and nothing orders the two",),
        ("mY[n, tid] = row",),
        "a barrier that both warps pass",
    ),
    "no_barrier_after_bulk_wait": Expected(
        MissingBarrier,
        "sY[i * 4 + tid // 32, tid % 32] = values[i]",
        (r"a store to shared memory at offset \d+, which warp 0 has read or is reading, and nothing orders",),
        ("cute.copy(store,",),
        "the reader's wait, then a barrier",
    ),
    "divergent_barrier": Expected(
        DivergentBarrier,
        "if tid % 32 < 16",
        (
            "bar.sync needs all lanes of a warp together, but only lanes 0-15 of the warp",
            "lanes 16-31 stand at ldmatrix",
        ),
        ("cute.copy(read_a,",),
        "a branch around this line",
    ),
    "divergent_wgmma": Expected(
        DivergentBarrier,
        "if tid < 32",
        (
            "wgmma.commit_group needs all four warps of a warpgroup together, but only warp 0",
            "warps 1-3 stand at wgmma.wait_group",
        ),
        ("warpgroup.wait_group(0)",),
        "only some warps of a warpgroup take",
    ),
    "divergent_ldmatrix": Expected(
        DivergentBarrier,
        "if tid % 32 < 8",
        ("ldmatrix.sync needs all lanes of a warp together, but only lanes 0-7", "lanes 8-31 stand at ldmatrix"),
        ("cute.copy(read_b,",),
        "a branch around this line",
    ),
    "registers_never_given_back": Expected(
        Deadlock,
        "",
        (
            r"warps \[4-11\] wait at setmaxnreg.inc 232 \(registers.py:\d+\): each warp needs 2048 registers more, "
            "the CTA's pool has 0",
            "384 threads with 168 registers at launch",
            "could still give .* back: nobody",
        ),
        ("setmaxregister_increase",),
        "setmaxnreg.dec in the warpgroups that need fewer",
    ),
    "more_registers_than_there_are": Expected(
        Deadlock,
        "",
        (r"warps \[11\] wait at setmaxnreg.inc 240 .* each warp needs 2304 registers more, the CTA's pool has 256",),
        ("setmaxregister_increase",),
        "the sum over all warps",
    ),
    "registers_of_half_a_warpgroup": Expected(
        DivergentBarrier,
        "setmaxregister_decrease",
        (
            "setmaxnreg.dec needs all four warps of a warpgroup together, but only warps 0-1",
            "warps 2-3 stand at setmaxnreg.inc",
        ),
        ("setmaxregister_increase",),
    ),
    "misaligned_destination": Expected(
        Misaligned,
        "cute.copy(load,",
        ("the box goes to shared address 0x410; TMA needs a multiple of 128",),
        (),
        "the alignment of the buffer in shared memory",
    ),
    "uninitialised_operand": Expected(
        Uninitialized,
        GEMM_LINE,
        ("operand B of the WGMMA reads shared memory that nothing has written: offset 8192",),
    ),
    "no_cluster_barrier_at_start": Expected(
        MissingBarrier,
        "cute.copy(load,",
        ("another CTA's shared memory is used before the cluster has met",),
        (),
        "cluster_arrive and cluster_wait",
    ),
    "no_cluster_barrier_at_end": Expected(
        MissingBarrier,
        "mbarrier_arrive(empty, tid)",
        (r"shared memory of CTA \(\d, 0, 0\), which has exited",),
        (),
        "cluster_arrive and cluster_wait at the end",
    ),
}
