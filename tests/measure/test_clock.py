"""The SMs' clock: the arithmetic of two readings, and on a GPU against a kernel that counts cycles for a known time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cutetut.measure import clock
from cutetut.measure.clock import between

SPIN = 50_000_000  # cycles, some 25 ms


def test_the_clock_is_cycles_over_nanoseconds() -> None:
    """Of three SMs whose counters began at any time, the median; one that only one reading saw does not count."""
    before = [(7, 100, 5_000), (2, 7_000_000, 5_032), (9, 40, 5_000), (0, 0, 5_000)]
    after = [(2, 7_001_800, 6_032), (7, 1_100, 6_000), (3, 9_000, 6_000), (0, 1_500, 6_000)]
    assert between(before, after) == 1500


@pytest.mark.parametrize("after", [[(4, 900, 6_000)], [(3, 900, 5_000)]])
def test_without_time_between_two_readings_of_an_sm_there_is_no_clock(after: list[tuple[int, int, int]]) -> None:
    assert between([(3, 100, 5_000)], after) is None


@pytest.mark.emulator
def test_readings_are_faultless_and_the_kernel_is_compiled_once(tmp_path: Path) -> None:
    """In the emulator, whose timers say nothing of a GPU's."""
    script = tmp_path / "script.py"
    script.write_text("""
from cutetut.measure import bench, clock
import torch
for _ in range(2):
    timed = bench.CudaTimer().timed(lambda: torch.zeros(4, device="cuda"), 3)
print("read", timed.mhz is not None, clock.of_gpu.cache_info().misses)
""")
    command = [sys.executable, "-m", "cutetut", "emulate", str(script)]
    done = subprocess.run(command, text=True, capture_output=True, timeout=300)
    assert "read True 1" in done.stdout, done.stdout + done.stderr


@pytest.mark.gpu
def test_a_kernel_of_so_many_cycles_takes_so_long_at_that_clock() -> None:
    """PyTorch's own kernel that waits for a number of cycles, timed by CUDA events."""
    reader = clock.of_gpu(torch.cuda.current_device())
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(2):  # the first launch has the host's time to load it
        torch.cuda.synchronize()
        reader.begin()
        start.record()
        torch.cuda._sleep(SPIN)
        end.record()
        reader.end()
        torch.cuda.synchronize()
    found = reader.mhz()
    assert found is not None and 600 < found <= 1980
    assert found == pytest.approx(SPIN / start.elapsed_time(end) / 1e3, rel=0.01)
