"""The errors for two accesses that nothing orders: both program points, the cause, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..errors import EmulatorError, IllegalInstruction, InFlight, MissingBarrier, MissingFence, Place, Uninitialized
from ..findings import Location, operation_of, role_of
from ..machine.access import Access, Kind
from ..machine.machine import Machine
from ..machine.memory import HOST, index
from ..machine.opcodes import states
from ..machine.pending import Operation
from ..machine.stuck import ranges
from ..ptx.syntax import Instruction
from . import by_chance, stamps
from .chosen import differing, first
from .clocks import ASYNC_GLOBAL, ASYNC_SHARED, GENERIC, Clocks
from .early_reads import EarlyReads
from .lost_updates import lost_update_hint
from .remedies import (
    BOTH_PASS,
    COMMIT,
    COMMIT_BEHIND,
    FLAG,
    LANES,
    MATES,
    NARROW,
    NARROW_IN_GRID,
    PREVIOUS,
    READ_ONLY,
    READERS,
    REUSED,
)
from .shadow import Shadow
from .stamps import Stamp


class Reports:
    """Builds the errors of one machine's ordering checks."""

    def __init__(self, machine: Machine, clocks: Clocks, strength: np.ndarray) -> None:
        self.machine, self.clocks, self.strength = machine, clocks, strength  # the scope of each instruction
        self.copies = np.array([operation_of(inst.opcode) == "cp.async" for inst in machine.kernel.body])
        self.kinds: dict[int, str] = {}  # agent beside the warps -> "mbarrier", "wgmma", "bulk", "cp.async", "grid"
        self.owners: dict[int, int] = {}  # and the first thread that it works for
        self.early = EarlyReads()
        self.narrow: dict[int, tuple[Instruction, int]] = {}  # warp -> its last arrival of small scope, by whom
        # for a dependent launch: what the kernel before was, and what says where its instructions stand
        self.previous: tuple[str, Callable[[int], Place]] | None = None

    # -- bytes that cannot be used ------------------------------------------------------------

    def unusable(
        self, shadow: Shadow, wrote: np.ndarray, host: np.ndarray, threads: np.ndarray, access: Access, marks: bool,
    ) -> np.ndarray | None:  # fmt: skip
        """Threads meet bytes that nothing wrote, that are on their way, or that are an mbarrier's.

        Returns None where that is no mistake, or which accesses are none: those of written bytes (see unwritten.py).
        """
        rows = wrote.reshape(len(threads), -1)
        for state in (stamps.MBARRIER, stamps.IN_FLIGHT):
            if (bad := (rows == state).any(axis=1)).any():
                at = int(host[bad][0]) + int(np.flatnonzero(rows[bad][0] == state)[0]) * shadow.granule
                if state == stamps.MBARRIER:
                    raise self._over_mbarrier(at, threads[bad], access.kind.value)
                raise self.in_flight(at, threads[bad], access.kind)
        bad = (rows == stamps.UNWRITTEN).any(axis=1)
        if not access.loads or not bad.any():
            return None
        if marks:
            return ~bad
        at = int(host[bad][0]) + int(np.flatnonzero(rows[bad][0] == stamps.UNWRITTEN)[0]) * shadow.granule
        error = self.unwritten(at, threads[bad], "load of")
        if not self.machine.scheduler.marks_loads(error, self.machine.kernel.body[access.inst], host, threads):
            self.report(error, access.inst)
        return ~bad

    def report(self, error: EmulatorError, inst: int) -> None:
        """Raise what is wrong with the order of accesses, unless the user lets it go on (tolerance.py)."""
        kind = "uninitialized" if isinstance(error, Uninitialized) else "race"
        if not self.machine.scheduler.tolerates(kind, error, self.machine.kernel.body[inst]):
            raise error

    def unwritten(self, host: int, threads: np.ndarray, verb: str) -> Uninitialized:
        """The error of threads that use shared memory which nothing has written."""
        offset = self.machine.shared.where(host)[1]
        error = Uninitialized(
            f"{verb} shared memory that nothing has written: offset {offset}", threads=threads,
            locations=(self.place_of(host),),
        )  # fmt: skip
        if copies := self._copies_of_kernel():
            error.notes.append(f"  no copy to it has been issued yet; the kernel's copies to shared memory: {copies}")
            error.hint = f"the wait for such a copy to complete before this use; or {Uninitialized.hint}"
        error.notes += self._history(threads)
        return error

    def in_flight(self, host: int, threads: np.ndarray, kind: Kind, verb: str = "") -> EmulatorError:
        """The error of threads that use shared memory which an operation under way is about to write."""
        op = self.machine.pending.writing(host)
        if op is None:
            return self.unwritten(host, threads, verb or kind.value)
        offset = self.machine.shared.where(host)[1]
        if kind is Kind.STORE:
            return self.under_way("a store to shared memory that is still being written by", op, threads, host)
        what = f"{verb or kind.value} shared memory at offset {offset}, which is still being written by"
        return self.under_way(what, op, threads, host)

    def under_way(self, what: str, op: Operation, threads: np.ndarray, host: int | None = None) -> EmulatorError:
        """The error of threads that disturb an operation under way, at a host address."""
        where = () if host is None else (self.place_of(host),)
        error = InFlight(f"{what} {op.what}", threads=threads, hint=_missing_wait(op), locations=where)
        self.machine.scheduler.note(error, op.inst, op.thread, "that was issued here")
        if op.barrier is not None:
            error.notes.append(f"  its barrier: {op.barrier.describe()}")
        error.notes += self._history(threads)
        self.uncommitted(error, op)
        scheduler = self.machine.scheduler
        if op.barrier is not None and (other := op.barrier.other_phase(scheduler, int(threads[0]))) is not None:
            error.notes.append(other[0])
            error.hint = other[1]
        return self.early.explain(error)

    def uncommitted(self, error: EmulatorError, op: Operation) -> None:
        """Say so if a wait for groups did not include an operation, because it or one behind it was in none."""
        if op.passed_by is not None:
            what = "this wait let it go on, while one behind it was" if op.follower else "this wait came while it was"
            self.machine.scheduler.note(error, op.passed_by, op.thread, f"{what} in no group yet")
            error.hint = COMMIT_BEHIND if op.follower else COMMIT

    def _over_mbarrier(self, host: int, threads: np.ndarray, verb: str) -> IllegalInstruction:
        error = IllegalInstruction(
            f"{verb} shared memory at offset {self.machine.shared.where(host)[1]}, where an mbarrier lives",
            threads=threads,
            hint="the addresses of the barriers and of the buffers; mbarrier.inval before the memory is used otherwise",
            kind="mbarrier-memory", locations=(self.place_of(host),),
        )  # fmt: skip
        for unit in states(self.machine):
            if (lives := unit.lives_at(host)) is not None:
                self.machine.scheduler.note(error, *lives)
        error.notes += self._history(threads)
        return error

    def overwrites_mbarrier(self, host: int, thread: int) -> IllegalInstruction:
        """The error of a copy whose destination holds an mbarrier."""
        return self._over_mbarrier(host, np.array([thread]), "a copy to")

    # -- accesses that nothing orders ---------------------------------------------------------

    def after_write(
        self, shadow: Shadow, found: np.ndarray, late: np.ndarray, host: np.ndarray, threads: np.ndarray,
        access: Access,
    ) -> None:  # fmt: skip
        """Threads use what others wrote, and nothing orders the two."""
        stamp, rows, at = first(shadow, found, late, host, threads)
        place = self.place(shadow, at)
        kind = self.kind_of(stamp)
        if kind == "warp":
            error = self._unordered(access, place, stamp, threads[rows], "has " + self._did(stamp))
        else:
            error = self._not_waited(access.kind.value, place, stamp, kind, threads[rows], access.inst)
        self.report(error, access.inst)

    def non_coherent(
        self, shadow: Shadow, found: np.ndarray, host: np.ndarray, threads: np.ndarray, access: Access,
        grid: int | None,
    ) -> None:  # fmt: skip
        """Threads load through the read-only cache what this kernel has written (PTX ISA section 9.7.9.9).

        grid: the agent of the kernel before, whose results are there once it has been waited for.
        """
        written = found > 0
        if grid is not None:
            written &= stamps.agent_of(np.maximum(found, 0)) != grid
        if not written.any():
            return
        stamp, rows, at = first(shadow, found, written, host, threads)
        place, reader = self.place(shadow, at), self._reader(stamp, int(threads[rows][0]))
        error = IllegalInstruction(
            f"load of {place} through the read-only cache (ld.global.nc), and {reader} has {self._did(stamp)} it in "
            "this launch: the cache may hold what was there before",
            threads=threads[rows], hint=READ_ONLY, kind="non-coherent-load", locations=(place,),
        )  # fmt: skip
        self.report(self.noting(error, stamp, access.inst, "it was written here"), access.inst)

    def after_read(
        self, shadow: Shadow, found: np.ndarray, late: np.ndarray, host: np.ndarray, threads: np.ndarray,
        access: Access,
    ) -> None:  # fmt: skip
        """Threads write what others may still be reading.

        Only a warning where a lane has read it before its whole warp shuffled: quack's cross entropy in place does so.
        """
        warps = (threads >> 5).reshape(-1, *[1] * (found.ndim - 1))
        certain = late & ~((stamps.agent_of(found) == warps) & (stamps.time_of(found) <= self.clocks.together[warps]))
        if not certain.any():
            stamp, hit, at = first(shadow, found, late, host, threads)
            by_chance.read_before_shuffle(self.machine, stamp, threads[hit], self.place(shadow, at), access)
            return
        stamp, hit, at = first(shadow, found, certain, host, threads)
        error = self._unordered(access, self.place(shadow, at), stamp, threads[hit], "has loaded from")
        self.report(error, access.inst)

    def after_async_read(
        self, shadow: Shadow, found: np.ndarray, late: np.ndarray, host: np.ndarray, threads: np.ndarray,
        access: Access,
    ) -> None:  # fmt: skip
        """Threads store where the async proxy reads.

        Only a warning if that was a WGMMA which its own warpgroup has waited for: NVIDIA's fmha.py with 8-bit inputs
        and 16-bit output leaves the order to how long softmax takes, and its result is right.
        """
        stamp, rows, at = first(shadow, found, late, host, threads)
        op = self.machine.pending.reading(at)
        if op is not None:
            raise self.under_way("a store to shared memory that is still being read by", op, threads[rows], at)
        place = self.place(shadow, at)
        error = self.still_needed(stamp, threads[rows], place, access.inst, "a store to")
        waited = self.clocks.seen[GENERIC, self.owners[stamp.agent] >> 5, stamp.agent] >= stamp.time
        if self.kinds.get(stamp.agent) != "wgmma" or not waited:
            self.report(error, access.inst)
            return
        by_chance.read_by_wgmma(self.machine, stamp, self.owners[stamp.agent], threads[rows], error, access)

    def after_copy(
        self, shadow: Shadow, found: np.ndarray, late: np.ndarray, host: np.ndarray, threads: np.ndarray,
        access: Access,
    ) -> None:  # fmt: skip
        """Threads store to global memory that a copy may still read."""
        stamp, rows, at = first(shadow, found, late, host, threads)
        error = self.still_needed(stamp, threads[rows], self.place(shadow, at), access.inst, "a store to")
        self.report(error, access.inst)

    def still_needed(self, stamp: Stamp, threads: np.ndarray, place: Location, inst: int, verb: str) -> EmulatorError:
        """Something writes where others read, and nothing orders the two."""
        reader, mates = self._who(stamp, int(threads[0]))
        error = MissingBarrier(
            f"{verb} {place}, which {reader} has read or is reading, and nothing orders the two", threads=threads,
            hint=LANES if mates else READERS, kind="missing-lane-sync" if mates else None, locations=(place,),
        )  # fmt: skip
        return self.early.explain(self.noting(error, stamp, inst, "it is read here"))

    def copied_over(self, stamp: Stamp, thread: int, place: Location, inst: int, verb: str) -> EmulatorError:
        """A copy writes where a warp has stored, and nothing orders the two."""
        who, mates = self._who(stamp, thread)
        error = MissingBarrier(
            f"{verb} {place}, which {who} has {self._did(stamp)}, and nothing orders the two",
            threads=np.array([thread]), hint=LANES if mates else BOTH_PASS, locations=(place,))  # fmt: skip
        return self.noting(error, stamp, inst, "it was written here")

    def _unordered(
        self, access: Access, place: Location, stamp: Stamp, threads: np.ndarray, done: str
    ) -> EmulatorError:
        who, own = self._who(stamp, int(threads[0]))
        body = self.machine.kernel.body
        hint, kind = (LANES, "missing-lane-sync") if own else (BOTH_PASS, "missing-barrier")
        if not own and place.space == "global":
            hint, kind = FLAG, "missing-release-acquire"
        if not own and access.scope and self.strength[stamp.inst]:  # they would be in order within their scopes
            hint, kind = NARROW_IN_GRID, "narrow-scope"
        if access.kind is Kind.REMOTE:
            hint = READERS
        if (lost := lost_update_hint(body[stamp.inst], body[access.inst])) is not None:
            hint, kind = lost, "lost-update"
        what = f"{access.kind.value} {place}, which {who} {done}, and nothing orders the two"
        error = MissingBarrier(what, threads=threads, hint=hint, kind=kind, locations=(place,))
        return self.noting(error, stamp, access.inst, "the other access was here")

    def _not_waited(
        self, verb: str, place: Location, stamp: Stamp, kind: str, threads: np.ndarray, inst: int
    ) -> EmulatorError:
        """What an asynchronous operation has written is used, and nobody has waited for it."""
        if kind == "grid":
            assert self.previous is not None  # there is such an agent
            kernel, place_of = self.previous
            error = MissingBarrier(f"{verb} {place}, which {kernel} has written: it may still be running",
                                   threads=threads, hint=PREVIOUS, kind="missing-grid-wait",
                                   locations=(place,))  # fmt: skip
            error.add(place_of(stamp.inst), "it was written here")
            return error
        mates = False
        if kind == "cp.async":
            what, hint, stamp, mates = self._copied(f"{verb} {place}", stamp, int(threads[0]))
        elif kind == "bulk":
            what = f"{verb} {place}, which a bulk store has written: nobody this warp has met has waited for its end"
            hint = "cp.async.bulk.wait_group 0 (without .read) by the thread that stored, then a barrier"
        else:
            what = (
                f"{verb} {place}, which a copy has filled: this warp has not seen the phase of its mbarrier complete, "
                "nor met one that has"
            )
            hint = "the wait for the mbarrier that the copy signals, in every warp that uses what it brings"
            if verb == Kind.REMOTE.value:
                hint = REUSED
        reason = "missing-lane-sync" if mates else "missing-wait"
        error = MissingBarrier(what, threads=threads, hint=hint, kind=reason, locations=(place,))
        noted = self.noting(error, stamp, inst, "the copy was issued here")
        thread = self._thread(stamp)
        for op in self.machine.pending.operations if kind in ("bulk", "cp.async") else ():
            if op.thread == thread and op.inst.index == stamp.inst and op.passed_by is not None:
                self.uncommitted(noted, op)
                break
        return noted

    def _copied(self, uses: str, stamp: Stamp, thread: int) -> tuple[str, str, Stamp, bool]:
        """Of bytes of cp.async used too early: what to say, a hint, who copied, and whether in the same warp."""
        known = stamp.agent < self.clocks.warps  # its bytes count as stores of the warp that has waited for them
        copier = stamp.agent if known else self.owners[stamp.agent] >> 5
        waited = known or self.clocks.seen[GENERIC, copier, stamp.agent] >= stamp.time
        how = "the two have not met since its wait" if waited else "that warp has not waited"
        mates = stamp.agent == thread >> 5
        who = f"lane {stamp.lane} of the same warp" if mates else f"warp {copier % self.machine.warps_per_cta}"
        if not mates and not self.clocks.lanes_heard_of(thread >> 5, stamp.agent, stamp.time):
            stamp = replace(stamp, lane=0)  # the first lane stands for its warp, whose lanes all copied
        meet = "sync_warp" if mates else "sync_threads"
        hint = f"cp.async.wait_group by the threads that copy, {meet}, then the load"
        return f"{uses}, which {who} copied with cp.async, and {how}", hint, stamp, mates

    def several_writers(self, host: np.ndarray, threads: np.ndarray, access: Access) -> None:
        """Threads of several warps store to one place at once: only a mistake if the values differ.

        Of the lanes of one warp some value stays, which kernels may rely on (PTX ISA section 8.2 leaves open which).
        """
        differ = differing(host, threads, access)
        if differ is None:
            return
        one, other = differ
        place = self.place_of(int(host[one]))
        error = MissingBarrier(
            f"several threads store different values to {place} with one instruction: any of them may stay",
            threads=threads[[one, other]],
            kind="conflicting-stores",
            locations=(place,),
            hint="an atomic operation (cute.arch.atomic_add) if all of them count; one thread that stores if one does",
        )
        scheduler = self.machine.scheduler
        inst = self.machine.kernel.body[access.inst]
        scheduler.note(error, inst, int(threads[other]), "another thread that stores there")
        self.report(error, access.inst)

    def out_of_scope(self, stamp: Stamp, host: int, threads: np.ndarray, access: Access) -> None:
        """An atomic operation at the same time as another, which is outside of its scope."""
        error = self._unordered(access, self.place_of(host), stamp, threads, "has " + self._did(stamp))
        self.report(error, access.inst)

    def writes_the_same(self, host: np.ndarray, threads: np.ndarray, late: np.ndarray, access: Access) -> bool:
        """Whether a store leaves memory as it is wherever it is not in order: then the order makes no difference."""
        if access.values is None:
            return False
        rows = late.reshape(len(threads), -1).any(axis=1)
        values = access.values(threads[rows])
        unit = access.nbytes // len(values)
        return all(
            (HOST[unit][index(host[rows] + i * unit, unit)] == value).all()
            for i, value in enumerate(values)
        )

    # -- the async proxy ----------------------------------------------------------------------

    def not_fenced(
        self, stamp: Stamp, thread: int, place: Location, verb: str, inst: int, globally: bool
    ) -> EmulatorError:
        """The async proxy reads what an ordinary store has written, and no proxy fence (or no barrier) is between."""
        view = ASYNC_GLOBAL if globally else ASYNC_SHARED
        fenced = bool(self.clocks.seen[view, stamp.agent, stamp.agent] >= stamp.time)
        what = "the fence has no barrier behind it that both threads pass" if fenced else "no proxy fence came since"
        kind = MissingBarrier if fenced else MissingFence
        error = kind(
            f"{verb} {place} through the async proxy; {self._reader(stamp, thread)} wrote it with an ordinary store, "
            f"and {what}",
            threads=np.array([thread]),
            locations=(place,),
        )
        if fenced:
            error.hint = "a barrier between the writers' fence.proxy.async and the thread that issues the operation"
        elif globally:
            error.hint = "fence.proxy.async (.global) in the writing threads, a barrier or flag, then the copy"
        return self.noting(error, stamp, inst, "it was stored here")

    def not_met(self, stamp: Stamp, thread: int, place: Location, verb: str, inst: int) -> EmulatorError:
        """One lane starts an operation on what other lanes of its warp have written."""
        error = MissingBarrier(
            f"{verb} {place} through the async proxy; lane {stamp.lane} of the same warp wrote it, and the two lanes "
            "have not met since",
            hint="cute.arch.sync_warp() between the other lanes' fence.proxy.async and the operation",
            threads=np.array([thread]), kind="missing-lane-sync", locations=(place,),
        )  # fmt: skip
        return self.noting(error, stamp, inst, "it was stored here")

    def async_not_waited(self, stamp: Stamp, thread: int, place: Location, verb: str, inst: int) -> EmulatorError:
        kind = self.kind_of(stamp)
        return self._not_waited(verb, place, stamp, kind, np.array([thread]), inst)

    # -- words --------------------------------------------------------------------------------

    def noting(self, error: EmulatorError, stamp: Stamp, inst: int, what: str) -> EmulatorError:
        """The error with the place of the other access; or the mistake that led to it, if a unit knows one."""
        m, thread = self.machine, self._thread(stamp)
        if error.threads is not None and (mates := self._lanes_that_know(stamp, int(error.threads[0]))):
            error.hint, error.kind = MATES.format(ranges(mates)), "missing-lane-sync"
        m.scheduler.note(error, m.kernel.body[stamp.inst], thread, what)
        if error.threads is not None and self.clocks.knows_reads(int(error.threads[0]) >> 5, stamp.agent, stamp.time):
            self._arrived_narrowly(error, stamp.agent if thread is None else thread >> 5)
            return error
        if thread is None or error.threads is None or stamp.time < self.clocks.base:
            return error
        here = int(error.threads[0])
        for unit in states(m):
            cause = unit.blames(here >> 5, thread >> 5)
            if cause is not None:
                access = m.scheduler.place(m.kernel.body[inst], here)
                cause.notes.append(f"  what came of it: {error.what}\n{access.describe()}")
                cause.notes += error.notes
                cause.others += [(access, error.what), *error.others]
                cause.locations += error.locations
                return cause
        others = self.clocks.lanes_heard_of(here >> 5, stamp.agent, stamp.time)
        if here >> 5 != stamp.agent < self.clocks.warps and others:
            error.hint = (
                f"cute.arch.sync_warp() in warp {thread // 32 % m.warps_per_cta} before lane "
                f"{ranges(lane for lane in range(32) if others >> lane & 1)} signals for the others (an arrival, a "
                f"flag): it passes on only what it did itself, and this was lane {stamp.lane}"
            )
        return error

    def _arrived_narrowly(self, error: EmulatorError, warp: int) -> None:
        """The reader waited for an arrival with the scope of its own CTA, which passes on only what was read."""
        error.hint, error.kind = NARROW, "missing-release-acquire"
        if (arrival := self.narrow.get(warp)) is not None:
            self.machine.scheduler.note(error, *arrival, "this arrival does not pass it on to another CTA")

    def _lanes_that_know(self, stamp: Stamp, thread: int) -> list[int]:
        """Of the thread's warp, the lanes that have waited for what made a stamp, each for itself."""
        if stamp.time < self.clocks.base:
            return []
        return [lane for mask, known in self.clocks.apart.groups.get(thread >> 5, ()) for lane in range(32)
                if mask >> lane & 1 and stamp.agent < len(known) and known[stamp.agent] >= stamp.time]  # fmt: skip

    def kind_of(self, stamp: Stamp) -> str:
        """Who made a stamp: a "warp", or what works beside it."""
        if stamp.agent < self.clocks.warps:
            return "cp.async" if self.copies[stamp.inst] else "warp"
        return self.kinds.get(stamp.agent, "warp")

    def _did(self, stamp: Stamp) -> str:
        if self.copies[stamp.inst]:
            return "filled by cp.async"
        role = role_of(self.machine.kernel.body[stamp.inst].opcode, "")
        return "changed with an atomic operation" if role == "updates" else "stored to"

    def _thread(self, stamp: Stamp) -> int | None:
        """The thread that made a stamp, or started what did; None for copies that report to an mbarrier."""
        if stamp.agent < self.clocks.warps:
            return stamp.thread
        return None if self.kinds.get(stamp.agent) in ("mbarrier", "grid") else self.owners[stamp.agent]

    def writer(self, stamp: Stamp) -> str:
        """Who made a stamp, with the CTA if there are several."""
        return self._named(stamp, -1)

    def _who(self, stamp: Stamp, thread: int) -> tuple[str, bool]:
        """Who made a stamp, and whether that is a lane of the thread's own warp."""
        own = stamp.agent == thread >> 5 and stamp.time >= self.clocks.base
        return f"lane {stamp.lane} of the same warp" if own else self._reader(stamp, thread), own

    def _reader(self, stamp: Stamp, thread: int) -> str:
        """Who made a stamp, as a thread would call it."""
        return self._named(stamp, int(self.machine.cta_of[thread]))

    def _named(self, stamp: Stamp, home: int) -> str:
        if stamp.agent >= self.clocks.warps:
            kind = self.kinds.get(stamp.agent, "")
            return "a copy" if kind == "mbarrier" else f"warp {self._owner(stamp)}"
        m = self.machine
        name = f"warp {stamp.agent % m.warps_per_cta}"
        if stamp.time < self.clocks.base:
            return f"{name} of a CTA that ran before"
        if m.residents == 1 or stamp.agent // m.warps_per_cta == home:
            return name
        return f"{name} of CTA {tuple(int(v) for v in m.cta_ids[stamp.agent // m.warps_per_cta])}"

    def _owner(self, stamp: Stamp) -> int:
        """The number in its CTA of the warp that an agent works for."""
        return (self.owners[stamp.agent] >> 5) % self.machine.warps_per_cta

    def place_of(self, host: int, nbytes: int = 1) -> Location:
        """Where a host address of shared or global memory lies."""
        shared = self.machine.shared
        if shared.origin <= host < shared.origin + shared.span:
            cta, offset = shared.where(host)
            return Location("shared", offset, nbytes, cta=tuple(int(v) for v in self.machine.cta_ids[cta]))
        found = self.machine.memory.find(host)
        if found is None:
            return Location("global", nbytes=nbytes, address=host)
        return Location("global", host - found.start, nbytes, found.label, address=host)

    def place(self, shadow: Shadow, host: int) -> Location:
        """Where a granule lies, by its host address."""
        return self.place_of(host, shadow.granule)

    def _history(self, threads: np.ndarray) -> list[str]:
        return self.machine.history(int(threads[0]))

    def _copies_of_kernel(self) -> str:
        """Where the kernel issues asynchronous copies into shared memory."""
        places = {}
        for inst in self.machine.kernel.body:
            if operation_of(inst.opcode) and role_of(inst.opcode, "shared") == "writes":
                place = self.machine.scheduler.place(inst, None)
                places[place.source or f"PTX line {inst.line}"] = True
        return ", ".join(places)


def _missing_wait(op: Operation) -> str:
    """What to look at when something touches the memory of an operation under way."""
    if op.read is not None:
        return "cp.async.bulk.wait_group.read by the thread that stores, then a barrier, before the buffer is reused"
    if op.barrier is not None:
        return "the wait for the phase of the mbarrier that the copy signals"
    if op.reads:
        return "warpgroup.wait_group before the stage is released to be filled again"
    return "cp.async.wait_group, with a smaller number of groups that may still be under way"
