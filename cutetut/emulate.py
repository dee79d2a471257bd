"""Run a CuTe DSL script, module or notebook that was written for a GPU on a machine without one.

    python -m cutetut emulate script.py [args]
    python -m cutetut emulate -m package.module [args]
    python -m cutetut emulate notebook.ipynb
    python -m cutetut emulate --warn script.py                           go on after errors that are often harmless
    python -m cutetut emulate --waive race@kernel.py:12 script.py        accept one of them at one line
    python -m cutetut emulate --gpus 2 script.py                         two GPUs, which reach each other's memory
    python -m cutetut emulate --ranks 2 script.py                        twice at once, as torchrun does
    python -m cutetut emulate --report found.json script.py              write all that is found as data, too

The script sees a CUDA device: `.cuda()`, `device="cuda"`, torch.cuda's streams and events, and the CUDA
driver's own functions.  Its kernels run in the emulator.  Everything else is as with `python script.py args` or
`python -m package.module args`, except for the kernel caches of other packages: see CACHES.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import itertools
import json
import multiprocessing.spawn
import os
import runpy
import sys
import tempfile
import traceback
import types
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import backend, torchrun
from .course import notebooks
from .emulator import findings, launch
from .emulator.checks import tolerance
from .emulator.errors import EmulatorError
from .emulator.host import compilation, compile_cache, cuda_torch, driver, fresh, live, newer_gpus, pool, together
from .emulator.host import gpus as devices
from .emulator.host import ranks as host_ranks
from .emulator.host.patches import Patches

_HERE = str(Path(__file__).parent)

# Packages that keep compiled kernels in files: what they keep for a GPU cannot run here, and quack would delete it as
# corrupt; what they would keep of this run could not run there.  So they keep none, and other files in `own_cache`.
CACHES = {"QUACK": "quack", "FLASH_ATTENTION_CUTE_DSL": "flash_attention"}


def own_cache() -> Path:
    """The folder for files that emulated programs keep."""
    try:
        return compile_cache.user_cache() / "emulate"
    except RuntimeError:  # there is no home folder
        return Path(tempfile.gettempdir()) / f"cutetut-{os.getuid()}" / "emulate"


def run(
    script: str, args: list[str], module: bool = False, warn: str = "", waive: Sequence[str] = (), report: str = "",
    settings: Mapping[str, str] | None = None, gpus: int | None = None, ranks: int = 0,
) -> int:  # fmt: skip
    """Run a script, a notebook or, by its name, a module as `__main__` with its arguments.

    ranks: how many copies of it run at once, as torchrun starts them; a call of torchrun itself works as well. gpus:
    how many GPUs it sees; by default one for each rank, or as many as a notebook asks the function `gpus` for.

    Returns the exit status `python` would have.

    warn and waive are CUTETUT_WARN and CUTETUT_WAIVE (emulator/checks/tolerance.py), added to what is set already.
    What the script raises is printed to stderr, an emulator error last and with the script's own frames only.
    settings are further variables for the emulator, such as CUTETUT_SCHEDULE. report is a file for what the emulator
    finds, as JSON (emulator/findings.py); it is written unless the script ends by `os._exit` or is
    killed.
    Afterwards the process is as it was: sys.argv, sys.path, __main__, environment, folder, torch and CuTe DSL.
    """
    if torchrun.is_asked_for(script, module):
        try:
            asked = torchrun.read(args, gpus)
        except torchrun.NotOneHost as error:
            print(f"cutetut emulate: {error}", file=sys.stderr)
            return 1
        return run(asked.script, asked.args, asked.module, warn, waive, report, settings, gpus, asked.ranks)
    if not module and not os.path.exists(script):
        print(
            f"{sys.executable}: can't open file {os.path.abspath(script)!r}: [Errno 2] No such file or directory",
            file=sys.stderr,
        )
        return 2
    is_folder = not module and os.path.isdir(script)
    if is_folder and not os.path.isfile(os.path.join(script, "__main__.py")):
        print(f"{sys.executable}: can't find '__main__' module in {os.path.abspath(script)!r}", file=sys.stderr)
        return 1
    if is_notebook := not module and script.endswith(".ipynb"):
        if problem := _problem_of(script, ranks):
            print(f"cutetut emulate: {problem}", file=sys.stderr)
            return 1
    number = gpus or ranks or (notebooks.notebook(script).gpus if is_notebook else 1)
    file = Path(report).absolute()  # the script may change the folder
    if report and (obstacle := _why_not_written(file)):
        print(f"cutetut emulate: the report cannot be written: {obstacle}", file=sys.stderr)
        return 1
    try:
        with _unchanged_process(), emulated_gpu(warn, waive, settings, number) as found:
            sys.argv = [script, *args]
            place = Path(script).resolve()
            sys.path[0:1] = [os.getcwd() if module else str(place if is_folder else place.parent)]
            status = _as_ranks(ranks, script, module) if ranks else _status(script, module)
    except Refused as refused:
        print(f"cutetut emulate: {refused}", file=sys.stderr)
        return 1
    return _write(file, script, status, found) if report else status


class Refused(RuntimeError):
    """Nothing can be emulated here, or not as asked; the message says what to do."""


@contextlib.contextmanager
def emulated_gpu(
    warn: str = "", waive: Sequence[str] = (), settings: Mapping[str, str] | None = None, gpus: int = 1
) -> Iterator[list[findings.Report]]:
    """While it lasts, this process has emulated H200s: torch.cuda, CuTe DSL and CUDA's driver answer as with real ones.

    Gives a list to which everything that the emulator finds is added. The arguments are as in `run`. Afterwards the
    environment, torch and CuTe DSL are as before. Raises Refused.
    """
    if not 1 <= gpus <= devices.MOST:
        raise Refused(f"{gpus} GPUs; there can be 1 to {devices.MOST}, as many as NVLink joins in one host")
    try:
        tolerated = _tolerated(warn, waive)
        launch.expect_settings({**os.environ, **tolerated, **(settings or {})})
        backend.select("emulator")
    except (EmulatorError, backend.BackendError) as error:
        raise Refused(str(error)) from error
    patches, already, chosen = Patches(), driver.installed(), backend.current()
    environment, looked_up = dict(os.environ), (live.on_device, live.lookup)
    try:
        os.environ[backend.VARIABLE] = "emulator"
        os.environ.update({**tolerated, **(settings or {})})
        backend.adopt(backend.Backend("emulator", "cuda", "python -m cutetut emulate"))
        with backend.collection_paused():
            backend.start_emulator()
        live.on_device, live.lookup = cuda_torch.marked, pool.find
        _redirect_caches()
        _emulate_children(patches, gpus)
        with cuda_torch.whole_device(patches, gpus), findings.collecting() as found:
            yield found
    finally:
        patches.restore()
        if not already:
            driver.uninstall()
        backend.adopt(chosen)
        live.on_device, live.lookup = looked_up
        pool.clear()
        fresh.clear()
        os.environ.clear()
        os.environ.update(environment)


_for_good = contextlib.ExitStack()
atexit.register(_for_good.close)


_command_line = multiprocessing.spawn.get_command_line  # of a process without a GPU


def _emulate_children(patches: Patches, number: int) -> None:
    """Processes that multiprocessing spawns have as many GPUs as this one; those that it forks have them anyway."""
    before = f"from cutetut import emulate; emulate.child({number}); "

    def with_gpus(**given: Any) -> list[str]:
        *python, program, fork = _command_line(**given)
        return [*python, before + program, fork]

    patches.set(multiprocessing.spawn, "get_command_line", with_gpus)


def child(number: int) -> None:
    """Have `number` emulated GPUs for the rest of this process, which an emulated program has spawned."""
    _for_good.enter_context(emulated_gpu(gpus=number))


def gpus(number: int) -> list[str]:
    """Have `number` GPUs for the rest of the process, real or emulated, each of which may use the others' memory.

    Returns their names, "cuda:0" and so on. Raises Refused on a host with GPUs, but too few of them, and in a program
    that was started with fewer emulated ones.
    """
    import torch
    from cuda.bindings import runtime

    if not backend.activate().on_gpu:
        if devices.count < number:
            _for_good.close()
            if backend.activate().device == "cuda":  # what exists already cannot become one of several
                raise Refused(f"{_gpus(devices.count)} emulated here, not {number}: cutetut emulate --gpus {number}")
            _for_good.enter_context(emulated_gpu(gpus=number))
    elif torch.cuda.device_count() < number:
        raise Refused(f"{_gpus(torch.cuda.device_count())} here, not {number}; CUTETUT_BACKEND=emulator has them")
    names = [f"cuda:{i}" for i in range(number)]
    for name in names:
        torch.zeros(1, device=name)  # a GPU has no context before its first use
    fine = runtime.cudaError_t.cudaSuccess, runtime.cudaError_t.cudaErrorPeerAccessAlreadyEnabled
    for gpu, peer in itertools.permutations(range(number), 2):
        with torch.cuda.device(gpu):
            (status,) = runtime.cudaDeviceEnablePeerAccess(peer, 0)
        if status not in fine:
            raise Refused(f"cuda:{gpu} cannot use the memory of cuda:{peer}: {status.name}")
    return names


def _gpus(number: int) -> str:
    return "1 GPU is" if number == 1 else f"{number} GPUs are"


@contextlib.contextmanager
def _unchanged_process() -> Iterator[None]:
    """Restore arguments, module search path, folder, `__main__` and the hook for errors afterwards."""
    argv, path, folder, hook, main = sys.argv, list(sys.path), os.getcwd(), sys.excepthook, sys.modules["__main__"]
    try:
        yield
    finally:
        sys.argv, sys.path[:], sys.excepthook, sys.modules["__main__"] = argv, path, hook, main
        with contextlib.suppress(OSError):  # the script may have removed it
            os.chdir(folder)


def _why_not_written(file: Path) -> str:
    """Why a file cannot be written, as far as can be known before; empty if it can."""
    if file.is_dir():
        return f"{file} is a folder"
    if not file.parent.is_dir():
        return f"there is no folder {file.parent}"
    return "" if os.access(file if file.exists() else file.parent, os.W_OK) else f"no permission to write {file}"


def _write(file: Path, script: str, status: int, found: list[findings.Report]) -> int:
    """Write what was found; returns the exit status, which is 1 if that is not possible."""
    data = {"version": 1, "script": script, "status": status, "findings": [report.as_json() for report in found]}
    try:
        file.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        print(f"cutetut emulate: the report was not written: {error}", file=sys.stderr)
        return status or 1
    return status


def _redirect_caches() -> None:
    for prefix, folder in CACHES.items():
        os.environ[f"{prefix}_CACHE_ENABLED"] = "0"
        os.environ[f"{prefix}_CACHE_DIR"] = str(own_cache() / folder)


def _tolerated(warn: str, waive: Sequence[str]) -> dict[str, str]:
    """What is asked for here and in the environment together."""
    kinds = ",".join(filter(None, (os.environ.get(tolerance.WARN), warn)))
    if warn == "all":
        kinds = warn
    waivers = ";".join(filter(None, (os.environ.get(tolerance.WAIVE), *waive)))
    return {tolerance.WARN: kinds, tolerance.WAIVE: waivers}


def _as_ranks(number: int, script: str, module: bool) -> int:
    """Run the program as `number` ranks at once."""
    from .emulator.host import torch_distributed  # imports torch.distributed, which takes a while

    def program(rank: int) -> int:
        status = _status(script, module)
        if status and (race := together.what_is_left()) is not None:
            print(f"cutetut: when rank {rank} failed, there was this, too:\n{race}", file=sys.stderr)
        return status

    return torch_distributed.start(number, program)


def _status(script: str, module: bool) -> int:
    try:
        if module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        elif script.endswith(".ipynb"):
            _run_cells(script)
        else:
            _run_file(script)
        together.run_until(lambda work: work.rank == host_ranks.number(), "the end of the program")
        return 0
    except host_ranks.Ended:
        raise
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        _report(error)
        return 130
    except BaseException as error:
        if module and isinstance(error, ImportError) and own_frames(error.__traceback__, False) is None:
            print(f"{sys.executable}: {error}", file=sys.stderr)  # the module itself is not found
        else:
            _report(error)
        return 1
    finally:
        with contextlib.suppress(ValueError, AttributeError):  # the script has closed it, or put None there
            sys.stdout.flush()


def _run_file(script: str) -> None:
    """Run a script as `__main__`; as under `python`, its file's name is absolute, and sys.argv has the one typed."""
    path = os.path.abspath(script)
    if os.path.isdir(path) or path.endswith(".pyc") or zipfile.is_zipfile(path):
        runpy.run_path(path, run_name="__main__")
        return
    main, before = types.ModuleType("__main__"), sys.modules["__main__"]
    vars(main).update(__file__=path, __cached__=None, __builtins__=builtins)
    sys.modules["__main__"] = main
    try:
        exec(compile(Path(path).read_bytes(), path, "exec", dont_inherit=True), vars(main))
    finally:
        sys.modules["__main__"] = before


