"""The benchmarks' counts by Nsight Compute: each launch gets its own, and where not all are there, there are none."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch

from cutetut.course import notebooks
from cutetut.inspect import profile
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


LOADS, STORES = (f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st"))
ALONE_06 = """
for launch, plan in chapter.RUNGS.values():
    bM, bN, bK = plan.tile
    run(launch, (bM, 4 * bK), (bN, 4 * bK), (bM, bN), plan=plan)
"""
ALONE_03 = """
for launch in chapter.RUNGS.values():
    run(launch, (64, 64), (64, 64))
"""
PROGRAM = """
import torch
from cutetut.course import notebooks
chapter = notebooks.load({chapter!r}, ("imports", "kernel", "bench"))

def run(launch, *shapes, **plan):
    tensors = [chapter.from_dlpack(torch.zeros(shape, device="cuda"), assumed_align=16) for shape in shapes]
    chapter.cute.compile(launch, *tensors, *plan.values())(*tensors)
{launches}
torch.cuda.synchronize()
"""


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "launches", "stores"), [("03_tensors_and_jit", ALONE_03, True), ("06_smem_tiling", ALONE_06, False)]
)
def test_a_cta_alone_has_the_wavefronts_that_the_emulator_counts(name: str, launches: str, stores: bool) -> None:
    """With several CTAs on an SM Nsight Compute counts more, and another number in each launch: they collide.

    Chapter 06's stores do so even in a CTA alone, so they are left out.
    """
    program, chapter = PROGRAM.format(chapter=name, launches=launches), notebooks.load(name, bench.BENCH_TAGS)
    kernels = "straight_kernel|transpose_kernel|staged_kernel|ring_kernel|ahead_kernel"
    found = nsight.count(["-c", program], kernels, [LOADS, STORES])
    emulated = []
    for case in chapter.RUNGS.values():
        launch, plan = case if isinstance(case, tuple) else (case, None)
        bM, bN, bK = plan.tile if plan else (64, 64, 16)
        shapes = [(bM, 4 * bK), (bN, 4 * bK), (bM, bN)] if plan else [(64, 64)] * 2
        emulated.append(profile.count(launch, *map(torch.zeros, shapes), *([plan] if plan else [])))
    assert [row[LOADS] for row in found] == [counts.wavefronts("ld") for counts in emulated]
    if stores:
        assert [row[STORES] for row in found] == [counts.wavefronts("st") for counts in emulated]


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
