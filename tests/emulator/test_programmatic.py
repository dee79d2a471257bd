"""Programmatic dependent launch as host code asks for it: launch attribute 6, and what came before on the stream."""
# no `from __future__ import annotations`: CuTe DSL reads the annotations of the functions it compiles

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cuda.bindings.driver as cuda
import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.runtime import from_dlpack

from cutetut.emulator import launch, ptx
from cutetut.emulator.checks.previous import Written
from cutetut.emulator.errors import EmulatorError, MissingBarrier
from cutetut.emulator.host import launches
from cutetut.emulator.machine.machine import Counters, Machine
from cutetut.emulator.machine.memory import GlobalMemory
from tests.emulator.ordering.cases import KERNELS
from tests.emulator.ordering.model import aligned

pytestmark = pytest.mark.emulator


@cute.kernel
def increment(x: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    x[i] = x[i] + 1


@cute.jit
def one_after_the_other(x: cute.Tensor, stream: cuda.CUstream):
    increment(x).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)
    increment(x).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream, use_pdl=True)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """What each launch is given; the n-th leaves the number n for the next."""
    given: list[dict[str, Any]] = []

    def record(_module: Any, kernel: str, **options: Any) -> launch.LaunchReport:
        given.append(options)
        return launch.LaunchReport(kernel, Counters(), 0.0, written=len(given))

    launches.forget()
    monkeypatch.setattr(launch, "launch", record)
    yield given
    launches.forget()


def test_a_launch_learns_of_the_one_before_it_on_its_stream(recorded: list[dict[str, Any]]) -> None:
    x = torch.zeros(32)
    one_after_the_other(from_dlpack(x), cuda.CUstream(0))
    one_after_the_other(from_dlpack(x), cuda.CUstream(64))
    one_after_the_other(from_dlpack(x), cuda.CUstream(0))
    assert [options["programmatic"] for options in recorded] == [False, True] * 3
    assert [options["stream"] for options in recorded] == [0, 0, 64, 64, 0, 0]
    assert [options["previous"] for options in recorded] == [None, 1, None, 3, 2, 5]


def test_of_a_launch_that_fails_nothing_is_left(
    recorded: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = from_dlpack(torch.zeros(32))
    one_after_the_other(x, cuda.CUstream(0))
    record = launch.launch

    def fail(*_: Any, **__: Any) -> None:
        raise EmulatorError("what")

    monkeypatch.setattr(launch, "launch", fail)
    with pytest.raises(EmulatorError):
        one_after_the_other(x, cuda.CUstream(0))
    monkeypatch.setattr(launch, "launch", record)
    one_after_the_other(x, cuda.CUstream(0))
    assert [options["previous"] for options in recorded] == [None, 1, None, 3]


def test_the_machine_is_told_and_what_it_leaves_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ptx.parse(".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry k() { ret; }")
    seen = []

    class Noting(Machine):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            seen.append((self.launch.stream, self.launch.programmatic, self.launch.previous))

    shape: dict[str, Any] = {"grid": (1, 1, 1), "block": (32, 1, 1), "params": [], "memory": GlobalMemory()}
    assert launch.launch(module, "k", **shape).written == Written("k", (), module.kernels["k"].body)
    monkeypatch.setattr(launch, "Machine", Noting)
    launch.launch(module, "k", **shape, stream=5, programmatic=True, previous="before")
    assert seen == [(5, True, "before")]


def test_what_the_host_has_written_since_is_not_unfinished(tmp_path: Path) -> None:
    """Memory of the kernel before that is handed out again and filled: the host's work had to wait for that kernel."""
    arguments, _ = KERNELS["launches"].case()
    x, t, y = (aligned(tensor) for tensor in arguments)
    run = KERNELS["launches"].load(tmp_path).module.run
    run(*(from_dlpack(tensor, assumed_align=128) for tensor in (x, t, y)))
    with pytest.raises(MissingBarrier, match="which second_kernel has written: it may still be running"):
        run(*(from_dlpack(tensor, assumed_align=128) for tensor in (x, y, t)))
    run(*(from_dlpack(tensor, assumed_align=128) for tensor in (x, t, y)))
    y.zero_()
    run(*(from_dlpack(tensor, assumed_align=128) for tensor in (x, y, t)))
    assert torch.equal(t, (x + 1).flip(1))
