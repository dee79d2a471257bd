"""Operands that many units read in one way: lists of registers, and addresses in brackets (PTX ISA section 6.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..ptx.syntax import Address, Operand, Register, Vector
from .opcodes import Selection, unsupported

if TYPE_CHECKING:
    from ..ptx.syntax import Instruction
    from .machine import Machine

Addresses = Callable[[Selection], np.ndarray]


def elements_of(operand: Operand) -> tuple[Operand, ...]:
    """The parts of {a, b, ...}; of a plain operand, itself."""
    return operand.items if isinstance(operand, Vector) else (operand,)


def addresses(inst: Instruction, machine: Machine, operand: Operand) -> Addresses:
    """A getter of [base + offset] of each selected thread, as int64; raises UnknownInstruction for anything else."""
    if not isinstance(operand, Address):
        raise unsupported(inst, f"{operand} should be an [address]")
    offset = operand.offset
    if isinstance(operand.base, Register):
        width = machine.register_dtype(operand.base).itemsize
        if width == 8:
            wide = machine.source(operand.base, np.int64)
            return lambda sel: wide[sel] + offset
        narrow, more = machine.source(operand.base, np.uint32), np.uint32(offset & 0xFFFFFFFF)
        return lambda sel: (narrow[sel] + more).view(np.int32).astype(np.int64)  # the sum has 32 bits, as the register
    base = machine.source(operand.base, np.int64) + offset
    return lambda sel: base[sel]


def address_of(inst: Instruction, machine: Machine, operand: Operand) -> Callable[[int], int]:
    """The same for instructions that one thread issues: a getter from its number to its address."""
    get = addresses(inst, machine, operand)
    return lambda thread: int(get(slice(thread, thread + 1))[0])
