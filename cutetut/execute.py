"""Execute notebooks in fresh kernels: `run` them all, or `record` their outputs on a Hopper GPU."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutetut import notebooks, provenance
from cutetut.notebooks import NotebookError, code_cells, code_hash, find, read, write

CELL_TIMEOUT = 1200  # seconds; the emulator stops a kernel that loops forever long before

PACKAGE_FOLDER = str(Path(__file__).resolve().parent.parent)
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(r"Cell In\[(\d+)\], line (\d+)")
_CELL_FILE = re.compile(r"/\S*/ipykernel_\d+/\d+\.py")


@dataclass(frozen=True)
class Failure:
    """Why a notebook did not run to its end; cell counts code cells from 1, line from 1 within the cell."""

    notebook: str
    error: str
    cell: int | None = None
    line: int | None = None
    source: str = ""

    def __str__(self) -> str:
        where = "" if self.cell is None else f", code cell {self.cell}"
        if self.line is not None:
            where += f", line {self.line}"
        shown = f"\n    {self.source}" if self.source else ""
        return f"{self.notebook}{where}{shown}\n    {self.error}"


class ExecutionFailed(RuntimeError):
    """A notebook stopped before its end."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


def run(names: Sequence[str | Path] = ()) -> int:
    """Execute notebooks (all of `_toc.yml` if none are named) on this machine's backend; change no file.

    Prints a line with the time for each and the failures at the end. Returns how many failed.
    """
    paths = [find(name) for name in names] or notebooks.toc()
    failures = []
    for path in paths:
        print(f"{path.stem:<24} ", end="", flush=True)
        start = time.perf_counter()
        try:
            executed(path)
            verdict = "ok"
        except ExecutionFailed as problem:
            failures.append(problem.failure)
            verdict = "FAILED"
        print(f"{verdict:<6} {time.perf_counter() - start:7.1f} s", flush=True)
    if failures:
        print(f"\n{len(failures)} of {len(paths)} notebooks failed:")
        for failure in failures:
            print(f"\n  {failure}")
    return len(failures)


def record(names: Sequence[str | Path] = ()) -> int:
    """Execute notebooks on this Hopper GPU and write their outputs, widgets and provenance into them.

    All of `_toc.yml` if none are named. A notebook with a failing cell is left as it was. Returns how many
    failed. Raises provenance.NotRecordable without a Hopper GPU and NotebookError for a file that cannot be
    written, both before anything is executed.
    """
    facts = provenance.collect()
    paths = [find(name) for name in names] or notebooks.toc()
    for path in paths:
        if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            raise NotebookError(f"no permission to write {path}: nothing was executed")
    failures = []
    for path in paths:
        print(f"{path.stem:<24} ", end="", flush=True)
        start = time.perf_counter()
        try:
            notebook = executed(path, backend="gpu")
        except ExecutionFailed as problem:
            failures.append(problem.failure)
            print(f"FAILED, left as it was\n\n  {problem.failure}\n", flush=True)
            continue
        write(_stamped(notebook, facts, path.stem), path)
        print(f"recorded {time.perf_counter() - start:7.1f} s", flush=True)
    return len(failures)


def executed(path: Path, backend: str | None = None) -> Any:
    """A copy of the notebook executed in a fresh kernel of this Python; raises ExecutionFailed.

    backend: the CUTETUT_BACKEND of the kernel; this process's own if None. The working folder is the
    notebook's, and `import cutetut` finds this very package whether or not it is installed.
    """
    notebook = copy.deepcopy(read(path))
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    environment = dict(os.environ)
    paths = [PACKAGE_FOLDER, *filter(None, [environment.get("PYTHONPATH")])]
    environment["CUTETUT_PROGRESS"] = "0"  # what is recorded must not depend on how fast this machine is
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    if backend is not None:
        environment["CUTETUT_BACKEND"] = backend
    running: list[int] = []  # indices of the cells started so far
    client = _client(notebook, path)
    client.on_cell_execute = lambda cell, cell_index: running.append(cell_index)
    try:
        client.execute(env=environment)
    except Exception as error:  # nbclient: cell error, timeout, dead kernel; or no kernel could start
        raise ExecutionFailed(_diagnose(path.stem, notebook, error, running)) from error
    return notebook


def _client(notebook: Any, path: Path) -> Any:
    """An nbclient whose kernel is this very interpreter, whatever kernels the user has installed."""
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    # the log level keeps the kernel's notices about its own transport off the reader's terminal
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=ERROR"]

    class ThisPython(AsyncKernelManager):
        @property
        def kernel_spec(self) -> KernelSpec:
            return KernelSpec(argv=command, display_name="Python 3", language="python")

    return NotebookClient(
        notebook,
        kernel_name="python3",
        kernel_manager_class=ThisPython,
        timeout=CELL_TIMEOUT,
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    )


def _diagnose(name: str, notebook: Any, error: Exception, running: list[int]) -> Failure:
    """Where an execution stopped: the last cell that was started, and its line as the traceback gives it."""
    from nbclient.exceptions import CellTimeoutError

    first_line = (str(error).strip().splitlines() or [""])[0]
    message = f"{type(error).__name__}: {first_line}"
    if not running:
        return Failure(name, message)
    cell = notebook.cells[running[-1]]
    number = sum(c.cell_type == "code" for c in notebook.cells[: running[-1] + 1])
    errors = [output for output in cell.outputs if output.output_type == "error"]
    if not errors or isinstance(error, CellTimeoutError):  # a dead kernel shows no error in the cell
        return Failure(name, message, number)
    output = errors[-1]
    frames = _FRAME.findall(_ANSI.sub("", "\n".join(output.traceback)))
    line = next((int(line) for count, line in frames if int(count) == cell.execution_count), None)
    source = cell.source.splitlines()
    text = source[line - 1].strip() if line and line <= len(source) else ""
    message = _ANSI.sub("", f"{output.ename}: {output.evalue}").strip().replace("\n", "\n    ")
    return Failure(name, message, number, line, text)


def _stamped(notebook: Any, facts: dict[str, str], name: str) -> Any:
    """The executed notebook without what only says where and when it ran, and with its provenance."""
    for cell in code_cells(notebook):
        cell.metadata.pop("execution", None)
        cell.outputs = _without_paths(cell.outputs)
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata["language_info"] = {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"}
    notebook.metadata["cutetut"] = {**facts, "code_hash": code_hash(notebook)}
    return _stable_widget_ids(notebook, name)


def _without_paths(value: Any) -> Any:
    """Text without this machine's folders: paths relative to the project, or to where packages are installed."""
    if isinstance(value, str):
        value = value.replace(f"{notebooks.project_root()}{os.sep}", "")
        for folder in sorted({entry for entry in sys.path if os.path.isabs(entry)}, key=len, reverse=True):
            value = value.replace(f"{folder}{os.sep}", "site-packages/")
        return _CELL_FILE.sub("<cell>", value)
    if isinstance(value, dict):
        for key in list(value):
            value[key] = _without_paths(value[key])
    elif isinstance(value, list):
        value[:] = [_without_paths(item) for item in value]
    return value


def _stable_widget_ids(notebook: Any, name: str) -> Any:
    """Number widget models by the order of their creation, so that recording again changes no line."""
    import nbformat

    state = notebook.metadata.get("widgets", {}).get(WIDGET_STATE, {}).get("state", {})
    text = json.dumps(notebook)
    for number, model in enumerate(state):
        text = text.replace(model, hashlib.sha256(f"{name}/{number}".encode()).hexdigest()[:32])
    return nbformat.from_dict(json.loads(text))
