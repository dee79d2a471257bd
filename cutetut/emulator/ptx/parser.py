"""The parser behind `ptx.parse`: directives, declarations and statements; operands.py reads the operands."""

from __future__ import annotations

import re

from ..errors import PtxSyntaxError
from .operands import Operands, literal_of, symbols
from .syntax import BYTES, Function, Instruction, Location, Module, Operand, Register, Symbol, Variable, Vector

_COMMENT = re.compile(r'("[^"\n]*")|//[^\n]*|/\*.*?\*/', re.S)
_SPACE = re.compile(r"\s*")
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
    r"\.(?P<type>\w+)\s*(?:\.ptr\b(?:\s*\.(?:const|global|local|shared)\b)?(?:\s*\.align\s+\d+)?\s*)?"
    r"(?P<name>[$%\w]+)\s*(?P<dims>(?:\[\s*\d*\s*\])*)\s*(?:=\s*(?P<init>.*))?$",
    re.S,
)


def _without_comments(text: str) -> str:
    """The text with every comment blanked; lines keep their numbers."""
    return _COMMENT.sub(lambda m: m[1] or "\n" * m[0].count("\n") or " ", text)


_INLINE = re.compile(r"// begin inline asm.*?// end inline asm", re.DOTALL)
_LOC = re.compile(r"^\s*\.loc\b[^\n]*", re.MULTILINE)


def _without_counted_locations(text: str) -> str:
    """LLVM counts one source line up for each line of inline assembly: only the location in front of it is true."""
    return _INLINE.sub(lambda m: _LOC.sub("", m[0]), text)


