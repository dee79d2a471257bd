"""What named barriers know of a mistake: counts that disagree, barriers in a branch, and who still waits."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import numpy as np

from ..checks.ordering import Ordering
from ..errors import DivergentBarrier, EmulatorError, IllegalInstruction, MissingBarrier
from ..findings import Location
from ..machine.machine import Machine
from ..machine.stuck import CERTAIN, OTHERWISE, Cause, Report, Wait, by_instruction, threads_in
from ..machine.threads import DONE
from ..ptx.syntax import Immediate, Instruction
from .named_barrier_phases import NamedBarrier

SAME_COUNT = "every bar.sync and bar.arrive of one phase must name the same number of threads"
USE = "the number and the thread count of each named barrier, and who arrives there"
EVERY_WARP = "a barrier for all threads inside a branch that only some warps take: every warp must come to it"


class Barriers(Protocol):
    """What the unit keeps (named_barriers.py), as far as its reports read it."""

    machine: Machine
    pending: dict[tuple[int, int], NamedBarrier]  # by CTA and number
    used: dict[tuple[int, int], dict[int, Instruction]]  # (warp, number) -> count -> where it arrived
    last_wait: dict[tuple[int, int], NamedBarrier]  # (warp, number) -> the last phase it waited for
    last_of_cta: dict[tuple[int, int], NamedBarrier]  # the last phase of a barrier without a count
    complete: dict[tuple[int, int], NamedBarrier]  # the last phase that is complete

    def live_threads(self, cta: int) -> int:
        """The threads that a barrier without a count waits for."""
        ...


def location(machine: Machine, cta: int, number: int) -> Location:
    """A named barrier, as data."""
    return Location("named barrier", number, cta=tuple(int(v) for v in machine.cta_ids[cta]))


# -- counts that disagree -------------------------------------------------------------------------


def two_counts(unit: Barriers, here: int, other: int) -> EmulatorError | None:
    """A barrier that one of two warps has waited at, and the other uses with another count: never in one phase."""
    for waiter, absent in ((here, other), (other, here)) if here != other else ():
        for (warp, number), phase in unit.last_wait.items():
            if warp != waiter or phase.has(absent):
                continue
            mine, theirs = unit.used[warp, number], unit.used.get((absent, number), {})
            written = _written(unit.machine, number)
            others = {count: inst for count, inst in (written | theirs).items() if count not in mine}
            if phase.expected not in theirs and others:
                one = phase.expected, mine[phase.expected], 32 * warp
                return _disagreement(unit.machine, number, one, next(iter(others.items())))
    return None


def _written(machine: Machine, number: int) -> dict[int, Instruction]:
    """Thread counts that the program has for a barrier, where both are constants."""
    found = {}
    for inst in machine.kernel.body:
        if number not in _numbers(inst):
            continue
        operands = inst.operands[1:-1] if "red" in inst.parts else inst.operands
        constants = [int(o.value) for o in operands if isinstance(o, Immediate)]
        if len(constants) == 2:
            found[constants[1]] = inst
    return found


def _disagreement(
    machine: Machine, number: int, one: tuple[int, Instruction, int], other: tuple[int, Instruction]
) -> IllegalInstruction:
    (count, inst, thread), (more, elsewhere) = one, other
    error = IllegalInstruction(
        f"barrier {number} is used with a count of {count} here and with a count of {more} elsewhere, so the two "
        "sides do not wait for each other",
        hint=SAME_COUNT, kind="thread-count", locations=(location(machine, int(machine.cta_of[thread]), number),),
    )  # fmt: skip
    error.place = machine.scheduler.place(inst, thread)
    machine.scheduler.note(error, elsewhere, None, "the other count is here")
    return error


def other_counts(unit: Barriers, cta: int, number: int, expected: int) -> list[tuple[int, Instruction, int]]:
    """(count, instruction, first thread of the warp) of a CTA's arrivals with another count than this one."""
    per_cta = unit.machine.warps_per_cta
    return [
        (count, inst, 32 * warp)
        for warp in range(cta * per_cta, (cta + 1) * per_cta)
        for count, inst in unit.used.get((warp, number), {}).items()
        if expected and expected != count
    ]


def left_behind(unit: Barriers, cta: int) -> None:
    """A CTA is over: a warning for a phase that has never completed, if others had another count.

    Arrivals that nobody waits for are left behind by correct kernels, too.
    """
    for (owner, number), phase in unit.pending.items():
        others = other_counts(unit, cta, number, phase.expected) if owner == cta else []
        if others:
            inst, threads = phase.arrivals[0]
            unit.machine.scheduler.warn(
                f"barrier {number} is used with a count of {phase.expected} here and with a count of "
                f"{others[0][0]} elsewhere; the CTA exits with {phase.arrived} threads at it",
                inst, int(threads[0]), SAME_COUNT, (*others[0][1:], "the other count is here"),
                "thread-count", location(unit.machine, cta, number),
            )  # fmt: skip


