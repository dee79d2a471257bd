"""How far a long launch is: a line on stderr, once it has taken some seconds."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

FIRST = 5.0  # seconds before the first line
REDRAWN = 0.5  # seconds, on a terminal; elsewhere each line comes after twice the time of the one before


class Progress:
    """Shows how far one launch is; `CUTETUT_PROGRESS=0` keeps it silent."""

    def __init__(
        self, kernel: str, ctas: int, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.kernel, self.ctas, self.clock = kernel, ctas, clock
        self.out = out if out is not None else sys.stderr
        self.started = clock()
        self.silent = os.environ.get("CUTETUT_PROGRESS") == "0"
        self.terminal = self.out.isatty()
        self.next = FIRST
        self.shown = False

    def at(self, done: int) -> None:
        """Show that `done` CTAs are done, if it is time for another line."""
        seconds = self.clock() - self.started
        if self.silent or seconds < self.next:
            return
        self.next = seconds + REDRAWN if self.terminal else 2 * seconds
        line = self.line(done, seconds)
        self.out.write(f"\r\x1b[K{line}" if self.terminal else f"{line}\n")
        self.out.flush()
        self.shown = True

    def line(self, done: int, seconds: float) -> str:
        """The line to show after this many seconds."""
        text = f"cutetut: {self.kernel}: {done} of {self.ctas} CTAs done after {seconds:.0f} s"
        if not done:
            return text
        return f"{text}, about {max(1.0, seconds * (self.ctas - done) / done):.0f} s left"

    def close(self) -> None:
        """The launch has ended: remove the line from a terminal."""
        if self.shown and self.terminal:
            self.out.write("\r\x1b[K")
            self.out.flush()
