"""The order of what works beside the warps: copies, WGMMAs, and the memory that they read and write.

An asynchronous operation is an agent for as long as it runs: it starts with what its issuer knew, and who waits for
it knows of it.  Operations that are waited for together, those of one mbarrier, of one warpgroup's WGMMAs, of one
thread's bulk groups, share a column in the clocks and differ in its time.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ..machine.access import Access
from ..machine.machine import Machine
from ..machine.opcodes import UnitState, state
from ..machine.threads import WARP, Selection, lanes_of
from . import stamps
from .clocks import ASYNC_GLOBAL, ASYNC_SHARED, GENERIC, Knowledge
from .ordering import Ordering
from .remembered import Known, Remembered
from .shadow import CHUNK, LatestFirst, Shadow
from .stamps import Stamp


@state
class AsyncOrdering(UnitState):
    """What copies and WGMMAs report to the checks."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.agents: dict[tuple[str, int], int] = {}
        self.remembered = Remembered()

    @cached_property
    def order(self) -> Ordering:
        return self.machine.unit(Ordering)

    def reset(self) -> None:
        self.agents.clear()
        self.order.reports.kinds.clear()
        if self.order.grid is not None:
            self.order.reports.kinds[self.order.grid] = "grid"

    def agent(self, kind: str, number: int, thread: int) -> int:
        """The column of the operations of one kind that are waited for together; `number` tells them apart.

        thread: the first of those that they work for.
        """
        key = kind, number
        if key not in self.agents:
            self.agents[key] = agent = self.order.new_agent(thread >> 5)
            self.order.reports.kinds[agent], self.order.reports.owners[agent] = kind, thread
        return self.agents[key]

    def next_time(self, agent: int) -> int:
        """An operation of an agent begins: the time of its accesses."""
        now = self.order.clocks.now
        now[agent] += 1
        return int(now[agent])

    def waited(self, threads: Selection, agent: int, time: int) -> None:
        """Threads have waited for an agent's operations up to a time."""
        warps, lanes = lanes_of(threads)
        self.order.clocks.learn(warps, agent, time, lanes)

    def learn(self, warps: np.ndarray, agents: np.ndarray, times: np.ndarray) -> None:
        """Each of these warps has waited for an agent up to a time."""
        np.maximum.at(self.order.clocks.seen[GENERIC], (warps, agents), times)

    def knowing(self, known: Knowledge, agents: np.ndarray, times: np.ndarray) -> Knowledge:
        """The same knowledge, and what agents beside the warps did up to these times."""
        for agent in np.unique(agents).tolist():
            known = self.order.clocks.with_agent(known, agent, int(times[agents == agent].max()))
        return known

    # -- writing shared memory ----------------------------------------------------------------

    def claim(self, host: int, nbytes: int, thread: int, inst: int, chunks: np.ndarray | None = None) -> None:
        """A thread issues a copy to consecutive bytes, or to some 16-byte chunks of them (offsets).

        They hold nothing until it completes.  Raises what is wrong with what is there.
        """
        order, shadow = self.order, self.order.shadow
        where: slice | np.ndarray = shadow.span(host, nbytes)
        if chunks is not None:
            where = shadow.chunk_granules((host + chunks - shadow.start) // CHUNK).ravel()
        wrote = shadow.wrote[where]
        first = (host - shadow.start) >> shadow.shift

        def address(at: int) -> int:
            granule = first + at if isinstance(where, slice) else int(where[at])
            return shadow.start + (granule << shadow.shift)

        self._usable_target(shadow, wrote, thread, address)
        self._no_reader(shadow, where, thread, inst, address)
        late = self._late_for(wrote, thread)
        if late.any():
            at = int(np.flatnonzero(late)[0])
            stamp = Stamp.of(int(wrote[at]))
            place = order.reports.place(shadow, address(at))
            if stamp.agent < order.clocks.warps:
                order.reports.report(order.reports.copied_over(stamp, thread, place, inst, "a copy to"), inst)
        shadow.wrote[where] = stamps.IN_FLIGHT
        self._changed(host, nbytes)

    def _changed(self, host: int, nbytes: int) -> None:
        """A copy changes shared memory of one CTA."""
        self.remembered.written(self.machine.shared.where(host)[0], host, host + nbytes)

    def _usable_target(self, shadow: Shadow, wrote: np.ndarray, thread: int, address: object) -> None:
        low = int(wrote.min())
        if low >= stamps.UNWRITTEN:
            return
        reports, one = self.order.reports, np.array([thread])
        at = int(np.flatnonzero(wrote <= stamps.IN_FLIGHT)[0])
        host = address(at)  # type: ignore[operator]
        if wrote[at] == stamps.MBARRIER:
            raise reports.overwrites_mbarrier(host, thread)
        op = self.machine.pending.writing(host)
        if op is not None:
            raise reports.under_way("a copy into shared memory that is still being written by", op, one, host)

    def _no_reader(self, shadow: Shadow, where: slice | np.ndarray, thread: int, inst: int, address: object) -> None:
        """Nobody may still read what a copy is about to overwrite."""
        order = self.order
        row = order.clocks.row(thread, reads=True)[: order.clocks.agents]
        found: list[np.ndarray] = []
        for kept, last in ((shadow.reads, shadow.last_read), (shadow.atomics, shadow.last_atomic)):
            if len(last):
                agents = np.flatnonzero(row[: len(last)] < last[: len(row)])
                found += list(kept.of(where, agents[agents < order.clocks.warps]))  # type: ignore[call-arg, arg-type]
        unordered = []
        for stamps_found in found:
            late = self._late_for(stamps_found, thread, reads=True)
            if late.any():
                at = int(np.flatnonzero(late)[0])
                unordered.append((int(stamps_found[at]), at))
        # another warp says more about a missing barrier than a lane of the thread's own
        for stamp, at in sorted(unordered, key=lambda reader: Stamp.of(reader[0]).agent == thread >> 5):
            self._still_needed(shadow, stamp, address(at), thread, inst, "a copy to")  # type: ignore[operator]
        self._no_async_reader(shadow, where, thread, inst)

    def _no_async_reader(self, shadow: Shadow, where: slice | np.ndarray, thread: int, inst: int) -> None:
        order, each = self.order, CHUNK >> shadow.shift
        chunks = slice(where.start // each, -(-where.stop // each)) if isinstance(where, slice) else where // each
        row, clusters = order.clocks.row(thread, reads=True), order.cluster_of_agent
        for agent, reads in shadow.async_reads.items():
            seen = row[agent]
            if seen >= shadow.last_async[agent] or clusters[agent] != clusters[thread >> 5]:  # others' is out of reach
                continue
            found = reads[chunks]
            late = stamps.time_of(found) > seen  # they are all of this agent
            if late.any():
                at = int(np.flatnonzero(late)[0])
                chunk = chunks.start + at if isinstance(chunks, slice) else int(chunks[at])
                host = shadow.start + chunk * CHUNK
                op = self.machine.pending.reading(host)
                if op is not None:
                    what = "a copy overwrites shared memory that is still being read by"
                    raise order.reports.under_way(what, op, np.array([thread]), host)
                self._still_needed(shadow, int(found[at]), host, thread, inst, "a copy to")

    def _still_needed(self, shadow: Shadow, stamp: int, host: int, thread: int, inst: int, verb: str) -> None:
        """A copy writes where others read, as a stamp says, and nothing orders the two."""
        reports = self.order.reports
        place = reports.place(shadow, host)
        reports.report(reports.still_needed(Stamp.of(stamp), np.array([thread]), place, inst, verb), inst)

    def _late_for(self, found: np.ndarray, thread: int, reads: bool = False) -> np.ndarray:
        """Which stamps one thread does not know of; it knows of its warp's other lanes what they did before they met.

        Loads before a shuffle count as before a meeting: nothing promises it (by_chance.py), but kernels rely on it.
        """
        clocks, warp = self.order.clocks, thread >> 5
        if _alike(found):
            stamp = Stamp.of(max(int(found.flat[0]), stamps.NOTHING))
            if clocks.seen[GENERIC, warp, stamp.agent] >= stamp.time:
                return np.zeros(found.shape, np.bool_)
        found = np.maximum(found, stamps.NOTHING)
        agents = stamps.agent_of(found)
        late = clocks.row(thread, reads)[agents] < stamps.time_of(found)
        late &= stamps.thread_of(found) != thread
        if reads:
            late &= (agents != warp) | (stamps.time_of(found) > clocks.together[warp])
        if clocks.has_details and late.any():
            for at in np.flatnonzero(late):
                stamp = Stamp.of(int(found[at]))
                late[at] = not clocks.known_to_lanes(warp, thread & 31, stamp.agent, stamp.lane, stamp.time, reads)
        return np.asarray(late)

    def arrived(
        self, host: int, nbytes: int, agent: int, time: int, inst: int, chunks: np.ndarray | None = None
    ) -> None:
        """The copy to these bytes has arrived."""
        shadow = self.order.shadow
        where: slice | np.ndarray = shadow.span(host, nbytes)
        if chunks is not None:
            where = shadow.chunk_granules((host + chunks - shadow.start) // CHUNK)
        shadow.wrote[where] = stamps.of_agent(agent, time, inst)
        shadow.last_write = shadow.latest(shadow.last_write, agent, time, len(self.order.clocks.now))
        self._changed(host, nbytes)
        if chunks is None:
            known = self.known_of(self.machine.shared.where(host)[0])
            known.copies[host] = host, host + nbytes, (agent, time)
        if self.order.holes is not None:
            self.order.holes[host - shadow.start : host - shadow.start + nbytes] = False

    def _note_write(self, shadow: Shadow, agents: np.ndarray | int, times: np.ndarray | int) -> None:
        capacity = len(self.order.clocks.now)
        shadow.last_write = shadow.latest(shadow.last_write, agents, times, capacity)
        shadow.version += 1

    def claim_many(self, hosts: np.ndarray, threads: np.ndarray, access: Access) -> None:
        """Threads issue one small copy each; a reduction leaves usable what is there."""
        order, shadow = self.order, self.order.shadow
        where = shadow.where(hosts, access.nbytes)
        wrote = shadow.wrote[where]
        if int(wrote.min()) < stamps.UNWRITTEN:
            rows = wrote.reshape(len(threads), -1)
            for state_ in (stamps.MBARRIER, stamps.IN_FLIGHT):
                if (bad := (rows == state_).any(axis=1)).any():
                    self._bad_target(int(hosts[bad][0]), threads[bad], state_)
        order.copy_over(shadow, hosts, where, threads, access)
        if not access.scope:
            shadow.wrote[where] = stamps.IN_FLIGHT
            shadow.version += 1

    def _bad_target(self, host: int, threads: np.ndarray, state_: int) -> None:
        reports = self.order.reports
        if state_ == stamps.MBARRIER:
            raise reports.overwrites_mbarrier(host, int(threads[0]))
        op = self.machine.pending.writing(host)
        if op is not None:
            raise reports.under_way("a store to shared memory that is still being written by", op, threads, host)

    def arrived_many(
        self, hosts: np.ndarray, nbytes: int, agents: np.ndarray | int, times: np.ndarray | int, inst: int
    ) -> None:
        """Small copies have arrived, each of an agent at a time."""
        shadow = self.order.shadow
        where = shadow.where(hosts, nbytes)
        stamp = np.broadcast_to(stamps.of_agents(np.asarray(agents), np.asarray(times), inst), hosts.shape)
        shadow.wrote[where] = stamp if where.ndim == 1 else stamp[:, None]
        self._note_write(shadow, agents, times)

    def now_stored(self, hosts: np.ndarray, nbytes: int, wrote: np.ndarray, threads: np.ndarray, inst: int) -> None:
        """Threads have waited for small copies of their own, of these stamps: from now on they are like their stores.

        Others, lanes of the same warp included, know of them as they know of what the threads store now.
        """
        shadow, clocks = self.order.shadow, self.order.clocks
        where, warps = shadow.where(hosts, nbytes), threads >> 5
        times = clocks.now[warps]
        stored = stamps.of_threads(threads, times, inst)
        if where.ndim > 1:
            wrote, stored = wrote[:, None], stored[:, None]
        shadow.wrote[where] = np.where(shadow.wrote[where] == wrote, stored, shadow.wrote[where])
        clocks.touch(np.sort(threads))
        self._note_write(shadow, warps, times)

    # -- reading shared memory ----------------------------------------------------------------

    def reading(
        self, chunks: np.ndarray, thread: int, together: int, inst: int, verb: str, agent: int, time: int
    ) -> None:
        """The async proxy starts to read 16-byte chunks (numbers) for `together` threads of a warp or warpgroup.

        Between it and every ordinary store are a fence and a barrier; either may come first: the writer fences and
        both meet, or they meet and the reader fences.  Raises Uninitialized, InFlight, MissingFence, MissingBarrier.
        """
        self.check_reading(chunks, thread, together, inst, verb)
        if together == WARP:
            shadow = self.order.shadow
            self._check_lanes(shadow, shadow.chunk_granules(chunks).reshape(-1), thread, inst, verb)
        self.note_reading(chunks, agent, time, inst)

    def _check_lanes(self, shadow: Shadow, where: np.ndarray, thread: int, inst: int, verb: str) -> None:
        """What other lanes of the issuing warp wrote must be ordered before: lanes may run one after the other."""
        order, warp = self.order, thread >> 5
        found = np.maximum(shadow.wrote[where], stamps.NOTHING)
        late = (stamps.agent_of(found) == warp) & (stamps.thread_of(found) != thread)
        late &= stamps.time_of(found) > order.clocks.row(thread)[warp]
        if late.any():
            at = int(np.flatnonzero(late)[0])
            host, stamp = shadow.start + (int(where[at]) << shadow.shift), Stamp.of(int(found[at]))
            error = order.reports.not_met(stamp, thread, order.reports.place(shadow, host), verb, inst)
            order.reports.report(error, inst)

    def note_reading(self, chunks: np.ndarray, agent: int, time: int, inst: int) -> None:
        """The async proxy starts to read chunks that have been checked."""
        shadow = self.order.shadow
        shadow.reads_of(agent)[chunks] = stamps.of_agent(agent, time, inst)
        shadow.last_async = shadow.latest(shadow.last_async, agent, time, len(self.order.clocks.now))

    def known_of(self, cta: int) -> Known:
        """What has been found out about a resident CTA's shared memory and still holds."""
        return self.remembered.of(cta, self.order.shadow.version)

    def readable(self, host: int, nbytes: int, thread: int, together: int) -> bool:
        """Whether `check_reading` would find nothing wrong with any of these bytes; False leaves it open."""
        copy = self.known_of(int(self.machine.cta_of[thread])).copy_over(host, host + nbytes)
        if copy is not None:
            agent, time = copy
            return int(self.order.clocks.seen[GENERIC, thread >> 5 : thread + together >> 5, agent].min()) >= time
        shadow = self.order.shadow
        found = shadow.wrote[shadow.span(host, nbytes)]
        if int(found.min()) < 0:
            return False
        return self._late_for_proxy(found, slice(thread >> 5, thread + together >> 5), ASYNC_SHARED, thread) is None

    def nothing_wrote(self, chunks: np.ndarray) -> np.ndarray:
        """Which chunks hold nothing at all, of chunks of any shape."""
        wrote = self.order.shadow.wrote[self.order.shadow.chunk_granules(chunks.ravel())]
        return np.asarray((wrote == stamps.UNWRITTEN).all(axis=1)).reshape(chunks.shape)

    def note_early(self, hosts: np.ndarray) -> None:
        """A WGMMA reads 16-byte chunks that nothing has written yet, at host addresses in one CTA's shared memory."""
        first = int(hosts.flat[0])
        self.order.reports.early.note(self.order.reports.place_of(first), hosts - first)

    def check_reading(self, chunks: np.ndarray, thread: int, together: int, inst: int, verb: str) -> None:
        """Whether chunks hold what the async proxy may read now."""
        order, shadow = self.order, self.order.shadow
        found = shadow.wrote[shadow.chunk_granules(chunks)]
        if int(found.min()) < 0:
            row, column = (int(i) for i in np.argwhere(found < 0)[0])
            host = shadow.start + int(chunks[row]) * CHUNK + (column << shadow.shift)
            self._unusable_source(host, int(found[row, column]), thread, verb, inst)
        first = thread // together * together
        warps = slice(first >> 5, max(first + together, first + 32) >> 5)
        late = self._late_for_proxy(found, warps, ASYNC_SHARED, thread)
        if late is None:
            return
        row, column = (int(i) for i in np.argwhere(late)[0])
        stamp = Stamp.of(int(found[row, column]))
        place = order.reports.place(shadow, shadow.start + int(chunks[row]) * CHUNK + (column << shadow.shift))
        if order.reports.kind_of(stamp) == "warp":
            order.reports.report(order.reports.not_fenced(stamp, thread, place, verb, inst, False), inst)
            return
        order.reports.report(order.reports.async_not_waited(stamp, thread, place, verb, inst), inst)

    def _unusable_source(self, host: int, state_: int, thread: int, verb: str, inst: int) -> None:
        reports, one = self.order.reports, np.array([thread])
        op = self.machine.pending.writing(host)
        if state_ == stamps.IN_FLIGHT and op is not None:
            offset = self.machine.shared.where(host)[1]
            what = f"{verb} shared memory at offset {offset}, which is still being written by"
            raise reports.under_way(what, op, one, host)
        reports.report(reports.unwritten(host, one, verb), inst)

    def _late_for_proxy(self, found: np.ndarray, warps: slice, view: int, thread: int) -> np.ndarray | None:
        """Which stamps are not in view of the async proxy as these warps know it, or one's thread; None: all are."""
        clocks = self.order.clocks
        if _alike(found):
            stamp = Stamp.of(max(int(found.flat[0]), stamps.NOTHING))
            fenced = stamp.agent < clocks.warps and not self.order.reports.copies[stamp.inst]
            seen = clocks.seen[[GENERIC, view] if fenced else [GENERIC], warps, stamp.agent]
            if int(seen.min()) >= stamp.time:
                return None
        found = np.maximum(found, stamps.NOTHING)
        agents, times = stamps.agent_of(found), stamps.time_of(found)
        n = clocks.agents
        in_view = clocks.seen[view, warps, : clocks.warps].min(axis=0)
        if warps.stop - warps.start == 1:
            visible, own = clocks.row(thread)[:n].copy(), warps.start
            visible[own] = in_view[own]  # its own stores, whose lanes are checked apart
            visible[: clocks.warps] = np.minimum(visible[: clocks.warps], in_view)
        else:
            visible = clocks.seen[GENERIC, warps, :n].min(axis=0)
            visible[: clocks.warps] = in_view
        late = np.asarray(visible[agents] < times)
        copied = late & self.order.reports.copies[stamps.instruction_of(found)] & (agents < clocks.warps)
        if copied.any():  # by cp.async, which needs no fence
            late[copied] = self._unknown_copies(found[copied], warps, thread)
        for at in zip(*np.nonzero(late), strict=True) if clocks.fenced_alone and late.any() else ():
            stamp = Stamp.of(int(found[at]))
            if stamp.agent < clocks.warps:
                late[at] = not clocks.fenced_by_lane(view, stamp.thread, stamp.time, thread)
        return late if late.any() else None

    def _unknown_copies(self, found: np.ndarray, warps: slice, thread: int) -> np.ndarray:
        """Which of the stamps of cp.async these warps, or one's thread, do not know of; its lanes are checked apart."""
        clocks, agents, times = self.order.clocks, stamps.agent_of(found), stamps.time_of(found)
        if warps.stop - warps.start > 1:
            return np.asarray(clocks.seen[GENERIC, warps, : clocks.agents].min(axis=0)[agents] < times)
        return np.asarray((clocks.row(thread)[agents] < times) & (agents != warps.start))

    # -- global memory ------------------------------------------------------------------------

    def reads_global(self, hosts: np.ndarray, nbytes: int, thread: int, inst: int, verb: str) -> None:
        """A copy engine reads global memory for a thread."""
        shadow = self._written_region(hosts)
        if shadow is None:
            return
        if self.order.peer is not None:
            self.order.peer.copies(hosts, nbytes, thread, inst, verb, False)
        where = shadow.where(hosts, nbytes)
        if not self._unseen_writes(shadow, where, thread).any():
            self._check_lanes(shadow, where.reshape(-1), thread, inst, verb)
            return
        where = np.unique(where)  # the report is about the lowest address
        at = int(np.flatnonzero(self._unseen_writes(shadow, where, thread))[0])
        stamp = Stamp.of(int(shadow.wrote[where[at]]))
        place = self.order.reports.place(shadow, shadow.start + (int(where[at]) << shadow.shift))
        if stamp.agent < self.order.clocks.warps:
            self.order.reports.report(self.order.reports.not_fenced(stamp, thread, place, verb, inst, True), inst)
            return
        self.order.reports.report(self.order.reports.async_not_waited(stamp, thread, place, verb, inst), inst)

    def _unseen_writes(self, shadow: Shadow, where: np.ndarray, thread: int) -> np.ndarray:
        """Which granules were written by what a copy engine need not see when a thread issues a copy."""
        found, warp = shadow.wrote[where], thread >> 5
        late = self._late_for_proxy(found, slice(warp, warp + 1), ASYNC_GLOBAL, thread)
        past = self._of_past(found)
        return past if late is None else late | past

    def writes_global(
        self, hosts: np.ndarray, nbytes: int, thread: int, inst: int, agent: int, time: int, reduces: bool
    ) -> None:
        """A copy engine is about to write global memory, or to combine it with what it brings."""
        shadow = self._written_region(hosts)
        if shadow is None:
            return
        order, where = self.order, shadow.where(hosts, nbytes).ravel()
        if order.peer is not None:
            order.peer.copies(hosts, nbytes, thread, inst, "a bulk store to", True)
        if self._overwritten(shadow, where, thread, reduces).any():
            lowest = np.unique(where)  # the report is about the lowest address
            late, found = self._overwritten(shadow, lowest, thread, reduces), shadow.wrote[lowest]
            at = int(np.flatnonzero(late)[0])
            place = order.reports.place(shadow, shadow.start + (int(lowest[at]) << shadow.shift))
            error = order.reports.copied_over(Stamp.of(int(found[at])), thread, place, inst, "a bulk store to")
            order.reports.report(error, inst)
        self._no_global_reader(shadow, where, thread, inst, reduces)
        shadow.wrote[where] = stamps.of_agent(agent, time, inst)
        self._note_write(shadow, agent, time)

    def _no_global_reader(self, shadow: Shadow, where: np.ndarray, thread: int, inst: int, reduces: bool) -> None:
        """Nobody may still read what a bulk store is about to write."""
        order = self.order
        assert isinstance(shadow.reads, LatestFirst)
        for found in (*shadow.reads.of(where), *shadow.copied.of(where)):
            late = self._late_for(found, thread, reads=True) | self._of_past(found)
            if reduces:
                late &= order.strength[stamps.instruction_of(np.maximum(found, 0))] == 0
            if late.any():
                at = int(np.flatnonzero(late)[0])
                host = shadow.start + (int(where[at]) << shadow.shift)
                self._still_needed(shadow, int(found[at]), host, thread, inst, "a bulk store to")

    def note_global_read(
        self, hosts: np.ndarray, nbytes: int, thread: int, inst: int, agent: int, time: int
    ) -> None:
        """A copy engine has begun to read global memory; whoever knows of its agent's time knows that it is done."""
        shadow = self._written_region(hosts)
        if shadow is None:
            return
        where, copied = shadow.where(hosts, nbytes).ravel(), shadow.copied
        keep = None
        if copied.last is not None:
            before = copied.last[where]
            keep = (before != stamps.NOTHING) & self._late_for(before, thread)
        copied.mark(where, np.full(len(where), stamps.of_agent(agent, time, inst)), keep)

    def _overwritten(self, shadow: Shadow, where: np.ndarray, thread: int, reduces: bool) -> np.ndarray:
        """Which granules were written by what a thread does not know of, when it issues a copy to them."""
        found = shadow.wrote[where]
        late = self._late_for(found, thread) | self._of_past(found)
        if reduces:
            late &= self.order.strength[stamps.instruction_of(np.maximum(found, 0))] == 0
        return late

    def _of_past(self, found: np.ndarray) -> np.ndarray:
        """Which stamps are of CTAs of earlier waves."""
        past = (stamps.time_of(found) < self.order.clocks.base) & (found > 0)
        return past if self.order.grid is None else past & (stamps.agent_of(found) != self.order.grid)

    def _written_region(self, hosts: np.ndarray) -> Shadow | None:
        """The shadow of the allocation that addresses lie in, if the launch may write it."""
        if not hosts.size:
            return None
        found = self.machine.memory.find(int(hosts.min()))
        return None if found is None or not found.watched else self.order.region(found)


def _alike(found: np.ndarray) -> bool:
    """Whether all stamps are the same, as where one copy has brought everything."""
    first = found.flat[0]
    return bool(first == found.flat[-1] and (found == first).all())
