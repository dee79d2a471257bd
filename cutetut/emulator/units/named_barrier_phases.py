"""One phase of a named barrier: who has arrived, and who of them waits."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..checks.clocks import Knowledge
from ..machine.threads import Step
from ..ptx.syntax import Instruction


@dataclass
class NamedBarrier:
    """Arrivals of the current phase, in threads; a warp always counts as 32 of them."""

    expected: int
    arrived: int = 0
    waiting: list[tuple[Instruction, np.ndarray]] = field(default_factory=list)  # threads asleep here,
    passing: list[tuple[Instruction, np.ndarray]] = field(default_factory=list)  # and those that went on
    on_release: Step | None = None
    known: Knowledge | None = None  # what those who have arrived knew

    @property
    def arrivals(self) -> list[tuple[Instruction, np.ndarray]]:
        return self.waiting + self.passing

    def has(self, warp: int) -> bool:
        """Whether a warp takes part in this phase."""
        return any((threads >> 5 == warp).any() for _, threads in self.arrivals)
