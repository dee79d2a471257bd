"""Ordinary accesses beside those of TMA: the same memory through two proxies; each kernel here is correct.

`reload` loads with TMA what ordinary stores wrote to global memory, `readback` the other way round, `add` changes a
tile in place with one warp, `boxes` stores a tile from each CTA; `maps` and `maps_in_place` change a tensor map.
"""

import cutlass
import cutlass.cute as cute
import cutlass.memory
from cutlass.cute.nvgpu import cpasync
from cutlass.tensor_utils import TensorMapManager, TensorMapUpdateMode

ROWS, COLUMNS = 8, 32
TILE_BYTES = 4 * ROWS * COLUMNS
GROUPS = 3


@cute.struct
class Storage:
    full: cute.struct.MemRange[cutlass.Int64, 1]
    tile: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, ROWS * COLUMNS], 128]


@cute.jit
def layout():
    return cute.make_ordered_layout((ROWS, COLUMNS), order=(1, 0))


@cute.jit
def parts(atom: cute.CopyAtom, tensor: cute.Tensor, tile: cute.Tensor):
    """What TMA moves, and where to: (piece), (piece, n) of the boxes of a tensor."""
    boxes = cute.local_tile(tensor, (ROWS, COLUMNS), (None, 0))
    return cpasync.tma_partition(
        atom, 0, cute.make_layout(1), cute.group_modes(tile, 0, 2), cute.group_modes(boxes, 0, 2)
    )


@cute.kernel
def reload_kernel(load: cute.CopyAtom, tT: cute.Tensor, mT: cute.Tensor, mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    lane, warp = tid % 32, cute.arch.make_warp_uniform(cute.arch.warp_idx())
    storage = cutlass.memory.SmemAllocator().allocate(Storage)
    full, tile = storage.full.data_ptr(), storage.tile.get_tensor(layout())
    if tid == 0:
        cute.arch.mbarrier_init(full, 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    for i in cutlass.range_constexpr(ROWS // 2):
        mT[2 * i + warp, lane] = mX[2 * i + warp, lane] + 1.0
    cute.arch.fence_proxy("async.global")  # for TMA
    cute.arch.sync_threads()  # both warps have written
    tTsT, tTgT = parts(load, tT, tile)
    if warp == 0:
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, TILE_BYTES)
        cute.copy(load, tTgT[None, 0], tTsT, tma_bar_ptr=full)  # loads again
    cute.arch.mbarrier_wait(full, 0)
    for i in cutlass.range_constexpr(ROWS // 2):
        mY[2 * i + warp, lane] = tile[2 * i + warp, 31 - lane]


@cute.jit
def reload(mX: cute.Tensor, mT: cute.Tensor, mY: cute.Tensor):
    load, tT = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), mT, layout(), (ROWS, COLUMNS))
    reload_kernel(load, tT, mT, mX, mY).launch(grid=(1, 1, 1), block=(64, 1, 1))


@cute.kernel
def readback_kernel(store: cute.CopyAtom, tT: cute.Tensor, mT: cute.Tensor, mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    lane, warp = tid % 32, cute.arch.make_warp_uniform(cute.arch.warp_idx())
    tile = cutlass.memory.SmemAllocator().allocate(Storage).tile.get_tensor(layout())
    for i in cutlass.range_constexpr(ROWS // 2):
        tile[2 * i + warp, lane] = mX[2 * i + warp, lane] + 1.0
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()
    tTsT, tTgT = parts(store, tT, tile)
    if warp == 0:
        cute.copy(store, tTsT, tTgT[None, 0])  # goes out
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0)  # and is there
    cute.arch.sync_threads()  # both warps know
    for i in cutlass.range_constexpr(ROWS // 2):
        mY[2 * i + warp, lane] = mT[2 * i + warp, 31 - lane]


@cute.jit
def readback(mX: cute.Tensor, mT: cute.Tensor, mY: cute.Tensor):
    store, tT = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), mT, layout(), (ROWS, COLUMNS))
    readback_kernel(store, tT, mT, mX, mY).launch(grid=(1, 1, 1), block=(64, 1, 1))


@cute.kernel
def add_kernel(load: cute.CopyAtom, tX: cute.Tensor, store: cute.CopyAtom, tY: cute.Tensor):
    """One warp, one tile after the other."""
    tid, _, _ = cute.arch.thread_idx()
    storage = cutlass.memory.SmemAllocator().allocate(Storage)
    full, tile = storage.full.data_ptr(), storage.tile.get_tensor(layout())
    if tid == 0:
        cute.arch.mbarrier_init(full, 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_warp()
    tXsX, tXgX = parts(load, tX, tile)
    tYsY, tYgY = parts(store, tY, tile)
    for n in cutlass.range(cute.size(tXgX, mode=[1]), unroll=1):
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, TILE_BYTES)
        cute.copy(load, tXgX[None, n], tXsX, tma_bar_ptr=full)  # the tile comes
        cute.arch.mbarrier_wait(full, n & 1)
        for i in cutlass.range_constexpr(ROWS):
            tile[i, tid] = tile[i, tid] + 1.0
        cute.arch.fence_proxy("async.shared", space="cta")  # of each lane
        cute.arch.sync_warp()  # all lanes have added
        cute.copy(store, tYsY, tYgY[None, n])  # the tile goes
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0, read=True)  # the tile has gone


@cute.jit
def add(mX: cute.Tensor, mY: cute.Tensor):
    load, tX = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), mX, layout(), (ROWS, COLUMNS))
    store, tY = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), mY, layout(), (ROWS, COLUMNS))
    add_kernel(load, tX, store, tY).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.kernel
