"""Which of torch's functions make the host wait for the device: what it reads of it, it has waited for.

On a GPU a function that gives the host a value (`item`, `tolist`, `cpu`, printing, a condition) waits for the current
stream.  Too much may count as waiting here, never too little: a launch that comes after a wait is in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import stream_order
from .torch_streams import current_stream

NO_WAIT = {  # they return what the host knows of a tensor anyway; __get__ is that of properties
    "__get__", "__set__", "__len__", "__hash__", "size", "stride", "dim", "ndimension", "numel", "nelement",
    "data_ptr", "element_size", "storage_offset", "is_contiguous", "untyped_storage", "get_device", "type", "backward",
    "is_floating_point", "is_complex", "is_signed", "is_pinned", "is_shared", "__dlpack__", "__dlpack_device__",
    "is_same_size", "is_set_to", "has_names", "register_hook", "is_tensor", "result_type", "requires_grad_",
}  # fmt: skip
VIEWS = {  # they look at a tensor's memory in another way
    "view", "view_as", "permute", "transpose", "t", "unsqueeze", "squeeze", "expand", "expand_as", "narrow", "select",
    "detach", "as_strided", "unbind", "chunk", "split", "movedim", "swapaxes", "flatten", "unflatten", "T", "mT",
}  # fmt: skip
_SHAPED_BY_VALUES = {  # how large their result is depends on values, so torch waits for these
    "nonzero", "argwhere", "where", "masked_select", "unique", "unique_consecutive", "repeat_interleave", "bincount",
    "__getitem__", "__setitem__", "index_put_", "index_put", "histogram", "histogramdd", "combinations",
}  # fmt: skip
_FROM_HOST = {"tensor", "as_tensor", "asarray", "from_numpy", "copy_", "__setitem__"}


def for_current_stream(gpu: int | None = None) -> None:
    """The host waits for torch's current stream of a GPU, the current one's without."""
    stream_order.program.host_waits(current_stream(gpu).number)


def called(func: Any, args: Any, result: Any, marked: Callable[[object], bool]) -> None:
    """torch has done something on the device; `marked` says what is on it."""
    name = getattr(func, "__name__", "")
    if name in NO_WAIT:
        return
    results = result if isinstance(result, list | tuple) else [result]
    on_device = all(value is None or isinstance(value, torch.Tensor) and marked(value) for value in results)
    if not on_device or name in _FROM_HOST or name in _SHAPED_BY_VALUES and _any_index(name, args):
        for_current_stream()


def _any_index(name: str, args: Any) -> bool:
    """Of indexing: whether it is by a tensor, which may be a mask."""
    if not name.startswith("__"):
        return True
    index = args[1] if len(args) > 1 else None
    return any(isinstance(each, torch.Tensor | list) for each in (index if isinstance(index, tuple) else (index,)))
