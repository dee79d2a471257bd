"""Rows of A that nothing has written, as below a matrix whose last tile is only partly loaded.

The tensor core multiplies whatever lies there.  The rows of D that come of it mean nothing, and no other row depends on
them.  Here they become NaN, so that they can be followed.  TMA stores that leave NaN out, beyond the tensor's edge, and
write none show that nobody uses these rows.  Else there is a warning: when a NaN is written, or when the launch ends
and no store has left any out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..machine.machine import Machine
from ..machine.opcodes import UnitState, state
from ..numbers.matrix_formats import to_float64
from ..ptx.syntax import Instruction

_LOOK_AT = (
    "the load of these rows, and the wait for it; rows beyond the matrix may stay empty if these rows of D are not used"
)


@state
class UnloadedRows(UnitState):
    """Such rows of a launch, and what TMA stores have done with NaN since."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._found: dict[int, tuple[str, Instruction, int]] = {}  # by the number of the WGMMA
        self._used = self._left_out = False

    def found(self, rows: np.ndarray, inst: Instruction, thread: int) -> None:
        """A WGMMA multiplies these of the 64 rows of A (64, bool), which nothing has written."""
        text = (
            f"nothing has written {rows.sum()} of the 64 rows of operand A of the WGMMA, row "
            f"{int(np.flatnonzero(rows)[0])} first: these rows of the result mean nothing"
        )
        self._found.setdefault(inst.index, (text, inst, thread))
        if self._used:
            self._warn()

    def stored(
        self, kind: str, bits: Callable[[np.ndarray], np.ndarray], written: np.ndarray, left_out: np.ndarray
    ) -> None:
        """A TMA store writes what lies at some places and leaves out what lies at others.

        kind: the elements' type, as in `ELEMENTS`; `bits` gives those at some places.
        """
        if not self._found or self._used:
            return
        if _any_nan(bits(written), kind):
            self._used = True
            self._warn()
        elif not self._left_out:
            self._left_out = _any_nan(bits(left_out), kind)

    def launch_over(self) -> None:
        if not self._left_out:
            self._warn()

    def _warn(self) -> None:
        for text, inst, thread in self._found.values():
            self.machine.scheduler.warn(text, inst, thread, _LOOK_AT, kind="uninitialized")


def _any_nan(bits: np.ndarray, kind: str) -> bool:
    return kind in ("f16", "bf16", "f32", "f64") and bool(np.isnan(to_float64(bits, kind)).any())
