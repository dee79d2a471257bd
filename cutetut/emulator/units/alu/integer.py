"""Integer arithmetic (PTX ISA sections 9.7.1 and 9.7.2).

Two's complement wraps as numpy's integers do.  Where the ISA leaves a result unspecified the
functions give what Hopper's code sequences give: dividing by zero sets all bits, for the remainder too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...machine.arithmetic import Modifiers, Operation
from ...machine.opcodes import Selection, Step, unsupported
from ...numbers.types import DTYPES, INTEGER
from .forms import IllegalForm, check_modifiers, form, functions, operands, same_type

if TYPE_CHECKING:
    from ...machine.machine import Machine
    from ...ptx.syntax import Instruction

WIDE: dict[str, type] = {"u16": np.uint32, "s16": np.int32, "u32": np.uint64, "s32": np.int64}
ALL = "u16 s16 u32 s32 u64 s64"


# -- 9.7.1.1 to 9.7.1.7: add, subtract, multiply ---------------------------------------------------


def clamp(x: np.ndarray, dtype: type) -> np.ndarray:
    """A wider integer limited to the range of dtype."""
    info = np.iinfo(dtype)
    return np.clip(x, info.min, info.max).astype(dtype)


@form("add sub", "u16 s16 u32 u64 s64")
@form("add sub", "s32", "sat")
def _add(name: str, kind: str, m: Modifiers) -> Operation:
    function = np.add if name == "add" else np.subtract
    if "sat" in m:
        return same_type(kind, 2, lambda a, b: clamp(function(a, b, dtype=np.int64), np.int32))
    return same_type(kind, 2, function)


def halves(function: np.ufunc, dtype: type, relu: bool = False) -> Operation:
    """Apply a function to the two 16-bit halves of 32-bit registers."""

    def compute(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        result = function(split(a, dtype), split(b, dtype))
        return (np.maximum(result, dtype(0)) if relu else result).view(np.uint32)

    return Operation(np.uint32, (np.uint32, np.uint32), compute)


def split(x: np.ndarray, dtype: type) -> np.ndarray:
    """Packed registers as twice as many narrow values, low half first."""
    return np.ascontiguousarray(x).view(dtype)


@form("add", "u16x2 s16x2")
def _add_packed(name: str, kind: str, m: Modifiers) -> Operation:
    return halves(np.add, INTEGER[kind[:-2]])


def multiply_high(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The upper half of the product of two integers of one type."""
    bits = 8 * a.dtype.itemsize
    if bits < 64:
        wide = WIDE[f"{a.dtype.kind.replace('i', 's')}{bits}"]
        return (np.multiply(a, b, dtype=wide) >> bits).astype(a.dtype)
    x, y = a.view(np.uint64), b.view(np.uint64)
    low32 = np.uint64(0xFFFFFFFF)
    x0, x1, y0, y1 = x & low32, x >> 32, y & low32, y >> 32
    middle = x1 * y0 + (x0 * y0 >> 32)
    other = x0 * y1 + (middle & low32)
    high = x1 * y1 + (middle >> 32) + (other >> 32)
    if a.dtype.kind == "i":
        high -= np.where(a < 0, y, 0) + np.where(b < 0, x, 0)
    return high.view(a.dtype)


def multiply_wide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The whole product, twice as wide."""
    wide = WIDE[f"{a.dtype.kind.replace('i', 's')}{8 * a.dtype.itemsize}"]
    return np.multiply(a, b, dtype=wide)


@form("mul", "u16 s16 u32 s32", "lo|hi|wide!")
@form("mul", "u64 s64", "lo|hi!")
def _mul(name: str, kind: str, m: Modifiers) -> Operation:
    dtype = DTYPES[kind]
    if "wide" in m:
        return Operation(WIDE[kind], (dtype, dtype), multiply_wide)
    return same_type(kind, 2, np.multiply if "lo" in m else multiply_high)


@form("mad", "u16 s16 u32", "lo|hi|wide!")
@form("mad", "s32", "lo|hi|wide! sat")
@form("mad", "u64 s64", "lo|hi!")
def _mad(name: str, kind: str, m: Modifiers) -> Operation:
    dtype = DTYPES[kind]
    if "sat" in m:
        if "hi" not in m:
            raise IllegalForm(".sat needs .hi")
        return same_type(kind, 3, _mad_high_saturated)
    if "wide" in m:
        return Operation(WIDE[kind], (dtype, dtype, WIDE[kind]), lambda a, b, c: multiply_wide(a, b) + c)
    if "lo" in m:
        return same_type(kind, 3, lambda a, b, c: a * b + c)
    return same_type(kind, 3, lambda a, b, c: multiply_high(a, b) + c)


def _mad_high_saturated(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return clamp((np.multiply(a, b, dtype=np.int64) >> 32) + c, np.int32)


def multiply24(a: np.ndarray, b: np.ndarray, high: bool) -> np.ndarray:
    """Bits 47..16 or 31..0 of the 48-bit product of the low 24 bits."""
    x, y = (np.right_shift(np.left_shift(v, 8), 8) for v in (a, b))  # sign or zero extend bit 23
    product = multiply_wide(x, y)
    return (product >> 16 if high else product).astype(a.dtype)


@form("mul24", "u32 s32", "lo|hi!")
@form("mad24", "u32", "lo|hi!")
@form("mad24", "s32", "lo|hi! sat")
def _mul24(name: str, kind: str, m: Modifiers) -> Operation:
    high = "hi" in m
    if name == "mul24":
        return same_type(kind, 2, lambda a, b: multiply24(a, b, high))
    if "sat" in m:
        if not high:
            raise IllegalForm(".sat needs .hi")
        return same_type(kind, 3, lambda a, b, c: clamp(multiply24(a, b, high).astype(np.int64) + c, np.int32))
    return same_type(kind, 3, lambda a, b, c: multiply24(a, b, high) + c)


def absolute_difference_sum(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """c + |a - b|"""
    return c + np.where(a < b, b - a, a - b)


functions({"sad": absolute_difference_sum}, ALL, 3)


# -- 9.7.1.8 to 9.7.1.13: divide, sign, compare ----------------------------------------------------


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The quotient truncated toward zero; all bits set where b is zero."""
    quotient = np.floor_divide(a, b)
    if a.dtype.kind == "i":
        quotient += ((a < 0) != (b < 0)) & (quotient * b != a)
    return np.where(b == 0, ~a.dtype.type(0), quotient)


