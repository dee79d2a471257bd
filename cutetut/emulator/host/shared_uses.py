"""What torch's functions do, among ranks, to memory that is not theirs alone: NCCL's, or open to other GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..machine import multicast
from . import exchanges, gpus, pool, shared_memory, stream_order, torch_waits
from .cuda_api import CudaCallError
from .torch_streams import current_stream


def call(
    name: str, func: Callable[..., Any], args: Any, kwargs: dict[str, Any], tensors: list[torch.Tensor]
) -> Any:  # fmt: skip
    """Call a function of torch, of this name, that is given these tensors of GPUs.

    Raises MissingBarrier where a collective uses them whose end nothing has waited for, or another GPU's kernel that
    nothing orders before it.
    """
    if name in torch_waits.NO_WAIT or name in torch_waits.VIEWS:
        return func(*args, **kwargs)
    with torch._C.DisableTorchFunction():
        tensors = [tensor for tensor in tensors if pool.has_memory(tensor)]
    if not tensors:
        return func(*args, **kwargs)
    uses = [(tensor, writes) for tensor, writes in _uses(name, args, kwargs) if any(tensor is one for one in tensors)]
    with torch._C.DisableTorchFunction():
        if any(multicast.window(tensor.data_ptr()) is not None for tensor in tensors):
            raise CudaCallError(f"torch's {name} uses a multicast address", hint="only multimem may use one")
        gpu = int(getattr(tensors[0].untyped_storage(), gpus.ON_GPU))
        known = stream_order.program.now(current_stream(gpu).number)
        exchanges.expect_waited(gpu, known, [exchanges.touch(tensor, writes) for tensor, writes in uses], name)
    result = func(*args, **kwargs)
    with torch._C.DisableTorchFunction():
        shared_memory.noted(name, gpu, uses)
    return result


def _uses(name: str, args: Any, kwargs: dict[str, Any]) -> Iterator[tuple[torch.Tensor, bool]]:
    """The tensors that a function is given, each with whether it is written."""
    in_place = name == "__setitem__" or name.endswith("_") != name.endswith("__") or _augmented(name)
    for position, value in enumerate(args):
        for tensor in _tensors(value):
            yield tensor, in_place and position == 0
    for key, value in kwargs.items():
        for tensor in _tensors(value):
            yield tensor, key == "out"


def _augmented(name: str) -> bool:
    return name.startswith("__i") and name not in ("__invert__", "__index__", "__int__", "__iter__")


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
