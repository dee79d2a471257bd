"""Measurements in several processes: one at a time has the GPU, and gives it away while it compiles.

A compilation takes seconds and leaves the GPU idle; a measurement takes seconds and must have the GPU alone. So each
process holds the lock on one file, and `cute.compile` hands it on for as long as it runs. Of several that wait, the one
that was named first is next: where time runs out, the first have finished, and not all are half done.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO

VARIABLE = "CUTETUT_GPU_TURN"  # a process's place in the queue: a file in the queue's folder; without it, it is alone
POLL = 0.02  # seconds between two looks at who else waits


@contextlib.contextmanager
def taken() -> Iterator[None]:
    """Have the GPU to oneself in the body, except while something is compiled; at once where no other process waits."""
    place = os.environ.get(VARIABLE)
    if place is None:
        yield
        return
    import cutlass.cute as cute

    with Queue(Path(place)) as queue:
        cute.compile, before = _GivingWay(cute.compile, queue), cute.compile
        try:
            yield
        finally:
            cute.compile = before


class Queue:
    """The right to use the GPU, for one of several processes. If one dies, the system gives back its locks."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def __enter__(self) -> Queue:
        self._gpu = (self._place.parent / "gpu").open("a")
        self._waits = self._place.open("a")
        self.wait()
        return self

    def __exit__(self, *error: Any) -> None:
        self._gpu.close()
        self._waits.close()

    def wait(self) -> None:
        """Wait until nobody has the GPU and nobody before us waits for it."""
        fcntl.flock(self._waits, fcntl.LOCK_EX)
        while self._somebody_before() or not _locked(self._gpu):
            time.sleep(POLL)
        fcntl.flock(self._waits, fcntl.LOCK_UN)

    def give_way(self) -> None:
        """Let another process have the GPU, once it has done what this one launched."""
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()
        fcntl.flock(self._gpu, fcntl.LOCK_UN)

    def _somebody_before(self) -> bool:
        others = sorted(self._place.parent.glob("place*"))
        return any(_is_locked(other) for other in others[: others.index(self._place)])


def _locked(file: TextIO) -> bool:
    """Lock a file, unless another process has it; whether it is ours."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_locked(path: Path) -> bool:
    with path.open("a") as file:
        return not _locked(file)


class _GivingWay:
    """`cute.compile`, during which another process may have the GPU."""

    def __init__(self, compiler: Any, queue: Queue) -> None:
        self._compiler, self._queue = compiler, queue

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiler, name)

    def __getitem__(self, options: Any) -> _GivingWay:
        return _GivingWay(self._compiler[options], self._queue)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self._queue.give_way()
        try:
            return self._compiler(*arguments, **named)
        finally:
            self._queue.wait()


def side_by_side(commands: Sequence[Sequence[str]], jobs: int) -> list[Sequence[str]]:
    """Run programs of this Python, `jobs` at once, which take turns on the GPU; return those that failed.

    commands: what follows `python`, such as ["-m", "cutetut", "bench", "14_persistent"], the first one first. What each
    prints is printed in one piece when it ends.
    """
    with tempfile.TemporaryDirectory() as folder:

        def run(number: int, command: Sequence[str]) -> bool:
            environment = {**os.environ, VARIABLE: str(Path(folder) / f"place{number:03}")}
            done = subprocess.run([sys.executable, *command], env=environment, text=True, capture_output=True)
            print(f"{done.stdout}{done.stderr}", end="", flush=True)
            return done.returncode == 0

        with ThreadPoolExecutor(jobs) as pool:
            ended = list(pool.map(run, range(len(commands)), commands))
    return [command for command, well in zip(commands, ended, strict=True) if not well]
