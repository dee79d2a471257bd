"""Launches that may run at the same time: what each has touched of global memory, and where two of them conflict.

The host knows which launches a program has put in order (streams, events); here a launch is compared, when it has
ended, with those before it that nothing orders.  What a launch did to global memory is kept as runs of bytes that one
line of the kernel touched last: a few numbers for a tensor that one statement stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import EmulatorError, MissingBarrier, Place
from ..findings import role_of
from ..machine.access import GPU, Access, Kind
from ..machine.machine import Machine
from ..machine.memory import HOST, GlobalMemory, index
from ..machine.reporter import place_of
from ..ptx.syntax import Instruction
from . import stamps
from .ordering import Ordering
from .previous import Written
from .shadow import LatestFirst, Shadow

UNORDERED = (
    "an event between the two launches: record it on the first one's stream, and let the second one's wait for it "
    "(torch: second.wait_stream(first)); or one stream for both"
)


@dataclass(frozen=True)
class Spans:
    """Pieces of memory that do not overlap, by address: host addresses from and to, the instruction of each."""

    starts: np.ndarray
    ends: np.ndarray
    insts: np.ndarray

    @classmethod
    def of(cls, start: int, granule: int, insts: np.ndarray, lines: np.ndarray) -> Spans:
        """Of consecutive granules the instruction of each, -1 for none; neighbours of one line are one piece."""
        at = np.flatnonzero(insts >= 0)
        if not len(at):
            return NONE
        cut = np.flatnonzero((np.diff(at) != 1) | (np.diff(lines[insts[at]]) != 0)) + 1
        first, last = at[np.concatenate(([0], cut))], at[np.concatenate((cut - 1, [len(at) - 1]))]
        return cls(start + first * granule, start + (last + 1) * granule, insts[first])

    def meeting(self, other: Spans) -> tuple[np.ndarray, np.ndarray]:
        """Which pieces of this and of the other overlap: their positions, pair by pair."""
        low = np.searchsorted(self.ends, other.starts, "right")
        count = np.maximum(np.searchsorted(self.starts, other.ends, "left") - low, 0)
        theirs = np.repeat(np.arange(len(count)), count)
        mine = np.arange(len(theirs)) - np.repeat(np.cumsum(count) - count - low, count)
        return mine, theirs


NONE = Spans(*(np.empty(0, np.int64) for _ in range(3)))


@dataclass(frozen=True)
class Piece:
    """What a launch did in one allocation that begins at host address `start`."""

    start: int
    reads: Spans
    writes: Spans


@dataclass(frozen=True)
class Footprint:
    """What a launch touched of global memory; `launched` says where and how the host launched it.

    at: of an operation that is no launch of the program's, where it stands.
    """

    kernel: str
    body: Sequence[Instruction]
    pieces: tuple[Piece, ...]
    launched: str = ""
    at: Place | None = None

    @classmethod
    def of_written(cls, written: Written, launched: str) -> Footprint:
        """For a launch of which only the writes are known."""
        lines = _lines(written.instructions)
        pieces = [Piece(r.start, NONE, Spans.of(r.start, r.granule, r.instructions, lines)) for r in written.regions]
        return cls(written.kernel, written.instructions, tuple(pieces), launched)

    @classmethod
    def of_host(
        cls, name: str, source: str, text: str, written: Iterable[tuple[int, int, int]], launched: str
    ) -> Footprint:
        """For what the host does by a function of this name: starts of allocations, and addresses from and to."""
        store = Instruction("st.global.b8", (), None, False, 0, "", None, 0)
        pieces = [Piece(start, NONE, Spans(*map(np.array, ([low], [high], [0])))) for start, low, high in written]
        place = Place(name, None, None, None, None, None, "", source, text, store.opcode)
        return cls(name, [store], tuple(pieces), launched, place)

    def only(self, pieces: Iterable[Piece]) -> Footprint:
        """The same for some allocations."""
        return replace(self, pieces=tuple(pieces))

    def place(self, inst: int) -> Place:
        """Where an instruction of its kernel stands."""
        return self.at or place_of(self.kernel, self.body[inst])


@dataclass(frozen=True)
class Turn:
    """What a launch is given: how the host launched it, and the launches that may run at the same time."""

    launched: str
    others: tuple[Footprint, ...] = ()


class Concurrency:
    """Compares one launch with those beside it."""

    def __init__(self, machine: Machine, turn: Turn) -> None:
        self.machine, self.turn = machine, turn
        self.before = list(_copies(machine.memory, turn.others))  # of memory that others use, as this launch found it

    def over(self) -> Footprint:
        """The launch has ended: return what it touched, or raise MissingBarrier where another may be in its way."""
        mine = self._footprint()
        for other in self.turn.others:
            if not _talk(other, mine):
                self._compare(other, mine)
        return mine

    def _footprint(self) -> Footprint:
        m = self.machine
        lines, grid = _lines(m.kernel.body), m.unit(Ordering).grid
        pieces = [_piece(shadow, lines, grid) for shadow in m.unit(Ordering).regions.values()]
        return Footprint(m.scheduler.kernel_name, m.kernel.body, tuple(pieces), self.turn.launched)

    def _compare(self, other: Footprint, mine: Footprint) -> None:
        for theirs, ours in _same_memory(other, mine):
            conflicts = (theirs.writes, ours.reads), (theirs.writes, ours.writes), (theirs.reads, ours.writes)
            for before, after in conflicts:
                for one, two in zip(*before.meeting(after), strict=True):
                    low = max(int(before.starts[one]), int(after.starts[two]))
                    high = min(int(before.ends[one]), int(after.ends[two]))
                    first, second = int(before.insts[one]), int(after.insts[two])
                    if _strong(other.body[first]) and _strong(mine.body[second]):
                        continue
                    at = self._changed(low, high) if after is ours.writes else low
                    if at is not None:
                        self._report(other, mine, first, second, at, before is theirs.reads)

    def _changed(self, low: int, high: int) -> int | None:
        """The first of these bytes that the launch has changed; storing what is there already does no harm."""
        for start, old in self.before:
            if start <= low and high <= start + len(old):
                differ = np.flatnonzero(old[low - start : high - start] != _bytes(low, high))
                return low + int(differ[0]) if len(differ) else None
        return low

    def _report(self, other: Footprint, mine: Footprint, first: int, second: int, at: int, was_read: bool) -> None:
        scheduler, inst = self.machine.scheduler, mine.body[second]
        place = self.machine.unit(Ordering).reports.place_of(at)
        did = "reads" if was_read else "writes"
        error: EmulatorError = MissingBarrier(
            f"{_verb(inst)} {place}, which {other.kernel} {did}, and nothing orders the two launches: on a GPU they "
            "may run at the same time, or in the other order",
            hint=UNORDERED, kind="missing-stream-order", locations=(place,),
        )  # fmt: skip
        error.place, error.inst = mine.place(second), inst
        error.add(other.place(first), f"it is {'read' if was_read else 'written'} here")
        error.notes += [f"  {each.kernel} was launched {each.launched}" for each in (other, mine)]
        if not scheduler.tolerates("race", error, inst):
            raise error


def _piece(shadow: Shadow, lines: np.ndarray, grid: int | None) -> Piece:
    """What a shadow of global memory remembers."""
    assert isinstance(shadow.reads, LatestFirst)
    wrote = shadow.wrote > 0
    if grid is not None:
        wrote &= stamps.agent_of(np.maximum(shadow.wrote, 0)) != grid
    read = np.full(shadow.granules, -1, np.int64)
    for last in (shadow.reads.last, shadow.copied.last):
        if last is not None:
            read = np.where(last > 0, stamps.instruction_of(last), read)
    written = np.where(wrote, stamps.instruction_of(shadow.wrote), -1)
    start, granule = shadow.start, shadow.granule
    return Piece(start, Spans.of(start, granule, read, lines), Spans.of(start, granule, written, lines))


def _lines(body: Sequence[Instruction]) -> np.ndarray:
    """For each instruction a number that others of its line have too, if they are as strong."""
    numbers: dict[object, int] = {}
    keys = [(inst.index if inst.loc is None else (inst.loc.file, inst.loc.line), _strong(inst)) for inst in body]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


def _strong(inst: Instruction) -> bool:
    """Whether an access is strong enough not to be in a race with another such access of a different launch."""
    if inst.parts[0] in ("cp", "multimem"):  # a bulk reduction is relaxed, at the scope of the GPU (section 9.7.9.25.4)
        return inst.opcode.startswith("cp.reduce")
    kind = Kind.ATOMIC if role_of(inst.opcode, "global") == "updates" else Kind.LOAD
    return Access.of(inst.parts, inst.index, 1, kind).scope >= GPU


def _verb(inst: Instruction) -> str:
    if inst.parts[0] == "cp":
        return "a copy of" if "bulk_group" not in inst.parts else "a bulk store to"
    kinds = {"reads": Kind.LOAD, "updates": Kind.ATOMIC}
    return kinds.get(role_of(inst.opcode, "global"), Kind.STORE).value


def _same_memory(other: Footprint, mine: Footprint) -> Iterator[tuple[Piece, Piece]]:
    for theirs in other.pieces:
        for ours in mine.pieces:
            yield theirs, ours


def _talk(other: Footprint, mine: Footprint) -> bool:
    """Whether a launch has looked at what the other left with a strong access: a flag may order the two."""
    for theirs, ours in _same_memory(other, mine):
        for after in (ours.reads, ours.writes):
            for one, two in zip(*theirs.writes.meeting(after), strict=True):
                if _strong(other.body[int(theirs.writes.insts[one])]) and _strong(mine.body[int(after.insts[two])]):
                    return True
    return False


def _bytes(low: int, high: int) -> np.ndarray:
    first = int(index(np.int64(low), 1))  # type: ignore[arg-type]
    return HOST[1][first : first + high - low]


def _copies(memory: GlobalMemory, others: tuple[Footprint, ...]) -> Iterator[tuple[int, np.ndarray]]:
    """What the launch finds in memory that other launches use."""
    used = [spans for each in others for piece in each.pieces for spans in (piece.reads, piece.writes)]
    for allocation in memory.allocations:
        if any(((spans.starts < allocation.end) & (spans.ends > allocation.start)).any() for spans in used):
            yield allocation.start, _bytes(allocation.start, allocation.end).copy()
