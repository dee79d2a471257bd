"""Two kernels in one stream, the second of which may start before the first has ended.

t = x + 1 in the first, y = mirrored t in the second: what the second does before griddepcontrol.wait must not touch t.
"""

import cutlass
import cutlass.cute as cute

THREADS = 64
EARLY = True  # the second kernel's launch may overtake the end of the first


@cute.kernel
def first_kernel(mX: cute.Tensor, mT: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    cute.arch.griddepcontrol_launch_dependents()
    mT[cta, tid] = mX[cta, tid] + 1.0


@cute.kernel
def second_kernel(mT: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    place = THREADS - 1 - tid
    cute.arch.griddepcontrol_wait()  # for the first kernel
    mY[cta, tid] = mT[cta, place]


@cute.jit
def run(mX: cute.Tensor, mT: cute.Tensor, mY: cute.Tensor):
    grid = (cute.size(mX, mode=[0]), 1, 1)
    first_kernel(mX, mT).launch(grid=grid, block=(THREADS, 1, 1), use_pdl=cutlass.const_expr(EARLY))
    second_kernel(mT, mY).launch(grid=grid, block=(THREADS, 1, 1), use_pdl=cutlass.const_expr(EARLY))
