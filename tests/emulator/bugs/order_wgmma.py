"""A tile of WGMMA with a bias: waiting for the WGMMA is no barrier for the ordinary accesses of the four warps.

C (64, 64) float32 = A (64, 64) B (64, 64)^T + bias (64), float16 operands; one warpgroup.
"""

import cutlass
import cutlass.cute as cute
import cutlass.memory
from cutlass.cute.nvgpu import warpgroup
from cutlass.tensor_utils import LayoutEnum
from cutlass.utils import hopper_helpers as sm90

TILE = 64
ROW = LayoutEnum.ROW_MAJOR


@cute.struct
class Storage:
    bias: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, TILE], 128]
    a: cute.struct.Align[cute.struct.MemRange[cutlass.Float16, TILE * TILE], 1024]
    b: cute.struct.Align[cute.struct.MemRange[cutlass.Float16, TILE * TILE], 1024]


@cute.kernel
def tile_kernel(
    mA: cute.Tensor, mB: cute.Tensor, mBias: cute.Tensor, mC: cute.Tensor, tiled_mma: cute.TiledMma,
    a_layout: cute.ComposedLayout, b_layout: cute.ComposedLayout,
):  # fmt: skip
    tid, _, _ = cute.arch.thread_idx()
    storage = cutlass.memory.SmemAllocator().allocate(Storage)
    sA = storage.a.get_tensor(a_layout.outer, swizzle=a_layout.inner)[None, None, 0]
    sB = storage.b.get_tensor(b_layout.outer, swizzle=b_layout.inner)[None, None, 0]
    bias = storage.bias.get_tensor(cute.make_layout((TILE, TILE), stride=(0, 1)))  # one row for all
    for i in cutlass.range_constexpr(TILE * TILE // 128):
        sA[i * 2 + tid // 64, tid % 64] = mA[i * 2 + tid // 64, tid % 64]
        sB[i * 2 + tid // 64, tid % 64] = mB[i * 2 + tid // 64, tid % 64]
    if tid < TILE:
        bias[0, tid] = 0.0
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()
    if tid < TILE:
        bias[0, tid] = mBias[tid]  # by two warps

    thr_mma = tiled_mma.get_slice(tid)
    tCgC, tCsBias = thr_mma.partition_C(mC), thr_mma.partition_C(bias)
    tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
    tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
    accumulators = cute.make_rmem_tensor(tCgC.shape, cutlass.Float32)
    accumulators.fill(0.0)
    warpgroup.fence()
    for block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
        cute.gemm(tiled_mma, accumulators, tCrA[None, None, block], tCrB[None, None, block], accumulators)
    warpgroup.commit_group()
    warpgroup.wait_group(0)
    cute.arch.sync_threads()  # the bias is there
    for i in cutlass.range_constexpr(cute.size(accumulators)):
        tCgC[i] = accumulators[i] + tCsBias[i]


@cute.jit
def run(mA: cute.Tensor, mB: cute.Tensor, mBias: cute.Tensor, mC: cute.Tensor):
    a_layout = sm90.make_smem_layout_a(ROW, (TILE, TILE, TILE), cutlass.Float16, 1)
    b_layout = sm90.make_smem_layout_b(ROW, (TILE, TILE, TILE), cutlass.Float16, 1)
    major = ROW.sm90_mma_major_mode()
    tiled_mma = sm90.make_trivial_tiled_mma(
        cutlass.Float16, cutlass.Float16, major, major, cutlass.Float32, (1, 1, 1), (TILE, TILE)
    )
    tile_kernel(mA, mB, mBias, mC, tiled_mma, a_layout, b_layout).launch(grid=(1, 1, 1), block=(128, 1, 1))
