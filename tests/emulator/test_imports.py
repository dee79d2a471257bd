"""The emulator knows nothing of what launches its kernels: only `host/` imports CuTe DSL, torch or cuda-python."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from cutetut import emulator

FOLDER = Path(emulator.__file__).parent
MODULES = sorted(path for path in FOLDER.rglob("*.py") if "host" not in path.relative_to(FOLDER).parts)
ALLOWED = sys.stdlib_module_names | {"numpy", "llvmlite"}


def imports(source: str) -> set[str]:
    """What a module imports, `.name` for a neighbour in its folder and `..name` for one above it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            dots = "." * node.level
            found |= {dots + node.module} if node.module else {dots + alias.name for alias in node.names}
    return found


def foreign(source: str) -> set[str]:
    """Of what a module of the emulator imports: all but the standard library, numpy, llvmlite and its neighbours."""
    return {
        name
        for name in imports(source)
        if not (name.split(".")[0] in ALLOWED or (name[0] == "." and name.lstrip(".").split(".")[0] != "host"))
    }


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_unit_imports_libraries_for_numbers_and_its_neighbours_only(path: Path) -> None:
    assert not foreign(path.read_text())


@pytest.mark.parametrize(
    "line",
    ["import torch", "from cutlass import cute", "import cuda.bindings.driver as d", "from . import host",
     "from .host import live", "from ..host import live", "def f():\n    import torch.nn"],
)  # fmt: skip
def test_a_foreign_import_would_be_seen(line: str) -> None:
    assert foreign(line)


def test_the_host_side_does_import_them() -> None:
    found = set().union(*(imports(path.read_text()) for path in (FOLDER / "host").glob("*.py")))
    assert {name.split(".")[0] for name in found} >= {"torch", "cutlass", "cuda"}


@pytest.mark.parametrize("name", ["scheduler", "reporter", "schedule", "stuck", "pending", "residents", "threads"])
def test_who_runs_next_knows_no_unit_and_no_check(name: str) -> None:
    """Units register themselves, and launch.py brings the checks; what is imported for types only does not count."""
    tree = ast.parse((FOLDER / "machine" / f"{name}.py").read_text())
    tree.body = [node for node in tree.body if not isinstance(node, ast.If)]
    assert not {line for line in imports(ast.unparse(tree)) if line.startswith(("..units", "..checks"))}
