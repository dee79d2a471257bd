"""cute.nvgpu.cpasync: the copy engine: tensors and byte ranges, loads, stores, reductions, multicast, clusters."""

from collections.abc import Callable
from typing import Any

import cutlass
import cutlass.cute as cute
import cutlass.memory
import numpy as np
import torch
from cutlass import Int32, Int64
from cutlass.cute.nvgpu import cpasync
from cutlass.tensor_utils import TensorMapManager, TensorMapUpdateMode

from tests.emulator.surface.cases import case, numpy_of, refused

arch = cute.arch
TILE = (32, 32)
BYTES = 4 * TILE[0] * TILE[1]
SOURCE = torch.arange(64 * 64, dtype=torch.int32).reshape(64, 64)
BEFORE = torch.full((64, 64), 100, dtype=torch.int32)


def make_tile_layout() -> Any:
    return cute.make_ordered_layout(TILE, order=(1, 0))


@cute.struct
class Storage:
    full: cute.struct.MemRange[Int64, 1]
    tile: cute.struct.Align[cute.struct.MemRange[Int32, TILE[0] * TILE[1]], 128]
    map: cute.struct.Align[cute.struct.MemRange[Int64, 16], 128]


def start(storage: Any, tid: Any) -> Any:
    """The mbarrier, initialised for one arrival and known to the whole cluster."""
    full = storage.full.data_ptr()
    with arch.elect_one():
        arch.mbarrier_init(full, 1)
    arch.mbarrier_init_fence()
    arch.cluster_arrive_relaxed()
    arch.cluster_wait()
    return full


def finish() -> None:
    """No CTA leaves while another one may still use its shared memory."""
    arch.cp_async_bulk_commit_group()
    arch.cp_async_bulk_wait_group(0)
    arch.cluster_arrive()
    arch.cluster_wait()


def parts(atom: Any, tensor: Any, tile: Any, at: Any) -> tuple[Any, Any]:
    one = cute.make_layout(1)
    box = cute.local_tile(tensor, TILE, at)
    return cpasync.tma_partition(atom, 0, one, cute.group_modes(tile, 0, 2), cute.group_modes(box, 0, 2))


# -- tensors -----------------------------------------------------------------------------------------------


@cute.kernel
def tensor_kernel(
    load: cute.CopyAtom, tX: cute.Tensor, store: cute.CopyAtom, tY: cute.Tensor, x: cute.Tensor, maps: cute.Tensor,
    how: cutlass.Constexpr,
):  # fmt: skip
    """One warp moves the tile at (1, 0) of x to (0, 1) of y."""
    tid, _, _ = arch.thread_idx()
    storage = cutlass.memory.SmemAllocator().allocate(Storage)
    tile = storage.tile.get_tensor(make_tile_layout())
    full = start(storage, tid)
    cpasync.prefetch_descriptor(load)
    tXsX, tXgX = parts(load, tX, tile, (1, 0))
    tYsY, tYgY = parts(store, tY, tile, (0, 1))
    with arch.elect_one():
        arch.mbarrier_arrive_and_expect_tx(full, BYTES)
    options = {"tma_desc_ptr": edited_map(load, storage, x, maps)} if cutlass.const_expr(how == "edited") else {}
    if cutlass.const_expr(how == "hinted"):
        options["cache_policy"] = Int64(0x14F0000000000000)
    cute.copy(load, tXgX, tXsX, tma_bar_ptr=full, **options)
    arch.mbarrier_wait(full, 0)
    options.pop("tma_desc_ptr", None)
    cute.copy(store, tYsY, tYgY, **options)
    finish()