def boxes_kernel(mX: cute.Tensor, store: cute.CopyAtom, tY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    tile = cutlass.memory.SmemAllocator().allocate(Storage).tile.get_tensor(layout())
    for i in cutlass.range_constexpr(ROWS):
        tile[i, tid] = mX[ROWS * cta + i, tid] + 1.0
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_warp()
    tYsY, tYgY = parts(store, tY, tile)
    cute.copy(store, tYsY, tYgY[None, cta])  # of each CTA
    cute.arch.cp_async_bulk_commit_group()
    cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def boxes(mX: cute.Tensor, mY: cute.Tensor):
    store, tY = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), mY, layout(), (ROWS, COLUMNS))
    boxes_kernel(mX, store, tY).launch(grid=(2, 1, 1), block=(32, 1, 1))


@cute.struct
class Grouped:
    map: cute.struct.Align[cute.struct.MemRange[cutlass.Int64, 16], 128]
    tiles: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, GROUPS * ROWS * COLUMNS], 128]


@cute.jit
def fill(mX: cute.Tensor, tiles: cute.Tensor, tid: cutlass.Int32):
    """Each group's numbers in a tile of its own."""
    for i in cutlass.range_constexpr(GROUPS * ROWS // 2):
        row = 2 * i + tid // 32
        tiles[row, tid % 32] = mX[row, tid % 32] + 1.0
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()


@cute.jit
def group(tensor: cute.Tensor, g: cutlass.Constexpr):
    """The rows of a group as a tensor of its own."""
    return cute.make_tensor(tensor.iterator + g * ROWS * COLUMNS, layout())


@cute.jit
def store_group(store: cute.CopyAtom, tY: cute.Tensor, tile: cute.Tensor, maps: cute.Tensor):
    """A tile to the tensor that the map in global memory now describes."""
    tYsY, tYgY = parts(store, tY, tile)
    described = TensorMapManager(TensorMapUpdateMode.SMEM, 128).get_tensormap_ptr(
        maps.iterator, cute.AddressSpace.generic
    )
    cute.copy(store, tYsY, tYgY[None, 0], tma_desc_ptr=described)  # by the map
    cute.arch.cp_async_bulk_commit_group()
    cute.arch.cp_async_bulk_wait_group(0, read=True)  # the map has been used


@cute.kernel
def maps_kernel(store: cute.CopyAtom, tY: cute.Tensor, mX: cute.Tensor, mMaps: cute.Tensor, mY: cute.Tensor):
    """Warp 0 changes the map in shared memory and copies it out, warp 1 stores with it: one group after the other."""
    tid, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    storage = cutlass.memory.SmemAllocator().allocate(Grouped)
    tiles = storage.tiles.get_tensor(cute.make_ordered_layout((GROUPS * ROWS, COLUMNS), order=(1, 0)))
    here = storage.map.data_ptr()
    if warp == 0:
        cpasync.copy_tensormap(store, here)
        cute.arch.sync_warp()
        cpasync.cp_fence_tma_desc_release(mMaps.iterator, here)
    fill(mX, tiles, tid)
    for g in cutlass.range_constexpr(GROUPS):
        if warp == 0:
            cpasync.update_tma_descriptor(store, group(mY, g), here)
            cute.arch.sync_warp()  # the map is changed
            cpasync.cp_fence_tma_desc_release(mMaps.iterator, here)  # the map goes out
        cute.arch.sync_threads()  # the map is out
        if warp == 1:
            cpasync.fence_tma_desc_acquire(mMaps.iterator)
            store_group(store, tY, group(tiles, g), mMaps)
        cute.arch.sync_threads()  # the map is free


@cute.jit
def maps(mX: cute.Tensor, mMaps: cute.Tensor, mOther: cute.Tensor, mY: cute.Tensor):
    store, tY = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), mOther, layout(), (ROWS, COLUMNS))
    maps_kernel(store, tY, mX, mMaps, mY).launch(grid=(1, 1, 1), block=(64, 1, 1))


@cute.kernel
def maps_in_place_kernel(store: cute.CopyAtom, tY: cute.Tensor, mX: cute.Tensor, mMaps: cute.Tensor, mY: cute.Tensor):
    """Warp 0 changes the map where it lies in global memory."""
    tid, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    storage = cutlass.memory.SmemAllocator().allocate(Grouped)
    tiles = storage.tiles.get_tensor(cute.make_ordered_layout((GROUPS * ROWS, COLUMNS), order=(1, 0)))
    if warp == 0:
        cpasync.copy_tensormap(store, mMaps.iterator)
    fill(mX, tiles, tid)
    for g in cutlass.range_constexpr(GROUPS):
        if warp == 0:
            cpasync.update_tma_descriptor(store, group(mY, g), mMaps.iterator)
            cute.arch.sync_warp()
            cpasync.fence_tma_desc_release()  # of the changed map
        cute.arch.sync_threads()
        if warp == 1:
            cpasync.fence_tma_desc_acquire(mMaps.iterator)  # of the changed map, by its user
            store_group(store, tY, group(tiles, g), mMaps)
        cute.arch.sync_threads()


@cute.jit
def maps_in_place(mX: cute.Tensor, mMaps: cute.Tensor, mOther: cute.Tensor, mY: cute.Tensor):
    store, tY = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), mOther, layout(), (ROWS, COLUMNS))
    maps_in_place_kernel(store, tY, mX, mMaps, mY).launch(grid=(1, 1, 1), block=(64, 1, 1))
