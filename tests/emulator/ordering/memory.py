"""Global memory between warps and between the CTAs of a grid."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.emulator.mutants import Case
from tests.emulator.ordering.model import NOTHING, UNORDERED, Harmless, Kernel, Mistake, elementwise, mirrored, numbers

THREADS, PARTS, CTAS = 64, 4, 70  # 70 CTAs of 64 threads: more than the emulator runs at once


def through(
    shape: tuple[int, ...], between: tuple[int, ...], words: int, function: Callable[[torch.Tensor], torch.Tensor]
) -> Callable[[], Case]:
    """A case with a tensor that the kernel writes and reads again (none if it has no size), and words that are 0."""

    def case() -> Case:
        x = numbers(*shape)
        want = function(x.double())
        middle = [torch.zeros(between)] if between else []
        return [x, *middle, torch.zeros(words, dtype=torch.int32), torch.zeros(want.shape)], want

    return case


ROWS = PARTS, THREADS
KERNELS = {
    "row": Kernel("order_global", "row", lambda: _row()),
    "flag": Kernel("order_global", "flag", through((THREADS,), (THREADS,), 1, mirrored)),
    "fenced": Kernel("order_global", "fenced", through((THREADS,), (THREADS,), 1, mirrored)),
    "turnstile": Kernel("order_global", "turnstile", through(ROWS, (), 1, lambda x: x.sum(0))),
    "fixup": Kernel("order_global", "fixup", through(ROWS, ROWS, 1, lambda x: x.sum(0))),
    "mutex": Kernel("order_global", "mutex", through(ROWS, (), 1, lambda x: x.sum(0))),
    "grid": Kernel("order_global", "grid", through(ROWS, ROWS, 1, lambda x: x.roll(-1, 0))),
    "scan": Kernel("order_global", "scan", through((12,), (12, 2), 12, lambda x: x.cumsum(0))),
    "last": Kernel("order_global", "last", through((CTAS, THREADS), (CTAS, THREADS), 1, lambda x: (x + 1).sum(0))),
    "tiles": Kernel("order_global", "tiles", elementwise((CTAS, THREADS), lambda x: x + 1)),
    "stripes": Kernel("order_global", "stripes", elementwise((2, THREADS), lambda x: x.T.flatten(), torch.int8)),
    "sums": Kernel("order_global", "sums", elementwise((CTAS, THREADS), lambda x: x.sum(0))),
}  # fmt: skip


def _row() -> Case:
    x = numbers(THREADS)
    return [x, torch.zeros_like(x), torch.zeros_like(x)], mirrored(x.double())


def of(kernel: str, lines: tuple[str, ...], **changes: tuple[str, str]) -> dict[str, Mistake]:
    """Mistakes of a kernel of one line each, which all make the same two accesses race."""
    return {name: Mistake(kernel, (change,), UNORDERED, lines, new=True) for name, change in changes.items()}


RAISE = "cute.arch.store(mFlag.iterator, Int32(1){})"
FENCE_CTA = "cute.arch.fence_acq_rel_cta()"
RELAXED, OF_CTA = ', sem="relaxed", scope="gpu"', ', sem="release", scope="cta"'
WROTE, READS = "mRow[tid] = mX[tid]", "mY[tid] = mRow[THREADS - 1 - tid]"
ADDED = "mY[tid] = mY[tid] + mX"
SWAPPED = 'cute.arch.store(mState.iterator + cta, Int32(1), sem="release", scope="gpu"); mValue[cta, 0] = own'

SUM_OF_THE_CTA = 'cute.arch.atomic_add(mAll.iterator + tid, mX[cta, tid], scope="cta")'


MISTAKES = {
    **of("row", ("mOwn[tid] = mX", "mY[tid] = mOwn["), warps_of_one_cta=("# the row is there", NOTHING)),
    **of(
        "flag", (WROTE, READS),
        flag_relaxed=("# raise", RAISE.format(RELAXED)),
        flag_read_relaxed=("while read(mFlag", "while read_relaxed(mFlag.iterator) == 0:"),
        flag_before_the_others_wrote=("# all have written", NOTHING),
        one_thread_waits=("# the flag is up", NOTHING),
        nobody_waits=("while read(mFlag", "while read(mFlag.iterator) == 2:"),
    ),
    # the flag itself may be named, since a store that is not strong enough and an acquiring load of it race too
    **of(
        "flag", (), flag_plain=("# raise", "mFlag[0] = Int32(1)"), flag_of_the_cta=("# raise", RAISE.format(OF_CTA)),
    ),
    **of(
        "fenced", ("mLine[tid] = mX", "mY[tid] = mLine["),
        no_fence_before_the_flag=("# before the flag goes up", NOTHING),
        no_fence_behind_the_flag=("# behind the flag", NOTHING),
        fence_of_the_cta_before_the_flag=("# before the flag goes up", FENCE_CTA),
        fence_of_the_cta_behind_the_flag=("# behind the flag", FENCE_CTA),
    ),
    "volatile_flag_without_fence": Mistake(
        "fenced",
        (("while read_relaxed(mFlag", "while read_volatile(mFlag.iterator) == 0:"), ("# behind the flag", NOTHING)),
        UNORDERED, ("mLine[tid] = mX", "mY[tid] = mLine["),
    ),
    **of(
        "turnstile", (ADDED,),
        nobody_waits_for_the_turn=("while read(mTurn", "while read(mTurn.iterator) < 0:"),
        one_thread_waits_for_the_turn=("# it is this CTA's turn", NOTHING),
        turn_before_the_others_added=("# all have added", NOTHING),
        turn_relaxed=("# the next turn", "cute.arch.store(mTurn.iterator, cta + 1" + RELAXED + ")"),
    ),
    **of(
        "fixup", ("mPart[cta, tid] = mX", "total += mPart[part, tid]"),
        part_not_waited_for=("while read(mReady", "while read(mReady.iterator) < 0:"),
        part_announced_relaxed=("# one more", "cute.arch.atomic_add(mReady.iterator, Int32(1)" + RELAXED + ")"),
        part_announced_too_early=("# the part is there", NOTHING),
    ),
    **of(
        "mutex", ("mSum[tid] = mSum",),
        mutex_taken_relaxed=(
            "while cute.arch.atomic_cas", "while cute.arch.atomic_cas(mLock.iterator, cmp=Int32(0), val=Int32(1)) != 0:"
        ),
        mutex_freed_relaxed=("# unlock", "cute.arch.store(mLock.iterator, Int32(0)" + RELAXED + ")"),
        mutex_freed_by_the_first=("# the row is complete", NOTHING),
        mutex_left_out=("while cute.arch.atomic_cas", "while read(mLock.iterator) == 2:"),
    ),
    **of(
        "grid", ("mRow[cta, tid] = mX", "mRow[(cta + 1) % PARTS, tid]"),
        grid_without_first_fence=("# before the arrival", NOTHING),
        grid_without_second_fence=("# behind the wait", NOTHING),
        grid_without_wait=("while read_relaxed(mCount", "while read_relaxed(mCount.iterator) > PARTS:"),
        grid_without_first_barrier=("# the CTA's row is there", NOTHING),
        grid_without_second_barrier=("# all rows are there", NOTHING),
    ),
    "state_before_the_number": Mistake(
        "scan", (("mValue[cta, 0] = own", NOTHING), ("# the own number is there", SWAPPED)), UNORDERED,
        ("mValue[cta, 0] = own", "mValue[back, 0]"), new=True,
    ),
    "state_before_the_prefix": Mistake(
        "scan", (("# for those behind", NOTHING), ("mY[cta] = prefix", "mValue[cta, 1] = prefix; mY[cta] = prefix")),
        UNORDERED, ("mValue[cta, 1] = prefix", "mValue[back, 1]"), new=True,
    ),
    **of(
        "scan", ("mValue[cta, 1] = prefix", "mValue[back, 1]"),
        prefix_relaxed=("# the prefix is there", "cute.arch.store(mState.iterator + cta, Int32(2)" + RELAXED + ")"),
    ),
    # whether a number or a prefix is read first is a matter of time
    **of("scan", (), state_read_relaxed=("state = read(", "state = read_relaxed(mState.iterator + back)")),
    **of(
        "last", ("mLeft[cta, tid] = mX", "total += mLeft[part, tid]"),
        ticket_without_first_fence=("# before the ticket", NOTHING),
        ticket_without_second_fence=("# behind the ticket", NOTHING),
        ticket_before_the_others_wrote=("# the CTA's part is there", NOTHING),
    ),
    **of("tiles", ("mY[row, tid] = mX",), two_ctas_write_a_row=("# of the result", "row = cta // 2")),
    **of("stripes", ("mY[2 * tid",), two_ctas_write_a_byte=("mY[2 * tid + cta]", "mY[2 * tid] = mX[cta, tid]")),
    **of("sums", ("mAll[tid] = mAll",), sums_without_atomics=("# to the sums", "mAll[tid] = mAll[tid] + mX[cta, tid]")),
    **of("sums", ("mAll.iterator + tid",), sums_within_the_cta=("# to the sums", SUM_OF_THE_CTA)),
}  # fmt: skip

HARMLESS: Harmless = {
    "flag_that_all_wait_for": ("flag", (("if tid == 0:  # waits", "if tid >= 0:"), ("# the flag is up", NOTHING))),
    "flag_of_the_system": ("flag", (("# raise", RAISE.format(', sem="release", scope="sys"')),)),
    "flag_read_by_an_atomic": (
        "flag",
        (
            (
                "while read(mFlag",
                'while cute.arch.atomic_add(mFlag.iterator, Int32(0), sem="acquire", scope="gpu") == 0:',
            ),
        ),
    ),
    "flag_raised_by_an_atomic": (
        "flag",
        (("# raise", 'cute.arch.atomic_exch(mFlag.iterator, Int32(1), sem="release", scope="gpu")'),),
    ),
    "volatile_flag_between_fences": (
        "fenced",
        (("while read_relaxed(mFlag", "while read_volatile(mFlag.iterator) == 0:"),),
    ),
    "fence_beside_a_release": ("flag", (("# raise", "cute.arch.fence_acq_rel_gpu(); " + RAISE.format(RELAXED)),)),
    "lock_freed_by_an_atomic": (
        "mutex",
        (("# unlock", 'cute.arch.atomic_exch(mLock.iterator, Int32(0), sem="release", scope="gpu")'),),
    ),
}
