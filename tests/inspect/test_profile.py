"""`profile` counts the same on every machine: against Nsight Compute's recorded numbers, and against sums by hand."""

from __future__ import annotations

import math

import cutlass
import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.runtime import from_dlpack

from cutetut.course import notebooks
from cutetut.emulator.host import driver
from cutetut.inspect import profile
from cutetut.inspect.run import emulated
from cutetut.measure import emulator_speed, records

M, N, K = 256, 128, 128


@cute.kernel
def copy_kernel(x: cute.Tensor, y: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    y[tid] = x[tid]


@cute.jit
def copy(x: cute.Tensor, y: cute.Tensor):
    copy_kernel(x, y).launch(grid=(1, 1, 1), block=(64, 1, 1))


@cute.jit
def nothing(x: cute.Tensor):
    pass


def test_the_scalar_gemm_loads_2_and_16_sectors(device: str) -> None:
    chapter = notebooks.load("04_scalar_fma_gemm")
    A, B, C = (torch.zeros(*shape, device=device) for shape in ((M, K), (N, K), (M, N)))
    counts = profile.count(chapter.scalar_gemm_launch, A, B, C)
    # a warp holds two rows of the 16 x 16 thread grid: 2 rows of A and 16 of B, each with a stride of K
    assert counts.line("tCgA[None, None, None, kt]").sectors_per_request("ld") == 2
    assert counts.line("tCgB[None, None, None, kt]").sectors_per_request("ld") == 16
    warps, values, stores = M // 128 * N // 128 * 8, 2 * 8 * K, 64  # values of A and B that a thread loads
    assert (counts.requests("ld"), counts.requests("st")) == (
        warps * values // 4,
        warps * stores,
    )  # four along k at once
    assert counts.bytes_asked("global") == warps * (values + stores) * 128
    assert counts.flops("scalar") == counts.flops() == 2 * M * N * K
    assert counts.instructions("fma.f32") * 32 * 2 == 2 * M * N * K


def test_stores_of_chapter_05_take_the_sectors_that_nsight_compute_counted() -> None:
    chapter = notebooks.load("05_partition_c")
    measured = records.read("05_partition_c", "counters")
    A, B, C = torch.zeros(128, 1), torch.zeros(128, 1), torch.zeros(128, 128)
    for name, permutation in chapter.PERMUTATIONS.items():
        for wide in (False, True):
            counts = profile.count(chapter.gemm, A, B, C, permutation, wide)
            assert counts.bytes_asked("global", "st") == 4 * C.numel()
            # in (16,4):(1,16) no two elements of a thread are neighbours, so the wide order has the plain one's stores
            row = measured.get(f"{name} {'wide' if wide else 'plain'}") or measured[f"{name} plain"]
            assert counts.sectors_per_request("st") == row["sectors/request"] / row["requests"]


@pytest.mark.parametrize(("offset", "sectors"), [(0, 4), (1, 5), (4, 5), (8, 4)])
def test_sectors_depend_on_where_a_view_begins(offset: int, sectors: int, device: str) -> None:
    x, y = torch.arange(96.0, device=device)[offset : offset + 64], torch.zeros(64, device=device)
    counts = profile.count(copy, x, y)
    assert (counts.sectors_per_request("ld"), counts.sectors_per_request("st")) == (sectors, 4)
    assert not y.any()  # the kernel has worked on copies


TABLE = """1 launch: {warps} warp instructions
           requests  bytes asked  bytes moved
global ld         2          256          256  4.00 sectors
global st         2          256          256  4.00 sectors"""


def test_the_tables_are_the_same_on_every_machine(device: str, on_gpu: bool) -> None:
    x, y = torch.zeros(64, device=device), torch.zeros(64, device=device)
    first, second = profile.count(copy, x, y), profile.count(copy, x.cpu(), y.cpu())
    assert str(first) == TABLE.format(warps=first.warp_instructions) == str(second)
    assert str(first.by_line()) == str(second.by_line())
    lines = [line for line in str(first.by_line()).splitlines() if "y[tid] = x[tid]" in line]
    assert "global ld 2 x 4.00 sectors" in lines[0] and "test_profile.py:" in lines[0]
    assert sum(tally.warp_instructions for tally in first.by_line().values()) == first.warp_instructions
    assert driver.installed() is not on_gpu
    with pytest.raises(ValueError, match="no line with 'z = x' was executed"):
        first.line("z = x")


def test_copy_engine_and_tensor_cores() -> None:
    A, B, C = torch.zeros(M, K).half(), torch.zeros(N, K).half(), torch.zeros(M, N)
    counts = profile.count(emulator_speed.wgmma_launch, A, B, C)
    ctas, k_tiles = M // 128 * N // 128, K // 64
    boxes, box = ctas * k_tiles * 2, 128 * 64 * 2
    assert counts.requests("tma load") == counts.requests("tma load", "shared") == boxes
    assert counts.bytes_asked("global", "tma load") == counts.bytes_asked("shared", "tma load") == boxes * box
    # m64n128k16: 64 x 16 of A and 128 x 16 of B, 2 bytes each
    instructions = ctas * k_tiles * 2 * 4
    assert counts.requests("wgmma", "shared") == instructions
    assert counts.bytes_asked("shared", "wgmma") == instructions * (64 + 128) * 16 * 2
    assert counts.instructions("wgmma.mma_async") == instructions * 4  # the warps of a warpgroup
    assert counts.flops("matrix") == counts.flops() == 2 * M * N * K
    assert counts.bytes_asked("global", "st") == 4 * M * N


@cute.kernel
def spread_kernel(y: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    smem = cutlass.memory.SmemAllocator()
    smem.allocate_tensor(cutlass.Float32, cute.make_layout(256), byte_alignment=128)  # not one of its bytes is used
    near = smem.allocate_tensor(cutlass.Float32, cute.make_layout((32, 8), stride=(10, 1)), byte_alignment=128)
    near[tid, 7] = y[tid]
    y[tid] = near[tid, 7]


@pytest.mark.parametrize("cta", [1, 2])
def test_a_span_of_shared_memory_goes_from_the_first_to_the_last_byte_that_was_accessed(device: str, cta: int) -> None:
    @cute.jit
    def spread(y: cute.Tensor):
        spread_kernel(y).launch(grid=(cta, 1, 1), block=(32, 1, 1), cluster=(cta, 1, 1))

    counts = profile.count(spread, torch.zeros(32, device=device))
    assert counts.shared_span() == 4 * (31 * 10 + 1)
    assert profile.count(copy, *(torch.zeros(64, device=device) for _ in range(2))).shared_span() == 0


def test_a_block_is_counted_as_a_whole() -> None:
    x, y = torch.zeros(64), torch.zeros(64)
    with profile.counting() as counts:
        arguments = from_dlpack(x), from_dlpack(y)
        compiled = cute.compile(copy, *arguments)
        compiled(*arguments)
        compiled(*arguments)
    assert (counts.launches, counts.requests("ld")) == (2, 4)
    assert str(counts).startswith("2 launches: ")


def test_counting_nothing_is_an_error() -> None:
    with pytest.raises(profile.NothingLaunched, match="compile the function inside it too"), profile.counting():
        pass
    with pytest.raises(profile.NothingLaunched):
        profile.count(nothing, torch.zeros(4))


def test_a_cute_tensor_is_refused(device: str) -> None:
    x = torch.zeros(64)
    with pytest.raises(TypeError, match="argument 1 is a CuTe tensor: pass the torch tensor"):
        profile.count(copy, x, from_dlpack(x))


def test_the_benchmark_of_the_emulator_reports_speed_and_shares(capsys: pytest.CaptureFixture[str]) -> None:
    chapter = notebooks.load("04_scalar_fma_gemm")
    with emulated():
        emulator_speed.gemm("small", chapter.scalar_gemm_launch, (128, 128, 16), torch.float32)
    out = capsys.readouterr().out
    assert "C: 128x128 float32 matches float64" in out
    work = 8 * 32 * 16 * 64  # warps, threads, k, products
    millions = float(out.split(" million thread instructions")[0].rsplit(" ", 1)[-1].split()[-1])
    assert work / 1e6 < millions < 2 * work / 1e6
    shares = [float(line.split("%")[0]) for line in out.splitlines() if "%" in line]
    assert math.isclose(sum(shares), 100, abs_tol=1) and "alu: fma.f32" in out
