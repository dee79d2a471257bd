"""Memory barriers in shared memory (PTX ISA section 9.7.13.15).

An mbarrier counts two things down: *pending arrivals* of threads and *pending bytes* (tx-count) of
asynchronous copies.  When both are zero its phase is complete and the next one starts with the full
arrival count.  A waiter names the phase it waits for by its parity, or by the state that an arrival
returned.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from ..checks.arrivals import Arrivals
from ..checks.async_ordering import AsyncOrdering
from ..checks.clocks import INITS, Knowledge
from ..checks.ordering import Ordering
from ..errors import IllegalInstruction, MissingBarrier, MissingFence
from ..findings import Location
from ..machine.access import CLUSTER, CTA, Access
from ..machine.memory import SHARED_WINDOW, threads_of
from ..machine.opcodes import Selection, Step, UnitState, opcode, state, unsupported
from ..machine.operands import addresses
from ..machine.threads import lanes_of
from ..ptx.effects import Effect
from ..ptx.loops import is_repeated
from ..ptx.syntax import Sink
from . import mbarrier_reports as reports
from .mbarrier_objects import Arrival, Mbarrier, Seen, Waiter

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..machine.stuck import Report, Wait
    from ..ptx.syntax import Instruction, Operand

MAX_COUNT = (1 << 20) - 1  # of arrivals, and of pending bytes in either direction


@state
class Mbarriers(UnitState):
    """All mbarriers of the resident CTAs, by host address."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.objects: dict[int, Mbarrier] = {}
        self.numbers = itertools.count()
        self.users: dict[int, set[int]] = {}  # instruction that arrives or waits -> offsets of its barriers
        self.waits = 0  # that went through
        self.arrivals = Arrivals(machine)
        self.asked_in_vain = False  # somebody has, lately, and did not sleep

    def reset(self) -> None:
        self.objects.clear()

    def at(self, host: int, threads: np.ndarray) -> Mbarrier:
        """The barrier at a host address, for threads that know of it.

        Raises IllegalInstruction if nothing initialised one there, MissingBarrier if nothing orders the
        initialisation before this use.
        """
        barrier = self.objects.get(host)
        if barrier is None:
            offset = self.machine.shared.where(host)[1]
            raise IllegalInstruction(
                f"no mbarrier was initialised at shared offset {offset}",
                threads=threads[:1],
                hint="mbarrier_init before use, and a barrier between the initialising thread and the others",
                kind="mbarrier-memory", locations=(Location("mbarrier", offset, 8),),
            )  # fmt: skip
        if not barrier.known:
            self._check_known(barrier, threads)
        return barrier

    def _check_known(self, barrier: Mbarrier, threads: np.ndarray) -> None:
        m = self.machine
        across = m.cta_of[threads] != barrier.cta
        for part, abroad in ((threads[~across], False), (threads[across], True)):
            strangers = self._strangers(barrier, part)
            if strangers.any():
                within_cta = "sync_threads" if m.warps_per_cta > 1 else "sync_warp"
                meeting = "cluster_arrive and cluster_wait" if abroad else within_cta
                error = MissingBarrier(
                    f"the mbarrier at shared offset {barrier.offset} is used by threads that cannot know yet that it "
                    "is initialised",
                    threads=part[strangers],
                    hint=f"mbarrier_init_fence, then {meeting}, between mbarrier_init and the first use",
                    kind="missing-init-fence", locations=(barrier.location(m),),
                )  # fmt: skip
                m.scheduler.note(error, barrier.made_with, barrier.made_by, "it was initialised here")
                raise error
        everyone = np.flatnonzero(m.live & (m.cta_of // m.cluster_size == barrier.cta // m.cluster_size))
        barrier.known = not self._strangers(barrier, everyone).any()

    def _strangers(self, barrier: Mbarrier, threads: np.ndarray) -> np.ndarray:
        """Which threads cannot know yet that the barrier has been initialised."""
        return ~self.machine.unit(Ordering).clocks.knows_mbarrier(threads, barrier.made_by, barrier.made_at)

    def signalled(self, host: int, thread: int) -> Mbarrier:
        """The barrier that an asynchronous copy will signal: its initialisation is fenced for the async proxy."""
        barrier = self.at(host, np.array([thread]))
        clocks, one = self.machine.unit(Ordering).clocks, np.array([thread >> 5])
        fenced = clocks.knows(one, barrier.made_by >> 5, barrier.made_at, INITS).all()
        if not fenced and not clocks.fenced_by_lane(INITS, barrier.made_by, barrier.made_at, thread):
            error = MissingFence(
                f"the copy signals the mbarrier at shared offset {barrier.offset} through the async proxy, and no "
                "fence came after its initialisation",
                threads=np.array([thread]),
                hint="mbarrier_init_fence (or fence.proxy.async) after mbarrier_init, then a barrier",
                kind="missing-init-fence", locations=(barrier.location(self.machine),),
            )  # fmt: skip
            self.machine.scheduler.note(error, barrier.made_with, barrier.made_by, "it was initialised here")
            raise error
        return barrier

    def init(self, host: int, thread: int, count: int, inst: Instruction) -> None:
        if not 1 <= count <= MAX_COUNT:
            raise IllegalInstruction(f"an mbarrier for {count} arrivals; 1 to {MAX_COUNT} are allowed",
                                     threads=np.array([thread]))  # fmt: skip
        cta, offset = self.machine.shared.where(host)
        if host in self.objects:
            raise self._initialised_again(self.objects[host], thread)
        order = self.machine.unit(Ordering)
        made_at = order.clocks.time(thread >> 5)
        order.clocks.touch(np.array([thread]))
        clock = self.machine.unit(AsyncOrdering).agent("mbarrier", next(self.numbers), thread)
        self.objects[host] = Mbarrier(
            host, offset, cta, count, thread, inst, made_at, clock, order.clocks.base, pending=count
        )
        order.holds_mbarrier(host, True)

    def _initialised_again(self, barrier: Mbarrier, thread: int) -> IllegalInstruction:
        error = IllegalInstruction(
            f"mbarrier.init where an mbarrier lives already: the {barrier.describe()}",
            threads=np.array([thread]),
            hint="mbarrier.inval of the old one first, after all its users have met; or initialise it once only",
            kind="mbarrier-memory", locations=(barrier.location(self.machine),),
        )  # fmt: skip
        self.machine.scheduler.note(error, barrier.made_with, barrier.made_by, "it was initialised here")
        return error

    def invalidate(self, barrier: Mbarrier) -> None:
        """mbarrier.inval: its memory may be used for something else."""
        del self.objects[barrier.host]
        self.machine.unit(Ordering).holds_mbarrier(barrier.host, False)

    def arrive(
        self, barrier: Mbarrier, arrivals: int, inst: Instruction, threads: np.ndarray, known: Knowledge | None = None
    ) -> None:
        """Count arrivals; the last one, with no bytes pending, completes the phase.

        known: what they pass on, where that is not what the threads know now (cp.async.mbarrier.arrive).
        """
        if arrivals > barrier.pending:
            raise reports.too_many(self, barrier, arrivals, threads)
        barrier.pending -= arrivals
        if known is None:
            order, warps = self.machine.unit(Ordering), np.unique(threads >> 5)
            barrier.came.update(zip(warps.tolist(), order.clocks.now[warps].tolist(), strict=True))
            scope = CLUSTER if "cluster" in inst.parts else CTA
            known = self.arrivals.passed_on(threads, barrier.cta, "relaxed" in inst.parts, scope, inst)
        else:  # the last copy may complete at any time
            barrier.open_ended = True
        barrier.gathered = known if barrier.gathered is None else barrier.gathered.join(known)
        barrier.arrivals.append(Arrival(inst, threads, arrivals))
        self.users.setdefault(inst.index, set()).add(barrier.offset)
        self._complete_if_due(barrier)

    def expect(self, barrier: Mbarrier, nbytes: int, inst: Instruction, threads: np.ndarray) -> None:
        """Expect more bytes in the current phase."""
        barrier.bytes += nbytes
        barrier.arrivals.append(Arrival(inst, threads, 0, nbytes))
        if abs(barrier.bytes) > MAX_COUNT:
            raise IllegalInstruction(f"{barrier.bytes} pending bytes; an mbarrier counts to {MAX_COUNT}",
                                     threads=threads[:1])  # fmt: skip

    def complete_bytes(self, barrier: Mbarrier, nbytes: int) -> None:
        """An asynchronous copy has delivered bytes."""
        barrier.bytes -= nbytes
        self._complete_if_due(barrier, by_bytes=True)

    def _complete_if_due(self, barrier: Mbarrier, by_bytes: bool = False) -> None:
        self.machine.pending.events += 1
        if barrier.pending or barrier.bytes:
            return
        if late := self.machine.pending.signalling(barrier):
            raise reports.too_few_bytes(self, barrier, late)
        barrier.phase += 1
        at_any_time, barrier.before_that = by_bytes or barrier.open_ended, barrier.completed_by
        barrier.completed_by, barrier.came, barrier.open_ended = None if at_any_time else barrier.came, {}, False
        barrier.pending = barrier.count
        if barrier.gathered is not None:
            barrier.knowledge, barrier.gathered = barrier.gathered.join(barrier.knowledge), None
        self.wake(barrier)
        barrier.arrivals.clear()

    def cta_over(self, cta: int, thread: int) -> None:
        """A CTA has ended: its barriers expect no more bytes, so any that came unexpectedly are too many."""
        for barrier in self.objects.values():
            if barrier.cta == cta and barrier.bytes < 0:
                raise reports.too_many_bytes(self, barrier, thread)

    def wake(self, barrier: Mbarrier) -> None:
        """Let the waiters of completed phases go on."""
        waiters, barrier.waiters = barrier.waiters, []
        for waiter in waiters:
            done = waiter.phase < barrier.phase
            if done.any():
                reports.check_parity(self, barrier, waiter.threads[done], waiter.inst)
                self.note(barrier, waiter.inst, int(waiter.phase[done][0]), waiter.threads[done])
            self._release(barrier, waiter, done, True)
            if not done.all():
                rest = ~done
                barrier.waiters.append(Waiter(waiter.threads[rest], waiter.phase[rest], waiter.result, waiter.inst))

    def _release(self, barrier: Mbarrier, waiter: Waiter, which: np.ndarray, answer: bool) -> None:
        threads = waiter.threads[which]
        if waiter.result is not None:
            waiter.result[threads] = answer
        if answer:
            self.learn(barrier, threads, "relaxed" in waiter.inst.parts)
        self.machine.scheduler.wake(threads)

    def learn(self, barrier: Mbarrier, threads: np.ndarray, relaxed: bool) -> None:
        """Threads have seen a phase complete: what its arrivals came after, and its copies, is behind them, too.

        After a relaxed wait only a fence makes it so.
        """
        order = self.machine.unit(Ordering)
        warps, lanes = lanes_of(threads)
        if not relaxed:
            order.clocks.acquire(warps, barrier.knowledge, lanes)
            order.clocks.learn(warps, barrier.clock, barrier.began + barrier.phase, lanes)
            return
        left = order.clocks.with_agent(barrier.knowledge, barrier.clock, barrier.began + barrier.phase)
        order.locations.observe_all(warps, lanes, left)

    def note(self, barrier: Mbarrier, inst: Instruction, phase: int, threads: np.ndarray) -> None:
        """A wait goes through."""
        self.waits += 1
        seen = Seen(self.waits, inst, phase, barrier.phase)
        barrier.seen.update(dict.fromkeys((threads >> 5).tolist(), seen))

    def known(self, barrier: Mbarrier, threads: np.ndarray) -> bool:
        """Whether threads know already that the last phase is complete, so that asking earlier is out of the question.

        That is so where all arrivals have happened before.
        """
        return self.know_of(barrier.completed_by, threads)

    def know_of(self, arrivals: dict[int, int] | None, threads: np.ndarray) -> bool:
        """Whether threads know of all arrivals of a phase (by warp, and when); None: it may have ended at any time."""
        if arrivals is None:
            return False
        clocks, mine = self.machine.unit(Ordering).clocks, threads >> 5
        for warp, time in arrivals.items():
            agents, times = np.full(len(threads), warp), np.full(len(threads), time)
            if (clocks.unknown(threads, agents, times, reads=True) & (mine != warp)).any():
                return False
        return True

    def history(self, thread: int) -> list[str]:
        return reports.passed_at_once(self, thread)

    def lives_at(self, host: int) -> tuple[Instruction, int, str] | None:
        barrier = self.objects.get(host & -8)
        return None if barrier is None else (barrier.made_with, barrier.made_by, "it was initialised here")

    def stuck(self, report: Report) -> list[Wait]:
        return reports.Waits(self, report).all()

    def somebody_sleeps(self) -> bool:
        asked, self.asked_in_vain = self.asked_in_vain, False
        return asked or any(barrier.waiters for barrier in self.objects.values())

    def time_out(self) -> bool:
        """try_wait may give up: every sleeper goes on with the answer false.  False when nobody sleeps."""
        sleepers = [(b, w) for b in self.objects.values() for w in b.waiters]
        for barrier, waiter in sleepers:
            barrier.waiters = []
            self._release(barrier, waiter, np.ones(len(waiter.threads), np.bool_), False)
        return bool(sleepers)


# -- instructions ---------------------------------------------------------------------------------

_ORDER = {"relaxed", "acquire", "release", "cta", "cluster", "shared", "shared::cta", "shared::cluster", "b64"}


class _Barriers:
    """The barrier operand of an instruction: a loop over the distinct barriers of the selected threads."""

    def __init__(self, inst: Instruction, machine: Machine, operand: Operand) -> None:
        self.machine, self.inst, self.address = machine, inst, addresses(inst, machine, operand)
        machine.checks.uses(Access(inst.index, 8))
        self.window = 0 if any(part.startswith("shared") for part in inst.parts) else SHARED_WINDOW  # generic

    def hosts(self, sel: Selection, store: bool = False) -> np.ndarray:
        return self.machine.shared.reach(self.address(sel) - self.window, 8, sel, store, self.inst.index)

    def each(self, sel: Selection) -> list[tuple[Mbarrier, np.ndarray]]:
        """Every distinct barrier, by its address, and the selected threads that name it."""
        hosts, threads, barriers = self.hosts(sel), threads_of(sel), self.machine.unit(Mbarriers)
        starts = np.flatnonzero(hosts[1:] != hosts[:-1]) + 1
        if not len(starts):  # the usual case
            return [(barriers.at(int(hosts[0]), threads), threads)]
        named = [int(hosts[0]), *hosts[starts].tolist()]
        if all(one < next_ for one, next_ in itertools.pairwise(named)):  # one of each CTA
            parts = np.split(threads, starts)
        else:
            named = sorted(set(named))
            parts = [threads[hosts == host] for host in named]
        return [(barriers.at(host, mine), mine) for host, mine in zip(named, parts, strict=True)]


def _check(inst: Instruction, words: int, extra: set[str] | None = None) -> None:
    for part in inst.parts[words:]:
        if part not in _ORDER and part not in (extra or ()):
            raise unsupported(inst, f"modifier .{part}")


@opcode("mbarrier.init", unit="mbarrier", role="initialises", forms=".shared.b64 [addr], count",
        section="9.7.13.15.9", results=0)
def decode_init(inst: Instruction, machine: Machine) -> Step:
    """Make a barrier that expects `count` arrivals per phase."""
    _check(inst, 2)
    where, count = _Barriers(inst, machine, inst.operands[0]), machine.source(inst.operands[1], np.uint32)

    def step(sel: Selection) -> None:
        threads = threads_of(sel)
        for i, host in enumerate(where.hosts(sel, store=True).tolist()):
            machine.unit(Mbarriers).init(host, int(threads[i]), int(count[threads[i]]), inst)

    return step


@opcode("mbarrier.inval", unit="mbarrier", role="invalidates", forms=".shared.b64 [addr]",
        section="9.7.13.15.10", results=0)
def decode_inval(inst: Instruction, machine: Machine) -> Step:
    """Unmake a barrier, so that its memory can be used for something else."""
    _check(inst, 2)
    where = _Barriers(inst, machine, inst.operands[0])

    def step(sel: Selection) -> None:
        for barrier, _ in where.each(sel):
            machine.unit(Mbarriers).invalidate(barrier)

    return step


@opcode("mbarrier.arrive", "mbarrier.arrive_drop", unit="mbarrier", role="arrives",
        section="9.7.13.15.13, 9.7.13.15.14",
        forms="{.expect_tx .noComplete}{.release .relaxed}{.cta .cluster}{.shared::cta .shared::cluster}.b64 "
              "state|_, [addr]{, count | bytes}")  # fmt: skip
def decode_arrive(inst: Instruction, machine: Machine) -> Step:
    """Arrive, with expect_tx first announce bytes; the result names the phase that was arrived at.

    The state is opaque: here its low half is the phase, its high half the arrivals that were pending before.
    """
    expects, drops, open_ended = "expect_tx" in inst.parts, inst.parts[1] == "arrive_drop", "noComplete" in inst.parts
    _check(inst, 2, {"expect_tx", "noComplete"})
    where = _Barriers(inst, machine, inst.operands[1])
    number = machine.source(inst.operands[2], np.uint32) if len(inst.operands) > 2 else None
    state = None if isinstance(inst.operands[0], Sink) else machine.target(inst.operands[0], np.uint64)

    def step(sel: Selection) -> None:
        for barrier, mine in where.each(sel):
            each = np.ones(len(mine), np.int64)
            if expects and number is not None:
                machine.unit(Mbarriers).expect(barrier, int(number[mine].sum()), inst, mine)
            elif number is not None:
                each = number[mine].astype(np.int64)
            arrivals = int(each.sum())
            if state is not None:
                state[mine] = barrier.phase | (barrier.pending - np.cumsum(each) + each) << 32
            if open_ended and arrivals == barrier.pending:
                raise IllegalInstruction(
                    f"{inst.opcode} completes a phase of the {barrier.describe()}", threads=mine[-1:],
                    hint=".noComplete promises that another arrival completes the phase",
                )  # fmt: skip
            if drops:
                barrier.count -= arrivals
            machine.unit(Mbarriers).arrive(barrier, arrivals, inst, mine)

    return step


_TX = "{.relaxed}{.cta .cluster}{.shared::cta .shared::cluster}.b64 [addr], bytes"


@opcode("mbarrier.expect_tx", unit="mbarrier", role="announces", section="9.7.13.15.11", forms=_TX, results=0)
@opcode("mbarrier.complete_tx", unit="mbarrier", role="completes", section="9.7.13.15.12", forms=_TX, results=0)
def decode_tx(inst: Instruction, machine: Machine) -> Step:
    """Announce bytes, or report them delivered, without arriving."""
    _check(inst, 2)
    expects = inst.parts[1] == "expect_tx"
    where, number = _Barriers(inst, machine, inst.operands[0]), machine.source(inst.operands[1], np.uint32)

    def step(sel: Selection) -> None:
        for barrier, mine in where.each(sel):
            nbytes = int(number[mine].sum())
            if expects:
                machine.unit(Mbarriers).expect(barrier, nbytes, inst, mine)
            else:
                machine.unit(Mbarriers).complete_bytes(barrier, nbytes)

    return step


@opcode("mbarrier.test_wait", "mbarrier.try_wait", unit="mbarrier", role="waits", effect=Effect.ASKS,
        section="9.7.13.15.16", ends_block=True,
        forms="{.parity}{.acquire .relaxed}{.cta .cluster}{.shared::cta}.b64 p, [addr], phase{, limit}")  # fmt: skip
def decode_wait(inst: Instruction, machine: Machine) -> Step:
    """Ask whether a phase is complete.

    In a loop that asks until it is, threads sleep until then, or give up; elsewhere the answer is "no" at once.
    """
    _check(inst, 2, {"parity"})
    parity, relaxed = "parity" in inst.parts, "relaxed" in inst.parts
    result = machine.target(inst.operands[0], np.bool_)
    where = _Barriers(inst, machine, inst.operands[1])
    wanted = machine.source(inst.operands[2], np.uint32 if parity else np.uint64)
    following, repeated = machine.block_after(inst), is_repeated(machine.kernel, inst)

    def step(sel: Selection) -> int | None:
        asleep = []
        for barrier, mine in where.each(sel):
            phase = (wanted[mine] & 0xFFFFFFFF).astype(np.int64)
            if parity:
                reports.warn_of_no_parity(machine.unit(Mbarriers), phase, mine, inst)
                phase = barrier.phase - ((barrier.phase ^ phase) & 1)
            done = phase < barrier.phase
            if done.any() and machine.schedule.too_early() and not machine.unit(Mbarriers).known(barrier, mine):
                result[mine] = False
                machine.unit(Mbarriers).asked_in_vain = True
                continue
            result[mine[done]] = True
            machine.unit(Mbarriers).users.setdefault(inst.index, set()).add(barrier.offset)
            if done.any():
                reports.check_parity(machine.unit(Mbarriers), barrier, mine[done], inst)
                machine.unit(Mbarriers).note(barrier, inst, int(phase[done][0]), mine[done])
                machine.unit(Mbarriers).learn(barrier, mine[done], relaxed)
            if not done.all():
                sleepers = mine[~done]
                result[sleepers] = False
                if not repeated:
                    machine.unit(Mbarriers).asked_in_vain = True
                    continue
                barrier.waiters.append(Waiter(sleepers, phase[~done], result, inst))
                asleep.append(sleepers)
        if not asleep:
            return following
        machine.scheduler.resume(sel, following)
        machine.scheduler.wait(np.concatenate(asleep), following)
        return None

    return step


@opcode("mbarrier.pending_count", unit="mbarrier", forms=".b64 count, state", section="9.7.13.15.17")
def decode_pending_count(inst: Instruction, machine: Machine) -> Step:
    """How many arrivals were pending before the one that returned the state."""
    _check(inst, 2)
    d, state = machine.target(inst.operands[0], np.uint32), machine.source(inst.operands[1], np.uint64)
    return lambda sel: d.__setitem__(sel, state[sel] >> np.uint64(32))


@opcode("fence.mbarrier_init", unit="mbarrier", role="fences", forms=".release.cluster", section="9.7.13.4", results=0)
def decode_fence_init(inst: Instruction, machine: Machine) -> Step:
    """Make the initialisation of mbarriers visible to the cluster and to the async proxy."""
    return lambda sel: machine.unit(Ordering).fence_proxy(sel, (INITS,))
