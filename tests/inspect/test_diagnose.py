"""`diagnose` runs a kernel in the emulator on every machine, prints what it finds, and leaves no trace."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.runtime import from_dlpack

from cutetut.emulator.host import driver
from cutetut.inspect.diagnose import diagnose


@cute.kernel
def copy_kernel(x: cute.Tensor, y: cute.Tensor, count: cutlass.Int32):
    tid, _, _ = cute.arch.thread_idx()
    if tid < count:
        y[tid] = x[tid]


@cute.jit
def copy(x: cute.Tensor, y: cute.Tensor, count: cutlass.Int32):
    copy_kernel(x, y, count).launch(grid=(1, 1, 1), block=(64, 1, 1))


def test_a_fault_is_printed_with_who_and_where(capsys: pytest.CaptureFixture[str]) -> None:
    diagnose(copy, torch.zeros(40), torch.zeros(64), 64)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("OutOfBounds: ")
    report = "\n".join(lines)
    assert "CTA (0, 0, 0), warp 1, lane 8" in report  # thread 40, the first past the end of x
    assert "y[tid] = x[tid]" in report and "ld.global" in report


def test_no_fault_says_so_and_the_kernel_has_run(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = torch.arange(64.0), torch.zeros(64)
    diagnose(copy, x, y, 64)
    assert capsys.readouterr().out.startswith("the emulator found no fault")
    assert torch.equal(x, y)


def test_a_tensor_that_is_not_on_the_cpu_is_refused() -> None:
    with pytest.raises(ValueError, match=r"argument 1 is a tensor on meta.*\.cpu\(\)"):
        diagnose(copy, torch.zeros(64), torch.zeros(64, device="meta"), 64)


def test_the_backend_is_as_before(device: str, on_gpu: bool) -> None:
    for count in (64, 100):  # 100 threads do not exist, so nothing is wrong with it either
        diagnose(copy, torch.zeros(64), torch.zeros(64), count)
    diagnose(copy, torch.zeros(40), torch.zeros(64), 64)
    assert driver.installed() is not on_gpu
    x, y = torch.arange(64.0, device=device), torch.zeros(64, device=device)
    cute.compile(copy, from_dlpack(x), from_dlpack(y), 64)(from_dlpack(x), from_dlpack(y), 64)
    assert torch.equal(x.cpu(), y.cpu())
