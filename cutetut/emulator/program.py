"""A kernel decoded for one machine: basic blocks of steps, and a check for unwritten registers.

Blocks end where control may leave or threads may wait; a warp-wide instruction has a block of its
own, because early lanes must be able to wait in front of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from .errors import EmulatorError, PtxSyntaxError, Uninitialized
from .machine import Machine
from .memory import threads_of
from .ptx import Address, Group, Instruction, Negated, Operand, Pair, Register, Vector
from .registry import Opcode, Selection, Step, lookup


@dataclass
class Block:
    """Straight-line steps, then at most one control step that decides where its threads go."""

    number: int
    instructions: list[Instruction] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    control: Step | None = None
    control_guard: Callable[[Selection], np.ndarray] | None = None
    joins: Callable[[Selection], np.ndarray] | None = None  # member lanes each thread must meet
    successors: list[int] = field(default_factory=list)


@dataclass
class Program:
    blocks: list[Block]
    block_of_label: dict[str, int]


def decode(machine: Machine) -> Program:
    """Decode every instruction once; raises UnknownInstruction before anything has run."""
    body = machine.kernel.body
    entries = [lookup(inst) for inst in body]
    starts = _leaders(machine, entries)
    number_of = {start: n for n, start in enumerate(starts)}
    end = number_of.setdefault(len(body), len(starts))
    labels = {label: number_of[at] for label, at in machine.kernel.labels.items()}
    machine.block_of_label, machine.block_starts = labels, number_of
    program = Program([], labels)
    for n, start in enumerate(starts):
        stop = starts[n + 1] if n + 1 < len(starts) else len(body)
        block = Block(n, body[start:stop])
        block.successors = _successors(block, entries[start:stop], labels, machine, n + 1)
        program.blocks.append(block)
    suspicious = _unwritten_registers(machine, program, entries)
    for block in program.blocks:
        _decode_block(block, machine, entries, suspicious)
    program.blocks.append(Block(end))  # falling off the end of the body
    return program


def narrow(sel: Selection, keep: np.ndarray) -> np.ndarray:
    """The threads of a selection for which keep is true."""
    return threads_of(sel)[keep]


def _leaders(machine: Machine, entries: list[Opcode]) -> list[int]:
    starts = {0, *machine.kernel.labels.values()}
    for i, entry in enumerate(entries):
        if entry.ends_block or entry.joins is not None:
            starts.add(i + 1)
        if entry.joins is not None:
            starts.add(i)
    starts.discard(len(entries))
    return sorted(starts)


def _successors(
    block: Block, entries: list[Opcode], labels: dict[str, int], machine: Machine, following: int
) -> list[int]:
    last = block.instructions[-1]
    if not entries[-1].ends_block:
        return [following]
    base = last.parts[0]
    if base == "bra":
        target = [labels[last.operands[0].name]]  # type: ignore[union-attr]
        return target + ([following] if last.guard is not None else [])
    if base == "brx":
        targets = machine.kernel.branch_targets[last.operands[1].name]  # type: ignore[union-attr]
        return [labels[t] for t in targets]
    if base in ("ret", "exit", "trap"):
        return [following] if last.guard is not None else []
    return [following]


def _decode_block(block: Block, machine: Machine, entries: list[Opcode], suspicious: _Suspicious) -> None:
    """Fill in the steps: exactly one per instruction, so that an error can name the one it happened in."""
    for inst in block.instructions:
        entry = entries[inst.index]
        step = _decode(inst, entry, machine)
        guard = _guard(inst, machine)
        if entry.joins is not None:
            block.joins = _members(inst, entry, machine, guard)
        if entry.ends_block:
            block.control, block.control_guard = step, guard
            step = _nothing  # only the checks and marks of the operands
        watched = suspicious.watch(step, inst, entry)
        if watched is not _nothing or not entry.ends_block:
            watched = _guarded(watched, guard)
        watched = suspicious.check_guard(watched, inst)
        if watched is not _nothing or not entry.ends_block:
            block.steps.append(watched)


def _nothing(sel: Selection) -> None:
    """The step of an instruction whose work is done elsewhere."""


def _decode(inst: Instruction, entry: Opcode, machine: Machine) -> Step:
    """Decode one instruction; any error names its PTX line."""
    try:
        return entry.decode(inst, machine)
    except IndexError as error:
        raise PtxSyntaxError(f"PTX line {inst.line}: {inst.text!r} has too few operands") from error
    except EmulatorError as error:
        if error.place is None and not error.notes:
            error.notes.append(f"  PTX line {inst.line}:  {inst.text.strip()}")
        raise


def _guard(inst: Instruction, machine: Machine) -> Callable[[Selection], np.ndarray] | None:
    if inst.guard is None:
        return None
    return machine.predicate(Negated(inst.guard) if inst.guard_negated else inst.guard)


def _guarded(step: Step, guard: Callable[[Selection], np.ndarray] | None) -> Step:
    if guard is None:
        return step

    def run(sel: Selection) -> None:
        active = guard(sel)
        if active.all():
            step(sel)
        elif active.any():
            step(narrow(sel, active))

    return run


def _members(
    inst: Instruction, entry: Opcode, machine: Machine, guard: Callable[[Selection], np.ndarray] | None
) -> Callable[[Selection], np.ndarray]:
    """Which lanes must arrive together: the member mask, or every lane of the warp.

    A lane whose guard is false executes nothing, so it has nobody to wait for.
    """
    if entry.joins == "warp":
        return lambda sel: np.uint32(0xFFFFFFFF)  # type: ignore[return-value]
    row = machine.source(inst.operands[int(entry.joins)], np.uint32)  # type: ignore[arg-type]
    if guard is None:
        return lambda sel: row[sel]
    return lambda sel: np.where(guard(sel), row[sel], np.uint32(0))


# -- registers that may be read before anything wrote them ---------------------------------------


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


def _read(inst: Instruction, entry: Opcode) -> list[Register]:
    guard = [inst.guard] if inst.guard is not None else []
    return [*guard, *registers_in(inst.operands[entry.results :])]


def _is_copy(inst: Instruction) -> bool:
    """A plain move: copying an unwritten register is no error, using the copy is."""
    return inst.parts[0] == "mov" and len(inst.operands) == 2 and isinstance(inst.operands[1], Register)


def _unwritten_registers(machine: Machine, program: Program, entries: list[Opcode]) -> _Suspicious:
    """Definite assignment over the control flow graph.

    What it proves needs no check at run time; CuTe DSL's code is nearly all proven.
    """
    tracked: set[str] = set()
    while True:
        found = _possibly_unwritten(machine, program, entries, tracked)
        if found <= tracked:
            return _Suspicious(machine, tracked)
        tracked |= found


def _possibly_unwritten(machine: Machine, program: Program, entries: list[Opcode], tracked: set[str]) -> set[str]:
    bit = {name: 1 << i for i, name in enumerate(machine.registers)}
    everything = (1 << len(bit)) - 1
    blocks = program.blocks
    entry_state = [everything] * len(blocks)
    entry_state[0] = 0
    work = [0]
    seen: set[int] = set()
    found: set[str] = set()
    while work:
        n = work.pop()
        seen.add(n)
        state = _flow(blocks[n], entry_state[n], bit, entries, tracked, None)
        for successor in blocks[n].successors:
            if successor >= len(blocks):
                continue
            merged = entry_state[successor] & state
            if merged != entry_state[successor] or successor not in seen:
                entry_state[successor] = merged
                if successor not in work:
                    work.append(successor)
    for n in seen:
        _flow(blocks[n], entry_state[n], bit, entries, tracked, found)
    return found


def _flow(
    block: Block, state: int, bit: dict[str, int], entries: list[Opcode], tracked: set[str], found: set[str] | None
) -> int:
    for inst in block.instructions:
        entry = entries[inst.index]
        copy = _is_copy(inst)
        doubtful = [r.name for r in _read(inst, entry) if not state & bit[r.name]]
        if found is not None:
            found.update(doubtful)
            if copy and doubtful:
                found.update(r.name for r in _written(inst, entry))
        if inst.guard is None and not (copy and doubtful):
            for register in _written(inst, entry):
                state |= bit[register.name]
    return state


class _Suspicious:
    """Registers that need a run-time mark: one bool per thread, set when the register is written."""

    def __init__(self, machine: Machine, names: set[str]) -> None:
        self.marks = {name: np.zeros(machine.T, np.bool_) for name in sorted(names)}
        machine.unwritten_marks = self.marks

    def _check(self, registers: Iterable[Register]) -> Step | None:
        """A step that raises Uninitialized when a thread has not written one of the registers."""
        reads = [(r.name, self.marks[r.name]) for r in registers if r.name in self.marks]
        if not reads:
            return None

        def check(sel: Selection) -> None:
            for name, mark in reads:
                if not (written := mark[sel]).all():
                    raise Uninitialized(
                        f"register {name} is read before anything wrote it", threads=narrow(sel, ~written)
                    )

        return check

    def check_guard(self, step: Step, inst: Instruction) -> Step:
        """The step with a check of its guard predicate in front, which every thread reads."""
        check = self._check([inst.guard] if inst.guard is not None else [])
        if check is None:
            return step

        def run(sel: Selection) -> None:
            check(sel)
            step(sel)

        return run

    def watch(self, step: Step, inst: Instruction, entry: Opcode) -> Step:
        """The step with a check of its operands in front and the marks of its results behind."""
        copy = _is_copy(inst)
        check = None if copy else self._check(registers_in(inst.operands[entry.results :]))
        writes = [self.marks[r.name] for r in _written(inst, entry) if r.name in self.marks]
        source = self.marks.get(inst.operands[1].name) if copy else None  # type: ignore[union-attr]
        if check is None and not writes:
            return step

        def run(sel: Selection) -> None:
            if check is not None:
                check(sel)
            step(sel)
            for mark in writes:
                mark[sel] = True if source is None else source[sel]

        return run
