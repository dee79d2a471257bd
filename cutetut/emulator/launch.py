"""One launch of a kernel, from its parameters to its report."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TextIO

import numpy as np

from .checks import deadlock, spinning
from .checks.marked_loads import MarkedLoads
from .errors import LaunchError
from .machine.machine import Counters, Dim, Launch, Machine
from .machine.memory import GlobalMemory
from .machine.scheduler import Checks, Scheduler
from .progress import Progress
from .ptx.source import kernel_name
from .ptx.syntax import Module
from .units import load_all

DEFAULT_BUDGET = 20_000_000


@dataclass(frozen=True)
class LaunchReport:
    """What one launch did and how long the emulator took for it (seconds)."""

    kernel: str
    counters: Counters
    seconds: float


def launch(
    module: Module,
    kernel: str,
    *,
    grid: Dim,
    block: Dim,
    cluster: Dim = (1, 1, 1),
    dynamic_smem: int = 0,
    params: list[bytes],
    memory: GlobalMemory,
    cooperative: bool = False,
    out: TextIO | None = None,
    budget: int | None = None,
) -> LaunchReport:
    """Run one kernel to its end.

    grid, block and cluster are (x, y, z); dynamic_smem is in bytes; params holds the raw bytes of
    each kernel parameter; memory the ranges the kernel may touch; budget the number of vector steps
    one wave of CTAs may take (CUTETUT_BUDGET, default 20 million).

    Raises a subclass of EmulatorError for anything the hardware forbids or does not define.
    """
    started = time.perf_counter()
    load_all()
    function = module.kernels.get(kernel)
    if function is None:
        raise LaunchError(f"the module has no kernel {kernel}")
    machine = Machine(
        module, function, Launch(grid, block, cluster, dynamic_smem, tuple(params), cooperative), memory, out
    )
    progress = Progress(kernel_name(function), len(machine.order))
    try:
        scheduler = Scheduler(machine, _budget(budget), checks(), progress.at)
        with np.errstate(all="ignore"):
            for first in range(0, len(machine.order), machine.residents):
                scheduler.run_wave(first)
    finally:  # Ctrl-C comes this way, too
        progress.close()
        machine.release()
    return LaunchReport(kernel, machine.counters, time.perf_counter() - started)


def checks() -> Checks:
    """The checks of one launch."""
    return Checks(deadlock.error, spinning.watch, MarkedLoads().program_after)


def _budget(budget: int | None) -> int:
    if budget is not None:
        return budget
    text = os.environ.get("CUTETUT_BUDGET", "")
    try:
        return int(float(text)) if text else DEFAULT_BUDGET
    except ValueError:
        raise LaunchError(f"CUTETUT_BUDGET={text!r} is not a number of steps") from None
