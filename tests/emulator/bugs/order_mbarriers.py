"""mbarriers: what an arrival passes on, which phase a wait is for, and whose memory an mbarrier's is.

`handover` and `fenced_handover` hand a row over, `rounds` takes turns phase by phase, `buffers` fills two places in
turn, `beside` has a row next to an mbarrier, `bulk` a row that a bulk copy brings, `again` initialises an mbarrier
twice; `cluster` and `fenced_cluster` read another CTA's row, `neighbours` after an arrival at an mbarrier of the
reader, `copied` one that cp.async has brought, `guests` one whose owner stays until it has been read; in
`one_warp` the lanes of one warp use what one of them has initialised.
"""

import cutlass
import cutlass.cute as cute
import cutlass.memory
from cutlass import Int32, Uint32
from cutlass._mlir.dialects.nvvm import MemScopeKind
from cutlass.cute.nvgpu import cpasync

THREADS = 128
ROUNDS = 3
SHIFT = 0  # of a row in its place, in numbers


@cute.struct
class Storage:
    row: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, THREADS], 128]
    full: cute.struct.MemRange[cutlass.Int64, 1]


@cute.jit
def allocate():
    storage = cutlass.memory.SmemAllocator().allocate(Storage)
    return storage.row.get_tensor(cute.make_layout(THREADS)), storage.full.data_ptr()


@cute.kernel
def handover_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    row, full = allocate()
    row[tid] = 0.0
    if tid == 0:
        cute.arch.mbarrier_init(full, THREADS)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    row[tid] = mX[tid]  # handed over
    cute.arch.mbarrier_arrive(full)  # handing over
    cute.arch.mbarrier_wait(full, 0)
    mY[tid] = row[THREADS - 1 - tid]  # taken


@cute.jit
def handover(mX: cute.Tensor, mY: cute.Tensor):
    handover_kernel(mX, mY).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def fenced_handover_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    row, full = allocate()
    row[tid] = 0.0
    if tid == 0:
        cute.arch.mbarrier_init(full, THREADS)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    row[tid] = mX[tid]  # fenced
    cute.arch.fence_acq_rel_cta()  # before the arrival
    cute.arch.mbarrier_arrive(full, relaxed=True)
    cute.arch.mbarrier_wait(full, 0)
    mY[tid] = row[THREADS - 1 - tid]  # behind the fence


@cute.jit
def fenced_handover(mX: cute.Tensor, mY: cute.Tensor):
    fenced_handover_kernel(mX, mY).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def rounds_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """Warp 0 hands over one number after the other, each in a place of its own, and never two phases ahead."""
    tid, _, _ = cute.arch.thread_idx()
    row, full = allocate()
    empty = cutlass.memory.SmemAllocator().allocate_array(cutlass.Int64, 1)
    row[tid] = 0.0
    if tid == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init(empty, 32)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    if tid == 0:
        for n in cutlass.range(ROUNDS, unroll=1):
            cute.arch.mbarrier_wait(empty, (n & 1) ^ 1)  # the number before has been read
            row[n] = mX[n]
            cute.arch.mbarrier_arrive(full)
    if tid >= 32:
        for n in cutlass.range(ROUNDS, unroll=1):
            cute.arch.mbarrier_wait(full, n & 1)
            mY[n, tid - 32] = row[n]
            cute.arch.mbarrier_arrive(empty)


@cute.jit
def rounds(mX: cute.Tensor, mY: cute.Tensor):
    rounds_kernel(mX, mY).launch(grid=(1, 1, 1), block=(64, 1, 1))


@cute.kernel
def buffers_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """Warp 0 fills two buffers in turn, and may be two rows ahead of warp 1."""
    tid, _, _ = cute.arch.thread_idx()
    row, _ = allocate()
    full = cutlass.memory.SmemAllocator().allocate_array(cutlass.Int64, 4)
    empty = full + 2
    if tid == 0:
        for i in cutlass.range_constexpr(4):
            cute.arch.mbarrier_init(full + i, 32)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    for n in cutlass.range(2 * ROUNDS, unroll=1):
        buffer, turn = n % 2, n // 2
        if tid < 32:
            cute.arch.mbarrier_wait(empty + buffer, (turn & 1) ^ 1)
            row[32 * buffer + tid] = mX[n, tid]
            cute.arch.mbarrier_arrive(full + buffer)  # one for each buffer
        else:
            cute.arch.mbarrier_wait(full + buffer, turn & 1)  # that of the buffer
            mY[n, tid - 32] = row[32 * buffer + tid - 32]
            cute.arch.mbarrier_arrive(empty + buffer)


