"""Values that are used before anything wrote them, in registers and in shared memory.

Definite assignment over the control flow graph proves nearly all reads; only the registers it cannot
prove get a mark per thread at run time.  A value computed from an unwritten register is unwritten
too, which is no error yet: a predicated load may leave a lane's register alone as long as that
lane's result goes nowhere.  Using it is one: in an address, a predicate, a store, a barrier,
anything but arithmetic.

Shared memory that nothing wrote is alike: rows beyond a matrix may be loaded, reduced and stored to
shared memory again.  Kernels seldom do that, and marks for everything that comes out of shared memory
cost time, so they begin with the first such load (`Loads`): the program is decoded again, with marks.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..errors import Uninitialized
from ..machine.memory import threads_of
from ..machine.opcodes import Opcode, Selection, Step
from ..ptx.constants import Constant
from ..ptx.syntax import BYTES, Address, Group, Immediate, Instruction, Negated, Operand, Pair, Register, Vector
from ..units.warp import shuffle_sources

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..machine.program import Block

Marks = dict[str, np.ndarray]
WGMMA = "wgmma.mma_async"


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


@dataclass(frozen=True)
class Names:
    """The registers of one instruction by what it does with them, as they stand; `read` are the others as a set.

    `passed_on` reach nothing but the result: the operands of arithmetic, and what a shuffle moves.
    """

    written: tuple[str, ...]
    others: tuple[str, ...]
    read: frozenset[str]
    passed_on: frozenset[str]

    @classmethod
    def of(cls, inst: Instruction, entry: Opcode, known: dict[str, Constant]) -> Names:
        """`known` are the registers that hold one constant: a WGMMA whose scale-d is false only writes D."""
        written, others = (
            tuple(r.name for r in registers_in(part))
            for part in (inst.operands[: entry.results], inst.operands[entry.results :])
        )
        read = frozenset(others)
        if entry.mnemonic == WGMMA and not adds_never(inst, known):
            read |= set(written)
        passed_on: frozenset[str] = frozenset()
        if entry.unit == "alu":
            passed_on = read
        elif entry.mnemonic == "shfl.sync":
            passed_on = _names(inst.operands[1:2]) - _names(inst.operands[2:])
        return cls(written, others, read, passed_on)


def _names(operands: Iterable[Operand]) -> frozenset[str]:
    return frozenset(r.name for r in registers_in(operands))


def adds_never(inst: Instruction, known: dict[str, Constant]) -> bool:
    """Whether scale-d of a WGMMA is false wherever it runs (PTX ISA section 9.7.15.5)."""
    scale_d = inst.operands[3]
    value = scale_d.value if isinstance(scale_d, Immediate) else known.get(getattr(scale_d, "name", ""))
    return value is not None and not value


def _passed_on(inst: Instruction, names: Names, loads: Loads | None) -> frozenset[str]:
    """The registers that are passed on; with `loads`, also what is stored to shared memory: it is marked there."""
    if loads is not None and _is_store_to_shared(inst):
        return _names(inst.operands[1:2]) - _names(inst.operands[:1])
    return names.passed_on


def is_load_from_shared(inst: Instruction) -> bool:
    """Whether an instruction is an ordinary load that can only be from shared memory."""
    return inst.parts[0] == "ld" and inst.parts[-1] != "b128" and any(p.startswith("shared") for p in inst.parts)


def _is_store_to_shared(inst: Instruction) -> bool:
    return inst.parts[0] == "st" and inst.parts[-1] != "b128" and any(p.startswith("shared") for p in inst.parts)


class Loads:
    """The loads of unwritten shared memory, by instruction, and which of them each thread did last."""

    def __init__(self, machine: Machine, first: Uninitialized) -> None:
        self.machine = machine
        self.errors: dict[int, Uninitialized] = {}
        self.last = np.full(machine.T, -1)
        self.first = first

    def note(self, inst: Instruction, threads: np.ndarray, error: Callable[[], Uninitialized]) -> None:
        """Some threads have loaded what nothing wrote; `error` describes it."""
        self.last[threads] = inst.index
        if inst.index not in self.errors:
            self.errors[inst.index] = found = error()
            self.machine.scheduler.current = inst
            self.machine.scheduler.locate(found, threads)

    def behind(self, thread: int) -> Uninitialized:
        """The load that a thread's unwritten value came from: its own last one, or else the kernel's first."""
        return self.errors.get(int(self.last[thread]), self.first)


class Unwritten:
    """What may be unwritten where, and the run-time marks (True: written) of those registers.

    `loads` is None as long as nothing has loaded unwritten shared memory.
    """

    def __init__(
        self, machine: Machine, doubtful: dict[int, set[str]], names: Sequence[Names], loads: Loads | None = None
    ) -> None:
        self.machine, self.loads = machine, loads
        self.doubtful, self.names = doubtful, names
        marked = set().union(*doubtful.values())
        for inst in machine.kernel.body:
            doubt = doubtful.get(inst.index)
            if (doubt and doubt & _passed_on(inst, names[inst.index], loads)) or (
                loads is not None and is_load_from_shared(inst)
            ):
                marked.update(names[inst.index].written)
        before = machine.unwritten_marks if loads is not None else {}
        self.marks: Marks = {
            name: before.get(name, np.full(machine.T, loads is not None)) for name in sorted(marked)
        }  # what had no mark so far has been written wherever it is read

    def check_guard(self, step: Step, inst: Instruction) -> Step:
        """The step with a check of its guard predicate in front, which every thread reads."""
        if inst.guard is None or inst.guard.name not in self.doubtful.get(inst.index, ()):
            return step
        return _both(self._check([inst.guard.name]), step)

    def watch(self, step: Step, inst: Instruction, entry: Opcode) -> Step:
        """The step with a check of its operands in front, or with marks that follow the values."""
        names = self.names[inst.index]
        doubtful = self.doubtful.get(inst.index)
        if doubtful is None and self.loads is None and not any(name in self.marks for name in names.written):
            return step
        reads = names.read & doubtful if doubtful else frozenset()
        passed_on = _passed_on(inst, names, self.loads)
        flags = names.written[1:] if entry.mnemonic == "shfl.sync" else ()  # d|p: whether the lane is in range is known
        writes = [self.marks[name] for name in names.written if name in self.marks and name not in flags]
        always = [self.marks[name] for name in flags if name in self.marks]
        added_to = reads & set(names.written) if entry.mnemonic == WGMMA else frozenset()
        if added_to:
            step = _both(self._check_accumulators(inst, sorted(added_to)), step)
        if used := sorted(reads - passed_on - added_to):
            step = _both(self._check(used), step)
        if self.loads is not None and is_load_from_shared(inst):
            return self._marking_load(step, inst, self.loads)
        if self.loads is not None and _is_store_to_shared(inst) and reads & passed_on:
            return self._marking_store(step, inst)
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

    def _marking_load(self, step: Step, inst: Instruction, loads: Loads) -> Step:
        """A load that may find unwritten shared memory, and marks what it found."""
        shared, unit = self.machine.shared, BYTES[inst.parts[-1]]
        parts = inst.operands[0].items if isinstance(inst.operands[0], Vector) else inst.operands[:1]
        marks = [self.marks[part.name] if isinstance(part, Register) else None for part in parts]

        def run(sel: Selection) -> None:
            host = shared.leniently(step, sel)
            for i, mark in enumerate(marks):
                written = shared.is_written(host + i * unit, unit)
                if mark is not None:
                    mark[sel] = written
                if not written.all():
                    at, threads = int(host[~written][0]) + i * unit, threads_of(sel)[~written]
                    loads.note(inst, threads, functools.partial(shared.unwritten_load, at, unit, threads))

        return run

    def _marking_store(self, step: Step, inst: Instruction) -> Step:
        """A store to shared memory of values that may be unwritten: so are the bytes then."""
        shared, unit = self.machine.shared, BYTES[inst.parts[-1]]
        parts = inst.operands[1].items if isinstance(inst.operands[1], Vector) else inst.operands[1:2]
        marks = [self._operand_mark(part) for part in parts]

        def run(sel: Selection) -> None:
            host = shared.leniently(step, sel)
            for i, mark in enumerate(marks):
                shared.forget(host[~mark[sel]] + i * unit, unit)

        return run

    def _check(self, names: list[str]) -> Step:
        reads = [(name, self.marks[name]) for name in names]

        def check(sel: Selection) -> None:
            for name, mark in reads:
                if not (written := mark[sel]).all():
                    if self.loads is not None:
                        raise self.loads.behind(int(threads_of(sel)[~written][0]))
                    raise Uninitialized(
                        f"register {name} is used, and nothing has written the value in it",
                        threads=threads_of(sel)[~written],
                    )

        return check

    def _check_accumulators(self, inst: Instruction, names: list[str]) -> Step:
        """A WGMMA reads D where its scale-d is true, and only there."""
        marks, adds = [(name, self.marks[name]) for name in names], self.machine.predicate(inst.operands[3])

        def check(sel: Selection) -> None:
            if not (adding := adds(sel)).any():
                return
            threads = threads_of(sel)[adding]
            for name, mark in marks:
                if not (written := mark[threads]).all():
                    first = threads[~written]
                    if self.loads is not None and self.loads.last[first[0]] >= 0:
                        raise self.loads.behind(int(first[0]))
                    raise Uninitialized(
                        f"the WGMMA adds to register {name}, and nothing has written the value in it", threads=first,
                        hint="accumulators never set: fill them with zero, or set ACCUMULATE to False for the first k "
                             "block",
                    )  # fmt: skip

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


def doubtful_reads(
    registers: Iterable[str], blocks: Sequence[Block], names: Sequence[Names], loads: Loads | None
) -> dict[int, set[str]]:
    """For each instruction that may read unwritten registers: which ones."""
    bit = {name: 1 << i for i, name in enumerate(registers)}
    masks = {inst.index: _Masks.of(inst, names[inst.index], bit, loads) for b in blocks for inst in b.instructions}
    state_at = [(1 << len(bit)) - 1] * len(blocks)  # what every path to a block has written
    state_at[0] = 0
    work, seen = [0], {0}
    while work:
        n = work.pop()
        state = _flow(blocks[n], state_at[n], masks, None)
        for successor in blocks[n].successors:
            if successor >= len(blocks):
                continue
            merged = state_at[successor] & state
            if merged != state_at[successor] or successor not in seen:
                state_at[successor] = merged
                seen.add(successor)
                if successor not in work:
                    work.append(successor)
    found: dict[int, int] = {}
    for n in seen:
        _flow(blocks[n], state_at[n], masks, found)
    return {index: {name for name in bit if bit[name] & doubtful} for index, doubtful in found.items()}


@dataclass(frozen=True)
class _Masks:
    """What an instruction does with registers, a bit each."""

    read: int
    written: int
    passed_on: int
    guard: int
    spreads: bool  # its result may be unwritten whatever it reads

    @classmethod
    def of(cls, inst: Instruction, names: Names, bit: dict[str, int], loads: Loads | None) -> _Masks:
        def mask(some: Iterable[str]) -> int:
            return functools.reduce(operator.or_, (bit[name] for name in some), 0)

        passed_on, guard = _passed_on(inst, names, loads), () if inst.guard is None else (inst.guard.name,)
        spreads = loads is not None and is_load_from_shared(inst)
        return cls(mask(names.read), mask(names.written), mask(passed_on), mask(guard), spreads)


def _flow(block: Block, state: int, masks: dict[int, _Masks], found: dict[int, int] | None) -> int:
    """The written registers behind a block, from those in front of it."""
    for inst in block.instructions:
        mask = masks[inst.index]
        doubtful = mask.read & ~state
        if found is not None and (doubt := doubtful | mask.guard & ~state):
            found[inst.index] = doubt
        if mask.spreads or doubtful & mask.passed_on:
            state &= ~mask.written
        elif not mask.guard:
            state |= mask.written
    return state
