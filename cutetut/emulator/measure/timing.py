"""Where the emulator's own time goes: an observer that times every step, by unit and kind of instruction."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..machine.machine import Counters
from ..machine.opcodes import Opcode, Step, Watcher, lookup
from .counters import kind_of

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..machine.pending import Operation
    from ..ptx.syntax import Instruction

Key = tuple[str, str]  # unit and kind of instruction


class Launches:
    """An observer that changes nothing and keeps what each launch has counted by itself."""

    def __init__(self) -> None:
        self.counters: list[Counters] = []

    def watch(self, machine: Machine) -> Watcher | None:
        """A launch begins; its steps are left alone, so that they may be compiled."""
        self.counters.append(machine.counters)
        return None


class Timing(Launches):
    """Seconds and calls of every kind of step.

    An asynchronous operation counts as its own kind when it completes, not for the step that waits for it.
    What no step takes is the launch's and the scheduler's: decoding, choosing threads, guards, checks.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[Key, float] = defaultdict(float)
        self.calls: Counter[Key] = Counter()
        self._inner = 0.0  # seconds of the timed calls inside the current one

    def watch(self, machine: Machine) -> Timing:
        """A launch begins; the operations it starts are timed too."""
        super().watch(machine)
        issue = machine.pending.issue

        def timed_issue(operation: Operation) -> None:
            entry = lookup(operation.inst)
            key = (entry.unit, f"{kind_of(operation.inst, entry)} completes")
            operation.run = self._timed(operation.run, key)
            issue(operation)

        machine.pending.issue = timed_issue  # type: ignore[method-assign]
        return self

    def executed(self, step: Step, inst: Instruction, entry: Opcode) -> Step:
        """The step with a clock around it."""
        return self._timed(step, (entry.unit, kind_of(inst, entry)))

    def issued(self, step: Step, inst: Instruction, entry: Opcode) -> Step:
        """The step itself."""
        return step

    def _timed(self, function: Callable[..., Any], key: Key) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            outer, self._inner = self._inner, 0.0
            start = time.perf_counter()
            try:
                return function(*args)
            finally:
                took = time.perf_counter() - start
                self.seconds[key] += took - self._inner
                self.calls[key] += 1
                self._inner = outer + took

        return run