@cute.jit
def buffers(mX: cute.Tensor, mY: cute.Tensor):
    buffers_kernel(mX, mY).launch(grid=(1, 1, 1), block=(64, 1, 1))


@cute.kernel
def beside_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    row, full = allocate()
    row[tid] = 0.0
    if tid == 0:
        cute.arch.mbarrier_init(full, THREADS)  # behind the row
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    row[tid + SHIFT] = mX[tid]
    cute.arch.mbarrier_arrive(full)
    cute.arch.mbarrier_wait(full, 0)
    mY[tid] = row[THREADS - 1 - tid]


@cute.jit
def beside(mX: cute.Tensor, mY: cute.Tensor):
    beside_kernel(mX, mY).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def bulk_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    row, full = allocate()
    if tid == 0:
        cute.arch.mbarrier_init(full, 1)  # behind the row that is copied
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    copy = cute.make_copy_atom(cpasync.CopyBulkG2SOp(), cutlass.Float32)
    place = cute.make_tensor((row.iterator + SHIFT).align(16), row.layout)
    if tid < 32:
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, 4 * THREADS)
            cute.copy(copy, cute.group_modes(mX, 0, 1), cute.group_modes(place, 0, 1), mbar_ptr=full)
    cute.arch.mbarrier_wait(full, 0)
    mY[tid] = row[THREADS - 1 - tid]


@cute.jit
def bulk(mX: cute.Tensor, mY: cute.Tensor):
    bulk_kernel(mX, mY).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def again_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """The mbarrier is for all threads first, then for the first warp."""
    tid, _, _ = cute.arch.thread_idx()
    row, full = allocate()
    if tid == 0:
        cute.arch.mbarrier_init(full, THREADS)
    cute.arch.sync_threads()
    row[tid] = mX[tid]
    cute.arch.mbarrier_arrive(full)
    cute.arch.mbarrier_wait(full, 0)
    total = row[THREADS - 1 - tid]
    cute.arch.sync_threads()
    if tid == 0:
        inval(full)  # no longer an mbarrier
        cute.arch.mbarrier_init(full, 32)  # again
    cute.arch.sync_threads()
    if tid < 32:
        row[tid] = total
        cute.arch.mbarrier_arrive(full)
    cute.arch.mbarrier_wait(full, 0)
    mY[tid] = row[tid % 32]


@cute.jit
def inval(barrier: cute.Pointer):
    cute.arch.inline_ptx("mbarrier.inval.shared::cta.b64 [{$r0}];", read_only_args=[barrier.toint().to(Uint32)])


@cute.jit
def again(mX: cute.Tensor, mY: cute.Tensor):
    again_kernel(mX, mY).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


@cute.jit
def load_from_the_other(pointer: cute.Pointer, rank: Int32):
    return cute.arch.inline_ptx(  # the remote load
        "{ .reg .b32 a; mapa.shared::cluster.u32 a, {$r0}, {$r1}; ld.shared::cluster.f32 {$w0}, [a]; }",
        write_only_types=[cutlass.Float32], read_only_args=[pointer.toint().to(Uint32), 1 - rank],
    )  # fmt: skip


@cute.kernel
def cluster_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    row, _ = allocate()
    row[tid] = mX[rank, tid]  # for the other CTA
    cute.arch.cluster_arrive()  # the row is there
    cute.arch.cluster_wait()
    mY[rank, tid] = load_from_the_other(row.iterator + (THREADS - 1 - tid), rank)
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


@cute.jit
def cluster(mX: cute.Tensor, mY: cute.Tensor):
    cluster_kernel(mX, mY).launch(grid=(2, 1, 1), block=(THREADS, 1, 1), cluster=(2, 1, 1))


@cute.kernel
def fenced_cluster_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    row, _ = allocate()
    row[tid] = mX[rank, tid]  # for the other CTA, fenced
    cute.arch.fence_acq_rel_cluster()  # before the arrival at the cluster's barrier
    cute.arch.cluster_arrive_relaxed()
    cute.arch.cluster_wait()
    mY[rank, tid] = load_from_the_other(row.iterator + (THREADS - 1 - tid), rank)  # across
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


