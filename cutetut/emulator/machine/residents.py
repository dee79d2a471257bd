"""How many CTAs run at once: on an H200, and in the emulator.

A GPU runs as many CTAs side by side as its SMs hold, and starts the others as these end.  Nothing but
a cooperative launch promises that two CTAs run at the same time, so the emulator takes few at a time,
which stay in the caches of the computer it runs on.  But a barrier across the grid, or split-K with
flags in global memory, waits in a loop for what another CTA writes, and relies on its being there:
of such kernels all CTAs that an H200 would hold run at once.
"""

from __future__ import annotations

from ..ptx.loops import waiting_loops
from ..ptx.syntax import BYTES, Function
from .schedule import Schedule
from .threads import WARP as WARP  # host/ reports it with the other properties of the GPU

SM_COUNT = 132  # of an H100 SXM or H200
THREADS_PER_SM = 2048
BLOCKS_PER_SM = 32
THREADS_PER_BLOCK = 1024
SHARED_PER_SM = 228 * 1024
SHARED_RESERVED = 1024  # bytes the system keeps of each CTA's shared memory
SHARED_OPTIN = 227 * 1024

THREADS_AT_ONCE = 2048  # in the emulator: wide enough to amortise a numpy call, small enough for the caches
REGISTER_BYTES_AT_ONCE = 96 << 20


def blocks_per_sm(threads: int, shared: int) -> int:
    """How many CTAs of this many threads and bytes of shared memory fit on one SM, registers left aside."""
    if not 0 < threads <= THREADS_PER_BLOCK or shared > SHARED_OPTIN:
        return 0
    warps = -(-threads // WARP)
    return min(BLOCKS_PER_SM, THREADS_PER_SM // (warps * WARP), SHARED_PER_SM // (shared + SHARED_RESERVED))


def emulated_at_once(
    kernel: Function, ctas: int, cluster: int, threads: int, shared: int, cooperative: bool, schedule: Schedule
) -> int:
    """How many of `ctas` the emulator runs at once: whole clusters. threads, and bytes of shared memory: of a CTA.

    Where no CTA relies on another one's being there, the schedule may choose fewer.
    """
    if cooperative:
        return ctas
    if waiting_loops(kernel, elsewhere=True):
        fit = SM_COUNT * blocks_per_sm(threads, shared)
        return min(ctas, max(1, fit // cluster) * cluster)
    register_bytes = sum(BYTES[r.type] for r in kernel.registers.values())
    fit = min(THREADS_AT_ONCE // threads, REGISTER_BYTES_AT_ONCE // max(1, register_bytes * threads))
    return schedule.residents(min(ctas, max(1, fit // cluster) * cluster), cluster)
