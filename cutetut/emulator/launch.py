"""One launch of a kernel, from its parameters to its report."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TextIO

import numpy as np

from .checks import deadlock, spinning
from .checks.concurrent import Concurrency, Footprint, Turn
from .checks.marked_loads import MarkedLoads
from .checks.ordering import Ordering
from .checks.written import ANYWHERE, WHOLE, writers
from .compiled.picking import CompiledPicker
from .decoding import decode
from .errors import EmulatorError, LaunchError, own_failures
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
    """What one launch did and how long the emulator took for it (seconds).

    `written` goes to the next launch on the same stream as its `previous`, `footprint` to later ones that may run at
    the same time, in their `turn`.
    """

    kernel: str
    counters: Counters
    seconds: float
    written: object | None = None
    footprint: Footprint | None = None


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
    stream: int = 0,
    programmatic: bool = False,
    previous: object | None = None,
    turn: Turn | None = None,
    out: TextIO | None = None,
    budget: int | None = None,
) -> LaunchReport:
    """Run one kernel to its end.

    grid, block and cluster are (x, y, z); dynamic_smem is in bytes; params holds the raw bytes of
    each kernel parameter; memory the ranges the kernel may touch; programmatic whether it may begin before
    the previous launch on its stream has ended, and previous that launch's `LaunchReport.written`; turn the launches
    that may run at the same time; budget the number of vector steps one wave of CTAs may take (CUTETUT_BUDGET, default
    20 million).

    Raises a subclass of EmulatorError for anything the hardware forbids or does not define.
    """
    started = time.perf_counter()
    load_all()
    function = module.kernels.get(kernel)
    if function is None:
        raise LaunchError(f"the module has no kernel {kernel}")
    shape = Launch(grid, block, cluster, dynamic_smem, tuple(params), cooperative, stream, programmatic, previous)
    with own_failures("it prepared the launch"):
        machine = Machine(module, function, shape, memory, out)
        machine.checks = memory.checks = machine.unit(Ordering)
        _watch(machine)
        beside = None
        if turn is not None:
            memory.watch(None)
            beside = Concurrency(machine, turn)
    progress = Progress(kernel_name(function), len(machine.order))
    try:
        with own_failures("it decoded the kernel"):
            scheduler = Scheduler(machine, _budget(budget), checks(), progress.at)
        with np.errstate(all="ignore"), own_failures("it ran the kernel", scheduler.locate):
            for first in range(0, len(machine.order), machine.residents):
                scheduler.run_wave(first)
        machine.written = machine.unit(Ordering).written()
        with own_failures("it compared the launch with others"):
            footprint = None if beside is None else beside.over()
    except EmulatorError as error:
        error.tell()
        raise
    finally:  # Ctrl-C comes this way, too
        progress.close()
        machine.release()
    return LaunchReport(kernel, machine.counters, time.perf_counter() - started, machine.written, footprint)


def _watch(machine: Machine) -> None:
    """Tell memory which allocations the kernel may write: of others nobody needs to know who reads them when."""
    kernel, memory = machine.kernel, machine.memory
    if kernel.writes is None:  # the same for every launch
        kernel.writes = writers(kernel)
    memory.note = lambda error, inst, what: machine.scheduler.note(error, kernel.body[inst], None, what)
    if ANYWHERE in kernel.writes:
        memory.watch(None, kernel.writes[ANYWHERE])
        return
    values = {param.name: value for param, value in zip(kernel.params, machine.launch.params, strict=True)}
    for (name, offset), instructions in kernel.writes.items():
        value = values[name]
        for at in range(0, len(value) - 7, 8) if offset == WHOLE else (offset,):
            address = int.from_bytes(value[at : at + 8], "little")
            memory.watch(address, instructions)  # what is no address is in no allocation


def checks() -> Checks:
    """Decoding and the checks of one launch."""
    loads = MarkedLoads(decode)
    return Checks(decode, deadlock.why, spinning.watch, loads.program_after, loads.tolerates, CompiledPicker)


def _budget(budget: int | None) -> int:
    if budget is not None:
        return budget
    text = os.environ.get("CUTETUT_BUDGET", "")
    try:
        return int(float(text)) if text else DEFAULT_BUDGET
    except ValueError:
        raise LaunchError(f"CUTETUT_BUDGET={text!r} is not a number of steps") from None
