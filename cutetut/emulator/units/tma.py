"""The tensor memory accelerator: bulk copies between global and shared memory (PTX ISA 9.7.9.25 to 9.7.9.27).

One thread issues a copy of a whole box; the copy engine computes every address from the tensor
map, fills what lies out of bounds, scrambles the 16-byte chunks of shared memory (swizzle) and
reports the bytes to an mbarrier (loads) or to the thread's bulk group (stores).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..checks.async_ordering import AsyncOrdering
from ..checks.shadow import CHUNK
from ..checks.swizzles import Swizzles
from ..checks.tensormaps import TensorMaps
from ..checks.unloaded_rows import UnloadedRows
from ..errors import IllegalInstruction, Misaligned, OutOfBounds
from ..findings import Location
from ..machine.access import GPU, Access, Kind
from ..machine.memory import MOVED, index, read_bytes, threads_of
from ..machine.opcodes import Selection, Step, opcode, unsupported
from ..machine.operands import address_of, addresses, elements_of
from ..machine.pending import Operation
from ..machine.ranges import consecutive
from ..numbers.reductions import ELEMENTS, OPERATIONS, update
from ..numbers.rounding import UINT
from ..ptx.syntax import Group, Operand
from .bulk_groups import BulkGroups
from .mbarrier import Mbarriers
from .tensormap import TensorMap, decode

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction
    from .mbarrier_objects import Mbarrier

_TO = "the box {} shared address {:#x}; TMA needs a multiple of 128"
_ALIGN = "the alignment of the buffer in shared memory: 128 bytes for TMA, 1024 with the 128-byte swizzle"


def swizzled(address: np.ndarray, mode: int) -> np.ndarray:
    """Shared addresses after the swizzle: bits 7.. are xored onto the chunk bits 4.. (PTX ISA 5.5.7).

    `mode` is the tensor map's code: 0 none, 1, 2, 3 for 32, 64, 128 bytes.
    """
    if not mode:
        return address
    return address ^ ((address >> 7 & (1 << mode) - 1) << 4)


@dataclass(frozen=True)
class Box:
    """Where the pieces of one box lie; a piece is an element, or 8 or 16 bytes where all of them move alike.

    `globally` holds host addresses and `shared` offsets from the box's shared address, both of shape (rows, pieces
    of a row); `chunks` the offsets of its 16-byte chunks, sorted; `inside` says which pieces the tensor has, None: all,
    and then they lie from `low` to before `high`.
    """

    unit: int
    globally: np.ndarray
    shared: np.ndarray
    chunks: np.ndarray
    inside: np.ndarray | None
    low: int = 0
    high: int = 0

    def existing(self, positions: np.ndarray) -> np.ndarray:
        """Those of `globally` or `shared` that lie inside the tensor."""
        return positions.ravel() if self.inside is None else positions[self.inside]

    def beyond(self) -> np.ndarray:
        """Those of `shared` that lie outside."""
        return self.shared[:0].ravel() if self.inside is None else self.shared[~self.inside]


def locate_box(tensor: TensorMap, coordinates: list[int], window: int, by_element: bool, store: bool) -> Box:
    """The pieces of the box at `coordinates` (dimension 0 first) for a shared address.

    A row is what the box has along dimension 0.  Loads clip it at elements, stores at 16 bytes: of these a store
    writes all if the tensor has the first (seen on an H200).
    """
    if all(
        0 <= at and at + (count - 1) * step < size
        for at, count, step, size in zip(coordinates, tensor.counts, tensor.steps, tensor.sizes, strict=True)
    ):
        piece, offsets, shared, chunks = _whole_box(tensor, window % 1024, by_element)
        start = tensor.address + sum(at * stride for at, stride in zip(coordinates, tensor.strides, strict=True))
        start %= 1 << 64  # addresses wrap: a stride may lead back (Triton, quack)
        last = int(offsets[-1, -1]) + piece  # strides and steps are positive
        return Box(piece, offsets + start, shared, chunks, None, start, start + last)
    first, unit, step = coordinates[0], tensor.unit, tensor.steps[0]
    row_bytes, last = tensor.counts[0] * unit, first + (tensor.counts[0] - 1) * step
    whole_rows = 0 <= first and last < tensor.sizes[0]
    piece = 8 if not by_element and (whole_rows or store or unit >= 8) else tensor.nbytes
    within = np.arange(0, row_bytes, piece, dtype=np.int64)  # offset of every piece of a row in shared memory
    starts, existing_rows = _rows(tensor, coordinates)
    globally = (tensor.address + starts)[:, None] + (first + within // unit * step) * unit + within % unit
    shared, chunks = _in_shared(len(starts), row_bytes, piece, tensor.row_pitch, tensor.swizzle, window % 1024)
    at = first + (within & -CHUNK if store else within) // unit * step
    inside = existing_rows[:, None] & ((at >= 0) & (at < tensor.sizes[0]))
    return Box(piece, globally, shared, chunks, inside)


@lru_cache(maxsize=64)
def _whole_box(
    tensor: TensorMap, window: int, by_element: bool
) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """The pieces of a box that the tensor has wholly: their bytes, offsets from the first, and the places in shared."""
    unit, row_bytes = tensor.unit, tensor.counts[0] * tensor.unit
    piece = tensor.nbytes if by_element else CHUNK  # whose multiples all offsets are: see TensorMap.problems
    within = np.arange(0, row_bytes, piece, dtype=np.int64)
    starts, _ = _rows(tensor, [0] * tensor.rank)
    offsets = starts[:, None] + within // unit * tensor.steps[0] * unit + within % unit
    shared, chunks = _in_shared(len(starts), row_bytes, piece, tensor.row_pitch, tensor.swizzle, window)
    return piece, offsets, shared, chunks


def _rows(tensor: TensorMap, coordinates: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Offset of every row of a box from the tensor's first, and whether the tensor has it."""
    starts, existing = np.zeros(1, np.int64), np.ones(1, np.bool_)
    for d in range(1, tensor.rank):  # the lower dimension runs faster
        at = coordinates[d] + np.arange(tensor.counts[d], dtype=np.int64) * tensor.steps[d]
        starts = (at[:, None] * tensor.strides[d] + starts).ravel()
        existing = (((at >= 0) & (at < tensor.sizes[d]))[:, None] & existing).ravel()
    return starts, existing


