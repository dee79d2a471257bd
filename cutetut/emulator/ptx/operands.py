"""The operands of one PTX instruction (PTX ISA sections 4.4, 4.5 and 6.4), by recursive descent."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from typing import Protocol

from ..errors import PtxSyntaxError
from .syntax import Address, Group, Immediate, Negated, Operand, Pair, Register, Sink, Special, Symbol, Vector


class Errors(Protocol):
    """Makes errors that know the line."""

    def error(self, what: str) -> PtxSyntaxError: ...


class Body(Protocol):
    """The function an instruction belongs to: it knows the registers in scope."""

    @property
    def parser(self) -> Errors: ...

    def find(self, name: str) -> Register | Vector | None: ...


_FLOAT32 = re.compile(r"0[fF]([0-9a-fA-F]{8})$")
_FLOAT64 = re.compile(r"0[dD]([0-9a-fA-F]{16})$")
_SPECIAL = re.compile(  # the special registers of section 10
    r"%((tid|ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)(\.[xyz])?|laneid|warpid|nwarpid|smid"
    r"|nsmid|gridid|is_explicit_cluster|cluster_n?ctarank|lanemask_(eq|le|lt|ge|gt)|clock(64|_hi)?|pm[0-7](_64)?"
    r"|envreg([12]?\d|3[01])|globaltimer(_lo|_hi)?|reserved_smem_offset_(begin|end|cap|[01])|(total|aggr|dynamic)_smem_size"
    r"|current_graph_exec)$"
)
_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?(?:0[xX][0-9a-fA-F]+U?|0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[bB][01]+U?|\d+\.\d*(?:[eE][-+]?\d+)?|\d+U?))"
    r"|(?P<name>[$%A-Za-z_][\w$]*(?:\.[xyzwrgba]\b)?)|(?P<punct>[\[\](){},|!+;-]))"
)


class Operands:
    """Recursive descent over the operand list of one instruction."""

    def __init__(self, body: Body, text: str) -> None:
        self.body = body
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        pos = 0
        while pos < len(text):
            match = _TOKEN.match(text, pos)
            if match is None:
                if not text[pos:].strip():
                    break
                raise body.parser.error(f"cannot read the operands {text!r}")
            kind = match.lastgroup or ""
            self.tokens.append((kind, match[kind]))
            pos = match.end()
        self.next = 0

    def peek(self) -> str:
        return self.tokens[self.next][1] if self.next < len(self.tokens) else ""

    def expect(self, punct: str) -> None:
        if self.peek() != punct:
            raise self.body.parser.error(f"expected {punct!r} in the operands {self.text!r}")
        self.next += 1

    def parse(self) -> tuple[Operand, ...]:
        return self.list_until("")

    def list_until(self, end: str) -> tuple[Operand, ...]:
        items: list[Operand] = []
        while self.peek() != end:
            items.append(self.operand())
            if self.peek() == ",":
                self.next += 1
            elif self.peek() != end:
                raise self.body.parser.error(f"unexpected {self.peek()!r} in the operands {self.text!r}")
        if end:
            self.expect(end)
        return tuple(items)

    def operand(self) -> Operand:
        first = self.single()
        if self.peek() == "|":
            self.next += 1
            return Pair(first, self.single())
        return first

    def single(self) -> Operand:
        token = self.peek()
        if token == "{":
            self.next += 1
            return Vector(self.list_until("}"))
        if token == "(":
            self.next += 1
            return Group(self.list_until(")"))
        if token == "[":
            self.next += 1
            return self.address()
        if token == "!":
            self.next += 1
            inner = self.single()
            if not isinstance(inner, Register):
                raise self.body.parser.error(f"! needs a predicate in {self.text!r}")
            return Negated(inner)
        if token == "-":
            self.next += 1
            literal = self.single()
            if not isinstance(literal, Immediate):
                raise self.body.parser.error(f"- needs a number in {self.text!r}")
            return Immediate(-literal.value)
        return self.atom()

    def atom(self) -> Register | Vector | Special | Immediate | Symbol | Sink:
        if self.next >= len(self.tokens):
            raise self.body.parser.error(f"an operand is missing in {self.text!r}")
        kind, token = self.tokens[self.next]
        self.next += 1
        if kind == "number":
            literal = literal_of(token)
            if literal is None:
                raise self.body.parser.error(f"cannot read the number {token} in {self.text!r}")
            return literal
        if kind != "name":
            raise self.body.parser.error(f"unexpected {token!r} in the operands {self.text!r}")
        if token == "_":
            return Sink()
        register = self.body.find(token)
        if register is not None:
            return register
        if _SPECIAL.match(token):
            return Special(token)
        if token.startswith("%"):
            raise self.body.parser.error(f"register {token} is not declared in {self.text!r}")
        return Symbol(token)

    def address(self) -> Operand:
        """After '[': base, base+offset, base-offset, or the tensor form base, {coordinates}."""
        base = self.single()
        offset = 0
        while self.peek() and self.peek() not in "],":
            sign = 1
            if self.peek() in "+-":
                sign = -1 if self.peek() == "-" else 1
                self.next += 1
            literal = self.single()
            if not isinstance(literal, Immediate) or not isinstance(literal.value, int):
                raise self.body.parser.error(f"an address offset must be an integer in {self.text!r}")
            offset += sign * literal.value
        if not isinstance(base, Register | Symbol | Immediate):
            raise self.body.parser.error(f"not an address: {self.text!r}")
        plain = Address(base, offset)
        if self.peek() == "]":
            self.next += 1
            return plain
        self.expect(",")
        return Group((plain, *self.list_until("]")))


def literal_of(token: str) -> Immediate | None:
    """A PTX literal (section 4.5): decimal, hex, octal, binary, 0f/0d bit patterns, decimal floats."""
    negative = token.startswith("-")
    text = token.lstrip("-")
    if match := _FLOAT32.match(text):
        bits = int(match[1], 16)
        return Immediate(struct.unpack("<f", struct.pack("<I", bits))[0], bits)
    if match := _FLOAT64.match(text):
        bits = int(match[1], 16)
        return Immediate(struct.unpack("<d", struct.pack("<Q", bits))[0], bits)
    text = text.rstrip("U")
    try:
        if re.fullmatch(r"0[0-7]+", text):
            value: int | float = int(text, 8)
        elif "." in text:
            value = float(text)
        else:
            value = int(text, 0)
    except ValueError:
        return None
    return Immediate(-value if negative else value)


def symbols(operands: Iterable[Operand]) -> Iterator[str]:
    """Every name of a variable or function that appears in operands."""
    for operand in operands:
        if isinstance(operand, Symbol):
            yield operand.name
        elif isinstance(operand, Address) and isinstance(operand.base, Symbol):
            yield operand.base.name
        elif isinstance(operand, Vector | Group):
            yield from symbols(operand.items)
