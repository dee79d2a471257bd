"""Asynchronous stores and reductions into another CTA's shared memory (PTX ISA sections 9.7.9.12, 9.7.13.6).

st.async and red.async carry register values; like a bulk copy they report their bytes to an mbarrier
that lies beside the destination.  Who waits there knows of these bytes, and not of what the issuing thread did before:
section 8.9.1.1 says so of bulk copies, and ptxas (CUDA 13.0) puts no memory barrier in front of an st.async, as it does
in front of mbarrier.arrive.release.cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..checks.async_ordering import AsyncOrdering
from ..checks.holes import Holes
from ..checks.unwritten import forget_unwritten, stored_marks
from ..errors import IllegalInstruction
from ..machine.access import CLUSTER, Access, Kind
from ..machine.memory import HOST, index, threads_of
from ..machine.opcodes import Selection, Step, opcode, unsupported
from ..machine.operands import addresses, elements_of
from ..machine.pending import Operation
from ..machine.ranges import scattered
from ..numbers.reductions import ELEMENTS, update
from ..numbers.rounding import UINT
from ..ptx.effects import Effect
from ..ptx.syntax import BYTES
from .mbarrier import Mbarriers

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction
    from .mbarrier_objects import Mbarrier

COMPLETION = "mbarrier::complete_tx::bytes"
STORED = ("b32", "b64", "u32", "u64", "s32", "s64", "f32", "f64")
REDUCED = {
    "add": ("u32", "s32", "u64"), "min": ("u32", "s32"), "max": ("u32", "s32"), "inc": ("u32",), "dec": ("u32",),
    "and": ("b32",), "or": ("b32",), "xor": ("b32",),
}  # fmt: skip


class _Remote:
    """[destination], value, [mbarrier] of an instruction."""

    def __init__(self, inst: Instruction, machine: Machine, count: int) -> None:
        to, value, where = inst.operands
        items = elements_of(value)
        if len(items) != count:
            raise unsupported(inst, f"the operands are [destination], {count} values and [mbarrier]")
        self.inst, self.machine, self.unit = inst, machine, BYTES[inst.parts[-1]]
        self.nbytes = count * self.unit
        self.to, self.where = addresses(inst, machine, to), addresses(inst, machine, where)
        self.values = [machine.source(item, UINT[self.unit]) for item in items]

    def barriers(self, threads: np.ndarray) -> list[tuple[Mbarrier, np.ndarray]]:
        """Each distinct barrier with the positions of the threads that signal it."""
        m = self.machine
        hosts = m.shared.reach(self.where(threads), 8, threads, False)
        groups = [(host, np.flatnonzero(hosts == host)) for host in np.unique(hosts).tolist()]
        return [(m.unit(Mbarriers).signalled(host, int(threads[at[0]])), at) for host, at in groups]

    def issue(self, threads: np.ndarray, hosts: np.ndarray, claimed: bool, apply: Callable[[np.ndarray], None]) -> None:
        """One operation per barrier: `apply(positions)` changes memory when it completes."""
        for barrier, at in self.barriers(threads):
            self._check_home(barrier, hosts[at], threads[at])
            self._issue_one(threads, hosts, claimed, apply, barrier, at)

    def _issue_one(
        self, threads: np.ndarray, hosts: np.ndarray, claimed: bool, apply: Callable[[np.ndarray], None],
        barrier: Mbarrier, at: np.ndarray,
    ) -> None:  # fmt: skip
        m, nbytes, first = self.machine, self.nbytes * len(at), int(threads[at[0]])

        def run() -> None:
            time = barrier.began + barrier.phase + 1
            m.unit(AsyncOrdering).arrived_many(hosts[at], self.nbytes, barrier.clock, time, self.inst.index)
            apply(at)
            m.unit(Mbarriers).complete_bytes(barrier, nbytes)

        writes = (scattered(hosts[at], self.nbytes),) if claimed else ()
        what = f"the {self.inst.parts[0]}.async of {self.nbytes} bytes per thread"
        m.pending.issue(Operation(what, self.inst, first, run, barrier, writes, nbytes=nbytes))

    def _check_home(self, barrier: Mbarrier, hosts: np.ndarray, threads: np.ndarray) -> None:
        homes = np.array([self.machine.shared.where(int(host))[0] for host in hosts])
        if (homes != barrier.cta).any():
            raise IllegalInstruction(
                f"{self.inst.parts[0]}.async to one CTA's shared memory signals another CTA's mbarrier",
                threads=threads[homes != barrier.cta],
            )


@opcode(
    "st.async",
    effect=Effect.SENDS,
    unit="cluster", role="writes", starts="asynchronous store",
    section="9.7.9.12",
    results=0,
    forms="{.weak}.shared::cluster.mbarrier::complete_tx::bytes{.v2 .v4}.{b32 b64 u32 u64 s32 s64 f32 f64}",
)
def decode_store(inst: Instruction, machine: Machine) -> Step:
    """Store registers to another CTA's shared memory; the bytes count at its mbarrier when they are there."""
    words = [p for p in inst.parts[2:-1] if p != "weak"]
    count = {"v2": 2, "v4": 4}.get(words[-1] if words else "", 1)
    if words[:2] != ["shared::cluster", COMPLETION] or len(words) != 2 + (count > 1) or inst.parts[-1] not in STORED:
        raise unsupported(inst)
    if count * BYTES[inst.parts[-1]] > 16:
        raise unsupported(inst, "a store is at most 16 bytes")
    remote = _Remote(inst, machine, count)
    unit, marks = remote.unit, stored_marks(inst, machine.unwritten_marks)
    access = machine.checks.uses(Access(inst.index, remote.nbytes, Kind.REMOTE))

    def step(sel: Selection) -> None:
        threads = threads_of(sel)
        hosts = machine.shared.reach(remote.to(threads), remote.nbytes, threads, True)
        machine.unit(AsyncOrdering).claim_many(hosts, threads, access)
        values = [row[threads] for row in remote.values]
        written = [None if mark is None else mark[threads] for mark in marks]

        def apply(at: np.ndarray) -> None:
            for part, (value, mark) in enumerate(zip(values, written, strict=True)):
                where = hosts[at] + part * unit
                HOST[unit][index(where, unit)] = value[at]
                if mark is not None:
                    forget_unwritten(machine.unit(Holes), where, mark[at], unit)

        remote.issue(threads, hosts, True, apply)

    return step


