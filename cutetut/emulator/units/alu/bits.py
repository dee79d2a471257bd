"""Logic, shifts, bit counts, bit fields, byte permutation (PTX ISA 9.7.1.14 to 9.7.1.22, 9.7.8, 9.7.9.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...machine.arithmetic import Modifiers, Operation
from ...machine.opcodes import Selection, Step, unsupported
from ...numbers.logic import LOGIC, three_input
from ...numbers.types import DTYPES
from ...ptx.syntax import Immediate, Operand, Pair
from .forms import assign, bind, check_modifiers, decode, form, functions, operands
from .forms import same_type as same

if TYPE_CHECKING:
    from ...machine.machine import Machine
    from ...ptx.syntax import Instruction

u32 = np.uint32
FUNNEL_BITS = np.uint64(32)


# -- 9.7.8.1 to 9.7.8.5: logic ---------------------------------------------------------------------

functions({**LOGIC}, "b16 b32 b64", 2)
functions({"not": np.bitwise_not, "cnot": lambda a: (a == 0).astype(a.dtype)}, "b16 b32 b64", 1)


def decode_logic(inst: Instruction, machine: Machine) -> Step:
    """and, or, xor and not; on predicates they take !p operands and constants."""
    if inst.parts[-1] != "pred" or inst.parts[0] == "cnot":
        return decode(inst, machine)
    check_modifiers(inst, "", inst.parts[1:-1])
    unary = inst.parts[0] == "not"
    first, *rest = operands(inst, 2 if unary else 3)
    d = machine.target(first, np.bool_)
    getters = [machine.predicate(x) for x in rest]
    if unary:
        return _assign_from(d, lambda sel: ~getters[0](sel))
    function = LOGIC[inst.parts[0]]
    return _assign_from(d, lambda sel: function(getters[0](sel), getters[1](sel)))


def _assign_from(d: np.ndarray, value: Callable[[Selection], np.ndarray]) -> Step:
    def step(sel: Selection) -> None:
        d[sel] = value(sel)

    return step


# -- 9.7.8.6: any function of three bits -----------------------------------------------------------

def decode_lop3(inst: Instruction, machine: Machine) -> Step:
    """lop3.b32 d, a, b, c, table; with a boolean operator also the predicate (d != 0) op q."""
    present = check_modifiers(inst, "and|or", inst.parts[1:-1])
    if inst.parts[-1] != "b32":
        raise unsupported(inst, "lop3 is emulated for .b32")
    first, *sources = operands(inst, 6 if present else 5)
    table = sources[3]
    if not isinstance(table, Immediate):
        raise unsupported(inst, "the table must be a constant")
    function = three_input(int(table.value) & 0xFF)
    rows = [machine.source(x, u32) for x in sources[:3]]
    if not present:
        return assign(machine.target(first, u32), function, rows)
    if not isinstance(first, Pair):
        raise unsupported(inst, "the result must be d|p")
    d, p = machine.target(first.first, u32), machine.target(first.second, np.bool_)
    combine, q = LOGIC[next(iter(present))], machine.predicate(sources[4])

    def step(sel: Selection) -> None:
        result = function(*(row[sel] for row in rows))
        other = q(sel)
        d[sel] = result
        p[sel] = combine(result != 0, other)

    return step


# -- 9.7.8.7 to 9.7.8.9: shifts --------------------------------------------------------------------


@form("shl", "b16 b32 b64")
@form("shr", "b16 b32 b64 u16 u32 u64 s16 s32 s64")
def _shift(name: str, kind: str, m: Modifiers) -> Operation:
    """Amounts beyond the width shift everything out, which is what numpy's shifts do too.

    The amount is seen as signed beside a signed value, so that numpy need not widen both; numpy
    takes a negative amount, 2**31 and more, as beyond the width.
    """
    dtype = DTYPES[kind]
    amount = np.int32 if kind[0] == "s" else np.uint32
    return Operation(dtype, (dtype, amount), np.left_shift if name == "shl" else np.right_shift)


@form("shf", "b32", "l|r! wrap|clamp!")
def _funnel(name: str, kind: str, m: Modifiers) -> Operation:
    """Shift the 64 bits b:a left and keep the upper half, or right and keep the lower half."""
    clamped, left = "clamp" in m, "l" in m

    def compute(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        both = (b.astype(np.uint64) << FUNNEL_BITS) | a
        n = np.minimum(c, u32(32)) if clamped else c & u32(31)
        return ((both << n) >> FUNNEL_BITS if left else both >> n).astype(u32)

    return same(kind, 3, compute)


# -- 9.7.1.14 to 9.7.1.18: counting and finding ----------------------------------------------------


def smear(x: np.ndarray) -> np.ndarray:
    """Every bit below the highest set bit set too."""
    shift = 1
    while shift < 8 * x.dtype.itemsize:
        x = x | x >> shift
        shift *= 2
    return x


def count_bits(x: np.ndarray) -> np.ndarray:
    return np.bitwise_count(x)


def leading_zeros(x: np.ndarray) -> np.ndarray:
    """The number of zero bits above the highest set bit; the width for zero."""
    return 8 * x.dtype.itemsize - np.bitwise_count(smear(x)).astype(u32)


def reverse_bits(x: np.ndarray) -> np.ndarray:
    """Bit 0 to the top: the bytes in reverse order, each reversed by table."""
    reversed_bytes = _REVERSED[np.ascontiguousarray(x).view(np.uint8)].reshape(len(x), -1)[:, ::-1]
    return np.ascontiguousarray(reversed_bytes).view(x.dtype).ravel()


_REVERSED = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)], np.uint8)


@form("popc clz", "b32 b64")
def _count(name: str, kind: str, m: Modifiers) -> Operation:
    return Operation(u32, (DTYPES[kind],), count_bits if name == "popc" else leading_zeros)


functions({"brev": reverse_bits}, "b32 b64", 1)


@form("bfind", "u32 s32 u64 s64", "shiftamt")
def _find_highest(name: str, kind: str, m: Modifiers) -> Operation:
    """The position of the highest bit that differs from the sign, or how far it is from the top; -1 if none."""
    dtype, unsigned = DTYPES[kind], DTYPES[f"u{kind[1:]}"]
    width = 8 * np.dtype(dtype).itemsize

    def compute(a: np.ndarray) -> np.ndarray:
        if kind[0] == "s":
            a = np.where(a < 0, ~a, a).view(unsigned)
        zeros = leading_zeros(a)
        return np.where(a == 0, u32(0xFFFFFFFF), zeros if "shiftamt" in m else (width - 1) - zeros)

    return Operation(u32, (dtype,), compute)


@form("fns", "b32")
def _find_nth_set(name: str, kind: str, m: Modifiers) -> Operation:
    """The n-th set bit from a base position, upwards for n > 0, downwards for n < 0, the base itself for 0."""

    def compute(mask: np.ndarray, base: np.ndarray, offset: np.ndarray) -> np.ndarray:
        found = np.full(mask.shape, 0xFFFFFFFF, u32)
        step = np.where(offset < 0, -1, 1)
        left = np.where(offset == 0, 1, np.abs(offset.astype(np.int64)))
        position = base.astype(np.int64)
        for distance in range(32):
            inside = (position >= 0) & (position < 32) & ((offset != 0) | (distance == 0))
            is_set = inside & ((mask >> np.clip(position, 0, 31).astype(u32)) & 1 == 1)
            left = left - is_set
            found = np.where(is_set & (left == 0), position.astype(u32), found)
            position = position + step
        return found

    return Operation(u32, (u32, u32, np.int32), compute)


# -- 9.7.1.19 to 9.7.1.22: bit fields --------------------------------------------------------------


def ones(count: np.ndarray, dtype: type) -> np.ndarray:
    """That many low bits set; all for the width or more."""
    width = 8 * np.dtype(dtype).itemsize
    return ~np.left_shift(~dtype(0), np.minimum(count, u32(width)), dtype=dtype)


def field_bounds(position: np.ndarray, length: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers bfe and bfi go by: modulo 256 for 32 bits, unchanged but cut at 256 for 64 (see bfe)."""
    if width == 32:
        return position & u32(0xFF), length & u32(0xFF)
    return np.minimum(position, u32(256)), np.minimum(length, u32(256))


