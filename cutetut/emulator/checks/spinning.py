"""Loops that do nothing but look at memory again, until another thread changes it.

Such a thread never sleeps, so a wait that cannot end looks like work.  Here it is told apart: when for
long nobody has executed anything but such loops, and no copy is under way, nothing can change any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..ptx.loops import waiting_loops

if TYPE_CHECKING:
    from ..machine.scheduler import Scheduler

PATIENCE = 16384  # turns of the scheduler, less than a second


def watch(scheduler: Scheduler) -> Callable[[int], None] | None:
    """What sees the blocks of a launch, None for a kernel without such loops."""
    loops = waiting_loops(scheduler.machine.kernel)
    return Spinning(scheduler, loops).executing if loops else None


class Spinning:
    """Watches one launch for waits that cannot end."""

    def __init__(self, scheduler: Scheduler, loops: list[range]) -> None:
        self.scheduler = scheduler
        self.blocks = {
            block.number
            for block in scheduler.program.blocks
            if any(block.instructions and {block.instructions[0].index, block.instructions[-1].index} <= set(loop)
                   for loop in loops)
        }  # fmt: skip
        self.last_other = 0  # the turn in which a block outside of such loops was last executed

    def executing(self, block: int) -> None:
        """A block is executed; raises Deadlock if for long it was only such loops, and nothing is under way."""
        s = self.scheduler
        if block not in self.blocks:
            self.last_other = s.turn
        elif s.turn - self.last_other > PATIENCE:
            self.last_other = s.turn
            if not s.machine.pending.complete_oldest():
                s.give_up()