class Parser:
    def __init__(self, text: str) -> None:
        self.text = text = _without_comments(_without_counted_locations(text))
        self.pos = 0
        self.line = 1  # of the token taken last
        self.line_pos = 0
        self.files: dict[int, str] = {
            int(n): name for n, name in re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', text, re.M)
        }
        self.result = Module()

    def error(self, what: str, line: int | None = None) -> PtxSyntaxError:
        """The error for the statement that was taken last, or for another line."""
        return PtxSyntaxError(f"PTX line {line or self.line}: {what}")

    def current_line(self) -> int:
        self.line += self.text.count("\n", self.line_pos, self.pos)
        self.line_pos = self.pos
        return self.line

    def skip(self) -> bool:
        """Move past white space; False at the end of the text."""
        match = _SPACE.match(self.text, self.pos)
        assert match is not None
        self.pos = match.end()
        self.current_line()
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
        for variable in self.result.variables.values():
            for _, name, _ in variable.pointers:
                if name not in self.result.variables:
                    raise self.error(f"{variable.name} points to {name}, which is not declared")
        return self.result

    def skip_braces(self) -> None:
        self.pos = self.find("}", self.find("{", self.pos)) + 1

    def find(self, char: str, start: int) -> int:
        """Where a character comes next."""
        at = self.text.find(char, start)
        if at < 0:
            raise self.error(f"{char!r} is missing")
        return at

    def variable(self, text: str) -> Variable:
        match = _VARIABLE.match(text)
        if match is None or match["type"] not in BYTES:
            raise self.error(f"not a declaration: {text[:80]!r}")
        align = re.search(r"\.align\s+(\d+)", match["attrs"])  # behind .ptr stands what the pointer points to
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
        text = text.strip()
        if text.startswith("{") != text.endswith("}"):
            raise self.error(f"unbalanced braces in the initial value {text!r}")
        for item in text.strip("{}").split(","):
            item = item.strip()
            if re.match(r"[$%A-Za-z_]", item):  # an address: name, generic(name), name+8
                name = re.sub(r"^generic\((.*)\)", r"\1", item)
                base, _, plus = name.partition("+")
                pointers.append((len(data), base.strip(), int(plus or "0", 0)))
                data += bytes(element)
                continue
            literal = literal_of(item)
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
        end = self.find(")", self.pos)
        inner = self.text[self.pos + 1 : end]
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
        self.scopes: list[dict[str, Register | Vector]] = [{}]
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
                    self.check_symbols()
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
        what = p.text[p.pos : p.pos + 40].strip()
        raise p.error(f"{what!r} has no ';'" if what else f"{self.function.name} has no closing brace")

    def set_location(self, text: str) -> None:
        numbers = re.findall(r"\d+", text)
        if len(numbers) < 3:
            raise self.parser.error(f".loc needs file, line and column: {text!r}")
        file, line, column = self.parser.files.get(int(numbers[0]), ""), int(numbers[1]), int(numbers[2])
        if not column and self.loc is not None:  # LLVM's word for "somewhere in this function"
            self.loc = Location(self.loc.file, self.loc.line, 0)
        else:
            self.loc = Location(file, line, column) if line else None

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
        match = re.match(r"\.reg\s+(?:\.v([24])\s+)?\.(\w+)\s+(.*)$", text, re.S)
        if match is None or match[2] not in BYTES:
            raise self.parser.error(f"not a register declaration: {text!r}")
        for name in match[3].split(","):
            name = name.strip()
            if match[1]:
                self.declare_vector(name, int(match[1]), match[2])
            elif ranged := _REG_RANGE.match(name):
                for n in range(int(ranged[2])):
                    self.declare(f"{ranged[1]}{n}", match[2])
            else:
                self.declare(name, match[2])

    def declare_vector(self, name: str, count: int, kind: str) -> None:
        """.v2 or .v4: the whole is {name.x, name.y, ...}, whose parts are also .r .g .b .a (PTX ISA section 6.4.2)."""
        parts = [f"{name}.{part}" for part in "xyzw"[:count]]
        for part, alias in zip(parts, "rgba", strict=False):
            self.declare(part, kind)
            self.scopes[-1][f"{name}.{alias}"] = self.scopes[-1][part]
        self.scopes[-1][name] = Vector(tuple(self.scopes[-1][part] for part in parts))

    def declare(self, name: str, kind: str) -> None:
        if name in self.scopes[-1]:
            raise self.parser.error(f"register {name} is declared twice")
        unique = name if name not in self.function.registers else f"{name}@{len(self.function.registers)}"
        register = Register(unique, kind)
        self.scopes[-1][name] = register
        self.function.registers[unique] = register

    def find(self, name: str) -> Register | Vector | None:
        """The innermost register, or vector of registers, of that name."""
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def instruction(self, text: str) -> None:
        guard: Register | None = None
        negated, rest = False, text
        if match := _GUARD.match(text):
            found, negated, rest = self.find(match[2]), match[1] == "!", text[match.end() :]
            guard = found if isinstance(found, Register) else None
            if guard is None:
                raise self.parser.error(f"{match[2]} is not a declared predicate")
        opcode = _OPCODE.match(rest)
        if opcode is None:
            raise self.parser.error(f"cannot read {text[:80]!r}")
        tail = rest[opcode.end() :].strip()
        operands = self.operand_cache.get(tail)
        if operands is None:
            operands = Operands(self, tail).parse()
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
                raise self.parser.error(f"a branch needs a label: {inst.text!r}", inst.line)
            for depth in range(len(path), 0, -1):
                name = _scoped(target.name, path[:depth])
                if name in self.function.labels:
                    inst.operands = (Symbol(name),)
                    break
            else:
                raise self.parser.error(f"no label {target.name} for {inst.text!r}", inst.line)

    def check_symbols(self) -> None:
        """Every name must be a variable, a parameter, a function or a list of labels that exist."""
        function, module = self.function, self.parser.result
        known = {"WARP_SZ", *function.variables, *(p.name for p in function.params), *module.variables}
        known |= {*module.functions, *function.branch_targets, function.name}
        labels = {label for targets in function.branch_targets.values() for label in targets}
        if missing := labels - set(function.labels):
            raise self.parser.error(f"no label {min(missing)} for a .branchtargets list", function.line)
        for inst in function.body:
            if inst.parts[0] == "bra":
                continue
            for name in symbols(inst.operands):
                if name not in known:
                    raise self.parser.error(f"{name} is not declared in {inst.text!r}", inst.line)


def _scoped(name: str, path: tuple[int, ...]) -> str:
    """The unique name of a label that is declared in a scope."""
    return name if len(path) == 1 else f"{name}@{path[-1]}"


def parse(text: str) -> Module:
    """Parse PTX text.

    Raises PtxSyntaxError with the line number for anything outside the grammar.
    """
    return Parser(text).module()
