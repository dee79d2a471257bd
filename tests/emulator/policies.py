"""Correct kernels under every moment at which asynchronous operations may complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cutetut.emulator.errors import EmulatorWarning
from tests.seeds import seeds

POLICIES = ["late", "early", *(f"random:{seed}" for seed in seeds(5))]


def right_under_every_policy(
    launch: Callable[[], Any],
    result: torch.Tensor,
    want: torch.Tensor,
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
) -> None:
    """A launch writes exactly `want` (float64) into `result`, and the emulator has nothing to warn of."""
    for policy in POLICIES:
        monkeypatch.setenv("CUTETUT_ASYNC", policy)
        result.fill_(-1)
        launch()
        if result.is_cuda:
            torch.cuda.synchronize()
        assert torch.equal(result.cpu().double(), want), policy
    assert not [w for w in recwarn if issubclass(w.category, EmulatorWarning)]
