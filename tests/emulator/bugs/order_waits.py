"""Who learns what from a wait, and when: lanes that wait alone, relaxed waits, copies that arrive; each is correct.

A wait orders what comes after it in the thread that waits; bar.warp.sync and barriers pass that on to other lanes
(PTX ISA, section 8). What an asynchronous arrival makes known is what its thread knew when it was issued.
"""

import cutlass
import cutlass.cute as cute
import cutlass.memory
from cutlass import Float32, Int32, Uint32
from cutlass.cute.nvgpu import cpasync

WARP = 32


@cute.struct
class Storage:
    row: cute.struct.Align[cute.struct.MemRange[Float32, WARP], 128]
    other: cute.struct.Align[cute.struct.MemRange[Float32, WARP], 128]
    full: cute.struct.MemRange[cutlass.Int64, 1]


@cute.jit
def allocate(count: cutlass.Constexpr):
    """Two empty rows, and an mbarrier for so many arrivals."""
    tid, _, _ = cute.arch.thread_idx()
    storage = cutlass.memory.SmemAllocator().allocate(Storage)
    row, other = storage.row.get_tensor(cute.make_layout(WARP)), storage.other.get_tensor(cute.make_layout(WARP))
    full = storage.full.data_ptr()
    if tid < WARP:
        row[tid] = 0.0
        other[tid] = 0.0
    if tid == 0:
        cute.arch.mbarrier_init(full, count)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    return row, other, full


@cute.jit
def wait_relaxed(barrier: cute.Pointer):
    done = Int32(0)
    while done == 0:
        done = cute.arch.inline_ptx(
            "{ .reg .pred p; mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 p, [{$r0}], 0; "
            "selp.s32 {$w0}, 1, 0, p; }",
            write_only_types=[Int32], read_only_args=[barrier.toint().to(Uint32)],
        )  # fmt: skip


@cute.kernel
def relaxed_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """Warp 0 hands a row to warp 1, whose wait is relaxed: the fence behind it acquires."""
    tid, _, _ = cute.arch.thread_idx()
    row, _, full = allocate(WARP)
    if tid < WARP:
        row[tid] = mX[tid]  # handed over
        cute.arch.mbarrier_arrive(full)
    else:
        wait_relaxed(full)  # of warp 1
        cute.arch.fence_acq_rel_cta()  # behind the wait
        mY[tid - WARP] = row[2 * WARP - 1 - tid]  # taken


@cute.jit
def relaxed(mX: cute.Tensor, mY: cute.Tensor):
    relaxed_kernel(mX, mY).launch(grid=(1, 1, 1), block=(2 * WARP, 1, 1))


@cute.kernel
def bulk_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """A bulk copy brings the row; the wait for it is relaxed."""
    tid, _, _ = cute.arch.thread_idx()
    row, _, full = allocate(1)
    copy = cute.make_copy_atom(cpasync.CopyBulkG2SOp(), Float32)
    if tid < WARP:
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, 4 * WARP)
            cute.copy(copy, cute.group_modes(mX, 0, 1), cute.group_modes(row, 0, 1), mbar_ptr=full)  # brings the row
    wait_relaxed(full)
    cute.arch.fence_acq_rel_cta()  # behind the copy's wait
    if tid >= WARP:
        mY[tid - WARP] = row[2 * WARP - 1 - tid]  # brought


@cute.jit
def bulk(mX: cute.Tensor, mY: cute.Tensor):
    bulk_kernel(mX, mY).launch(grid=(1, 1, 1), block=(2 * WARP, 1, 1))


@cute.kernel
def lane_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """One lane of warp 1 waits for warp 0's row, then all its lanes read."""
    tid, _, _ = cute.arch.thread_idx()
    row, _, full = allocate(WARP)
    if tid < WARP:
        row[tid] = mX[tid]  # for the other warp
        cute.arch.mbarrier_arrive(full)
    else:
        n = tid
        if tid == WARP:  # only one
            cute.arch.mbarrier_wait(full, 0)
        cute.arch.sync_warp()  # all lanes of the reader
        mY[n - WARP] = row[2 * WARP - 1 - n]  # by all lanes


@cute.jit
def lane(mX: cute.Tensor, mY: cute.Tensor):
    lane_kernel(mX, mY).launch(grid=(1, 1, 1), block=(2 * WARP, 1, 1))


@cute.kernel
def alone_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """One lane of warp 1 waits for warp 0's row and has it copied out: the other lanes need not know."""
    tid, _, _ = cute.arch.thread_idx()
    row, _, full = allocate(WARP)
    copy = cute.make_copy_atom(cpasync.CopyBulkS2GOp(), Float32)
    if tid < WARP:
        row[tid] = mX[WARP - 1 - tid]  # for the copy
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.mbarrier_arrive(full)
    else:
        if tid == WARP:  # one lane waits
            cute.arch.mbarrier_wait(full, 0)
        if tid == WARP:  # and has the row copied
            cute.copy(copy, cute.group_modes(row, 0, 1), cute.group_modes(mY, 0, 1))  # out
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def alone(mX: cute.Tensor, mY: cute.Tensor):
    alone_kernel(mX, mY).launch(grid=(1, 1, 1), block=(2 * WARP, 1, 1))


@cute.kernel
def refill_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """One lane stores a row with a bulk copy and waits until it has been read; then all lanes fill it again."""
    tid, _, _ = cute.arch.thread_idx()
    row, _, _ = allocate(1)
    copy = cute.make_copy_atom(cpasync.CopyBulkS2GOp(), Float32)
    for n in cutlass.range_constexpr(2):
        row[tid] = mX[n, tid] + 1.0  # fills the row
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.sync_warp()
        if tid == 0:
            cute.copy(copy, cute.group_modes(row, 0, 1), cute.group_modes(mY[n, None], 0, 1))  # stores the row
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0, read=True)
        cute.arch.sync_warp()  # all lanes know of the store


