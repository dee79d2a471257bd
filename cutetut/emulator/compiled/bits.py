"""Machine code of logic, shifts and bit fields, the counterpart of units/alu/bits.py."""

from __future__ import annotations

from ..machine.arithmetic import Modifiers
from .code import Code, Emit, Value, constant
from .integers import is_signed
from .table import emits


@emits("and or xor", "b16 b32 b64 pred")
def _logic(name: str, kind: str, m: Modifiers) -> Emit | None:
    return lambda c, a, b: c.op(name, a, b)


@emits("not", "b16 b32 b64 pred")
def _not(name: str, kind: str, m: Modifiers) -> Emit | None:
    return lambda c, a: c.op("xor", a, -1)


@emits("cnot", "b16 b32 b64")
def _cnot(name: str, kind: str, m: Modifiers) -> Emit | None:
    return lambda c, a: c.resize(c.icmp("eq", a, 0), a.bits)


# -- shifts ----------------------------------------------------------------------------------------


def shift(c: Code, how: str, a: Value, amount: Value) -> Value:
    """shl, lshr or ashr by any amount: what is shifted beyond the width is gone, and the sign fills it in."""
    width = a.bits
    if how == "ashr":
        return c.op(how, a, c.resize(c.call("umin", amount, width - 1), width))
    inside = c.icmp("ult", amount, width)
    return c.select(inside, c.op(how, a, c.resize(c.op("and", amount, width - 1), width)), 0)


@emits("shl", "b16 b32 b64")
@emits("shr", "b16 b32 b64 u16 u32 u64 s16 s32 s64")
def _shift(name: str, kind: str, m: Modifiers) -> Emit | None:
    how = "shl" if name == "shl" else "ashr" if is_signed(kind) else "lshr"
    return lambda c, a, b: shift(c, how, a, b)


@emits("shf", "b32")
def _funnel(name: str, kind: str, m: Modifiers) -> Emit | None:
    def emit(c: Code, a: Value, b: Value, amount: Value) -> Value:
        both = c.op("or", c.op("shl", c.resize(b, 64), 32), c.resize(a, 64))
        n = c.resize(c.call("umin", amount, 32) if "clamp" in m else c.op("and", amount, 31), 64)
        if "l" in m:
            return c.resize(c.op("lshr", c.op("shl", both, n), 32), 32)
        return c.resize(c.op("lshr", both, n), 32)

    return emit


# -- counting and finding --------------------------------------------------------------------------


@emits("popc clz", "b32 b64")
def _count(name: str, kind: str, m: Modifiers) -> Emit | None:
    if name == "popc":
        return lambda c, a: c.resize(c.call("ctpop", a), 32)
    return lambda c, a: c.resize(c.call("ctlz", a, flag="false"), 32)


@emits("brev", "b32 b64")
def _reverse(name: str, kind: str, m: Modifiers) -> Emit | None:
    return lambda c, a: c.call("bitreverse", a)


@emits("bfind", "u32 s32 u64 s64")
def _find_highest(name: str, kind: str, m: Modifiers) -> Emit | None:
    def emit(c: Code, a: Value) -> Value:
        if is_signed(kind):
            a = c.op("xor", a, c.op("ashr", a, a.bits - 1))  # ~a where negative
        zeros = c.resize(c.call("ctlz", a, flag="false"), 32)
        found = zeros if "shiftamt" in m else c.op("xor", zeros, a.bits - 1)
        return c.select(c.icmp("eq", a, 0), -1, found)

    return emit


# -- bit fields ------------------------------------------------------------------------------------


def ones(c: Code, count: Value, width: int) -> Value:
    """That many low bits set, as an integer of the width; all for the width or more."""
    return c.op("xor", shift(c, "shl", constant(-1, f"i{width}"), count), -1)


def field_bounds(c: Code, position: Value, length: Value, width: int) -> tuple[Value, Value]:
    if width == 32:
        return c.op("and", position, 0xFF), c.op("and", length, 0xFF)
    return c.call("umin", position, 256), c.call("umin", length, 256)


