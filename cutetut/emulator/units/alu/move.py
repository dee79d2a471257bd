"""mov: copies, constants, addresses, special registers, and packing of vectors (PTX ISA sections 9.7.9.3, 9.7.9.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...machine.opcodes import Selection, Step, unsupported
from ...numbers.types import DTYPES
from ...ptx.syntax import Operand, Register, Sink, Special, Vector
from .forms import operands

if TYPE_CHECKING:
    from ...machine.machine import Machine
    from ...ptx.syntax import Instruction

MOVABLE = ("pred", "b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64")
PIECES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def decode_mov(inst: Instruction, machine: Machine) -> Step:
    """mov.type d, a, where either side may be a vector that makes up the other."""
    kind = inst.parts[-1]
    if len(inst.parts) != 2 or (kind not in MOVABLE and kind != "b128"):
        raise unsupported(inst, f"mov is emulated for the types {', '.join(MOVABLE)}, b128")
    d, a = operands(inst, 2)
    if isinstance(d, Vector):
        return _unpack(inst, machine, d, a, kind)
    if isinstance(a, Vector):
        return _pack(inst, machine, d, a, kind)
    if kind == "b128":
        return _copy(machine.target(d, np.uint64), machine.source(a, np.uint64))
    dtype = np.dtype(DTYPES[kind])
    row = machine.target(d, dtype)
    if kind == "pred":
        value = machine.predicate(a)
        return lambda sel: row.__setitem__(sel, value(sel))
    if isinstance(a, Special) and (changing := machine.dynamic(a.name)) is not None:
        return lambda sel: row.__setitem__(sel, changing(sel).astype(dtype))
    return _copy(row, machine.source(a, dtype))


def _copy(d: np.ndarray, a: np.ndarray) -> Step:
    def step(sel: Selection) -> None:
        d[sel] = a[sel]

    return step


def _pieces(inst: Instruction, machine: Machine, whole: Operand, count: int, kind: str) -> list[np.ndarray]:
    """The rows of a register's equal parts, lowest first, as views to read or assign through."""
    if kind == "b128":
        if count != 2 or not isinstance(whole, Register):
            raise unsupported(inst, "128 bits are made up of two 64-bit registers")
        row = machine.registers[whole.name]
        return [row[:, 0], row[:, 1]]
    nbytes = np.dtype(DTYPES[kind]).itemsize
    if count not in (2, 4) or nbytes % count or kind[0] != "b":
        raise unsupported(inst, f"{count} parts do not make up .{kind}")
    # a register's own storage, because the parts are assigned through; a constant's row is copied
    row = machine.registers[whole.name] if isinstance(whole, Register) else machine.source(whole, PIECES[nbytes])
    if row.dtype.itemsize < nbytes:
        raise unsupported(inst, f"the register is narrower than .{kind}")
    parts = np.ascontiguousarray(row).view(PIECES[nbytes // count])
    return [parts[i :: row.dtype.itemsize * count // nbytes] for i in range(count)]


def _unpack(inst: Instruction, machine: Machine, d: Vector, a: Operand, kind: str) -> Step:
    parts = _pieces(inst, machine, a, len(d.items), kind)
    moves = [
        (_register(machine, item, part.dtype), part)
        for item, part in zip(d.items, parts, strict=True)
        if not isinstance(item, Sink)
    ]

    def step(sel: Selection) -> None:
        for target, part in moves:
            target[sel] = part[sel]

    return step


def _register(machine: Machine, operand: Operand, dtype: np.dtype) -> np.ndarray:
    """The row of an element's register, whole: a wider register is zero-extended."""
    return machine.target(operand, max(machine.register_dtype(operand), dtype, key=lambda t: t.itemsize))


def _pack(inst: Instruction, machine: Machine, d: Operand, a: Vector, kind: str) -> Step:
    if isinstance(d, Sink):
        return lambda sel: None
    parts = _pieces(inst, machine, d, len(a.items), kind)
    moves = [(part, machine.source(item, part.dtype)) for item, part in zip(a.items, parts, strict=True)]

    def step(sel: Selection) -> None:
        for part, value in moves:
            part[sel] = value[sel]

    return step
