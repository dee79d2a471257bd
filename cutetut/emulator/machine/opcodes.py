"""The table of opcodes: one entry per PTX mnemonic, each with the function that decodes it.

A *decoder* turns one instruction into a *step*, a function of the selected threads. It runs once
per launch; the step runs every time the instruction is executed.  The decoder must reject every
modifier it does not implement (`UnknownInstruction`): nothing is ever skipped silently.

The table is data: the book's list of emulated instructions is generated from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from .. import findings
from ..errors import EmulatorError, UnknownInstruction, ptx_line
from ..ptx import effects
from ..ptx.effects import Effect
from ..ptx.syntax import Instruction
from .machine import Machine
from .states import STATES
from .stuck import Report, Wait
from .threads import Selection as Selection
from .threads import Step as Step

Decoder = Callable[[Instruction, Machine], Step]
Targets = Callable[[Instruction, Machine], list[int]]


@dataclass(frozen=True)
class Opcode:
    """One mnemonic: `forms` lists the modifiers that are emulated, `section` its place in the PTX ISA.

    `stores` is the position of the operand that says where it may write global memory: it does, unless
    the first state space in its name is another one.
    `results` is how many leading operands are written.  `joins` marks warp-wide instructions, whose
    threads must arrive together: "warp" for all live threads of the warp, or the position of the
    member-mask operand.  `passes_on` is the position of an operand that reaches nothing but the result, `adds_if`
    of one that says whether the results are added to, and so are operands, too.
    """

    mnemonic: str
    unit: str
    forms: str
    section: str
    decode: Decoder
    results: int = 1
    joins: int | str | None = None
    ends_block: bool = False  # its step returns where to go next
    targets: Targets | None = None  # the blocks to which it may send threads, if not to the next
    stores: int | None = None
    passes_on: int | None = None
    adds_if: int | None = None

    @property
    def is_arithmetic(self) -> bool:
        """Whether it does nothing but compute registers from registers, so that runs of such can be compiled."""
        return self.unit == "alu" or self.mnemonic == "cvta"


OPS: dict[str, Opcode] = {}
REFUSED: dict[str, str] = {}  # by their names, instructions that are not emulated on purpose, and why


class UnitState:
    """What a unit keeps while a launch runs; a unit registers its class with `@state`, and finds its object by it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def reset(self) -> None:
        """New CTAs are resident."""

    def exited(self, threads: np.ndarray) -> None:
        """Threads have exited."""

    def cta_over(self, cta: int, thread: int) -> None:
        """The last thread of a resident CTA has exited; raises for what must not be left behind."""

    def launch_over(self) -> None:
        """The launch has ended as it should."""

    def time_out(self) -> bool:
        """Nobody can go on: whether threads that sleep here may go on with the answer "not yet"."""
        return False

    def somebody_sleeps(self) -> bool:
        """Whether threads sleep here until a copy completes, or have asked in vain since this was last called."""
        return False

    def history(self, thread: int) -> list[str]:
        """Lines for an error of a thread: what it has done here that may explain it."""
        return []

    def lives_at(self, host: int) -> tuple[Instruction, int, str] | None:
        """What of this unit lies at a host address: the instruction and thread that made it, and what they did."""
        return None

    def blames(self, here: int, other: int) -> EmulatorError | None:
        """For a race between two warps, the one that runs named first: the mistake here that led to it."""
        return None

    def stuck(self, report: Report) -> list[Wait]:
        """Nobody can go on: who sleeps here, what they wait for, and who could bring it about."""
        return []


@dataclass(frozen=True)
class Around:
    """What is done once around a whole run of arithmetic instead of around each of its steps."""

    before: Callable[[Selection], bool]  # False: not this time, the steps must execute one by one
    after: Step


