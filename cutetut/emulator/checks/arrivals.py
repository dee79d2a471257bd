"""What an arrival at an mbarrier makes known, to threads of its own CTA and to those of others."""

from __future__ import annotations

import numpy as np

from ..machine.access import CLUSTER
from ..machine.machine import Machine
from ..machine.memory import warps_of
from ..ptx.syntax import Instruction
from .clocks import Knowledge
from .ordering import Ordering


class Arrivals:
    """The arrivals of one machine's threads."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def passed_on(self, threads: np.ndarray, cta: int, relaxed: bool, scope: int, inst: Instruction) -> Knowledge:
        """What threads make known as they arrive at an mbarrier of a CTA.

        A relaxed arrival passes on what fences have made ready.  In another CTA, what was stored before, or copied with
        cp.async, arrives only if the arrival, or a fence before it, has the scope of the cluster.  Any arrival
        passes on what was read: the consumers of NVIDIA's pipelines have nothing else to pass on, and arrive at other
        CTAs with the scope of the CTA.
        """
        order, m = self.machine.unit(Ordering), self.machine
        abroad = m.cta_of[threads] != cta
        if not abroad.any():
            return order.fenced(warps_of(threads)) if relaxed else order.release(threads)
        away, here = threads[abroad], threads[~abroad]
        ready = order.fenced(warps_of(away)) if relaxed else order.release(away)
        if relaxed or scope < CLUSTER:
            kept = slice(cta * m.warps_per_cta, (cta + 1) * m.warps_per_cta)
            weak = order.clocks.weakened(ready, kept, self._copies_elsewhere(cta))
            ready = weak.join(order.fenced(warps_of(away), CLUSTER))
            order.reports.narrow |= dict.fromkeys(warps_of(away).tolist(), (inst, int(away[0])))
        return ready.join(self.passed_on(here, cta, relaxed, scope, inst)) if len(here) else ready

    def _copies_elsewhere(self, cta: int) -> list[int]:
        """The agents that stand for the cp.async of other CTAs: the thread that waits for them sees the copies."""
        reports, m = self.machine.unit(Ordering).reports, self.machine
        return [agent for agent, kind in reports.kinds.items()
                if kind == "cp.async" and m.cta_of[reports.owners[agent]] != cta]  # fmt: skip
