"""Where and by whom: the places that errors and warnings name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..errors import Deadlock, EmulatorError, Place
from ..errors import warn as show
from ..findings import Location
from ..ptx.source import describe, kernel_name
from ..ptx.source import text as source_text
from .threads import Selection, threads_of

if TYPE_CHECKING:
    from ..ptx.syntax import Instruction
    from .machine import Machine


class Reporter:
    """Knows what is being executed, and says where that stands in the source."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.kernel_name = kernel_name(machine.kernel)
        self.current: Instruction | None = None
        self.warned: set[tuple[str, int]] = set()

    def warn(
        self, what: str, inst: Instruction, thread: int, hint: str, other: tuple[Instruction, int, str] | None = None,
        kind: str = "other", location: Location | None = None,
    ) -> None:  # fmt: skip
        """Warn of something that gives no wrong result by itself, once per source line and launch."""
        file, line = (inst.loc.file, inst.loc.line) if inst.loc is not None else (self.kernel_name, inst.line)
        if (hint, line) in self.warned:
            return
        self.warned.add((hint, line))
        warning = EmulatorError(what, hint=hint, kind=kind, locations=() if location is None else (location,))
        warning.place = self.place(inst, thread)
        if other is not None:
            self.note(warning, *other)
        show(str(warning), warning, file, line)

    def note(self, error: EmulatorError, inst: Instruction, thread: int | None, what: str) -> None:
        """Add another program point to an error: what happened there, and the lines."""
        error.add(self.place(inst, thread), what)

    def locate(self, error: EmulatorError, sel: Selection = slice(0, 0)) -> None:
        """Say where an error happened: the current instruction and, of these threads, the first that is to blame."""
        if error.place is not None:
            return
        inst = self.current
        thread = None
        if error.threads is not None and len(error.threads):
            thread = int(error.threads[0])
        elif not isinstance(error, Deadlock) and len(candidates := threads_of(sel)):
            thread = int(candidates[0])
        if error.operation is not None:
            inst, thread = error.operation.inst, error.operation.thread
        error.place, error.inst = self.place(inst, thread), inst
        if error.threads is not None and thread is not None:
            mates = error.threads[error.threads >> 5 == thread >> 5]
            error.lanes = tuple(np.unique(self.machine.in_cta[mates] % 32).tolist())
        if error.threads is not None and len(error.threads) > 1:
            error.notes.append(f"  {len(error.threads)} threads at once do this; the first is named")
        written = self.machine.memory.written_labels()
        if written:
            error.notes.append("  already written to, so not to be trusted: " + ", ".join(written))

    def place(self, inst: Instruction | None, thread: int | None, whole_warp: bool = False) -> Place:
        """Describe an instruction and a thread, or its warp."""
        m = self.machine
        cta = warp = lane = tid = None
        if thread is not None:
            cta = tuple(int(v) for v in m.cta_ids[m.cta_of[thread]])
            number = int(m.in_cta[thread])
            warp = number // 32
            if not whole_warp:
                x, y, _ = m.launch.block
                lane, tid = number % 32, (number % x, number // x % y, number // (x * y))
        return replace(place_of(self.kernel_name, inst), cta=cta, warp=warp, lane=lane, thread=tid)  # type: ignore[arg-type]


def place_of(kernel_name: str, inst: Instruction | None) -> Place:
    """Where an instruction stands, without a thread."""
    source, text = "", ""
    if inst is not None and inst.loc is not None:
        source = ("" if inst.loc.column else "after ") + describe(inst.loc.file, inst.loc.line)
        text = source_text(inst.loc.file, inst.loc.line)
    return Place(
        kernel_name, None, None, None, None,
        inst.line if inst else None, inst.text if inst else "", source, text, inst.opcode if inst else "",
        *((inst.loc.file, inst.loc.line) if inst is not None and inst.loc is not None else ("", None)),
    )  # fmt: skip
