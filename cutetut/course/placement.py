"""Torch tensors that a notebook makes on the CPU and hands to a kernel: right in the emulator, wrong on a GPU.

    python -m cutetut.course.placement [NAME ...]    where these chapters, or all, do that

In the emulator `cutetut.device` is the CPU, so a forgotten `device=cutetut.device` shows there in no run. This reads
the cells without running them. It follows tensors through assignments, loops, comprehensions, and calls of the
notebook's own functions, and reports each that `from_dlpack` may get although nothing has put it on a device. Of what
it cannot follow, such as a class, it says nothing.
"""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutetut.course import concordance, notebooks
from cutetut.course.notebooks import NotebookError
from cutetut.course.placement_values import (
    Bound,
    Choice,
    CpuName,
    Device,
    Dotted,
    DType,
    Function,
    Host,
    Many,
    Scope,
    bound,
    combined,
    dotted,
    element,
    is_exact,
    joined,
    looped,
    zipped,
)  # fmt: skip

FACTORIES = frozenset(
    """arange as_tensor asarray empty empty_strided eye from_numpy full hann_window linspace logspace normal ones rand
    randint randn randperm scalar_tensor tensor tril_indices triu_indices zeros""".split()
)
VIEWS = frozenset(("T", "mT", "H", "mH", "data", "real", "grad"))  # attributes of a tensor that are tensors
NO_TENSOR = frozenset(
    "numpy item tolist data_ptr size stride dim numel nelement element_size is_contiguous untyped_storage".split()
)
SEQUENCES = frozenset(("list", "tuple", "set", "sorted", "reversed", "iter"))
BUILTINS = SEQUENCES | {"map", "enumerate", "zip"}
DEPTH = 12  # of calls that are followed


@dataclass(frozen=True, order=True)
class Finding:
    """A CPU tensor that is passed to a kernel: where, and what made it; lines count from 1 in their cell."""

    chapter: str
    cell: str
    line: int
    made: str
    made_in: str
    made_line: int

    def __str__(self) -> str:
        made = f"`{self.made}` of cell {self.made_in}, line {self.made_line}, made on the CPU"
        return f"{self.chapter}, cell {self.cell}, line {self.line}: from_dlpack takes {made}"


class _Returned(Exception):
    """A function has returned; the value is kept by whoever called it."""


