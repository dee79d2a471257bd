"""A warp-specialised GEMM tile: one warp loads with TMA, one warpgroup multiplies with WGMMA, TMA stores C.

C (64, N) = A (64, K) B (N, K)^T in float16, row-major, one tile of 64 columns after the other, so that stages and the
staging buffer are used again.  Every wait, arrival and fence is a line of its own.
"""
# no `from __future__ import annotations`: CuTe DSL reads the annotations of the functions it compiles

import cutlass
import cutlass.cute as cute
import cutlass.memory
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.tensor_utils import LayoutEnum
from cutlass.utils import hopper_helpers as sm90

TILE = 64
STAGES = 3
TILE_BYTES = 2 * TILE * TILE
FULL_BYTES = 2 * TILE_BYTES
ROW = LayoutEnum.ROW_MAJOR


@cute.struct
class Storage:
    full: cute.struct.MemRange[cutlass.Int64, STAGES]
    empty: cute.struct.MemRange[cutlass.Int64, STAGES]
    a: cute.struct.Align[cute.struct.MemRange[cutlass.Float16, TILE * TILE * STAGES], 1024]
    b: cute.struct.Align[cute.struct.MemRange[cutlass.Float16, TILE * TILE * STAGES], 1024]
    c: cute.struct.Align[cute.struct.MemRange[cutlass.Float16, TILE * TILE], 1024]


@cute.kernel
def gemm_kernel(
    load_a: cute.CopyAtom, mA: cute.Tensor, load_b: cute.CopyAtom, mB: cute.Tensor, store_c: cute.CopyAtom,
    mC: cute.Tensor, tiled_mma: cute.TiledMma, a_layout: cute.ComposedLayout, b_layout: cute.ComposedLayout,
    c_layout: cute.ComposedLayout,
):  # fmt: skip
    tid, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    storage = cutlass.memory.SmemAllocator().allocate(Storage)
    full, empty = storage.full.data_ptr(), storage.empty.data_ptr()
    sA = storage.a.get_tensor(a_layout.outer, swizzle=a_layout.inner)
    sB = storage.b.get_tensor(b_layout.outer, swizzle=b_layout.inner)
    sC = storage.c.get_tensor(c_layout.outer, swizzle=c_layout.inner)[None, None, 0]
    if tid == 0:
        for i in cutlass.range_constexpr(STAGES):
            cute.arch.mbarrier_init(full + i, 1)
            cute.arch.mbarrier_init(empty + i, 4)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()

    gA = cute.local_tile(mA, (TILE, TILE), (0, None))  # (bM, bK, k)
    gB = cute.local_tile(mB, (TILE, TILE), (None, None))  # (bN, bK, n, k)
    gC = cute.local_tile(mC, (TILE, TILE), (0, None))  # (bM, bN, n)
    one = cute.make_layout(1)
    tAsA, tAgA = cpasync.tma_partition(load_a, 0, one, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2))
    tBsB, tBgB = cpasync.tma_partition(load_b, 0, one, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2))
    tCsC, tCgC = cpasync.tma_partition(store_c, 0, one, cute.group_modes(sC, 0, 2), cute.group_modes(gC, 0, 2))
    k_tiles, n_tiles = cute.size(gA, mode=[2]), cute.size(gB, mode=[2])

    if warp < 4:
        cute.arch.setmaxregister_decrease(40)
        if warp == 0:
            for tile in cutlass.range(k_tiles * n_tiles, unroll=1):
                stage, turn = tile % STAGES, tile // STAGES
                cute.arch.mbarrier_wait(empty + stage, (turn & 1) ^ 1)
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(full + stage, FULL_BYTES)
                cute.copy(load_a, tAgA[None, tile % k_tiles], tAsA[None, stage], tma_bar_ptr=full + stage)
                gB_tile = tBgB[None, tile // k_tiles, tile % k_tiles]
                cute.copy(load_b, gB_tile, tBsB[None, stage], tma_bar_ptr=full + stage)
    else:
        cute.arch.setmaxregister_increase(216)
        thread = tid - 128
        thr_mma = tiled_mma.get_slice(thread)
        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
        accumulators = cute.make_rmem_tensor(thr_mma.partition_shape_C((TILE, TILE)), cutlass.Float32)
        for n in cutlass.range(n_tiles, unroll=1):
            accumulators.fill(0.0)
            for k in cutlass.range(k_tiles, unroll=1):
                tile = n * k_tiles + k
                stage, turn = tile % STAGES, tile // STAGES
                cute.arch.mbarrier_wait(full + stage, turn & 1)
                warpgroup.fence()
                for block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
                    tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
                    rA, rB = tCrA[None, None, block, stage], tCrB[None, None, block, stage]
                    cute.gemm(tiled_mma, accumulators, rA, rB, accumulators)
                warpgroup.commit_group()
                warpgroup.wait_group(1)
                freed = (tile + STAGES - 1) % STAGES
                with cute.arch.elect_one():
                    if k > 0:
                        cute.arch.mbarrier_arrive(empty + freed)
            warpgroup.wait_group(0)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive(empty + (n * k_tiles + k_tiles - 1) % STAGES)
            if warp == 4:
                cute.arch.cp_async_bulk_wait_group(0, read=True)
            cute.arch.barrier(barrier_id=1, number_of_threads=128)
            store_tile(tiled_mma, thread, accumulators, sC)
            cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.barrier(barrier_id=1, number_of_threads=128)
            if warp == 4:
                cute.copy(store_c, tCsC, tCgC[None, n])
                cute.arch.cp_async_bulk_commit_group()
        if warp == 4:
            cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def store_tile(tiled_mma: cute.TiledMma, thread: cutlass.Int32, accumulators: cute.Tensor, sC: cute.Tensor):
    """Convert the accumulators to float16 and write them to shared memory."""
    tCsC = tiled_mma.get_slice(thread).partition_C(sC)
    narrow = cute.make_rmem_tensor_like(accumulators, cutlass.Float16)
    narrow.store(accumulators.load().to(cutlass.Float16))
    cute.autovec_copy(narrow, tCsC)


@cute.jit
def run(mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor):
    """C (64, N) = A (64, K) B (N, K)^T; K and N are multiples of 64."""
    a_layout = sm90.make_smem_layout_a(ROW, (TILE, TILE, TILE), cutlass.Float16, STAGES)
    b_layout = sm90.make_smem_layout_b(ROW, (TILE, TILE, TILE), cutlass.Float16, STAGES)
    c_layout = sm90.make_smem_layout_epi(cutlass.Float16, ROW, (TILE, TILE), 1)
    one_a, one_b = cute.slice_(a_layout, (None, None, 0)), cute.slice_(b_layout, (None, None, 0))
    one_c = cute.slice_(c_layout, (None, None, 0))
    load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
    load_a, tA = cpasync.make_tiled_tma_atom(load, mA, one_a, (TILE, TILE))
    load_b, tB = cpasync.make_tiled_tma_atom(load, mB, one_b, (TILE, TILE))
    store_c, tC = cpasync.make_tiled_tma_atom(store, mC, one_c, (TILE, TILE))
    major = ROW.sm90_mma_major_mode()
    tiled_mma = sm90.make_trivial_tiled_mma(
        cutlass.Float16, cutlass.Float16, major, major, cutlass.Float32, (1, 1, 1), (TILE, TILE)
    )
    gemm_kernel(load_a, tA, load_b, tB, store_c, tC, tiled_mma, a_layout, b_layout, c_layout).launch(
        grid=(1, 1, 1), block=(256, 1, 1), min_blocks_per_mp=1
    )
