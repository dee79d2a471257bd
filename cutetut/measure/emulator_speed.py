"""How fast the emulator runs one kernel, and what its time goes into: a part of `python -m cutetut bench-emulator`.

This says nothing about a GPU. The scalar GEMM of chapter 04 is nearly all arithmetic; a GEMM with TMA, mbarriers and
WGMMA is nearly all asynchronous operations; the attention of chapter 19 has both.
"""
# no `from __future__ import annotations`: CuTe DSL reads the annotations of the functions it compiles

import math
import sys
import time
from collections.abc import Callable
from typing import Any

import cutlass
import cutlass.cute as cute
import cutlass.memory
import cutlass.tensor_utils
import torch
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import hopper_helpers as sm90

from cutetut import reference
from cutetut.check import check
from cutetut.course import notebooks
from cutetut.emulator.measure.observe import observing
from cutetut.emulator.measure.timing import Launches, Timing
from cutetut.inspect.run import emulated

TURNS = 5  # runs of each kernel; the fastest counts, because other programs only ever slow it down
WGMMA = "wgmma.mma_async completes"  # what `Timing` calls the tensor cores' own work
ROWS = 8  # kinds of instruction that are named; the rest is one row

TILE, DEPTH = 128, 64  # of M and N, and of K, for the WGMMA kernel
ROW = cutlass.tensor_utils.LayoutEnum.ROW_MAJOR


@cute.struct
class Storage:
    full: cute.struct.MemRange[cutlass.Int64, 1]
    a: cute.struct.Align[cute.struct.MemRange[cutlass.Float16, TILE * DEPTH], 1024]
    b: cute.struct.Align[cute.struct.MemRange[cutlass.Float16, TILE * DEPTH], 1024]


@cute.kernel
def wgmma_kernel(
    load_a: cute.CopyAtom, mA: cute.Tensor, load_b: cute.CopyAtom, mB: cute.Tensor, mC: cute.Tensor,
    tiled_mma: cute.TiledMma, a_layout: cute.ComposedLayout, b_layout: cute.ComposedLayout,
) -> None:  # fmt: skip
    tid, _, _ = cute.arch.thread_idx()
    m, n, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    storage = cutlass.memory.SmemAllocator().allocate(Storage)
    full = storage.full.data_ptr()
    sA = storage.a.get_tensor(a_layout.outer, swizzle=a_layout.inner)  # (bM, bK, 1)
    sB = storage.b.get_tensor(b_layout.outer, swizzle=b_layout.inner)
    if tid == 0:
        cute.arch.mbarrier_init(full, 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()

    gA = cute.local_tile(mA, (TILE, DEPTH), (m, None))  # (bM, bK, k)
    gB = cute.local_tile(mB, (TILE, DEPTH), (n, None))
    gC = cute.local_tile(mC, (TILE, TILE), (m, n))
    one = cute.make_layout(1)
    tAsA, tAgA = cpasync.tma_partition(load_a, 0, one, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2))
    tBsB, tBgB = cpasync.tma_partition(load_b, 0, one, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2))
    thr_mma = tiled_mma.get_slice(tid)
    tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
    tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
    tCgC = thr_mma.partition_C(gC)
    accumulators = cute.make_rmem_tensor(tCgC.shape, cutlass.Float32)
    accumulators.fill(0.0)

    for k in cutlass.range(cute.size(gA, mode=[2]), unroll=1):
        if warp == 0:
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full, 2 * 2 * TILE * DEPTH)
            cute.copy(load_a, tAgA[None, k], tAsA[None, 0], tma_bar_ptr=full)
            cute.copy(load_b, tBgB[None, k], tBsB[None, 0], tma_bar_ptr=full)
        cute.arch.mbarrier_wait(full, k & 1)
        warpgroup.fence()
        for block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
            tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
            cute.gemm(tiled_mma, accumulators, tCrA[None, None, block, 0], tCrB[None, None, block, 0], accumulators)
        warpgroup.commit_group()
        warpgroup.wait_group(0)
        cute.arch.sync_threads()
    cute.autovec_copy(accumulators, tCgC)


