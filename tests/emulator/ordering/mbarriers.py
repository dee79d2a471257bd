"""mbarriers and the cluster's barrier: what they order, and what their memory holds."""

from __future__ import annotations

import torch

from cutetut.emulator.errors import (
    AsyncMismatch,
    Deadlock,
    EmulatorError,
    IllegalInstruction,
    InFlight,
    MissingBarrier,
    MissingFence,
    OutOfBounds,
)
from tests.emulator.mutants import CASES
from tests.emulator.ordering.model import NOTHING, RACE, Harmless, Kernel, Mistake, elementwise, mirrored

THREADS = 128
OVERWRITTEN: tuple[type[EmulatorError], ...] = (
    IllegalInstruction, MissingBarrier, InFlight, AsyncMismatch, OutOfBounds,
)  # fmt: skip


def _of_the_other(x: torch.Tensor) -> torch.Tensor:
    return x.flip(0).flip(1)


RELAXED = "cute.arch.mbarrier_arrive(full, 1 - rank, scope=MemScopeKind.CLUSTER, relaxed=True)"
FENCE = "cute.arch.fence_acq_rel_cluster()"

KERNELS = {
    "handover": Kernel("order_mbarriers", "handover", elementwise((THREADS,), mirrored)),
    "fenced_handover": Kernel("order_mbarriers", "fenced_handover", elementwise((THREADS,), mirrored)),
    "rounds": Kernel("order_mbarriers", "rounds", elementwise((3,), lambda x: x[:, None].expand(3, 32))),
    "buffers": Kernel("order_mbarriers", "buffers", elementwise((6, 32), lambda x: x)),
    "beside": Kernel("order_mbarriers", "beside", elementwise((THREADS,), mirrored)),
    "bulk": Kernel("order_mbarriers", "bulk", elementwise((THREADS,), mirrored)),
    "again": Kernel("order_mbarriers", "again", elementwise((THREADS,), lambda x: x.flip(0)[:32].repeat(4))),
    "cluster": Kernel("order_mbarriers", "cluster", elementwise((2, THREADS), _of_the_other)),
    "fenced_cluster": Kernel("order_mbarriers", "fenced_cluster", elementwise((2, THREADS), _of_the_other)),
    "neighbours": Kernel("order_mbarriers", "neighbours", elementwise((2, THREADS), _of_the_other)),
    "copied": Kernel("order_mbarriers", "copied", elementwise((2, THREADS), _of_the_other)),
    "guests": Kernel("order_mbarriers", "guests", elementwise((THREADS,), mirrored)),
    "one_warp": Kernel("order_mbarriers", "one_warp", elementwise((32,), mirrored)),
    "tma_copy": Kernel("tma_copy", "run", CASES["tma_copy"]),
}

