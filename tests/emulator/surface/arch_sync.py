"""cute.arch: barriers, fences, mbarriers, clusters, groups of copies, shared memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Int32, Int64

from tests.emulator.surface.cases import WARP, case, launch, refused

arch = cute.arch
THREADS = 128
VALUES = torch.arange(THREADS, dtype=torch.int32) * 3 + 1


def reversed_through_shared(device: str, meet: Callable[..., None]) -> None:
    """Each thread stores a value and reads that of the opposite thread, after `meet()`."""

    def body(tid: Any, x: Any, y: Any) -> None:
        buffer = cute.make_tensor(arch.alloc_smem(Int32, THREADS), cute.make_layout(THREADS))
        buffer[tid] = x[tid]
        meet()
        y[tid] = buffer[THREADS - 1 - tid]

    result = torch.zeros(THREADS, dtype=torch.int32, device=device)
    launch(body, [VALUES.to(device), result], threads=THREADS)
    assert torch.equal(result.cpu(), VALUES.flip(0))


def fenced(fence: Callable[..., None]) -> Callable[..., None]:
    def meet() -> None:
        fence()
        arch.sync_threads()

    return meet


MEETINGS: dict[str, Callable[..., None]] = {
    "arch.sync_threads": arch.sync_threads,
    "arch.barrier": arch.barrier,
    "arch.barrier, named": lambda: arch.barrier(barrier_id=3, number_of_threads=THREADS),
    **{f"arch.fence_acq_rel_{scope}": fenced(getattr(arch, f"fence_acq_rel_{scope}"))
       for scope in ("cta", "cluster", "gpu", "sys")},
    **{f"arch.fence_proxy, {kind}": fenced(lambda k=kind: arch.fence_proxy(k))
       for kind in ("alias", "async", "async.global")},
    **{f"arch.fence_proxy, async.shared {space}": fenced(lambda s=space: arch.fence_proxy("async.shared", space=s))
       for space in ("cta", "cluster")},
    "arch.fence_view_async_shared": fenced(arch.fence_view_async_shared),
    "arch.griddepcontrol_wait": fenced(arch.griddepcontrol_wait),
    "arch.griddepcontrol_launch_dependents": fenced(arch.griddepcontrol_launch_dependents),
    "arch.cp_async_commit_group": fenced(arch.cp_async_commit_group),
    "arch.cp_async_wait_group": fenced(lambda: arch.cp_async_wait_group(0)),
    "arch.cp_async_bulk_commit_group": fenced(arch.cp_async_bulk_commit_group),
    "arch.cp_async_bulk_wait_group": fenced(lambda: arch.cp_async_bulk_wait_group(0)),
    "arch.cp_async_bulk_wait_group, read": fenced(lambda: arch.cp_async_bulk_wait_group(1, read=True)),
}  # fmt: skip
for name, meet in MEETINGS.items():
    case(name)(partial(reversed_through_shared, meet=meet))


@case("arch.sync_warp")
def warp_meets(device: str) -> None:
    def body(tid: Any, x: Any, y: Any) -> None:
        buffer = cute.make_tensor(arch.alloc_smem(Int32, WARP), cute.make_layout(WARP))
        buffer[tid] = x[tid]
        arch.sync_warp()
        y[tid] = buffer[31 - tid]

    result = torch.zeros(WARP, dtype=torch.int32, device=device)
    launch(body, [VALUES.to(device), result])
    assert torch.equal(result.cpu(), VALUES[:WARP].flip(0))


@cute.kernel
def handing_over(x: cute.Tensor, y: cute.Tensor):
    """Two warps produce and arrive without waiting, two wait and consume."""
    tid, _, _ = arch.thread_idx()
    buffer = cute.make_tensor(arch.alloc_smem(Int32, 64), cute.make_layout(64))
    if tid < 64:
        buffer[tid] = x[tid]
        arch.barrier_arrive(barrier_id=1, number_of_threads=THREADS)
    else:
        arch.barrier(barrier_id=1, number_of_threads=THREADS)
        y[tid - 64] = buffer[127 - tid]


@cute.jit
def hand_over(x: cute.Tensor, y: cute.Tensor):
    handing_over(x, y).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


@case("arch.barrier_arrive")
def producer_and_consumer(device: str) -> None:
    result = torch.zeros(64, dtype=torch.int32, device=device)
    hand_over(cute.runtime.from_dlpack(VALUES.to(device)), cute.runtime.from_dlpack(result))
    assert torch.equal(result.cpu(), VALUES[:64].flip(0))


# -- mbarriers ---------------------------------------------------------------------------------------


@cute.kernel
def mbarrier_kernel(y: cute.Tensor, how: cutlass.Constexpr):
    """Phase 0 takes an arrival of every thread, with `how`; then the answers to a test and a wait."""
    tid, _, _ = arch.thread_idx()
    barrier = arch.alloc_smem(Int64, 1)
    if tid == 0:
        arch.mbarrier_init(barrier, THREADS)
    arch.mbarrier_init_fence()
    arch.sync_threads()
    before = Int32(arch.mbarrier_test_wait(barrier, 0))
    arch.sync_threads()
    how(barrier)
    arch.mbarrier_wait(barrier, 0)
    y[tid, 0] = before
    y[tid, 1] = Int32(arch.mbarrier_try_wait(barrier, 0))
    y[tid, 2] = Int32(arch.mbarrier_conditional_try_wait(tid % 2 == 0, barrier, 0))


@cute.jit
def mbarrier_host(y: cute.Tensor, how: cutlass.Constexpr):
    mbarrier_kernel(y, how).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


def arrive_after_copies(barrier: Any) -> None:
    arch.cp_async_mbarrier_arrive_noinc(barrier)


ARRIVALS: dict[str, Callable[..., None]] = {
    "arch.mbarrier_arrive": arch.mbarrier_arrive,
    "arch.mbarrier_arrive, relaxed": lambda barrier: arch.mbarrier_arrive(barrier, relaxed=True),
    "arch.mbarrier_arrive_and_expect_tx": lambda barrier: arch.mbarrier_arrive_and_expect_tx(barrier, 0),
    "arch.cp_async_mbarrier_arrive_noinc": arrive_after_copies,
}
WAITS = ("init", "init_fence", "wait", "try_wait", "test_wait", "conditional_try_wait")


def phase(name: str, how: Callable[..., None]) -> None:
    def check(device: str) -> None:
        result = torch.zeros((THREADS, 3), dtype=torch.int32, device=device)
        mbarrier_host(cute.runtime.from_dlpack(result), how)
        assert result.cpu().tolist() == [[0, 1, 1]] * THREADS, name

    case(name, name.split(",")[0], *(f"arch.mbarrier_{word}" for word in WAITS))(check)


for name, how in ARRIVALS.items():
    phase(name, how)


@cute.kernel
def cluster_kernel(y: cute.Tensor, send: cutlass.Constexpr):
    """Every CTA of a cluster of two gives the other one four numbers; bytes or arrivals say when they are there."""
    tid, _, _ = arch.thread_idx()
    rank = arch.block_idx_in_cluster()
    storage = cutlass.memory.SmemAllocator()
    box = storage.allocate_tensor(Int32, cute.make_layout(4), byte_alignment=16)
    barrier = storage.allocate_array(Int64, 1)
    if tid == 0:
        arch.mbarrier_init(barrier, 1)
    arch.mbarrier_init_fence()
    arch.cluster_arrive_relaxed()
    arch.cluster_wait()
    if tid == 0:
        send(box, barrier, rank, 1 - rank)
    arch.mbarrier_wait(barrier, 0)
    if tid < 4:
        y[rank, tid] = box[tid]
    arch.cluster_arrive()
    arch.cluster_wait()


@cute.jit
def cluster_host(y: cute.Tensor, send: cutlass.Constexpr):
    cluster_kernel(y, send).launch(grid=(2, 1, 1), block=(WARP, 1, 1), cluster=(2, 1, 1))


def by_copy_atom(box: Any, barrier: Any, rank: Any, peer: Any) -> None:
    arch.mbarrier_arrive_and_expect_tx(barrier, 16)
    numbers = cute.make_rmem_tensor(4, Int32)
    for i in range(4):
        numbers[i] = 10 * rank + i
    atom = cute.make_copy_atom(cute.nvgpu.cpasync.CopyDsmemStoreOp(), Int32, num_bits_per_copy=128)
    there = cute.make_tensor(arch.map_dsmem_ptr(box.iterator, peer), cute.make_layout(4))
    cute.copy(atom, numbers, there, mbar_ptr=arch.map_dsmem_ptr(barrier, peer))


def by_async_store(box: Any, barrier: Any, rank: Any, peer: Any) -> None:
    arch.mbarrier_arrive_and_expect_tx(barrier, 16)
    numbers = tuple(10 * rank + i for i in range(4))
    arch.store_async_dsmem(box.iterator, numbers, barrier, peer)


def by_two_async_stores(box: Any, barrier: Any, rank: Any, peer: Any) -> None:
    arch.mbarrier_expect_tx(barrier, 16)
    arch.mbarrier_arrive(barrier)
    for i in range(2):
        arch.store_async_dsmem(box.iterator + 2 * i, (10 * rank + 2 * i, 10 * rank + 2 * i + 1), barrier, peer)


SENDS: dict[str, Callable[..., None]] = {
    "map_dsmem_ptr": by_copy_atom, "store_async_dsmem": by_async_store,
    "mbarrier_expect_tx": by_two_async_stores,
}  # fmt: skip
for name, send in SENDS.items():

    def check_cluster(device: str, send: Callable[..., None] = send) -> None:
        result = torch.zeros((2, 4), dtype=torch.int32, device=device)
        cluster_host(cute.runtime.from_dlpack(result), send)
        assert result.cpu().tolist() == [[10, 11, 12, 13], [0, 1, 2, 3]]

    words = (f"arch.{word}" for word in (name, "cluster_arrive", "cluster_arrive_relaxed", "cluster_wait"))
    case(f"arch.{name}", *words, *(["cpasync.CopyDsmemStoreOp"] if send is by_copy_atom else []))(check_cluster)

# -- one thread, registers, dynamic shared memory --------------------------------------------------------


@case("arch.elect_one")
def one_of_a_warp(device: str) -> None:
    def body(tid: Any, y: Any) -> None:
        with arch.elect_one():
            arch.atomic_add(y.iterator, Int32(1))

    count = torch.zeros(1, dtype=torch.int32, device=device)
    launch(body, [count], threads=THREADS)
    assert count.item() == THREADS // 32


@cute.kernel
def dynamic_kernel(x: cute.Tensor, y: cute.Tensor):
    tid, _, _ = arch.thread_idx()
    buffer = cute.make_tensor(arch.get_dyn_smem(Int32, alignment=16), cute.make_layout(THREADS))
    buffer[tid] = x[tid] + arch.get_dyn_smem_size()
    arch.sync_threads()
    y[tid] = buffer[THREADS - 1 - tid]


@cute.jit
def dynamic_host(x: cute.Tensor, y: cute.Tensor):
    dynamic_kernel(x, y).launch(grid=(1, 1, 1), block=(THREADS, 1, 1), smem=4 * THREADS)


@case("arch.get_dyn_smem", "arch.get_dyn_smem", "arch.get_dyn_smem_size", "arch.alloc_smem")
def dynamic_shared_memory(device: str) -> None:
    result = torch.zeros(THREADS, dtype=torch.int32, device=device)
    dynamic_host(cute.runtime.from_dlpack(VALUES.to(device)), cute.runtime.from_dlpack(result))
    assert torch.equal(result.cpu(), VALUES.flip(0) + 4 * THREADS)


@cute.kernel
def register_kernel(y: cute.Tensor, down: cutlass.Constexpr, up: cutlass.Constexpr):
    tid, _, _ = arch.thread_idx()
    if tid < 128:
        down(40)
    else:
        up(232)
    y[tid] = tid


@cute.jit
def register_host(y: cute.Tensor, down: cutlass.Constexpr, up: cutlass.Constexpr):
    register_kernel(y, down, up).launch(grid=(1, 1, 1), block=(256, 1, 1), min_blocks_per_mp=1)


def registers(down: str, up: str) -> None:
    def check(device: str) -> None:
        result = torch.zeros(256, dtype=torch.int32, device=device)
        register_host(cute.runtime.from_dlpack(result), getattr(arch, down), getattr(arch, up))
        assert result.cpu().tolist() == list(range(256))

    case(f"arch.{up}", f"arch.{up}", f"arch.{down}")(check)


registers("setmaxregister_decrease", "setmaxregister_increase")
registers("warpgroup_reg_dealloc", "warpgroup_reg_alloc")

# -- what sm_90a does not have ---------------------------------------------------------------------------


def refuse(name: str, operation: Callable[[Any], Any]) -> None:
    """The compiler refuses operation(pointer to 16 bytes of shared memory)."""

    def check(device: str) -> None:
        def body(tid: Any, y: Any) -> None:
            answer = operation(arch.alloc_smem(Int64, 2, alignment=16))
            y[tid] = tid if answer is None else answer[0]

        launch(body, [torch.zeros(WARP, dtype=torch.int32, device=device)])

    refused(name, check)


refuse("arch.fence_view_async_tmem_load", lambda p: arch.fence_view_async_tmem_load())
refuse("arch.fence_view_async_tmem_store", lambda p: arch.fence_view_async_tmem_store())
refuse("arch.issue_clc_query", lambda p: arch.issue_clc_query(p, p))
refuse("arch.clc_response", lambda p: arch.clc_response(p))
refuse("arch.alloc_tmem", lambda p: arch.alloc_tmem(128, cute.recast_ptr(p, dtype=Int32)))
for name in ("arch.retrieve_tmem_ptr", "arch.dealloc_tmem"):
    refuse(name, lambda p: arch.dealloc_tmem(arch.retrieve_tmem_ptr(
        cutlass.Float32, 16, cute.recast_ptr(p, dtype=Int32)), 128))  # fmt: skip
refuse("arch.relinquish_tmem_alloc_permit", lambda p: arch.relinquish_tmem_alloc_permit())
