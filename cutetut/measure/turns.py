"""Measurements in several processes: one at a time has the GPU, and gives it away while it compiles.

A compilation takes seconds and leaves the GPU idle; a measurement takes seconds and must have the GPU alone. So each
process holds the lock on one file, and `cute.compile` hands it on for as long as it runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO

VARIABLE = "CUTETUT_GPU_TURN"  # the file whose lock is the right to use the GPU; without it a process is alone


@contextlib.contextmanager
def taken() -> Iterator[None]:
    """Have the GPU to oneself in the body, except while something is compiled; at once where no other process waits."""
    path = os.environ.get(VARIABLE)
    if path is None:
        yield
        return
    import cutlass.cute as cute

    with Path(path).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        cute.compile, before = _GivingWay(cute.compile, file), cute.compile
        try:
            yield
        finally:
            cute.compile = before


class _GivingWay:
    """`cute.compile`, during which another process may have the GPU."""

    def __init__(self, compiler: Any, file: TextIO) -> None:
        self._compiler, self._file = compiler, file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiler, name)

    def __getitem__(self, options: Any) -> _GivingWay:
        return _GivingWay(self._compiler[options], self._file)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        _finish()
        fcntl.flock(self._file, fcntl.LOCK_UN)
        try:
            return self._compiler(*arguments, **named)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_EX)


def _finish() -> None:
    """Wait for what this process has launched, which would run into another one's measurement."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def side_by_side(commands: Sequence[Sequence[str]], jobs: int) -> list[Sequence[str]]:
    """Run programs of this Python, so many at once, which take turns on the GPU; return those that failed.

    commands: what follows `python`, such as ["-m", "cutetut", "bench", "14_persistent"]. What each prints is printed
    in one piece when it ends.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, VARIABLE: str(Path(folder) / "turn")}

        def run(command: Sequence[str]) -> bool:
            done = subprocess.run([sys.executable, *command], env=environment, text=True, capture_output=True)
            print(f"{done.stdout}{done.stderr}", end="", flush=True)
            return done.returncode == 0

        with ThreadPoolExecutor(jobs) as pool:
            ended = list(pool.map(run, commands))
    return [command for command, well in zip(commands, ended, strict=True) if not well]
