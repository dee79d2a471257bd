"""Which matrices the first GEMM kernels take: everything else is refused in one sentence before a kernel starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cutetut import backend

if TYPE_CHECKING:
    import torch

TILE = (128, 128, 8)  # bM, bN, bK of chapter 04
MOST = 2**31  # elements of a matrix; indices are 32-bit integers


def refuse_unsupported(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor, tile: tuple[int, int, int] = TILE) -> None:
    """Raise TypeError or ValueError, in one sentence, unless a kernel without predicates can compute C = A @ B.T.

    A (M, K), B (N, K) and C (M, N): float32, row-major without gaps, 16-byte aligned, where this session's kernels run,
    below 2**31 elements. tile: what M, N and K must be multiples of.
    """
    import torch

    device = backend.activate(announce=False).device
    for name, t in (("A", A), ("B", B), ("C", C)):
        if t.dtype != torch.float32:
            raise TypeError(f"{name} is {t.dtype}, and this kernel multiplies torch.float32 only")
        if t.device.type != device:
            raise ValueError(f"{name} is on {t.device}, and kernels run on {device}: use .to(cutetut.device)")
        if t.dim() != 2:
            raise ValueError(f"{name} has {t.dim()} dimensions, and must be a matrix")
        if not t.is_contiguous():
            raise ValueError(f"{name} has strides {t.stride()}, and must be row-major without gaps: use .contiguous()")
        if t.data_ptr() % 16:
            raise ValueError(f"{name} starts at an address that is not a multiple of 16 bytes: use .clone()")
        if t.numel() >= MOST:
            raise ValueError(f"{name} has {t.numel()} elements, and the kernel is checked below 2**31 only")
    (M, K), N = A.shape, B.shape[0]
    if B.shape[1] != K or C.shape != (M, N):
        shapes = f"A is {M}x{K}, B {N}x{B.shape[1]} and C {C.shape[0]}x{C.shape[1]}"
        raise ValueError(f"{shapes}: they must be MxK, NxK and MxN")
    bM, bN, bK = tile
    if not (M and N and K) or M % bM or N % bN or K % bK:
        raise ValueError(
            f"M={M}, N={N}, K={K} is not supported: "
            f"M must be a multiple of {bM}, N of {bN} and K of {bK}, none of them 0"
        )
