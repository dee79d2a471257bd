"""The chapters' kernels, one launch each at a small size: what the counters are compared on with Nsight Compute."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import torch

from cutetut.course import notebooks
from cutetut.measure import bench

Launch = Callable[[str], None]  # on a torch device: "cuda", or "cpu" in the emulator
BF16 = torch.bfloat16


def zeros(device: str, dtype: torch.dtype, *shapes: tuple[int, int]) -> list[torch.Tensor]:
    """Row-major matrices; what they hold changes no count."""
    return [torch.zeros(*shape, dtype=dtype, device=device) for shape in shapes]


def chapters() -> dict[str, Launch]:
    """Every launch by its name in the table, in a fixed order."""
    parts = (_03, _04, _05, _06, _07, _08, _09, _10, _11, _12, _13, _14)
    return {f"chapter {name}": launch for part in parts for name, launch in part().items()}


def _compile_and_launch(function: Any, tensors: list[torch.Tensor], *constants: Any) -> None:
    import cutlass.cute as cute
    from cutlass.cute.runtime import from_dlpack

    arguments = [from_dlpack(t, assumed_align=16) for t in tensors]
    cute.compile(function, *arguments, *constants)(*arguments)


def _03() -> dict[str, Launch]:
    module = notebooks.load("03_tensors_and_jit", bench.BENCH_TAGS)

    def launch(rung: str, device: str) -> None:
        _compile_and_launch(module.RUNGS[rung], zeros(device, torch.float32, (64, 64), (64, 64)))

    return {rung: partial(launch, rung) for rung in module.RUNGS}


def _04() -> dict[str, Launch]:
    module = notebooks.load("04_scalar_fma_gemm", (*notebooks.KERNEL_TAGS, notebooks.HELPERS))
    return {"04": lambda device: module.scalar_gemm(*zeros(device, torch.float32, (256, 64), (256, 64), (256, 256)))}


def _05() -> dict[str, Launch]:
    module = notebooks.load("05_partition_c")

    def launch(permutation: Any, wide: bool, device: str) -> None:
        tensors = zeros(device, torch.float32, (256, 16), (256, 16), (256, 256))
        _compile_and_launch(module.gemm, tensors, permutation, wide)

    return {
        f"05 {name} {'wide' if wide else 'plain'}": partial(launch, permutation, wide)
        for name, permutation in module.PERMUTATIONS.items()
        for wide in (False, True)
    }


def _06() -> dict[str, Launch]:
    module = notebooks.load("06_smem_tiling", bench.BENCH_TAGS)

    def launch(rung: str, device: str) -> None:
        """A CTA alone: with several on an SM Nsight Compute counts more, and another number in each launch."""
        launcher, plan = module.RUNGS[rung]
        bM, bN, bK = plan.tile
        _compile_and_launch(launcher, zeros(device, torch.float32, (bM, 4 * bK), (bN, 4 * bK), (bM, bN)), plan)

    return {f"06 {rung}": partial(launch, rung) for rung in module.RUNGS}


def _07() -> dict[str, Launch]:
    module = notebooks.load("07_mma_sync")

    def launch(plan: Any, device: str) -> None:
        module.mma_gemm(*zeros(device, BF16, (128, 192), (256, 192), (128, 256)), plan)

    plans = {**module.PLANS, "no swizzle": module.Plan(swizzled=False)}
    return {f"07 {name}": partial(launch, plan) for name, plan in plans.items()}


def _08() -> dict[str, Launch]:
    module = notebooks.load("08_wgmma")
    return {"08": lambda device: module.wgmma_gemm(*zeros(device, BF16, (128, 128), (128, 128), (128, 128)))}


def _09() -> dict[str, Launch]:
    module = notebooks.load("09_swizzled_smem")

    def launch(swizzle: str, turned: bool, device: str) -> None:
        A, B, C = zeros(device, BF16, (128, 128), (128, 128), (128, 128))
        operands = [A.T, B.T] if turned else [A, B]  # MN-major or K-major
        _compile_and_launch(module.swizzled_gemm_launch, [*operands, C], module.Plan(swizzle=swizzle))

    return {
        f"09 {swizzle} {'MN' if turned else 'K'}-major": partial(launch, swizzle, turned)
        for swizzle in ("INTER", "SW32", "SW64", "SW128")
        for turned in (False, True)
    }


def _product(chapter: str, launcher: str, plan: dict[str, Any], device: str) -> None:
    module = notebooks.load(chapter, bench.BENCH_TAGS)  # the plans of 10 and 12 belong to their benchmarks
    tensors = zeros(device, BF16, (256, 256), (256, 256), (256, 256))
    _compile_and_launch(getattr(module, launcher), tensors, module.Plan(**plan))


def _10() -> dict[str, Launch]:
    return {"10": partial(_product, "10_wgmma_async", "async_gemm_launch", {})}


def _11() -> dict[str, Launch]:
    module = notebooks.load("11_tma")
    return {"11 copy": lambda device: module.tma_copy(*zeros(device, BF16, (64, 256), (64, 256)), stages=2, ctas=2)}


def _12() -> dict[str, Launch]:
    of_12 = partial(partial, _product, "12_tma_pipeline")
    return {
        "12 two stages": of_12("ring_gemm_launch", {"stages": 2}),
        "12 ring": of_12("ring_gemm_launch", {}),
        "12 library": of_12("library_gemm_launch", {}),
    }


def _13() -> dict[str, Launch]:
    return {"13": partial(_product, "13_warp_specialized", "specialized_gemm_launch", {})}


def _14() -> dict[str, Launch]:
    module: ModuleType = notebooks.load("14_persistent")

    def launch(rung: str, device: str) -> None:
        module.prepare(rung, *zeros(device, BF16, (256, 128), (512, 128), (256, 512)), module.Plan(), ctas=2)()

    return {f"14 {rung}": partial(launch, rung) for rung in ("persistent", "overlapped")}
