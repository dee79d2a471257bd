"""Chapter 07's tensor-core GEMM, loaded from its notebook: shapes, dtypes, plans, refusals, costs and mistakes."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut.course import notebooks
from cutetut.course.difference import difference
from cutetut.inspect import profile
from cutetut.measure import bench, mistakes, records
from tests.chapters.products import (
    assert_product,
    assert_spreads_nan_and_inf,
    assert_writes_its_result_alone,
    exact,
    normal,
)

CHAPTER = "07_mma_sync"
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("128x128x32, 4 warps", (128, 128, 32)),
        ("128x128x32, 4 warps", (128, 256, 64)),
        ("128x128x32, 4 warps", (256, 128, 224)),
        ("128x128x64, 4 warps", (128, 128, 64)),
        ("128x128x64, 4 warps", (256, 128, 320)),
        ("128x256x64, 8 warps", (128, 256, 128)),
        ("128x256x64, 8 warps", (128, 512, 256)),
    ],
    ids=str,
)
def test_every_plan_matches_float64(
    chapter: ModuleType, rng: np.random.Generator, device: str, name: str, shape: tuple[int, int, int]
) -> None:
    M, N, K = shape
    A, B = normal(rng, device, BF16, (M, K), (N, K))
    C = torch.full((M, N), float("nan"), dtype=BF16, device=device)
    assert chapter.mma_gemm(A, B, C, chapter.PLANS[name]) is C
    assert_product(C, A, B)


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("out", ["same", "float32"])
def test_types(chapter: ModuleType, rng: np.random.Generator, device: str, dtype: torch.dtype, out: str) -> None:
    A, B = normal(rng, device, dtype, (128, 96), (128, 96))
    C = torch.full((128, 128), float("nan"), dtype=F32 if out == "float32" else dtype, device=device)
    chapter.mma_gemm(A, B, C)
    assert_product(C, A, B)


@pytest.mark.parametrize(
    "options",
    [
        {"stages": 2},
        {"stages": 5},
        {"swizzled": False},
        {"swizzled": False, "pad": 8},
        {"tile": (64, 64, 64), "stages": 4},
        {"tile": (32, 64, 32), "warps": (1, 1)},
        {"tile": (128, 64, 32), "warps": (4, 1)},
        {"tile": (256, 128, 64), "warps": (4, 2)},
        {"tile": (64, 128, 64), "warps": (1, 4), "stages": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("k_tiles", [1, 2, 5])
def test_other_plans(
    chapter: ModuleType, rng: np.random.Generator, device: str, options: dict[str, Any], k_tiles: int
) -> None:
    """Fewer K tiles than stages, as many, and more."""
    plan = chapter.Plan(**options)
    M, N, bK = plan.tile
    A, B = normal(rng, device, F16, (M, k_tiles * bK), (N, k_tiles * bK))
    assert_product(chapter.mma_gemm(A, B, plan=plan), A, B)


def test_integers_are_exact(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    A, B = (torch.from_numpy(rng.integers(-8, 9, (n, 256))).to(BF16).to(device) for n in (128, 256))
    C = torch.full((128, 256), float("nan"), device=device)
    for plan in chapter.PLANS.values():
        assert np.array_equal(chapter.mma_gemm(A, B, C.fill_(float("nan")), plan).cpu().numpy(), exact(A, B))


def test_every_element_is_in_its_place(chapter: ModuleType, device: str) -> None:
    """One nonzero k per row: a swapped index anywhere changes the result, and no sum can hide it."""
    M, N, K = 128, 256, 96
    A, B = torch.zeros(M, K), torch.zeros(N, K)
    A[torch.arange(M), torch.arange(M) % K] = torch.arange(M) + 1.0
    B[:, :] = torch.arange(K) + 1.0
    B[torch.arange(N), torch.arange(N) % K] = -1.0
    C = torch.full((M, N), float("nan"), device=device)
    chapter.mma_gemm(A.bfloat16().to(device), B.bfloat16().to(device), C)
    assert np.array_equal(C.cpu().numpy(), exact(A, B))


def test_nan_and_inf_spread_to_their_row_and_column_only(
    chapter: ModuleType, rng: np.random.Generator, device: str
) -> None:
    assert_spreads_nan_and_inf(chapter.mma_gemm, *normal(rng, device, BF16, (128, 64), (128, 64)))


def test_writes_into_the_tensor_it_is_given_and_nowhere_else(
    chapter: ModuleType, rng: np.random.Generator, device: str
) -> None:
    assert_writes_its_result_alone(chapter.mma_gemm, *normal(rng, device, BF16, (128, 32), (128, 32)))


def test_compiles_once_per_shape_type_and_plan(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    A, B = normal(rng, device, BF16, (128, 32), (128, 32))
    chapter.mma_gemm(A, B)
    before = dict(chapter._compiled)
    chapter.mma_gemm(B, A)
    assert chapter._compiled == before
    chapter.mma_gemm(A, B, plan=chapter.Plan(stages=2))
    assert len(chapter._compiled) == len(before) + 1


# Bad input ----------------------------------------------------------------------------------------------------

GOOD = (128, 64)
REFUSED: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "ragged M": (lambda z: (z(100, 64), z(GOOD)), {}, ValueError, "M=100"),
    "ragged N": (lambda z: (z(GOOD), z(130, 64)), {}, ValueError, "N=130"),
    "ragged K": (lambda z: (z(128, 40), z(128, 40)), {}, ValueError, "K=40"),
    "empty K": (lambda z: (z(128, 0), z(128, 0)), {}, ValueError, "none of them 0"),
    "empty M": (lambda z: (z(0, 64), z(GOOD)), {}, ValueError, "none of them 0"),
    "different K": (lambda z: (z(GOOD), z(128, 32)), {}, ValueError, "MxK"),
    "M-major": (lambda z: (z(64, 128).T, z(GOOD)), {}, ValueError, "row-major without gaps"),
    "every other column": (lambda z: (z(GOOD), z(128, 128)[:, ::2]), {}, ValueError, "B has strides"),
    "float32": (lambda z: (z(GOOD).float(), z(GOOD).float()), {}, TypeError, "A is torch.float32"),
    "mixed types": (lambda z: (z(GOOD), z(GOOD).half()), {}, TypeError, "B is torch.float16"),
    "C of the other type": (lambda z: (z(GOOD), z(GOOD), z(128, 128).half()), {}, TypeError, "C is torch.float16"),
    "C of another shape": (lambda z: (z(GOOD), z(GOOD), z(128, 256)), {}, ValueError, "MxN"),
    "a batch": (lambda z: (z(2, *GOOD), z(GOOD)), {}, ValueError, "3 dimensions"),
    "off by 2 bytes": (lambda z: (z(8193)[1:].reshape(GOOD), z(GOOD)), {}, ValueError, "16 bytes"),
    "another device": (lambda z: (z(GOOD).to("meta"), z(GOOD)), {}, ValueError, "A is on meta"),
    "bK = 16": (lambda z: (z(GOOD), z(GOOD)), {"tile": (128, 128, 16)}, ValueError, "bK = 16"),
    "bM = 0": (lambda z: (z(GOOD), z(GOOD)), {"tile": (0, 128, 32)}, ValueError, "does not divide"),
    "bM = 48": (lambda z: (z(GOOD), z(GOOD)), {"tile": (48, 128, 32)}, ValueError, "does not divide"),
    "too many warps": (lambda z: (z(GOOD), z(GOOD)), {"warps": (8, 8)}, ValueError, "at most 32"),
    "no warp": (lambda z: (z(GOOD), z(GOOD)), {"warps": (0, 2)}, ValueError, "at least one"),
    "pad and swizzle": (lambda z: (z(GOOD), z(GOOD)), {"pad": 8}, ValueError, "a swizzle or padded"),
    "pad of 4": (lambda z: (z(GOOD), z(GOOD)), {"pad": 4, "swizzled": False}, ValueError, "multiple of 8"),
    "M-major in shared memory": (lambda z: (z(GOOD), z(GOOD)), {"k_major": False}, ValueError, "rows along K"),
    "one stage": (lambda z: (z(GOOD), z(GOOD)), {"stages": 1}, ValueError, "2 stages at least"),
    "too many stages": (lambda z: (z(GOOD), z(GOOD)), {"stages": 15}, ValueError, "bytes at most"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_what_it_does_not_support(chapter: ModuleType, device: str, case: str) -> None:
    build, options, error, says = REFUSED[case]
    arguments = build(lambda *shape: torch.zeros(*shape, dtype=BF16, device=device))
    with pytest.raises(error, match=says):
        chapter.mma_gemm(*arguments, plan=chapter.Plan(**options))


@pytest.mark.gpu
def test_refuses_host_memory_on_a_gpu(chapter: ModuleType) -> None:
    with pytest.raises(ValueError, match="A is on cpu"):
        chapter.mma_gemm(torch.zeros(GOOD, dtype=BF16), torch.zeros(GOOD, dtype=BF16))


# What it costs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("swizzled", "wavefronts"), [(True, 4), (False, 16)])
def test_the_swizzle_removes_every_bank_conflict(chapter: ModuleType, swizzled: bool, wavefronts: int) -> None:
    tensors = [torch.zeros(shape, dtype=BF16) for shape in ((128, 64), (128, 64), (128, 128))]
    counts = profile.count(chapter.mma_gemm_launch, *tensors, chapter.Plan(swizzled=swizzled))
    assert counts.wavefronts("ldmatrix") == wavefronts * counts.requests("ldmatrix", "shared")
    assert counts.bank_conflicts("cp.async") == 0


@pytest.mark.parametrize("name", ["128x128x32, 4 warps", "128x128x64, 4 warps", "128x256x64, 8 warps"])
def test_nothing_spills(chapter: ModuleType, device: str, name: str) -> None:
    tensors = [torch.zeros(1024, 1024, dtype=BF16, device=device) for _ in range(3)]
    arguments = [chapter.from_dlpack(t, assumed_align=16) for t in tensors]
    info = chapter.inspect(chapter.cute.compile(chapter.mma_gemm_launch, *arguments, chapter.PLANS[name]))
    assert info.spills == 0
    assert info.shared_bytes == chapter.PLANS[name].shared_bytes
    assert info.registers * chapter.PLANS[name].threads <= 65536


@pytest.mark.parametrize("many", [1, 16])
def test_the_ceiling_does_the_operations_it_is_timed_for(chapter: ModuleType, device: str, many: int) -> None:
    """Each turn adds the product to each accumulator once, so the count of operations is in the result."""
    A, B, C = chapter.ceiling_problem(many)
    arguments = [chapter.from_dlpack(t, assumed_align=16) for t in (A, B, C)]
    chapter.cute.compile(chapter.ceiling, *arguments, 2, 8, 5)(*arguments)
    expected = 5 * exact(A, B)[..., None] + np.arange(many)
    assert np.abs(C.cpu().double().numpy() - expected).max() < 1e-3


@pytest.mark.parametrize(("warps", "many", "sms"), [(4, 1, 2), (8, 16, 3)])
def test_the_ceilings_operations_cover_a_product(chapter: ModuleType, warps: int, many: int, sms: int) -> None:
    _, flops = chapter.ceiling_launch(warps, many, sms, size=128)
    one_turn = 2 * 16 * 8 * 16 * many * warps * sms
    assert 2 * 128**3 <= flops < 2 * 128**3 + one_turn and flops % one_turn == 0


def test_whatever_is_measured_computes_the_product(
    chapter: ModuleType, rng: np.random.Generator, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The benchmark's launches at a small size, chapter 06's among them: each checked here again, from fresh NaN."""
    monkeypatch.setattr(chapter, "LADDER", 256)
    A, B = normal(rng, device, BF16, (256, 256), (256, 256))
    C = torch.empty_like(A)
    launches = chapter.launches(A, B, C)
    assert {"06 float32", "07 16 bits on FMA units"} < launches.keys()
    assert {f"07 {name}" for name in chapter.MEASURED} < launches.keys()
    for name, launch in launches.items():
        C.fill_(float("nan"))
        launch()
        if name.startswith("07"):  # chapter 06's are of other tensors, in float32
            assert_product(C, A, B)


