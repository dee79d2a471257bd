"""Counters like those of a profiler: what each source line asked of the machine.

Instructions are those of PTX.  The assembler turns them into fewer or more of its own, except for memory
accesses and matrix instructions, which it keeps one to one: those counts are the hardware's.  How often a
waiting loop turns is the emulator's own.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..machine.opcodes import Around, Opcode, Selection, Step, Watched
from .meters import METERS, scalar_flops
from .tally import Tally

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction

Line = tuple[str, int]  # file and line; ("", 0) for what the compiler attributes to no line


class Counting:
    """An observer (observe.py) that adds up what its launches do, for each source line."""

    def __init__(self) -> None:
        self.launches = 0
        self.lines: dict[Line, Tally] = {}

    def watch(self, machine: Machine) -> LaunchCounter:
        """A launch begins."""
        self.launches += 1
        return LaunchCounter(self.lines, machine)

    def total(self) -> Tally:
        """The sum over all lines."""
        total = Tally()
        for tally in self.lines.values():
            total.add(tally)
        return total


class LaunchCounter:
    """The counters of one launch, which go in front of each instruction's own step."""

    def __init__(self, lines: dict[Line, Tally], machine: Machine) -> None:
        self.lines, self.machine = lines, machine

    def executed(self, step: Step, inst: Instruction, entry: Opcode) -> Step:
        """Count the threads that execute it and what they access."""
        tally, kind = self._tally(inst), kind_of(inst, entry)
        if entry.is_arithmetic:
            counts = [Count(tally.threads, kind)]
            if flops := scalar_flops(inst):
                counts.append(Count(tally.arithmetic, ("scalar", inst.parts[-1]), flops))
            issued = [Count(tally.warps, kind)] if inst.guard is None else []  # where it is issued, it executes
            return Counted(step, counts, issued, self.machine.warp_of)
        make = METERS.get(entry.mnemonic)
        meter = None if make is None else make(inst, self.machine, tally)

        def run(sel: Selection) -> object:
            tally.threads[kind] += _threads(sel)
            if meter is not None:
                meter(sel)  # before the step, which may overwrite the register that holds the address
            return step(sel)

        return run

    def issued(self, step: Step, inst: Instruction, entry: Opcode) -> Step:
        """Count the warps it is issued for, also those in which no guard is true."""
        if entry.is_arithmetic and inst.guard is None:
            return step  # counted where it executes
        tally, kind, warp_of = self._tally(inst), kind_of(inst, entry), self.machine.warp_of

        def run(sel: Selection) -> None:
            tally.warps[kind] += _warps(sel, warp_of)
            step(sel)

        return run

    def _tally(self, inst: Instruction) -> Tally:
        line = (inst.loc.file, inst.loc.line) if inst.loc is not None else ("", 0)
        return self.lines.setdefault(line, Tally())


class Count(NamedTuple):
    """What each thread, or each warp, adds to a counter."""

    counter: Counter[Any]
    key: Hashable
    each: int = 1


class Counted(Watched):
    """An arithmetic instruction that is counted: what a run of them adds is known before it executes."""

    def __init__(self, step: Step, threads: list[Count], warps: list[Count], warp_of: np.ndarray) -> None:
        """threads, warps: what each thread adds that executes it, and each warp."""
        super().__init__(step, for_others=False)
        self.threads, self.warps, self.warp_of = threads, warps, warp_of

    def __call__(self, sel: Selection) -> None:
        self._add(self.threads, self.warps, sel)
        self.step(sel)

    def together(self, several: Sequence[Watched]) -> Around:
        """Add the sums once for the whole run."""
        mine = [one for one in several if isinstance(one, Counted)]
        threads, warps = _sums([one.threads for one in mine]), _sums([one.warps for one in mine])
        return Around(before=lambda sel: True, after=lambda sel: self._add(threads, warps, sel))

    def _add(self, threads: list[Count], warps: list[Count], sel: Selection) -> None:
        number = _threads(sel)
        for counter, key, each in threads:
            counter[key] += each * number
        if warps:
            number = _warps(sel, self.warp_of)
            for counter, key, each in warps:
                counter[key] += each * number


def _sums(counts: list[list[Count]]) -> list[Count]:
    """The same with one count for each counter and key."""
    sums: dict[tuple[int, Hashable], Count] = {}
    for one in itertools.chain.from_iterable(counts):
        place = id(one.counter), one.key
        before = sums[place].each if place in sums else 0
        sums[place] = one._replace(each=before + one.each)
    return list(sums.values())


def kind_of(inst: Instruction, entry: Opcode) -> str:
    """What an instruction is counted as: "fma.f32" with its type, "ld.global" with its space, or its mnemonic."""
    if entry.unit == "alu" and inst.parts[-1] != entry.mnemonic:
        return f"{entry.mnemonic}.{inst.parts[-1]}"
    if entry.mnemonic in ("ld", "st", "atom", "red"):
        spaces = [p for p in inst.parts if p.split("::")[0] in ("global", "shared", "local", "param", "const")]
        return ".".join([entry.mnemonic, *spaces[:1]])
    return entry.mnemonic


def _threads(sel: Selection) -> int:
    return sel.stop - sel.start if isinstance(sel, slice) else len(sel)


def _warps(sel: Selection, warp_of: np.ndarray) -> int:
    if isinstance(sel, slice):
        return (sel.stop - 1) // 32 - sel.start // 32 + 1
    return len(np.unique(warp_of[sel]))
