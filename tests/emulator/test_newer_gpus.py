"""Kernels for a GPU after Hopper: `emulate` says so behind CuTe DSL's own error, which blames the installation."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutetut.emulate import run
from cutetut.emulator.host.newer_gpus import needed

pytestmark = pytest.mark.emulator

SCRIPT = """
import cutlass, cutlass.cute as cute, torch
from cutlass._mlir.dialects import llvm
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.cute.runtime import from_dlpack

@cute.kernel
def kernel(x: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    {device}
    x[i] = 1.0

@cute.jit
def host(x: cute.Tensor):
    {host}
    kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1))

host(from_dlpack(torch.zeros(32).cuda()))
"""
MMA = (  # CuTe DSL's own check
    "tcgen05.MmaF16BF16Op(cutlass.Float16, cutlass.Float32, (128, 256, 16), tcgen05.CtaGroup.ONE, "
    "tcgen05.OperandSource.SMEM, tcgen05.OperandMajorMode.K, tcgen05.OperandMajorMode.K)"
)
FENCE = "cute.arch.fence_view_async_tmem_load()"  # nothing checks before libNVVM
ASSEMBLY = (  # nothing checks before ptxas
    'llvm.inline_asm(None, [], "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;", "", '
    "has_side_effects=True, is_align_stack=False, asm_dialect=llvm.AsmDialect.AD_ATT)"
)
SAYS = "cutetut: this needs sm_100 (Blackwell); the emulator runs sm_90a\n"


@pytest.mark.parametrize(
    ("device", "host", "own"),
    [("pass", MMA, "expects arch to be"), (FENCE, "pass", "CUDA_TOOLKIT_PATH"), (ASSEMBLY, "pass", "ptxas")],
)
def test_a_kernel_for_blackwell(
    device: str, host: str, own: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "newer.py"
    script.write_text(SCRIPT.format(device=device, host=host))
    assert run(str(script), []) == 1
    error = capfd.readouterr().err
    assert own in error and error.endswith(SAYS) and error.count(SAYS) == 1


def test_other_errors_say_nothing_of_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for number, device in enumerate(("cute.no_such_function()", "x[i] = cute.arch.thread_idx()", "raise KeyError(1)")):
        script = tmp_path / f"wrong{number}.py"
        script.write_text(SCRIPT.format(device=device, host="pass"))
        assert run(str(script), []) == 1
        assert "this needs" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "arch"),
    [
        ("expects arch to be one of [base_dsl.Arch.sm_120a, base_dsl.Arch.sm_121a], but got sm_90a", "sm_120"),
        ("expects arch to be at least sm_100, but got sm_90a", "sm_100"),
        ("expects arch to be at least sm_90, but got sm_80", None),
        ("expects arch to be one of [sm_90a, sm_100a], but got sm_89", None),
        ("ptxas error : Feature '.cta_group::1' not\n   supported on .target\n 'sm_90a'", "sm_100"),
        ("ptxas error : Instruction 'x' requires .target sm_103a or higher", "sm_100"),
        ("ptxas error : Undefined symbol", None),
    ],
)
def test_what_an_error_says_is_needed(text: str, arch: str | None) -> None:
    assert needed(RuntimeError(text)) == arch
    outer = ValueError("compilation failed")
    outer.__cause__ = RuntimeError(text)
    assert needed(outer) == arch