class Watched:
    """A step wrapped in something that does not depend on it, so that a run of such steps can be wrapped once.

    Calling it executes the one step with what is around it.
    """

    def __init__(self, step: Step, for_others: bool) -> None:
        """step: the instruction's own; for_others: what is around it may be done for more threads than execute it."""
        self.step, self.for_others = step, for_others

    def __call__(self, sel: Selection) -> None:
        raise NotImplementedError

    def together(self, several: Sequence[Watched]) -> Around:
        """What to do around a run of these, in their order."""
        raise NotImplementedError


class Wrapper(Protocol):
    """Puts something around the step of an instruction, with the names of its registers."""

    def __call__(self, step: Step, inst: Instruction, written: tuple[str, ...], read: tuple[str, ...]) -> Step: ...


class Watcher(Protocol):
    """What an observer (measure/observe.py) does to the steps of one launch."""

    def executed(self, step: Step, inst: Instruction, entry: Opcode) -> Step:
        """The step to run in place of an instruction's own: it is called with the threads whose guard is true."""

    def issued(self, step: Step, inst: Instruction, entry: Opcode) -> Step:
        """The same around the guard: it is called with every thread that the instruction is issued for."""


WRAPPERS: list[Callable[[Machine], Wrapper]] = []
_State = TypeVar("_State", bound=type[UnitState])


def state(kind: _State) -> _State:
    """Register what a unit keeps: every machine gets an object of it, `machine.unit(kind)`."""
    STATES.append(kind)
    return kind


def states(machine: Machine) -> list[UnitState]:
    """What every unit keeps on a machine."""
    return [unit for unit in machine.units.values() if isinstance(unit, UnitState)]  # as `state` asks of all


def wrapper(make: Callable[[Machine], Wrapper]) -> Callable[[Machine], Wrapper]:
    """Register what a unit puts around the steps of other units' instructions; made once per launch."""
    WRAPPERS.append(make)
    return make


def opcode(
    *mnemonics: str,
    unit: str,
    role: str = findings.EXECUTES,
    starts: str = "",
    forms: str = "",
    section: str,
    results: int = 1,
    joins: int | str | None = None,
    ends_block: bool = False,
    targets: Targets | None = None,
    stores: int | None = None,
    effect: Effect | None = None,
    passes_on: int | None = None,
    adds_if: int | None = None,
) -> Callable[[Decoder], Decoder]:
    """Register a decoder for one or more mnemonics (the text before the first dot that selects it).

    role: what the instruction does to a location, in one word; starts: of an asynchronous one, what it starts;
    effect: what kind of instruction it is for those who follow values and loops through a kernel.
    """

    def register(decode: Decoder) -> Decoder:
        for name in mnemonics:
            if name in OPS:
                raise ValueError(f"{name} is registered twice")
            findings.describe(name, role, starts)
            if effect is not None:
                effects.describe(name, effect)
            OPS[name] = Opcode(
                name, unit, forms, section, decode, results, joins, ends_block, targets, stores, passes_on, adds_if
            )
        return decode

    return register


def refuse(mnemonic: str, why: str) -> None:
    """Say why an instruction of this name is not emulated on purpose."""
    REFUSED[mnemonic] = why


def lookup(inst: Instruction) -> Opcode:
    """Find the entry for an instruction: the longest registered prefix of its dotted name wins.

    Raises UnknownInstruction when there is none.
    """
    entry = registered(inst)
    if entry is None:
        raise unsupported(inst, REFUSED.get(inst.parts[0], ""))
    return entry


def registered(inst: Instruction) -> Opcode | None:
    """The same, or None."""
    return OPS.get(findings.mnemonic_of(inst.opcode))


def unsupported(inst: Instruction, why: str = "") -> UnknownInstruction:
    """The error a decoder raises for a form it does not implement."""
    detail = f": {why}" if why else ""
    error = UnknownInstruction(f"instruction not emulated: {inst.opcode}{detail}")
    error.notes.append(ptx_line(inst.line, inst.text))
    if inst.loc is not None:
        error.notes.append(f"  {inst.loc.describe()}")
    return error
