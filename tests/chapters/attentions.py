"""Attention for the tests of chapters 17 to 21: operands, which query sees which key, and O and LSE in float64."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import torch

from cutetut.measure import mistakes
from tests.chapters.products import HALF_ULP


def operands(
    device: str, B: int, H: int, group: int, Sq: int, Sk: int, D: int, dtype: torch.dtype, seed: int = 0
) -> list[torch.Tensor]:
    """Q, K and V of random normal numbers, (B, length, heads, D) in memory as (B, heads, length, D)."""
    rng = torch.Generator().manual_seed(seed + Sq + Sk + D)
    shapes = ((B, Sq, H, D), (B, Sk, H // group, D), (B, Sk, H // group, D))
    return [torch.randn(*shape, generator=rng).to(dtype).to(device).transpose(1, 2) for shape in shapes]


Window = tuple[int | None, int | None]  # how many keys a query sees before its own, and behind; None: all


def visible(
    Q: torch.Tensor, K: torch.Tensor, causal: bool, diagonal: int, lengths: list[int] | None,
    window: Window = (None, None),
) -> torch.Tensor:  # fmt: skip
    """(B, 1, Sq, Sk) bool: which query sees which key. Query i's own is i + diagonal."""
    seen = torch.ones(len(Q), 1, Q.shape[2], K.shape[2], dtype=torch.bool)
    left, right = (window[0], 0) if causal else window
    if left is not None:
        seen = seen.triu(diagonal - left)
    if right is not None:
        seen = seen.tril(diagonal + right)
    if lengths is not None:
        seen &= torch.arange(K.shape[2]) < torch.tensor(lengths)[:, None, None, None]
    return seen


