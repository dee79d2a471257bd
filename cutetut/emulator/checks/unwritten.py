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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import Uninitialized
from ..machine.memory import threads_of
from ..machine.opcodes import Opcode, Selection, Step
from ..ptx.constants import Constant
from ..ptx.effects import Effect, effect_of
from ..ptx.syntax import BYTES, Immediate, Instruction, Operand, Register, Vector, registers_in
from .holes import Holes
from .written_bits import Known, Marks, covers, full, known_bits, lowest

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..machine.program import Block

@dataclass(frozen=True)
class Names:
    """The registers of one instruction by what it does with them.

    `written` and `others` are in the order in which the instruction names them. `read` are those whose values it
    needs. `passed_on` are those of them that reach nothing but the result: operands of arithmetic, and what a shuffle
    moves.
    """

    written: tuple[str, ...]
    others: tuple[str, ...]
    read: frozenset[str]
    passed_on: frozenset[str]

    @classmethod
    def of(cls, inst: Instruction, entry: Opcode, known: dict[str, Constant]) -> Names:
        """`known` are the registers that hold one constant: a WGMMA whose scale-d is false only writes D."""
        written, others = (
            tuple(r.name for r in registers_in(part, addresses=True))
            for part in (inst.operands[: entry.results], inst.operands[entry.results :])
        )
        read = frozenset(others)
        if entry.adds_if is not None and not adds_never(inst.operands[entry.adds_if], known):
            read |= set(written)
        passed_on: frozenset[str] = frozenset()
        if effect_of(inst) is Effect.COMPUTES:
            passed_on = read
        elif (at := entry.passes_on) is not None:
            passed_on = _names(inst.operands[at : at + 1]) - _names(inst.operands[at + 1 :])
        return cls(written, others, read, passed_on)


def _names(operands: Iterable[Operand]) -> frozenset[str]:
    return frozenset(r.name for r in registers_in(operands, addresses=True))


def adds_never(scale_d: Operand, known: dict[str, Constant]) -> bool:
    """Whether scale-d of a WGMMA is false wherever it runs (PTX ISA section 9.7.15.5)."""
    value = scale_d.value if isinstance(scale_d, Immediate) else known.get(getattr(scale_d, "name", ""))
    return value is not None and not value


def _passed_on(inst: Instruction, names: Names, loads: Loads | None) -> frozenset[str]:
    """The registers that are passed on; with `loads`, also what is stored to shared memory: it is marked there."""
    if loads is not None and (is_store_to_shared(inst) or effect_of(inst) is Effect.SENDS):
        return _names(inst.operands[1:2]) - _names((*inst.operands[:1], *inst.operands[2:]))
    return names.passed_on


def is_load_from_shared(inst: Instruction) -> bool:
    """Whether an instruction is an ordinary load that can only be from shared memory."""
    return effect_of(inst) is Effect.LOADS and _is_plain_and_shared(inst)


def is_store_to_shared(inst: Instruction) -> bool:
    """Whether an instruction is an ordinary store that can only be to shared memory (st.async is none: it is late)."""
    return effect_of(inst) is Effect.STORES and _is_plain_and_shared(inst)


def _is_plain_and_shared(inst: Instruction) -> bool:
    return inst.parts[-1] != "b128" and any(part.startswith("shared") for part in inst.parts)


