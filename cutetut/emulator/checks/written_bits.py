"""Which bits of a result have been written, from which bits of the operands have (as Memcheck does, Seward 2005).

A *mark* is a row of the same type as its register; a set bit says that this bit of the register has been written.
Compilers leave parts of registers undefined and then use the other parts only: with `prmt`, masks, shifts, bit
fields, `dp2a`, packed halves, narrow conversions.  An instruction without a rule of its own needs all of every
operand, and its result is written wholly or not at all.
"""

from __future__ import annotations

import itertools
from collections import ChainMap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..machine.lanes import shuffle_sources
from ..machine.machine import storage_dtype
from ..machine.opcodes import Selection, lookup
from ..numbers.logic import LOGIC, three_input
from ..numbers.types import INTEGER
from ..ptx.syntax import BYTES, Immediate, Instruction, Negated, Operand, Pair, Register, Sink, Vector, registers_in

if TYPE_CHECKING:
    from ..machine.machine import Machine

Marks = dict[str, np.ndarray]
Known = Callable[[Selection], list[np.ndarray]]  # of each register that an instruction writes: its mark then


def full(dtype: np.dtype) -> Any:
    """The mark of a register that is written wholly."""
    return np.True_ if dtype.kind == "b" else np.frombuffer(b"\xff" * dtype.itemsize, dtype)[0]


def lowest(nbits: int, dtype: np.dtype) -> Any:
    """The mark of a register whose lowest bits are written."""
    return full(dtype) if dtype.kind == "b" or nbits >= 8 * dtype.itemsize else dtype.type((1 << nbits) - 1)


def covers(mark: np.ndarray, needed: Any) -> np.ndarray:
    """For each thread, whether all needed bits are written."""
    found = np.asarray((mark & needed) == needed)
    return found if found.ndim == 1 else np.asarray(found.all(axis=1))  # a 128-bit register is two columns


@dataclass(frozen=True)
class Sources:
    """One instruction, with the marks of the registers that may be unwritten."""

    inst: Instruction
    machine: Machine
    marks: Marks

    def mark(self, operand: Operand) -> np.ndarray | None:
        """The mark of a plain operand; None for constants and for registers that are always written."""
        register = operand.register if isinstance(operand, Negated) else operand
        return self.marks.get(register.name) if isinstance(register, Register) else None

    def bits(self, operand: Operand, dtype: type) -> Callable[[Selection], np.ndarray]:
        """A getter of the bits of an operand that are written, as this unsigned type."""
        mark = self.mark(operand)
        if mark is None:
            return lambda sel: full(np.dtype(dtype))
        return lambda sel: mark[sel].astype(dtype)

    def whole(self, operands: Iterable[Operand], nbits: int = 64) -> Callable[[Selection], np.ndarray]:
        """A getter of whether the lowest bits of all operands are written."""
        marks = [mark for mark in map(self.mark, operands) if mark is not None]
        needs = [lowest(nbits, mark.dtype) for mark in marks]
        everywhere = np.broadcast_to(np.True_, self.machine.T)
        if not marks:
            return lambda sel: everywhere[sel]
        return lambda sel: reduce(np.logical_and, (covers(m[sel], n) for m, n in zip(marks, needs, strict=True)))

    def results(self) -> list[Register]:
        return list(registers_in(self.inst.operands[:1]))


def known_bits(inst: Instruction, machine: Machine, marks: Marks) -> Known:
    """What an instruction of arithmetic, or a shuffle, makes of the marks of its operands."""
    sources = Sources(inst, machine, marks)
    rule = _RULES.get(inst.parts[0])
    known = rule(sources) if rule is not None else None
    if known is None and inst.parts[-1] in PACKED and inst.parts[0] not in ("setp", "cvt"):
        known = _halves(sources)
    return known or _all_or_nothing(sources)


def _all_or_nothing(s: Sources, nbits: int = 64) -> Known:
    """The result is written if all bits of all operands are, or all their lowest bits."""
    whole = s.whole(registers_in(s.inst.operands[1:]), nbits)
    return _wholly(s, whole)


def _wholly(s: Sources, whole: Callable[[Selection], np.ndarray]) -> Known:
    dtypes = [s.machine.registers[register.name].dtype for register in s.results()]

    def known(sel: Selection) -> list[np.ndarray]:
        written = whole(sel)
        return [np.where(written, full(dtype), dtype.type(0)) for dtype in dtypes]

    return known


# -- rules ----------------------------------------------------------------------------------------

Rule = Callable[[Sources], Known | None]  # None: the instruction is none of those that the rule is about
_RULES: dict[str, Rule] = {}


def _rule(*mnemonics: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(mnemonics, rule))
        return rule

    return register


