"""A kernel decoded for one machine: basic blocks of steps.

Blocks end where control may leave or threads may wait; a warp-wide instruction has a block of its
own, because early lanes must be able to wait in front of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..ptx.syntax import Instruction
from .threads import Selection, Step

Plan = list[tuple[Step, int]]  # steps, and how many instructions each of them executes


@dataclass
class Block:
    """Straight-line steps, then at most one control step that decides where its threads go.

    `plan` is what executes: the steps, where several of them may have become one (see decoding.py).
    """

    number: int
    instructions: list[Instruction] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    plan: Plan = field(default_factory=list)
    control: Step | None = None
    control_guard: Callable[[Selection], np.ndarray] | None = None
    joins: Callable[[Selection], np.ndarray] | None = None  # member lanes each thread must meet
    joins_warpgroup: bool = False  # and all four warps of a warpgroup
    successors: list[int] = field(default_factory=list)


@dataclass
class Program:
    """All blocks of a kernel."""

    blocks: list[Block] = field(default_factory=list)
