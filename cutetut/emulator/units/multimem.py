"""multimem: one access to the same place in the memory of several GPUs (PTX ISA section 9.7.9.16).

A load reduces what all of them hold, from the first GPU to the last: the order in which a switch adds is not specified.
A store or a reduction reaches all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..errors import IllegalInstruction
from ..machine import multicast
from ..machine.access import SCOPES, SYS, Access, Kind
from ..machine.memory import HOST, index, threads_of
from ..machine.opcodes import Selection, Step, opcode, unsupported
from ..machine.operands import addresses, elements_of
from ..numbers.reductions import ELEMENTS, update
from ..numbers.rounding import UINT, bfloat_nearest, bfloat_value
from ..ptx.syntax import BYTES, Operand
from .atomics import HALVES, Atomic, Reduction, halves
from .loadstore import VECTOR

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction

SEMANTICS = {"weak", "relaxed", "acquire", "release"}
REDUCED = {
    "add": {"u32", "s32", "u64", "f32", "f64", "f16", "f16x2", "bf16", "bf16x2"},
    "min": {"u32", "s32", "u64", "s64", "f16", "f16x2", "bf16", "bf16x2"},
    "max": {"u32", "s32", "u64", "s64", "f16", "f16x2", "bf16", "bf16x2"},
    "and": {"b32", "b64"}, "or": {"b32", "b64"}, "xor": {"b32", "b64"},
}  # fmt: skip
STORED = {"b32", "b64", "u32", "u64", "s32", "s64", "f32", "f64", "f16x2", "bf16x2"}


@dataclass
class _Form(Reduction):
    """The modifiers of one of them."""

    wide: bool


def _form(inst: Instruction, what: str) -> _Form:
    operation, vector, wide = "", 0, False
    for part in inst.parts[2:-1]:
        if part in REDUCED and what != "st" and not operation:
            operation = part
        elif part in VECTOR:
            vector = VECTOR[part]
        elif part == "acc::f32":
            wide = True
        elif part not in SEMANTICS and part not in SCOPES and part != "global":
            raise unsupported(inst, f"modifier .{part}")
    form = _Form(operation, inst.parts[-1], vector, wide)
    if form.type not in (REDUCED.get(operation, set()) if operation else STORED) or bool(operation) == (what == "st"):
        raise unsupported(inst, f"type .{form.type}")
    nbytes = BYTES[form.type] * max(vector, 1)
    if form.type.startswith(("f", "bf")) and nbytes not in (4, 8, 16) or vector and not _may_be_vector(form.type):
        raise unsupported(inst, "floating types come in 32, 64 or 128 bits together, others and .f64 alone")
    if wide and (form.type not in HALVES or operation != "add"):
        raise unsupported(inst, ".acc::f32 is for sums of 16-bit floating types")
    return form


def _may_be_vector(kind: str) -> bool:
    return kind.startswith(("f", "bf")) and kind != "f64"


def _access(inst: Instruction, machine: Machine, nbytes: int, kind: Kind) -> Access:
    """The access of an instruction, whose scope is the system's where it names none."""
    access = Access.of(inst.parts, inst.index, nbytes, kind)
    if access.scope and not set(SCOPES) & set(inst.parts):
        access = replace(access, scope=SYS)
    return machine.checks.uses(access)


def _everywhere(address: np.ndarray, sel: Selection) -> list[np.ndarray]:
    """The places of each GPU that threads' multicast addresses stand for. Raises IllegalInstruction for others."""
    window = multicast.window(int(address[0]))
    if window is not None and window is multicast.window(int(address.min())) is multicast.window(int(address.max())):
        return window.spread(address)
    found = [multicast.window(int(each)) for each in address.tolist()]
    bad = np.array([each is None for each in found])
    if bad.any():
        raise IllegalInstruction(
            f"multimem uses the address {int(address[bad][0]):#x}, which is no multicast address",
            threads=threads_of(sel)[bad],
            hint="the address of a multicast tensor (multicast_ptr, nvshmem's get_multicast_tensor), not a GPU's own",
        )
    spread = [each.spread(address[i : i + 1]) for i, each in enumerate(found) if each is not None]
    return [np.concatenate(places) for places in zip(*spread, strict=True)]


