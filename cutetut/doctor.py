"""What this machine has, what will run where, and what to do about each problem.

`gather` looks at the machine, every check is a function from those facts to what it found, and `main` prints.
Nothing here imports torch or CuTe DSL at the top, so that the doctor works where they are missing or broken.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cutetut import backend, hardware
from cutetut.course import notebooks, provenance

PYTHONS = ((3, 11), (3, 13))  # oldest and newest supported
BOOK = "jupyter-book"  # which only a checkout needs: nothing else has the book's sources
NEEDED_TO_RUN = ("ipykernel", "nbclient", "nbformat", "ipywidgets", "anywidget", "matplotlib", "pillow", "PyYAML")
CHAPTERS = (*NEEDED_TO_RUN, "jupyterlab", BOOK)
LLVM = "llvmlite>=0.50"  # as pyproject.toml asks for it
DISK_NEEDED, DISK_COMFORTABLE = 0.5, 2.0  # GB: the book, caches and temporary PTX; room for an installation
MEMORY_COMFORTABLE = 3.0  # GB: torch, CuTe DSL's compiler and one notebook kernel at a time
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass(frozen=True)
class Facts:
    """What the checks look at.

    memory_gb: what is available, None if that cannot be read. project: the checkout, None outside of one. installed:
    whether there is no checkout, and the chapters came with the package. torch_error, dsl_error, llvm_error: why the
    package cannot be imported, empty if it can or is not wanted. llvm: the version of llvmlite, None if it is missing.
    cache_problem: why no compiled kernel can be kept, empty if one can. driver: the GPU's, None without one. request:
    CUTETUT_BACKEND. packages: version by name, None for a missing one. browser, disassembler: their paths, if any.
    """

    python: tuple[int, int, int]
    system: str
    architecture: str
    distribution: str
    processor: str
    cores: int
    memory_gb: float | None
    disk_gb: float
    project: str | None
    installed: bool
    project_writable: bool
    temporary_writable: bool
    cache_problem: str
    machine: backend.Machine
    torch_error: str
    dsl_error: str
    llvm: str | None
    llvm_error: str
    driver: str | None
    request: str
    packages: dict[str, str | None]
    browser: str | None
    disassembler: str | None


@dataclass(frozen=True)
class Finding:
    """A problem or a note: what it is, what to do, and whether nothing can run until that is done."""

    what: str
    remedy: str
    fatal: bool = True


def gather() -> Facts:
    """Look at this machine; never raises because something is missing."""
    from cutetut.emulator.host import compile_cache
    from cutetut.inspect import cubin

    root = _root()
    project = None if root == notebooks.INSTALLED else root
    torch_error, dsl_error = _import_error("numpy, torch"), _import_error("cutlass.cute")
    machine = backend.probe() if not torch_error else _probe_without_torch()
    gpus = hardware.gpus()
    tool = cubin.find_disassembler()
    return Facts(
        python=sys.version_info[:3],
        system=platform.system(),
        architecture=platform.machine(),
        distribution=_distribution(),
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_gb=_memory_gb(),
        disk_gb=shutil.disk_usage(project or Path.cwd()).free / 1e9,
        project=str(project) if project else None,
        installed=root == notebooks.INSTALLED,
        project_writable=project is not None and os.access(project, os.W_OK),
        temporary_writable=_temporary_writable(),
        cache_problem=compile_cache.why_not(),
        machine=machine,
        torch_error=torch_error,
        dsl_error=dsl_error,
        llvm=provenance.version("llvmlite"),
        llvm_error="" if os.environ.get("CUTETUT_JIT") == "0" else _import_error("llvmlite.binding"),
        driver=gpus[0].driver if gpus else None,
        request=os.environ.get(backend.VARIABLE, ""),
        packages={name: provenance.version(name) for name in CHAPTERS},
        browser=next(filter(None, (os.environ.get("CUTETUT_BROWSER"), *map(shutil.which, BROWSERS))), None),
        disassembler=str(tool) if tool else None,
    )


def _root() -> Path | None:
    try:
        return notebooks.project_root()
    except notebooks.NotebookError:
        return None


def _import_error(modules: str) -> str:
    """Why modules cannot be imported, in one line; tried in another process, which it may crash."""
    command = [sys.executable, "-c", f"import {modules}"]
    environment = {**os.environ, "CUTE_DSL_ARCH": backend.ARCH}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return f"importing {modules} took over two minutes"
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


def _probe_without_torch() -> backend.Machine:
    gpu = hardware.first_gpu()
    name, capability = gpu if gpu else (None, None)
    return backend.Machine(name, capability, None, False, provenance.version(backend.DSL_PACKAGE))


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return platform.system()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _memory_gb() -> float | None:
    """Memory that is free or can be freed, by Linux's own estimate."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 / 1e9 for line in lines if line.startswith("MemAvailable:")), None)


