"""Registers that hold one constant wherever they are read."""

from __future__ import annotations

from collections.abc import Iterable

from .syntax import Function, Group, Immediate, Instruction, Operand, Pair, Register, Vector

Constant = int | float


def constants(kernel: Function) -> dict[str, Constant]:
    """The registers that nothing but unguarded moves of one constant write, with the constant's bits or value.

    A move may copy another such register.
    """
    moves: dict[str, list[Operand]] = {}
    others: set[str] = set()
    for inst in kernel.body:
        source = _moved(inst)
        for name in _registers(inst.operands[:1]):
            if source is None:
                others.add(name)
            else:
                moves.setdefault(name, []).append(source)
    found: dict[str, Constant] = {}
    waiting = {name: sources for name, sources in moves.items() if name not in others}
    while True:
        known = {name: value for name, sources in waiting.items() if (value := _only(sources, found)) is not None}
        if not known:
            return found
        found |= known
        waiting = {name: sources for name, sources in waiting.items() if name not in known}


def _moved(inst: Instruction) -> Operand | None:
    """What an unguarded mov of a plain operand copies."""
    if inst.parts[0] != "mov" or inst.guard is not None or len(inst.operands) != 2:
        return None
    source = inst.operands[1]
    return source if isinstance(source, Immediate | Register) else None


def _registers(operands: Iterable[Operand]) -> Iterable[str]:
    """What an instruction may write: registers of its first operand, however nested."""
    for operand in operands:
        if isinstance(operand, Register):
            yield operand.name
        elif isinstance(operand, Vector | Group):
            yield from _registers(operand.items)
        elif isinstance(operand, Pair):
            yield from _registers((operand.first, operand.second))


def _only(sources: list[Operand], found: dict[str, Constant]) -> Constant | None:
    """The one constant that all these operands are; None if they are not."""
    values = set()
    for source in sources:
        if isinstance(source, Immediate):
            values.add(source.value if source.bits is None else source.bits)
        else:
            value = found.get(source.name) if isinstance(source, Register) else None
            if value is None:
                return None
            values.add(value)
    return values.pop() if len(values) == 1 else None