@lru_cache(maxsize=64)
def _in_shared(
    rows: int, row_bytes: int, piece: int, pitch: int, swizzle: int, window: int
) -> tuple[np.ndarray, np.ndarray]:
    """Offset of every piece, and of every chunk, from the box's shared address, whose lowest ten bits are `window`."""
    within = np.arange(0, row_bytes, piece, dtype=np.int64)
    linear = window + np.arange(rows, dtype=np.int64)[:, None] * pitch + within
    offsets = swizzled(linear, swizzle) - window
    return offsets, np.unique(offsets >> 4) << 4


class TensorOperand:
    """[tensorMap, {coordinates}] of an instruction."""

    def __init__(self, inst: Instruction, machine: Machine, operand: Operand) -> None:
        if not isinstance(operand, Group):
            raise unsupported(inst, "the tensor must be [map, {coordinates}]")
        self.machine, self.inst = machine, inst.index
        self.address = addresses(inst, machine, operand.items[0])
        self.coordinates = [machine.source(item, np.int32) for item in elements_of(operand.items[1])]
        self.rank = int(next(p for p in inst.parts if p in ("1d", "2d", "3d", "4d", "5d"))[0])

    def alike(self, threads: np.ndarray, shared: np.ndarray) -> list[np.ndarray]:
        """Threads of one warp that name the same box at the same shared address, together.

        CuTe DSL lets all lanes of a warp issue a store; to write the same bytes many times is to write them once.
        """
        if len(threads) == 1:
            return [threads]
        named = [self.machine.warp_of[threads], self.address(threads), shared, *(c[threads] for c in self.coordinates)]
        _, group = np.unique(np.array(named), axis=1, return_inverse=True)
        return [threads[group == g] for g in range(int(group.max()) + 1)]

    def map_of(self, thread: int) -> int:
        """The host address of the tensor map that a thread names."""
        return self.machine.generic.host_of(int(self.address(np.array([thread]))[0]), thread, 64)

    def at(self, thread: int) -> tuple[TensorMap, list[int]]:
        """The decoded map and the coordinates of one thread; raises Misaligned or IllegalInstruction."""
        one = np.array([thread])
        address = int(self.address(slice(thread, thread + 1))[0])
        if address % 64:
            raise Misaligned(f"the tensor map lies at {address:#x}; it must be 64-byte aligned", threads=one)
        host = self.machine.generic.host_of(address, thread, 64)
        self.machine.unit(TensorMaps).check_use(host, thread, self.inst)
        tensor = _decode_cached(read_bytes(host, 128))
        if tensor.rank != self.rank:
            raise IllegalInstruction(
                f"a {self.rank}-dimensional copy with a tensor map of rank {tensor.rank}", threads=one
            )
        if tensor.problems:
            raise IllegalInstruction("illegal tensor map: " + "; ".join(tensor.problems), threads=one)
        coordinates = [int(c[thread]) for c in self.coordinates]
        if not tensor.interleave and coordinates[0] * tensor.nbytes % CHUNK:  # seen on an H200, wherever the box lies
            raise IllegalInstruction(
                f"the box begins at element {coordinates[0]} of the contiguous dimension, byte "
                f"{coordinates[0] * tensor.nbytes}; it must begin at a multiple of {CHUNK} bytes", threads=one,
            )  # fmt: skip
        return tensor, coordinates


