"""Threads that wait with nobody left to wake them: what a unit reports about them, and what it can ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from ..findings import Location, Side
from ..ptx.syntax import Address, Instruction, Operand, Register, Symbol, registers_in
from .machine import Machine
from .threads import DONE

# How surely a cause is the one, in a deadlock that may have several
CERTAIN, SPINS, NOBODY_EVER, TOO_FEW, OTHERWISE = range(5)
PLACES = 4  # of one kind that a line names

Candidates = dict[str, list[int]]  # source line -> the threads that can reach it


@dataclass(frozen=True)
class Cause:
    """What to look at, and how surely it is the mistake (the smaller `rank`, the surer)."""

    rank: int
    text: str


@dataclass
class Wait:
    """Threads that wait for one thing.

    The lines say who waits, for what, and what is missing; `helpers` are the threads that could still bring it
    about, once past what they wait for themselves.
    """

    threads: np.ndarray
    lines: list[str]
    helpers: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    causes: list[Cause] = field(default_factory=list)
    sides: list[Side] = field(default_factory=list)  # the same as data,
    locations: tuple[Location, ...] = ()  # and what is waited for


class Report:
    """A machine that cannot go on: who stands where, and who can still get where."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.scheduler = scheduler = machine.scheduler
        self.program = scheduler.program
        self.status = scheduler.status
        self.pc = scheduler.pc if scheduler.common is None else np.full_like(scheduler.pc, scheduler.common)
        self._reachable: dict[int, set[int]] = {}
        self._instructions: dict[str, Instruction] = {}  # what `candidates` calls each instruction

    # -- where --------------------------------------------------------------------------------

    def reach(self, start: int) -> set[int]:
        """The blocks that can be executed from a block on."""
        if start not in self._reachable:
            blocks, seen, work = self.program.blocks, {start}, [start]
            while work:
                for following in blocks[work.pop()].successors:
                    if following not in seen:
                        seen.add(following)
                        work.append(following)
            self._reachable[start] = seen
        return self._reachable[start]

    def waits_at(self, pc: int) -> Instruction:
        """The instruction that a sleeping thread is in: its program counter is already behind it."""
        return self.program.blocks[pc - 1].instructions[-1]

    def short(self, inst: Instruction) -> str:
        """ "kernel.py:12", or the PTX line where nothing better is known."""
        place = self.scheduler.place(inst, None)
        return place.source or f"PTX line {place.ptx_line}"

    def line(self, inst: Instruction) -> str:
        """The source line itself, "kernel.py:12  x = y"."""
        return f"{self.short(inst)}  {self.scheduler.place(inst, None).source_text.strip()}".rstrip()

    # -- who ----------------------------------------------------------------------------------

    def candidates(
        self, threads: np.ndarray, does: Callable[[Instruction, np.ndarray], np.ndarray | bool]
    ) -> Candidates:
        """Which of some threads can reach an instruction that does something (for all or some of them), by its line."""
        found: dict[str, set[int]] = {}
        living = threads[self.status[threads] != DONE]
        for pc in np.unique(self.pc[living]).tolist():
            here = living[self.pc[living] == pc]
            for number in sorted(self.reach(pc)):
                for inst in self.program.blocks[number].instructions:
                    some = here[np.broadcast_to(does(inst, here), here.shape)]
                    if len(some):
                        self._instructions[self.short(inst)] = inst
                        found.setdefault(self.short(inst), set()).update(some.tolist())
        return {place: sorted(who) for place, who in found.items()}

    def address(self, operand: Operand, threads: np.ndarray) -> np.ndarray | None:
        """Where an operand that threads have yet to use will point, if its register does not change any more."""
        base = operand.base if isinstance(operand, Address) else None
        offset = operand.offset if isinstance(operand, Address) else 0
        if isinstance(base, Symbol):
            return np.full(len(threads), self.machine.symbol_address(base.name) + offset)
        if not isinstance(base, Register):
            return None
        coming = set().union(*(self.reach(pc) for pc in np.unique(self.pc[threads]).tolist()))
        written = {register for number in coming for inst in self.program.blocks[number].instructions
                   for register in registers_in(inst.operands[:1])}  # fmt: skip
        if base in written:
            return None
        return self.machine.registers[base.name][threads].astype(np.int64) + offset

    def named(self, found: Candidates) -> str:
        """Candidates in words; one line for all places that the same threads can reach."""
        groups: dict[str, list[str]] = {}
        for place, threads in found.items():
            groups.setdefault(self.warps(np.array(threads)), []).append(place)
        texts = []
        for who, places in groups.items():
            more = f" and {len(places) - PLACES} more" if len(places) > PLACES else ""
            texts.append(f"{who} ({', '.join(places[:PLACES])}{more})")
        return ", ".join(texts)

    def could(self, found: Candidates) -> str:
        """Candidates, or that there are none, as the end of "could still arrive: "."""
        if not found:
            return "nobody: no warp that is left can reach an instruction that does"
        return f"{self.named(found)}, once past what they wait for themselves"

    def sides(self, role: str, inst: Instruction | None, threads: np.ndarray, at: str) -> list[Side]:
        """Threads at an instruction, as data: a side for each of their CTAs; `at` names the barrier."""
        found, machine = [], self.machine
        for cta in np.unique(machine.cta_of[threads]).tolist():
            mine = threads[machine.cta_of[threads] == cta]
            side = self.scheduler.place(inst, int(mine[0]), whole_warp=True).side(role=role)
            numbers = machine.in_cta[mine]
            warps = tuple(np.unique(numbers // 32).tolist())
            lanes = tuple(np.unique(numbers % 32).tolist()) if len(warps) == 1 and len(mine) < 32 else ()
            found.append(replace(side, warps=warps, lanes=lanes, at=at))
        return found

    def missing(self, found: Candidates, at: str) -> list[Side]:
        """Candidates as data: who should arrive, and where."""
        return [side for place, threads in found.items()
                for side in self.sides("missing", self._instructions.get(place), np.array(threads), at)]  # fmt: skip

    def warps(self, threads: np.ndarray) -> str:
        """ "warps 4-7"; in a cluster, or where they are of several CTAs, with these."""
        threads = np.asarray(threads)
        ctas = np.unique(self.machine.cta_of[threads]).tolist()
        texts = []
        for cta in ctas:
            numbers = (self.machine.in_cta[threads[self.machine.cta_of[threads] == cta]] // 32).tolist()
            text = f"warp{'s' if len(set(numbers)) > 1 else ''} {ranges(numbers)}"
            several = self.machine.cluster_size > 1 or len(ctas) > 1
            texts.append(f"{text} of CTA {self.cta(cta)}" if several else text)
        return " and ".join(texts)

    def who(self, threads: np.ndarray) -> str:
        """ "CTA (0, 0, 0), warps [4-7]"."""
        numbers = (self.machine.in_cta[threads] // 32).tolist()
        return f"CTA {self.cta(int(self.machine.cta_of[threads[0]]))}, warps [{ranges(numbers)}]"

    def cta(self, cta: int) -> tuple[int, ...]:
        """The coordinates of a resident CTA."""
        return tuple(int(v) for v in self.machine.cta_ids[cta])


def threads_in(found: Candidates) -> np.ndarray:
    """All threads among candidates."""
    return np.array(sorted({thread for threads in found.values() for thread in threads}), np.int64)


def ranges(numbers: Iterable[int]) -> str:
    """[0, 1, 2, 5] as "0-2, 5"."""
    parts: list[list[int]] = []
    for n in sorted(set(numbers)):
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)


def plural(count: int, word: str) -> str:
    """ "1 arrival", "2 arrivals"."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def by_instruction(arrivals: list[tuple[Instruction, np.ndarray]]) -> list[tuple[Instruction, np.ndarray]]:
    """The threads of all entries with the same instruction together."""
    groups: dict[int, tuple[Instruction, list[np.ndarray]]] = {}
    for inst, threads in arrivals:
        groups.setdefault(inst.index, (inst, []))[1].append(threads)
    return [(inst, np.concatenate(parts)) for inst, parts in groups.values()]
