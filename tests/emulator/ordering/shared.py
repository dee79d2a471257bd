"""Shared memory between warps and between CTAs."""

from __future__ import annotations

import torch

from tests.emulator.mutants import Case
from tests.emulator.ordering.model import NOTHING, RACE, Harmless, Kernel, Mistake, elementwise, mirrored, numbers

VOLATILE = (
    'cute.arch.inline_ptx("ld.volatile.global.f32 {$w0}, [{$r0}];", write_only_types=[cutlass.Float32], '
    "read_only_args=[mX.iterator.toint()])"
)
ROW, MIRRORED = "row[tid] = mX[n, tid]", "mY[n, tid] = row[THREADS - 1 - tid]"
THERE, READ = "# the row is there", "# the row is no longer needed"
TURN, PAIRS_BARRIER = "# the next pair's turn", "# the pair's half is there"
PAIR_OF_ITS_OWN = "cute.arch.barrier(barrier_id=1 + pair, number_of_threads=64)"
REMOTE = "# the remote store"
CODE, CODES_READ = "code[tid] = mX[n, tid]", "mY[n, tid] = code[THREADS - 1 - tid]"


def _histogram() -> Case:
    x = (numbers(128) * 7 % 16).int()
    return [x, torch.zeros(16, dtype=torch.int32)], torch.bincount(x.long(), minlength=16).double()


KERNELS = {
    "rows": Kernel("order_shared", "rows", elementwise((3, 128), mirrored)),
    "codes": Kernel("order_shared", "codes", elementwise((3, 128), mirrored, torch.int8)),
    "halves": Kernel("order_shared", "halves", elementwise((64,), lambda x: x.roll(32), torch.float16)),
    "turns": Kernel("order_shared", "turns", elementwise((2, 32), lambda x: x[1].repeat(2))),
    "two_pairs": Kernel("order_shared", "two_pairs", elementwise((128,), lambda x: x.view(2, 64).flip(1).reshape(128))),
    "broadcast": Kernel("order_shared", "broadcast", elementwise((3,), lambda x: x[:, None].expand(3, 128))),
    "count": Kernel("order_shared", "count", _histogram),
    "lock": Kernel("order_shared", "lock", elementwise((4,), lambda x: x.sum()[None], torch.int32)),
    "leave": Kernel(
        "order_shared", "leave", elementwise((128,), lambda x: torch.cat([x.flip(0)[:96], torch.zeros(32)]))
    ),
    "gather": Kernel("order_shared", "gather", elementwise((2, 32), lambda x: x.sum(0))),
    "send": Kernel("order_shared", "send", elementwise((3, 32), mirrored)),
}  # fmt: skip


def _instead_of_a_barrier(name: str, new: str) -> dict[str, Mistake]:
    """The same line in place of either barrier of `rows`."""
    lines, fence = (ROW, MIRRORED), not name.startswith("sync_warp")
    return {
        f"{name}_before_load": Mistake("rows", ((THERE, new),), RACE, lines, new=fence),
        f"{name}_before_store": Mistake("rows", ((READ, new),), RACE, lines, new=fence),
    }


MISTAKES = {
    **_instead_of_a_barrier("fence_of_the_cta", "cute.arch.fence_acq_rel_cta()"),
    **_instead_of_a_barrier("fence_of_the_gpu", "cute.arch.fence_acq_rel_gpu()"),
    **_instead_of_a_barrier("volatile_load", VOLATILE),
    **_instead_of_a_barrier("sync_warp", "cute.arch.sync_warp()"),
    "bytes_read_too_early": Mistake("codes", (("# the bytes are there", NOTHING),), RACE, (CODE, CODES_READ), new=True),
    "bytes_written_too_early": Mistake(
        "codes", (("# the bytes are no longer needed", NOTHING),), RACE, (CODE, CODES_READ), new=True
    ),
    "upper_half_read_too_early": Mistake(
        "halves", (("# both halves are there", NOTHING),), RACE,
        ("half[2 * lane + warp] = mX[tid]", "mY[tid] = half"),
    ),
    "two_warps_write": Mistake(
        "turns", (("# the first value is there", NOTHING),), RACE, ("mX[0, lane]", "mX[1, lane]"), new=True
    ),
    "one_barrier_for_two_pairs": Mistake(
        "two_pairs", ((TURN, NOTHING),), RACE, (PAIRS_BARRIER, PAIRS_BARRIER), new=True
    ),
    "only_the_last_reader_releases": Mistake(
        "broadcast", (("FIRST, LAST = 0, 3", "FIRST, LAST = 3, 3"),), RACE,
        ("number[0] = mX[n]", "mY[n, tid] = number[0]"), new=True,
    ),
    "only_the_first_reader_releases": Mistake(
        "broadcast", (("FIRST, LAST = 0, 3", "FIRST, LAST = 0, 0"),), RACE,
        ("number[0] = mX[n]", "mY[n, tid] = number[0]"),
    ),
    "store_before_an_atomic": Mistake(
        "count", (("# the bins are empty", NOTHING),), RACE, ("bins[tid] = Int32(0)", "atomic_add("), new=True
    ),
    "load_after_an_atomic": Mistake(
        "count", (("# all are counted", NOTHING),), RACE, ("mY[tid] = bins", "atomic_add(")
    ),
    "lock_taken_relaxed": Mistake(
        "lock", (("taken = cute.arch.atomic_cas(guard, cmp=Int32(0), val=Int32(1), sem=\"acquire\", scope=\"cta\")\n",
                  "taken = cute.arch.atomic_cas(guard, cmp=Int32(0), val=Int32(1))"),
                 ("# again", "taken = cute.arch.atomic_cas(guard, cmp=Int32(0), val=Int32(1))")),
        RACE, ("words[1] = words[1] + mX",),
    ),
    "lock_freed_relaxed": Mistake(
        "lock", (("# free again", 'cute.arch.store(guard, Int32(0), sem="relaxed", scope="cta")'),),
        RACE, ("words[1] = words[1] + mX",),
    ),
    "no_lock": Mistake(
        "lock", (("while taken != 0", "while taken == 2:"),), RACE, ("words[1] = words[1] + mX",),
    ),
    "exited_warp": Mistake(
        "leave", (("# all four warps", NOTHING), ("# the other three warps", "cute.arch.sync_threads()")),
        RACE, ("row[tid] = mX[tid]\n", "mY[tid] = row[THREADS"),
    ),
    "two_ctas_write": Mistake(
        "gather", (("place = tid + 32 * rank", "place = tid"),), RACE, (REMOTE,), new=True
    ),
    "no_arrival_after_remote_store": Mistake(
        "send", (("# the row has been sent", "cute.arch.mbarrier_arrive(full, 0, relaxed=True, scope=CLUSTER)"),),
        RACE, (REMOTE, "row[31 - tid]"), new=True,
    ),
    "remote_row_overwritten": Mistake(
        "send", (("wait_cluster(empty", NOTHING),), RACE, (REMOTE, "row[31 - tid]"),
    ),
}  # fmt: skip

HARMLESS: Harmless = {
    "a_barrier_for_each_pair": ("two_pairs", ((TURN, NOTHING), (PAIRS_BARRIER, PAIR_OF_ITS_OWN))),
    "fence_beside_the_barrier": ("rows", ((THERE, "cute.arch.fence_acq_rel_cta(); cute.arch.sync_threads()"),)),
}
