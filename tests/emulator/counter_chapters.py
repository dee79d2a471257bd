"""The chapters' kernels, one launch each at a small size: what the counters are compared on with Nsight Compute."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import torch

from cutetut.course import notebooks

Launch = Callable[[str], None]  # on a torch device: "cuda", or "cpu" in the emulator
BF16 = torch.bfloat16


def zeros(device: str, dtype: torch.dtype, *shapes: tuple[int, int]) -> list[torch.Tensor]:
    """Row-major matrices; what they hold changes no count."""
    return [torch.zeros(*shape, dtype=dtype, device=device) for shape in shapes]


def chapters() -> dict[str, Launch]:
    """Every launch by its name in the table, in a fixed order."""
    return {f"chapter {name}": launch for part in (_04, _05, _07, _08, _12, _13) for name, launch in part().items()}


def _compile_and_launch(function: Any, tensors: list[torch.Tensor], *constants: Any) -> None:
    import cutlass.cute as cute
    from cutlass.cute.runtime import from_dlpack

    arguments = [from_dlpack(t, assumed_align=16) for t in tensors]
    cute.compile(function, *arguments, *constants)(*arguments)


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


def _07() -> dict[str, Launch]:
    module = notebooks.load("07_mma_sync")

    def launch(plan: Any, device: str) -> None:
        module.mma_gemm(*zeros(device, BF16, (128, 192), (256, 192), (128, 256)), plan)

    plans = {**module.PLANS, "no swizzle": module.Plan(swizzled=False)}
    return {f"07 {name}": partial(launch, plan) for name, plan in plans.items()}


def _08() -> dict[str, Launch]:
    module = notebooks.load("08_wgmma_ss")

    def launch(swizzle: str, turned: bool, device: str) -> None:
        A, B, C = zeros(device, BF16, (128, 128), (128, 128), (128, 128))
        operands = [A.T, B.T] if turned else [A, B]  # MN-major or K-major
        _compile_and_launch(module.wgmma_gemm, [*operands, C], swizzle)

    return {
        f"08 {swizzle} {'MN' if turned else 'K'}-major": partial(launch, swizzle, turned)
        for swizzle in ("INTER", "SW32", "SW64", "SW128")
        for turned in (False, True)
    }


def _12() -> dict[str, Launch]:
    module = notebooks.load("12_tma_pipeline")

    def multiply(stages: int, consumers: int, device: str) -> None:
        module.tma_gemm(*zeros(device, BF16, (128, 256), (256, 256), (128, 256)), stages=stages, consumers=consumers)

    def copy(device: str) -> None:
        module.tma_copy(*zeros(device, BF16, (64, 256), (64, 256)), stages=2, ctas=2)

    return {"12 copy": copy, "12 one buffer": partial(multiply, 1, 2), "12 pipeline": partial(multiply, 3, 2)}


def _13() -> dict[str, Launch]:
    module: ModuleType = notebooks.load("13_warp_specialized")

    def launch(device: str) -> None:
        tensors = zeros(device, BF16, (256, 128), (512, 128), (256, 512))
        module.gemm(*tensors, module.Config(sms=2))

    return {"13": launch}
