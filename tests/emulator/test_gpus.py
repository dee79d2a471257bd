"""Several emulated GPUs: devices of tensors, peer access, launches in turns, and which scopes order two GPUs.

Every error has a twin that is right, and what is right is compared with numpy.
"""
# no `from __future__ import annotations`: CuTe DSL reads the annotations of the functions it compiles

import multiprocessing.spawn
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import cuda.bindings.driver as cuda
import cuda.bindings.runtime as cudart
import cutlass
import cutlass.cute as cute
import nbformat
import numpy as np
import pytest
import torch
from cutlass import Int32
from cutlass.cute.runtime import from_dlpack

from cutetut import emulate
from cutetut.emulator.errors import Deadlock, EmulatorError, MissingBarrier, OutOfBounds
from cutetut.emulator.host import gpus
from cutetut.emulator.host.cuda_api import CudaCallError
from cutetut.emulator.machine.scheduler import Scheduler
from tests import warm

pytestmark = pytest.mark.emulator
N, CTAS = 512, 4
EXPECTED = np.arange(N) * 2.0 + 1.0
Launch = Callable[[], None]


@pytest.fixture(autouse=True)
def three_gpus() -> Iterator[None]:
    with emulate.emulated_gpu(gpus=3):
        yield


@cute.kernel
def give_kernel(x: cute.Tensor, flag: cute.Tensor, how: cutlass.Constexpr, scope: cutlass.Constexpr):
    tid, cta = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
    x[cta * 128 + tid] = cutlass.Float32(cta * 128 + tid) * 2.0  # given
    cute.arch.sync_threads()
    if tid == 0:
        if cutlass.const_expr(how == "release"):
            cute.arch.atomic_add(flag.iterator, Int32(1), sem="release", scope=scope)
        elif cutlass.const_expr(how == "fence"):
            fence(scope)
            cute.arch.atomic_add(flag.iterator, Int32(1), sem="relaxed", scope="sys")
        elif cutlass.const_expr(how == "relaxed"):
            cute.arch.atomic_add(flag.iterator, Int32(1), sem="relaxed", scope="sys")


@cute.kernel
def take_kernel(
    x: cute.Tensor, flag: cute.Tensor, y: cute.Tensor, wanted: cutlass.Constexpr, how: cutlass.Constexpr,
    scope: cutlass.Constexpr,
):  # fmt: skip
    tid, cta = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
    if tid == 0:
        if cutlass.const_expr(how == "acquire"):
            while cute.arch.load(flag.iterator, Int32, sem="acquire", scope=scope) < wanted:
                pass
        elif cutlass.const_expr(how == "fence"):
            while cute.arch.load(flag.iterator, Int32, sem="relaxed", scope="sys") < wanted:
                pass
            fence(scope)
    cute.arch.sync_threads()
    y[cta * 128 + tid] = x[cta * 128 + tid] + 1.0  # taken


@cute.kernel
def relay_kernel(flag: cute.Tensor, further: cute.Tensor):
    while cute.arch.load(flag.iterator, Int32, sem="acquire", scope="sys") < CTAS:
        pass
    cute.arch.store(further.iterator, Int32(1), sem="release", scope="sys")


@cute.jit
def fence(scope: cutlass.Constexpr):
    if cutlass.const_expr(scope == "sys"):
        cute.arch.fence_acq_rel_sys()
    else:
        cute.arch.fence_acq_rel_gpu()


@cute.jit
def give(x: cute.Tensor, flag: cute.Tensor, how: cutlass.Constexpr, scope: cutlass.Constexpr, stream: cuda.CUstream):
    give_kernel(x, flag, how, scope).launch(grid=(CTAS, 1, 1), block=(128, 1, 1), stream=stream)


@cute.jit
def take(
    x: cute.Tensor, flag: cute.Tensor, y: cute.Tensor, wanted: cutlass.Constexpr, how: cutlass.Constexpr,
    scope: cutlass.Constexpr, stream: cuda.CUstream,
):  # fmt: skip
    take_kernel(x, flag, y, wanted, how, scope).launch(grid=(CTAS, 1, 1), block=(128, 1, 1), stream=stream)


@cute.jit
def relay(flag: cute.Tensor, further: cute.Tensor, stream: cuda.CUstream):
    relay_kernel(flag, further).launch(grid=(1, 1, 1), block=(1, 1, 1), stream=stream)


