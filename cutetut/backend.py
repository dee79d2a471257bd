"""Which machine runs kernels, and why that one.

A GPU of compute capability 9.0 runs them itself; any other machine runs the same compiled kernels in
the emulator.  `CUTETUT_BACKEND=gpu|emulator|auto` overrides.  `select` decides from plain facts and
touches nothing; `activate` acts on the decision once per process.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib.abc
import importlib.machinery
import importlib.metadata
import os
import shutil
import sys
import tempfile
import types
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cutetut import hardware

VARIABLE = "CUTETUT_BACKEND"
CAPABILITY = (9, 0)
ARCH = "sm_90a"
DSL_PACKAGE, DSL_MODULE = "nvidia-cutlass-dsl", "cutlass"
DSL_VERSION = "4.8.1"  # the emulator's driver reaches into private parts of exactly this version


class BackendError(RuntimeError):
    """The requested backend cannot work on this machine; the message says what to do."""


@dataclass(frozen=True)
class Machine:
    """What `select` needs to know: the first GPU, the torch build and the installed CuTe DSL."""

    gpu: str | None = None
    capability: tuple[int, int] | None = None
    torch: str | None = None
    torch_cuda: bool = False
    dsl: str | None = None


@dataclass(frozen=True)
class Backend:
    """The decision: `name` is "gpu" or "emulator", `device` the torch device to allocate tensors on."""

    name: str
    device: str
    why: str

    @property
    def on_gpu(self) -> bool:
        return self.name == "gpu"

    def line(self) -> str:
        """The line that `activate` prints."""
        where = "on the GPU" if self.on_gpu else "in the emulator"
        return f"cutetut: kernels run {where} ({self.why})"


def probe() -> Machine:
    """Look at this machine."""
    gpu = hardware.first_gpu()
    torch_version, torch_cuda = None, False
    try:
        import torch
    except ImportError:
        pass
    else:
        torch_version, torch_cuda = str(torch.__version__), torch.version.cuda is not None
    try:
        dsl = importlib.metadata.version(DSL_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        dsl = None
    return Machine(gpu[0] if gpu else None, gpu[1] if gpu else None, torch_version, torch_cuda, dsl)


def select(request: str | None = None, machine: Machine | None = None) -> Backend:
    """Decide which backend runs kernels.

    `request` is "gpu", "emulator" or "auto" (None reads CUTETUT_BACKEND, empty means auto); `machine`
    defaults to `probe()`.  Raises BackendError for an unknown word, for "gpu" where no Hopper GPU can be
    used, where CuTe DSL or torch is missing, and for the emulator with a CuTe DSL other than DSL_VERSION.
    """
    if request is None:
        request = os.environ.get(VARIABLE, "")
    request = request.strip().lower() or "auto"
    if request not in ("gpu", "emulator", "auto"):
        raise BackendError(f"{VARIABLE}={request!r} is not a backend: set it to gpu, emulator or auto, or unset it")
    machine = machine or probe()
    if machine.dsl is None:
        raise BackendError(f"CuTe DSL is not installed: pip install {DSL_PACKAGE}=={DSL_VERSION}")
    if machine.torch is None:
        raise BackendError("torch is not installed: pip install torch")
    obstacle = gpu_obstacle(machine)
    if request == "gpu" and obstacle:
        raise BackendError(f"{VARIABLE}=gpu, but {obstacle}; unset {VARIABLE} to run in the emulator")
    if request != "emulator" and not obstacle:
        return Backend("gpu", "cuda", f"{machine.gpu}, compute capability 9.0")
    if machine.dsl != DSL_VERSION:
        raise BackendError(
            f"{DSL_PACKAGE} {machine.dsl} is installed, but the emulator works with {DSL_VERSION} only, because "
            f"it drives private parts of CuTe DSL: pip install {DSL_PACKAGE}=={DSL_VERSION}"
        )
    return Backend("emulator", "cpu", f"{VARIABLE}=emulator" if request == "emulator" else obstacle)


def gpu_obstacle(machine: Machine) -> str:
    """Why kernels cannot run on this machine's GPU; empty where they can."""
    if machine.gpu is None or machine.capability is None:
        return "no NVIDIA GPU was found"
    if machine.capability != CAPABILITY:
        major, minor = machine.capability
        return f"{machine.gpu} has compute capability {major}.{minor} and the kernels need Hopper's 9.0"
    if not machine.torch_cuda:
        return f"{machine.gpu} is here, but torch {machine.torch} is a build without CUDA"
    return ""


