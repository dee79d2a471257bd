"""Shared memory between warps and between the CTAs of a cluster: each kernel here is correct, and small.

`rows` and `codes` mirror rows (float32 and int8), `halves` swaps what two warps wrote into the two halves of a word,
`turns` writes one row twice, `two_pairs` mirrors two halves in turn, `broadcast` hands one number per round to four
warps, `count` counts values, `lock` adds under a lock, `leave` has a warp that leaves early, `gather` and `send` write
into another CTA.
"""

import cutlass
import cutlass.cute as cute
import cutlass.memory
from cutlass import Int32, Uint32
from cutlass._mlir.dialects.nvvm import MemScopeKind

THREADS = 128
CLUSTER = MemScopeKind.CLUSTER
ROUNDS = 3
FIRST, LAST = 0, 3  # the warps that give the number back


@cute.jit
def shared(dtype: cutlass.Constexpr, n: cutlass.Constexpr):
    return cutlass.memory.SmemAllocator().allocate_tensor(dtype, cute.make_layout(n), byte_alignment=16)


@cute.kernel
def rows_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    row = shared(cutlass.Float32, THREADS)
    row[tid] = 0.0
    cute.arch.sync_threads()
    for n in cutlass.range(ROUNDS, unroll=1):
        row[tid] = mX[n, tid]
        cute.arch.sync_threads()  # the row is there
        mY[n, tid] = row[THREADS - 1 - tid]
        cute.arch.sync_threads()  # the row is no longer needed


@cute.jit
def rows(mX: cute.Tensor, mY: cute.Tensor):
    rows_kernel(mX, mY).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def codes_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    code = shared(cutlass.Int8, THREADS)
    code[tid] = cutlass.Int8(0)
    cute.arch.sync_threads()
    for n in cutlass.range(ROUNDS, unroll=1):
        code[tid] = mX[n, tid]
        cute.arch.sync_threads()  # the bytes are there
        mY[n, tid] = code[THREADS - 1 - tid]
        cute.arch.sync_threads()  # the bytes are no longer needed


@cute.jit
def codes(mX: cute.Tensor, mY: cute.Tensor):
    codes_kernel(mX, mY).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def halves_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """Warp 0 writes the lower half of each word, warp 1 the upper one; each reads what the other wrote."""
    tid, _, _ = cute.arch.thread_idx()
    lane, warp = tid % 32, tid // 32
    half = shared(cutlass.Float16, 64)
    half[2 * lane + warp] = cutlass.Float16(0.0)
    cute.arch.sync_threads()
    half[2 * lane + warp] = mX[tid]
    cute.arch.sync_threads()  # both halves are there
    mY[tid] = half[2 * lane + 1 - warp]


@cute.jit
def halves(mX: cute.Tensor, mY: cute.Tensor):
    halves_kernel(mX, mY).launch(grid=(1, 1, 1), block=(64, 1, 1))


@cute.kernel
def turns_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    lane = tid % 32
    row = shared(cutlass.Float32, 32)
    if tid < 32:
        row[lane] = mX[0, lane]  # the first value
    cute.arch.sync_threads()  # the first value is there
    if tid >= 32:
        row[lane] = mX[1, lane]  # the second value
    cute.arch.sync_threads()  # the second value is there
    mY[tid] = row[lane]


@cute.jit
def turns(mX: cute.Tensor, mY: cute.Tensor):
    turns_kernel(mX, mY).launch(grid=(1, 1, 1), block=(64, 1, 1))


@cute.kernel
def two_pairs_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    pair = cute.arch.make_warp_uniform(cute.arch.warp_idx()) // 2
    row = shared(cutlass.Float32, THREADS)
    for turn in cutlass.range(2, unroll=1):
        if pair == turn:
            row[tid] = mX[tid]  # a half
            cute.arch.barrier(barrier_id=1, number_of_threads=64)  # the pair's half is there
            mY[tid] = row[tid ^ 63]
        cute.arch.sync_threads()  # the next pair's turn


