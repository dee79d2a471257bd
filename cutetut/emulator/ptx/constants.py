"""Registers that hold one constant wherever they are read."""

from __future__ import annotations

from .syntax import Function, Immediate, Instruction, Operand, Register, registers_in

Constant = int | float
_EQUALITIES = tuple((name, kind) for name in ("eq", "ne") for kind in ("b32", "u32", "s32"))


def constants(kernel: Function) -> dict[str, Constant]:
    """The registers that every instruction writes with the same constant, as its bits or its value.

    Followed are unguarded moves and comparisons for equality: inline assembly makes its predicates with these.
    """
    if kernel.constants is None:
        kernel.constants = _constants(kernel)
    return kernel.constants


def _constants(kernel: Function) -> dict[str, Constant]:
    writers: dict[str, list[Instruction]] = {}
    others: set[str] = set()
    for inst in kernel.body:
        for written in registers_in(inst.operands[:1]):
            if _is_followed(inst):
                writers.setdefault(written.name, []).append(inst)
            else:
                others.add(written.name)
    waiting = {name: insts for name, insts in writers.items() if name not in others}
    found: dict[str, Constant] = {}
    while True:
        known = {name: value for name, insts in waiting.items() if (value := _only(insts, found)) is not None}
        if not known:
            return found
        found |= known
        waiting = {name: insts for name, insts in waiting.items() if name not in known}


def _is_followed(inst: Instruction) -> bool:
    if inst.guard is not None or not isinstance(inst.operands[0], Register):
        return False
    if inst.parts[0] == "mov":
        return len(inst.operands) == 2
    return inst.parts[0] == "setp" and inst.parts[1:] in _EQUALITIES


def _only(insts: list[Instruction], found: dict[str, Constant]) -> Constant | None:
    """The one constant that all these instructions write; None if there is none."""
    values = {_result(inst, found) for inst in insts}
    return values.pop() if len(values) == 1 else None


def _result(inst: Instruction, found: dict[str, Constant]) -> Constant | None:
    operands = [_constant(operand, found) for operand in inst.operands[1:]]
    if inst.parts[0] == "mov":
        return operands[0]
    if not all(isinstance(value, int) for value in operands):
        return None
    a, b = (int(value or 0) & 0xFFFFFFFF for value in operands)
    return int((a == b) == (inst.parts[1] == "eq"))


def _constant(operand: Operand, found: dict[str, Constant]) -> Constant | None:
    if isinstance(operand, Immediate):
        return operand.value if operand.bits is None else operand.bits
    return found.get(operand.name) if isinstance(operand, Register) else None