# -- one number for two groups --------------------------------------------------------------------


def check_turn(unit: Barriers, cta: int, number: int, expected: int, threads: np.ndarray, inst: Instruction) -> None:
    """Warps are about to arrive: those who took no part in the phase before must come after all who did.

    Had they come earlier, they would have counted for that phase, in the place of others.  Raises MissingBarrier.
    Phases with other counts are left to `two_counts`.
    """
    before = unit.complete.get((cta, number))
    if before is None or before.expected != expected:
        return
    machine = unit.machine
    for warp in np.unique(threads >> 5).tolist():
        if (unknown := before.unknown_to(warp, machine.unit(Ordering).clocks)) is not None:
            error = _out_of_turn(machine, number, expected, 32 * warp, unknown)
            error.locations = (location(machine, cta, number),)
            if not machine.scheduler.tolerates("race", error, inst):
                raise error


def _out_of_turn(
    machine: Machine, number: int, expected: int, thread: int, before: tuple[Instruction, int]
) -> MissingBarrier:
    here, there = (f"warp {int(machine.in_cta[t]) // 32}" for t in (thread, before[1]))
    error = MissingBarrier(
        f"{here} comes to barrier {number}, and nothing orders that after the phase before, in which {there} came: "
        "a little earlier it would have counted for that phase, in the place of another warp",
        threads=np.array([thread]),
        hint=f"the thread count of barrier {number}, {expected}, if more warps are to meet there; its number, if these "
        "warps are not to meet; or, where they take turns, what is to order these",
    )
    machine.scheduler.note(error, *before, "the arrival in the phase before")
    return error


# -- barriers in a branch -------------------------------------------------------------------------


def in_a_branch(unit: Barriers, here: int, other: int) -> EmulatorError | None:
    """Two warps are at odds about a barrier of the whole CTA: they meet, or are about to, at different lines."""
    machine, report = unit.machine, Report(unit.machine)
    cta = int(machine.cta_of[32 * here])
    if cta != int(machine.cta_of[32 * other]) or here == other:
        return None
    now = {0: None} | {number: phase for (owner, number), phase in unit.pending.items() if owner == cta}
    before = [(number, phase) for (owner, number), phase in unit.last_of_cta.items() if owner == cta]
    for number, phase in [*now.items(), *before]:
        if phase is not None and phase.expected:
            continue
        one, two = (_meets(report, phase, number, warp) for warp in (here, other))
        odd = [(a, b) for a in sorted(one) for b in sorted(two) if _one_is_behind(report, number, a, b)]
        if odd and not one & two:
            return _divergence(report, phase, number, cta, odd[0])
    return None


def _one_is_behind(report: Report, number: int, a: int, b: int) -> bool:
    """Whether one of two barriers is in a branch in front of the other, and they are not two roles' own.

    A warp comes from it to the other next, and not back; or, in a loop, from it always to the other, and from that to
    either, for not all take the branch.
    """
    after_a, after_b = _behind(report, a, number), _behind(report, b, number)
    in_loop = (after_a == {b} and b in after_b) or (after_b == {a} and a in after_a)
    return (b in after_a) != (a in after_b) or in_loop


def _meets(report: Report, phase: NamedBarrier | None, number: int, warp: int) -> set[int]:
    """Where a warp meets a barrier in this phase: there it stands, or these it comes to next."""
    met = {inst.index for inst, threads in phase.arrivals if (threads >> 5 == warp).any()} if phase else set()
    if met:
        return met
    lanes = slice(32 * warp, 32 * warp + 32)
    return set().union(*(_first(report, pc, number) for pc in np.unique(report.pc[lanes]).tolist()))


def _behind(report: Report, at: int, number: int) -> set[int]:
    """Where a warp meets a barrier next that has met it here."""
    return _first(report, report.machine.block_after(report.machine.kernel.body[at]), number)


def _first(report: Report, start: int, number: int) -> set[int]:
    """The first barriers without a count on every path from a block."""
    found, seen, work = set(), {start}, [start]
    while work:
        block = report.program.blocks[work.pop()]
        here = [inst.index for inst in block.instructions if number in _numbers(inst) and _for_all(inst)]
        found.update(here[:1])
        for following in block.successors if not here else ():
            if following not in seen:
                seen.add(following)
                work.append(following)
    return found


