"""Nobody can go on: who waits for what, what is missing, and which wait made all the others.

Each unit describes those who sleep in it, and who could end that (`UnitState.stuck`).  Following who waits for whom
leads to the cause: threads that nobody can help, or a circle of threads that wait for each other.  The rest are
victims.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..errors import Deadlock, DivergentBarrier, EmulatorError
from ..machine.stuck import CERTAIN, OTHERWISE, Report, Wait, ranges
from ..machine.threads import DONE, PARKED, READY, WAITING, WARPGROUP
from ..ptx.syntax import Instruction
from . import spinning

if TYPE_CHECKING:
    from ..machine.scheduler import Scheduler

SHOWN = 8  # waits that are described
VICTIMS = "  these only wait for those above:"


def why(scheduler: Scheduler) -> EmulatorError:
    """DivergentBarrier for lanes whose mates can never join them, otherwise Deadlock."""
    report = Report(scheduler.machine)
    parked = np.flatnonzero(report.status == PARKED)
    for warp in np.unique(parked // 32).tolist():
        if (found := _divergent(report, warp)) is not None:
            return found
    scheduler.current = None
    waits = [wait for unit in scheduler.units for wait in unit.stuck(report)]
    waits += [*_parked(report, parked), *spinning.waits(report)]
    roots, victims = by_cause(waits)
    lines = _lines(roots)
    if victims:
        lines += [VICTIMS, *_lines(victims)]
    lines += _exited(report)
    what = "every thread that is left waits, and nothing can wake it:\n" + "\n".join(lines)
    error = Deadlock(what, hint="; ".join(_hints(roots)))
    error.sides = [side for wait in [*roots, *victims] for side in wait.sides]
    error.locations = tuple(dict.fromkeys(place for wait in [*roots, *victims] for place in wait.locations))
    return error


def _lines(waits: list[Wait]) -> list[str]:
    """The lines that describe these waits: the first of them only, if many CTAs wait in the same way."""
    lines = [line for wait in waits[:SHOWN] for line in wait.lines]
    return [*lines, f"  and {len(waits) - SHOWN} more waits"] if len(waits) > SHOWN else lines


# -- what causes what -----------------------------------------------------------------------------


def by_cause(waits: list[Wait]) -> tuple[list[Wait], list[Wait]]:
    """The waits from which no other leads on, the surest cause first; and the others, nearest to those first."""
    helps = [[b for b, wait in enumerate(waits) if b != a and np.isin(waits[a].helpers, wait.threads).any()]
             for a in range(len(waits))]  # fmt: skip
    leads_to = [_closure(helps, a) for a in range(len(waits))]
    roots = [a for a in range(len(waits)) if all(a in leads_to[b] for b in leads_to[a])]
    victims = [a for a in range(len(waits)) if a not in roots]
    roots.sort(key=lambda a: (_rank(waits[a]), len(leads_to[a])))
    victims.sort(key=lambda a: len(leads_to[a]))
    return [waits[a] for a in roots], [waits[a] for a in victims]


def _closure(edges: list[list[int]], start: int) -> set[int]:
    """What can be reached over edges, the start itself only over a circle."""
    seen: set[int] = set()
    work = list(edges[start])
    while work:
        if (at := work.pop()) not in seen:
            seen.add(at)
            work += edges[at]
    return seen


def _rank(wait: Wait) -> int:
    return min((cause.rank for cause in wait.causes), default=OTHERWISE + 1)


def _hints(roots: list[Wait]) -> list[str]:
    """The surest causes among those of all roots, each once."""
    best = min(map(_rank, roots), default=CERTAIN)
    return list(dict.fromkeys(cause.text for wait in roots for cause in wait.causes if cause.rank == best))


# -- lanes that wait for their mates --------------------------------------------------------------


def _divergent(report: Report, warp: int) -> DivergentBarrier | None:
    """Lanes of a warp stand at a warp-wide instruction that the others have left behind or never reach."""
    machine, status, pc = report.machine, report.status, report.pc
    mates = np.arange(32 * warp, 32 * warp + 32)
    here = mates[status[mates] == PARKED]
    number = int(pc[here].min())
    here = here[pc[here] == number]
    block = report.program.blocks[number]
    if block.joins_warpgroup:
        mates = _warpgroup(report, warp)
    coming = mates[(status[mates] == WAITING) | (status[mates] == READY)]
    if any(number in report.reach(int(at)) for at in np.unique(pc[coming])):
        return None  # they are only late: what they wait for is the fault
    inst = block.instructions[0]
    report.scheduler.current = inst
    whole = "all four warps of a warpgroup" if block.joins_warpgroup else "all lanes of a warp"
    who = f"{_names(report, here, one_warp=True)[0]} of the warp"
    if block.joins_warpgroup and len(here) == 32:
        others = mates[(status[mates] == PARKED) & (pc[mates] == number)]
        who = f"{_numbers(report, others)} of this warpgroup"
    what = ".".join(inst.parts[:2])
    some = "warps of a warpgroup" if block.joins_warpgroup else "threads of a warp"
    missing = mates[machine.live[mates]]
    error = DivergentBarrier(
        f"{what} needs {whole} together, but only {who} reached it; {_others(report, missing, number)}",
        threads=here[:1],
        hint=f"a branch around this line that only some {some} take",
    )
    for _, there, group in _elsewhere(report, missing, number):
        error.sides += report.sides("missing", there, group, what)
    return error


def _warpgroup(report: Report, warp: int) -> np.ndarray:
    """The threads of a warp's warpgroup; the last one of a CTA may be smaller."""
    machine = report.machine
    first = warp * 32 - int(machine.in_cta[warp * 32]) % WARPGROUP
    threads = np.arange(first, min(first + WARPGROUP, machine.T))
    return threads[machine.cta_of[threads] == machine.cta_of[warp * 32]]


