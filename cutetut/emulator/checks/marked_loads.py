"""The first load of unwritten shared memory: from then on the program marks what it loads (unwritten.py)."""

from __future__ import annotations

from typing import Protocol

import numpy as np

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
        scheduler.current = inst
        scheduler.locate(error)
        return self.tolerance.of(kind, error, inst)

    def begin(
        self, scheduler: Scheduler, error: Uninitialized, inst: Instruction, host: np.ndarray, threads: np.ndarray
    ) -> Program | None:
        """The program that marks values, if this is the first load of unwritten memory; what it loads is marked."""
        if self.loads is not None or not is_load_from_shared(inst):
            return None
        scheduler.current = inst
        scheduler.locate(error)
        self.loads = Loads(scheduler.machine, error)
        program = self.decode(scheduler.machine, self.loads)
        self.loads.mark[inst.index](threads, host)
        return program

    def explain(self, scheduler: Scheduler, error: EmulatorError) -> None:
        """Add to an error what its thread had loaded too early.

        Raises the error of an earlier load where this one only came before its copy again.
        """
        if self.loads is None or scheduler.current is None:
            return
        if isinstance(error, InFlight) and scheduler.current.index in self.loads.errors:
            raise self.loads.errors[scheduler.current.index] from None
        if isinstance(error, IllegalInstruction):
            self._note_loads(error, self.loads)

    def _note_loads(self, error: EmulatorError, loads: Loads) -> None:
        """Note in an error that a thread had loaded what was not there yet: it may have gone on too early."""
        first = next(iter(loads.errors.values()))
        assert first.place is not None
        error.notes.append(f"  before that: {first.what}\n{first.place.describe()}")
        error.notes += first.notes
        error.hint = f"{first.hint}; or {error.hint}" if error.hint else first.hint
