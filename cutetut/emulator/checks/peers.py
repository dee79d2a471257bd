"""Launches that run at the same time, on several GPUs or streams: what one knows of what the others have done.

Each launch has clocks of its own (clocks.py).  What it releases for others goes by names that all of them know: the
number of a launch, the wave of its CTAs, the agent.  Who acquires it gets a column of its clocks for every such name,
so that barriers hand it on as they do the rest.  An access to global memory is then compared with what the shadows of
the other launches remember.  Between two GPUs only the scope of the system counts (PTX ISA section 8.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ..errors import EmulatorError, MissingBarrier
from ..machine.access import GPU, SYS, Access
from ..machine.machine import Machine
from ..machine.scheduler import Scheduler
from . import stamps
from .clocks import ASYNC_GLOBAL, GENERIC, VIEWS, Clocks, Knowledge
from .race_reports import Reports
from .remedies import BETWEEN_GPUS, FLAG, NARROW_FOR_GPUS
from .shadow import LatestFirst, Shadow
from .stamps import Stamp

Name = tuple[int, int, int]  # launch, wave, agent
WHOLE = -1  # as a wave and an agent: all of a launch


@dataclass(frozen=True)
class Word:
    """What a release passes on to other launches: per view (rows) up to when each is known; single lanes apart."""

    names: tuple[Name, ...]
    seen: np.ndarray
    lanes: tuple[tuple[Name, int, int], ...] = ()

    def join(self, other: Word | None) -> Word:
        """What the two pass on together."""
        if other is None:
            return self
        names = tuple(dict.fromkeys((*self.names, *other.names)))
        at = {name: i for i, name in enumerate(names)}
        seen = np.zeros((VIEWS, len(names)), np.int64)
        for part in (self, other):
            columns = [at[name] for name in part.names]
            seen[:, columns] = np.maximum(seen[:, columns], part.seen)
        return Word(names, seen, tuple(dict.fromkeys((*self.lanes, *other.lanes))))


@dataclass(frozen=True)
class Side:
    """The parts of one launch's checks that others ask."""

    machine: Machine
    clocks: Clocks
    reports: Reports
    regions: dict[int, Shadow]
    strength: np.ndarray
    new_agent: Callable[[int], int]
    before: Callable[[], int | None]  # the agent that stands for the kernel before a dependent launch


class Company:
    """The launches that may run at the same time, and what they have released, by host address."""

    def __init__(self) -> None:
        self.members: list[Peer] = []
        self.found: dict[int, list[object]] = {}
        self.learned: dict[int, Word] = {}  # by the number of a launch: what it has heard of others until its end
        self.joined = 0

    def forget(self, numbers: frozenset[int]) -> None:
        """Everything that is launched from now on comes after these launches."""
        self.members = [member for member in self.members if member.number not in numbers]
        self.learned = {number: word for number, word in self.learned.items() if number not in numbers}
        if not self.members:
            self.found.clear()


