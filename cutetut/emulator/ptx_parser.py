"""The parser behind `ptx.parse`: statements first, then the operands of each instruction."""

from __future__ import annotations

import re
import struct

from .errors import PtxSyntaxError
from .ptx import (
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

_SPACE = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.S)
_LINE_DIRECTIVE = re.compile(r"\.(loc|file|version|target|address_size|section)\b([^\n]*)")
_LABEL = re.compile(r"([$%A-Za-z_][\w$]*)\s*:(?!:)")
_STATEMENT = re.compile(r"[^;]*;")
_HEADER = re.compile(r"((?:\.(?:visible|extern|weak|common)\s+)*)\.(entry|func)\b")
_IDENT = re.compile(r"[$%A-Za-z_][\w$]*(?:\.[xyzw])?")
_GUARD = re.compile(r"@(!?)\s*([$%\w]+)\s+")
_OPCODE = re.compile(r"[a-z][\w.:]*")
_REG_RANGE = re.compile(r"^(.*)<(\d+)>$")
_VARIABLE = re.compile(
    r"(?P<linkage>(?:\.(?:visible|extern|weak|common)\s+)*)\.(?P<space>global|const|shared|local|param)\s+"
    r"(?P<attrs>(?:\.(?:align\s+\d+|attribute\s*\([^)]*\)|ptr|space|noalias)\s*)*)"
    r"\.(?P<type>\w+)\s*(?:\.ptr\b[^%$\w]*(?:\.\w+\s+(?:\d+\s+)?)*)?(?P<name>[$%\w]+)\s*(?P<dims>(?:\[\s*\d*\s*\])*)"
    r"\s*(?:=\s*(?P<init>.*))?$",
    re.S,
)
_FLOAT32 = re.compile(r"0[fF]([0-9a-fA-F]{8})$")
_FLOAT64 = re.compile(r"0[dD]([0-9a-fA-F]{16})$")


class Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0
        self.line = 1
        self.line_pos = 0
        self.files: dict[int, str] = {
            int(n): name for n, name in re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', text, re.M)
        }
        self.result = Module()

    def error(self, what: str) -> PtxSyntaxError:
        return PtxSyntaxError(f"PTX line {self.current_line()}: {what}")

    def current_line(self) -> int:
        self.line += self.text.count("\n", self.line_pos, self.pos)
        self.line_pos = self.pos
        return self.line

    def skip(self) -> bool:
        """Move past white space and comments; False at the end of the text."""
        match = _SPACE.match(self.text, self.pos)
        assert match is not None
        self.pos = match.end()
        return self.pos < len(self.text)

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.pos)
        if match is not None:
            self.current_line()
            self.pos = match.end()
        return match

    def module(self) -> Module:
        while self.skip():
            if match := self.take(_LINE_DIRECTIVE):
                if match[1] == "version":
                    self.result.version = match[2].strip()
                elif match[1] == "target":
                    self.result.target = match[2].strip()
                elif match[1] == "section":
                    self.skip_braces()
            elif match := self.take(_HEADER):
                self.function(match[2] == "entry")
            elif match := self.take(_STATEMENT):
                variable = self.variable(match[0][:-1].strip())
                self.result.variables[variable.name] = variable
            else:
                raise self.error(f"cannot read {self.text[self.pos : self.pos + 60]!r}")
        return self.result

    def skip_braces(self) -> None:
        start = self.text.index("{", self.pos)
        self.pos = self.text.index("}", start) + 1

    def variable(self, text: str) -> Variable:
        match = _VARIABLE.match(text)
        if match is None or match["type"] not in BYTES:
            raise self.error(f"not a declaration: {text[:80]!r}")
        align = re.search(r"\.align\s+(\d+)", text)
        element = BYTES[match["type"]]
        count, extern = 1, ".extern" in match["linkage"]
        for dim in re.findall(r"\[\s*(\d*)\s*\]", match["dims"]):
            count *= int(dim or 0)
        init, pointers = self.initial_value(match["init"], element)
        return Variable(match["name"], match["space"], match["type"], count * element,
                        int(align[1]) if align else element, init, pointers, extern)  # fmt: skip

    def initial_value(self, text: str | None, element: int) -> tuple[bytes | None, tuple[tuple[int, str, int], ...]]:
        if text is None:
            return None, ()
        data, pointers = bytearray(), []
        for item in text.strip().strip("{}").split(","):
            item = item.strip()
            if re.match(r"[$%A-Za-z_]", item):  # an address: name, generic(name), name+8
                name = re.sub(r"^generic\((.*)\)", r"\1", item)
                base, _, plus = name.partition("+")
                pointers.append((len(data), base.strip(), int(plus or "0", 0)))
                data += bytes(element)
                continue
            literal = _literal(item)
            if literal is None:
                raise self.error(f"cannot read the initial value {item!r}")
            value = literal.bits if literal.bits is not None else int(literal.value)
            data += (value % (1 << 8 * element)).to_bytes(element, "little")
        return bytes(data), tuple(pointers)

    def parameters(self) -> list[Variable]:
        """( .param .b64 a, .param .align 64 .b8 b[128] )"""
        self.skip()
        if not self.text.startswith("(", self.pos):
            return []
        end = self.text.index(")", self.pos)
        inner = re.sub(r"//[^\n]*", "", self.text[self.pos + 1 : end])
        self.pos = end + 1
        return [self.variable(item.strip()) for item in inner.split(",") if item.strip()]

    def function(self, is_kernel: bool) -> None:
        line = self.current_line()
        results = self.parameters()
        self.skip()
        name = self.take(_IDENT)
        if name is None:
            raise self.error("a function needs a name")
        function = Function(name[0], is_kernel, self.parameters(), results, line)
        directives = re.compile(r"[^{;]*")
        header = self.take(directives)
        for word, numbers in re.findall(r"\.(\w+)((?:\s*,?\s*\d+)*)", header[0] if header else ""):
            function.directives[word] = tuple(int(n) for n in re.findall(r"\d+", numbers))
        table = self.result.kernels if is_kernel else self.result.functions
        if self.text.startswith(";", self.pos):
            self.pos += 1
            table.setdefault(function.name, function)
            return
        self.pos += 1
        _Body(self, function).parse()
        table[function.name] = function


