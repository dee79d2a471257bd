"""A kernel: y = factor * x."""

import cutlass
import cutlass.cute as cute


@cute.kernel
def _scale(x: cute.Tensor, y: cute.Tensor, factor: cutlass.Float32):
    i = cute.arch.block_idx()[0] * 128 + cute.arch.thread_idx()[0]
    if i < cute.size(x):
        y[i] = factor * x[i]


@cute.jit
def scale(x: cute.Tensor, y: cute.Tensor, factor: cutlass.Float32):
    _scale(x, y, factor).launch(grid=(cute.ceil_div(cute.size(x), 128), 1, 1), block=(128, 1, 1))
