"""Who runs next.

Every thread has a program counter, a block number.  Each turn takes the warp that has waited
longest, the lowest block among its threads (so that diverged lanes meet again where the compiler
joined them), and every other warp that stands at the same block.  Only the scheduler changes who
is ready; a unit asks it to make threads wait or exit.
"""

from __future__ import annotations

import warnings
from typing import NoReturn

import numpy as np

from ..checks.deadlock import Report
from ..checks.spinning import Spinning, waiting_loops
from ..checks.unwritten import Loads, is_load_from_shared
from ..errors import (
    BudgetExceeded,
    Deadlock,
    EmulatorError,
    EmulatorWarning,
    InFlight,
    Place,
    Uninitialized,
)
from ..ptx.source import describe, kernel_name
from ..ptx.source import text as source_text
from ..ptx.syntax import Instruction
from ..units.cluster import ClusterBarriers
from ..units.mbarrier import Mbarriers
from ..units.named_barriers import Barriers
from ..units.setmaxnreg import RegisterPool
from .machine import Machine
from .memory import threads_of
from .opcodes import Selection
from .program import Block, decode, narrow

READY, WAITING, PARKED, DONE = range(4)
PATIENCE = 32  # every so many turns of a warp its longest waiting lane is next: spinning lanes cannot starve others
NOWHERE, NEVER = np.iinfo(np.int32).max, np.iinfo(np.int64).max


WARPGROUP = 128  # threads
TIME_OUTS = 3  # times that every sleeper may wake in vain, with no event in between, before it is a deadlock
IDLE_TURNS = 2048  # turns that spinning threads may take before an operation under way completes regardless


