"""The hash of a chapter's code, which tells whether an output or a measurement was recorded with this code.

Import statements are left out: they say where a helper is, not what it does, so moving a helper to another module
makes nothing stale. Everything else counts as it is written, because reports name lines.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable


def of_cells(sources: Iterable[str]) -> str:
    """SHA-256, in hexadecimal, over the sources of cells without their import statements."""
    return hashlib.sha256("\0".join(map(without_imports, sources)).encode()).hexdigest()


def without_imports(source: str) -> str:
    """The text without its import statements, and without lines that are empty once those are gone.

    Text that is not valid Python, such as a cell with a shell command, is returned as it is.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return source
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    lines = source.encode().splitlines(keepends=True)  # ast counts columns in bytes
    for node in sorted(found, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        rest = lines[first][: node.col_offset] + lines[last][node.end_col_offset :]
        lines[first : last + 1] = [rest] if rest.strip(b" \t\r\n;") else []
    return b"".join(lines).decode()
