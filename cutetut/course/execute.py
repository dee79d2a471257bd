"""Execute notebooks in fresh kernels: `run` leaves the files alone, `record` keeps the outputs of a Hopper GPU.

With its outputs `record` writes where they come from into a notebook's metadata, and a hash of the code that printed
them.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutetut.course import notebooks, provenance
from cutetut.course.notebooks import NotebookError, code_cells, code_hash, find, read, write

MOST_JOBS = 4  # notebooks at a time, of a gigabyte each
TIMED = "timed"  # tag of a cell that prints how long something takes while it runs
CELL_TIMEOUT = 1200  # seconds; the emulator stops a kernel that loops forever long before

PACKAGE_FOLDER = str(Path(__file__).resolve().parents[2])  # what holds cutetut
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(r"Cell In\[(\d+)\], line (\d+)")
_running: list[Running] = []
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


@dataclass(frozen=True)
class Running:
    """A notebook that is being executed: nbclient's client, and the indices of the cells started so far."""

    path: Path
    client: Any
    started: list[int]

    def __str__(self) -> str:
        if not self.started:
            return f"{self.path.stem}: its kernel was starting"
        return f"{self.path.stem}: in code cell {_number_of(self.client.nb, self.started[-1])}"


class ExecutionFailed(RuntimeError):
    """A notebook stopped before its end."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


def run(names: Sequence[str | Path] = (), jobs: int | None = None, backend: str | None = None) -> int:
    """Execute notebooks (all of `_toc.yml` if none are named) here; change no file.

    jobs: how many at a time; None: one for each core, up to MOST_JOBS. backend: as in `executed`. Prints a line with
    the time for each when it ends, and the failures at the end. Returns how many failed. Raises ValueError for fewer
    jobs than one.
    """
    paths = [find(name) for name in names] or notebooks.toc()
    jobs = _jobs(jobs)
    # with a notebook on each core, threads of one would only take time from the others
    environment = {"OMP_NUM_THREADS": "1"} if jobs > 1 else {}
    failures: dict[Path, Failure] = {}

    def say(path: Path, seconds: float, done: Any) -> None:
        failed = isinstance(done, Failure)
        print(f"{path.stem:<24} {'FAILED' if failed else 'ok':<6} {seconds:7.1f} s", flush=True)
        if failed:
            failures[path] = done

    _execute_all(paths, jobs, say, backend=backend, environment=environment)
    if failures:
        print(f"\n{len(failures)} of {len(paths)} notebooks failed:")
        for path in filter(failures.__contains__, paths):
            print(f"\n  {failures[path]}")
    return len(failures)


def _jobs(asked: int | None) -> int:
    """How many notebooks are executed at a time; raises ValueError for fewer than one."""
    if asked is None:
        return min(len(os.sched_getaffinity(0)), MOST_JOBS)
    if asked < 1:
        raise ValueError(f"{asked} notebooks at a time: it must be 1 or more")
    return asked


def _execute_all(
    paths: Sequence[Path], jobs: int, finished: Callable[[Path, float, Any], None], **options: Any
) -> None:
    """Call finished(path, seconds, executed notebook or Failure) as each is done; options are those of `executed`.

    Whatever ends this early ends all kernels; an interruption prints where each was.
    """
    with ThreadPoolExecutor(jobs) as pool:
        started = {pool.submit(_attempt, path, options): path for path in paths}
        try:
            for done in as_completed(started):
                finished(started[done], *done.result())
        except BaseException as problem:
            pool.shutdown(wait=False, cancel_futures=True)
            if isinstance(problem, KeyboardInterrupt):
                print("interrupted", *_running, sep="\n  ", flush=True)
            _kill_kernels()
            raise


def _attempt(path: Path, options: dict[str, Any]) -> tuple[float, Any]:
    """The seconds that a notebook takes; what it is afterwards, or why it failed."""
    start = time.perf_counter()
    try:
        done: Any = executed(path, **options)
    except ExecutionFailed as problem:
        done = problem.failure
    return time.perf_counter() - start, done


def _kill_kernels() -> None:
    """End the kernels of all notebooks that are running; whoever waits for one finds that it has died."""
    for each in list(_running):
        with contextlib.suppress(AttributeError, TypeError, OSError):  # one that has not started, or has ended
            os.kill(each.client.km.provisioner.pid, signal.SIGKILL)


def record(names: Sequence[str | Path] = (), jobs: int | None = None) -> int:
    """Execute notebooks on this Hopper GPU and write their outputs, widgets and provenance into them.

    All of `_toc.yml` if none are named; jobs at a time, as in `run`. Those with a cell tagged `timed` come last, one at
    a time: others would slow down what they time. A notebook with a failing cell is left as it was. Returns how many
    failed. Raises provenance.NotRecordable without a Hopper GPU and NotebookError for a file that cannot be
    written, both before anything is executed; ValueError for fewer jobs than one.
    """
    facts, jobs = provenance.collect(), _jobs(jobs)
    paths = [find(name) for name in names] or notebooks.toc()
    for path in paths:
        if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            raise NotebookError(f"no permission to write {path}: nothing was executed")
    alone = [path for path in paths if any(TIMED in cell.tags for cell in notebooks.notebook(path).cells)]
    together = [path for path in paths if path not in alone]
    failures: list[Failure] = []

    def keep(path: Path, seconds: float, done: Any) -> None:
        if isinstance(done, Failure):
            failures.append(done)
            print(f"{path.stem:<24} FAILED, left as it was\n\n  {done}\n", flush=True)
        else:
            write(_stamped(done, provenance.of_several(facts, notebooks.notebook(path).gpus), path.stem), path)
            print(f"{path.stem:<24} recorded {seconds:7.1f} s", flush=True)

    _execute_all(together, jobs, keep, backend="gpu")
    _execute_all(alone, 1, keep, backend="gpu")
    return len(failures)


def executed(path: Path, backend: str | None = None, environment: Mapping[str, str] | None = None) -> Any:
    """A copy of the notebook executed in a fresh kernel of this Python; raises ExecutionFailed.

    backend: the CUTETUT_BACKEND of the kernel; this process's own if None. environment: further variables of it. The
    working folder is the notebook's, and `import cutetut` finds this very package whether or not it is installed.
    """
    notebook = copy.deepcopy(read(path))
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    environment = {**os.environ, **(environment or {})}
    paths = [PACKAGE_FOLDER, *filter(None, [environment.get("PYTHONPATH")])]
    environment["CUTETUT_PROGRESS"] = "0"  # what is recorded must not depend on how fast this machine is
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    if backend is not None:
        environment["CUTETUT_BACKEND"] = backend
    client = _client(notebook, path)
    running = Running(path, client, [])
    client.on_cell_execute = lambda cell, cell_index: running.started.append(cell_index)
    _running.append(running)
    try:
        # what C code and GPUs print is in the cells; a kernel repeats it on its own output, where nobody wants it
        client.execute(env=environment, stdout=subprocess.DEVNULL)
    except Exception as error:  # nbclient: cell error, timeout, dead kernel; or no kernel could start
        raise ExecutionFailed(_diagnose(path.stem, notebook, error, running.started)) from error
    finally:
        _running.remove(running)
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
        coalesce_streams=True,  # else how a cell's text is cut depends on when it was printed
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
    number = _number_of(notebook, running[-1])
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


def _number_of(notebook: Any, index: int) -> int:
    """Which of its code cells, from 1, the cell at this index is."""
    return sum(cell.cell_type == "code" for cell in notebook.cells[: index + 1])


def _stamped(notebook: Any, facts: dict[str, str], name: str) -> Any:
    """The executed notebook with its provenance, and without what depends only on where and when it ran."""
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
