"""What else must be in order where CTAs and copy engines share memory: clusters, exits, swizzles.

In a cluster, another CTA's shared memory may be used between the cluster barrier at the start and the last meeting
with that CTA's threads before it exits (PTX ISA section 9.7.13.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import AsyncMismatch, InFlight, MissingBarrier

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..machine.pending import Operation
    from ..ptx.syntax import Instruction

_SWIZZLES = ("no swizzle", "the 32-byte swizzle", "the 64-byte swizzle", "the 128-byte swizzle")
DONE = 3  # the scheduler's status of a thread that has exited


def _pattern(chunk: np.ndarray, swizzle: np.ndarray | int) -> np.ndarray:
    """What a swizzle (the tensor map's code) xors onto the number of a chunk (PTX ISA 5.5.7)."""
    return chunk >> 3 & (1 << swizzle) - 1


class Visibility:
    """Guests of the resident CTAs, and how TMA has written; `chunk` numbers count 16 bytes from the first window."""

    def __init__(self, machine: Machine, chunks: int) -> None:
        self.machine = machine
        self.swizzle = np.zeros(chunks, np.int8)  # 1 + tensor map's code of the TMA load that wrote it, 0: unknown
        self.loaded_inst = np.zeros(chunks, np.int32)
        self.remote: dict[int, tuple[int, int, int]] = {}  # CTA -> (time, thread, instruction) of the last guest

    def reset(self) -> None:
        """New CTAs: nothing has been loaded, nobody has visited."""
        self.swizzle[:] = 0
        self.remote.clear()

    # -- swizzles -----------------------------------------------------------------------------

    def stored(self, chunk: np.ndarray) -> None:
        """Chunks have been written by something else than TMA."""
        self.swizzle[chunk] = 0

    def load(self, first: int, count: int, swizzle: int, inst: int) -> None:
        """A copy takes chunks over; `swizzle` is 1 + the tensor map's code, or 0."""
        where = slice(first, first + count)
        self.swizzle[where] = swizzle
        self.loaded_inst[where] = inst

    def reads_as_loaded(self, first: int, count: int, swizzle: int) -> bool:
        """Whether nothing there was written by TMA with another swizzle than this one (the tensor map's code)."""
        found = self.swizzle[first : first + count]
        return not ((found != 0) & (found != swizzle + 1)).any()

    def check_swizzle(self, chunk: np.ndarray, swizzle: int, inst: Instruction, thread: int, name: str) -> None:
        """A WGMMA reads chunks with a swizzle (the tensor map's code); TMA must have written them with the same.

        Raises AsyncMismatch where the two put a chunk in different places.  Unswizzled boxes may hold a tensor that
        lies swizzled in global memory already, so reading them with a swizzle is a warning.
        """
        found = self.swizzle[chunk]
        bad = (found != 0) & (_pattern(chunk, np.maximum(found - 1, 0)) != _pattern(chunk, swizzle))
        if not bad.any():
            return
        at = int(np.flatnonzero(bad)[0])
        written, m = int(found[at]) - 1, self.machine
        load = m.kernel.body[int(self.loaded_inst[int(chunk[at])])]
        what = f"operand {name} of the WGMMA is read with {_SWIZZLES[swizzle]}; TMA wrote it with {_SWIZZLES[written]}"
        hint = "the layout of the TMA atom and that of the tensor in shared memory: both need one swizzle"
        if not written:
            m.scheduler.warn(what, inst, thread, hint, (load, thread, "TMA wrote it here"))
            return
        error = AsyncMismatch(what, threads=np.array([thread]), hint=hint)
        m.scheduler.note(error, load, thread, "TMA wrote it here")
        raise error

    # -- clusters -----------------------------------------------------------------------------

    def visit(self, threads: np.ndarray, hosts: np.ndarray, inst: int | None) -> None:
        """Threads use shared memory of other CTAs, numbered `hosts`: these must run, and be known to.

        An instruction that does so itself is remembered; what copies do is known from their operations.
        """
        m = self.machine
        for cta in np.unique(hosts).tolist():
            visitors = threads[hosts == cta]
            warps = slice(cta * m.warps_per_cta, (cta + 1) * m.warps_per_cta)
            strange = ~self.machine.clocks.happened[visitors >> 5, warps].any(axis=1)
            if strange.any():
                raise MissingBarrier(
                    "another CTA's shared memory is used before the cluster has met: that CTA may not have started",
                    threads=visitors[strange],
                    hint="cluster_arrive and cluster_wait in every CTA before another CTA's shared memory is used",
                )
            if (m.scheduler.status[m.cta_of == cta] == DONE).all():
                ids = tuple(int(v) for v in m.cta_ids[cta])
                raise MissingBarrier(
                    f"shared memory of CTA {ids}, which has exited", threads=visitors, hint=STAY,
                )  # fmt: skip
            if inst is not None:
                self.remote[cta] = (self.machine.clocks.time(int(visitors[0]) >> 5), int(visitors[0]), inst)

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
                m.scheduler.warn(what, op.inst, op.thread, READ_FIRST)
                op.read()
                continue
            hint = "a wait for the mbarrier phase of every load that was issued, before the CTA exits"
            error = InFlight(what, threads=one, hint=hint)
            m.scheduler.note(error, op.inst, op.thread, "that was issued here")
            raise error
        if cta in self.remote:
            self._check_guests(cta, one)

    def _check_guests(self, cta: int, one: np.ndarray) -> None:
        """Other CTAs have used an exiting CTA's memory: one of its threads must have met them since."""
        m = self.machine
        when, guest, inst = self.remote[cta]
        warps = np.arange(cta * m.warps_per_cta, (cta + 1) * m.warps_per_cta)
        if not self.machine.clocks.knows(warps, guest >> 5, when).any():
            error = MissingBarrier(
                "the CTA exits, and nothing orders that after another CTA's use of its shared memory",
                threads=one, hint=STAY,
            )  # fmt: skip
            m.scheduler.note(error, m.kernel.body[inst], guest, "the other CTA used it here")
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
