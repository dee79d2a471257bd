"""A kernel that writes past the end of its tensor, called from a function."""

import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def fill_kernel(x: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    x[i] = 1.0  # no predicate


@cute.jit
def fill(x: cute.Tensor):
    fill_kernel(x).launch(grid=(1, 1, 1), block=(64, 1, 1))


def main() -> None:
    x = torch.zeros(40, device="cuda")
    fill(from_dlpack(x).mark_layout_dynamic())


if __name__ == "__main__":
    main()
