"""Bulk groups, and bulk copies of plain byte ranges (PTX ISA sections 9.7.9.25 and 9.7.9.28)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..checks.async_ordering import AsyncOrdering
from ..checks.swizzles import Swizzles
from ..errors import IllegalInstruction
from ..machine.access import GPU, Access, Kind
from ..machine.memory import HOST, index, threads_of
from ..machine.opcodes import Selection, Step, opcode, unsupported
from ..machine.operands import address_of
from ..machine.pending import Operation
from ..machine.ranges import Ranges, consecutive
from ..machine.shared import RANK_SHIFT
from .bulk_groups import BulkGroups
from .mbarrier import Mbarriers
from .tma import check_global, cluster_ranks, combine

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction
    from .mbarrier_objects import Mbarrier


@dataclass(frozen=True)
class _Range:
    """The operands of one thread's bulk copy: destination, source, bytes, and a CTA mask for multicast."""

    target: int
    origin: int
    count: int
    mask: int | None = None


class _Operands:
    """[to], [from], size of an instruction."""

    def __init__(self, inst: Instruction, machine: Machine) -> None:
        to, source, size = inst.operands[:3]
        self.to, self.source = address_of(inst, machine, to), address_of(inst, machine, source)
        self.size = machine.source(size, np.uint32)
        self.mask = machine.source(inst.operands[4], np.uint16) if "multicast::cluster" in inst.parts else None

    def at(self, thread: int) -> _Range:
        """Raises IllegalInstruction unless addresses and size are multiples of 16."""
        count, target, origin = int(self.size[thread]), self.to(thread), self.source(thread)
        if count % 16 or target % 16 or origin % 16:
            raise IllegalInstruction(
                f"a bulk copy of {count} bytes between {target:#x} and {origin:#x}: all must be multiples of 16",
                threads=np.array([thread]),
            )
        return _Range(target, origin, count, None if self.mask is None else int(self.mask[thread]))


@opcode(
    "cp.async.bulk",
    unit="tma", role="copies", starts="bulk copy", stores=0,
    section="9.7.9.25.4.1",
    results=0,
    forms=".{shared::cta shared::cluster}.global.mbarrier::complete_tx::bytes{.multicast::cluster}{.L2 hint}, "
    ".shared::cluster.shared::cta.mbarrier::complete_tx::bytes, .global.shared::cta.bulk_group{.L2 hint}",
)
def decode_bulk_copy(inst: Instruction, machine: Machine) -> Step:
    """Copy a range of bytes whose addresses and size are multiples of 16."""
    known = {"mbarrier::complete_tx::bytes", "bulk_group", "multicast::cluster", "L2::cache_hint"}
    way, rest = inst.parts[3:5], inst.parts[5:]
    if not set(rest) <= known:
        raise unsupported(inst, f"modifier .{sorted(set(rest) - known)[0]}")
    if way == ("global", "shared::cta") and "bulk_group" in rest:
        return _store_step(machine, inst, None, "u64")
    from_global = way in (("shared::cta", "global"), ("shared::cluster", "global"))
    if (not from_global and way != ("shared::cluster", "shared::cta")) or "mbarrier::complete_tx::bytes" not in rest:
        raise unsupported(inst)
    operands, barrier = _Operands(inst, machine), address_of(inst, machine, inst.operands[3])

    def step(sel: Selection) -> None:
        for thread in threads_of(sel).tolist():
            _issue_copy(machine, inst, thread, operands.at(thread), barrier(thread), from_global)

    return step


def _issue_copy(machine: Machine, inst: Instruction, thread: int, r: _Range, barrier: int, from_global: bool) -> None:
    """Start a copy into shared memory, of this CTA, another one or several."""
    if not r.count:
        return
    origin, reads, chunks = r.origin, tuple[Ranges, ...](), None
    order = machine.unit(AsyncOrdering)
    sources = origin + np.arange(0, r.count, 16)
    if from_global:
        check_global(machine, sources, 16, thread, False)
        order.reads_global(sources, 16, thread, inst.index, "a bulk copy reads")
    else:
        origin = machine.shared.host_of(origin, thread, r.count)
        chunks = _chunks(machine, origin, r.count)
        reads = (consecutive(origin, r.count),)
        barrier = machine.shared.in_cta(barrier, r.target >> RANK_SHIFT)  # whichever CTA it names (seen on an H200)
    for rank in cluster_ranks(machine, thread, r.mask):
        target = r.target if rank is None else machine.shared.in_cta(r.target, rank)
        signal = barrier if rank is None else machine.shared.in_cta(barrier, rank)
        host = machine.shared.host_of(target, thread, r.count)
        bar = machine.unit(Mbarriers).signalled(machine.shared.host_of(signal, thread), thread)
        time = bar.began + bar.phase + 1
        if chunks is not None:
            order.reading(chunks, thread, 32, inst.index, "the bulk copy reads", bar.clock, time)
        else:
            order.note_global_read(sources, 16, thread, inst.index, bar.clock, time)
        order.claim(host, r.count, thread, inst.index)
        machine.unit(Swizzles).load(host, r.count, 0, inst.index)
        run = _copy_runner(machine, inst, host, origin, r.count, bar)
        what, writes = f"the bulk copy of {r.count} bytes", (consecutive(host, r.count),)
        machine.pending.issue(Operation(what, inst, thread, run, bar, writes, reads, nbytes=r.count))