# From chapter 06 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("options", [{}, {"swizzled": False}, {"stages": 4}, {"tile": (128, 128, 64)}], ids=str)
def test_16_bits_on_fma_units_match_float64(
    chapter: ModuleType, rng: np.random.Generator, device: str, dtype: torch.dtype, options: dict[str, Any]
) -> None:
    plan = chapter.Plan(warps=(2, 4), **options)
    for k_tiles in (1, 5):
        A, B = normal(rng, device, dtype, (256, k_tiles * plan.tile[2]), (128, k_tiles * plan.tile[2]))
        C = torch.full((256, 128), float("nan"), dtype=dtype, device=device)
        arguments = [chapter.from_dlpack(t, assumed_align=16) for t in (A, B, C)]
        chapter.cute.compile(chapter.halves_launch, *arguments, plan)(*arguments)
        assert_product(C, A, B)


def test_the_steps_from_chapter_06_are_small(chapter: ModuleType) -> None:
    """The first changes the data and leaves the loop, the second the inner product and leaves the ring."""
    first = difference(chapter.tiling.smem_gemm_kernel, chapter.halves.smem_gemm_kernel)
    second = difference(chapter.halves.smem_gemm_kernel, chapter.mma_gemm_kernel)
    assert first.gone + first.come <= 20 and second.gone + second.come <= 30
    for word in ("wait_group", "sync_threads", "commit_group", "cute.copy(g2s"):
        assert not any(word in line for line in (*first.lines, *second.lines)), word