@cute.jit
def refill(mX: cute.Tensor, mY: cute.Tensor):
    refill_kernel(mX, mY).launch(grid=(1, 1, 1), block=(WARP, 1, 1))


@cute.kernel
def post_kernel(mX: cute.Tensor, mRow: cute.Tensor, mFlag: cute.Tensor, mY: cute.Tensor):
    """CTA 0, a warp, writes a row and raises a flag; one lane of CTA 1 waits for it, and then all read."""
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    if cta == 0:
        mRow[tid] = mX[tid]
        cute.arch.sync_warp()
        if tid == 0:
            cute.arch.store(mFlag.iterator, Int32(1), sem="release", scope="gpu")
    else:
        n = tid
        if tid == 0:
            while cute.arch.load(mFlag.iterator, Int32, sem="acquire", scope="gpu") == 0:
                pass
        cute.arch.sync_warp()  # all lanes know of the flag
        mY[n] = mRow[WARP - 1 - n]


@cute.jit
def post(mX: cute.Tensor, mRow: cute.Tensor, mFlag: cute.Tensor, mY: cute.Tensor):
    post_kernel(mX, mRow, mFlag, mY).launch(grid=(2, 1, 1), block=(WARP, 1, 1))


@cute.jit
def copy_async(source: cute.Pointer, target: cute.Pointer):
    cute.arch.inline_ptx(  # copies a number
        "cp.async.ca.shared.global [{$r0}], [{$r1}], 4;", read_only_args=[target.toint().to(Uint32), source.toint()]
    )


@cute.kernel
def arrives_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """Warp 0 stores one row and copies another with cp.async; its copies arrive for both, and everybody waits."""
    tid, _, _ = cute.arch.thread_idx()
    row, other, full = allocate(WARP)
    if tid < WARP:
        other[tid] = 1.0  # before its arrival
        copy_async(mX.iterator + tid, row.iterator + tid)
        cute.arch.cp_async_mbarrier_arrive_noinc(full)  # when the copies are there
        cute.arch.mbarrier_wait(full, 0)  # by those who copy
        mY[tid] = row[tid]  # its own copy
    else:
        cute.arch.mbarrier_wait(full, 0)  # by the others
        mY[tid] = row[2 * WARP - 1 - tid] + other[2 * WARP - 1 - tid]  # both rows


@cute.jit
def arrives(mX: cute.Tensor, mY: cute.Tensor):
    arrives_kernel(mX, mY).launch(grid=(1, 1, 1), block=(2 * WARP, 1, 1))


@cute.jit
def load_read_only(pointer: cute.Pointer):
    return cute.arch.inline_ptx(  # read-only
        "ld.global.nc.f32 {$w0}, [{$r0}];", write_only_types=[Float32], read_only_args=[pointer.toint()]
    )


@cute.kernel
def twice_kernel(mX: cute.Tensor, mT: cute.Tensor, mY: cute.Tensor):
    """The warps of a CTA exchange a row through global memory, which they load in the ordinary way."""
    tid, _, _ = cute.arch.thread_idx()
    mT[tid] = load_read_only(mX.iterator + tid)  # into the row
    cute.arch.sync_threads()
    mY[tid] = mT[2 * WARP - 1 - tid]  # from the row


@cute.jit
def twice(mX: cute.Tensor, mT: cute.Tensor, mY: cute.Tensor):
    twice_kernel(mX, mT, mY).launch(grid=(1, 1, 1), block=(2 * WARP, 1, 1))


@cute.kernel
def tally_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """Two CTAs add to the same numbers, with atomic operations of the GPU's scope."""
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    if cta == 0:
        cute.arch.atomic_add(mY.iterator + tid, mX[0, tid], sem="relaxed", scope="gpu")  # by CTA 0
    else:
        cute.arch.atomic_add(mY.iterator + tid, mX[1, tid], sem="relaxed", scope="gpu")  # by CTA 1


@cute.jit
def tally(mX: cute.Tensor, mY: cute.Tensor):
    tally_kernel(mX, mY).launch(grid=(2, 1, 1), block=(WARP, 1, 1))


@cute.kernel
def deliver_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """CTA 1 stores a row into CTA 0's shared memory with st.async, whose bytes CTA 0's mbarrier counts."""
    tid, _, _ = cute.arch.thread_idx()
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    row, _, full = allocate(1)
    if tid == 0:
        cute.arch.mbarrier_arrive_and_expect_tx(full, 4 * WARP)
    meet()
    if rank == 1:
        store_async(row.iterator + tid, mX[tid], full)
    else:
        cute.arch.mbarrier_wait(full, 0)  # for the row
        mY[tid] = row[WARP - 1 - tid]  # delivered
    meet()


@cute.jit
def meet():
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


@cute.jit
def store_async(pointer: cute.Pointer, value: Float32, barrier: cute.Pointer):
    cute.arch.inline_ptx(  # delivers
        "{ .reg .b32 a, b; mapa.shared::cluster.u32 a, {$r0}, 0; mapa.shared::cluster.u32 b, {$r2}, 0; "
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [a], {$r1}, [b]; }",
        read_only_args=[pointer.toint().to(Uint32), value, barrier.toint().to(Uint32)],
    )


@cute.jit
def deliver(mX: cute.Tensor, mY: cute.Tensor):
    deliver_kernel(mX, mY).launch(grid=(2, 1, 1), block=(WARP, 1, 1), cluster=(2, 1, 1))
