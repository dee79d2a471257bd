"""What two accesses that nothing orders are told as: both program points, the cause, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..errors import EmulatorError, IllegalInstruction, InFlight, MissingBarrier, MissingFence, Uninitialized
from ..machine.access import Access, Kind
from ..machine.machine import Machine
from ..machine.memory import HOST, index
from ..machine.opcodes import states
from ..machine.pending import Operation
from . import stamps
from .clocks import ASYNC_GLOBAL, ASYNC_SHARED, GENERIC, Clocks
from .lost_updates import lost_update_hint
from .shadow import Shadow
from .stamps import Stamp

BOTH_PASS = "a barrier that both warps pass between the two accesses: without one either may come first"
FLAG = (
    "a flag between the two: st.release (or a fence, then the store) after the first access, ld.acquire (or a load, "
    "then a fence) before the second, both with a scope that includes the other thread; or an atomic operation"
)
LANES = "cute.arch.sync_warp() between the two: lanes of one warp may run one after the other"
READERS = "the reader's wait, then a barrier, or an arrival of the reader that this thread waits for"
PREVIOUS = "cute.arch.griddepcontrol_wait() before memory of the kernel before is used"
COPIES_TO_SHARED = ("cp.async.ca", "cp.async.cg")  # and every copy that reports to an mbarrier


class Reports:
    """Builds the errors of one machine's ordering checks."""

    def __init__(self, machine: Machine, clocks: Clocks) -> None:
        self.machine, self.clocks = machine, clocks
        self.kinds: dict[int, str] = {}  # agent beside the warps -> "mbarrier", "wgmma", "bulk", "cp.async", "grid"
        self.owners: dict[int, int] = {}  # and the first thread that it works for
        # for a dependent launch: what the kernel before was, and what says where its instructions stand
        self.previous: tuple[str, Callable[[int], str]] = "", str

    # -- bytes that cannot be used ------------------------------------------------------------

    def unusable(
        self, shadow: Shadow, wrote: np.ndarray, host: np.ndarray, threads: np.ndarray, access: Access,
        lenient: bool,
    ) -> np.ndarray | None:  # fmt: skip
        """Threads meet bytes that nothing wrote, that are on their way, or that are an mbarrier's.

        Returns None where that is no mistake, or the accesses that are none (see unwritten.py).
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
        if lenient:
            return ~bad
        first = int(host[bad][0]) + int(np.flatnonzero(rows[bad][0] == stamps.UNWRITTEN)[0]) * shadow.granule
        self._tell("uninitialized", self.unwritten(first, threads[bad], "load of"), access.inst)
        return ~bad

    def tell(self, error: EmulatorError, inst: int) -> None:
        """Raise what is wrong with the order of accesses, unless the user lets races go on (tolerance.py)."""
        self._tell("uninitialized" if isinstance(error, Uninitialized) else "race", error, inst)

    def _tell(self, kind: str, error: EmulatorError, inst: int) -> None:
        if not self.machine.scheduler.tolerates(kind, error, self.machine.kernel.body[inst]):
            raise error

    def unwritten(self, host: int, threads: np.ndarray, verb: str) -> Uninitialized:
        """The error of threads that use shared memory which nothing has written."""
        offset = self.machine.shared.where(host)[1]
        error = Uninitialized(f"{verb} shared memory that nothing has written: offset {offset}", threads=threads)
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
            return self.under_way("a store to shared memory that is still being written by", op, threads)
        verb = verb or kind.value
        return self.under_way(f"{verb} shared memory at offset {offset}, which is still being written by", op, threads)

    def under_way(self, what: str, op: Operation, threads: np.ndarray) -> InFlight:
        """The error of threads that disturb an operation under way."""
        error = InFlight(f"{what} {op.what}", threads=threads, hint=_missing_wait(op))
        self.machine.scheduler.note(error, op.inst, op.thread, "that was issued here")
        if op.barrier is not None:
            error.notes.append(f"  its barrier: {op.barrier.describe()}")
        error.notes += self._history(threads)
        scheduler = self.machine.scheduler
        if op.barrier is not None and (other := op.barrier.other_phase(scheduler, int(threads[0]))) is not None:
            error.notes.append(other[0])
            error.hint = other[1]
        return error

    def _over_mbarrier(self, host: int, threads: np.ndarray, verb: str) -> IllegalInstruction:
        error = IllegalInstruction(
            f"{verb} shared memory at offset {self.machine.shared.where(host)[1]}, where an mbarrier lives",
            threads=threads,
            hint="the addresses of the barriers and of the buffers; mbarrier.inval before the memory is used otherwise",
        )
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
        stamp, rows, at = _first(shadow, found, late, host, threads)
        place = self._place(shadow, at)
        kind = self.kinds.get(stamp.agent, "warp")
        if kind == "warp":
            error = self._unordered(access, place, stamp, threads[rows], "has " + self._did(stamp))
        else:
            error = self._not_waited(access.kind.value, place, stamp, kind, threads[rows], access.inst)
        self.tell(error, access.inst)

    def after_read(
        self, shadow: Shadow, found: np.ndarray, late: np.ndarray, host: np.ndarray, threads: np.ndarray,
        access: Access,
    ) -> None:  # fmt: skip
        """Threads write what others may still be reading."""
        stamp, rows, at = _first(shadow, found, late, host, threads)
        error = self._unordered(access, self._place(shadow, at), stamp, threads[rows], "has loaded from")
        self.tell(error, access.inst)

    def after_async_read(
        self, shadow: Shadow, found: np.ndarray, late: np.ndarray, host: np.ndarray, threads: np.ndarray,
        access: Access,
    ) -> None:  # fmt: skip
        """Threads store where the async proxy reads.

        Only a warning if that was a WGMMA which its own warpgroup has waited for: NVIDIA's fmha.py with 8-bit inputs
        and 16-bit output leaves the order to how long softmax takes, and its result is right.
        """
        stamp, rows, at = _first(shadow, found, late, host, threads)
        op = self.machine.pending.reading(at)
        if op is not None:
            raise self.under_way("a store to shared memory that is still being read by", op, threads[rows])
        error = self.still_needed(stamp, threads[rows], self._place(shadow, at), access.inst, "a store to")
        waited = self.clocks.seen[GENERIC, self.owners[stamp.agent] >> 5, stamp.agent] >= stamp.time
        if self.kinds.get(stamp.agent) != "wgmma" or not waited:
            self.tell(error, access.inst)
            return
        scheduler, body = self.machine.scheduler, self.machine.kernel.body
        what = (
            f"a store to {self._place(shadow, at)}, which a WGMMA of warp {self._owner(stamp)} has read before, but "
            "only by chance: nothing orders the two"
        )
        scheduler.warn(what, body[access.inst], int(threads[rows][0]), error.hint,
                       (body[stamp.inst], self.owners[stamp.agent], "it was read here"))  # fmt: skip

    def still_needed(self, stamp: Stamp, threads: np.ndarray, place: str, inst: int, verb: str) -> EmulatorError:
        """Something writes where others read, and nothing orders the two."""
        reader = self._reader(stamp, int(threads[0]))
        error = MissingBarrier(
            f"{verb} {place}, which {reader} has read or is reading, and nothing orders the two",
            threads=threads,
            hint=READERS,
        )
        return self.noting(error, stamp, inst, "it is read here")

    def copied_over(self, stamp: Stamp, thread: int, place: str, inst: int, verb: str) -> EmulatorError:
        """A copy writes where a warp has stored, and nothing orders the two."""
        error = MissingBarrier(
            f"{verb} {place}, which {self._reader(stamp, thread)} has {self._did(stamp)}, and nothing orders the two",
            threads=np.array([thread]),
            hint=BOTH_PASS,
        )
        return self.noting(error, stamp, inst, "it was written here")

    def _unordered(self, access: Access, place: str, stamp: Stamp, threads: np.ndarray, done: str) -> EmulatorError:
        own = stamp.agent == int(threads[0]) >> 5 and stamp.time >= self.clocks.base
        who = f"lane {stamp.lane} of the same warp" if own else self._reader(stamp, int(threads[0]))
        body = self.machine.kernel.body
        hint = LANES if own else BOTH_PASS if "shared" in place else FLAG
        hint = lost_update_hint(body[stamp.inst], body[access.inst]) or hint
        what = f"{access.kind.value} {place}, which {who} {done}, and nothing orders the two"
        error = MissingBarrier(what, threads=threads, hint=hint)
        return self.noting(error, stamp, access.inst, "the other access was here")

    def _not_waited(
        self, verb: str, place: str, stamp: Stamp, kind: str, threads: np.ndarray, inst: int
    ) -> EmulatorError:
        """What an asynchronous operation has written is used, and nobody has waited for it."""
        if kind == "grid":
            kernel, place_of = self.previous
            error = MissingBarrier(f"{verb} {place}, which {kernel} has written: it may still be running",
                                   threads=threads, hint=PREVIOUS)  # fmt: skip
            error.notes.append(f"  it was written here:\n{place_of(stamp.inst)}")
            return error
        if kind == "cp.async":
            waited = self.clocks.seen[GENERIC, self.owners[stamp.agent] >> 5, stamp.agent] >= stamp.time
            how = "the two have not met since its wait" if waited else "that warp has not waited"
            what = f"{verb} {place}, which {self._reader(stamp, int(threads[0]))} copied with cp.async, and {how}"
            hint = "cp.async.wait_group by the threads that copy, sync_threads, then the load"
        elif kind == "bulk":
            what = f"{verb} {place}, which a bulk store has written: nobody this warp has met has waited for its end"
            hint = "cp.async.bulk.wait_group 0 (without .read) by the thread that stored, then a barrier"
        else:
            what = (
                f"{verb} {place}, which a copy has filled: this warp has not seen the phase of its mbarrier complete, "
                "nor met one that has"
            )
            hint = "the wait for the mbarrier that the copy signals, in every warp that uses what it brings"
        error = MissingBarrier(what, threads=threads, hint=hint)
        return self.noting(error, stamp, inst, "the copy was issued here")

    def several_writers(self, host: np.ndarray, threads: np.ndarray, access: Access) -> None:
        """Threads of several warps store to one place at once: only a mistake if the values differ.

        Of the lanes of one warp some value stays, which kernels may rely on (PTX ISA section 8.2 leaves open which).
        """
        differ = _differing(host, threads, access)
        if differ is None:
            return
        one, other = differ
        error = MissingBarrier(
            f"several threads store different values to {self._any_place(int(host[one]))} with one instruction: any of "
            "them may stay",
            threads=threads[[one, other]],
            hint="an atomic operation (cute.arch.atomic_add) if all of them count; one thread that stores if one does",
        )
        scheduler = self.machine.scheduler
        inst = self.machine.kernel.body[access.inst]
        scheduler.note(error, inst, int(threads[other]), "another thread that stores there")
        self.tell(error, access.inst)

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
        self, stamp: Stamp, thread: int, place: str, verb: str, inst: int, globally: bool
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
        )
        if fenced:
            error.hint = "a barrier between the writers' fence.proxy.async and the thread that issues the operation"
        elif globally:
            error.hint = "fence.proxy.async (.global) in the writing threads, a barrier or flag, then the copy"
        return self.noting(error, stamp, inst, "it was stored here")

    def not_met(self, stamp: Stamp, thread: int, place: str, verb: str, inst: int) -> EmulatorError:
        """One lane starts an operation on what other lanes of its warp have written."""
        error = MissingBarrier(
            f"{verb} {place} through the async proxy; lane {stamp.lane} of the same warp wrote it, and the two lanes "
            "have not met since",
            threads=np.array([thread]),
            hint="cute.arch.sync_warp() between the other lanes' fence.proxy.async and the operation",
        )
        return self.noting(error, stamp, inst, "it was stored here")

    def async_not_waited(self, stamp: Stamp, thread: int, place: str, verb: str, inst: int) -> EmulatorError:
        kind = self.kinds.get(stamp.agent, "warp")
        return self._not_waited(verb, place, stamp, kind, np.array([thread]), inst)

    # -- words --------------------------------------------------------------------------------

    def noting(self, error: EmulatorError, stamp: Stamp, inst: int, what: str) -> EmulatorError:
        """The error with the place of the other access; or the mistake that led to it, if a unit knows one."""
        m, thread = self.machine, self._thread(stamp)
        m.scheduler.note(error, m.kernel.body[stamp.inst], thread, what)
        if thread is None or error.threads is None or stamp.time < self.clocks.base:
            return error
        here = int(error.threads[0])
        for unit in states(m):
            cause = unit.blames(here >> 5, thread >> 5)
            if cause is not None:
                access = m.scheduler.place(m.kernel.body[inst], here)
                cause.notes.append(f"  what came of it: {error.what}\n{access.describe()}")
                cause.notes += error.notes
                return cause
        return error

    def _did(self, stamp: Stamp) -> str:
        base = self.machine.kernel.body[stamp.inst].parts[0]
        return "changed with an atomic operation" if base in ("atom", "red") else "stored to"

    def _thread(self, stamp: Stamp) -> int | None:
        """The thread that made a stamp, or started what did; None for copies that report to an mbarrier."""
        if stamp.agent < self.clocks.warps:
            return stamp.thread
        return None if self.kinds.get(stamp.agent) in ("mbarrier", "grid") else self.owners[stamp.agent]

    def _reader(self, stamp: Stamp, thread: int) -> str:
        """Who made a stamp, as a thread would call it."""
        home = int(self.machine.cta_of[thread])
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

    def _place(self, shadow: Shadow, host: int) -> str:
        if shadow.rows is not None:
            return f"shared memory at offset {self.machine.shared.where(host)[1]}"
        return self._any_place(host)

    def _any_place(self, host: int) -> str:
        shared = self.machine.shared
        if shared.origin <= host < shared.origin + shared.span:
            return f"shared memory at offset {shared.where(host)[1]}"
        found = self.machine.memory.find(host)
        return "global memory" if found is None else f"byte {host - found.start} of {found.label} (global memory)"

    def place(self, shadow: Shadow, host: int) -> str:
        """Where a host address lies, in words."""
        return self._place(shadow, host)

    def _history(self, threads: np.ndarray) -> list[str]:
        return self.machine.history(int(threads[0]))

    def _copies_of_kernel(self) -> str:
        """Where the kernel issues asynchronous copies into shared memory."""
        places = {}
        for inst in self.machine.kernel.body:
            if inst.opcode.startswith(COPIES_TO_SHARED) or "mbarrier::complete_tx::bytes" in inst.parts:
                place = self.machine.scheduler.place(inst, None)
                places[place.source or f"PTX line {inst.line}"] = True
        return ", ".join(places)


def _first(
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


def _differing(host: np.ndarray, threads: np.ndarray, access: Access) -> tuple[int, int] | None:
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


def _missing_wait(op: Operation) -> str:
    """What to look at when something touches the memory of an operation under way."""
    if op.read is not None:
        return "cp.async.bulk.wait_group.read by the thread that stores, then a barrier, before the buffer is reused"
    if op.barrier is not None:
        return "the wait for the phase of the mbarrier that the copy signals"
    if op.reads:
        return "warpgroup.wait_group before the stage is released to be filled again"
    return "cp.async.wait_group, with a smaller number of groups that may still be under way"
