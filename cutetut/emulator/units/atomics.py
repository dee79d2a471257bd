"""Atomic operations (PTX ISA sections 9.7.13.5 and 9.7.13.6).

Threads of one instruction that name the same address take effect one after the other in thread
order, one of the orders the hardware may choose; every thread gets the value just before its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..machine.access import Access, Kind
from ..machine.memory import HOST, index
from ..machine.opcodes import Selection, Step, opcode, unsupported
from ..machine.operands import addresses, elements_of
from ..numbers.reductions import ELEMENTS, UFUNCS, update
from ..numbers.rounding import UINT
from ..ptx.effects import Effect
from ..ptx.syntax import BYTES, Operand, Register, Sink
from .loadstore import VECTOR, Space

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction

SEMANTICS = {"relaxed", "acquire", "release", "acq_rel"}
SCOPES = {"cta", "cluster", "gpu", "sys"}
SPACES = {"global", "shared", "shared::cta", "shared::cluster"}
TYPES = {  # which types each operation has
    "add": {"u32", "s32", "u64", "f32", "f64", "f16", "f16x2", "bf16", "bf16x2"},
    "min": {"u32", "s32", "u64", "s64"},
    "max": {"u32", "s32", "u64", "s64"},
    "inc": {"u32"},
    "dec": {"u32"},
    "and": {"b32", "b64"},
    "or": {"b32", "b64"},
    "xor": {"b32", "b64"},
    "exch": {"b32", "b64"},
    "cas": {"b16", "b32", "b64"},
}
VECTOR_TYPES = {  # and with .v2, .v4 or .v8, which only global memory has
    "add": {"f32", "f16", "bf16", "f16x2", "bf16x2"},
    "min": {"f16", "bf16", "f16x2", "bf16x2"},
    "max": {"f16", "bf16", "f16x2", "bf16x2"},
}
HALVES = {"f16", "f16x2", "bf16", "bf16x2"}


@dataclass
class Reduction:
    """The modifiers that atom, red and multimem have."""

    operation: str
    type: str
    vector: int

    @property
    def element(self) -> str:
        """The type of one element: f16 of f16x2."""
        return self.type.removesuffix("x2")

    @property
    def packed(self) -> int:
        return 2 if self.type.endswith("x2") else 1


@dataclass
class _Form(Reduction):
    """The modifiers of one atom or red."""

    space: str
    cache_hint: bool


def _form(inst: Instruction) -> _Form:
    operation, kind, space, vector, hint, noftz = "", inst.parts[-1], "generic", 0, False, False
    for part in inst.parts[1:-1]:
        if part in TYPES and not operation:
            operation = part
        elif part in SPACES:
            space = part.split("::")[0]
        elif part in VECTOR:
            vector = VECTOR[part]
        elif part == "L2::cache_hint":
            hint = True
        elif part == "noftz":
            noftz = True
        elif part not in SEMANTICS and part not in SCOPES:
            raise unsupported(inst, f"modifier .{part}")
    table = VECTOR_TYPES if vector else TYPES
    if kind not in table.get(operation, ()):
        raise unsupported(inst, f"type .{kind}")
    if noftz != (kind in HALVES):
        raise unsupported(inst, ".noftz goes with the 16-bit floating types, which need it")
    if vector and (space != "global" or vector * BYTES[kind] > 16):
        raise unsupported(inst, "vectors are for .global and at most 16 bytes")
    return _Form(operation, kind, vector, space, hint)


# -- the operations -------------------------------------------------------------------------------


def _compare_and_swap(old: np.ndarray, expected: np.ndarray, new: np.ndarray) -> np.ndarray:
    return np.where(old == expected, new, old)


def _update(form: _Form) -> Callable[..., np.ndarray]:
    """(old, b[, c]) -> new."""
    if form.operation == "exch":
        return lambda old, b: b
    if form.operation == "cas":
        return _compare_and_swap
    # a sum in global memory flushes float32 subnormals, one in shared memory does not
    return update(form.operation, form.element, flush=form.type == "f32" and form.space != "shared")


# -- decoding -------------------------------------------------------------------------------------


def halves(word: np.ndarray, dtype: np.dtype) -> list[np.ndarray]:
    """The low and the high halves of a row of 32-bit values, which may be a constant."""
    if word.strides == (0,):
        return [np.broadcast_to(half, word.shape) for half in word[:1].view(dtype)]
    return [word.view(dtype)[half::2] for half in (0, 1)]


class Atomic:
    """What atom and red share: where, with which values, and how memory changes."""

    def __init__(self, inst: Instruction, machine: Machine, first: int) -> None:
        self.form = form = _form(inst)
        self.inst_index, self.parts = inst.index, inst.parts
        operands = inst.operands[first:]
        expected = 2 + (form.operation == "cas") + form.cache_hint
        if len(operands) != expected:
            raise unsupported(inst, f"{len(operands)} operands, where the address and {expected - 1} more are expected")
        self.dtype = np.dtype(ELEMENTS[form.element])
        self.unit = self.dtype.itemsize
        self.elements = max(form.vector, 1) * form.packed
        self.total = self.unit * self.elements
        self.address = addresses(inst, machine, operands[0])
        self.locate = self._locator(machine)
        self.values = [self._rows(inst, machine, op) for op in operands[1 : 2 + (form.operation == "cas")]]
        self.update = _update(form)
        # float sums need their own update: flushed subnormals, canonical NaN
        self.ufunc = None if form.type.startswith(("f", "bf")) else UFUNCS.get(form.operation)
        self.memory = HOST[self.unit].view(self.dtype)

    def _locator(self, machine: Machine) -> Callable[[np.ndarray, Selection], np.ndarray]:
        spaces: dict[str, Space] = {"shared": machine.shared, "global": machine.memory}
        space = spaces.get(self.form.space, machine.generic)
        access = machine.checks.uses(Access.of(self.parts, self.inst_index, self.total, Kind.ATOMIC))
        return lambda address, sel: space.locate(address, sel, access)

    def _rows(self, inst: Instruction, machine: Machine, operand: Operand) -> list[np.ndarray]:
        """One row per element of memory, seen as its type."""
        items = elements_of(operand)
        if len(items) != max(self.form.vector, 1):
            raise unsupported(inst, f"{len(items)} values for {max(self.form.vector, 1)} elements")
        if self.form.packed == 1:
            return [machine.source(item, self.dtype) for item in items]
        words = [machine.source(item, np.uint32) for item in items]
        return [half for word in words for half in halves(word, self.dtype)]

    def run(self, sel: Selection) -> list[np.ndarray]:
        """Perform the operation; returns the old values, one array per element."""
        return self.run_at(self.address(sel), sel)

    def run_at(self, address: np.ndarray, sel: Selection) -> list[np.ndarray]:
        """The same at these addresses."""
        at = index(self.locate(address, sel), self.unit)
        if not at.size:
            return [at.view(self.dtype)] * self.elements
        return [self._in_thread_order(at + i, tuple(v[i][sel] for v in self.values)) for i in range(self.elements)]

    def _in_thread_order(self, at: np.ndarray, values: tuple[np.ndarray, ...]) -> np.ndarray:
        """Apply update(memory[at], *values), in thread order where addresses repeat; returns the old values.

        The memory view is no argument of this function: a debugger or pytest that prints arguments would
        print the whole address space of the process.
        """
        memory, update = self.memory, self.update
        order = np.argsort(at, kind="stable")
        ordered = at[order]
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        if len(starts) == len(at):
            old = memory[at]
            memory[at] = update(old, *values)
            return old
        sizes = np.diff(np.append(starts, len(at)))
        if self.ufunc is not None and len(starts) < sizes.max():  # few addresses, many threads on each
            return self._accumulate(order, ordered, starts, sizes, values[0])
        old = np.empty(len(at), self.dtype)
        for rank in range(int(sizes.max())):  # the first thread of every address, then the second, ...
            mine = order[starts[sizes > rank] + rank]
            old[mine] = before = memory[at[mine]]
            memory[at[mine]] = update(before, *(v[mine] for v in values))
        return old

    def _accumulate(
        self, order: np.ndarray, ordered: np.ndarray, starts: np.ndarray, sizes: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        """The same for operations that numpy can run along an array, one address after the other."""
        assert self.ufunc is not None
        old = np.empty(len(order), self.dtype)
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
            mine, where = order[start : start + size], ordered[start]
            partial = self.ufunc.accumulate(np.append(self.memory[where : where + 1], values[mine]), dtype=self.dtype)
            old[mine], self.memory[where] = partial[:-1], partial[-1]
        return old


def _result_writers(inst: Instruction, machine: Machine, atomic: Atomic) -> list[Callable[..., Any]]:
    """Assigns the old values of each element to the result; the rest of a wider register is zero."""
    result = inst.operands[0]
    items = elements_of(result)
    if len(items) != max(atomic.form.vector, 1):
        raise unsupported(inst, f"{len(items)} results for {max(atomic.form.vector, 1)} elements")
    if isinstance(result, Sink):
        return []
    raw = UINT[atomic.unit]
    if atomic.form.packed == 2:
        rows = [half for item in items for half in halves(machine.target(item, np.uint32), np.dtype(np.uint16))]
        return [_assign(row, raw) for row in rows]
    rows = [
        machine.target(item, UINT[machine.register_dtype(item).itemsize] if isinstance(item, Register) else raw)
        for item in items
    ]
    return [_assign(row, raw) for row in rows]


def _assign(row: np.ndarray, raw: type) -> Callable[[Selection, np.ndarray], None]:
    def write(sel: Selection, old: np.ndarray) -> None:
        row[sel] = old.view(raw)

    return write


@opcode("atom", unit="atomics", role="updates", effect=Effect.UPDATES, stores=1, section="9.7.13.5",
        forms="{.relaxed .acquire .release .acq_rel}{.scope}{.global .shared}.exch .cas .add .min .max .inc .dec .and "
              ".or .xor of 16 to 64 bits, .noftz.f16 .bf16 and x2, {.v2 .v4 .v8} in .global")  # fmt: skip
def decode_atom(inst: Instruction, machine: Machine) -> Step:
    """Read, combine and write one memory location; the old value is the result."""
    atomic = Atomic(inst, machine, 1)
    writers = _result_writers(inst, machine, atomic)

    def step(sel: Selection) -> None:
        olds = atomic.run(sel)
        for write, old in zip(writers, olds, strict=False):  # no writers for a sink
            write(sel, old)

    return step


@opcode("red", unit="atomics", role="updates", stores=0, section="9.7.13.6", results=0,
        forms="{.relaxed .release}{.scope}{.global .shared}.add .min .max .inc .dec .and .or .xor of 32 and 64 bits, "
              ".noftz.f16 .bf16 and x2, {.v2 .v4 .v8} in .global")  # fmt: skip
def decode_red(inst: Instruction, machine: Machine) -> Step:
    """Combine into one memory location without a result."""
    if {"exch", "cas", "acquire", "acq_rel"} & set(inst.parts):
        raise unsupported(inst, "red only reduces")
    atomic = Atomic(inst, machine, 0)

    def step(sel: Selection) -> None:
        atomic.run(sel)

    return step
