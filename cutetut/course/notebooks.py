"""The notebooks as the one source: find them, read and write them, load their kernels.

A notebook's kernel cells are tagged `kernel`, the imports they need `imports`, its measurement `bench`, and cells whose
functions are of use elsewhere `helpers`. `load` makes a module of them; nothing is exported or copied by hand.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from cutetut.course import code_hash as _code_hash

KERNEL_TAGS = ("imports", "kernel")
HELPERS = "helpers"  # a tag: others use what the cell defines, but not what it does with it
_PACKAGE = Path(__file__).resolve().parents[1]  # cutetut
INSTALLED = _PACKAGE / "curriculum"  # where a wheel has the notebooks and their tables (setup.py)
REPOSITORY = "https://github.com/cutetut/cutetut"
KEPT = 500  # modules written from notebooks


class NotebookError(RuntimeError):
    """A notebook is missing, or cannot be used as asked; the message says what to do."""


def project_root() -> Path:
    """The checkout that the package, the working folder or a parent of it is in; otherwise the installed curriculum.

    Raises NotebookError where there is neither.
    """
    try:
        here = [Path.cwd(), *Path.cwd().parents]
    except FileNotFoundError:  # it was deleted
        here = []
    for folder in (_PACKAGE.parent, *here):
        if (folder / "_toc.yml").is_file() and (folder / _PACKAGE.name / "__init__.py").is_file():
            return folder  # other books have a _toc.yml, too
    if (INSTALLED / "_toc.yml").is_file():
        return INSTALLED
    raise NotebookError(f"no checkout of cutetut is here or above: cd into one, or git clone {REPOSITORY}")


def expect_own(names: Sequence[str | Path] = ()) -> None:
    """Refuse to write to the installed package: to notebooks with these names, or to the curriculum if none is named.

    Raises NotebookError.
    """
    if project_root() != INSTALLED:
        return
    written = [find(name) for name in names] or [INSTALLED]
    if any(path.is_relative_to(INSTALLED) for path in written):
        raise NotebookError(
            f"cutetut does not write into its installed package: git clone {REPOSITORY} and run this there"
        )


def toc() -> list[Path]:
    """The curriculum's notebooks in the order of `_toc.yml`.

    Raises NotebookError if `_toc.yml` cannot be read or names a notebook that does not exist.
    """
    paths = listed()
    for path in paths:
        if not path.is_file():
            raise NotebookError(f"_toc.yml lists notebooks/{path.stem}, which does not exist")
    return paths


def listed() -> list[Path]:
    """What `_toc.yml` lists under notebooks/, whether or not the files exist; raises NotebookError."""
    import yaml

    root = project_root()
    try:
        tree = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise NotebookError(f"_toc.yml cannot be read: {error}") from error
    return [root / f"{name}.ipynb" for name in _files(tree) if name.startswith("notebooks/")]


def _files(node: Any) -> Iterable[str]:
    """Every value of a `root:` or `file:` key, in the order in which it is written."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("root", "file"):
                yield str(value)
            else:
                yield from _files(value)
    elif isinstance(node, list):
        for item in node:
            yield from _files(item)


def find(name: str | Path) -> Path:
    """The file of a notebook given as `04_scalar_fma_gemm` or as a path; raises NotebookError if missing."""
    path = Path(name)
    if path.suffix == ".ipynb" and path.is_file():
        return path.resolve()
    if len(path.parts) > 1:
        raise NotebookError(f"there is no notebook {path}; one of the curriculum is named without a folder")
    folder = project_root() / "notebooks"
    path = folder / f"{path.name.removesuffix('.ipynb')}.ipynb"
    if path.is_file():
        return path
    known = ", ".join(sorted(p.stem for p in folder.glob("*.ipynb"))) or "none"
    raise NotebookError(f"no notebook named {Path(name).name}; there are: {known}")