@emits("bfe", "u32 s32 u64 s64")
def _extract(name: str, kind: str, m: Modifiers) -> Emit | None:
    width = int(kind[1:])

    def emit(c: Code, a: Value, b: Value, count: Value) -> Value:
        position, length = field_bounds(c, b, count, width)
        room = c.op("sub", constant(width, "i32"), c.call("umin", position, width))
        mask = ones(c, c.call("umin", length, room), width)
        field = c.op("and", shift(c, "lshr", a, position), mask)
        if not is_signed(kind):
            return field
        top = c.call("umin", c.op("sub", c.op("add", position, length), 1), width - 1)
        sign = c.icmp("ne", c.op("and", shift(c, "lshr", a, top), 1), 0)
        negative = c.op("and", sign, c.icmp("ne", length, 0))
        return c.select(negative, c.op("or", field, c.op("xor", mask, -1)), field)

    return emit


@emits("bfi", "b32 b64")
def _insert(name: str, kind: str, m: Modifiers) -> Emit | None:
    width = int(kind[1:])

    def emit(c: Code, a: Value, b: Value, start: Value, count: Value) -> Value:
        position, length = field_bounds(c, start, count, width)
        mask = shift(c, "shl", ones(c, length, width), position)
        kept = c.op("and", b, c.op("xor", mask, -1))
        return c.op("or", kept, c.op("and", shift(c, "shl", a, position), mask))

    return emit


@emits("bmsk", "b32")
def _mask(name: str, kind: str, m: Modifiers) -> Emit | None:
    def emit(c: Code, position: Value, length: Value) -> Value:
        if "wrap" in m:
            position, length = c.op("and", position, 31), c.op("and", length, 31)
        return shift(c, "shl", ones(c, length, 32), position)

    return emit


@emits("szext", "u32 s32")
def _extend(name: str, kind: str, m: Modifiers) -> Emit | None:
    def emit(c: Code, a: Value, size: Value) -> Value:
        size = c.op("and", size, 31) if "wrap" in m else c.call("umin", size, 32)
        mask = ones(c, size, 32)
        field = c.op("and", a, mask)
        if not is_signed(kind):
            return field
        sign = c.op("lshr", a, c.op("and", c.op("sub", size, 1), 31))
        negative = c.op("and", c.icmp("ne", c.op("and", sign, 1), 0), c.icmp("ne", size, 0))
        return c.select(negative, c.op("or", field, c.op("xor", mask, -1)), field)

    return emit


# -- any function of three bits, and bytes ---------------------------------------------------------


def three_input(table: int) -> Emit:
    """Bit 4a+2b+c of the table: each set bit is one term."""

    def emit(c: Code, x: Value, y: Value, z: Value) -> Value:
        inverse = {v: c.op("xor", v, -1) for v in (x, y, z)}
        result = c.op("and", x, 0)
        for row in range(8):
            if table >> row & 1:
                a, b, last = (v if row & bit else inverse[v] for v, bit in ((x, 4), (y, 2), (z, 1)))
                result = c.op("or", result, c.op("and", c.op("and", a, b), last))
        return result

    return emit


def permute(c: Code, a: Value, b: Value, selector: Value) -> Value:
    """Each nibble picks one of the bytes b:a, or with its top bit set eight copies of that byte's sign."""
    both = c.op("or", c.op("shl", c.resize(b, 64), 32), c.resize(a, 64))
    result: Value | None = None
    for i in range(4):
        nibble = c.op("lshr", selector, 4 * i)
        amount = c.resize(c.op("shl", c.op("and", nibble, 7), 3), 64)
        byte = c.op("and", c.resize(c.op("lshr", both, amount), 32), 0xFF)
        sign = c.select(c.icmp("ne", c.op("and", byte, 0x80), 0), c.op("or", byte, 0xFF), 0)
        copies = c.icmp("ne", c.op("and", nibble, 8), 0)
        piece = c.op("shl", c.select(copies, sign, byte), 8 * i)
        result = piece if result is None else c.op("or", result, piece)
    assert result is not None
    return result
