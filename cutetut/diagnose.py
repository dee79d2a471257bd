"""Run a kernel in the emulator on any machine, to see what is wrong with it.

On a GPU a broken kernel is undefined: it may give the right answer, a wrong one, or take the process down.
The cells of a chapter that break a kernel on purpose therefore run in the emulator everywhere, also where
all other cells run on a GPU, and print the same report.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from cutetut import backend


def diagnose(function: Callable[..., Any], *args: Any) -> None:
    """Compile a `@cute.jit` function, run it once in the emulator, and print the first fault or that there is none.

    args: what the function takes; torch tensors on the CPU are passed on as CuTe tensors, and may be half
    written afterwards. Prints the emulator's error: what happened, who did it, and where. Raises
    ValueError for a torch tensor elsewhere, and whatever compiling raises.
    """
    with _emulated():
        import cutlass.cute as cute

        from cutetut.emulator.errors import EmulatorError

        arguments = [_as_cute(arg, position) for position, arg in enumerate(args)]
        compiled = cute.compile(function, *arguments)
        try:
            compiled(*arguments)
        except EmulatorError as fault:
            print(f"{type(fault).__name__}: {fault}")
        else:
            print("the emulator found no fault: every access was allowed and every value read had been written")


@contextlib.contextmanager
def _emulated() -> Iterator[None]:
    """The emulator in place of the GPU, where it is not there already."""
    from cutetut.emulator import driver

    if driver.installed():
        yield
        return
    driver.install(backend.artifact_dir())
    try:
        yield
    finally:
        driver.uninstall()


def _as_cute(value: Any, position: int) -> Any:
    """A torch tensor as a CuTe tensor, aligned to 16 bytes if it is; anything else as it is."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    if value.device.type != "cpu":
        raise ValueError(
            f"argument {position} is a tensor on {value.device}: diagnose emulates the kernel in the memory of the "
            "CPU, so make its tensors there (device='cpu') or pass tensor.cpu()"
        )
    from cutlass.cute.runtime import from_dlpack

    return from_dlpack(value, assumed_align=16 if value.data_ptr() % 16 == 0 else value.element_size())
