"""Kernels stay short enough to be read: book/contributing.md states the limits."""

from __future__ import annotations

import ast

import pytest

from cutetut.course import notebooks

LIMIT = 90  # lines of a kernel
WITH_HELPERS = {"13_warp_specialized": 250, "19_fa_pingpong": 350}  # those beside a vendor's library, helpers included


def device_functions(chapter: str) -> dict[str, int]:
    """Lines of each function in kernel cells that runs on the GPU, its decorators included."""
    found = {}
    for cell in notebooks.notebook(chapter).cells:
        for node in ast.parse(cell.source).body if "kernel" in cell.tags else ():
            if not isinstance(node, ast.FunctionDef) or ".launch(" in ast.unparse(node):
                continue
            if any("cute." in ast.unparse(decorator) for decorator in node.decorator_list):
                found[node.name] = (node.end_lineno or 0) - node.decorator_list[0].lineno + 1
    return found


@pytest.mark.parametrize("chapter", [path.stem for path in notebooks.toc()])
def test_a_kernel_is_short(chapter: str) -> None:
    lengths = device_functions(chapter)
    assert any(name.endswith("kernel") for name in lengths)
    if chapter in WITH_HELPERS:
        assert sum(lengths.values()) <= WITH_HELPERS[chapter], lengths
    else:
        assert max(lengths.values()) <= LIMIT, lengths