class _Body:
    """The statements between the braces of one function."""

    def __init__(self, parser: Parser, function: Function) -> None:
        self.parser = parser
        self.function = function
        self.scopes: list[dict[str, Register]] = [{}]
        self.scope_path: tuple[int, ...] = (0,)  # labels of inline assembly belong to their braces
        self.scope_count = 1
        self.branches: list[tuple[Instruction, tuple[int, ...]]] = []
        self.loc: Location | None = None
        self.operand_cache: dict[str, tuple[Operand, ...]] = {}

    def parse(self) -> None:
        p = self.parser
        while p.skip():
            char = p.text[p.pos]
            if char == "{":
                p.pos += 1
                self.scopes.append({})
                self.scope_path = (*self.scope_path, self.scope_count)
                self.scope_count += 1
                self.operand_cache = {}
            elif char == "}":
                p.pos += 1
                self.scopes.pop()
                self.scope_path = self.scope_path[:-1]
                self.operand_cache = {}
                if not self.scopes:
                    self.resolve_branches()
                    return
            elif char == ";":
                p.pos += 1
            elif match := p.take(_LINE_DIRECTIVE):
                if match[1] == "loc":
                    self.set_location(match[2])
            elif match := p.take(_LABEL):
                self.label(match[1])
            elif match := p.take(_STATEMENT):
                self.statement(match[0][:-1].strip())
            else:
                break
        raise p.error(f"{self.function.name} has no closing brace")

    def set_location(self, text: str) -> None:
        numbers = re.findall(r"\d+", text)
        file = self.parser.files.get(int(numbers[0]), "")
        self.loc = Location(file, int(numbers[1]), int(numbers[2])) if int(numbers[1]) else None

    def label(self, name: str) -> None:
        p = self.parser
        p.skip()
        if p.text.startswith(".branchtargets", p.pos):
            match = p.take(_STATEMENT)
            assert match is not None
            targets = match[0][len(".branchtargets") : -1].split(",")
            self.function.branch_targets[name] = tuple(t.strip() for t in targets)
        else:
            self.function.labels[_scoped(name, self.scope_path)] = len(self.function.body)

    def statement(self, text: str) -> None:
        if text.startswith(".reg"):
            self.declare_registers(text)
        elif text.startswith(".pragma"):
            return
        elif text.startswith("."):
            variable = self.parser.variable(text)
            previous = self.function.variables.get(variable.name)
            if previous is None or previous.nbytes < variable.nbytes:  # call sequences reuse param names
                self.function.variables[variable.name] = variable
        else:
            self.instruction(text)

    def declare_registers(self, text: str) -> None:
        match = re.match(r"\.reg\s+\.(\w+)\s+(.*)$", text, re.S)
        if match is None or match[1] not in BYTES:
            raise self.parser.error(f"not a register declaration: {text!r}")
        for name in match[2].split(","):
            name = name.strip()
            if ranged := _REG_RANGE.match(name):
                for n in range(int(ranged[2])):
                    self.declare(f"{ranged[1]}{n}", match[1])
            else:
                self.declare(name, match[1])

    def declare(self, name: str, kind: str) -> None:
        unique = name if name not in self.function.registers else f"{name}@{len(self.function.registers)}"
        register = Register(unique, kind)
        self.scopes[-1][name] = register
        self.function.registers[unique] = register

    def find(self, name: str) -> Register | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def instruction(self, text: str) -> None:
        guard, negated, rest = None, False, text
        if match := _GUARD.match(text):
            guard, negated, rest = self.find(match[2]), match[1] == "!", text[match.end() :]
            if guard is None:
                raise self.parser.error(f"{match[2]} is not a declared predicate")
        opcode = _OPCODE.match(rest)
        if opcode is None:
            raise self.parser.error(f"cannot read {text[:80]!r}")
        tail = rest[opcode.end() :].strip()
        operands = self.operand_cache.get(tail)
        if operands is None:
            operands = _Operands(self, tail).parse()
            self.operand_cache[tail] = operands
        body = self.function.body
        inst = Instruction(opcode[0], operands, guard, negated, self.parser.line, text, self.loc, len(body))
        body.append(inst)
        if inst.parts[0] == "bra":
            self.branches.append((inst, self.scope_path))

    def resolve_branches(self) -> None:
        """Point each branch at the innermost label of that name it can see."""
        for inst, path in self.branches:
            target = inst.operands[0]
            if not isinstance(target, Symbol):
                raise self.parser.error(f"a branch needs a label: {inst.text!r}")
            for depth in range(len(path), 0, -1):
                name = _scoped(target.name, path[:depth])
                if name in self.function.labels:
                    inst.operands = (Symbol(name),)
                    break
            else:
                raise self.parser.error(f"no label {target.name} for {inst.text!r}")


