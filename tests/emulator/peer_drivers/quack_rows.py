"""quack's kernels that reduce rows, against torch on the CPU: `quack_rows.py KERNEL ROWS COLUMNS [CLUSTER]`."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from quack.cross_entropy import CrossEntropy, cross_entropy_fwd
from quack.rmsnorm import RMSNorm, layernorm_fwd, rmsnorm_fwd
from quack.softmax import Softmax, softmax_fwd

Outcome = tuple[torch.Tensor, torch.Tensor]  # what the kernel gave, and what it must give


def softmax(x: torch.Tensor) -> Outcome:
    return softmax_fwd(x), x.double().softmax(-1)


def cross_entropy(x: torch.Tensor) -> Outcome:
    target = torch.arange(len(x)) * 7 % x.shape[1]
    want = torch.nn.functional.cross_entropy(x.cpu().double(), target, reduction="none")
    return cross_entropy_fwd(x, target.to(x.device)), want


def cross_entropy_in_place(x: torch.Tensor) -> Outcome:
    """The gradient, written over x; the target is in the last column, which another CTA of a cluster writes."""
    target = torch.full((len(x),), x.shape[1] - 1)
    want = x.cpu().double().softmax(-1)
    want[:, -1] -= 1
    return cross_entropy_fwd(x, target.to(x.device), return_dx=True, inplace_backward=True)[1], want


def rmsnorm(x: torch.Tensor) -> Outcome:
    weight = torch.linspace(0.5, 2, x.shape[1], device=x.device)
    scale = (x.double().square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    result = rmsnorm_fwd(x, weight)
    return result[0] if isinstance(result, tuple) else result, x.double() * scale * weight


def layernorm(x: torch.Tensor) -> Outcome:
    weight = torch.linspace(0.5, 2, x.shape[1], device=x.device)
    want = torch.nn.functional.layer_norm(x.double(), x.shape[1:], weight.double(), eps=1e-6)
    return layernorm_fwd(x, weight), want


KERNELS: dict[str, tuple[type, Callable[[torch.Tensor], Outcome]]] = {
    "softmax": (Softmax, softmax),
    "cross_entropy": (CrossEntropy, cross_entropy),
    "cross_entropy_in_place": (CrossEntropy, cross_entropy_in_place),
    "rmsnorm": (RMSNorm, rmsnorm),
    "layernorm": (RMSNorm, layernorm),
}


def main(name: str, rows: int, columns: int, cluster: int = 1) -> None:
    """Run a kernel on bfloat16 rows; a cluster shares each row where it has more than one CTA."""
    kernel, check = KERNELS[name]
    if cluster > 1:
        kernel._set_cluster_n = lambda self: setattr(self, "cluster_n", cluster)  # type: ignore[attr-defined]
    torch.manual_seed(0)
    got, want = check(torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16))
    torch.cuda.synchronize()
    torch.testing.assert_close(got.cpu().double(), want.cpu().double(), atol=2e-2, rtol=2e-2)
    print("PASS")


if __name__ == "__main__":
    main(sys.argv[1], *(int(word) for word in sys.argv[2:]))
