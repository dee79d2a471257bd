"""What some lanes of a warp have learned and the others have not: a lane that waits alone learns for itself only.

The lanes share what they know again where they meet: at bar.warp.sync and at barriers of their CTA.  A shuffle or a
vote orders no memory (PTX ISA section 9.7.13: only barriers and fences do).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


class Apart:
    """By warp: groups of lanes, no lane in two of them, and the times that each group knows beside its warp's."""

    def __init__(self) -> None:
        self.groups: dict[int, list[tuple[int, np.ndarray]]] = {}

    def __bool__(self) -> bool:
        return bool(self.groups)

    def clear(self) -> None:
        self.groups.clear()

    def learn(self, warp: int, lanes: int, times: np.ndarray) -> None:
        """Some lanes learn up to which time everything of each agent has happened."""
        groups: list[tuple[int, np.ndarray]] = []
        left = lanes
        for mask, known in self.groups.get(warp, ()):
            both = mask & lanes
            if mask & ~lanes:
                groups.append((mask & ~lanes, known))
            if both:
                groups.append((both, joined(known, times)))
            left &= ~mask
        if left:
            groups.append((left, times.copy()))
        self.groups[warp] = groups

    def shared(self, warp: int, alive: int) -> np.ndarray | None:
        """What all living lanes of a warp have learned, each for itself; None: one has learned nothing."""
        groups = self.groups.get(warp, [])
        covered = 0
        for mask, _ in groups:
            covered |= mask
        if alive & ~covered or not groups:
            return None
        count = min(len(known) for mask, known in groups if mask & alive)
        found: np.ndarray = np.min([known[:count] for mask, known in groups if mask & alive], axis=0)
        return found

    def of(self, warp: int, lanes: int) -> Iterator[np.ndarray]:
        """What any of these lanes have learned."""
        for mask, known in self.groups.get(warp, ()):
            if mask & lanes:
                yield known

    def everything(self) -> Iterator[np.ndarray]:
        """What any lane of any warp has learned."""
        for groups in self.groups.values():
            for _, known in groups:
                yield known

    def take(self, warp: int) -> list[np.ndarray]:
        """The lanes meet: what they had learned apart, which is all theirs now."""
        return [known for _, known in self.groups.pop(warp, ())]


def joined(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The later time of each agent; the shorter row ends with agents it has never heard of."""
    if len(a) < len(b):
        a, b = b, a
    result = a.copy()
    np.maximum(result[: len(b)], b, out=result[: len(b)])
    return result
