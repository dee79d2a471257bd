"""Who imports whom in the package: each part only from those before it: the list of folders is the architecture.

How the emulator's own parts build on each other is in tests/emulator/test_imports.py.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import cutetut

FOLDER = Path(cutetut.__file__).parent
LAYERS = (
    "emulator", "columns", "hardware", "backend", "torchrun", "check", "reference", "operands", "layouts",
    "explore", "inspect", "figures", "widgets", "progress", "answers", "course", "emulate", "measure", "doctor",
    "cli", "__main__",
)  # fmt: skip


def imported(source: str, home: tuple[str, ...]) -> set[str]:
    """The parts of the package that a module in this folder imports, wherever in its text it does so."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            targets = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = home[: len(home) - node.level + 1] if node.level else ()
            base = (*above, *(node.module or "").split(".")) if node.module else above
            targets = [(*base, alias.name) for alias in node.names]
        else:
            continue
        found |= {target[1] for target in targets if target[0] == "cutetut" and len(target) > 1}
    return found & set(LAYERS)


def upward(file: Path, source: str) -> set[str]:
    """What a module imports although it comes later in LAYERS."""
    parts = file.relative_to(FOLDER).parts
    own = parts[0].removesuffix(".py")
    later = LAYERS[LAYERS.index(own) + 1 :]
    return imported(source, ("cutetut", *parts[:-1])) & set(later)


MODULES = sorted(file for file in FOLDER.rglob("*.py") if file != FOLDER / "__init__.py")


def test_every_part_has_its_place() -> None:
    parts = {file.relative_to(FOLDER).parts[0].removesuffix(".py") for file in MODULES}
    assert parts == set(LAYERS)


def test_the_table_of_folders_names_every_part() -> None:
    page = (FOLDER.parent / "book" / "contributing.md").read_text()
    columns = re.findall(r"^\| (`cutetut/.*?) \|", page, re.MULTILINE)
    names = [name for column in columns for name in re.findall(r"`(?:cutetut/)?(\w+)(?:/|\.py)`", column)]
    assert sorted(names) == sorted(LAYERS)


@pytest.mark.parametrize("part", LAYERS)
def test_a_part_imports_only_from_those_before_it(part: str) -> None:
    own = [file for file in MODULES if file.relative_to(FOLDER).parts[0].removesuffix(".py") == part]
    assert own
    assert {str(file): found for file in own if (found := upward(file, file.read_text()))} == {}


@pytest.mark.parametrize(
    ("file", "line", "found"),
    [
        ("hardware.py", "from cutetut import backend", {"backend"}),
        ("hardware.py", "import cutetut.measure.bench", {"measure"}),
        ("inspect/run.py", "def f():\n    from ..measure import bench", {"measure"}),
        ("emulator/host/driver.py", "from ... import backend", {"backend"}),
        ("measure/bench.py", "from cutetut.course import notebooks", set()),
        ("inspect/run.py", "from . import cubin", set()),
    ],
)
def test_an_import_of_a_later_part_would_be_seen(file: str, line: str, found: set[str]) -> None:
    assert upward(FOLDER / file, line) == found


# files that docstrings name and nobody has here: examples, and other people's
ELSEWHERE = {"script.py", "kernel.py", "fmha.py", "dense_gemm_fp8_2xacc.py"}


def test_docstrings_name_files_that_there_are() -> None:
    """A file that moves leaves its old name behind in the text of others."""
    folders = ("cutetut", "tests", "book/_ext", "examples")
    there = {file for folder in folders for file in (FOLDER.parent / folder).rglob("*.py")}
    named: dict[str, str] = {}
    for module in (*MODULES, FOLDER / "__init__.py", *(FOLDER.parent / "book" / "_ext").rglob("*.py")):
        nodes = (node for node in ast.walk(ast.parse(module.read_text())))
        documented = [node for node in nodes if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
        text = "\n".join(ast.get_docstring(node) or "" for node in documented)
        named |= dict.fromkeys(re.findall(r"[\w/]*\w\.py\b", text), str(module.relative_to(FOLDER.parent)))
    unknown = {name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in there)}
    assert unknown == ELSEWHERE, {name: named[name] for name in unknown ^ ELSEWHERE if name in named}
    assert "machine/opcodes.py" in named
