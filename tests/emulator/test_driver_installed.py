"""Where CuTe DSL finds the emulator: in a notebook's process, taken away and put back, and on a GPU left out."""
# no `from __future__ import annotations`: CuTe DSL reads the annotations of the functions it compiles

import os
from pathlib import Path

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import nbclient
import nbformat
import pytest
import torch
from cutlass.cute.runtime import from_dlpack

from cutetut import backend
from cutetut.emulator.host import driver, live
from tests.emulator.dsl_kernels import multiply

pytestmark = pytest.mark.emulator


@cute.jit
def scale_only(x: cute.Tensor, a: cutlass.Float32):
    multiply(x, a).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def scale_any(x, a: cutlass.Float32):  # takes torch tensors as they are
    multiply(x, a).launch(grid=(1, 1, 1), block=(32, 1, 1))


def test_a_notebook_cell_counts_as_a_file(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [
        nbformat.v4.new_code_cell(
            "import cutetut, torch\nimport cutlass.cute as cute\nfrom cutlass.cute.runtime import from_dlpack"
        ),
        nbformat.v4.new_code_cell(
            "@cute.kernel\ndef kernel(x: cute.Tensor):\n    i, _, _ = cute.arch.thread_idx()\n    x[i] = 1.0\n"
            "@cute.jit\ndef run(x: cute.Tensor):\n    kernel(x).launch(grid=(1, 1, 1), block=(64, 1, 1))"
        ),
        nbformat.v4.new_code_cell("run(from_dlpack(torch.zeros(40)))"),
    ]  # fmt: skip
    with pytest.raises(nbclient.exceptions.CellExecutionError) as caught:
        nbclient.NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert caught.value.ename == "OutOfBounds"
    assert "notebook cell 2, line 4:  x[i] = 1.0" in caught.value.evalue
    assert not list(tmp_path.iterdir())


def test_install_can_be_undone() -> None:
    assert driver.installed()
    ours = cuda.cuInit
    driver.uninstall()
    try:
        assert not driver.installed() and cuda.cuInit is not ours
        assert "CUTE_DSL_ARCH" not in os.environ
        assert from_dlpack(torch.ones(3)).memspace == cute.AddressSpace.generic
    finally:
        backend.start_emulator()
    assert os.environ["CUTE_DSL_ARCH"] == "sm_90a"
    assert from_dlpack(torch.ones(3)).memspace == cute.AddressSpace.gmem


def test_gpu_guard_refuses_cpu_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    from cutlass.cutlass_dsl.cuda_jit_executor import CudaDialectJitCompiledFunction as Compiled

    monkeypatch.setattr(Compiled, "__init__", Compiled.__init__)  # so that the guard is taken off again
    x = torch.ones(32)
    on_device = from_dlpack(x)
    monkeypatch.setattr(live, "on_device", lambda tensor: False)
    driver.reject_host_tensors()
    cute.compile(scale_only, on_device, 3.0)
    for function, host in ((scale_only, from_dlpack(x)), (scale_any, x)):
        with pytest.raises(driver.HostTensor, match="device='cuda'"):
            cute.compile(function, host, 3.0)
