"""quack's GEMM on small integers, exactly: `quack_gemm.py M N K TILE_M TILE_N CLUSTER_M CLUSTER_N [OPTION ...]`.

Options: pingpong, dynamic, addend (D = A B^T + C), split=PARTS, and staged: the parts are added up by a second kernel.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from quack.gemm import gemm


def integers(*shape: int) -> torch.Tensor:
    return torch.randint(-3, 4, (1, *shape), device="cuda").to(torch.bfloat16)


def keywords(words: list[str]) -> dict[str, Any]:
    """quack's names for the options."""
    parts = [int(word.partition("=")[2]) for word in words if word.startswith("split=")]
    found: dict[str, Any] = {"split_k": parts[0]} if parts else {}
    if "staged" in words:
        found["split_k_mode"] = 1
    if "pingpong" in words:
        found["pingpong"] = True
    if "dynamic" in words:
        found["is_dynamic_persistent"] = True
    return found


def main(sizes: list[int], words: list[str]) -> None:
    """Compare D, float32, with the same sums in float64."""
    m, n, k, *tile_and_cluster = sizes
    torch.manual_seed(0)
    a, b = integers(m, k), integers(n, k)
    c = integers(m, n) if "addend" in words else None
    d = torch.zeros(1, m, n, device="cuda")
    counter = torch.zeros(1, dtype=torch.int32, device="cuda") if "dynamic" in words else None
    gemm(a, b, d, c, counter, *tile_and_cluster, **keywords(words))
    torch.cuda.synchronize()
    want = a.cpu().double() @ b.cpu().double().mT
    if c is not None:
        want += c.cpu().double()
    assert torch.equal(d.cpu().double(), want), (d.cpu().double() - want).abs().max()
    print("PASS")


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:8]], sys.argv[8:])
