"""Everything that can go wrong while a kernel is emulated, as typed errors.

Each error says what happened, then where: kernel, CTA, warp, lane, the PTX line and the Python
line that CuTe DSL compiled it from, and finally what to look at. The unit that detects a fault
raises it with the threads concerned; the scheduler, which alone knows what was running, adds the rest.
The same as data is `error.report` (findings.py).
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from . import findings
from .findings import Location, Report, Side


class Operation(Protocol):
    """An asynchronous operation, as far as an error must know it: what issued it."""

    inst: Any  # ptx.syntax.Instruction: reading PTX raises errors, so they cannot know it
    thread: int


class EmulatorError(Exception):
    """A kernel did what the hardware does not allow or does not define."""

    hint = ""
    kind = "other"  # one of findings.KINDS

    def __init__(
        self, what: str, *, threads: np.ndarray | None = None, hint: str | None = None, kind: str | None = None,
        locations: tuple[Location, ...] = (),
    ) -> None:  # fmt: skip
        super().__init__(what)
        self.what = what
        self.threads = threads  # machine-wide thread numbers, filled in by the unit that raises
        if hint is not None:
            self.hint = hint
        if kind is not None:
            self.kind = kind
        self.locations = locations  # the memory or the barriers that it is about
        self.place: Place | None = None
        self.inst: Any = None  # the Instruction that the place describes
        self.operation: Operation | None = None  # the asynchronous operation in whose completion it happened
        self.notes: list[str] = []
        self.lanes: tuple[int, ...] = ()  # of the place's warp, those that do it
        self.others: list[tuple[Place, str]] = []  # the other program points that notes describe, and what they say
        self.sides: list[Side] = []  # and those that only the main text names: who waits, who is missing
        self.published = False

    def add(self, place: Place, what: str) -> None:
        """Add another program point: what happened there, and the lines."""
        self.notes.append(f"  {what}:\n{place.describe()}")
        self.others.append((place, what))

    @property
    def report(self) -> Report:
        """The same as data."""
        space = self.locations[0].space if self.locations else ""
        sides = [place.side(space, note) for place, note in self.others]
        if self.place is not None and self.place.ptx_line is not None:
            sides.insert(0, self.place.side(space, self.what, self.lanes))
        kernel = self.place.kernel if self.place is not None else ""
        return Report(
            self.kind, "error", type(self).__name__, kernel, self.what, self.hint, str(self),
            (*sides, *self.sides), self.locations,
        )  # fmt: skip

    def publish(self) -> None:
        """Pass the report on to everyone who collects findings, once: the error is about to reach the program."""
        if not self.published:
            self.published = True
            findings.publish(self.report)

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
    opcode: str = ""
    file: str = ""
    line: int | None = None

    def side(self, space: str = "", note: str = "", lanes: tuple[int, ...] = (), role: str = "") -> Side:
        """The same as data, as one side of something about this space (findings.py)."""
        if not lanes and self.lane is not None:
            lanes = (self.lane,)
        return Side(
            role or findings.role_of(self.opcode, space), note, self.kernel, self.cta,
            () if self.warp is None else (self.warp,), lanes, findings.operation_of(self.opcode), "",
            self.ptx_line, self.ptx_text.strip(), self.file, self.line, self.source, self.source_text,
        )  # fmt: skip

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

    kind = "ptx-syntax"


class UnknownInstruction(EmulatorError):
    """The emulator has no operation for an instruction or one of its modifiers."""

    kind = "unknown-instruction"
    hint = "the book's page 'The emulator' lists every instruction that is emulated"


class LaunchError(EmulatorError):
    """The launch itself is impossible: grid, block, cluster or shared memory out of range."""

    kind = "bad-launch"


class OutOfBounds(EmulatorError):
    """An address lies outside every tensor, shared memory or the thread's stack."""

    kind = "out-of-bounds"
    hint = "the tile's coordinates against the tensor's shape; a ragged edge needs a predicate"


class Misaligned(EmulatorError):
    """An address is not a multiple of the access size."""

    kind = "misaligned"
    hint = "the alignment promised to from_dlpack(assumed_align=...) and the vector width of the copy"


class Uninitialized(EmulatorError):
    """A register or a byte of shared memory is read before anything wrote it."""

    kind = "uninitialized"
    hint = "a missing fill(), a copy that was predicated off, or a missing barrier between writer and reader"


class IllegalInstruction(EmulatorError):
    """An instruction was executed with operands that the ISA forbids."""

    kind = "illegal-instruction"


class DivergentBarrier(EmulatorError):
    """Part of a warp executed a warp-wide instruction, or part of a CTA's warps a barrier of the whole CTA."""

    kind = "divergent-barrier"
    hint = "a barrier or shuffle inside an if that only some threads of a warp take"


class Deadlock(EmulatorError):
    """Threads still wait and nothing can wake them."""

    kind = "deadlock"


class BudgetExceeded(EmulatorError):
    """A warp executed more instructions than the budget allows."""

    kind = "endless"


class Trap(EmulatorError):
    """The kernel executed trap or failed a device-side assertion."""

    kind = "trap"


class AsyncMismatch(EmulatorError):
    """Two sides of an asynchronous operation disagree: bytes brought and bytes expected, or swizzles."""

    kind = "byte-count"


class InFlight(EmulatorError):
    """Memory or registers of an asynchronous operation are touched before it has completed."""

    kind = "in-flight"
    hint = "the wait that has to come between the two: an mbarrier phase, wgmma.wait_group, cp.async.wait_group"


class MissingFence(EmulatorError):
    """The async proxy would read shared memory that ordinary stores wrote without a proxy fence."""

    kind = "missing-proxy-fence"
    hint = "fence.proxy.async in the writing threads, then a barrier, then the TMA store or WGMMA"


class MissingBarrier(EmulatorError):
    """Threads use the same memory one after the other, and nothing makes the second wait for the first."""

    kind = "missing-barrier"
    hint = "a barrier that both sides pass between the two uses"


class InternalError(EmulatorError):
    """The emulator itself failed, whatever the kernel does; the Python error it failed with is the cause."""

    kind = "internal"

    def __init__(self, doing: str, cause: Exception) -> None:
        super().__init__(f"the emulator itself failed while {doing}: {type(cause).__name__}: {cause}")

    def __str__(self) -> str:
        return (
            f"{super().__str__()}\nThis is a mistake in the emulator, not in the kernel. Please report it with this "
            "whole message, the command, and the kernel's PTX file (CUTE_DSL_DUMP_DIR=FOLDER keeps it there)"
        )


@contextlib.contextmanager
def own_failures(doing: str, locate: Callable[[InternalError], None] | None = None) -> Iterator[None]:
    """Turn errors that are not the kernel's into an InternalError.

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
    """The kernel gives the right result and does not do what its author meant; `report` says so as data."""

    def __init__(self, text: str, report: Report | None = None) -> None:
        super().__init__(text)
        self.report = report or Report("other", "warning", "", "", text, "", text)


def warn(text: str, error: EmulatorError, file: str, line: int, registry: dict[Any, Any] | None = None) -> None:
    """Show a warning that was made as an error at a line of source; Python shows the same one of a registry once."""
    report = replace(error.report, severity="warning", text=text)
    findings.publish(report)
    warnings.warn_explicit(EmulatorWarning(text, report), EmulatorWarning, file, line, registry=registry)