def assert_attention(
    out: torch.Tensor, LSE: torch.Tensor, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, seen: torch.Tensor,
    scale: float,
) -> None:  # fmt: skip
    """O and LSE against float64, within what rounding P and O once each can do."""
    half_ulp = HALF_ULP[Q.dtype]
    Q, K, V = (t.cpu().double() for t in (Q, K, V))
    K, V = (t.repeat_interleave(Q.shape[1] // K.shape[1], dim=1) for t in (K, V))
    scores = (scale * Q @ K.mT).masked_fill(~seen, -math.inf)
    weights = torch.where(seen.any(3, keepdim=True), scores.softmax(3), 0.0)
    expected, sizes = weights @ V, weights @ V.abs()
    bound = (1.01 * half_ulp + 2e-5) * sizes + half_ulp * expected.abs() + 1e-7
    assert ((out.cpu().double() - expected).abs() <= bound).all()  # NaN fails
    wanted = scores.logsumexp(3)
    assert torch.where(wanted == LSE.cpu(), True, (LSE.cpu() - wanted).abs() <= 2e-5).all()


def problem(rng: np.random.Generator, device: str, heads: int, S: int, T: int, D: int) -> list[torch.Tensor]:
    """Q (heads, S, D), K and V (heads, T, D) of random normal numbers in bfloat16."""
    shapes = ((heads, S, D), (heads, T, D), (heads, T, D))
    return [torch.from_numpy(rng.standard_normal(shape)).bfloat16().to(device) for shape in shapes]


def exact(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, scale: float) -> np.ndarray:
    """softmax(scale * Q K^T) V in float64, by numpy."""
    q, k, v = (t.double().cpu().numpy() for t in (Q, K, V))
    scores = scale * q @ k.transpose(0, 2, 1)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return weights / weights.sum(axis=2, keepdims=True) @ v


def wrong(out: torch.Tensor, expected: np.ndarray, atol: float = 1e-3) -> int:
    """How many elements are farther off than atol and a rounding to bfloat16."""
    return int((~(np.abs(out.double().cpu().numpy() - expected) <= atol + 2**-8 * np.abs(expected))).sum())


def agrees(
    prepare: Any, device: str, shape: tuple[int, int, int, int, int, int], dtype: torch.dtype = torch.bfloat16,
    causal: bool = False, align: str = "top-left", lengths: list[int] | None = None, scale: float | None = None,
    window: Window = (None, None), beyond: float | None = None, laid_out: Any = None, **given: Any,
) -> None:  # fmt: skip
    """Two launches by three CTAs, so that each takes several tiles; O and LSE start as NaN, so a row left out is seen.

    prepare: as in chapters 20 and 21; the former has no windows. shape: batch, heads, heads of Q per head of K,
    queries, keys, D. beyond: what K and V hold beyond the lengths. laid_out(V): the same numbers in other memory.
    """
    Q, K, V = operands(device, *shape, dtype)
    known, values = K, V  # what float64 gets
    if beyond is not None:
        K, V = K.clone(), V.clone()
        for b, length in enumerate(lengths or ()):
            K[b, :, length:] = V[b, :, length:] = beyond
    V = laid_out(V) if laid_out else V
    out, LSE = torch.full_like(Q, torch.nan), torch.full(Q.shape[:3], torch.nan, device=device)
    numbers = None if lengths is None else torch.tensor(lengths, dtype=torch.int32, device=device)
    if window != (None, None):
        given["window"] = window
    launch = prepare(Q, K, V, out, LSE, causal=causal, align=align, lengths=numbers, scale=scale, sms=3, **given)
    launch()
    launch()  # the counter of tiles is back at 0
    diagonal = K.shape[2] - Q.shape[2] if align == "bottom-right" else 0
    seen = visible(Q, K, causal, diagonal, lengths, window)
    assert_attention(out, LSE, Q, known, values, seen, scale or 1 / math.sqrt(Q.shape[3]))


def packed_agree(
    prepare: Any, device: str, queries: list[int], keys: list[int], shape: tuple[int, int, int],
    window: Window = (None, None), align: str = "top-left", spoiled: int | None = None, value: float = math.nan,
) -> None:  # fmt: skip
    """`agrees` for sequences one behind another. What lies behind the last is NaN, in Q, K and V, and stays as it was.

    shape: heads, heads of Q per head of K, D. spoiled: the number of a sequence whose K and V are all `value`, which
    may not show in the others.
    """
    H, group, D = shape
    (q_ends, k_ends) = ends = [[0, *itertools.accumulate(lengths)] for lengths in (queries, keys)]
    Q, K, V = operands(device, 1, H, group, q_ends[-1] + 5, k_ends[-1] + 70, D, torch.bfloat16)
    Q[:, :, q_ends[-1] :] = K[:, :, k_ends[-1] :] = V[:, :, k_ends[-1] :] = torch.nan
    if spoiled is not None:
        for t in (K, V):
            t[:, :, k_ends[spoiled] : k_ends[spoiled + 1]] = value
    out, LSE = torch.full_like(Q, 7.0), torch.full(Q.shape[:3], 7.0, device=device)
    launch = prepare(Q, K, V, out, LSE, window=window, align=align, cu_seqlens=ends, sms=3)
    launch()
    launch()
    assert (out[:, :, q_ends[-1] :] == 7).all() and (LSE[:, :, q_ends[-1] :] == 7).all()
    spans = [[slice(*pair) for pair in itertools.pairwise(each)] for each in ends]
    for number, (q, k) in enumerate(zip(*spans, strict=True)):
        if number != spoiled:
            own, known, values = Q[:, :, q], K[:, :, k], V[:, :, k]
            diagonal = keys[number] - queries[number] if align == "bottom-right" else 0
            seen = visible(own, known, False, diagonal, None, window)
            assert_attention(out[:, :, q], LSE[:, :, q], own, known, values, seen, D**-0.5)


def assert_named(said: str, named: str, out: torch.Tensor, expected: torch.Tensor) -> None:
    """The emulator names a mistake; where `named` is empty, it finds no fault, and O is right."""
    if named:
        assert said.startswith(named), said
    else:
        assert mistakes.faultless(said) and (out.double() - expected).abs().max() < 2e-2  # NaN fails
