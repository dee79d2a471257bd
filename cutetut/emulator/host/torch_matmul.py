"""Matrix products with a wider result, `torch.mm(a, b, out_dtype=torch.float32)`, which torch has on GPUs only.

Their operators are aten's `mm.dtype` and its like.  On the CPU they get a kernel that multiplies and adds in float32:
products of two halves or two bfloat16 are exact there, as in a tensor core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .patches import Patches

_HALVES = (torch.float16, torch.bfloat16)


def install(patches: Patches) -> None:
    """Give the operators that this version of torch has and cannot run on a CPU their kernels."""
    library = torch.library.Library("aten", "IMPL")
    patches.later(library._destroy)
    for name, kernel in (("mm", _mm), ("bmm", _bmm), ("addmm", _addmm), ("baddbmm", _baddbmm)):
        for overload, function in (("dtype", kernel), ("dtype_out", _into(kernel))):
            operator = f"{name}.{overload}"
            if not _declared(name, overload) or torch._C._dispatch_has_kernel_for_dispatch_key(
                f"aten::{operator}", "CPU"
            ):
                continue
            library.impl(operator, function, "CPU")


def _declared(name: str, overload: str) -> bool:
    return overload in getattr(torch.ops.aten, name).overloads()


def _mm(a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
    _check(a, b, out_dtype)
    return torch.mm(*_wide(a, b)).to(out_dtype)


def _bmm(a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
    _check(a, b, out_dtype)
    return torch.bmm(*_wide(a, b)).to(out_dtype)


def _addmm(
    c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype, *, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    _check(a, b, out_dtype, c)
    return torch.addmm(*_wide(c, a, b), beta=beta, alpha=alpha).to(out_dtype)


def _baddbmm(
    c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype, *, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    _check(a, b, out_dtype, c)
    return torch.baddbmm(*_wide(c, a, b), beta=beta, alpha=alpha).to(out_dtype)


def _into(kernel: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The same with `out=`, which must have the type that out_dtype names."""

    def run(*args: Any, out: torch.Tensor, **options: Any) -> torch.Tensor:
        result = kernel(*args, **options)
        if out.dtype != result.dtype:
            raise RuntimeError(f"out_dtype must be the same as the dtype of the provided out tensor, {out.dtype}")
        return out.resize_(result.shape).copy_(result)

    return run


def _wide(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.float() if tensor.dtype in _HALVES else tensor for tensor in tensors)


def _check(a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype, c: torch.Tensor | None = None) -> None:
    """As on a GPU: two halves of one type give that type or float32."""
    if a.dtype != b.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {a.dtype} != {b.dtype}")
    if out_dtype != a.dtype and not (out_dtype == torch.float32 and a.dtype in _HALVES):
        raise RuntimeError("out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs")
    if c is not None and c.dtype not in (out_dtype, a.dtype):
        raise RuntimeError(f"the tensor to add must be {out_dtype} or {a.dtype}, not {c.dtype}")
