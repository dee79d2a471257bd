"""Chapter 09's kernel against float64, its layouts against arithmetic on addresses, its counts against the banks."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut import layouts
from cutetut.course import notebooks
from cutetut.inspect import descriptors, profile
from cutetut.measure import bench, mistakes
from tests.chapters import benchmarks, contract, exercises
from tests.chapters.products import assert_product, exact, normal
from tests.chapters.wgmma import BLAS, DESCRIPTORS, SWIZZLES, assert_described, constraints

CHAPTER = "09_swizzled_smem"
WRITTEN = ("counters", "mistakes")


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, exercises.HELPER_TAGS)


def stored(rng: np.random.Generator, device: str, dtype: torch.dtype, rows: int, k: int, mode: str) -> torch.Tensor:
    (values,) = normal(rng, device, dtype, (rows, k) if mode == "K" else (k, rows))
    return values if mode == "K" else values.T


def multiply(chapter: ModuleType, A: torch.Tensor, B: torch.Tensor, out: torch.dtype, plan: Any) -> torch.Tensor:
    C = torch.full((A.shape[0], B.shape[0]), torch.nan, dtype=out, device=A.device)
    tensors = [chapter.from_dlpack(t, assumed_align=16) for t in (A, B, C)]
    chapter.cute.compile(chapter.swizzled_gemm_launch, *tensors, plan)(*tensors)
    return C


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("blas", BLAS)
def test_every_major_and_swizzle_matches_float64(
    chapter: ModuleType, rng: np.random.Generator, device: str, blas: str, swizzle: str
) -> None:
    A, B = (stored(rng, device, torch.float16, 128, 192, mode) for mode in BLAS[blas])
    assert_product(multiply(chapter, A, B, torch.float32, chapter.Plan(swizzle=swizzle, stages=2)), A, B)


@pytest.mark.parametrize("blas", ["NN", "TT"])
def test_two_warpgroups_and_parts_of_larger_matrices(
    chapter: ModuleType, rng: np.random.Generator, device: str, blas: str
) -> None:
    a, b = BLAS[blas]
    plan = chapter.Plan(tile=(128, 256, 64), warpgroups=(2, 1), atom_n=256, stages=2)
    A = stored(rng, device, torch.bfloat16, 256, 256, a)[128:, 64:]
    B = stored(rng, device, torch.bfloat16, 256, 256, b)[:, 64:]
    assert_product(multiply(chapter, A, B, torch.bfloat16, plan), A, B)


@pytest.mark.parametrize(
    ("shape", "options", "error", "says"),
    [
        ((100, 128, 64), {}, ValueError, "multiples of 128"),
        ((128, 128, 96), {}, ValueError, "multiples of 128"),
        ((128, 128, 64), {"swizzle": "SW256"}, ValueError, "must be one of INTER"),
        ((128, 128, 64), {"atom_n": 48}, ValueError, "does not divide"),
        ((48, 128, 64), {"tile": (48, 128, 64)}, ValueError, "does not divide"),
    ],
)
def test_what_it_refuses(
    chapter: ModuleType, rng: np.random.Generator, device: str, shape: Any, options: Any, error: Any, says: str
) -> None:
    M, N, K = shape
    A, B = normal(rng, device, torch.float16, (M, K), (N, K))
    with pytest.raises(error, match=says):
        multiply(chapter, A, B, torch.float32, chapter.Plan(**options))


def test_it_refuses_types_and_layouts(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    A, B = normal(rng, device, torch.float16, (128, 64), (128, 64))
    apart = (matrix[:, ::2] for matrix in normal(rng, device, torch.float16, (128, 128), (128, 128)))
    for a, b, out, error, says in (
        (A.float(), B.float(), torch.float32, TypeError, "both must be Float16"),
        (A, B.bfloat16(), torch.float32, TypeError, "both must be Float16"),
        (A, B, torch.float64, TypeError, "C is"),
        (*apart, torch.float32, ValueError, "A is copied by 16 bytes: its stride"),
    ):
        with pytest.raises(error, match=says):
            multiply(chapter, a, b, out, chapter.Plan())


def test_the_two_constraints_are_independent(chapter: ModuleType) -> None:
    found = constraints(chapter.mma_constraint, chapter.layout_constraint, (chapter.K_MAJOR, chapter.MN_MAJOR))
    assert set(found.values()) == {(a, b) for a in (True, False) for b in (True, False)}
    for (rows, k, mode, swizzle), (_, fits) in found.items():
        shape = chapter.atom_shape(f"{chapter.letters(mode)}_{swizzle}")
        assert fits == (rows % shape[0] == 0 and k % shape[1] == 0)


def test_elements_lie_where_the_arithmetic_says(chapter: ModuleType, tmp_path: Path) -> None:
    source = notebooks.definitions(exercises.cell(CHAPTER, "place"))
    names = exercises.from_file(source, tmp_path / "place.py", dict(vars(chapter)))
    for kind in ("K_SW32", "K_SW128", "MN_SW64"):
        assert (names["places"](kind) == chapter.as_it_lies(kind, (64, 64))).all()


@pytest.mark.emulator
def test_bank_conflicts_are_those_of_the_banks(chapter: ModuleType) -> None:
    """By hand: 8 threads write along a row, in as many groups of banks as the row has pieces of 16 bytes."""
    for name, launch, mode, constants in chapter.conflict_cases():
        if constants[0].swizzle == "SW64":  # three of four are enough, and quicker
            continue
        counts = profile.count(launch, chapter.matrix(128, 64, mode), *constants)
        pieces = 1 << SWIZZLES.index(constants[0].swizzle)
        if name.startswith("write"):
            each = counts.wavefronts("cp.async") / counts.requests("cp.async", "shared")
            assert each == 4 * 8 / pieces, name
        elif name.startswith("store"):
            each = counts.wavefronts("st") / counts.requests("st", "shared")
            assert each == 4 * 8 / pieces, name
        else:
            each = counts.wavefronts("ld") / counts.requests("ld", "shared")
            assert each == (pieces if name.endswith("without XOR") else 1), name


@pytest.mark.parametrize(("mode", "swizzle", "expected"), DESCRIPTORS)
@pytest.mark.emulator
def test_descriptors_of_the_running_kernel(chapter: ModuleType, mode: str, swizzle: str, expected: Any) -> None:
    A, B = (chapter.matrix(128, 64, mode) for _ in range(2))
    plan = chapter.Plan(stages=2, atom_n=64, swizzle=swizzle)
    issues = descriptors.used(chapter.swizzled_gemm_launch, A, B, torch.zeros(128, 128), plan)
    assert len(issues) == 2 * 2 * 4
    assert_described(issues, expected)


LOOP = """        for k in cutlass.range_constexpr(bK // ATOM_K):
            tiled_mma.set(warpgroup.Field.ACCUMULATE, kt + k > 0)
            cute.gemm(tiled_mma, tCrC, tCrA[None, None, k, stage], tCrB[None, None, k, stage], tCrC)
"""
AT_ONCE = """        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
        cute.gemm(tiled_mma, tCrC, tCrA[None, None, None, stage], tCrB[None, None, None, stage], tCrC)
"""


CLEARED = ("    # Copy: request the first", "    tCrC.fill(0.0)\n    # Copy: request the first")


@pytest.mark.emulator
@pytest.mark.parametrize("replaced", [[], [(LOOP, AT_ONCE), CLEARED]])
def test_the_loop_over_k_is_outermost_also_if_cute_gemm_has_it(replaced: list[tuple[str, str]]) -> None:
    module = notebooks.changed("08_wgmma", replaced)
    A = torch.randn(128, 64, generator=torch.Generator().manual_seed(9)).half()
    C = torch.zeros(128, 128)
    issues = descriptors.used(module.wgmma_gemm_launch, A, A, C, module.Plan(atom_n=64, stages=2))
    starts = np.array([[bits & 0x3FFF for bits in (issue.a_bits or 0, issue.b_bits)] for issue in issues])
    steps = (starts - starts[0]).tolist()
    order = [(a % 512 // 2, a // 512, b // 512) for a, b in steps]  # (k, m, n), by the strides of tCrA, 512 and 2
    assert order == [(k, m, n) for k in range(4) for m in range(2) for n in range(2)]
    assert_product(C, A, A)


def test_the_kernel_keeps_to_the_contract(chapter: ModuleType) -> None:
    contract.assert_one_idea(chapter.wgmma.wgmma_gemm_kernel, chapter.swizzled_gemm_kernel)
    contract.assert_contract(CHAPTER)


@pytest.mark.emulator
@pytest.mark.parametrize(("name", "share"), [("B stored under S<2,4,3>", 1 / 2), ("B stored without a swizzle", 7 / 8)])
def test_the_wrong_swizzle_is_legal_and_wrong_where_the_text_says(chapter: ModuleType, name: str, share: float) -> None:
    """The rows of each 8 whose 16 bytes lie elsewhere, as columns of C; a sum may be right by chance."""
    module = notebooks.changed(CHAPTER, chapter.MISTAKES[name])
    A, B, C = chapter.matrix(128, 128, "K"), chapter.matrix(128, 128, "K"), torch.zeros(128, 128)
    assert mistakes.faultless(mistakes.report(module.swizzled_gemm_launch, A, B, C, chapter.Plan(stages=2)))
    wrong = np.abs(C.numpy() - exact(A, B)) > 1e-3
    assert wrong.any(axis=0).mean() == share and share - 0.01 < wrong.mean() <= share


@pytest.mark.emulator
def test_a_mistake_can_be_tried_on_a_gpu(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `mistakes.on_gpu` calls: without the replacement it is right."""
    monkeypatch.setattr(chapter, "attempt", partial(chapter.attempt, size=128))
    benchmarks.assert_tried(chapter, "B stored under S<2,4,3>")
    monkeypatch.setattr(chapter, "MISTAKES", {"none": []})
    benchmarks.assert_tried(chapter, "none", right=True)


@pytest.mark.emulator
def test_the_benchmark_has_rows_for_every_case(
    chapter: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(chapter, "SIZE", 128)
    benchmarks.keep_tables_in(tmp_path, monkeypatch)
    benchmarks.count_launches(16, monkeypatch)
    monkeypatch.setattr(chapter.mistakes, "on_gpu", lambda notebook, names: [{"mistake": name} for name in names])
    timed = benchmarks.without_a_clock(chapter, monkeypatch)
    rows = bench.validated(chapter.benchmark(), CHAPTER)
    assert timed[0].startswith("08") and timed[1:6] == [f"09 {name}" for name, *_ in chapter.CASES]
    assert len(timed) == 6 + 8 and sum(bool(row.get("rung")) for row in rows) == 1
    assert len(chapter.counted_on_gpu()) == 16
    counters, tried = (json.loads((tmp_path / f"{CHAPTER}_{what}.json").read_text())[what] for what in WRITTEN)
    assert len(counters) == 16 and [row["mistake"] for row in tried] == [*chapter.MISTAKES]


def test_the_ceiling_does_the_operations_it_is_timed_for(
    chapter: ModuleType, rng: np.random.Generator, device: str
) -> None:
    A, B = normal(rng, device, torch.float16, (64, 64), (128, 64))
    mma = chapter.cutlass.Float16, chapter.K_MAJOR, chapter.K_MAJOR, chapter.Plan()
    place = layouts.partition(lambda: chapter.make_tiled_mma(*mma), (64, 128)).place
    for mode, swizzle in ((chapter.MN_MAJOR, "SW32"), (chapter.K_MAJOR, "INTER")):
        D = torch.full((128, 64), torch.nan, device=device)
        tensors = [chapter.from_dlpack(t, assumed_align=16) for t in (A, B, D)]
        chapter.cute.compile(chapter.alone, *tensors, mode, swizzle, 2, 5)(*tensors)
        assert np.abs(D.cpu().numpy() - 5 * exact(A, B)[place[..., 0], place[..., 1]]).max() < 1e-3


def test_the_text_has_the_tables_cycles_and_clocks() -> None:
    """Cycles per K tile of an SM, from the mean clock while a kernel was timed, beside shared memory's on paper."""
    rows = {(r["kernel"][3:], r["method"].split()[0]): r for r in bench.read(CHAPTER)["rows"]}
    text = exercises.prose(CHAPTER, "verdict-md")
    paper = {"INTER": 2048 + 384, "SW32": 1024 + 384, "SW64": 512 + 384, "SW128": 256 + 384}

    def cycles(swizzle: str, method: str = "burst") -> float:
        row = rows[f"{swizzle} TN", method]
        return float(row["ours_us"] * row["sm_mhz"] / (32 * 32 * 64 / 132))

    bound = [f"{paper['SW128'] / paper[swizzle]:.2f}" for swizzle in ("INTER", "SW32", "SW64")]
    found = [f"{cycles('SW128') / cycles(swizzle):.2f}" for swizzle in ("INTER", "SW32", "SW64")]
    shares = [f"{paper[swizzle] / cycles(swizzle):.2f}" for swizzle in paper]
    inter, wide, alone = rows["INTER TN", "burst"], rows["SW128 TN", "burst"], rows["alone, K_SW128", "sustained"]
    of_08 = {r["method"].split()[0]: r for r in bench.read("08_wgmma")["rows"] if r["kernel"] == "08 WGMMA alone"}
    for said in (
        "{} for `INTER`, {} for `SW32`, {} for `SW64`".format(*bound),
        f"Measured, each at its own clock: {', '.join(found)}.",
        f"it is {', '.join(shares[:3])} and {shares[3]} of the cycles",
        f"`SW64` takes {cycles('SW64', 'sustained'):.0f} cycles, fewer than its {paper['SW64']}.",
        f"yet runs at {inter['sm_mhz']} MHz, not 1980. Sustained it has {rows['INTER TN', 'sustained']['sm_mhz']},",
        f"`SW128`, {wide['ours_tflops'] / inter['ours_tflops']:.1f} times as fast, falls from {wide['sm_mhz']} MHz "
        f"to {rows['SW128 TN', 'sustained']['sm_mhz']}.",
        f"has {rows['alone, K_SW128', 'burst']['ours_tflops']:.0f} TFLOP/s in bursts and {alone['ours_tflops']:.0f} "
        f"sustained, chapter 08 has {of_08['burst']['ours_tflops']:.0f} and {of_08['sustained']['ours_tflops']:.0f}.",
        f"{of_08['sustained']['sm_mhz']} MHz against {alone['sm_mhz']}.",
    ):
        assert said in text, said
    assert all(paper[swizzle] < cycles(swizzle) for swizzle in paper)
    assert cycles("SW64", "sustained") < paper["SW64"] and inter["ratio"] < 1 / 5
    # in the words of the text: overlapping brackets sustained, 1 percent in bursts
    across = [rows["SW128 NT", method]["ratio_range"] for method in ("burst", "sustained")]
    along = [rows["SW128 TN", method]["ratio_range"] for method in ("burst", "sustained")]
    assert across[0][0] > along[0][1] and across[1][0] < along[1][1] and along[1][0] < across[1][1]
    assert round(rows["SW128 NT", "burst"]["ours_tflops"] / wide["ours_tflops"], 2) == 1.01
