"""What was counted: instructions, memory traffic and arithmetic, of one source line or of everything."""

from __future__ import annotations

import operator
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from .coalescing import SECTOR

GLOBAL, SHARED = "global", "shared"


@dataclass
class Traffic:
    """The accesses of one kind to one memory space.

    `requests` are warp instructions with at least one active thread, or copies for an engine (TMA, WGMMA).
    `asked` is in bytes.  `sectors` are counted for the global accesses of threads, `wavefronts` and
    `conflicts` (wavefronts beyond the fewest possible) for the shared ones, which reach from byte `first` to byte
    `end` of the CTA's shared memory, the latter excluded.
    """

    requests: int = 0
    asked: int = 0
    sectors: int = 0
    wavefronts: int = 0
    conflicts: int = 0
    first: int = sys.maxsize
    end: int = 0

    def add(self, other: Traffic) -> None:
        for name in (one.name for one in fields(self)):
            combine = {"first": min, "end": max}.get(name, operator.add)
            setattr(self, name, combine(getattr(self, name), getattr(other, name)))

    def cover(self, first: int, end: int) -> None:
        """Take in bytes `first` to `end` of shared memory, the latter excluded."""
        self.first, self.end = min(self.first, first), max(self.end, end)

    def took(self, wavefronts: int, fewest: int) -> None:
        """Count an access of shared memory that took so many wavefronts, where without conflicts it takes `fewest`."""
        self.wavefronts += wavefronts
        self.conflicts += wavefronts - fewest

    @property
    def moved(self) -> int:
        """Bytes: whole sectors where sectors were counted, otherwise what was asked for."""
        return self.sectors * SECTOR if self.sectors else self.asked


@dataclass
class Tally:
    """Counts of one source line, or of all.

    `warps` and `threads` count instructions by kind: those issued for a warp, and those that its threads
    executed (guard true).  `traffic` is by (memory space, operation), `flops` by (unit, type), where the unit
    is "scalar" or "matrix" and a fused multiply-add is two.
    """

    warps: Counter[str] = field(default_factory=Counter)
    threads: Counter[str] = field(default_factory=Counter)
    traffic: dict[tuple[str, str], Traffic] = field(default_factory=dict)
    arithmetic: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.warps.update(other.warps)
        self.threads.update(other.threads)
        self.arithmetic.update(other.arithmetic)
        for key, traffic in other.traffic.items():
            self.at(*key).add(traffic)

    def at(self, space: str, operation: str) -> Traffic:
        """The traffic of one operation, to be added to."""
        return self.traffic.setdefault((space, operation), Traffic())

    # -- questions ----------------------------------------------------------------------------

    @property
    def warp_instructions(self) -> int:
        """PTX instructions issued, one for each warp that executes it."""
        return self.warps.total()

    @property
    def thread_instructions(self) -> int:
        """PTX instructions executed by threads whose guard was true."""
        return self.threads.total()

    def instructions(self, kind: str) -> int:
        """Warp instructions of a kind such as "fma", "ld.global" or "wgmma.mma_async"."""
        return self.warps[kind]

    def requests(self, operation: str, space: str = GLOBAL) -> int:
        """Warp instructions that accessed a memory space: "ld", "st", "ldmatrix", "stmatrix", "atom", "red",
        "cp.async", or copies: "tma load", "tma store", "tma reduce", "wgmma"."""
        return self._sum(space, operation).requests

    def sectors(self, operation: str) -> int:
        """32-byte sectors that the global accesses of an operation touched."""
        return self._sum(GLOBAL, operation).sectors

    def sectors_per_request(self, operation: str) -> float:
        """Sectors of a global access on average: 4 is what 32 threads need for 4 bytes each, 32 is the worst.

        Raises ValueError if there was no such access.
        """
        found = self._sum(GLOBAL, operation)
        if not found.requests:
            raise ValueError(f"no {operation!r} of global memory was counted; there were: {self._known()}")
        return found.sectors / found.requests

    def wavefronts(self, operation: str) -> int:
        """Passes that the shared accesses of an operation took."""
        return self._sum(SHARED, operation).wavefronts

    def bank_conflicts(self, operation: str) -> int:
        """Passes beyond those that the shared accesses of an operation would have taken without bank conflicts."""
        return self._sum(SHARED, operation).conflicts

    def shared_span(self, operation: str | None = None) -> int:
        """Bytes of shared memory from the first to the last that threads accessed in any CTA, gaps included."""
        total = self._sum(SHARED, operation)
        return max(0, total.end - total.first)

    def bytes_asked(self, space: str, operation: str | None = None) -> int:
        """Bytes that were asked of "global", "shared", "local", "const" or "cluster" memory (another CTA's shared)."""
        return self._sum(space, operation).asked

    def flops(self, unit: str | None = None) -> int:
        """Floating-point or integer matrix operations of "scalar" or "matrix" units; a multiply-add is two."""
        return sum(n for (u, _), n in self.arithmetic.items() if unit in (None, u))

    def _matching(self, space: str, operation: str | None) -> Iterable[Traffic]:
        return [t for (s, o), t in self.traffic.items() if s == space and operation in (None, o)]

    def _sum(self, space: str, operation: str | None) -> Traffic:
        total = Traffic()
        for traffic in self._matching(space, operation):
            total.add(traffic)
        return total

    def _known(self) -> str:
        return ", ".join(sorted(o for s, o in self.traffic if s == GLOBAL)) or "none"
