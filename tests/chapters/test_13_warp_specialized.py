"""Chapter 13: the kernel of two jobs against float64, its probes, registers, mistakes and exercises."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import cutlass.pipeline
import numpy as np
import pytest
import torch

from cutetut.course import notebooks
from cutetut.inspect.compiled import inspect
from cutetut.measure import bench, mistakes
from tests.chapters import benchmarks, contract, exercises
from tests.chapters.products import assert_product, normal

CHAPTER = "13_warp_specialized"


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


def multiply(chapter: ModuleType, A: torch.Tensor, B: torch.Tensor, plan: Any) -> torch.Tensor:
    C = torch.full((A.shape[0], B.shape[0]), torch.nan, dtype=A.dtype, device=A.device)
    tensors = [chapter.from_dlpack(t, assumed_align=16) for t in (A, B, C)]
    chapter.cute.compile(chapter.specialized_gemm_launch, *tensors, plan)(*tensors)
    return C


@pytest.mark.parametrize(
    ("name", "K", "dtype"),
    [
        ("two consumers, 128x256", 584, torch.bfloat16),
        ("two consumers, 128x128", 24, torch.float16),
        ("three consumers, 192x144", 448, torch.bfloat16),
        ("one consumer, 64x256", 320, torch.bfloat16),
    ],
)
def test_every_plan_matches_float64(
    chapter: ModuleType, rng: np.random.Generator, device: str, name: str, K: int, dtype: torch.dtype
) -> None:
    plan = chapter.PLANS[name]
    A, B = normal(rng, device, dtype, (plan.tile[0], K), (plan.tile[1], K))
    assert_product(multiply(chapter, A, B, plan), A, B)


def test_several_tiles_and_operands_of_either_major(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    A, B = normal(rng, device, torch.float16, (200, 256), (192, 200))
    assert_product(multiply(chapter, A.T, B, chapter.SMALL), A.T, B)


@pytest.mark.parametrize(
    ("shape", "plan", "says"),
    [
        ((120, 64, 64), {}, "M=120, N=64 is not supported"),
        ((128, 64, 64), {"registers": (40, 240)}, "240 registers: there are 3"),
        ((128, 64, 64), {"warpgroups": (3, 1)}, "does not divide among 3x1"),
        ((128, 64, 60), {}, "multiple of 16 bytes"),
    ],
)
def test_it_refuses_in_a_sentence(
    chapter: ModuleType, rng: np.random.Generator, device: str, shape: tuple[int, ...], plan: dict[str, Any], says: str
) -> None:
    M, N, K = shape
    A, B = normal(rng, device, torch.float16, (M, K), (N, K))
    with pytest.raises(ValueError, match=says):
        multiply(chapter, A, B, dataclasses.replace(chapter.SMALL, **plan))


def test_the_kernel_keeps_to_the_contract(chapter: ModuleType) -> None:
    contract.assert_one_idea(chapter.ring.ring_gemm_kernel, chapter.specialized_gemm_kernel)
    contract.assert_contract(CHAPTER)


def test_one_consumer_for_the_whole_tile_spills_and_waits_for_each_product(chapter: ModuleType, device: str) -> None:
    tensors = [chapter.from_dlpack(torch.zeros(512, 512, device=device).half(), assumed_align=16)] * 3
    alone = notebooks.changed(CHAPTER, chapter.ALONE).specialized_gemm_launch
    crowded = inspect(chapter.cute.compile(alone, *tensors, chapter.CROWDED))
    assert crowded.spills > 1024 and crowded.count("HGMMA") == crowded.count("WARPGROUP.DEPBAR") >= 8
    shared = inspect(chapter.cute.compile(chapter.specialized_gemm_launch, *tensors, chapter.Plan()))
    assert shared.spills == 0 and shared.count("WARPGROUP.DEPBAR") == 2 and shared.count("USETMAXREG") == 2
    assert shared.registers == 168  # 65536 / 384, by eights


def test_a_single_instruction_has_to_fit_the_share_at_launch(chapter: ModuleType, device: str) -> None:
    """The chapter's claim of three consumers: 128 accumulators of one WGMMA do not fit 128 registers, 96 do."""
    unchecked = notebooks.changed(CHAPTER, [("    ring.refuse(mA, mB, mC, plan)\n", "")]).specialized_gemm_launch

    def compiled(bN: int) -> Any:
        plan = chapter.Plan((192, bN, 64), (3, 1), bN, stages=2, registers=(32, 160))
        shapes = ((192, 64), (bN, 64), (192, bN))
        tensors = [torch.zeros(shape, dtype=torch.bfloat16, device=device) for shape in shapes]
        return chapter.cute.compile(unchecked, *(chapter.from_dlpack(t, assumed_align=16) for t in tensors), plan)

    found = inspect(compiled(192))
    assert found.registers == 128 and found.spills == 0
    with pytest.raises(Exception, match=r"Insufficient registers \(128\) to compile instruction") as refused:
        compiled(256)
    assert "register target of 154 or higher" in str(refused.value)


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("give", "take", "meet", "hangs"),
    [(40, 232, True, False), (40, 240, True, True), (None, 232, True, True), (40, 240, False, True)],  # as the H200
)
def test_a_budget_of_registers_hangs_exactly_if_it_does_not_fit(
    chapter: ModuleType, give: int | None, take: int, meet: bool, hangs: bool
) -> None:
    counts = torch.zeros(384, dtype=torch.int32)
    said = mistakes.report(chapter.registers, counts, give, take, meet)
    if hangs:
        assert said.startswith("Deadlock") and f"wait at setmaxnreg.inc {take}" in said
    else:
        assert mistakes.faultless(said) and (counts == 1).all()