class Two:
    """Tensors of two GPUs, and the two kernels on a stream each."""

    def __init__(self, peers: bool = True) -> None:
        self.x, self.flag = torch.zeros(N, device="cuda:0"), torch.zeros(1, dtype=torch.int32, device="cuda:0")
        self.y = torch.zeros(N, device="cuda:1")
        for gpu in range(gpus.count if peers else 0):
            with torch.cuda.device(gpu):
                for peer in set(range(gpus.count)) - {gpu}:
                    assert cudart.cudaDeviceEnablePeerAccess(peer, 0) == (cudart.cudaError_t.cudaSuccess,)

    def give(self, how: str = "release", scope: str = "sys", gpu: int = 0, stream: Any = None) -> Launch:
        return loaded(give, gpu, stream, (self.x, self.flag), (how, scope))

    def take(
        self, how: str = "acquire", scope: str = "sys", wanted: int = CTAS, gpu: int = 1, flag: Any = None,
        stream: Any = None,
    ) -> Launch:  # fmt: skip
        flag = self.flag if flag is None else flag
        return loaded(take, gpu, stream, (self.x, flag, self.y), (wanted, how, scope))

    def relay(self, further: torch.Tensor, gpu: int) -> Launch:
        return loaded(relay, gpu, None, (self.flag, further), ())

    def done(self) -> None:
        for gpu in range(gpus.count):
            torch.cuda.synchronize(gpu)
        np.testing.assert_array_equal(self.y.cpu().numpy(), EXPECTED)


def loaded(function: Any, gpu: int, stream: Any, tensors: tuple, constants: tuple) -> Launch:
    """A launch whose code the GPUs have: loading it would wait for what runs there."""
    args = [from_dlpack(tensor) for tensor in tensors]
    with torch.cuda.device(gpu):
        compiled = cute.compile(function, *args, *constants, number(stream, gpu)).to()

    def launch() -> None:
        with torch.cuda.device(gpu):
            compiled(*args, number(stream, gpu))

    return launch


def launch(*launches: Launch) -> None:
    for each in launches:
        each()


def number(stream: Any, gpu: int) -> cuda.CUstream:
    return cuda.CUstream((stream or torch.cuda.current_stream(gpu)).cuda_stream)


# -- devices ---------------------------------------------------------------------------------------


def test_tensors_belong_to_a_gpu() -> None:
    assert torch.cuda.device_count() == 3 and torch.cuda.current_device() == 0
    x = torch.arange(4.0, device="cuda:1")
    assert x.device == torch.device("cuda", 1) and x.get_device() == 1 and (x + 1).device.index == 1
    assert "cuda:1" in repr(x) and x[1:].device.index == 1 and torch.zeros_like(x).device.index == 1
    assert x.to("cuda:2").device.index == 2 and x.cuda().device.index == 0 and x.cpu().device.type == "cpu"
    assert x.to("cuda:2").tolist() == [0.0, 1.0, 2.0, 3.0]
    with torch.cuda.device(2):
        assert torch.cuda.current_device() == 2 and torch.zeros(1, device="cuda").device.index == 2
    torch.cuda.set_device(1)
    assert torch.ones(1, device="cuda").device.index == 1 and cudart.cudaGetDevice()[1] == 1


def test_a_move_to_another_gpu_copies() -> None:
    x = torch.zeros(2, device="cuda:0")
    y = x.to("cuda:1")
    y += 1
    assert x.tolist() == [0.0, 0.0] and y.tolist() == [1.0, 1.0]
    assert x.to("cuda:0") is x


@pytest.mark.parametrize("module", [cudart, cuda])
def test_cudas_copy_from_one_to_another(module: Any) -> None:
    two = Two()
    give, y = two.give(how="release"), torch.zeros(N, device="cuda:1")
    give()  # the copy comes after it
    names = ("cudaMemcpyPeer", "cudaMemcpyPeerAsync") if module is cudart else ("cuMemcpyPeer", "cuMemcpyPeerAsync")
    for name, extra in zip(names, ((), (torch.cuda.current_stream().cuda_stream,)), strict=True):
        y.zero_()
        status, *_ = getattr(module, name)(y.data_ptr(), 1, two.x.data_ptr(), 0, 4 * N, *extra)
        assert int(status) == 0
        np.testing.assert_array_equal(y.cpu().numpy(), np.arange(N) * 2.0)
    status, *_ = getattr(module, names[0])(y.data_ptr(), 1, two.x.data_ptr(), 0, 4 * N + 4)
    assert "INVALID" in status.name.upper()