MISTAKES = {
    "arrival_relaxed": Mistake(
        "handover", (("# handing over", "cute.arch.mbarrier_arrive(full, relaxed=True)"),), RACE,
        ("# handed over", "# taken"), new=True,
    ),
    "arrival_relaxed_without_fence": Mistake(
        "fenced_handover", (("# before the arrival\n", NOTHING),), RACE, ("# fenced\n", "# behind the fence"), new=True
    ),
    "cluster_arrival_relaxed": Mistake(
        "cluster", (("# the row is there", "cute.arch.cluster_arrive_relaxed()"),), RACE,
        ("# for the other CTA\n", "# the remote load"), new=True,
    ),
    "cluster_arrival_relaxed_without_fence": Mistake(
        "fenced_cluster", (("# before the arrival at", NOTHING),), RACE,
        ("# for the other CTA, fenced", "# the remote load"), new=True,
    ),
    "cluster_arrival_relaxed_after_a_fence_of_the_cta": Mistake(
        "fenced_cluster", (("# before the arrival at", "cute.arch.fence_acq_rel_cta()"),), RACE,
        ("# for the other CTA, fenced", "# the remote load"),
    ),
    "remote_arrival_with_the_scope_of_the_cta": Mistake(
        "neighbours", (("# tells it", "cute.arch.mbarrier_arrive(full, 1 - rank)"),), RACE,
        ("# for the neighbour", "cute.arch.mbarrier_arrive(full, 1 - rank)", "# the remote load"),
    ),
    "remote_arrival_relaxed": Mistake(
        "neighbours", (("# tells it", RELAXED),), RACE, ("# for the neighbour", "# the remote load")
    ),
    "remote_arrival_relaxed_after_a_fence_of_the_cta": Mistake(
        "neighbours", (("# tells it", f"cute.arch.fence_acq_rel_cta(); {RELAXED}"),), RACE,
        ("# for the neighbour", RELAXED, "# the remote load"),
    ),
    "remote_reader_is_not_waited_for": Mistake(
        "neighbours", (("# has been read", NOTHING),), RACE, ("# for the neighbour", "# the remote load")
    ),
    "copy_passed_on_with_the_scope_of_the_cta": Mistake(
        "copied", (("# passes the copy on", "cute.arch.mbarrier_arrive(full, 1 - rank)"),), RACE,
        ("# by the owner", "cute.arch.mbarrier_arrive(full, 1 - rank)", "# the remote load"),
    ),
    "exit_when_one_lane_of_each_warp_has_read": Mistake(
        "guests", (("# all lanes have read", NOTHING),), RACE, ("mbarrier_wait(read, 0)", "# the remote load")
    ),
    "exit_when_one_warp_has_read": Mistake(
        "guests",
        (("# every warp", "cute.arch.mbarrier_init(read, 1)"), ("# says so", "if tid == THREADS - 32:")), RACE,
        ("mbarrier_wait(read, 0)", "# the remote load"),
    ),
    # a wait sees only whether the last phase of its parity is complete: it must not fall behind by two
    "two_phases_ahead": Mistake(
        "rounds", (("# the number before has been read", NOTHING),), (Deadlock, MissingBarrier, IllegalInstruction),
        ("mbarrier_wait(full, n & 1)",),
    ),
    "one_mbarrier_for_two_buffers": Mistake(
        "buffers",
        (
            ("# one for each buffer", "cute.arch.mbarrier_arrive(full)"),
            ("# that of the buffer", "cute.arch.mbarrier_wait(full, n % 2)"),
        ),
        (Deadlock,), ("mbarrier_wait(full, n % 2)",),
    ),
    "store_over_an_mbarrier": Mistake(
        "beside", (("SHIFT = 0", "SHIFT = 2"),), OVERWRITTEN, ("row[tid + SHIFT] = mX[tid]", "# behind the row\n"),
        new=True,
    ),
    "copy_over_an_mbarrier": Mistake(
        "bulk", (("SHIFT = 0", "SHIFT = 4"),), OVERWRITTEN, ("cute.copy(copy,", "# behind the row that"), new=True
    ),
    "mbarrier_initialised_twice": Mistake(
        "again", (("# no longer an mbarrier", NOTHING),), OVERWRITTEN, ("# again",), new=True
    ),
    "mbarrier_of_a_lane_that_the_others_have_not_met": Mistake(
        "one_warp", (("# the other lanes learn", NOTHING),), RACE, ("# every lane", "# by one lane")
    ),
    "fence_of_another_warp": Mistake(
        "tma_copy", (("mbarrier_init_fence()", "if warp == 1: cute.arch.mbarrier_init_fence()"),), (MissingFence,),
        ("cute.copy(load,", "mbarrier_init(full, 1)"), new=True,
    ),
}  # fmt: skip

HARMLESS: Harmless = {
    "mbarrier_of_a_lane_that_the_others_have_met_at_the_relaxed_barrier_of_the_cluster": (
        "one_warp", (("# the other lanes learn", "cute.arch.cluster_arrive_relaxed(); cute.arch.cluster_wait()"),),
    ),
    "cluster_arrival_relaxed_orders_within_a_cta_after_its_fence": (
        "fenced_cluster",
        (
            ("# before the arrival at", "cute.arch.fence_acq_rel_cta()"),
            ("# across", "mY[rank, tid] = row[tid ^ 64] - row[tid ^ 64] + mX[1 - rank, THREADS - 1 - tid]"),
        ),
    ),
    "remote_arrival_after_a_fence": (
        "neighbours", (("# tells it", f"{FENCE}; cute.arch.mbarrier_arrive(full, 1 - rank)"),),
    ),
    "copy_passed_on_after_a_fence": (
        "copied", (("# passes the copy on", f"{FENCE}; cute.arch.mbarrier_arrive(full, 1 - rank)"),),
    ),
    "remote_arrival_relaxed_after_a_fence": ("neighbours", (("# tells it", f"{FENCE}; {RELAXED}"),)),
    "remote_reader_arrives_with_the_scope_of_the_cluster": (
        "neighbours",
        (("# has read", "cute.arch.mbarrier_arrive(empty, 1 - rank, scope=MemScopeKind.CLUSTER)"),),
    ),
    "fence_by_the_initialising_thread": (
        "tma_copy", (("mbarrier_init_fence()", "if tid == 0: cute.arch.mbarrier_init_fence()"),),
    ),
}  # fmt: skip
