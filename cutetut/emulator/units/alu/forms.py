"""How the arithmetic units describe their instructions: tables from (mnemonic, type) to a numpy function.

A *form* is one line of the PTX ISA such as `add{.rnd}{.ftz}{.sat}.f32`.  It says which modifiers are
legal and, given those that are present, builds an `Operation`: how to look at the operands' registers
and the function from source values to result values.  `decode` turns that into a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...machine.arithmetic import OPERATIONS, Compute, Modifiers, Operation
from ...machine.opcodes import Selection, Step, unsupported
from ...numbers.types import DTYPES
from ...numbers.types import INTEGER as INTEGER
from ...ptx.syntax import Immediate, Operand

if TYPE_CHECKING:
    from ...machine.machine import Machine
    from ...ptx.syntax import Instruction


class IllegalForm(Exception):
    """A builder's complaint about modifiers that are legal alone but not together."""


Build = Callable[[str, str, Modifiers], Operation]


@dataclass(frozen=True)
class Form:
    """`modifiers` lists groups separated by blanks, alternatives by |; ! after a group makes it mandatory."""

    modifiers: str
    build: Build


FORMS: dict[str, dict[str, Form]] = {}  # mnemonic -> type suffix -> form


def form(mnemonics: str, types: str, modifiers: str = "") -> Callable[[Build], Build]:
    """Register build(mnemonic, type, modifiers present) for every pair of the blank-separated names."""

    def register(build: Build) -> Build:
        for mnemonic in mnemonics.split():
            for kind in types.split():
                table = FORMS.setdefault(mnemonic, {})
                if kind in table:
                    raise ValueError(f"{mnemonic}.{kind} has two forms")
                table[kind] = Form(modifiers, build)
        return build

    return register


def functions(table: dict[str, Compute], types: str, sources: int) -> None:
    """Register mnemonics without modifiers whose result and sources all have the instruction's type."""
    for mnemonic, compute in table.items():
        form(mnemonic, types)(lambda name, kind, m, f=compute: same_type(kind, sources, f))  # type: ignore[misc]


def same_type(kind: str, sources: int, compute: Compute) -> Operation:
    """An operation whose result and sources all have one type."""
    dtype = DTYPES[kind]
    return Operation(dtype, (dtype,) * sources, compute)


def check_modifiers(inst: Instruction, allowed: str, present: tuple[str, ...]) -> Modifiers:
    """The modifiers as a set; raises UnknownInstruction for one too many or one missing."""
    left = list(present)
    for group in allowed.split():
        names = group.rstrip("!").split("|")
        chosen = [name for name in names if name in left]
        if len(chosen) > 1 or (group.endswith("!") and not chosen):
            needs = "needs one of" if group.endswith("!") else "takes at most one of"
            raise unsupported(inst, f"it {needs} {', '.join('.' + n for n in names)}")
        for name in chosen:
            left.remove(name)
    if left:
        raise unsupported(inst, f"modifier .{left[0]} is not one of this form's: {allowed or 'it takes none'}")
    return frozenset(present)


def find(inst: Instruction) -> tuple[Form, str, tuple[str, ...]]:
    """The form of an instruction, its type suffix and the parts between mnemonic and suffix."""
    table, parts = FORMS[inst.parts[0]], inst.parts
    for n in (2, 1):  # two types such as dp4a.u32.s32 before one
        kind = ".".join(parts[-n:])
        if len(parts) > n and kind in table:
            return table[kind], kind, parts[1:-n]
    raise unsupported(inst, f"{parts[0]} is emulated for the types {', '.join(table)}")


def decode(inst: Instruction, machine: Machine) -> Step:
    """Decode any instruction that has a form."""
    if inst.opcode not in OPERATIONS:
        OPERATIONS[inst.opcode] = _operation(inst)
    kind, operation = OPERATIONS[inst.opcode]
    refuse_constants(inst, kind)
    return bind(inst, machine, operation)


def _operation(inst: Instruction) -> tuple[str, Operation]:
    """The type suffix of an opcode and what it computes; raises UnknownInstruction."""
    entry, kind, present = find(inst)
    refuse_constants(inst, kind)
    modifiers = check_modifiers(inst, entry.modifiers, present)
    try:
        return kind, entry.build(inst.parts[0], kind, modifiers)
    except IllegalForm as error:
        raise unsupported(inst, str(error)) from None


def refuse_constants(inst: Instruction, kind: str) -> None:
    """PTX has no constants of the half types, and the assembler takes no integers for them either."""
    if kind.startswith(("f16", "bf16")) and any(isinstance(x, Immediate) for x in inst.operands[1:]):
        raise unsupported(inst, f"an operand of .{kind} must be a register, not a constant")


def operands(inst: Instruction, count: int) -> tuple[Operand, ...]:
    """The operands, if there are as many as there should be."""
    if len(inst.operands) != count:
        raise unsupported(inst, f"it takes {count} operands, not {len(inst.operands)}")
    return inst.operands


def bind(inst: Instruction, machine: Machine, op: Operation) -> Step:
    """Tie an operation to the registers of an instruction."""
    first, *rest = operands(inst, 1 + len(op.sources))
    d = machine.target(first, op.result)
    rows = [machine.source(operand, dtype) for operand, dtype in zip(rest, op.sources, strict=True)]
    return assign(d, op.compute, rows)


def assign(d: np.ndarray, compute: Compute, rows: list[np.ndarray]) -> Step:
    """The step d = compute(*rows), one closure per number of sources because this is the inner loop."""
    if len(rows) == 1:
        (a,) = rows

        def unary(sel: Selection) -> None:
            d[sel] = compute(a[sel])

        return unary
    if len(rows) == 2:
        a, b = rows

        def binary(sel: Selection) -> None:
            d[sel] = compute(a[sel], b[sel])

        return binary
    if len(rows) == 3:
        a, b, c = rows

        def ternary(sel: Selection) -> None:
            d[sel] = compute(a[sel], b[sel], c[sel])

        return ternary

    def general(sel: Selection) -> None:
        d[sel] = compute(*(row[sel] for row in rows))

    return general


def describe(mnemonic: str) -> str:
    """The forms of a mnemonic as the PTX ISA writes them, for the list of emulated instructions."""
    by_modifiers: dict[str, list[str]] = {}
    for kind, entry in FORMS[mnemonic].items():
        by_modifiers.setdefault(entry.modifiers, []).append(kind)
    lines = []
    for modifiers, kinds in by_modifiers.items():
        text = "".join(_group(group) for group in modifiers.split())
        lines.append(f"{text}.{' .'.join(kinds)}" if len(kinds) == 1 or not text else f"{text}{{.{'|.'.join(kinds)}}}")
    return ", ".join(lines)


def _group(group: str) -> str:
    names = group.rstrip("!").split("|")
    text = "|".join("." + name for name in names)
    if group.endswith("!"):
        return text if len(names) == 1 else f"({text})"
    return f"{{{text}}}"
