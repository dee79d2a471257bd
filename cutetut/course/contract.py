"""What each chapter measures against the numbers that a chapter should keep to.

    python -m cutetut.course.contract [NAME ...]    print the table of these chapters, or of all

What exceeds a number has its reason in `book/data/exemptions.toml`, under the chapter, by the heading of the column.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutetut.columns import aligned
from cutetut.course import concordance, exemptions, names, notebooks, prose
from cutetut.course.notebooks import NotebookError

WORDS, LINES = 200, 20  # a minute: of prose, of visible code
APART = 0.25  # how far the stated time to read may be from the one that follows, as a part of it


@dataclass(frozen=True)
class Rule:
    """A column of the table: its heading, the least and the most that a chapter should have, and what it counts."""

    column: str
    least: float
    most: float
    what: str

    def kept(self, value: float | None) -> bool:
        """Whether a chapter keeps to the rule; without anything to measure it does."""
        return value is None or self.least <= value <= self.most


RULES = (
    Rule("cells", 0, 75, "cells"),
    Rule("words", 0, 4000, "words of prose"),
    Rule("kernel", 0, 90, "lines of the longest kernel's body, without empty ones"),
    Rule("helper", 0, 30, "lines of the longest other function's body in the cells of the kernel"),
    Rule("parameters", 0, 12, "parameters of the kernel with the most"),
    Rule("diff", 0, 40, "lines that change from one rung to the next: of those that go and those that come, the more"),
    Rule("exercises", 3, 99, "exercises"),
    Rule("of kernels", 1, 99, "exercises whose solution writes or changes code of a kernel"),
    Rule("goals", 3, 3, 'lines under "After this you can"'),
    Rule("minutes", 1 - APART, 1 + APART, f"stated time to read, over that at {WORDS} words or {LINES} lines a minute"),
    Rule("untagged", 0, 0, "exercises, solutions, benchmarks and broken kernels whose cells lack their tag"),
)


@dataclass(frozen=True)
class Measured:
    """A chapter's numbers by the columns of RULES; None where there is nothing to measure."""

    chapter: str
    values: dict[str, float | None]
    untagged: tuple[str, ...]  # ids of cells
    both: int = 0  # lines that go and lines that come, added up, in the diff where they are most

    def broken(self) -> list[Rule]:
        """The rules that it does not keep."""
        return [rule for rule in RULES if not rule.kept(self.values[rule.column])]


def measure(chapter: str | Path) -> Measured:
    """Measure a chapter as it is in its notebook, its recorded outputs for the diffs. Raises NotebookError."""
    notebook = notebooks.read(chapter)
    cells = notebook.cells
    kernels, helpers = _functions(cells)
    solved = solutions(cells)
    untagged, diffs = tuple(_untagged(cells)), list(_diffs(cells))
    values: dict[str, float | None] = {
        "cells": len(cells),
        "words": sum(prose.words(cell.source) for cell in cells if cell.cell_type == "markdown"),
        "kernel": max((_body(*each) for each in kernels), default=None),
        "helper": max((_body(*each) for each in helpers), default=None),
        "parameters": max((len(_parameters(node)) for node, _ in kernels), default=None),
        "diff": max(map(max, diffs), default=None),
        "exercises": len(solved),
        "of kernels": sum(writes_kernel_code(*both) for both in solved.values()),
        "goals": _goals(cells),
        "minutes": _honesty(cells),
        "untagged": len(untagged),
    }
    return Measured(notebooks.find(chapter).stem, values, untagged, max(map(sum, diffs), default=0))


# --- code

Function = tuple[ast.FunctionDef, str]  # with the source of its cell


def _functions(cells: Iterable[Any]) -> tuple[list[Function], list[Function]]:
    """The kernels and the other functions of cells tagged `kernel`, each with its cell's source."""
    kernels: list[Function] = []
    helpers: list[Function] = []
    for cell in cells:
        if cell.cell_type != "code" or "kernel" not in notebooks.tags(cell):
            continue
        for node in _tree(cell.source).body:
            if isinstance(node, ast.FunctionDef):
                is_kernel = any(ast.unparse(each).startswith("cute.kernel") for each in node.decorator_list)
                (kernels if is_kernel else helpers).append((node, cell.source))
    return kernels, helpers