def read(name: str | Path) -> Any:
    """The notebook as an nbformat node; raises NotebookError if it is missing or is no notebook."""
    import nbformat

    path = find(name)
    try:
        return nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat raises several unrelated types, json's among them
        raise NotebookError(f"{path.name} is not a valid notebook: {error}") from error


def write(notebook: Any, path: Path) -> None:
    """Write a notebook; if that is interrupted, the old file stays as it was."""
    import nbformat

    replace_text(path, nbformat.writes(notebook).rstrip("\n") + "\n")


def replace_text(path: Path, text: str) -> None:
    """Write a file so that an interruption or a full disk leaves either the old content or the new."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, path.stat().st_mode & 0o777 if path.exists() else 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def label(chapter: str) -> str:
    """What a table calls a chapter: its number, or, where it has none, its name in words."""
    number = chapter.partition("_")[0]
    return number if number.isdigit() else chapter.replace("_", " ")


def code_cells(notebook: Any) -> list[Any]:
    """The code cells, in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tags(cell: Any) -> list[str]:
    """The tags of a cell."""
    return list(cell.metadata.get("tags", []))


def code_hash(notebook: Any) -> str:
    """The hash of all code cells without their imports: it changes when any line that could print changes."""
    return _code_hash.of_cells(cell.source for cell in code_cells(notebook))


@dataclass(frozen=True)
class Cell:
    """A code cell: its source, its tags, and its number among the code cells, from 1."""

    source: str
    tags: tuple[str, ...]
    number: int


@dataclass(frozen=True)
class Notebook:
    """A notebook's file as it was read once, and its code cells; `notebook` makes it."""

    path: Path
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """Such as 04_scalar_fma_gemm."""
        return self.path.stem

    @property
    def gpus(self) -> int:
        """How many GPUs its cells ask `emulate.gpus` for; 1 if they do not."""
        asked = [number for cell in self.cells for number in re.findall(r"\bemulate\.gpus\((\d+)\)", cell.source)]
        return max(map(int, asked), default=1)

    def source(self, wanted: Sequence[str] = KERNEL_TAGS, without: str = "") -> str:
        """The cells that carry any of these tags as one Python file, each under a comment naming its cell.

        without: a tag whose cells are left out. A cell that is tagged only `helpers` is reduced to its
        `definitions`. Raises NotebookError if the last of `wanted` tags no cell, or if a cell is not valid
        Python.
        """
        parts, found = [], set()
        for cell in self.cells:
            carried = [tag for tag in cell.tags if tag in wanted]
            if carried and without not in cell.tags:
                found.update(carried)
                text = self._python(cell, carried == [HELPERS]).rstrip()
                parts.append(f"# {self.name}, code cell {cell.number} ({', '.join(carried)})\n{text}\n")
        if wanted[-1] not in found:
            raise NotebookError(f"{self.name} has no cell tagged `{wanted[-1]}`: add the tag to the cell in Jupyter")
        return "\n\n".join([f"# Written from {self.path.name}: edit the notebook, not this file.\n", *parts])

    def _python(self, cell: Cell, only_definitions: bool) -> str:
        """A cell's source, or the definitions in it; raises NotebookError if it is not valid Python."""
        try:
            compile(cell.source, self.path.name, "exec")
        except SyntaxError as error:
            where = f"{self.name}, code cell {cell.number}, line {error.lineno}"
            raise NotebookError(f"{where}: {error.msg}: {(error.text or '').strip()}") from error
        return definitions(cell.source) if only_definitions else cell.source

    def code_hash(self, wanted: Sequence[str], without: str = "") -> str:
        """The hash of these cells without their imports and numbers: it changes when their code does; see `source`."""
        unnumbered = re.sub(r"(?m)^(# \w+, code cell) \d+", r"\1", self.source(wanted, without))
        return _code_hash.of_cells([unnumbered])

    def load(self, wanted: Sequence[str] = KERNEL_TAGS) -> ModuleType:
        """These cells, in order, as an imported module; see the function `load`."""
        return _imported(self.source(wanted), self.name)

    def changed(
        self, replacements: Iterable[tuple[str, str]] = (), wanted: Sequence[str] = KERNEL_TAGS
    ) -> ModuleType:
        """The cells of these tags with parts of the text replaced; see the function `changed`."""
        source = self.source(wanted)
        for old, new in replacements:
            if source.count(old) != 1:
                raise NotebookError(f"{self.name}: found {source.count(old)} times, and must be there once: {old!r}")
            source = source.replace(old, new)
        return _imported(source, "changed")


