"""Loops that do nothing but look at memory again, until another thread changes it.

Such a thread never sleeps, so a wait that cannot end looks like work.  Here the two are told apart: when
nothing but such loops has run for a long time, and no copy is under way, nothing can change any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..machine.memory import read_bytes
from ..machine.stuck import SPINS, Cause, Report, Wait
from ..machine.threads import DONE, READY
from ..numbers.types import DTYPES
from ..ptx.loops import waiting_loops
from ..ptx.syntax import BYTES, Address, Instruction, Register
from . import stamps
from .ordering import Ordering
from .stamps import Stamp

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..machine.scheduler import Scheduler

SPINNING = "the value that the loop waits for, who writes what it looks at, and whether those threads can get there"

PATIENCE = 16384  # turns of the scheduler, less than a second
BESIDE_OTHERS = 4096  # the same of a launch that takes turns with others: each is given it twice


def watch(scheduler: Scheduler) -> Callable[[int], None] | None:
    """What sees the blocks of a launch, None for a kernel without such loops."""
    loops = waiting_loops(scheduler.machine.kernel)
    return Spinning(scheduler, loops).executing if loops else None


class Spinning:
    """Watches one launch for waits that cannot end."""

    def __init__(self, scheduler: Scheduler, loops: list[range]) -> None:
        self.scheduler = scheduler
        blocks, number_of = scheduler.program.blocks, scheduler.machine.block_starts
        within = ((number_of[start], loop) for loop in loops for start in loop if start in number_of)
        self.blocks = {number for number, loop in within if blocks[number].instructions[-1].index in loop}
        self.last_other = 0  # the turn in which a block outside of such loops was last executed

    def executing(self, block: int) -> None:
        """A block is executed; raises Deadlock if for long it was only such loops, here and in other launches."""
        s = self.scheduler
        if block not in self.blocks:
            self.last_other = s.turn
            s.moved += 1
        elif s.turn - self.last_other > (PATIENCE if s.others_moved is None else BESIDE_OTHERS):
            self.last_other = s.turn
            if not s.machine.pending.complete_oldest() and not (s.others_moved and s.others_moved()):
                s.give_up()


def waits(report: Report) -> list[Wait]:
    """The threads that look at memory again and again, for the report of a machine that cannot go on."""
    ready, found = np.flatnonzero(report.status == READY), []
    others = np.flatnonzero((report.status != READY) & (report.status != DONE))
    for cta in np.unique(report.machine.cta_of[ready]).tolist():
        here = ready[report.machine.cta_of[ready] == cta]
        inst = report.program.blocks[int(report.pc[here[0]])].instructions[0]
        line = f"  {report.who(here)} look again and again at memory that nobody changes ({report.short(inst)})"
        lines = [line, *_seen(report, inst, int(here[0]))]
        sides = report.sides("waits", inst, here, "memory that nobody changes")
        found.append(Wait(here, lines, others, [Cause(SPINS, SPINNING)], sides))
    return found


def _seen(report: Report, inst: Instruction, thread: int) -> list[str]:
    """What a loop in global memory finds there, and who wrote that."""
    machine = report.machine
    loop = next((loop for loop in waiting_loops(machine.kernel) if inst.index in loop), range(0))
    for look in machine.kernel.body[loop.start : loop.stop]:
        where = next((o for o in look.operands if isinstance(o, Address) and isinstance(o.base, Register)), None)
        kind = look.parts[-1]
        if where is None or kind not in BYTES or any(part.startswith("shared") for part in look.parts):
            continue
        host = int(machine.registers[where.base.name][thread]) + where.offset  # type: ignore[union-attr]
        region = machine.memory.find(host)
        if region is None or host + BYTES[kind] > region.end:
            continue
        value = np.frombuffer(read_bytes(host, BYTES[kind]), DTYPES[kind])[0]
        place = machine.unit(Ordering).reports.place_of(host)
        return [f"    it holds {value}: {place}, {_written_by(report, machine, host)}"]
    return []


def _written_by(report: Report, machine: Machine, host: int) -> str:
    """The last thread of this launch that wrote a byte of global memory."""
    order, region = machine.unit(Ordering), machine.memory.find(host)
    shadow = order.regions.get(region.start) if region is not None else None
    stamp = stamps.NOTHING if shadow is None else int(shadow.wrote[shadow.span(host, 1)][0])
    if stamp <= stamps.NOTHING or Stamp.of(stamp).agent >= order.clocks.warps:
        return "which no thread of this launch has written"
    writer = Stamp.of(stamp)
    return f"written last by {order.reports.writer(writer)} ({report.short(machine.kernel.body[writer.inst])})"
