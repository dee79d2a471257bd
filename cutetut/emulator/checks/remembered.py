"""What has been found out about pieces of shared memory: it holds for as long as nothing is written there."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

Known = dict[Hashable, tuple[int, int, Any]]  # the host addresses it is about, from and to, and what was found


class Remembered:
    """By resident CTA; copies end only what they write over, every other write ends all."""

    def __init__(self) -> None:
        self.version = 0
        self.ctas: dict[int, Known] = {}

    def of(self, cta: int, version: int) -> Known:
        """What is known of a CTA's shared memory, to be read and added to; `version` counts all writes but copies."""
        if version != self.version:
            self.version = version
            self.ctas.clear()
        return self.ctas.setdefault(cta, {})

    def written(self, cta: int, low: int, high: int) -> None:
        """A copy writes these bytes, or is about to."""
        known = self.ctas.get(cta)
        if known:
            for key in [key for key, (start, end, _) in known.items() if start < high and low < end]:
                del known[key]
