"""Launches on different streams: two that use the same memory need an event, or a wait, between them."""
# no `from __future__ import annotations`: CuTe DSL reads the annotations of the functions it compiles

from collections.abc import Callable
from typing import Any

import cuda.bindings.driver as cuda
import cuda.bindings.runtime as cudart
import cutlass
import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.runtime import from_dlpack

from cutetut.emulator.errors import MissingBarrier
from cutetut.emulator.findings import Report
from cutetut.emulator.host import concurrent_launches, stream_order

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("cuda_device")]
N = 64
_compiled: dict[Any, Any] = {}


@cute.kernel
def double(x: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    y[i] = x[i] * 2  # doubled


@cute.kernel
def mirror(x: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    y[i] = x[x.shape[0] - 1 - i] + 1  # mirrored


@cute.kernel
def announce(x: cute.Tensor, flag: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    x[i] = cutlass.Float32(7.0)
    cute.arch.sync_threads()
    if i == 0:
        cute.arch.atomic_exch(flag.iterator, cutlass.Int32(1), sem="release", scope="gpu")


@cute.kernel
def listen(x: cute.Tensor, flag: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    if i == 0:
        while cute.arch.atomic_add(flag.iterator, cutlass.Int32(0), sem="acquire", scope="gpu") == 0:
            pass
    cute.arch.sync_threads()
    x[i] = x[i] * 2


@cute.jit
def run_announce(x: cute.Tensor, flag: cute.Tensor, stream: cuda.CUstream):
    announce(x, flag).launch(grid=(1, 1, 1), block=(N, 1, 1), stream=stream)


@cute.jit
def run_listen(x: cute.Tensor, flag: cute.Tensor, stream: cuda.CUstream):
    listen(x, flag).launch(grid=(1, 1, 1), block=(N, 1, 1), stream=stream)


@cute.jit
def run_double(x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    double(x, y).launch(grid=(1, 1, 1), block=(x.shape[0], 1, 1), stream=stream)


@cute.jit
def run_mirror(x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    mirror(x, y).launch(grid=(1, 1, 1), block=(x.shape[0], 1, 1), stream=stream)


def on(stream: Any, run: Any, x: torch.Tensor, y: torch.Tensor) -> None:
    """Launch on a stream of torch, or on one of cuda-python."""
    handle = cuda.CUstream(int(getattr(stream, "cuda_stream", stream)))
    views = [from_dlpack(tensor).mark_layout_dynamic() for tensor in (x, y)]
    if run not in _compiled:
        _compiled[run] = cute.compile(run, *views, handle)
    _compiled[run](*views, handle)


class Data:
    """Three tensors on the device, and two streams that do not wait for each other."""

    def __init__(self) -> None:
        self.x = torch.arange(N, dtype=torch.float32, device="cuda")
        self.t, self.y = torch.zeros_like(self.x), torch.zeros_like(self.x)
        self.first, self.second = torch.cuda.Stream(), torch.cuda.Stream()


Program = Callable[[Data], None]


def reads_early(d: Data) -> None:
    on(d.first, run_double, d.x, d.t)
    on(d.second, run_mirror, d.t, d.y)


def writes_early(d: Data) -> None:
    on(d.first, run_double, d.x, d.t)
    on(d.second, run_mirror, d.y, d.x)


def writes_what_is_written(d: Data) -> None:
    on(d.first, run_double, d.x, d.t)
    on(d.second, run_mirror, d.x, d.t)


def waits_for_an_event_recorded_too_early(d: Data) -> None:
    event = d.first.record_event()
    on(d.first, run_double, d.x, d.t)
    d.second.wait_event(event)
    on(d.second, run_mirror, d.t, d.y)


def host_waits_for_the_other_stream(d: Data) -> None:
    on(d.first, run_double, d.x, d.t)
    d.second.synchronize()
    on(d.second, run_mirror, d.t, d.y)


def default_stream_first(d: Data) -> None:
    on(0, run_double, d.x, d.t)
    on(d.second, run_mirror, d.t, d.y)  # torch's streams do not wait for the default stream


def second_stream_is_made_later(d: Data) -> None:
    stream_order.forget()  # as if there had been no stream yet
    on(0, run_double, d.x, d.t)
    on(torch.cuda.Stream(), run_mirror, d.t, d.y)


def reads_on_the_host_wait_for_another_stream(d: Data) -> None:
    on(d.first, run_double, d.x, d.t)
    with torch.cuda.stream(d.second):
        d.x.cpu()
    on(d.second, run_mirror, d.t, d.y)


def branches_of_a_graph(d: Data) -> None:
    graph, fork = torch.cuda.CUDAGraph(), torch.cuda.Event()
    with torch.cuda.graph(graph, stream=d.first):
        fork.record(d.first)
        d.second.wait_event(fork)
        on(d.first, run_double, d.x, d.t)
        on(d.second, run_mirror, d.t, d.y)
        d.first.wait_stream(d.second)
    with torch.cuda.stream(d.first):
        graph.replay()


def replay_double_on_first(d: Data) -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        on(torch.cuda.current_stream(), run_double, d.x, d.t)
    with torch.cuda.stream(d.first):
        graph.replay()


def a_graph_and_a_launch(d: Data) -> None:
    replay_double_on_first(d)
    on(d.second, run_mirror, d.t, d.y)


DOUBLED, MIRRORED = "y[i] = x[i] * 2  # doubled", "y[i] = x[x.shape[0] - 1 - i] + 1  # mirrored"
MISTAKES: list[Program] = [
    reads_early, writes_early, writes_what_is_written, waits_for_an_event_recorded_too_early,
    host_waits_for_the_other_stream, default_stream_first, second_stream_is_made_later,
    reads_on_the_host_wait_for_another_stream, branches_of_a_graph, a_graph_and_a_launch,
]  # fmt: skip


def reported(program: Program, words: str) -> tuple[Report, str]:
    """The report on a program in which nothing orders two uses of memory, as data and as text."""
    with pytest.raises(MissingBarrier, match=words) as caught:
        program(Data())
    report = caught.value.report
    assert report.kind == "missing-stream-order" and report.remedy
    return report, str(caught.value)


@pytest.mark.parametrize("program", MISTAKES, ids=lambda p: p.__name__)
def test_launches_that_nothing_orders_are_reported_with_both_lines(program: Program) -> None:
    report, text = reported(program, "nothing orders the two launches")
    assert [side.source_text for side in report.sides] == [MIRRORED, DOUBLED]
    assert [side.kernel for side in report.sides] == ["mirror", "double"]
    assert "double was launched on " in text and "mirror was launched on " in text
    assert "test_streams.py:" in text.partition("mirror was launched on ")[2]


def torch_writes_on_another_stream(d: Data) -> None:
    with torch.cuda.stream(d.first):
        d.t = d.x * 3
    on(d.second, run_mirror, d.t, d.y)


def torch_writes_on_the_default_stream(d: Data) -> None:
    d.t = d.x * 3
    on(d.second, run_mirror, d.t, d.y)


def torch_writes_for_the_default_stream(d: Data) -> None:
    with torch.cuda.stream(d.first):
        d.t = torch.mul(d.x, 3)
    on(0, run_mirror, d.t, d.y)


def torch_writes_in_place(d: Data) -> None:
    with torch.cuda.stream(d.first):
        d.t.mul_(3)
    on(d.second, run_mirror, d.t, d.y)


def torch_writes_to_out(d: Data) -> None:
    with torch.cuda.stream(d.first):
        torch.mul(d.x, 3, out=d.t)
    on(d.second, run_mirror, d.t, d.y)


def torch_writes_after_the_event(d: Data) -> None:
    event = d.first.record_event()
    with torch.cuda.stream(d.first):
        d.t *= 3
    d.second.wait_event(event)
    on(d.second, run_mirror, d.t, d.y)


TORCHS: list[Program] = [
    torch_writes_on_another_stream, torch_writes_on_the_default_stream, torch_writes_for_the_default_stream,
    torch_writes_in_place, torch_writes_to_out, torch_writes_after_the_event,
]  # fmt: skip


@pytest.mark.parametrize("program", TORCHS, ids=lambda p: p.__name__)
def test_what_torch_writes_and_a_launch_that_nothing_orders_are_reported(program: Program) -> None:
    report, text = reported(program, "nothing orders the two")
    kernel, torchs = report.sides
    assert kernel.source_text == MIRRORED and kernel.kernel == "mirror"
    assert "3" in torchs.source_text and "torch's " in torchs.kernel and "test_streams.py:" in torchs.source
    assert f"{torchs.kernel} was launched on " in text


def torch_in_the_same_stream(d: Data) -> None:
    with torch.cuda.stream(d.second):
        d.t = d.x * 3
    on(d.second, run_mirror, d.t, d.y)


def torch_and_a_wait(d: Data) -> None:
    with torch.cuda.stream(d.first):
        d.t = d.x * 3
    d.second.wait_stream(d.first)
    on(d.second, run_mirror, d.t, d.y)


def torch_and_the_host(d: Data) -> None:
    with torch.cuda.stream(d.first):
        d.t = d.x * 3
        d.t.sum().item()
    on(d.second, run_mirror, d.t, d.y)


def torch_from_the_host(d: Data) -> None:
    d.t = torch.arange(float(N)).to("cuda")  # the host waits for such a copy
    d.x.copy_(torch.arange(float(N)))
    on(d.second, run_mirror, d.t, d.x)


def torch_writes_nothing(d: Data) -> None:
    with torch.cuda.stream(d.first):
        d.t, d.y = d.x.view(2, -1).flatten(), torch.empty_like(d.x)
        d.t.squeeze_().requires_grad_()
    on(d.second, run_mirror, d.t.detach(), d.y)


def torch_writes_the_other_half(d: Data) -> None:
    h = N // 2
    with torch.cuda.stream(d.first):
        d.t[:h].mul_(3)
    on(d.second, run_mirror, d.t[h:], d.y[h:])


def torch_reads_only(d: Data) -> None:
    with torch.cuda.stream(d.first):
        d.t * 3
    on(d.second, run_mirror, d.t, d.y)


def one_stream(d: Data) -> None:
    on(d.first, run_double, d.x, d.t)
    on(d.first, run_mirror, d.t, d.y)


def waits_for_the_stream(d: Data) -> None:
    on(d.first, run_double, d.x, d.t)
    d.second.wait_stream(d.first)
    on(d.second, run_mirror, d.t, d.y)


def waits_through_a_third(d: Data) -> None:
    on(d.first, run_double, d.x, d.t)
    third, event = torch.cuda.Stream(), torch.cuda.Event()
    third.wait_stream(d.first)
    event.record(third)
    event.wait(d.second)
    on(d.second, run_mirror, d.t, d.y)


def host_waits(wait: Callable[[Data], Any]) -> Program:
    def program(d: Data) -> None:
        on(d.first, run_double, d.x, d.t)
        with torch.cuda.stream(d.first):
            wait(d)
        on(d.second, run_mirror, d.t, d.y)

    return program


def asks_until_an_event_is_there(d: Data) -> None:
    event = d.first.record_event()
    while not event.query():
        pass


def only_reads(d: Data) -> None:
    on(d.first, run_double, d.x, d.t)
    on(d.second, run_mirror, d.x, d.y)


def halves_of_a_tensor(d: Data) -> None:
    h = N // 2
    on(d.first, run_double, d.x[:h], d.t[:h])
    on(d.second, run_mirror, d.x[h:], d.t[h:])


def blocking_stream_after_the_default_stream(d: Data) -> None:
    _, stream = cudart.cudaStreamCreate()
    on(0, run_double, d.x, d.t)
    on(stream, run_mirror, d.t, d.y)
    on(0, run_double, d.y, d.x)  # the default stream waits for it


def the_same_value_again(d: Data) -> None:
    on(d.first, run_double, d.x, d.t)
    on(d.second, run_double, d.x, d.t)


def memory_that_is_handed_out_again(d: Data) -> None:
    on(d.first, run_double, d.x, d.t)
    with torch.cuda.stream(d.second):
        d.t = torch.zeros_like(d.x)  # torch gives another stream's memory to nobody else
    on(d.second, run_mirror, d.t, d.y)


def a_flag_between_the_launches(d: Data) -> None:
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    on(d.first, run_announce, d.t, flag)
    on(d.second, run_listen, d.t, flag)


def joined_branches(d: Data) -> None:
    graph, event = torch.cuda.CUDAGraph(), torch.cuda.Event()
    with torch.cuda.graph(graph, stream=d.first):
        on(d.first, run_double, d.x, d.t)
        event.record(d.first)
        d.second.wait_event(event)
        on(d.second, run_mirror, d.t, d.y)
        d.first.wait_stream(d.second)
        on(d.first, run_double, d.y, d.x)
    for stream in (d.first, d.second):  # runs of one graph wait for each other
        with torch.cuda.stream(stream):
            graph.replay()


def a_graph_then_its_stream(d: Data) -> None:
    replay_double_on_first(d)
    on(d.first, run_mirror, d.t, d.y)


def backward_reads(d: Data) -> None:
    leaf = d.x.clone().requires_grad_()
    on(d.first, run_double, d.x, d.t)
    (leaf * 2).sum().backward()
    on(d.second, run_mirror, d.t, d.y)


WAITS: dict[str, Callable[[Data], Any]] = {
    "synchronize": lambda d: torch.cuda.synchronize(),
    "stream": lambda d: d.first.synchronize(),
    "driver": lambda d: cuda.cuStreamSynchronize(cuda.CUstream(d.first.cuda_stream)),
    "event": lambda d: d.first.record_event().synchronize(),
    "query": asks_until_an_event_is_there,
    "cpu": lambda d: d.t.cpu(),
    "item": lambda d: d.t.sum().item(),
    "condition": lambda d: bool((d.t == 0).any()),
    "print": lambda d: str(d.t),
    "compare": lambda d: torch.testing.assert_close(d.t, d.t.clone()),
    "shape from values": lambda d: d.t.nonzero(),
    "upload": lambda d: torch.ones(3).to("cuda"),
}
CORRECT: dict[str, Program] = {
    **{p.__name__: p for p in (
        one_stream, waits_for_the_stream, waits_through_a_third, only_reads, halves_of_a_tensor, the_same_value_again,
        blocking_stream_after_the_default_stream, memory_that_is_handed_out_again, a_flag_between_the_launches,
        joined_branches,
        a_graph_then_its_stream, backward_reads, torch_in_the_same_stream, torch_and_a_wait, torch_and_the_host,
        torch_from_the_host, torch_writes_nothing, torch_writes_the_other_half, torch_reads_only,
    )},
    **{f"host waits: {name}": host_waits(wait) for name, wait in WAITS.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", CORRECT)
def test_launches_that_are_in_order_are_not_reported(name: str) -> None:
    CORRECT[name](Data())


def test_a_race_between_launches_can_be_made_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTETUT_WARN", "race")
    with pytest.warns(UserWarning, match="nothing orders the two launches"):
        reads_early(Data())


def test_without_the_device_cuda_nothing_is_compared() -> None:
    concurrent_launches.stop()
    reads_early(Data())
