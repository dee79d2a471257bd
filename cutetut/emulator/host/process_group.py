"""torch.distributed's process group among the ranks of one process (ranks.py), in place of NCCL's and Gloo's.

All above it is PyTorch's own.  On tensors of a GPU a call is work of that GPU, as NCCL's is: it comes after what the
current stream has been given, and `wait()` makes the stream wait.  On tensors of the host it is the host that waits.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.distributed import distributed_c10d

from ..errors import EmulatorError
from . import collectives, exchanges, graphs, ranks, stream_order
from .collectives import Call
from .cuda_api import CudaCallError
from .exchanges import HOST, Exchange, Part, touch
from .stream_order import Known, join
from .torch_streams import current_stream

Tensors = Sequence[torch.Tensor]
GpuOf = Callable[[torch.Tensor], "int | None"]

PAIRED = (
    "dist.batch_isend_irecv posts both at once: where two ranks both send first, NCCL goes on only while the message "
    "fits into its buffers"
)
ALIKE = "every rank of a group has to make the same calls in the same order, of tensors that fit"
_meetings: dict[tuple[Any, ...], Exchange] = {}  # that not all ranks have come to
gpu_of: GpuOf = lambda tensor: None  # noqa: E731  the GPU a tensor is on, see cuda_torch.py


class MismatchedCalls(EmulatorError):
    """Ranks of a group call different collectives, or the same with tensors that do not fit."""


def forget() -> None:
    """Forget all groups: no rank has called anything."""
    _meetings.clear()


class Work(c10d.Work):
    """What an asynchronous call returns."""

    def __init__(self, parts: Sequence[Part], outputs: Tensors, host_waits: bool = False) -> None:
        super().__init__()
        self.parts, self.outputs, self.host_waits = parts, list(outputs), host_waits

    def wait(self, timeout: Any = None) -> bool:
        """The current stream comes after it; the host, where it is the host's."""
        for part in self.parts:
            known = {part.moment.lane: part.moment.time}
            if part.gpu != HOST:
                stream_order.program.learn(current_stream(part.gpu).number, known)
            if part.gpu == HOST or self.host_waits:
                part.wait()
                stream_order.program.host_knows(known)
        return True

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        """Wait, and say that all is done: a program that asks until it is would wait as well."""
        for part in self.parts:
            part.wait()
            stream_order.program.host_knows({part.moment.lane: part.moment.time})
        return True

    def is_success(self) -> bool:
        return self.is_completed()

    def exception(self) -> None:
        return None

    def result(self) -> list[torch.Tensor]:
        return self.outputs

    def get_future(self) -> torch.futures.Future[Any]:
        self.is_completed()
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self.outputs)
        return future


