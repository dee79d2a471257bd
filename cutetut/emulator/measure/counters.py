"""Counters like those of a profiler: what each source line asked of the machine.

Instructions are those of PTX.  The assembler turns them into fewer or more of its own, except for memory
accesses and matrix instructions, which it keeps one to one: those counts are the hardware's.  How often a
waiting loop turns is the emulator's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..machine.opcodes import Opcode, Selection, Step
from .meters import METERS
from .tally import Tally

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction

Line = tuple[str, int]  # file and line; ("", 0) for what the compiler attributes to no line


class Counting:
    """An observer (observe.py) that adds up what its launches do, for each source line."""

    def __init__(self) -> None:
        self.launches = 0
        self.lines: dict[Line, Tally] = {}

    def watch(self, machine: Machine) -> LaunchCounter:
        """A launch begins."""
        self.launches += 1
        return LaunchCounter(self.lines, machine)

    def total(self) -> Tally:
        """The sum over all lines."""
        total = Tally()
        for tally in self.lines.values():
            total.add(tally)
        return total


class LaunchCounter:
    """The counters of one launch, which go in front of each instruction's own step."""

    def __init__(self, lines: dict[Line, Tally], machine: Machine) -> None:
        self.lines, self.machine = lines, machine

    def executed(self, step: Step, inst: Instruction, entry: Opcode) -> Step:
        """Count the threads that execute it and what they access."""
        tally, kind = self._tally(inst), kind_of(inst, entry)
        make = METERS.get(entry.mnemonic)
        meter = None if make is None else make(inst, self.machine, tally)

        def run(sel: Selection) -> object:
            tally.threads[kind] += _threads(sel)
            if meter is not None:
                meter(sel)  # before the step, which may overwrite the register that holds the address
            return step(sel)

        return run

    def issued(self, step: Step, inst: Instruction, entry: Opcode) -> Step:
        """Count the warps it is issued for, also those in which no guard is true."""
        tally, kind, warp_of = self._tally(inst), kind_of(inst, entry), self.machine.warp_of

        def run(sel: Selection) -> None:
            tally.warps[kind] += _warps(sel, warp_of)
            step(sel)

        return run

    def _tally(self, inst: Instruction) -> Tally:
        line = (inst.loc.file, inst.loc.line) if inst.loc is not None else ("", 0)
        return self.lines.setdefault(line, Tally())


def kind_of(inst: Instruction, entry: Opcode) -> str:
    """What an instruction is counted as: "fma.f32" with its type, "ld.global" with its space, or its mnemonic."""
    if entry.unit == "alu" and inst.parts[-1] != entry.mnemonic:
        return f"{entry.mnemonic}.{inst.parts[-1]}"
    if entry.mnemonic in ("ld", "st", "atom", "red"):
        spaces = [p for p in inst.parts if p.split("::")[0] in ("global", "shared", "local", "param", "const")]
        return ".".join([entry.mnemonic, *spaces[:1]])
    return entry.mnemonic


def _threads(sel: Selection) -> int:
    return sel.stop - sel.start if isinstance(sel, slice) else len(sel)


def _warps(sel: Selection, warp_of: np.ndarray) -> int:
    if isinstance(sel, slice):
        return (sel.stop - 1) // 32 - sel.start // 32 + 1
    return len(np.unique(warp_of[sel]))
