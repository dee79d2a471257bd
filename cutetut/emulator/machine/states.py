"""The register of what units keep while a launch runs; only what a machine itself asks of it."""

from __future__ import annotations

from typing import Any, Protocol


class State(Protocol):
    """What a machine asks of what a unit keeps; all that it may offer is `UnitState` in opcodes.py."""

    def reset(self) -> None:
        """New CTAs are resident."""

    def history(self, thread: int) -> list[str]:
        """Lines for an error of a thread: what it has done here that may explain it."""
        return []


STATES: list[type[Any]] = []  # classes that are made with the machine, in the order in which units register them
