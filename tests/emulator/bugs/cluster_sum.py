"""Two CTAs share what they load: each multicasts half of every tile to both, and both use the whole tile.

y (2, 16, 128) float32: y[r] is the sum of the n tiles of x (16 n, 128), times r + 1.  A CTA may load again when
both have read the tile: each arrives at the other's mbarrier through distributed shared memory.
"""

import cutlass
import cutlass.cute as cute
import cutlass.memory
from cutlass.cute.nvgpu import cpasync

ROWS, COLUMNS = 16, 128
TILE_BYTES = 4 * ROWS * COLUMNS
BOTH = 3  # multicast mask: CTA 0 and CTA 1 of the cluster


@cute.struct
class Storage:
    full: cute.struct.MemRange[cutlass.Int64, 1]
    empty: cute.struct.MemRange[cutlass.Int64, 1]
    tile: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, ROWS * COLUMNS], 128]


@cute.kernel
def sum_kernel(load: cute.CopyAtom, mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    storage = cutlass.memory.SmemAllocator().allocate(Storage)
    full, empty = storage.full.data_ptr(), storage.empty.data_ptr()
    tile = storage.tile.get_tensor(cute.make_ordered_layout((ROWS, COLUMNS), order=(1, 0)))
    if tid == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init(empty, 2)
    cute.arch.mbarrier_init_fence()
    meet()  # before the first access

    pair = cute.make_layout(2)
    gX = cute.local_tile(mX, (ROWS, COLUMNS), (None, 0))  # (rows, columns, n)
    tXsX, tXgX = cpasync.tma_partition(load, rank, pair, cute.group_modes(tile, 0, 2), cute.group_modes(gX, 0, 2))
    total = cute.make_rmem_tensor(ROWS, cutlass.Float32)
    total.fill(0.0)
    for n in cutlass.range(cute.size(gX, mode=[2]), unroll=1):
        if warp == 0:
            cute.arch.mbarrier_wait(empty, (n & 1) ^ 1)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full, TILE_BYTES)
            cute.copy(load, tXgX[None, n], tXsX, tma_bar_ptr=full, mcast_mask=cutlass.Int16(BOTH))
        cute.arch.mbarrier_wait(full, n & 1)
        for i in cutlass.range_constexpr(ROWS):
            total[i] = total[i] + tile[i, tid]
        cute.arch.sync_threads()
        if tid < 2:
            cute.arch.mbarrier_arrive(empty, tid)
    for i in cutlass.range_constexpr(ROWS):
        mY[rank, i, tid] = total[i] * (rank + 1)
    meet()  # before the CTA exits


@cute.jit
def meet():
    """Every thread of the cluster arrives, and waits for the others."""
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


@cute.jit
def run(mX: cute.Tensor, mY: cute.Tensor):
    op = cpasync.CopyBulkTensorTileG2SMulticastOp()
    layout = cute.make_ordered_layout((ROWS, COLUMNS), order=(1, 0))
    load, tX = cpasync.make_tiled_tma_atom(op, mX, layout, (ROWS, COLUMNS), num_multicast=2)
    sum_kernel(load, tX, mY).launch(grid=(2, 1, 1), block=(128, 1, 1), cluster=(2, 1, 1))
