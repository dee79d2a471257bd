"""cute.printf through real CuTe DSL kernels: what C's printf would print, in thread order."""

from __future__ import annotations

import pytest
import torch
from cutlass.cute.runtime import from_dlpack

from tests.emulator import dsl_kernels


def printed(capfd: pytest.CaptureFixture[str], on_gpu: bool) -> list[str]:
    """The lines printed so far; a GPU prints when it is waited for."""
    if on_gpu:
        torch.cuda.synchronize()
    return capfd.readouterr().out.splitlines()


def test_several_arguments_of_some_threads(capfd: pytest.CaptureFixture[str], device: str, on_gpu: bool) -> None:
    x = torch.arange(64, dtype=torch.float32, device=device) / 4 - 1
    dsl_kernels.print_values(from_dlpack(x))
    lines = printed(capfd, on_gpu)
    assert sorted(lines) == sorted(
        f"thread {t} of 64: {t / 4 - 1:f} and {int(t / 4 - 1 > 4.0)}" for t in (3, 19, 35, 51)
    )


def test_kinds_of_numbers_and_formats(capfd: pytest.CaptureFixture[str], on_gpu: bool) -> None:
    dsl_kernels.print_kinds(-7, 1 << 40, 1.5, 123456.789, 0xFFFFFFFE)
    lines = [line for line in printed(capfd, on_gpu) if line]
    assert lines == [  # written by hand after the C standard, section 7.23.6.1
        "no arguments, 100%",
        "-7 1099511627776 1.500000 123456.789000 4294967294",
        "-7|   -7|-7    |fffffffe|1099511627776|123456.789000|123456.79|1.234568e+05|123457",
    ]


@pytest.mark.emulator
def test_lines_come_in_the_order_of_ctas_and_threads(capfd: pytest.CaptureFixture[str]) -> None:
    dsl_kernels.print_grid()
    assert printed(capfd, False) == [f"{cta} {thread}" for cta in range(2) for thread in range(34)]
