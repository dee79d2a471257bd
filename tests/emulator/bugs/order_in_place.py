"""A tensor in global memory that TMA reads is overwritten by the same launch; each kernel here is correct.

`renew` overwrites a tile by ordinary stores when TMA has loaded it; in `swap` each of two CTAs loads the other's tile,
and overwrites its own by a TMA store when both have loaded.
"""

import cutlass
import cutlass.cute as cute
import cutlass.memory
from cutlass import Int32
from cutlass.cute.nvgpu import cpasync

from tests.emulator.bugs.order_proxies import COLUMNS, ROWS, TILE_BYTES, Storage, layout, parts


@cute.kernel
def renew_kernel(load: cute.CopyAtom, tT: cute.Tensor, mX: cute.Tensor, mT: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    lane, warp = tid % 32, cute.arch.make_warp_uniform(cute.arch.warp_idx())
    storage = cutlass.memory.SmemAllocator().allocate(Storage)
    full, tile = storage.full.data_ptr(), storage.tile.get_tensor(layout())
    if tid == 0:
        cute.arch.mbarrier_init(full, 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    tTsT, tTgT = parts(load, tT, tile)
    if warp == 0:
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, TILE_BYTES)
        cute.copy(load, tTgT[None, 0], tTsT, tma_bar_ptr=full)  # the tile comes
    else:
        cute.arch.mbarrier_wait(full, 0)  # before it is overwritten
        for i in cutlass.range_constexpr(ROWS):
            mT[i, lane] = mX[i, lane]
    cute.arch.mbarrier_wait(full, 0)
    for i in cutlass.range_constexpr(ROWS // 2):
        mY[2 * i + warp, lane] = tile[2 * i + warp, lane] + 1.0


@cute.jit
def renew(mX: cute.Tensor, mT: cute.Tensor, mY: cute.Tensor):
    load, tT = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), mT, layout(), (ROWS, COLUMNS))
    renew_kernel(load, tT, mX, mT, mY).launch(grid=(1, 1, 1), block=(64, 1, 1))


@cute.kernel
def swap_kernel(load: cute.CopyAtom, tX: cute.Tensor, store: cute.CopyAtom, tY: cute.Tensor, mCount: cute.Tensor):
    """One warp in each CTA."""
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    storage = cutlass.memory.SmemAllocator().allocate(Storage)
    full, tile = storage.full.data_ptr(), storage.tile.get_tensor(layout())
    if tid == 0:
        cute.arch.mbarrier_init(full, 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_warp()
    tXsX, tXgX = parts(load, tX, tile)
    tYsY, tYgY = parts(store, tY, tile)
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(full, TILE_BYTES)
    cute.copy(load, tXgX[None, 1 - cta], tXsX, tma_bar_ptr=full)  # the other's tile
    cute.arch.mbarrier_wait(full, 0)
    if tid == 0:
        cute.arch.red(mCount.iterator, Int32(1), op="add", dtype="u32", sem="release", scope="gpu")
        while cute.arch.load(mCount.iterator, Int32, sem="acquire", scope="gpu") != 2:  # both have loaded
            pass
    cute.arch.sync_warp()
    cute.copy(store, tYsY, tYgY[None, cta])  # over the own tile
    cute.arch.cp_async_bulk_commit_group()
    cute.arch.cp_async_bulk_wait_group(0)


@cute.jit
def swap(mCount: cute.Tensor, mY: cute.Tensor):
    load, tX = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), mY, layout(), (ROWS, COLUMNS))
    store, tY = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), mY, layout(), (ROWS, COLUMNS))
    swap_kernel(load, tX, store, tY, mCount).launch(grid=(2, 1, 1), block=(32, 1, 1))
