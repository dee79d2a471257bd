"""Two looks of one wait at a flag: one before its loop, and the one in it.

A compiler, or whoever writes the loop, may look once in front of it; where that finds the flag raised, the loop is
not entered.  What orders the code behind the wait is then only what both looks do.
"""

from __future__ import annotations

from dataclasses import replace

from ..findings import role_of
from ..machine.access import Access, Kind
from ..ptx.loops import SHORT_LOOP, looks_again, waiting_loops
from ..ptx.syntax import Address, Function, Instruction


def weakest(kernel: Function, access: Access) -> Access:
    """The access of a look at a flag as far as every look of that wait does the same, others as they are.

    A look with less than an acquire leaves what it has read to a fence behind the wait, as PTX has it.
    """
    inst = kernel.body[access.inst]
    if access.kind is not Kind.LOAD or not looks_again(inst, elsewhere=True):
        return access
    other = _other_look(kernel, inst)
    if other is None:
        return access
    theirs = Access.of(other.parts, other.index, access.nbytes, Kind.LOAD)
    return replace(access, acquires=access.acquires and theirs.acquires, scope=min(access.scope, theirs.scope))


def _other_look(kernel: Function, inst: Instruction) -> Instruction | None:
    """The look in the loop if this is the one in front of it, and the other way round."""
    for loop in waiting_loops(kernel, elsewhere=True):
        if loop.start - SHORT_LOOP < inst.index < loop.stop:
            here = inst.index in loop
            others = range(max(0, loop.start - SHORT_LOOP), loop.start) if here else loop
            for at in others:
                other = kernel.body[at]
                if looks_again(other, elsewhere=True) and _where(other) == _where(inst) is not None:
                    if _passes_by(kernel, (other if here else inst).index, loop):
                        return other
    return None


def _where(look: Instruction) -> Address | None:
    return next((operand for operand in look.operands if isinstance(operand, Address)), None)


def _passes_by(kernel: Function, look: int, loop: range) -> bool:
    """Whether a path leads from a look to the end of a loop behind it, past the loop, without a fence or a new look."""
    work, seen = [look + 1], {look}
    while work:
        at = work.pop()
        if at == loop.stop:
            return True
        if at in seen or at in loop or at >= len(kernel.body) or len(seen) > 2 * SHORT_LOOP:
            continue
        seen.add(at)
        inst = kernel.body[at]
        if role_of(inst.opcode, "") in ("fences", "exits"):
            continue
        if looks_again(inst, elsewhere=True) and _where(inst) == _where(kernel.body[look]):
            continue
        if inst.parts[0] == "bra":
            work.append(kernel.labels[inst.operands[0].name])  # type: ignore[union-attr]
            if inst.guard is None:
                continue
        work.append(at + 1)
    return False
