"""Decoding: from a kernel's instructions to the steps that one machine executes, with what is put around them.

Each unit decodes its own instructions. Around that go, from the inside: an observer, the checks and marks of
unwritten values, what other units have registered (`wrapper` in machine/opcodes.py), the guard, and the observer
again. Runs of arithmetic with nothing around them may become machine code (compiled/runs.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from .checks.unwritten import Loads, Names, Unwritten, doubtful_reads
from .compiled.runs import History, Plain, plan
from .errors import EmulatorError, PtxSyntaxError, own_failures, ptx_line, source_lines
from .machine.machine import Machine
from .machine.opcodes import WRAPPERS, Opcode, Watched, Watcher, Wrapper, lookup
from .machine.program import Block, Program
from .machine.threads import Selection, Step, narrow
from .measure.observe import watch
from .ptx.constants import constants
from .ptx.source import describe, text
from .ptx.syntax import Instruction, Negated


@dataclass
class Facts:
    """What decoding finds out about a kernel whatever the launch."""

    entries: list[Opcode]
    starts: list[int]  # of the blocks
    names: list[Names]
    doubtful: dict[int, set[str]]  # see unwritten.py
    history: History = field(default_factory=History)  # of its runs, see compiled/runs.py
    decoded: bool = False  # once, without an error


@dataclass(frozen=True)
class Around:
    """What is put around the steps of one launch."""

    unwritten: Unwritten
    wrappers: Sequence[Wrapper]
    watcher: Watcher | None


def decode(machine: Machine, loads: Loads | None = None) -> Program:
    """Decode every instruction once; raises UnknownInstruction before anything has run.

    With `loads`, what comes out of shared memory is marked too (see unwritten.py).
    """
    body, labels = machine.kernel.body, machine.kernel.labels
    facts: Facts | None = machine.kernel.facts
    entries = facts.entries if facts is not None else [lookup(inst) for inst in body]
    starts = facts.starts if facts is not None else _leaders(machine, entries)
    number_of = {start: n for n, start in enumerate(starts)}
    end = number_of.setdefault(len(body), len(starts))
    machine.block_of_label = {label: number_of[at] for label, at in labels.items()}
    machine.block_starts = number_of
    program = Program()
    for n, start in enumerate(starts):
        stop = starts[n + 1] if n + 1 < len(starts) else len(body)
        block = Block(n, body[start:stop])
        block.successors = _successors(block, entries[stop - 1], machine)
        program.blocks.append(block)
    if facts is None:
        known = constants(machine.kernel)
        names = [Names.of(inst, entry, known) for inst, entry in zip(body, entries, strict=True)]
        facts = Facts(entries, starts, names, doubtful_reads(machine.registers, program.blocks, names, None))
        machine.kernel.facts = facts
    doubtful = facts.doubtful
    if loads is not None:
        doubtful = doubtful_reads(machine.registers, program.blocks, facts.names, loads)
    unwritten = Unwritten(machine, doubtful, facts.names, loads)
    machine.unwritten_marks = unwritten.marks
    around = Around(unwritten, [make(machine) for make in WRAPPERS], watch(machine))
    for block in program.blocks:
        _decode_block(block, machine, facts, around)
    facts.decoded = True
    program.blocks.append(Block(end))  # falling off the end of the body
    return program


def _leaders(machine: Machine, entries: list[Opcode]) -> list[int]:
    starts = {0, *machine.kernel.labels.values()}
    for i, entry in enumerate(entries):
        if entry.ends_block or entry.joins is not None:
            starts.add(i + 1)
        if entry.joins is not None:
            starts.add(i)
    starts.discard(len(entries))
    return sorted(starts)


def _successors(block: Block, entry: Opcode, machine: Machine) -> list[int]:
    """The blocks that may follow a block, whose last instruction has this entry."""
    following, last = block.number + 1, block.instructions[-1]
    if entry.targets is None:
        return [following]
    return entry.targets(last, machine) + ([following] if last.guard is not None else [])


def _decode_block(block: Block, machine: Machine, facts: Facts, around: Around) -> None:
    """Fill in the steps: exactly one per instruction, so that an error can name the one it happened in."""
    plain: list[Plain | None] = []  # for each step
    inst: Instruction | None = None
    with own_failures("it decoded an instruction", lambda error: _note_place(inst, error)):
        for inst in block.instructions:
            _decode_into(block, inst, machine, facts, around, plain)
    block.plan = plan(machine, facts.history, block.instructions, block.steps, plain)


def _decode_into(
    block: Block, inst: Instruction, machine: Machine, facts: Facts, around: Around, plain: list[Plain | None]
) -> None:
    """Append the step of one instruction; a control instruction's own comes last in its block."""
    entry, names, watcher = facts.entries[inst.index], facts.names[inst.index], around.watcher
    deferred = facts.decoded and entry.unit == "alu"
    step = bare = Deferred(inst, entry, machine) if deferred else _decode(inst, entry, machine)
    if watcher is not None:
        step = watcher.executed(step, inst, entry)
    guard = _guard(inst, machine)
    if entry.joins is not None:
        block.joins = _members(inst, entry, machine, guard)
        block.joins_warpgroup = entry.joins == "warpgroup"
    if entry.ends_block:
        block.control, block.control_guard = step, guard
        step = _nothing  # only the checks and marks of the operands
    watched = around.unwritten.watch(step, inst, entry)
    for wrap in around.wrappers:
        watched = wrap(watched, inst, names.written, names.others)
    part = _plain(bare, watched, guard) if entry.is_arithmetic else None
    if watched is not _nothing or not entry.ends_block:
        watched = _guarded(watched, guard)
    guarded, watched = watched, around.unwritten.check_guard(watched, inst)
    if watcher is not None:
        watched = watcher.issued(watched, inst, entry)
    if watched is not _nothing or not entry.ends_block:
        block.steps.append(watched)
        plain.append(part if guarded is watched else None)