def test_tensors_of_two_gpus_cannot_be_added_but_copied() -> None:
    x, y = torch.ones(2, device="cuda:0"), torch.zeros(2, device="cuda:1")
    with pytest.raises(RuntimeError, match="cuda:0 and cuda:1"):
        x + y
    assert y.copy_(x).tolist() == [1.0, 1.0] and y.device.index == 1


def test_there_are_no_more_gpus_than_that() -> None:
    with pytest.raises(RuntimeError, match="3 devices, cuda:0 to cuda:2"):
        torch.zeros(1, device="cuda:3")
    assert cudart.cudaSetDevice(3)[0] == cudart.cudaError_t.cudaErrorInvalidDevice
    with pytest.raises(emulate.Refused, match="1 to 8"), emulate.emulated_gpu(gpus=9):
        pass


def test_a_spawned_process_begins_with_as_many() -> None:
    program = multiprocessing.spawn.get_command_line(tracker_fd=5, pipe_handle=7)[-2]
    assert program.startswith("from cutetut import emulate; emulate.child(3); from multiprocessing.spawn import")


def test_streams_belong_to_a_gpu() -> None:
    two, stream = Two(), torch.cuda.Stream(device=1)
    assert stream.device.index == 1 and torch.cuda.current_stream(1).device.index == 1
    with torch.cuda.stream(stream):
        assert torch.cuda.current_device() == 1 and torch.cuda.current_stream() == stream
    assert torch.cuda.current_device() == 0 and torch.cuda.current_stream(1) != torch.cuda.current_stream(0)
    with pytest.raises(CudaCallError, match="stream of GPU 1 while GPU 0"):
        launch(two.give(stream=stream))


# -- peer memory -----------------------------------------------------------------------------------


def test_memory_of_another_gpu_needs_peer_access() -> None:
    two = Two(peers=False)
    launch(two.give())
    torch.cuda.synchronize(0)
    launch(two.take())
    with pytest.raises(OutOfBounds, match=r"on GPU 0: GPU 1 has no peer access") as caught:
        torch.cuda.synchronize(1)
    assert caught.value.kind == "no-peer-access"


def test_with_peer_access_it_is_read() -> None:
    two = Two()
    launch(two.give(), two.take())
    two.done()
    assert cudart.cudaDeviceEnablePeerAccess(1, 0)[0] == cudart.cudaError_t.cudaErrorPeerAccessAlreadyEnabled
    assert torch.cuda.can_device_access_peer(0, 1) and not torch.cuda.can_device_access_peer(1, 1)


# -- launches in turns -----------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["order", "random:1", "random:2", "random:3"])
@pytest.mark.parametrize("taker_first", [True, False])
def test_a_kernel_waits_for_a_flag_of_another_gpu(
    monkeypatch: pytest.MonkeyPatch, schedule: str, taker_first: bool
) -> None:
    monkeypatch.setenv("CUTETUT_SCHEDULE", schedule)
    two = Two()
    give, take = two.give(), two.take()
    launch(*(take, give) if taker_first else (give, take))
    two.done()


def test_torch_waits_for_the_launches_of_the_gpus_it_uses() -> None:
    two = Two()
    launch(two.give(), two.take())
    assert float(two.y.sum()) == EXPECTED.sum()


def test_a_flag_that_nobody_raises_is_a_deadlock_of_all_gpus() -> None:
    two = Two()
    launch(two.take(wanted=CTAS + 1), two.give())
    with pytest.raises(Deadlock, match="it holds 4"):
        torch.cuda.synchronize(1)


def test_two_gpus_that_wait_for_each_other_are_both_told() -> None:
    two = Two()
    further = torch.zeros(1, dtype=torch.int32, device="cuda:1")
    launch(two.relay(further, 1), two.take(flag=further, gpu=0, wanted=1))
    with pytest.raises(Deadlock, match=r"(?s)and on GPU [01], kernel (relay|take)"):
        torch.cuda.synchronize(0)


def test_launches_that_only_look_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """That both wait for ever is told when each has looked often, however often a wait elsewhere may look."""
    taken, give_up = [], Scheduler.give_up

    def noted(self: Scheduler) -> NoReturn:
        taken.append(self.turn)
        give_up(self)

    monkeypatch.setattr(Scheduler, "give_up", noted)
    two = Two()
    further = torch.zeros(1, dtype=torch.int32, device="cuda:1")
    launch(two.relay(further, 1), two.take(flag=further, gpu=0, wanted=1))
    with pytest.raises(Deadlock):
        torch.cuda.synchronize(0)
    assert taken and taken[0] < 1000


