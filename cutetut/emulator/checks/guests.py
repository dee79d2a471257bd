"""What must be in order where CTAs share memory: clusters, and CTAs that exit.

In a cluster, another CTA's shared memory may be used between the cluster barrier at the start and the last meeting
with that CTA's threads before it exits (PTX ISA section 9.7.13.3).
"""

from __future__ import annotations

import numpy as np

from ..errors import InFlight, MissingBarrier
from ..findings import Location
from ..machine.machine import Machine
from ..machine.pending import Operation
from ..machine.threads import DONE
from .clocks import GENERIC, INITS, Clocks


class Guests:
    """Who has used shared memory of other CTAs."""

    def __init__(self, machine: Machine, clocks: Clocks) -> None:
        self.machine, self.clocks = machine, clocks
        # CTA -> warp of another one -> for each of its lanes, when it was a guest last (0: never), by which instruction
        self.remote: dict[int, dict[int, np.ndarray]] = {}

    def reset(self) -> None:
        """New CTAs: nobody has visited."""
        self.remote.clear()

    def visit(self, threads: np.ndarray, hosts: np.ndarray, inst: int | None) -> None:
        """Threads use shared memory of other CTAs, numbered `hosts`: these must be running, and known to be.

        An instruction that does so itself is remembered; what copies do is known from their operations.
        """
        m = self.machine
        for cta in np.unique(hosts).tolist():
            visitors = threads[hosts == cta]
            warps = slice(cta * m.warps_per_cta, (cta + 1) * m.warps_per_cta)
            met = self.clocks.seen[GENERIC, visitors >> 5, warps] | self.clocks.seen[INITS, visitors >> 5, warps]
            strange = np.asarray(~met.any(axis=1))
            for at in np.flatnonzero(strange) if self.clocks.apart else ():
                strange[at] = not self.clocks.row(int(visitors[at]))[warps].any()
            if strange.any():
                raise MissingBarrier(
                    "another CTA's shared memory is used before the cluster has met: that CTA may not have started",
                    threads=visitors[strange],
                    hint="cluster_arrive and cluster_wait in every CTA before another CTA's shared memory is used",
                    kind="missing-cluster-barrier", locations=(self._memory_of(cta),),
                )  # fmt: skip
            if (m.scheduler.status[m.cta_of == cta] == DONE).all():
                ids = tuple(int(v) for v in m.cta_ids[cta])
                raise MissingBarrier(
                    f"shared memory of CTA {ids}, which has exited", threads=visitors, hint=STAY,
                    kind="missing-cluster-barrier", locations=(self._memory_of(cta),),
                )  # fmt: skip
            if inst is not None:
                self._remember(cta, visitors, inst)

    def _remember(self, cta: int, visitors: np.ndarray, inst: int) -> None:
        guests = self.remote.setdefault(cta, {})
        for warp in np.unique(visitors >> 5).tolist():
            lanes = visitors[visitors >> 5 == warp] & 31
            guests.setdefault(warp, np.zeros((2, 32), np.int64))[:, lanes] = [[self.clocks.time(warp)], [inst]]

    def check_exit(self, cta: int, thread: int) -> None:
        """A CTA's last thread exits: nothing may still need its shared memory.

        A store that still reads is a warning: NVIDIA's own fmha.py leaves one behind, and its result is right.
        """
        m = self.machine
        one = np.array([thread])
        for op in list(m.pending.operations):
            if (where := _touches(m, op, cta)) is None:
                continue
            what = f"the CTA exits while its shared memory at offset {where[1]} is still being {where[0]} {op.what}"
            if op.read is not None:
                place = self._memory_of(cta, where[1])
                m.scheduler.warn(what, op.inst, op.thread, READ_FIRST, kind="early-exit", location=place)
                op.read()
                continue
            hint = "a wait for the mbarrier phase of every load that was issued, before the CTA exits"
            error = InFlight(
                what, threads=one, hint=hint, kind="early-exit", locations=(self._memory_of(cta, where[1]),)
            )
            m.scheduler.note(error, op.inst, op.thread, "that was issued here")
            raise error
        if cta in self.remote:
            self._check_guests(cta, one)

    def _memory_of(self, cta: int, offset: int | None = None) -> Location:
        return Location("shared", offset, cta=tuple(int(v) for v in self.machine.cta_ids[cta]))

    def _check_guests(self, cta: int, one: np.ndarray) -> None:
        """Each lane of another CTA that used an exiting CTA's memory: one of its threads must have heard of that."""
        m = self.machine
        hosts = range(cta * m.warps_per_cta, (cta + 1) * m.warps_per_cta)
        for warp, (times, insts) in self.remote[cta].items():
            heard = max(self.clocks.heard_of(host, warp) for host in hosts)
            for lane in np.flatnonzero(times > heard).tolist():
                known = (self.clocks.known_to_lanes(host, viewer, warp, lane, int(times[lane]), reads=True)
                         for host in hosts for viewer in range(32))  # fmt: skip
                if not any(known):
                    error = MissingBarrier(
                        "the CTA exits, and nothing orders that after another CTA's use of its shared memory",
                        threads=one, hint=STAY, kind="early-exit", locations=(self._memory_of(cta),),
                    )  # fmt: skip
                    m.scheduler.note(
                        error, m.kernel.body[int(insts[lane])], warp * 32 + lane, "the other CTA used it here"
                    )
                    raise error


READ_FIRST = "cp.async.bulk.wait_group.read 0 by the thread that issued the store, before it exits"
STAY = "cluster_arrive and cluster_wait at the end, so that no CTA leaves while others still use its shared memory"


def _touches(machine: Machine, op: Operation, cta: int) -> tuple[str, int] | None:
    """How a bulk operation under way still needs a CTA's shared memory, and at which offset.

    Copies per thread (cp.async) and WGMMAs end with the threads that issued them.
    """
    if op.barrier is None and op.read is None:
        return None
    for kind, ranges in (("written by", op.writes), ("read by", op.reads)):
        for part in ranges:
            owner, offset = machine.shared.where(part.first)
            if owner == cta:
                return kind, offset
    return None
