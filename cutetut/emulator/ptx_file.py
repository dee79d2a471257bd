"""A PTX file by itself: read it and launch its kernels on numpy arrays; neither torch nor CuTe DSL is needed.

    saxpy = PTX.read("saxpy.ptx")
    x, y = np.ones(1000, np.float32), np.zeros(1000, np.float32)
    saxpy.launch("saxpy", x, y, np.float32(2), np.int32(1000), grid=(4, 1, 1), block=(256, 1, 1))
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import ptx
from .errors import LaunchError
from .launch import LaunchReport, launch
from .machine.machine import Dim
from .machine.memory import GlobalMemory
from .ptx.syntax import BYTES, Function, Module, Variable

Argument = np.ndarray | np.generic | bytes


@dataclass(frozen=True)
class Run:
    """A launch that ended: what the kernel printed, and what the emulator counted."""

    printed: str
    report: LaunchReport


class PTX:
    """The kernels of a PTX text for sm_90a.

    text: a whole module, with `.version` and `.target`; name is what errors call it.
    Raises PtxSyntaxError, with the line, for text that is not PTX.
    """

    def __init__(self, text: str, name: str = "the PTX text") -> None:
        self.name = name
        self.module: Module = ptx.parse(text)

    @classmethod
    def read(cls, path: str | Path) -> PTX:
        """The kernels of a file; raises OSError where it cannot be read, and PtxSyntaxError."""
        return cls(Path(path).read_text(), str(path))

    @property
    def kernels(self) -> dict[str, tuple[str, ...]]:
        """The parameters of each kernel, such as ".param .b64 x" (a struct: ".param .b8 map[128]")."""
        return {name: tuple(map(_declared, kernel.params)) for name, kernel in self.module.kernels.items()}

    def launch(
        self, kernel: str, *arguments: Argument, grid: Dim, block: Dim, cluster: Dim = (1, 1, 1), dynamic_smem: int = 0,
        budget: int | None = None,
    ) -> Run:  # fmt: skip
        """Run one kernel to its end.

        arguments: one for each parameter, in order.  An array, C-contiguous, is passed by address and may be written
        if it is writable; a numpy scalar such as `np.int32(5)`, or bytes, is passed by value and must have the
        parameter's size.  grid, block, cluster: (x, y, z), of CTAs, threads and CTAs; dynamic_smem: bytes;
        budget: steps that a wave of CTAs may take (by default CUTETUT_BUDGET, or 20 million).
        Raises LaunchError for what does not fit the kernel, and what `cutetut.emulator.errors` lists for its mistakes.
        """
        found = self._kernel(kernel)
        if len(arguments) != len(found.params):
            declared = ", ".join(map(_declared, found.params)) or "none"
            raise LaunchError(f"{kernel} has {len(found.params)} parameters ({declared}), not {len(arguments)}")
        memory, out = GlobalMemory(), io.StringIO()
        params = [_passed(argument, param, memory) for argument, param in zip(arguments, found.params, strict=True)]
        report = launch(
            self.module, kernel, grid=grid, block=block, cluster=cluster, dynamic_smem=dynamic_smem, params=params,
            memory=memory, out=out, budget=budget,
        )  # fmt: skip
        return Run(out.getvalue(), report)

    def _kernel(self, name: str) -> Function:
        try:
            return self.module.kernels[name]
        except KeyError:
            has = ", ".join(self.module.kernels) or "no kernel"
            raise LaunchError(f"{self.name} has no kernel {name!r}; it has {has}") from None


def _declared(param: Variable) -> str:
    """A parameter as PTX declares it."""
    count = param.nbytes // BYTES[param.type]
    return f".param .{param.type} {param.name}" + (f"[{count}]" if count > 1 else "")


def _passed(argument: Argument, param: Variable, memory: GlobalMemory) -> bytes:
    """The bytes of one parameter; an array's memory becomes memory that the kernel may touch."""
    if isinstance(argument, np.ndarray):
        if not argument.flags.c_contiguous:
            raise LaunchError(f"{param.name}: an array must be C-contiguous; pass np.ascontiguousarray(array)")
        address = int(argument.ctypes.data)
        if argument.nbytes:
            memory.add(address, argument.nbytes, param.name, argument.flags.writeable)
        value = address.to_bytes(8, "little")
    elif isinstance(argument, np.generic):
        value = argument.tobytes()
    elif isinstance(argument, bytes):
        value = argument
    else:
        raise LaunchError(
            f"{param.name}: {type(argument).__name__} has no size of its own; pass an array, bytes or a numpy scalar "
            "such as np.int32(5)"
        )
    if len(value) != param.nbytes:
        raise LaunchError(f"{param.name} ({_declared(param)}) has {param.nbytes} bytes, the argument {len(value)}")
    return value
