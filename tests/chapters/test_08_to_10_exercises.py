"""The exercises of chapters 08 to 10: what the checks say of wrong answers, and right answers of any form."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chapters import exercises
from tests.chapters.exercises import FUNCTIONS, NUMBERS

SUPPORT = {  # cells whose definitions the checks use, and what they compute besides
    "08_wgmma": (("look",), "cute_D = layouts.partition(wide_mma, (64, 64))"),
    "09_swizzled_smem": (("look", "place", "constraints-table", "raw"), 'measured = {"K_SW64": places("K_SW64")}'),
    "10_wgmma_async": (("check",), ""),
}
MORE = {
    "08_wgmma": """
def old_values_twice(tCrC, tCgC):
    cute.autovec_copy(tCgC, tCrC)
    tCrC.store(tCrC.load() + tCrC.load())


def one_by_one(tCrC, tCgC):
    cute.basic_copy(tCgC, tCrC)


@cute.jit
def element_by_element(tCrC: cute.Tensor, tCgC: cute.Tensor):
    for i in cutlass.range_constexpr(cute.size(tCrC)):
        tCrC[i] = tCgC[i]


def values_of_one_plan(tCrC, tCgC):
    for i in range(128):
        tCrC[i] = tCgC[i]


def by_load(tCrC, tCgC):
    tCrC.store(tCgC.load())


@cute.jit
def relu_by_max(tCrA: cute.Tensor):
    for i in cutlass.range_constexpr(cute.size(tCrA)):
        tCrA[i] = cutlass.max(tCrA[i], cutlass.Float16(0.0))


def relu_by_python(tCrA):
    for i in range(cute.size(tCrA)):
        tCrA[i] = max(tCrA[i], cutlass.Float16(0.0))


def relu_by_sum(tCrA):
    values = tCrA.load()
    tCrA.store((values + cute.where(values > 0, values, -values)) * cutlass.Float16(0.5))


def halves_by_permutation(dtype):
    return make_tiled_mma(dtype, Plan(warpgroups=(1, 2), atom_n=64))


def always_float16(dtype):
    return make_tiled_mma(cutlass.Float16, Plan(warpgroups=(1, 2), atom_n=64))


def thin(dtype):
    return make_tiled_mma(dtype, Plan(warpgroups=(1, 2), atom_n=32))


def one_group(dtype):
    return make_tiled_mma(dtype, Plan())


def atoms_of(dtype, source="SMEM", b_major=K_MAJOR, groups=(1, 2, 1), **more):
    source = warpgroup.OperandSource[source]
    op = warpgroup.MmaF16BF16Op(dtype, cutlass.Float32, (64, 64, 16), source, K_MAJOR, b_major)
    return cute.make_tiled_mma(op, groups, **more)


def along_k(dtype):
    return atoms_of(dtype, groups=(1, 1, 2))


def b_mn_major(dtype):
    return atoms_of(dtype, b_major=OperandMajorMode.MN)


def a_from_registers(dtype):
    return atoms_of(dtype, "RMEM")


def with_a_permutation(dtype):
    return atoms_of(dtype, permutation_mnk=(64, 128, 16))
""",
    "09_swizzled_smem": """
def by_bits(row, k):
    return (row << 6) + k ^ (row & 7) << 3


