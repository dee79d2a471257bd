"""GEMM, softmax and attention in float64: the right answers, written to be read.

Each function takes torch tensors or numpy arrays of any real dtype, computes in float64, and returns what it
was given: a torch tensor on the same device if any input is one, otherwise a numpy array.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any


def _in_float64(function: Callable[..., Any]) -> Callable[..., Any]:
    """Hand `function` its positional arguments as float64 torch tensors, and convert its result back."""

    @functools.wraps(function)
    def wrapped(*arrays: Any, **options: Any) -> Any:
        import torch

        result = function(*(torch.as_tensor(x).to(torch.float64) for x in arrays), **options)
        return result if any(isinstance(x, torch.Tensor) for x in arrays) else result.numpy()

    return wrapped


@_in_float64
def gemm(A: Any, B: Any) -> Any:
    """C[m, n] = sum over k of A[m, k] * B[n, k], with A (M, K) and B (N, K): both are K-major rows, as in BLAS TN."""
    return A @ B.T


@_in_float64
def softmax(x: Any, *, axis: int = -1) -> Any:
    """exp(x) / sum(exp(x)) along `axis`; subtracting the maximum first changes nothing but avoids overflow."""
    weights = (x - x.amax(axis, keepdim=True)).exp()
    return weights / weights.sum(axis, keepdim=True)


@_in_float64
def attention(Q: Any, K: Any, V: Any, *, causal: bool = False, scale: float | None = None) -> Any:
    """softmax(scale * Q K^T) V, with Q (..., S, D), K (..., T, D), V (..., T, E); the result is (..., S, E).

    scale is 1/sqrt(D) unless given. With causal=True query i sees keys up to i + T - S, so that the last
    query sees every key; needs S <= T, else the first rows would have nothing to attend to (ValueError).
    """
    import torch

    S, T, D = Q.shape[-2], K.shape[-2], Q.shape[-1]
    scores = (1 / math.sqrt(D) if scale is None else scale) * (Q @ K.mT)
    if causal:
        if S > T:
            raise ValueError(f"causal attention needs at least as many keys as queries, got {S} queries, {T} keys")
        visible = torch.ones(S, T, dtype=torch.bool, device=Q.device).tril(diagonal=T - S)
        scores = scores.masked_fill(~visible, -math.inf)
    return softmax(scores) @ V
