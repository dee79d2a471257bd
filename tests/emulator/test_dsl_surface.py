"""Every public operation of cute.arch and cute.nvgpu: those of sm_90a run and are held against an oracle."""

from __future__ import annotations

import pytest

from cutetut.emulator.errors import EmulatorError
from tests.emulator.surface import arch_float, arch_integer  # noqa: F401
from tests.emulator.surface.cases import CASES, REFUSED


@pytest.mark.parametrize("name", CASES)
def test_operation(name: str, device: str) -> None:
    CASES[name].check(device)


@pytest.mark.parametrize("name", REFUSED)
def test_operations_that_do_not_exist_on_sm_90a(name: str, device: str) -> None:
    with pytest.raises(Exception) as refusal:  # the DSL has many ways to say so
        REFUSED[name].check(device)
    assert not isinstance(refusal.value, EmulatorError | AssertionError)