def _plain(bare: Step, watched: Step, guard: Callable[[Selection], np.ndarray] | None) -> Plain | None:
    """An arithmetic instruction as a part of a run; None if something is around its step that must stay there."""
    around = []
    while watched is not bare:
        if not isinstance(watched, Watched) or (guard is not None and not watched.for_others):
            return None
        around.append(watched)
        watched = watched.step
    return Plain(_guarded(bare, guard), tuple(around))


def _nothing(sel: Selection) -> None:
    """The step of an instruction whose work is done elsewhere."""


def _note_place(inst: Instruction | None, error: EmulatorError) -> None:
    """Say which instruction an error is about, while nothing runs yet."""
    if inst is None:
        return
    if inst.loc is not None:
        file, line = inst.loc.file, inst.loc.line
        error.notes.append(source_lines(describe(file, line), text(file, line)))
    error.notes.append(ptx_line(inst.line, inst.text))


class Deferred:
    """The step of an arithmetic instruction that an earlier launch has decoded: again only if it executes in numpy."""

    __slots__ = ("entry", "inst", "machine", "step")

    def __init__(self, inst: Instruction, entry: Opcode, machine: Machine) -> None:
        self.inst, self.entry, self.machine = inst, entry, machine
        self.step: Step | None = None

    def __call__(self, sel: Selection) -> None:
        if self.step is None:
            self.step = _decode(self.inst, self.entry, self.machine)
        self.step(sel)


def _decode(inst: Instruction, entry: Opcode, machine: Machine) -> Step:
    """Decode one instruction; any error names its PTX line."""
    try:
        return entry.decode(inst, machine)
    except (IndexError, ValueError) as error:
        if "tuple index out of range" in str(error) or "values to unpack" in str(error):
            raise PtxSyntaxError(f"PTX line {inst.line}: {inst.text!r} has the wrong number of operands") from error
        raise
    except EmulatorError as error:
        if error.place is None and not error.notes:
            error.notes.append(ptx_line(inst.line, inst.text))
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
    if isinstance(entry.joins, str):
        return lambda sel: np.uint32(0xFFFFFFFF)  # type: ignore[return-value]
    row = machine.source(inst.operands[int(entry.joins)], np.uint32)  # type: ignore[arg-type]
    if guard is None:
        return lambda sel: row[sel]
    return lambda sel: np.where(guard(sel), row[sel], np.uint32(0))