def _rows(inst: Instruction, machine: Machine, operand: Operand, form: _Form, target: bool) -> list[np.ndarray]:
    """A row of bits for each element."""
    items, unit = elements_of(operand), np.dtype(ELEMENTS[form.element]).itemsize
    if len(items) != max(form.vector, 1):
        raise unsupported(inst, f"{len(items)} registers for {max(form.vector, 1)} values")
    row = machine.target if target else machine.source
    if form.packed == 2:
        return [half for item in items for half in halves(row(item, np.uint32), np.dtype(np.uint16))]
    return [row(item, UINT[unit]) for item in items]


def _reducer(form: _Form) -> Callable[[Sequence[np.ndarray]], np.ndarray]:
    """Of one element of each GPU's memory, as bits, to the result's bits."""
    dtype = np.dtype(ELEMENTS[form.element])
    step = update(form.operation, form.element)

    def reduce(values: Sequence[np.ndarray]) -> np.ndarray:
        if not form.wide:
            return functools.reduce(step, [each.view(dtype) for each in values]).view(UINT[dtype.itemsize])
        if form.element == "bf16":
            return bfloat_nearest(functools.reduce(np.add, map(bfloat_value, values)))
        total = functools.reduce(np.add, [each.view(np.float16).astype(np.float32) for each in values])
        return np.asarray(total.astype(np.float16).view(np.uint16))

    return reduce


@opcode("multimem.ld_reduce", unit="multimem", role="reads", section="9.7.9.16.1",
        forms="{.weak .relaxed .acquire}{.scope}.global.add .min .max .and .or .xor{.acc::f32}{.v2 .v4}.u32 .s32 .u64 "
              ".s64 .b32 .b64 .f32 .f64 .f16 .bf16 and x2")  # fmt: skip
def decode_ld_reduce(inst: Instruction, machine: Machine) -> Step:
    """Load what each GPU holds in one place, and reduce it."""
    form = _form(inst, "ld_reduce")
    rows = _rows(inst, machine, inst.operands[0], form, True)
    unit = np.dtype(ELEMENTS[form.element]).itemsize
    address, host, memory = addresses(inst, machine, inst.operands[1]), HOST[unit], machine.memory
    access, reduce = _access(inst, machine, unit * len(rows), Kind.LOAD), _reducer(form)

    def step(sel: Selection) -> None:
        places = [index(memory.locate(each, sel, access), unit) for each in _everywhere(address(sel), sel)]
        for i, row in enumerate(rows):
            row[sel] = reduce([host[at + i] for at in places])

    return step


@opcode("multimem.st", unit="multimem", role="writes", stores=0, section="9.7.9.16.2", results=0,
        forms="{.weak .relaxed .release}{.scope}.global{.v2 .v4}.b32 .b64 .u .s .f .f16x2 .bf16x2")  # fmt: skip
def decode_st(inst: Instruction, machine: Machine) -> Step:
    """Store a value in one place of every GPU."""
    form = _form(inst, "st")
    form = replace(form, type="b32") if form.packed == 2 else form
    rows = _rows(inst, machine, inst.operands[1], form, False)
    unit = np.dtype(ELEMENTS[form.element]).itemsize
    address, host, memory = addresses(inst, machine, inst.operands[0]), HOST[unit], machine.memory
    access = _access(inst, machine, unit * len(rows), Kind.STORE)
    access = replace(access, values=lambda sel: [row[sel] for row in rows])

    def step(sel: Selection) -> None:
        for each in _everywhere(address(sel), sel):
            at = index(memory.locate(each, sel, access), unit)
            for i, row in enumerate(rows):
                host[at + i] = row[sel]

    return step


@opcode("multimem.red", unit="multimem", role="updates", stores=0, section="9.7.9.16.3", results=0,
        forms="{.relaxed .release}{.scope}.global.add .min .max .and .or .xor{.v2 .v4}.u32 .s32 .u64 .s64 .b32 .b64 "
              ".f32 .f64 .f16 .bf16 and x2")  # fmt: skip
def decode_red(inst: Instruction, machine: Machine) -> Step:
    """Combine a value into one place of every GPU."""
    form = _form(inst, "red")
    parts = [part for part in inst.parts[1:] if part != "global"]
    scope = [] if set(SCOPES) & set(parts) else ["sys"]
    rounded = ["noftz"] if form.type in HALVES else []
    opcode = ".".join(["red", *parts[1:-1], *scope, "global", *rounded, form.type])
    atomic = Atomic(replace(inst, opcode=opcode), machine, 0)
    address = addresses(inst, machine, inst.operands[0])

    def step(sel: Selection) -> None:
        for each in _everywhere(address(sel), sel):
            atomic.run_at(each, sel)

    return step