def _temporary_writable() -> bool:
    import tempfile

    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"x")
        return True
    except OSError:
        return False


def check_python(facts: Facts) -> Finding | None:
    """CuTe DSL's compiled parts exist for these versions."""
    if PYTHONS[0] <= facts.python[:2] <= PYTHONS[1]:
        return None
    then = "python3.12 -m pip install cutetut" if facts.installed else "make PYTHON=/path/to/python3.12 run"
    return Finding(
        f"Python {_dotted(facts.python)} is not supported",
        f"install Python {_dotted(PYTHONS[0])} to {_dotted(PYTHONS[1])}, then: {then}",
    )


def check_system(facts: Facts) -> Finding | None:
    """NVIDIA publishes CuTe DSL for Linux only."""
    if facts.system == "Linux" and facts.architecture in ("x86_64", "aarch64"):
        return None
    return Finding(
        f"CuTe DSL does not exist for {facts.system} on {facts.architecture}",
        "use 64-bit Linux; on Windows, WSL 2; on a Mac, a Linux container",
    )


def check_torch(facts: Facts) -> Finding | None:
    """Tensors are torch's on either backend."""
    if not facts.torch_error:
        return None
    everything = "type make run, which installs everything, or: pip install -r requirements.txt"
    if facts.installed:
        everything = "pip install torch numpy"
    package = "numpy" if "'numpy'" in facts.torch_error else "torch"
    return Finding(f"{package} cannot be imported: {facts.torch_error}", everything)


def check_dsl(facts: Facts) -> Finding | None:
    """The compiler, of the version that the emulator's driver knows."""
    pinned = f"pip install {backend.DSL_PACKAGE}=={backend.DSL_VERSION}"
    version = facts.machine.dsl
    if facts.dsl_error:
        return Finding(f"CuTe DSL {version or ''}".rstrip() + f" cannot be imported: {facts.dsl_error}", pinned)
    if version == backend.DSL_VERSION:
        return None
    runs_here = where(facts) == "gpu"
    return Finding(
        f"CuTe DSL {version} is installed; the chapters are written for and tested with {backend.DSL_VERSION}",
        pinned,
        fatal=not runs_here,
    )


def check_llvm(facts: Facts) -> Finding | None:
    """What compiles the emulator's arithmetic; kernels on a GPU need none of it."""
    if not facts.llvm_error or where(facts) == "gpu":
        return None
    if facts.llvm is None:
        what = "llvmlite is not installed: the emulator works without it, but arithmetic takes several times as long"
        return Finding(what, f"pip install '{LLVM}'", fatal=False)
    return Finding(
        f"llvmlite {facts.llvm} cannot be imported: {facts.llvm_error}",
        f"pip install --force-reinstall '{LLVM}', or set CUTETUT_JIT=0: the emulator then does without it, but slower",
    )


def check_backend(facts: Facts) -> Finding | None:
    """CUTETUT_BACKEND asks for something this machine can do."""
    if facts.request in ("", "auto") or facts.torch_error or facts.dsl_error:
        return None
    try:
        backend.select(facts.request, facts.machine)
    except backend.BackendError as error:
        if where(facts) is None:
            return Finding(str(error), f"unset {backend.VARIABLE}, or set it to auto")
    return None


