"""What tests of the emulator share."""

from __future__ import annotations

import pytest

from cutetut.emulator.compiled import engine, loads, picking, runs


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile everything the first time it executes."""
    for name, value in (("READING", -1.0), ("BATCH", 0.0), ("COMPILING", 0.0), ("LINKING", -1.0)):
        monkeypatch.setattr(runs, name, value)
    for module in (loads, picking):
        monkeypatch.setattr(module, "COMPILING", 0.0)
    monkeypatch.setattr(engine, "LOADING", -1.0)