def _scoped(name: str, path: tuple[int, ...]) -> str:
    """The unique name of a label that is declared in a scope."""
    return name if len(path) == 1 else f"{name}@{path[-1]}"


_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?(?:0[xX][0-9a-fA-F]+U?|0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|\d+\.\d*(?:[eE][-+]?\d+)?|\d+U?))"
    r"|(?P<name>[$%A-Za-z_][\w$]*(?:\.[xyzw]\b)?)|(?P<punct>[\[\](){},|!+;-]))"
)


class _Operands:
    """Recursive descent over the operand list of one instruction."""

    def __init__(self, body: _Body, text: str) -> None:
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
        items = self.list_until("")
        return items

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

    def atom(self) -> Register | Special | Immediate | Symbol | Sink:
        if self.next >= len(self.tokens):
            raise self.body.parser.error(f"an operand is missing in {self.text!r}")
        kind, token = self.tokens[self.next]
        self.next += 1
        if kind == "number":
            literal = _literal(token)
            assert literal is not None
            return literal
        if kind != "name":
            raise self.body.parser.error(f"unexpected {token!r} in the operands {self.text!r}")
        if token == "_":
            return Sink()
        register = self.body.find(token)
        if register is not None:
            return register
        return Special(token) if token.startswith("%") else Symbol(token)

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


def _literal(token: str) -> Immediate | None:
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