@cute.jit
def wgmma_launch(mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor) -> None:
    M, N = mC.shape
    a_layout = sm90.make_smem_layout_a(ROW, (TILE, TILE, DEPTH), cutlass.Float16, 1)
    b_layout = sm90.make_smem_layout_b(ROW, (TILE, TILE, DEPTH), cutlass.Float16, 1)
    one_a, one_b = cute.slice_(a_layout, (None, None, 0)), cute.slice_(b_layout, (None, None, 0))
    load = cpasync.CopyBulkTensorTileG2SOp()
    load_a, tA = cpasync.make_tiled_tma_atom(load, mA, one_a, (TILE, DEPTH))
    load_b, tB = cpasync.make_tiled_tma_atom(load, mB, one_b, (TILE, DEPTH))
    major = ROW.sm90_mma_major_mode()
    tiled_mma = sm90.make_trivial_tiled_mma(
        cutlass.Float16, cutlass.Float16, major, major, cutlass.Float32, (1, 1, 1), (64, TILE)
    )
    wgmma_kernel(load_a, tA, load_b, tB, mC, tiled_mma, a_layout, b_layout).launch(
        grid=(M // TILE, N // TILE, 1), block=(128, 1, 1)
    )


def scalar() -> None:
    """Chapter 04's scalar GEMM."""
    chapter = notebooks.load("04_scalar_fma_gemm")
    gemm("scalar GEMM of chapter 04, float32", chapter.scalar_gemm_launch, (256, 256, 128), torch.float32)


def wgmma() -> None:
    """The GEMM above, whose WGMMAs are m64n128k16."""
    gemm("GEMM with TMA and WGMMA m64n128k16, float16", wgmma_launch, (512, 512, 512), torch.float16)


def attention() -> None:
    """Chapter 19's attention."""
    chapter = notebooks.load("19_fa_wgmma")
    length, D = 2048, 128
    generator = torch.Generator().manual_seed(0)
    Q, K, V = (torch.randn(1, 1, length, D, generator=generator).to(torch.bfloat16) for _ in range(3))
    found: list[Any] = []

    def prepare() -> Callable[[], None]:
        return lambda: found.__setitem__(slice(None), chapter.attention(Q, K, V))

    def verify() -> None:
        wanted = torch.nn.functional.scaled_dot_product_attention(Q.double(), K.double(), V.double())
        check(found[0], wanted, atol=4e-3, rtol=2**-7, name="O")

    report(f"attention of chapter 19, bfloat16, 1 head, {length} tokens, D {D}", prepare, verify)


def gemm(title: str, function: Callable[..., Any], size: tuple[int, int, int], dtype: torch.dtype) -> None:
    """Report a `@cute.jit` GEMM of A (M, K), B (N, K), C (M, N) float32."""
    M, N, K = size
    generator = torch.Generator().manual_seed(0)
    A, B = (torch.randn(extent, K, generator=generator).to(dtype) for extent in (M, N))
    C = torch.full((M, N), math.nan)
    arguments = [from_dlpack(t, assumed_align=16) for t in (A, B, C)]

    def prepare() -> Callable[[], None]:
        compiled = cute.compile(function, *arguments)
        return lambda: compiled(*arguments)

    report(f"{title}, {M}x{N}x{K}", prepare, lambda: check(C, reference.gemm(A, B), atol=K * 1e-6))


def report(title: str, prepare: Callable[[], Callable[[], None]], verify: Callable[[], object]) -> None:
    """Run what `prepare` gives, check the result with `verify`, and print how fast it was and where the time went.

    Seconds are the processor's, so that other programs beside this one change them little.
    """
    print(title)
    start = time.process_time()
    kernel = prepare()
    compiling = time.process_time() - start
    seconds, launches = [], Launches()
    with observing(launches):
        for _ in range(TURNS):
            start = time.process_time()
            kernel()
            seconds.append(time.process_time() - start)
    verify()
    fastest = min(seconds)
    runs = f"first run {seconds[0]:.2f} s, fastest of {TURNS} runs {fastest:.3f} s"
    print(f"compiled in {compiling:.2f} s of CPU, {runs}")
    threads = launches.counters[0].thread_instructions
    print(f"{threads / 1e6:.2f} million thread instructions, {threads / fastest / 1e6:.1f} million in a second")
    timing = Timing()
    with observing(timing):
        start = time.perf_counter()
        kernel()
        whole = time.perf_counter() - start
    if count := timing.calls["wgmma", WGMMA]:
        print(f"{count} WGMMAs: {fastest / count * 1e6:.0f} us of CPU for each, with all that is between them")
    print(_shares(timing, whole), flush=True)


def _shares(timing: Timing, whole: float) -> str:
    """Where the seconds of one timed run went, by unit and kind of instruction."""
    ordered = sorted(timing.seconds.items(), key=lambda item: -item[1])
    rows = [(unit, kind, spent, timing.calls[unit, kind]) for (unit, kind), spent in ordered[:ROWS]]
    rest = ordered[ROWS:]
    rows.append(("", "other instructions", sum(s for _, s in rest), sum(timing.calls[key] for key, _ in rest)))
    rows.append(("", "launch, decoding, scheduler, checks", whole - sum(timing.seconds.values()), 0))
    lines = [f"{'share':>6}  {'ms':>7}  {'steps':>7}  what (in a run with a clock around every step, nothing compiled)"]
    for unit, kind, spent, calls in rows:
        what = f"{unit}: {kind}" if unit else kind
        lines.append(f"{spent / whole:6.1%}  {spent * 1e3:7.1f}  {calls or '':>7}  {what}")
    return "\n".join(lines)


PARTS = {"scalar": scalar, "wgmma": wgmma, "attention": attention}

if __name__ == "__main__":
    with emulated():
        PARTS[sys.argv[1]]()
