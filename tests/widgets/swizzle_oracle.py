"""What the swizzle view is held against: CuTe's swizzle, loops over lanes, and instructions the emulator counts."""

from __future__ import annotations

import random
from functools import cache

import cutlass.cute as cute

from cutetut import layouts
from cutetut.emulator.measure.counters import Counting
from cutetut.emulator.measure.observe import observing
from tests.emulator.counter_cases import Case

ATOMS = {"INTER": ((0, 4, 3), 16), "SW32": ((1, 4, 3), 32), "SW64": ((2, 4, 3), 64), "SW128": ((3, 4, 3), 128)}
ACCESSES = ("core matrix", "row", "column")
Swizzle = tuple[int, int, int]


def random_swizzle(rng: random.Random) -> Swizzle:
    """A swizzle that does something to offsets below 4096 and keeps 16 bytes together."""
    b = rng.randint(1, 4)
    s = rng.randint(b, 8 - b)
    return b, rng.randint(4, 12 - b - s), s


@cache
def moved_by_cute(swizzle: Swizzle) -> list[int]:
    """Where CuTe's own swizzle puts each offset below 4096."""
    build = lambda: cute.make_composed_layout(cute.make_swizzle(*swizzle), 0, cute.make_layout(4096))  # noqa: E731
    return [int(offset) for offset in layouts.offsets(build)]


def asked_for(access: str, row_bytes: int, word: tuple[int, int]) -> list[int]:
    """The first byte of each lane's access, before the swizzle."""
    row, col = word
    if access == "core matrix":
        return [r * row_bytes + col * 4 // 16 * 16 for r in range(8)]
    if access == "column":
        return [r * row_bytes + col * 4 for r in range(32)]
    first = row * row_bytes // 128 * 128  # the line of all banks that holds the row
    return list(range(first, first + 128, 4))


def counted(access: str, offsets: list[int]) -> int:
    """The wavefronts of an ldmatrix or a load by one warp at these offsets, as the emulator counts them."""
    operation = "ldmatrix" if access == "core matrix" else "ld"
    lanes = tuple(offsets * (32 // len(offsets)))  # ldmatrix .x1 looks at the first eight
    counting = Counting()
    with observing(counting):
        Case(access, operation, "shared", 4, lanes).launch()
    total = counting.total()
    assert total.bank_conflicts(operation) == total.wavefronts(operation) - 1
    return total.wavefronts(operation)
