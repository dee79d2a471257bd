"""A kernel that reverses 128 numbers through shared memory, and lacks a barrier.

    cutetut emulate examples/missing_barrier.py
"""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def reverse_kernel(x: cute.Tensor, y: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    row = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(128))
    row[tid] = x[tid]
    # cute.arch.sync_threads() is missing here
    y[tid] = row[127 - tid]


@cute.jit
def reverse(x: cute.Tensor, y: cute.Tensor):
    reverse_kernel(x, y).launch(grid=(1, 1, 1), block=(128, 1, 1))


x = torch.arange(128, dtype=torch.float32, device="cuda")
y = torch.zeros_like(x)
reverse(from_dlpack(x), from_dlpack(y))
torch.cuda.synchronize()
print("reversed" if torch.equal(y, x.flip(0)) else "wrong")
