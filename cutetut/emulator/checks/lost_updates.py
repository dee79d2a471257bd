"""The race of a statement with itself: several threads do `s[v] = s[v] + 1` for one place, and updates get lost."""

from __future__ import annotations

import ast
import textwrap

from ..ptx.source import text
from ..ptx.syntax import Instruction

HINT = (
    "an atomic operation, such as cute.arch.atomic_add: several threads read one place, change the value and write it "
    "back, and updates get lost"
)


def lost_update_hint(first: Instruction, second: Instruction) -> str | None:
    """For two accesses that race: what to look at if both are of one statement that updates a place in memory."""
    if first.loc is None or second.loc is None or {first.parts[0], second.parts[0]} not in ({"ld", "st"}, {"st"}):
        return None
    if (first.loc.file, first.loc.line) != (second.loc.file, second.loc.line):
        return None
    return HINT if _updates(text(first.loc.file, first.loc.line)) else None


def _updates(statement: str) -> bool:
    """Whether a statement is `place += value`, or assigns to a place something that is made from it."""
    try:
        (node,) = ast.parse(textwrap.dedent(statement)).body
    except (SyntaxError, ValueError):
        return False
    if isinstance(node, ast.AugAssign):
        return isinstance(node.target, ast.Subscript)
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Subscript):
        return False
    target = ast.unparse(node.targets[0])
    return any(isinstance(part, ast.Subscript) and ast.unparse(part) == target for part in ast.walk(node.value))