class Scheduler:
    """Runs the waves of one launch on a machine."""

    def __init__(self, machine: Machine, budget: int) -> None:
        self.machine = machine
        self.budget = budget
        machine.scheduler = self
        self.program = decode(machine)
        loops = waiting_loops(machine.kernel)
        self.spinning = Spinning(self, loops) if loops else None
        self.loads: Loads | None = None  # of unwritten shared memory; from the first on, `program` marks values
        self.kernel_name = kernel_name(machine.kernel)
        self.warps = machine.T // 32
        self.pc = np.zeros(machine.T, np.int32)
        self.status = np.zeros(machine.T, np.uint8)
        self.last_run = np.zeros(self.warps, np.int64)
        self.warp_turns = np.zeros(self.warps, np.int64)  # how often a warp was picked,
        self.lane_turn = np.zeros(machine.T, np.int64)  # and its count when each thread last ran
        self.current: Instruction | None = None
        self.turn = 0
        self.warned: set[tuple[str, int]] = set()

    # -- one wave -----------------------------------------------------------------------------

    def run_wave(self, first: int) -> None:
        machine = self.machine
        machine.load_wave(first)
        for mark in machine.unwritten_marks.values():
            mark[:] = False
        self.pc[:] = 0
        self.status[:] = np.where(machine.live, READY, DONE)
        self.last_run[:] = self.warp_turns[:] = self.lane_turn[:] = 0
        self.live = int(machine.live.sum())
        self.everyone = _compact(np.flatnonzero(machine.live))
        self.common: int | None = 0  # the block every live thread stands at, None when they differ
        self.wave_steps = 0
        self.last_idle = self.turn
        self.idle_time_outs = 0
        self.events_at_time_out = -1
        if self.spinning is not None:
            self.spinning.last_other = self.turn
        while self.live:
            self.step()
        machine.pending.complete_all()

    def step(self) -> None:
        """Run one block for the threads that stand at it."""
        self.machine.pending.tick()
        if self.common is not None:
            number, sel = self.common, self.everyone
            self.turn += 1
        else:
            picked = self._pick()
            if picked is None:
                return
            number, sel = picked
        if self.spinning is not None:
            self.spinning.executing(number)
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
        done = first
        try:
            for step in block.steps[first:] if first else block.steps:
                step(sel)
                done += 1
        except EmulatorError as error:
            self.current = block.instructions[done]
            if isinstance(error, InFlight) and self.loads is not None and self.current.index in self.loads.errors:
                raise self.loads.errors[self.current.index] from None  # the same load came even before its copy
            if not self._marks_loads_from_now_on(error):
                raise
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

    def _marks_loads_from_now_on(self, error: EmulatorError) -> bool:
        """Whether an error is the first load of unwritten shared memory: only using what it loads is one."""
        inst = self.current
        if not isinstance(error, Uninitialized) or self.loads is not None or error.place is not None:
            return False
        if inst is None or not is_load_from_shared(inst):
            return False
        self.locate(error, slice(0, 0))
        self.loads = Loads(self.machine, error)
        self.program = decode(self.machine, self.loads)
        return True

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
                f"the kernel is still running after {self.wave_steps} steps",
                threads=threads_of(sel)[:1],
                hint="a loop whose condition never becomes false; CUTETUT_BUDGET=<steps> allows a longer run",
            )

    def _pick(self) -> tuple[int, Selection] | None:
        at = np.where(self.status == READY, self.pc, NOWHERE)  # where each ready thread stands
        lowest = at.reshape(self.warps, 32).min(axis=1)
        warp = int(np.where(lowest != NOWHERE, self.last_run, NEVER).argmin())
        number = int(lowest[warp])
        if number == NOWHERE:
            self._wake_somebody()
            return None
        self.turn += 1
        if self.turn - self.last_idle > IDLE_TURNS and self.machine.unit(Mbarriers).somebody_sleeps():
            self.last_idle = self.turn  # some threads spin while others sleep: copies must still arrive
            self.machine.pending.complete_oldest()
        warps = lowest == number
        starved = self._starved_block(warp, at) if self.warp_turns[warp] % PATIENCE == 0 else number
        if starved != number:
            number, warps = starved, np.arange(self.warps) == warp
        threads = np.flatnonzero((at.reshape(self.warps, 32) == number) & warps[:, None])
        self.last_run[warps] = self.turn
        self.warp_turns[warps] += 1
        self.lane_turn[threads] = self.warp_turns[self.machine.warp_of[threads]]
        if len(threads) == self.live:
            self.common = number
            return number, self.everyone
        return number, _compact(threads)

    def _starved_block(self, warp: int, at: np.ndarray) -> int:
        """The block of the ready lane of a warp that has waited longest."""
        lanes = slice(32 * warp, 32 * warp + 32)
        waited = np.where(at[lanes] != NOWHERE, self.warp_turns[warp] - self.lane_turn[lanes], -1)
        return int(at[lanes][waited.argmax()])

    def _wake_somebody(self) -> None:
        """Nobody is ready: an operation under way completes, or try_wait gives up, or it is a deadlock."""
        pending = self.machine.pending
        self.last_idle = self.turn
        try:
            if pending.complete_oldest_of_each(self._cluster_of, waking=not self.idle_time_outs):
                return
        except EmulatorError as error:
            self.locate(error, slice(0, 0))
            raise
        if pending.events != self.events_at_time_out:
            self.idle_time_outs = 0
        self.idle_time_outs += 1
        self.events_at_time_out = pending.events
        if self.idle_time_outs > TIME_OUTS or not self.machine.unit(Mbarriers).time_out():
            self.give_up()

    def _cluster_of(self, thread: int) -> int:
        return int(self.machine.cta_of[thread]) // self.machine.cluster_size

    def give_up(self) -> NoReturn:
        """Nothing can change any more: say who waits for what."""
        stuck = Report(self).error()
        self.locate(stuck, slice(0, 0))
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
        return _compact(threads[complete])

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
        self.everyone = _compact(np.flatnonzero(self.status != DONE))
        parked = np.flatnonzero(self.status == PARKED)
        if len(parked):  # nobody waits for a lane that has exited: let them look again
            gone = np.unique(self.machine.warp_of[sel])
            self.status[parked[np.isin(self.machine.warp_of[parked], gone)]] = READY
        self.machine.pending.events += 1
        self._check_exits(threads_of(sel))
        if self.machine.unit(RegisterPool).at_launch is not None:
            warps = np.unique(self.machine.warp_of[sel])
            gone = (self.status.reshape(self.warps, 32)[warps] == DONE).all(axis=1)
            self.machine.unit(RegisterPool).release(warps[gone])
        self.machine.unit(Barriers).recheck()
        self.machine.unit(ClusterBarriers).recheck()

    def _check_exits(self, threads: np.ndarray) -> None:
        """CTAs whose last thread is among these leave their shared memory to others."""
        for cta in np.unique(self.machine.cta_of[threads]).tolist():
            if (self.status[self.machine.cta_of == cta] == DONE).all():
                last = threads[self.machine.cta_of[threads] == cta]
                self.machine.shared.visible.check_exit(cta, int(last[0]))
                self.machine.unit(Mbarriers).check_exit(cta, int(last[0]))
                self.machine.unit(Barriers).check_exit(cta)

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

    # -- what went wrong ----------------------------------------------------------------------

    def warn(
        self, what: str, inst: Instruction, thread: int, hint: str, other: tuple[Instruction, int, str] | None = None
    ) -> None:
        """Warn of something that gives no wrong result by itself, once per source line and launch."""
        file, line = (inst.loc.file, inst.loc.line) if inst.loc is not None else (self.kernel_name, inst.line)
        if (hint, line) in self.warned:
            return
        self.warned.add((hint, line))
        warning = EmulatorError(what, hint=hint)
        warning.place = self.place(inst, thread)
        if other is not None:
            self.note(warning, *other)
        warnings.warn_explicit(str(warning), EmulatorWarning, file, line)

    def note(self, error: EmulatorError, inst: Instruction, thread: int, what: str) -> None:
        """Add another program point to an error: what happened there, and the lines."""
        error.notes.append(f"  {what}:\n{self.place(inst, thread).describe()}")

    def locate(self, error: EmulatorError, sel: Selection) -> None:
        """Say where an error happened: the current instruction and, of these threads, the first that is to blame."""
        if error.place is not None:
            return
        inst = self.current
        thread = None
        if error.threads is not None and len(error.threads):
            thread = int(error.threads[0])
        elif not isinstance(error, Deadlock) and len(candidates := threads_of(sel)):
            thread = int(candidates[0])
        if error.operation is not None:
            inst, thread = error.operation.inst, error.operation.thread
        error.place = self.place(inst, thread)
        if error.threads is not None and len(error.threads) > 1:
            error.notes.append(f"  {len(error.threads)} threads at once do this; the first is named")
        written = self.machine.memory.written_labels()
        if written:
            error.notes.append("  already written to, so not to be trusted: " + ", ".join(written))

    def place(self, inst: Instruction | None, thread: int | None, whole_warp: bool = False) -> Place:
        """Describe an instruction and a thread, or its warp."""
        m = self.machine
        cta = warp = lane = tid = None
        if thread is not None:
            cta = tuple(int(v) for v in m.cta_ids[m.cta_of[thread]])
            number = int(m.in_cta[thread])
            warp = number // 32
            if not whole_warp:
                x, y, _ = m.launch.block
                lane, tid = number % 32, (number % x, number // x % y, number // (x * y))
        source, text = "", ""
        if inst is not None and inst.loc is not None:
            source = ("" if inst.loc.column else "after ") + describe(inst.loc.file, inst.loc.line)
            text = source_text(inst.loc.file, inst.loc.line)
        return Place(
            self.kernel_name, cta, warp, lane, tid,  # type: ignore[arg-type]
            inst.line if inst else None, inst.text if inst else "", source, text,
        )  # fmt: skip


def _compact(threads: np.ndarray) -> Selection:
    """A slice where the threads are consecutive: slicing a row is far cheaper than indexing it."""
    if len(threads) and threads[-1] - threads[0] + 1 == len(threads):
        return slice(int(threads[0]), int(threads[-1]) + 1)
    return threads
