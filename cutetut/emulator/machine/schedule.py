"""The freedom a GPU has: who runs next, how many CTAs run at once, and in which order they start.

`CUTETUT_SCHEDULE=order`, the default, takes warps in turn, and those at one line together: that is fast and always
the same.  `random:SEED` draws: which warp goes on, for how long, and who of those at the same line goes along; how
many CTAs are resident, and which start first; and now and then a wait for an mbarrier hears that the phase is not
complete although it just is, as if it had asked a moment before.  Every such run is one that a GPU might choose.
"""

from __future__ import annotations

import os
import random

import numpy as np

from ..errors import LaunchError

BURSTS = (1, 4, 16, 64)  # turns that one warp goes on for, and one launch beside others
LOWEST = 0.75  # chance that of a warp's diverged lanes the lowest block is next
TOO_EARLY = 0.125  # chance that a wait is as if it had asked before the phase was complete
ALONE, SOME, CTA, ALL = range(4)  # who goes along with a warp, of those that stand at the same block


class Schedule:
    """What CUTETUT_SCHEDULE asks for; without a seed nothing is drawn."""

    def __init__(self, text: str | None = None) -> None:
        text = text if text is not None else os.environ.get("CUTETUT_SCHEDULE", "order")
        kind, _, seed = text.partition(":")
        if kind not in ("order", "random") or (seed and (kind != "random" or not seed.isdigit())):
            raise LaunchError(f"CUTETUT_SCHEDULE={text!r}: use order or random:SEED")
        self.drawn = kind == "random"
        self.random = random.Random(int(seed or 0))
        self.favourite = self.left = 0
        self.company = ALL

    # -- CTAs ---------------------------------------------------------------------------------

    def residents(self, usual: int, cluster: int) -> int:
        """How many CTAs run at once, where that may be fewer than usual: whole clusters."""
        return cluster * self.random.randint(1, usual // cluster) if self.drawn else usual

    def order(self, ctas: np.ndarray, cluster: int) -> np.ndarray:
        """The order in which CTAs start, those of a cluster together."""
        if not self.drawn:
            return ctas
        clusters = list(ctas.reshape(-1, cluster, 3))
        self.random.shuffle(clusters)
        return np.concatenate(clusters)

    # -- warps --------------------------------------------------------------------------------

    def all_together(self) -> bool:
        """Whether all warps, which stand at one block, go on together."""
        if not self.drawn:
            return True
        if self.company == ALL and self.left > 0:
            self.left -= 1
            return True
        return False

    def warp(self, ready: np.ndarray) -> int:
        """The warp that goes on, of those that have ready lanes."""
        if self.left <= 0 or self.favourite not in ready:
            self.favourite = int(self.random.choice(ready.tolist()))
            self.left = self.random.choice(BURSTS)
            self.company = self.random.choice((ALONE, SOME, CTA, ALL))
        self.left -= 1
        return self.favourite

    def lowest(self) -> bool:
        """Whether the lowest block of a warp is next, or that of any of its ready lanes."""
        return self.random.random() < LOWEST

    def block_of(self, blocks: np.ndarray) -> int:
        """One of the blocks that a warp's ready lanes stand at."""
        return int(self.random.choice(np.unique(blocks).tolist()))

    def along(self, warp: int, there: np.ndarray, warps_per_cta: int) -> np.ndarray:
        """Which warps go on, of those that stand where the chosen one does; it is always among them."""
        everyone = np.arange(len(there))
        if self.company == ALL:
            return there
        if self.company == CTA:
            return there & (everyone // warps_per_cta == warp // warps_per_cta)
        draws = [self.company == SOME and self.random.random() < 0.5 for _ in everyone]
        return there & (np.array(draws) | (everyone == warp))

    # -- launches -----------------------------------------------------------------------------

    def turns(self) -> int:
        """How many turns a launch has before another one that runs at the same time."""
        return int(self.random.choice(BURSTS)) if self.drawn else BURSTS[-1]

    # -- waits --------------------------------------------------------------------------------

    def too_early(self) -> bool:
        """Whether a wait for a phase that is complete is as if it had asked a moment before."""
        return self.drawn and self.random.random() < TOO_EARLY
