"""Non-bulk asynchronous copies of 4, 8 or 16 bytes per thread (PTX ISA section 9.7.9.25.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..checks import stamps
from ..checks.async_ordering import AsyncOrdering
from ..checks.clocks import Knowledge
from ..checks.ordering import Ordering
from ..machine.access import Access, Kind
from ..machine.memory import HOST, check_alignment, index, threads_of
from ..machine.opcodes import Selection, Step, UnitState, opcode, state, unsupported
from ..machine.operands import addresses
from ..machine.pending import Operation, Pending
from ..machine.ranges import scattered
from ..ptx.syntax import Immediate, Operand, Register
from .mbarrier import Mbarriers

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction
    from .mbarrier_objects import Mbarrier


class Copies:
    """What one cp.async instruction copies for some threads: a row per thread."""

    def __init__(
        self,
        machine: Machine,
        threads: np.ndarray,
        hosts: np.ndarray,
        origin: np.ndarray,
        count: np.ndarray,
        nbytes: int,
        inst: int,
    ) -> None:
        self.machine, self.threads, self.nbytes, self.inst = machine, threads, nbytes, inst
        self.hosts, self.origin, self.count = hosts, origin, count  # to, from, and bytes that are not zero fill
        self.groups = machine.unit(CopyGroups).closed[threads]  # the group of each copy, counted by its thread
        self.agents = machine.unit(CopyGroups).agents_of(threads)  # the column of each thread's warp in the clocks,
        self.times = machine.unit(CopyGroups).times(threads)  # and the time there that stands for the group
        self.arrived = np.zeros(len(threads), np.bool_)
        self.awaited = np.zeros(len(threads), np.bool_)
        self.signals = np.zeros(len(threads), np.bool_)  # an mbarrier tells others of their end
        self.operation: Operation

    def arrive(self, rows: np.ndarray) -> None:
        """Bring the bytes of some rows."""
        rows = rows & ~self.arrived
        if not rows.any():
            return
        self.arrived |= rows
        hosts, count = self.hosts[rows], self.count[rows]
        lanes = np.arange(self.nbytes)[None, :]
        inside = lanes < count[:, None]
        values = np.zeros((len(hosts), self.nbytes), np.uint8)
        values[inside] = HOST[1][index((self.origin[rows][:, None] + lanes)[inside], 1)]
        unit = min(self.nbytes, 8)
        words = values.view({4: np.uint32, 8: np.uint64}[unit])
        for part in range(self.nbytes // unit):
            HOST[unit][index(hosts + part * unit, unit)] = words[:, part]
        order = self.machine.unit(AsyncOrdering)
        order.arrived_many(hosts, self.nbytes, self.agents[rows], self.times[rows], self.inst)

    def finish(self, rows: np.ndarray) -> None:
        """Some rows are complete, and their threads, or an mbarrier, learn of it."""
        self.arrive(rows)
        self.awaited |= rows
        if self.arrived.all():
            self.machine.pending.complete(self.operation)


@state
class CopyGroups(UnitState):
    """The copies under way, and how many groups each thread has closed."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.closed = np.zeros(machine.T, np.int64)
        self.signals = np.zeros(machine.T, np.int64)  # how often each thread has asked for an arrival after its copies
        self.before_commit = np.zeros(machine.T, np.int64)  # and how often before its last group was closed
        self.under_way: list[Copies] = []

    def reset(self) -> None:
        self.closed[:] = self.signals[:] = self.before_commit[:] = 0
        self.under_way.clear()
        self._agents = np.full(self.machine.T // 32, -1)

    def times(self, threads: np.ndarray) -> np.ndarray:
        """The time in the clocks of what these threads copy now: it grows with every group and every signal."""
        return np.asarray(self.began + self.closed[threads] + self.signals[threads])

    @property
    def began(self) -> int:
        """The time in the clocks that stands for the first copies of each thread."""
        return self.machine.unit(Ordering).clocks.base + 1

    def agents_of(self, threads: np.ndarray) -> np.ndarray:
        """The columns in the clocks of the copies of these threads' warps."""
        warps = threads >> 5
        for warp in np.unique(warps[self._agents[warps] < 0]).tolist():
            self._agents[warp] = self.machine.unit(AsyncOrdering).agent("cp.async", warp, 32 * warp)
        return np.asarray(self._agents[warps])

    def commit(self, sel: Selection) -> None:
        self.closed[sel] += 1
        self.before_commit[sel] = self.signals[sel]

    def wait(self, threads: np.ndarray, keep: int, inst: Instruction) -> None:
        """Finish all but the newest `keep` groups of each thread."""
        ready = np.full(self.machine.T, -1, np.int64)  # the newest group that must be complete
        ready[threads] = self.closed[threads] - keep - 1
        order = self.machine.unit(AsyncOrdering)
        for copies in self.under_way:
            rows = (copies.groups <= ready[copies.threads]) & ~copies.awaited
            copies.finish(rows)
            rows &= ~copies.signals
            if rows.any():
                wrote = stamps.of_agents(copies.agents[rows], copies.times[rows], copies.inst)
                order.now_stored(copies.hosts[rows], copies.nbytes, wrote, copies.threads[rows], copies.inst)
        waiting = np.zeros(self.machine.T, np.bool_)
        waiting[threads] = True
        theirs = [copies for copies in self.current() if waiting[copies.threads].any()]
        in_none = [c.operation for c in theirs if (c.groups == self.closed[c.threads])[waiting[c.threads]].any()]
        Pending.passed(inst, in_none, ())
        copied = threads[(self._agents[threads >> 5] >= 0) & (ready[threads] >= 0)]
        if len(copied):
            times = self.began + ready[copied] + self.before_commit[copied]
            order.learn(copied >> 5, self.agents_of(copied), times)

    def signal(self, threads: np.ndarray) -> Knowledge:
        """These threads ask for an arrival when their copies so far are complete: what that will make known.

        It is what the threads know now, not what they know by then.
        """
        order, times = self.machine.unit(AsyncOrdering), self.times(threads)
        agents = self.agents_of(threads)
        self.signals[threads] += 1
        return order.knowing(self.machine.unit(Ordering).release(threads), agents, times)

    def current(self) -> list[Copies]:
        """The copies that some thread has not waited for."""
        self.under_way = [copies for copies in self.under_way if not copies.awaited.all()]
        return self.under_way


@opcode("cp.async.ca", "cp.async.cg", unit="cp_async", role="copies", starts="cp.async",
        section="9.7.9.25.3.1", results=0,
        forms=".shared.global{.L2 hints} [dst], [src], 4 | 8 | 16{, source bytes | ignore-src}{, policy}")  # fmt: skip
def decode_cp_async(inst: Instruction, machine: Machine) -> Step:
    """Copy a few bytes per thread; a smaller source size fills the rest with zeros."""
    to, source, size, *rest = inst.operands
    if not isinstance(size, Immediate):
        raise unsupported(inst, "the size must be a constant")
    known = {"shared", "shared::cta", "global", "L2::cache_hint", "L2::64B", "L2::128B", "L2::256B"}
    if not set(inst.parts[3:]) <= known:
        raise unsupported(inst, f"modifier .{sorted(set(inst.parts[3:]) - known)[0]}")
    if "L2::cache_hint" in inst.parts:
        rest = rest[:-1]
    nbytes = int(size.value)
    if nbytes not in (4, 8, 16) or (inst.parts[2] == "cg" and nbytes != 16):
        raise unsupported(inst, f"a copy of {nbytes} bytes")
    get_to, get_from = addresses(inst, machine, to), addresses(inst, machine, source)
    taken = _source_bytes(machine, rest[0] if rest else None, nbytes)
    access, to_shared = (machine.checks.uses(Access(inst.index, nbytes, kind)) for kind in (Kind.LOAD, Kind.COPY))

    def step(sel: Selection) -> None:
        threads = threads_of(sel)
        count, origin = taken(threads), get_from(threads)
        check_alignment(origin, nbytes, threads, "global")
        some = count > 0
        if some.all() and int(count.min()) == nbytes:
            machine.memory.locate(origin, threads, access)
        elif some.any():
            for length in np.unique(count[some]).tolist():
                these = count == length
                machine.memory.reach(origin[these], length, threads[these], False)
        hosts = machine.shared.reach(get_to(threads), nbytes, threads, True)
        machine.unit(AsyncOrdering).claim_many(hosts, threads, to_shared)
        copies = Copies(machine, threads, hosts, origin, count, nbytes, inst.index)
        what = f"the cp.async of {nbytes} bytes per thread"
        everything = np.ones(len(threads), np.bool_)
        copies.operation = Operation(what, inst, int(threads[0]), lambda: copies.arrive(everything),
                                     writes=(scattered(hosts, nbytes),))  # fmt: skip
        machine.unit(CopyGroups).under_way.append(copies)
        machine.pending.issue(copies.operation)

    return step


def _source_bytes(machine: Machine, operand: Operand | None, nbytes: int) -> Callable[[np.ndarray], np.ndarray]:
    """How many bytes each thread reads: all, as many as a register says, or none where a predicate is true."""
    if operand is None:
        return lambda threads: np.full(len(threads), nbytes)
    if isinstance(operand, Register) and machine.register_dtype(operand) == np.bool_:
        ignored = machine.predicate(operand)
        return lambda threads: np.where(ignored(threads), 0, nbytes)
    given = machine.source(operand, np.uint32)
    return lambda threads: np.minimum(given[threads].astype(np.int64), nbytes)


@opcode("cp.async.commit_group", unit="cp_async", section="9.7.9.25.3.2", results=0)
def decode_commit(inst: Instruction, machine: Machine) -> Step:
    """Close the thread's group of copies."""
    return lambda sel: machine.unit(CopyGroups).commit(sel)


@opcode(
    "cp.async.wait_group", "cp.async.wait_all", unit="cp_async", role="waits", forms="N, or all",
    section="9.7.9.25.3.3", results=0,
)
def decode_wait(inst: Instruction, machine: Machine) -> Step:
    """Wait until at most N of the thread's groups are under way."""
    every = inst.parts[2] == "wait_all"
    keep = 0 if every or not isinstance(inst.operands[0], Immediate) else int(inst.operands[0].value)

    def step(sel: Selection) -> None:
        threads = threads_of(sel)
        if every:
            machine.unit(CopyGroups).commit(threads)
        machine.unit(CopyGroups).wait(threads, keep, inst)

    return step


@opcode("cp.async.mbarrier.arrive", unit="cp_async", role="arrives", forms="{.noinc}.shared.b64 [addr]",
        section="9.7.13.15.15",
        results=0)  # fmt: skip
def decode_arrive(inst: Instruction, machine: Machine) -> Step:
    """Arrive at an mbarrier when the thread's earlier copies are complete."""
    address = addresses(inst, machine, inst.operands[0])
    counts = "noinc" in inst.parts

    def step(sel: Selection) -> None:
        threads = threads_of(sel)
        hosts = machine.shared.reach(address(threads), 8, threads, False, inst.index)
        for host in np.unique(hosts).tolist():
            mine = threads[hosts == host]
            barrier = machine.unit(Mbarriers).at(host, mine)
            if not counts:
                barrier.pending += len(mine)
            machine.pending.issue(_arrival(machine, inst, barrier, mine))

    return step


def _arrival(machine: Machine, inst: Instruction, barrier: Mbarrier, threads: np.ndarray) -> Operation:
    """Once the copies that threads have issued so far are complete, they count as arrived."""
    before = [(copies, np.isin(copies.threads, threads)) for copies in machine.unit(CopyGroups).current()]
    for copies, rows in before:
        copies.signals |= rows
    known = machine.unit(CopyGroups).signal(threads)

    def run() -> None:
        for copies, rows in before:
            copies.finish(rows)
        machine.unit(Mbarriers).arrive(barrier, len(threads), inst, threads, known)

    return Operation("the arrival that follows cp.async", inst, int(threads[0]), run, wakes=True)