@lru_cache(maxsize=256)
def _decode_cached(image: bytes) -> TensorMap:
    try:
        return decode(image)
    except ValueError as error:
        raise IllegalInstruction(str(error), hint="the pointer must be that of a TMA descriptor") from None


_WORDS = {"tile", "mbarrier::complete_tx::bytes", "bulk_group", "L2::cache_hint", "multicast::cluster", "global",
          "shared::cta", "shared::cluster", "1d", "2d", "3d", "4d", "5d", "tensor", "bulk", "async", "cp", "reduce",
          "prefetch", "L2"}  # fmt: skip


def _check_words(inst: Instruction, extra: tuple[str, ...] = ()) -> None:
    for part in inst.parts:
        if part not in _WORDS and part not in extra:
            raise unsupported(inst, f"modifier .{part}")


@opcode("cp.async.bulk.tensor", unit="tma", role="copies", starts="TMA copy", stores=0, section="9.7.9.27.1", results=0,
        forms=".1d-.5d.{shared::cta shared::cluster}.global.tile.mbarrier::complete_tx::bytes{.multicast::cluster}"
              "{.L2::cache_hint} and .1d-.5d.global.shared::cta.tile.bulk_group{.L2::cache_hint}")  # fmt: skip
def decode_tensor_copy(inst: Instruction, machine: Machine) -> Step:
    """Copy one box between a tensor and shared memory."""
    _check_words(inst)
    if "bulk_group" in inst.parts:
        return _decode_store(inst, machine, None)
    return _decode_load(inst, machine)


@opcode(
    "cp.reduce.async.bulk.tensor",
    unit="tma", role="copies", starts="TMA reduction", stores=0,
    section="9.7.9.27.2",
    results=0,
    forms=".1d-.5d.global.shared::cta.{add min max inc dec and or xor}.tile.bulk_group{.L2::cache_hint}",
)
def decode_tensor_reduce(inst: Instruction, machine: Machine) -> Step:
    """Combine one box of shared memory into a tensor."""
    _check_words(inst, OPERATIONS)
    operation = next((p for p in inst.parts if p in OPERATIONS), None)
    if operation is None:
        raise unsupported(inst, "no reduction named")
    return _decode_store(inst, machine, operation)