@cute.jit
def fenced_cluster(mX: cute.Tensor, mY: cute.Tensor):
    fenced_cluster_kernel(mX, mY).launch(grid=(2, 1, 1), block=(THREADS, 1, 1), cluster=(2, 1, 1))


@cute.kernel
def neighbours_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """Two CTAs show each other their rows, twice, and say when they have read."""
    tid, _, _ = cute.arch.thread_idx()
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    row, full = allocate()
    empty = cutlass.memory.SmemAllocator().allocate_array(cutlass.Int64, 1)
    if tid == 0:
        cute.arch.mbarrier_init(full, THREADS)
        cute.arch.mbarrier_init(empty, THREADS)
    cute.arch.mbarrier_init_fence()
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    for n in cutlass.range_constexpr(2):
        row[tid] = mX[rank, tid] - 1 + n  # for the neighbour
        cute.arch.mbarrier_arrive(full, 1 - rank, scope=MemScopeKind.CLUSTER)  # tells it
        cute.arch.mbarrier_wait(full, n)
        mY[rank, tid] = load_from_the_other(row.iterator + (THREADS - 1 - tid), rank)
        cute.arch.mbarrier_arrive(empty, 1 - rank)  # has read
        cute.arch.mbarrier_wait(empty, n)  # has been read
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


@cute.jit
def neighbours(mX: cute.Tensor, mY: cute.Tensor):
    neighbours_kernel(mX, mY).launch(grid=(2, 1, 1), block=(THREADS, 1, 1), cluster=(2, 1, 1))


@cute.jit
def meet():
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


@cute.kernel
def copied_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """Each CTA copies its row, waits for the copies, and tells the other one."""
    tid, _, _ = cute.arch.thread_idx()
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    row, full = allocate()
    if tid == 0:
        cute.arch.mbarrier_init(full, THREADS)
    cute.arch.mbarrier_init_fence()
    meet()
    atom = cute.make_copy_atom(cpasync.CopyG2SOp(), cutlass.Float32, num_bits_per_copy=32)
    cute.copy(atom, cute.local_tile(mX[rank, None], (1,), (tid,)), cute.local_tile(row, (1,), (tid,)))  # by the owner
    cute.arch.cp_async_commit_group()
    cute.arch.cp_async_wait_group(0)
    cute.arch.mbarrier_arrive(full, 1 - rank, scope=MemScopeKind.CLUSTER)  # passes the copy on
    cute.arch.mbarrier_wait(full, 0)
    mY[rank, tid] = load_from_the_other(row.iterator + (THREADS - 1 - tid), rank)
    meet()


@cute.jit
def copied(mX: cute.Tensor, mY: cute.Tensor):
    copied_kernel(mX, mY).launch(grid=(2, 1, 1), block=(THREADS, 1, 1), cluster=(2, 1, 1))


@cute.kernel
def guests_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """CTA 1 reads the row of CTA 0, which stays until every warp has said that it has."""
    tid, _, _ = cute.arch.thread_idx()
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    row, read = allocate()
    if tid == 0:
        cute.arch.mbarrier_init(read, THREADS // 32)  # every warp
    cute.arch.mbarrier_init_fence()
    row[tid] = mX[tid]
    meet()
    if rank == 1:
        mY[tid] = load_from_the_other(row.iterator + (THREADS - 1 - tid), rank)
        cute.arch.sync_warp()  # all lanes have read
        if tid % 32 == 0:  # says so
            cute.arch.mbarrier_arrive(read, 0, scope=MemScopeKind.CLUSTER)
    else:
        cute.arch.mbarrier_wait(read, 0)


@cute.jit
def guests(mX: cute.Tensor, mY: cute.Tensor):
    guests_kernel(mX, mY).launch(grid=(2, 1, 1), block=(THREADS, 1, 1), cluster=(2, 1, 1))


@cute.kernel
def one_warp_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    row, full = allocate()
    if tid == 0:
        cute.arch.mbarrier_init(full, 32)  # by one lane
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_warp()  # the other lanes learn of it
    row[tid] = mX[tid]
    cute.arch.mbarrier_arrive(full)  # every lane
    cute.arch.mbarrier_wait(full, 0)
    mY[tid] = row[31 - tid]


@cute.jit
def one_warp(mX: cute.Tensor, mY: cute.Tensor):
    one_warp_kernel(mX, mY).launch(grid=(1, 1, 1), block=(32, 1, 1))
