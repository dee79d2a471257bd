"""Python source behind PTX: how messages name a file, a notebook cell, a line and a kernel."""

from __future__ import annotations

import linecache
import os
import re
import sys
import textwrap
import tokenize

from .syntax import Function

LINES = 6  # that a message shows of one statement


def describe(file: str, line: int) -> str:
    """ "kernel.py:12", or "notebook cell 5, line 12" for code that a notebook's cell holds."""
    number = _cell_number(file)
    return f"notebook cell {number}, line {line}" if number else f"{os.path.basename(file)}:{line}"


def text(file: str, line: int) -> str:
    """The statement that begins in a line, a few lines of it at most; empty where the source cannot be found."""
    lines = linecache.getlines(file)[line - 1 :] if line > 0 else []
    count = _statement_lines(lines)
    shown = lines[: min(count, LINES)]
    return textwrap.dedent("".join(shown)).rstrip() + (" ..." if count > LINES else "")


def _statement_lines(lines: list[str]) -> int:
    """How many lines the statement has that begins in the first: a call may go on until its brackets close."""
    depth = 0
    try:
        for token in tokenize.generate_tokens(iter(lines).__next__):
            if token.type == tokenize.OP:
                depth += (token.string in "([{") - (token.string in ")]}")
            if depth < 0 or token.type == tokenize.NEWLINE:  # less than 0: the first line is inside a call already
                return token.start[0]
    except (tokenize.TokenError, SyntaxError):
        pass
    return min(len(lines), 1)


def kernel_name(kernel: Function) -> str:
    """The Python function a kernel was compiled from; its PTX name where that cannot be found.

    CuTe DSL appends the argument types to the function's name; the functions of its file say where it ends.
    """
    first = next((inst.loc for inst in kernel.body if inst.loc is not None), None)
    if first is None:
        return kernel.name
    names = re.findall(r"^\s*def\s+(\w+)", "".join(linecache.getlines(first.file)), re.MULTILINE)
    return max((n for n in names if kernel.name.startswith(f"kernel_cutlass_{n}_")), key=len, default=kernel.name)


def _cell_number(file: str) -> int | None:
    """The execution count of the notebook cell that a file name stands for (IPython names cells like files)."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return None
    name = shell.compile.format_code_name(file)
    found = re.search(r"\[(\d+)\]", name[1]) if name else None
    return int(found[1]) if found else None
