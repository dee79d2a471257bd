"""Functions that measure kernels call them once in the emulator, and say so once."""
# no `from __future__ import annotations`: CuTe DSL reads the annotations of the functions it compiles

from typing import Any

import cutlass.cute as cute
import cutlass.testing
import pytest
import torch
from cutlass.cute import testing
from cutlass.cute.runtime import from_dlpack

from cutetut.emulator.host import cuda_api, driver

pytestmark = pytest.mark.emulator


@cute.kernel
def increment_kernel(x: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    x[i] = x[i] + 1


@cute.jit
def increment(x: cute.Tensor):
    increment_kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1))


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_explained_one_call", False)
    monkeypatch.setattr(cuda_api, "_warned", False)


def test_a_benchmark_calls_once_and_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.zeros(32)
    compiled = cute.compile(increment, from_dlpack(x))
    for calls in (1, 2):
        arguments = testing.JitArguments(from_dlpack(x))
        microseconds = testing.benchmark(compiled, kernel_arguments=arguments, warmup_iterations=50, iterations=1000)
        assert microseconds > 0 and x.tolist() == [calls] * 32
    errors = capsys.readouterr().err
    assert errors.count("calls its function once here") == errors.count("say nothing about a GPU") == 1


def test_tuning_calls_each_configuration_once(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[int] = []

    def candidate(width: int, **_: Any) -> Any:
        def call() -> None:
            calls.append(width)
            if width == 2:
                raise RuntimeError("too wide")

        return call

    best = cutlass.testing.tune(candidate, {"width": [1, 2, 4]}, warmup_iterations=10, iterations=100)
    assert calls == [1, 2, 4] and best["width"] in (1, 4)
    assert "a configuration of the kernel fails: too wide" in capsys.readouterr().err
