"""Matrices and their products in float64: what the chapters' kernels are held against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

HALF_ULP = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-24}  # relative, at most


def normal(rng: np.random.Generator, device: str, dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    """Tensors of random normal numbers, rounded to a type."""
    return [torch.from_numpy(rng.standard_normal(shape)).to(dtype).to(device) for shape in shapes]


def wide(tensor: torch.Tensor) -> npt.NDArray[np.float64]:
    return np.asarray(tensor.cpu().double().numpy())


def exact(A: torch.Tensor, B: torch.Tensor) -> npt.NDArray[np.float64]:
    """A B^T by numpy in float64, of the operands as they were rounded."""
    return wide(A) @ wide(B).T


def assert_product(C: torch.Tensor, A: torch.Tensor, B: torch.Tensor) -> None:
    """C is A B^T within what float32 sums of K exact products lose, truncating ones too, and C's own rounding."""
    expected = exact(A, B)
    lost = A.shape[1] * 2.0**-22 * exact(A.abs(), B.abs())
    bound = lost + HALF_ULP[C.dtype] * (np.abs(expected) + lost) + 2.0**-24  # float16 has subnormal results
    assert (np.abs(wide(C) - expected) <= bound).all()  # NaN fails


def assert_writes_its_result_alone(multiply: Callable[..., Any], A: torch.Tensor, B: torch.Tensor) -> None:
    """`multiply(A, B, C)` computes a C of A's type that lies between two others, and leaves those as they are."""
    memory = torch.full((3, len(A), len(B)), 7.0, dtype=A.dtype, device=A.device)
    multiply(A, B, memory[1])
    assert (memory[0] == 7).all() and (memory[2] == 7).all()
    assert_product(memory[1], A, B)


def assert_spreads_nan_and_inf(multiply: Callable[..., torch.Tensor], A: torch.Tensor, B: torch.Tensor) -> None:
    """A NaN at the end of row 5 of A and an infinity at the start of row 77 of B spoil that row and column of C alone.

    They are in the last and in the first tile along K; A and B, of 128 rows at least, keep them.
    """
    A[5, -1], B[77, 0] = float("nan"), float("inf")
    C = multiply(A, B).cpu()
    touched = torch.zeros(C.shape, dtype=torch.bool)
    touched[5, :], touched[:, 77] = True, True
    assert C[5].isnan().all() and torch.equal(~C.isfinite(), touched)