class Loads:
    """The loads of unwritten shared memory, by instruction, and which of them each thread did last."""

    def __init__(self, machine: Machine, first: Uninitialized) -> None:
        self.machine = machine
        self.errors: dict[int, Uninitialized] = {}
        self.last = np.full(machine.T, -1)
        self.first = first
        self.mark: dict[int, Callable[[Selection, np.ndarray], None]] = {}  # by instruction, what marks its results

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
    """What may be unwritten where, and the run-time marks of those registers (written_bits.py).

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
            name: before[name].copy() if name in before else self._fresh(name) for name in sorted(marked)
        }

    def _fresh(self, name: str) -> np.ndarray:
        """Marks that begin now: nothing is written, or all that had none so far, wherever it is read."""
        row = self.machine.registers[name]
        return np.zeros_like(row) if self.loads is None else np.full_like(row, full(row.dtype))

    def check_guard(self, step: Step, inst: Instruction) -> Step:
        """The step with a check of its guard predicate in front, which every thread reads."""
        if inst.guard is None or inst.guard.name not in self.doubtful.get(inst.index, ()):
            return step
        return _both(self._check(inst, {inst.guard.name: np.True_}), step)

    def watch(self, step: Step, inst: Instruction, entry: Opcode) -> Step:
        """The step with a check of its operands in front, or with marks that follow the values."""
        names, doubtful = self.names[inst.index], self.doubtful.get(inst.index, set())
        if not doubtful and self.loads is None and self.marks.keys().isdisjoint(names.written):
            return step  # the usual case
        passed_on = _passed_on(inst, names, self.loads) & doubtful
        added_to = names.read & doubtful & set(names.written) if entry.adds_if is not None else frozenset()
        if added_to:
            adds = self.machine.predicate(inst.operands[entry.adds_if])  # type: ignore[index]
            step = _both(self._check_accumulators(adds, sorted(added_to)), step)
        if used := sorted(names.read & doubtful - passed_on - added_to):
            step = _both(self._check(inst, {name: self._needed(inst, name) for name in used}), step)
        if self.loads is not None and is_load_from_shared(inst):
            return self._marking_load(step, inst, self.loads)
        if passed_on and is_store_to_shared(inst):
            return self._marking_store(step, inst)
        if not any(name in self.marks for name in names.written):
            return step
        if passed_on:
            return self._following(step, names, known_bits(inst, self.machine, self.marks))
        return self._writing(step, names)

    def _writing(self, step: Step, names: Names) -> Step:
        """An instruction whose results are written wholly."""
        marks = [self.marks[name] for name in names.written if name in self.marks]

        def run(sel: Selection) -> None:
            step(sel)
            for mark in marks:
                mark[sel] = full(mark.dtype)

        return run

    def _following(self, step: Step, names: Names, known: Known) -> Step:
        """An instruction whose results are written as far as its operands are."""
        marks = [self.marks.get(name) for name in names.written]

        def run(sel: Selection) -> None:
            written = known(sel)  # before the step: it may overwrite its operands
            step(sel)
            for mark, bits in zip(marks, written, strict=True):
                if mark is not None:
                    mark[sel] = bits

        return run

    def _marking_load(self, step: Step, inst: Instruction, loads: Loads) -> Step:
        """A load that may find unwritten shared memory, and marks what it found."""
        holes, unit = self.machine.unit(Holes), BYTES[inst.parts[-1]]
        parts = inst.operands[0].items if isinstance(inst.operands[0], Vector) else inst.operands[:1]
        marks = [self.marks[part.name] if isinstance(part, Register) else None for part in parts]
        access = holes.allow(step, inst.index)

        def note(sel: Selection, host: np.ndarray) -> None:
            for i, mark in enumerate(marks):
                written = holes.is_written(host + i * unit, unit)
                complete = bool(written.all())
                if mark is not None:
                    mark[sel] = full(mark.dtype) if complete else _loaded(holes, host + i * unit, unit, mark.dtype)
                if not complete:
                    at, threads = int(host[~written][0]) + i * unit, threads_of(sel)[~written]
                    loads.note(inst, threads, functools.partial(holes.unwritten_load, at, unit, threads))

        loads.mark[inst.index] = note
        return lambda sel: note(sel, access(sel))

    def _marking_store(self, step: Step, inst: Instruction) -> Step:
        """A store to shared memory of values that may be unwritten: so are the bytes then."""
        holes, unit = self.machine.unit(Holes), BYTES[inst.parts[-1]]
        marks, access = stored_marks(inst, self.marks), holes.allow(step, inst.index)

        def run(sel: Selection) -> None:
            host = access(sel)
            for i, mark in enumerate(marks):
                if mark is not None:
                    forget_unwritten(holes, host + i * unit, mark[sel], unit)

        return run

    def _needed(self, inst: Instruction, name: str) -> Any:
        """The bits of a register that an instruction other than arithmetic uses: of a value stored, its type's."""
        dtype = self.machine.registers[name].dtype
        addresses = _names(inst.operands[:1])
        if effect_of(inst) is Effect.STORES and inst.parts[-1] in BYTES and name not in addresses:
            return lowest(8 * BYTES[inst.parts[-1]], dtype)
        return full(dtype)

    def _check(self, inst: Instruction, needed: dict[str, Any]) -> Step:
        reads = [(name, self.marks[name], bits) for name, bits in needed.items()]
        scheduler = self.machine.scheduler

        def check(sel: Selection) -> None:
            for name, mark, bits in reads:
                if not (written := covers(mark[sel], bits)).all():
                    threads = threads_of(sel)[~written]
                    if self.loads is not None:
                        error = self.loads.behind(int(threads[0]))
                    else:
                        error = Uninitialized(_unwritten_text(name, mark[threads[0]], bits), threads=threads)
                    if not scheduler.tolerates("uninitialized", error, inst):
                        raise error

        return check


    def _check_accumulators(self, adds: Callable[[Selection], np.ndarray], names: list[str]) -> Step:
        """A WGMMA reads D where its scale-d is true, and only there."""
        marks = [(name, self.marks[name]) for name in names]

        def check(sel: Selection) -> None:
            if not (adding := adds(sel)).any():
                return
            threads = threads_of(sel)[adding]
            for name, mark in marks:
                written = covers(mark[threads], full(mark.dtype))
                if not written.all():
                    first = threads[~written]
                    if self.loads is not None and self.loads.last[first[0]] >= 0:
                        raise self.loads.behind(int(first[0]))
                    raise Uninitialized(
                        f"the WGMMA adds to register {name}, and nothing has written the value in it", threads=first,
                        hint="accumulators never set: fill them with zero, or set ACCUMULATE to False for the first k "
                             "block",
                    )  # fmt: skip

        return check


