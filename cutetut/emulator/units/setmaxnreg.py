"""Moving registers from one warpgroup to another: setmaxnreg (PTX ISA section 9.7.19.5).

A CTA owns the registers it was launched with, as many for each of its threads.  A warpgroup that
loads gives some back, one that multiplies takes more, and the sum never grows.  `inc` waits until
the pool has enough, for ever if nobody gives any back.  A warp that ends gives nothing back: what it
held is the CTA's until that ends (seen on an H200, which waits for ever in chapter 13's fourth probe).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..errors import IllegalInstruction
from ..machine.memory import threads_of
from ..machine.opcodes import Selection, Step, UnitState, opcode, state, unsupported
from ..machine.stuck import CERTAIN, Cause, Report, Wait, by_instruction, threads_in
from ..ptx.syntax import Immediate

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction

REGISTER_FILE = 65536  # 32-bit registers of one SM
UNIT = 8  # registers of a thread that a warp is given at a time: 256 for its 32 threads
MOST = 256  # a thread's registers; it can name 255 of them, and its warp still owns the last
GIVERS = "setmaxnreg.dec in the warpgroups that need fewer registers, and the sum over all warps"


def launch_registers(machine: Machine) -> int | None:
    """Registers per thread at launch, None without a bound: ptxas then ignores setmaxnreg.

    With .maxnreg it is that; with .minnctapersm what that many CTAs leave each thread, at most the
    largest count the kernel asks for (both seen with ptxas 13.1).  Warps own whole units of it.
    """
    directives = machine.kernel.directives
    if bound := directives.get("maxnreg"):
        return min(-(-int(bound[0]) // UNIT) * UNIT, MOST)
    if not (ctas := directives.get("minnctapersm")):
        return None
    asked = [int(i.operands[0].value) for i in machine.kernel.body  # type: ignore[union-attr]
             if i.opcode.startswith("setmaxnreg")]  # fmt: skip
    share = REGISTER_FILE // (int(ctas[0]) * 32 * machine.warps_per_cta) // UNIT * UNIT
    return min(share, MOST, max(asked, default=MOST))


@dataclass
class Request:
    """Warps asleep in setmaxnreg.inc."""

    threads: np.ndarray
    count: int
    inst: Instruction

    def lacking(self, machine: Machine) -> str:
        """What the pool would have to hold."""
        pool, cta = machine.unit(RegisterPool), int(machine.cta_of[self.threads[0]])
        needs = (self.count - int(pool.held[machine.warp_of[self.threads[0]]])) * 32
        return (
            f"each warp needs {needs} registers more, the CTA's pool has {int(pool.free[cta])}; "
            f"the CTA has {machine.warps_per_cta * 32} threads with {pool.at_launch} registers at launch, no more"
        )


@state
class RegisterPool(UnitState):
    """What each warp of the resident CTAs holds per thread, and what each CTA has to give."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.at_launch = launch_registers(machine)
        self.reset()

    def reset(self) -> None:
        self.held = np.full(self.machine.T // 32, self.at_launch or 0, np.int64)
        self.free = np.zeros(self.machine.residents, np.int64)
        self.requests: list[Request] = []

    def set(self, sel: Selection, count: int, inst: Instruction, following: int) -> int | None:
        """Warps change what they hold, or wait for it; returns the next block unless they all wait."""
        if self.at_launch is None:
            self._ignored(inst, int(threads_of(sel)[0]))
            return following
        m, threads = self.machine, threads_of(sel)
        decreases = "dec" in inst.parts
        before = self.held[m.warp_of[threads]]
        wrong = before < count if decreases else before > count
        if wrong.any():
            verb, than = ("dec", "fewer") if decreases else ("inc", "more")
            raise IllegalInstruction(
                f"setmaxnreg.{verb} to {count} registers by a warp that has {than} already: {int(before[wrong][0])}",
                threads=threads[wrong],
                hint="dec for the warpgroups that need less than the launch gave them, inc for those that need more",
            )
        if decreases:
            warps = np.unique(m.warp_of[threads])
            np.add.at(self.free, warps // m.warps_per_cta, (self.held[warps] - count) * 32)
            self.held[warps] = count
            self.serve()
            return following
        m.scheduler.resume(sel, following)
        m.scheduler.wait(sel, following)
        for warp in np.unique(m.warp_of[threads]).tolist():
            self.requests.append(Request(threads[m.warp_of[threads] == warp], count, inst))
        self.serve()
        return None

    def _ignored(self, inst: Instruction, thread: int) -> None:
        self.machine.scheduler.warn(
            "setmaxnreg has no effect: the kernel has no bound on its registers, so ptxas ignores it (C7508)",
            inst, thread, ".launch(..., min_blocks_per_mp=1)", kind="register-pool",
        )  # fmt: skip

    def serve(self) -> None:
        """Give waiting warps what they ask for, first come first served, as far as the pool goes."""
        m = self.machine
        waiting, self.requests = self.requests, []
        for request in waiting:
            warp = int(m.warp_of[request.threads[0]])
            needs = (request.count - int(self.held[warp])) * 32
            if needs > self.free[warp // m.warps_per_cta]:
                self.requests.append(request)
                continue
            self.free[warp // m.warps_per_cta] -= needs
            self.held[warp] = request.count
            m.pending.events += 1
            m.scheduler.wake(request.threads)

    def stuck(self, report: Report) -> list[Wait]:
        found = by_instruction([(request.inst, request.threads) for request in self.requests])
        ctas = [(inst, threads[self.machine.cta_of[threads] == cta]) for inst, threads in found
                for cta in np.unique(self.machine.cta_of[threads]).tolist()]  # fmt: skip
        return [self._wait(inst, threads, report) for inst, threads in ctas]

    def _wait(self, inst: Instruction, threads: np.ndarray, report: Report) -> Wait:
        one = next(r for r in self.requests if r.inst is inst and int(r.threads[0]) in threads)
        givers = np.setdiff1d(np.flatnonzero(self.machine.cta_of == self.machine.cta_of[threads[0]]), threads)
        could = report.candidates(givers, lambda other, _: other.opcode.startswith("setmaxnreg.dec"))
        lines = [
            f"  {report.who(threads)} wait at setmaxnreg.inc {one.count} ({report.short(inst)}): "
            f"{one.lacking(self.machine)}",
            f"    could still give registers back: {report.could(could)}",
        ]
        pool = "the CTA's pool of registers"
        sides = [*report.sides("waits", inst, threads, pool), *report.missing(could, pool)]
        return Wait(threads, lines, threads_in(could), [Cause(CERTAIN, GIVERS)], sides)


@opcode("setmaxnreg", unit="setmaxnreg", forms=".inc .dec .sync.aligned.u32 N", section="9.7.19.5", results=0,
        joins="warpgroup", ends_block=True)  # fmt: skip
def decode_setmaxnreg(inst: Instruction, machine: Machine) -> Step:
    """Give registers back to the CTA's pool, or take more."""
    if not isinstance(inst.operands[0], Immediate):
        raise unsupported(inst, "the count must be a constant")
    count = int(inst.operands[0].value)
    if not 24 <= count <= MOST or count % UNIT:
        raise IllegalInstruction(f"setmaxnreg {count}: the count must be a multiple of {UNIT} from 24 to {MOST}")
    following = machine.block_after(inst)
    return lambda sel: machine.unit(RegisterPool).set(sel, count, inst, following)