@pytest.mark.parametrize("direct", [True, False])
def test_a_first_launch_loads_onto_all_gpus_and_waits_for_them(direct: bool) -> None:
    """As on two H200s, which hung; the twin that loads before is `test_a_kernel_waits_for_a_flag_of_another_gpu`."""
    two = Two()
    launch(two.take())
    x, flag, more = from_dlpack(two.x), from_dlpack(two.flag), ("release", "sys", number(None, 0))
    late = partial(give, x, flag, *more) if direct else partial(cute.compile(give, x, flag, *more), x, flag, more[-1])
    with pytest.raises(Deadlock, match=r"take_kernel(?s:.*)launches what this waits for only after it has loaded"):
        late()


def test_the_host_may_wait_too_early() -> None:
    two = Two()
    launch(two.take())
    with pytest.raises(Deadlock, match=r"launches what this waits for only after torch's sum"):
        two.y.sum()


# -- order -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("giver", "taker"), [("gpu", "sys"), ("sys", "gpu"), ("gpu", "gpu")])
def test_a_flag_of_one_gpus_scope_is_told(giver: str, taker: str) -> None:
    two = Two()
    launch(two.give(scope=giver), two.take(scope=taker))
    with pytest.raises(MissingBarrier, match="not at the scope of the system") as caught:
        two.done()
    assert caught.value.kind == "narrow-scope" and "flag" in str(caught.value)


@pytest.mark.parametrize(("giver", "taker"), [("gpu", "sys"), ("sys", "gpu"), ("sys", "sys")])
def test_fences_need_the_scope_of_the_system_too(giver: str, taker: str) -> None:
    two = Two()
    launch(two.give("fence", giver), two.take("fence", taker))
    if giver == taker:
        return two.done()
    with pytest.raises(MissingBarrier, match="# taken") as caught:
        two.done()
    assert caught.value.kind == "missing-gpu-order"
    return None


@pytest.mark.parametrize(("giver", "taker"), [("none", "none"), ("relaxed", "acquire"), ("release", "none")])
@pytest.mark.parametrize("taker_first", [True, False])
def test_data_without_an_order_is_told(giver: str, taker: str, taker_first: bool) -> None:
    two = Two()
    give, take = two.give(giver), two.take(taker)
    launch(*(take, give) if taker_first else (give, take))
    with pytest.raises(MissingBarrier, match=r"(?s)by GPU [01], which .* on GPU [01].*# (taken|given)") as caught:
        two.done()
    assert caught.value.kind == "missing-gpu-order"


def test_the_host_orders_two_gpus_by_waiting() -> None:
    two = Two()
    launch(two.give("none"))
    torch.cuda.synchronize(0)
    launch(two.take("none"))
    two.done()


@pytest.mark.parametrize("waits", [True, False])
def test_an_event_orders_two_gpus(waits: bool) -> None:
    two = Two()
    launch(two.give("none"))
    event = torch.cuda.current_stream(0).record_event()
    if waits:
        torch.cuda.current_stream(1).wait_event(event)
    launch(two.take("none"))
    if waits:
        return two.done()
    with pytest.raises(MissingBarrier):
        two.done()
    return None


def test_who_has_heard_of_it_passes_it_on() -> None:
    two = Two()
    further = torch.zeros(1, dtype=torch.int32, device="cuda:2")
    launch(two.take(flag=further, wanted=1), two.relay(further, 2), two.give())
    two.done()


def test_a_later_launch_knows_what_an_earlier_one_has_waited_for() -> None:
    two = Two()
    further = torch.zeros(1, dtype=torch.int32, device="cuda:1")
    # take is on the stream of the relay, which has waited
    launch(two.give(), two.relay(further, 1), two.take("none"))
    two.done()


@pytest.mark.parametrize("scope", ["gpu", "cta"])
def test_on_two_streams_of_one_gpu_the_scope_of_the_gpu_is_enough(scope: str) -> None:
    two = Two()
    two.y = torch.zeros(N, device="cuda:0")
    launch(two.take(scope=scope, gpu=0, stream=torch.cuda.Stream(device=0)), two.give(scope=scope, gpu=0))
    if scope == "gpu":
        return two.done()
    with pytest.raises(MissingBarrier, match="on another stream of GPU 0"):
        two.done()
    return None