def _unwritten_text(name: str, mark: Any, needed: Any) -> str:
    """What is missing of a register: all of it, or some of its bytes."""
    missing = 0 if np.ndim(mark) else int(needed) & ~int(mark)
    if not np.any(mark) or not missing:
        return f"register {name} is used, and nothing has written the value in it"
    numbers = [i for i in range(8) if missing >> 8 * i & 0xFF]
    which = f"byte {numbers[0]}" if len(numbers) == 1 else f"bytes {', '.join(map(str, numbers))}"
    return f"register {name} is used, and nothing has written {which} of it (byte 0 is the lowest)"


def _loaded(holes: Holes, host: np.ndarray, nbytes: int, dtype: np.dtype) -> np.ndarray:
    """The marks of values that are loaded from partly unwritten shared memory; bits above them are an extension."""
    written = [holes.is_written(host + i, 1) for i in range(nbytes)]
    columns = [written[min(i, nbytes - 1)] for i in range(dtype.itemsize)]
    found: np.ndarray = (np.stack(columns, axis=1) * np.uint8(0xFF)).view(dtype).reshape(-1)
    return found


def stored_marks(inst: Instruction, marks: Marks) -> list[np.ndarray | None]:
    """The marks of each value that a store writes to memory."""
    value = inst.operands[1]
    items = value.items if isinstance(value, Vector) else (value,)
    return [marks.get(item.name) if isinstance(item, Register) else None for item in items]


def forget_unwritten(holes: Holes, host: np.ndarray, marks: np.ndarray, nbytes: int) -> None:
    """Values have been stored to these addresses: the bytes that were not written before are not written now."""
    if covers(marks, lowest(8 * nbytes, marks.dtype)).all():
        return
    written = np.ascontiguousarray(marks).view(np.uint8).reshape(len(marks), -1)
    for i in range(nbytes):
        holes.forget(host[written[:, i] != 0xFF] + i, 1)


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
    by_number = list(bit)
    return {index: {by_number[n] for n in _ones(doubtful)} for index, doubtful in found.items()}


def _ones(mask: int) -> Iterator[int]:
    """The numbers of the bits that are set."""
    while mask:
        highest = mask.bit_length() - 1
        yield highest
        mask ^= 1 << highest


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
            ones = 0
            for name in some:
                ones |= bit[name]
            return ones

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
