"""A tensor that was never moved to the GPU."""

import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def fill_kernel(x: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    x[i] = 1.0


@cute.jit
def fill(x: cute.Tensor):
    fill_kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1))


x = torch.zeros(32)
fill(from_dlpack(x))
