"""A kernel under many schedules: a mistake that waits for an unlucky order shows under some of them only.

The emulator draws from a seed when asynchronous operations complete (CUTETUT_ASYNC) and who runs next
(CUTETUT_SCHEDULE), so a failure that was found once can be reproduced.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cutetut.emulator.errors import EmulatorError

SEEDS = 4


def moments(seeds: int) -> tuple[str, ...]:
    """When operations complete: late, early, and at random from each seed."""
    return ("late", "early", *(f"random:{seed}" for seed in range(seeds)))


def schedules(seeds: int) -> tuple[str, ...]:
    """Who runs next: in turn, and at random from each seed."""
    return ("order", *(f"random:{seed}" for seed in range(seeds)))


MOMENTS, SCHEDULES = moments(SEEDS), schedules(SEEDS)


@dataclass(frozen=True)
class Failure:
    """The first combination under which something failed; `error` is None where only the result was wrong."""

    moments: str
    schedule: str
    tried: int
    error: EmulatorError | None

    def __str__(self) -> str:
        what = f"{type(self.error).__name__}: {self.error}" if self.error is not None else "the result is wrong"
        return (
            f"{what}\nrun {self.tried} of those that were tried; "
            f"to reproduce it: CUTETUT_ASYNC={self.moments} CUTETUT_SCHEDULE={self.schedule}"
        )


def first_failure(
    attempt: Callable[[], bool | None], moments: Sequence[str] = MOMENTS, schedules: Sequence[str] = SCHEDULES
) -> Failure | None:
    """Call `attempt` under every combination until one fails; None when all went well.

    attempt: launches a kernel whose memory it has prepared afresh, and returns False if the result is wrong.  It
    fails too when the emulator raises an EmulatorError; any other exception is passed on.
    """
    for tried, (schedule, moment) in enumerate(itertools.product(schedules, moments), 1):
        with under(moment, schedule):
            try:
                right = attempt()
            except EmulatorError as error:
                return Failure(moment, schedule, tried, error)
        if right is False:
            return Failure(moment, schedule, tried, None)
    return None


@contextlib.contextmanager
def under(moments: str, schedule: str) -> Iterator[None]:
    """Launches inside complete their operations at these moments, and run in this order."""
    wanted = {"CUTETUT_ASYNC": moments, "CUTETUT_SCHEDULE": schedule}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
