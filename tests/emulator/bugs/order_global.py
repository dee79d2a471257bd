"""Global memory between the CTAs of a grid: flags, turns, locks, grid barriers; each kernel here is correct.

A release at the scope of the GPU and an acquire that sees what it wrote order what comes before the one and behind
the other; a barrier takes in the other threads of a CTA (PTX ISA, section 8).
"""

import cutlass
import cutlass.cute as cute
import cutlass.memory
from cutlass import Int32

THREADS = 64
PARTS = 4


@cute.jit
def read(pointer: cute.Pointer):
    return cute.arch.load(pointer, Int32, sem="acquire", scope="gpu")


@cute.jit
def read_relaxed(pointer: cute.Pointer):
    return cute.arch.load(pointer, Int32, sem="relaxed", scope="gpu")


@cute.jit
def read_volatile(pointer: cute.Pointer):
    return cute.arch.inline_ptx(
        "ld.volatile.global.s32 {$w0}, [{$r0}];", write_only_types=[Int32], read_only_args=[pointer.toint()]
    )


@cute.kernel
def row_kernel(mX: cute.Tensor, mOwn: cute.Tensor, mY: cute.Tensor):
    """The warps of one CTA exchange a row through global memory."""
    tid, _, _ = cute.arch.thread_idx()
    mOwn[tid] = mX[tid]
    cute.arch.sync_threads()  # the row is there
    mY[tid] = mOwn[THREADS - 1 - tid]


@cute.jit
def row(mX: cute.Tensor, mOwn: cute.Tensor, mY: cute.Tensor):
    row_kernel(mX, mOwn, mY).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def flag_kernel(mX: cute.Tensor, mRow: cute.Tensor, mFlag: cute.Tensor, mY: cute.Tensor):
    """CTA 0 writes a row and raises a flag; CTA 1 waits for the flag and reads the row."""
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    if cta == 0:
        mRow[tid] = mX[tid]
        cute.arch.sync_threads()  # all have written
        if tid == 0:
            cute.arch.store(mFlag.iterator, Int32(1), sem="release", scope="gpu")  # raise
    else:
        if tid == 0:  # waits
            while read(mFlag.iterator) == 0:
                pass
        cute.arch.sync_threads()  # the flag is up
        mY[tid] = mRow[THREADS - 1 - tid]


