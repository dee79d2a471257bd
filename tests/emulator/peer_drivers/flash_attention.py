"""flash-attention's CuTe kernels against torch: `flash_attention.py S_Q S_K HEADS D [causal] [backward]`."""

from __future__ import annotations

import sys

import torch
from flash_attn.cute.interface import flash_attn_func


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Attention in the tensors' own precision; (batch, rows, heads, d)."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if causal:
        rows, columns = scores.shape[-2:]
        hidden = torch.ones(rows, columns, dtype=torch.bool).triu(columns - rows + 1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2)


def main(sizes: list[int], words: list[str]) -> None:
    """Compare the result, and with `backward` the gradients of q, k and v."""
    rows, columns, heads, d = sizes
    causal, backward = "causal" in words, "backward" in words
    torch.manual_seed(0)
    shapes = (rows, columns, columns)
    inputs = [torch.randn(1, s, heads, d, dtype=torch.bfloat16).cuda().requires_grad_(backward) for s in shapes]
    out = flash_attn_func(*inputs, causal=causal)
    out = out[0] if isinstance(out, tuple) else out
    exact = [t.detach().cpu().double().requires_grad_(backward) for t in inputs]
    want = reference(exact[0], exact[1], exact[2], causal)
    pairs = [(out, want)]
    if backward:
        gradient = torch.randn(out.shape, dtype=torch.bfloat16)
        out.backward(gradient.cuda())
        want.backward(gradient.double())
        pairs += [(got.grad, ref.grad) for got, ref in zip(inputs, exact, strict=True) if ref.grad is not None]
    torch.cuda.synchronize()
    for got, ref in pairs:
        assert got is not None
        torch.testing.assert_close(got.detach().cpu().double(), ref.detach(), atol=3e-2, rtol=3e-2)
    print("PASS")


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:5]], sys.argv[5:])