@pytest.mark.emulator
def test_the_two_roles_need_their_wait(chapter: ModuleType) -> None:
    X, Y = torch.arange(32, dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    assert mistakes.faultless(mistakes.report(chapter.two_roles, X, Y)) and (Y == 2 * X.flip(0)).all()
    line = re.search(r'WAIT = "(.*)"', exercises.cell(CHAPTER, "probe-break"))
    assert line
    without = notebooks.changed(CHAPTER, [(line[1].replace("\\n", "\n"), "")])
    said = mistakes.report(without.two_roles, X, Y)
    assert said.startswith("MissingBarrier: load of shared memory") and "mY[lane] = 2 * sX[31 - lane]" in said


SAYS = {  # the fault, and the line that the report names
    "every consumer thread is counted": ("Deadlock", "248 of 256 arrivals"),
    "only one consumer is counted": ("IllegalInstruction: 8 more arrivals", "mbarrier_arrive(empty"),
    "the producer waits for its own turn": ("Deadlock", "mbarrier_wait(empty + stage, (kt // stages & 1))"),
    "the producer never waits": ("IllegalInstruction: one more arrival", "mbarrier_arrive_and_expect_tx"),
    "the stage in use is given back": ("InFlight: a copy overwrites shared memory", "cute.copy(load_A"),
    "half of the bytes are announced": ("Deadlock", "12288 bytes more than announced"),
    "no registers are given back": ("Deadlock", "setmaxnreg.inc 232"),
}


@pytest.mark.emulator
def test_mistakes(chapter: ModuleType, rng: np.random.Generator) -> None:
    assert {*SAYS} == {*chapter.MISTAKES}
    A, B = normal(rng, "cpu", torch.float16, (128, 448), (64, 448))
    for name, (fault, where) in SAYS.items():
        module = notebooks.changed(CHAPTER, chapter.MISTAKES[name])
        said = mistakes.report(module.specialized_gemm_launch, A, B, torch.zeros(128, 64).half(), chapter.SMALL)
        assert said.startswith(fault) and where in said, (name, said)


@pytest.mark.emulator
def test_a_budget_can_be_tried_on_a_gpu(chapter: ModuleType) -> None:
    launch, right = chapter.attempt("probe: 40 and 232")
    for _ in range(2):
        launch()
        assert right()


@pytest.mark.emulator
def test_the_benchmark_has_rows_for_every_variant(
    chapter: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(chapter, "SIZE", 256)
    benchmarks.keep_tables_in(tmp_path, monkeypatch)
    monkeypatch.setattr(chapter.mistakes, "on_gpu", lambda notebook, names: [{"mistake": name} for name in names])
    monkeypatch.setattr(chapter, "PLANS", {name: chapter.PLANS[name] for name in ("two consumers, 128x256",)})
    timed = benchmarks.without_a_clock(chapter, monkeypatch)
    rows = bench.validated(chapter.benchmark(), CHAPTER)
    assert timed == ["12 ring", *chapter.variants()] and len(timed) == 4
    assert sum(bool(row.get("rung")) for row in rows) == 1
    written = chapter.records.read(CHAPTER, "mistakes")
    assert [row["mistake"] for row in written] == [*chapter.BUDGETS, *chapter.MISTAKES]


def test_the_librarys_names_are_its_names() -> None:
    """What the table of names says of cutlass.pipeline."""
    text = exercises.cell(CHAPTER, "names-md")
    for name in ("producer_acquire", "producer_tail", "consumer_wait", "consumer_release"):
        assert f"`{name}`" in text and hasattr(cutlass.pipeline.PipelineTmaAsync, name)
    for name in ("index", "phase", "advance"):
        assert f"`{name}`" in text and hasattr(cutlass.pipeline.PipelineState, name)


# -- the exercises --------------------------------------------------------------------------------------------------

ANSWERS = """
import numpy as np


@cute.jit
def announces_later(load: cute.CopyAtom, tXgX: cute.Tensor, tXsX: cute.Tensor, full, empty, tiles):
    for t in cutlass.range(tiles, unroll=1):
        cute.arch.mbarrier_wait(empty + t % RING, ((t // RING) & 1) ^ 1)
        cute.copy(load, tXgX[None, t], tXsX[None, t % RING], tma_bar_ptr=full + t % RING)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full + t % RING, TILE_BYTES)


@cute.jit
def counts_stages(load: cute.CopyAtom, tXgX: cute.Tensor, tXsX: cute.Tensor, full: cute.Pointer, empty: cute.Pointer,
                  tiles: cutlass.Int32):
    stage, parity = cutlass.Int32(0), cutlass.Int32(1)
    for t in cutlass.range(tiles, unroll=1):
        cute.arch.mbarrier_wait(empty + stage, parity)
        with cute.arch.elect_one():
            cute.arch.mbarrier_expect_tx(full + stage, TILE_BYTES)
            cute.arch.mbarrier_arrive(full + stage)
        cute.copy(load, tXgX[None, t], tXsX[None, stage], tma_bar_ptr=full + stage)
        stage += 1
        if stage == RING:
            stage = cutlass.Int32(0)
            parity = parity ^ 1


@cute.jit
def waits_for_nothing(load: cute.CopyAtom, tXgX: cute.Tensor, tXsX: cute.Tensor, full, empty, tiles):
    for t in cutlass.range(tiles, unroll=1):
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full + t % RING, TILE_BYTES)
        cute.copy(load, tXgX[None, t], tXsX[None, t % RING], tma_bar_ptr=full + t % RING)


@cute.jit
def the_first_tile_only(load: cute.CopyAtom, tXgX: cute.Tensor, tXsX: cute.Tensor, full, empty, tiles):
    for t in cutlass.range(tiles, unroll=1):
        cute.arch.mbarrier_wait(empty + t % RING, ((t // RING) & 1) ^ 1)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full + t % RING, TILE_BYTES)
        cute.copy(load, tXgX[None, 0], tXsX[None, t % RING], tma_bar_ptr=full + t % RING)


@cute.jit
def eight_tiles(load: cute.CopyAtom, tXgX: cute.Tensor, tXsX: cute.Tensor, full, empty, tiles):
    producer()(load, tXgX, tXsX, full, empty, 8)


@cute.jit
def requests_of_three_turns(load: cute.CopyAtom, tXgX: cute.Tensor, tXsX: cute.Tensor, full, empty, tiles):
    for t in cutlass.range(tiles, unroll=1):
        cute.arch.mbarrier_wait(empty + t % RING, cutlass.Int32(t // RING != 1))
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full + t % RING, TILE_BYTES)
        cute.copy(load, tXgX[None, t], tXsX[None, t % RING], tma_bar_ptr=full + t % RING)


@cute.jit
def reads_eight_tiles(sX: cute.Tensor, mY: cute.Tensor, full, empty, tiles):
    consumer()(sX, mY, full, empty, 8)


@cute.jit
def reads_of_three_turns(sX: cute.Tensor, mY: cute.Tensor, full, empty, tiles):
    lane, half = cute.arch.lane_idx(), cute.arch.warp_idx() - 1
    for t in cutlass.range(tiles, unroll=1):
        cute.arch.mbarrier_wait(full + t % RING, cutlass.Int32(t // RING == 1))
        for i in cutlass.range_constexpr(8):
            value = sX[4 * half + i % 4, lane + 32 * (i // 4), t % RING]
            mY[8 * t + 4 * half + i % 4, lane + 32 * (i // 4)] = value + value
        cute.arch.sync_warp()
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(empty + t % RING)


@cute.jit
def by_columns(sX: cute.Tensor, mY: cute.Tensor, full, empty, tiles):
    lane, half = cute.arch.lane_idx(), cute.arch.warp_idx() - 1
    for t in cutlass.range(tiles, unroll=1):
        cute.arch.mbarrier_wait(full + t % RING, (t // RING) & 1)
        for row in cutlass.range_constexpr(8):
            mY[8 * t + row, 32 * half + lane] = sX[row, 32 * half + lane, t % RING] * cutlass.Float16(2.0)
        cute.arch.sync_warp()
        if lane == 0:
            cute.arch.mbarrier_arrive(empty + t % RING)


@cute.jit
def one_tile_late(sX: cute.Tensor, mY: cute.Tensor, full, empty, tiles):
    lane, half = cute.arch.lane_idx(), cute.arch.warp_idx() - 1
    for t in cutlass.range(tiles, unroll=1):
        cute.arch.mbarrier_wait(full + t % RING, (t // RING) & 1)
        for i in cutlass.range_constexpr(8):
            value = sX[4 * half + i % 4, lane + 32 * (i // 4), t % RING]
            mY[8 * t + 4 * half + i % 4, lane + 32 * (i // 4)] = value + value
        cute.arch.sync_warp()
        if t > 0:
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive(empty + (t - 1) % RING)


@cute.jit
def every_lane_arrives(sX: cute.Tensor, mY: cute.Tensor, full, empty, tiles):
    lane, half = cute.arch.lane_idx(), cute.arch.warp_idx() - 1
    for t in cutlass.range(tiles, unroll=1):
        cute.arch.mbarrier_wait(full + t % RING, (t // RING) & 1)
        for i in cutlass.range_constexpr(8):
            value = sX[4 * half + i % 4, lane + 32 * (i // 4), t % RING]
            mY[8 * t + 4 * half + i % 4, lane + 32 * (i // 4)] = value + value
        cute.arch.mbarrier_arrive(empty + t % RING)


@cute.jit
def ones(sX: cute.Tensor, mY: cute.Tensor, full, empty, tiles):
    lane, half = cute.arch.lane_idx(), cute.arch.warp_idx() - 1
    for t in cutlass.range(tiles, unroll=1):
        for i in cutlass.range_constexpr(8):
            mY[8 * t + 4 * half + i % 4, lane + 32 * (i // 4)] = cutlass.Float16(1.0)
        cute.arch.mbarrier_wait(full + t % RING, (t // RING) & 1)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(empty + t % RING)


@cute.jit
def nans(sX: cute.Tensor, mY: cute.Tensor, full, empty, tiles):
    consumer()(sX, mY, full, empty, tiles)
    for t in cutlass.range(tiles, unroll=1):
        mY[8 * t + 4 * (cute.arch.warp_idx() - 1), cute.arch.lane_idx()] = cutlass.Float16(float("nan"))
"""
NUMBERS = exercises.NUMBERS
CHECKS: dict[str, tuple[list[str], list[str]]] = {  # wrong answers, and right ones
    "check_four": (
        ["40, 232", "32, 104", "40, 112", "0, 112", "33, 112", "32, 160", *(f"{x}, 112" for x in NUMBERS)],
        ["32, 112", "np.int64(24), 112.0"],
    ),
    "check_produce": (
        [
            *(*exercises.FUNCTIONS, "waits_for_nothing", "the_first_tile_only", "producer(parity=0)"),
            *("eight_tiles", "requests_of_three_turns"),
        ],
        ["counts_stages", "producer()", "announces_later"],
    ),
    "check_consume": (
        [
            *(*exercises.FUNCTIONS, "ones", "nans", "every_lane_arrives", "consumer(early=True)"),
            *("reads_eight_tiles", "reads_of_three_turns"),
        ],
        ["by_columns", "one_tile_late", "consumer(kept=2)"],
    ),
    "check_hangs": (
        ["None", "'text'", "1.0", "(1, 1, 0, 0, 1)", "(True,) * 4", "[True] * 5", "float('nan')", "np.float64(1)"],
        ["(True, True, False, False, True)", "np.array([1, 1, 0, 0, 1]) == 1", "torch.tensor([1, 1, 0, 0, 1]).bool()"],
    ),
}


HINTS = {  # wrong answers, and what the check says of each
    1: {
        "32, 160": "more than 640 threads have at launch",
        "40, 232": "more than 640 threads have at launch",
        "24, 104": "the consumers can have more",
    },
    2: {"producer(parity=0)": "wait for phase 0 of the mbarrier", "eight_tiles": "InFlight: the CTA exits while"},
    3: {
        "consumer(kept=6)": "warps [0] wait for phase 0 of the mbarrier",
        "reads_eight_tiles": "Deadlock",
        "reads_of_three_turns": "",
    },
}
JUDGES = {1: "check_four", 2: "check_produce", 3: "check_consume"}
names = exercises.judges_of(CHAPTER, ANSWERS)
BUDGET = {1: "96", 2: "no number is asked for", 3: "no number is asked for"}  # what no hint may give away
test_wrong_answers_are_told_why = exercises.wrong_answers_are_told_why(JUDGES, HINTS, secret=BUDGET.__getitem__)
test_answers_are_judged = exercises.answers_are_judged(CHECKS)
test_each_solution_belongs_to_an_exercise = exercises.solutions_belong_to_exercises(CHAPTER)
