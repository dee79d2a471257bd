"""Of many threads that do something wrong at once, those that a report names."""

from __future__ import annotations

import numpy as np

from ..machine.access import Access
from . import stamps
from .shadow import Shadow
from .stamps import Stamp


def first(
    shadow: Shadow, found: np.ndarray, late: np.ndarray, host: np.ndarray, threads: np.ndarray
) -> tuple[Stamp, np.ndarray, int]:
    """The first stamp that is late, the accesses that meet one, and the first address of them.

    What another warp did is named before what lanes of the same warp did.
    """
    rows = late.reshape(len(host), -1)
    others = rows & (stamps.agent_of(found).reshape(rows.shape) != (threads >> 5)[:, None])
    if others.any():
        rows = others
    hit = np.flatnonzero(rows.any(axis=1))
    row = int(hit[0])
    column = int(np.flatnonzero(rows[row])[0])
    return Stamp.of(int(found.reshape(len(host), -1)[row, column])), hit, int(host[row]) + column * shadow.granule


def differing(host: np.ndarray, threads: np.ndarray, access: Access) -> tuple[int, int] | None:
    """Two positions of the same address with different values."""
    if access.values is None:
        return None
    values = access.values(threads)
    order = np.argsort(host, kind="stable")
    same = host[order][1:] == host[order][:-1]
    warps = threads[order] >> 5
    same &= warps[1:] != warps[:-1]
    differ = np.zeros(len(same), np.bool_)
    for value in values:
        differ |= value[order][1:] != value[order][:-1]
    found = np.flatnonzero(same & differ)
    return (int(order[found[0]]), int(order[found[0] + 1])) if len(found) else None
