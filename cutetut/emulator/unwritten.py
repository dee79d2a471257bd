"""Registers that are used before anything wrote them.

Definite assignment over the control flow graph proves nearly all reads; only the registers it cannot
prove get a mark per thread at run time.  A value computed from an unwritten register is unwritten
too, which is no error yet: a predicated load may leave a lane's register alone as long as that
lane's result goes nowhere.  Using it is one: in an address, a predicate, a store, a barrier,
anything but arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .errors import Uninitialized
from .memory import threads_of
from .ptx import Address, Group, Instruction, Negated, Operand, Pair, Register, Vector
from .registry import Opcode, Selection, Step
from .warp import shuffle_sources

if TYPE_CHECKING:
    from .machine import Machine
    from .program import Block

Marks = dict[str, np.ndarray]


def registers_in(operands: Iterable[Operand]) -> Iterable[Register]:
    """Every register that appears in operands, however nested."""
    for operand in operands:
        if isinstance(operand, Register):
            yield operand
        elif isinstance(operand, Negated):
            yield operand.register
        elif isinstance(operand, Address):
            if isinstance(operand.base, Register):
                yield operand.base
        elif isinstance(operand, Vector | Group):
            yield from registers_in(operand.items)
        elif isinstance(operand, Pair):
            yield from registers_in((operand.first, operand.second))


def _written(inst: Instruction, entry: Opcode) -> list[Register]:
    return list(registers_in(inst.operands[: entry.results]))


def _operands_read(inst: Instruction, entry: Opcode) -> list[Register]:
    return list(registers_in(inst.operands[entry.results :]))


def _passed_on(inst: Instruction, entry: Opcode) -> set[str]:
    """The registers whose values reach nothing but the result: operands of arithmetic, and what a shuffle moves."""
    if entry.unit == "alu":
        return {r.name for r in _operands_read(inst, entry)}
    if entry.mnemonic == "shfl.sync":
        return {r.name for r in registers_in(inst.operands[1:2])} - {r.name for r in registers_in(inst.operands[2:])}
    return set()


class Unwritten:
    """What may be unwritten where, and the run-time marks (True: written) of those registers."""

    def __init__(self, machine: Machine, blocks: Sequence[Block], entries: list[Opcode]) -> None:
        self.machine = machine
        self.doubtful = _doubtful_reads(list(machine.registers), blocks, entries)
        names = set().union(*self.doubtful.values()) if self.doubtful else set()
        for block in blocks:
            for inst in block.instructions:
                if self.doubtful.get(inst.index, set()) & _passed_on(inst, entries[inst.index]):
                    names |= {r.name for r in _written(inst, entries[inst.index])}
        self.marks: Marks = {name: np.zeros(machine.T, np.bool_) for name in sorted(names)}

    def check_guard(self, step: Step, inst: Instruction) -> Step:
        """The step with a check of its guard predicate in front, which every thread reads."""
        if inst.guard is None or inst.guard.name not in self.doubtful.get(inst.index, ()):
            return step
        return _both(self._check([inst.guard.name]), step)

    def watch(self, step: Step, inst: Instruction, entry: Opcode) -> Step:
        """The step with a check of its operands in front, or with marks that follow the values."""
        doubtful = self.doubtful.get(inst.index, set())
        reads, passed_on = {r.name for r in _operands_read(inst, entry)} & doubtful, _passed_on(inst, entry)
        results = _written(inst, entry)
        flags = results[1:] if entry.mnemonic == "shfl.sync" else []  # d|p: whether the lane is in range is known
        writes = [self.marks[r.name] for r in results if r.name in self.marks and r not in flags]
        always = [self.marks[r.name] for r in flags if r.name in self.marks]
        if used := sorted(reads - passed_on):
            step = _both(self._check(used), step)
        if not writes and not always:
            return step
        known = self._known(inst, sorted(reads & passed_on)) if reads & passed_on else None

        def run(sel: Selection) -> None:
            written = True if known is None else known(sel)  # before the step: it may overwrite its operands
            step(sel)
            for mark in writes:
                mark[sel] = written
            for mark in always:
                mark[sel] = True

        return run

    def _check(self, names: list[str]) -> Step:
        reads = [(name, self.marks[name]) for name in names]

        def check(sel: Selection) -> None:
            for name, mark in reads:
                if not (written := mark[sel]).all():
                    raise Uninitialized(
                        f"register {name} is used, and nothing has written the value in it",
                        threads=threads_of(sel)[~written],
                    )

        return check

    def _known(self, inst: Instruction, reads: list[str]) -> Callable[[Selection], np.ndarray]:
        """Whether the result of arithmetic is known, from whether its operands are."""
        if inst.parts[0] == "selp":
            return self._known_selection(inst)
        if inst.parts[0] == "shfl":
            return self._known_elsewhere(inst)
        if inst.opcode in ("and.pred", "or.pred"):
            return self._known_logic(inst, inst.parts[0] == "or")
        if inst.parts[0] == "mov" and isinstance(inst.operands[1], Vector):
            return self._known_packing(inst.operands[1])
        marks = [self.marks[name] for name in reads]
        return lambda sel: np.logical_and.reduce([mark[sel] for mark in marks])

    def _known_packing(self, parts: Vector) -> Callable[[Selection], np.ndarray]:
        """mov d, {a, b}: compilers pad with registers nobody wrote and then use the other part only."""
        marks = [self._operand_mark(part) for part in parts.items]
        return lambda sel: np.logical_or.reduce([mark[sel] for mark in marks])

    def _operand_mark(self, operand: Operand) -> np.ndarray:
        """The mark of a plain operand; constants and proven registers are always written."""
        names = [r.name for r in registers_in([operand])]
        mark = self.marks.get(names[0]) if names else None
        return np.broadcast_to(True, self.machine.T) if mark is None else mark

    def _known_elsewhere(self, inst: Instruction) -> Callable[[Selection], np.ndarray]:
        """shfl d|p, a, ...: what counts is the lane that is read."""
        mark, sources = self._operand_mark(inst.operands[1]), shuffle_sources(inst, self.machine)
        return lambda sel: mark[sources(sel)[0]]

    def _known_selection(self, inst: Instruction) -> Callable[[Selection], np.ndarray]:
        """selp d, a, b, p: only the operand that is selected counts."""
        a, b, p = (self._operand_mark(operand) for operand in inst.operands[1:])
        chosen = self.machine.predicate(inst.operands[3])
        return lambda sel: p[sel] & np.where(chosen(sel), a[sel], b[sel])

    def _known_logic(self, inst: Instruction, dominant: bool) -> Callable[[Selection], np.ndarray]:
        """One false operand decides `and`, one true operand decides `or`."""
        a, b = (self._operand_mark(operand) for operand in inst.operands[1:])
        x, y = (self.machine.predicate(operand) for operand in inst.operands[1:])
        return lambda sel: (a[sel] & b[sel]) | (a[sel] & (x(sel) == dominant)) | (b[sel] & (y(sel) == dominant))


def _both(first: Step, second: Step) -> Step:
    def run(sel: Selection) -> None:
        first(sel)
        second(sel)

    return run


def _doubtful_reads(registers: list[str], blocks: Sequence[Block], entries: list[Opcode]) -> dict[int, set[str]]:
    """For each instruction that may read unwritten registers: which ones."""
    bit = {name: 1 << i for i, name in enumerate(registers)}
    state_at = [(1 << len(bit)) - 1] * len(blocks)  # what every path to a block has written
    state_at[0] = 0
    work, seen = [0], {0}
    while work:
        n = work.pop()
        state = _flow(blocks[n], state_at[n], bit, entries, None)
        for successor in blocks[n].successors:
            if successor >= len(blocks):
                continue
            merged = state_at[successor] & state
            if merged != state_at[successor] or successor not in seen:
                state_at[successor] = merged
                seen.add(successor)
                if successor not in work:
                    work.append(successor)
    found: dict[int, set[str]] = {}
    for n in seen:
        _flow(blocks[n], state_at[n], bit, entries, found)
    return found


def _flow(
    block: Block, state: int, bit: dict[str, int], entries: list[Opcode], found: dict[int, set[str]] | None
) -> int:
    """The written registers behind a block, from those in front of it."""
    for inst in block.instructions:
        entry = entries[inst.index]
        doubtful = {r.name for r in _operands_read(inst, entry) if not state & bit[r.name]}
        spreads = bool(doubtful & _passed_on(inst, entry))
        if found is not None:
            if inst.guard is not None and not state & bit[inst.guard.name]:
                doubtful.add(inst.guard.name)
            if doubtful:
                found[inst.index] = doubtful
        for register in _written(inst, entry):
            if spreads:
                state &= ~bit[register.name]
            elif inst.guard is None:
                state |= bit[register.name]
    return state
