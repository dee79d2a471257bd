"""Runs of arithmetic inside a basic block, executed in machine code once they have run often enough.

numpy is the reference: a run first executes the steps that the units decoded, and so does whatever has no machine
code, or is checked or watched at run time. Both give the same bits (tests/emulator/test_compiled_runs.py).

Compiling costs time, so a run counts what numpy has spent on it, by an estimate that depends on the work alone, and
compiles when that is as much as compiling will cost: a kernel never takes much more than twice as long as without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..machine.opcodes import Around, Watched
from ..machine.program import Plan
from ..machine.threads import Selection, Step
from ..ptx.syntax import Instruction
from .code import LANES
from .engine import Chain, affordable, enabled, spend
from .recipe import Recipe

if TYPE_CHECKING:
    from ..machine.machine import Machine

SHORTEST = 2  # instructions; one alone gains little
Key = tuple[int, int, bool, bool]  # a run's first instruction, how many; whether masked; whether CTAs form clusters

# estimates in microseconds, of what was measured on one core of a server of 2024
PER_STEP, PER_THREAD = 6.0, 0.006  # numpy's time for one instruction, most of them of floats
READING = 20.0  # one instruction of a kernel: its form and its operands
BATCH, COMPILING = 2_000.0, 700.0  # the forms of a run that are new: all together, and each
LINKING = 2.0  # one instruction of one launch


@dataclass
class History:
    """What earlier launches of a kernel have found out about its runs."""

    heat: dict[Key, float] = field(default_factory=dict)  # microseconds that numpy has spent
    recipes: dict[Key, Recipe] = field(default_factory=dict)


@dataclass(frozen=True)
class Plain:
    """An arithmetic instruction: its own step with its guard, and what a run may do once around all such steps."""

    step: Step
    watched: tuple[Watched, ...] = ()


def plan(
    machine: Machine, history: History, instructions: Sequence[Instruction], steps: Sequence[Step],
    plain: Sequence[Plain | None],
) -> Plan:  # fmt: skip
    """The steps of a block, with every run of arithmetic as one; plain: None for what cannot be part of a run."""
    result: Plan = []
    first = 0
    while first < len(steps):
        last = first
        while last < len(steps) and plain[last] is not None:
            last += 1
        if last - first >= SHORTEST and enabled():
            parts = [part for part in plain[first:last] if part is not None]
            run = Run(machine, history, instructions[first:last], steps[first:last], parts)
            result.append((run, last - first))
        else:
            last = max(last, first + 1)
            result += [(step, 1) for step in steps[first:last]]
        first = last
    return result


class Run:
    """Consecutive arithmetic instructions of one block."""

    def __init__(
        self, machine: Machine, history: History, instructions: Sequence[Instruction], steps: Sequence[Step],
        parts: Sequence[Plain],
    ) -> None:  # fmt: skip
        """steps: with all that is around them; parts: the same without."""
        self.machine, self.history, self.instructions, self.steps = machine, history, instructions, steps
        self.own = [part.step for part in parts]
        self.whole, self.masked = Side(self, False), Side(self, True)
        self.around = _around(parts)
        self.reached = 0  # the step that executes alone, for an error

    def __call__(self, sel: Selection) -> None:
        if isinstance(sel, slice) and not (sel.start | sel.stop) & (LANES - 1):
            side, start, stop = self.whole, sel.start, sel.stop
        else:
            first, last = (sel.start, sel.stop - 1) if isinstance(sel, slice) else (int(sel[0]), int(sel[-1]))
            side, start, stop = self.masked, first & -LANES, (last | LANES - 1) + 1
        if not side.ready(sel) or not all(around.before(sel) for around in self.around):
            for number, step in enumerate(self.steps):
                self.reached = number
                step(sel)
            return
        side.execute(sel, start, stop)
        for around in self.around:
            around.after(sel)


def _around(parts: Sequence[Plain]) -> list[Around]:
    """What to do around a run of these, for each kind of watched steps among them."""
    kinds: dict[type[Watched], list[Watched]] = {}
    for part in parts:
        for watched in part.watched:
            kinds.setdefault(type(watched), []).append(watched)
    return [several[0].together(several) for several in kinds.values()]


class Side:
    """A run as it executes for whole vectors of threads, or (masked) for some threads of them."""

    def __init__(self, run: Run, masked: bool) -> None:
        self.run, self.masked = run, masked
        # a launch may check registers that another one does not, and then its runs end elsewhere
        self.key = (run.instructions[0].index, len(run.instructions), masked, run.machine.cluster_size > 1)
        self.pieces: list[Chain | Step] = []

    def execute(self, sel: Selection, start: int, stop: int) -> None:
        """Run for a selection; start and stop are multiples of LANES around it."""
        mask = None
        if self.masked:
            chosen = np.zeros(self.run.machine.T, np.bool_)
            chosen[sel] = True
            mask = chosen.ctypes.data
        for piece in self.pieces:
            if isinstance(piece, Chain):
                piece(start, stop, mask)
            else:
                piece(sel)

    def ready(self, sel: Selection) -> bool:
        """Whether there is machine code from now on; otherwise count one more execution by numpy."""
        if self.pieces:
            return True
        history, run = self.run.history, self.run
        heat = history.heat.get(self.key, 0.0)
        if affordable() and heat > self._price(heat):
            self.pieces = history.recipes[self.key].link(run.machine, run.own)
            return True
        threads = sel.stop - sel.start if isinstance(sel, slice) else len(sel)
        cost = len(run.steps) * (PER_STEP + PER_THREAD * threads)
        history.heat[self.key] = heat + cost
        spend(cost)
        return False

    def _price(self, heat: float) -> float:
        """What compiling will cost; that is only looked into when looking has been paid for."""
        recipes, run = self.run.history.recipes, self.run
        recipe = recipes.get(self.key)
        if recipe is None:
            if heat < READING * len(run.steps):
                return READING * len(run.steps)
            recipe = recipes[self.key] = Recipe(run.instructions, run.machine, self.masked)
        new = recipe.new_forms()
        return LINKING * len(run.steps) + (BATCH + COMPILING * new if new else 0.0)