def _tree(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError:  # such as a shell command
        return ast.Module(body=[], type_ignores=[])


def _body(node: ast.FunctionDef, source: str) -> int:
    """Lines of a function's body that are not empty, its docstring left out."""
    first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
    return sum(bool(line.strip()) for line in source.splitlines()[first.lineno - 1 : node.end_lineno])


def _parameters(node: ast.FunctionDef) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _diffs(cells: Iterable[Any]) -> Iterable[tuple[int, int]]:
    """For each diff that a chapter's outputs show, how many lines it removes and how many it adds."""
    for cell in cells:
        for output in cell.get("outputs", ()):
            for gone, come in re.findall(r"^(\d+) lines go, (\d+) come$", output.get("text", ""), re.MULTILINE):
                yield int(gone), int(come)


# --- exercises and tags


def solutions(cells: Iterable[Any]) -> dict[str, tuple[str, str]]:
    """Each exercise's solution and check, by the exercise's id; a solution in folded markdown counts, too."""
    sources = {cell.id: cell.source for cell in cells}
    found = {}
    for cell in cells:
        if cell.id.endswith("-solution"):
            exercise = cell.id.removesuffix("-solution")
            code = re.findall(r"```python\n(.*?)```", cell.source, re.DOTALL)
            solution = cell.source if cell.cell_type == "code" else "\n".join(code)
            found[exercise] = solution, sources.get(f"{exercise}-check", sources.get(exercise, ""))
    return found


def writes_kernel_code(solution: str, check: str = "") -> bool:
    """Whether a solution defines a kernel or a function that runs in one, or is text that the check puts into one."""
    aliases = {"cute": "cutlass.cute", "cutlass": "cutlass"}
    for node in ast.walk(_tree(solution)):
        if isinstance(node, ast.FunctionDef):
            if any(ast.unparse(each).startswith(("cute.kernel", "cute.jit")) for each in node.decorator_list):
                return True
            if any(_runs_in_a_kernel(name) for name in names.used(ast.unparse(node), dict(aliases))):
                return True
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if "cute." in node.value or "changed(" in check:
                return True
    return False


def _runs_in_a_kernel(name: str) -> bool:
    """Whether a name works on a thread's data, or makes the copy or the product that a kernel is given."""
    return name.startswith(("cute.arch.", "cute.make_tiled_", ".partition_", ".make_fragment_")) or name in (
        "cute.copy", "cute.autovec_copy", "cute.basic_copy", "cute.gemm",
        "cute.make_fragment_like", "cute.make_rmem_tensor",
    )  # fmt: skip


def _untagged(cells: Sequence[Any]) -> Iterable[str]:
    """The ids of code cells that lack a tag by which readers and tests know them."""
    exercises = {cell.id.removesuffix("-solution") for cell in cells if cell.id.endswith("-solution")}
    breaking = False
    for cell in cells:
        if cell.cell_type != "code":
            for level, heading in prose.headings(cell.source):
                breaking = heading.startswith("Break it") if level <= 2 else breaking
            continue
        wanted = set()
        if cell.id in exercises:
            wanted = {"exercise"}
        elif cell.id.endswith("-solution"):
            wanted = {"solution", "hide-cell"}
        elif re.search(r"^def benchmark\(", cell.source, re.MULTILINE):
            wanted = {"bench"}
        elif breaking and (cell.id.startswith("break") or not concordance.is_folded(cell)):
            wanted = {"break-it"}
        if not wanted <= set(notebooks.tags(cell)):
            yield cell.id


# --- what the chapter says of itself


def _goals(cells: Sequence[Any]) -> int:
    """How many lines stand under "After this you can" in the first cell."""
    _, _, after = cells[0].source.partition("After this you can")
    return len(re.findall(r"^- ", after, re.MULTILINE))


def _honesty(cells: Sequence[Any]) -> float | None:
    """The reading time that the chapter states over the one computed from its text; None if it states none."""
    stated = re.search(r"Time to read:\**\s*(\d+)\s+minutes", cells[0].source)
    return int(stated[1]) / minutes(cells) if stated else None


def minutes(cells: Sequence[Any]) -> float:
    """How long a chapter takes to read, up to its exercises: its prose, and the code that the book shows."""
    words = lines = 0
    for cell in cells:
        if cell.cell_type == "markdown":
            if any(heading.startswith("Exercise") for _, heading in prose.headings(cell.source)):
                break
            words += prose.words(cell.source)
            lines += prose.fenced_lines(cell.source)
        elif cell.cell_type == "code" and not _hidden(cell):
            lines += sum(bool(line.strip()) for line in cell.source.splitlines())
    return max(1.0, words / WORDS + lines / LINES)


def _hidden(cell: Any) -> bool:
    """Whether the page folds a code cell; a cell of helpers it shows."""
    return any(tag.startswith(("hide-", "remove-")) for tag in notebooks.tags(cell))


# --- the table


def long_both_ways(measured: Iterable[Measured]) -> str:
    """Which chapters have a diff that would exceed its limit if lines that go and lines that come were added up."""
    limit = next(rule.most for rule in RULES if rule.column == "diff")
    over = [f"{notebooks.label(each.chapter)} ({each.both})" for each in measured if each.both > limit]
    return f"Lines that go and lines that come, added up, exceed {limit:g} in {', '.join(over) or 'no chapter'}."


def excused(measured: Iterable[Measured]) -> dict[tuple[str, str], str]:
    """The reasons, by chapter and column, for what these chapters exceed."""
    known = {(one.chapter, one.what): one.reason for one in exemptions.of("contract")}
    broken = [(each.chapter, rule.column) for each in measured for rule in each.broken()]
    return {key: known[key] for key in broken if key in known}


def rows(measured: Iterable[Measured]) -> list[list[str]]:
    """The table's header and a row for each chapter; a star marks what has a reason, and "!" what has none."""
    measured = list(measured)
    reasons = excused(measured)
    body = []
    for each in measured:
        broken = {rule.column for rule in each.broken()}
        marks = {column: "*" if (each.chapter, column) in reasons else "!" for column in broken}
        shown = [f"{_shown(each.values[rule.column])}{marks.get(rule.column, '')}" for rule in RULES]
        body.append([each.chapter, *shown])
    return [["chapter", *(rule.column for rule in RULES)], *body]


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def main(asked: Sequence[str]) -> int:
    """Print the table and the reasons; returns 1 if something exceeds a number without one."""
    try:
        measured = [measure(path) for path in (asked or concordance.order())]
        table, reasons = rows(measured), excused(measured)
    except (NotebookError, OSError, ValueError) as error:
        print(error)
        return 1
    print(aligned(table, right=range(1, len(RULES) + 1)))
    for (chapter, column), reason in reasons.items():
        print(f"* {chapter}, {column}: {reason}")
    broken = [(each, rule) for each in measured for rule in each.broken()]
    missing = [(each, rule) for each, rule in broken if (each.chapter, rule.column) not in reasons]
    for each, rule in missing:
        which = f": {', '.join(each.untagged)}" if rule.column == "untagged" else ""
        print(f"! {each.chapter}, {rule.column}: {rule.least:g} to {rule.most:g} {rule.what}{which}")
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
