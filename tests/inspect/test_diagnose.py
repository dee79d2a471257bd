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


@cute.kernel
def fill_kernel(x: cute.Tensor, value: cutlass.Float32):
    tid, _, _ = cute.arch.thread_idx()
    if tid < cute.size(x):
        x[tid] = value


@cute.jit
def fill(x: cute.Tensor, value: cutlass.Float32):
    fill_kernel(x, value).launch(grid=(1, 1, 1), block=(256, 1, 1))


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


@pytest.mark.parametrize("rows", [slice(None), slice(0, 1)])
def test_a_tensor_whose_elements_share_addresses_is_diagnosed_like_any_other(
    rows: slice, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as a bias for all rows; the kernel writes what it reads, so that all orders of writing give the same."""
    row, y = torch.arange(64.0), torch.zeros(64)
    diagnose(copy, row.expand(3, 64)[rows].flatten()[:64], y.expand(1, 64)[0], 64)
    assert torch.equal(y, row)
    diagnose(fill, y.expand(4, 64), 7.0)
    assert torch.equal(y, torch.full((64,), 7.0))
    assert capsys.readouterr().out.count("the emulator found no fault") == 2


def test_a_neighbour_in_the_same_memory_keeps_what_it_has() -> None:
    both = torch.zeros(4, 32)
    diagnose(fill, both[:, :16], 7.0)
    assert torch.equal(both[:, :16], torch.full((4, 16), 7.0)) and not both[:, 16:].any()


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
