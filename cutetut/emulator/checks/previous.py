"""What a launch leaves for one that may begin before it ends (programmatic dependent launch)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import Place
from ..machine.memory import HOST, index
from ..machine.reporter import place_of
from ..ptx.syntax import Instruction

SAMPLE = 256  # granules of a region that are looked at again


@dataclass(frozen=True)
class Region:
    """A piece of global memory that a launch has written: the last instruction of each granule, -1 where none has."""

    start: int
    granule: int
    instructions: np.ndarray
    where: np.ndarray  # some of the bytes that it has written, by their addresses,
    left: np.ndarray  # and what they were at its end

    @classmethod
    def of(cls, start: int, granule: int, instructions: np.ndarray) -> Region:
        written = np.flatnonzero(instructions >= 0)
        some = written[np.linspace(0, len(written) - 1, min(SAMPLE, len(written))).astype(np.int64)]
        where = (start + some[:, None] * granule + np.arange(granule)).ravel()
        return cls(start, granule, instructions, where, HOST[1][index(where, 1)].copy())

    def as_left(self) -> bool:
        """Whether memory that can still be read is as the launch left it.

        If not, the host or a copy has written it since, which had to wait for that launch: nothing of it is unfinished.
        """
        return bool((HOST[1][index(self.where, 1)] == self.left).all())


@dataclass(frozen=True)
class Written:
    """What of global memory a launch has written, and its kernel's instructions."""

    kernel: str
    regions: tuple[Region, ...]
    instructions: Sequence[Instruction]

    @property
    def nbytes(self) -> int:
        """How much memory this takes."""
        return sum(region.instructions.nbytes for region in self.regions)

    def place(self, index: int) -> Place:
        """Where an instruction of that kernel stands, for an error of the next launch."""
        return place_of(self.kernel, self.instructions[index])
