"""Shared memory of the resident CTAs: where an address lies.

A shared address is an offset in the CTA's window; in a cluster the CTA's rank stands in bits 24 and
up, so that the address of another CTA's memory is the own one with another rank (mapa).  What each byte
has been through is known to the checks, which see every access.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..errors import OutOfBounds
from ..findings import Location
from .access import Access, Checks
from .memory import SHARED_BASE, check_alignment
from .threads import Selection, threads_of

RANK_SHIFT = 24


class Residents(Protocol):
    """The CTAs that shared memory is for, and the checks that see every access: a machine."""

    residents: int
    cluster_size: int
    cta_of: np.ndarray  # of each thread
    checks: Checks


class SharedMemory:
    """The windows of all resident CTAs in one buffer, each aligned to 1 KiB as on the hardware.

    `origin` is the host address of window address 0 of the first CTA, `span` how many bytes lie behind it.
    """

    def __init__(self, machine: Residents, nbytes: int) -> None:
        self.machine = machine
        self.nbytes = nbytes
        self.stride = -(-nbytes // 1024) * 1024 + 1024
        ctas = machine.residents
        self.clustered = machine.cluster_size > 1
        self._buffer = np.zeros(ctas * self.stride + 1024, np.uint8)
        start = self._buffer.ctypes.data
        self.origin = start + (-start % 1024) - SHARED_BASE
        self.span = ctas * self.stride + SHARED_BASE
        self.base = self.origin + machine.cta_of.astype(np.int64) * self.stride
        first_of_cluster = machine.cta_of // machine.cluster_size * machine.cluster_size
        self.cluster_base = self.origin + first_of_cluster.astype(np.int64) * self.stride
        self.rank_of = machine.cta_of % machine.cluster_size

    def locate(self, address: np.ndarray, sel: Selection, access: Access) -> np.ndarray:
        """Host addresses of shared addresses (int64) that threads use themselves.

        Raises OutOfBounds, Misaligned, and what the checks find.
        """
        if not address.size:
            return address
        host = self.reach(address, access.nbytes, sel, access.stores, access.inst)
        self.machine.checks.shared(host, sel, access)
        return host

    def reach(
        self, address: np.ndarray, nbytes: int, sel: Selection, store: bool, inst: int | None = None
    ) -> np.ndarray:
        """Host addresses of shared addresses, without asking who else uses them.

        inst: the instruction that uses another CTA's memory itself; None if it only starts a copy.
        """
        host = self._host(address, nbytes, sel, store, inst)
        check_alignment(address, nbytes, sel, "shared")
        return host

    def _host(self, address: np.ndarray, nbytes: int, sel: Selection, store: bool, inst: int | None) -> np.ndarray:
        offset = address
        base = self.base[sel]
        if self.clustered:
            offset = address & ((1 << RANK_SHIFT) - 1)
            rank = address >> RANK_SHIFT
            if int(rank.max()) >= self.machine.cluster_size:
                raise OutOfBounds(
                    f"shared address {int(address.max()):#x} names no CTA of the cluster", threads=threads_of(sel)[:1]
                )
            base = self.cluster_base[sel] + rank * self.stride
            if (abroad := rank != self.rank_of[sel]).any():
                threads = threads_of(sel)[abroad]
                first = self.machine.cta_of[threads] - self.rank_of[threads]
                self.machine.checks.visits(threads, first + rank[abroad], inst)
        if int(offset.max()) + nbytes > SHARED_BASE + self.nbytes or int(offset.min()) < SHARED_BASE:
            bad = (offset + nbytes > SHARED_BASE + self.nbytes) | (offset < SHARED_BASE)
            raise OutOfBounds(
                f"{'store of' if store else 'load of'} {nbytes} bytes at offset {int(offset[bad][0]) - SHARED_BASE} of "
                f"shared memory; the CTA has {self.nbytes} bytes",
                threads=threads_of(sel)[bad],
                locations=(Location("shared", int(offset[bad][0]) - SHARED_BASE, nbytes),),
                hint="the layouts of the buffers in shared memory, and the smem= of the launch",
            )
        return base + offset

    def host_of(self, address: int, thread: int, nbytes: int = 8) -> int:
        """The host address of one shared address as one thread sees it, for something that it starts."""
        offset, rank = address & (1 << RANK_SHIFT) - 1, address >> RANK_SHIFT
        if rank == self.rank_of[thread] and SHARED_BASE <= offset <= SHARED_BASE + self.nbytes - nbytes:
            return int(self.base[thread]) + offset
        one = np.array([thread])
        return int(self._host(np.array([address]), nbytes, one, False, None)[0])

    def in_cta(self, address: int, rank: int) -> int:
        """The same offset in the CTA with this rank of the cluster (PTX ISA section 9.7.9.23, mapa)."""
        return (address & ((1 << RANK_SHIFT) - 1)) | rank << RANK_SHIFT

    def where(self, host: int) -> tuple[int, int]:
        """(resident CTA, offset in its shared memory) of a host address."""
        cta, window = divmod(host - self.origin - SHARED_BASE, self.stride)
        return cta, window
