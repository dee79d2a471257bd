"""What mbarriers know of a mistake: who waits for a phase, what it lacks, and what may have led to that."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..checks.ordering import Ordering
from ..errors import AsyncMismatch, IllegalInstruction, MissingBarrier
from ..findings import Side
from ..machine.machine import Machine
from ..machine.memory import SHARED_BASE
from ..machine.pending import Operation
from ..machine.shared import RANK_SHIFT
from ..machine.stuck import (
    CERTAIN,
    NOBODY_EVER,
    OTHERWISE,
    TOO_FEW,
    Candidates,
    Cause,
    Report,
    Wait,
    plural,
    ranges,
    threads_in,
)
from ..ptx.syntax import Instruction
from .mbarrier_objects import Mbarrier, Waiter, place_of

BYTES = "the byte count of expect_tx, that of all copies of a phase: with less, waiters read too early"
ANNOUNCED = "the byte count of expect_tx against the bytes that the copies bring"
UNANNOUNCED = (
    "the arrive with expect_tx (the producer's acquire of the stage) that belongs before the copies: nobody has "
    "announced the bytes of this phase"
)
DESTINATION = ", and to which CTA each copy goes: its rank, or the multicast mask"
ADDED = (
    "`.noinc` on cp.async.mbarrier.arrive: without it each thread adds to the phase the arrival that it then makes, "
    "and mbarrier_init's count must leave those out"
)
ARRIVALS = "the arrival count of mbarrier_init against the threads that arrive"
AHEAD = (
    "a wait for every phase; and an arrival of those who wait, such as at an 'empty' mbarrier, for which the others "
    "wait before they complete the next phase"
)
PARITY = "the parity of the waits: on a barrier with no phase complete yet, parity 1 passes and parity 0 waits"


class Mbarriers(Protocol):
    """What the unit keeps (mbarrier.py), as far as its reports read it."""

    machine: Machine
    objects: dict[int, Mbarrier]  # by host address
    users: dict[int, set[int]]  # instruction that arrives or waits -> offsets of its barriers

    def know_of(self, arrivals: dict[int, int] | None, threads: np.ndarray) -> bool:
        """Whether threads know of all arrivals of a phase."""
        ...


class Waits:
    """The waits at one unit's mbarriers, when nobody can go on."""

    def __init__(self, unit: Mbarriers, report: Report) -> None:
        self.unit, self.report, self.machine = unit, report, unit.machine
        self.short = report.short

    def all(self) -> list[Wait]:
        return [self._wait(barrier) for barrier in self.unit.objects.values() if barrier.waiters]

    def _wait(self, barrier: Mbarrier) -> Wait:
        lines = [line for waiter in barrier.waiters for line in self._waiter(barrier, waiter)]
        lines += self._history(barrier)
        threads = np.unique(np.concatenate([waiter.threads for waiter in barrier.waiters]))
        could, more = self._helpers(barrier, threads)
        helpers, place = threads_in(could), barrier.location(self.machine)
        sides = [*self._sides(barrier, str(place)), *self.report.missing(could, str(place))]
        return Wait(threads, [*lines, *more], helpers, self._causes(barrier, helpers), sides, (place,))

    def _sides(self, barrier: Mbarrier, at: str) -> list[Side]:
        """Who waits for a barrier, and who has arrived in this phase, as data."""
        sides = [side for w in barrier.waiters for side in self.report.sides("waits", w.inst, w.threads, at)]
        for arrival in barrier.arrivals:
            role = "announces" if arrival.expected else "arrives"
            sides += self.report.sides(role, arrival.inst, arrival.threads, at)
        return sides

    def _waiter(self, barrier: Mbarrier, waiter: Waiter) -> list[str]:
        lines = [
            f"  {self.report.who(waiter.threads)} wait for phase {int(waiter.phase[0])} of the {barrier.describe()}",
            f"    waiting here: {self.report.line(waiter.inst)}",
        ]
        if missed := self._missed(barrier, waiter):
            times = {1: "once", 2: "twice"}.get(missed, f"{missed} times")
            last = barrier.seen[int(waiter.threads[0]) >> 5]
            same = ", which has the same parity" if missed % 2 == 0 else ""
            lines.append(
                f"    completed {times} since this thread last waited, at {self.short(last.inst)}: "
                f"the next phase for it was {last.completed}{same}"
            )
        return lines

    def _missed(self, barrier: Mbarrier, waiter: Waiter) -> int:
        """How many phases have completed since the first thread of a waiter last waited here, and saw them complete."""
        last = barrier.seen.get(int(waiter.threads[0]) >> 5)
        return 0 if last is None else barrier.phase - last.completed

    def _history(self, barrier: Mbarrier) -> list[str]:
        """What a phase has got so far."""
        made = self.short(barrier.made_with)
        lines = [f"    each phase takes {plural(barrier.count, 'arrival')} (mbarrier_init: {made})"]
        for arrival in barrier.arrivals:
            text = f"{arrival.expected} bytes announced" if arrival.expected else plural(arrival.count, "arrival")
            who = self.report.warps(arrival.threads)
            added = ", which also added as many to wait for" if _adds(arrival.inst) else ""
            lines.append(f"    this phase: {text} by {who} ({self.short(arrival.inst)}){added}")
        if not barrier.arrivals:
            lines.append("    this phase: nobody has arrived yet")
            lines += self._elsewhere(barrier)
        expected = sum(arrival.expected for arrival in barrier.arrivals)
        if barrier.bytes > 0:
            lines.append(
                f"    bytes: {expected} announced, {expected - barrier.bytes} delivered, {barrier.bytes} missing; "
                "no copy to this barrier is under way"
            )
        elif barrier.bytes < 0:
            lines.append(
                f"    bytes: {expected} announced, and copies brought {-barrier.bytes} bytes that nobody announced"
            )
        return lines

    # -- who could come -----------------------------------------------------------------------

    def _helpers(self, barrier: Mbarrier, waiting: np.ndarray) -> tuple[Candidates, list[str]]:
        """The threads that could still arrive, and a line about them; those who wait for this very phase cannot."""
        if not barrier.pending:
            return {}, []
        cluster = np.flatnonzero(self.machine.cta_of // self.machine.cluster_size
                                 == barrier.cta // self.machine.cluster_size)  # fmt: skip
        family = self._family(barrier)
        could = self.report.candidates(
            np.setdiff1d(cluster, waiting), lambda inst, threads: self._may_arrive(inst, threads, barrier, family)
        )
        came = {int(t) >> 5 for arrival in barrier.arrivals for t in arrival.threads}
        fresh = {place: [t for t in threads if t >> 5 not in came] for place, threads in could.items()}
        fresh = {place: threads for place, threads in fresh.items() if threads}
        text = self.report.could(fresh)
        if could and not fresh:
            text = f"nobody else; {self.report.named(could)} only a second time in this phase"
        return fresh, [f"    could still arrive: {text}"]

    def _family(self, barrier: Mbarrier) -> set[int]:
        """The offsets of barriers that some instruction has used as well as this one: the stages of one pipeline."""
        family, users = {barrier.offset}, list(self.unit.users.values())
        while more := [offsets for offsets in users if offsets & family and not offsets <= family]:
            family.update(*more)
        return family

    def _may_arrive(
        self, inst: Instruction, threads: np.ndarray, barrier: Mbarrier, family: set[int]
    ) -> np.ndarray | bool:
        """Which threads arrive at a barrier with an instruction; not where it or its line was for others."""
        if not _arrives(inst):
            return False
        where = inst.operands[1] if inst.parts[0] == "mbarrier" else inst.operands[0]
        if (address := self.report.address(where, threads)) is not None:
            return address & (1 << RANK_SHIFT) - 1 == barrier.offset + SHARED_BASE
        if (used := self.unit.users.get(inst.index)) is not None:
            return bool(used & family)
        same_line = [self.unit.users[other.index] for other in self.machine.kernel.body
                     if _arrives(other) and other.index in self.unit.users and _same_line(inst, other)]  # fmt: skip
        return not same_line or any(used & family for used in same_line)

    def _elsewhere(self, barrier: Mbarrier) -> list[str]:
        """Instructions that have arrived at other barriers of the same pipeline, and never at this one."""
        family = self._family(barrier) - {barrier.offset}
        lines: dict[str, set[int]] = {}
        for inst in self.machine.kernel.body:
            used = self.unit.users.get(inst.index, set())
            if _arrives(inst) and used & family and barrier.offset not in used:
                lines.setdefault(self.short(inst), set()).update(used & family)
        if any(barrier.offset in self.unit.users[i.index] for i in self.machine.kernel.body
               if _arrives(i) and i.index in self.unit.users):  # fmt: skip
            return []
        return [
            f"    arrived at others like it, never at this one: {place} (the mbarriers at shared offset "
            f"{ranges_of(offsets)})" for place, offsets in lines.items()
        ]  # fmt: skip

    # -- why ----------------------------------------------------------------------------------

    def _causes(self, barrier: Mbarrier, helpers: np.ndarray) -> list[Cause]:
        """What usually leads to such a wait; `helpers` could still arrive."""
        where = f"the mbarrier at shared offset {barrier.offset}"
        if barrier.bytes < 0 and not barrier.arrivals:
            return [Cause(CERTAIN, UNANNOUNCED)]
        if barrier.bytes < 0 or (barrier.bytes > 0 and not barrier.pending):
            return [Cause(CERTAIN, ANNOUNCED + (DESTINATION if self.machine.cluster_size > 1 else ""))]
        missed = [self._missed(barrier, waiter) for waiter in barrier.waiters]
        if any(missed):
            return [Cause(CERTAIN, self._after_missing(where, max(missed)))]
        if barrier.pending and any(_adds(arrival.inst) for arrival in barrier.arrivals):
            return [Cause(CERTAIN, ADDED)]
        if barrier.arrivals and barrier.pending:
            return [Cause(TOO_FEW, f"{ARRIVALS}, and whether all who should arrive can get there")]
        waited_before = any(int(waiter.threads[0]) >> 5 in barrier.seen for waiter in barrier.waiters)
        if barrier.phase == 0 and waited_before:
            text = f"the arrival (the release of the stage) at {where}: nobody has arrived there so far"
            return [Cause(NOBODY_EVER, f"{text}; it may have gone to another stage")]
        if barrier.phase == 0:
            nobody = Cause(NOBODY_EVER, f"who arrives at {where}: nobody has so far")
            first_round = len(helpers) > 0 and not self._have_gone_round(helpers)
            return [nobody, Cause(NOBODY_EVER, PARITY)] if first_round else [nobody]
        return [Cause(OTHERWISE, f"the arrival at {where} in every round, and on every path")]

    def _have_gone_round(self, threads: np.ndarray) -> bool:
        """Whether some of these wait for a later phase than the first: no wrong parity has kept them from beginning."""
        later = [w for other in self.unit.objects.values() if other.phase for w in other.waiters]
        return any(np.isin(waiter.threads, threads).any() for waiter in later)

    def _after_missing(self, where: str, missed: int) -> str:
        if missed % 2 == 0:
            return f"who arrives twice at {where} in one round (a second release), or which wait for it is left out"
        return f"a wait for {where} that is left out, or the parity of this one"


def _arrives(inst: Instruction) -> bool:
    return inst.opcode.startswith(("mbarrier.arrive", "cp.async.mbarrier.arrive"))


def _adds(inst: Instruction) -> bool:
    """Whether an arrival first adds itself to those that the phase waits for."""
    return inst.opcode.startswith("cp.async.mbarrier.arrive") and "noinc" not in inst.parts


def _same_line(a: Instruction, b: Instruction) -> bool:
    return a.loc is not None and b.loc is not None and (a.loc.file, a.loc.line) == (b.loc.file, b.loc.line)


def ranges_of(offsets: set[int]) -> str:
    """Barriers are 8 bytes: {8, 16, 24, 40} as "8-24, 40"."""
    if any(offset % 8 for offset in offsets):
        return ranges(offsets)
    parts = ranges(offset // 8 for offset in offsets).split(", ")
    return ", ".join("-".join(str(8 * int(end)) for end in part.split("-")) for part in parts)


# -- errors ---------------------------------------------------------------------------------------


def too_many(unit: Mbarriers, barrier: Mbarrier, arrivals: int, threads: np.ndarray) -> IllegalInstruction:
    """More arrivals than the phase takes."""
    many = f"{arrivals} more arrivals" if arrivals > 1 else "one more arrival"
    error = IllegalInstruction(
        f"{many} at the {barrier.describe()}", threads=threads[:1], kind="too-many-arrivals",
        locations=(barrier.location(unit.machine),),
    )  # fmt: skip
    error.hint = "the arrival count given to mbarrier_init, and which threads arrive: one of a warp (elect_one), or all"
    if barrier.pending == 0:
        error.hint = (
            "the phase has all its arrivals and waits for bytes: a producer must wait until the consumers have "
            "released the stage before it announces the next load"
        )
    scheduler = unit.machine.scheduler
    scheduler.note(error, barrier.made_with, barrier.made_by, "the mbarrier was initialised here")
    for arrival in barrier.arrivals[-1:]:
        scheduler.note(error, arrival.inst, int(arrival.threads[0]), "the last arrival was here")
    return error


def warn_of_no_parity(unit: Mbarriers, parity: np.ndarray, threads: np.ndarray, inst: Instruction) -> None:
    """PTX knows the parities 0 and 1; of another number Hopper's machine code takes the lowest bit (a shift by 31)."""
    wrong = (parity != 0) & (parity != 1)
    if wrong.any():
        unit.machine.scheduler.warn(
            f"the parity of this wait is {parity[wrong][0]}: a parity is 0 or 1, and PTX defines no other. "
            "Hopper takes its lowest bit",
            inst, int(threads[wrong][0]), "the number of the phase, modulo 2", kind="illegal-instruction",
        )  # fmt: skip


def check_parity(unit: Mbarriers, barrier: Mbarrier, threads: np.ndarray, inst: Instruction) -> None:
    """A wait by parity passes for the last phase: its threads must know that the phase before is complete.

    Otherwise they might have asked while that one was not, and the wait had passed for the phase before it, which
    has the same parity.  Raises MissingBarrier.
    """
    phase, seen = barrier.phase - 1, barrier.seen.get(int(threads[0]) >> 5)
    if phase < 1 or "parity" not in inst.parts or (seen is not None and seen.completed >= phase):
        return
    agents, times = np.full(len(threads), barrier.clock), np.full(len(threads), barrier.began + phase)
    late = unit.machine.unit(Ordering).clocks.unknown(threads, agents, times, reads=True)
    if late.any() and not unit.know_of(barrier.before_that, threads[late]):
        error = _ambiguous(unit, barrier, phase, threads[late], inst)
        if not unit.machine.scheduler.tolerates("race", error, inst):
            raise error


def _ambiguous(
    unit: Mbarriers, barrier: Mbarrier, phase: int, threads: np.ndarray, inst: Instruction
) -> MissingBarrier:
    """A wait that names a phase by its parity, by threads that may be two phases behind."""
    error = MissingBarrier(
        f"the wait for phase {phase} of the mbarrier at shared offset {barrier.offset} might as well have passed for "
        f"phase {phase - 2}, which has the same parity: nothing tells this thread that phase {phase - 1} is complete",
        threads=threads, hint=AHEAD, kind="ambiguous-phase", locations=(barrier.location(unit.machine),),
    )  # fmt: skip
    scheduler = unit.machine.scheduler
    error.place, error.inst = scheduler.place(inst, int(threads[0])), inst  # somebody else may be running
    scheduler.note(error, barrier.made_with, barrier.made_by, "the mbarrier was initialised here")
    last = barrier.seen.get(int(threads[0]) >> 5)
    if last is not None:
        scheduler.note(error, last.inst, int(threads[0]), f"its warp's last wait there, for phase {last.completed - 1}")
    return error


def too_few_bytes(unit: Mbarriers, barrier: Mbarrier, late: list[Operation]) -> AsyncMismatch:
    """A phase completes although a copy that signals it is still under way."""
    expected = sum(arrival.expected for arrival in barrier.arrivals)
    left = sum(op.nbytes for op in late)
    error = AsyncMismatch(
        f"phase {barrier.phase} of the mbarrier at shared offset {barrier.offset} completes here while "
        f"{late[0].what} is still under way: expect_tx announced {expected} bytes, and {left} more are coming",
        threads=np.array([late[0].thread]),
        hint=BYTES,
        locations=(barrier.location(unit.machine),),
    )
    for arrival in [a for a in barrier.arrivals if a.expected][-1:]:
        unit.machine.scheduler.note(error, arrival.inst, int(arrival.threads[0]), "the bytes were announced here")
    unit.machine.scheduler.note(error, late[0].inst, late[0].thread, "the copy was issued here")
    return error


def too_many_bytes(unit: Mbarriers, barrier: Mbarrier, thread: int) -> AsyncMismatch:
    """A CTA ends, and copies have brought bytes that nobody announced."""
    error = AsyncMismatch(
        f"copies to the mbarrier at shared offset {barrier.offset} have brought {-barrier.bytes} bytes "
        "more than expect_tx announced",
        threads=np.array([thread]),
        hint=BYTES,
        locations=(barrier.location(unit.machine),),
    )
    unit.machine.scheduler.note(error, barrier.made_with, barrier.made_by, "it was initialised here")
    return error


def passed_at_once(unit: Mbarriers, thread: int) -> list[str]:
    """For an error: a thread's last wait, if it asked for the phase before a barrier's first, always complete."""
    waits = [(barrier.seen[thread >> 5], barrier) for barrier in unit.objects.values() if thread >> 5 in barrier.seen]
    if not waits:
        return []
    last, barrier = max(waits, key=lambda wait: wait[0].number)
    if last.phase >= 0:
        return []
    return [
        f"  its wait at {place_of(unit.machine.scheduler, last.inst, thread)} for the mbarrier at shared offset "
        f"{barrier.offset} passed at once: parity 1 names the phase before the first, and that is complete"
    ]
