"""What has been found out about pieces of shared memory: it holds for as long as nothing is written there."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Known:
    """What is known of one CTA's shared memory, each with the host addresses it is about, from and to."""

    facts: dict[Hashable, tuple[int, int, Any]] = field(default_factory=dict)  # what was found, under any name
    copies: dict[int, tuple[int, int, tuple[int, int]]] = field(default_factory=dict)  # agent and time of each

    def copy_over(self, low: int, high: int) -> tuple[int, int] | None:
        """Agent and time of the one copy that has brought all these bytes, if that is remembered."""
        for start, end, who in self.copies.values():
            if start <= low and high <= end:
                return who
        return None


class Remembered:
    """What is known, by resident CTA: a copy ends only what it writes over, any other write ends everything."""

    def __init__(self) -> None:
        self.version = 0
        self.ctas: dict[int, Known] = {}

    def of(self, cta: int, version: int) -> Known:
        """What is known of a CTA's shared memory, to be read and added to; `version` counts all writes but copies."""
        if version != self.version:
            self.version = version
            self.ctas.clear()
        found = self.ctas.get(cta)
        if found is None:
            found = self.ctas[cta] = Known()
        return found

    def written(self, cta: int, low: int, high: int) -> None:
        """A copy writes these bytes, or is about to."""
        known = self.ctas.get(cta)
        if known is None:
            return
        for key in [key for key, (start, end, _) in known.facts.items() if start < high and low < end]:
            del known.facts[key]
        for first in [first for first, (start, end, _) in known.copies.items() if start < high and low < end]:
            del known.copies[first]
