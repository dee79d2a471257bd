"""`python -m cutetut bench-emulator`: how fast the emulator is on this machine, each part in its own process."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from . import bench, emulator_account

PEERS = "CUTETUT_PEERS"  # the folder that holds a clone of NVIDIA/cutlass
EXAMPLES = "cutlass/examples/python/CuTeDSL"
SCRIPT = f"{EXAMPLES}/cute/hopper/kernel/dense_gemm/dense_gemm_persistent.py"
SIZE = ("--mnkl", "512,512,512,1", "--tile_shape_mn", "128,128")
IMPORTS = "import torch, cutlass.cute"
NOT_OURS = "of that, torch, CuTe DSL and the script: what it would take with an emulator that takes no time"
PASSED = "PASS"  # what NVIDIA's script prints when its own check has passed
QUIET = ("-W", "ignore")
HOW = (
    f"not measured: {PEERS} names no folder with NVIDIA's sources. `git clone --depth 1 "
    f"https://github.com/NVIDIA/cutlass FOLDER/cutlass`, then {PEERS}=FOLDER"
)


@dataclass(frozen=True)
class Used:
    """What a process took: seconds on the clock, seconds of CPU with its children's, MiB at most.

    Linux counts this process's own memory for it, up to the moment at which it begins; so this one imports little.
    """

    seconds: float
    cpu_seconds: float
    mebibytes: float

    def __str__(self) -> str:
        return f"{self.cpu_seconds:.2f} s of CPU, {self.seconds:.2f} s on the clock, {self.mebibytes:,.0f} MiB at most"


def run(parts: Sequence[str] = ()) -> None:
    """Measure these parts, or all but the notebooks, and print what comes out.

    Raises BenchError for an unknown part, and for one that fails; ModuleNotFoundError where a package is missing.
    """
    if unknown := [part for part in parts if part not in PARTS]:
        raise bench.BenchError(f"the emulator's benchmark has no part {unknown[0]}; there are: {', '.join(PARTS)}")
    for needed in ("numpy", "torch", "cutlass"):
        if importlib.util.find_spec(needed) is None:
            raise ModuleNotFoundError(f"No module named {needed!r}", name=needed)
    for part in parts or [part for part in PARTS if part != "notebooks"]:
        PARTS[part]()
        print(flush=True)


def process(arguments: Sequence[str], out: IO[bytes] | None = None, environment: Mapping[str, str] = {}) -> Used:
    """Run Python with these arguments to its end, with the emulator; its output goes to `out`.

    Raises BenchError where it fails.
    """
    sys.stdout.flush()
    start = time.perf_counter()
    env = {**os.environ, "CUTETUT_BACKEND": "emulator", **environment}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # with it, every process would compile this package's Python anew
    child = subprocess.Popen([sys.executable, *arguments], stdout=out, stderr=out and subprocess.STDOUT, env=env)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise bench.BenchError(f"`python {' '.join(arguments)}` failed with exit status {child.returncode}")
    seconds = time.perf_counter() - start
    return Used(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)  # Linux gives KiB


def _kernel(part: str) -> Callable[[], None]:
    return lambda: print(f"the whole process: {process(['-m', 'cutetut.measure.emulator_speed', part])}")


def _peer() -> None:
    """NVIDIA's persistent GEMM as its authors wrote it, with its own check, from an empty compile cache and again."""
    print(f"NVIDIA's dense_gemm_persistent.py {' '.join(SIZE)}: its check launches once, its benchmark once more")
    folder = Path(os.environ.get(PEERS, "")).absolute()
    script = folder / SCRIPT
    if not os.environ.get(PEERS) or not script.is_file():
        print(HOW)
        return
    arguments = [str(script), *SIZE]
    path = os.pathsep.join(filter(None, (str(folder / EXAMPLES), os.environ.get("PYTHONPATH", ""))))
    with tempfile.TemporaryDirectory(prefix="cutetut-cache-") as cache:
        environment = {"PYTHONPATH": path, "CUTETUT_CACHE": cache}
        process([*QUIET, "-c", IMPORTS])  # whatever runs first also reads the files from disk
        print(f"a process that does nothing but `{IMPORTS}`: {process([*QUIET, '-c', IMPORTS])}")
        accounts = []
        for state in ("cold", "warm"):
            _, used = _passed([*QUIET, "-m", "cutetut", "emulate", *arguments], environment)
            print(f"the whole process, {state} compile cache: {used}")
            # as the compiler notes who called it, the account has entries of its own in the cache
            text, _ = _passed([*QUIET, "-m", "cutetut.measure.emulator_account", *arguments], environment)
            accounts.append(json.loads(text.splitlines()[-1]))
    print("seconds of CPU, cold and warm:")
    for part in emulator_account.PARTS:
        print(_row(part, [account.get(part, 0) for account in accounts]))
    print(_row(NOT_OURS, [sum(account.get(part, 0) for part in emulator_account.OTHERS) for account in accounts]))


def _row(what: str, seconds: Sequence[float]) -> str:
    return " ".join(f"{each:7.2f}" for each in seconds) + f"  {what}"


def _passed(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[str, Used]:
    """What NVIDIA's script prints, and what it took. Raises BenchError if its check did not pass."""
    with tempfile.TemporaryFile() as out:
        try:
            used = process(arguments, out, environment)
        finally:
            out.seek(0)
            text = out.read().decode(errors="replace")
            if PASSED not in text.splitlines():
                print(text)
    if PASSED not in text.splitlines():
        raise bench.BenchError(f"`python {' '.join(arguments)}` did not print {PASSED}")
    return text, used


def _notebooks() -> None:
    """All notebooks, as many at a time as `cutetut run` chooses."""
    print(f"all notebooks, by `cutetut run`: {process(['-m', 'cutetut', 'run'])}")


PARTS: dict[str, Callable[[], None]] = {
    "scalar": _kernel("scalar"), "wgmma": _kernel("wgmma"), "peer": _peer, "attention": _kernel("attention"),
    "notebooks": _notebooks,
}  # fmt: skip