def by_bytes(row, k):
    byte = 128 * row + 2 * k
    return (byte ^ (byte // 128 % 8) * 16) // 2


@cute.jit
def by_jit(row: cutlass.Int32, k: cutlass.Int32):
    return 64 * row + 8 * ((k // 8) ^ (row % 8)) + k % 8


def wrong_way(row, k):
    return 64 * row + 8 * ((k // 8) ^ (row // 8)) + k % 8


@cute.jit
def pairs_along_m(sA: cute.Tensor, mA: cute.Tensor, tid: cutlass.Int32):
    for i in cutlass.range(64 * 64 // 128):
        sA[tid % 64, 2 * i + tid // 64] = mA[tid % 64, 2 * i + tid // 64]


@cute.jit
def unrolled(sA: cute.Tensor, mA: cute.Tensor, tid: cutlass.Int32):
    for i in cutlass.range_constexpr(32):
        sA[tid % 64, i + 32 * (tid // 64)] = mA[tid % 64, i + 32 * (tid // 64)]


@cute.jit
def eight_at_once(sA: cute.Tensor, mA: cute.Tensor, tid: cutlass.Int32):
    eight = cute.make_rmem_tensor(8, cutlass.Float16)
    for i in cutlass.range_constexpr(4):
        k = 32 * (i // 2) + 16 * (i % 2) + tid // 8
        cute.autovec_copy(cute.local_tile(mA, (8, 1), (tid % 8, k)), eight)
        for row in cutlass.range_constexpr(8):
            sA[8 * (tid % 8) + row, k] = eight[row]


@cute.jit
def half_of_it(sA: cute.Tensor, mA: cute.Tensor, tid: cutlass.Int32):
    for i in cutlass.range(tid, 32 * 64, 128):
        sA[i % 64, i // 64] = mA[i % 64, i // 64]


@cute.jit
def along_k(sA: cute.Tensor, mA: cute.Tensor, tid: cutlass.Int32):
    for i in cutlass.range(tid, 64 * 64, 128):
        sA[i // 64, i % 64] = mA[i // 64, i % 64]


def wide_to(mode):
    def store(tCrD, tCsC, sC, gC, tid):
        cute.autovec_copy(tCrD, tCsC)
        cute.arch.sync_threads()
        copy = make_copy(cutlass.Float16, mode, Plan(), stores=True)
        thr = copy.get_slice(tid)
        cute.copy(copy, thr.partition_S(sC), thr.partition_D(gC))

    return store


def unmet_store(tCrD, tCsC, sC, gC, tid):
    cute.autovec_copy(tCrD, tCsC)
    thr = make_copy(cutlass.Float16, MN_MAJOR, Plan(), stores=True).get_slice(tid)
    cute.autovec_copy(thr.partition_S(sC), thr.partition_D(gC))


@cute.jit
def narrow_store(tCrD: cute.Tensor, tCsC: cute.Tensor, sC: cute.Tensor, gC: cute.Tensor, tid: cutlass.Int32):
    cute.autovec_copy(tCrD, tCsC)
    cute.arch.sync_threads()
    for i in cutlass.range(tid, cute.size(gC), 128):
        gC[i % 128, i // 128] = sC[i % 128, i // 128]


@cute.jit
def element_by_element(tCrD: cute.Tensor, tCsC: cute.Tensor, sC: cute.Tensor, gC: cute.Tensor, tid: cutlass.Int32):
    for i in cutlass.range_constexpr(cute.size(tCrD)):
        tCsC[i] = tCrD[i]
    cute.arch.sync_threads()
    thr = make_copy(cutlass.Float16, MN_MAJOR, Plan(), stores=True).get_slice(tid)
    from_sC, to_gC = thr.partition_S(sC), thr.partition_D(gC)
    for column in cutlass.range_constexpr(16):
        cute.autovec_copy(from_sC[None, 0, column], to_gC[None, 0, column])


def two_columns_at_once(tCrD, tCsC, sC, gC, tid):
    cute.autovec_copy(tCrD, tCsC)
    cute.arch.sync_threads()
    atom_ = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), cutlass.Float16, num_bits_per_copy=128)
    threads, values = cute.make_layout((4, 32), stride=(1, 4)), cute.make_layout((8, 1))
    copy = cute.make_tiled_copy_tv(atom_, threads, values)
    thr = copy.get_slice(tid)
    cute.copy(copy, thr.partition_S(sC), thr.partition_D(gC))


@cute.jit
def not_transposed(sA: cute.Tensor, mA: cute.Tensor, tid: cutlass.Int32):
    for i in cutlass.range(tid, 64 * 64, 128):
        sA[i // 64, i % 64] = mA[i % 64, i // 64]
""",
    "10_wgmma_async": """
@cute.jit
def two_waits(halves: cutlass.Constexpr, mD: cute.Tensor, tid: cutlass.Int32):
    warpgroup.wait_group(1)
    first = cute.make_fragment_like(halves[0])
    first.store(halves[0].load())
    warpgroup.wait_group(0)
    for v in cutlass.range_constexpr(32):
        mD[0, tid, v] = first[v] + halves[1][v]


@cute.jit
def second_first(halves: cutlass.Constexpr, mD: cute.Tensor, tid: cutlass.Int32):
    warpgroup.wait_group(0)
    for v in cutlass.range_constexpr(31, -1, -1):
        mD[0, tid, v] = halves[1][v] + halves[0][v]


@cute.jit
def one_wait_too_few(halves: cutlass.Constexpr, mD: cute.Tensor, tid: cutlass.Int32):
    warpgroup.wait_group(1)
    for v in cutlass.range_constexpr(32):
        mD[0, tid, v] = halves[0][v] + halves[1][v]


@cute.jit
def only_the_first(halves: cutlass.Constexpr, mD: cute.Tensor, tid: cutlass.Int32):
    warpgroup.wait_group(0)
    for v in cutlass.range_constexpr(32):
        mD[0, tid, v] = halves[0][v]


def by_cp_async(fences):
    def refill(sB, mB, tid):
        warpgroup.wait_group(0)
        thr = swizzled.make_copy(cutlass.Float16, swizzled.K_MAJOR, wgmma.Plan()).get_slice(tid)
        if "before" in fences:
            cute.arch.fence_proxy("async.shared", space="cta")
        cute.copy(thr, thr.partition_S(mB), thr.partition_D(sB))
        cute.arch.cp_async_commit_group()
        if "early" in fences:
            cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.cp_async_wait_group(0)
        if "after" in fences:
            cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.sync_threads()

    return refill


def waits_alone(sB, mB, tid):
    warpgroup.wait_group(0)
    wgmma.copy_in(sB, mB, tid, 128)
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()


def no_wait(sB, mB, tid):
    cute.arch.sync_threads()
    wgmma.copy_in(sB, mB, tid, 128)
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()


def no_fence(sB, mB, tid):
    warpgroup.wait_group(0)
    cute.arch.sync_threads()
    wgmma.copy_in(sB, mB, tid, 128)
    cute.arch.sync_threads()


def no_refill(sB, mB, tid):
    warpgroup.wait_group(0)


def fenced_by_readers(sB, mB, tid):
    warpgroup.wait_group(0)
    cute.arch.sync_threads()
    wgmma.copy_in(sB, mB, tid, 128)
    cute.arch.sync_threads()
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()


@cute.jit
def by_jit(sB: cute.Tensor, mB: cute.Tensor, tid: cutlass.Int32):
    warpgroup.wait_group(0)
    cute.arch.sync_threads()
    for i in cutlass.range_constexpr(32):
        sB[2 * i + tid // 64, tid % 64] = mB[2 * i + tid // 64, tid % 64]
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()
""",
}
CHECKS: dict[str, dict[str, tuple[list[str], list[str]]]] = {  # wrong answers, and right ones
    "08_wgmma": {
        "check_owner": (
            ["0, 0", "78, 12", "128, 0", "-1, 3", *(f"{x}, 11" for x in NUMBERS)],
            ["78, 11", "np.int64(78), 11.0", "torch.tensor(78), np.uint8(11)"],
        ),
        "check_count": (["256, 1", "64, 1", "32, 2", *(f"64, {x}" for x in NUMBERS)], ["64, 2", "64.0, np.int8(2)"]),
        "check_begin": (
            [*FUNCTIONS, "ones", "nans", "old_values_twice", "values_of_one_plan"],
            ["one_by_one", "element_by_element", "by_load"],
        ),
        "check_change": ([*FUNCTIONS, "ones", "nans"], ["relu_by_max", "relu_by_sum"]),
        "check_two": (
            [*FUNCTIONS, "thin", "one_group", "along_k", "always_float16", "b_mn_major", "a_from_registers"],
            ["halves_by_permutation", "with_a_permutation"],
        ),
    },
    "09_swizzled_smem": {
        "check_byte": (["358", "0", "1", "9999", *NUMBERS], ["326", "np.int32(326)", "326.0"]),
        "check_offsets": (
            ["1024, 1024", "2048, 512", "512, 2040", "-16, 16", *(f"{x}, 2048" for x in NUMBERS)],
            ["512, 2048", "512.0, np.int64(2048)"],
        ),
        "check_place": (
            [*FUNCTIONS, "wrong_way", "lambda row, k: 0", "lambda row, k: 64 * k + row"],
            ["by_bits", "by_bytes", "by_jit"],
        ),
        "check_fill": (
            [*FUNCTIONS, "nans", "half_of_it", "not_transposed", "along_k"],
            ["pairs_along_m", "unrolled", "eight_at_once"],
        ),
        "check_store": (
            [
                *(f"'MN_SW128', {x}" for x in (*FUNCTIONS, "nans", "unmet_store", "wide_to(K_MAJOR)", "narrow_store")),
                *(f"{x}, wide_to(MN_MAJOR)" for x in ("None", "3", "float('nan')", "('MN_SW128',)", "'SW128'")),
                *(f"'{kind}', wide_to(MN_MAJOR)" for kind in ("K_SW128", "K_INTER", "MN_INTER", "MN_SW32", "MN_SW64")),
            ],
            ["'MN_SW128', wide_to(MN_MAJOR)", "'MN_SW128', element_by_element", "'MN_SW64', two_columns_at_once"],
        ),
    },
    "10_wgmma_async": {
        "check_stage": (["2, 1", "4, 0", "3, 2", "3, 0", *(f"{x}, 1" for x in NUMBERS)], ["3, 1", "3.0, np.int64(1)"]),
        "check_waits": (["0, 0", "1, 1", "2, 0", *(f"{x}, 0" for x in NUMBERS)], ["1, 0", "np.int8(1), 0.0"]),
        "check_finish": ([*FUNCTIONS, "one_wait_too_few", "only_the_first"], ["two_waits", "second_first"]),
        "check_refill": (
            [
                *(*FUNCTIONS, "no_wait", "no_fence", "no_refill"),
                *(f"by_cp_async('{fences}')" for fences in ("", "before", "early", "before, early")),
            ],
            ["fenced_by_readers", "by_jit", "waits_alone", "by_cp_async('after')", "by_cp_async('early, after')"],
        ),
    },
}
CASES = [(chapter, check, which) for chapter, checks in CHECKS.items() for check in checks for which in (0, 1)]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """For each chapter its checks, what they use, and answers that are functions."""
    return {
        chapter: exercises.judges(chapter, tmp_path_factory.mktemp(chapter), MORE[chapter], cells, computed)
        for chapter, (cells, computed) in SUPPORT.items()
    }


@pytest.mark.emulator
@pytest.mark.parametrize(("chapter", "check", "which"), CASES)
def test_answers_are_judged(
    names: dict[str, dict[str, Any]], capsys: pytest.CaptureFixture[str], chapter: str, check: str, which: int
) -> None:
    exercises.assert_judged(check, CHECKS[chapter][check][which], bool(which), names[chapter], capsys)


UNWRITTEN = "a product is added to a register that nothing has written\n"
TOLD = [  # a wrong answer, and what the check says of it: a hint, and not the answer
    ("08_wgmma", "check_begin(nothing)", f"not yet: a 128x128 tile on 128 threads: {UNWRITTEN}"),
    ("08_wgmma", "check_begin(values_of_one_plan)", f"not yet: a 128x192 tile on 128 threads: {UNWRITTEN}"),
    ("08_wgmma", "check_two(b_mn_major)", "shared memory, and your atom expects another major\n"),
    ("08_wgmma", "check_two(a_from_registers)", "A lies in shared memory, and your atom expects it in registers\n"),
    ("08_wgmma", "check_two(one_group)", "this TiledMMA has 128 threads, and two warpgroups have 256\n"),
    ("08_wgmma", "check_two(along_k)", "each element must have one owner, and here one has 2\n"),
    ("08_wgmma", "check_change(relu_by_python)", "not yet: Python cannot decide while the kernel is traced"),
    ("09_swizzled_smem", "check_offsets(1024, 1024)", "A[0, 8] is not found: how many bytes is it from one 8 of k"),
    ("09_swizzled_smem", "check_offsets(1024, 2048)", "A[32, 0] is not found: how many bytes is it from one 32 of M"),
    ("09_swizzled_smem", "check_place(lambda row, k: 64 * row + k)", "not yet: the WGMMA does not find A[1, 0]; 358"),
    ("09_swizzled_smem", "check_fill(along_k)", "not yet: 4096 sectors are read for A, and A has 256\n"),
    ("09_swizzled_smem", "check_store('MN_INTER', wide_to(MN_MAJOR))", "your loads from shared memory have 3584 bank"),
    ("09_swizzled_smem", "check_store('K_SW128', wide_to(MN_MAJOR))", "must lie side by side both in sC and in C\n"),
    ("09_swizzled_smem", "check_store('MN_SW128', wide_to(K_MAJOR))", "must lie side by side both in sC and in C\n"),
    ("09_swizzled_smem", "check_store('MN_SW128', narrow_store)", "can have 16 bytes per thread, and yours have fewer"),
    ("10_wgmma_async", "check_waits(2, 0)", "the first accumulator is stored while its products may run: which"),
    ("10_wgmma_async", "check_waits(1, 1)", "the second accumulator is stored while its products may run: which"),
    ("10_wgmma_async", "check_refill(by_cp_async(''))", "nothing makes that visible to the async proxy\n"),
    ("10_wgmma_async", "check_waits(0, 0)", "not yet: no fault, but one of the two waits longer than it has to\n"),
]


@pytest.mark.emulator
@pytest.mark.parametrize(("chapter", "call", "says"), TOLD)
def test_a_wrong_answer_gets_a_hint(
    names: dict[str, dict[str, Any]], capsys: pytest.CaptureFixture[str], chapter: str, call: str, says: str
) -> None:
    assert says in exercises.verdict(call, names[chapter], capsys)


@pytest.mark.emulator
@pytest.mark.parametrize("chapter", SUPPORT)
def test_each_solution_belongs_to_an_exercise(chapter: str) -> None:
    exercises.assert_paired(chapter)
