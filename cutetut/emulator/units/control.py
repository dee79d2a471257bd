"""Branches, calls and ends (PTX ISA section 9.7.12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import Trap
from ..machine.memory import threads_of
from ..machine.opcodes import Selection, Step, opcode, unsupported
from ..ptx.syntax import Group, Symbol

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction


def target(inst: Instruction, machine: Machine) -> list[int]:
    """The block that a branch names by its label."""
    label = inst.operands[0]
    if not isinstance(label, Symbol):
        raise unsupported(inst, "the target must be a label")
    return [machine.block_of_label[label.name]]


def listed(inst: Instruction, machine: Machine) -> list[int]:
    """The blocks among which an indexed branch chooses."""
    name = inst.operands[1]
    if not isinstance(name, Symbol):
        raise unsupported(inst, "the targets must be a .branchtargets list")
    return [machine.block_of_label[label] for label in machine.kernel.branch_targets[name.name]]


def nowhere(inst: Instruction, machine: Machine) -> list[int]:
    """A thread ends."""
    return []


@opcode("bra", unit="control", forms="{.uni} label", section="9.7.12.3", results=0, ends_block=True, targets=target)
def decode_bra(inst: Instruction, machine: Machine) -> Step:
    """Go to a label; a guarded branch leaves the other threads on the next block."""
    (block,) = target(inst, machine)
    return lambda sel: block


@opcode("brx.idx", unit="control", forms="{.uni} index, list", section="9.7.12.4", results=0, ends_block=True,
        targets=listed)  # fmt: skip
def decode_brx(inst: Instruction, machine: Machine) -> Step:
    """Go to the label that an index selects from a list."""
    index = machine.source(inst.operands[0], np.uint32)
    targets: np.ndarray = np.array(listed(inst, machine), np.int32)
    return lambda sel: targets[index[sel]]


@opcode("ret", "exit", unit="control", role="exits", forms="{.uni}", section="9.7.12.6, 9.7.12.7", results=0,
        ends_block=True, targets=nowhere)  # fmt: skip
def decode_exit(inst: Instruction, machine: Machine) -> Step:
    """The end of a thread: a kernel's ret is its exit."""
    return lambda sel: machine.scheduler.exit(sel)


@opcode("trap", unit="control", section="9.7.19.4", results=0, ends_block=True, targets=nowhere)
def decode_trap(inst: Instruction, machine: Machine) -> Step:
    """Abort the launch."""

    def step(sel: Selection) -> None:
        raise Trap("the kernel executed trap", threads=threads_of(sel), hint="the condition in front of it")

    return step


@opcode("pragma", "nop", unit="control", section="11.4", results=0)
def decode_nop(inst: Instruction, machine: Machine) -> Step:
    """Nothing to execute."""
    return lambda sel: None


@opcode("call", unit="control", forms="{.uni} (result), vprintf | __assertfail, (arguments)", section="9.7.12.5",
        results=1)  # fmt: skip
def decode_call(inst: Instruction, machine: Machine) -> Step:
    """Calls of the two functions the hardware's runtime provides: vprintf and __assertfail."""
    from .printf import decode_assertfail, decode_vprintf  # printf reads memory, which imports this package

    names = [op.name for op in inst.operands if isinstance(op, Symbol)]
    groups = [op for op in inst.operands if isinstance(op, Group)]
    if names == ["vprintf"] and groups:
        return decode_vprintf(inst, machine, groups)
    if names == ["__assertfail"] and groups:
        return decode_assertfail(inst, machine, groups)
    raise unsupported(inst, "only vprintf and __assertfail can be called")
