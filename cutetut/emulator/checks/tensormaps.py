"""Tensor maps that a kernel changes: the copy engine sees them through a proxy of its own (PTX ISA section 9.7.13.4.3).

Between a change and a copy that uses the map are a release fence of the tensormap proxy behind the change, something
that orders it before the user (the generic view of the clocks), and an acquire fence of the map by the user.  As
long as a store uses a map, nobody may change it; loads are not followed here, because NVIDIA's kernels wait for their
use of a map with a bulk group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..errors import EmulatorError, MissingBarrier, MissingFence
from ..findings import Location
from ..machine.machine import Machine
from ..machine.opcodes import UnitState, state
from . import stamps
from .clocks import TENSORMAP
from .ordering import Ordering
from .remedies import READERS
from .stamps import Stamp

MAP_BYTES = 128
KIND = "missing-tensormap-fence"
RELEASE = "fence_tma_desc_release (or cp_fence_tma_desc_release) by the thread that changed the map, behind that"
ACQUIRE = "fence_tma_desc_acquire of the map's address in the warp that uses it, once it has met the changing one"
USED = "cp_async_bulk_wait_group by the thread that stores (or the wait for the load's mbarrier) before the change"


@dataclass(frozen=True)
class _Acquire:
    """An acquire fence of one map: whose, when, and what it made visible."""

    warp: int
    time: int
    visible: np.ndarray


@state
class TensorMaps(UnitState):
    """Who has acquired which map in global memory, and what still uses it; maps by their host address."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.order = machine.unit(Ordering)
        self.acquired: dict[int, list[_Acquire]] = {}
        self.uses: dict[int, dict[int, Stamp]] = {}  # map -> agent of the copies -> the last of them

    def reset(self) -> None:
        self.acquired.clear()
        self.uses.clear()

    def acquire(self, host: int, thread: int) -> None:
        """fence.proxy.tensormap::generic.acquire of a map."""
        clocks, warp = self.order.clocks, thread >> 5
        visible = clocks.seen[TENSORMAP, warp, : clocks.agents].copy()
        self.acquired.setdefault(host, []).append(_Acquire(warp, clocks.time(warp), visible))

    def check_use(self, host: int, thread: int, inst: int) -> None:
        """A copy is issued with a map; raises MissingFence or MissingBarrier if it was changed and may not be seen."""
        allocation = self.machine.memory.find(host)
        if allocation is None or not allocation.watched:
            return
        shadow = self.order.region(allocation)
        found = np.unique(shadow.wrote[shadow.span(host, MAP_BYTES)])
        for stamp in sorted(map(Stamp.of, found[found > 0].tolist()), key=lambda s: -s.time):
            if stamp.agent < self.order.clocks.warps and stamp.time >= self.order.clocks.base:
                if (error := self._unseen(host, stamp, thread)) is not None:
                    reports = self.order.reports
                    reports.report(reports.noting(error, stamp, inst, "it was changed here"), inst)

    def _unseen(self, host: int, stamp: Stamp, thread: int) -> EmulatorError | None:
        """What is missing between a change of a map and its use by a thread."""
        clocks, warp, one, where = self.order.clocks, thread >> 5, np.array([thread]), self._place(host)
        what = "the tensor map of this copy was changed in global memory, and"
        released = clocks.seen[TENSORMAP, warp, stamp.agent] >= stamp.time  # by whoever knows of the change
        if not released and clocks.seen[TENSORMAP, stamp.agent, stamp.agent] < stamp.time:
            return MissingFence(
                f"{what} no release fence of the tensormap proxy came since", threads=one, hint=RELEASE, kind=KIND,
                locations=where,
            )  # fmt: skip
        if not released:
            return MissingBarrier(
                f"{what} nothing orders its release before this use", threads=one, kind=KIND, locations=where,
                hint="a barrier between the thread that releases the map and the warp that uses it",
            )  # fmt: skip
        for fence in self.acquired.get(host, ()):
            seen = len(fence.visible) > stamp.agent and fence.visible[stamp.agent] >= stamp.time
            if seen and (fence.warp == warp or clocks.row(thread)[fence.warp] >= fence.time):
                return None
        return MissingFence(
            f"{what} this warp has not acquired it since", threads=one, hint=ACQUIRE, kind=KIND, locations=where
        )

    def _place(self, host: int) -> tuple[Location, ...]:
        """Where a map lies, as data."""
        return (replace(self.order.reports.place_of(host), nbytes=MAP_BYTES),)

    def used(self, host: int, agent: int, time: int, inst: int) -> None:
        """A copy that an agent stands for uses a map."""
        self.uses.setdefault(host, {})[agent] = Stamp.of(stamps.of_agent(agent, time, inst))

    def changes(self, host: int, thread: int, inst: int) -> None:
        """A thread is about to change a map; raises InFlight or MissingBarrier if a copy may still use it."""
        for agent, stamp in self.uses.get(host, {}).items():
            if self.order.clocks.row(thread)[agent] >= stamp.time:
                continue
            one, reports = np.array([thread]), self.order.reports
            op = next((o for o in self.machine.pending.operations if o.inst.index == stamp.inst), None)
            if op is not None and (op.barrier is not None or op.reads):
                error: EmulatorError = reports.under_way("the tensor map is changed while it is used by", op, one)
                error.hint, error.locations = USED, self._place(host)
                raise error
            error = MissingBarrier(
                "the tensor map is changed, and nothing orders that behind a copy which uses it", threads=one,
                hint=READERS, locations=self._place(host),
            )  # fmt: skip
            reports.report(reports.noting(error, stamp, inst, "the copy was issued here"), inst)
