"""Three warpgroups share the register file: the first gives registers back, the others take them.

y (384,) float32 = x + 1.  65536 registers are 168 for each of 384 threads: 40 + 232 + 232 = 3 * 168.
"""

import cutlass.cute as cute


@cute.kernel
def add_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    if warp < 4:
        cute.arch.setmaxregister_decrease(40)
        mY[tid] = mX[tid] + 1
    else:
        cute.arch.setmaxregister_increase(232)
        mY[tid] = mX[tid] + 1
    cute.arch.sync_threads()


@cute.jit
def run(mX: cute.Tensor, mY: cute.Tensor):
    add_kernel(mX, mY).launch(grid=(1, 1, 1), block=(384, 1, 1), min_blocks_per_mp=1)
