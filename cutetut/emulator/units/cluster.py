"""Clusters and launch control: cluster barriers, addresses of other CTAs, dependent grids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..checks.clocks import Knowledge
from ..checks.ordering import Ordering
from ..errors import IllegalInstruction
from ..findings import Location, Side
from ..machine.access import CLUSTER
from ..machine.memory import SHARED_WINDOW, threads_of, warps_of
from ..machine.opcodes import Selection, Step, UnitState, opcode, state
from ..machine.shared import RANK_SHIFT
from ..machine.stuck import OTHERWISE, Cause, Report, Wait, threads_in
from ..machine.threads import DONE
from ..ptx.effects import Effect

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction


EVERY_THREAD = "cluster_arrive by every thread of every CTA of the cluster"


@state
class ClusterBarriers(UnitState):
    """One hardware barrier per cluster; every live thread arrives and waits once per phase."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.cluster_of = machine.cta_of // machine.cluster_size
        self.reset()

    def reset(self) -> None:
        self.arrived = np.zeros(self.machine.T, np.bool_)
        self.waiting = np.zeros(self.machine.T, np.bool_)
        self.passed = np.zeros(self.machine.T, np.bool_)  # the phase a thread arrived at is complete
        self.gathered: dict[int, Knowledge] = {}  # what those who have arrived in each cluster knew,
        self.known: dict[int, Knowledge] = {}  # and what those of the last complete phase did
        self.gathered_in_cta: dict[int, Knowledge] = {}  # the same by CTA, of what is for its own threads only
        self.known_in_cta: dict[int, Knowledge] = {}
        self.inst: Instruction | None = None

    def arrive(self, sel: Selection, inst: Instruction) -> None:
        again = self.arrived[sel] | self.passed[sel]
        if again.any():
            raise IllegalInstruction(
                "barrier.cluster.arrive twice without a wait in between", threads=threads_of(sel)[again]
            )
        self.arrived[sel] = True
        self.inst = inst
        warps = warps_of(sel)
        of_cluster, order = self.cluster_of[32 * warps], self.machine.unit(Ordering)
        for cluster in np.unique(of_cluster).tolist():
            mine = warps[of_cluster == cluster]
            known = self._relaxed(mine) if "relaxed" in inst.parts else order.clocks.release(mine)
            self.gathered[cluster] = known.join(self.gathered.get(cluster))
        self.recheck()

    def _relaxed(self, warps: np.ndarray) -> Knowledge:
        """What a relaxed arrival makes known: what fences of the cluster's scope have made ready before.

        A fence of a CTA's scope does so for that CTA.
        """
        order, of_cta = self.machine.unit(Ordering), self.machine.cta_of[32 * warps]
        for cta in np.unique(of_cta).tolist():
            self.gathered_in_cta[cta] = order.fenced(warps[of_cta == cta]).join(self.gathered_in_cta.get(cta))
        return order.fenced(warps, CLUSTER)

    def learn(self, threads: np.ndarray) -> None:
        """Threads have waited: what was known to those who arrived has happened before."""
        warps, clocks = np.unique(threads >> 5), self.machine.unit(Ordering).clocks
        for known, group in ((self.known, self.cluster_of), (self.known_in_cta, self.machine.cta_of)):
            for number in np.unique(group[32 * warps]).tolist() if known else ():
                clocks.acquire(warps[group[32 * warps] == number], known.get(number))
        clocks.met_cluster(warps)

    def recheck(self) -> None:
        """Complete the phases of clusters whose live threads have all arrived."""
        scheduler = self.machine.scheduler
        live = scheduler.status != DONE
        for cluster in np.unique(self.cluster_of[self.arrived]).tolist():
            mine = (self.cluster_of == cluster) & live
            if not self.arrived[mine].all():
                continue
            self.machine.pending.events += 1
            sleepers = mine & self.waiting
            self.passed |= mine & ~self.waiting
            self.arrived[mine] = False
            self.waiting[mine] = False
            self.known[cluster] = self.gathered.pop(cluster)
            for cta in range(cluster * self.machine.cluster_size, (cluster + 1) * self.machine.cluster_size):
                self.known_in_cta.pop(cta, None)
                if cta in self.gathered_in_cta:
                    self.known_in_cta[cta] = self.gathered_in_cta.pop(cta)
            self.learn(np.flatnonzero(sleepers))
            scheduler.wake(np.flatnonzero(sleepers))

    def exited(self, threads: np.ndarray) -> None:
        self.recheck()

    def stuck(self, report: Report) -> list[Wait]:
        return [self._wait(cluster, report) for cluster in np.unique(self.cluster_of[self.waiting]).tolist()]

    def _wait(self, cluster: int, report: Report) -> Wait:
        mine, cta_of, lines = (self.cluster_of == cluster) & (report.status != DONE), self.machine.cta_of, []
        place = Location("cluster barrier", cta=report.cta(cluster * self.machine.cluster_size))
        sides: list[Side] = []
        waiting, missing = np.flatnonzero(mine & self.waiting), np.flatnonzero(mine & ~self.arrived)
        for cta in np.unique(cta_of[waiting]).tolist():
            here = waiting[cta_of[waiting] == cta]
            inst = report.waits_at(int(report.pc[here[0]]))
            lines.append(f"  {report.who(here)} wait at the cluster's barrier ({report.short(inst)})")
            sides += report.sides("waits", inst, here, str(place))
        for cta in np.unique(cta_of[missing]).tolist():
            lines.append(f"    not arrived: {report.who(missing[cta_of[missing] == cta])}")
        could = report.candidates(missing, lambda inst, _: inst.opcode.startswith("barrier.cluster.arrive"))
        lines.append(f"    could still arrive: {report.could(could)}")
        sides += report.missing(could, str(place))
        return Wait(waiting, lines, threads_in(could), [Cause(OTHERWISE, EVERY_THREAD)], sides, (place,))