class Peer:
    """One launch among others. before: the numbers of those that have ended before this one begins."""

    side: Side

    def __init__(self, company: Company, gpu: int, launched: str, before: frozenset[int]) -> None:
        self.company, self.gpu, self.launched, self.before = company, gpu, launched, before
        self.number = company.joined
        company.joined += 1
        self.wave = 0
        self.columns: dict[Name, int] = {}  # of others' agents, in this wave
        self.names: dict[tuple[int, int], Name] = {}  # by wave and column

    def joins(self, side: Side) -> None:
        """The launch begins."""
        self.side = side
        self.company.members.append(self)

    def new_wave(self, wave: int) -> None:
        """New CTAs, which know of nobody. wave: its number, from 1."""
        self.wave = wave
        self.columns.clear()
        for number in sorted(self.before & self.company.learned.keys()):
            clocks = self.side.clocks
            clocks.acquire(np.arange(clocks.warps), self.knowledge(self.company.learned[number]))

    def ends(self) -> None:
        """A wave of CTAs has ended: launches that come after this one know what any of its threads knew."""
        clocks, names = self.side.clocks, tuple(self.columns)
        if not names:
            return
        columns = [self.columns[name] for name in names]
        seen = clocks.seen[:, :, columns].max(axis=1)
        for known in clocks.apart.everything():
            inside = [i for i, column in enumerate(columns) if column < len(known)]
            seen[GENERIC, inside] = np.maximum(seen[GENERIC, inside], known[[columns[i] for i in inside]])
        word = Word(names, seen)
        self.company.learned[self.number] = word.join(self.company.learned.get(self.number))

    # -- what is known ------------------------------------------------------------------------

    def includes(self, other: Peer, scope: int) -> bool:
        """Whether a scope of one launch's threads includes those of another."""
        return scope >= (GPU if other.gpu == self.gpu else SYS)

    def word(self, known: Knowledge) -> Word:
        """What this launch releases, for others."""
        columns: dict[Name, np.ndarray] = {(number, WHOLE, WHOLE): np.ones(VIEWS, np.int64) for number in self.before}
        for wave, row in [*known.past.items(), (known.wave, known.seen[GENERIC])]:
            for agent in np.flatnonzero(row).tolist():
                times = np.zeros(VIEWS, np.int64)
                times[GENERIC] = row[agent]
                if wave == known.wave:
                    times[: len(known.seen)] = known.seen[:, agent]
                columns[self.names.get((wave, agent), (self.number, wave, agent))] = times
        lanes = [(self.names.get((known.wave, w), (self.number, known.wave, w)), mask, t) for w, mask, t in known.lanes]
        names = tuple(columns)
        return Word(names, np.stack([columns[name] for name in names], axis=1) if names else np.zeros((VIEWS, 0), int),
                    tuple(lanes))  # fmt: skip

    def knowledge(self, word: Word) -> Knowledge:
        """What a release of another launch is worth here."""
        clocks, current = self.side.clocks, []
        past: dict[int, np.ndarray] = {}
        for at, name in enumerate(word.names):
            if name[0] == self.number and name[1] != self.wave:  # CTAs of this launch that have ended
                row = past.setdefault(name[1], np.zeros(name[2] + 1, np.int64))
                if len(row) <= name[2]:
                    past[name[1]] = row = np.pad(row, (0, name[2] + 1 - len(row)))
                row[name[2]] = word.seen[GENERIC, at]
            elif name[0] not in self.before:
                current.append((self._column(name), at))
        lanes = tuple((self._column(name), mask, time) for name, mask, time in word.lanes
                      if name[0] not in self.before and (name[0] != self.number or name[1] == self.wave))  # fmt: skip
        seen = np.zeros((VIEWS, clocks.agents), np.int64)
        for column, at in current:
            seen[:, column] = word.seen[:, at]
        return Knowledge(len(clocks.waves), seen, lanes, past)

    def _column(self, name: Name) -> int:
        if name[0] == self.number:
            return name[2]
        if name not in self.columns:
            self.columns[name] = column = self.side.new_agent(0)
            self.names[self.wave, column] = name
        return self.columns[name]

    # -- accesses -----------------------------------------------------------------------------

    def others(self) -> Iterator[Peer]:
        """The launches that may be running now, as far as this one can know."""
        return (other for other in self.company.members if other is not self and other.number not in self.before)

    def touches(self, host: np.ndarray, threads: np.ndarray, access: Access) -> None:
        """Threads are about to use global memory. Raises MissingBarrier where another launch is in their way."""
        for other, shadow, mine in self._shared(host):
            where = shadow.where(host[mine], access.nbytes)
            for found, reads in accesses(shadow, where, access.stores):
                late = self._late(other, found, threads[mine], reads)
                if access.scope and late.any():
                    late &= ~self._strong_enough(other, found, access)
                if not late.any():
                    continue
                if access.stores and self.side.reports.writes_the_same(host[mine], threads[mine], late, access):
                    continue
                row, column = _first(late)
                stamp, rows = Stamp.of(int(found.reshape(len(late), -1)[row, column])), late.any(axis=1)
                at = int(host[mine][row]) + column * shadow.granule
                self._report(other, stamp, at, access.kind.value, threads[mine][rows], access.inst, access.scope, reads)

    def copies(self, host: np.ndarray, nbytes: int, thread: int, inst: int, verb: str, stores: bool) -> None:
        """A copy engine is about to use global memory for a thread."""
        for other, shadow, mine in self._shared(host):
            where = np.unique(shadow.where(host[mine], nbytes))
            threads = np.full(len(where), thread)
            for found, reads in accesses(shadow, where, stores):
                late = self._late(other, found, threads, reads, ASYNC_GLOBAL)
                if late.any():
                    row, _ = _first(late)
                    at = shadow.start + (int(where[row]) << shadow.shift)
                    self._report(other, Stamp.of(int(found[row])), at, verb, threads[row : row + 1], inst, 0, reads)

    def _shared(self, host: np.ndarray) -> Iterator[tuple[Peer, Shadow, np.ndarray]]:
        """What other launches remember of memory at these addresses, and which of the addresses it is about."""
        low, high = int(host.min()), int(host.max())
        for other in self.others():
            for shadow in other.side.regions.values():
                if low < shadow.start + shadow.nbytes and high >= shadow.start:
                    mine = (host >= shadow.start) & (host < shadow.start + shadow.nbytes)
                    if mine.any():
                        yield other, shadow, mine

    def _late(
        self, other: Peer, found: np.ndarray, threads: np.ndarray, reads: bool, view: int = GENERIC
    ) -> np.ndarray:
        """Which accesses of another launch (rows: threads) these threads cannot know of."""
        clocks, rows = self.side.clocks, found.reshape(len(threads), -1)
        late = np.asarray(rows > 0)
        if not late.any():
            return late
        rows = np.maximum(rows, 0)
        agents, times, lanes = stamps.agent_of(rows), stamps.time_of(rows), stamps.thread_of(rows) & 31
        if (grid := other.side.before()) is not None:
            late &= agents != grid
        waves = np.searchsorted(other.side.clocks.waves, times, "right")
        whole = self.columns.get((other.number, WHOLE, WHOLE))
        for wave, agent in np.unique(np.stack((waves[late], agents[late])), axis=1).T.tolist():
            column = self.columns.get((other.number, wave, agent))
            mine = late & (waves == wave) & (agents == agent)
            at, inside = np.nonzero(mine)
            unknown = np.ones(len(at), np.bool_)
            if whole is not None:
                unknown &= clocks.unknown(threads[at], np.full(len(at), whole), np.ones(len(at), np.int64))
            if column is not None:
                theirs = lanes[mine] if agent < other.side.clocks.warps else None
                unknown &= self._unknown(threads[at], column, times[mine], theirs, reads, view)
            late[at, inside] = unknown
        return late

    def _unknown(
        self, threads: np.ndarray, column: int, times: np.ndarray, lanes: np.ndarray | None, reads: bool, view: int
    ) -> np.ndarray:
        """Of what a column of the clocks did at some times which threads do not know it; lanes: those that did it."""
        clocks, columns = self.side.clocks, np.full(len(threads), column)
        unknown = clocks.unknown(threads, columns, times, reads)
        if lanes is None:
            return unknown
        for i in np.flatnonzero(unknown) if clocks.has_details else ():
            thread = int(threads[i])
            unknown[i] = not clocks.knows_lane(thread >> 5, thread & 31, column, int(lanes[i]), int(times[i]))
        if view != GENERIC:  # of stores the async proxy sees what a fence has shown it
            unknown |= ~clocks.knows(threads >> 5, columns, times, view)
        return unknown

    def _strong_enough(self, other: Peer, found: np.ndarray, access: Access) -> np.ndarray:
        """Which accesses of another launch are strong, as this one is, each within the scope of the other."""
        theirs = other.side.strength[stamps.instruction_of(np.maximum(found, 0))]
        least = np.minimum(theirs, access.scope).reshape(len(found), -1)
        return np.asarray(least >= (GPU if other.gpu == self.gpu else SYS))

    def _report(
        self, other: Peer, stamp: Stamp, at: int, verb: str, threads: np.ndarray, inst: int, scope: int, reads: bool
    ) -> None:
        theirs, place = other.side.machine, self.side.reports.place_of(at)
        kernel = theirs.scheduler.kernel_name
        strong = int(other.side.strength[stamp.inst])
        done = "loads from" if reads else "writes"
        if other.gpu == self.gpu:
            whose, hint, kind = f"on another stream of GPU {other.gpu}", FLAG, "missing-stream-order"
        elif scope and strong:
            whose, hint, kind = f"on GPU {other.gpu}", NARROW_FOR_GPUS, "narrow-scope"
            done += ", both with strong accesses, but not at the scope of the system"
        else:
            whose, hint, kind = f"on GPU {other.gpu}", BETWEEN_GPUS, "missing-gpu-order"
        error: EmulatorError = MissingBarrier(
            f"{verb} {place} by GPU {self.gpu}, which {kernel} {whose} {done}, and nothing orders the two",
            threads=threads, hint=hint, kind=kind, locations=(place,),
        )  # fmt: skip
        thread = stamp.thread if stamp.agent < other.side.clocks.warps else None
        same_wave = int(np.searchsorted(other.side.clocks.waves, stamp.time, "right")) == other.wave
        error.add(theirs.scheduler.place(theirs.kernel.body[stamp.inst], thread if same_wave else None),
                  f"the other access is here, on GPU {other.gpu}")  # fmt: skip
        error.notes += [f"  {peer.side.machine.scheduler.kernel_name} was launched {peer.launched}"
                        for peer in (other, self)]  # fmt: skip
        self.side.reports.report(error, inst)


