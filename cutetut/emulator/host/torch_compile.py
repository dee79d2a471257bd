"""torch.compile without a GPU: the function itself.

TorchDynamo would trace our own device as a part of the program, and its compiler would need a C++ compiler and
minutes.  What a compiled function returns is defined by the function, but for the rounding between fused operations.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch

from .patches import Patches

_announced = False


def install(patches: Patches) -> None:
    """Let torch.compile, and what calls it, return the function or module uncompiled, and say so once."""
    patches.set(torch, "compile", _uncompiled(torch.compile))


def _uncompiled(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def compile(model: Any = None, **options: Any) -> Any:
        signature.bind(model, **options)  # an option that torch does not know is a TypeError
        if model is None:  # a decorator with options
            return lambda function: compile(function, **options)
        if not callable(model):
            raise TypeError(f"torch.compile takes a function or a module, not {type(model).__name__}")
        if not options.get("disable"):
            _announce()
        if isinstance(model, torch.nn.Module | type):
            return model

        @functools.wraps(model)
        def run(*args: Any, **kwargs: Any) -> Any:
            return model(*args, **kwargs)

        run._torchdynamo_orig_callable = model  # type: ignore[attr-defined]  # as on a compiled function
        return run

    return compile


def _announce() -> None:
    global _announced
    if not _announced:
        _announced = True
        print("cutetut: torch.compile does nothing here: functions run operation by operation", file=sys.stderr)
