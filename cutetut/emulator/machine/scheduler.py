"""Who runs next.

Every thread has a program counter, a block number.  Each turn takes the warp that has waited
longest, the lowest block among its threads (so that diverged lanes meet again where the compiler
joined them), and every other warp that stands at the same block; or it draws (schedule.py).  Only the
scheduler changes who is ready; a unit asks it to make threads wait or exit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ..errors import BudgetExceeded, EmulatorError, Uninitialized
from ..ptx.syntax import Instruction
from .machine import Machine
from .opcodes import states
from .picking import Picker
from .program import Block, Program
from .reporter import Reporter
from .threads import DONE, PARKED, READY, WAITING, WARPGROUP, Selection, compact, narrow, threads_of

TIME_OUTS = 3  # times that every sleeper may wake in vain, with no event in between, before it is a deadlock
REPORTS = 256  # turns, between two looks at how far the launch is
IDLE_TURNS = 2048  # turns that spinning threads may take before an operation under way completes regardless


@dataclass(frozen=True)
class Checks:
    """What the checks and decoding do for the scheduler, which knows none of them: launch.py brings them together."""

    decode: Callable[[Machine], Program]  # with what they put around the steps
    stuck: Callable[[Scheduler], EmulatorError]  # why nobody can go on
    watch: Callable[[Scheduler], Callable[[int], None] | None]  # what sees the number of every block that is executed
    marks: Callable[[Scheduler, Uninitialized, Instruction, np.ndarray, np.ndarray], Program | None]  # goes on instead
    explain: Callable[[Scheduler, EmulatorError], None]  # adds to an error what threads had loaded before
    tolerates: Callable[[Scheduler, str, EmulatorError, Instruction], bool]  # whether the user lets one go
    picker: type[Picker]  # who runs next


class Scheduler(Reporter):
    """Runs the waves of one launch on a machine."""

    def __init__(
        self, machine: Machine, budget: int, checks: Checks, progress: Callable[[int], None] = lambda done: None
    ) -> None:
        """progress: called from time to time with the number of CTAs that are done."""
        super().__init__(machine)
        self.progress, self.ctas_done, self.next_report = progress, 0, REPORTS
        self.budget, self.checks = budget, checks
        machine.scheduler = self
        self.program = checks.decode(machine)
        self.units, self.schedule = states(machine), machine.schedule
        self.watch = checks.watch(self)
        self.warps = machine.T // 32
        self.picker = checks.picker(machine.T, machine.schedule, machine.warps_per_cta)
        self.pc, self.status = self.picker.pc, self.picker.status
        self.turn = 0
        self.clusters: list[int] = (machine.cta_of // machine.cluster_size).tolist()  # of each thread
        self.moved = 0  # turns that were more than another look at memory
        self.world: Callable[[], Hashable] = lambda: self.moved  # what this launch, and all beside it, have done,
        self.idle: Hashable = None  # and how that was when nothing more could come of this launch alone
        self.all_idle: Callable[[], bool] = lambda: True  # whether nothing can come of any launch beside it
        self.gives_way = False  # the launches beside it go on first

    def tolerates(self, kind: str, error: EmulatorError, inst: Instruction) -> bool:
        """Whether the user wants the kernel to go on after this error; if so it has been reported (tolerance.py).

        Ask it, with the finished error and the instruction that runs, where the error would be raised.
        """
        return self.checks.tolerates(self, kind, error, inst)

    def marks_loads(self, error: Uninitialized, inst: Instruction, host: np.ndarray, threads: np.ndarray) -> bool:
        """Threads load unwritten shared memory: if they are the first, another program goes on behind that load.

        It marks what comes from such loads, and only to use the value is the error. False for what is an error now.
        """
        program = self.checks.marks(self, error, inst, host, threads)
        if program is None:
            return False
        self.program = program
        return True

    # -- one wave -----------------------------------------------------------------------------

    def begin_wave(self, first: int) -> None:
        """Place the CTAs that start at this position of the launch order."""
        machine = self.machine
        machine.load_wave(first)
        for mark in machine.unwritten_marks.values():
            mark[:] = False
        self.pc[:] = 0
        self.status[:] = np.where(machine.live, READY, DONE)
        self.picker.reset()
        self.live = int(machine.live.sum())
        self.everyone = compact(np.flatnonzero(machine.live))
        self.common: int | None = 0  # the block every live thread stands at, None when they differ
        self.wave_steps = 0
        self.last_idle = self.turn
        self.idle_time_outs = 0
        self.events_at_time_out = -1

    def run_wave(self, turns: int | None = None) -> bool:
        """Go on with the wave, for at most `turns` turns; returns whether it has ended."""
        steps = itertools.count() if turns is None else range(turns)
        for _ in steps:
            if not self.live or self.gives_way and turns is not None:
                break
            self.step()
        self.gives_way = False
        if self.live:
            return False
        self.machine.pending.complete_all()
        return True

    def step(self) -> None:
        """Run one block for the threads that stand at it."""
        self.machine.pending.tick()
        if self.turn - self.last_idle > IDLE_TURNS:
            self._let_copies_arrive()
        if self.turn >= self.next_report:
            self.next_report = self.turn + REPORTS
            self.progress(self.ctas_done)
        if self.common is not None and self.schedule.all_together():
            number, sel = self.common, self.everyone
            self.turn += 1
        else:
            self._spread(self.everyone)
            picked = self._pick()
            if picked is None:
                return
            number, sel = picked
        if self.watch is None:
            self.moved += 1
        else:
            self.watch(number)
        block = self.program.blocks[number]
        if block.joins is not None and not (self.common is not None and self.live == self.machine.T):
            together = self._meet(block, sel)
            if together is None:
                return
            sel = together
        try:
            self._execute(block, sel)
        except EmulatorError as error:
            self.locate(error, sel)
            raise

    def _execute(self, block: Block, sel: Selection, first: int = 0) -> None:
        program, done = self.program, first
        try:
            for step, instructions in [(step, 1) for step in block.steps[first:]] if first else block.plan:
                step(sel)
                done += instructions
                if self.program is not program:
                    break
        except Exception as error:
            self.current = block.instructions[done + getattr(step, "reached", 0)]
            if isinstance(error, EmulatorError):
                self.checks.explain(self, error)
            raise
        if self.program is not program:
            self._execute(self.program.blocks[block.number], sel, done)
            return
        self._count(block, sel)
        if block.control is None:
            self.go(sel, block.number + 1) if block.instructions else self.exit(sel)
            return
        self.current = block.instructions[-1]
        guard = block.control_guard
        if guard is not None:
            taken = guard(sel)
            if not taken.all():
                self.go_where(sel, taken, block)
                return
        outcome = block.control(sel)
        if outcome is not None:
            self.go(sel, outcome)

    def go_where(self, sel: Selection, taken: np.ndarray, block: Block) -> None:
        """A guarded control instruction: some threads execute it, the others go on behind it."""
        following = block.number + 1
        if not taken.any():
            self.go(sel, following)
            return
        self._spread(sel)
        self.pc[narrow(sel, ~taken)] = following
        chosen = narrow(sel, taken)
        assert block.control is not None
        outcome = block.control(chosen)
        if outcome is not None:
            self.pc[chosen] = outcome

    def go(self, sel: Selection, target: int | np.ndarray) -> None:
        """Send threads to a block, or each to its own."""
        if self.common is not None:
            if isinstance(target, int):
                self.common = target
                return
            self._spread(sel)
        self.pc[sel] = target

    def _spread(self, sel: Selection) -> None:
        if self.common is not None:
            self.pc[self.everyone] = self.common
            self.common = None

    def _count(self, block: Block, sel: Selection) -> None:
        n = len(block.instructions)
        counters = self.machine.counters
        threads = sel.stop - sel.start if isinstance(sel, slice) else len(sel)
        counters.steps += n
        counters.thread_instructions += n * threads
        counters.warp_instructions += n * (-(-threads // 32))
        self.wave_steps += n
        if self.wave_steps > self.budget:
            self.current = block.instructions[0] if block.instructions else None
            raise BudgetExceeded(
                f"the kernel has taken {self.wave_steps} steps and has not ended; its budget is {self.budget}",
                threads=threads_of(sel)[:1],
                hint="a loop whose condition never becomes false; if there is none, CUTETUT_BUDGET=<steps> allows more",
            )

    def _pick(self) -> tuple[int, Selection] | None:
        picked = self.picker.pick(self.turn + 1)
        if picked is None:
            self._wake_somebody()
            return None
        self.turn += 1
        number, sel = picked
        if (sel.stop - sel.start if isinstance(sel, slice) else len(sel)) == self.live:
            self.common = number
            return number, self.everyone
        return picked

    def _let_copies_arrive(self) -> None:
        """Some threads go on and on, and others sleep or ask in vain: what is under way must complete at last."""
        self.last_idle = self.turn
        if any(unit.somebody_sleeps() for unit in self.units):
            self.complete_oldest_of_each(waking=False)

    def _wake_somebody(self) -> None:
        """Nobody is ready: an operation under way completes, or try_wait gives up, or it is a deadlock."""
        pending = self.machine.pending
        self.last_idle = self.turn
        if self.complete_oldest_of_each(waking=not self.idle_time_outs):
            return
        if pending.events != self.events_at_time_out:
            self.idle_time_outs = 0
        self.idle_time_outs += 1
        self.events_at_time_out = pending.events
        woken = [unit.time_out() for unit in self.units] if self.idle_time_outs <= TIME_OUTS else []
        if not any(woken):
            self.give_up()

    def complete_oldest_of_each(self, waking: bool) -> bool:
        """Of every cluster, the oldest operation under way completes, or the oldest that may wake somebody, if any."""
        try:
            return self.machine.pending.complete_oldest_of_each(self.clusters.__getitem__, waking)
        except EmulatorError as error:
            self.locate(error)
            raise

    def give_up(self) -> NoReturn:
        """Nothing can change any more: say who waits for what."""
        stuck = self.checks.stuck(self)
        self.locate(stuck)
        raise stuck

    # -- warp-wide instructions ---------------------------------------------------------------

    def _meet(self, block: Block, sel: Selection) -> Selection | None:
        """Let a warp-wide instruction run only for warps whose member lanes have all arrived."""
        assert block.joins is not None
        if self._whole(sel, WARPGROUP if block.joins_warpgroup else 32):
            return sel
        here = np.zeros(self.machine.T, np.bool_)
        here[sel] = True
        self._spread(sel)
        parked = (self.status == PARKED) & (self.pc == block.number)
        warp_here = np.repeat(here.reshape(self.warps, 32).any(axis=1), 32)
        if block.joins_warpgroup:
            warp_here[:] = True
        here |= parked & warp_here
        threads = np.flatnonzero(here)
        bits = np.uint32(1) << self.machine.lane
        present = np.where(here, bits, 0).astype(np.uint32).reshape(self.warps, 32).sum(axis=1, dtype=np.uint32)
        live = np.where(self.status != DONE, bits, 0).astype(np.uint32).reshape(self.warps, 32)
        alive = live.sum(axis=1, dtype=np.uint32)
        warp = self.machine.warp_of[threads]
        needed = block.joins(threads) & alive[warp]
        complete = (needed & ~present[warp]) == 0
        if block.joins_warpgroup:
            complete = self._whole_warpgroups(threads, complete, present, alive)
        self.status[threads[complete]] = READY
        self.status[threads[~complete]] = PARKED
        if not complete.any():
            return None
        return compact(threads[complete])

    def _whole(self, sel: Selection, size: int) -> bool:
        """Whether a selection is whole warps, or warpgroups: then nobody is missing."""
        if not isinstance(sel, slice):
            first, last = sel[::size], sel[size - 1 :: size]
            return not (
                len(sel) % size or (last - first != size - 1).any() or (self.machine.in_cta[first] % size).any()
            )
        if (sel.start | sel.stop) & 31:
            return False
        return size == 32 or not (sel.start | sel.stop | self.machine.warps_per_cta * 32) & (size - 1)

    def _whole_warpgroups(
        self, threads: np.ndarray, complete: np.ndarray, present: np.ndarray, alive: np.ndarray
    ) -> np.ndarray:
        """Of complete warps, those whose warpgroup (four warps of a CTA) has arrived wholly."""
        m = self.machine
        per_cta = -(-m.warps_per_cta // 4)
        warps = np.arange(self.warps)
        group = warps // m.warps_per_cta * per_cta + warps % m.warps_per_cta // 4
        missing = np.bincount(group, weights=(alive & ~present) != 0, minlength=int(group.max()) + 1) > 0
        return complete & ~missing[group[m.warp_of[threads]]]

    # -- what units ask for -------------------------------------------------------------------

    def exit(self, sel: Selection) -> None:
        """Threads that are done."""
        self._spread(sel)
        self.status[sel] = DONE
        self.live -= sel.stop - sel.start if isinstance(sel, slice) else len(sel)
        self.everyone = compact(np.flatnonzero(self.status != DONE))
        parked = np.flatnonzero(self.status == PARKED)
        if len(parked):  # nobody waits for a lane that has exited: let them look again
            gone = np.unique(self.machine.warp_of[sel])
            self.status[parked[np.isin(self.machine.warp_of[parked], gone)]] = READY
        self.machine.pending.events += 1
        self._check_exits(threads_of(sel))
        for unit in self.units:
            unit.exited(threads_of(sel))

    def _check_exits(self, threads: np.ndarray) -> None:
        """CTAs whose last thread is among these leave their shared memory to others."""
        for cta in np.unique(self.machine.cta_of[threads]).tolist():
            if (self.status[self.machine.cta_of == cta] == DONE).all():
                self.ctas_done += 1
                last = threads[self.machine.cta_of[threads] == cta]
                self.machine.checks.cta_over(cta, int(last[0]))
                for unit in self.units:
                    unit.cta_over(cta, int(last[0]))

    def wait(self, sel: Selection, following: int) -> None:
        """Put threads to sleep; they go on at a block when something wakes them."""
        self._spread(sel)
        self.pc[sel] = following
        self.status[sel] = WAITING

    def resume(self, sel: Selection, following: int) -> None:
        """Threads go on at a block, although others of the same selection may wait."""
        self._spread(sel)
        self.pc[sel] = following

    def wake(self, threads: np.ndarray) -> None:
        self.status[threads] = READY
