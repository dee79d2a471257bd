"""Warp-wide matrix instructions: mma.sync, ldmatrix, stmatrix, movmatrix (PTX ISA section 9.7.14)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from .loadstore import address_getter
from .memory import HOST, index, threads_of
from .numeric import FORMATS, to_float64, to_int64
from .ptx import Address, Operand, Vector
from .registry import Selection, Step, opcode, unsupported

if TYPE_CHECKING:
    from .machine import Machine
    from .ptx import Instruction


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


@lru_cache(maxsize=32)
def fragment_a(k: int, per: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of (element, lane) of A, 16 x k, `per` elements to a register (9.7.14.5.7 to 9.7.14.5.10)."""
    e, lane = np.arange(16 * k // 32)[:, None], np.arange(32)[None, :]
    row = lane // 4 + e // per % 2 * 8
    col = lane % 4 * per + e % per + e // (2 * per) * 4 * per
    return row + 0 * e, col + 0 * lane


@lru_cache(maxsize=32)
def fragment_b(k: int, per: int) -> tuple[np.ndarray, np.ndarray]:
    """Row (k) and column (n) of (element, lane) of B, k x 8."""
    e, lane = np.arange(8 * k // 32)[:, None], np.arange(32)[None, :]
    row = lane % 4 * per + e % per + e // per * 4 * per
    return row + 0 * lane, lane // 4 + 0 * e


@lru_cache(maxsize=4)
def fragment_c() -> tuple[np.ndarray, np.ndarray]:
    """Row and column of (element, lane) of C and D, 16 x 8."""
    e, lane = np.arange(4)[:, None], np.arange(32)[None, :]
    return lane // 4 + e // 2 * 8 + 0 * lane, lane % 4 * 2 + e % 2


LEGAL = {
    ("f16", "f16"): ((8, 16), ("f16", "f32")), ("bf16", "bf16"): ((8, 16), ("f32",)),
    ("tf32", "tf32"): ((4, 8), ("f32",)), ("s8", "s8"): ((16, 32), ("s32",)), ("u8", "u8"): ((16, 32), ("s32",)),
    ("s8", "u8"): ((16, 32), ("s32",)), ("u8", "s8"): ((16, 32), ("s32",)),
    ("e4m3", "e4m3"): ((32,), ("f16", "f32")), ("e5m2", "e5m2"): ((32,), ("f16", "f32")),
    ("e4m3", "e5m2"): ((32,), ("f16", "f32")), ("e5m2", "e4m3"): ((32,), ("f16", "f32")),
}  # fmt: skip


@opcode("mma.sync", unit="mma", section="9.7.14.5", joins="warp",
        forms=".aligned.m16n8kK.row.col{.satfinite}.{f16 f32 s32}: k8 k16 f16 bf16, k4 k8 tf32, k16 k32 s8 u8, "
              "k32 e4m3 e5m2")  # fmt: skip
def decode_mma(inst: Instruction, machine: Machine) -> Step:
    """D = A B + C for one 16 x 8 tile per warp."""
    words = [p for p in inst.parts[2:] if p not in ("aligned", "row", "col", "satfinite")]
    shape, d, a, b, c = words if len(words) == 5 else (*words, "", "")[:5]
    ks, ds = LEGAL.get((a, b), ((), ()))
    if not shape.startswith("m16n8k") or int(shape[6:]) not in ks or d not in ds or c != d or "row" not in inst.parts:
        raise unsupported(inst, "not a legal shape and type combination")
    k, nbytes = int(shape[6:]), FORMATS[a].nbytes
    rows = [np.array([machine.bank_row(r) for r in _items(o)], np.intp) for o in inst.operands]
    saturate = "satfinite" in inst.parts

    def step(sel: Selection) -> None:
        threads = threads_of(sel).reshape(-1, 32)
        left = _gather(machine, rows[1], threads, a, fragment_a(k, 4 // nbytes), (16, k))
        right = _gather(machine, rows[2], threads, b, fragment_b(k, 4 // nbytes), (k, 8))
        product = left @ right
        row, col = fragment_c()
        _store_d(machine, rows[0], rows[3], threads, product[:, row, col], d, saturate)

    return step


def _elements(machine: Machine, rows: np.ndarray, threads: np.ndarray, nbytes: int) -> np.ndarray:
    """Raw elements of registers: (warps, elements, lanes), the low part of a register first."""
    raw = np.ascontiguousarray(machine.bank[rows[:, None, None], threads].transpose(1, 2, 0))  # warps, lanes, registers
    return raw.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[nbytes]).transpose(0, 2, 1)


def _gather(
    machine: Machine, rows: np.ndarray, threads: np.ndarray, kind: str,
    fragment: tuple[np.ndarray, np.ndarray], shape: tuple[int, int],
) -> np.ndarray:  # fmt: skip
    elements = _elements(machine, rows, threads, FORMATS[kind].nbytes)
    integer = kind in ("s8", "u8")
    matrix = np.zeros((len(threads), *shape), np.int64 if integer else np.float64)
    matrix[:, fragment[0], fragment[1]] = to_int64(elements, kind) if integer else to_float64(elements, kind)
    return matrix


def _store_d(
    machine: Machine, to: np.ndarray, old: np.ndarray, threads: np.ndarray, product: np.ndarray, d: str, saturate: bool
) -> None:
    """Add C and round once; the hardware leaves order and rounding open."""
    bank = machine.bank
    kind = {"f32": np.float32, "s32": np.int32, "f16": np.float16}[d]
    before = _elements(machine, old, threads, 2 if d == "f16" else 4)
    total = product + np.ascontiguousarray(before).view(kind).astype(product.dtype)
    if d == "s32":
        if saturate:
            total = np.clip(total, -(1 << 31), (1 << 31) - 1)
        total = (total & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    bits = np.ascontiguousarray(total.astype(kind).transpose(0, 2, 1)).view(np.uint32)  # warps, lanes, registers
    bank[to[:, None, None], threads] = bits.transpose(2, 0, 1)


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


def _matrix_form(inst: Instruction) -> tuple[int, bool]:
    known = {
        "ldmatrix",
        "stmatrix",
        "sync",
        "aligned",
        "m8n8",
        "x1",
        "x2",
        "x4",
        "trans",
        "shared",
        "shared::cta",
        "b16",
    }
    for part in inst.parts:
        if part not in known:
            raise unsupported(inst, f"modifier .{part}")
    count = next((int(p[1]) for p in inst.parts if p in ("x1", "x2", "x4")), 0)
    if not count:
        raise unsupported(inst)
    return count, "trans" in inst.parts


def _row_hosts(machine: Machine, address, naming: np.ndarray, store: bool) -> np.ndarray:  # type: ignore[no-untyped-def]
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
