"""The shadow of a piece of memory: for each granule of it, who wrote it last and who has read it since.

A granule is as large as the kernel's narrowest access (1 to 16 bytes), so what is kept is exact.  Whether an access
is in order is asked of the clocks, see ordering.py; here things are only remembered and found again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from . import stamps

CHUNK = 16  # bytes: what the async proxy moves


class WarpRows:
    """The last access of each warp to each granule: a row per warp of those that can reach the memory."""

    def __init__(self, rows: int, granules: int) -> None:
        self.rows, self.granules = rows, granules
        self.table: np.ndarray | None = None

    def clear(self) -> None:
        if self.table is not None:
            self.table[:] = stamps.NOTHING

    def mark(self, where: np.ndarray, warps: np.ndarray, stamp: np.ndarray) -> None:
        """`where` has the granules of each thread, (threads, granules of each) or (threads,)."""
        if self.table is None:
            self.table = np.zeros(self.rows * self.granules, np.int64)
        rows = warps % self.rows * self.granules
        if where.ndim == 1:
            self.table[rows + where] = stamp
        else:
            self.table[rows[:, None] + where] = stamp[:, None]

    def of(self, where: np.ndarray | slice, agents: np.ndarray) -> Iterator[np.ndarray]:
        """What some warps did last in these granules, an array of stamps of the shape of `where` for each."""
        if self.table is None:
            return
        table = self.table.reshape(self.rows, self.granules)
        for row in np.unique(agents % self.rows).tolist():
            yield table[row][where]


class LatestFirst:
    """The last access to each granule, and a list of earlier ones that nothing orders before it.

    For global memory, which is too large for a row per warp; what is listed there is seldom much.
    """

    def __init__(self, granules: int) -> None:
        self.granules = granules
        self.last: np.ndarray | None = None
        self.others: list[tuple[np.ndarray, np.ndarray]] = []  # granules and stamps

    def mark(self, where: np.ndarray, stamp: np.ndarray, keep: np.ndarray | None) -> None:
        """`keep` says which of the accesses that are displaced must be remembered as well."""
        if self.last is None:
            self.last = np.zeros(self.granules, np.int64)
        if keep is not None and keep.any():
            self.others.append((where[keep], self.last[where[keep]]))
        self.last[where] = stamp if where.ndim == 1 else stamp[:, None]

    def of(self, where: np.ndarray) -> Iterator[np.ndarray]:
        """What was done last in these granules, arrays of stamps of the shape of `where`."""
        if self.last is None:
            return
        yield self.last[where]
        if not self.others:
            return
        low, high = int(where.min()), int(where.max())
        for granules, found in self.others:
            near = (granules >= low) & (granules <= high)
            if not near.any():
                continue
            order = np.argsort(granules[near], kind="stable")
            keys, values = granules[near][order], found[near][order]
            at = np.minimum(np.searchsorted(keys, where), len(keys) - 1)
            yield np.where(keys[at] == where, values[at], stamps.NOTHING)


class Shadow:
    """What is remembered of one piece of memory that starts at host address `start`.

    rows: how many warps can reach it, for shared memory; None for global memory.
    """

    def __init__(self, start: int, nbytes: int, granule: int, rows: int | None, fill: int) -> None:
        self.start, self.nbytes, self.granule = start, nbytes, granule
        self.shift = granule.bit_length() - 1
        self.granules = -(-nbytes // granule) + 1
        self.wrote = np.full(self.granules, fill, np.int64) if fill else np.zeros(self.granules, np.int64)
        self.fill = fill
        self.rows = rows
        self.reads = WarpRows(rows, self.granules) if rows else LatestFirst(self.granules)
        self.atomics = WarpRows(rows, self.granules) if rows else LatestFirst(self.granules)
        self.async_reads: dict[int, np.ndarray] = {}  # of shared memory: agent -> its last read of each 16 bytes
        self.copied = LatestFirst(self.granules)  # of global memory: what copies have read
        self.last_write, self.last_read, self.last_atomic, self.last_async = (np.zeros(0, np.int64) for _ in range(4))
        self.version = 0  # grows with every write but copies to shared memory

    def clear(self) -> None:
        """Nobody has touched anything."""
        self.wrote[:] = self.fill
        for kept in (self.reads, self.atomics):
            if isinstance(kept, WarpRows):
                kept.clear()
        self.async_reads.clear()
        for last in (self.last_write, self.last_read, self.last_atomic, self.last_async):
            last[:] = 0
        self.version += 1

    def where(self, host: np.ndarray, nbytes: int) -> np.ndarray:
        """The granules of accesses at host addresses: (accesses,), or (accesses, granules of each)."""
        first = (host - self.start) >> self.shift
        count = nbytes >> self.shift
        return first if count <= 1 else first[:, None] + np.arange(count)

    def span(self, host: int, nbytes: int) -> slice:
        """The granules of consecutive bytes."""
        first = (host - self.start) >> self.shift
        return slice(first, first + max(1, nbytes >> self.shift))

    def chunk_granules(self, chunks: np.ndarray) -> np.ndarray:
        """The granules of 16-byte chunks, given by number: (chunks, granules of each)."""
        each = CHUNK >> self.shift
        return chunks[:, None] * each + np.arange(each)

    def reads_of(self, agent: int) -> np.ndarray:
        """The async reads of an agent, by chunk."""
        if agent not in self.async_reads:
            self.async_reads[agent] = np.zeros(self.nbytes // CHUNK + 2, np.int64)
        return self.async_reads[agent]

    @staticmethod
    def latest(
        last: np.ndarray, agents: np.ndarray | slice | int, times: np.ndarray | int, capacity: int
    ) -> np.ndarray:
        """`last` after agents did something at these times; it grows with the number of agents."""
        if len(last) < capacity:
            last = np.pad(last, (0, capacity - len(last)))
        last[agents] = times
        return last
