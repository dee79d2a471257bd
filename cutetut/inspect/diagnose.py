"""Run a kernel in the emulator on any machine, to see what is wrong with it.

On a GPU a broken kernel is undefined: it may give the right answer, a wrong one, or take the process down.
The cells of a chapter that break a kernel on purpose therefore run in the emulator everywhere, also where
all other cells run on a GPU, and print the same report.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutetut import explore
from cutetut.emulator.errors import EmulatorError, InternalError
from cutetut.inspect import run

NO_FAULT = "the emulator found no fault: every access was allowed and every value read had been written"


def diagnose(function: Callable[..., Any], *args: Any) -> None:
    """Compile a `@cute.jit` function, run it once in the emulator, and print the first fault or that there is none.

    args: what the function takes; torch tensors as `fault` takes them. Prints the emulator's error: what happened, who
    did it, and where. Raises what `fault` raises.
    """
    found = fault(function, *args)
    print(NO_FAULT if found is None else f"{type(found).__name__}: {found}")


def fault(function: Callable[..., Any], *args: Any) -> EmulatorError | None:
    """Compile a `@cute.jit` function, run it once in the emulator, and return the first fault, or None.

    args: what the function takes. Torch tensors on the CPU become CuTe tensors over copies that lie far
    apart, so that running past the end of one cannot end up in the next by chance; without a fault the
    copies are copied back. Tensors that share memory are copied apart. Raises ValueError for a torch tensor elsewhere
    than on the CPU, and whatever compiling raises.
    """
    with run.emulated():
        call = run.prepare(function, args, run.apart)
        try:
            call()
        except InternalError:
            raise
        except EmulatorError as found:
            return found
    for i, copy in call.tensors.items():
        run.write_back(args[i], copy)
    return None


def first_fault(function: Callable[..., Any], *args: Any, seeds: int = explore.SEEDS) -> explore.Failure | None:
    """As `fault`, but run it under many schedules: the first fault, with what reproduces it, or None.

    Warps run in turn and in `seeds` random orders, each while operations complete late, early and at `seeds` random
    moments. Every run begins with the arguments as they are; without a fault those of the last are copied back.
    """
    with run.emulated():
        call = run.prepare(function, args, run.apart)

        def attempt() -> None:
            for i, copy in call.tensors.items():
                run.write_back(copy, args[i])
            call()

        failure = explore.first_failure(attempt, explore.moments(seeds), explore.schedules(seeds))
    if failure is None:
        for i, copy in call.tensors.items():
            run.write_back(args[i], copy)
    elif isinstance(failure.error, InternalError):
        raise failure.error
    return failure
