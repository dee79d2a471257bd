"""Functions compiled for TVM-FFI: called with torch tensors, checked by the compiled code itself, run here.

Expected values are numpy's on the same numbers; errors are those that TVM-FFI and the emulator give elsewhere.
"""
# no `from __future__ import annotations`: CuTe DSL reads the annotations of the functions it compiles

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import numpy as np
import pytest
import torch
from cutlass.cute.runtime import from_dlpack, make_fake_stream

from cutetut.emulator import ptx
from cutetut.emulator.errors import OutOfBounds, PtxSyntaxError
from cutetut.emulator.host import driver, torch_graphs
from cutetut.emulator.host.cuda_api import CudaCallError
from tests.emulator.dsl_kernels import multiply

pytestmark = pytest.mark.emulator
OPTION = "--enable-tvm-ffi"


@cute.jit
def scale_32(x: cute.Tensor, a: cutlass.Float32):
    multiply(x, a).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def scale_64(x: cute.Tensor, a: cutlass.Float32 = 2.0, *, stream: cuda.CUstream):
    multiply(x, a).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)


class Pair(NamedTuple):
    first: Any
    second: Any


@cute.jit
def scale_both(pair: Pair, a: cutlass.Float32):
    multiply(pair.first, a).launch(grid=(1, 1, 1), block=(32, 1, 1))
    multiply(pair.second, a + 1).launch(grid=(1, 1, 1), block=(32, 1, 1))


@dataclasses.dataclass(frozen=True)
class Arguments:
    x: cute.Tensor
    a: cutlass.Float32


@cute.jit
def scale_record(arguments: Arguments):
    multiply(arguments.x, arguments.a).launch(grid=(1, 1, 1), block=(32, 1, 1))


def numbers(n: int = 32) -> torch.Tensor:
    return torch.arange(n, dtype=torch.float32)


def expect(x: torch.Tensor, factor: float) -> None:
    assert np.array_equal(x.numpy(), np.arange(len(x), dtype=np.float32) * np.float32(factor))


def test_torch_tensors_and_cute_tensors_by_position_and_by_name() -> None:
    x = numbers()
    compiled = cute.compile(scale_32, from_dlpack(x), 1.0, options=OPTION)
    compiled(x, 3.0)
    compiled(a=0.5, x=x)
    compiled(from_dlpack(x, enable_tvm_ffi=True), 4.0)
    expect(x, 6)


def test_defaults_keywords_and_a_stream() -> None:
    x = numbers(64)
    compiled = cute.compile(scale_64, from_dlpack(x), 1.0, stream=cuda.CUstream(0), options=OPTION)
    compiled(x, stream=cuda.CUstream(0))
    compiled(x, 5.0, stream=cuda.CUstream(0))
    expect(x, 10)


def test_the_environments_stream() -> None:
    x = numbers(64)
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    cute.compile(scale_64, from_dlpack(x), 1.0, stream=stream, options=OPTION)(x, 5.0)
    expect(x, 5)


def test_the_environments_stream_is_torchs_current_one() -> None:
    """So that a capture of that stream writes the launch down, and does not run it."""
    x = numbers(64)
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    compiled = cute.compile(scale_64, from_dlpack(x), 1.0, stream=stream, options=OPTION)
    with torch_graphs.graph(graph := torch_graphs.CUDAGraph()):
        compiled(x, 5.0)
    expect(x, 1)
    graph.replay()
    expect(x, 5)


def test_tensors_in_containers() -> None:
    x, y = numbers(), numbers()
    compiled = cute.compile(scale_both, Pair(from_dlpack(x), from_dlpack(y)), 1.0, options=OPTION)
    compiled(Pair(x, y), 3.0)
    compiled((y, x), 1.0)
    expect(x, 6)
    expect(y, 4)


def test_a_dataclass_stays_as_it_was() -> None:
    x = numbers()
    sample = Arguments(from_dlpack(x), cutlass.Float32(1))
    given = Arguments(x, 7.0)
    cute.compile(scale_record, sample, options=OPTION)(given)
    expect(x, 7)
    assert given.x is x


def test_a_tensor_that_needs_a_gradient() -> None:
    x = numbers().requires_grad_()
    cute.compile(scale_32, from_dlpack(x.detach()), 1.0, options=OPTION)(x, 2.0)
    expect(x.detach(), 2)


def test_a_direct_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTE_DSL_ENABLE_TVM_FFI", "1")
    driver.reread_environment()
    try:
        x = numbers()
        scale_32(from_dlpack(x), 9.0)
        expect(x, 9)
    finally:
        monkeypatch.undo()
        driver.reread_environment()


def test_two_functions_keep_their_own_code() -> None:
    x = numbers(64)
    first = cute.compile(scale_32, from_dlpack(x), 1.0, options=OPTION)
    second = cute.compile(scale_64, from_dlpack(x), 1.0, stream=cuda.CUstream(0), options=OPTION)
    first(x, 2.0)
    second(x, 2.0, stream=cuda.CUstream(0))
    first(x, 2.0)
    assert np.array_equal(x.numpy(), np.arange(64) * np.where(np.arange(64) < 32, 8, 2))


def test_wrong_arguments_are_tvm_ffis_errors() -> None:
    compiled = cute.compile(scale_32, from_dlpack(numbers()), 1.0, options=OPTION)
    with pytest.raises(ValueError, match=r"Mismatched a?x?.*shape\[0\]"):
        compiled(numbers(31), 1.0)
    with pytest.raises(ValueError, match="dtype"):
        compiled(numbers().half(), 1.0)


def test_a_fault_is_the_emulators_error_with_the_arguments_name() -> None:
    x = numbers(32)
    compiled = cute.compile(scale_64, from_dlpack(x), 1.0, stream=cuda.CUstream(0), options=OPTION)
    with pytest.raises(OutOfBounds, match=r"x \(32,\) float32"):
        compiled(x, stream=cuda.CUstream(0))


def test_kernels_that_cannot_be_loaded_are_an_error_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    x = numbers()
    compiled = cute.compile(scale_32, from_dlpack(x), 1.0, options=OPTION)

    def broken(text: str) -> ptx.Module:
        raise PtxSyntaxError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(ptx, "parse", broken)
        for _ in range(2):
            with pytest.raises(PtxSyntaxError, match="planted"):
                compiled(x, 1.0)
    compiled(x, 2.0)
    expect(x, 2)


def test_an_exported_function_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    x = numbers()
    path = tmp_path / "scale.o"
    cute.compile(scale_32, from_dlpack(x), 1.0, options=OPTION).export_to_c(str(path), "scale")
    assert path.stat().st_size
    with pytest.raises(CudaCallError, match="scale.o holds a kernel as machine code"):
        cute.runtime.load_module(str(path), enable_tvm_ffi=True)


def test_a_scripts_host_tensor_is_refused(cuda_device: None) -> None:
    x = numbers().cuda()
    compiled = cute.compile(scale_32, from_dlpack(x), 1.0, options=OPTION)
    compiled(x, 3.0)
    expect(x.cpu(), 3)
    with pytest.raises(ValueError, match="expected device_type=cuda"):
        compiled(x.cpu(), 3.0)
