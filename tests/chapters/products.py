"""Matrices and their products in float64: what the chapters' kernels are held against."""

from __future__ import annotations

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