@opcode("cp.async.bulk.prefetch", unit="tma", section="9.7.9.25.5, 9.7.9.27.3", results=0, forms=".tensor and plain")
def decode_bulk_prefetch(inst: Instruction, machine: Machine) -> Step:
    """A prefetch into L2 changes no value."""
    _check_words(inst)
    return lambda sel: None


def _decode_load(inst: Instruction, machine: Machine) -> Step:
    shared, barrier = (address_of(inst, machine, inst.operands[i]) for i in (0, 2))
    tensor = TensorOperand(inst, machine, inst.operands[1])
    mask = machine.source(inst.operands[3], np.uint16) if "multicast::cluster" in inst.parts else None

    def step(sel: Selection) -> None:
        for thread in threads_of(sel).tolist():
            which, coordinates = tensor.at(thread)
            ctas = None if mask is None else int(mask[thread])
            _issue_load(machine, inst, thread, which, coordinates, shared(thread), barrier(thread), ctas)

    return step


def _issue_load(
    machine: Machine, inst: Instruction, thread: int, tensor: TensorMap, coordinates: list[int],
    shared: int, barrier: int, mask: int | None,
) -> None:  # fmt: skip
    """Start a load; with a mask it goes to the same offset of several CTAs of the cluster."""
    one = np.array([thread])
    if shared % 128:
        raise Misaligned(_TO.format("goes to", shared), threads=one, hint=_ALIGN)
    box = locate_box(tensor, coordinates, shared, tensor.nan_fill or tensor.element.startswith("tf32"), False)
    sources = box.existing(box.globally)
    _check_box(machine, box, sources, thread, False)
    if not sources.size:
        _check_base(machine, tensor, coordinates, thread)
    machine.unit(AsyncOrdering).reads_global(sources, box.unit, thread, inst.index, "the TMA load reads")
    chunks = box.chunks if tensor.row_pitch > tensor.counts[0] * tensor.unit else None  # the box has gaps
    for rank in cluster_ranks(machine, thread, mask):
        target = shared if rank is None else machine.shared.in_cta(shared, rank)
        signal = barrier if rank is None else machine.shared.in_cta(barrier, rank)
        host = machine.shared.host_of(target, thread, tensor.shared_bytes)
        machine.unit(AsyncOrdering).claim(host, tensor.shared_bytes, thread, inst.index, chunks)
        machine.unit(Swizzles).load(host, tensor.shared_bytes, tensor.swizzle + 1, inst.index)
        bar = machine.unit(Mbarriers).signalled(machine.shared.host_of(signal, thread), thread)
        what = f"the TMA load of {tensor.box_bytes} bytes at coordinates {tuple(coordinates)}"
        time = bar.began + bar.phase + 1
        machine.unit(AsyncOrdering).note_global_read(sources, box.unit, thread, inst.index, bar.clock, time)
        run = _load_runner(machine, inst, tensor, box, host, bar, chunks)
        machine.pending.issue(
            Operation(what, inst, thread, run, bar, (consecutive(host, tensor.shared_bytes),), nbytes=tensor.box_bytes)
        )


def _load_runner(
    machine: Machine, inst: Instruction, tensor: TensorMap, box: Box, host: int, bar: Mbarrier,
    chunks: np.ndarray | None,
) -> Callable[[], None]:  # fmt: skip
    def run() -> None:
        memory = MOVED[box.unit]
        values = _converted(memory[index(box.existing(box.globally), box.unit)], tensor.element)
        if box.inside is not None:
            filled = np.full(box.shared.shape, _NAN[box.unit] if tensor.nan_fill else 0, memory.dtype)
            filled[box.inside] = values
            values = filled
        memory[index(box.shared.ravel() + host, box.unit)] = values.ravel()
        time = bar.began + bar.phase + 1
        machine.unit(AsyncOrdering).arrived(host, tensor.shared_bytes, bar.clock, time, inst.index, chunks)
        machine.unit(Mbarriers).complete_bytes(bar, tensor.box_bytes)

    return run


