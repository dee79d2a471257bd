"""How a run becomes machine code: found out once per kernel, linked to the registers of every launch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..errors import EmulatorError
from ..machine.threads import Step
from ..ptx.syntax import Instruction, Register, Sink
from .code import Emit
from .engine import OPERANDS, Chain, Form, Row, address_of, compiler, known_forms
from .forms import Slot, bound

if TYPE_CHECKING:
    from ..machine.machine import Machine


_USES_F16 = re.compile(r"\.f16")  # on a processor without such conversions LLVM calls functions that may be missing


@dataclass
class Part:
    """Instructions in a row that all have forms, or one that is left to numpy (then `forms` is empty)."""

    first: int
    forms: list[Form] = field(default_factory=list)
    operands: list[list[int]] = field(default_factory=list)  # positions in the recipe's slots, of each instruction
    table: np.ndarray | None = None  # the same, filled up with -1,
    functions: np.ndarray | None = None  # and the addresses of the forms' code, once it is compiled


class Recipe:
    """The forms of a run's instructions, and its operands by number."""

    def __init__(self, instructions: Sequence[Instruction], machine: Machine, masked: bool) -> None:
        self.slots: list[Slot] = []
        self.number: dict[object, int] = {}
        self.emits: dict[Form, Emit] = {}
        self.parts: list[Part] = []
        for i, inst in enumerate(instructions):
            found = self._form(inst, machine, masked)
            if found is None:
                self.parts.append(Part(i))
                continue
            if not self.parts or not self.parts[-1].forms:
                self.parts.append(Part(i))
            self.parts[-1].forms.append(found[0])
            self.parts[-1].operands.append(found[1])

    def _form(self, inst: Instruction, machine: Machine, masked: bool) -> tuple[Form, list[int]] | None:
        """The form of an instruction and its operands; None where numpy remains."""
        code = bound(inst, machine)
        if code is None or (_USES_F16.search(inst.opcode) and not compiler().has_f16):
            return None
        slots = [*code.targets, *code.sources]
        rows = [_shape(machine, slot) for slot in slots]
        targets = [row for row in rows[: len(code.targets)] if row is not None and row.whole]
        sources = [row for row in rows[len(code.targets) :] if row is not None]
        if inst.guard is not None:
            slots.append((inst.guard, np.bool_))
        if len(targets) + len(sources) < len(rows) or len(slots) > OPERANDS:
            return None
        guard = "" if inst.guard is None else "!" if inst.guard_negated else "p"
        form = Form(code.key, tuple(targets), tuple(sources), guard, masked)
        self.emits[form] = code.emit
        return form, [self._slot(slot) for slot in slots]

    def _slot(self, slot: Slot) -> int:
        operand, dtype = slot
        name: object = operand.name if isinstance(operand, Register) else (operand, np.dtype(dtype))
        if name not in self.number:
            self.number[name] = len(self.slots)
            self.slots.append(slot)
        return self.number[name]

    def new_forms(self) -> int:
        """How many forms are still to be compiled."""
        known = known_forms()
        return sum(form not in known for form in self.emits)

    def link(self, machine: Machine, steps: Sequence[Step]) -> list[Chain | Step]:
        """The pieces of the run on a machine: chains of compiled instructions, and numpy's steps between them."""
        self._compile()
        rows = [_row(machine, slot) for slot in self.slots]
        addresses = np.array([*map(address_of, rows), 0], np.uint64)  # the last for what fills a record up
        return [
            steps[part.first]
            if part.functions is None or part.table is None
            else Chain(part.functions, addresses[part.table], rows)
            for part in self.parts
        ]

    def _compile(self) -> None:
        if not self.emits:
            return
        compiler().compile(self.emits)
        self.emits = {}
        known = compiler().addresses
        for part in self.parts:
            if part.forms:
                part.functions = np.array([known[form] for form in part.forms], np.uint64)
                part.table = np.array([[*slots, *[-1] * (OPERANDS - len(slots))] for slots in part.operands])


def _row(machine: Machine, slot: Slot) -> np.ndarray:
    """The row behind an operand. Its address does not depend on the type that a register is seen as."""
    operand, dtype = slot
    if isinstance(operand, Register):
        return machine.registers[operand.name]
    return np.zeros(machine.T, dtype) if isinstance(operand, Sink) else machine.source(operand, dtype)


def _shape(machine: Machine, slot: Slot) -> Row | None:
    """How an operand lies in memory; None for what the machine cannot show as a row."""
    operand, dtype = slot
    try:
        return Row.of(machine.target(operand, dtype) if isinstance(operand, Sink) else machine.source(operand, dtype))
    except EmulatorError:
        return None
