"""Everything that can go wrong while a kernel is emulated, as typed errors.

Each error says what happened, then where: kernel, CTA, warp, lane, the PTX line and the Python
line that CuTe DSL compiled it from, and finally what to look at. The unit that detects a fault
raises it with the threads concerned; the scheduler, which alone knows what was running, adds the rest.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


class Operation(Protocol):
    """An asynchronous operation, as far as an error must know it: what issued it."""

    inst: Any  # ptx.syntax.Instruction: reading PTX raises errors, so they cannot know it
    thread: int


class EmulatorError(Exception):
    """A kernel did what the hardware does not allow or does not define."""

    hint = ""

    def __init__(self, what: str, *, threads: np.ndarray | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.threads = threads  # machine-wide thread numbers, filled in by the unit that raises
        if hint is not None:
            self.hint = hint
        self.place: Place | None = None
        self.inst: Any = None  # the Instruction that the place describes
        self.operation: Operation | None = None  # the asynchronous operation in whose completion it happened
        self.notes: list[str] = []

    def __str__(self) -> str:
        lines = [self.what]
        if self.place is not None:
            lines.append(self.place.describe())
        lines += self.notes
        if self.hint:
            lines.append(f"Look at: {self.hint}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Place:
    """Where in a launch a fault happened."""

    kernel: str
    cta: tuple[int, int, int] | None
    warp: int | None
    lane: int | None
    thread: tuple[int, int, int] | None
    ptx_line: int | None
    ptx_text: str
    source: str  # "file.py:12" or "notebook cell 5, line 3", empty without line information
    source_text: str

    def describe(self) -> str:
        who = f"  kernel {self.kernel}"
        if self.cta is not None:
            who += f", CTA {self.cta}"
        if self.warp is not None:
            who += f", warp {self.warp}"
        if self.lane is not None:
            who += f", lane {self.lane} (thread {self.thread})"
        lines = [who]
        if self.source:
            lines.append(source_lines(self.source, self.source_text))
        if self.ptx_line is not None:
            lines.append(ptx_line(self.ptx_line, self.ptx_text))
        return "\n".join(lines)


def source_lines(source: str, text: str) -> str:
    """Lines of an error that show a statement of Python behind its place, the later ones below the first."""
    first, *more = text.strip().splitlines() or [""]
    start = f"  {source}:  " if first else f"  {source}"
    return "\n".join([start + first, *(" " * len(start) + line for line in more)])


def ptx_line(number: int, text: str) -> str:
    """A line of an error that shows an instruction; of a long list of registers the first and the last."""
    return f"  PTX line {number}:  " + _LIST.sub(_ends, text.strip())


_LIST = re.compile(r"\{([^{}]*)\}")
_LONGEST_LIST = 8


def _ends(found: re.Match[str]) -> str:
    registers = [name.strip() for name in found[1].split(",")]
    if len(registers) <= _LONGEST_LIST:
        return found[0]
    return f"{{{registers[0]}, ..., {registers[-1]}}}"


class PtxSyntaxError(EmulatorError):
    """The PTX text does not parse."""


class UnknownInstruction(EmulatorError):
    """The emulator has no operation for an instruction or one of its modifiers."""

    hint = "the book's page 'The emulator' lists every instruction that is emulated"


class LaunchError(EmulatorError):
    """The launch itself is impossible: grid, block, cluster or shared memory out of range."""


class OutOfBounds(EmulatorError):
    """An address lies outside every tensor, shared memory or the thread's stack."""

    hint = "the tile's coordinates against the tensor's shape; a ragged edge needs a predicate"


class Misaligned(EmulatorError):
    """An address is not a multiple of the access size."""

    hint = "the alignment promised to from_dlpack(assumed_align=...) and the vector width of the copy"


class Uninitialized(EmulatorError):
    """A register or a byte of shared memory is read before anything wrote it."""

    hint = "a missing fill(), a copy that was predicated off, or a missing barrier between writer and reader"


class IllegalInstruction(EmulatorError):
    """An instruction was executed with operands that the ISA forbids."""


class DivergentBarrier(EmulatorError):
    """Part of a warp executed a warp-wide instruction, or part of a CTA's warps a barrier of the whole CTA."""

    hint = "a barrier or shuffle inside an if that only some threads of a warp take"


class Deadlock(EmulatorError):
    """Threads still wait and nothing can wake them."""


class BudgetExceeded(EmulatorError):
    """A warp executed more instructions than the budget allows."""


class Trap(EmulatorError):
    """The kernel executed trap or failed a device-side assertion."""


class AsyncMismatch(EmulatorError):
    """Two sides of an asynchronous operation disagree: bytes brought and bytes expected, or swizzles."""


class InFlight(EmulatorError):
    """Memory or registers of an asynchronous operation are touched before it has completed."""

    hint = "the wait that has to come between the two: an mbarrier phase, wgmma.wait_group, cp.async.wait_group"


class MissingFence(EmulatorError):
    """The async proxy would read shared memory that ordinary stores wrote without a proxy fence."""

    hint = "fence.proxy.async in the writing threads, then a barrier, then the TMA store or WGMMA"


class MissingBarrier(EmulatorError):
    """Threads use the same memory one after the other, and nothing makes the second wait for the first."""

    hint = "a barrier that both sides pass between the two uses"


class InternalError(EmulatorError):
    """The emulator itself failed, whatever the kernel does; the Python error it failed with is the cause."""

    def __init__(self, doing: str, cause: Exception) -> None:
        super().__init__(f"the emulator itself failed while {doing}: {type(cause).__name__}: {cause}")

    def __str__(self) -> str:
        return (
            f"{super().__str__()}\nThis is a mistake in the emulator, not in the kernel. Please report it with this "
            "whole message, the command, and the kernel's PTX file (CUTE_DSL_DUMP_DIR=FOLDER keeps it there)"
        )


@contextlib.contextmanager
def own_failures(doing: str, locate: Callable[[InternalError], None] | None = None) -> Iterator[None]:
    """Errors that are none of the kernel's become an InternalError.

    What says nothing about the emulator passes: no memory left, a closed pipe, a warning that was made an error.
    """
    try:
        yield
    except (EmulatorError, MemoryError, OSError, Warning):
        raise
    except Exception as cause:
        failure = InternalError(doing, cause)
        if locate is not None:
            locate(failure)
        raise failure from cause


class EmulatorWarning(UserWarning):
    """The kernel gives the right result and does not do what its author meant."""