def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The remainder of `divide`, with the sign of a; all bits set where b is zero."""
    return np.where(b == 0, ~a.dtype.type(0), np.fmod(a, b))


functions({"div": divide, "rem": remainder}, ALL, 2)
functions({"abs": np.abs, "neg": np.negative}, "s16 s32 s64", 1)
functions({"min": np.minimum, "max": np.maximum}, "u16 s16 u32 u64 s64", 2)


@form("min max", "s32", "relu")
def _min_max(name: str, kind: str, m: Modifiers) -> Operation:
    function = np.minimum if name == "min" else np.maximum
    if "relu" in m:
        return same_type(kind, 2, lambda a, b: np.maximum(function(a, b), np.int32(0)))
    return same_type(kind, 2, function)


@form("min max", "u16x2")
@form("min max", "s16x2", "relu")
def _min_max_packed(name: str, kind: str, m: Modifiers) -> Operation:
    return halves(np.minimum if name == "min" else np.maximum, INTEGER[kind[:-2]], "relu" in m)


# -- 9.7.1.23, 9.7.1.24: dot products of packed bytes ----------------------------------------------


@form("dp4a", "u32.u32 u32.s32 s32.u32 s32.s32")
def _dp4a(name: str, kind: str, m: Modifiers) -> Operation:
    a_byte, b_byte = _packed_types(kind, ("8", "8"))

    def compute(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        products = split(a, a_byte).astype(np.int32) * split(b, b_byte).astype(np.int32)
        return c + products.reshape(-1, 4).sum(axis=1, dtype=np.int32).view(np.uint32)

    return same_type("u32", 3, compute)


@form("dp2a", "u32.u32 u32.s32 s32.u32 s32.s32", "lo|hi!")
def _dp2a(name: str, kind: str, m: Modifiers) -> Operation:
    a_half, b_byte = _packed_types(kind, ("16", "8"))
    pair = slice(2, 4) if "hi" in m else slice(0, 2)

    def compute(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        bytes_of_b = split(b, b_byte).reshape(-1, 4)[:, pair].astype(np.int32)
        products = split(a, a_half).reshape(-1, 2).astype(np.int32) * bytes_of_b
        return c + products.sum(axis=1, dtype=np.int32).view(np.uint32)

    return same_type("u32", 3, compute)


def _packed_types(kind: str, widths: tuple[str, str]) -> tuple[type, type]:
    a, b = kind.split(".")
    return INTEGER[a[0] + widths[0]], INTEGER[b[0] + widths[1]]


# -- 9.7.2: extended precision, with a carry in the hidden register CC.CF --------------------------


def carry_row(machine: Machine) -> np.ndarray:
    """CC.CF of every thread, a register that no PTX text can name."""
    return machine.registers.setdefault("CC.CF", np.zeros(machine.T, np.bool_))


def decode_extended(inst: Instruction, machine: Machine) -> Step:
    """add.cc, addc, sub.cc, subc, mad.cc and madc: a result, a carry in and a carry out."""
    base, kind = inst.parts[0], inst.parts[-1]
    if kind not in ("u32", "s32", "u64", "s64"):
        raise unsupported(inst, "extended precision is for 32- and 64-bit integers")
    product = base.startswith("mad")
    present = check_modifiers(inst, ("lo|hi! " if product else "") + "cc", inst.parts[1:-1])
    dtype = DTYPES[kind]
    d = machine.target(operands(inst, 4 if product else 3)[0], dtype)
    rows = [machine.source(x, dtype) for x in inst.operands[1:]]
    carry = carry_row(machine)
    unsigned: np.dtype = np.dtype(DTYPES[f"u{kind[1:]}"])
    takes, gives, high = base.endswith("c"), "cc" in present, "hi" in present

    def step(sel: Selection) -> None:
        values = [row[sel] for row in rows]
        if product:
            values[:2] = [multiply_high(values[0], values[1]) if high else values[0] * values[1]]
        a, b = values[0].view(unsigned), values[1].view(unsigned)
        carried = carry[sel] if takes else np.False_
        result, out = (borrow_subtract if base.startswith("sub") else carry_add)(a, b, carried)
        d[sel] = result.view(dtype)
        if gives:
            carry[sel] = out

    return step


def carry_add(a: np.ndarray, b: np.ndarray, carry: np.ndarray | np.bool_) -> tuple[np.ndarray, np.ndarray]:
    """a + b + carry of unsigned integers, and whether it overflowed."""
    part = a + b
    total = part + carry
    return total, (part < a) | (total < part)


def borrow_subtract(a: np.ndarray, b: np.ndarray, borrow: np.ndarray | np.bool_) -> tuple[np.ndarray, np.ndarray]:
    """a - b - borrow of unsigned integers, and whether it went below zero."""
    part = a - b
    total = part - borrow.astype(a.dtype)
    return total, (a < b) | (part < total)
