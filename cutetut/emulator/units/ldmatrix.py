"""Matrices between shared memory and the registers of a warp: ldmatrix, stmatrix, movmatrix (9.7.14.5.15 to 17)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..machine.access import Access, Kind
from ..machine.memory import HOST, index, threads_of
from ..machine.opcodes import Selection, Step, opcode, unsupported
from ..machine.operands import addresses, elements_of

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction


_KNOWN = {"ldmatrix", "stmatrix", "sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16"}


class _Move:
    """What ldmatrix and stmatrix share: registers, and the rows of up to four matrices that lanes name."""

    def __init__(self, inst: Instruction, machine: Machine) -> None:
        for part in inst.parts:
            if part not in _KNOWN:
                raise unsupported(inst, f"modifier .{part}")
        self.machine = machine
        self.transpose = "trans" in inst.parts
        self.count = next((int(p[1]) for p in inst.parts if p in ("x1", "x2", "x4")), 0)
        first, second = inst.operands
        where, registers = (first, second) if inst.parts[0] == "stmatrix" else (second, first)
        self.rows = np.array([machine.bank_row(r) for r in elements_of(registers)], np.intp)
        if not self.count or len(self.rows) != self.count:
            raise unsupported(inst, "x1, x2 or x4 takes as many registers")
        self.address = addresses(inst, machine, where)
        kind = Kind.STORE if inst.parts[0] == "stmatrix" else Kind.LOAD
        self.access = machine.checks.uses(Access(inst.index, 16, kind))

    def elements(self, threads: np.ndarray) -> np.ndarray:
        """Positions in HOST[2] of (warp, matrix, row, column); threads is (warps, 32)."""
        naming = threads[:, : 8 * self.count].ravel()
        rows = self.machine.shared.locate(self.address(naming), naming, self.access)
        return index(rows.reshape(-1, self.count, 8, 1) + 2 * np.arange(8), 2)


@opcode("ldmatrix", unit="mma", role="reads", section="9.7.14.5.15", joins="warp",
        forms=".sync.aligned.m8n8.{x1 x2 x4}{.trans}.shared.b16")  # fmt: skip
def decode_ldmatrix(inst: Instruction, machine: Machine) -> Step:
    """Load 8 x 8 matrices of 16-bit elements: lane i names row i, lane l receives two elements of row l / 4."""
    move = _Move(inst, machine)

    def step(sel: Selection) -> None:
        threads = threads_of(sel).reshape(-1, 32)
        matrices = HOST[2][move.elements(threads)]
        if move.transpose:
            matrices = matrices.swapaxes(2, 3)
        pairs = np.ascontiguousarray(matrices).view(np.uint32).reshape(len(threads), move.count, 32)
        machine.bank[move.rows[:, None, None], threads] = pairs.transpose(1, 0, 2)

    return step


@opcode("stmatrix", unit="mma", role="writes", section="9.7.14.5.16", joins="warp", results=0,
        forms=".sync.aligned.m8n8.{x1 x2 x4}{.trans}.shared.b16")  # fmt: skip
def decode_stmatrix(inst: Instruction, machine: Machine) -> Step:
    """The opposite of ldmatrix."""
    move = _Move(inst, machine)

    def step(sel: Selection) -> None:
        threads = threads_of(sel).reshape(-1, 32)
        pairs = np.ascontiguousarray(machine.bank[move.rows[:, None, None], threads].transpose(1, 0, 2))
        matrices = pairs.view(np.uint16).reshape(len(threads), move.count, 8, 8)
        if move.transpose:
            matrices = matrices.swapaxes(2, 3)
        HOST[2][move.elements(threads)] = matrices

    return step


@opcode("movmatrix", unit="mma", section="9.7.14.5.17", forms=".sync.aligned.m8n8.trans.b16", joins="warp")
def decode_movmatrix(inst: Instruction, machine: Machine) -> Step:
    """Transpose an 8 x 8 matrix of 16-bit elements across the lanes of a warp."""
    if inst.parts[1:] != ("sync", "aligned", "m8n8", "trans", "b16"):
        raise unsupported(inst)
    d, a = (machine.bank_row(o) for o in inst.operands)

    def step(sel: Selection) -> None:
        threads = threads_of(sel).reshape(-1, 32)
        matrix = np.ascontiguousarray(machine.bank[a, threads]).view(np.uint16).reshape(-1, 8, 8)
        machine.bank[d, threads] = np.ascontiguousarray(matrix.swapaxes(1, 2)).view(np.uint32).reshape(-1, 32)

    return step
