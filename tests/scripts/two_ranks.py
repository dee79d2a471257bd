"""Ranks in a ring that hand numbers on through symmetric memory, once by a flag and once by a barrier.

    torchrun --nproc-per-node 2 two_ranks.py [MISTAKE]

A mistake leaves out or weakens one thing, so that tests can see it told.
"""
# no `from __future__ import annotations`: CuTe DSL reads the annotations of the functions it compiles

import os
import sys

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from cutlass import Int32
from cutlass.cute.runtime import from_dlpack

MISTAKE = sys.argv[1] if len(sys.argv) > 1 else ""
SCOPE = "gpu" if MISTAKE == "narrow scope" else "sys"
N = 256


@cute.kernel
def give_kernel(mTheirs: cute.Tensor, mFlag: cute.Tensor, first: Int32):
    tid = cute.arch.thread_idx()[0]
    mTheirs[tid] = cutlass.Float32(first + tid)
    cute.arch.sync_threads()
    if tid == 0:
        if cutlass.const_expr(MISTAKE != "no flag raised"):
            cute.arch.store(mFlag.iterator, Int32(1), sem="release", scope=SCOPE)


@cute.kernel
def take_kernel(mMine: cute.Tensor, mFlag: cute.Tensor, mY: cute.Tensor):
    tid = cute.arch.thread_idx()[0]
    if cutlass.const_expr(MISTAKE != "no flag"):
        if tid == 0:
            while cute.arch.load(mFlag.iterator, Int32, sem="acquire", scope=SCOPE) < 1:
                pass
    cute.arch.sync_threads()
    mY[tid] = mMine[tid]


@cute.kernel
def double_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tid = cute.arch.thread_idx()[0]
    mY[tid] = mX[tid] * 2.0


@cute.jit
def hand_on(
    mMine: cute.Tensor, mTheirs: cute.Tensor, mFlag: cute.Tensor, mTheirFlag: cute.Tensor, mY: cute.Tensor,
    first: Int32, stream: cuda.CUstream,
):  # fmt: skip
    give_kernel(mTheirs, mTheirFlag, first).launch(grid=(1, 1, 1), block=(N, 1, 1), stream=stream)
    take_kernel(mMine, mFlag, mY).launch(grid=(1, 1, 1), block=(N, 1, 1), stream=stream)


@cute.jit
def double(mX: cute.Tensor, mY: cute.Tensor, stream: cuda.CUstream):
    double_kernel(mX, mY).launch(grid=(1, 1, 1), block=(N, 1, 1), stream=stream)


def expect(y, wanted, what):
    """Raise AssertionError if the numbers are not these."""
    torch.testing.assert_close(y.cpu(), wanted, rtol=0, atol=0, msg=f"{what} is wrong")


def main():
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    size, peer = dist.get_world_size(), (rank + 1) % dist.get_world_size()
    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    mine = symm_mem.empty(N, device="cuda")
    of_mine = symm_mem.rendezvous(mine, dist.group.WORLD)
    flag = symm_mem.empty(1, dtype=torch.int32, device="cuda").zero_()
    of_flag = symm_mem.rendezvous(flag, dist.group.WORLD)
    theirs = of_mine.get_buffer(peer, mine.shape, mine.dtype)
    their_flag = of_flag.get_buffer(peer, flag.shape, flag.dtype)
    if theirs.device != mine.device:
        raise AssertionError(f"the peer's buffer counts as {theirs.device}")
    y = torch.zeros(N, device="cuda")
    if MISTAKE != "no barrier after zero_":
        of_flag.barrier()
    if MISTAKE == "no rendezvous":
        addresses = [None] * size
        dist.all_gather_object(addresses, y.data_ptr())
        pointer = cute.runtime.make_ptr(cutlass.Float32, addresses[peer], cute.AddressSpace.gmem, assumed_align=16)
        through_pointer(pointer, from_dlpack(mine), stream)
        torch.cuda.synchronize()

    first = Int32(1000 * rank)
    hand_on(*map(from_dlpack, (mine, theirs, flag, their_flag, y)), first, stream)
    torch.cuda.synchronize()
    expect(y, torch.arange(N) + 1000.0 * ((rank - 1) % size), "what came by the flag")
    of_mine.barrier()

    mine.fill_(float(rank))
    if MISTAKE == "host waits only":
        torch.cuda.synchronize()
    elif MISTAKE != "no barrier before reading":
        of_mine.barrier()
    double(from_dlpack(theirs), from_dlpack(y), stream)
    if MISTAKE != "no barrier after reading":
        of_mine.barrier()
    mine.fill_(7.0)
    expect(y, torch.full((N,), 2.0 * peer), "what came by the barrier")

    if MISTAKE == "kernel before wait":
        work = dist.all_reduce(y, async_op=True)
        double(from_dlpack(y), from_dlpack(mine), stream)
        work.wait()
    elif MISTAKE == "collective beside kernel":
        other = torch.cuda.Stream()
        double(from_dlpack(mine), from_dlpack(y), cuda.CUstream(other.cuda_stream))
        dist.all_reduce(y)
    else:
        work = dist.all_reduce(y, async_op=True)
        work.wait()
        double(from_dlpack(y), from_dlpack(mine), stream)
        expect(mine, torch.full((N,), 4.0 * size * (size - 1) / 2), "the doubled sum")
    torch.cuda.synchronize()
    print(f"rank {rank} of {size} is right")
    dist.destroy_process_group()


@cute.jit
def through_pointer(pointer: cute.Pointer, mY: cute.Tensor, stream: cuda.CUstream):
    double(cute.make_tensor(pointer, cute.make_layout(N)), mY, stream)


if __name__ == "__main__":
    main()
