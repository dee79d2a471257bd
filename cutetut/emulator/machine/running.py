"""The scheduler as those below it see it: what units, checks and a machine ask of who runs next."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..errors import EmulatorError, Place, Uninitialized
from ..findings import Location
from ..ptx.syntax import Instruction
from .program import Program
from .threads import Selection


class Running(Protocol):
    """A launch as it runs."""

    program: Program
    kernel_name: str
    current: Instruction | None  # what is being executed
    pc: np.ndarray  # the block that each thread stands at, unless all stand at the same one,
    common: int | None  # which is this
    status: np.ndarray  # of each thread: READY, WAITING, PARKED or DONE

    def wait(self, sel: Selection, following: int) -> None:
        """Put threads to sleep; they go on at a block when something wakes them."""

    def resume(self, sel: Selection, following: int) -> None:
        """Threads go on at a block, although others of the same selection may wait."""

    def wake(self, threads: np.ndarray) -> None:
        """Sleeping threads may run again."""

    def exit(self, sel: Selection) -> None:
        """Threads that are done."""

    def tolerates(self, kind: str, error: EmulatorError, inst: Instruction) -> bool:
        """Whether the user wants the kernel to go on after this error; if so it has been reported."""
        ...

    def marks_loads(self, error: Uninitialized, inst: Instruction, host: np.ndarray, threads: np.ndarray) -> bool:
        """Threads load unwritten memory at host addresses: whether that is no error, but marked from now on."""
        ...

    def place(self, inst: Instruction | None, thread: int | None, whole_warp: bool = False) -> Place:
        """Describe an instruction and a thread, or its warp."""
        ...

    def locate(self, error: EmulatorError, sel: Selection = ...) -> None:
        """Say where an error happened: the current instruction and, of these threads, the first that is to blame."""

    def note(self, error: EmulatorError, inst: Instruction, thread: int | None, what: str) -> None:
        """Add another program point to an error: what happened there, and the lines."""

    def warn(
        self, what: str, inst: Instruction, thread: int, hint: str, other: tuple[Instruction, int, str] | None = None,
        kind: str = "other", location: Location | None = None,
    ) -> None:  # fmt: skip
        """Warn of something that gives no wrong result by itself, once per source line and launch."""