def _divergence(
    report: Report, phase: NamedBarrier | None, number: int, cta: int, lines: tuple[int, int]
) -> DivergentBarrier:
    """Some warps of a CTA meet at one line and others at another, or are on their way there."""
    machine, body = report.machine, report.machine.kernel.body
    warps = [w for w in np.unique(np.flatnonzero(machine.cta_of == cta) >> 5).tolist()
             if (report.status[32 * w : 32 * w + 32] != DONE).any()]  # fmt: skip
    meets = {warp: _meets(report, phase, number, warp) for warp in warps}
    texts, places = [], []
    for at, elsewhere in (lines, lines[::-1]):
        mine = [warp for warp in warps if at in meets[warp] and elsewhere not in meets[warp]]
        there = phase is not None and any(inst.index == at for inst, _ in phase.arrivals)
        verb = "arrived" if there else "will arrive"
        texts.append(f"{report.warps(32 * np.array(mine))} {verb} at {report.short(body[at])}")
        places.append((body[at], 32 * mine[0]))
    error = DivergentBarrier(
        f"barrier {number} is met at different lines: {texts[0]}, {texts[1]}, at the same barrier", hint=EVERY_WARP,
        locations=(location(machine, cta, number),),
    )  # fmt: skip
    error.place = machine.scheduler.place(*places[0])
    machine.scheduler.note(error, *places[1], "the other line")
    return error


# -- nobody can go on -----------------------------------------------------------------------------


def waits(unit: Barriers, report: Report) -> list[Wait]:
    """Who sleeps at which barrier."""
    phases = sorted(unit.pending.items(), key=lambda item: item[0])
    return [_wait(unit, cta, number, phase, report) for (cta, number), phase in phases if phase.waiting]


def _wait(unit: Barriers, cta: int, number: int, phase: NamedBarrier, report: Report) -> Wait:
    expected, lines = phase.expected or unit.live_threads(cta), []
    place, sides = location(unit.machine, cta, number), []
    for inst, threads in by_instruction(phase.waiting):
        lines.append(
            f"  {report.who(threads)} wait at barrier {number}: {phase.arrived} of {expected} threads have "
            f"arrived ({report.short(inst)})"
        )
        sides += report.sides("waits", inst, threads, str(place))
    for inst, threads in by_instruction(phase.passing):
        lines.append(f"    arrived without waiting: {report.warps(threads)} ({report.short(inst)})")
        sides += report.sides("arrives", inst, threads, str(place))
    elsewhere: dict[tuple[int, str], list[int]] = {}
    for count, inst, thread in other_counts(unit, cta, number, phase.expected):
        elsewhere.setdefault((count, report.short(inst)), []).append(thread)
    for (count, where), firsts in elsewhere.items():
        who = report.warps(np.array(firsts))
        lines.append(f"    arrived in other phases with a count of {count}: {who} ({where})")
    arrived = np.concatenate([threads for _, threads in phase.arrivals])
    waiting = np.concatenate([threads for _, threads in phase.waiting])
    could = report.candidates(
        np.setdiff1d(np.flatnonzero(unit.machine.cta_of == cta), waiting), lambda inst, _: number in _numbers(inst)
    )
    fresh = {place: np.setdiff1d(threads, arrived).tolist() for place, threads in could.items()}
    fresh = {place: threads for place, threads in fresh.items() if threads}
    lines.append(f"    could still arrive: {report.could(fresh)}")
    at_most = phase.arrived + 32 * len(np.unique(threads_in(could) >> 5))
    if phase.expected and phase.arrived < at_most < expected:
        text = f"the thread count of barrier {number}: it waits for {expected} threads, and at most {at_most} can come"
        return Wait(waiting, lines, causes=[Cause(CERTAIN, text)], sides=sides, locations=(place,))
    lines += _left_elsewhere(unit, cta, phase, report)
    sides += report.missing(fresh, str(place))
    return Wait(waiting, lines, threads_in(fresh), [Cause(OTHERWISE, USE)], sides, (place,))


def _left_elsewhere(unit: Barriers, cta: int, phase: NamedBarrier, report: Report) -> list[str]:
    """Arrivals with the same count at other barriers of the CTA, where nobody waits: they may be meant for this one."""
    return [
        f"    arrived at barrier {number}, where nobody waits: {report.warps(threads)} ({report.short(inst)})"
        for (owner, number), other in unit.pending.items()
        if owner == cta and not other.waiting and other.expected == phase.expected
        for inst, threads in by_instruction(other.passing)
    ]


def _numbers(inst: Instruction) -> Collection[int]:
    """The barriers that an instruction may arrive at."""
    if inst.parts[0] not in ("bar", "barrier") or inst.parts[1] in ("warp", "cluster"):
        return ()
    name = inst.operands[1 if "red" in inst.parts else 0]
    return (int(name.value),) if isinstance(name, Immediate) else range(16)


def _for_all(inst: Instruction) -> bool:
    """Whether a barrier instruction names no count."""
    return len(inst.operands) == (3 if "red" in inst.parts else 1)
