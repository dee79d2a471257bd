"""Who knows of whom: vector clocks (Lamport 1978; Mattern 1989) for the order of PTX ISA section 8.9.

The *agents* are the resident warps and, one column each, what works on its own beside them: an mbarrier (for the
copies whose bytes it counts), a warpgroup's WGMMAs, a thread's bulk copies, a warp's cp.async, the kernel before this
one.  Every agent counts a time of its own; `seen[view, warp, agent]` says up to which time everything of an agent has
happened before what a warp does now.  Knowledge moves only through *releases* and *acquires*: barriers, phases of
mbarriers, strong accesses (locations.py).

There are six views.  GENERIC is what ordinary accesses may rely on.  The two ASYNC views say what of it is visible
to the async proxy, in shared and in global memory: only proxy fences bring them forward (sections 8.3 and 9.7.13.4).
INITS says the same of initialised mbarriers, and TENSORMAP of changed tensor maps: both have fences of their own.
READS is for what others have read and may now be overwritten: more than GENERIC, where an arrival at another CTA's
mbarrier has CTA scope and so does not pass on what was stored (`weakened`).

Lanes: what a warp has done up to `seen[GENERIC, warp, warp]` is ordered among its lanes (bar.warp.sync and barriers
do that); later accesses are ordered for the lane that made them, and for those that met it at a bar.warp.sync of some
lanes only.  What single lanes have learned, because they waited alone, is kept apart from `seen` (apart.py) until the
lanes meet; that holds for GENERIC, other views are the whole warp's at once.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from .apart import Apart, joined

GENERIC, ASYNC_SHARED, ASYNC_GLOBAL, INITS, TENSORMAP, READS = range(6)
VIEWS = 6
FENCED = 5  # views that a kernel needs that has proxy fences
SPARE = 64  # columns for agents beside the warps before the tables grow
ALL_LANES = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True)
class Knowledge:
    """What a release passes on: per view and agent the time; what only some lanes of a warp have done; earlier waves.

    `lanes` has (warp, mask, time): of this warp, these lanes' accesses up to this time.  `past` maps the number of a
    wave of CTAs that has ended to what was known of its agents.
    """

    wave: int
    seen: np.ndarray
    lanes: tuple[tuple[int, int, int], ...] = ()
    past: dict[int, np.ndarray] = field(default_factory=dict)

    def join(self, other: Knowledge | None) -> Knowledge:
        """What either knows."""
        if other is None or other is self:
            return self
        if self.wave != other.wave:
            new, old = (self, other) if self.wave > other.wave else (other, self)
            return Knowledge(new.wave, new.seen, new.lanes, _joined(new.past, old.as_past()))
        views = max(len(self.seen), len(other.seen))
        seen = np.zeros((views, max(self.seen.shape[1], other.seen.shape[1])), np.int64)
        for part in (self.seen, other.seen):
            corner = seen[: len(part), : part.shape[1]]
            np.maximum(corner, part, out=corner)
        lanes = self.lanes if not other.lanes or other.lanes == self.lanes else _latest((*self.lanes, *other.lanes))
        return Knowledge(self.wave, seen, lanes, _joined(self.past, other.past))

    def as_past(self) -> dict[int, np.ndarray]:
        """The same for agents of a later wave."""
        return {**self.past, self.wave: self.seen[GENERIC]}


def _latest(lanes: Iterable[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Of each warp's lanes the latest time; earlier ones say nothing more."""
    times: dict[tuple[int, int], int] = {}
    for warp, mask, time in lanes:
        times[warp, mask] = max(time, times.get((warp, mask), time))
    return tuple((warp, mask, time) for (warp, mask), time in sorted(times.items()))


