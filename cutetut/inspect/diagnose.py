"""Run a kernel in the emulator on any machine, to see what is wrong with it.

On a GPU a broken kernel is undefined: it may give the right answer, a wrong one, or take the process down.
The cells of a chapter that break a kernel on purpose therefore run in the emulator everywhere, also where
all other cells run on a GPU, and print the same report.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cutetut import backend

NO_FAULT = "the emulator found no fault: every access was allowed and every value read had been written"
GUARD = 1 << 26  # bytes of address space on either side of each tensor that belong to nobody


def diagnose(function: Callable[..., Any], *args: Any) -> None:
    """Compile a `@cute.jit` function, run it once in the emulator, and print the first fault or that there is none.

    args: what the function takes. Torch tensors on the CPU become CuTe tensors over copies that lie far
    apart, so that running past the end of one cannot end up in the next by chance; without a fault the
    copies are copied back. Tensors that share memory are copied apart. Prints the emulator's error: what
    happened, who did it, and where. Raises ValueError for a torch tensor elsewhere than on the CPU, and
    whatever compiling raises.
    """
    import torch

    with emulated():
        import cutlass.cute as cute
        from cutlass.cute.runtime import from_dlpack

        from cutetut.emulator.errors import EmulatorError, InternalError
        from cutetut.emulator.host import driver

        tensors = {i: _apart(arg, i) for i, arg in enumerate(args) if isinstance(arg, torch.Tensor)}
        arguments = [
            from_dlpack(tensors[i], assumed_align=_alignment(tensors[i])) if i in tensors else arg
            for i, arg in enumerate(args)
        ]
        compiled = cute.compile(function, *arguments)
        try:
            compiled(*driver.runtime_arguments(compiled, arguments))
        except InternalError:
            raise
        except EmulatorError as fault:
            print(f"{type(fault).__name__}: {fault}")
            return
    print(NO_FAULT)
    for i, copy in tensors.items():
        args[i].copy_(copy)


@contextlib.contextmanager
def emulated() -> Iterator[None]:
    """The emulator in place of the GPU, where it is not there already."""
    from cutetut.emulator.host import driver

    if driver.installed():
        yield
        return
    driver.install(backend.artifact_dir())
    try:
        yield
    finally:
        driver.uninstall()


def _apart(tensor: Any, position: int) -> Any:
    """A copy with the same shape, strides and alignment, alone in the middle of untouched address space."""
    import torch

    if tensor.device.type != "cpu":
        raise ValueError(
            f"argument {position} is a tensor on {tensor.device}: diagnose emulates the kernel in the memory of the "
            "CPU, so make its tensors there (device='cpu') or pass tensor.cpu()"
        )
    reach = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    nbytes = (reach + 1) * tensor.element_size() if tensor.numel() else 0
    space = np.zeros(2 * GUARD + nbytes + 16, dtype=np.uint8)  # mapped only where it is touched
    start = GUARD + (tensor.data_ptr() - space.ctypes.data - GUARD) % 16
    memory = torch.from_numpy(space[start : start + nbytes]).view(tensor.dtype)
    return memory.as_strided(tensor.shape, tensor.stride()).copy_(tensor)


def _alignment(tensor: Any) -> int:
    return 16 if tensor.data_ptr() % 16 == 0 else tensor.element_size()
