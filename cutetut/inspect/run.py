"""Run a `@cute.jit` function in the emulator on any machine, with torch tensors for its CuTe tensors.

    with run.emulated():
        call = run.prepare(gemm, (A, B, C), run.apart)
        call()

A `Place` says where the memory of each tensor is while the kernel runs; what is diagnosed, counted or noted of the
kernel depends on that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cutetut import backend

Place = Callable[[Any, int], Any]  # a torch tensor and its position among the arguments -> the tensor that is used

GUARD = 1 << 26  # bytes of address space on either side of a tensor that belong to nobody
ALIGNMENT = 16  # bytes, the most that is declared to CuTe: what its widest copies need
OWN_ALIGNMENT = 512  # bytes: where a GPU's memory would place a tensor of its own


@contextlib.contextmanager
def emulated() -> Iterator[None]:
    """The emulator in place of the GPU, where it is not there already; its kernels reach any torch tensor here."""
    import cutlass  # noqa: F401  # with it comes this process's backend, the emulator perhaps

    from cutetut.emulator.host import driver, live

    if driver.installed():
        with live.host_memory_counts():
            yield
        return
    driver.install(backend.artifact_dir())
    try:
        yield
    finally:
        driver.uninstall()


@dataclass(frozen=True)
class Call:
    """A compiled function with its arguments; `tensors` are those used for the torch tensors, by position."""

    compiled: Any
    arguments: Sequence[Any]
    tensors: dict[int, Any]

    def __call__(self) -> None:
        """Run the function once; raises EmulatorError where its kernel does what is undefined."""
        from cutetut.emulator.host import driver

        self.compiled(*driver.runtime_arguments(self.compiled, self.arguments))


def prepare(function: Callable[..., Any], args: Sequence[Any], place: Place) -> Call:
    """Compile a `@cute.jit` function for these arguments, Constexpr ones included; to be called inside `emulated`.

    Each torch tensor becomes a CuTe tensor over place(tensor, position), with its shape and strides and an alignment of
    16 bytes or, where its address has less, of its elements. Raises what place, from_dlpack and compiling raise.
    """
    import cutlass.cute as cute
    import torch
    from cutlass.cute.runtime import from_dlpack

    tensors = {i: place(arg, i) for i, arg in enumerate(args) if isinstance(arg, torch.Tensor)}
    arguments = [
        from_dlpack(tensors[i], assumed_align=_alignment(tensors[i])) if i in tensors else arg
        for i, arg in enumerate(args)
    ]
    return Call(cute.compile(function, *arguments), arguments, tensors)


def in_place(tensor: Any, position: int) -> Any:
    """The tensor itself, which the kernel then writes to; of one on a GPU a copy."""
    return tensor.detach().cpu()


def as_placed(tensor: Any, position: int) -> Any:
    """A copy on the CPU, as far into its 512 bytes as the tensor is into its storage: sectors depend on that."""
    offset = tensor.storage_offset() * tensor.element_size()
    return _copy(tensor, around=OWN_ALIGNMENT, modulus=OWN_ALIGNMENT, offset=offset)


def apart(tensor: Any, position: int) -> Any:
    """A copy with the same alignment to 16 bytes, alone in the middle of untouched address space.

    Raises ValueError for a tensor elsewhere than on the CPU.
    """
    if tensor.device.type != "cpu":
        raise ValueError(
            f"argument {position} is a tensor on {tensor.device}: diagnose emulates the kernel in the memory of the "
            "CPU, so make its tensors there (device='cpu') or pass tensor.cpu()"
        )
    return _copy(tensor, around=GUARD, modulus=ALIGNMENT, offset=tensor.data_ptr())


def write_back(tensor: Any, copy: Any) -> None:
    """Copy the elements of a copy with the same strides into the tensor."""
    if any(stride == 0 and n > 1 for n, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        tensor, copy = _span(tensor), _span(copy)  # torch does not write where elements share an address
    tensor.copy_(copy)


def _copy(tensor: Any, around: int, modulus: int, offset: int) -> Any:
    """A copy on the CPU with the same strides, `around` bytes on either side, at an address of offset mod modulus."""
    import torch

    span = _span(tensor.detach())
    nbytes = span.numel() * span.element_size()
    space = np.zeros(2 * around + nbytes + modulus, np.uint8)  # mapped only where it is touched
    start = around + (offset - space.ctypes.data - around) % modulus
    memory = torch.from_numpy(space[start : start + nbytes]).view(tensor.dtype).copy_(span)
    return memory.as_strided(tensor.shape, tensor.stride())


def _span(tensor: Any) -> Any:
    """All elements from the tensor's first to its last, those in gaps between its rows included, in one dimension."""
    reach = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((reach + 1 if tensor.numel() else 0,), (1,))


def _alignment(tensor: Any) -> int:
    return ALIGNMENT if tensor.data_ptr() % ALIGNMENT == 0 else tensor.element_size()
