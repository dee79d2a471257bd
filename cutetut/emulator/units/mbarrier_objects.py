"""One mbarrier: how far its phase is, who has arrived, who waits and who has seen which phase complete."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ..checks.clocks import Knowledge
from ..findings import Location
from ..machine.running import Running
from ..ptx.syntax import Instruction


class Placed(Protocol):
    """What of a machine says where its CTAs are."""

    cta_ids: np.ndarray


@dataclass
class Waiter:
    """Threads asleep in try_wait, each with the phase it waits for and where the answer goes."""

    threads: np.ndarray
    phase: np.ndarray  # done when the barrier's phase number exceeds it
    result: np.ndarray | None
    inst: Instruction


@dataclass(frozen=True)
class Seen:
    """The last wait of a warp that went through: which one of all, for which phase, and how many were complete."""

    number: int
    inst: Instruction
    phase: int
    completed: int


@dataclass(frozen=True)
class Arrival:
    """Some threads arrived with one instruction, or announced bytes with it."""

    inst: Instruction
    threads: np.ndarray
    count: int
    expected: int = 0


@dataclass(eq=False)
class Mbarrier:
    """One barrier object: `phase` counts completed phases, its lowest bit is the current parity."""

    host: int
    offset: int  # in its CTA's shared memory, for messages
    cta: int
    count: int
    made_by: int  # the thread that initialised it,
    made_with: Instruction
    made_at: int  # and when, in the time of its warp
    clock: int  # its own column in the clocks of who knows of whom,
    began: int  # and the time there when it was made
    pending: int = 0
    bytes: int = 0
    phase: int = 0
    known: bool = False  # every thread of the cluster does
    gathered: Knowledge | None = None  # what those knew who have arrived in this phase,
    knowledge: Knowledge | None = None  # and in all phases before
    waiters: list[Waiter] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)  # of the current phase
    seen: dict[int, Seen] = field(default_factory=dict)  # by warp
    came: dict[int, int] = field(default_factory=dict)  # the warps that arrived in this phase, and when,
    completed_by: dict[int, int] | None = None  # and in the last one, None if its last were bytes or copies
    before_that: dict[int, int] | None = None  # and in the one before
    open_ended: bool = False  # copies have arrived in this phase (cp.async.mbarrier.arrive)

    def describe(self) -> str:
        text = (
            f"mbarrier at shared offset {self.offset}: phase {self.phase} (parity {self.phase & 1}), "
            f"{self.pending} of {self.count} arrivals"
        )
        if self.bytes < 0:
            return f"{text} pending, and {-self.bytes} bytes more than announced have come"
        return f"{text} and {self.bytes} bytes pending"

    def location(self, machine: Placed) -> Location:
        """The same as data."""
        return Location("mbarrier", self.offset, 8, cta=tuple(int(v) for v in machine.cta_ids[self.cta]))

    def other_phase(self, scheduler: Running, thread: int) -> tuple[str, str] | None:
        """For an error of a thread that uses what a copy is writing: a note and a hint if it has waited before."""
        last = self.seen.get(thread >> 5)
        if last is None or last.phase < 0 or last.completed != self.phase:
            return None
        place = place_of(scheduler, last.inst, thread)
        return (
            f"  its warp has waited for phase {last.phase} of that mbarrier at {place}; "
            f"the copy belongs to phase {self.phase}",
            f"the release of the stage, which must come after this use of phase {last.phase}; "
            f"or the wait for phase {self.phase} of the mbarrier that the copy signals, if it is meant to use that",
        )


def place_of(scheduler: Running, inst: Instruction, thread: int) -> str:
    """Where an instruction stands, in few words."""
    place = scheduler.place(inst, thread)
    return place.source or f"PTX line {place.ptx_line}"
