"""Accesses to shared memory that nothing orders (PTX ISA section 8.9), in the manner of FastTrack (Flanagan 2009).

Each piece of shared memory remembers its last write and its last read as a *stamp*: who, when, and with which
instruction.  An access is in order if its warp knows of the stamp's time (clocks.py).  Plain accesses leave stamps
on every two bytes; what goes through the async proxy, TMA and WGMMA, leaves them on chunks of 16.  Lanes of one
warp count as ordered, and so do two writes: it is reading that shows a race.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import MissingBarrier, MissingFence

if TYPE_CHECKING:
    from .machine import Machine
    from .mbarrier import Mbarrier

CHUNK = 16  # bytes: what TMA and WGMMA move
HALF = 2  # bytes: what plain accesses are told apart by; single bytes leave no stamps
_TIME, _WHO = 28, 16  # bits of a stamp, from below; then one that says cp.async, then the instruction
_COPIED = 1 << _TIME + _WHO
_INSTRUCTION = _TIME + _WHO + 1
NEVER = (1 << _TIME) - 1  # a time that nobody knows of: the operation has not been waited for


class Races:
    """The stamps of the resident CTAs' shared memory; `host` addresses start at `origin`."""

    def __init__(self, machine: Machine, nbytes: int) -> None:
        self.machine, self.clocks = machine, machine.clocks
        chunks = nbytes // CHUNK + 2
        self.wrote = np.zeros(chunks * CHUNK // HALF, np.int64)  # the last plain write of two bytes,
        self.read = np.zeros_like(self.wrote)  # and the last plain read
        self.chunk_wrote = np.zeros(chunks, np.int64)  # the last plain write to any byte of a chunk,
        self.chunk_read = np.zeros(chunks, np.int64)  # and the last plain read
        self.async_wrote = np.zeros(chunks, np.int64)
        self.async_read = np.zeros(chunks, np.int64)
        self.asynchronous = False  # the async proxy or cp.async has been used
        self.clean = True  # there are no stamps

    def reset(self) -> None:
        """New CTAs: nobody has touched anything."""
        if self.clean:
            return
        self.clean = True
        for stamps in (self.wrote, self.read, self.chunk_wrote, self.chunk_read, self.async_wrote, self.async_read):
            stamps[:] = 0
        self.asynchronous = False

    # -- plain accesses -----------------------------------------------------------------------

    def loaded(self, at: np.ndarray, nbytes: int, threads: np.ndarray, inst: int) -> None:
        """Threads load nbytes at offsets `at`: what is there must have been written before."""
        warps = threads >> 5
        halves, chunk = self._halves(at, nbytes), at >> 4
        wrote = self.wrote[halves]
        if (late := self._unknown(wrote, warps)).any():
            raise self._unordered(wrote, late, threads, at, "load of", "stored to")
        if self.asynchronous:
            wrote = self.async_wrote[chunk][:, None]
            if (late := self._unknown(wrote, warps)).any():
                raise self._not_waited(wrote, late, threads, at, "load of")
        self.clean = False
        stamp = self._stamps(warps, inst)
        self.chunk_read[chunk] = stamp
        if nbytes >= HALF:
            self.read[halves] = stamp[:, None]

    def stored(self, at: np.ndarray, nbytes: int, threads: np.ndarray, inst: int, strong: bool) -> None:
        """Threads store nbytes at offsets `at`: what is there must have been read before, or be meant for many."""
        warps = threads >> 5
        halves, chunk = self._halves(at, nbytes), at >> 4
        read = self.read[halves]
        if nbytes >= HALF and not strong and (late := self._unknown(read, warps)).any():
            raise self._unordered(read, late, threads, at, "store to", "loaded from")
        if self.asynchronous:
            read = self.async_read[chunk][:, None]
            if (late := self._unknown(read, warps)).any():
                raise self._still_needed(read, late, threads, at, "a store to")
            self.async_wrote[chunk] = 0
        self.clean = False
        stamp = self._stamps(warps, inst)
        self.chunk_wrote[chunk] = stamp
        self.wrote[halves] = stamp[:, None] if nbytes >= HALF else 0

    def copying(self, at: np.ndarray, nbytes: int, threads: np.ndarray, inst: int) -> None:
        """Threads issue cp.async to offsets `at`: nobody else may read them until they have waited."""
        self.asynchronous, self.clean = True, False
        stamp = (threads >> 5) << _TIME | NEVER | _COPIED | inst << _INSTRUCTION
        self.wrote[self._halves(at, nbytes)] = stamp[:, None]
        self.chunk_wrote[at >> 4] = stamp
        self.async_wrote[at >> 4] = 0

    def copied(self, at: np.ndarray, nbytes: int, threads: np.ndarray, inst: int) -> None:
        """These threads have waited for their cp.async."""
        stamp = self._stamps(threads >> 5, inst) | _COPIED
        self.wrote[self._halves(at, nbytes)] = stamp[:, None]
        self.chunk_wrote[at >> 4] = stamp

    # -- the async proxy ----------------------------------------------------------------------

    def sent(self, at: np.ndarray, nbytes: int, barrier: Mbarrier, inst: int) -> None:
        """st.async has arrived at offsets `at`: those who wait for this phase of the mbarrier may use it."""
        self.asynchronous, self.clean = True, False
        self.wrote[self._halves(at, nbytes)] = self.chunk_wrote[at >> 4] = 0
        self.async_wrote[at >> 4] = barrier.clock << _TIME | barrier.phase + 1 | inst << _INSTRUCTION

    def claimed(self, first: int, count: int, thread: int) -> None:
        """A thread issues a copy to chunks: nobody may still need what is there."""
        self.asynchronous, self.clean = True, False
        where, warp = slice(first, first + count), np.array([thread >> 5])
        for stamps in (self.chunk_read[where], self.async_read[where]):
            if (late := self._unknown(stamps[None, :], warp)).any():
                at = np.array([first + int(late.argmax()) << 4])
                raise self._still_needed(stamps[None, :], late, np.array([thread]), at, "a copy to")

    def arrived(self, first: int, count: int, member: int, phase: int, inst: int) -> None:
        """A copy has arrived: those who wait for this phase of its mbarrier may use it."""
        where = slice(first, first + count)
        self.async_wrote[where] = member << _TIME | phase | inst << _INSTRUCTION
        self.chunk_wrote[where] = 0
        self.wrote[8 * first : 8 * (first + count)] = 0

    def reading(self, chunks: np.ndarray, thread: int, inst: int, verb: str, together: int) -> None:
        """The async proxy starts to read chunks for the `together` threads of a warp or warpgroup.

        Between it and every plain store are a fence and a barrier; either may come first: the writer fences and
        both meet, or they meet and the reader fences.  Raises MissingFence or MissingBarrier.
        """
        self.asynchronous, self.clean = True, False
        warps = np.arange(thread // together * together >> 5, (thread // together + 1) * together >> 5)
        self._check_fenced(chunks, warps, thread, verb)
        wrote = self.async_wrote[chunks]
        known = self.clocks.happened[warps].max(axis=0)
        late = known[wrote >> _TIME & 0xFFFF] < wrote & NEVER
        if late.any():
            at = chunks[late][:1] << 4
            raise self._not_waited(wrote[None, :], late[None, :], np.array([thread]), at, verb)
        self.async_read[chunks] = (thread >> 5) << _TIME | NEVER | inst << _INSTRUCTION

    def have_read(self, chunks: np.ndarray, member: int, time: int, inst: int) -> None:
        """The async proxy has read chunks; a warp that has waited for it, or an mbarrier, stands for that."""
        self.async_read[chunks] = member << _TIME | time | inst << _INSTRUCTION

    def settling(self, chunks: np.ndarray, thread: int, inst: int) -> Callable[[], None]:
        """What to do when a thread has waited for the async proxy to read chunks."""
        return lambda: self.have_read(chunks, thread >> 5, self.clocks.time(thread >> 5), inst)

    def _check_fenced(self, chunks: np.ndarray, warps: np.ndarray, thread: int, verb: str) -> None:
        wrote = self.chunk_wrote[chunks]
        who, when = wrote >> _TIME & 0xFFFF, wrote & NEVER
        late = (self.clocks.fenced[warps].max(axis=0)[who] < when) & (wrote & _COPIED == 0)
        if not late.any():
            return
        at = int(np.flatnonzero(late)[0])
        writer = int(who[at])
        fenced = self.clocks.fenced[writer, writer] >= when[at]
        what = "the fence has no barrier behind it that both threads pass" if fenced else "no proxy fence came since"
        error: Any = (MissingBarrier if fenced else MissingFence)(
            f"{verb} shared memory at offset {self._offset(int(chunks[at]) << 4)} through the async proxy; "
            f"warp {self._name(writer)} wrote it with an ordinary store, and {what}",
            threads=np.array([thread]),
        )
        if fenced:
            error.hint = "a barrier between the writers' fence.proxy.async and the thread that issues the operation"
        raise self._noting(error, int(wrote[at]), "it was stored here")

    # -- stamps -------------------------------------------------------------------------------

    def _halves(self, at: np.ndarray, nbytes: int) -> np.ndarray:
        return (at >> 1)[:, None] + np.arange(0, max(1, nbytes // HALF), 2)  # of a word the lower half has to do

    def _stamps(self, warps: np.ndarray, inst: int) -> np.ndarray:
        return warps << _TIME | self.clocks.times(warps) | inst << _INSTRUCTION

    def _unknown(self, stamps: np.ndarray, warps: np.ndarray) -> np.ndarray:
        """Which stamps the warp of their row does not know of."""
        return self.clocks.happened[warps[:, None], stamps >> _TIME & 0xFFFF] < stamps & NEVER

    # -- errors -------------------------------------------------------------------------------

    def _unordered(
        self, stamps: np.ndarray, late: np.ndarray, threads: np.ndarray, at: np.ndarray, verb: str, done: str
    ) -> MissingBarrier:
        stamp, rows = int(stamps[late][0]), late.any(axis=1)
        offset, who = self._offset(int(at[rows][0])), self._name(stamp >> _TIME & 0xFFFF)
        why, hint, other = (
            f"has {done}, and nothing orders the two",
            "a barrier that both warps pass between the two accesses: without one either may come first",
            "the other access was here",
        )
        if stamp & _COPIED:
            waited = "that warp has not waited" if stamp & NEVER == NEVER else "the two have not met since its wait"
            why, hint, other = (
                f"copied with cp.async, and {waited}",
                "cp.async.wait_group by the threads that copy, sync_threads, then the load",
                "the copy was issued here",
            )
        what = f"{verb} shared memory at offset {offset}, which warp {who} {why}"
        return self._noting(MissingBarrier(what, threads=threads[rows], hint=hint), stamp, other)

    def _not_waited(
        self, stamps: np.ndarray, late: np.ndarray, threads: np.ndarray, at: np.ndarray, verb: str
    ) -> MissingBarrier:
        rows = late.any(axis=1)
        error = MissingBarrier(
            f"{verb} shared memory at offset {self._offset(int(at[rows][0]))}, which a copy has filled: this warp has "
            "not seen the phase of its mbarrier complete, nor met one that has",
            threads=threads[rows],
            hint="the wait for the mbarrier that the copy signals, in every warp that uses what it brings",
        )
        return self._noting(error, int(stamps[late][0]), "the copy was issued here")

    def _still_needed(
        self, stamps: np.ndarray, late: np.ndarray, threads: np.ndarray, at: np.ndarray, verb: str
    ) -> MissingBarrier:
        stamp, rows = int(stamps[late][0]), late.any(axis=1)
        error = MissingBarrier(
            f"{verb} shared memory at offset {self._offset(int(at[rows][0]))}, which warp "
            f"{self._name(stamp >> _TIME & 0xFFFF)} has read or is reading, and nothing orders the two",
            threads=threads[rows],
            hint="the reader's wait, then a barrier, or an arrival of the reader that this thread waits for",
        )
        return self._noting(error, stamp, "it is read here")

    def _noting(self, error: MissingBarrier, stamp: int, what: str) -> MissingBarrier:
        """The error with the place of the other access; a stamp knows the warp, not the lane."""
        scheduler, who = self.machine.scheduler, stamp >> _TIME & 0xFFFF
        inst = self.machine.kernel.body[stamp >> _INSTRUCTION]
        place = scheduler.place(inst, 32 * who if who < self.clocks.warps else None, whole_warp=True)
        error.notes.append(f"  {what}:\n{place.describe()}")
        return error

    def _offset(self, at: int) -> int:
        shared = self.machine.shared
        return shared.where(at + shared.origin)[1]

    def _name(self, warp: int) -> int:
        """A warp's number in its CTA."""
        return warp % self.machine.warps_per_cta
