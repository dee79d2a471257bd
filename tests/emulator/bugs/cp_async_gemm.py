"""A double-buffered GEMM tile with cp.async, ldmatrix and mma.sync.

C (64, 64) float32 = A (64, K) B (64, K)^T, float16, K a multiple of 32; four warps.
"""

import cutlass
import cutlass.cute as cute
import cutlass.memory
from cutlass.cute.nvgpu import cpasync, warp

TILE, TILE_K, STAGES = 64, 32, 2


@cute.struct
class Storage:
    a: cute.struct.Align[cute.struct.MemRange[cutlass.Float16, TILE * TILE_K * STAGES], 128]
    b: cute.struct.Align[cute.struct.MemRange[cutlass.Float16, TILE * TILE_K * STAGES], 128]


@cute.kernel
def gemm_kernel(mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor, copy: cute.TiledCopy, mma: cute.TiledMma):
    tid, _, _ = cute.arch.thread_idx()
    storage = cutlass.memory.SmemAllocator().allocate(Storage)
    layout = cute.make_layout((TILE, TILE_K, STAGES), stride=(TILE_K, 1, TILE * TILE_K))
    sA, sB = storage.a.get_tensor(layout), storage.b.get_tensor(layout)
    gA, gB = cute.local_tile(mA, (TILE, TILE_K), (0, None)), cute.local_tile(mB, (TILE, TILE_K), (0, None))
    thr_copy = copy.get_slice(tid)
    tAgA, tAsA = thr_copy.partition_S(gA), thr_copy.partition_D(sA)
    tBgB, tBsB = thr_copy.partition_S(gB), thr_copy.partition_D(sB)

    thr_mma = mma.get_slice(tid)
    tCgC = thr_mma.partition_C(mC)
    tCrA = thr_mma.make_fragment_A(thr_mma.partition_A(sA[None, None, 0]))
    tCrB = thr_mma.make_fragment_B(thr_mma.partition_B(sB[None, None, 0]))
    accumulators = thr_mma.make_fragment_C(tCgC)
    accumulators.fill(0.0)
    read_a = cute.make_tiled_copy_A(cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), cutlass.Float16), mma)
    read_b = cute.make_tiled_copy_B(cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), cutlass.Float16), mma)
    thr_a, thr_b = read_a.get_slice(tid), read_b.get_slice(tid)
    tXsA, tXrA = thr_a.partition_S(sA), thr_a.retile(tCrA)
    tXsB, tXrB = thr_b.partition_S(sB), thr_b.retile(tCrB)

    k_tiles = cute.size(gA, mode=[2])
    for stage in cutlass.range_constexpr(STAGES - 1):
        cute.copy(copy, tAgA[None, None, None, stage], tAsA[None, None, None, stage])
        cute.copy(copy, tBgB[None, None, None, stage], tBsB[None, None, None, stage])
        cute.arch.cp_async_commit_group()
    for k in cutlass.range(k_tiles, unroll=1):
        cute.arch.cp_async_wait_group(STAGES - 2)
        cute.arch.sync_threads()
        ahead = k + STAGES - 1
        if ahead < k_tiles:
            cute.copy(copy, tAgA[None, None, None, ahead], tAsA[None, None, None, ahead % STAGES])
            cute.copy(copy, tBgB[None, None, None, ahead], tBsB[None, None, None, ahead % STAGES])
        cute.arch.cp_async_commit_group()  # in every step
        cute.copy(read_a, tXsA[None, None, None, k % STAGES], tXrA)
        cute.copy(read_b, tXsB[None, None, None, k % STAGES], tXrB)
        cute.gemm(mma, accumulators, tCrA, tCrB, accumulators)
    cute.autovec_copy(accumulators, tCgC)


@cute.jit
def run(mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor):
    atom = cute.make_copy_atom(cpasync.CopyG2SOp(), cutlass.Float16, num_bits_per_copy=128)
    copy = cute.make_tiled_copy_tv(atom, cute.make_ordered_layout((32, 4), order=(1, 0)), cute.make_layout((1, 8)))
    op = warp.MmaF16BF16Op(cutlass.Float16, cutlass.Float32, (16, 8, 16))
    mma = cute.make_tiled_mma(op, cute.make_layout((2, 2, 1)), permutation_mnk=(32, 32, 16))
    gemm_kernel(mA, mB, mC, copy, mma).launch(grid=(1, 1, 1), block=(128, 1, 1))