def test_after_an_error_the_gpus_go_on() -> None:
    two = Two()
    launch(two.give("none"), two.take("none"))
    with pytest.raises(EmulatorError):
        two.done()
    two = Two(peers=False)
    launch(two.give(), two.take())
    two.done()


# -- the command -----------------------------------------------------------------------------------

SCRIPT = """
import torch
x = torch.arange(3.0, device="cuda:1")
print(torch.cuda.device_count(), x.to("cuda:0").sum().item(), x.device)
"""


def test_the_command_has_as_many_as_it_is_told(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(SCRIPT)
    ran = subprocess.run(
        warm.command("cutetut", "emulate", "--gpus", "2", str(script)), capture_output=True, text=True
    )
    assert ran.stdout == "2 3.0 cuda:1\n", ran.stderr


ASKING = "import torch\nfrom cutetut import emulate\nnames = emulate.gpus(2)\nprint(names, torch.cuda.device_count())"


def test_a_notebook_has_as_many_as_it_asks_for(tmp_path: Path) -> None:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(ASKING)])
    nbformat.write(book, tmp_path / "two.ipynb")
    command = warm.command("cutetut", "emulate", str(tmp_path / "two.ipynb"))
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.stdout == "['cuda:0', 'cuda:1'] 2\n", ran.stderr


@pytest.mark.parametrize(("given", "said"), [(1, "1 GPU is emulated here"), (2, "2 GPUs are emulated here")])
def test_a_script_that_was_given_some_gpus_gets_no_more(given: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "more.py").write_text(ASKING.replace("gpus(2)", f"gpus({given + 1})"))
    command = warm.command("cutetut", "emulate", "--gpus", str(given), str(tmp_path / "more.py"))
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr.endswith(f"Refused: {said}, not {given + 1}: cutetut emulate --gpus {given + 1}\n")


# -- CUDA graphs ----------------------------------------------------------------------------------


@cute.kernel
def double_kernel(x: cute.Tensor, y: cute.Tensor):
    tid = cute.arch.thread_idx()[0]
    y[tid] = x[tid] * 2.0


@cute.jit
def double(x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    double_kernel(x, y).launch(grid=(1, 1, 1), block=(128, 1, 1), stream=stream)


class Graph:
    """Of one GPU: a kernel, a function of torch that uses its result, and a kernel that uses that."""

    def __init__(self, gpu: int) -> None:
        self.gpu, self.graph = gpu, torch.cuda.CUDAGraph()
        with torch.cuda.device(gpu):
            stream = torch.cuda.Stream()
            self.a, self.b, self.c, self.d = (torch.zeros(128, device=f"cuda:{gpu}") for _ in range(4))
            first, second = (
                loaded(double, gpu, stream, each, ()) for each in ((self.a, self.b), (self.c, self.d))
            )
            with torch.cuda.graph(self.graph, stream=stream):
                first()
                torch.add(self.b, 1.0, out=self.c)
                second()

    def replay(self, value: float) -> None:
        with torch.cuda.device(self.gpu):
            self.a.fill_(value)
            self.graph.replay()


def test_graphs_of_several_gpus_do_all_in_order() -> None:
    graphs = [Graph(gpu) for gpu in (1, 0)]
    assert all(graph.d.sum() == 0 for graph in graphs), "a capture does nothing"
    for value in (3.0, -5.0):
        for graph in graphs:
            graph.replay(value)
        for graph in graphs:
            np.testing.assert_array_equal(graph.d.cpu().numpy(), np.full(128, (2 * value + 1) * 2))


def test_a_replayed_graph_and_a_kernel_of_another_gpu_wait_for_each_other() -> None:
    two = Two()
    give, stream, graph = two.give(), torch.cuda.Stream("cuda:1"), torch.cuda.CUDAGraph()
    take = two.take(stream=stream)
    with torch.cuda.device(1), torch.cuda.graph(graph, stream=stream):
        take()
    with torch.cuda.device(1):
        graph.replay()  # spins until the launch below
    give()
    two.done()


def test_a_graph_in_a_graph_is_refused_on_several_gpus() -> None:
    inner, outer = Graph(0), torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="a graph in a graph"), torch.cuda.graph(outer):
        inner.graph.replay()