_NAN = {  # every 16 bits are 0x7FF7, in every type that has NaN fill (seen on an H200)
    2: 0x7FF7, 4: 0x7FF77FF7, 8: 0x7FF77FF77FF77FF7,
}  # fmt: skip


def _converted(bits: np.ndarray, element: str) -> np.ndarray:
    """Elements as a load delivers them: tf32 rounds to nearest even, .ftz changes nothing (seen on an H200)."""
    if not element.startswith("tf32"):
        return bits
    rounded = bits + np.uint32(0xFFF) + (bits >> 13 & 1) & np.uint32(0xFFFFE000)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    return np.where(magnitude > 0x7F800000, np.uint32(0x7FFFE000), np.where(magnitude == 0x7F800000, bits, rounded))


def check_global(machine: Machine, addresses: np.ndarray, nbytes: int, thread: int, store: bool) -> None:
    """Every element must lie in a tensor of the launch; usually all of them lie in the same one."""
    if not addresses.size:
        return
    low, high = int(addresses.min()), int(addresses.max()) + nbytes
    machine.memory.reach(np.array([low, high - nbytes]), nbytes, np.array([thread, thread]), store)
    found = machine.memory.recent
    if found is None or not (found.start <= low and high <= found.end):
        machine.memory.reach(addresses, nbytes, np.full(len(addresses), thread), store)


def _check_box(machine: Machine, box: Box, addresses: np.ndarray, thread: int, store: bool) -> None:
    """The same for a box, for which looking at its two ends is usually enough."""
    if box.inside is None:
        found = machine.memory.find(box.low)
        if found is not None and box.high <= found.end:
            machine.memory.reach(np.array([box.low, box.high - 8]), 8, np.array([thread, thread]), store)
            return
    if box.unit == CHUNK:
        addresses = np.add.outer(addresses, (0, 8)).ravel()
    check_global(machine, addresses, min(box.unit, 8), thread, store)


def _check_base(machine: Machine, tensor: TensorMap, coordinates: list[int], thread: int) -> None:
    """A load of a box that lies wholly outside its tensor reads at the tensor map's address; a store does not.

    Seen on an H200 beside unmapped memory: an illegal access there, and none where the tensor has a part of the box.
    """
    if machine.memory.find(tensor.address) is None:
        raise OutOfBounds(
            f"the box at coordinates {tuple(coordinates)} lies wholly outside the tensor, and the address in "
            f"the tensor map, {tensor.address:#x}, lies in no tensor: a GPU reads there all the same",
            threads=np.array([thread]), locations=(Location("global", address=tensor.address),),
            hint="the tensor map's address: keep it inside the tensor, or request no box that is all outside",
        )  # fmt: skip


def cluster_ranks(machine: Machine, thread: int, mask: int | None) -> list[int | None]:
    """The CTAs of a multicast mask; [None] without one: the address itself says where."""
    if mask is None:
        return [None]
    size = int(np.prod(machine.launch.cluster))
    if mask >> size:
        raise IllegalInstruction(f"multicast mask {mask:#x} for a cluster of {size} CTAs", threads=np.array([thread]))
    return [rank for rank in range(size) if mask >> rank & 1]


