"""Which writes to shared memory a reader may rely on (PTX ISA sections 8.9.1.1, 9.7.13.4).

TMA and WGMMA reach shared memory through the *async proxy*.  An ordinary store is in view of it after
a proxy fence by the storing thread, and of another thread's TMA store or WGMMA after a barrier, too.
In a cluster, another CTA's shared memory may be used between the cluster barrier at the start and
the last meeting with that CTA's threads before it exits.

Time is the scheduler's turn.  Each thread remembers when it last met others; what happened before is
taken as ordered, whoever did it.  That is generous at times and never a false alarm, and it is where
vector clocks would go for complete race detection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .errors import AsyncMismatch, InFlight, MissingBarrier, MissingFence
from .memory import threads_of
from .registry import Selection

if TYPE_CHECKING:
    from .machine import Machine
    from .pending import Operation
    from .ptx import Instruction

CHUNK = 16  # bytes: what is remembered per ordinary store and per TMA box
_SWIZZLES = ("no swizzle", "the 32-byte swizzle", "the 64-byte swizzle", "the 128-byte swizzle")
NEVER = 1 << 62  # a time that does not come
DONE = 3  # the scheduler's status of a thread that has exited


class Visibility:
    """Stores, fences and meetings of the resident CTAs; `chunk` numbers count 16 bytes from the first window."""

    def __init__(self, machine: Machine, chunks: int) -> None:
        self.machine = machine
        self.stored_by = np.zeros(chunks, np.int32)  # 1 + the thread of an unfenced ordinary store
        self.stored_inst = np.zeros(chunks, np.int32)
        self.stored_at = np.zeros(chunks, np.int64)
        self.fenced_by = np.zeros(chunks, np.int32)  # 1 + the thread whose store has been fenced
        self.fenced_at = np.zeros(chunks, np.int64)
        self.swizzle = np.zeros(chunks, np.int8)  # 1 + tensor map's code of the TMA load that wrote it, 0: unknown
        self.loaded_inst = np.zeros(chunks, np.int32)
        self.copies = False  # cp.async has been used
        self.copied_by = np.zeros(chunks, np.int32)  # 1 + the thread whose cp.async it is,
        self.copied_at = np.zeros(chunks, np.int64)  # and when that thread waited for it
        self.met_cta = np.zeros(machine.T, np.int64)  # when each thread last met others of its CTA,
        self.met_warp = np.zeros(machine.T, np.int64)  # its warp,
        self.met_cluster = np.zeros(machine.T, np.int64)  # its cluster
        self.met_before_fence = np.zeros(machine.T, np.int64)  # and its CTA, before its last proxy fence
        self.remote: dict[int, tuple[int, int, int]] = {}  # CTA -> (time, thread, instruction) of the last guest

    def reset(self) -> None:
        """New CTAs: nothing has been stored, nobody has met."""
        for array in (self.stored_by, self.fenced_by, self.copied_by, self.swizzle):
            array[:] = 0
        for times in (self.met_cta, self.met_warp, self.met_cluster, self.met_before_fence):
            times[:] = 0
        self.remote.clear()

    # -- meetings -----------------------------------------------------------------------------

    def meet_cta(self, sel: Selection) -> None:
        """Threads have passed a barrier of their CTA."""
        self.met_cta[sel] = self.machine.now()

    def meet_warp(self, sel: Selection) -> None:
        """Lanes have passed a barrier of their warp."""
        self.met_warp[sel] = self.machine.now()

    def meet_cluster(self, sel: Selection) -> None:
        """Threads have passed a barrier of their cluster, which is one of their CTA, too."""
        self.met_cta[sel] = self.met_cluster[sel] = self.machine.now()

    def strangers(self, threads: np.ndarray, who: int, when: int, across: bool) -> np.ndarray:
        """Which threads have not met anybody since thread `who` did something; its own warp always has."""
        met = self.met_cluster if across else self.met_cta
        return (met[threads] < when) & (self.machine.warp_of[threads] != self.machine.warp_of[who])

    # -- ordinary stores and the async proxy ----------------------------------------------------

    def store(self, chunk: np.ndarray, threads: np.ndarray, inst: int) -> None:
        """Threads store to one chunk each."""
        self.stored_by[chunk] = threads + 1
        self.stored_inst[chunk] = inst
        self.stored_at[chunk] = self.machine.now()
        self.swizzle[chunk] = 0
        self.copied_by[chunk] = 0

    def load(self, first: int, count: int, swizzle: int, inst: int) -> None:
        """A TMA load takes chunks over: earlier stores to them matter no more."""
        where = slice(first, first + count)
        self.stored_by[where] = self.fenced_by[where] = self.copied_by[where] = 0
        self.swizzle[where] = swizzle
        self.loaded_inst[where] = inst

    def copy(self, chunk: np.ndarray, threads: np.ndarray, inst: int) -> None:
        """Threads start small copies (cp.async) to one chunk each."""
        self.copies = True
        self.stored_by[chunk] = self.fenced_by[chunk] = self.swizzle[chunk] = 0
        self.copied_by[chunk] = threads + 1
        self.copied_at[chunk] = NEVER
        self.stored_inst[chunk] = inst

    def forget(self, chunk: np.ndarray) -> None:
        """Something whose end an mbarrier announces takes chunks over: what happened to them before matters no more."""
        self.stored_by[chunk] = self.fenced_by[chunk] = self.swizzle[chunk] = self.copied_by[chunk] = 0

    def copied(self, chunk: np.ndarray) -> None:
        """The copying threads have waited."""
        self.copied_at[chunk] = self.machine.now()

    def check_copied(self, chunk: np.ndarray, threads: np.ndarray) -> None:
        """Threads read chunks: another warp's cp.async is theirs once that warp has waited and both have met."""
        by = self.copied_by[chunk]
        late = (by != 0) & (self.copied_at[chunk] > self.met_cta[threads])
        if not late.any():
            return
        late &= self.machine.warp_of[by - 1] != self.machine.warp_of[threads]
        late &= self.machine.cta_of[by - 1] == self.machine.cta_of[threads]
        if not late.any():
            return
        m, at = self.machine, int(np.flatnonzero(late)[0])
        where, writer = int(chunk[at]), int(by[at]) - 1
        why = "that warp has not waited" if self.copied_at[where] == NEVER else "the two have not met since its wait"
        error = MissingBarrier(
            f"load of shared memory at offset {m.shared.where(where * CHUNK + m.shared.origin)[1]}, which warp "
            f"{m.in_cta[writer] // 32} copied with cp.async, and {why}",
            threads=threads[late], hint="cp.async.wait_group by the threads that copy, sync_threads, then the load",
        )  # fmt: skip
        m.scheduler.note(error, m.kernel.body[int(self.stored_inst[where])], writer, "the copy was issued here")
        raise error

    def fence(self, sel: Selection) -> None:
        """fence.proxy.async: own stores, and those of threads met since, are now in view of the async proxy."""
        self.met_before_fence[sel] = self.met_cta[sel]
        dirty = np.flatnonzero(self.stored_by)
        if not dirty.size:
            return
        m = self.machine
        threads, writer, when = threads_of(sel), self.stored_by[dirty] - 1, self.stored_at[dirty]
        fencing = np.zeros(m.T, np.bool_)
        fencing[threads] = True
        covered = fencing[writer]
        since_warp = np.full(m.T // 32, -1, np.int64)
        np.maximum.at(since_warp, m.warp_of[threads], self.met_warp[threads])
        covered |= when < since_warp[m.warp_of[writer]]
        for cta in np.unique(m.cta_of[threads]).tolist():
            met = int(self.met_cta[threads[m.cta_of[threads] == cta]].max())
            covered |= (m.cta_of[writer] == cta) & (when < met)
        done = dirty[covered]
        self.fenced_by[done] = self.stored_by[done]
        self.fenced_at[done] = m.now()
        self.stored_by[done] = 0

    def check_async_read(self, chunk: np.ndarray, thread: int, verb: str, together: int) -> None:
        """The async proxy reads chunks for a thread: between it and every ordinary store are a fence and a barrier.

        Either may come first: the writer fences and both meet, or they meet and the reader fences.  Stores by
        the same `together` threads (a warp, or a warpgroup) need no barrier: a WGMMA's warps read rows of A that
        they have written themselves.  Raises MissingFence or MissingBarrier.
        """
        unfenced = self.stored_by[chunk]
        if unfenced.any():
            where = int(chunk[unfenced != 0][0])
            self._raise(MissingFence, where, int(self.stored_by[where]) - 1, thread, verb, "no proxy fence came since")
        writer = self.fenced_by[chunk]
        if not writer.any():
            return
        first = thread // together * together
        early = (writer != 0) & (self.fenced_at[chunk] > self.met_cta[thread])
        early &= self.stored_at[chunk] >= self.met_before_fence[first : first + together].max()
        early &= (writer - 1) // together != thread // together
        if early.any():
            where = int(chunk[early][0])
            what = "the fence has no barrier behind it that both threads pass"
            self._raise(MissingBarrier, where, int(self.fenced_by[where]) - 1, thread, verb, what)

    def _raise(
        self, kind: type[MissingFence | MissingBarrier], chunk: int, writer: int, reader: int, verb: str, why: str
    ) -> None:
        m = self.machine
        offset = m.shared.where(chunk * CHUNK + m.shared.origin)[1]
        error = kind(
            f"{verb} shared memory at offset {offset} through the async proxy; "
            f"warp {m.in_cta[writer] // 32} wrote it with an ordinary store, and {why}",
            threads=np.array([reader]),
        )
        if kind is MissingBarrier:
            error.hint = "a barrier between the writers' fence.proxy.async and the thread that issues the operation"
        m.scheduler.note(error, m.kernel.body[int(self.stored_inst[chunk])], writer, "it was stored here")
        raise error

    def check_swizzle(self, chunk: np.ndarray, swizzle: int, inst: Instruction, thread: int, name: str) -> None:
        """A WGMMA reads chunks with a swizzle (the tensor map's code); TMA must have written them with the same.

        Raises AsyncMismatch for two different swizzles.  Unswizzled boxes may hold a tensor that lies
        swizzled in global memory already, so reading them with a swizzle is a warning.
        """
        found = self.swizzle[chunk]
        bad = (found != 0) & (found != swizzle + 1)
        if not bad.any():
            return
        at = int(np.flatnonzero(bad)[0])
        written, m = int(found[at]) - 1, self.machine
        load = m.kernel.body[int(self.loaded_inst[int(chunk[at])])]
        what = f"operand {name} of the WGMMA is read with {_SWIZZLES[swizzle]}; TMA wrote it with {_SWIZZLES[written]}"
        hint = "the layout of the TMA atom and that of the tensor in shared memory: both need one swizzle"
        if not (swizzle and written):
            m.scheduler.warn(what, inst, thread, hint, (load, thread, "TMA wrote it here"))
            return
        error = AsyncMismatch(what, threads=np.array([thread]), hint=hint)
        m.scheduler.note(error, load, thread, "TMA wrote it here")
        raise error

    # -- clusters -----------------------------------------------------------------------------

    def visit(self, threads: np.ndarray, hosts: np.ndarray, inst: int) -> None:
        """Threads use shared memory of other CTAs, numbered `hosts`: these must run, and be known to."""
        m = self.machine
        if not self.met_cluster[threads].all():
            raise MissingBarrier(
                "another CTA's shared memory is used before the cluster has met: that CTA may not have started",
                threads=threads[self.met_cluster[threads] == 0],
                hint="cluster_arrive and cluster_wait in every CTA before another CTA's shared memory is used",
            )
        now = m.now()
        for cta in np.unique(hosts).tolist():
            visitors = threads[hosts == cta]
            if (m.scheduler.status[m.cta_of == cta] == DONE).all():
                ids = tuple(int(v) for v in m.cta_ids[cta])
                raise MissingBarrier(
                    f"shared memory of CTA {ids}, which has exited", threads=visitors, hint=STAY,
                )  # fmt: skip
            self.remote[cta] = (now, int(visitors[0]), inst)

    def check_exit(self, cta: int, thread: int) -> None:
        """A CTA's last thread exits: nothing may still need its shared memory.

        A store that still reads is a warning: NVIDIA's own fmha.py leaves one behind, and its result is right.
        """
        m = self.machine
        one = np.array([thread])
        for op in list(m.pending.operations):
            if (where := _touches(m, op, cta)) is None:
                continue
            what = f"the CTA exits while its shared memory at offset {where[1]} is still being {where[0]} {op.what}"
            if op.read is not None:
                m.scheduler.warn(what, op.inst, op.thread, READ_FIRST)
                op.read()
                continue
            hint = "a wait for the mbarrier phase of every load that was issued, before the CTA exits"
            error = InFlight(what, threads=one, hint=hint)
            m.scheduler.note(error, op.inst, op.thread, "that was issued here")
            raise error
        if cta in self.remote:
            self._check_guests(cta, one)

    def _check_guests(self, cta: int, one: np.ndarray) -> None:
        """Other CTAs have used an exiting CTA's memory: one of its threads must have met them since."""
        m = self.machine
        when, guest, inst = self.remote[cta]
        if (self.met_cluster[m.cta_of == cta] < when).all():
            error = MissingBarrier(
                "the CTA exits, and nothing orders that after another CTA's use of its shared memory",
                threads=one, hint=STAY,
            )  # fmt: skip
            m.scheduler.note(error, m.kernel.body[inst], guest, "the other CTA used it here")
            raise error


READ_FIRST = "cp.async.bulk.wait_group.read 0 by the thread that issued the store, before it exits"
STAY = "cluster_arrive and cluster_wait at the end, so that no CTA leaves while others still use its shared memory"


def _touches(machine: Machine, op: Operation, cta: int) -> tuple[str, int] | None:
    """How a bulk operation under way still needs a CTA's shared memory, and at which offset.

    Copies per thread (cp.async) and WGMMAs end with the threads that issued them.
    """
    if op.barrier is None and op.read is None:
        return None
    for kind, ranges in (("written by", op.writes), ("read by", op.reads)):
        for part in ranges:
            owner, offset = machine.shared.where(part.first)
            if owner == cta:
                return kind, offset
    return None
