"""The host side: what a launch hands over, which memory it may touch, and how errors come back.

Expected values are written from the host functions below: their `.launch(...)`, their arguments' bytes.
"""
# no `from __future__ import annotations`: CuTe DSL reads the annotations of the functions it compiles

import os
import struct
from pathlib import Path
from typing import Any

import cuda.bindings.driver as cuda
import cuda.bindings.runtime as cudart
import cutlass
import cutlass.cute as cute
import numpy as np
import pytest
import torch
from cutlass.base_dsl.compiler import Compiler
from cutlass.cute.runtime import from_dlpack, make_ptr
from cutlass.utils import HardwareInfo

from cutetut.emulator import launch
from cutetut.emulator.errors import EmulatorError, LaunchError, OutOfBounds
from cutetut.emulator.host import cuda_api, dlpack, launches, live
from cutetut.emulator.host.dlpack import Span
from cutetut.emulator.machine.machine import Counters

pytestmark = pytest.mark.emulator

STREAM = cuda.CUstream(0)


@cute.jit
def first_cta():
    x, y, z = cute.arch.block_idx()
    return x + y + z == 0


@cute.kernel
def scale(x: cute.Tensor, n: cutlass.Int32, a: cutlass.Float32):
    i, _, _ = cute.arch.thread_idx()
    if i < n and first_cta():
        x[i] = x[i] * a


@cute.kernel
def add(x: cute.Tensor, y: cute.Tensor):
    i, j, _ = cute.arch.thread_idx()
    if first_cta() and j == 0:
        x[i] = x[i] + y[i]


@cute.jit
def three(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32, stream: cuda.CUstream):
    scale(x, n, cutlass.Float32(2.5)).launch(grid=(2 * n, 1, 1), block=(32, 1, 1), cluster=(2, 1, 1), stream=stream)
    add(x, y).launch(grid=(2, 3, 4), block=(64, 2, 1), smem=4096, stream=stream)
    scale(y, 7, cutlass.Float32(-1)).launch(grid=(1, 1, 1), block=(32, 1, 1), cooperative=True, stream=stream)


@cute.jit
def scale_only(x: cute.Tensor, n: cutlass.Int32, a: cutlass.Float32, stream: cuda.CUstream):
    scale(x, n, a).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


