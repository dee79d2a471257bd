"""Shared memory between the lanes of one warp: only bar.warp.sync, and what waits for other warps, orders them.

`pairs` and `parts` exchange numbers between neighbours, in one piece of code and in two branches; in `half_warps` the
halves of a warp meet apart; in `copies` lanes read what
others copied; `own` uses what the same lane wrote; `signal` has an elected lane of each warp arrive at an
mbarrier for all of them.
"""

import cutlass
import cutlass.cute as cute
import cutlass.memory
from cutlass.cute.nvgpu import cpasync

ROUNDS = 3
LOW, HIGH = 0xFFFF, 0xFFFF0000


@cute.jit
def shared(dtype: cutlass.Constexpr, n: cutlass.Constexpr):
    return cutlass.memory.SmemAllocator().allocate_tensor(dtype, cute.make_layout(n), byte_alignment=16)


@cute.kernel
def pairs_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    number = shared(cutlass.Float32, 64)
    number[tid] = 0.0
    cute.arch.sync_warp()
    for n in cutlass.range(ROUNDS, unroll=1):
        number[tid] = mX[n, tid]
        cute.arch.sync_warp()  # the numbers are there
        mY[n, tid] = number[tid ^ 1]
        cute.arch.sync_warp()  # the numbers have been read


@cute.jit
def pairs(mX: cute.Tensor, mY: cute.Tensor):
    pairs_kernel(mX, mY).launch(grid=(1, 1, 1), block=(64, 1, 1))


@cute.kernel
def parts_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """The even lanes store in one branch, the odd ones load in another."""
    tid, _, _ = cute.arch.thread_idx()
    number = shared(cutlass.Float32, 64)
    number[tid] = 0.0
    cute.arch.sync_warp()
    if tid % 2 == 0:
        number[tid] = mX[tid]
    cute.arch.sync_warp()  # the even lanes have stored
    if tid % 2 == 1:
        mY[tid] = number[tid - 1]


@cute.jit
def parts(mX: cute.Tensor, mY: cute.Tensor):
    parts_kernel(mX, mY).launch(grid=(1, 1, 1), block=(64, 1, 1))


@cute.kernel
def half_warps_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """Each half of a warp is mirrored."""
    tid, _, _ = cute.arch.thread_idx()
    half = shared(cutlass.Float32, 64)
    half[tid] = mX[tid]  # both halves store
    if tid % 32 < 16:
        cute.arch.sync_warp(LOW)
    else:
        cute.arch.sync_warp(HIGH)
    mY[tid] = half[tid ^ 15]  # of the same half


@cute.jit
def half_warps(mX: cute.Tensor, mY: cute.Tensor):
    half_warps_kernel(mX, mY).launch(grid=(1, 1, 1), block=(64, 1, 1))


@cute.kernel
def copies_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """Every lane copies 4 numbers asynchronously, and reads 4 of another lane."""
    tid, _, _ = cute.arch.thread_idx()
    copied = shared(cutlass.Float32, 256)
    lanes = cute.make_layout((64, 4), stride=(4, 1))
    theirs, mine = cute.make_tensor(mX.iterator, lanes), cute.make_tensor(copied.iterator, lanes)
    cute.copy(cute.make_copy_atom(cpasync.CopyG2SOp(), cutlass.Float32, num_bits_per_copy=128),
              theirs[tid, None], mine[tid, None])  # fmt: skip
    cute.arch.cp_async_commit_group()
    cute.arch.cp_async_wait_group(0)
    cute.arch.sync_warp()  # all lanes' copies are there
    for i in cutlass.range_constexpr(4):
        mY[4 * tid + i] = mine[tid ^ 1, i]


@cute.jit
def copies(mX: cute.Tensor, mY: cute.Tensor):
    copies_kernel(mX, mY).launch(grid=(1, 1, 1), block=(64, 1, 1))


@cute.kernel
def own_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """Every lane uses only what it has stored itself, in both branches."""
    tid, _, _ = cute.arch.thread_idx()
    mine = shared(cutlass.Float32, 64)
    mine[tid] = mX[tid]
    if tid % 2 == 0:
        mine[tid] = mine[tid] + 1.0
    mY[tid] = mine[tid]


@cute.jit
def own(mX: cute.Tensor, mY: cute.Tensor):
    own_kernel(mX, mY).launch(grid=(1, 1, 1), block=(64, 1, 1))


@cute.kernel
def signal_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """Warp 0 writes a row, warp 1 reads it: one lane of each arrives for all 32."""
    tid, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    row, full = shared(cutlass.Float32, 32), shared(cutlass.Int64, 2).iterator
    empty = full + 1
    if tid == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init(empty, 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    if warp == 0:
        for n in cutlass.range(ROUNDS, unroll=1):
            cute.arch.mbarrier_wait(empty, (n & 1) ^ 1)
            row[tid] = mX[n, tid]
            cute.arch.sync_warp()  # all lanes have stored
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive(full)
    else:
        for n in cutlass.range(ROUNDS, unroll=1):
            cute.arch.mbarrier_wait(full, n & 1)
            mY[n, tid - 32] = row[63 - tid]
            cute.arch.sync_warp()  # all lanes have loaded
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive(empty)


@cute.jit
def signal(mX: cute.Tensor, mY: cute.Tensor):
    signal_kernel(mX, mY).launch(grid=(1, 1, 1), block=(64, 1, 1))
