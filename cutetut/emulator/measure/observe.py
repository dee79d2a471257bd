"""Looking at a kernel while it runs: an observer may wrap every step, and costs nothing when there is none.

Observers are asked when a kernel is decoded, once per launch, so that a launch without one runs exactly the
steps that the units made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from ..machine.machine import Machine
from ..machine.opcodes import Watcher


class Observer(Protocol):
    """Something that looks at launches."""

    def watch(self, machine: Machine) -> Watcher | None:
        """A launch begins; None leaves its steps alone."""


_current: ContextVar[Observer | None] = ContextVar("observer", default=None)


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Show every launch of this thread to an observer, in place of the one before."""
    token = _current.set(observer)
    try:
        yield
    finally:
        _current.reset(token)


def watch(machine: Machine) -> Watcher | None:
    """The current observer's view of a launch; None without an observer."""
    observer = _current.get()
    return None if observer is None else observer.watch(machine)
