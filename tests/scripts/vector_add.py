"""z = a * x + y as anybody would write it for a GPU: argparse, .cuda(), a stream, events, a check."""

import argparse

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def axpy_kernel(x: cute.Tensor, y: cute.Tensor, z: cute.Tensor, a: cutlass.Float32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    width, _, _ = cute.arch.block_dim()
    i = block * width + thread
    if i < cute.size(x):
        z[i] = a * x[i] + y[i]


@cute.jit
def axpy(x: cute.Tensor, y: cute.Tensor, z: cute.Tensor, a: cutlass.Float32, stream: cuda.CUstream):
    threads: cutlass.Constexpr = 128
    blocks = (cute.size(x) + threads - 1) // threads
    axpy_kernel(x, y, z, a).launch(grid=(blocks, 1, 1), block=(threads, 1, 1), stream=stream)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--a", type=float, default=2.5)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise RuntimeError("this example needs a GPU")
    print(f"capability {torch.cuda.get_device_capability()}, {torch.cuda.device_count()} device")
    torch.manual_seed(7)
    x = torch.randn(options.n).cuda()
    y = torch.randn(options.n, device="cuda")
    z = torch.empty_like(x)
    side = torch.cuda.Stream()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(side):
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        tensors = [from_dlpack(t).mark_layout_dynamic() for t in (x, y, z)]
        compiled = cute.compile(axpy, *tensors, options.a, stream)
        start.record()
        compiled(*tensors, options.a, stream)
        end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0
    torch.testing.assert_close(z, options.a * x + y)
    print(f"{z.device} {z.is_cuda}: {options.n} elements agree")


if __name__ == "__main__":
    main()
