"""Which names of CuTe, CUTLASS and this package a cell of Python uses, found through imports and aliases."""

from __future__ import annotations

import ast
from collections.abc import Iterator

PACKAGES = ("cutlass", "cutetut")

# Methods and attributes of objects that CuTe makes. What they belong to is known only when the code runs, so any
# attribute of one of these names counts, unless it belongs to a module.
METHODS = frozenset(
    """
    launch get_slice partition_A partition_B partition_C partition_S partition_D partition_shape_A partition_shape_B
    partition_shape_C make_fragment_A make_fragment_B make_fragment_C thrfrg_A thrfrg_B thrfrg_C retile
    tv_layout_A_tiled tv_layout_B_tiled tv_layout_C_tiled get_tile_size thr_id shape_mnk
    allocate_tensor allocate_array allocate autovec_copy
    fill toint element_type iterator memspace mark_layout_dynamic mark_compact_shape_dynamic is_static
    producer_acquire producer_commit producer_tail consumer_wait consumer_release advance
    """.split()
)


class _Uses(ast.NodeVisitor):
    """Walks one cell; what a function binds hides an import of the same name within it."""

    def __init__(self, aliases: dict[str, str]) -> None:
        self.aliases = aliases
        self.hidden: list[set[str]] = []
        self.found: list[str] = []

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            top = alias.name.split(".")[0]
            if top in PACKAGES:
                self.aliases[alias.asname or top] = alias.name if alias.asname else top
            else:
                self.aliases.pop(alias.asname or top, None)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if node.level == 0 and node.module and node.module.split(".")[0] in PACKAGES:
                self.aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            else:
                self.aliases.pop(alias.asname or alias.name, None)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for outside in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(outside)
        for argument in _arguments(node.args):
            if argument.annotation is not None:
                self.visit(argument.annotation)
        if node.returns is not None:
            self.visit(node.returns)
        bound = {argument.arg for argument in _arguments(node.args)}
        bound |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        self._inside(bound, node.body)
        if not self.hidden:
            self.aliases.pop(node.name, None)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.generic_visit(node)
        if not self.hidden:
            self.aliases.pop(node.name, None)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._inside({argument.arg for argument in _arguments(node.args)}, [node.body])

    def _inside(self, bound: set[str], body: list[ast.stmt] | list[ast.expr]) -> None:
        self.hidden.append(bound)
        for each in body:
            self.visit(each)
        self.hidden.pop()

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)
        if self.hidden:
            return
        whole = self._resolved(node.value)
        for target in node.targets:
            for one in ast.walk(target):
                if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                    self.aliases.pop(one.id, None)
            if whole and isinstance(target, ast.Name):
                self.aliases[target.id] = whole

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and (whole := self._resolved(node)):
            self._use(whole)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if whole := self._resolved(node):
            self._use(whole)
            return
        if node.attr in METHODS:
            self.found.append(f".{node.attr}")
        self.visit(node.value)

    def _resolved(self, node: ast.expr) -> str | None:
        """The dotted name behind a chain of attributes that begins with an import, or None."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or any(node.id in bound for bound in self.hidden):
            return None
        base = self.aliases.get(node.id)
        return ".".join([base, *reversed(parts)]) if base else None

    def _use(self, whole: str) -> None:
        """Note a name up to its first part in capitals: of an enumeration's member, the enumeration."""
        parts = whole.split(".")
        end = next((i for i, part in enumerate(parts) if part[:1].isupper()), len(parts) - 1)
        if parts[:2] == ["cutlass", "cute"]:
            parts, end = parts[1:], end - 1
        if end > 0:
            self.found.append(".".join(parts[: end + 1]))


def _arguments(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from filter(None, (arguments.vararg, arguments.kwarg))


def used(source: str, aliases: dict[str, str]) -> list[str]:
    """The names that a cell uses, in their order, each once.

    They read `cute.make_layout`, `cutlass.Float32`, `cutetut.check.check`, and `.partition_C` for one of METHODS. A
    member of an enumeration counts as the enumeration. `aliases` has what earlier cells imported, and gets what this
    one imports. Text that is not Python, such as a shell command, uses no name.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    visitor = _Uses(aliases)
    visitor.visit(tree)
    return list(dict.fromkeys(visitor.found))


def token(name: str) -> str:
    """The part of a name by which prose calls it: the last one."""
    return name.rpartition(".")[2]


def kernels(source: str) -> str:
    """The functions of a cell that become GPU code or launch it: those under `@cute.kernel` or `@cute.jit`."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return ""
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return "\n\n".join(
        ast.unparse(each)
        for each in functions
        if any(ast.unparse(decorator) in ("cute.kernel", "cute.jit") for decorator in each.decorator_list)
    )


def resolved(mention: str, aliases: dict[str, str]) -> str:
    """What stands in backticks, as `prose.named` has it, with the name for which its first part is an alias."""
    first, dot, rest = mention.partition(".")
    whole = aliases[first] + dot + rest if dot and first in aliases else mention
    return whole.removeprefix("cutlass.") if whole.startswith("cutlass.cute.") else whole


def explains(mention: str, name: str, alone: bool) -> bool:
    """Whether a mention in backticks means a name from `used`.

    What precedes its last part must be the end of the name's path: `load.b` and `.b` do not mean `cute.b`, and `cute.b`
    does not mean a method. A plain lower-case word, such as the `read` of `records.read`, must follow its module unless
    code imports it `alone`, and so must every name of this package.
    """
    *before, last = mention.split(".")
    *home, sought = name.split(".")
    if last != sought:
        return False
    if home == [""]:  # a method
        return not before or before[0] not in (*PACKAGES, "cute") or any(part[:1].isupper() for part in before)
    if not before:
        return alone or home[0] != "cutetut" and not (last.isalpha() and last.islower())
    return home[-len(before) :] == before
