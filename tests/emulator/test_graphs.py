"""CUDA graphs: what a capture does not do, and what every replay does.

Expected values follow from CUDA's rules for stream capture, written with plain arithmetic: a capture computes
nothing and changes nothing, a replay does the captured work on the same memory, in order.
"""
# no `from __future__ import annotations`: CuTe DSL reads the annotations of the functions it compiles

from collections.abc import Iterator
from typing import Any

import cuda.bindings.driver as cuda
import cuda.bindings.runtime as cudart
import cutlass
import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.runtime import from_dlpack

from cutetut.emulator.errors import OutOfBounds
from cutetut.emulator.host import graphs
from tests.emulator.dsl_kernels import multiply

pytestmark = pytest.mark.emulator


@cute.jit
def run_scale(x: cute.Tensor, a: cutlass.Float32, n: cutlass.Int32, stream: cuda.CUstream):
    multiply(x, a).launch(grid=(1, 1, 1), block=(n, 1, 1), stream=stream)


def launch(x: torch.Tensor, a: float, stream: Any = None, n: int = 4) -> None:
    handle = (stream or torch.cuda.current_stream()).cuda_stream
    run_scale(from_dlpack(x), a, n, cuda.CUstream(handle))


@pytest.fixture(autouse=True)
def no_capture_left_open(cuda_device: None) -> Iterator[None]:
    """What a test must not leave to the next."""
    yield
    assert not graphs.capturing(), "a test left a capture open"


def ones() -> torch.Tensor:
    return torch.ones(4, device="cuda")


def test_a_kernel_runs_at_each_replay_and_not_at_capture() -> None:
    x = ones()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        launch(x, 3)
        launch(x, 2)
    assert not torch.cuda.is_current_stream_capturing()
    assert x.tolist() == [1] * 4
    graph.replay()
    assert x.tolist() == [6] * 4
    x.fill_(5)
    graph.replay()
    assert x.tolist() == [30] * 4


def test_torchs_operations_are_captured_in_order_with_kernels() -> None:
    x = ones()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 1  # a new tensor, which keeps its memory from replay to replay
        launch(y, 10)
        x += y
        half = y[:2]
        half.mul_(2)
        total = (x.sum() + torch.arange(4, device="cuda").max()).to(torch.float64)
        filled = torch.full((2,), 7.0, device="cuda")
        out = torch.empty(4, device="cuda")
        torch.add(x, 1, out=out)
    assert x.tolist() == [1] * 4
    graph.replay()
    assert y.tolist() == [40, 40, 20, 20] and half.tolist() == [40, 40]
    assert x.tolist() == [21] * 4 and total.item() == 84 + 3 and filled.tolist() == [7, 7]
    assert out.tolist() == [22] * 4 and total.dtype == torch.float64 and total.is_cuda
    graph.replay()
    assert x.tolist() == [21 + 220] * 4 and y.tolist() == [440, 440, 220, 220]


def test_a_custom_operator_is_captured_as_what_its_function_does() -> None:
    """Its own allocations are on the device at the replay, too, and its kernel reads what is there by then."""

    @torch.library.custom_op("cutetut_tests::thrice", mutates_args=(), schema="(Tensor x) -> Tensor")
    def thrice(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x).copy_(x)
        launch(y, 3)
        return y

    x = ones()
    thrice(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = thrice(x) + 1
    x.fill_(5)
    graph.replay()
    assert y.tolist() == [16] * 4 and x.tolist() == [5] * 4
    x.fill_(-1)
    graph.replay()
    assert y.tolist() == [-2] * 4


def test_work_of_the_host_is_not_captured() -> None:
    x, counter = ones(), torch.zeros(1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        counter += 1
        launch(x, 2)
    for _ in range(3):
        graph.replay()
    assert counter.tolist() == [1] and x.tolist() == [8] * 4


def test_only_the_captured_stream_and_those_that_join_it() -> None:
    x, y, z = ones(), ones(), ones()
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        launch(x, 2, side)
        launch(y, 2, other)
        launch(z, 2, torch.cuda.default_stream())
        torch.cuda.current_stream().wait_stream(side)
    assert (x.tolist(), y.tolist(), z.tolist()) == ([1] * 4, [2] * 4, [2] * 4)
    graph.replay()
    assert (x.tolist(), y.tolist(), z.tolist()) == ([2] * 4, [2] * 4, [2] * 4)


def test_backward_and_an_optimizer_step() -> None:
    """Against the same steps taken without a graph."""

    def steps(graphed: bool) -> list[float]:
        weight = torch.tensor([1.0, 2.0], device="cuda", requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.25)
        data = torch.tensor([3.0, 1.0], device="cuda")

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            ((weight * data).sum() ** 2).backward()
            optimizer.step()

        if not graphed:
            for _ in range(3):
                step()
        else:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            for _ in range(3):
                graph.replay()
        return [float(v) for v in weight.detach().cpu()]

    assert steps(True) == steps(False)


def test_what_a_capture_forbids() -> None:
    x = ones()
    for forbidden in (
        x.sum().item,
        x.cpu,
        lambda: torch.zeros(1).cuda(),
        torch.cuda.synchronize,
        lambda: torch.cuda.current_stream().synchronize(),
        lambda: bool((x > 0).all()),
    ):
        graph = torch.cuda.CUDAGraph()
        with pytest.raises(RuntimeError, match="not permitted when stream is capturing"), torch.cuda.graph(graph):
            forbidden()
        with pytest.raises(RuntimeError, match="without a preceding successful capture"):
            graph.replay()


def test_the_default_stream_cannot_be_captured() -> None:
    with pytest.raises(RuntimeError, match="default stream"):
        torch.cuda.CUDAGraph().capture_begin()


def test_a_fault_is_raised_by_the_replay() -> None:
    x = ones()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(x, 2, n=64)
    with pytest.raises(OutOfBounds, match=r"x \(4,\) float32"):
        graph.replay()


def test_a_graph_inside_a_graph() -> None:
    x = ones()
    inner, outer = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(inner):
        launch(x, 2)
    with torch.cuda.graph(outer):
        inner.replay()
        launch(x, 5)
    assert x.tolist() == [1] * 4
    outer.replay()
    assert x.tolist() == [10] * 4


@pytest.mark.parametrize("api", ["driver", "runtime"])
def test_the_api_of_the_driver_and_of_the_runtime(api: str) -> None:
    x = ones()
    module, prefix = (cuda, "cu") if api == "driver" else (cudart, "cuda")

    def call(name: str, *args: Any) -> Any:
        status, *results = getattr(module, prefix + name)(*args)
        assert status == 0, f"{name}: {status}"
        return results[0] if results else None

    stream = call("StreamCreate", 0) if api == "driver" else call("StreamCreate")
    mode = cuda.CUstreamCaptureMode(0) if api == "driver" else cudart.cudaStreamCaptureMode(0)
    call("StreamBeginCapture", stream, mode)
    assert int(call("StreamIsCapturing", stream)) == 1
    run_scale(from_dlpack(x), 3, 4, cuda.CUstream(int(stream)))
    assert getattr(module, prefix + "StreamSynchronize")(stream)[0] == 900  # ...StreamCaptureUnsupported
    graph = call("StreamEndCapture", stream)
    assert int(call("StreamIsCapturing", stream)) == 0
    executable = call("GraphInstantiate", graph, 0)
    call("GraphDestroy", graph)
    for _ in range(2):
        call("GraphLaunch", executable, stream)
    call("GraphExecDestroy", executable)
    assert x.tolist() == [9] * 4
