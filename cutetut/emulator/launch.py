"""One launch of a kernel, from its parameters to its report."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TextIO

import numpy as np

from .checks import deadlock, spinning
from .checks.concurrent import Concurrency, Footprint, Turn
from .checks.marked_loads import MarkedLoads
from .checks.ordering import Ordering
from .checks.peers import Peer, stuck
from .checks.tolerance import Tolerance
from .checks.written import ANYWHERE, WHOLE, writers
from .compiled.picking import CompiledPicker
from .decoding import decode
from .errors import EmulatorError, LaunchError, own_failures
from .machine.machine import Counters, Dim, Launch, Machine
from .machine.memory import GlobalMemory
from .machine.pending import Pending
from .machine.schedule import Schedule
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
    written: object | None = field(default=None, repr=False)
    footprint: Footprint | None = field(default=None, repr=False)


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
    shape = Launch(grid, block, cluster, dynamic_smem, tuple(params), cooperative, stream, programmatic, previous)
    running = UnderWay(module, kernel, shape, memory, turn, out=out, budget=budget)
    while not running.go_on():
        pass
    return running.report


class UnderWay:
    """A launch that runs a number of turns at a time, so that several can alternate. Arguments as those of `launch`.

    peer: the launch among those of other GPUs and streams that may run at the same time.
    """

    def __init__(
        self, module: Module, kernel: str, shape: Launch, memory: GlobalMemory, turn: Turn | None = None,
        peer: Peer | None = None, *, out: TextIO | None = None, budget: int | None = None,
    ) -> None:  # fmt: skip
        self.started = time.perf_counter()
        load_all()
        function = module.kernels.get(kernel)
        if function is None:
            raise LaunchError(f"the module has no kernel {kernel}")
        self.name, self.peer, self.first = kernel, peer, 0
        self.beside: Concurrency | None = None
        self.footprint: Footprint | None = None
        with own_failures("it prepared the launch"):
            self.machine = machine = Machine(module, function, shape, memory, out)
            machine.checks = memory.checks = machine.unit(Ordering)
            _watch(machine)
            if turn is not None:
                memory.watch(None)
                self.beside = Concurrency(machine, turn)
            if peer is not None:
                memory.watch(None)
                machine.unit(Ordering).join(peer)
        self.progress = Progress(kernel_name(function), len(machine.order))
        with self._ends(), own_failures("it decoded the kernel"):
            self.scheduler = Scheduler(machine, _budget(budget), checks(peer), self.progress.at)
            self.scheduler.begin_wave(0)

    def go_on(self, turns: int | None = None) -> bool:
        """Go on with it, for at most `turns` turns; returns whether it has ended."""
        machine, scheduler = self.machine, self.scheduler
        with self._ends():
            with np.errstate(all="ignore"), own_failures("it ran the kernel", scheduler.locate):
                while scheduler.run_wave(turns):
                    self.first += machine.residents
                    if self.first >= len(machine.order):
                        break
                    scheduler.begin_wave(self.first)
                else:
                    return False
            machine.written = machine.unit(Ordering).written()
            for unit in scheduler.units:
                unit.launch_over()
            with own_failures("it compared the launch with others"):
                self.footprint = None if self.beside is None else self.beside.over()
            if self.peer is not None:
                self.peer.ends()
        self.close()
        return True

    @property
    def report(self) -> LaunchReport:
        """The report of a launch that has ended."""
        seconds = time.perf_counter() - self.started
        return LaunchReport(self.name, self.machine.counters, seconds, self.machine.written, self.footprint)

    def close(self) -> None:
        """It has ended, or nobody will go on with it."""
        self.progress.close()
        self.machine.release()

    @contextlib.contextmanager
    def _ends(self) -> Iterator[None]:
        """A launch that fails is over; Ctrl-C comes this way, too."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, EmulatorError):
                error.publish()
            self.close()
            raise


def _watch(machine: Machine) -> None:
    """Tell memory which allocations the kernel may write: nobody needs to know who reads the others, and when."""
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


def checks(peer: Peer | None = None) -> Checks:
    """Decoding and the checks of one launch, which may be one among others."""
    loads = MarkedLoads(decode)
    why = deadlock.why if peer is None else functools.partial(stuck, why=deadlock.why, own=peer)
    return Checks(decode, why, spinning.watch, loads.begin, loads.explain, loads.tolerates, CompiledPicker)


def expect_settings(environment: Mapping[str, str]) -> None:
    """Raises LaunchError where these variables name a schedule, completion, budget or tolerance that does not exist."""
    Tolerance.from_environment(environment)
    Schedule(environment.get("CUTETUT_SCHEDULE"))
    Pending(environment.get("CUTETUT_ASYNC"))
    _budget(None, environment)


def _budget(budget: int | None, environment: Mapping[str, str] = os.environ) -> int:
    if budget is not None:
        return budget
    text = environment.get("CUTETUT_BUDGET", "")
    try:
        steps = int(float(text)) if text else DEFAULT_BUDGET
    except (ValueError, OverflowError):
        steps = 0
    if steps < 1:
        raise LaunchError(f"CUTETUT_BUDGET={text!r} is not a number of steps, of 1 or more")
    return steps
