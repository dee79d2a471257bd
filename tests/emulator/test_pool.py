"""Device memory outlives its tensor, as in PyTorch's caching allocator; using it then is a warning."""
# no `from __future__ import annotations`: CuTe DSL reads the annotations of the functions it compiles

import warnings

import cuda.bindings.driver as cuda
import cuda.bindings.runtime as runtime
import cutlass
import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.runtime import make_ptr

from cutetut.emulator.errors import EmulatorWarning, OutOfBounds
from cutetut.emulator.host import pool

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("device_memory")]


@cute.kernel
def increment(x: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    x[i] = x[i] + 1


@cute.jit
def run_increment(pointer: cute.Pointer):
    increment(cute.make_tensor(pointer, cute.make_layout(32))).launch(grid=(1, 1, 1), block=(32, 1, 1))


def launch(address: int) -> None:
    run_increment(make_ptr(cutlass.Float32, address, cute.AddressSpace.gmem, assumed_align=4))


@cute.jit
def run_on_stream(pointer: cute.Pointer, stream: cuda.CUstream):
    increment(cute.make_tensor(pointer, cute.make_layout(32))).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


def launch_on(address: int, stream: int) -> None:
    pointer = make_ptr(cutlass.Float32, address, cute.AddressSpace.gmem, assumed_align=4)
    run_on_stream(pointer, cuda.CUstream(stream))


def test_a_pointer_to_a_tensor_on_the_device() -> None:
    x = torch.zeros(32, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launch(x.data_ptr())
        launch(x.view(4, 8).data_ptr())
    assert x.tolist() == [2] * 32


def test_freed_memory_can_be_used_with_a_warning() -> None:
    x = torch.ones(32, device="cuda")
    address = x.data_ptr()
    del x
    with pytest.warns(EmulatorWarning, match=r"a tensor \(32,\) float32, which has been freed"):
        launch(address)


def test_the_warning_of_freed_memory_says_which(recwarn: pytest.WarningsRecorder) -> None:
    x = torch.ones(32, device="cuda")
    address = x.data_ptr()
    del x
    launch(address)
    (report,) = {w.message.report for w in recwarn if isinstance(w.message, EmulatorWarning)}
    assert (report.kind, report.severity) == ("freed-memory", "warning")
    assert (report.locations[0].name, report.locations[0].address) == ("a tensor (32,) float32", address)


@pytest.mark.parametrize("call", ["cudaFree", "cuMemFree"])
def test_memory_that_the_program_has_freed_is_named(call: str) -> None:
    address = _allocated(call)
    launch(address)
    _free(call, address)
    with pytest.raises(OutOfBounds, match="memory of an allocation of 128 bytes, which has been freed") as caught:
        launch(address)
    assert caught.value.report.kind == "freed-memory" and "cudaFree" in caught.value.hint


def test_a_graph_that_uses_freed_memory() -> None:
    """What was captured runs when the graph is launched, and the memory is looked for then."""
    address = _allocated("cudaFree")
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        launch_on(address, stream.cuda_stream)
    graph.replay()
    _free("cudaFree", address)
    with pytest.raises(OutOfBounds, match="which has been freed"):
        graph.replay()


def test_memory_that_has_been_handed_out_again_is_not_freed() -> None:
    address = _allocated("cudaFree")
    _free("cudaFree", address)
    again = [_allocated("cudaFree") for _ in range(8)]
    for other in again:
        launch(other)
        _free("cudaFree", other)
    with pytest.raises(OutOfBounds) as caught:
        launch(16)
    assert "freed" not in str(caught.value)


def _allocated(call: str) -> int:
    """128 bytes of zeros from the runtime or the driver."""
    if call == "cudaFree":
        status, address = runtime.cudaMalloc(128)
        assert not int(status) and not int(runtime.cudaMemset(address, 0, 128)[0])
    else:
        status, address = cuda.cuMemAlloc(128)
        assert not int(status) and not int(cuda.cuMemsetD8(address, 0, 128)[0])
    return int(address)


def _free(call: str, address: int) -> None:
    (status,) = runtime.cudaFree(address) if call == "cudaFree" else cuda.cuMemFree(address)
    assert not int(status)


def test_a_tensor_of_the_host_is_out_of_reach() -> None:
    x = torch.zeros(32)
    with pytest.raises(OutOfBounds):
        launch(x.data_ptr())


def test_freed_memory_is_given_back_before_it_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "LIMIT", 1 << 20)
    pool.clear()
    held = []
    for i in range(200):
        x = torch.zeros(25_600, device="cuda")  # 100 KiB
        if i % 10 == 0:
            held.append(x)
        assert sum(storage.nbytes() for storage, _ in pool._kept.values()) <= (len(held) + 2) * 102_400 + (1 << 20)
    for x in held:
        found = pool.find(x.data_ptr() + 512)
        assert found is not None and found[:2] == (x.data_ptr(), 102_400)


def test_memory_is_found_again_until_it_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "LIMIT", 1 << 20)
    pool.clear()
    tensors = [torch.zeros(25_600, device="cuda") for _ in range(50)]
    for tensor in [*tensors, tensors[0], tensors[-1]]:
        assert (found := pool.find(tensor.data_ptr() + 8)) is not None and found[0] == tensor.data_ptr()
    address = tensors[0].data_ptr()
    del tensor
    tensors.clear()
    made = [torch.zeros(25_600, device="cuda") for _ in range(50)]
    assert pool.find(address) is None or any(0 <= address - tensor.data_ptr() < 102_400 for tensor in made)
    assert all((found := pool.find(t.data_ptr())) is not None and found[0] == t.data_ptr() for t in made)
