"""Single values in shared memory that nobody has written, for kernels that load such values (unwritten.py).

The shadow remembers whole granules.  A store of several values, some of which are unwritten themselves, leaves holes
in a granule; they are kept here, and only from the first load of unwritten memory on.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..errors import Uninitialized
from ..machine.machine import Machine
from ..machine.opcodes import Selection, Step, UnitState, state
from . import stamps
from .ordering import Ordering


@state
class Holes(UnitState):
    """Which bytes of shared memory are as if nothing had written them."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.order = machine.unit(Ordering)

    def allow(self, step: Step, inst: int) -> Callable[[Selection], np.ndarray]:
        """The step of an ordinary load or store that may find unwritten bytes: gives each thread's host address."""
        marking = self.order.marking
        marking[inst] = np.empty(0, np.int64)

        def run(sel: Selection) -> np.ndarray:
            step(sel)
            return marking[inst]

        return run

    def is_written(self, host: np.ndarray, nbytes: int) -> np.ndarray:
        """Whether something has written all bytes of each of these values."""
        shadow, holes = self.order.shadow, self.order.holes
        where = shadow.where(host, nbytes)
        written = shadow.wrote[where] != stamps.UNWRITTEN
        if written.ndim > 1:
            written = written.all(axis=1)
        if holes is not None:
            for i in range(nbytes):
                written &= ~holes[host - shadow.start + i]
        return np.asarray(written)

    def forget(self, host: np.ndarray, nbytes: int) -> None:
        """These values are as if nothing had written them."""
        if not host.size:
            return
        if self.order.holes is None:
            self.order.holes = np.zeros(self.machine.shared.span, np.bool_)
        self.order.mark_holes(host, nbytes, True)

    def unwritten_load(self, host: int, nbytes: int, threads: np.ndarray) -> Uninitialized:
        """The error of threads that load bytes nothing has written, the first of them in the value at this address."""
        written = self.is_written(np.arange(host, host + nbytes), 1)
        return self.order.reports.unwritten(host + int(np.argmin(written)), threads, "load of")
