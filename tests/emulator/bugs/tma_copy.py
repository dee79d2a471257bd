"""Tiles through shared memory: TMA loads one, every thread adds 1 to its part, TMA stores it.

y (64 n, 32) = x + 1, float32; one CTA, one buffer for loads and one for stores.
"""

import cutlass
import cutlass.cute as cute
import cutlass.memory
from cutlass.cute.nvgpu import cpasync

ROWS, COLUMNS = 64, 32
TILE_BYTES = 4 * ROWS * COLUMNS


@cute.struct
class Storage:
    full: cute.struct.MemRange[cutlass.Int64, 1]
    x: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, ROWS * COLUMNS], 128]
    y: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, ROWS * COLUMNS], 128]


@cute.kernel
def copy_kernel(load: cute.CopyAtom, mX: cute.Tensor, store: cute.CopyAtom, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    storage = cutlass.memory.SmemAllocator().allocate(Storage)
    full = storage.full.data_ptr()
    layout = cute.make_ordered_layout((ROWS, COLUMNS), order=(1, 0))
    sX, sY = storage.x.get_tensor(layout), storage.y.get_tensor(layout)
    if tid == 0:
        cute.arch.mbarrier_init(full, 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()

    gX, gY = cute.local_tile(mX, (ROWS, COLUMNS), (None, 0)), cute.local_tile(mY, (ROWS, COLUMNS), (None, 0))
    one = cute.make_layout(1)
    tXsX, tXgX = cpasync.tma_partition(load, 0, one, cute.group_modes(sX, 0, 2), cute.group_modes(gX, 0, 2))
    tYsY, tYgY = cpasync.tma_partition(store, 0, one, cute.group_modes(sY, 0, 2), cute.group_modes(gY, 0, 2))
    values = cute.make_rmem_tensor(ROWS * COLUMNS // 128, cutlass.Float32)
    for tile in cutlass.range(cute.size(gX, mode=[2]), unroll=1):
        if warp == 0:
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full, TILE_BYTES)
            cute.copy(load, tXgX[None, tile], tXsX, tma_bar_ptr=full)
        cute.arch.mbarrier_wait(full, tile & 1)
        for i in cutlass.range_constexpr(ROWS * COLUMNS // 128):
            values[i] = sX[i * 4 + tid // 32, tid % 32] + 1
        if warp == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)
        cute.arch.sync_threads()
        for i in cutlass.range_constexpr(ROWS * COLUMNS // 128):
            sY[i * 4 + tid // 32, tid % 32] = values[i]
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=1, number_of_threads=128)
        if warp == 0:
            cute.copy(store, tYsY, tYgY[None, tile])
            cute.arch.cp_async_bulk_commit_group()
    if warp == 0:
        cute.arch.cp_async_bulk_wait_group(0, read=True)  # before the CTA exits


@cute.jit
def run(mX: cute.Tensor, mY: cute.Tensor):
    layout = cute.make_ordered_layout((ROWS, COLUMNS), order=(1, 0))
    load, tX = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), mX, layout, (ROWS, COLUMNS))
    store, tY = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), mY, layout, (ROWS, COLUMNS))
    copy_kernel(load, tX, store, tY).launch(grid=(1, 1, 1), block=(128, 1, 1))
