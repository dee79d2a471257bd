"""PTX text and what it parses to; knows nothing of how an instruction is executed."""

from .parser import parse
from .syntax import (
    BYTES,
    Address,
    Function,
    Group,
    Immediate,
    Instruction,
    Location,
    Module,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
)

__all__ = [
    "BYTES", "Address", "Function", "Group", "Immediate", "Instruction", "Location", "Module", "Negated", "Operand",
    "Pair", "Register", "Sink", "Special", "Symbol", "Variable", "Vector", "parse",
]  # fmt: skip