@opcode("barrier.cluster.arrive", unit="cluster", role="arrives", forms="{.release .relaxed}{.aligned}",
        section="9.7.13.3", results=0,
        joins="warp")  # fmt: skip
def decode_cluster_arrive(inst: Instruction, machine: Machine) -> Step:
    """Arrive at the cluster's barrier without waiting."""
    return lambda sel: machine.unit(ClusterBarriers).arrive(sel, inst)


@opcode("barrier.cluster.wait", unit="cluster", role="waits", forms="{.acquire}{.aligned}",
        section="9.7.13.3", results=0,
        joins="warp", ends_block=True)  # fmt: skip
def decode_cluster_wait(inst: Instruction, machine: Machine) -> Step:
    """Wait until every thread of the cluster has arrived."""
    following = machine.block_after(inst)

    def step(sel: Selection) -> int | None:
        barriers = machine.unit(ClusterBarriers)
        threads = threads_of(sel)
        if not (barriers.arrived[threads] | barriers.passed[threads]).all():
            raise IllegalInstruction("barrier.cluster.wait without an arrive", threads=threads[:1])
        done = barriers.passed[threads]
        barriers.passed[threads[done]] = False
        barriers.learn(threads[done])
        if done.all():
            return following
        machine.scheduler.resume(sel, following)
        barriers.waiting[threads[~done]] = True
        machine.scheduler.wait(threads[~done], following)
        return None

    return step


@opcode("mapa", unit="cluster", forms="{.shared::cluster}.u32 .u64 d, address, rank", section="9.7.9.23")
def decode_mapa(inst: Instruction, machine: Machine) -> Step:
    """The same offset of shared memory in another CTA of the cluster."""
    wide = inst.parts[-1] == "u64"
    dtype = np.uint64 if wide else np.uint32
    d, a = machine.target(inst.operands[0], dtype), machine.source(inst.operands[1], dtype)
    rank = machine.source(inst.operands[2], np.uint32)
    keep = dtype((1 << RANK_SHIFT) - 1)
    window = dtype(SHARED_WINDOW) if wide and "shared::cluster" not in inst.parts else dtype(0)

    def step(sel: Selection) -> None:
        # compilers compute addresses that a branch then leaves unused: a rank out of range is an error when accessed
        named = np.minimum(rank[sel], 0xFF).astype(dtype)
        d[sel] = (a[sel] & keep) | np.left_shift(named, dtype(RANK_SHIFT)) | window

    return step


@opcode("getctarank", unit="cluster", forms="{.shared::cluster}.u32 .u64", section="9.7.9.24")
def decode_getctarank(inst: Instruction, machine: Machine) -> Step:
    """The rank of the CTA whose shared memory an address lies in."""
    dtype = np.uint64 if inst.parts[-1] == "u64" else np.uint32
    d, a = machine.target(inst.operands[0], np.uint32), machine.source(inst.operands[1], dtype)
    return lambda sel: d.__setitem__(sel, a[sel] >> dtype(RANK_SHIFT) & dtype(0xFF))


@opcode("griddepcontrol.wait", unit="cluster", role="waits", section="9.7.13.14", results=0)
def decode_griddepcontrol_wait(inst: Instruction, machine: Machine) -> Step:
    """Grids run one after the other here; a dependent launch must wait for the one before all the same."""
    return lambda sel: machine.unit(Ordering).wait_for_previous(sel)


@opcode("griddepcontrol.launch_dependents", unit="cluster", section="9.7.13.14", results=0)
def decode_griddepcontrol_launch(inst: Instruction, machine: Machine) -> Step:
    """Grids run one after the other here."""
    return lambda sel: None


@opcode("nanosleep", unit="control", effect=Effect.QUIET, forms=".u32", section="9.7.19.2", results=0)
def decode_nanosleep(inst: Instruction, machine: Machine) -> Step:
    """Time does not pass here."""
    return lambda sel: None