@form("bfe", "u32 s32 u64 s64")
def _extract(name: str, kind: str, m: Modifiers) -> Operation:
    """Bits pos..pos+len-1, zero or sign extended; beyond the top a signed field repeats the sign.

    The ISA takes pos and len modulo 256, and so do the 32-bit forms.  The 64-bit forms shift by the whole of them:
    seen on an H200 for len 0x100, which takes in all bits; the assembler makes shifts and masks of bfe.64 and bfi.64.
    """
    signed, unsigned = kind[0] == "s", DTYPES[f"u{kind[1:]}"]
    width = int(kind[1:])

    def compute(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        position, length = field_bounds(b, c, width)
        available = np.minimum(length, width - np.minimum(position, u32(width)))
        mask = ones(available, unsigned)
        field = np.right_shift(a, position, dtype=unsigned) & mask
        if not signed:
            return field
        top = np.minimum(position + length - u32(1), u32(width - 1))
        negative = (np.right_shift(a, top, dtype=unsigned) & unsigned(1) == 1) & (length != 0)
        return np.where(negative, field | ~mask, field)

    return Operation(unsigned, (unsigned, u32, u32), compute)


@form("bfi", "b32 b64")
def _insert(name: str, kind: str, m: Modifiers) -> Operation:
    """b with bits pos..pos+len-1 replaced by the low bits of a; pos and len count as in bfe."""
    dtype, width = DTYPES[kind], int(kind[1:])

    def compute(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
        position, length = field_bounds(c, d, width)
        mask = np.left_shift(ones(length, dtype), position, dtype=dtype)
        return (b & ~mask) | (np.left_shift(a, position, dtype=dtype) & mask)

    return Operation(dtype, (dtype, dtype, u32, u32), compute)


@form("bmsk", "b32", "wrap|clamp!")
def _mask(name: str, kind: str, m: Modifiers) -> Operation:
    """A run of set bits from a position on, cut off at the top."""
    wrap = "wrap" in m

    def compute(position: np.ndarray, length: np.ndarray) -> np.ndarray:
        if wrap:
            position, length = position & u32(31), length & u32(31)
        return np.left_shift(ones(length, u32), np.minimum(position, u32(32)))

    return same(kind, 2, compute)


@form("szext", "u32 s32", "wrap|clamp!")
def _extend(name: str, kind: str, m: Modifiers) -> Operation:
    """The low bits of a, zero or sign extended; a itself for a clamped size of 32 or more."""
    wrap, signed = "wrap" in m, kind == "s32"

    def compute(a: np.ndarray, size: np.ndarray) -> np.ndarray:
        size = size & u32(31) if wrap else np.minimum(size, u32(32))
        mask = ones(size, u32)
        field = a & mask
        if not signed:
            return field
        negative = (a >> ((size - u32(1)) & u32(31)) & u32(1) == 1) & (size != 0)
        return np.where(negative, field | ~mask, field)

    return same("u32", 2, compute)


# -- 9.7.9.7: permute bytes ------------------------------------------------------------------------

PERMUTE_MODES = {  # selector 0..3 -> source bytes of the result, highest first
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}


def permute(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Each nibble of c picks one of the bytes b:a, or with its top bit set eight copies of that byte's sign."""
    both = (b.astype(np.uint64) << FUNNEL_BITS) | a
    result = np.zeros(both.shape, u32)
    for i in range(4):
        nibble = c >> u32(4 * i)
        byte = (both >> (u32(8) * (nibble & u32(7)))).astype(u32) & u32(0xFF)
        sign = np.where(byte & u32(0x80), u32(0xFF), u32(0))
        result |= np.where(nibble & u32(8), sign, byte) << u32(8 * i)
    return result


def permute_constant(selector: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray] | None:
    """permute for a selector known in advance, as shifts and masks; None if it copies signs."""
    moves: dict[tuple[int, int], int] = {}  # (source, bits to shift left) -> mask of the result
    for i in range(4):
        nibble = selector >> 4 * i & 0xF
        if nibble & 8:
            return None
        move = (nibble >> 2, 8 * (i - (nibble & 3)))
        moves[move] = moves.get(move, 0) | 0xFF << 8 * i

    def compute(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        pieces = [_moved((a, b)[source], shift, mask) for (source, shift), mask in moves.items()]
        result = pieces[0]
        for piece in pieces[1:]:
            result = result | piece
        return result

    return compute


def _moved(x: np.ndarray, shift: int, mask: int) -> np.ndarray:
    shifted = x << u32(shift) if shift > 0 else x >> u32(-shift) if shift < 0 else x
    reach = (0xFFFFFFFF << shift & 0xFFFFFFFF) if shift >= 0 else 0xFFFFFFFF >> -shift
    return shifted if mask == reach else shifted & u32(mask)


def decode_prmt(inst: Instruction, machine: Machine) -> Step:
    """prmt.b32{.mode} d, a, b, c: the mode stands behind the type."""
    mode = inst.parts[2] if len(inst.parts) == 3 else ""
    if inst.parts[1] != "b32" or len(inst.parts) > 3 or (mode and mode not in PERMUTE_MODES):
        raise unsupported(inst, f"the forms are prmt.b32 and prmt.b32 with one of {', '.join(PERMUTE_MODES)}")
    selector: Operand = operands(inst, 4)[3]
    if mode:
        table = np.array([int(digits, 16) for digits in PERMUTE_MODES[mode]], u32)
        return bind(inst, machine, same("b32", 3, lambda a, b, c: permute(a, b, table[c & u32(3)])))
    if isinstance(selector, Immediate):
        constant = permute_constant(int(selector.value) & 0xFFFF)
        if constant is not None:
            rows = [machine.source(x, u32) for x in inst.operands[1:3]]
            return assign(machine.target(inst.operands[0], u32), constant, rows)
    return bind(inst, machine, same("b32", 3, permute))
