"""The first load of unwritten shared memory: from then on the program marks what it loads (unwritten.py)."""

from __future__ import annotations

from typing import Protocol

from ..errors import EmulatorError, IllegalInstruction, InFlight, Uninitialized
from ..machine.machine import Machine
from ..machine.program import Program
from ..machine.scheduler import Scheduler
from ..ptx.syntax import Instruction
from .tolerance import Tolerance
from .unwritten import Loads, is_load_from_shared


class Decode(Protocol):
    """Makes a kernel's program; with `loads` one that marks what it loads (decoding.py)."""

    def __call__(self, machine: Machine, loads: Loads | None = None) -> Program: ...


class MarkedLoads:
    """One launch's loads of unwritten shared memory, once there has been one."""

    def __init__(self, decode: Decode) -> None:
        self.decode = decode
        self.loads: Loads | None = None
        self.tolerance = Tolerance.from_environment()

    def tolerates(self, scheduler: Scheduler, kind: str, error: EmulatorError, inst: Instruction) -> bool:
        """Whether the user wants the kernel to go on after this error; if so it has been reported (tolerance.py)."""
        if kind == "uninitialized" and self.loads is None and is_load_from_shared(inst):
            return False  # the first such load: from now on values are marked, and using one is the error
        scheduler.current = inst
        scheduler.locate(error)
        return self.tolerance.of(kind, error, inst)

    def program_after(self, scheduler: Scheduler, error: EmulatorError) -> Program | None:
        """The program that marks values, if an error is the first such load: only using the value is one.

        Raises the error of an earlier load where this one only came before its copy again.
        """
        inst = scheduler.current
        if inst is None:
            return None
        if isinstance(error, InFlight) and self.loads is not None and inst.index in self.loads.errors:
            raise self.loads.errors[inst.index] from None
        if isinstance(error, IllegalInstruction) and self.loads is not None:
            self._note_loads(error, self.loads)
        if not isinstance(error, Uninitialized) or self.loads is not None or error.place is not None:
            return None
        if not is_load_from_shared(inst):
            return None
        scheduler.locate(error)
        self.loads = Loads(scheduler.machine, error)
        return self.decode(scheduler.machine, self.loads)

    def _note_loads(self, error: EmulatorError, loads: Loads) -> None:
        """Note in an error that a thread had loaded what was not there yet: it may have gone on too early."""
        first = next(iter(loads.errors.values()))
        assert first.place is not None
        error.notes.append(f"  before that: {first.what}\n{first.place.describe()}")
        error.notes += first.notes
        error.hint = f"{first.hint}; or {error.hint}" if error.hint else first.hint
