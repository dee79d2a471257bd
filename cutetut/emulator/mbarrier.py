"""Memory barriers in shared memory (PTX ISA section 9.7.13.15).

An mbarrier counts two things down: *pending arrivals* of threads and *pending bytes* (tx-count) of
asynchronous copies.  When both are zero its phase is complete and the next one starts with the full
arrival count.  A waiter names the phase it waits for by its parity, or by the state that an arrival
returned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .errors import AsyncMismatch, IllegalInstruction
from .loadstore import address_getter
from .memory import threads_of
from .ptx import Address, Sink
from .registry import Selection, Step, opcode, unsupported

if TYPE_CHECKING:
    from .machine import Machine
    from .ptx import Instruction, Operand

MAX_COUNT = (1 << 20) - 1  # of arrivals, and of pending bytes in either direction


@dataclass
class Waiter:
    """Threads asleep in try_wait, each with the phase it waits for and where the answer goes."""

    threads: np.ndarray
    phase: np.ndarray  # done when the barrier's phase number exceeds it
    result: np.ndarray | None
    inst: Instruction


@dataclass(eq=False)
class Mbarrier:
    """One barrier object: `phase` counts completed phases, its lowest bit is the current parity."""

    host: int
    offset: int  # in its CTA's shared memory, for messages
    cta: int
    count: int
    pending: int = 0
    bytes: int = 0
    phase: int = 0
    waiters: list[Waiter] = field(default_factory=list)

    def describe(self) -> str:
        return (
            f"mbarrier at shared offset {self.offset}: phase {self.phase} (parity {self.phase & 1}), "
            f"{self.pending} of {self.count} arrivals and {self.bytes} bytes pending"
        )


class Mbarriers:
    """All mbarriers of the resident CTAs, by host address."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.objects: dict[int, Mbarrier] = {}

    def reset(self) -> None:
        self.objects.clear()

    def at(self, host: int, thread: int) -> Mbarrier:
        """The barrier at a host address; raises IllegalInstruction if nothing initialised one there."""
        barrier = self.objects.get(host)
        if barrier is None:
            raise IllegalInstruction(
                "no mbarrier was initialised at this address",
                threads=np.array([thread]),
                hint="mbarrier_init before use, and a barrier between the initialising thread and the others",
            )
        return barrier

    def init(self, host: int, thread: int, count: int) -> None:
        if not 1 <= count <= MAX_COUNT:
            raise IllegalInstruction(f"an mbarrier for {count} arrivals; 1 to {MAX_COUNT} are allowed",
                                     threads=np.array([thread]))  # fmt: skip
        cta, offset = self.machine.shared.where(host)
        self.objects[host] = Mbarrier(host, offset, cta, count, count)

    def arrive(self, barrier: Mbarrier, arrivals: int, thread: int | None = None) -> None:
        """Count arrivals; the last one, with no bytes pending, completes the phase."""
        if arrivals > barrier.pending:
            raise IllegalInstruction(
                f"{arrivals} arrivals at an {barrier.describe()}",
                threads=None if thread is None else np.array([thread]),
                hint="the arrival count that the mbarrier was initialised with, and who arrives",
            )
        barrier.pending -= arrivals
        self._settle(barrier)

    def expect(self, barrier: Mbarrier, nbytes: int, thread: int) -> None:
        """Expect more bytes in the current phase."""
        barrier.bytes += nbytes
        if abs(barrier.bytes) > MAX_COUNT:
            raise IllegalInstruction(f"{barrier.bytes} pending bytes; an mbarrier counts to {MAX_COUNT}",
                                     threads=np.array([thread]))  # fmt: skip

    def complete_bytes(self, barrier: Mbarrier, nbytes: int) -> None:
        """An asynchronous copy has delivered bytes."""
        barrier.bytes -= nbytes
        self._settle(barrier)

    def _settle(self, barrier: Mbarrier) -> None:
        self.machine.pending.events += 1
        if barrier.pending or barrier.bytes:
            return
        late = [op for op in self.machine.pending.operations if op.barrier is barrier]
        if late:
            raise AsyncMismatch(
                f"{barrier.describe()}: the phase is complete, but {late[0].what} is still under way",
                hint="expect_tx announces fewer bytes than the copies of this phase bring; its waiters read too early",
            )
        barrier.phase += 1
        barrier.pending = barrier.count
        self.wake(barrier)

    def wake(self, barrier: Mbarrier) -> None:
        """Let the waiters of completed phases go on."""
        waiters, barrier.waiters = barrier.waiters, []
        for waiter in waiters:
            done = waiter.phase < barrier.phase
            self._release(waiter, done, True)
            if not done.all():
                rest = ~done
                barrier.waiters.append(Waiter(waiter.threads[rest], waiter.phase[rest], waiter.result, waiter.inst))

    def _release(self, waiter: Waiter, which: np.ndarray, answer: bool) -> None:
        threads = waiter.threads[which]
        if waiter.result is not None:
            waiter.result[threads] = answer
        if answer:
            self.machine.shared.met(threads)
        self.machine.scheduler.wake(threads)

    def somebody_sleeps(self) -> bool:
        return any(barrier.waiters for barrier in self.objects.values())

    def time_out(self) -> bool:
        """try_wait may give up: every sleeper goes on with the answer false.  False when nobody sleeps."""
        sleepers = [(b, w) for b in self.objects.values() for w in b.waiters]
        for barrier, waiter in sleepers:
            barrier.waiters = []
            self._release(waiter, np.ones(len(waiter.threads), np.bool_), False)
        return bool(sleepers)

    def describe_waiting(self) -> list[str]:
        """One line per barrier and warp that waits at it, for the deadlock report."""
        lines = []
        m = self.machine
        for barrier in self.objects.values():
            for waiter in barrier.waiters:
                place = m.scheduler.place(waiter.inst, int(waiter.threads[0]))
                warps = sorted({int(m.in_cta[t]) // 32 for t in waiter.threads.tolist()})
                lines.append(
                    f"  CTA {place.cta}, warps {warps} wait for phase {int(waiter.phase[0])} of the "
                    f"{barrier.describe()} ({place.source or 'PTX line ' + str(place.ptx_line)})"
                )
                if barrier.bytes and not barrier.pending:
                    lines.append("    all threads have arrived; no copy under way will bring the missing bytes")
        return lines


# -- instructions ---------------------------------------------------------------------------------

_ORDER = {"relaxed", "acquire", "release", "cta", "cluster", "shared", "shared::cta", "shared::cluster", "b64"}


class _Barriers:
    """The barrier operand of an instruction: a loop over the distinct barriers of the selected threads."""

    def __init__(self, inst: Instruction, machine: Machine, operand: Operand) -> None:
        if not isinstance(operand, Address):
            raise unsupported(inst, "the barrier must be [address]")
        self.machine, self.address = machine, address_getter(machine, operand)

    def hosts(self, sel: Selection, store: bool = False) -> np.ndarray:
        return self.machine.shared.locate_barrier(self.address(sel), sel, store)

    def each(self, sel: Selection) -> list[tuple[Mbarrier, np.ndarray]]:
        """(barrier, positions in the selection) of every distinct barrier."""
        hosts, threads = self.hosts(sel), threads_of(sel)
        found = []
        for host in np.unique(hosts).tolist():
            at = np.flatnonzero(hosts == host)
            found.append((self.machine.mbarriers.at(host, int(threads[at[0]])), at))
        return found


def _check(inst: Instruction, words: int, extra: set[str] | None = None) -> None:
    for part in inst.parts[words:]:
        if part not in _ORDER and part not in (extra or ()):
            raise unsupported(inst, f"modifier .{part}")


@opcode("mbarrier.init", unit="mbarrier", forms=".shared.b64 [addr], count", section="9.7.13.15.9", results=0)
def decode_init(inst: Instruction, machine: Machine) -> Step:
    """Make a barrier that expects `count` arrivals per phase."""
    _check(inst, 2)
    where, count = _Barriers(inst, machine, inst.operands[0]), machine.source(inst.operands[1], np.uint32)

    def step(sel: Selection) -> None:
        threads = threads_of(sel)
        for i, host in enumerate(where.hosts(sel, store=True).tolist()):
            machine.mbarriers.init(host, int(threads[i]), int(count[threads[i]]))

    return step


@opcode("mbarrier.inval", unit="mbarrier", forms=".shared.b64 [addr]", section="9.7.13.15.10", results=0)
def decode_inval(inst: Instruction, machine: Machine) -> Step:
    """Unmake a barrier, so that its memory can be used for something else."""
    _check(inst, 2)
    where = _Barriers(inst, machine, inst.operands[0])

    def step(sel: Selection) -> None:
        for barrier, _ in where.each(sel):
            del machine.mbarriers.objects[barrier.host]

    return step


@opcode("mbarrier.arrive", "mbarrier.arrive_drop", unit="mbarrier", section="9.7.13.15.13, 9.7.13.15.14",
        forms="{.expect_tx .noComplete}{.release .relaxed}{.cta .cluster}{.shared::cta .shared::cluster}.b64 "
              "state|_, [addr]{, count | bytes}")  # fmt: skip
def decode_arrive(inst: Instruction, machine: Machine) -> Step:
    """Arrive, with expect_tx first announce bytes; the result names the phase that was arrived at."""
    expects, drops = "expect_tx" in inst.parts, inst.parts[1] == "arrive_drop"
    _check(inst, 2, {"expect_tx", "noComplete"})
    where = _Barriers(inst, machine, inst.operands[1])
    number = machine.source(inst.operands[2], np.uint32) if len(inst.operands) > 2 else None
    state = None if isinstance(inst.operands[0], Sink) else machine.target(inst.operands[0], np.uint64)

    def step(sel: Selection) -> None:
        threads = threads_of(sel)
        for barrier, at in where.each(sel):
            mine = threads[at]
            if state is not None:
                state[mine] = barrier.phase
            arrivals = len(at)
            if expects and number is not None:
                machine.mbarriers.expect(barrier, int(number[mine].sum()), int(mine[0]))
            elif number is not None:
                arrivals = int(number[mine].sum())
            if drops:
                barrier.count -= arrivals
            machine.mbarriers.arrive(barrier, arrivals, int(mine[0]))

    return step


@opcode("mbarrier.expect_tx", "mbarrier.complete_tx", unit="mbarrier", section="9.7.13.15.11, 9.7.13.15.12",
        forms="{.relaxed}{.cta .cluster}{.shared::cta .shared::cluster}.b64 [addr], bytes", results=0)  # fmt: skip
def decode_tx(inst: Instruction, machine: Machine) -> Step:
    """Announce bytes, or report them delivered, without arriving."""
    _check(inst, 2)
    expects = inst.parts[1] == "expect_tx"
    where, number = _Barriers(inst, machine, inst.operands[0]), machine.source(inst.operands[1], np.uint32)

    def step(sel: Selection) -> None:
        threads = threads_of(sel)
        for barrier, at in where.each(sel):
            nbytes = int(number[threads[at]].sum())
            if expects:
                machine.mbarriers.expect(barrier, nbytes, int(threads[at[0]]))
            else:
                machine.mbarriers.complete_bytes(barrier, nbytes)

    return step


@opcode("mbarrier.test_wait", "mbarrier.try_wait", unit="mbarrier", section="9.7.13.15.16", ends_block=True,
        forms="{.parity}{.acquire .relaxed}{.cta .cluster}{.shared::cta}.b64 p, [addr], phase{, limit}")  # fmt: skip
def decode_wait(inst: Instruction, machine: Machine) -> Step:
    """Ask whether a phase is complete; threads of an incomplete one sleep until it is, or give up."""
    _check(inst, 2, {"parity"})
    parity = "parity" in inst.parts
    result = machine.target(inst.operands[0], np.bool_)
    where = _Barriers(inst, machine, inst.operands[1])
    wanted = machine.source(inst.operands[2], np.uint32 if parity else np.uint64)
    following = machine.block_after(inst)

    def step(sel: Selection) -> int | None:
        threads = threads_of(sel)
        asleep = []
        for barrier, at in where.each(sel):
            mine = threads[at]
            phase = wanted[mine].astype(np.int64)
            if parity:
                phase = barrier.phase - ((barrier.phase ^ phase) & 1)
            done = phase < barrier.phase
            result[mine[done]] = True
            machine.shared.met(mine[done])
            if not done.all():
                sleepers = mine[~done]
                result[sleepers] = False
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
    """A state is opaque here: only the phase is kept in it."""
    raise unsupported(inst, "the state of an arrival does not hold the pending count")


@opcode("fence.mbarrier_init", unit="mbarrier", forms=".release.cluster", section="9.7.13.4", results=0)
def decode_fence_init(inst: Instruction, machine: Machine) -> Step:
    """Initialisation is visible to the cluster at once here."""
    return lambda sel: None
