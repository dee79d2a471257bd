"""torch.cuda.CUDAGraph without a GPU: kernels and torch's own operations of a captured stream, run again on request.

What torch does on the device under capture is written down operation by operation.  Each is also done once, because
torch needs its result's shape, but on copies of the tensors that it would change: a capture changes nothing.
"""

from __future__ import annotations

import functools
from types import TracebackType
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from . import gpus, graphs, stream_order, together
from .cuda_api import CudaCallError, new_handle
from .stream_order import Moment
from .torch_streams import Stream, current_stream


class Recorder(TorchDispatchMode):
    """Writes down what torch does while it is entered, for the capture under way."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._schema.name in OPDEFS:  # an operator of the program: what its function does is written down instead
            return func(*args, **kwargs)
        if func is torch.ops.aten._local_scalar_dense.default:
            graphs.forbid("reading a value of a tensor on the device")
        written, is_view = _effects(func, args, kwargs)
        before = [(tensor, tensor.clone()) for tensor in written]
        result = func(*args, **kwargs)
        for tensor, value in before:
            tensor.copy_(value)
        if not is_view and "empty" not in func.name():  # neither computes anything
            again = functools.partial(_again, func, args, kwargs, result)
            graphs.add(again, graphs.issue(current_stream().cuda_stream))
        return result


def _effects(func: Any, args: Any, kwargs: Any) -> tuple[list[torch.Tensor], bool]:
    """The tensors an operation writes to, and whether its result is a view of an argument."""
    written, is_view = [], False
    for position, argument in enumerate(func._schema.arguments):
        alias = argument.alias_info
        if alias is None:
            continue
        if alias.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            written += [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        else:
            is_view = True
    return written, is_view and not written


def _again(func: Any, args: Any, kwargs: Any, result: Any, moment: Moment) -> None:
    """Do an operation again, behind the launches before it, and leave its result where the captured one is."""
    if gpus.several():
        together.run_until(lambda each: moment.after(each.moment), f"torch's {func.__name__} in a graph")
    with torch._C.DisableTorchFunction(), torch.no_grad():
        fresh = func(*args, **kwargs)
        for old, new in zip(tree_leaves(result), tree_leaves(fresh), strict=True):
            if isinstance(old, torch.Tensor) and old is not new:
                old.copy_(new)


class CUDAGraph:
    """torch.cuda.CUDAGraph: what was captured."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._graph: graphs.Graph | None = None
        self._stream = 0
        self._pool = (0, 0)

    def capture_begin(
        self, pool: Any = None, capture_error_mode: str = "global", check_input_liveness: bool = False
    ) -> None:
        self._stream = current_stream().cuda_stream
        self._pool = pool.pool() if isinstance(pool, CUDAGraph) else pool or graph_pool_handle()
        graphs.begin(self._stream)

    def capture_end(self) -> None:
        self._graph = graphs.end(self._stream)

    def instantiate(self) -> None:
        """Nothing is left to prepare."""

    def replay(self) -> None:
        """Do everything that was captured, in order; captured itself when the current stream is."""
        if self._graph is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        self._graph.launch(current_stream().cuda_stream)

    def reset(self) -> None:
        self._graph = None

    def pool(self) -> tuple[int, int]:
        return self._pool

    def enable_debug_mode(self) -> None:
        """There is nothing to debug with: `debug_dump` is refused."""

    def debug_dump(self, debug_path: str) -> None:
        raise CudaCallError("CUDAGraph.debug_dump is not emulated", hint="leave it out on this machine")

    def raw_cuda_graph(self) -> int:
        raise CudaCallError("CUDAGraph.raw_cuda_graph is not emulated", hint="leave it out on this machine")

    def raw_cuda_graph_exec(self) -> int:
        raise CudaCallError("CUDAGraph.raw_cuda_graph_exec is not emulated", hint="leave it out on this machine")


def graph_pool_handle() -> tuple[int, int]:
    """torch.cuda.graph_pool_handle: memory is not pooled here, so any number will do."""
    return 0, new_handle()


class graph:
    """torch.cuda.graph: capture what the block puts on a stream of its own.

    Annotations name the nodes of a graph for a profiler, of which there is none.
    """

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = False,
    ) -> None:
        self.cuda_graph, self.pool = cuda_graph, pool
        self.stream = stream or Stream()

    def __enter__(self) -> None:
        graphs.forbid("torch.cuda.graph")
        stream_order.program.host_waits()
        self.stream.__enter__()
        self.cuda_graph.capture_begin(self.pool)

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.stream.__exit__()
        if kind is None:
            self.cuda_graph.capture_end()
        else:
            graphs.abandon()
