"""The sixteen named barriers of a CTA (PTX ISA section 9.7.13.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..checks.ordering import Ordering
from ..errors import EmulatorError, IllegalInstruction
from ..machine.memory import threads_of, warps_of
from ..machine.opcodes import Selection, Step, UnitState, opcode, state, unsupported
from ..machine.threads import DONE
from . import named_barrier_reports as reports
from .named_barrier_phases import NamedBarrier

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..machine.stuck import Report, Wait
    from ..ptx.syntax import Instruction

ALL_THREADS = 0  # the count of a barrier without one: every warp of the CTA that has not exited


@state
class Barriers(UnitState):
    """All barriers of the resident CTAs."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.pending: dict[tuple[int, int], NamedBarrier] = {}
        self.used: dict[tuple[int, int], dict[int, Instruction]] = {}  # (warp, number) -> count -> where it arrived
        self.last_wait: dict[tuple[int, int], NamedBarrier] = {}  # (warp, number) -> the last phase it waited for
        self.last_of_cta: dict[tuple[int, int], NamedBarrier] = {}  # the last phase of a barrier without a count
        self.complete: dict[tuple[int, int], NamedBarrier] = {}  # the last phase that is complete
        self.votes = np.zeros(machine.T, np.bool_)

    def reset(self) -> None:
        self.pending.clear()
        self.used.clear()
        self.last_wait.clear()
        self.last_of_cta.clear()
        self.complete.clear()

    def everybody_meets(self) -> None:
        """The barrier of every resident CTA completes at once, with all warps."""
        self.last_of_cta.clear()
        self.complete.clear()  # nobody can come too early for what all know of
        self.machine.unit(Ordering).clocks.meet_in_ctas(self.machine.residents)

    def arrive(
        self,
        sel: Selection,
        ids: np.ndarray,
        count: np.ndarray,
        inst: Instruction,
        wait: bool,
        on_release: Step | None = None,
    ) -> None:
        """Warps arrive at barrier ids; with wait they sleep until the phase is complete.

        on_release gets the threads that waited, when the last one has arrived.
        """
        machine = self.machine
        threads = threads_of(sel)
        if wait:
            self.machine.scheduler.wait(sel, machine.block_after(inst))
        for cta, number, expected, mine in _by_barrier(threads, machine.cta_of[threads], ids, count):
            warps = warps_of(mine)
            if expected == ALL_THREADS:
                self._arrive_cta(cta, number, expected, mine, inst, wait, on_release)
                continue
            # each warp on its own: one may complete a phase and the next begin another
            for part in np.split(mine, mine.searchsorted(warps[1:] << 5)) if len(warps) > 1 else [mine]:
                self.used.setdefault((int(part[0]) >> 5, number), {})[expected] = inst
                self._arrive_cta(cta, number, expected, part, inst, wait, on_release)

    def _arrive_cta(
        self,
        cta: int,
        number: int,
        expected: int,
        mine: np.ndarray,
        inst: Instruction,
        wait: bool,
        on_release: Step | None,
    ) -> None:
        if not 0 <= number < 16:
            raise IllegalInstruction(f"barrier {number}: a CTA has barriers 0 to 15", threads=mine[:1])
        if expected % 32:
            raise IllegalInstruction(
                f"barrier {number} with a count of {expected}: the count is in threads and must be a multiple of 32",
                threads=mine[:1],
            )
        barrier = self.pending.setdefault((cta, number), NamedBarrier(expected))
        if barrier.expected != expected:
            error = IllegalInstruction(
                f"barrier {number} is used with a count of {expected} while a phase with a count of "
                f"{barrier.expected} is pending",
                threads=mine[:1],
                hint=reports.SAME_COUNT,
                kind="thread-count",
                locations=(reports.location(self.machine, cta, number),),
            )
            before, threads = (barrier.waiting + barrier.passing)[0]
            self.machine.scheduler.note(error, before, int(threads[0]), "the pending phase was begun here")
            raise error
        reports.check_turn(self, cta, number, expected, mine, inst)
        barrier.arrive(inst, mine, wait, self.machine.unit(Ordering).release(mine))
        barrier.on_release = on_release or barrier.on_release
        if wait and expected != ALL_THREADS:
            for warp in warps_of(mine).tolist():
                self.last_wait[warp, number] = barrier
        self._complete(cta, number)

    def _complete(self, cta: int, number: int) -> None:
        barrier = self.pending[cta, number]
        expected = barrier.expected or self.live_threads(cta)
        if barrier.arrived < expected:
            return
        if barrier.arrived > expected:
            raise IllegalInstruction(
                f"barrier {number}: {barrier.arrived} threads arrived at a phase that expects {expected}",
                threads=barrier.waiting[-1][1][:1] if barrier.waiting else None,
                hint="number_of_threads of the barrier, and how many warps use it",
                kind="too-many-arrivals",
                locations=(reports.location(self.machine, cta, number),),
            )
        self.complete[cta, number] = self.pending.pop((cta, number))
        if barrier.expected == ALL_THREADS:
            self.last_of_cta[cta, number] = barrier
        if barrier.waiting:
            threads = np.sort(np.concatenate([t for _, t in barrier.waiting]))
            order = self.machine.unit(Ordering)
            order.clocks.acquire(warps_of(threads), barrier.known)
            self.machine.pending.events += 1
            self.machine.scheduler.wake(threads)
            if barrier.on_release is not None:
                barrier.on_release(threads)

    def blames(self, here: int, other: int) -> EmulatorError | None:
        return reports.two_counts(self, here, other) or reports.in_a_branch(self, here, other)

    def cta_over(self, cta: int, thread: int) -> None:
        reports.left_behind(self, cta)

    def stuck(self, report: Report) -> list[Wait]:
        return reports.waits(self, report)

    def live_threads(self, cta: int) -> int:
        """32 for every warp of a CTA that has not exited: what a barrier without a count expects."""
        m = self.machine
        live = (m.cta_of == cta) & (self.machine.scheduler.status != DONE)
        return 32 * len(np.unique(m.warp_of[live]))

    def recheck(self) -> None:
        """Warps that exit no longer count for a barrier of the whole CTA."""
        for cta, number in list(self.pending):
            barrier = self.pending[cta, number]
            if barrier.expected == ALL_THREADS and barrier.waiting:
                self._complete(cta, number)

    def exited(self, threads: np.ndarray) -> None:
        self.recheck()


