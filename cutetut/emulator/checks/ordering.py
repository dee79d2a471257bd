"""One model of order for every access to memory (PTX ISA section 8): what must have happened before it has.

Every access asks two things: is what it touches usable (written, and no copy under way), and does its warp know of
all conflicting accesses (clocks.py).  Two accesses conflict if one of them writes and not both are strong enough for
each other.  What is found is described in race_reports.py.
"""

from __future__ import annotations

import numpy as np

from ..machine.access import CLUSTER, CTA, GPU, Access, Kind
from ..machine.machine import Machine
from ..machine.memory import Allocation
from ..machine.opcodes import UnitState, state
from ..machine.threads import Selection, lanes_of, threads_of, warps_of
from . import stamps
from .clocks import ALL_LANES, ASYNC_GLOBAL, ASYNC_SHARED, Clocks, Knowledge
from .guests import Guests
from .locations import Locations
from .peers import Peer, Side
from .previous import Region, Written
from .race_reports import Reports
from .shadow import CHUNK, LatestFirst, Shadow, WarpRows

_WIDEST = 16  # bytes of a granule, at most


@state
class Ordering(UnitState):
    """The shadows and clocks of one machine; the verbs of units are here and in async_ordering.py."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.clocks = Clocks(machine.T // 32)
        self.cta_of_warp = machine.cta_of[::32]
        self.cluster_of_warp = self.cta_of_warp // machine.cluster_size
        self.locations = Locations(self.clocks, self.cta_of_warp, machine.cluster_size)
        self.strength = np.zeros(len(machine.kernel.body), np.int8)
        self.reports = Reports(machine, self.clocks, self.strength)
        self.guests = Guests(machine, self.clocks)
        self.narrow_atomics = False  # the kernel has some of a smaller scope than the GPU
        self.granule = _WIDEST
        self.shared_shadow: Shadow | None = None
        self.regions: dict[int, Shadow] = {}  # of allocations that the launch may write, by their start
        self.cluster_of_agent = self.cluster_of_warp.astype(np.int64)
        self.waves = 0
        self.peer: Peer | None = None  # this launch among others that run at the same time
        self.grid: int | None = None  # the agent that stands for the kernel before a dependent launch
        self.holes: np.ndarray | None = None  # bytes of shared memory that are as if nothing had written them
        # instructions that may find unwritten bytes (holes.py), and the host addresses that they have used last
        self.marking: dict[int, np.ndarray] = {}
        stamps.check_limits(len(machine.kernel.body), self.clocks.warps, 0)

    def join(self, peer: Peer) -> None:
        """Other launches run at the same time, on this GPU or on others."""
        side = Side(
            self.machine, self.clocks, self.reports, self.regions, self.strength, self.new_agent, lambda: self.grid
        )
        peer.joins(side)
        self.peer = peer
        self.locations.join(peer)

    def reset(self) -> None:
        """New CTAs: their shared memory holds nothing; global memory stays as it is."""
        if self.waves:
            if self.peer is not None:
                self.peer.ends()
            self.clocks.new_wave()
        self.locations.new_wave(self.waves * self.machine.residents)
        self.waves += 1
        self.clocks.alive[:] = _lane_masks(self.machine.live)
        if self.peer is not None:
            self.peer.new_wave(self.waves)
        self.cluster_of_agent = self.cluster_of_warp.astype(np.int64)
        self.guests.reset()
        if self.holes is not None:
            self.holes[:] = False
        if self.shared_shadow is not None:
            self.shared_shadow.clear()
        self._follow_previous_launch()

    def _follow_previous_launch(self) -> None:
        """What a kernel that may still run has written (section 9.7.13.14): the agent of griddepcontrol.wait."""
        launch = self.machine.launch
        if not launch.programmatic or not isinstance(launch.previous, Written):
            return
        self.grid = self.new_agent(0)
        self.reports.previous = launch.previous.kernel, launch.previous.place
        if self.waves > 1:
            return
        for region in launch.previous.regions:
            start, inst = region.start, np.repeat(region.instructions, region.granule)
            end = start + len(inst)
            found = self.machine.memory.find(start)
            if found is None or int(region.where[-1]) >= found.end or not region.as_left():
                continue
            self.machine.memory.watch(start)
            shadow = self.region(found)
            first, last = max(start, shadow.start), min(end, shadow.start + shadow.nbytes)
            hosts = np.flatnonzero(inst[first - start : last - start] >= 0) + first
            who, when = np.full(len(hosts), self.grid), np.ones(len(hosts), np.int64)
            found_stamps = stamps.of_agents(who, when, inst[hosts - start].astype(np.int64))
            shadow.wrote[(hosts - shadow.start) >> shadow.shift] = found_stamps
            shadow.last_write = shadow.latest(shadow.last_write, self.grid, 1, len(self.clocks.now))

    def wait_for_previous(self, sel: Selection) -> None:
        """griddepcontrol.wait: the kernel before has ended, and its results are there."""
        if self.grid is not None:
            self.clocks.learn(warps_of(sel), self.grid, 1)

    def written(self) -> Written:
        """What this launch has written, for a launch that may begin before it ends."""
        regions, scheduler = [], self.machine.scheduler
        for shadow in self.regions.values():
            own = shadow.wrote > 0
            if self.grid is not None:
                own &= stamps.agent_of(shadow.wrote) != self.grid
            if own.any():
                inst = np.where(own, stamps.instruction_of(shadow.wrote), -1)
                regions.append(Region.of(shadow.start, shadow.granule, inst.astype(np.int32)))
        return Written(scheduler.kernel_name, tuple(regions), self.machine.kernel.body)

    # -- decoding -----------------------------------------------------------------------------

    def uses(self, access: Access) -> Access:
        """An instruction that accesses memory is decoded."""
        self.strength[access.inst] = access.scope
        self.narrow_atomics |= access.kind is Kind.ATOMIC and access.scope < GPU
        while access.nbytes % self.granule:
            self.granule //= 2
        return access

    @property
    def shadow(self) -> Shadow:
        """The shadow of all shared memory, made when the narrowest access is known."""
        found = self.shared_shadow
        if found is None:
            shared, m = self.machine.shared, self.machine
            rows = m.warps_per_cta * m.cluster_size
            found = Shadow(shared.origin, shared.span, self.granule, rows, stamps.UNWRITTEN)
            self.shared_shadow = found
        return found

    def region(self, allocation: Allocation) -> Shadow:
        """The shadow of an allocation."""
        found = self.regions.get(allocation.start)
        if found is None:
            start = allocation.start & -CHUNK
            found = Shadow(start, allocation.end - start, self.granule, None, stamps.NOTHING)
            self.regions[allocation.start] = found
        return found

    # -- agents -------------------------------------------------------------------------------

    def new_agent(self, warp: int) -> int:
        """A column in the clocks for something that works beside a warp."""
        agent = self.clocks.new_agent()
        stamps.check_limits(0, agent, int(self.clocks.base))
        if agent >= len(self.cluster_of_agent):
            self.cluster_of_agent = np.pad(self.cluster_of_agent, (0, agent + 64 - len(self.cluster_of_agent)))
        self.cluster_of_agent[agent] = self.cluster_of_warp[warp]
        return agent

    def release(self, sel: Selection) -> Knowledge:
        """What the selected threads' warps know together, for others to learn."""
        warps, lanes = lanes_of(sel)
        return self.clocks.release(warps, lanes)

    # -- ordinary accesses --------------------------------------------------------------------

    def shared(self, host: np.ndarray, sel: Selection, access: Access) -> None:
        """Threads are about to use shared memory."""
        shadow = self.shadow
        where = shadow.where(host, access.nbytes)
        wrote = shadow.wrote[where]
        threads = threads_of(sel)
        marks = access.inst in self.marking  # what nothing wrote is only marked (unwritten.py)
        if marks:
            self.marking[access.inst] = host
        if int(wrote.min()) < 0:
            usable = self.reports.unusable(shadow, wrote, host, threads, access, marks)
            if usable is not None:
                where, wrote, threads = where[usable], wrote[usable], threads[usable]
                host, sel = host[usable], threads
                if not len(threads):
                    return
        self.plain(shadow, host, where, wrote, sel, threads, access)
        if self.holes is not None and access.stores:
            self.mark_holes(host, access.nbytes, False)

    def mark_holes(self, host: np.ndarray, nbytes: int, value: bool) -> None:
        """Values in shared memory are as if nothing had written them, or no longer so."""
        assert self.holes is not None
        for i in range(nbytes):
            self.holes[host - self.shadow.start + i] = value

    def globally(self, region: object, host: np.ndarray, sel: Selection, access: Access) -> None:
        """Threads are about to use an allocation that the launch may write."""
        assert isinstance(region, Allocation)
        shadow = self.region(region)
        where = shadow.where(host, access.nbytes)
        wrote = shadow.wrote[where]
        if access.non_coherent and int(wrote.max()) > 0:
            self.reports.non_coherent(shadow, wrote, host, threads_of(sel), access, self.grid)
        if self.peer is not None:
            self.peer.touches(host, threads_of(sel), access)
        self.plain(shadow, host, where, wrote, sel, threads_of(sel), access)

    def flag(self, host: np.ndarray, threads: np.ndarray, access: Access) -> None:
        """Threads use memory that the launch only reads, with a strong access."""
        self.locations.access(host, threads, access)

    def holds_mbarrier(self, host: int, lives: bool) -> None:
        """An mbarrier is made in shared memory, or unmade."""
        shadow = self.shadow
        shadow.wrote[shadow.span(host, 8)] = stamps.MBARRIER if lives else stamps.UNWRITTEN
        shadow.version += 1

    def copy_over(
        self, shadow: Shadow, host: np.ndarray, where: np.ndarray, threads: np.ndarray, access: Access
    ) -> None:
        """Threads issue small copies to memory that others may still use."""
        own = warps_of(threads)
        if self._unaware(shadow, shadow.last_write, own) is not None:
            self._against_writes(shadow, host, shadow.wrote[where], threads, access)
        self._against_reads(shadow, host, where, threads, access, own)

    def exited(self, threads: np.ndarray) -> None:
        """What all lanes that are left have learned is their warp's."""
        warps, lanes = lanes_of(threads)
        self.clocks.alive[warps] &= ~(ALL_LANES if lanes is None else lanes)

    def cta_over(self, cta: int, thread: int) -> None:
        """The last thread of a CTA has exited: nobody may still need its shared memory."""
        self.guests.check_exit(cta, thread)

    def visits(self, threads: np.ndarray, hosts: np.ndarray, inst: int | None) -> None:
        """Threads use shared memory of other CTAs."""
        self.guests.visit(threads, hosts, inst)

    def plain(
        self, shadow: Shadow, host: np.ndarray, where: np.ndarray, wrote: np.ndarray, sel: Selection,
        threads: np.ndarray, access: Access,
    ) -> None:  # fmt: skip
        """Check one access of some threads against what others did, and remember it."""
        warps = threads >> 5
        own = _span(sel)
        unaware = self._unaware(shadow, shadow.last_write, own)
        if unaware is not None:
            self._against_writes(shadow, host, wrote, threads, access)
        if not access.stores or access.kind is Kind.ATOMIC:
            self._against_atomics(shadow, host, where, threads, access, own)
        if access.stores:
            self._against_reads(shadow, host, where, threads, access, own)
        if access.scope:
            self.locations.access(host, threads, access)
        self.clocks.touch(sel)
        times = self.clocks.now[warps]
        stamp = stamps.of_threads(threads, times, access.inst)
        if access.stores:
            self._wrote(shadow, host, where, stamp, threads, access, warps, times)
        else:
            self._read(shadow, where, stamp, threads, warps, times)

    def _wrote(
        self, shadow: Shadow, host: np.ndarray, where: np.ndarray, stamp: np.ndarray, threads: np.ndarray,
        access: Access, warps: np.ndarray, times: np.ndarray,
    ) -> None:  # fmt: skip
        capacity = len(self.clocks.now)
        shadow.version += 1
        shadow.wrote[where] = stamp if where.ndim == 1 else stamp[:, None]
        shadow.last_write = shadow.latest(shadow.last_write, warps, times, capacity)
        if access.kind is Kind.ATOMIC:
            self._mark(shadow.atomics, shadow.last_atomic, where, stamp, threads, warps)
            shadow.last_atomic = shadow.latest(shadow.last_atomic, warps, times, capacity)
            if access.scope < GPU:
                self._against_each_other(host, stamp, threads, access)
        elif len(threads) > 1:
            first = where if where.ndim == 1 else where[:, 0]
            if (shadow.wrote[first] != stamp).any():
                self.reports.several_writers(host, threads, access)

    def _against_each_other(self, host: np.ndarray, stamp: np.ndarray, threads: np.ndarray, access: Access) -> None:
        """Atomic operations that several threads start at once: each must be within the scope of the others."""
        groups = (self.cta_of_warp if access.scope < CLUSTER else self.cluster_of_warp)[threads >> 5]
        if (groups == groups[0]).all():
            return
        order = np.argsort(host, kind="stable")
        apart = (host[order][1:] == host[order][:-1]) & (groups[order][1:] != groups[order][:-1])
        if apart.any():
            one, other = order[np.flatnonzero(apart)[0] + np.array([1, 0])]
            self.reports.out_of_scope(stamps.Stamp.of(int(stamp[other])), int(host[one]), threads[[one]], access)

    def _read(
        self, shadow: Shadow, where: np.ndarray, stamp: np.ndarray, threads: np.ndarray, warps: np.ndarray,
        times: np.ndarray,
    ) -> None:  # fmt: skip
        self._mark(shadow.reads, shadow.last_read, where, stamp, threads, warps)
        shadow.last_read = shadow.latest(shadow.last_read, warps, times, len(self.clocks.now))

    def _mark(
        self, kept: WarpRows | LatestFirst, last: np.ndarray, where: np.ndarray, stamp: np.ndarray,
        threads: np.ndarray, warps: np.ndarray,
    ) -> None:  # fmt: skip
        if isinstance(kept, WarpRows):
            kept.mark(where, warps, stamp)
            return
        keep = None
        if kept.last is not None and self.clocks.lagging(last, warps).any():
            before = kept.last[where]
            keep = (before != stamps.NOTHING) & self._late(before, threads, True)
        kept.mark(where, stamp, keep)

    # -- conflicts ----------------------------------------------------------------------------

    def _unaware(self, shadow: Shadow, last: np.ndarray, own: slice | np.ndarray) -> np.ndarray | None:
        """Which agents did something here that one of these warps does not know of; None: it is all known."""
        if not len(last):
            return None
        lagging = self.clocks.lagging(last, own)
        if shadow.rows is not None and self.machine.residents > self.machine.cluster_size:
            n = lagging.shape[1]
            lagging &= self.cluster_of_agent[:n] == self.cluster_of_warp[own][:, None]
        elif shadow.rows is None and self.waves > 1:
            return np.arange(lagging.shape[1])  # what earlier waves did is known from nowhere
        return np.flatnonzero(lagging.any(axis=0)) if lagging.any() else None

    def _late(self, found: np.ndarray, threads: np.ndarray, globally: bool, reads: bool = False) -> np.ndarray:
        """Which of the stamps (rows: threads), of loads if `reads`, their threads cannot know of."""
        rows = np.maximum(found if found.ndim == 1 else found.reshape(len(threads), -1), stamps.NOTHING)
        agents, times = stamps.agent_of(rows), stamps.time_of(rows)
        late = self.clocks.unknown(threads, agents, times, reads)
        if globally and self.waves > 1:
            past = (times < self.clocks.base) & (times > 0)
            late |= past if self.grid is None else past & (agents != self.grid)
        if late.any():
            self._excuse(late, rows, threads, reads)
        return late.reshape(found.shape)

    def _excuse(self, late: np.ndarray, rows: np.ndarray, threads: np.ndarray, reads: bool) -> None:
        """A lane knows what it did itself, and what it has heard of single lanes and of earlier waves."""
        own = threads if rows.ndim == 1 else threads[:, None]
        times = stamps.time_of(rows)
        late &= ~((stamps.thread_of(rows) == own) & (times >= self.clocks.base))
        if not self.clocks.has_details or not late.any():
            return
        for at in np.argwhere(late):
            stamp, thread = int(rows[tuple(at)]), int(threads[at[0]])
            time, agent = stamp & stamps.TIMES, int(stamps.agent_of(np.array(stamp)))
            if time < self.clocks.base:
                late[tuple(at)] = not self.clocks.known_from_past(thread >> 5, agent, time)
            else:
                lane = stamps.Stamp.of(stamp).lane
                late[tuple(at)] = not self.clocks.known_to_lanes(thread >> 5, thread & 31, agent, lane, time, reads)

    def _strong_enough(self, found: np.ndarray, threads: np.ndarray, access: Access) -> np.ndarray:
        """Which of the stamps are of accesses that are strong, as this one is, each within the scope of the other."""
        least = np.minimum(self.strength[stamps.instruction_of(found)], access.scope)
        agents = np.minimum(stamps.agent_of(found), self.clocks.warps - 1)
        warps = (threads >> 5).reshape(-1, *[1] * (found.ndim - 1))
        same_cta = self.cta_of_warp[agents] == self.cta_of_warp[warps]
        same_cluster = self.cluster_of_agent[stamps.agent_of(found)] == self.cluster_of_warp[warps]
        return np.asarray((least >= GPU) | (same_cta & (least >= CTA)) | (same_cluster & (least >= CLUSTER)))

    def _conflicts(
        self, shadow: Shadow, found: np.ndarray, threads: np.ndarray, access: Access, reads: bool = False
    ) -> np.ndarray | None:
        """Which stamps conflict with an access; None: none does."""
        late = self._late(found, threads, shadow.rows is None, reads)
        if access.scope and late.any():
            late &= ~self._strong_enough(np.maximum(found, 0), threads, access)
        return late if late.any() else None

    def _against_writes(
        self, shadow: Shadow, host: np.ndarray, wrote: np.ndarray, threads: np.ndarray, access: Access
    ) -> None:
        late = self._conflicts(shadow, wrote, threads, access)
        if late is None or (access.stores and self.reports.writes_the_same(host, threads, late, access)):
            return
        self.reports.after_write(shadow, wrote, late, host, threads, access)

    def _against_atomics(
        self, shadow: Shadow, host: np.ndarray, where: np.ndarray, threads: np.ndarray, access: Access,
        own: slice | np.ndarray,
    ) -> None:  # fmt: skip
        agents = self._unaware(shadow, shadow.last_atomic, own)
        if agents is None or (access.scope >= GPU and not self.narrow_atomics):
            return
        for found in self._of(shadow.atomics, where, agents):
            late = self._conflicts(shadow, found, threads, access)
            if late is not None:
                self.reports.after_write(shadow, found, late, host, threads, access)

    def _against_reads(
        self, shadow: Shadow, host: np.ndarray, where: np.ndarray, threads: np.ndarray, access: Access,
        own: slice | np.ndarray,
    ) -> None:  # fmt: skip
        agents = self._unaware(shadow, shadow.last_read, own)
        if agents is not None:
            for found in self._of(shadow.reads, where, agents):
                late = self._conflicts(shadow, found, threads, access, True)
                if late is not None and not (
                    access.stores and self.reports.writes_the_same(host, threads, late, access)
                ):
                    self.reports.after_read(shadow, found, late, host, threads, access)
        for found in shadow.copied.of(where):
            late = self._late(found, threads, True, True)
            if late.any():
                self.reports.after_copy(shadow, found, late, host, threads, access)
        readers = self._unaware(shadow, shadow.last_async, own) if shadow.async_reads else None
        for agent in () if readers is None else readers.tolist():
            if agent in shadow.async_reads:
                found = shadow.async_reads[agent][_chunks(shadow, host)]
                late = self._late(found, threads, False, True)
                if late.any():
                    self.reports.after_async_read(shadow, found, late, host, threads, access)

    def _of(self, kept: WarpRows | LatestFirst, where: np.ndarray, agents: np.ndarray) -> list[np.ndarray]:
        if isinstance(kept, WarpRows):
            return list(kept.of(where, agents[agents < self.clocks.warps]))
        return list(kept.of(where))

    # -- fences -------------------------------------------------------------------------------

    def fence(self, sel: Selection, scope: int) -> None:
        """fence.sc or fence.acq_rel."""
        warps, lanes = lanes_of(sel)
        for i, warp in enumerate(warps.tolist()):
            self.locations.fence(warp, 0xFFFFFFFF if lanes is None else int(lanes[i]), scope)

    def fenced(self, warps: np.ndarray, least: int = CTA) -> Knowledge:
        """What fences of these warps, of a scope or of a wider one, have made ready for a relaxed arrival."""
        known = Knowledge(len(self.clocks.waves), self.clocks.fenced_inits(warps))
        for warp in warps.tolist():
            known = known.join(self.locations.fenced(warp, least))
        return known

    def sync_lanes(self, sel: Selection) -> None:
        """Lanes of one warp meet: bar.warp.sync, and the fences and waits of WGMMA, which no lane passes alone."""
        warps = warps_of(sel)
        self.locations.rejoin(warps)
        if self.clocks.used[warps].any():
            self.clocks.sync_lanes(warps)
        else:
            self.clocks.rejoin(warps)

    def sync_some_lanes(self, warps: np.ndarray, lanes: np.ndarray) -> None:
        """Lanes of each warp, given as masks, meet at a bar.warp.sync; if no others are left, the whole warp does."""
        for warp, mask in zip(warps.tolist(), lanes.tolist(), strict=True):
            if int(self.clocks.alive[warp]) & ~mask:
                self.locations.rejoin(np.array([warp]), mask)
                self.clocks.sync_some_lanes(warp, mask)
            else:
                self.sync_lanes(np.array([warp << 5]))

    def shuffled(self, sel: Selection) -> None:
        """Whole warps shuffle: that orders no memory (PTX ISA section 9.7.9.6)."""
        self.clocks.shuffled(warps_of(sel))

    def fence_proxy(self, sel: Selection, views: tuple[int, ...]) -> None:
        """A fence between ordinary accesses and those of the async proxy."""
        warps, lanes = lanes_of(sel)
        self.clocks.fence(warps, views, lanes)


def _lane_masks(live: np.ndarray) -> np.ndarray:
    """For each warp the mask of its lanes among these threads."""
    found: np.ndarray = np.packbits(live, bitorder="little").view(np.uint32)
    return found


def _span(sel: Selection) -> slice | np.ndarray:
    """The warps of a selection, as a slice where they are consecutive."""
    if isinstance(sel, slice):
        return slice(sel.start >> 5, (sel.stop + 31) >> 5)
    return warps_of(sel)


def _chunks(shadow: Shadow, host: np.ndarray) -> np.ndarray:
    return np.asarray((host - shadow.start) // CHUNK)


__all__ = ["ASYNC_GLOBAL", "ASYNC_SHARED", "Ordering"]