def edited_map(load: Any, storage: Any, x: Any, maps: Any) -> Any:
    """The tensor map copied to shared memory, pointed at x there, and released to global memory."""
    here = storage.map.data_ptr()
    cpasync.copy_tensormap(load, here)
    arch.sync_warp()
    cpasync.update_tma_descriptor(load, x, here)
    arch.sync_warp()
    cpasync.fence_tma_desc_release()
    cpasync.cp_fence_tma_desc_release(maps.iterator, here)
    cpasync.fence_tma_desc_acquire(maps.iterator)
    manager = TensorMapManager(TensorMapUpdateMode.SMEM, 128)
    return manager.get_tensormap_ptr(maps.iterator, cute.AddressSpace.generic)


@cute.jit
def tensor_host(
    x: cute.Tensor, y: cute.Tensor, of_map: cute.Tensor, maps: cute.Tensor, store_op: cutlass.Constexpr,
    how: cutlass.Constexpr,
):  # fmt: skip
    layout = make_tile_layout()
    load, tX = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), of_map, layout, TILE)
    store, tY = cpasync.make_tiled_tma_atom(store_op, y, layout, TILE)
    tensor_kernel(load, tX, store, tY, x, maps, how).launch(grid=(1, 1, 1), block=(32, 1, 1), cluster=(1, 1, 1))


def by_tensor(name: str, store_op: Any, want: Callable, how: str = "plain", covers: tuple[str, ...] = ()) -> None:
    """want(before, moved) of the tile."""

    def check(device: str) -> None:
        source, result, maps = SOURCE.to(device), BEFORE.to(device, copy=True), torch.zeros(32, dtype=torch.int64)
        maps = maps.to(device)
        maps = maps[-maps.data_ptr() % 128 // 8 :][:16]  # a tensor map is copied to a multiple of 128 bytes
        if name.endswith(("INC", "DEC")):
            source, result = source.view(torch.uint32), result.view(torch.uint32)
        of_map = torch.zeros_like(source) if how == "edited" else source
        views = [cute.runtime.from_dlpack(t, assumed_align=16) for t in (source, result, of_map, maps)]
        tensor_host(*views, store_op, how)
        expected = numpy_of(BEFORE).copy()
        expected[:32, 32:] = want(expected[:32, 32:], numpy_of(SOURCE)[32:, :32])
        np.testing.assert_array_equal(numpy_of(result), expected)

    words = ("CopyBulkTensorTileG2SOp", "make_tiled_tma_atom", "tma_partition", "prefetch_descriptor", *covers)
    case(name, name.split(",")[0], *(f"cpasync.{word}" for word in words))(check)


STORE = cpasync.CopyBulkTensorTileS2GOp
by_tensor("cpasync.CopyBulkTensorTileS2GOp", STORE(), lambda before, moved: moved, covers=("TmaCopyOp",))
by_tensor("cpasync.CopyBulkTensorTileS2GOp, cache policy", STORE(), lambda before, moved: moved, "hinted")
EDITS = ("copy_tensormap", "fence_tma_desc_acquire", "cp_fence_tma_desc_release", "fence_tma_desc_release")
by_tensor("cpasync.update_tma_descriptor", STORE(), lambda before, moved: moved, "edited", EDITS)
REDUCTIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "ADD": np.add, "MIN": np.minimum, "MAX": np.maximum, "AND": np.bitwise_and, "OR": np.bitwise_or,
    "XOR": np.bitwise_xor, "INC": lambda before, moved: np.where(before >= moved, 0, before + 1),
    "DEC": lambda before, moved: np.where((before == 0) | (before > moved), moved, before - 1),
}  # fmt: skip
for kind, function in REDUCTIONS.items():
    by_tensor(f"cpasync.CopyReduceBulkTensorTileS2GOp, {kind}",
              cpasync.CopyReduceBulkTensorTileS2GOp(getattr(cute.ReductionKind, kind)), function)  # fmt: skip

# -- clusters: multicast --------------------------------------------------------------------------------------


