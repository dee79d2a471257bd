"""Who learns what from a wait: single lanes, relaxed waits, and operations that arrive by themselves."""

from __future__ import annotations

import torch

from cutetut.emulator.errors import EmulatorError, IllegalInstruction, InFlight, MissingBarrier
from tests.emulator.mutants import Case
from tests.emulator.ordering.model import NOTHING, RACE, Harmless, Kernel, Mistake, elementwise, mirrored, numbers

WARP = 32
UNDER_WAY: tuple[type[EmulatorError], ...] = (InFlight, MissingBarrier)
READ_ONLY: tuple[type[EmulatorError], ...] = (IllegalInstruction,)


def _post() -> Case:
    x = numbers(WARP)
    return [x, torch.zeros_like(x), torch.zeros(1, dtype=torch.int32), torch.zeros_like(x)], mirrored(x.double())


def _twice() -> Case:
    x = numbers(2 * WARP)
    return [x, torch.zeros_like(x), torch.zeros_like(x)], mirrored(x.double())


KERNELS = {
    "relaxed": Kernel("order_waits", "relaxed", elementwise((WARP,), mirrored)),
    "relaxed_bulk": Kernel("order_waits", "bulk", elementwise((WARP,), mirrored)),
    "lane": Kernel("order_waits", "lane", elementwise((WARP,), mirrored)),
    "alone": Kernel("order_waits", "alone", elementwise((WARP,), mirrored)),
    "refill": Kernel("order_waits", "refill", elementwise((2, WARP), lambda x: x + 1)),
    "post": Kernel("order_waits", "post", _post),
    "arrives": Kernel("order_waits", "arrives", elementwise((WARP,), lambda x: torch.cat([x, x.flip(0) + 1]))),
    "twice": Kernel("order_waits", "twice", _twice),
    "tally": Kernel("order_waits", "tally", elementwise((2, WARP), lambda x: x.sum(0))),
    "deliver": Kernel("order_waits", "deliver", elementwise((WARP,), mirrored)),
}

ADDS_0, ADDS_1 = (f"cute.arch.atomic_add(mY.iterator + tid, mX[{i}, tid]" for i in (0, 1))
OF_CTA_0, OF_CTA_1 = ((adds, adds + ', sem="relaxed", scope="cta")') for adds in (ADDS_0, ADDS_1))
LANE, POST = ("# for the other warp", "# by all lanes"), ("mRow[tid] = mX", "mY[n] = mRow")
NC = "mY[tid] = load_read_only(mT.iterator + (2 * WARP - 1 - tid))"

MISTAKES = {
    "relaxed_wait_without_fence": Mistake(
        "relaxed", (("# behind the wait", NOTHING),), RACE, ("# handed over", "# taken")
    ),
    "relaxed_wait_for_a_copy_without_fence": Mistake(
        "relaxed_bulk", (("# behind the copy's wait", NOTHING),), UNDER_WAY, ("# brings the row", "# brought")
    ),
    "relaxed_wait_with_a_proxy_fence": Mistake(
        "relaxed", (("# behind the wait", 'cute.arch.fence_proxy("async")'),), RACE, ("# handed over", "# taken")
    ),
    "one_lane_waits_for_its_warp": Mistake("lane", (("# all lanes of the reader", NOTHING),), RACE, LANE),
    "one_lane_waits_before_a_shuffle": Mistake(
        "lane", (("# all lanes of the reader", "n = cute.arch.shuffle_sync(tid, offset=tid % WARP)"),), RACE, LANE
    ),
    "one_lane_waits_before_a_vote": Mistake(
        "lane", (("# all lanes of the reader", "cute.arch.vote_ballot_sync(tid >= WARP)"),), RACE, LANE
    ),
    "another_lane_copies": Mistake(
        "alone", (("# and has the row copied", "if tid == WARP + 1:"),), UNDER_WAY, ("# for the copy", "# out")
    ),
    "one_lane_waits_for_a_bulk_store": Mistake(
        "refill", (("# all lanes know of the store", NOTHING),), UNDER_WAY, ("# fills the row", "# stores the row")
    ),
    "one_lane_waits_for_a_flag": Mistake("post", (("# all lanes know of the flag", NOTHING),), RACE, POST),
    "one_lane_waits_for_a_flag_before_a_shuffle": Mistake(
        "post", (("# all lanes know of the flag", "n = cute.arch.shuffle_sync(tid, offset=tid)"),), RACE, POST
    ),
    "store_behind_a_copys_arrival": Mistake(
        "arrives",
        (("# before its arrival", NOTHING),
         ("# by those who copy", "other[tid] = 1.0; cute.arch.mbarrier_wait(full, 0)")),
        RACE, ("other[tid] = 1.0; ", "# both rows")
    ),
    "own_copy_not_waited_for": Mistake(
        "arrives", (("# by those who copy", NOTHING),), UNDER_WAY, ("# copies a number", "# its own copy")
    ),
    "read_only_load_of_a_written_row": Mistake(
        "twice", (("# from the row", NC),), READ_ONLY, ("# into the row", "# read-only")
    ),
    "sums_of_the_cta": Mistake("tally", (OF_CTA_0, OF_CTA_1), RACE, (ADDS_0, ADDS_1)),
    "sums_of_the_cta_and_the_gpu": Mistake("tally", (OF_CTA_0,), RACE, (ADDS_0, ADDS_1)),
    "sums_of_the_gpu_and_the_cta": Mistake("tally", (OF_CTA_1,), RACE, (ADDS_0, ADDS_1)),
    "async_store_not_waited_for": Mistake(
        "deliver", (("# for the row", NOTHING),), UNDER_WAY, ("# delivers", "# delivered"),
    ),
}  # fmt: skip

HARMLESS: Harmless = {
    "relaxed_wait_and_a_wider_fence": ("relaxed", (("# behind the wait", "cute.arch.fence_acq_rel_gpu()"),)),
    "relaxed_wait_of_one_lane": (
        "relaxed",
        (("# of warp 1", "if tid == WARP: wait_relaxed(full); cute.arch.fence_acq_rel_cta()"),
         ("# behind the wait", "cute.arch.sync_warp()")),
    ),
    "all_lanes_wait": ("lane", (("# only one", "if tid >= WARP:"), ("# all lanes of the reader", NOTHING))),
    "barrier_of_the_reader": (
        "lane", (("# all lanes of the reader", "cute.arch.barrier(barrier_id=1, number_of_threads=32)"),),
    ),
    "the_lane_itself_reads": ("post", (("# all lanes know of the flag", NOTHING), ("mY[n] = mRow", """if n == 0:
            for i in cutlass.range_constexpr(WARP): mY[i] = mRow[WARP - 1 - i]"""))),
    "sums_of_the_gpu_and_the_system": ("tally", ((ADDS_1, f'{ADDS_1}, sem="relaxed", scope="sys")'),)),
}  # fmt: skip