def _others(report: Report, mates: np.ndarray, number: int) -> str:
    """Where the threads are that are missing in front of a block."""
    one_warp, texts = len(np.unique(mates // 32)) == 1, []
    for status, inst, group in _elsewhere(report, mates, number):
        names, several = _names(report, group, one_warp)
        texts.append(f"{names} {ELSEWHERE[status][several]} {inst.opcode} ({report.short(inst)})")
    if len(gone := mates[report.status[mates] == DONE]):
        names, several = _names(report, gone, one_warp)
        texts.append(f"{names} {'have' if several else 'has'} exited")
    return "; ".join(texts)


# What threads do that are missing: of one lane or warp, of several.
ELSEWHERE = {
    READY: ("goes round in a loop at", "go round in a loop at"),
    WAITING: ("waits at", "wait at"),
    PARKED: ("stands at", "stand at"),
}


def _elsewhere(report: Report, mates: np.ndarray, number: int) -> Iterator[tuple[int, Instruction, np.ndarray]]:
    """The status of threads that are missing in front of a block, at which instruction, and which they are."""
    for status in ELSEWHERE:
        group = mates[report.status[mates] == status]
        if status == PARKED:
            group = group[report.pc[group] != number]
        for pc in np.unique(report.pc[group]).tolist():
            inst = report.waits_at(pc) if status == WAITING else report.program.blocks[pc].instructions[0]
            yield status, inst, group[report.pc[group] == pc]


def _names(report: Report, threads: np.ndarray, one_warp: bool) -> tuple[str, bool]:
    """Threads by their lanes, or by their warps, and whether these are several."""
    if not one_warp:
        return _numbers(report, threads), len(np.unique(threads // 32)) > 1
    several = len(threads) > 1
    return f"lane{'s' if several else ''} {ranges((threads % 32).tolist())}", several


def _numbers(report: Report, threads: np.ndarray) -> str:
    numbers = (report.machine.in_cta[threads] // 32).tolist()
    return f"warp{'s' if len(set(numbers)) > 1 else ''} {ranges(numbers)}"


def _parked(report: Report, parked: np.ndarray) -> list[Wait]:
    waits = []
    for pc in np.unique(report.pc[parked]).tolist():
        block = report.program.blocks[pc]
        inst, threads = block.instructions[0], parked[report.pc[parked] == pc]
        for cta in np.unique(report.machine.cta_of[threads]).tolist():
            here = threads[report.machine.cta_of[threads] == cta]
            mates = np.isin(np.arange(report.machine.T) // 32, np.unique(here // 32))
            if block.joins_warpgroup:
                mates[np.concatenate([_warpgroup(report, w) for w in np.unique(here // 32).tolist()])] = True
            mates[here] = False
            what = "all four warps of a warpgroup" if block.joins_warpgroup else "the other lanes of their warp"
            line = f"  {report.who(here)} wait for {what} at {inst.opcode} ({report.short(inst)})"
            helpers = np.flatnonzero(mates & (report.status != DONE))
            sides = report.sides("waits", inst, here, inst.opcode)
            waits.append(Wait(here, [line], helpers, sides=sides))
    return waits


def _exited(report: Report) -> list[str]:
    m = report.machine
    gone = np.flatnonzero((report.status == DONE) & m.live)
    ctas = [c for c in np.unique(m.cta_of[gone]).tolist() if (report.status[m.cta_of == c] != DONE).any()]
    return [f"  {report.who(gone[m.cta_of[gone] == c])} have exited" for c in ctas]