class Recorder:
    """Stands in for the scheduler: keeps what it is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.launches: list[dict[str, Any]] = []
        monkeypatch.setattr(launch, "launch", self.launch)

    def launch(self, module: Any, kernel: str, **rest: Any) -> launch.LaunchReport:
        assert kernel in module.kernels
        self.launches.append({"kernel": kernel, **rest})
        return launch.LaunchReport(kernel, Counters(), 0.0, written=len(self.launches))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch)


def vectors(n: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(n, dtype=torch.float32), torch.ones(n)


def address(value: torch.Tensor) -> bytes:
    return struct.pack("<Q", value.data_ptr())


# launches ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direct", [False, True], ids=["compiled", "direct"])
def test_every_launch_arrives_as_written_and_in_order(recorder: Recorder, direct: bool) -> None:
    x, y = vectors()
    arguments = (from_dlpack(x), from_dlpack(y), 3, STREAM)
    if direct:
        three(*arguments)
    else:
        cute.compile(three, *arguments)(*arguments)
    first, second, third = recorder.launches
    assert "scale" in first["kernel"] and "add" in second["kernel"] and "scale" in third["kernel"]
    assert (first["grid"], first["block"], first["cluster"]) == ((6, 1, 1), (32, 1, 1), (2, 1, 1))
    assert (second["grid"], second["block"], second["cluster"]) == ((2, 3, 4), (64, 2, 1), (1, 1, 1))
    assert (first["dynamic_smem"], second["dynamic_smem"]) == (0, 4096)
    assert [launch["cooperative"] for launch in recorder.launches] == [False, False, True]
    assert first["params"] == [address(x), struct.pack("<i", 3), struct.pack("<f", 2.5)]
    assert second["params"] == [address(x), address(y)]
    assert third["params"][0] == address(y) and third["params"][-1] == struct.pack("<f", -1.0)


def test_run_time_arguments_change_the_launch_without_a_new_compile(recorder: Recorder) -> None:
    x, y = vectors()
    compiled = cute.compile(three, from_dlpack(x), from_dlpack(y), 3, STREAM)
    for n in (1, 5):
        compiled(from_dlpack(y), from_dlpack(x), n, STREAM)
        assert recorder.launches[-3]["grid"] == (2 * n, 1, 1)
        assert recorder.launches[-3]["params"][:2] == [address(y), struct.pack("<i", n)]


def test_launch_attributes_are_decoded() -> None:
    def attribute(identifier: int, *values: int) -> bytes:
        return struct.pack("<I4x", identifier) + struct.pack(f"<{len(values)}I", *values).ljust(64, b"\0")

    assert launches.launch_attributes(b"") == launches.Attributes((1, 1, 1), False, [])
    raw = attribute(4, 2, 4, 1) + attribute(2, 1) + attribute(6, 1) + attribute(7, 0xABCD, 1) + attribute(12, 5, 0)
    assert launches.launch_attributes(raw) == launches.Attributes((2, 4, 1), True, [0x1_0000ABCD, 5], True)
    with pytest.raises(cuda_api.CudaCallError, match="launch attribute 13 "):
        launches.launch_attributes(attribute(13, 1))


@cute.jit
def all_at_once(x: cute.Tensor, ctas: cutlass.Int32, stream: cuda.CUstream):
    scale(x, 0, cutlass.Float32(1)).launch(grid=(ctas, 1, 1), block=(1024, 1, 1), cooperative=True, stream=stream)


def test_a_cooperative_grid_must_fit_on_the_gpu_at_once(recorder: Recorder) -> None:
    x = torch.ones(32)
    compiled = cute.compile(all_at_once, from_dlpack(x), 1, STREAM)
    fit = 132 * 2  # an SM of sm_90 holds 2048 threads
    compiled(from_dlpack(x), fit, STREAM)
    with pytest.raises(cutlass.cutlass_dsl.DSLCudaRuntimeError) as caught:
        compiled(from_dlpack(x), fit + 1, STREAM)
    assert caught.value.error_code == cudart.cudaError_t.cudaErrorCooperativeLaunchTooLarge
    assert len(recorder.launches) == 1


@cute.jit
def with_an_event(x: cute.Tensor, event: cuda.CUevent, stream: cuda.CUstream):
    scale(x, 32, cutlass.Float32(3)).launch(
        grid=(1, 1, 1), block=(32, 1, 1), stream=stream, launch_completion_event=event
    )


def test_a_launch_records_its_events() -> None:
    x = torch.ones(32)
    start, done = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(done)
    with_an_event(from_dlpack(x), cuda.CUevent(done.cuda_event), STREAM)
    assert start.elapsed_time(done) > 0
    assert torch.equal(x, torch.full((32,), 3.0))


def test_functions_of_one_name_keep_their_own_code() -> None:
    def make(factor: float) -> Any:
        @cute.kernel
        def kernel(x: cute.Tensor):
            i, _, _ = cute.arch.thread_idx()
            x[i] = x[i] * factor

        @cute.jit
        def twin(x: cute.Tensor):
            kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1))

        return twin

    x = torch.ones(32)
    by_two, by_five = (cute.compile(make(f), from_dlpack(x)) for f in (2.0, 5.0))
    by_two(from_dlpack(x))
    assert x.tolist() == [2.0] * 32
    by_five(from_dlpack(x))
    assert x.tolist() == [10.0] * 32


def test_a_second_direct_call_does_not_compile_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiles = []
    original = Compiler.compile

    def counted(*args: Any, **kwargs: Any) -> Any:
        compiles.append(1)
        return original(*args, **kwargs)

    monkeypatch.setattr(Compiler, "compile", counted)
    monkeypatch.chdir(tmp_path)
    x = torch.ones(48)  # a shape no other test uses
    for _ in range(3):
        scale_only(from_dlpack(x), 48, 2.0, STREAM)
    assert len(compiles) == 1
    assert x.tolist() == [8.0] * 32 + [1.0] * 16
    assert not list(tmp_path.iterdir())


def test_launches_on_streams_run_in_program_order() -> None:
    x = torch.ones(32)
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    compiled = cute.compile(scale_only, from_dlpack(x), 32, 3.0, STREAM)
    with torch.cuda.stream(one):
        assert torch.cuda.current_stream() == one
        compiled(from_dlpack(x), 32, 3.0, cuda.CUstream(torch.cuda.current_stream().cuda_stream))
        x += 1
    two.wait_stream(one)
    compiled(from_dlpack(x), 32, 10.0, cuda.CUstream(two.cuda_stream))
    torch.cuda.synchronize()
    assert torch.cuda.current_stream() == torch.cuda.default_stream() != one
    assert x.tolist() == [40.0] * 32


# memory -----------------------------------------------------------------------------------------------------


def test_arguments_are_the_memory_of_a_launch_and_carry_their_names(recorder: Recorder) -> None:
    x, y = vectors()
    compiled = cute.compile(three, from_dlpack(x), from_dlpack(y[8:24:2]), 3, STREAM)
    compiled(from_dlpack(x), y[8:24:2], 3, STREAM)
    found = {(a.start, a.end - a.start, a.label) for a in recorder.launches[0]["memory"].allocations}
    assert found == {
        (x.data_ptr(), 256, "x (64,) float32"),
        (y.data_ptr() + 32, 15 * 4, "y (8,) float32"),
    }


def test_other_live_tensors_are_out_of_reach(recorder: Recorder) -> None:
    x, y = vectors()
    other = torch.zeros(1000)
    three(from_dlpack(x), from_dlpack(y), 3, STREAM)
    memory = recorder.launches[0]["memory"]
    assert memory.find(x.data_ptr()) is not None
    assert memory.find(other.data_ptr()) is None


@cute.kernel
def follow(pointer: cute.Pointer, n: cutlass.Int32):
    i, _, _ = cute.arch.thread_idx()
    x = cute.make_tensor(pointer, cute.make_layout(n))
    x[i] = x[i] + 1.0


@cute.jit
def follow_one(pointer: cute.Pointer, n: cutlass.Int32):
    follow(pointer, n).launch(grid=(1, 1, 1), block=(32, 1, 1))


def global_pointer(where: int) -> Any:
    return make_ptr(cutlass.Float32, where, cute.AddressSpace.gmem, assumed_align=4)


def test_raw_pointers_reach_live_tensors_only() -> None:
    x = torch.zeros(64)
    compiled = cute.compile(follow_one, global_pointer(x.data_ptr()), 32)
    compiled(global_pointer(x.data_ptr() + 64), 32)
    assert x.tolist() == [0.0] * 16 + [1.0] * 32 + [0.0] * 16
    with pytest.raises(OutOfBounds, match="past the end"):
        compiled(global_pointer(x.data_ptr() + 4 * 40), 32)
    live.reached(Span(x.data_ptr() + 4 * 64, 64, "y (16,) float32"))  # which a launch has used, and nothing holds now
    with pytest.raises(OutOfBounds, match="past the end") as overrun:  # lanes in x say that it is x they walk
        compiled(global_pointer(x.data_ptr() + 4 * 40), 32)
    assert overrun.value.report.locations[0].name == "a tensor (64,) float32"
    with pytest.raises(OutOfBounds, match=r"memory of y \(16,\) float32, which has been freed"):
        compiled(global_pointer(x.data_ptr() + 4 * 64), 32)
    for wild in (0x10, 0xDEAD_BEE0, 0x7F00_0000_1000):
        with pytest.raises(OutOfBounds):
            compiled(global_pointer(wild), 32)


@cute.kernel
def through_table(table: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    pointer = cute.make_ptr(cutlass.Float32, table[block], cute.AddressSpace.gmem, assumed_align=4)
    x = cute.make_tensor(pointer, cute.make_layout(32))
    x[i] = x[i] + cutlass.Float32(block + 1)


@cute.jit
def all_of_table(table: cute.Tensor):
    through_table(table).launch(grid=(cute.size(table), 1, 1), block=(32, 1, 1))


def test_a_table_of_pointers_is_followed() -> None:
    targets = [torch.zeros(32) for _ in range(3)]
    table = torch.tensor([t.data_ptr() for t in targets], dtype=torch.int64)
    compiled = cute.compile(all_of_table, from_dlpack(table))
    compiled(from_dlpack(table))
    assert [t.tolist() for t in targets] == [[float(i)] * 32 for i in (1, 2, 3)]
    table[1] = 0x7F00_0000_1000
    with pytest.raises(OutOfBounds):
        compiled(from_dlpack(table))


def test_numpy_and_torch_tensors_are_global_memory() -> None:
    array = np.ones(32, np.float32)
    tensor = from_dlpack(array)
    assert tensor.memspace == cute.AddressSpace.gmem == from_dlpack(torch.ones(3)).memspace
    scale_only(tensor, 32, 4.0, STREAM)
    assert array.tolist() == [4.0] * 32


@pytest.mark.parametrize(
    "cut",
    [np.s_[:], np.s_[1:3], np.s_[:, 2], np.s_[::2, ::3], np.s_[::-1], np.s_[1, ::-2], np.s_[..., None], np.s_[2:2]],
)
@pytest.mark.parametrize("dtype", ["float32", "int8", "complex64"])
def test_span_of_any_view_is_numpys_byte_bounds(cut: Any, dtype: str) -> None:
    view = np.zeros((4, 7), dtype).T[cut]
    span = dlpack.span(view.__dlpack__())
    assert span is not None
    if view.size:
        low, high = np.lib.array_utils.byte_bounds(view)
        assert (span.start, span.nbytes) == (low, high - low)
    else:
        assert span.nbytes == 0
    assert span.label == f"tensor {view.shape} {dtype}"


def test_memory_that_is_not_on_the_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "on_device", lambda tensor: False)
    x = torch.ones(32)
    with pytest.raises(LaunchError, match=r"^x \(32,\) float32 is in the host's memory"):
        scale_only(from_dlpack(x), 32, 4.0, STREAM)
    assert x.tolist() == [1.0] * 32


# errors -----------------------------------------------------------------------------------------------------


class Odd(EmulatorError):
    pass


@pytest.mark.parametrize("how", ["compiled", "direct", "executor"])
@pytest.mark.parametrize("error", [Odd("what"), ZeroDivisionError("what"), KeyboardInterrupt("what")])
def test_an_error_in_a_launch_is_what_the_caller_sees(
    monkeypatch: pytest.MonkeyPatch, how: str, error: BaseException
) -> None:
    x, y = vectors()
    arguments = (from_dlpack(x), from_dlpack(y), 3, STREAM)
    compiled = cute.compile(three, *arguments)
    call = {"compiled": compiled, "direct": three, "executor": compiled.to()}[how]
    launched: list[str] = []

    def fail(_module: Any, kernel: str, **_: Any) -> None:
        launched.append(kernel)
        raise error

    monkeypatch.setattr(launch, "launch", fail)
    with pytest.raises(type(error)) as caught:
        call(*arguments)
    assert caught.value is error
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    assert len(launched) == 1  # what follows a failed launch does not run
    monkeypatch.undo()
    call(*arguments)  # and nothing of it is left
    assert y.tolist()[:8] == [-1.0] * 7 + [1.0]


def test_traceback_of_an_emulator_error_stays_out_of_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise Odd("what")

    monkeypatch.setattr(launch, "launch", fail)
    x = torch.ones(32)
    with pytest.raises(Odd) as caught:
        scale_only(from_dlpack(x), 32, 4.0, STREAM)
    files = {os.path.basename(str(entry.path)) for entry in caught.traceback}
    assert "host_calls.py" not in files and "jit_executor.py" not in files


def test_errors_of_the_dsl_still_point_at_the_callers_line() -> None:
    with pytest.raises(cutlass.DSLUserCodeError) as caught:
        scale_only(torch.ones(32), 32, 4.0, STREAM)
    assert "test_driver.py" in str(caught.value) and "cutetut/emulator" not in str(caught.value)


# the CUDA API in Python -------------------------------------------------------------------------------------


def test_hardware_queries() -> None:
    info = HardwareInfo()
    assert info.get_device_multiprocessor_count() == 132
    assert info.get_max_active_clusters(1) == 132
    assert info.get_max_active_clusters(2) == 66
    attribute = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    assert cuda.cuDeviceGetAttribute(attribute, cuda.cuDeviceGet(0)[1]) == (cuda.CUresult.CUDA_SUCCESS, 227 * 1024)
    assert cutlass.cuda.get_compute_capability_major_minor() == (9, 0)


def test_device_memory_and_streams_of_the_driver_api() -> None:
    status, pointer = cuda.cuMemAlloc(128)
    assert status == cuda.CUresult.CUDA_SUCCESS and int(pointer) % 256 == 0
    (status,) = cuda.cuMemsetD32(pointer, struct.unpack("<I", struct.pack("<f", 2.0))[0], 32)
    compiled = cute.compile(follow_one, global_pointer(int(pointer)), 32)
    compiled(global_pointer(int(pointer)), 32)
    back = np.zeros(32, np.float32)
    cuda.cuMemcpyDtoH(back, pointer, 128)
    assert back.tolist() == [3.0] * 32
    assert cuda.cuMemcpyDtoH(back, pointer, 129)[0] == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    assert cuda.cuMemFree(pointer) == (cuda.CUresult.CUDA_SUCCESS,)
    assert cuda.cuMemFree(pointer)[0] == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(OutOfBounds):
        compiled(global_pointer(int(pointer)), 32)
    status, stream = cudart.cudaStreamCreate()
    assert int(stream) and cudart.cudaStreamSynchronize(stream) == (status,)
    assert cudart.cudaGetLastError() == (cudart.cudaError_t.cudaSuccess,)


def test_an_unanswered_function_is_refused_by_name() -> None:
    with pytest.raises(cuda_api.CudaCallError, match="cudaGraphAddKernelNode"):
        cudart.cudaGraphAddKernelNode(0, [], 0, None)
    with pytest.raises(cuda_api.CudaCallError, match="cuModuleLoadData"):
        cuda.cuModuleLoadData(0)


def test_events_give_wall_time_and_say_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_api, "_warned", False)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with pytest.raises(ValueError, match="recorded"):
        start.elapsed_time(end)
    start.record()
    sum(range(200_000))
    end.record()
    assert 0 < start.elapsed_time(end) == start.elapsed_time(end)
    assert capsys.readouterr().err.count("say nothing about a GPU") == 1
    with pytest.raises(ValueError, match="enable_timing"):
        torch.cuda.Event().elapsed_time(end)


def test_benchmark_calls_once_and_says_what_its_time_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_api, "_warned", False)
    x = torch.ones(32)
    compiled = cute.compile(scale_only, from_dlpack(x), 32, 3.0, STREAM)
    arguments = cutlass.testing.JitArguments(from_dlpack(x), 32, 3.0, STREAM)
    assert cute.testing.benchmark(compiled, kernel_arguments=arguments, iterations=50) > 0
    assert x.tolist() == [3.0] * 32
    assert "say nothing about a GPU" in capsys.readouterr().err
