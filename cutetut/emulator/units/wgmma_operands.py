"""WGMMA's operands: which bytes of shared memory and which registers hold their elements (PTX ISA section 9.7.15.5.1).

Where an operand lies is the same for every descriptor with the same bits, so that is worked out once per descriptor;
the CTA only adds the address of its shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..checks.async_ordering import AsyncOrdering
from ..checks.remembered import Known
from ..checks.shadow import CHUNK
from ..checks.swizzles import Swizzles
from ..checks.unloaded_rows import UnloadedRows
from ..machine.memory import CHUNKS, SHARED_BASE, chunk_index
from ..machine.ranges import joined
from ..machine.threads import WARP, WARPGROUP
from ..numbers.matrix_formats import NBYTES, to_float64
from ..numbers.rounding import UINT
from .tma import swizzled

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction

BOUNDARY = 1024  # bytes: no swizzle pattern is longer, and every CTA's shared memory begins at a multiple
SWIZZLE_CHUNKS = {0: 1, 1: 8, 2: 4, 3: 2}  # descriptor code -> 16-byte chunks per row of the pattern
TMA_CODE = {0: 0, 1: 3, 2: 2, 3: 1}  # the tensor map counts the other way
_AT_MOST = 64 << 20  # bytes of operands' values that are kept for the next warpgroup that multiplies with them


@dataclass(frozen=True)
class Descriptor:
    """A matrix descriptor (PTX ISA section 9.7.15.5.1.2.2); offsets in bytes."""

    start: int
    leading: int
    stride: int
    base_offset: int
    swizzle: int

    @classmethod
    def decode(cls, bits: int) -> Descriptor:
        return cls(
            start=(bits & 0x3FFF) << 4,
            leading=(bits >> 16 & 0x3FFF) << 4,
            stride=(bits >> 32 & 0x3FFF) << 4,
            base_offset=bits >> 49 & 7,
            swizzle=bits >> 62 & 3,
        )


@lru_cache(maxsize=128)
def operand_offsets(
    rows: int, k: int, nbytes: int, mn_major: bool, swizzle: int, leading: int, stride: int
) -> np.ndarray:
    """Byte offset of element (row, k) from the start address, before the swizzle; shape (rows, k).

    The canonical layouts of PTX ISA section 9.7.15.5.1.2.1, T elements to 16 bytes, S chunks to a row.
    """
    t, s = 16 // nbytes, SWIZZLE_CHUNKS[swizzle]
    r, c = np.arange(rows)[:, None], np.arange(k)[None, :]
    if not mn_major:
        if swizzle:
            return r % 8 * (16 * s) + r // 8 * stride + c * nbytes
        return r % 8 * 16 + r // 8 * stride + c % t * nbytes + c // t * leading
    if swizzle:
        return r % t * nbytes + r // t % s * 16 + r // (t * s) * leading + c % 8 * (16 * s) + c // 8 * stride
    return r % t * nbytes + r // t * stride + c % 8 * 16 + c // 8 * leading


@lru_cache(maxsize=8)
def accumulator_map(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of (value, thread) of D, 64 x n; shape (n // 2, 128) (figure in section 9.7.15.5.1.1)."""
    v, t = np.arange(n // 2)[:, None], np.arange(WARPGROUP)[None, :]
    row = t // 32 * 16 + t % 32 // 4 + v // 2 % 2 * 8
    col = t % 4 * 2 + v % 2 + v // 4 * 8
    return np.broadcast_to(row, (n // 2, WARPGROUP)), np.broadcast_to(col, (n // 2, WARPGROUP))


@lru_cache(maxsize=8)
def a_register_map(k: int, per_register: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and k of (element, thread) of A from registers, 64 x k: the A fragment of mma.m16n8k16, per warp."""
    e, t = np.arange(64 * k // WARPGROUP)[:, None], np.arange(WARPGROUP)[None, :]
    p = per_register
    row = t // 32 * 16 + t % 32 // 4 + e // p % 2 * 8
    col = t % 4 * p + e % p + e // (2 * p) * (4 * p)
    return np.broadcast_to(row, e.shape[:1] + (WARPGROUP,)), np.broadcast_to(col, e.shape[:1] + (WARPGROUP,))


@lru_cache(maxsize=32)
def to_registers(n: int) -> np.ndarray:
    """Position in D, 64 x n row by row, of each (value, thread)."""
    row, col = accumulator_map(n)
    return np.ascontiguousarray(row * n + col)


@lru_cache(maxsize=32)
def from_registers(n: int) -> np.ndarray:
    """Position among the (value, thread) of each element of D: the inverse of `to_registers`."""
    return inverse(to_registers(n)).reshape(64, n)


@lru_cache(maxsize=8)
def a_from_registers(k: int, per_register: int) -> np.ndarray:
    """Position among the (thread, element) of each element of A, 64 x k."""
    row, col = a_register_map(k, per_register)
    return inverse(np.ascontiguousarray((row * k + col).T)).reshape(64, k)


def inverse(positions: np.ndarray) -> np.ndarray:
    """The inverse of a permutation."""
    found = np.empty(positions.size, np.intp)
    found[positions.ravel()] = np.arange(positions.size)
    return found


@dataclass(frozen=True, eq=False)
class Geometry:
    """Where an operand lies, in bytes from the 1 KiB boundary below its start: where that is makes no difference."""

    elements: np.ndarray  # (rows, k)
    nbytes: int  # of an element
    mn_major: bool
    chunks: np.ndarray  # the 16-byte chunks it takes, sorted
    starts: np.ndarray  # and the ranges that these make up
    ends: np.ndarray

    @cached_property
    def gather(self) -> np.ndarray:
        """The chunks in the order of their elements: (rows, k / T), or (k, rows / T) where rows are contiguous."""
        t = CHUNK // self.nbytes
        first = self.elements[::t].T if self.mn_major else self.elements[:, ::t]
        return np.ascontiguousarray(first >> 4)


@lru_cache(maxsize=256)
def geometry(rows: int, k: int, nbytes: int, mn_major: bool, descriptor: Descriptor) -> Geometry:
    """Where an operand of rows x k elements lies; the descriptor's start is below 1 KiB."""
    offsets = operand_offsets(rows, k, nbytes, mn_major, descriptor.swizzle, descriptor.leading, descriptor.stride)
    shift = descriptor.base_offset << 7
    elements = swizzled(descriptor.start + offsets - shift, TMA_CODE[descriptor.swizzle]) + shift
    chunks = np.unique(elements >> 4) << 4
    return Geometry(elements, nbytes, mn_major, chunks, *joined(chunks, CHUNK))


@dataclass(frozen=True, eq=False)
class Place:
    """An operand in shared memory: its geometry from a boundary on, a shared address; `swizzle` as in tensor maps."""

    name: str
    boundary: int
    geometry: Geometry
    swizzle: int

    @classmethod
    def of(cls, name: str, bits: int, rows: int, k: int, nbytes: int, mn_major: bool) -> Place:
        """Where a matrix descriptor says that rows x k elements lie."""
        descriptor = Descriptor.decode(bits)
        start = descriptor.start & BOUNDARY - 1
        where = geometry(rows, k, nbytes, mn_major, replace(descriptor, start=start))
        return cls(name, descriptor.start - start, where, TMA_CODE[descriptor.swizzle])

    @property
    def low(self) -> int:
        """The first byte's shared address."""
        return self.boundary + int(self.geometry.starts[0])

    @property
    def high(self) -> int:
        """The shared address behind the last byte."""
        return self.boundary + int(self.geometry.ends[-1])

    @cached_property
    def chunks(self) -> np.ndarray:
        """The shared addresses of its chunks, sorted."""
        return self.geometry.chunks + self.boundary

    def chunks_of(self, warp: int, chosen: np.ndarray) -> np.ndarray:
        """The shared addresses of the chunks of A that one of the four warps multiplies: the chosen of its 16 rows."""
        rows = self.geometry.elements[16 * warp : 16 * warp + 16][chosen[16 * warp : 16 * warp + 16]]
        return (np.unique(rows >> 4) << 4) + self.boundary

    @cached_property
    def hulls(self) -> tuple[tuple[int, int], ...]:
        """The boundaries around each of its parts: the parts of a tile along K mostly have the same."""
        pages = np.unique(self.chunks // BOUNDARY)
        starts, ends = joined(pages * BOUNDARY, BOUNDARY)
        return tuple(zip(starts.tolist(), ends.tolist(), strict=True))


_BYTES = np.arange(256, dtype=np.uint8)
_TABLES = {name: to_float64(_BYTES, name) for name, nbytes in NBYTES.items() if nbytes == 1}


def decoded(raw: np.ndarray, kind: str) -> np.ndarray:
    """Bits of elements as float64; 8-bit formats through a table."""
    table = _TABLES.get(kind)
    return to_float64(raw, kind) if table is None else table.take(raw, mode="clip")


class Operands:
    """What is remembered of operands in shared memory until they are overwritten: that they may be read, and values."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.shared, self.order, self.swizzles = machine.shared, machine.unit(AsyncOrdering), machine.unit(Swizzles)
        self.kept = 0  # bytes of values

    def check(self, places: Sequence[Place], base: int, group: int, inst: Instruction) -> np.ndarray | None:
        """All that a warpgroup's WGMMA reads is there and visible to the async proxy; `base` as for `read`.

        Returns which rows of A nothing has written, or None if there are none.
        Raises what `AsyncOrdering.check_reading` does, and AsyncMismatch for another swizzle than TMA's.  Checking all
        between two boundaries at once is quicker than its chunks, and does for the other parts of the tile along K.
        """
        shared, order, unwritten = self.shared, self.order, None
        known = order.known_of(int(self.machine.cta_of[group]))
        for place in places:
            if self._known_readable(known, place, base, group):
                continue
            verb = f"operand {place.name} of the WGMMA reads"
            at = place.chunks + base - shared.origin >> 4
            if place.name == "A":  # each warp reads the rows that it multiplies
                written = np.ones(64, bool)
                if not any(self._holds_nothing(other, base) for other in places if other is not place):
                    written = self._written_rows(place, base, group, inst)
                    unwritten = None if written.all() else ~written
                for warp in range(4):
                    mine = place.chunks_of(warp, written) + base - shared.origin >> 4
                    if len(mine):
                        order.check_reading(mine, group + WARP * warp, WARP, inst.index, verb)
            else:
                order.check_reading(at, group, WARPGROUP, inst.index, verb)
            self.swizzles.check(at, place.swizzle, inst, group, place.name)
        return unwritten

    def _written_rows(self, place: Place, base: int, group: int, inst: Instruction) -> np.ndarray:
        """Which of the 64 rows of A hold anything.

        A row of D depends on no other row of A.  A kernel that never stores a row of D may leave that row of A as it
        was (flash-attention's packed query heads do), so where B is there, such a row is no error (unloaded_rows.py).
        If a copy to it comes later, nothing orders that after this read, which is an error.
        """
        if place.geometry.mn_major:
            return np.ones(64, bool)
        hosts = place.geometry.elements[:, :: CHUNK // place.geometry.nbytes] + place.boundary + base & -CHUNK
        empty = np.asarray(self.order.nothing_wrote(hosts - self.shared.origin >> 4).all(axis=1))
        if empty.any():
            self.order.note_early(hosts[empty])
            self.machine.unit(UnloadedRows).found(empty, inst, group)
        return np.asarray(~empty)

    def _holds_nothing(self, place: Place, base: int) -> bool:
        """Whether nothing has written any of an operand."""
        return bool(self.order.nothing_wrote(place.chunks + base - self.shared.origin >> 4).all())

    def _known_readable(self, known: Known, place: Place, base: int, group: int) -> bool:
        """Whether everything between the boundaries around an operand may be read; False leaves it open."""
        shared = self.shared
        for low, high in place.hulls:
            key = group, base + low, high, place.swizzle
            if key in known.facts:
                continue
            end = min(high, SHARED_BASE + shared.nbytes & -CHUNK)
            if low < SHARED_BASE or not self.order.readable(base + low, end - low, group, WARPGROUP):
                return False
            if not self.swizzles.reads_as_loaded(base + low - shared.origin >> 4, end - low >> 4, place.swizzle):
                return False
            known.facts[key] = base + low, base + end, None
        return True

    def read(self, place: Place, base: int, kind: str, factor: int, cta: int) -> np.ndarray:
        """The elements, rows x k, times 1 or -1; `base` is the host address of shared address 0 of a CTA."""
        host, known = base + place.boundary, self.order.known_of(cta)
        key = place.geometry, host, kind, factor
        before = known.facts.get(key)
        if before is not None:
            values: np.ndarray = before[2]
            return values
        if self.kept > _AT_MOST:
            self.order.remembered.ctas.clear()
            known, self.kept = self.order.known_of(cta), 0
        raw: np.ndarray = CHUNKS.take(place.geometry.gather + chunk_index(host), mode="clip")
        matrix = decoded(raw.view(UINT[place.geometry.nbytes]), kind)
        if factor != 1:
            matrix *= factor
        # rows first in memory either way: which of several NaNs a sum passes on depends on it
        found = np.ascontiguousarray(matrix.T) if place.geometry.mn_major else matrix
        known.facts[key] = base + place.low, base + place.high, found
        self.kept += found.nbytes
        return found
