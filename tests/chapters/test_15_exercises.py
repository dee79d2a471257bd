"""Chapter 15's exercises: what the checks say of wrong answers, and right answers of any form."""

from __future__ import annotations

from tests.chapters import exercises

CHAPTER = "15_past_cublas"

ANSWERS = """
def nan(*arguments):
    return cutlass.Float32(float("nan"))


def ignores(*arguments):
    return cutlass.Float32(2.0)


def raises(*arguments):
    raise KeyError("what")


def broadcast_masks(rank, along_m, along_n):
    return np.array([sum(1 << r for r in range(along_m * along_n) if r % along_m == rank % along_m),
                     sum(1 << r for r in range(along_m * along_n) if r // along_m == rank // along_m)])


def swapped_masks(rank, along_m, along_n):
    return broadcast_masks(rank, along_m, along_n)[::-1]


def repunit_masks(rank, along_m, along_n):
    every = (2 ** (along_m * along_n) - 1) // (2**along_m - 1)
    return every << rank % along_m, (2**along_m - 1) * 2 ** (rank // along_m * along_m)


def masks_of_two_rows(rank, along_m, along_n):
    same_row = sum(1 << rank % along_m + 2 * other for other in range(along_n))
    return same_row, ((1 << along_m) - 1) << rank // along_m * along_m


def masks_of_powers_of_two(rank, along_m, along_n):
    same_row = sum(1 << (rank & along_m - 1) + along_m * other for other in range(along_n))
    return same_row, ((1 << along_m) - 1) << rank // along_m * along_m


@cute.jit
def by_every_cta(mine: cutlass.Float32, slots: cute.Pointer, tid: cutlass.Int32, rank: cutlass.Int32):
    for peer in cutlass.range_constexpr(2):
        if rank != peer:
            there = cute.arch.map_dsmem_ptr(slots, peer)
            there = cute.make_ptr(cutlass.Float32, there.toint(), cute.AddressSpace.smem, assumed_align=4)
            cute.arch.store(there + tid, mine, ss="cluster")
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    return slots[tid] + mine


def both_at_once(mine, slots, tid, rank):
    there = cute.arch.map_dsmem_ptr(slots, rank ^ 1)
    there = cute.make_ptr(cutlass.Float32, there.toint(), cute.AddressSpace.smem, assumed_align=4)
    cute.arch.store(there + (127 - tid), mine, ss="cluster")
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    return slots[127 - tid] + mine


def fetched(mine, slots, tid, rank):
    cute.make_tensor(slots, cute.make_layout(128))[tid] = mine
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    there = cute.arch.map_dsmem_ptr(slots, 1 - rank)
    there = cute.make_ptr(cutlass.Float32, there.toint(), cute.AddressSpace.smem, assumed_align=4)
    return mine + cute.arch.load(there + tid, cutlass.Float32, ss="cluster")


def relaxed_meeting(mine, slots, tid, rank):
    there = cute.arch.map_dsmem_ptr(slots, 1 - rank)
    there = cute.make_ptr(cutlass.Float32, there.toint(), cute.AddressSpace.smem, assumed_align=4)
    cute.arch.store(there + tid, mine, ss="cluster")
    cute.arch.cluster_arrive_relaxed()
    cute.arch.cluster_wait()
    return slots[tid] + mine


def without_meeting(mine, slots, tid, rank):
    there = cute.arch.map_dsmem_ptr(slots, 1 - rank)
    there = cute.make_ptr(cutlass.Float32, there.toint(), cute.AddressSpace.smem, assumed_align=4)
    cute.arch.store(there + tid, mine, ss="cluster")
    return slots[tid] + mine


@cute.jit
def weight_in_a_fragment(mX: cute.Tensor, mW: cute.Tensor, tid: cutlass.Int32):
    own = cute.make_rmem_tensor((1,), cutlass.Float32)
    own[0] = mW[tid]
    cute.arch.griddepcontrol_wait()
    own[0] = own[0] * mX[tid]
    return own[0]


def weight_by_cp_async(mX, mW, tid):
    smem = cutlass.memory.SmemAllocator()
    sW = smem.allocate_tensor(cutlass.Float32, cute.make_layout(128), byte_alignment=16)
    atom = cute.make_copy_atom(cpasync.CopyG2SOp(), cutlass.Float32, num_bits_per_copy=32)
    cute.copy(atom, cute.local_tile(mW, (1,), (tid,)), cute.local_tile(sW, (1,), (tid,)))
    cute.arch.cp_async_commit_group()
    cute.arch.griddepcontrol_wait()
    cute.arch.cp_async_wait_group(0)
    return mX[tid] * sW[tid]


def x_and_weight_by_cp_async_late(mX, mW, tid):
    cute.arch.griddepcontrol_wait()
    return weight_by_cp_async(mX, mW, tid)


def weight_loaded_relaxed(mX, mW, tid):
    weight = cute.arch.load(mW.iterator + tid, cutlass.Float32, sem="relaxed", scope="gpu")
    cute.arch.griddepcontrol_wait()
    return mX[tid] * weight


def erases_the_weight(mX, mW, tid):
    product = waits_twice(mX, mW, tid)
    mW[tid] = cutlass.Float32(0.0)
    return product


def without_x(mX, mW, tid):
    weight = mW[tid]
    cute.arch.griddepcontrol_wait()
    return weight


def another_weight_early(mX, mW, tid):
    other = mW[127 - tid]
    cute.arch.griddepcontrol_wait()
    return mX[tid] * mW[tid] + 0 * other


@cute.jit
def half_of_the_weights_early(mX: cute.Tensor, mW: cute.Tensor, tid: cutlass.Int32):
    weight = cutlass.Float32(0.0)
    if tid < 64:
        weight = mW[tid]
    cute.arch.griddepcontrol_wait()
    if tid >= 64:
        weight = mW[tid]
    return mX[tid] * weight


def weight_between_two_waits(mX, mW, tid):
    other = mW[tid ^ 1]
    cute.arch.griddepcontrol_wait()
    weight = mW[tid]
    cute.arch.griddepcontrol_wait()
    return mX[tid] * weight + 0 * other


def waits_twice(mX, mW, tid):
    weight = mW[tid]
    cute.arch.griddepcontrol_wait()
    cute.arch.griddepcontrol_wait()
    return mX[tid] * weight


def x_too_early(mX, mW, tid):
    product = mX[tid] * mW[tid]
    cute.arch.griddepcontrol_wait()
    return product
"""
LEAST = "lambda M, N: {}(min({}, key=lambda n: -(-(-(-M // 256) * -(-N // n)) // 66) * n))"
OF_SINGLE_TILES = "lambda M, N: min(range(256, 31, -32), key=lambda n: -(-(-(-M // 128) * -(-N // n)) // 132) * n)"
EXCHANGED = "lambda M, N: min(range(256, 31, -32), key=lambda n: -(-(-(-N // 256) * -(-M // n)) // 66) * n)"
ONE_WAVE_MORE = "lambda M, N: min(range(256, 31, -32), key=lambda n: (-(-M // 256) * -(-N // n) // 66 + 1) * n)"
CHECKS: dict[str, tuple[list[str], list[str]]] = {  # what is refused, and what is accepted
    "check_counts": (
        ["12, 40960", "48, 28672", "float('nan'), 40960", "'48', '40960'", "None, None", "(48, 40960), 40960"],
        ["48.0, np.int64(40960)", "torch.tensor(48), 320 * 128", "np.int32(48), 40960.0"],
    ),
    "check_masks": (
        [*exercises.FUNCTIONS, "raises", "swapped_masks", "nan", "masks_of_two_rows", "masks_of_powers_of_two"],
        [
            *("broadcast_masks", "repunit_masks", "lambda *a: tuple(map(cutlass.Int16, repunit_masks(*a)))"),
            *("lambda *a: tuple(broadcast_masks(*a))", "lambda *a: torch.tensor(broadcast_masks(*a))"),
        ],
    ),
    "check_meet": (
        [*exercises.FUNCTIONS, "nan", "ignores", "raises", "without_meeting", "relaxed_meeting"],
        ["by_every_cta", "both_at_once", "fetched", "lambda *a: both_at_once(*a)"],
    ),
    "check_read": (
        [
            *(*exercises.FUNCTIONS, "nan", "ignores", "raises", "x_too_early", "without_x"),
            *("another_weight_early", "half_of_the_weights_early", "weight_between_two_waits"),
            *("x_and_weight_by_cp_async_late", "erases_the_weight"),
        ],
        [
            *("weight_in_a_fragment", "lambda mX, mW, tid: weight_in_a_fragment(mX, mW, tid)", "waits_twice"),
            *("weight_by_cp_async", "weight_loaded_relaxed"),
        ],
    ),
    "check_width": (
        ["256", *exercises.FUNCTIONS, "raises", "nan", "lambda M, N: 224", "lambda M, N: 100", "lambda *_: (32,)",
         "lambda M, N: 32", LEAST.format("int", "range(32, 257, 32)"), LEAST.format("int", "range(224, 31, -32)"),
         OF_SINGLE_TILES, EXCHANGED, ONE_WAVE_MORE],
        [LEAST.format("np.int64", "range(256, 31, -32)"), LEAST.format("float", "range(256, 31, -32)")],
    ),
}
names = exercises.judges_of(CHAPTER, ANSWERS)
test_answers_are_judged = exercises.answers_are_judged(CHECKS)
LATE = "not yet: right, but 2 loads come after the wait: only X's number has to wait"
test_a_weight_that_is_loaded_late_is_told = exercises.wrong_answers_get_hints(
    {f"check_read({name})": LATE for name in ("another_weight_early", "half_of_the_weights_early")}
)
test_weights_may_only_be_read = exercises.wrong_answers_get_hints(
    {"check_read(erases_the_weight)": "not yet: your answer changes W, which it may only read"}
)
test_a_width_that_is_always_among_the_best_is_not_the_widest = exercises.wrong_answers_get_hints(
    {"check_width(lambda M, N: 32)": "not yet: for 5000x5000 a wider tile than 32 gives the busiest SM as few columns"}
)
test_each_solution_belongs_to_an_exercise = exercises.solutions_belong_to_exercises(CHAPTER)
