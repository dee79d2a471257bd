"""Loops in which a thread only waits, found in the text of a kernel."""

from __future__ import annotations

from .syntax import Function, Instruction, Register, Special, Symbol

SHORT_LOOP = 64  # instructions; a loop that only waits has fewer


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
