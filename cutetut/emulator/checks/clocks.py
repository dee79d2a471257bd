"""Who knows of whom: vector clocks (Lamport 1978; Mattern 1989) for the order of PTX ISA section 8.9.

The *agents* are the resident warps and, one column each, what works on its own beside them: an mbarrier (for the
copies whose bytes it counts), a warpgroup's WGMMAs, a thread's bulk copies, a warp's cp.async, the kernel before this
one.  Every agent counts a time of its own; `seen[view, warp, agent]` says up to which time everything of an agent has
happened before what a warp does now.  Knowledge moves only through *releases* and *acquires*: barriers, phases of
mbarriers, strong accesses (locations.py).

There are five views.  GENERIC is what ordinary accesses may rely on.  The two ASYNC views say what of it is visible
to the async proxy, in shared and in global memory: only proxy fences bring them forward (sections 8.3 and 9.7.13.4).
INITS says the same of initialised mbarriers, and TENSORMAP of changed tensor maps: both have fences of their own.

Lanes: what a warp has done up to `seen[GENERIC, warp, warp]` is ordered among its lanes (bar.warp.sync and barriers
do that); later accesses are ordered for the lane that made them only.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

GENERIC, ASYNC_SHARED, ASYNC_GLOBAL, INITS, TENSORMAP = range(5)
VIEWS = 5
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
        self.views = 1  # the others are all zero until the first proxy fence
        self.touched = np.zeros(warps, np.uint32)  # lanes that have used memory since their warp's lanes were ordered
        self.waves: list[int] = []  # the time at which each wave began
        self.base = 0
        self._lanes: dict[tuple[int, int], dict[int, int]] = {}  # (warp, other warp) -> mask -> time
        self._fenced: dict[tuple[int, int], int] = {}  # (view, warp) -> lanes that alone have fenced what they did
        self._past: dict[int, dict[int, np.ndarray]] = {}  # warp -> what it knows of earlier waves
        self.new_wave()

    def new_wave(self) -> None:
        """New CTAs: nobody knows of anybody; times go on, so that what earlier waves did keeps its own."""
        self.base = int(self.now.max()) + 2
        self.waves.append(self.base)
        self.now[:] = self.base
        self.seen[: self.views] = 0
        self.touched[:] = 0
        self.agents = self.warps
        self._lanes.clear()
        self._fenced.clear()
        self._past.clear()

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

    def lagging(self, last: np.ndarray, warps: slice | np.ndarray) -> np.ndarray:
        """For each of these warps and each agent: whether it does not know of what the agent did last, at `last`."""
        n = min(self.agents, len(last))
        return np.asarray(self.seen[GENERIC, warps, :n] < last[:n])

    def known_to_lanes(self, warp: int, lane: int, agent: int, other_lane: int, time: int) -> bool:
        """The exact answer for one access of a lane: that of a lane of the same warp or of a partial release counts."""
        if self.base <= time <= self.seen[GENERIC, warp, agent]:
            return True
        if agent == warp and time >= self.base and lane == other_lane:
            return True
        return any(
            mask >> other_lane & 1 and time <= until for mask, until in self._lanes.get((warp, agent), {}).items()
        )

    def lanes_heard_of(self, warp: int, agent: int, time: int) -> int:
        """The mask of those lanes of another warp that this one has heard of as they were at a time, or later."""
        heard = self._lanes.get((warp, agent), {})
        return functools.reduce(operator.or_, (mask for mask, until in heard.items() if until >= time), 0)

    def known_from_past(self, warp: int, agent: int, time: int) -> bool:
        """Whether a warp knows of what an agent of an earlier wave did."""
        wave = int(np.searchsorted(self.waves, time, "right"))  # they are counted from 1
        seen = self._past.get(warp, {}).get(wave)
        return seen is not None and agent < len(seen) and time <= seen[agent]

    # -- lanes --------------------------------------------------------------------------------

    def touch(self, threads: slice | np.ndarray) -> None:
        """Lanes use memory."""
        if self._fenced:
            self._need_another_fence(threads)
        if isinstance(threads, slice):
            first, last = threads.start, threads.stop
            if not (first | last) & 31:
                self.touched[first >> 5 : last >> 5] = ALL_LANES
                return
            threads = np.arange(first, last)
        np.bitwise_or.at(self.touched, threads >> 5, np.uint32(1) << (threads & 31).astype(np.uint32))

    def _need_another_fence(self, threads: slice | np.ndarray) -> None:
        used = np.arange(threads.start, threads.stop) if isinstance(threads, slice) else threads
        for view, warp in list(self._fenced):
            lanes = used[used >> 5 == warp] & 31
            self._fenced[view, warp] &= ~int(np.bitwise_or.reduce(1 << lanes, initial=0))
            if not self._fenced[view, warp]:
                del self._fenced[view, warp]

    def sync_lanes(self, warps: np.ndarray) -> None:
        """bar.warp.sync of whole warps: their lanes know of each other."""
        self.seen[GENERIC, warps, warps] = self.now[warps]
        self.now[warps] += 1
        self.touched[warps] = 0

    # -- learning -----------------------------------------------------------------------------

    def release(self, warps: np.ndarray, lanes: np.ndarray | None = None) -> Knowledge:
        """What these warps know together, for others to learn; what they do from now on is later.

        lanes: the mask of each warp's lanes that release; without one all of them do.
        """
        n, v = self.agents, self.views
        seen = self.seen[:v, warps, :n].max(axis=1) if len(warps) > 1 else self.seen[:v, warps[0], :n].copy()
        until, partial = self._own(warps, lanes)
        seen[GENERIC, warps] = np.maximum(seen[GENERIC, warps], until)
        past: dict[int, np.ndarray] = {}
        if self._lanes or self._past:
            partial = list(_latest(partial + self._partial_knowledge(warps)))
            for warp in warps.tolist():
                past = _joined(past, self._past.get(warp, {}))
        self.now[warps] += 1
        return Knowledge(len(self.waves), seen, tuple(partial), past)

    def _own(self, warps: np.ndarray, lanes: np.ndarray | None) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
        """Up to when these warps' own accesses are passed on, and what only some of their lanes pass on."""
        now = self.now[warps]
        if lanes is None or not (others := (self.touched[warps] & ~lanes) != 0).any():
            return now, []
        partial = [(int(w), int(m), int(t)) for w, m, t in zip(warps[others], lanes[others], now[others], strict=True)]
        return np.where(others, self.seen[GENERIC, warps, warps], now), partial

    def _partial_knowledge(self, warps: np.ndarray) -> list[tuple[int, int, int]]:
        mine = set(warps.tolist())
        return [(w, m, t) for (v, w), known in self._lanes.items() if v in mine for m, t in known.items()]

    def acquire(self, warps: np.ndarray, known: Knowledge | None) -> None:
        """These warps learn something."""
        if known is None or not len(warps):
            return
        past = known.past
        if known.wave == len(self.waves):
            self._take(warps, known)
        else:
            past = known.as_past()
        if past:
            for warp in warps.tolist():
                self._past[warp] = _joined(self._past.get(warp, {}), past)

    def _take(self, warps: np.ndarray, known: Knowledge) -> None:
        views, n = known.seen.shape
        self.views = max(self.views, views)
        rows = _span(warps)
        self.seen[:views, rows, :n] = np.maximum(self.seen[:views, rows, :n], known.seen[:, None, :])
        for warp, mask, time in known.lanes:
            for viewer in warps.tolist():
                known_lanes = self._lanes.setdefault((viewer, warp), {})
                known_lanes[mask] = max(time, known_lanes.get(mask, time))

    def learn(self, warps: np.ndarray | int, agent: int, time: int) -> None:
        """These warps have waited for what an agent beside the warps did up to a time."""
        self.seen[GENERIC, warps, agent] = np.maximum(self.seen[GENERIC, warps, agent], time)

    def meet(self, warps: np.ndarray) -> None:
        """A barrier of these warps, all lanes of them."""
        self.acquire(warps, self.release(warps))
        self.touched[warps] = 0

    def meet_in_ctas(self, ctas: int) -> None:
        """A barrier of each of so many CTAs with all their warps."""
        if self._lanes or self._past:
            for warps in np.arange(self.warps).reshape(ctas, -1):
                self.meet(warps)
            return
        n, own = self.agents, np.arange(self.warps)
        self.seen[GENERIC, own, own] = self.now[: self.warps]
        table = self.seen[: self.views].reshape(self.views, ctas, self.warps // ctas, -1)[..., :n]
        table[:] = table.max(axis=2, keepdims=True)
        self.now[: self.warps] += 1
        self.touched[:] = 0

    def fenced_inits(self, warps: np.ndarray) -> np.ndarray:
        """The initialisations of mbarriers that these warps' fences have made ready, as the table of a release."""
        seen = np.zeros((VIEWS, self.agents), np.int64)
        seen[INITS] = self.seen[INITS, warps, : self.agents].max(axis=0)
        seen[INITS, warps] = np.maximum(seen[INITS, warps], self.base - 1)  # they have begun
        return seen

    def fence(self, warps: np.ndarray, views: tuple[int, ...], lanes: np.ndarray | None = None) -> None:
        """A proxy fence: what these warps know of comes into view there, and what the fencing lanes have done."""
        self.views = VIEWS
        until, partial = self._own(warps, lanes)
        if partial:
            until = self._after_the_last_lanes(warps, views, partial, until)
        for view in views:
            self.seen[view, warps] = np.maximum(self.seen[view, warps], self.seen[GENERIC, warps])
            self.seen[view, warps, warps] = np.maximum(self.seen[view, warps, warps], until)
        self.now[warps] += 1


    def _after_the_last_lanes(
        self, warps: np.ndarray, views: tuple[int, ...], partial: list[tuple[int, int, int]], until: np.ndarray
    ) -> np.ndarray:
        """Up to when accesses are fenced, if lanes of a warp come to a fence one after the other: by the last of them.

        A lane that has used memory behind its fence must come to another.
        """
        until = until.copy()
        for warp, mask, time in partial:
            for view in views:
                self._fenced[view, warp] = self._fenced.get((view, warp), 0) | mask
            if all(int(self.touched[warp]) & ~self._fenced[view, warp] == 0 for view in views):
                until[warps == warp] = time
        return until


def _span(warps: np.ndarray) -> slice | np.ndarray:
    """Consecutive numbers as a slice, which numpy reads far faster."""
    first, last = int(warps[0]), int(warps[-1])
    return slice(first, last + 1) if last - first + 1 == len(warps) else warps
