"""What tests of the emulator share."""

from __future__ import annotations

from collections.abc import Iterator

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


@pytest.fixture
def cuda_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A device called "cuda", as a script written for a GPU sees it."""
    from cutetut.emulator.host import cuda_torch, live
    from cutetut.emulator.host.patches import Patches

    patches = Patches()
    monkeypatch.setattr(live, "on_device", cuda_torch.marked)
    try:
        with cuda_torch.whole_device(patches):
            yield
    finally:
        patches.restore()


@pytest.fixture
def device_memory(cuda_device: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same, and addresses are looked up among its tensors, those that have been freed included."""
    from cutetut.emulator.host import fresh, live, pool

    monkeypatch.setattr(live, "lookup", pool.find)
    yield
    pool.clear()
    fresh.clear()
