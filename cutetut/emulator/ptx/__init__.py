"""PTX text and what it parses to.

It knows the grammar, and what can be read off a kernel without running it: constants, loops, source lines.  It must
not know how an instruction is executed, nor which instructions there are.
"""

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
