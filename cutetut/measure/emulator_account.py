"""Run a script for a GPU in the emulator, and print what the processor's time went into, as JSON in the last line:

    python -m cutetut.measure.emulator_account script.py [args]
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from cutetut import backend

TORCH, DSL, OURS = "importing torch", "importing CuTe DSL", "importing and installing the emulator"
COMPILING, LAUNCHES = "cute.compile: tracing and compiling", "launches in the emulator"
REST = "the rest: the interpreter, the script's own work on the host"
PARTS = (TORCH, DSL, OURS, COMPILING, LAUNCHES, REST)
OTHERS = (TORCH, DSL, COMPILING, REST)  # not the emulator's


def account(script: str, args: list[str]) -> tuple[int, dict[str, float]]:
    """The exit status of an emulated script, and this process's CPU seconds by what they were spent on.

    The script imports torch and CuTe DSL, too; here they come first, so that their cost is counted apart.
    """
    spent: dict[str, float] = defaultdict(float)
    backend.activate_on_request()
    with backend.collection_paused():
        _timed(spent, TORCH, lambda: __import__("torch"))()
        _timed(spent, DSL, lambda: __import__("cutlass.cute"))()
        _timed(spent, OURS, _start)()
    import cutlass.cute as cute

    from cutetut import emulate
    from cutetut.emulator import launch
    from cutetut.emulator.host.patches import Patches

    patches = Patches()
    try:
        patches.set(launch, "launch", _timed(spent, LAUNCHES, launch.launch))
        patches.set(cute, "compile", _Compiling(cute.compile, spent))
        status = emulate.run(script, args)
    finally:
        patches.restore()
    spent[REST] = time.process_time() - sum(spent.values())
    return status, spent


def _start() -> None:
    from cutetut import emulate  # noqa: F401

    backend.start_emulator()


def _timed(spent: dict[str, float], what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        try:
            return function(*args, **kwargs)
        finally:
            spent[what] += time.process_time() - start

    return timed


class _Compiling:
    """`cute.compile`, timed, also where it is given options in brackets."""

    def __init__(self, compiler: Any, spent: dict[str, float]) -> None:
        self._compiler, self._spent = compiler, spent
        self._call = _timed(spent, COMPILING, compiler)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __getitem__(self, options: Any) -> _Compiling:
        return _Compiling(self._compiler[options], self._spent)


def main() -> int:
    """The command above."""
    status, spent = account(sys.argv[1], sys.argv[2:])
    print(json.dumps(spent), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