def check_gpu(facts: Facts) -> Finding | None:
    """A GPU that cannot be used is not an error, but should not be a surprise."""
    machine = facts.machine
    if machine.gpu is None or machine.capability is None or facts.request in ("gpu", "emulator"):
        return None
    if machine.capability != backend.CAPABILITY:
        return Finding(
            f"{machine.gpu} has compute capability {_dotted(machine.capability)}; the kernels need Hopper's 9.0",
            "nothing to do: they run in the emulator, and measured tables show an H200's numbers",
            fatal=False,
        )
    if machine.torch is not None and not machine.torch_cuda:
        return Finding(
            f"{machine.gpu} could run the kernels, but torch {machine.torch} is a build without CUDA",
            "install a CUDA build of torch (pytorch.org, Get started); until then they run in the emulator",
            fatal=False,
        )
    return None


def check_project(facts: Facts) -> Finding | None:
    """`make run` writes caches and the book into the checkout; an installed package writes nothing beside itself."""
    if facts.installed:
        return None
    if facts.project is None:
        return Finding("no checkout of cutetut is here or above", f"cd into one, or git clone {notebooks.REPOSITORY}")
    if not facts.project_writable:
        return Finding(
            f"no permission to write {facts.project}",
            f'chown -R "$USER" {facts.project}, or clone the project into your home folder',
        )
    return None


def check_temporary(facts: Facts) -> Finding | None:
    """CuTe DSL writes each kernel's PTX into a temporary folder."""
    if facts.temporary_writable:
        return None
    return Finding("no temporary folder can be written", "free space in /tmp, or set TMPDIR to a writable folder")


def check_cache(facts: Facts) -> Finding | None:
    """Compiled kernels are kept for other processes, which matters without a GPU."""
    if not facts.cache_problem:
        return None
    return Finding(
        f"no compiled kernel can be kept ({facts.cache_problem}), so each process compiles its kernels anew",
        "set CUTETUT_CACHE to a folder that can be written, or to off",
        fatal=False,
    )


def check_disk(facts: Facts) -> Finding | None:
    """Enough disk to build the book, or at least a warning."""
    if facts.disk_gb >= DISK_COMFORTABLE:
        return None
    return Finding(
        f"only {facts.disk_gb:.1f} GB of disk space is free here",
        f"free some: running needs {DISK_NEEDED:g} GB, a fresh installation {DISK_COMFORTABLE:g} GB or more",
        fatal=facts.disk_gb < DISK_NEEDED,
    )


def check_memory(facts: Facts) -> Finding | None:
    """Enough memory for torch and the compiler."""
    if facts.memory_gb is None or facts.memory_gb >= MEMORY_COMFORTABLE:
        return None
    return Finding(
        f"only {facts.memory_gb:.1f} GB of memory is available; notebooks may be killed",
        "close other programs, and run one notebook at a time: python -m cutetut run --jobs 1",
        fatal=False,
    )


def check_chapters(facts: Facts) -> Finding | None:
    """What executes and shows notebooks, and what their cells import."""
    missing = _missing(facts)
    if not missing:
        return None
    fatal = not facts.installed and any(name in NEEDED_TO_RUN for name in missing)
    return Finding(f"not installed: {', '.join(missing)}", _packages(facts), fatal=fatal)


def _missing(facts: Facts) -> list[str]:
    """What of CHAPTERS is wanted here and is not installed."""
    return [name for name in _wanted(facts) if facts.packages.get(name) is None]


def _wanted(facts: Facts) -> list[str]:
    return [name for name in CHAPTERS if not (facts.installed and name == BOOK)]


def _packages(facts: Facts) -> str:
    """How to install what the chapters need."""
    if facts.installed:
        return "pip install 'cutetut[course]', which the chapters need; your own kernels do not"
    return "pip install -r requirements.txt"


