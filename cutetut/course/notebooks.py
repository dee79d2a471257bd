"""The notebooks as the one source: load their kernels, run them, record their outputs.

A notebook's kernel cells are tagged `kernel`, the imports they need `imports`, and its measurement `bench`.
`load` makes a module of them; nothing is exported or copied by hand. The committed outputs come from `record`
on a Hopper GPU, which also writes where they come from into the notebook's metadata, with a hash of the code
that printed them. `run` executes every notebook and leaves the files alone.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from cutetut.course import code_hash as _code_hash

KERNEL_TAGS = ("imports", "kernel")
_PACKAGE = Path(__file__).resolve().parents[1]  # cutetut
INSTALLED = _PACKAGE / "curriculum"  # where a wheel has the notebooks and their tables (setup.py)
KEPT = 500  # modules written from notebooks


class NotebookError(RuntimeError):
    """A notebook is missing, or cannot be used as asked; the message says what to do."""


def project_root() -> Path:
    """The folder that holds `_toc.yml`: the package's own checkout, or the working folder's or a parent's.

    Outside of any checkout it is the curriculum that the package was installed with.
    """
    here = Path.cwd()
    for folder in (_PACKAGE.parent, here, *here.parents, INSTALLED):
        if (folder / "_toc.yml").is_file():
            return folder
    raise NotebookError("no _toc.yml in this folder or above it: run this inside a checkout of cutetut")


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
    """Write a notebook; what stops it halfway leaves the old file as it was."""
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


def code_cells(notebook: Any) -> list[Any]:
    """The code cells, in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tags(cell: Any) -> list[str]:
    """The tags of a cell."""
    return list(cell.metadata.get("tags", []))


def code_hash(notebook: Any) -> str:
    """The hash of all code cells without their imports: it changes when any line that could print changes."""
    return _code_hash.of_cells(cell.source for cell in code_cells(notebook))


def _sources(path: Path) -> list[tuple[str, list[str]]]:
    """Source and tags of each code cell; nbformat, which checks more, takes a second to import."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return [
            ("".join(cell["source"]), list(cell["metadata"].get("tags", [])))
            for cell in cells
            if cell["cell_type"] == "code"
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotebookError(f"{path.name} is not a valid notebook: {error!r}") from error


def tagged_source(name: str | Path, wanted: Sequence[str] = KERNEL_TAGS) -> str:
    """The cells that carry any of these tags as one Python file, each under a comment naming its cell.

    Raises NotebookError if the last of `wanted` tags no cell, or if a cell is not valid Python.
    """
    path = find(name)
    parts, found = [], set()
    for number, (source, carries) in enumerate(_sources(path), start=1):
        carried = [tag for tag in carries if tag in wanted]
        if not carried:
            continue
        found.update(carried)
        try:
            compile(source, path.name, "exec")
        except SyntaxError as error:
            raise NotebookError(
                f"{path.stem}, code cell {number}, line {error.lineno}: {error.msg}: {(error.text or '').strip()}"
            ) from error
        parts.append(f"# {path.stem}, code cell {number} ({', '.join(carried)})\n{source.rstrip()}\n")
    if wanted[-1] not in found:
        raise NotebookError(f"{path.stem} has no cell tagged `{wanted[-1]}`: add the tag to the cell in Jupyter")
    return "\n\n".join([f"# Written from {path.name}: edit the notebook, not this file.\n", *parts])


def load(name: str | Path, wanted: Sequence[str] = KERNEL_TAGS) -> ModuleType:
    """A notebook's cells tagged `imports` or `kernel`, in order, as an imported module.

    CuTe DSL reads a kernel's source from its file, so the cells are written to a real one, named after a hash
    of its text: loading again gives the same module, and loading after an edit a new one. Raises
    NotebookError for a missing notebook, a syntax error or no kernel cell; what the cells raise passes through.
    """
    return _imported(tagged_source(name, wanted), find(name).stem)


def changed(name: str | Path, replacements: Iterable[tuple[str, str]] = ()) -> ModuleType:
    """`load` with parts of the text replaced, (old, new) each: a kernel with a mistake, or an experiment.

    Raises NotebookError for an old text that is not in the cells exactly once, besides what `load` raises.
    """
    source = tagged_source(name)
    for old, new in replacements:
        if source.count(old) != 1:
            raise NotebookError(f"{find(name).stem}: found {source.count(old)} times, and must be there once: {old!r}")
        source = source.replace(old, new)
    return _imported(source, "changed")


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
