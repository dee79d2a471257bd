"""Warnings: nothing promises an order, and yet kernels that are right on the hardware rely on it."""

from __future__ import annotations

import numpy as np

from ..errors import EmulatorError
from ..findings import Location
from ..machine.access import Access
from ..machine.machine import Machine
from .remedies import LANES
from .stamps import Stamp


def read_before_shuffle(machine: Machine, stamp: Stamp, threads: np.ndarray, place: Location, access: Access) -> None:
    """A lane writes what another lane of its warp has read before all lanes shuffled.

    The load has been issued when the shuffle is, and one warp's accesses keep their order on the way to memory; but a
    shuffle orders no memory (PTX ISA section 9.7.9.6).  quack's cross entropy with its gradient in place does so.
    """
    body = machine.kernel.body
    what = (
        f"{access.kind.value} {place}, which lane {stamp.lane} of the same warp has loaded from before the warp "
        "shuffled: a shuffle orders no memory, so only by chance does the load come first"
    )
    read = body[stamp.inst], stamp.thread, "it was read here"
    machine.scheduler.warn(what, body[access.inst], int(threads[0]), LANES, read, "missing-lane-sync", place)


def read_by_wgmma(
    machine: Machine, stamp: Stamp, owner: int, threads: np.ndarray, error: EmulatorError, access: Access
) -> None:
    """A store to what a WGMMA has read, for which only its own warpgroup has waited; `owner` is a thread of it."""
    body, place = machine.kernel.body, error.locations[0]
    what = (
        f"a store to {place}, which a WGMMA of warp {(owner >> 5) % machine.warps_per_cta} has read before, but "
        "only by chance: nothing orders the two"
    )
    read = body[stamp.inst], owner, "it was read here"
    machine.scheduler.warn(what, body[access.inst], int(threads[0]), error.hint, read, "missing-barrier", place)