def check_disassembler(facts: Facts) -> Finding | None:
    """Chapters print the SASS opcodes of their kernels."""
    if facts.disassembler:
        return None
    what = "no nvdisasm: cells of the chapters that look at SASS will fail"
    return Finding(what, "pip install nvidia-cuda-nvdisasm", fatal=not facts.installed)


def check_browser(facts: Facts) -> Finding | None:
    """Only `make test` needs one, to open the built pages."""
    if facts.browser or facts.installed:
        return None
    return Finding(
        "no Chromium: `make test` downloads one (120 MB) to open the built pages",
        "nothing, if that works; else install chromium and chromium-driver (Debian), or set CUTETUT_BROWSER",
        fatal=False,
    )


CHECKS: tuple[Callable[[Facts], Finding | None], ...] = (
    check_python,
    check_system,
    check_torch,
    check_dsl,
    check_llvm,
    check_backend,
    check_gpu,
    check_project,
    check_temporary,
    check_cache,
    check_disk,
    check_memory,
    check_chapters,
    check_disassembler,
    check_browser,
)


def where(facts: Facts) -> str | None:
    """Where kernels will run, "gpu" or "emulator"; None if nowhere."""
    if facts.torch_error or facts.dsl_error:
        return None
    try:
        return backend.select(facts.request or "auto", facts.machine).name
    except backend.BackendError:
        return None


def findings(facts: Facts) -> list[Finding]:
    """What every check found, worst first."""
    found = [finding for finding in (check(facts) for check in CHECKS) if finding is not None]
    return sorted(found, key=lambda finding: not finding.fatal)


def report(facts: Facts) -> str:
    """The facts, where kernels run, and what to do, as text."""
    machine = facts.machine
    gpu = "none"
    if machine.gpu and machine.capability:
        gpu = f"{machine.gpu}, compute capability {_dotted(machine.capability)}, driver {facts.driver or 'unknown'}"
    cuda = "with" if machine.torch_cuda else "without"
    memory = "unknown memory" if facts.memory_gb is None else f"{facts.memory_gb:.1f} GB of memory available"
    rows = {
        "Python": _dotted(facts.python),
        "system": f"{facts.distribution}, {facts.architecture}",
        "computer": f"{facts.processor}, {facts.cores} cores, {memory}",
        "disk": f"{facts.disk_gb:.1f} GB free in {facts.project or 'this folder'}",
        "GPU": gpu,
        "torch": f"{machine.torch} ({cuda} CUDA)" if machine.torch else "missing",
        "CuTe DSL": machine.dsl or "missing",
        "llvmlite": facts.llvm or "missing",
        "chapters": ", ".join(f"{name} {facts.packages.get(name) or 'missing'}" for name in _wanted(facts)),
        "disassembler": facts.disassembler or "missing",
    }
    if not facts.installed:
        rows["browser"] = facts.browser or "missing"
    places = {
        "gpu": "on the GPU; `record` and `bench` work here",
        "emulator": "in the emulator; measured tables show what a GPU recorded",
        None: "nowhere yet, see below",
    }
    rows["kernels run"] = places[where(facts)]
    lines = [f"{name:<13} {value}" for name, value in rows.items()]
    found = findings(facts)
    for finding in found:
        lines += ["", f"{'Problem' if finding.fatal else 'Note'}: {finding.what}", f"  To do: {finding.remedy}"]
    return "\n".join([*lines, "", _verdict(facts, blocked=any(finding.fatal for finding in found))])


def _verdict(facts: Facts, blocked: bool) -> str:
    """What can be done on this machine now, with its command."""
    if not facts.installed:
        return "The curriculum cannot run here yet." if blocked else "The curriculum can run here: make run"
    if blocked:
        return "Kernels cannot run here yet."
    chapters = "" if _missing(facts) else "\nThe chapters can run here: cutetut run 00_start_here"
    return f"Kernels can run here: cutetut emulate script.py{chapters}"


def main() -> int:
    """Print the report; 0 if kernels, and in a checkout the curriculum, can run on this machine, 1 if not."""
    facts = gather()
    print(report(facts))
    return int(any(finding.fatal for finding in findings(facts)))


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