class Walk:
    """Reads the cells of a notebook one after another; `found` is what it found."""

    def __init__(self, chapter: str) -> None:
        self.found: set[Finding] = set()
        self._chapter = chapter
        self._cell = ""
        self._module = Scope()
        self._functions: dict[ast.AST, Function] = {}  # by their definitions
        self._calls: list[ast.AST] = []
        self._returned: list[list[Any]] = []
        self._placed = False  # whether torch was given a device for all that it makes

    def read(self, cell: str, source: str) -> None:
        """Read the next cell. Anything that is not Python, such as a shell command, is skipped."""
        try:
            body = ast.parse(source).body
        except SyntaxError:
            return
        self._cell = cell
        self._block(body, self._module)

    def finish(self) -> None:
        """Read every function once more as if it were called with arguments about which nothing is known."""
        read: set[ast.AST] = set()
        while unread := self._functions.keys() - read:  # reading one may define others
            for node in unread:
                self._call(self._functions[node], [], {})
            read |= unread

    # --- statements

    def _block(self, body: Sequence[ast.stmt], scope: Scope) -> None:
        for statement in body:
            getattr(self, f"_do_{type(statement).__name__}", self._other)(statement, scope)

    def _other(self, node: ast.AST, scope: Scope) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._value(child, scope)

    def _do_Import(self, node: ast.Import, scope: Scope) -> None:
        for alias in node.names:
            top = alias.name.split(".")[0]
            scope.names[alias.asname or top] = Dotted(alias.name if alias.asname else top)

    def _do_ImportFrom(self, node: ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            scope.names[alias.asname or alias.name] = dotted(f"{node.module}.{alias.name}")

    def _do_FunctionDef(self, node: ast.FunctionDef, scope: Scope) -> None:
        if any("cute." in ast.unparse(each) for each in node.decorator_list):
            scope.names[node.name] = None  # runs on the GPU, or while it is compiled: there are no torch tensors
            return
        function = Function(node, scope, self._defaults(node.args, scope), self._cell)
        scope.names[node.name] = self._functions[node] = function

    def _defaults(self, arguments: ast.arguments, scope: Scope) -> dict[str, Any]:
        plain = [*arguments.posonlyargs, *arguments.args]
        pairs = [*zip(plain[len(plain) - len(arguments.defaults) :], arguments.defaults, strict=True)]
        pairs += [
            (name, value) for name, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value
        ]
        return {name.arg: self._value(value, scope) for name, value in pairs}

    def _do_ClassDef(self, node: ast.ClassDef, scope: Scope) -> None:
        scope.names[node.name] = None

    def _do_Assign(self, node: ast.Assign, scope: Scope) -> None:
        value = self._value(node.value, scope)
        for target in node.targets:
            self._bind(target, value, scope)

    def _do_AnnAssign(self, node: ast.AnnAssign, scope: Scope) -> None:
        if node.value is not None:
            self._bind(node.target, self._value(node.value, scope), scope)

    def _do_AugAssign(self, node: ast.AugAssign, scope: Scope) -> None:
        before, value = self._value(node.target, scope), self._value(node.value, scope)
        both = joined((before, value)) if isinstance(before, Many) else combined((before, value))
        self._bind(node.target, both, scope)

    def _do_For(self, node: ast.For, scope: Scope) -> None:
        for item in looped(self._value(node.iter, scope)):
            self._bind(node.target, item, scope)
            self._perhaps(node.body, scope)
        self._block(node.orelse, scope)

    def _do_While(self, node: ast.While, scope: Scope) -> None:
        self._value(node.test, scope)
        self._perhaps(node.body, scope)

    def _perhaps(self, body: Sequence[ast.stmt], scope: Scope) -> None:
        """Statements after which the next ones may be reached although these return."""
        with contextlib.suppress(_Returned):
            self._block(body, scope)

    def _do_If(self, node: ast.If, scope: Scope) -> None:
        self._value(node.test, scope)
        before, after = dict(scope.names), []
        for branch in (node.body, node.orelse):
            scope.names = dict(before)
            with contextlib.suppress(_Returned):
                self._block(branch, scope)
                after.append(scope.names)
        if not after:
            raise _Returned
        scope.names = {name: joined(names.get(name) for names in after) for one in after for name in one}

    def _do_With(self, node: ast.With, scope: Scope) -> None:
        placed = self._placed
        for item in node.items:
            value = self._value(item.context_expr, scope)
            self._placed = self._placed or value == Dotted("torch.device()")
            if item.optional_vars is not None:
                self._bind(item.optional_vars, value, scope)
        self._block(node.body, scope)
        self._placed = placed

    def _do_Try(self, node: ast.Try, scope: Scope) -> None:
        for body in (node.body, *(handler.body for handler in node.handlers)):
            self._perhaps(body, scope)
        self._block([*node.orelse, *node.finalbody], scope)

    def _do_Return(self, node: ast.Return, scope: Scope) -> None:
        value = self._value(node.value, scope)
        if self._returned:
            self._returned[-1].append(value)
        raise _Returned

    def _bind(self, target: ast.expr, value: Any, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            scope.names[target.id] = value
        elif isinstance(target, ast.Starred):
            self._bind(target.value, value, scope)
        elif isinstance(target, ast.Tuple | ast.List):
            parts = value.unpacked(len(target.elts)) if isinstance(value, Many) else [element(value)] * len(target.elts)
            for part, item in zip(target.elts, parts, strict=True):
                self._bind(part, item, scope)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            held = scope.get(target.value.id)
            if isinstance(held, Many):
                scope.names[target.value.id] = Many((*held.items, value), exact=False)

    # --- expressions

    def _value(self, node: ast.expr | None, scope: Scope) -> Any:
        """What is known of an expression's value; None if nothing."""
        if node is None:
            return None
        known = getattr(self, f"_of_{type(node).__name__}", None)
        if known is not None:
            return known(node, scope)
        self._other(node, scope)
        return None

    def _of_Constant(self, node: ast.Constant, scope: Scope) -> Any:
        return CpuName() if node.value == "cpu" else None

    def _of_Name(self, node: ast.Name, scope: Scope) -> Any:
        found = scope.get(node.id)
        return Dotted(node.id) if found is None and node.id in BUILTINS else found

    def _of_Attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        owner = self._value(node.value, scope)
        if isinstance(owner, Dotted):
            return dotted(f"{owner.name}.{node.attr}")
        if isinstance(owner, Host) and node.attr == "device":
            return CpuName()
        return owner if isinstance(owner, Host | Device) and node.attr in VIEWS else None

    def _of_Subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        owner, index = self._value(node.value, scope), node.slice
        self._value(index, scope)
        if isinstance(owner, Many):
            key = index.value if isinstance(index, ast.Constant) else None
            return owner if isinstance(index, ast.Slice) else owner.at(key)
        return owner if isinstance(owner, Host | Device) else None

    def _of_Tuple(self, node: ast.Tuple | ast.List | ast.Set, scope: Scope) -> Any:
        return Many(*self._listed(node.elts, scope))

    _of_List = _of_Set = _of_Tuple

    def _listed(self, nodes: Sequence[ast.expr], scope: Scope) -> tuple[tuple[Any, ...], bool]:
        """The values of a list of expressions, some of them with a star; and whether they are all, in order."""
        items: list[Any] = []
        exact = True
        for each in nodes:
            value = self._value(each.value if isinstance(each, ast.Starred) else each, scope)
            if isinstance(each, ast.Starred):
                exact = exact and isinstance(value, Many) and value.exact
                items += looped(value)
            else:
                items.append(value)
        return tuple(items), exact

    def _of_Dict(self, node: ast.Dict, scope: Scope) -> Any:
        values = tuple(self._value(value, scope) for value in node.values)
        keys = tuple(key.value if isinstance(key, ast.Constant) else object() for key in node.keys)
        return Many(values, exact=None not in node.keys, keys=keys)

    def _of_BinOp(self, node: ast.BinOp, scope: Scope) -> Any:
        left, right = self._value(node.left, scope), self._value(node.right, scope)
        if isinstance(left, Many) and isinstance(right, Many):
            return Many((*left.items, *right.items), left.exact and right.exact and not left.keys)
        return combined((left, right))

    def _of_UnaryOp(self, node: ast.UnaryOp, scope: Scope) -> Any:
        return combined((self._value(node.operand, scope),))

    def _of_Compare(self, node: ast.Compare, scope: Scope) -> Any:
        return combined(self._value(each, scope) for each in (node.left, *node.comparators))

    def _of_IfExp(self, node: ast.IfExp, scope: Scope) -> Any:
        self._value(node.test, scope)
        return joined((self._value(node.body, scope), self._value(node.orelse, scope)))

    def _of_BoolOp(self, node: ast.BoolOp, scope: Scope) -> Any:
        return joined([self._value(each, scope) for each in node.values])

    def _of_NamedExpr(self, node: ast.NamedExpr, scope: Scope) -> Any:
        value = self._value(node.value, scope)
        self._bind(node.target, value, scope)
        return value

    def _of_Lambda(self, node: ast.Lambda, scope: Scope) -> Any:
        return Function(node, scope, self._defaults(node.args, scope), self._cell)

    def _of_ListComp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: Scope) -> Any:
        return self._comprehended(node.elt, node.generators, scope)

    _of_GeneratorExp = _of_SetComp = _of_ListComp

    def _of_DictComp(self, node: ast.DictComp, scope: Scope) -> Any:
        return self._comprehended(node.value, node.generators, scope)

    def _comprehended(self, body: ast.expr, loops: Sequence[ast.comprehension], scope: Scope) -> Many:
        inner, first = Scope(around=scope), loops[0]
        over = self._value(first.iter, scope)
        exact = isinstance(over, Many) and over.exact and not first.ifs
        items: list[Any] = []
        for item in looped(over):
            self._bind(first.target, item, inner)
            for test in first.ifs:
                self._value(test, inner)
            if loops[1:]:
                deeper = self._comprehended(body, loops[1:], inner)
                exact = exact and deeper.exact
                items += deeper.items
            else:
                items.append(self._value(body, inner))
        return Many(tuple(items), exact)

    # --- calls

    def _of_Call(self, node: ast.Call, scope: Scope) -> Any:
        arguments, exact = self._listed(node.args, scope)
        keywords = {each.arg: self._value(each.value, scope) for each in node.keywords if each.arg}
        if isinstance(node.func, ast.Attribute):
            owner = self._value(node.func.value, scope)
            if not isinstance(owner, Dotted):
                return self._method(node, owner, arguments, keywords)
        function = self._value(node.func, scope)
        if isinstance(function, Dotted):
            return self._imported(function.name, node, arguments, keywords)
        if not exact:
            arguments = ()  # too many, or too few: nothing is known of them
        return self._call(function, list(arguments), keywords)

    def _imported(self, name: str, node: ast.Call, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """What a function of a library returns. Reports what `from_dlpack` is given."""
        first = arguments[0] if arguments else None
        if name.endswith(".from_dlpack"):
            if isinstance(first, Host):
                place = (self._chapter, self._cell, node.lineno, first.made, first.cell, first.line)
                self.found.add(Finding(*place))
            return None
        if name.startswith("torch."):
            return self._torch(name.removeprefix("torch."), node, arguments, keywords)
        if name == "functools.partial":
            return Bound(first, arguments[1:], tuple(keywords.items()))
        if name in SEQUENCES:
            return first
        if name == "map":
            last = arguments[-1]
            return Many(tuple(self._call(first, [each], {}) for each in looped(last)), is_exact(last))
        if name == "enumerate":
            return Many(tuple(Many((None, each)) for each in looped(first)), is_exact(first))
        if name == "zip":
            return zipped(arguments)
        return None

    def _torch(self, name: str, node: ast.Call, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Where a tensor lies that a function of torch makes."""
        if name == "set_default_device":
            self._placed = not any(isinstance(each, CpuName) for each in arguments)
        if name == "device":
            return CpuName() if any(isinstance(each, CpuName) for each in arguments) else Dotted("torch.device()")
        if "device" in keywords:
            return self._made(node) if isinstance(keywords["device"], CpuName) else Device()
        if name in FACTORIES:
            return Device() if self._placed else self._made(node)
        if name.endswith("Generator"):
            return None
        return combined((*arguments, *keywords.values()))

    def _made(self, node: ast.Call) -> Host:
        return Host(ast.unparse(node)[:80], self._cell, node.lineno)

    def _method(self, node: ast.Call, owner: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """What a method of an object returns."""
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if isinstance(owner, Many):
            if name == "items":
                return Many(tuple(Many((None, each)) for each in owner.items), owner.exact)
            if name == "values":
                return Many(owner.items, owner.exact)
            return owner.one() if name in ("get", "pop") else None
        if not isinstance(owner, Host | Device) or name in NO_TENSOR:
            return None
        target = keywords.get("device", arguments[0] if arguments else None)
        if name == "to" and (isinstance(target, DType) or not (arguments or "device" in keywords)):
            return owner
        if name == "to" and isinstance(target, Host):
            return target
        if name == "to" or (name.startswith("new_") and "device" in keywords):
            return self._made(node) if isinstance(target, CpuName) else Device()
        if name in ("cuda", "cpu"):
            return Device() if name == "cuda" else self._made(node)
        return owner

    def _call(self, function: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """What a function of the notebook returns for these arguments."""
        if isinstance(function, Bound):
            keywords = {**dict(function.keywords), **keywords}
            return self._call(function.function, [*function.arguments, *arguments], keywords)
        if isinstance(function, Choice):
            return joined([self._call(each, arguments, keywords) for each in function.options])
        if not isinstance(function, Function) or function.node in self._calls or len(self._calls) > DEPTH:
            return None
        parameters = {each.arg: None for each in ast.walk(function.node.args) if isinstance(each, ast.arg)}
        given = bound(function.node.args, arguments, keywords)
        scope = Scope({**parameters, **function.defaults, **given}, function.scope)
        cell, self._cell = self._cell, function.cell
        self._calls.append(function.node)
        self._returned.append([])
        if isinstance(function.node, ast.Lambda):
            self._returned[-1].append(self._value(function.node.body, scope))
        else:
            self._perhaps(function.node.body, scope)
        self._cell = cell
        self._calls.pop()
        return joined(self._returned.pop())


def of_chapter(chapter: str | Path) -> list[Finding]:
    """What a notebook hands to a kernel from the CPU. Raises NotebookError."""
    notebook = notebooks.read(chapter)
    walk = Walk(notebooks.find(chapter).stem)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            walk.read(cell.id, cell.source)
    walk.finish()
    return sorted(walk.found)


def main(asked: Sequence[str]) -> int:
    """Print what these chapters, or all, hand to a kernel from the CPU; returns 1 if there is anything."""
    try:
        found = [one for path in (asked or concordance.order()) for one in of_chapter(path)]
    except (NotebookError, OSError, ValueError) as error:
        print(error)
        return 1
    print(*found, f"{len(found)} tensors of the CPU are handed to a kernel", sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