@cute.jit
def two_pairs(mX: cute.Tensor, mY: cute.Tensor):
    two_pairs_kernel(mX, mY).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def broadcast_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    number, full = shared(cutlass.Float32, 1), shared(cutlass.Int64, 2).iterator
    empty = full + 1
    if tid == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init(empty, LAST - FIRST + 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    if warp == 4:
        for n in cutlass.range(ROUNDS, unroll=1):
            cute.arch.mbarrier_wait(empty, (n & 1) ^ 1)
            if tid % 32 == 0:
                number[0] = mX[n]
                cute.arch.mbarrier_arrive(full)  # the number is there
    else:
        for n in cutlass.range(ROUNDS, unroll=1):
            cute.arch.mbarrier_wait(full, n & 1)
            mY[n, tid] = number[0]
            cute.arch.sync_warp()
            if FIRST <= warp and warp <= LAST:
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive(empty)  # the number has been read


@cute.jit
def broadcast(mX: cute.Tensor, mY: cute.Tensor):
    broadcast_kernel(mX, mY).launch(grid=(1, 1, 1), block=(THREADS + 32, 1, 1))


@cute.kernel
def count_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    bins = shared(Int32, 16)
    if tid < 16:
        bins[tid] = Int32(0)
    cute.arch.sync_threads()  # the bins are empty
    cute.arch.atomic_add(bins.iterator + mX[tid], Int32(1))
    cute.arch.sync_threads()  # all are counted
    if tid < 16:
        mY[tid] = bins[tid]


@cute.jit
def count(mX: cute.Tensor, mY: cute.Tensor):
    count_kernel(mX, mY).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def lock_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """One lane of each warp adds its number to a sum that a lock guards."""
    tid, _, _ = cute.arch.thread_idx()
    words = shared(Int32, 2)
    guard = words.iterator
    if tid < 2:
        words[tid] = Int32(0)
    cute.arch.sync_threads()
    if tid % 32 == 0:
        taken = cute.arch.atomic_cas(guard, cmp=Int32(0), val=Int32(1), sem="acquire", scope="cta")
        while taken != 0:
            taken = cute.arch.atomic_cas(guard, cmp=Int32(0), val=Int32(1), sem="acquire", scope="cta")  # again
        words[1] = words[1] + mX[tid // 32]
        cute.arch.store(guard, Int32(0), sem="release", scope="cta")  # free again
    cute.arch.sync_threads()
    if tid == 0:
        mY[0] = words[1]


@cute.jit
def lock(mX: cute.Tensor, mY: cute.Tensor):
    lock_kernel(mX, mY).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def leave_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """The last warp only helps to fill the row, and ends before the others use it."""
    tid, _, _ = cute.arch.thread_idx()
    row = shared(cutlass.Float32, THREADS)
    row[tid] = 0.0
    cute.arch.sync_threads()
    row[tid] = mX[tid]
    cute.arch.sync_threads()  # all four warps
    if tid < 96:
        pass  # the other three warps
        mY[tid] = row[THREADS - 1 - tid]


@cute.jit
def leave(mX: cute.Tensor, mY: cute.Tensor):
    leave_kernel(mX, mY).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


@cute.jit
def meet():
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


@cute.jit
def store_in_cta_0(pointer: cute.Pointer, value: cutlass.Float32):
    cute.arch.inline_ptx(  # the remote store
        "{ .reg .b32 a; mapa.shared::cluster.u32 a, {$r0}, 0; st.shared::cluster.f32 [a], {$r1}; }",
        read_only_args=[pointer.toint().to(Uint32), value],
    )


@cute.kernel
def gather_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """Each of two CTAs writes a row into the first one's shared memory."""
    tid, _, _ = cute.arch.thread_idx()
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    both = shared(cutlass.Float32, 64)
    both[tid] = 0.0
    both[tid + 32] = 0.0
    meet()  # the rows are empty
    place = tid + 32 * rank
    store_in_cta_0(both.iterator + place, mX[rank, tid])
    meet()  # the rows are there
    if rank == 0:
        mY[tid] = both[tid] + both[tid + 32]


@cute.jit
def gather(mX: cute.Tensor, mY: cute.Tensor):
    gather_kernel(mX, mY).launch(grid=(2, 1, 1), block=(32, 1, 1), cluster=(2, 1, 1))


@cute.kernel
def send_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """CTA 1 stores rows into CTA 0's shared memory and arrives at CTA 0's mbarrier, which arrives back."""
    tid, _, _ = cute.arch.thread_idx()
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    row, full = shared(cutlass.Float32, 32), shared(cutlass.Int64, 2).iterator
    empty = full + 1
    row[tid] = 0.0
    if tid == 0:
        cute.arch.mbarrier_init(full, 32)
        cute.arch.mbarrier_init(empty, 32)
    cute.arch.mbarrier_init_fence()
    meet()
    if rank == 1:
        for n in cutlass.range(ROUNDS, unroll=1):
            wait_cluster(empty, (n & 1) ^ 1)
            store_in_cta_0(row.iterator + tid, mX[n, tid])
            cute.arch.mbarrier_arrive(full, 0, scope=CLUSTER)  # the row has been sent
    else:
        for n in cutlass.range(ROUNDS, unroll=1):
            wait_cluster(full, n & 1)
            mY[n, tid] = row[31 - tid]
            cute.arch.mbarrier_arrive(empty, 1, scope=CLUSTER)  # the row has been read
    meet()


@cute.jit
def wait_cluster(barrier: cute.Pointer, parity: Int32):
    """mbarrier_wait acquires what threads of its own CTA did; these are of the other one."""
    done = Int32(0)
    while done == 0:
        done = cute.arch.inline_ptx(
            "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [{$r0}], {$r1}; "
            "selp.s32 {$w0}, 1, 0, p; }",
            write_only_types=[Int32], read_only_args=[barrier.toint().to(Uint32), parity],
        )  # fmt: skip


@cute.jit
def send(mX: cute.Tensor, mY: cute.Tensor):
    send_kernel(mX, mY).launch(grid=(2, 1, 1), block=(32, 1, 1), cluster=(2, 1, 1))