def _chunks(machine: Machine, host: int, nbytes: int) -> np.ndarray:
    """The 16-byte chunks of consecutive bytes of shared memory, by number."""
    return np.arange(host, host + nbytes, 16, dtype=np.int64) - machine.shared.origin >> 4


def _copy_runner(
    machine: Machine, inst: Instruction, host: int, origin: int, count: int, bar: Mbarrier
) -> Callable[[], None]:
    def run() -> None:
        lanes = np.arange(count // 8, dtype=np.int64) * 8
        HOST[8][index(host + lanes, 8)] = HOST[8][index(origin + lanes, 8)]
        machine.unit(AsyncOrdering).arrived(host, count, bar.clock, bar.began + bar.phase + 1, inst.index)
        machine.unit(Mbarriers).complete_bytes(bar, count)

    return run


def _strong(machine: Machine, inst: Instruction, reduction: str | None) -> None:
    """A reduction counts as a relaxed atomic operation on each element (PTX ISA section 9.7.9.25.4.2)."""
    if reduction is not None:
        machine.checks.uses(Access(inst.index, 16, Kind.ATOMIC, GPU))


def _store_step(machine: Machine, inst: Instruction, reduction: str | None, element: str) -> Step:
    _strong(machine, inst, reduction)
    operands, unit = _Operands(inst, machine), 2 if element.endswith("16") else 4 if element.endswith("32") else 8

    def step(sel: Selection) -> None:
        for thread in threads_of(sel).tolist():
            _issue_store(machine, inst, thread, operands.at(thread), unit, reduction, element)

    return step


def _issue_store(
    machine: Machine, inst: Instruction, thread: int, r: _Range, unit: int, reduction: str | None, element: str
) -> None:
    """Start a store to global memory, or a reduction into it."""
    if not r.count:
        return
    check_global(machine, r.target + np.arange(0, r.count, 16), 16, thread, True)
    order = machine.unit(AsyncOrdering)
    host = machine.shared.host_of(r.origin, thread, r.count)
    reading, writing, time = machine.unit(BulkGroups).begin(thread)
    order.reading(_chunks(machine, host, r.count), thread, 32, inst.index, "the bulk store reads", reading, time)
    targets = r.target + np.arange(0, r.count, 16)
    order.writes_global(targets, 16, thread, inst.index, writing, time, reduction is not None)
    lanes = np.arange(r.count // unit, dtype=np.int64) * unit
    captured: list[np.ndarray] = []

    def read() -> None:
        if not captured:
            captured.append(HOST[unit][index(host + lanes, unit)])
            operation.reads = ()

    def run() -> None:
        read()
        combine(reduction, element, index(r.target + lanes, unit), HOST[unit], captured[0])

    what = f"the bulk {'reduction' if reduction else 'store'} of {r.count} bytes"
    operation = Operation(what, inst, thread, run, reads=(consecutive(host, r.count),), read=read)
    operation.time = time
    machine.unit(BulkGroups).add(thread, operation)
    machine.pending.issue(operation)


REDUCED = {  # operation -> element types (section 9.7.9.25.4.2)
    "add": ("u32", "s32", "u64", "f16", "bf16", "f32", "f64"), "min": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "max": ("u32", "s32", "u64", "s64", "f16", "bf16"), "inc": ("u32",), "dec": ("u32",),
    "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64"),
}  # fmt: skip


@opcode("cp.reduce.async.bulk", unit="tma", role="copies", starts="TMA reduction", stores=0,
        section="9.7.9.25.4.2", results=0,
        forms=".global.shared::cta.bulk_group{.L2 hint}.{add min max inc dec and or xor}{.noftz}.type")  # fmt: skip
def decode_bulk_reduce(inst: Instruction, machine: Machine) -> Step:
    """Combine a range of shared memory into global memory element by element."""
    words, element = inst.parts[4:-1], inst.parts[-1]
    name = next((p for p in words if p in REDUCED), "")
    known = {"global", "shared::cta", "bulk_group", "L2::cache_hint", name}
    if words[:2] != ("global", "shared::cta") or element not in REDUCED.get(name, ()):
        raise unsupported(inst)
    if not set(words) - {"noftz"} <= known or ("noftz" in words) != (name == "add" and element in ("f16", "bf16")):
        raise unsupported(inst, ".noftz goes with add of f16 and bf16, which need it")
    return _store_step(machine, inst, name, element)