def _joined(a: dict[int, np.ndarray], b: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    """What either knows of earlier waves."""
    result = dict(a)
    for wave, seen in b.items():
        old = result.get(wave)
        if old is None:
            result[wave] = seen
        elif old is not seen:
            n = max(len(old), len(seen))
            result[wave] = np.maximum(np.pad(old, (0, n - len(old))), np.pad(seen, (0, n - len(seen))))
    return result


class Clocks:
    """The clocks of one launch: `warps` resident warps at a time, in waves."""

    def __init__(self, warps: int) -> None:
        self.warps = warps
        self.agents = warps
        self.now = np.zeros(warps + SPARE, np.int64)
        self.seen = np.zeros((VIEWS, warps, warps + SPARE), np.int64)
        self.views = 1  # the others are all zero until the first proxy fence, or the first narrow arrival
        self.used = np.zeros(warps, np.uint32)  # lanes that have used memory since their warp's lanes were ordered
        self.together = np.zeros(warps, np.int64)  # up to when a warp's accesses are before its last shuffle
        self.met = np.zeros(warps, np.int64)  # up to when a warp's mbarriers were made before its last cluster barrier
        self.waves: list[int] = []  # the time at which each wave began
        self.base = 0
        # (warp, other warp) -> lanes of the other, and the warp's lanes that know of them -> up to when
        self._lanes: dict[tuple[int, int], dict[tuple[int, int], int]] = {}
        self.apart = Apart()
        # (view, warp) -> when each lane fenced last, if it did so while others had used memory since they met
        self.fenced_alone: dict[tuple[int, int], np.ndarray] = {}
        self.alive = np.full(warps, ALL_LANES)  # the lanes of each warp that have not exited
        self._past: dict[int, dict[int, np.ndarray]] = {}  # warp -> what it knows of earlier waves
        self.new_wave()

    def new_wave(self) -> None:
        """New CTAs: nobody knows of anybody; times go on, so that what earlier waves did keeps its own."""
        self.base = int(self.now.max()) + 2
        self.waves.append(self.base)
        self.now[:] = self.base
        self.seen[: self.views] = 0
        self.used[:] = 0
        self.agents = self.warps
        self._lanes.clear()
        self._past.clear()
        self.apart.clear()
        self.fenced_alone.clear()

    def new_agent(self) -> int:
        """The column of something that works beside the warps; its time begins at `base`."""
        if self.agents == self.seen.shape[2]:
            self.seen = np.pad(self.seen, ((0, 0), (0, 0), (0, self.agents)))
            self.now = np.pad(self.now, (0, self.agents), constant_values=self.base)
        self.agents += 1
        return self.agents - 1

    @property
    def has_details(self) -> bool:
        """Whether somebody knows of single lanes, or of an earlier wave."""
        return bool(self._lanes or self._past)

    # -- asking -------------------------------------------------------------------------------

    def time(self, warp: int) -> int:
        """The present time of a warp."""
        return int(self.now[warp])

    def knows(
        self, warps: np.ndarray, agents: np.ndarray | int, times: np.ndarray | int, view: int = GENERIC
    ) -> np.ndarray:
        """Whether what agents did at a time has happened before what warps do now."""
        return np.asarray(self.seen[view, warps, agents] >= times)

    def row(self, thread: int, reads: bool = False) -> np.ndarray:
        """Up to which time a thread knows of each agent, or of what each has read."""
        known: np.ndarray = self._known(reads, thread >> 5)
        for more in self.apart.of(thread >> 5, 1 << (thread & 31)) if self.apart else ():
            known = joined(known, more)
        return known

    def _known(self, reads: bool, warps: int | np.ndarray, agents: np.ndarray | slice = slice(None)) -> np.ndarray:
        found: np.ndarray = self.seen[GENERIC, warps, agents]
        return np.maximum(found, self.seen[READS, warps, agents]) if reads and self.views > READS else found

    def unknown(self, threads: np.ndarray, agents: np.ndarray, times: np.ndarray, reads: bool = False) -> np.ndarray:
        """Of what agents did (`reads`: have read) at these times (rows: threads), what the threads do not know of."""
        warps = threads >> 5
        late = np.asarray(self._known(reads, warps if agents.ndim == 1 else warps[:, None], agents) < times)
        if self.apart and late.any():
            for warp in np.unique(warps).tolist():
                for mask, known in self.apart.groups.get(warp, ()):
                    rows = np.flatnonzero((warps == warp) & (mask >> (threads & 31) & 1 != 0))
                    late[rows] &= _times(known, agents[rows]) < times[rows]
        return late

    def lagging(self, last: np.ndarray, warps: slice | np.ndarray) -> np.ndarray:
        """For each of these warps and each agent: whether it does not know of what the agent did last, at `last`."""
        n = min(self.agents, len(last))
        return np.asarray(self.seen[GENERIC, warps, :n] < last[:n])

    def known_to_lanes(
        self, warp: int, lane: int, agent: int, other_lane: int, time: int, reads: bool = False
    ) -> bool:
        """The exact answer for one access of a lane: that of a lane of the same warp or of a partial release counts."""
        if self.base <= time <= self.seen[GENERIC, warp, agent]:
            return True
        if reads and self.knows_reads(warp, agent, time):
            return True
        if agent == warp and time >= self.base and lane == other_lane:
            return True
        if self.base <= time and any(time <= known[agent] for known in self.apart.of(warp, 1 << lane)
                                     if agent < len(known)):  # fmt: skip
            return True
        return self.knows_lane(warp, lane, agent, other_lane, time)

    def knows_lane(self, warp: int, lane: int, agent: int, other_lane: int, time: int) -> bool:
        """Whether a lane has heard by a partial release of what a lane of another warp did at a time."""
        return any(
            mask >> other_lane & 1 and time <= until and viewers >> lane & 1
            for (mask, viewers), until in self._lanes.get((warp, agent), {}).items()
        )

    def heard_of(self, warp: int, other: int) -> int:
        """Up to when all lanes of a warp know of all lanes of another one."""
        return int(self._known(True, warp, np.array([other]))[0])

    def knows_reads(self, warp: int, agent: int, time: int) -> bool:
        """Whether a warp knows from a narrow arrival that an agent has gone that far, and so of what it has read."""
        return bool(self.views > READS and self.base <= time <= self.seen[READS, warp, agent])

    def lanes_heard_of(self, warp: int, agent: int, time: int) -> int:
        """The mask of those lanes of another warp that this one has heard of as they were at a time, or later."""
        heard = self._lanes.get((warp, agent), {})
        return functools.reduce(operator.or_, (mask for (mask, _), until in heard.items() if until >= time), 0)

    def known_from_past(self, warp: int, agent: int, time: int) -> bool:
        """Whether a warp knows of what an agent of an earlier wave did."""
        wave = int(np.searchsorted(self.waves, time, "right"))  # they are counted from 1
        seen = self._past.get(warp, {}).get(wave)
        return seen is not None and agent < len(seen) and time <= seen[agent]

    def fenced_by_lane(self, view: int, thread: int, time: int, viewer: int) -> bool:
        """Whether a lane fenced alone, after what it did at a time, and another thread knows of that."""
        times = self.fenced_alone.get((view, thread >> 5))
        if times is None or times[thread & 31] < time:
            return False
        return self.known_to_lanes(viewer >> 5, viewer & 31, thread >> 5, thread & 31, time)

    def knows_mbarrier(self, threads: np.ndarray, maker: int, time: int) -> np.ndarray:
        """Whether threads know of an mbarrier that one of them or another made at a time.

        A fence of mbarriers makes it known to those who meet the warp behind it, also at a relaxed cluster barrier.
        The other lanes of the maker's warp must have met it: a fence that they execute themselves tells them nothing.
        """
        warps, home = threads >> 5, maker >> 5
        told = np.where(warps == home, self.met[home], self.seen[INITS, warps, home]) >= time
        unknown = self.unknown(threads, np.full(len(threads), home), np.full(len(threads), time))
        return told | ~unknown | (threads == maker)

    # -- lanes --------------------------------------------------------------------------------

    def touch(self, threads: slice | np.ndarray) -> None:
        """Lanes use memory."""
        if isinstance(threads, slice):
            first, last = threads.start, threads.stop
            if not (first | last) & 31:
                self.used[first >> 5 : last >> 5] = ALL_LANES
                return
            threads = np.arange(first, last)
        np.bitwise_or.at(self.used, threads >> 5, np.uint32(1) << (threads & 31).astype(np.uint32))

    def sync_lanes(self, warps: np.ndarray) -> None:
        """bar.warp.sync of whole warps: their lanes know of each other, and what any of them knows."""
        self.rejoin(warps)
        self.seen[GENERIC, warps, warps] = self.now[warps]
        self.now[warps] += 1
        self.used[warps] = 0

    def sync_some_lanes(self, warp: int, mask: int) -> None:
        """bar.warp.sync of some lanes of a warp: they know of each other, and each what any of them knows."""
        for known in [*self.apart.of(warp, mask)]:
            self.learn_apart(warp, mask, known)
        one = np.array([warp])
        for other, lanes, time in self._partial_knowledge(one, np.array([mask], np.uint32)):
            self._hear(warp, mask, other, lanes, time)
        self._hear(warp, mask, warp, mask, int(self.now[warp]))
        self.now[warp] += 1

    def met_cluster(self, warps: np.ndarray) -> None:
        """All lanes of these warps have passed their cluster's barrier, relaxed or not."""
        self.met[warps] = self.seen[INITS, warps, warps]

    def shuffled(self, warps: np.ndarray) -> None:
        """All lanes of whole warps come together, and nothing is ordered: what they did before gets an earlier time."""
        used = warps[self.used[warps] != 0]
        self.together[used] = self.now[used]
        self.now[used] += 1

    def rejoin(self, warps: np.ndarray) -> None:
        """The lanes of each of these warps meet: what one has learned all know."""
        for warp in warps.tolist() if self._lanes else ():
            self._lanes.pop((warp, warp), None)
        if not self.apart:
            return
        mine = self.apart.groups.keys() & set(warps.tolist())
        for warp in mine:
            for known in self.apart.take(warp):
                row = self.seen[GENERIC, warp, : len(known)]
                np.maximum(row, known, out=row)
        for (viewer, _), found in self._lanes.items() if mine else ():
            if viewer in mine:
                shared = _latest((0, mask, time) for (mask, _), time in found.items())
                found.clear()
                found.update({(mask, int(ALL_LANES)): time for _, mask, time in shared})

    def learn_apart(self, warp: int, lanes: int, times: np.ndarray) -> None:
        """Some lanes of a warp learn something; what all of them know then is the warp's."""
        self.apart.learn(warp, lanes, times)
        shared = self.apart.shared(warp, int(self.alive[warp]))
        if shared is not None:
            row = self.seen[GENERIC, warp, : len(shared)]
            np.maximum(row, shared, out=row)

    # -- learning -----------------------------------------------------------------------------

    def release(self, warps: np.ndarray, lanes: np.ndarray | None = None) -> Knowledge:
        """What these warps know together, for others to learn; what they do from now on is later.

        lanes: the mask of each warp's lanes that release; without one all of them do.
        """
        n, v = self.agents, self.views
        seen = self.seen[:v, warps, :n].max(axis=1) if len(warps) > 1 else self.seen[:v, warps[0], :n].copy()
        for i, warp in enumerate(warps.tolist()) if self.apart else ():
            for known in self.apart.of(warp, int(ALL_LANES if lanes is None else lanes[i])):
                np.maximum(seen[GENERIC, : len(known)], known, out=seen[GENERIC, : len(known)])
        until, partial = self._own(warps, lanes)
        seen[GENERIC, warps] = np.maximum(seen[GENERIC, warps], until)
        past: dict[int, np.ndarray] = {}
        if self._lanes or self._past:
            partial = list(_latest(partial + self._partial_knowledge(warps, lanes)))
            for warp in warps.tolist():
                past = _joined(past, self._past.get(warp, {}))
        self.now[warps] += 1
        return Knowledge(len(self.waves), seen, tuple(partial), past)

    def weakened(self, known: Knowledge, kept: slice, copied: list[int]) -> Knowledge:
        """What an arrival of too narrow a scope passes on to another CTA, whose warps are `kept`.

        The loads before it have their values, and bulk copies that were waited for are complete; but stores, and what
        the agents `copied` wrote for threads of other CTAs, may arrive later.  Of single lanes everything counts as
        read.
        """
        self.views = VIEWS
        seen = np.zeros((VIEWS, known.seen.shape[1]), np.int64)
        seen[: len(known.seen)] = known.seen
        np.maximum(seen[READS], seen[GENERIC], out=seen[READS])
        for warp, _, time in known.lanes:
            seen[READS, warp] = max(time, int(seen[READS, warp]))
        mine = seen[GENERIC, kept].copy()
        seen[GENERIC, : self.warps] = 0
        seen[GENERIC, kept] = mine
        seen[GENERIC, [agent for agent in copied if agent < seen.shape[1]]] = 0
        return Knowledge(known.wave, seen, (), known.past)

    def with_agent(self, known: Knowledge | None, agent: int, time: int) -> Knowledge:
        """The same knowledge, and what an agent beside the warps did up to a time."""
        seen = np.zeros((1, max(self.agents, agent + 1)), np.int64)
        seen[GENERIC, agent] = time
        return Knowledge(len(self.waves), seen).join(known)

    def _own(self, warps: np.ndarray, lanes: np.ndarray | None) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
        """Up to when these warps' own accesses are passed on, and what only some of their lanes pass on."""
        now = self.now[warps]
        if lanes is None or not (others := (self.used[warps] & ~lanes) != 0).any():
            return now, []
        partial = [(int(w), int(m), int(t)) for w, m, t in zip(warps[others], lanes[others], now[others], strict=True)]
        return np.where(others, self.seen[GENERIC, warps, warps], now), partial

    def _partial_knowledge(self, warps: np.ndarray, lanes: np.ndarray | None) -> list[tuple[int, int, int]]:
        masks = [int(ALL_LANES)] * len(warps) if lanes is None else lanes.tolist()
        mine = dict(zip(warps.tolist(), masks, strict=True))
        return [(w, m, t) for (v, w), known in self._lanes.items() if v in mine
                for (m, viewers), t in known.items() if viewers & mine[v]]  # fmt: skip

    def acquire(self, warps: np.ndarray, known: Knowledge | None, lanes: np.ndarray | None = None) -> None:
        """These warps learn something, or only these lanes of each."""
        if known is None or not len(warps):
            return
        past = known.past
        if known.wave == len(self.waves):
            if lanes is None or not (some := (self.alive[warps] & ~lanes) != 0).any():
                self._take(warps, known)
            else:
                if not some.all():
                    self._take(warps[~some], known)
                for warp, mask in zip(warps[some].tolist(), lanes[some].tolist(), strict=True):
                    self._take_apart(warp, mask, known)
        else:
            past = known.as_past()
        if past:
            for warp in warps.tolist():
                self._past[warp] = _joined(self._past.get(warp, {}), past)

    def _take(self, warps: np.ndarray, known: Knowledge) -> None:
        views, n = known.seen.shape
        self.views = max(self.views, views)
        rows = _span(warps)
        if isinstance(rows, slice):
            mine = self.seen[:views, rows, :n]
            np.maximum(mine, known.seen[:, None, :], out=mine)
        else:
            self.seen[:views, rows, :n] = np.maximum(self.seen[:views, rows, :n], known.seen[:, None, :])
        for warp, mask, time in known.lanes:
            for viewer in warps.tolist():
                self._hear(viewer, int(ALL_LANES), warp, mask, time)

    def _take_apart(self, warp: int, mask: int, known: Knowledge) -> None:
        """Some lanes of a warp learn something; of the other views the whole warp does."""
        views, n = known.seen.shape
        self.views = max(self.views, views)
        self.seen[1:views, warp, :n] = np.maximum(self.seen[1:views, warp, :n], known.seen[1:])
        self.learn_apart(warp, mask, known.seen[GENERIC])
        for other, lanes, time in known.lanes:
            self._hear(warp, mask, other, lanes, time)

    def _hear(self, warp: int, viewers: int, other: int, mask: int, time: int) -> None:
        """Lanes of a warp learn what some lanes of another have done."""
        known = self._lanes.setdefault((warp, other), {})
        known[mask, viewers] = max(time, known.get((mask, viewers), time))

    def learn(
        self, warps: np.ndarray | slice | int, agent: int, time: int, lanes: np.ndarray | None = None
    ) -> None:
        """These warps, or only these lanes of each, have waited for what an agent beside the warps did up to a time."""
        if lanes is not None and isinstance(warps, np.ndarray) and (some := (self.alive[warps] & ~lanes) != 0).any():
            times = np.zeros(agent + 1, np.int64)
            times[agent] = time
            for warp, mask in zip(warps[some].tolist(), lanes[some].tolist(), strict=True):
                self.learn_apart(warp, mask, times)
            warps = warps[~some]
        column = self.seen[GENERIC, :, agent]
        if isinstance(warps, int):
            column[warps] = max(column[warps], time)
        else:
            column[warps] = np.maximum(column[warps], time)

    def meet(self, warps: np.ndarray) -> None:
        """A barrier of these warps, all lanes of them."""
        self.rejoin(warps)
        self.acquire(warps, self.release(warps))
        self.used[warps] = 0

    def meet_in_ctas(self, ctas: int) -> None:
        """Each of `ctas` CTAs has a barrier of all its warps."""
        self.rejoin(np.arange(self.warps))
        if self._lanes or self._past:
            for warps in np.arange(self.warps).reshape(ctas, -1):
                self.meet(warps)
            return
        n, own = self.agents, np.arange(self.warps)
        self.seen[GENERIC, own, own] = self.now[: self.warps]
        table = self.seen[: self.views].reshape(self.views, ctas, self.warps // ctas, -1)[..., :n]
        table[:] = table.max(axis=2, keepdims=True)
        self.now[: self.warps] += 1
        self.used[:] = 0

    def fenced_inits(self, warps: np.ndarray) -> np.ndarray:
        """The initialisations of mbarriers that these warps' fences have made ready, as the table of a release."""
        seen = np.zeros((FENCED, self.agents), np.int64)
        seen[INITS] = self.seen[INITS, warps, : self.agents].max(axis=0)
        seen[INITS, warps] = np.maximum(seen[INITS, warps], self.base - 1)  # they have begun
        return seen

    def fence(self, warps: np.ndarray, views: tuple[int, ...], lanes: np.ndarray | None = None) -> None:
        """A proxy fence: what these warps know of comes into view there, and what the fencing lanes have done."""
        self.views = max(self.views, FENCED)
        until, alone = self._own(warps, lanes)
        if alone and self._lanes:
            alone += [known for known in self._partial_knowledge(warps, lanes) if known[0] in warps]
        for warp, mask, time in alone:
            for view in views:
                times = self.fenced_alone.setdefault((view, warp), np.zeros(32, np.int64))
                np.maximum(times, time, out=times, where=(mask >> np.arange(32) & 1) != 0)
        for view in views:
            self.seen[view, warps] = np.maximum(self.seen[view, warps], self.seen[GENERIC, warps])
            for i, warp in enumerate(warps.tolist()) if self.apart else ():
                for known in self.apart.of(warp, int(ALL_LANES if lanes is None else lanes[i])):
                    row = self.seen[view, warp, : len(known)]
                    np.maximum(row, known, out=row)
            self.seen[view, warps, warps] = np.maximum(self.seen[view, warps, warps], until)
        self.now[warps] += 1


def _times(known: np.ndarray, agents: np.ndarray) -> np.ndarray:
    """The entries of a row for some agents; it may end before them."""
    return np.where(agents < len(known), known[np.minimum(agents, len(known) - 1)], 0)


def _span(warps: np.ndarray) -> slice | np.ndarray:
    """Consecutive numbers as a slice, which numpy reads far faster."""
    first, last = int(warps[0]), int(warps[-1])
    return slice(first, last + 1) if last - first + 1 == len(warps) else warps