def notebook(name: str | Path) -> Notebook:
    """A notebook given as in `find`, read and parsed; raises NotebookError if it is missing or is no notebook."""
    path = find(name)
    try:  # nbformat, which checks more, takes a second to import
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        found = [("".join(cell["source"]), tuple(cell["metadata"].get("tags", []))) for cell in code]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotebookError(f"{path.name} is not a valid notebook: {error!r}") from error
    return Notebook(path, tuple(Cell(*each, number) for number, each in enumerate(found, start=1)))


def definitions(source: str) -> str:
    """The imports, functions, classes and constants of a cell, without its other statements.

    A constant is a name in capitals that is assigned something without a call. Raises SyntaxError for text that is
    not Python.
    """
    parts = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            parts.append("\n".join(source.split("\n")[first - 1 : node.end_lineno]))
        elif isinstance(node, ast.Import | ast.ImportFrom) or _is_constant(node):
            parts.append(ast.get_source_segment(source, node) or "")
    return "\n\n".join(parts)


def _is_constant(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    named = [each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
    calls = any(isinstance(each, ast.Call | ast.Await) for each in ast.walk(node))
    return all(name.id.isupper() for name in named) and not calls


def tagged_source(name: str | Path, wanted: Sequence[str] = KERNEL_TAGS) -> str:
    """`Notebook.source` of a notebook given as in `find`."""
    return notebook(name).source(wanted)


def load(name: str | Path, wanted: Sequence[str] = KERNEL_TAGS) -> ModuleType:
    """A notebook's cells tagged `imports` or `kernel`, in order, as an imported module.

    CuTe DSL reads a kernel's source from its file, so the cells are written to a real one, named after a hash
    of its text: loading again gives the same module, and loading after an edit a new one. Raises
    NotebookError for a missing notebook, a syntax error or no kernel cell; what the cells raise passes through.
    """
    return notebook(name).load(wanted)


def changed(
    name: str | Path, replacements: Iterable[tuple[str, str]] = (), wanted: Sequence[str] = KERNEL_TAGS
) -> ModuleType:
    """`load` with parts of the text replaced, (old, new) each: a kernel with a mistake, or an experiment.

    Raises NotebookError for an old text that is not in the cells exactly once, besides what `load` raises.
    """
    return notebook(name).changed(replacements, wanted)


def _imported(source: str, title: str) -> ModuleType:
    """A module of this source: the same one each time, from a file whose name has a hash of its text."""
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    module_name = f"cutetut_notebook_{title}_{digest}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    file = _cache_folder() / f"{title}_{digest}.py"
    replace_text(file, source)
    with contextlib.suppress(OSError):  # another process may be removing the same files
        _remove_old(file.parent)
    spec = importlib.util.spec_from_file_location(module_name, file)
    assert spec is not None and spec.loader is not None  # a .py file always has a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module


def _cache_folder() -> Path:
    """`.cache/kernels` in the project, or a folder of this process where the project is read-only or installed."""
    root = project_root()
    if root == INSTALLED:
        return _temporary_folder()
    folder = root / ".cache" / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return _temporary_folder()


@functools.cache
def _temporary_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="cutetut-kernels-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _remove_old(folder: Path) -> None:
    """Leave the files that were used last: each edit of a notebook makes a new one."""
    files = sorted(folder.glob("*.py"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in files[KEPT:]:
        file.unlink(missing_ok=True)
