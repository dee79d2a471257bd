"""Accesses to shared memory that nothing orders (PTX ISA section 8.9), in the manner of FastTrack (Flanagan 2009).

Each piece of shared memory remembers its last write and its last read as a *stamp*: who, when, and with which
instruction.  An access is in order if its warp knows of the stamp's time (clocks.py).  Plain accesses leave stamps
on every two bytes; what goes through the async proxy, TMA and WGMMA, leaves them on chunks of 16, and of these each
warpgroup's last read is remembered: consumers that share a stage must all have given it back.  Lanes of one warp
count as ordered, and so do two writes: it is reading that shows a race.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import EmulatorError, MissingBarrier, MissingFence
from ..units.named_barriers import Barriers

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..units.mbarrier import Mbarrier

CHUNK = 16  # bytes: what TMA and WGMMA move
HALF = 2  # bytes: what plain accesses are told apart by; single bytes leave no stamps
# A stamp, from its lowest bit: time, lane, warp or mbarrier (its column in the clocks), cp.async or not, instruction
_TIME, _LANE, _WHO = 25, 5, 15
_MEMBER = _TIME + _LANE
_COPIED = 1 << _MEMBER + _WHO
_INSTRUCTION = _MEMBER + _WHO + 1
_TIMES, _MEMBERS = (1 << _TIME) - 1, (1 << _WHO) - 1
NEVER = 1 << _TIME - 1  # from here on, times that nobody knows of: the operation has not been waited for


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
        groups = -(-machine.warps_per_cta // 4)
        self.async_read = np.zeros((groups, chunks), np.int64)  # by the warpgroup, of those of a CTA, that issued it
        self.readings = 0  # operations that the async proxy has begun to read for
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
            raise self._unordered(wrote, late, threads, at, inst, "load of", "stored to")
        if self.asynchronous:
            wrote = self.async_wrote[chunk][:, None]
            if (late := self._unknown(wrote, warps)).any():
                raise self._not_waited(wrote, late, threads, at, inst, "load of")
        self.clean = False
        stamp = self._stamps(threads, warps, inst)
        self.chunk_read[chunk] = stamp
        if nbytes >= HALF:
            self.read[halves] = stamp[:, None]

    def stored(self, at: np.ndarray, nbytes: int, threads: np.ndarray, inst: int, strong: bool) -> None:
        """Threads store nbytes at offsets `at`: what is there must have been read before, or be meant for many."""
        warps = threads >> 5
        halves, chunk = self._halves(at, nbytes), at >> 4
        read = self.read[halves]
        if nbytes >= HALF and not strong and (late := self._unknown(read, warps)).any():
            raise self._unordered(read, late, threads, at, inst, "store to", "loaded from")
        if self.asynchronous:
            read = self.async_read[:, chunk].T
            if (late := self._unknown(read, warps)).any():
                self._stored_over(read, late, threads, at, inst)
            self.async_wrote[chunk] = 0
        self.clean = False
        stamp = self._stamps(threads, warps, inst)
        self.chunk_wrote[chunk] = stamp
        self.wrote[halves] = stamp[:, None] if nbytes >= HALF else 0

    def copying(self, at: np.ndarray, nbytes: int, threads: np.ndarray, inst: int) -> None:
        """Threads issue cp.async to offsets `at`: nobody may still read there, nor again until they have waited."""
        warps = threads >> 5
        halves, chunk = self._halves(at, nbytes), at >> 4
        read = self.read[halves]
        if (late := self._unknown(read, warps)).any():
            raise self._unordered(read, late, threads, at, inst, "cp.async to", "loaded from")
        if self.asynchronous:
            read = self.async_read[:, chunk].T
            if (late := self._unknown(read, warps)).any():
                row, group = (int(i) for i in np.argwhere(late)[0])
                here = slice(row, row + 1)
                raise self._still_needed(int(read[row, group]), threads[here], at[here], inst, "a copy to")
        self.asynchronous, self.clean = True, False
        stamp = threads << _TIME | NEVER | _COPIED | inst << _INSTRUCTION
        self.wrote[halves] = stamp[:, None]
        self.chunk_wrote[chunk] = stamp
        self.async_wrote[chunk] = 0

    def copied(self, at: np.ndarray, nbytes: int, threads: np.ndarray, inst: int) -> None:
        """These threads have waited for their cp.async."""
        stamp = self._stamps(threads, threads >> 5, inst) | _COPIED
        self.wrote[self._halves(at, nbytes)] = stamp[:, None]
        self.chunk_wrote[at >> 4] = stamp

    # -- the async proxy ----------------------------------------------------------------------

    def sent(self, at: np.ndarray, nbytes: int, barrier: Mbarrier, inst: int) -> None:
        """st.async has arrived at offsets `at`: those who wait for this phase of the mbarrier may use it."""
        self.asynchronous, self.clean = True, False
        self.wrote[self._halves(at, nbytes)] = self.chunk_wrote[at >> 4] = 0
        self.async_wrote[at >> 4] = barrier.clock << _MEMBER | barrier.phase + 1 | inst << _INSTRUCTION

    def claimed(self, first: int, count: int, thread: int, inst: int) -> None:
        """A thread issues a copy to chunks: nobody may still need what is there."""
        self.asynchronous, self.clean = True, False
        where, warp = slice(first, first + count), np.array([thread >> 5])
        for stamps in (self.chunk_read[None, where], self.async_read[:, where]):
            if (late := self._unknown(stamps, warp)).any():
                group, chunk = (int(i) for i in np.argwhere(late)[0])
                at = np.array([first + chunk << 4])
                raise self._still_needed(int(stamps[group, chunk]), np.array([thread]), at, inst, "a copy to")

    def arrived(self, first: int, count: int, member: int, phase: int, inst: int) -> None:
        """A copy has arrived: those who wait for this phase of its mbarrier may use it."""
        where = slice(first, first + count)
        self.async_wrote[where] = member << _MEMBER | phase | inst << _INSTRUCTION
        self.chunk_wrote[where] = 0
        self.wrote[8 * first : 8 * (first + count)] = 0

    def reading(self, chunks: np.ndarray, thread: int, inst: int, verb: str, together: int) -> None:
        """The async proxy is about to read chunks for the `together` threads of a warp or warpgroup: may it?

        Between it and every plain store are a fence and a barrier; either may come first: the writer fences and
        both meet, or they meet and the reader fences.  Raises MissingFence or MissingBarrier.
        """
        first = thread - int(self.machine.in_cta[thread]) % together
        warps = np.arange(first >> 5, first + together >> 5)
        self._check_fenced(chunks, warps, thread, inst, verb)
        wrote = self.async_wrote[chunks]
        known = self.clocks.happened[warps].max(axis=0)
        late = known[wrote >> _MEMBER & _MEMBERS] < wrote & _TIMES
        if late.any():
            at = chunks[late][:1] << 4
            raise self._not_waited(wrote[None, :], late[None, :], np.array([thread]), at, inst, verb)

    def readable(self, first: int, count: int, thread: int, together: int) -> bool:
        """Whether `reading` would find nothing wrong with any of these chunks."""
        where, warps = slice(first, first + count), slice(thread >> 5, thread + together >> 5)
        plain, copied = self.chunk_wrote[where], self.async_wrote[where]
        if plain.any():
            late = self.clocks.fenced[warps].max(axis=0)[plain >> _MEMBER & _MEMBERS] < plain & _TIMES
            if (late & (plain & _COPIED == 0)).any():
                return False
        if not (copied != copied[0]).any():  # one copy has brought it all
            copied = copied[:1]
            known = self.clocks.happened[warps, int(copied[0]) >> _MEMBER & _MEMBERS].max()
        else:
            known = self.clocks.happened[warps].max(axis=0)[copied >> _MEMBER & _MEMBERS]
        return not (known < copied & _TIMES).any()

    def note_read(self, chunks: np.ndarray, thread: int, inst: int) -> None:
        """The async proxy starts to read chunks for a thread's warpgroup."""
        self.asynchronous, self.clean = True, False
        self.readings += 1
        self._reads_of(thread)[chunks] = thread << _TIME | NEVER | self.readings | inst << _INSTRUCTION

    def settling(
        self, chunks: np.ndarray, thread: int, inst: int, barrier: Mbarrier | None = None
    ) -> Callable[[], None]:
        """For an operation that has begun to read chunks: what to do when its end is known.

        Known to the thread, which has waited for it, or to those who wait for this phase of a barrier.
        """
        stamps, latest = self._reads_of(thread), NEVER | self.readings

        def settle() -> None:
            if barrier is None:
                end = thread << _TIME | self.clocks.time(thread >> 5)
            else:
                end = barrier.clock << _MEMBER | barrier.phase + 1
            mine = chunks[stamps[chunks] & _TIMES <= latest]  # the others are being read again
            stamps[mine] = end | inst << _INSTRUCTION

        return settle

    def _reads_of(self, thread: int) -> np.ndarray:
        """The async proxy's reads for a thread's warpgroup."""
        reads: np.ndarray = self.async_read[(thread >> 5) % self.machine.warps_per_cta >> 2]
        return reads

    def _check_fenced(self, chunks: np.ndarray, warps: np.ndarray, thread: int, inst: int, verb: str) -> None:
        wrote = self.chunk_wrote[chunks]
        who, when = wrote >> _MEMBER & _MEMBERS, wrote & _TIMES
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
        raise self._noting(error, int(wrote[at]), inst, "it was stored here")

    # -- stamps -------------------------------------------------------------------------------

    def _halves(self, at: np.ndarray, nbytes: int) -> np.ndarray:
        return (at >> 1)[:, None] + np.arange(0, max(1, nbytes // HALF), 2)  # of a word the lower half has to do

    def _stamps(self, threads: np.ndarray, warps: np.ndarray, inst: int) -> np.ndarray:
        return threads << _TIME | self.clocks.times(warps) | inst << _INSTRUCTION

    def _unknown(self, stamps: np.ndarray, warps: np.ndarray) -> np.ndarray:
        """Which stamps the warp of their row does not know of."""
        return self.clocks.happened[warps[:, None], stamps >> _MEMBER & _MEMBERS] < stamps & _TIMES

    # -- errors -------------------------------------------------------------------------------

    def _stored_over(
        self, stamps: np.ndarray, late: np.ndarray, threads: np.ndarray, at: np.ndarray, inst: int
    ) -> None:
        """Threads store where the async proxy has read, and nothing orders the two.

        Only a warning if it was a WGMMA that its own warpgroup has waited for: NVIDIA's fmha.py with 8-bit inputs
        and 16-bit output leaves the order to how long softmax takes, and its result is right.
        """
        body, scheduler = self.machine.kernel.body, self.machine.scheduler
        found = np.argwhere(late)
        benign = [self._was_waited_for(int(stamps[row, group])) for row, group in found]
        row, group = found[benign.index(False) if False in benign else 0]
        stamp, here = int(stamps[row, group]), slice(row, row + 1)
        error = self._still_needed(stamp, threads[here], at[here], inst, "a store to")
        if False in benign or not isinstance(error, MissingBarrier):
            raise error
        reader = stamp >> _TIME & (1 << _LANE + _WHO) - 1
        what = (
            f"a store to shared memory at offset {self._offset(int(at[row]))}, which a WGMMA of warp "
            f"{self._name(reader >> _LANE)} has read before, but only by chance: nothing orders the two"
        )
        where = body[stamp >> _INSTRUCTION], reader, "it was read here"
        scheduler.warn(what, body[inst], int(threads[row]), error.hint, where)

    def _was_waited_for(self, stamp: int) -> bool:
        """Whether a stamp is that of a WGMMA for which its warpgroup has waited."""
        return not stamp & NEVER and self.machine.kernel.body[stamp >> _INSTRUCTION].opcode.startswith("wgmma")

    def _unordered(
        self, stamps: np.ndarray, late: np.ndarray, threads: np.ndarray, at: np.ndarray, inst: int, verb: str, done: str
    ) -> EmulatorError:
        stamp, rows = int(stamps[late][0]), late.any(axis=1)
        offset, who = self._offset(int(at[rows][0])), self._name(stamp >> _MEMBER & _MEMBERS)
        why, hint, other = (
            f"has {done}, and nothing orders the two",
            "a barrier that both warps pass between the two accesses: without one either may come first",
            "the other access was here",
        )
        if stamp & _COPIED:
            waited = "that warp has not waited" if stamp & NEVER else "the two have not met since its wait"
            why, hint, other = (
                f"copied with cp.async, and {waited}",
                "cp.async.wait_group by the threads that copy, sync_threads, then the load",
                "the copy was issued here",
            )
        what = f"{verb} shared memory at offset {offset}, which warp {who} {why}"
        return self._noting(MissingBarrier(what, threads=threads[rows], hint=hint), stamp, inst, other)

    def _not_waited(
        self, stamps: np.ndarray, late: np.ndarray, threads: np.ndarray, at: np.ndarray, inst: int, verb: str
    ) -> EmulatorError:
        rows = late.any(axis=1)
        error = MissingBarrier(
            f"{verb} shared memory at offset {self._offset(int(at[rows][0]))}, which a copy has filled: this warp has "
            "not seen the phase of its mbarrier complete, nor met one that has",
            threads=threads[rows],
            hint="the wait for the mbarrier that the copy signals, in every warp that uses what it brings",
        )
        return self._noting(error, int(stamps[late][0]), inst, "the copy was issued here")

    def _still_needed(self, stamp: int, threads: np.ndarray, at: np.ndarray, inst: int, verb: str) -> EmulatorError:
        who = stamp >> _MEMBER & _MEMBERS
        reader = f"warp {self._name(who)} has" if who < self.clocks.warps else "a copy has"
        error = MissingBarrier(
            f"{verb} shared memory at offset {self._offset(int(at[0]))}, which {reader} read or is reading, and "
            "nothing orders the two",
            threads=threads,
            hint="the reader's wait, then a barrier, or an arrival of the reader that this thread waits for",
        )
        return self._noting(error, stamp, inst, "it is read here")

    def _noting(self, error: EmulatorError, stamp: int, inst: int, what: str) -> EmulatorError:
        """The error with the place of the other access; or what led to it, a named barrier with two counts."""
        scheduler, who = self.machine.scheduler, stamp >> _MEMBER & _MEMBERS
        other = stamp >> _TIME & (1 << _LANE + _WHO) - 1 if who < self.clocks.warps else None
        place = scheduler.place(self.machine.kernel.body[stamp >> _INSTRUCTION], other)
        error.notes.append(f"  {what}:\n{place.describe()}")
        if other is None or error.threads is None:
            return error
        here = int(error.threads[0])
        cause = scheduler.machine.unit(Barriers).disagreement((here >> 5, who))
        if cause is None:
            return error
        access = scheduler.place(self.machine.kernel.body[inst], here)
        cause.notes.append(f"  what came of it: {error.what}\n{access.describe()}")
        cause.notes += error.notes
        return cause

    def _offset(self, at: int) -> int:
        shared = self.machine.shared
        return shared.where(at + shared.origin)[1]

    def _name(self, warp: int) -> int:
        """A warp's number in its CTA."""
        return warp % self.machine.warps_per_cta