def _by_barrier(
    threads: np.ndarray, ctas: np.ndarray, ids: np.ndarray, count: np.ndarray
) -> Iterator[tuple[int, int, int, np.ndarray]]:
    """CTA, number, count and threads of every barrier that threads arrive at, in that order."""
    number, expected = int(ids[0]), int(count[0])
    if (ids == number).all() and (count == expected).all():  # the usual case
        for mine in np.split(threads, np.flatnonzero(ctas[1:] != ctas[:-1]) + 1) if ctas[0] != ctas[-1] else [threads]:
            yield int(ctas[threads.searchsorted(mine[0])]), number, expected, mine
        return
    for cta, number, expected in sorted(set(zip(ctas.tolist(), ids.tolist(), count.tolist(), strict=True))):
        yield cta, number, expected, threads[(ctas == cta) & (ids == number) & (count == expected)]


def _operands(inst: Instruction, machine: Machine, first: int) -> tuple[np.ndarray, np.ndarray]:
    ids = machine.source(inst.operands[first], np.uint32)
    if len(inst.operands) > first + 1:
        return ids, machine.source(inst.operands[first + 1], np.uint32)
    return ids, machine.constant(ALL_THREADS, np.dtype(np.uint32))


@opcode("bar.sync", "bar.cta.sync", "barrier.sync.aligned", "barrier.cta.sync.aligned", unit="barriers", role="waits",
        forms="a{, b}", section="9.7.13.1", joins="warp", results=0, ends_block=True)  # fmt: skip
def decode_bar_sync(inst: Instruction, machine: Machine) -> Step:
    """Wait for the other threads of the barrier; every thread of a warp must execute it together."""
    return _sync(inst, machine)


@opcode("barrier.sync", "barrier.cta.sync", unit="barriers", role="waits", forms="a{, b}", section="9.7.13.1",
        joins="warp", results=0, ends_block=True)  # fmt: skip
def decode_barrier_sync(inst: Instruction, machine: Machine) -> Step:
    """The unaligned form: lanes may come one after the other, the warp arrives with the last of them."""
    return _sync(inst, machine)


def _sync(inst: Instruction, machine: Machine) -> Step:
    ids, count = _operands(inst, machine, 0)
    following = machine.block_after(inst)
    same_barrier = count.strides == (0,) and not count[0] and ids.strides == (0,) and ids[0] < 16

    def step(sel: Selection) -> int | None:
        scheduler = machine.scheduler
        if same_barrier and scheduler.common is not None and not machine.unit(Barriers).pending:
            machine.unit(Barriers).everybody_meets()
            return following  # the whole machine stands here: all barriers complete at once
        machine.unit(Barriers).arrive(sel, ids[sel], count[sel], inst, wait=True)
        return None

    return step


@opcode("bar.arrive", "bar.cta.arrive", "barrier.arrive", "barrier.cta.arrive", unit="barriers", role="arrives",
        forms="{.aligned} a, b", section="9.7.13.1", joins="warp", results=0, ends_block=True)  # fmt: skip
def decode_bar_arrive(inst: Instruction, machine: Machine) -> Step:
    """Count as arrived without waiting."""
    if len(inst.operands) != 2:
        raise unsupported(inst, "bar.arrive needs a thread count")
    ids, count = _operands(inst, machine, 0)
    following = machine.block_after(inst)

    def step(sel: Selection) -> int:
        machine.unit(Barriers).arrive(sel, ids[sel], count[sel], inst, wait=False)
        return following

    return step


@opcode("bar.red", "bar.cta.red", "barrier.red", "barrier.cta.red", unit="barriers", role="waits",
        forms="{.aligned}.popc.u32 / .and.pred / .or.pred  d, a{, b}, p", section="9.7.13.1", joins="warp",
        ends_block=True)  # fmt: skip
def decode_bar_red(inst: Instruction, machine: Machine) -> Step:
    """A barrier that also counts, ands or ors a predicate over its threads."""
    kind = next((p for p in inst.parts if p in ("popc", "and", "or")), None)
    if kind is None:
        raise unsupported(inst)
    d = machine.target(inst.operands[0], np.uint32 if kind == "popc" else np.bool_)
    predicate = machine.predicate(inst.operands[-1])
    ids = machine.source(inst.operands[1], np.uint32)
    has_count = len(inst.operands) == 4
    count = (
        machine.source(inst.operands[2], np.uint32) if has_count else machine.constant(ALL_THREADS, np.dtype(np.uint32))
    )

    def release(threads: Selection) -> None:
        votes = machine.unit(Barriers).votes[threads]
        d[threads] = votes.sum() if kind == "popc" else votes.all() if kind == "and" else votes.any()

    def step(sel: Selection) -> None:
        barriers = machine.unit(Barriers)
        barriers.votes[sel] = predicate(sel)
        barriers.arrive(sel, ids[sel], count[sel], inst, wait=True, on_release=release)

    return step