def _decode_store(inst: Instruction, machine: Machine, reduction: str | None) -> Step:
    shared = addresses(inst, machine, inst.operands[1])
    tensor = TensorOperand(inst, machine, inst.operands[0])
    if reduction is not None:  # a relaxed atomic operation on each element
        machine.checks.uses(Access(inst.index, CHUNK, Kind.ATOMIC, GPU))

    def step(sel: Selection) -> None:
        threads = threads_of(sel)
        groups = [threads[i : i + 1] for i in range(len(threads))] if reduction else tensor.alike(threads, shared(sel))
        for group in groups:
            first = int(group[0])
            which, coordinates = tensor.at(first)
            address = int(shared(group[:1])[0])
            operation = _issue_store(machine, inst, first, which, coordinates, address, reduction)
            reading = machine.unit(BulkGroups).agents(first)[0]
            machine.unit(TensorMaps).used(tensor.map_of(first), reading, operation.time, inst.index)
            for thread in group.tolist():
                machine.unit(BulkGroups).add(thread, operation)

    return step


def _issue_store(
    machine: Machine, inst: Instruction, thread: int, tensor: TensorMap, coordinates: list[int], shared: int,
    reduction: str | None,
) -> Operation:  # fmt: skip
    one = np.array([thread])
    if shared % 128:
        raise Misaligned(_TO.format("comes from", shared), threads=one, hint=_ALIGN)
    if min(coordinates) < 0:  # seen on an H200; a load may begin in front of the tensor
        raise IllegalInstruction(f"a store to the box at {tuple(coordinates)}: no coordinate may be negative",
                                 threads=one)  # fmt: skip
    if reduction is not None and tensor.element in ("u8", "u16"):  # seen on an H200 for add.u16
        raise IllegalInstruction(f"reduction {reduction} of a tensor of {tensor.element}: there is none", threads=one)
    host = machine.shared.host_of(shared, thread, tensor.shared_bytes)
    box = locate_box(tensor, coordinates, shared, reduction is not None, True)
    order = machine.unit(AsyncOrdering)
    reading, writing, time = machine.unit(BulkGroups).begin(thread)
    chunks = (box.chunks + host - machine.shared.origin) >> 4
    order.reading(chunks, thread, 32, inst.index, "the TMA store reads", reading, time)
    machine.unit(Swizzles).check_store(chunks, tensor.row_pitch // CHUNK, tensor.swizzle, inst, thread)
    target = box.existing(box.globally)
    try:
        _check_box(machine, box, target, thread, True)
    except OutOfBounds as error:
        if (row := tensor.sizes[0] * tensor.unit) % CHUNK:
            error.hint = f"rows of {row} bytes, no multiple of {CHUNK}: of {CHUNK} bytes a TMA store writes all or none"
        raise
    order.writes_global(target, box.unit, thread, inst.index, writing, time, reduction is not None)
    source = index(box.existing(box.shared) + host, box.unit)
    captured: list[np.ndarray] = []
    unit = MOVED[box.unit]

    def elements(positions: np.ndarray) -> np.ndarray:
        found: np.ndarray = unit[index(positions + host, box.unit)]
        return found.view(UINT[tensor.nbytes])

    def read() -> None:
        if not captured:
            captured.append(unit[source])
            written, left_out = box.existing(box.shared), box.beyond()
            machine.unit(UnloadedRows).stored(_number(tensor.element), elements, written, left_out)
            operation.reads = ()

    def run() -> None:
        read()
        combine(reduction, tensor.element, index(target, box.unit), unit, captured[0])

    what = f"the TMA store of {tensor.box_bytes} bytes at coordinates {tuple(coordinates)}"
    operation = Operation(what, inst, thread, run, reads=(consecutive(host, tensor.shared_bytes),), read=read)
    operation.time = time
    machine.pending.issue(operation)
    return operation


def _number(element: str) -> str:
    """The type of a tensor map's elements once they lie in shared memory, as in `ELEMENTS`."""
    return element.replace("tf32", "f32").removesuffix(".ftz")


def combine(reduction: str | None, element: str, where: np.ndarray, unit: np.ndarray, values: np.ndarray) -> None:
    """Write values to memory, or combine them with what is there."""
    if reduction is None:
        unit[where] = values
        return
    kind = _number(element)
    memory: np.ndarray = unit.view(ELEMENTS[kind])
    memory[where] = update(reduction, kind)(memory[where], values.view(ELEMENTS[kind]))