@opcode(
    "red.async",
    unit="cluster", role="updates", starts="asynchronous reduction",
    section="9.7.13.7",
    results=0,
    forms="{.relaxed}{.cluster}.shared::cluster.mbarrier::complete_tx::bytes.{add min max inc dec and or xor}.type",
)
def decode_reduction(inst: Instruction, machine: Machine) -> Step:
    """Combine a register with another CTA's shared memory; the bytes count at its mbarrier when it is done."""
    words = [p for p in inst.parts[2:-1] if p not in ("relaxed", "cluster")]
    kind = inst.parts[-1]
    if words[:2] != ["shared::cluster", COMPLETION] or len(words) != 3 or kind not in REDUCED.get(words[2], ()):
        raise unsupported(inst)
    remote, function = _Remote(inst, machine, 1), update(words[2], kind)
    access = machine.checks.uses(Access(inst.index, remote.unit, Kind.REMOTE, CLUSTER))
    memory: np.ndarray = HOST[remote.unit].view(ELEMENTS[kind])

    def step(sel: Selection) -> None:
        threads = threads_of(sel)
        hosts = machine.shared.reach(remote.to(threads), remote.unit, threads, True)
        machine.unit(AsyncOrdering).claim_many(hosts, threads, access)
        values = remote.values[0][threads].view(ELEMENTS[kind])

        def apply(at: np.ndarray) -> None:
            for position in at.tolist():  # several threads may name one place
                where = index(hosts[position : position + 1], remote.unit)
                memory[where] = function(memory[where], values[position : position + 1])

        remote.issue(threads, hosts, False, apply)

    return step
