"""Attention in numpy's float64, and the problems that the tests of chapters 20 and 21 give their kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

Shape = tuple[int, int, int, int, int, int]  # batch, heads, heads of Q per head of K, queries, keys, D


def operands(
    rng: np.random.Generator, device: str, shape: Shape, dtype: torch.dtype = torch.bfloat16
) -> list[torch.Tensor]:
    """Q, K and V of random normal numbers, (B, length, heads, D) in memory as (B, heads, length, D)."""
    B, H, group, queries, keys, D = shape
    shapes = ((B, queries, H, D), (B, keys, H // group, D), (B, keys, H // group, D))
    return [torch.from_numpy(rng.standard_normal(s)).to(dtype).to(device).transpose(1, 2) for s in shapes]


def exact(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, causal: bool, diagonal: int, lengths: list[int] | None,
    scale: float,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """O and the log-sum-exp in float64; a row that sees no key has 0 and -inf."""
    q, k, v = (t.double().cpu().numpy() for t in (Q, K, V))
    k, v = (np.repeat(t, q.shape[1] // t.shape[1], axis=1) for t in (k, v))
    seen = np.ones((len(q), 1, q.shape[2], k.shape[2]), dtype=bool)
    if causal:
        seen &= np.tri(q.shape[2], k.shape[2], diagonal, dtype=bool)
    if lengths is not None:
        seen &= np.arange(k.shape[2]) < np.array(lengths)[:, None, None, None]
    scores = np.where(seen, scale * q @ k.swapaxes(2, 3), -np.inf)
    top = np.where(seen.any(3, keepdims=True), scores.max(3, keepdims=True), 0.0)
    weights = np.exp(scores - top)
    total = weights.sum(3, keepdims=True)
    with np.errstate(divide="ignore"):
        LSE = (top + np.log(total))[..., 0]
    return weights / np.where(total == 0, 1.0, total) @ v, LSE


def agrees(
    prepare: Any, rng: np.random.Generator, device: str, shape: Shape, dtype: torch.dtype = torch.bfloat16,
    causal: bool = False, align: str = "top-left", lengths: list[int] | None = None, scale: float | None = None,
    **given: Any,
) -> None:  # fmt: skip
    """Two launches by few CTAs, so that each takes several tiles; O starts as NaN, so that a row left out is seen."""
    Q, K, V = operands(rng, device, shape, dtype)
    out, LSE = torch.full_like(Q, torch.nan), torch.full(Q.shape[:3], torch.nan, device=device)
    numbers = None if lengths is None else torch.tensor(lengths, dtype=torch.int32, device=device)
    launch = prepare(Q, K, V, out, LSE, causal=causal, align=align, lengths=numbers, scale=scale, sms=3, **given)
    launch()
    launch()  # the counter of tiles is back at 0
    diagonal = K.shape[2] - Q.shape[2] if align == "bottom-right" else 0
    wanted, wanted_LSE = exact(Q, K, V, causal, diagonal, lengths, scale or 1 / math.sqrt(Q.shape[3]))
    ulp = {torch.bfloat16: 2**-8, torch.float16: 2**-10}[dtype]
    assert (np.abs(out.double().cpu().numpy() - wanted) <= ulp + ulp * np.abs(wanted)).all()  # NaN fails
    found = LSE.double().cpu().numpy()
    same = found == wanted_LSE
    with np.errstate(invalid="ignore"):
        assert (same | (np.abs(found - wanted_LSE) <= 2e-5)).all()
