"""Matrices between shared memory and the registers of a warp: ldmatrix, stmatrix, movmatrix (9.7.14.5.15 to 17)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .loadstore import address_getter
from .memory import HOST, index, threads_of
from .ptx import Address, Operand, Vector
from .registry import Selection, Step, opcode, unsupported

if TYPE_CHECKING:
    from .machine import Machine
    from .ptx import Instruction


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


@opcode("ldmatrix", unit="mma", section="9.7.14.5.15", joins="warp",
        forms=".sync.aligned.m8n8.{x1 x2 x4}{.trans}.shared.b16")  # fmt: skip
def decode_ldmatrix(inst: Instruction, machine: Machine) -> Step:
    """Load 8 x 8 matrices of 16-bit elements: lane i names row i, lane l receives two elements of row l / 4."""
    count, transpose = _matrix_form(inst)
    rows = np.array([machine.bank_row(r) for r in _items(inst.operands[0])], np.intp)
    where = inst.operands[1]
    if len(rows) != count or not isinstance(where, Address):
        raise unsupported(inst, f"{count} registers and an [address] are needed")
    address = address_getter(machine, where)

    def step(sel: Selection) -> None:
        threads = threads_of(sel).reshape(-1, 32)
        naming = threads[:, : 8 * count]
        host = _row_hosts(machine, address, naming, False).reshape(len(threads), count, 8)
        at = index(host[..., None] + 2 * np.arange(8), 2)
        matrices = HOST[2][at]  # warps, matrix, row, column
        if transpose:
            matrices = matrices.swapaxes(2, 3)
        pairs = np.ascontiguousarray(matrices).view(np.uint32).reshape(len(threads), count, 32)
        machine.bank[rows[:, None, None], threads] = pairs.transpose(1, 0, 2)

    return step


@opcode("stmatrix", unit="mma", section="9.7.14.5.16", joins="warp", results=0,
        forms=".sync.aligned.m8n8.{x1 x2 x4}{.trans}.shared.b16")  # fmt: skip
def decode_stmatrix(inst: Instruction, machine: Machine) -> Step:
    """The opposite of ldmatrix."""
    count, transpose = _matrix_form(inst)
    rows = np.array([machine.bank_row(r) for r in _items(inst.operands[1])], np.intp)
    where = inst.operands[0]
    if len(rows) != count or not isinstance(where, Address):
        raise unsupported(inst, f"{count} registers and an [address] are needed")
    address = address_getter(machine, where)

    def step(sel: Selection) -> None:
        machine.shared.storing = inst.index
        threads = threads_of(sel).reshape(-1, 32)
        naming = threads[:, : 8 * count]
        host = _row_hosts(machine, address, naming, True).reshape(len(threads), count, 8)
        pairs = np.ascontiguousarray(machine.bank[rows[:, None, None], threads].transpose(1, 0, 2))
        matrices = pairs.view(np.uint16).reshape(len(threads), count, 8, 8)
        if transpose:
            matrices = matrices.swapaxes(2, 3)
        HOST[2][index(host[..., None] + 2 * np.arange(8), 2)] = matrices

    return step


_KNOWN = {"ldmatrix", "stmatrix", "sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16"}


def _matrix_form(inst: Instruction) -> tuple[int, bool]:
    """How many matrices, and whether they are transposed on the way."""
    for part in inst.parts:
        if part not in _KNOWN:
            raise unsupported(inst, f"modifier .{part}")
    count = next((int(p[1]) for p in inst.parts if p in ("x1", "x2", "x4")), 0)
    if not count:
        raise unsupported(inst)
    return count, "trans" in inst.parts


def _row_hosts(
    machine: Machine, address: Callable[[Selection], np.ndarray], naming: np.ndarray, store: bool
) -> np.ndarray:
    """Host addresses of the 16-byte rows that lanes name."""
    flat = naming.ravel()
    return machine.shared.locate(address(flat), 16, flat, store)


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
