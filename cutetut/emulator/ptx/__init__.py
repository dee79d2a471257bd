"""PTX text and what it parses to.

It knows the grammar, and what can be read off a kernel without running it: constants, loops, source lines.  It must
not know how an instruction is executed.  Of instructions it knows branches, and the few by which compilers put
constants and the answers of waits into registers; what others do, units say when they register them (effects.py).
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
