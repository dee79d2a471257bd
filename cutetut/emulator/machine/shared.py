"""Shared memory of the resident CTAs, and what each byte of it has been through.

A shared address is an offset in the CTA's window; in a cluster the CTA's rank stands in bits 24 and
up, so that the address of another CTA's memory is the own one with another rank (mapa).

A shadow array knows for every byte whether nothing has written it, something has, or an
asynchronous copy is about to.  Whether barriers and fences order what warps do there is in races.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..checks.guests import Visibility
from ..checks.races import CHUNK, Races
from ..errors import InFlight, OutOfBounds, Uninitialized
from ..units.mbarrier import Mbarriers
from .memory import HOST, SHARED_BASE, check_alignment, index, threads_of
from .opcodes import Selection, Step

if TYPE_CHECKING:
    from ..units.mbarrier import Mbarrier
    from .machine import Machine
    from .pending import Operation

UNWRITTEN, WRITTEN, IN_FLIGHT = 0, 1, 2
RANK_SHIFT = 24
COPIES_TO_SHARED = ("cp.async.ca", "cp.async.cg")  # and every copy that reports to an mbarrier

_ALL_WRITTEN = {
    n: np.frombuffer(bytes([WRITTEN]) * n, t)[0]
    for n, t in ((1, np.uint8), (2, np.uint16), (4, np.uint32), (8, np.uint64))
}


class SharedMemory:
    """The windows of all resident CTAs in one buffer, each aligned to 1 KiB as on the hardware."""

    def __init__(self, machine: Machine, nbytes: int) -> None:
        self.machine = machine
        self.nbytes = nbytes
        self.stride = -(-nbytes // 1024) * 1024 + 1024
        ctas = machine.residents
        self.clustered = machine.cluster_size > 1
        self.watched = machine.warps_per_cta > 1 or self.clustered  # there is somebody to race with
        self._buffer = np.zeros(ctas * self.stride + 1024, np.uint8)
        self._shadow = np.zeros_like(self._buffer)
        start = self._buffer.ctypes.data
        self.origin = start + (-start % 1024) - SHARED_BASE  # host address of window address 0 of CTA 0
        self.base = self.origin + machine.cta_of.astype(np.int64) * self.stride
        first_of_cluster = machine.cta_of // machine.cluster_size * machine.cluster_size
        self.cluster_base = self.origin + first_of_cluster.astype(np.int64) * self.stride
        self.shadow_offset = self._shadow.ctypes.data - start
        self.visible = Visibility(machine, len(self._buffer) // CHUNK + 1)
        self.races = Races(machine, len(self._buffer))
        self.rank_of = machine.cta_of % machine.cluster_size
        self.executing: int | None = None  # the instruction that uses shared memory itself now, by its index,
        self.strong = False  # and whether others may use the same place at the same time: atomics, flags
        self.lenient = False  # whether it may find unwritten bytes, and then
        self.touched = np.empty(0, np.int64)  # the host address of each thread's access
        # these grow whenever anything writes here, or is about to: what was found out before may be over
        self.version, self.versions = 0, [0] * ctas  # stores anywhere; copies into one CTA's memory

    def reset(self) -> None:
        """New CTAs find uninitialised shared memory."""
        self._shadow[:] = UNWRITTEN
        self.version += 1
        self.executes(None)
        self.visible.reset()
        self.races.reset()

    def executes(self, inst: int | None, strong: bool = False) -> None:
        """An instruction begins to use shared memory; None: it only starts a copy, which is followed on its own."""
        self.executing, self.strong = inst, strong

    # -- addresses ----------------------------------------------------------------------------

    def locate(self, address: np.ndarray, nbytes: int, sel: Selection, store: bool) -> np.ndarray:
        """Host addresses of shared addresses (int64).

        Raises OutOfBounds, Misaligned; Uninitialized or InFlight for bytes that hold nothing yet.
        """
        if not address.size:
            return address
        host = self._host(address, nbytes, sel, store)
        check_alignment(address, nbytes, sel, "shared")
        if store:
            self._note_store(host, nbytes, sel)
        else:
            self._check_load(host, nbytes, sel)
        return host

    def _host(self, address: np.ndarray, nbytes: int, sel: Selection, store: bool) -> np.ndarray:
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
                self.visible.visit(threads, first + rank[abroad], self.executing)
        if int(offset.max()) + nbytes > SHARED_BASE + self.nbytes or int(offset.min()) < SHARED_BASE:
            bad = (offset + nbytes > SHARED_BASE + self.nbytes) | (offset < SHARED_BASE)
            raise OutOfBounds(
                f"{'store of' if store else 'load of'} {nbytes} bytes at offset {int(offset[bad][0]) - SHARED_BASE} of "
                f"shared memory; the CTA has {self.nbytes} bytes",
                threads=threads_of(sel)[bad],
                hint="the layouts of the buffers in shared memory, and the smem= of the launch",
            )
        return base + offset

    def host_of(self, address: int, thread: int, nbytes: int = 8) -> int:
        """The host address of one shared address as one thread sees it."""
        one = np.array([thread])
        self.executes(None)
        return int(self._host(np.array([address]), nbytes, one, False)[0])

    def locate_barrier(self, address: np.ndarray, sel: Selection, store: bool, inst: int | None) -> np.ndarray:
        """Host addresses of mbarriers, 8-byte aligned; initialising one counts as writing it."""
        self.executes(inst)
        host = self._host(address, 8, sel, store)
        check_alignment(address, 8, sel, "shared")
        if store:
            self.version += 1
            HOST[8][index(host + self.shadow_offset, 8)] = _ALL_WRITTEN[8]
        return host

    def version_of(self, cta: int) -> int:
        """Grows whenever anything writes a resident CTA's shared memory, or is about to."""
        return self.version + self.versions[cta]

    def in_cta(self, address: int, rank: int) -> int:
        """The same offset in the CTA with this rank of the cluster (PTX ISA section 9.7.9.23, mapa)."""
        return (address & ((1 << RANK_SHIFT) - 1)) | rank << RANK_SHIFT

    def where(self, host: int) -> tuple[int, int]:
        """(resident CTA, offset in its shared memory) of a host address."""
        cta, window = divmod(host - self.origin - SHARED_BASE, self.stride)
        return cta, window

    def window_address(self, host: int) -> int:
        """The shared address, without rank, of a host address: what swizzling looks at."""
        return self.where(host)[1] + SHARED_BASE

    # -- bytes that nothing has written (unwritten.py) ------------------------------------------

    def leniently(self, step: Step, sel: Selection) -> np.ndarray:
        """Run an ordinary load or store that may find unwritten bytes; the host address of each thread's access."""
        self.lenient = True
        try:
            step(sel)
        finally:
            self.lenient = False
        return self.touched

    def is_written(self, host: np.ndarray, nbytes: int) -> np.ndarray:
        """Whether something has written all bytes of each of these values."""
        unit = min(nbytes, 8)
        written: np.ndarray = HOST[unit][index(host + self.shadow_offset, unit)] == _ALL_WRITTEN[unit]
        return written

    def forget(self, host: np.ndarray, nbytes: int) -> None:
        """These values are as if nothing had written them."""
        if host.size:
            self._mark_many(host, nbytes, UNWRITTEN)

    def unwritten_load(self, host: int, nbytes: int, threads: np.ndarray) -> Uninitialized:
        """The error of threads that load bytes nothing has written, the first of them at this address."""
        error = self._unusable(host, nbytes, threads, "load of")
        assert isinstance(error, Uninitialized)
        return error

    # -- ordinary accesses --------------------------------------------------------------------

    def _note_store(self, host: np.ndarray, nbytes: int, sel: Selection) -> None:
        self.touched = host
        self.version += 1
        operations = self.machine.pending.operations
        unit = min(nbytes, 8)
        shadow = HOST[unit]
        where = index(host + self.shadow_offset, unit)
        if operations:
            self._check_overwrite(int(host.min()), int(host.max()) + nbytes, host, nbytes, sel)
        for part in range(nbytes // unit):
            shadow[where + part] = _ALL_WRITTEN[unit]
        if self.watched:
            at = host - self.origin
            self.races.stored(at, nbytes, threads_of(sel), self.executing or 0, self.strong)
            self.visible.stored(at >> 4)

    def _check_overwrite(self, low: int, high: int, host: np.ndarray, nbytes: int, sel: Selection) -> None:
        for op in self.machine.pending.operations:
            for kind, ranges in (("written by", op.writes), ("read by", op.reads)):
                for part in ranges:
                    if part.meet(low, high) and (bad := part.meeting(host, nbytes)).any():
                        raise self._in_flight(
                            f"a store to shared memory that is still being {kind}", op, threads_of(sel)[bad]
                        )

    def _in_flight(self, what: str, op: Operation, threads: np.ndarray) -> InFlight:
        error = InFlight(f"{what} {op.what}", threads=threads, hint=_missing_wait(op))
        self.machine.scheduler.note(error, op.inst, op.thread, "that was issued here")
        if op.barrier is not None:
            error.notes.append(f"  its barrier: {op.barrier.describe()}")
            error.notes += self.machine.unit(Mbarriers).passed_at_once(int(threads[0]))
        return error

    def _check_load(self, host: np.ndarray, nbytes: int, sel: Selection) -> None:
        unit = min(nbytes, 8)
        where = index(host + self.shadow_offset, unit)
        self.touched = host
        nothing: np.ndarray | None = None  # these threads load what nobody has written
        for part in range(nbytes // unit):
            bad = HOST[unit][where + part] != _ALL_WRITTEN[unit]
            if bad.any():
                coming = bad & self._on_its_way(host + part * unit, unit)
                if not self.lenient or coming.any():
                    wrong = coming if coming.any() else bad
                    at = int(host[wrong][0]) + part * unit
                    raise self._unusable(at, unit, threads_of(sel)[wrong], "load of")
                nothing = bad if nothing is None else nothing | bad
        if self.watched and not self.strong:
            threads = threads_of(sel)
            if nothing is not None:
                host, threads = host[~nothing], threads[~nothing]
            self.races.loaded(host - self.origin, nbytes, threads, self.executing or 0)

    def _on_its_way(self, host: np.ndarray, nbytes: int) -> np.ndarray:
        """Whether an asynchronous copy is about to write some byte of each of these values."""
        state = [HOST[1][index(host + self.shadow_offset + i, 1)] == IN_FLIGHT for i in range(nbytes)]
        return np.logical_or.reduce(state)

    def _unusable(self, host: int, nbytes: int, threads: np.ndarray, verb: str) -> Uninitialized | InFlight:
        state = HOST[1][index(np.arange(host, host + nbytes) + self.shadow_offset, 1)]
        first = host + int(np.flatnonzero(state != WRITTEN)[0])
        offset = self.where(first)[1]
        op = self.machine.pending.writing(first)
        if op is not None:
            return self._in_flight(
                f"{verb} shared memory at offset {offset}, which is still being written by", op, threads
            )
        error = Uninitialized(f"{verb} shared memory that nothing has written: offset {offset}", threads=threads)
        if copies := self._copies_of_kernel():
            error.notes.append(f"  no copy to it has been issued yet; the kernel's copies to shared memory: {copies}")
            error.hint = f"the wait for such a copy to complete before this use; or {Uninitialized.hint}"
        error.notes += self.machine.unit(Mbarriers).passed_at_once(int(threads[0]))
        return error

    def _copies_of_kernel(self) -> str:
        """Where the kernel issues asynchronous copies into shared memory."""
        places = {}
        for inst in self.machine.kernel.body:
            if inst.opcode.startswith(COPIES_TO_SHARED) or "mbarrier::complete_tx::bytes" in inst.parts:
                place = self.machine.scheduler.place(inst, None)
                places[place.source or f"PTX line {inst.line}"] = True
        return ", ".join(places)

    # -- the async proxy ----------------------------------------------------------------------

    def claim(
        self, address: int, nbytes: int, thread: int, inst: int, swizzle: int = 0, chunks: np.ndarray | None = None
    ) -> int:
        """The destination of an asynchronous copy: its bytes hold nothing until the copy completes.

        `chunks` are the offsets of the 16 bytes that it writes, where that is not all.
        """
        host = self.host_of(address, thread, nbytes)
        one = np.array([thread])
        for op in self.machine.pending.operations:
            if any(part.meet(host, host + nbytes) for part in op.writes):
                raise self._in_flight("a copy into shared memory that is still being written by", op, one)
            if any(part.meet(host, host + nbytes) for part in op.reads):
                raise self._in_flight("a copy overwrites shared memory that is still being read by", op, one)
        self.versions[self.where(host)[0]] += 1
        if chunks is None:
            start = host + self.shadow_offset
            HOST[1][start - 64 : start - 64 + nbytes] = IN_FLIGHT
        else:
            self._mark_many(host + chunks, CHUNK, IN_FLIGHT)
        first, count = host - self.origin >> 4, -(-nbytes // CHUNK)
        self.races.claimed(first, count, thread, inst)
        self.visible.load(first, count, swizzle, inst)
        return host

    def arrived(self, host: int, nbytes: int, barrier: Mbarrier, inst: int, chunks: np.ndarray | None = None) -> None:
        """An asynchronous copy has arrived, of whose bytes an mbarrier will be told; `chunks` as for `claim`."""
        self.versions[self.where(host)[0]] += 1
        if chunks is None:
            start = host + self.shadow_offset
            HOST[1][start - 64 : start - 64 + nbytes] = WRITTEN
        else:
            self._mark_many(host + chunks, CHUNK, WRITTEN)
        self.races.arrived(host - self.origin >> 4, -(-nbytes // CHUNK), barrier.clock, barrier.phase + 1, inst)

    def async_source(self, address: int, nbytes: int, thread: int, inst: int) -> tuple[int, np.ndarray]:
        """The source of an asynchronous read of consecutive bytes, checked like `check_async_read`, and its chunks."""
        host = self.host_of(address, thread, nbytes)
        chunks = np.arange(host, host + nbytes, CHUNK, dtype=np.int64)
        return host, self.check_async_read(chunks, thread, "the TMA store reads", 32, inst)

    def check_async_read(self, chunks: np.ndarray, thread: int, verb: str, together: int, inst: int) -> np.ndarray:
        """16-byte chunks (host addresses) the async proxy starts to read: written, arrived, and fenced; their numbers.

        Raises Uninitialized, InFlight, MissingFence or MissingBarrier.
        """
        where = index(chunks + self.shadow_offset, 8)
        full = _ALL_WRITTEN[8]
        bad = (HOST[8][where] != full) | (HOST[8][where + 1] != full)
        if bad.any():
            raise self._unusable(int(chunks[bad][0]), CHUNK, np.array([thread]), verb)
        at = (chunks - self.origin) >> 4
        self.races.reading(at, thread, inst, verb, together)
        self.races.note_read(at, thread, inst)
        return at

    def readable(self, host: int, nbytes: int, thread: int, together: int, swizzle: int) -> bool:
        """Whether `check_async_read` and the swizzle's check would pass all over these whole chunks.

        A False says nothing: some chunk is not readable, or not known to be. `swizzle` is the tensor map's code.
        """
        start, first, count = host + self.shadow_offset - 64 >> 3, host - self.origin >> 4, nbytes >> 4
        if not (HOST[8][start : start + (nbytes >> 3)] == _ALL_WRITTEN[8]).all():
            return False
        return self.visible.reads_as_loaded(first, count, swizzle) and self.races.readable(
            first, count, thread, together
        )

    def note_async_read(self, chunks: np.ndarray, thread: int, inst: int) -> None:
        """The async proxy starts to read chunks (their numbers) that have been checked."""
        self.races.note_read(chunks, thread, inst)

    def claim_many(self, address: np.ndarray, nbytes: int, threads: np.ndarray) -> np.ndarray:
        """The destinations of one small asynchronous copy per thread."""
        self.executes(None)
        host = self._host(address, nbytes, threads, True)
        check_alignment(address, nbytes, threads, "shared")
        if self.machine.pending.operations:
            self._check_overwrite(int(host.min()), int(host.max()) + nbytes, host, nbytes, threads)
        self._mark_many(host, nbytes, IN_FLIGHT)
        self.visible.stored((host - self.origin) >> 4)
        return host

    def copying(self, host: np.ndarray, nbytes: int, threads: np.ndarray, inst: int) -> None:
        """Threads have started small copies that they must wait for themselves, before others may read them."""
        self.races.copying(host - self.origin, nbytes, threads, inst)

    def copied(self, host: np.ndarray, nbytes: int, threads: np.ndarray, inst: int) -> None:
        """The threads that issued small copies to these addresses have waited for them."""
        self.races.copied(host - self.origin, nbytes, threads, inst)

    def mark_written_many(self, host: np.ndarray, nbytes: int) -> None:
        """Small asynchronous copies have arrived."""
        self._mark_many(host, nbytes, WRITTEN)

    def _mark_many(self, host: np.ndarray, nbytes: int, state: int) -> None:
        self.version += 1
        unit = min(nbytes, 8)
        where = index(host + self.shadow_offset, unit)
        for part in range(nbytes // unit):
            HOST[unit][where + part] = _ALL_WRITTEN[unit] * state


def _missing_wait(op: Operation) -> str:
    """What to look at when something touches the memory of an operation under way."""
    if op.read is not None:
        return "cp.async.bulk.wait_group.read by the thread that stores, then a barrier, before the buffer is reused"
    if op.barrier is not None:
        return "the wait for the phase of the mbarrier that the copy signals"
    if op.reads:
        return "warpgroup.wait_group before the stage is released to be filled again"
    return "cp.async.wait_group, with a smaller number of groups that may still be under way"
