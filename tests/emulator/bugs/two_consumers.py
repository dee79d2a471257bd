"""Two consumer warpgroups share the stages of one producer warp: both must give a stage back before it is filled again.

C (128, 64) = A (128, K) B (64, K)^T in float16, row-major, 64 rows to each consumer.  At the end each of them writes
its rows over a tile of A that the other one has read.
"""
# no `from __future__ import annotations`: CuTe DSL reads the annotations of the functions it compiles

import cutlass
import cutlass.cute as cute
import cutlass.memory
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.tensor_utils import LayoutEnum
from cutlass.utils import hopper_helpers as sm90

TILE = 64
STAGES = 2
STAGE_BYTES = 3 * 2 * TILE * TILE
ROW = LayoutEnum.ROW_MAJOR


@cute.struct
class Storage:
    full: cute.struct.MemRange[cutlass.Int64, STAGES]
    empty: cute.struct.MemRange[cutlass.Int64, STAGES]
    a: cute.struct.Align[cute.struct.MemRange[cutlass.Float16, 2 * TILE * TILE * STAGES], 1024]
    b: cute.struct.Align[cute.struct.MemRange[cutlass.Float16, TILE * TILE * STAGES], 1024]


@cute.kernel
def gemm_kernel(
    load_a: cute.CopyAtom, mA: cute.Tensor, load_b: cute.CopyAtom, mB: cute.Tensor, mC: cute.Tensor,
    tiled_mma: cute.TiledMma, a_layout: cute.ComposedLayout, b_layout: cute.ComposedLayout,
):  # fmt: skip
    tid, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    storage = cutlass.memory.SmemAllocator().allocate(Storage)
    full, empty = storage.full.data_ptr(), storage.empty.data_ptr()
    sA = storage.a.get_tensor(a_layout.outer, swizzle=a_layout.inner)  # (bM, bK, 2 stages): a tile for each consumer
    sB = storage.b.get_tensor(b_layout.outer, swizzle=b_layout.inner)  # (bN, bK, stages)
    if tid == 0:
        for i in cutlass.range_constexpr(STAGES):
            cute.arch.mbarrier_init(full + i, 1)
            cute.arch.mbarrier_init(empty + i, 8)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()

    gA = cute.local_tile(mA, (TILE, TILE), (None, None))  # (bM, bK, 2, k)
    gB = cute.local_tile(mB, (TILE, TILE), (0, None))  # (bN, bK, k)
    one = cute.make_layout(1)
    tAsA, tAgA = cpasync.tma_partition(load_a, 0, one, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2))
    tBsB, tBgB = cpasync.tma_partition(load_b, 0, one, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2))
    k_tiles = cute.size(gB, mode=[2])

    if warp < 4:
        if warp == 0:
            for k in cutlass.range(k_tiles, unroll=1):
                stage, turn = k % STAGES, k // STAGES
                cute.arch.mbarrier_wait(empty + stage, (turn & 1) ^ 1)
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(full + stage, STAGE_BYTES)
                cute.copy(load_b, tBgB[None, k], tBsB[None, stage], tma_bar_ptr=full + stage)
                for c in cutlass.range_constexpr(2):
                    cute.copy(load_a, tAgA[None, c, k], tAsA[None, 2 * stage + c], tma_bar_ptr=full + stage)
    else:
        consumer, thread = warp // 4 - 1, tid % 128
        thr_mma = tiled_mma.get_slice(thread)
        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
        accumulators = cute.make_rmem_tensor(thr_mma.partition_shape_C((TILE, TILE)), cutlass.Float32)
        accumulators.fill(0.0)
        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
        for k in cutlass.range(k_tiles, unroll=1):
            stage, turn = k % STAGES, k // STAGES
            cute.arch.mbarrier_wait(full + stage, turn & 1)
            warpgroup.fence()
            for block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
                rA, rB = tCrA[None, None, block, 2 * stage + consumer], tCrB[None, None, block, stage]
                cute.gemm(tiled_mma, accumulators, rA, rB, accumulators)
            warpgroup.commit_group()
            warpgroup.wait_group(0)
            release(empty + stage, True)
        cute.arch.barrier(barrier_id=1, number_of_threads=256)  # both have read
        sC = sA[None, None, 1 - consumer]
        narrow = cute.make_rmem_tensor_like(accumulators, cutlass.Float16)
        narrow.store(accumulators.load().to(cutlass.Float16))
        cute.autovec_copy(narrow, thr_mma.partition_C(sC))
        cute.arch.barrier(barrier_id=2 + consumer, number_of_threads=128)
        for row in cutlass.range(thread // TILE, TILE, 2, unroll=1):
            mC[TILE * consumer + row, thread % TILE] = sC[row, thread % TILE]


@cute.jit
def release(barrier: cute.Pointer, mine: cutlass.Boolean):
    """One lane of each warp gives a stage back."""
    if mine:
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(barrier)


@cute.jit
def run(mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor):
    """C (128, 64) = A (128, K) B (64, K)^T; K is a multiple of 64."""
    a_layout = sm90.make_smem_layout_a(ROW, (TILE, TILE, TILE), cutlass.Float16, 2 * STAGES)
    b_layout = sm90.make_smem_layout_b(ROW, (TILE, TILE, TILE), cutlass.Float16, STAGES)
    one_a, one_b = cute.slice_(a_layout, (None, None, 0)), cute.slice_(b_layout, (None, None, 0))
    load = cpasync.CopyBulkTensorTileG2SOp()
    load_a, tA = cpasync.make_tiled_tma_atom(load, mA, one_a, (TILE, TILE))
    load_b, tB = cpasync.make_tiled_tma_atom(load, mB, one_b, (TILE, TILE))
    major = ROW.sm90_mma_major_mode()
    tiled_mma = sm90.make_trivial_tiled_mma(
        cutlass.Float16, cutlass.Float16, major, major, cutlass.Float32, (1, 1, 1), (TILE, TILE)
    )
    gemm_kernel(load_a, tA, load_b, tB, mC, tiled_mma, a_layout, b_layout).launch(grid=(1, 1, 1), block=(384, 1, 1))
