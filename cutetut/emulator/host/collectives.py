"""What NCCL's and Gloo's calls do to the tensors of a group, once every rank has made the call.

Each function gets the calls of all ranks, in their order in the group.  Tensors are this process's, whichever GPU they
count as.  A sum is formed from the first rank to the last, in the tensors' own type.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from .cuda_api import CudaCallError


@dataclass
class Call:
    """One rank's call of a collective: `alike` has to be the same on all ranks. Lists may be of one tensor per rank."""

    what: str
    do: Callable[[Sequence[Call]], None]
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]
    alike: tuple[Any, ...] = ()
    root: int = 0
    op: str = ""
    value: Any = None  # what it gives the others


REDUCTIONS = {
    "SUM": torch.add, "AVG": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum,
    "BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor,
}  # fmt: skip


def name_of(op: Any) -> str:
    """What a reduction is called. Raises CudaCallError for one that is not emulated."""
    for name in REDUCTIONS:
        if op == getattr(dist.ReduceOp, name):
            return name
    raise CudaCallError(f"the reduction {op} is not emulated", hint=f"one of {', '.join(REDUCTIONS)}")


def reduced(tensors: Sequence[torch.Tensor], op: str) -> torch.Tensor:
    """The reduction of one tensor per rank."""
    result = functools.reduce(REDUCTIONS[op], tensors).clone()
    if op == "AVG":
        result = result / len(tensors) if result.is_floating_point() else result // len(tensors)
    return result


def all_reduce(calls: Sequence[Call]) -> None:
    for i in range(len(calls[0].outputs)):
        result = reduced([call.inputs[i] for call in calls], calls[0].op)
        for call in calls:
            call.outputs[i].copy_(result)


def reduce(calls: Sequence[Call]) -> None:
    for i, output in enumerate(calls[calls[0].root].outputs):
        output.copy_(reduced([call.inputs[i] for call in calls], calls[0].op))


def broadcast(calls: Sequence[Call]) -> None:
    sources = calls[calls[0].root].inputs
    for call in (call for call in calls if call.outputs):  # the root has none
        for output, source in zip(call.outputs, sources, strict=True):
            output.copy_(source)


def all_gather(calls: Sequence[Call]) -> None:
    for call in calls:
        for output, other in zip(call.outputs, calls, strict=True):
            output.copy_(other.inputs[0].view_as(output))


def gather(calls: Sequence[Call]) -> None:
    for output, other in zip(calls[calls[0].root].outputs, calls, strict=True):
        output.copy_(other.inputs[0].view_as(output))


def scatter(calls: Sequence[Call]) -> None:
    for call, source in zip(calls, calls[calls[0].root].inputs, strict=True):
        call.outputs[0].copy_(source)


def reduce_scatter(calls: Sequence[Call]) -> None:
    results = [reduced([call.inputs[i] for call in calls], calls[0].op) for i in range(len(calls))]
    for call, result in zip(calls, results, strict=True):
        call.outputs[0].copy_(result.view_as(call.outputs[0]))


def all_to_all(calls: Sequence[Call]) -> None:
    sent = [[part.clone() for part in call.inputs] for call in calls]
    for me, call in enumerate(calls):
        for output, parts in zip(call.outputs, sent, strict=True):
            if output.numel() != parts[me].numel():
                raise RuntimeError(f"rank {me} expects {output.numel()} numbers where {parts[me].numel()} are sent")
            output.copy_(parts[me])


def send(calls: Sequence[Call]) -> None:
    """The sender's call comes first."""
    source, target = calls[0].inputs[0], calls[1].outputs[0]
    target.copy_(source.view_as(target))


def nothing(calls: Sequence[Call]) -> None:
    """A barrier: nothing is left to do once all have come."""


def parts(tensor: torch.Tensor, sizes: list[int], ranks: int) -> list[torch.Tensor]:
    """A tensor cut along its first dimension, a part for each rank, equally where no sizes are given."""
    return list(tensor.split(sizes) if sizes else tensor.chunk(ranks))
