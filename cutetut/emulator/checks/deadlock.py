"""Nobody can go on: who waits for what, who has arrived there, and who could still come.

Who could still come is read from the program: a waiting warp counts if a path leads from where it
stands to an instruction that has arrived at this barrier, or might.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from ..errors import Deadlock, DivergentBarrier, EmulatorError
from ..ptx.syntax import Immediate
from ..units.cluster import ClusterBarriers
from ..units.mbarrier import Mbarriers
from ..units.named_barriers import Barriers
from ..units.setmaxnreg import RegisterPool

if TYPE_CHECKING:
    from ..machine.scheduler import Scheduler
    from ..ptx.syntax import Instruction
    from ..units.mbarrier import Mbarrier, Waiter

READY, WAITING, PARKED, DONE = range(4)

# what usually causes a deadlock
BYTES = "the byte count of expect_tx against the bytes that the copies bring"
ARRIVALS = "the arrival count of mbarrier_init against the threads that arrive"
PARITY = "the parity of the waits: on a barrier with no phase complete yet, parity 1 passes and parity 0 waits"
THREADS = "the number and the thread count of each named barrier"
REGISTERS = "setmaxnreg.dec in the warpgroups that need fewer registers, and the sum over all warps"
SPINNING = "who writes what the loop looks at, and whether those threads can get there"
CLUSTER = "cluster_arrive by every thread of every CTA of the cluster"


def ranges(numbers: Iterable[int]) -> str:
    """[0, 1, 2, 5] as "0-2, 5"."""
    parts: list[list[int]] = []
    for n in sorted(set(numbers)):
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)


class Report:
    """What keeps a machine from going on; made once, when it is stuck."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler, self.machine = scheduler, scheduler.machine
        self.status, self.pc = scheduler.status, scheduler.pc
        self._reachable: dict[int, set[int]] = {}

    def error(self) -> EmulatorError:
        """DivergentBarrier for lanes whose mates can never join them, otherwise Deadlock."""
        parked = np.flatnonzero(self.status == PARKED)
        for warp in np.unique(parked // 32).tolist():
            if (found := self._divergent(warp)) is not None:
                return found
        self.scheduler.current = None
        lines = [*self._named(), *self._mbarriers(), *self._clusters(), *self._registers(), *self._parked(parked)]
        lines += [*self._spinning(), *self._exited()]
        what = "every thread that is left waits, and nothing can wake it:\n" + "\n".join(lines)
        return Deadlock(what, hint="; ".join(self._hints()))

    def _hints(self) -> list[str]:
        """What usually causes waits like these."""
        m = self.machine
        waited = [barrier for barrier in m.unit(Mbarriers).objects.values() if barrier.waiters]
        causes = [
            (BYTES, any(barrier.bytes > 0 and not barrier.pending for barrier in waited)),
            (ARRIVALS, any(barrier.pending and barrier.arrivals for barrier in waited)),
            (PARITY, any(barrier.pending and not barrier.arrivals for barrier in waited)),
            (THREADS, bool(self.machine.unit(Barriers).pending)),
            (REGISTERS, bool(m.unit(RegisterPool).requests)),
            (SPINNING, bool((self.status == READY).any())),
            (CLUSTER, bool(m.unit(ClusterBarriers).waiting.any())),
        ]
        return [text for text, applies in causes if applies]

    # -- lanes that wait for their mates ------------------------------------------------------

    def _divergent(self, warp: int) -> DivergentBarrier | None:
        """Lanes of a warp stand at a warp-wide instruction that the others have left behind or never reach."""
        s = self.scheduler
        mates = np.arange(32 * warp, 32 * warp + 32)
        here = mates[self.status[mates] == PARKED]
        number = int(self.pc[here].min())
        here = here[self.pc[here] == number]
        block = s.program.blocks[number]
        if block.joins_warpgroup:
            first = warp * 32 - int(self.machine.in_cta[warp * 32]) % 128
            mates = np.arange(first, min(first + 128, self.machine.T))
            mates = mates[self.machine.cta_of[mates] == self.machine.cta_of[here[0]]]
        awaited = mates[self.status[mates] == WAITING]
        if any(number in self._reach(int(at)) for at in np.unique(self.pc[awaited])):
            return None  # they are only late: what they wait for is the fault
        inst = block.instructions[0]
        s.current = inst
        whole = "all four warps of a warpgroup" if block.joins_warpgroup else "all lanes of a warp"
        who = f"lanes {ranges((here % 32).tolist())} of the warp"
        if block.joins_warpgroup and len(here) == 32:
            others = mates[(self.status[mates] == PARKED) & (self.pc[mates] == number)]
            who = f"{self._warps(others)} of this warpgroup"
        what = ".".join(inst.parts[:2])
        some = "warps of a warpgroup" if block.joins_warpgroup else "threads of a warp"
        return DivergentBarrier(
            f"{what} needs {whole} together, but only {who} reached it; {self._others(mates, here, number)}",
            threads=here[:1],
            hint=f"a branch around this line that only some {some} take",
        )

    def _others(self, mates: np.ndarray, here: np.ndarray, number: int) -> str:
        one_warp = len(mates) == 32
        texts = []
        for status, text in ((WAITING, "wait at"), (PARKED, "stand at"), (DONE, "have exited")):
            group = mates[self.status[mates] == status]
            if status == PARKED:
                group = group[self.pc[group] != number]
            at = [-1] if status == DONE else np.unique(self.pc[group]).tolist()
            for pc in at:
                some = group if status == DONE else group[self.pc[group] == pc]
                if not len(some):
                    continue
                who = f"lanes {ranges((some % 32).tolist())}" if one_warp else self._warps(some)
                if status == DONE:
                    texts.append(f"{who} {text}")
                    continue
                inst = self._waits_at(pc) if status == WAITING else self.scheduler.program.blocks[pc].instructions[0]
                texts.append(f"{who} {text} {inst.opcode} ({self.short(inst)})")
        return "; ".join(texts) or "the others have exited"

    def _waits_at(self, pc: int) -> Instruction:
        """A waiting thread's program counter is already behind the instruction it waits at."""
        return self.scheduler.program.blocks[pc - 1].instructions[-1]

    def _parked(self, parked: np.ndarray) -> list[str]:
        lines = []
        for pc in np.unique(self.pc[parked]).tolist():
            inst = self.scheduler.program.blocks[pc].instructions[0]
            threads = parked[self.pc[parked] == pc]
            lines.append(
                f"  {self._who(threads)}: the other lanes of the same warps wait at {inst.opcode} ({self.short(inst)})"
            )
        return lines

    # -- barriers -----------------------------------------------------------------------------

    def _named(self) -> list[str]:
        lines = []
        for (cta, number), barrier in sorted(self.machine.unit(Barriers).pending.items()):
            expected = barrier.expected or self.machine.unit(Barriers).live_threads(cta)
            for inst, threads in _by_instruction(barrier.waiting):
                lines.append(
                    f"  {self._who(threads)} wait at barrier {number}: {barrier.arrived} of {expected} threads have "
                    f"arrived ({self.short(inst)})"
                )
            if not barrier.waiting:
                continue
            for inst, threads in _by_instruction(barrier.passing):
                lines.append(f"    arrived without waiting: {self._warps(threads)} ({self.short(inst)})")
            others = self.machine.unit(Barriers).other_counts(cta, number, barrier.expected)
            for count, inst, thread in others:
                who = self._warps(np.array([thread]))
                lines.append(f"    arrived in other phases with a count of {count}: {who} ({self.short(inst)})")
            arrived = np.concatenate([t for _, t in barrier.waiting + barrier.passing])
            lines.append(f"    could still arrive: {self._could_meet(cta, number, arrived)}")
        return lines

    def _could_meet(self, cta: int, number: int, arrived: np.ndarray) -> str:
        def arrives(inst: Instruction) -> bool:
            if inst.parts[0] not in ("bar", "barrier") or inst.parts[1] in ("warp", "cluster"):
                return False
            name = inst.operands[1 if "red" in inst.parts else 0]
            return not isinstance(name, Immediate) or int(name.value) == number

        away = np.setdiff1d(np.flatnonzero(self.machine.cta_of == cta), arrived)
        return self._candidates(away, arrives)

    def _mbarriers(self) -> list[str]:
        lines = []
        for barrier in self.machine.unit(Mbarriers).objects.values():
            for waiter in barrier.waiters:
                lines.append(self._waiter(barrier, waiter))
            if barrier.waiters:
                lines += self._provides(barrier)
        return lines

    def _waiter(self, barrier: Mbarrier, waiter: Waiter) -> str:
        source = self.scheduler.place(waiter.inst, None)
        line = f"  {self._who(waiter.threads)} wait for phase {int(waiter.phase[0])} of the {barrier.describe()}"
        statement = " ".join(part.strip() for part in source.source_text.splitlines())
        return f"{line}\n    waiting here: {self.short(waiter.inst)}  {statement}".rstrip()

    def _provides(self, barrier: Mbarrier) -> list[str]:
        """What a phase has got so far, and where the rest could come from."""
        m = self.machine
        made = (
            f"    each phase takes {_plural(barrier.count, 'arrival')} (mbarrier_init: {self.short(barrier.made_with)})"
        )
        lines = [made]
        for arrival in barrier.arrivals:
            text = f"{arrival.expected} bytes announced" if arrival.expected else _plural(arrival.count, "arrival")
            lines.append(f"    this phase: {text} by {self._warps(arrival.threads)} ({self.short(arrival.inst)})")
        if not barrier.arrivals:
            lines.append("    this phase: nobody has arrived yet")
        if barrier.bytes > 0:
            expected = sum(arrival.expected for arrival in barrier.arrivals)
            lines.append(
                f"    bytes: {expected} announced, {expected - barrier.bytes} delivered, {barrier.bytes} missing; "
                "no copy to this barrier is under way"
            )
        if barrier.pending:
            cluster = np.flatnonzero(m.cta_of // m.cluster_size == barrier.cta // m.cluster_size)
            could = self._candidates(cluster, lambda inst: self._may_arrive(inst, barrier))
            lines.append(f"    could still arrive: {could}")
        return lines

    def _may_arrive(self, inst: Instruction, barrier: Mbarrier) -> bool:
        """Whether an instruction arrives at barriers, and has not shown that it belongs to others."""
        if not inst.opcode.startswith(("mbarrier.arrive", "cp.async.mbarrier.arrive")):
            return False
        used = self.machine.unit(Mbarriers).used_by.get(inst.index)
        body = self.machine.kernel.body
        return used is None or any(_same_line(body[other], barrier.made_with) for other in used)

    def _clusters(self) -> list[str]:
        barriers, m = self.machine.unit(ClusterBarriers), self.machine
        lines = []
        for cluster in np.unique(barriers.cluster_of[barriers.waiting]).tolist():
            mine = (barriers.cluster_of == cluster) & (self.status != DONE)
            waiting = np.flatnonzero(mine & barriers.waiting)
            for cta in np.unique(m.cta_of[waiting]).tolist():
                here = waiting[m.cta_of[waiting] == cta]
                inst = self._waits_at(int(self.pc[here[0]]))
                lines.append(f"  {self._who(here)} wait at the cluster's barrier ({self.short(inst)})")
            missing = np.flatnonzero(mine & ~barriers.arrived)
            for cta in np.unique(m.cta_of[missing]).tolist():
                lines.append(f"    not arrived: {self._who(missing[m.cta_of[missing] == cta])}")
            could = self._candidates(missing, lambda inst: inst.opcode.startswith("barrier.cluster.arrive"))
            lines.append(f"    could still arrive: {could}")
        return lines

    def _registers(self) -> list[str]:
        lines = []
        requests = self.machine.unit(RegisterPool).requests
        for inst, threads in _by_instruction([(r.inst, r.threads) for r in requests]):
            one = next(r for r in requests if r.inst is inst)
            lines.append(
                f"  {self._who(threads)} wait at setmaxnreg.inc {one.count} ({self.short(inst)}): "
                f"{one.lacking(self.machine)}"
            )
            givers = np.flatnonzero(self.machine.cta_of == self.machine.cta_of[threads[0]])
            could = self._candidates(givers, lambda inst: inst.opcode.startswith("setmaxnreg.dec"))
            lines.append(f"    could still give registers back: {could}")
        return lines

    def _spinning(self) -> list[str]:
        """Threads that look at memory again and again."""
        m, lines = self.machine, []
        ready = np.flatnonzero(self.status == READY)
        for cta in np.unique(m.cta_of[ready]).tolist():
            here = ready[m.cta_of[ready] == cta]
            inst = self.scheduler.program.blocks[int(self.pc[here[0]])].instructions[0]
            lines.append(f"  {self._who(here)} look again and again at memory that nobody changes ({self.short(inst)})")
        return lines

    # -- who and where ------------------------------------------------------------------------

    def _exited(self) -> list[str]:
        m = self.machine
        gone = np.flatnonzero((self.status == DONE) & m.live)
        ctas = [c for c in np.unique(m.cta_of[gone]).tolist() if (self.status[m.cta_of == c] != DONE).any()]
        return [f"  {self._who(gone[m.cta_of[gone] == c])} have exited" for c in ctas]

    def _candidates(self, threads: np.ndarray, arrives: Callable[[Instruction], bool]) -> str:
        """Which of some threads can reach an instruction, and where it is."""
        found: dict[str, list[int]] = {}
        for thread in threads[self.status[threads] != DONE].tolist():
            for number in self._reach(int(self.pc[thread])):
                for inst in self.scheduler.program.blocks[number].instructions:
                    if arrives(inst):
                        found.setdefault(self.short(inst), []).append(thread)
        if not found:
            return "nobody: no warp that is left can reach an instruction that does"
        texts = [f"{self._warps(np.array(threads))} ({where})" for where, threads in found.items()]
        return ", ".join(texts) + ", once past what they wait for themselves"

    def _reach(self, start: int) -> set[int]:
        """The blocks that can be executed from a block on."""
        if start not in self._reachable:
            blocks, seen, work = self.scheduler.program.blocks, {start}, [start]
            while work:
                for following in blocks[work.pop()].successors:
                    if following not in seen:
                        seen.add(following)
                        work.append(following)
            self._reachable[start] = seen
        return self._reachable[start]

    def short(self, inst: Instruction) -> str:
        """ "kernel.py:12", or the PTX line where there is no better."""
        place = self.scheduler.place(inst, None)
        return place.source or f"PTX line {place.ptx_line}"

    def _warps(self, threads: np.ndarray) -> str:
        numbers = (self.machine.in_cta[threads] // 32).tolist()
        many = len(set(numbers)) > 1
        text = f"warp{'s' if many else ''} {ranges(numbers)}"
        ctas = np.unique(self.machine.cta_of[threads])
        if self.machine.cluster_size > 1 and len(ctas) == 1:
            return f"{text} of CTA {self._cta(int(ctas[0]))}"
        return text

    def _who(self, threads: np.ndarray) -> str:
        numbers = (self.machine.in_cta[threads] // 32).tolist()
        return f"CTA {self._cta(int(self.machine.cta_of[threads[0]]))}, warps [{ranges(numbers)}]"

    def _cta(self, cta: int) -> tuple[int, ...]:
        return tuple(int(v) for v in self.machine.cta_ids[cta])


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _same_line(a: Instruction, b: Instruction) -> bool:
    if a.loc is None or b.loc is None:
        return a.index == b.index
    return (a.loc.file, a.loc.line) == (b.loc.file, b.loc.line)


def _by_instruction(arrivals: list[tuple[Instruction, np.ndarray]]) -> list[tuple[Instruction, np.ndarray]]:
    groups: dict[int, tuple[Instruction, list[np.ndarray]]] = {}
    for inst, threads in arrivals:
        groups.setdefault(inst.index, (inst, []))[1].append(threads)
    return [(inst, np.concatenate(parts)) for inst, parts in groups.values()]
