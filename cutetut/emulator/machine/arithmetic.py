"""What an arithmetic instruction computes, whoever executes it: the units in numpy, or machine code (compiled/)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..ptx.syntax import Instruction

Modifiers = frozenset[str]
Compute = Callable[..., np.ndarray]
ROUNDING = "rn|rz|rm|rp"


@dataclass(frozen=True)
class Operation:
    """result = compute(*sources): the dtype each register is seen as, and the function between them."""

    result: type
    sources: tuple[type, ...]
    compute: Compute


OPERATIONS: dict[str, tuple[str, Operation]] = {}  # type and operation of every legal opcode decoded so far


def form_of(inst: Instruction) -> tuple[str, Operation] | None:
    """The type suffix and the operation of an instruction that `decode` has decoded, None for any other."""
    return OPERATIONS.get(inst.opcode)


def rounding(modifiers: Modifiers) -> str:
    """The rounding mode among the modifiers; rn when there is none."""
    return next((mode for mode in ROUNDING.split("|") if mode in modifiers), "rn")
