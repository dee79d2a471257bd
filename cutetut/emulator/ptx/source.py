"""Python source behind PTX: how messages name a file, a notebook cell, a line and a kernel."""

from __future__ import annotations

import linecache
import os
import re
import sys

from .syntax import Function


def describe(file: str, line: int) -> str:
    """ "kernel.py:12", or "notebook cell 5, line 12" for code that a notebook's cell holds."""
    number = _cell_number(file)
    return f"notebook cell {number}, line {line}" if number else f"{os.path.basename(file)}:{line}"


def text(file: str, line: int) -> str:
    """The line itself, empty where the source cannot be found."""
    return linecache.getline(file, line)


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
