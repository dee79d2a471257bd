"""LLVM's textual language for a loop over threads: values are vectors with one element per thread."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

LANES = 16  # threads that one vector holds; every register row has a multiple of 32
FLOATS = {"half": 16, "float": 32, "double": 64}


@dataclass(frozen=True)
class Value:
    """A vector by its name in the text; `kind` is the element: i1, i8, i16, i32, i64, i128, half, float, double."""

    name: str
    kind: str

    @property
    def bits(self) -> int:
        return FLOATS.get(self.kind) or int(self.kind[1:])

    @property
    def type(self) -> str:
        return vector(self.kind)


Operand = Value | int | float
Emit = Callable[..., "Value | tuple[Value, ...]"]  # of the code and the sources


def vector(kind: str) -> str:
    """The vector type of a kind of element."""
    return f"<{LANES} x {kind}>"


def kind_of(dtype: np.dtype) -> str:
    """The kind of element that a row's values are; integers have no sign, predicates have one bit."""
    if dtype.kind == "b":
        return "i1"
    if dtype.kind == "f":
        return {4: "float", 8: "double"}[dtype.itemsize]
    return f"i{8 * dtype.itemsize}"


class Code:
    """Collects the instructions of one loop body, and the intrinsics they call."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.intrinsics: set[str] = set()
        self.count = 0

    def add(self, text: str, kind: str) -> Value:
        """An instruction that gives a vector."""
        self.count += 1
        self.lines.append(f"%v{self.count} = {text}")
        return Value(f"%v{self.count}", kind)

    def op(self, name: str, a: Value, b: Operand) -> Value:
        """A binary operation of two values of one kind."""
        return self.add(f"{name} {a.type} {a.name}, {literal(b, a.kind)}", a.kind)

    def icmp(self, how: str, a: Value, b: Operand) -> Value:
        """Compare integers: eq, ne, ult, ule, ugt, uge, slt, sle, sgt, sge."""
        return self.add(f"icmp {how} {a.type} {a.name}, {literal(b, a.kind)}", "i1")

    def fcmp(self, how: str, a: Value, b: Operand) -> Value:
        """Compare floats: o.. is false for NaN, u.. true."""
        return self.add(f"fcmp {how} {a.type} {a.name}, {literal(b, a.kind)}", "i1")

    def select(self, condition: Value, a: Operand, b: Operand) -> Value:
        """a where the condition holds, otherwise b; one of the two must be a Value."""
        value = a if isinstance(a, Value) else b
        assert isinstance(value, Value)
        kind, full = value.kind, value.type
        return self.add(
            f"select {condition.type} {condition.name}, {full} {literal(a, kind)}, {full} {literal(b, kind)}", kind
        )

    def cast(self, how: str, a: Value, kind: str) -> Value:
        """zext, sext, trunc, bitcast, fpext, fptrunc, sitofp, uitofp; nothing for the same kind."""
        return a if a.kind == kind else self.add(f"{how} {a.type} {a.name} to {vector(kind)}", kind)

    def resize(self, a: Value, bits: int, signed: bool = False) -> Value:
        """An integer of another width."""
        how = "trunc" if bits < a.bits else "sext" if signed else "zext"
        return self.cast(how, a, f"i{bits}")

    def bits(self, a: Value) -> Value:
        """A float as the integer of its pattern."""
        return self.cast("bitcast", a, f"i{a.bits}")

    def call(self, name: str, *values: Operand, result: str = "", flag: str = "") -> Value:
        """An intrinsic such as fma or umin, by its name without llvm. and types."""
        first = values[0]
        assert isinstance(first, Value)
        kind = result or first.kind
        shape = lambda k: f"v{LANES}{_SHORT.get(k, k)}"  # noqa: E731
        full = f"@llvm.{name}.{shape(kind)}" + (f".{shape(first.kind)}" if result else "")
        given = ", ".join(f"{first.type} {literal(v, first.kind)}" for v in values) + (f", i1 {flag}" if flag else "")
        types = ", ".join([first.type] * len(values)) + (", i1" if flag else "")
        self.intrinsics.add(f"declare {vector(kind)} {full}({types})")
        return self.add(f"call {vector(kind)} {full}({given})", kind)


_SHORT = {"half": "f16", "float": "f32", "double": "f64"}


def literal(value: Operand, kind: str) -> str:
    """How an operand stands in the text; a number becomes a vector of it."""
    if isinstance(value, Value):
        return value.name
    if kind in FLOATS:
        return f"splat ({kind} 0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X})"
    bits = int(kind[1:])
    return f"splat ({kind} {int(value) % (1 << bits)})" if bits > 1 else f"splat (i1 {'true' if value else 'false'})"


def constant(value: int | float, kind: str) -> Value:
    """The same number for every thread."""
    return Value(literal(value, kind), kind)
