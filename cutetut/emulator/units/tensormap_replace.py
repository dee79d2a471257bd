"""Tensor maps changed by the kernel: tensormap.replace, tensormap.cp_fenceproxy (PTX ISA 9.7.9.28, 9.7.13.4).

Neither is a matter of the copy engine.  NVIDIA's assembler turns tensormap.replace into loads, shifts and
stores of the 128-byte image, which is where `_places` was read off (ptxas 13.0 for sm_90a,
nvdisasm), and it agrees with what cuTensorMapEncodeTiled packs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..checks.clocks import TENSORMAP
from ..checks.ordering import Ordering
from ..checks.tensormaps import MAP_BYTES, TensorMaps
from ..errors import IllegalInstruction, Misaligned
from ..machine.access import Access, Kind
from ..machine.memory import HOST, index, threads_of
from ..machine.opcodes import Selection, Step, opcode, unsupported
from ..machine.operands import addresses
from ..ptx.syntax import Immediate
from .loadstore import Space

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction

TF32_BIT = 1 << 16  # of word 1: f32 elements hold tf32


@dataclass(frozen=True)
class Field:
    """Bits of a 32-bit word of the image: where they are, and what is taken from the new value."""

    offset: int  # of the word, in bytes
    mask: int
    shift: int = 0
    minus: int = 0  # sizes, boxes and element strides are stored minus one


def _places(name: str, ordinal: int) -> tuple[Field, ...]:
    """The words a field lies in; a stride, in units of 16 bytes, has its bits 32 to 35 elsewhere."""
    if name == "global_stride":
        return (Field(12 + 4 * ordinal, 0xFFFFFFFF), Field(28, 15 << 4 * ordinal, 4 * ordinal))
    if name == "global_dim":
        return (Field(32 + 4 * ordinal, 0xFFFFFFFF, 0, 1),)
    if name == "box_dim":
        at = 24 if ordinal == 0 else 8 * (ordinal - 1)
        return (Field(52 if ordinal == 0 else 56, 0xFF << at, at, 1),)
    if name == "element_stride":
        return (Field(52, 7 << 3 * ordinal, 3 * ordinal, 1),)
    mask, shift = {"rank": (0x70, 4), "elemtype": (0x780, 7), "interleave_layout": (0x1800, 11),
                   "swizzle_mode": (0x6000, 13), "fill_mode": (0x8000, 15)}[name]  # fmt: skip
    return (Field(8, mask, shift),)


ORDINALS = {"global_stride": 4, "global_dim": 5, "box_dim": 5, "element_stride": 5}  # how many of each there are
CODES = {"elemtype": 13, "interleave_layout": 3, "swizzle_mode": 4, "fill_mode": 2}  # constants below this
FIELDS = ("global_address", "rank", *ORDINALS, *CODES)


def _space(inst: Instruction, machine: Machine) -> Space:
    if "shared::cta" in inst.parts:
        return machine.shared
    return machine.memory if "global" in inst.parts else machine.generic


@opcode(
    "tensormap.replace",
    unit="tma", role="writes", stores=0,
    section="9.7.9.28",
    results=0,
    forms=f".tile.{{{' '.join(FIELDS)}}}{{.global .shared::cta}}.b1024.{{b32 b64}} [map], {{ordinal,}} value",
)
def decode_replace(inst: Instruction, machine: Machine) -> Step:
    """Change one field of a tensor map in memory."""
    name, kind = inst.parts[3] if inst.parts[2] == "tile" else "", inst.parts[-1]
    wide = name in ("global_address", "global_stride")
    spaces = {"global", "shared::cta", "b1024", kind}
    if name not in FIELDS or not set(inst.parts[4:]) <= spaces or kind != ("b64" if wide else "b32"):
        raise unsupported(inst)
    where, *operands = inst.operands
    if len(operands) != 1 + (name in ORDINALS):
        raise unsupported(inst, "the operands are [map], an ordinal for fields that have several, and the value")
    ordinal = _constant(inst, operands[0], ORDINALS[name]) if name in ORDINALS else 0
    if name in CODES:
        _constant(inst, operands[-1], CODES[name])
    value = machine.source(operands[-1], np.uint64 if wide else np.uint32)
    address, space = addresses(inst, machine, where), _space(inst, machine)
    wide_store = machine.checks.uses(Access(inst.index, 8, Kind.STORE))
    narrow = machine.checks.uses(Access(inst.index, 4)), machine.checks.uses(Access(inst.index, 4, Kind.STORE))

    def step(sel: Selection) -> None:
        start, threads = address(sel), threads_of(sel)
        _check_alignment(start, threads)
        for thread, where in zip(threads.tolist(), start.tolist(), strict=True):
            if space is not machine.shared:
                machine.unit(TensorMaps).changes(machine.generic.host_of(where, thread, 1), thread, inst.index)
        if name == "global_address":
            HOST[8][index(space.locate(start, sel, wide_store), 8)] = value[sel]
            return
        new = value[sel].astype(np.int64)
        if name == "global_stride":
            _write(space, start, sel, narrow, _places(name, ordinal), (new >> 4 & 0xFFFFFFFF, new >> 36))
        elif name == "elemtype" and int(new[0]) > 10:  # 11 and 12 are f32 and f32.ftz that hold tf32
            places = (Field(8, TF32_BIT, 16), *_places(name, 0))
            _write(space, start, sel, narrow, places, (np.ones_like(new), new - 4))
        else:
            _write(space, start, sel, narrow, _places(name, ordinal), (new,))

    return step


def _constant(inst: Instruction, operand: object, limit: int) -> int:
    if not isinstance(operand, Immediate) or not 0 <= int(operand.value) < limit:
        raise unsupported(inst, f"a constant from 0 to {limit - 1} is needed")
    return int(operand.value)


def _check_alignment(start: np.ndarray, threads: np.ndarray) -> None:
    bad = (start & 63) != 0
    if bad.any():
        raise Misaligned(
            f"the tensor map lies at {int(start[bad][0]):#x}; it must be 64-byte aligned", threads=threads[bad]
        )


def _write(
    space: Space, start: np.ndarray, sel: Selection, accesses: tuple[Access, Access], fields: tuple[Field, ...],
    values: tuple[np.ndarray, ...],
) -> None:  # fmt: skip
    for field, value in zip(fields, values, strict=True):
        address = start + field.offset
        bits = (value - field.minus) << field.shift & field.mask
        if field.mask != 0xFFFFFFFF:
            old = HOST[4][index(space.locate(address, sel, accesses[0]), 4)]
            bits = bits | old & (field.mask ^ 0xFFFFFFFF)
        HOST[4][index(space.locate(address, sel, accesses[1]), 4)] = bits


@opcode("tensormap.cp_fenceproxy", unit="tma", role="copies", stores=0, section="9.7.13.4.3", results=0, joins="warp",
        forms=".global.shared::cta.tensormap::generic.release.{scope}.sync.aligned [to], [from], 128")  # fmt: skip
def decode_cp_fenceproxy(inst: Instruction, machine: Machine) -> Step:
    """A warp copies a tensor map from shared to global memory, for TMA instructions after an acquiring fence."""
    form = ("global", "shared::cta", "tensormap::generic", "release", inst.parts[-3], "sync", "aligned")
    if inst.parts[2:] != form or inst.parts[-3] not in ("cta", "cluster", "gpu", "sys"):
        raise unsupported(inst)
    to, source, size = inst.operands
    if not isinstance(size, Immediate):
        raise unsupported(inst, "the operands are [global], [shared], 128")
    _constant(inst, size, MAP_BYTES + 1)
    get_to, get_from = addresses(inst, machine, to), addresses(inst, machine, source)
    machine.checks.uses(Access(inst.index, 4))

    def step(sel: Selection) -> None:
        threads = threads_of(sel)
        for warp in threads.reshape(-1, 32):
            _copy(machine, inst, warp[:1], get_to(warp), get_from(warp))

    return step


def _copy(machine: Machine, inst: Instruction, first: np.ndarray, to: np.ndarray, source: np.ndarray) -> None:
    """One map of 128 bytes, of which the first 64 mean something; every lane of the warp must name the same two."""
    if (to != to[0]).any() or (source != source[0]).any():
        raise IllegalInstruction("tensormap.cp_fenceproxy with different addresses in one warp", threads=first)
    if int(to[0]) % 128 or int(source[0]) % 128:
        raise Misaligned("tensormap.cp_fenceproxy needs addresses that are multiples of 128", threads=first)
    machine.unit(TensorMaps).changes(int(to[0]), int(first[0]), inst.index)
    lanes = np.arange(0, MAP_BYTES, 8)
    sel = np.repeat(first, len(lanes))
    every = np.arange(16)  # lanes, each of which reads four bytes: CuTe DSL writes no more than these
    machine.shared.locate(source[0] + 4 * every, first[0] + every, Access(inst.index, 4))
    words = HOST[8][index(machine.shared.host_of(int(source[0]), int(first[0]), MAP_BYTES) + lanes, 8)]
    HOST[8][index(machine.memory.locate(to[0] + lanes, sel, Access(inst.index, 8, Kind.STORE)), 8)] = words
    machine.unit(Ordering).fence_proxy(first[0] + np.arange(32), (TENSORMAP,))
