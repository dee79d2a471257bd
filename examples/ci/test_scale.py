"""The test says nothing of an emulator: with a GPU, `pytest` runs it there."""

import pytest
import torch
from cutlass.cute.runtime import from_dlpack
from scale import scale


@pytest.mark.schedules(2)
@pytest.mark.parametrize("n", [1, 128, 1000])
def test_scale(n: int) -> None:
    x = torch.randn(n, device="cuda")
    y = torch.empty_like(x)
    scale(from_dlpack(x), from_dlpack(y), 3.0)
    torch.testing.assert_close(y, 3.0 * x)