class Group(dist.ProcessGroup):
    """The ranks of one group, as one of them sees it. devices: "cpu", "cuda" or both, which it serves."""

    def __init__(self, rank: int, size: int, members: Sequence[int], devices: Sequence[str], name: str) -> None:
        super().__init__(rank, size)
        self.own, self.members, self.devices, self.name = rank, tuple(members) or tuple(range(size)), devices, name
        self.device: torch.device | None = None  # what init_process_group was given as device_id
        self.calls: dict[Any, int] = {}
        self.batch: list[Part] | None = None
        self.after: Known = {}  # what batches have added, for the calls behind them

    # -- what torch asks --------------------------------------------------------------------------

    def size(self) -> int:
        return len(self.members)

    def rank(self) -> int:
        return self.own

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(device) for device in self.devices]

    @property
    def pg_name(self) -> str:
        return self.name

    @property
    def group_name(self) -> str:
        return self.name

    @property
    def bound_device_id(self) -> torch.device | None:
        return self.device

    def getBackendName(self) -> str:
        return "nccl" if "cuda" in self.devices else "gloo"

    def shutdown(self) -> None:
        """There is nothing to close."""

    def abort(self) -> None:
        """There is nothing to close."""

    def __repr__(self) -> str:
        return f"<emulated process group {self.name} of ranks {', '.join(map(str, self.members))}>"

    # -- meeting ----------------------------------------------------------------------------------

    def _next(self, key: Any) -> int:
        self.calls[key] = self.calls.get(key, 0) + 1
        return self.calls[key]

    def _device_of(self, call: Call) -> int:
        """The GPU whose work a call is. Raises RuntimeError for tensors that the group's backend does not serve.

        PyTorch's C++ copies a GPU's tensors into some of its own, which lie in host memory here, and goes on when their
        bytes are there: a call of its own is the host's.
        """
        tensors = [*call.inputs, *call.outputs]
        found = {gpu_of(tensor) for tensor in tensors}
        if None in found and _from_cpp():
            return HOST
        kind = "cpu" if None in found else "cuda"
        if kind not in self.devices:
            raise RuntimeError(f"No backend type associated with device type {kind}")
        if len(found) > 1:
            raise RuntimeError(f"tensors of one call of {call.what} are on several devices")
        gpu = found.pop()
        if gpu is not None and not all(tensor.is_contiguous() for tensor in tensors):
            raise ValueError("Tensors must be contiguous")
        return HOST if gpu is None else gpu

    def _meet(self, call: Call, gpu: int, key: tuple[Any, ...], members: tuple[int, ...], lane: Any) -> Part:
        """Come to where the ranks of an exchange meet; they all name the same key."""
        order = stream_order.program
        if gpu != HOST and graphs.capturing(current_stream(gpu).number):
            raise CudaCallError(f"{call.what} in a CUDA graph is not emulated", hint="call it between two replays")
        after = order.host if gpu == HOST else join(order.now(current_stream(gpu).number), self.after)
        exchange = _meetings.get(key)
        if exchange is None:
            exchange = _meetings[key] = Exchange(call.what, members, self._together, ALIKE)
        if gpu != HOST and any(part.gpu == gpu for part in exchange.parts.values()):
            raise CudaCallError(
                f"several ranks call {call.what} with tensors of cuda:{gpu}, which NCCL refuses",
                hint='torch.cuda.set_device(int(os.environ["LOCAL_RANK"])), before tensors are made',
            )
        touches = () if gpu == HOST else [
            *(touch(each, False) for each in call.inputs), *(touch(each, True) for each in call.outputs)
        ]  # fmt: skip
        part = exchanges.part(exchange, gpu, lane, after, call, touches)
        if len(exchange.parts) == len(members):
            del _meetings[key]
        return part

    @staticmethod
    def _together(exchange: Exchange) -> None:
        """All have come: do it. Raises MismatchedCalls where their calls do not belong together."""
        parts = [exchange.parts[rank] for rank in exchange.members]
        first = parts[0].data
        for part in parts:
            one, other = ((each.what, *each.alike) for each in (first, part.data))
            if one != other:
                raise MismatchedCalls(
                    f"rank {parts[0].rank} calls {_text(one)}{parts[0].where} where rank {part.rank} calls "
                    f"{_text(other)}{part.where}",
                    hint=ALIKE,
                )
        first.do([part.data for part in parts])

    def _collective(self, call: Call, host_waits: bool = False, gpu: int | None = None) -> Work:
        gpu = self._device_of(call) if gpu is None else gpu
        number = self._next("host" if gpu == HOST else "gpu")
        lane = ("host" if gpu == HOST else "nccl", self.name, ranks.number())
        part = self._meet(call, gpu, (self.name, self.members, gpu == HOST, number), self.members, lane)
        return Work([part], call.outputs, host_waits)

    def signal(self, channel: int, source: int, target: int, gpu: int) -> Work:
        """One rank's current stream signals another's that it has come this far."""
        pair, me = (self.members[source], self.members[target]), ranks.number()
        number = self._next((pair, channel, me))
        lane = ("signal", self.name, pair, channel, me)
        call = Call(f"signal on channel {channel}", collectives.nothing, [], [])
        return Work([self._meet(call, gpu, (self.name, pair, "signal", channel, number), pair, lane)], [])

    def _point_to_point(self, call: Call, source: int, target: int) -> Work:
        pair, gpu, me = (self.members[source], self.members[target]), self._device_of(call), ranks.number()
        number = self._next((pair, "send" if call.inputs else "receive"))
        lane: Any = ("pair", self.name, frozenset(pair), me)
        if self.batch is not None:  # nothing orders these among each other
            lane = ("batch", self.name, len(self.batch), me)
        elif gpu == HOST:
            lane = ("host", self.name, pair, me)
        part = self._meet(call, gpu, (self.name, pair, number), pair, lane)
        part.exchange.what, part.exchange.hint = f"send from rank {pair[0]} to rank {pair[1]}", PAIRED
        if self.batch is not None:
            self.batch.append(part)
        return Work([part], call.outputs)

    @contextlib.contextmanager
    def batched(self) -> Iterator[None]:
        """Calls of send and recv inside have no order among each other."""
        self._start_coalescing()
        try:
            yield
        finally:
            self._end_coalescing()

    def _start_coalescing(self, device: Any = None) -> None:
        self.batch = []

    def _end_coalescing(self, device: Any = None) -> Work:
        parts, self.batch = self.batch or [], None
        self.after = {part.moment.lane: part.moment.time for part in parts}
        return Work(parts, [])

    def everyone(self, what: str, value: Any) -> list[Any]:
        """The values that the hosts of all ranks bring here, in their order; each waits for all."""
        call = Call(what, collectives.nothing, [], [])
        call.value = value
        work = self._collective(call, gpu=HOST)
        work.wait()
        return [work.parts[0].exchange.parts[rank].data.value for rank in self.members]

    # -- collectives, as torch calls them ---------------------------------------------------------

    def allreduce(self, tensors: Any, opts: Any = None) -> Work:
        tensors = _list(tensors)
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        return self._collective(_call("all_reduce", collectives.all_reduce, tensors, tensors, op=op))

    allreduce_coalesced = allreduce

    def reduce(self, tensors: Any, opts: Any) -> Work:
        outputs = _list(tensors) if opts.rootRank == self.own else []
        return self._collective(
            _call("reduce", collectives.reduce, _list(tensors), outputs, op=opts.reduceOp, root=opts.rootRank)
        )

    def broadcast(self, tensors: Any, opts: Any) -> Work:
        inputs, outputs = (_list(tensors), []) if opts.rootRank == self.own else ([], _list(tensors))
        root = opts.rootRank
        return self._collective(
            Call("broadcast", collectives.broadcast, inputs, outputs, (root, *_shape(tensors)), root)
        )

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        return self._collective(_call("all_gather", collectives.all_gather, _list(inputs), _list(outputs)))

    def all_gather_single(self, output: Any, inp: Any, opts: Any = None) -> Work:
        if output.numel() != inp.numel() * self.size():
            raise ValueError("output tensor size must be equal to world_size times input tensor size")
        outputs = list(output.view(-1).chunk(self.size()))
        return self._collective(_call("all_gather", collectives.all_gather, [inp], outputs))

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        return self._each(self.all_gather_single, outputs, inputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        return self._each(self.reduce_scatter_single, outputs, inputs, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    @staticmethod
    def _each(call: Callable[..., Work], outputs: Any, inputs: Any, opts: Any) -> Work:
        works = [call(output, inp, opts) for output, inp in zip(outputs, inputs, strict=True)]
        return Work([part for work in works for part in work.parts], outputs)

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        return self._collective(
            _call("gather", collectives.gather, _list(inputs), _list(outputs), root=opts.rootRank)
        )

    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        root, alike = opts.rootRank, (opts.rootRank, *_shape(outputs))
        return self._collective(
            Call("scatter", collectives.scatter, _list(inputs), _list(outputs), alike, root)
        )

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        return self._collective(
            _call("reduce_scatter", collectives.reduce_scatter, _list(inputs), _list(outputs), op=opts.reduceOp)
        )

    def reduce_scatter_single(self, output: Any, inp: Any, opts: Any) -> Work:
        if inp.numel() != output.numel() * self.size():
            raise ValueError("input tensor must be the same size as output size times world size")
        inputs = list(inp.view(-1).chunk(self.size()))
        return self._collective(
            _call("reduce_scatter", collectives.reduce_scatter, inputs, [output], op=opts.reduceOp)
        )

    _reduce_scatter_base = reduce_scatter_single

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        return self._collective(Call("all_to_all", collectives.all_to_all, list(inputs), list(outputs)))

    def all_to_all_single(self, output: Any, inp: Any, output_sizes: Any, input_sizes: Any, opts: Any = None) -> Work:
        inputs, outputs = (
            collectives.parts(tensor, list(sizes or ()), self.size())
            for tensor, sizes in ((inp, input_sizes), (output, output_sizes))
        )
        return self._collective(Call("all_to_all", collectives.all_to_all, inputs, outputs))

    alltoall_base = all_to_all_single

    def barrier(self, opts: Any = None) -> Work:
        on_gpu = "cpu" not in self.devices or bool(opts is not None and opts.device_ids)
        call = Call("barrier", collectives.nothing, [], [])
        gpu = torch.cuda.current_device() if on_gpu and "cuda" in self.devices else HOST
        if gpu != HOST and opts is not None and opts.device_ids:
            gpu = opts.device_ids[0]
        return self._collective(call, host_waits=True, gpu=gpu)

    def monitored_barrier(self, *_: Any, **__: Any) -> None:
        self.everyone("monitored_barrier", None)

    def send(self, tensors: Any, target: int, tag: int = 0) -> Work:
        call = Call("send or recv", collectives.send, _list(tensors), [], _shape(tensors))
        return self._point_to_point(call, self.own, target)

    def recv(self, tensors: Any, source: int, tag: int = 0) -> Work:
        call = Call("send or recv", collectives.send, [], _list(tensors), _shape(tensors))
        return self._point_to_point(call, source, self.own)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        raise CudaCallError("recv from any rank is not emulated", hint="NCCL has none: name the rank it comes from")


def _from_cpp() -> bool:
    """Whether PyTorch's C++, which leaves no frame, calls this file, and not torch.distributed or a program.

    Calls of DistributedDataParallel and functional collectives are such.
    """
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    name = str(frame.f_globals.get("__name__", ""))
    return name.startswith("torch.") and name != distributed_c10d.__name__


def _list(tensors: Any) -> list[torch.Tensor]:
    """Tensors in lists of lists, in one."""
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    return [tensor for each in tensors for tensor in _list(each)]


def _shape(tensors: Any) -> tuple[Any, ...]:
    return tuple((tensor.numel(), str(tensor.dtype).removeprefix("torch.")) for tensor in _list(tensors))


def _call(
    what: str, do: Callable[[Sequence[Call]], None], inputs: list[torch.Tensor], outputs: list[torch.Tensor],
    op: Any = None, root: int = 0,
) -> Call:  # fmt: skip
    name = "" if op is None else collectives.name_of(op)
    return Call(what, do, inputs, outputs, (name, root, *_shape(inputs)), root, name)


def _text(call: Iterable[Any]) -> str:
    what, *rest = call
    words = [f"{each[0]} numbers of {each[1]}" if isinstance(each, tuple) else f"{each}" for each in rest]
    return " ".join([what, ", ".join(word for word in words if word not in ("", "0"))]).strip()

