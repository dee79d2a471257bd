"""Swizzles must agree: how TMA wrote shared memory and a WGMMA reads it; how threads wrote it and TMA stores it."""

from __future__ import annotations

import numpy as np

from ..errors import AsyncMismatch
from ..machine.machine import Machine
from ..machine.opcodes import UnitState, state
from ..ptx.syntax import Instruction
from . import stamps
from .ordering import Ordering
from .shadow import CHUNK

_REMEDY = "the layout of the TMA atom and that of the tensor in shared memory: both need one swizzle"
_NAMES = ("no swizzle", "the 32-byte swizzle", "the 64-byte swizzle", "the 128-byte swizzle")


def _pattern(chunk: np.ndarray, swizzle: np.ndarray | int) -> np.ndarray:
    """What a swizzle (the tensor map's code) xors onto the number of a chunk (PTX ISA 5.5.7)."""
    return np.asarray(chunk >> 3 & (1 << swizzle) - 1)


@state
class Swizzles(UnitState):
    """The swizzle with which TMA has loaded each 16 bytes; `chunk` numbers count from the first window."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        chunks = machine.shared.span // CHUNK + 1
        self.loaded = np.zeros(chunks, np.int8)  # 1 + tensor map's code of the load that wrote it, 0: unknown
        self.loaded_inst = np.zeros(chunks, np.int32)
        self.by_matrix = np.array([inst.opcode.startswith("stmatrix") for inst in machine.kernel.body])
        self.used = False

    def reset(self) -> None:
        if self.used:
            self.loaded[:] = 0
            self.used = False

    def load(self, host: int, nbytes: int, swizzle: int, inst: int) -> None:
        """A copy takes bytes over; `swizzle` is 1 + the tensor map's code, or 0."""
        first = (host - self.machine.shared.origin) >> 4
        where = slice(first, first + -(-nbytes // CHUNK))
        self.used = True
        self.loaded[where] = swizzle
        self.loaded_inst[where] = inst

    def reads_as_loaded(self, first: int, count: int, swizzle: int) -> bool:
        """Whether nothing there was written by TMA with another swizzle than this one (the tensor map's code)."""
        found = self.loaded[first : first + count]
        if found.tobytes().count(swizzle + 1) == count:
            return True
        return not ((found != 0) & (found != swizzle + 1)).any()

    def check(self, chunk: np.ndarray, swizzle: int, inst: Instruction, thread: int, name: str) -> None:
        """A WGMMA reads chunks with a swizzle (the tensor map's code); TMA must have written them with the same.

        Raises AsyncMismatch where the two put a chunk in different places.  Unswizzled boxes may hold a tensor that
        lies swizzled in global memory already, so reading them with a swizzle is a warning.
        """
        found = self.loaded[chunk]
        bad = np.flatnonzero((found != 0) & (_pattern(chunk, np.maximum(found - 1, 0)) != _pattern(chunk, swizzle)))
        bad = bad[self._last_written_by(chunk[bad], self.loaded_inst[chunk[bad]])]
        if not len(bad):
            return
        at = int(bad[0])
        written, m = int(found[at]) - 1, self.machine
        load = m.kernel.body[int(self.loaded_inst[int(chunk[at])])]
        what = f"operand {name} of the WGMMA is read with {_NAMES[swizzle]}; TMA wrote it with {_NAMES[written]}"
        if not written:
            m.scheduler.warn(what, inst, thread, _REMEDY, (load, thread, "TMA wrote it here"), "swizzle")
            return
        error = AsyncMismatch(what, threads=np.array([thread]), hint=_REMEDY, kind="swizzle")
        m.scheduler.note(error, load, thread, "TMA wrote it here")
        raise error

    def _last_written_by(self, chunk: np.ndarray, inst: np.ndarray) -> np.ndarray:
        """Whether nothing has written chunks since these instructions did."""
        shadow = self.machine.unit(Ordering).shadow
        wrote = stamps.instruction_of(shadow.wrote[shadow.chunk_granules(chunk)])
        return np.asarray((wrote == inst[:, None]).all(axis=1))

    def check_store(self, chunk: np.ndarray, pitch: int, swizzle: int, inst: Instruction, thread: int) -> None:
        """TMA reads chunks, `pitch` of which are a row, with a swizzle (the tensor map's code).

        The eight rows of a matrix that a warp stored lie one below the other in the tensor.  Where they do so with
        another swizzle, and with this one they do not, the two disagree.  Without a swizzle here the tensor may be
        meant to lie swizzled in global memory, so that is a warning.
        """
        stored, rows = self._matrices(chunk)
        if pitch < 2 or not len(rows) or _in_line(rows, pitch, swizzle):
            return
        other = next((other for other in range(len(_NAMES)) if _in_line(rows, pitch, other)), None)
        if other is None:
            return
        m = self.machine
        what = f"the TMA store reads shared memory with {_NAMES[swizzle]}; it was stored there with {_NAMES[other]}"
        store = m.kernel.body[stored.inst], stored.thread, "it was stored here"
        if not swizzle:
            m.scheduler.warn(what, inst, thread, _REMEDY, store, "swizzle")
            return
        error = AsyncMismatch(what, threads=np.array([thread]), hint=_REMEDY, kind="swizzle")
        m.scheduler.note(error, *store)
        raise error

    def _matrices(self, chunk: np.ndarray) -> tuple[stamps.Stamp, np.ndarray]:
        """The matrices of 8 rows of 16 bytes that warps have stored to chunks: a stamp, and each one's chunks in order.

        Of a stmatrix lane i names row i % 8.  Of an ordinary store of 4 or 8 bytes a lane, as fragments lie, four lanes
        write a row.
        """
        shadow = self.machine.unit(Ordering).shadow
        wrote = shadow.wrote[shadow.chunk_granules(chunk)]
        first, lanes = wrote[:, 0], stamps.lane_of(wrote)
        lane = lanes[:, 0]
        alike = (first > 0) & (stamps.without_lane(wrote) == stamps.without_lane(wrote[:, :1])).all(axis=1)
        alike &= (lanes >> 2 == lanes[:, :1] >> 2).all(axis=1)
        named = self.by_matrix[stamps.instruction_of(np.maximum(first, 0))]
        row, part = np.where(named, (lane & 7, lane >> 3), (lane >> 2, lane & 3))
        order = np.lexsort((row, part, stamps.without_lane(first)))
        order = order[alike[order]]
        begins = np.flatnonzero(row[order] == 0)
        begins = begins[begins <= len(order) - 8]
        found = order[begins[:, None] + np.arange(8)]
        key = stamps.without_lane(first) + part
        whole = (row[found] == np.arange(8)).all(axis=1) & (key[found] == key[found[:, :1]]).all(axis=1)
        return stamps.Stamp.of(int(first[found[whole][0, 0]]) if whole.any() else 0), chunk[found[whole]]


def _in_line(rows: np.ndarray, pitch: int, swizzle: int) -> bool:
    """Whether the rows of each matrix (chunks) lie one below the other if a swizzle put them where they are."""
    steps = np.diff(rows ^ _pattern(rows, swizzle), axis=1)
    return bool((steps == steps[:, :1]).all() and not (steps % pitch).any())