@cute.kernel
def multicast_kernel(load: cute.CopyAtom, tX: cute.Tensor, y: cute.Tensor):
    """Each of two CTAs loads half a tile for both."""
    tid, _, _ = arch.thread_idx()
    rank = arch.make_warp_uniform(arch.block_idx_in_cluster())
    storage = cutlass.memory.SmemAllocator().allocate(Storage)
    tile = storage.tile.get_tensor(make_tile_layout())
    full = start(storage, tid)
    clusters = cute.make_layout((1, 2, 1, 1))
    mask = cpasync.create_tma_multicast_mask(clusters, (0, rank, 0, 0), mcast_mode=1)
    box = cute.local_tile(tX, TILE, (1, 1))
    two = cute.make_layout(2)
    tXsX, tXgX = cpasync.tma_partition(load, rank, two, cute.group_modes(tile, 0, 2), cute.group_modes(box, 0, 2))
    with arch.elect_one():
        arch.mbarrier_arrive_and_expect_tx(full, BYTES)
    cute.copy(load, tXgX, tXsX, tma_bar_ptr=full, mcast_mask=mask)
    arch.mbarrier_wait(full, 0)
    for i in cutlass.range_constexpr(32):
        y[rank, i, tid] = tile[i, tid]
    finish()


@cute.jit
def multicast_host(x: cute.Tensor, y: cute.Tensor):
    op = cpasync.CopyBulkTensorTileG2SMulticastOp()
    load, tX = cpasync.make_tiled_tma_atom(op, x, make_tile_layout(), TILE, num_multicast=2)
    multicast_kernel(load, tX, y).launch(grid=(2, 1, 1), block=(32, 1, 1), cluster=(2, 1, 1))


@case("cpasync.CopyBulkTensorTileG2SMulticastOp", "cpasync.CopyBulkTensorTileG2SMulticastOp",
      "cpasync.create_tma_multicast_mask")  # fmt: skip
def multicast(device: str) -> None:
    result = torch.zeros((2, *TILE), dtype=torch.int32, device=device)
    multicast_host(*(cute.runtime.from_dlpack(t, assumed_align=16) for t in (SOURCE.to(device), result)))
    assert all(torch.equal(part, SOURCE[32:, 32:]) for part in result.cpu())


# -- byte ranges ------------------------------------------------------------------------------------------------


@cute.kernel
def bulk_kernel(x: cute.Tensor, y: cute.Tensor, way: cutlass.Constexpr):
    """1024 numbers to shared memory, to that of the other CTA if there is one, and back to global memory."""
    tid, _, _ = arch.thread_idx()
    rank = arch.make_warp_uniform(arch.block_idx_in_cluster())
    storage = cutlass.memory.SmemAllocator().allocate(Storage)
    line = cute.make_layout(1024)
    tile = storage.tile.get_tensor(line)
    full = start(storage, tid)
    way(x, y, tile, full, rank)
    finish()


@cute.jit
def bulk_host(x: cute.Tensor, y: cute.Tensor, way: cutlass.Constexpr):
    bulk_kernel(x, y, way).launch(grid=(2, 1, 1), block=(32, 1, 1), cluster=(2, 1, 1))


def whole(tensor: Any) -> Any:
    return cute.group_modes(tensor, 0, cute.rank(tensor))


def load_and_store(x: Any, y: Any, tile: Any, full: Any, rank: Any) -> None:
    load = cute.make_copy_atom(cpasync.CopyBulkG2SOp(), Int32)
    store = cute.make_copy_atom(cpasync.CopyBulkS2GOp(), Int32)
    with arch.elect_one():
        arch.mbarrier_arrive_and_expect_tx(full, BYTES)
        cute.copy(load, whole(cute.local_tile(x, (1024,), (rank,))), whole(tile), mbar_ptr=full)
    arch.mbarrier_wait(full, 0)
    with arch.elect_one():
        cute.copy(store, whole(tile), whole(cute.local_tile(y, (1024,), (rank,))))


