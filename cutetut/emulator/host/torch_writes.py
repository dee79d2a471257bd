"""Which memory of the device torch's functions write, once a program has several streams (concurrent_launches.py).

Too little may count as written here, never too much: a launch that is reported must be one that nothing orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from . import concurrent_launches, graphs
from .torch_streams import current_stream

_NOTHING_WRITTEN = {  # functions that are named like those that write in place
    "requires_grad_", "squeeze_", "unsqueeze_", "t_", "transpose_", "swapaxes_", "swapdims_", "detach_", "resize_",
    "resize_as_", "set_", "rename_", "share_memory_", "as_strided_", "__index__", "__int__", "__invert__",
}  # fmt: skip
_BUILT_IN = (type(torch.add), type(torch.Tensor.add), type(torch.Tensor.__iadd__))


def called(
    func: Any, args: Any, kwargs: dict[str, Any], made: Iterable[torch.Tensor], marked: Callable[[object], bool]
) -> None:
    """Torch has done something on the device; `made` are results in new memory, `marked` says what is on the device."""
    stream = current_stream()
    if not isinstance(func, _BUILT_IN) or graphs.capturing(stream.cuda_stream):
        return
    name = getattr(func, "__name__", "")
    changed = [kwargs["out"]] if isinstance(kwargs.get("out"), torch.Tensor) else []
    if args and _in_place(name):
        changed.append(args[0])
    written = [span for tensor in (*made, *changed) if marked(tensor) for span in _span(tensor)]
    if written:
        concurrent_launches.torch_wrote(name, stream.number, written)


def _in_place(name: str) -> bool:
    operator = name.startswith("__")
    ends = name == "__setitem__" or name.startswith("__i") if operator else name.endswith("_")
    return ends and name not in _NOTHING_WRITTEN


def _span(tensor: torch.Tensor) -> list[tuple[int, int, int]]:
    """The start of its storage, and its addresses from and to, if all between them is its own."""
    with torch._C.DisableTorchFunction():
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
            return []
        if not tensor.is_contiguous() or not tensor.numel():
            return []
        low = tensor.data_ptr()
        return [(tensor.untyped_storage().data_ptr(), low, low + tensor.numel() * tensor.element_size())]
