"""Warp-wide matrix products: mma.sync and mma.sp (PTX ISA sections 9.7.14.5 and 9.7.14.6).

A warp holds every matrix in registers, each lane a fixed part of it: its *fragment*.  A step
gathers the fragments into matrices, multiplies exactly, and deals D out again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..errors import IllegalInstruction
from ..machine.memory import threads_of
from ..machine.opcodes import Selection, Step, opcode, unsupported
from ..machine.operands import elements_of
from ..numbers.matrix_formats import NBYTES, add_rounded, to_float64
from ..numbers.rounding import UINT
from ..ptx.syntax import Immediate, Operand

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction

Fragment = tuple[np.ndarray, np.ndarray]  # row and column of (element, lane)


@lru_cache(maxsize=32)
def fragment_a(m: int, k: int, per: int) -> Fragment:
    """Row and column of (element, lane) of A, m x k, `per` elements to a register (9.7.14.5.1 to 9.7.14.5.11)."""
    e, lane = np.arange(m * k // 32)[:, None], np.arange(32)[None, :]
    halves = m // 8  # registers alternate between rows 0-7 and rows 8-15
    row = lane // 4 + e // per % halves * 8
    col = lane % 4 * per + e % per + e // (halves * per) * 4 * per
    return row + 0 * e, col + 0 * lane


@lru_cache(maxsize=32)
def fragment_b(k: int, per: int) -> Fragment:
    """Row (k) and column (n) of (element, lane) of B, k x 8."""
    e, lane = np.arange(8 * k // 32)[:, None], np.arange(32)[None, :]
    row = lane % 4 * per + e % per + e // per * 4 * per
    return row + 0 * lane, lane // 4 + 0 * e


@lru_cache(maxsize=4)
def fragment_c(m: int) -> Fragment:
    """Row and column of (element, lane) of C and D, m x 8."""
    e, lane = np.arange(m // 4)[:, None], np.arange(32)[None, :]
    return lane // 4 + e // 2 * 8 + 0 * lane, lane % 4 * 2 + e % 2


Legal = dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]]  # types of A, B -> shapes, types of D
_INTEGER = (("m8n8k16", "m16n8k16", "m16n8k32"), ("s32",))
_FLOAT8 = (("m16n8k16", "m16n8k32"), ("f16", "f32"))
LEGAL: Legal = {
    ("f16", "f16"): (("m16n8k8", "m16n8k16"), ("f16", "f32")), ("bf16", "bf16"): (("m16n8k8", "m16n8k16"), ("f32",)),
    ("tf32", "tf32"): (("m16n8k4", "m16n8k8"), ("f32",)),
    ("f64", "f64"): (("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"), ("f64",)),
    **{(a, b): _INTEGER for a in ("s8", "u8") for b in ("s8", "u8")},
    **{(a, b): _FLOAT8 for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")},
}  # fmt: skip
LEGAL_SPARSE: Legal = {
    ("f16", "f16"): (("m16n8k16", "m16n8k32"), ("f16", "f32")), ("bf16", "bf16"): (("m16n8k16", "m16n8k32"), ("f32",)),
}  # fmt: skip


@dataclass(frozen=True)
class Form:
    """What one mma multiplies: m x 8 x k, the types of D, A and B."""

    m: int
    k: int
    d: str
    a: str
    b: str
    saturate: bool

    @classmethod
    def of(cls, inst: Instruction, legal: Legal) -> Form:
        """Read the opcode; raises UnknownInstruction for a combination that does not exist or is not emulated."""
        words = inst.parts[inst.parts.index("sync") :] if "sync" in inst.parts else ()
        saturate = "satfinite" in words
        rest = tuple(p for p in words if p not in ("sync", "aligned", "satfinite"))
        if len(rest) != 7 or rest[1:3] != ("row", "col") or "aligned" not in words:
            raise unsupported(inst, "the form is .sync.aligned.shape.row.col{.satfinite}.d.a.b.c")
        shape, _, _, d, a, b, c = rest
        shapes, ds = legal.get((a, b), ((), ()))
        if shape not in shapes or d not in ds or c != d or (saturate and d != "s32"):
            raise unsupported(inst, "not a shape and type combination that is emulated")
        m, k = shape[1:].split("n8k")
        return cls(int(m), int(k), d, a, b, saturate)


class _Registers:
    """The registers of one matrix operand, read and written as elements: (warps, elements, lanes)."""

    def __init__(self, inst: Instruction, machine: Machine, operand: Operand, count: int, wide: bool) -> None:
        items = elements_of(operand)
        if len(items) != count:
            raise unsupported(inst, f"{len(items)} registers where the fragment has {count}")
        self.bank = machine.bank
        self.rows = None if wide else np.array([machine.bank_row(r) for r in items], np.intp)
        self.wide = [machine.target(r, np.uint64) for r in items] if wide else []

    def read(self, threads: np.ndarray, nbytes: int) -> np.ndarray:
        """Elements of nbytes each, the low part of a register first; threads is (warps, 32)."""
        if self.rows is None:
            return np.stack([row[threads] for row in self.wide], axis=1)
        raw = np.ascontiguousarray(self.bank[self.rows[:, None, None], threads].transpose(1, 2, 0))
        return np.ascontiguousarray(raw.view(UINT[nbytes]).transpose(0, 2, 1))

    def write(self, threads: np.ndarray, elements: np.ndarray) -> None:
        if self.rows is None:
            for i, row in enumerate(self.wide):
                row[threads] = elements[:, i]
            return
        packed = np.ascontiguousarray(elements.transpose(0, 2, 1)).view(np.uint32)
        self.bank[self.rows[:, None, None], threads] = packed.transpose(2, 0, 1)


class _Product:
    """The registers of one mma and how its matrices lie in them; `k_of_a` is K / 2 where A is sparse."""

    def __init__(self, inst: Instruction, machine: Machine, form: Form, k_of_a: int) -> None:
        self.form = form
        self.nbytes, self.d_bytes = NBYTES[form.a], NBYTES[form.d]
        wide = form.a == "f64"
        per = 1 if wide else 4 // self.nbytes
        self.a_map, self.b_map = fragment_a(form.m, k_of_a, per), fragment_b(form.k, per)
        self.c_map = fragment_c(form.m)
        self.a_shape, self.b_shape = (form.m, k_of_a), (form.k, 8)
        c_registers = len(self.c_map[0]) * self.d_bytes // (8 if wide else 4)
        counts = (c_registers, len(self.a_map[0]) // per, len(self.b_map[0]) // per, c_registers)
        self.d, self.a, self.b, self.c = (
            _Registers(inst, machine, operand, count, wide)
            for operand, count in zip(inst.operands[:4], counts, strict=True)
        )

    def matrix_a(self, threads: np.ndarray) -> np.ndarray:
        return self._gather(self.a.read(threads, self.nbytes), self.form.a, self.a_map, self.a_shape)

    def matrix_b(self, threads: np.ndarray) -> np.ndarray:
        return self._gather(self.b.read(threads, self.nbytes), self.form.b, self.b_map, self.b_shape)

    def _gather(self, elements: np.ndarray, kind: str, fragment: Fragment, shape: tuple[int, int]) -> np.ndarray:
        matrix = np.zeros((len(elements), *shape))
        matrix[:, fragment[0], fragment[1]] = to_float64(elements, kind)
        return matrix

    def finish(self, threads: np.ndarray, product: np.ndarray) -> None:
        """D = product + C, dealt out to the lanes."""
        form = self.form
        values = {"f32": np.float32, "f16": np.float16, "f64": np.float64, "s32": np.int32}[form.d]
        before = self.c.read(threads, self.d_bytes).view(values)
        self.d.write(threads, add_rounded(product[:, self.c_map[0], self.c_map[1]], before, form.d, form.saturate))


@opcode("mma.sync", unit="mma", section="9.7.14.5", joins="warp",
        forms=".aligned.{m8n8kK m16n8kK}.row.col{.satfinite}: k8 k16 f16 bf16, k4 k8 tf32, m8n8k16 k16 k32 s8 u8, "
              "k16 k32 e4m3 e5m2, m8n8k4 k4 k8 k16 f64; D and C f16 f32 s32 f64")  # fmt: skip
def decode_mma(inst: Instruction, machine: Machine) -> Step:
    """D = A B + C for one m x 8 tile per warp."""
    form = Form.of(inst, LEGAL)
    product = _Product(inst, machine, form, form.k)

    def step(sel: Selection) -> None:
        threads = threads_of(sel).reshape(-1, 32)
        product.finish(threads, product.matrix_a(threads) @ product.matrix_b(threads))

    return step


@opcode("mma.sp", "mma.sp::ordered_metadata", unit="mma", section="9.7.14.6", joins="warp",
        forms=".sync.aligned.m16n8kK.row.col: k16 k32 f16 bf16, selector 0-3 or 0-1")  # fmt: skip
def decode_sparse_mma(inst: Instruction, machine: Machine) -> Step:
    """D = A B + C where A keeps two of every four elements of a row, and metadata says which two."""
    form = Form.of(inst, LEGAL_SPARSE)
    product = _Product(inst, machine, form, form.k // 2)
    metadata = machine.source(inst.operands[4], np.uint32)
    threads_per_group = form.k // 16  # lanes of each four that hold metadata
    selector = inst.operands[5]
    if not isinstance(selector, Immediate) or not 0 <= int(selector.value) < 4 // threads_per_group:
        raise unsupported(inst, "the sparsity selector must be a constant in its range")
    lanes = (np.arange(8)[:, None] * 4 + int(selector.value) * threads_per_group + np.arange(threads_per_group)).ravel()

    def step(sel: Selection) -> None:
        threads = threads_of(sel).reshape(-1, 32)
        place = sparse_columns(metadata[threads][:, lanes], form.k)
        if (place[..., 0::2] >= place[..., 1::2]).any():
            raise IllegalInstruction(
                "the metadata of a sparse mma must name two different elements of each four, the lower one first",
                threads=threads[:1, 0],
            )
        dense = np.zeros((len(threads), form.m, form.k))
        np.put_along_axis(dense, place, product.matrix_a(threads), axis=2)
        product.finish(threads, dense @ product.matrix_b(threads))

    return step


def sparse_columns(metadata: np.ndarray, k: int) -> np.ndarray:
    """Column in the dense A of every kept element: (warps, 16, k / 2), from (warps, 8 or 16) metadata words.

    A word holds 16 columns of row g in its low half and of row g + 8 in its high half, two bits for each
    kept element; with k = 32 the second word of a group goes on at column 16 (section 9.7.14.6.2).
    """
    words = metadata.reshape(len(metadata), 8, k // 16)
    kept = np.arange(8)
    low, high = (words[..., None] >> (16 * half + 2 * kept).astype(np.uint32) & 3 for half in (0, 1))
    base = np.arange(k // 16)[:, None] * 16 + kept // 2 * 4
    rows = np.concatenate([low + base, high + base], axis=1)  # (warps, 16, k / 16, 8)
    return rows.reshape(len(metadata), 16, k // 2).astype(np.int64)
