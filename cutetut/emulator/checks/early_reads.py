"""Reads of shared memory that nothing had written, for which there was only a warning: a copy may still come."""

from __future__ import annotations

import numpy as np

from ..errors import EmulatorError
from ..findings import Location
from .shadow import CHUNK

WAIT = "the wait for that copy in front of the read, at the barrier and in the phase that the copy completes"


class EarlyReads:
    """The 16-byte chunks of shared memory that held nothing when a WGMMA read them, by CTA."""

    def __init__(self) -> None:
        self.chunks: set[tuple[tuple[int, ...] | None, int]] = set()

    def note(self, first: Location, offsets: np.ndarray) -> None:
        """A WGMMA reads chunks that nothing has written, at these distances in bytes from a first place."""
        assert first.offset is not None
        self.chunks.update((first.cta, (first.offset + at) // CHUNK) for at in offsets.ravel().tolist())

    def explain(self, error: EmulatorError) -> EmulatorError:
        """Say so in the error of a write to such a place that nothing orders after the read."""
        if any(at.offset is not None and (at.cta, at.offset // CHUNK) in self.chunks for at in error.locations):
            error.notes.append("  nothing had been written there when it was read: the reader did not wait for it")
            error.hint = WAIT
        return error
