"""Who imports whom: only `host/` imports CuTe DSL, torch or cuda-python, and the emulator's parts build on each other.

An import for types only counts as well: whoever reads the importing module must know the imported one.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from cutetut import emulator
from cutetut.emulator import host

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


# -- the parts, and which may import from which ----------------------------------------------------

# Each may import from those before it. A file of its own at the package's root is a part of one module.
PARTS = ("findings", "errors", "progress", "ptx", "numbers", "machine", "checks", "compiled", "units", "measure",
         "decoding", "launch", "ptx_file", "host")  # fmt: skip

Graph = dict[str, set[str]]


def module_graph(folder: Path) -> Graph:
    """Every module below a package's folder, and the modules below it that each imports, for types only too.

    To import a module of another folder is to run that folder's `__init__`, which is therefore imported as well.
    """
    paths = {_dotted(path.relative_to(folder)): path for path in sorted(folder.rglob("*.py"))}
    package = emulator.__name__
    graph: Graph = {}
    for name, path in paths.items():
        home = name if path.name == "__init__.py" else name.rpartition(".")[0]
        graph[name] = set()
        for target in _targets(path.read_text(), home, package):
            parts = target.split(".")
            found = [prefix for n in range(1, len(parts) + 1) if (prefix := ".".join(parts[:n])) in paths]
            graph[name] |= {folder for folder in found[:-1] if not f"{home}.".startswith(f"{folder}.")}
            graph[name] |= set(found[-1:]) - {name}
    return graph


def _dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix("__init__").rstrip(".")


def _targets(source: str, home: str, package: str) -> set[str]:
    """What a module imports of its package: names of modules, or of what is in them, from the package's root."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.removeprefix(f"{package}.") for alias in node.names if alias.name.startswith(package)}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = home.split(".") if home else []
                base = ".".join([*above[: len(above) - node.level + 1], *filter(None, [node.module])])
            elif base == package or base.startswith(f"{package}."):
                base = base[len(package) + 1 :]
            else:
                continue
            found |= {f"{base}.{alias.name}".lstrip(".") for alias in node.names}
    return found


def circle(graph: Graph) -> list[str]:
    """Modules that import each other in a circle, each followed by one that it imports; none is an empty list."""
    left = {name: set(targets) for name, targets in graph.items()}
    while free := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in free:
            del left[name]
    if not left:
        return []
    path = [next(iter(left))]
    while path.count(path[-1]) == 1:
        path.append(min(left[path[-1]] & left.keys()))
    return path[path.index(path[-1]) :]


def upward(graph: Graph) -> set[tuple[str, str]]:
    """Imports from a part further up; of a module in no part, all of them."""
    height = {part: n for n, part in enumerate(PARTS)}
    return {
        (name, target)
        for name, targets in graph.items()
        for target in targets
        if height.get(target.split(".")[0], len(PARTS)) > height.get(name.split(".")[0], -1)
    }


GRAPH = module_graph(FOLDER)


def test_a_part_imports_only_from_those_before_it() -> None:
    assert upward(GRAPH) == set()


def test_no_imports_run_in_a_circle() -> None:
    assert circle(GRAPH) == []


def test_every_module_is_in_a_part_and_every_part_exists() -> None:
    assert {name.split(".")[0] for name in GRAPH} == {"", *PARTS}
    assert GRAPH[""] == set()


def test_only_the_units_are_imported_by_name_at_run_time() -> None:
    """An import that the graph cannot see: `load_all` walks its own folder."""
    by_name = {_dotted(path.relative_to(FOLDER)) for path in MODULES if "importlib" in imports(path.read_text())}
    assert by_name == {"units"}


PACKAGE = {
    "__init__.py": "", "errors.py": "", "launch.py": "from .units import tma\nfrom . import errors",
    "machine/__init__.py": "", "machine/memory.py": "from ..errors import EmulatorError",
    "machine/deep/__init__.py": "", "machine/deep/core.py": "from ...errors import X\nfrom .. import memory",
    "units/__init__.py": "", "units/tma.py": "from ..machine.memory import HOST",
}  # fmt: skip
MISTAKES = {
    "an import from a part further up": ("machine/memory.py", "from ..units.tma import decode"),
    "one for types only": ("machine/memory.py", "if TYPE_CHECKING:\n    from ..units.tma import decode"),
    "one inside a function": ("machine/memory.py", "def f():\n    from ..units import tma"),
    "one by the full name": ("machine/memory.py", "import cutetut.emulator.units.tma"),
    "one from the full name": ("machine/memory.py", "from cutetut.emulator.units import tma"),
    "one from a folder in a folder": ("machine/deep/core.py", "from ...units import tma"),
    "one from a file at the root": ("errors.py", "from .machine import memory"),
    "one of the whole part": ("machine/memory.py", "from .. import units"),
}


def written(folder: Path, files: dict[str, str]) -> Graph:
    """The graph of a package with these files."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return module_graph(folder)


def test_a_package_in_order_has_nothing_to_complain_about(tmp_path: Path) -> None:
    graph = written(tmp_path, PACKAGE)
    assert graph["launch"] == {"units", "units.tma", "errors"}
    assert graph["units.tma"] == {"machine", "machine.memory"}
    assert graph["machine.deep.core"] == {"errors", "machine.memory"}
    assert upward(graph) == set() and circle(graph) == []


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_import_in_the_wrong_direction_would_be_seen(mistake: str, tmp_path: Path) -> None:
    where, line = MISTAKES[mistake]
    found = upward(written(tmp_path, PACKAGE | {where: line}))
    assert {name for name, _ in found} == {_dotted(Path(where))}


@pytest.mark.parametrize(
    ("first", "second"),
    [("from .b import x", "from .a import y"),
     ("from . import b", "if TYPE_CHECKING:\n    from . import a"),
     ("from .c import x", "def f():\n    from . import a"),
     ("from . import b", "import cutetut.emulator.units.a as a")],
)  # fmt: skip
def test_a_circle_inside_a_room_would_be_seen(first: str, second: str, tmp_path: Path) -> None:
    files = {"__init__.py": "", "units/__init__.py": "", "units/a.py": first, "units/b.py": second,
             "units/c.py": "from .b import z"}  # fmt: skip
    graph = written(tmp_path, files)
    found = circle(graph)
    assert set(found) >= {"units.a", "units.b"} and found[0] == found[-1]
    assert all(target in graph[name] for name, target in zip(found, found[1:], strict=False))


def test_a_circle_through_a_part_s_init_would_be_seen(tmp_path: Path) -> None:
    files = {"__init__.py": "", "units/__init__.py": "from .a import x\ny = 1", "units/a.py": "from . import y"}
    assert set(circle(written(tmp_path, files))) == {"units", "units.a"}


def test_a_module_outside_of_the_parts_would_be_seen(tmp_path: Path) -> None:
    graph = written(tmp_path, {"__init__.py": "", "errors.py": "", "extras.py": "from . import errors"})
    assert upward(graph) == {("extras", "errors")}


def test_the_host_says_what_each_of_its_files_is_for() -> None:
    folder = Path(host.__file__).parent
    files = {file.name for file in folder.glob("*.py")} - {"__init__.py"}
    assert files == set(re.findall(r"`(\w+\.py)`", host.__doc__ or ""))