def _problem_of(notebook: str, ranks: int) -> str:
    """Why a notebook cannot run, "" if it can; raises ModuleNotFoundError where IPython is not installed."""
    import IPython  # noqa: F401

    try:
        notebooks.notebook(notebook)
    except notebooks.NotebookError as error:
        return str(error)
    return "a notebook cannot run as ranks, a script can" if ranks else ""


def _run_cells(notebook: str) -> None:
    """Run the code cells of a notebook in order, as a kernel of IPython would; raises what a cell raises."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    cells = notebooks.notebook(notebook).cells
    with tempfile.TemporaryDirectory(prefix="cutetut-ipython-") as folder:
        config = Config(HistoryManager={"enabled": False}, InteractiveShell={"colors": "nocolor"})
        shell = InteractiveShell.instance(config=config, ipython_dir=folder)
        shell.showtraceback = shell.showsyntaxerror = lambda *_, **__: None  # the error is raised and reported once
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="To exit: use")
                for cell in cells:
                    shell.run_cell(cell.source, store_history=True).raise_error()
        finally:
            InteractiveShell.clear_instance()
            sys.excepthook = traceback.print_exception  # the interpreter's own cannot show the lines of cells


def _report(error: BaseException) -> None:
    """Print an exception as the interpreter does, without the frames of this package, its runners and the DSL."""
    if isinstance(error, EmulatorError):
        error.publish()  # that of a launch has been published already
        if host_ranks.several():
            error.__context__ = None  # torch.distributed logs it on its way
    if not os.environ.get("CUTETUT_TRACEBACK"):
        error.__traceback__ = own_frames(error.__traceback__, isinstance(error, EmulatorError))
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit:  # CuTe DSL's own hook ends the process, of which there is more to do here
        pass
    except Exception:  # the script replaced it with something that fails
        traceback.print_exception(error)
    if (arch := newer_gpus.needed(error)) is not None:
        print(f"cutetut: this needs {arch} (Blackwell); the emulator runs sm_90a", file=sys.stderr)


def own_frames(trace: types.TracebackType | None, without_dsl: bool) -> types.TracebackType | None:
    """A traceback without the frames of this package and its runners, and perhaps of the libraries that call it."""
    frames = []
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        module = trace.tb_frame.f_globals.get("__name__", "")
        in_dsl = module.startswith(("cutlass.", "torch.distributed."))
        runner = module.startswith("IPython.") or name in ("<frozen runpy>", runpy.__file__, compilation.FRAME)
        ours = name.startswith(_HERE) or runner
        if not ours and not (in_dsl and without_dsl):
            frames.append(trace)
        trace = trace.tb_next
    kept = None
    for frame in reversed(frames):
        kept = types.TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept
