"""Small CuTe DSL kernels whose PTX between them has most of the forms that the DSL emits."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
import cutlass.memory


@cute.kernel
def scale_kernel(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    i = cta * 64 + tid
    if i < n:
        y[i] = x[i] * 3 + i


@cute.jit
def scale(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
    scale_kernel(x, y, n).launch(grid=(cute.ceil_div(n, 64), 1, 1), block=(64, 1, 1))


@cute.kernel
def reverse_kernel(x: cute.Tensor, y: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    smem = cutlass.memory.SmemAllocator()
    tile = smem.allocate_tensor(cutlass.Float32, cute.make_layout(128), byte_alignment=16)
    tile[tid] = x[tid]
    cute.arch.sync_threads()
    y[tid] = tile[127 - tid]


@cute.jit
def reverse(x: cute.Tensor, y: cute.Tensor):
    reverse_kernel(x, y).launch(grid=(1, 1, 1), block=(128, 1, 1))


@cute.kernel
def warp_sum_kernel(x: cute.Tensor, y: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    total = x[tid]
    for k in cutlass.range_constexpr(5):
        total += cute.arch.shuffle_sync_bfly(total, offset=1 << k)
    positive = cute.arch.vote_ballot_sync(x[tid] > 0)
    if tid % 32 == 0:
        y[tid // 32] = total
        y[2 + tid // 32] = cutlass.Float32(cute.arch.popc(positive))


@cute.jit
def warp_sum(x: cute.Tensor, y: cute.Tensor):
    warp_sum_kernel(x, y).launch(grid=(1, 1, 1), block=(64, 1, 1))


@cute.kernel
def half_kernel(x: cute.Tensor, y: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    values = cute.make_rmem_tensor(cute.make_layout(8), cutlass.Float16)
    cute.autovec_copy(cute.local_tile(x, (8,), (tid,)), values)
    cute.autovec_copy(values, cute.local_tile(y, (8,), (31 - tid,)))


@cute.jit
def half_blocks(x: cute.Tensor, y: cute.Tensor):
    half_kernel(x, y).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.kernel
def print_kernel(x: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    if tid % 16 == 3:
        cute.printf("thread {} of {}: {} and {}", tid, 64, x[tid], x[tid] > 4.0)


@cute.jit
def print_values(x: cute.Tensor):
    print_kernel(x).launch(grid=(1, 1, 1), block=(64, 1, 1))


@cute.kernel
def print_kinds_kernel(a: cutlass.Int32, b: cutlass.Int64, c: cutlass.Float32, d: cutlass.Float64, e: cutlass.Uint32):
    cute.printf("no arguments, 100%%")
    cute.printf("{} {} {} {} {}", a, b, c, d, e)
    cute.printf("%d|%5d|%-6d|%x|%lld|%f|%.2f|%e|%g\n", a, a, a, e, b, d, d, d, d)


@cute.jit
def print_kinds(a: cutlass.Int32, b: cutlass.Int64, c: cutlass.Float32, d: cutlass.Float64, e: cutlass.Uint32):
    print_kinds_kernel(a, b, c, d, e).launch(grid=(1, 1, 1), block=(1, 1, 1))


@cute.kernel
def print_grid_kernel():
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    cute.printf("{} {}", cta, tid)


@cute.jit
def print_grid():
    print_grid_kernel().launch(grid=(2, 1, 1), block=(34, 1, 1))


@cute.kernel
def multiply(x: cute.Tensor, a: cutlass.Float32):
    """x[i] *= a, for tests of how kernels are launched."""
    i, _, _ = cute.arch.thread_idx()
    x[i] = x[i] * a
