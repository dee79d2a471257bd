"""The benchmarks' counts by Nsight Compute: each launch gets its own, and where not all are there, there are none."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from cutetut.course import notebooks
from cutetut.measure import bench, nsight
from tests.chapters import benchmarks

PARTLY = [  # a chapter, and how many launches are counted: fewer or more than it makes
    *(("01_layouts", 0), ("01_layouts", 9)),
    ("03_tensors_and_jit", 0),
    *(("04_scalar_fma_gemm", 0), ("04_scalar_fma_gemm", 7)),
    *(("05_partition_c", 0), ("05_partition_c", 10)),
    *(("06_smem_tiling", 0), ("06_smem_tiling", 11)),
]


@pytest.mark.parametrize(("chapter", "launches"), PARTLY)
def test_without_all_counters_there_are_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], chapter: str, launches: int
) -> None:
    """The program that would be counted is Python, and the reader is told why there is nothing."""
    benchmarks.count_launches(launches, monkeypatch)
    assert notebooks.load(chapter, bench.BENCH_TAGS).counted_on_gpu() == {}
    assert "no counts" in capsys.readouterr().out


@pytest.fixture
def chapter07() -> ModuleType:
    return notebooks.load("07_mma_sync", bench.BENCH_TAGS)


def test_each_launch_gets_what_nsight_compute_counted_of_it(
    chapter07: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = list(chapter07.MEASURED)
    assert hasattr(chapter07, "mma_gemm_kernel")

    def count(program: list[str], kernels: str, metrics: list[str]) -> list[dict[str, float]]:
        option, source = program
        assert option == "-c" and kernels == "mma_gemm_kernel"
        compile(source, "program", "exec")
        return [dict(zip(metrics, (1000.0, 1000.0 * (n + 1)), strict=True)) for n in range(len(launches))]

    monkeypatch.setattr(nsight, "count", count)
    assert chapter07.wavefronts_counted() == {launch: place + 1 for place, launch in enumerate(launches)}


def test_a_benchmark_goes_on_where_nothing_can_be_counted(
    chapter07: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert chapter07.wavefronts_counted() == {}
    assert "ncu (Nsight Compute) is not on the PATH" in capsys.readouterr().out