@cute.jit
def flag(mX: cute.Tensor, mRow: cute.Tensor, mFlag: cute.Tensor, mY: cute.Tensor):
    flag_kernel(mX, mRow, mFlag, mY).launch(grid=(2, 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def fenced_kernel(mX: cute.Tensor, mLine: cute.Tensor, mFlag: cute.Tensor, mY: cute.Tensor):
    """The same with relaxed accesses to the flag, and a fence beside each."""
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    if cta == 0:
        mLine[tid] = mX[tid]
        cute.arch.sync_threads()
        if tid == 0:
            cute.arch.fence_acq_rel_gpu()  # before the flag goes up
            cute.arch.store(mFlag.iterator, Int32(1), sem="relaxed", scope="gpu")
    else:
        if tid == 0:
            while read_relaxed(mFlag.iterator) == 0:
                pass
            cute.arch.fence_acq_rel_gpu()  # behind the flag
        cute.arch.sync_threads()
        mY[tid] = mLine[THREADS - 1 - tid]


@cute.jit
def fenced(mX: cute.Tensor, mLine: cute.Tensor, mFlag: cute.Tensor, mY: cute.Tensor):
    fenced_kernel(mX, mLine, mFlag, mY).launch(grid=(2, 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def turnstile_kernel(mX: cute.Tensor, mTurn: cute.Tensor, mY: cute.Tensor):
    """Split-K: the CTAs add their parts to one row, one after the other."""
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    if tid == 0:
        while read(mTurn.iterator) != cta:
            pass
    cute.arch.sync_threads()  # it is this CTA's turn
    mY[tid] = mY[tid] + mX[cta, tid]
    cute.arch.sync_threads()  # all have added
    if tid == 0:
        cute.arch.store(mTurn.iterator, cta + 1, sem="release", scope="gpu")  # the next turn


@cute.jit
def turnstile(mX: cute.Tensor, mTurn: cute.Tensor, mY: cute.Tensor):
    turnstile_kernel(mX, mTurn, mY).launch(grid=(PARTS, 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def fixup_kernel(mX: cute.Tensor, mPart: cute.Tensor, mReady: cute.Tensor, mY: cute.Tensor):
    """Stream-K: the last CTA adds up its own part of a tile and those that the others left in a workspace."""
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    if cta != PARTS - 1:
        mPart[cta, tid] = mX[cta, tid]
        cute.arch.sync_threads()  # the part is there
        if tid == 0:
            cute.arch.red(mReady.iterator, Int32(1), op="add", dtype="u32", sem="release", scope="gpu")  # one more
    else:
        if tid == 0:
            while read(mReady.iterator) != PARTS - 1:
                pass
        cute.arch.sync_threads()  # all parts are there
        total = mX[cta, tid]
        for part in cutlass.range_constexpr(PARTS - 1):
            total += mPart[part, tid]
        mY[tid] = total


@cute.jit
def fixup(mX: cute.Tensor, mPart: cute.Tensor, mReady: cute.Tensor, mY: cute.Tensor):
    fixup_kernel(mX, mPart, mReady, mY).launch(grid=(PARTS, 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def mutex_kernel(mX: cute.Tensor, mLock: cute.Tensor, mSum: cute.Tensor):
    """The CTAs add to one row in any order; a lock keeps them apart."""
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    if tid == 0:
        while cute.arch.atomic_cas(mLock.iterator, cmp=Int32(0), val=Int32(1), sem="acquire", scope="gpu") != 0:
            pass
    cute.arch.sync_threads()  # the lock is taken
    mSum[tid] = mSum[tid] + mX[cta, tid]
    cute.arch.sync_threads()  # the row is complete
    if tid == 0:
        cute.arch.store(mLock.iterator, Int32(0), sem="release", scope="gpu")  # unlock


@cute.jit
def mutex(mX: cute.Tensor, mLock: cute.Tensor, mSum: cute.Tensor):
    mutex_kernel(mX, mLock, mSum).launch(grid=(PARTS, 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def grid_kernel(mX: cute.Tensor, mRow: cute.Tensor, mCount: cute.Tensor, mY: cute.Tensor):
    """Every CTA writes a row, all meet, every CTA reads the next one's row."""
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    mRow[cta, tid] = mX[cta, tid]
    cute.arch.sync_threads()  # the CTA's row is there
    if tid == 0:
        cute.arch.fence_acq_rel_gpu()  # before the arrival
        cute.arch.red(mCount.iterator, Int32(1), op="add", dtype="u32", sem="relaxed", scope="gpu")
        while read_relaxed(mCount.iterator) != PARTS:
            pass
        cute.arch.fence_acq_rel_gpu()  # behind the wait
    cute.arch.sync_threads()  # all rows are there
    mY[cta, tid] = mRow[(cta + 1) % PARTS, tid]


@cute.jit
def grid(mX: cute.Tensor, mRow: cute.Tensor, mCount: cute.Tensor, mY: cute.Tensor):
    grid_kernel(mX, mRow, mCount, mY).launch(grid=(PARTS, 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def scan_kernel(mX: cute.Tensor, mValue: cute.Tensor, mState: cute.Tensor, mY: cute.Tensor):
    """A scan with decoupled look-back: state 1 says that a CTA's own number is there, 2 that its prefix is."""
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    own = mX[cta]
    if tid == 0:
        if cta != 0:
            mValue[cta, 0] = own
            cute.arch.store(mState.iterator + cta, Int32(1), sem="release", scope="gpu")  # the own number is there
        prefix = own
        back = cta - 1
        while back >= 0:
            state = read(mState.iterator + back)
            if state == 1:
                prefix = prefix + mValue[back, 0]  # one CTA's number
                back = back - 1
            if state == 2:
                prefix = prefix + mValue[back, 1]  # all that came before
                back = Int32(-1)
        mValue[cta, 1] = prefix  # for those behind
        cute.arch.store(mState.iterator + cta, Int32(2), sem="release", scope="gpu")  # the prefix is there
        mY[cta] = prefix


@cute.jit
def scan(mX: cute.Tensor, mValue: cute.Tensor, mState: cute.Tensor, mY: cute.Tensor):
    scan_kernel(mX, mValue, mState, mY).launch(grid=(cute.size(mX), 1, 1), block=(32, 1, 1))


@cute.kernel
def last_kernel(mX: cute.Tensor, mLeft: cute.Tensor, mCount: cute.Tensor, mY: cute.Tensor):
    """Every CTA leaves its part; the one that finds itself the last adds them all."""
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    ctas = cute.size(mX, mode=[0])
    ticket = cutlass.memory.SmemAllocator().allocate_tensor(Int32, cute.make_layout(1), byte_alignment=16)
    mLeft[cta, tid] = mX[cta, tid] + 1.0
    cute.arch.sync_threads()  # the CTA's part is there
    if tid == 0:
        cute.arch.fence_acq_rel_gpu()  # before the ticket
        ticket[0] = cute.arch.atomic_add(mCount.iterator, Int32(1), sem="relaxed", scope="gpu")
        cute.arch.fence_acq_rel_gpu()  # behind the ticket
    cute.arch.sync_threads()  # all know the ticket
    if ticket[0] == ctas - 1:
        total = cutlass.Float32(0.0)
        for part in cutlass.range(ctas, unroll=1):
            total += mLeft[part, tid]
        mY[tid] = total


@cute.jit
def last(mX: cute.Tensor, mLeft: cute.Tensor, mCount: cute.Tensor, mY: cute.Tensor):
    last_kernel(mX, mLeft, mCount, mY).launch(grid=(cute.size(mX, mode=[0]), 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def tiles_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """Every CTA writes a row of its own."""
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    row = cta  # of the result
    mY[row, tid] = mX[cta, tid] + 1.0


@cute.jit
def tiles(mX: cute.Tensor, mY: cute.Tensor):
    tiles_kernel(mX, mY).launch(grid=(cute.size(mX, mode=[0]), 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def stripes_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """Each of two CTAs writes every other byte: no byte is written twice, though every word is."""
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    mY[2 * tid + cta] = mX[cta, tid]


@cute.jit
def stripes(mX: cute.Tensor, mY: cute.Tensor):
    stripes_kernel(mX, mY).launch(grid=(2, 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def sums_kernel(mX: cute.Tensor, mAll: cute.Tensor):
    """Every CTA adds its row to one row with atomics."""
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    cute.arch.atomic_add(mAll.iterator + tid, mX[cta, tid])  # to the sums


@cute.jit
def sums(mX: cute.Tensor, mAll: cute.Tensor):
    sums_kernel(mX, mAll).launch(grid=(cute.size(mX, mode=[0]), 1, 1), block=(THREADS, 1, 1))