def load_for_both(x: Any, y: Any, tile: Any, full: Any, rank: Any) -> None:
    """Each CTA brings a half to both; each stores the half that it did not bring."""
    load = cute.make_copy_atom(cpasync.CopyBulkG2SMulticastOp(), Int32)
    store = cute.make_copy_atom(cpasync.CopyBulkS2GOp(), Int32)
    with arch.elect_one():
        arch.mbarrier_arrive_and_expect_tx(full, BYTES)
        here, there = cute.local_tile(tile, (512,), (rank,)), cute.local_tile(x, (512,), (rank,))
        cute.copy(load, whole(there), whole(here), mbar_ptr=full, mcast_mask=cutlass.Int16(3))
    arch.mbarrier_wait(full, 0)
    with arch.elect_one():
        other = (1 - rank,)
        cute.copy(store, whole(cute.local_tile(tile, (512,), other)), whole(cute.local_tile(y, (512,), other)))


def through_the_peer(x: Any, y: Any, tile: Any, full: Any, rank: Any) -> None:
    """CTA r loads half r into its first half, sends it to the second half of the other one, which stores it."""
    ops = cpasync.CopyBulkG2SOp(), cpasync.CopyBulkS2SOp(), cpasync.CopyBulkS2GOp()
    load, send, store = (cute.make_copy_atom(op, Int32) for op in ops)
    first, second = cute.local_tile(tile, (512,), (0,)), cute.local_tile(tile, (512,), (1,))
    with arch.elect_one():
        arch.mbarrier_arrive_and_expect_tx(full, BYTES // 2)
        cute.copy(load, whole(cute.local_tile(x, (512,), (rank,))), whole(first), mbar_ptr=full)
    arch.mbarrier_wait(full, 0)
    arch.cluster_arrive()
    arch.cluster_wait()
    with arch.elect_one():
        arch.mbarrier_arrive_and_expect_tx(full, BYTES // 2)
        cute.copy(send, whole(first), whole(second), mbar_ptr=full, cta_rank=1 - rank)
    arch.mbarrier_wait(full, 1)
    with arch.elect_one():
        cute.copy(store, whole(second), whole(cute.local_tile(y, (512,), (1 - rank,))))


def by_bytes(name: str, way: Callable[..., None], count: int, covers: tuple[str, ...]) -> None:
    """The first `count` numbers of x arrive at the same places of y."""

    def check(device: str) -> None:
        source, result = SOURCE.flatten().to(device), torch.zeros(4096, dtype=torch.int32, device=device)
        bulk_host(*(cute.runtime.from_dlpack(t, assumed_align=16) for t in (source, result)), way)
        assert torch.equal(result.cpu()[:count], SOURCE.flatten()[:count]) and not result[count:].any()

    case(name, name, *covers)(check)


by_bytes("cpasync.CopyBulkG2SOp", load_and_store, 2048, ("cpasync.CopyBulkS2GOp",))
by_bytes("cpasync.CopyBulkG2SMulticastOp", load_for_both, 1024, ())
by_bytes("cpasync.CopyBulkS2SOp", through_the_peer, 1024, ())

# -- what sm_90a does not have -----------------------------------------------------------------------------------


def refuse(name: str, make: Callable[[], Any]) -> None:
    def check(device: str) -> None:
        result = torch.zeros(4096, dtype=torch.int32, device=device)

        def way(x: Any, y: Any, tile: Any, full: Any, rank: Any) -> None:
            cute.make_copy_atom(make(), Int32)

        bulk_host(*(cute.runtime.from_dlpack(t, assumed_align=16) for t in (result, result)), way)

    refused(name, check)


refuse("cpasync.CopyBulkS2GByteMaskOp", cpasync.CopyBulkS2GByteMaskOp)
refuse("cpasync.CopyBulkTensor2DGather4G2SOp", cpasync.CopyBulkTensor2DGather4G2SOp)
refuse("cpasync.CopyBulkTensor2DGather4G2SMulticastOp", cpasync.CopyBulkTensor2DGather4G2SMulticastOp)
refuse("cpasync.CopyBulkTensor2DScatter4S2GOp", cpasync.CopyBulkTensor2DScatter4S2GOp)
