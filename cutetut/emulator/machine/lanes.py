"""Which lane of its warp each lane of a shuffle reads (PTX ISA section 9.7.9.6)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..ptx.syntax import Instruction
from .machine import Machine
from .threads import Selection


def _source_lanes(mode: str, lane: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lane to read and whether it is in range, as the pseudo-code of section 9.7.9.6 has it."""
    lane, b = lane.astype(np.int32), (b & 31).astype(np.int32)
    clamp, segment = (c & 31).astype(np.int32), (c >> 8 & 31).astype(np.int32)
    low = lane & segment
    limit = low | (clamp & ~segment)
    if mode == "up":
        j = lane - b
        inside = j >= limit
    else:
        j = lane + b if mode == "down" else lane ^ b if mode == "bfly" else low | (b & ~segment)
        inside = j <= limit
    return np.where(inside, j, lane), inside


def shuffle_sources(inst: Instruction, machine: Machine) -> Callable[[Selection], tuple[np.ndarray, np.ndarray]]:
    """The thread that each thread of a shuffle reads, and whether its lane is in range."""
    b, c = (machine.source(operand, np.uint32) for operand in inst.operands[2:4])
    first_of_warp, mode = machine.warp_of * 32, inst.parts[2]
    if b.strides == (0,) and c.strides == (0,):  # the usual case: every lane's partner is known now
        lanes, inside = _source_lanes(mode, machine.lane, b, c)
        threads = first_of_warp + lanes
        return lambda sel: (threads[sel], inside[sel])

    def sources(sel: Selection) -> tuple[np.ndarray, np.ndarray]:
        lanes, inside = _source_lanes(mode, machine.lane[sel], b[sel], c[sel])
        return first_of_warp[sel] + lanes, inside

    return sources
