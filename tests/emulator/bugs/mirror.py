"""Rows mirrored through shared memory: every thread stores one number and loads that of the opposite thread.

y (n, 128) float32: y[i, j] = x[i, 127 - j]; one CTA of four warps, one buffer for all rows.
"""

import cutlass
import cutlass.cute as cute
import cutlass.memory

THREADS = 128


@cute.kernel
def mirror_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    row = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(THREADS), byte_alignment=16)
    for n in cutlass.range(cute.size(mX, mode=[0]), unroll=1):
        row[tid] = mX[n, tid]
        cute.arch.sync_threads()  # the row is there
        mY[n, tid] = row[THREADS - 1 - tid]
        cute.arch.sync_threads()  # the row is no longer needed


@cute.jit
def run(mX: cute.Tensor, mY: cute.Tensor):
    mirror_kernel(mX, mY).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))
