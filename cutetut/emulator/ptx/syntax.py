"""PTX text to Module, Kernel and Instruction, each with the line it came from.

The grammar is the part of the PTX ISA (sections 4, 5 and 11) that NVVM and the inline assembly of
CuTe DSL use.  Nothing is interpreted here: an opcode is its dotted text, an operand one of the
small classes below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

BYTES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4, "s32": 4,
         "f32": 4, "f16x2": 4, "bf16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16, "pred": 1}  # fmt: skip


@dataclass(frozen=True)
class Location:
    """A source position from `.loc`: the file as CuTe DSL names it, the line counted from 1.

    Column 0: the compiler knows no line, this is the last one it named before.
    """

    file: str
    line: int
    column: int

    def describe(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Register:
    """A declared register; names that inline assembly declares in an inner scope are made unique."""

    name: str
    type: str


@dataclass(frozen=True)
class Special:
    """A special register such as %tid.x (PTX ISA section 10)."""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A literal. `bits` holds the raw pattern of a 0f or 0d literal, None for integers and decimals."""

    value: int | float
    bits: int | None = None


@dataclass(frozen=True)
class Symbol:
    """The name of a variable, parameter, function or label."""

    name: str


@dataclass(frozen=True)
class Address:
    """[base + offset]"""

    base: Register | Symbol | Immediate
    offset: int = 0


@dataclass(frozen=True)
class Vector:
    """{a, b, c, d}"""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Group:
    """[a, {b, c}] of a tensor copy, or the (a, b) list of a call."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Pair:
    """d|p: a result and a predicate."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Negated:
    """!%p"""

    register: Register


@dataclass(frozen=True)
class Sink:
    """The bit bucket `_`."""


Operand = (
    Register | Special | Immediate | Symbol | Address | Vector | Group | Pair | Negated | Sink
)  # also the recursive type of the items above


def registers_in(operands: Iterable[Operand], addresses: bool = False) -> Iterator[Register]:
    """The registers in operands, however nested; those that make up addresses only if asked for."""
    for operand in operands:
        if isinstance(operand, Register):
            yield operand
        elif isinstance(operand, Negated):
            yield operand.register
        elif isinstance(operand, Address):
            if addresses and isinstance(operand.base, Register):
                yield operand.base
        elif isinstance(operand, Vector | Group):
            yield from registers_in(operand.items, addresses)
        elif isinstance(operand, Pair):
            yield from registers_in((operand.first, operand.second), addresses)


@dataclass
class Instruction:
    """One instruction: dotted opcode, operands, guard predicate and where it stands."""

    opcode: str
    operands: tuple[Operand, ...]
    guard: Register | None
    guard_negated: bool
    line: int
    text: str
    loc: Location | None
    index: int

    @cached_property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.opcode.split("."))


@dataclass(frozen=True)
class Variable:
    """A declared variable: state space, element type, total bytes, alignment and initial bytes.

    `pointers` lists (byte offset, symbol, addend) of initial values that are addresses.
    """

    name: str
    space: str
    type: str
    nbytes: int
    align: int
    init: bytes | None = None
    pointers: tuple[tuple[int, str, int], ...] = ()
    extern: bool = False


@dataclass
class Function:
    """A kernel (.entry) or device function (.func) with its body as a flat list of instructions."""

    name: str
    is_kernel: bool
    params: list[Variable]
    results: list[Variable]
    line: int
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    registers: dict[str, Register] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    body: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    constants: dict[str, int | float] | None = field(default=None, repr=False, compare=False)  # see ptx/constants.py
    waits: dict[bool, list[range]] = field(default_factory=dict, repr=False, compare=False)  # see ptx/loops.py
    writes: Any = field(default=None, repr=False, compare=False)  # what it may write through (checks/written.py)
    facts: Any = field(default=None, repr=False, compare=False)  # what a launch need not find out again (decoding.py)

    def param_offset(self, name: str) -> int:
        """Byte offset of a kernel parameter in the parameter buffer (PTX ISA section 5.1.6)."""
        offset = 0
        for param in self.params:
            offset = -(-offset // param.align) * param.align
            if param.name == name:
                return offset
            offset += param.nbytes
        raise KeyError(name)


@dataclass
class Module:
    """A parsed PTX file: kernels, device functions and module-scope variables."""

    version: str = ""
    target: str = ""
    kernels: dict[str, Function] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)