# Mistakes -----------------------------------------------------------------------------------------------------

SAID = {
    "none": "",
    "no wait": "InFlight",
    "a wait for one group too few": "InFlight",
    "no barrier": "MissingBarrier",
    "no empty groups": "InFlight",
    "the wrong step": "",
    "ldmatrix by half a warp": "DivergentBarrier",
}


def test_every_mistake_is_tested(chapter: ModuleType) -> None:
    assert tuple(chapter.MISTAKES) == tuple(SAID)


@pytest.mark.emulator
@pytest.mark.parametrize("name", SAID)
def test_what_the_emulator_says_of_each_mistake(chapter: ModuleType, rng: np.random.Generator, name: str) -> None:
    module = notebooks.changed(CHAPTER, chapter.MISTAKES[name])
    A, B = normal(rng, "cpu", BF16, (128, 160), (128, 160))
    C = torch.full((128, 128), float("nan"))
    said = mistakes.report(module.mma_gemm_launch, A, B, C, module.Plan())
    if SAID[name]:
        assert said.startswith(SAID[name])
        return
    assert mistakes.faultless(said)
    if name == "none":
        assert_product(C, A, B)
    else:
        assert (np.abs(C.double().numpy() - exact(A, B)) > 1).any()


@pytest.mark.emulator
def test_an_attempt_can_tell_a_right_result_from_a_wrong_one(chapter: ModuleType) -> None:
    for name, right in (("none", True), ("the wrong step", False)):
        once, is_right = chapter.attempt(name, size=128)
        once()
        assert is_right() is right


def test_the_larger_tile_is_faster_only_where_the_text_says_so() -> None:
    """At 8192 in all repeats; at 4096 they overlap. And wgmma alone is 1.4 times as fast as mma.sync alone."""
    rows = {(r["kernel"], r["M"], r["method"].split()[0]): r for r in bench.read(CHAPTER)["rows"]}

    def repeats(plan: str, size: int, method: str) -> list[float]:
        return list(rows[f"07 {plan}", size, method]["ratio_range"])

    for method in ("burst", "sustained"):
        (_, small), (large, _) = (repeats(plan, 8192, method) for plan in ("128x128x64, 4 warps", "128x256x64, 8 warps"))
        assert small < large
        (_, small), (large, _) = (repeats(plan, 4096, method) for plan in ("128x128x64, 4 warps", "128x256x64, 8 warps"))
        assert small > large
    alone = max(row["tflops"][1] for row in records.read(CHAPTER, "ceiling"))
    wgmma = [r["ours_tflops"] for r in bench.read("08_wgmma")["rows"] if "WGMMA alone" in r["kernel"]]
    assert round(max(wgmma) / alone, 1) == 1.4