class _Mirror:
    """Stands in for the machine where an instruction that moves bits is decoded: its data and results are marks."""

    def __init__(self, machine: Machine, rows: dict[str, np.ndarray]) -> None:
        self.machine, self.T = machine, machine.T
        self.registers = ChainMap(rows, machine.registers)

    def source(self, operand: Operand, dtype: np.dtype | type) -> np.ndarray:
        if isinstance(operand, Register):
            row = self.registers[operand.name]
            if not any(row.strides):  # all ones
                return np.broadcast_to(full(np.dtype(dtype)), row.shape)
            return row if row.dtype == dtype else row.view(dtype)[:: row.dtype.itemsize // np.dtype(dtype).itemsize]
        return self.machine.source(operand, dtype)

    def target(self, operand: Operand, dtype: np.dtype | type) -> np.ndarray:
        return np.zeros(self.T, dtype) if isinstance(operand, Sink) else self.source(operand, dtype)

    def predicate(self, operand: Operand) -> Callable[[Selection], np.ndarray]:
        row = self.source(operand.register if isinstance(operand, Negated) else operand, np.bool_)
        return (lambda sel: ~row[sel]) if isinstance(operand, Negated) else (lambda sel: row[sel])

    def register_dtype(self, operand: Register) -> np.dtype:
        return self.registers[operand.name].dtype


# Instructions each bit of whose result is one bit of an operand or a constant, and those of their operands that say
# which: a shift's amount, a selector, a predicate.
_CONTROL: dict[str, tuple[int, ...]] = {
    "mov": (), "brev": (), "cvt": (), "shl": (2,), "shr": (2,), "shf": (3,), "prmt": (3,), "selp": (3,), "slct": (3,),
    "bfe": (2, 3), "bfi": (3, 4), "szext": (2,),
}  # fmt: skip


@_rule("mov", "brev", "shl", "shr", "shf", "prmt", "selp", "slct", "bfe", "bfi", "szext")
def _moves_bits(s: Sources) -> Known:
    """The instruction itself moves the marks.

    Once more it moves ones only: where it gives a zero the bit is none of the operands', but the instruction's own.
    """
    control = _CONTROL[s.inst.parts[0]]
    moved, from_marks = _moving(s, control, lambda register: s.marks.get(register.name))
    ones, from_ones = _moving(s, control, lambda register: None)
    chosen = s.whole(s.inst.operands[position] for position in control)

    def known(sel: Selection) -> list[np.ndarray]:
        moved(sel)
        ones(sel)
        written = chosen(sel)
        return [
            np.where(written if a.ndim == 1 else written[:, None], a[sel] | ~b[sel], a.dtype.type(0))
            for a, b in zip(from_marks, from_ones, strict=True)
        ]

    return known


def _moving(
    s: Sources, control: tuple[int, ...], mark_of: Callable[[Register], np.ndarray | None]
) -> tuple[Callable[[Selection], Any], list[np.ndarray]]:
    """The instruction's step on marks instead of data (all ones where there is none), and the rows of its results."""
    rows: dict[str, np.ndarray] = {}
    results: list[np.ndarray] = []

    def renamed(operand: Operand, is_result: bool) -> Operand:
        if isinstance(operand, Vector):
            return Vector(tuple(renamed(item, is_result) for item in operand.items))
        if isinstance(operand, Sink):
            return operand
        operand = operand.register if isinstance(operand, Negated) else operand
        register = operand if isinstance(operand, Register) else Register("", "b64")
        register = Register(f"{register.name}#{len(rows)}", register.type)
        like = s.machine.registers[operand.name] if isinstance(operand, Register) else np.empty(s.machine.T, np.uint64)
        mark = None if is_result or not isinstance(operand, Register) else mark_of(operand)
        ones = np.broadcast_to(full(like.dtype), like.shape)
        row = np.zeros_like(like) if is_result else ones if mark is None else mark
        rows[register.name] = row
        if is_result:
            results.append(row)
        return register

    operands = tuple(
        operand if position in control else renamed(operand, position == 0)
        for position, operand in enumerate(s.inst.operands)
    )
    inst = replace(s.inst, operands=operands)
    return lookup(inst).decode(inst, cast("Machine", _Mirror(s.machine, rows))), results


@_rule("and", "or", "xor", "not", "lop3")
def _bitwise(s: Sources) -> Known | None:
    """A bit is known if it is the same whatever the unwritten bits of the operands are."""
    first, *rest = s.inst.operands
    name, kind = s.inst.parts[0], s.inst.parts[-1]
    if isinstance(first, Pair):  # lop3 with a predicate, which depends on every bit
        return None
    if name == "lop3":
        function: Callable[..., np.ndarray] = three_input(int(cast(Immediate, rest[3]).value) & 0xFF)
        rest = rest[:3]
    else:
        function = np.bitwise_not if name == "not" else LOGIC[name]
    dtype = storage_dtype(kind).type
    get: list[Callable[[Selection], np.ndarray]] = [
        s.machine.predicate(x) if kind == "pred" else _getter(s.machine.source(x, dtype)) for x in rest
    ]
    bits = [s.bits(x, dtype) for x in rest]

    def known(sel: Selection) -> list[np.ndarray]:
        values, written = [g(sel) for g in get], [b(sel) for b in bits]
        choices = [(v & w, v | ~w) for v, w in zip(values, written, strict=True)]  # unwritten bits all 0, all 1
        results = [function(*chosen) for chosen in itertools.product(*choices)]
        return [~(reduce(np.bitwise_or, results) & ~reduce(np.bitwise_and, results))]

    return known


def _getter(row: np.ndarray) -> Callable[[Selection], np.ndarray]:
    return lambda sel: row[sel]


@_rule("add", "sub", "mul", "mad", "neg")
def _carries_upwards(s: Sources) -> Known | None:
    """Of integer sums and products the low bits depend on the operands' low bits only."""
    parts = s.inst.parts
    if parts[-1] not in INTEGER or {"hi", "wide", "sat", "cc"} & set(parts):
        return None
    dtype = storage_dtype(parts[-1]).type
    bits = [s.bits(x, dtype) for x in s.inst.operands[1:]]
    one = dtype(1)

    def known(sel: Selection) -> list[np.ndarray]:
        written = reduce(np.bitwise_and, [get(sel) for get in bits])
        return [written & ~(written + one)]  # those below the first that is not

    return known


PACKED = {"f16x2": 16, "bf16x2": 16, "u16x2": 16, "s16x2": 16}


def _halves(s: Sources) -> Known | None:
    """Arithmetic on pairs: each half of the result depends on the same halves of the operands."""
    bits = [s.bits(x, np.uint32) for x in registers_in(s.inst.operands[1:])]
    results = s.results()
    if len(results) != 1 or BYTES[results[0].type] != 4:
        return None
    return lambda sel: [_whole_fields(reduce(np.bitwise_and, [get(sel) for get in bits]), np.uint16).view(np.uint32)]


def _whole_fields(bits: np.ndarray, field: type) -> np.ndarray:
    """Of packed fields, all ones where all their bits are and zero elsewhere."""
    fields: np.ndarray = np.ascontiguousarray(bits).view(field)
    return np.where(fields == full(np.dtype(field)), fields, field(0))


_WIDTHS = {"e4m3x2": 16, "e5m2x2": 16, "tf32": 32}


@_rule("cvt")
def _converts(s: Sources) -> Known | None:
    """Integers are cut off or extended; of two floats each makes up a half; others need their type's bits."""
    parts = s.inst.parts
    if parts[1] == "pack":
        return None
    to, source = parts[-2:]
    if to in INTEGER and source in INTEGER and "sat" not in parts:
        return _moves_bits(s)
    if to.endswith("x2") and source == "f32":
        dtype = s.machine.registers[s.results()[0].name].dtype
        upper, lower = (s.whole([x]) for x in s.inst.operands[1:])
        low = lowest(4 * dtype.itemsize, dtype)
        return lambda sel: [
            np.where(upper(sel), ~low, dtype.type(0)) | np.where(lower(sel), low, dtype.type(0)),
        ]
    return _all_or_nothing(s, _WIDTHS[source] if source in _WIDTHS else 8 * BYTES[source])


@_rule("dp2a", "dp4a")
def _dot_product(s: Sources) -> Known:
    """A product is known if both its factors are, or one of them is known to be zero."""
    first, second, addend = s.inst.operands[1:4]
    a_field = np.uint16 if s.inst.parts[0] == "dp2a" else np.uint8
    used = slice(None) if s.inst.parts[0] == "dp4a" else slice(2, 4) if "hi" in s.inst.parts else slice(0, 2)
    get = [(s.machine.source(x, np.uint32), s.bits(x, np.uint32)) for x in (first, second)]
    others = s.whole([addend])

    def known(sel: Selection) -> np.ndarray:
        fields: list[tuple[np.ndarray, np.ndarray]] = []
        for (row, bits), field in zip(get, (a_field, np.uint8), strict=True):
            values = np.ascontiguousarray(row[sel])
            written = np.broadcast_to(bits(sel), values.shape)
            whole = (_whole_fields(written, field) != 0).reshape(len(values), -1)
            zero = (values & written | ~written).view(field).reshape(len(values), -1) == 0
            fields.append((whole, zero))
        (a, a_zero), (b, b_zero) = fields[0], tuple(x[:, used] for x in fields[1])
        products: np.ndarray = ((a & b) | a_zero | b_zero).all(axis=1)
        return products & others(sel)

    return _wholly(s, known)


@_rule("shfl")
def _from_other_lanes(s: Sources) -> Known:
    """shfl d|p, a, ...: what counts is the lane that is read; whether it is in range is always known."""
    result = s.inst.operands[0]
    d, p = (result.first, result.second) if isinstance(result, Pair) else (result, Sink())
    mark, sources = s.mark(s.inst.operands[1]), shuffle_sources(s.inst, s.machine)

    def known(sel: Selection) -> list[np.ndarray]:
        threads = sources(sel)[0]
        flag = [np.ones(len(threads), np.bool_)] if isinstance(p, Register) else []
        if not isinstance(d, Register):
            return flag
        return [np.full(len(threads), full(np.dtype(np.uint32))) if mark is None else mark[threads], *flag]

    return known
