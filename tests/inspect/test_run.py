"""Where the memory of a kernel's tensors is: in place, as far into 512 bytes as it was, or far from everything."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from cutetut.emulator.host import driver
from cutetut.inspect import run
from tests.inspect.test_diagnose import copy

TENSORS = {
    "whole": torch.arange(24.0).reshape(4, 6),
    "transposed": torch.arange(24.0).reshape(4, 6).T,
    "one element in": torch.arange(25.0)[1:].reshape(4, 6),
    "rows with gaps": torch.arange(96, dtype=torch.int16).reshape(4, 24)[:, 3:9],
    "the same row again": torch.arange(6.0).expand(4, 6),
    "a byte": torch.arange(7, dtype=torch.uint8)[3:4],
    "a number": torch.tensor(3.0),
    "empty": torch.zeros(0, 4),
    "with a gradient": torch.ones(4, requires_grad=True),
}


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("place", [run.apart, run.as_placed, run.in_place])
def test_a_placed_tensor_has_shape_strides_type_and_values(place: run.Place, name: str) -> None:
    tensor = TENSORS[name]
    placed = place(tensor, 0)
    assert (placed.shape, placed.stride(), placed.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
    assert torch.equal(placed, tensor.detach()) and not placed.requires_grad and placed.device.type == "cpu"


@pytest.mark.parametrize("name", TENSORS)
def test_the_address_is_what_the_analysis_depends_on(name: str) -> None:
    tensor = TENSORS[name]
    nbytes = tensor.storage_offset() * tensor.element_size()
    assert run.as_placed(tensor, 0).data_ptr() % 512 == nbytes % 512 or not tensor.numel()
    assert run.apart(tensor, 0).data_ptr() % 16 == tensor.data_ptr() % 16 or not tensor.numel()
    assert run.in_place(tensor, 0).data_ptr() == tensor.data_ptr()


def test_tensors_apart_are_far_from_each_other_even_if_they_share_memory() -> None:
    tensor = torch.arange(16.0)
    copies = [run.apart(part, 0) for part in (tensor, tensor[4:], tensor)]
    addresses = sorted(copy.data_ptr() for copy in copies)
    assert all(second - first >= run.GUARD for first, second in zip(addresses, addresses[1:], strict=False))


def test_a_call_runs_what_was_prepared_and_the_emulator_is_gone_afterwards(on_gpu: bool) -> None:
    x, y = torch.arange(64.0), torch.zeros(64)
    with run.emulated():
        assert driver.installed()
        call = run.prepare(copy, (x, y, 64), run.as_placed)
        call()
        assert torch.equal(call.tensors[1], x) and not y.any() and list(call.tensors) == [0, 1]
        with run.emulated():
            run.prepare(copy, (x, y, 64), run.in_place)()
        assert driver.installed() and torch.equal(y, x)
    assert driver.installed() is not on_gpu


@pytest.mark.parametrize(
    ("entered", "first"),
    [
        ("inspect.run import emulated", "from cutlass.utils import HardwareInfo"),
        ("inspect.run import emulated", "notebooks.load('04_scalar_fma_gemm')"),
        ("emulate import emulated_gpu as emulated", "notebooks.load('04_scalar_fma_gemm')"),
    ],
)
def test_emulated_comes_before_the_dsl_is_imported(entered: str, first: str) -> None:
    """The import activates the emulator, too: installed twice, a compilation crashed the process."""
    code = (
        f"import cutetut\nfrom cutetut.course import notebooks\nfrom cutetut.{entered}\nwith emulated():\n    {first}\n"
        "    from cutlass.utils import HardwareInfo\n    print(HardwareInfo().get_max_active_clusters(1))"
    )
    environment = {**os.environ, "CUTETUT_BACKEND": "emulator"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout.splitlines()[-1] == "132", ran.stderr
