"""Loops that do nothing but look at memory again, until another thread changes it.

Such a thread never sleeps, so a wait that cannot end looks like work.  Here it is told apart: when for
long nobody has executed anything but such loops, and no copy is under way, nothing can change any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ptx.syntax import Function, Instruction, Register, Special, Symbol

if TYPE_CHECKING:
    from ..machine.scheduler import Scheduler

SHORT_LOOP = 64  # instructions; a loop that only waits has fewer
PATIENCE = 16384  # turns of the scheduler, less than a second


def waiting_loops(kernel: Function, elsewhere: bool = False) -> list[range]:
    """The instructions of short loops around an atomic or a load of what others may change.

    elsewhere: of global memory, which threads of other CTAs change too; otherwise only loops that do not count
    how often they look, nor ask for the time: those end by themselves.
    """
    found = []
    for end, branch in enumerate(kernel.body):
        target = branch.operands[0] if branch.parts[0] == "bra" else None
        if isinstance(target, Symbol):
            start = kernel.labels[target.name]
            body = kernel.body[start:end]
            if end - SHORT_LOOP < start and any(_looks_again(inst, elsewhere) for inst in body):
                if elsewhere or not any(map(_ends_it, body)):
                    found.append(range(start, end + 1))
    return found


def _looks_again(inst: Instruction, elsewhere: bool) -> bool:
    if inst.opcode.startswith("mbarrier.test_wait"):
        return not elsewhere
    strong = {"acquire", "relaxed", "volatile", "mmio"} & set(inst.parts[1:])
    shared = any(part.startswith("shared") for part in inst.parts)
    return (inst.parts[0] == "atom" or (inst.parts[0] == "ld" and bool(strong))) and not (elsewhere and shared)


def _ends_it(inst: Instruction) -> bool:
    """Whether an instruction changes a register by its own value, as a counter is, or reads a clock."""
    first, *others = inst.operands or (None,)
    return isinstance(first, Register) and (first in others or any(isinstance(o, Special) for o in others))


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
