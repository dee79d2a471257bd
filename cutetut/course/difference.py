"""What changed from one rung's kernel to the next: made from the two sources, so that it cannot be out of date."""

from __future__ import annotations

import ast
import difflib
import inspect
import io
import textwrap
import tokenize
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Difference:
    """The removed lines, marked "-", and the added ones, marked "+", in their order; printed with their numbers."""

    lines: tuple[str, ...]

    @property
    def gone(self) -> int:
        """How many lines were removed."""
        return sum(line.startswith("-") for line in self.lines)

    @property
    def come(self) -> int:
        """How many lines were added."""
        return sum(line.startswith("+") for line in self.lines)

    def __str__(self) -> str:
        return "\n".join([*self.lines, f"\n{self.gone} lines go, {self.come} come"])

    __repr__ = __str__


def difference(before: Callable[..., Any], after: Callable[..., Any]) -> Difference:
    """Compare the bodies of two functions, such as two rungs' kernels.

    Indentation does not count, so that a block that moves into a loop is no change; neither do empty lines, comments,
    and the functions' names and parameters. Raises OSError for a function without a source file.
    """
    old, new = body(before), body(after)
    was, now = ([line.strip() for line in lines] for lines in (old, new))
    lines: list[str] = []
    for kind, first, last, start, end in difflib.SequenceMatcher(None, was, now, autojunk=False).get_opcodes():
        if kind != "equal":
            lines += [f"- {line}" for line in old[first:last]] + [f"+ {line}" for line in new[start:end]]
    return Difference(tuple(lines))


def body(function: Callable[..., Any]) -> list[str]:
    """The lines of a function's body as they are indented within it, without comments and empty lines."""
    source = textwrap.dedent(inspect.getsource(function))
    (node,) = ast.parse(source).body
    if not isinstance(node, ast.FunctionDef):
        raise TypeError(f"{function!r} is not a function that was written with def")
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    inside = (line.rstrip() for line in lines[node.body[0].lineno - 1 :])
    return textwrap.dedent("\n".join(line for line in inside if line)).splitlines()
