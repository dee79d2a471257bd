"""Loops that do nothing but look at memory again, until another thread changes it.

Such a thread never sleeps, so a wait that cannot end looks like work.  Here the two are told apart: when every thread
that can run has gone round such a loop again and again, its registers are what they were, all launches beside it do
the same, and no copy is under way, nothing can change any more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..machine.memory import read_bytes
from ..machine.stuck import SPINS, Cause, Report, Wait
from ..machine.threads import DONE, READY, WARP
from ..numbers.types import DTYPES
from ..ptx.loops import waiting_loops
from ..ptx.syntax import BYTES, Address, Instruction, Register, registers_in
from . import stamps
from .ordering import Ordering
from .stamps import Stamp

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..machine.scheduler import Scheduler

SPINNING = "the value that the loop waits for, who writes what it looks at, and whether those threads can get there"

LOOK = 16  # turns with nothing but such loops, after which a launch gives way to those beside it
ROUNDS = 128  # turns of every warp, of which half are real: `_pick` and `common` may both count one
PATIENCE = 16384  # turns of a launch whose loops change registers, as a counter of rounds does


def watch(scheduler: Scheduler) -> Callable[[int], None] | None:
    """What sees the blocks of a launch, None for a kernel without such loops."""
    loops = waiting_loops(scheduler.machine.kernel)
    return Spinning(scheduler, loops).executing if loops else None


@dataclass(frozen=True)
class Seen:
    """How things stood at one time: what all launches had done, and of this one the turns and registers."""

    world: Hashable
    turn: int
    turns: np.ndarray  # of each warp
    threads: np.ndarray  # that could run,
    values: list[np.ndarray]  # and what their loops write


class Spinning:
    """Watches one launch for waits that cannot end."""

    def __init__(self, scheduler: Scheduler, loops: list[range]) -> None:
        self.scheduler = scheduler
        blocks, number_of = scheduler.program.blocks, scheduler.machine.block_starts
        within = ((number_of[start], loop) for loop in loops for start in loop if start in number_of)
        self.blocks = {number for number, loop in within if blocks[number].instructions[-1].index in loop}
        body = scheduler.machine.kernel.body
        self.registers = sorted({r.name for loop in loops for i in loop for r in registers_in(body[i].operands[:1])})
        self.last_other = 0  # the turn in which a block outside of such loops was last executed
        self.next_look = 0
        self.together = 0  # turns that all threads had together
        self.seen: Seen | None = None

    def executing(self, block: int) -> None:
        """A block is executed; raises Deadlock if for long it was only such loops, here and in other launches."""
        s = self.scheduler
        if block not in self.blocks:
            self.last_other = s.turn
            self.seen = None
            s.moved += 1
            return
        self.together += s.common is not None
        if s.turn - self.last_other > LOOK and s.turn >= self.next_look:
            self.next_look = s.turn + LOOK
            s.gives_way = True
            if self._nothing_changes():
                self._look_for_an_end()

    def _nothing_changes(self) -> bool:
        """Whether every warp has looked often since the first look, and everything is as it was."""
        s, seen = self.scheduler, self.seen
        if seen is None or seen.world != s.world():
            self.seen = self._now()
            return False
        ready = np.flatnonzero(s.status == READY)
        warps = np.unique(ready // WARP)
        if (s.picker.warp_turns[warps] + self.together - seen.turns[warps] < ROUNDS).any():
            return False
        if s.turn - seen.turn > PATIENCE:
            return True
        if not np.array_equal(ready, seen.threads):
            self.seen = self._now()
            return False
        now = self._values(ready)
        return all(np.array_equal(a, b) for a, b in zip(now, seen.values, strict=True))

    def _now(self) -> Seen:
        s = self.scheduler
        ready = np.flatnonzero(s.status == READY)
        return Seen(s.world(), s.turn, s.picker.warp_turns + self.together, ready, self._values(ready))

    def _values(self, threads: np.ndarray) -> list[np.ndarray]:
        return [self.scheduler.machine.registers[name][threads].view(np.uint8) for name in self.registers]

    def _look_for_an_end(self) -> None:
        """Nothing changes here: unless another launch may change something a copy completes, or it is a deadlock."""
        s = self.scheduler
        s.idle = s.world()
        if s.all_idle():
            if not s.complete_oldest_of_each(waking=False):
                s.give_up()
            self.seen = None
            s.moved += 1


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
