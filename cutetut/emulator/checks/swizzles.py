"""Swizzles must agree: how TMA has written shared memory, and how a WGMMA reads it."""

from __future__ import annotations

import numpy as np

from ..errors import AsyncMismatch
from ..machine.machine import Machine
from ..machine.opcodes import UnitState, state
from ..ptx.syntax import Instruction
from .shadow import CHUNK

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
        self.used = False

    def reset(self) -> None:
        if self.used:
            self.loaded[:] = 0
            self.used = False

    def stored(self, host: np.ndarray) -> None:
        """Memory has been written by something other than TMA."""
        if self.used:
            self.loaded[(host - self.machine.shared.origin) >> 4] = 0

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
        bad = (found != 0) & (_pattern(chunk, np.maximum(found - 1, 0)) != _pattern(chunk, swizzle))
        if not bad.any():
            return
        at = int(np.flatnonzero(bad)[0])
        written, m = int(found[at]) - 1, self.machine
        load = m.kernel.body[int(self.loaded_inst[int(chunk[at])])]
        what = f"operand {name} of the WGMMA is read with {_NAMES[swizzle]}; TMA wrote it with {_NAMES[written]}"
        hint = "the layout of the TMA atom and that of the tensor in shared memory: both need one swizzle"
        if not written:
            m.scheduler.warn(what, inst, thread, hint, (load, thread, "TMA wrote it here"), "swizzle")
            return
        error = AsyncMismatch(what, threads=np.array([thread]), hint=hint, kind="swizzle")
        m.scheduler.note(error, load, thread, "TMA wrote it here")
        raise error
