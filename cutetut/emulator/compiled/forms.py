"""From an instruction to its machine code: the rows of its operands, and what is computed between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..machine.arithmetic import Operation, form_of
from ..machine.memory import LOCAL_WINDOW, SHARED_WINDOW
from ..numbers.types import DTYPES, INTEGER
from ..ptx.syntax import Immediate, Instruction, Negated, Operand, Pair, Register, Sink, Special, Symbol, Vector
from . import bits, floats, halves, integers  # noqa: F401  (they fill the table)
from .code import Code, Emit, Value
from .convert import conversion
from .table import BUILDERS

if TYPE_CHECKING:
    from ..machine.machine import Machine


Slot = tuple[Operand, "np.dtype | type"]  # an operand and the type it is seen as


@dataclass
class Bound:
    """targets = emit(sources); `key` names what emit computes, whatever the operands are."""

    key: str
    targets: list[Slot]
    sources: list[Slot]
    emit: Emit


Binder = Callable[[Instruction, "Machine"], "Bound | None"]


def bound(inst: Instruction, machine: Machine) -> Bound | None:
    """An instruction that has machine code; None for any that is left to numpy.

    The instruction has been decoded, so its form is legal.
    """
    special = BINDERS.get(inst.parts[0])
    if special is not None:
        return special(inst, machine)
    form = form_of(inst)
    if form is None:
        return None
    kind, operation = form
    builder = BUILDERS.get((inst.parts[0], kind))
    if builder is None:
        return None
    modifiers = frozenset(inst.parts[1 : -1 - kind.count(".")])
    emit = builder(inst.parts[0], kind, modifiers)
    return None if emit is None else _plain(inst, operation, emit)


def _plain(inst: Instruction, op: Operation, emit: Emit) -> Bound:
    first, *rest = inst.operands
    return Bound(inst.opcode, [(first, op.result)], list(zip(rest, op.sources, strict=True)), emit)


def _condition(operand: Operand) -> tuple[Slot, bool]:
    """%p, !%p or a constant, and whether its values are meant negated."""
    if isinstance(operand, Negated):
        return (operand.register, np.bool_), True
    return (operand, np.bool_), False


def _seen_as(operands: Iterable[Operand], dtype: np.dtype | type) -> list[Slot]:
    return [(operand, dtype) for operand in operands]


def negated(c: Code, value: Value, negate: bool) -> Value:
    return c.op("xor", value, 1) if negate else value


# -- logic on predicates, lop3, prmt ---------------------------------------------------------------


def _logic(inst: Instruction, machine: Machine) -> Bound | None:
    name, kind = inst.parts[0], inst.parts[-1]
    emit = BUILDERS[name, kind](name, kind, frozenset())
    assert emit is not None
    if kind != "pred":
        form = form_of(inst)
        return None if form is None else _plain(inst, form[1], emit)
    conditions = [_condition(x) for x in inst.operands[1:]]
    flips = [flip for _, flip in conditions]

    def with_signs(c: Code, *values: Value) -> Value | tuple[Value, ...]:
        return emit(c, *(negated(c, v, flip) for v, flip in zip(values, flips, strict=True)))

    return Bound(f"{inst.opcode} {flips}", [(inst.operands[0], np.bool_)], [slot for slot, _ in conditions], with_signs)


def _lop3(inst: Instruction, machine: Machine) -> Bound | None:
    table = inst.operands[4]
    if len(inst.parts) > 2 or not isinstance(table, Immediate):
        return None
    number = int(table.value) & 0xFF
    target, *sources = _seen_as(inst.operands[:4], np.uint32)
    return Bound(f"lop3.b32 {number:#x}", [target], sources, bits.three_input(number))


def _prmt(inst: Instruction, machine: Machine) -> Bound | None:
    if len(inst.parts) > 2:
        return None
    target, *sources = _seen_as(inst.operands[:4], np.uint32)
    return Bound("prmt.b32", [target], sources, bits.permute)


# -- comparison and selection ----------------------------------------------------------------------

INTEGER_COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
                       "lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}  # fmt: skip
FLOAT_COMPARISONS = {"eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "equ": "ueq",
                     "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge", "num": "ord",
                     "nan": "uno"}  # fmt: skip


def comparison(parts: tuple[str, ...], kind: str) -> Callable[[Code, Value, Value], Value] | None:
    """The comparison that setp or set makes of two values of a type; None for halves."""
    name = parts[1]
    if kind in ("f32", "f64"):

        def compare(c: Code, a: Value, b: Value) -> Value:
            a, b = (floats.flush(c, v) if "ftz" in parts else v for v in (a, b))
            return c.fcmp(FLOAT_COMPARISONS[name], a, b)

        return compare
    if kind not in INTEGER and kind not in ("b16", "b32", "b64"):
        return None
    how = INTEGER_COMPARISONS[name]
    if how not in ("eq", "ne"):
        how = ("s" if kind[0] == "s" else "u") + how
    return lambda c, a, b: c.icmp(how, a, b)


def _combining(inst: Instruction) -> tuple[str | None, list[Slot], bool]:
    """The boolean operator of setp or set, its predicate, and whether that is negated."""
    operator = next((name for name in ("and", "or", "xor") if name in inst.parts), None)
    if operator is None:
        return None, [], False
    slot, flip = _condition(inst.operands[3])
    return operator, [slot], flip


def _setp(inst: Instruction, machine: Machine) -> Bound | None:
    kind = inst.parts[-1]
    compare = comparison(inst.parts, kind)
    if compare is None:
        return None
    first = inst.operands[0]
    targets = [first.first, first.second] if isinstance(first, Pair) else [first]
    operator, predicate, flip = _combining(inst)

    def emit(c: Code, a: Value, b: Value, *other: Value) -> tuple[Value, ...]:
        result = compare(c, a, b)
        results = [result, c.op("xor", result, 1)][: len(targets)]
        if operator is not None:
            results = [c.op(operator, value, negated(c, other[0], flip)) for value in results]
        return tuple(results)

    sources = [*_seen_as(inst.operands[1:3], DTYPES[kind]), *predicate]
    return Bound(f"{inst.opcode} {len(targets)} {flip}", _seen_as(targets, np.bool_), sources, emit)


def _set(inst: Instruction, machine: Machine) -> Bound | None:
    to, kind = inst.parts[-2:]
    compare = comparison(inst.parts, kind)
    if compare is None or to not in ("u32", "s32", "f32"):
        return None
    operator, predicate, flip = _combining(inst)

    def emit(c: Code, a: Value, b: Value, *other: Value) -> Value:
        result = compare(c, a, b)
        if operator is not None:
            result = c.op(operator, result, negated(c, other[0], flip))
        return c.cast("uitofp", result, "float") if to == "f32" else c.resize(result, 32, signed=True)

    sources = [*_seen_as(inst.operands[1:3], DTYPES[kind]), *predicate]
    return Bound(f"{inst.opcode} {flip}", [(inst.operands[0], DTYPES[to])], sources, emit)


def _selp(inst: Instruction, machine: Machine) -> Bound | None:
    dtype = DTYPES[inst.parts[-1]]
    slot, flip = _condition(inst.operands[3])

    def emit(c: Code, a: Value, b: Value, p: Value) -> Value:
        return c.select(p, b, a) if flip else c.select(p, a, b)

    target, *sources = _seen_as(inst.operands[:3], dtype)
    return Bound(f"{inst.opcode} {flip}", [target], [*sources, slot], emit)


# -- moves and conversions -------------------------------------------------------------------------


def _identity(c: Code, a: Value) -> Value:
    return a


def _mov(inst: Instruction, machine: Machine) -> Bound | None:
    kind = inst.parts[-1]
    d, a = inst.operands
    if kind == "b128":
        return None
    if isinstance(d, Vector):
        return _unpack(machine, d, a, kind)
    if isinstance(a, Vector):
        return _pack(machine, d, a, kind)
    if kind == "pred":
        slot, flip = _condition(a)
        return Bound(f"mov.pred {flip}", [(d, np.bool_)], [slot], lambda c, p: negated(c, p, flip))
    if isinstance(a, Special) and machine.dynamic(a.name) is not None:
        return None
    return Bound("mov", [(d, DTYPES[kind])], [(a, DTYPES[kind])], _identity)


def _unpack(machine: Machine, d: Vector, a: Operand, kind: str) -> Bound | None:
    """mov {d0, d1}, a: equal parts of a register, the lowest first."""
    if not isinstance(a, Register) or machine.register_dtype(a).itemsize != np.dtype(DTYPES[kind]).itemsize:
        return None
    width = int(kind[1:]) // len(d.items)
    chosen = [(i, x) for i, x in enumerate(d.items) if not isinstance(x, Sink)]
    sizes = [8 * machine.register_dtype(x).itemsize for _, x in chosen]
    if any(size < width for size in sizes):
        return None

    def emit(c: Code, value: Value) -> tuple[Value, ...]:
        parts = [c.resize(c.op("lshr", value, width * i) if i else value, width) for i, _ in chosen]
        return tuple(c.resize(part, size) for part, size in zip(parts, sizes, strict=True))

    key = f"mov.{kind} unpack {width} {[i for i, _ in chosen]} {sizes}"
    targets: list[Slot] = [(x, DTYPES[f"b{size}"]) for (_, x), size in zip(chosen, sizes, strict=True)]
    return Bound(key, targets, [(a, DTYPES[kind])], emit)


def _pack(machine: Machine, d: Operand, a: Vector, kind: str) -> Bound | None:
    """mov d, {a0, a1}: a register from its parts, the lowest first."""
    if not isinstance(d, Register) or machine.register_dtype(d).itemsize != np.dtype(DTYPES[kind]).itemsize:
        return None
    whole, width = int(kind[1:]), int(kind[1:]) // len(a.items)

    def emit(c: Code, *parts: Value) -> Value:
        result = c.resize(parts[0], whole)
        for i, part in enumerate(parts[1:], 1):
            result = c.op("or", result, c.op("shl", c.resize(part, whole), width * i))
        return result

    return Bound(f"mov.{kind} pack {width}", [(d, DTYPES[kind])], _seen_as(a.items, DTYPES[f"b{width}"]), emit)


def _cvt(inst: Instruction, machine: Machine) -> Bound | None:
    to, of = inst.parts[-2:]
    found = conversion(to, of, frozenset(inst.parts[1:-2])) if inst.parts[1] != "pack" else None
    if found is None or not isinstance(inst.operands[0], Register | Sink):
        return None
    operation, emit = found
    first, *rest = inst.operands
    sources: list[Slot] = list(zip(rest, operation.sources, strict=True))
    narrow = 8 * np.dtype(operation.result).itemsize
    if isinstance(first, Sink):
        return Bound(inst.opcode, [(first, operation.result)], sources, emit)
    width = 8 * machine.register_dtype(first).itemsize
    if width <= narrow:
        return Bound(inst.opcode, [(first, operation.result)], sources, emit)

    def wide(c: Code, *values: Value) -> Value:
        result = emit(c, *values)
        assert isinstance(result, Value)
        return c.resize(c.bits(result), width, signed=to in INTEGER and to[0] == "s")

    return Bound(f"{inst.opcode} {width}", [(first, DTYPES[f"u{width}"])], sources, wide)


def _cvta(inst: Instruction, machine: Machine) -> Bound | None:
    """Between a space's own addresses and generic ones: the windows of memory.py."""
    back = inst.parts[1] == "to"
    space = inst.parts[2 if back else 1].split("::")[0]
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space, 0)
    d, a = inst.operands
    if not isinstance(a, Register | Symbol):
        return None

    def emit(c: Code, value: Value) -> Value:
        return c.op("sub" if back else "add", value, window)

    return Bound(f"cvta {back} {window:#x}", [(d, np.uint64)], [(a, np.uint64)], emit)


BINDERS: dict[str, Binder] = {
    "and": _logic, "or": _logic, "xor": _logic, "not": _logic, "lop3": _lop3, "prmt": _prmt, "setp": _setp,
    "set": _set, "selp": _selp, "mov": _mov, "cvt": _cvt, "cvta": _cvta,
}  # fmt: skip