def missing_package(error: ModuleNotFoundError) -> str:
    """Which package a command needs, and how to find out what to install."""
    others = {DSL_MODULE: DSL_PACKAGE, "cuda": "cuda-bindings", "yaml": "PyYAML", "IPython": "ipython", "PIL": "pillow"}
    package = others.get(str(error.name), error.name)
    return f"the package {package} is not installed; `python -m cutetut doctor` says what to type"


_PREFIX = "cutetut-"  # of the folder for compiler output
_active: Backend | None = None
_dump_dir: str | None = None


def activate(announce: bool = True) -> Backend:
    """Select this process's backend, once, and prepare CuTe DSL for it; later calls return the first decision.

    Prints one line that says which backend and why.  Raises what `select` raises.
    """
    global _active
    if _active is not None:
        return _active
    activate_on_request()
    with collection_paused():
        chosen = select()
        if chosen.on_gpu:
            _prepare_gpu()
        else:
            start_emulator()
    _active = chosen
    if announce:
        print(chosen.line(), flush=True)
    return chosen


def current() -> Backend | None:
    """The backend of this process; None before `activate`."""
    return _active


def adopt(chosen: Backend | None) -> None:
    """Take over a decision made elsewhere, or forget the one made (None)."""
    global _active
    _active = chosen


class _WithDsl(importlib.abc.MetaPathFinder):
    """Activates a backend when CuTe DSL has been imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != DSL_MODULE:
            return None
        others = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, others), None)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            if self in sys.meta_path:
                activate()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def activate_with_dsl() -> None:
    """Activate a backend now if CuTe DSL is imported already, and otherwise when it is."""
    if sys.modules.get(DSL_MODULE) is not None:
        activate()
    elif not any(isinstance(finder, _WithDsl) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WithDsl())


def activate_on_request() -> None:
    """Leave it to calls of `activate`: commands decide for themselves, and the doctor must change nothing."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _WithDsl)]


def start_emulator() -> None:
    """Let CuTe DSL run kernels in the emulator from now on; a second call does nothing.

    Raises BackendError when the environment asks CuTe DSL for what the emulator cannot follow.
    """
    for name, needed in (("CUTE_DSL_ARCH", ARCH), ("CUTE_DSL_COMPILER_BACKEND", "legacy")):
        if os.environ.get(name, needed) != needed:
            raise BackendError(f"{name}={os.environ[name]}, but the emulator needs {needed}: unset {name}")
    from .emulator.host import driver

    driver.install(artifact_dir())


def artifact_dir() -> str:
    """This process's folder for PTX and cubin files, removed at exit; CUTE_DSL_DUMP_DIR overrides it."""
    global _dump_dir
    chosen = os.environ.get("CUTE_DSL_DUMP_DIR", "")
    if chosen and not os.path.basename(chosen).startswith(_PREFIX):  # a parent process's folder goes when it ends
        return chosen
    if _dump_dir is None:
        try:
            _dump_dir = tempfile.mkdtemp(prefix=_PREFIX)
        except OSError as error:
            raise BackendError(
                f"no temporary folder can be written ({error}): free some space or set TMPDIR to a writable folder"
            ) from None
        atexit.register(_remove, _dump_dir, os.getpid())
    return _dump_dir


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # a forked child must not remove its parent's files
        shutil.rmtree(folder, ignore_errors=True)


def _prepare_gpu() -> None:
    """Let CuTe DSL keep PTX, cubin and line information, through its documented environment variables."""
    tokens = set(filter(None, os.environ.get("CUTE_DSL_KEEP", "").split(","))) | {"ptx", "cubin"}
    settings = {
        "CUTE_DSL_KEEP": ",".join(sorted(tokens)),
        "CUTE_DSL_LINEINFO": "1",
        "CUTE_DSL_DUMP_DIR": artifact_dir(),
    }
    warnings.filterwarnings("ignore", message="Cache is disabled as user wants to generate PTX/ASM")
    os.environ.update(settings)
    from .emulator.host import driver

    driver.reread_environment()
    if importlib.metadata.version(DSL_PACKAGE) == DSL_VERSION:
        driver.reject_host_tensors()


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Pause garbage collection; importing torch and CuTe DSL is then a quarter faster."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
