"""torch.library.opcheck without a GPU: its tensors are the host's, and on the device only inside the operator's kernel.

It traces with fake tensors. Where one with a gradient says that it is on "cuda", torch asks for its CUDA library in
C++ code that cannot raise, and a build without it ends the process.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import _pop_mode_temporarily
from torch.utils import _pytree

from .patches import Patches

judging = False  # whether an operator is being checked


def install(patches: Patches, on_device: Callable[[object], bool]) -> None:
    """Let opcheck take tensors of the device "cuda"; `on_device` says which those are."""
    patches.set(torch.library, "opcheck", _with_tensors_of_the_host(torch.library.opcheck, on_device))


def _with_tensors_of_the_host(original: Callable[..., Any], on_device: Callable[[object], bool]) -> Callable[..., Any]:
    @functools.wraps(original)
    def opcheck(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, **options: Any) -> Any:
        if not any(map(on_device, _pytree.tree_leaves((args, kwargs)))):
            return original(op, args, kwargs, **options)
        with _without_modes():
            return original(op, args, kwargs, **options)

    return opcheck


@contextlib.contextmanager
def _without_modes() -> Iterator[None]:
    """No function mode is active, so a tensor reports where torch has put it."""
    global judging
    with contextlib.ExitStack() as outside:
        for _ in range(torch._C._len_torch_function_stack()):
            outside.enter_context(_pop_mode_temporarily())
        judging = True
        try:
            yield
        finally:
            judging = False
