"""Two warpgroups in turn: one fills a buffer, the other empties it, ordered by named barriers.

y (n, 128) float32 = 2 x; barrier 1 says that the buffer is full, barrier 2 that it is empty.
"""

import cutlass
import cutlass.cute as cute
import cutlass.memory

FULL, EMPTY, THREADS = 1, 2, 256


@cute.kernel
def double_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    buffer = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(128), byte_alignment=16)
    if warp < 4:
        for n in cutlass.range(cute.size(mX, mode=[0]), unroll=1):
            cute.arch.barrier(barrier_id=EMPTY, number_of_threads=THREADS)
            buffer[tid] = mX[n, tid]
            cute.arch.barrier_arrive(barrier_id=FULL, number_of_threads=THREADS)
    else:
        cute.arch.barrier_arrive(barrier_id=EMPTY, number_of_threads=THREADS)
        for n in cutlass.range(cute.size(mX, mode=[0]), unroll=1):
            cute.arch.barrier(barrier_id=FULL, number_of_threads=THREADS)
            mY[n, tid - 128] = buffer[tid - 128] * 2
            if n + 1 < cute.size(mX, mode=[0]):
                cute.arch.barrier_arrive(barrier_id=EMPTY, number_of_threads=THREADS)


@cute.jit
def run(mX: cute.Tensor, mY: cute.Tensor):
    double_kernel(mX, mY).launch(grid=(1, 1, 1), block=(256, 1, 1))