def stuck(scheduler: Scheduler, *, why: Callable[[Scheduler], EmulatorError], own: Peer) -> EmulatorError:
    """Why no launch can go on: this one, and below it the others that are under way."""
    error = why(scheduler)
    error.notes.append(f"  this is on GPU {own.gpu}, launched {own.launched}")
    for other in own.others():
        theirs = other.side.machine.scheduler
        if isinstance(theirs, Scheduler) and theirs.live:
            found = why(theirs)
            error.notes.append(
                f"  and on GPU {other.gpu}, kernel {theirs.kernel_name}, launched {other.launched}: {found.what}"
            )
            error.sides += found.sides
    return error


def accesses(shadow: Shadow, where: np.ndarray, stores: bool) -> Iterator[tuple[np.ndarray, bool]]:
    """What a shadow remembers of granules: what wrote them and, for a store, what has read them."""
    yield shadow.wrote[where], False
    assert isinstance(shadow.reads, LatestFirst) and isinstance(shadow.atomics, LatestFirst)
    for found in shadow.atomics.of(where):
        yield found, False
    for kept in (shadow.reads, shadow.copied) if stores else ():
        for found in kept.of(where):
            yield found, True


def _first(late: np.ndarray) -> tuple[int, int]:
    rows, columns = np.nonzero(late)
    return int(rows[0]), int(columns[0])


__all__ = ["Company", "Peer", "Side", "Word", "stuck"]
