"""Chapter 08's kernels against float64, what they refuse, and what the text says of them."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut import layouts
from cutetut.course import notebooks
from cutetut.course.difference import body, difference
from cutetut.inspect import descriptors
from cutetut.inspect.compiled import inspect
from cutetut.measure import bench, mistakes, records
from tests.chapters import benchmarks, contract, exercises
from tests.chapters.products import assert_product, exact, normal

CHAPTER = "08_wgmma"
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


PLANS: dict[str, dict[str, Any]] = {
    "128x128": {},
    "64x64": {"tile": (64, 64, 64), "atom_n": 64, "stages": 2},
    "narrow atoms": {"atom_n": 8, "tile": (64, 32, 64)},
    "two along M": {"warpgroups": (2, 1)},
    "two along N": {"warpgroups": (1, 2), "atom_n": 64},
    "128x256": {"tile": (128, 256, 64), "warpgroups": (2, 1), "atom_n": 256, "stages": 4},
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize(("k_tiles", "dtype", "out"), [(1, BF16, F32), (7, F16, F16)])
def test_every_plan_matches_float64(
    chapter: ModuleType, rng: np.random.Generator, device: str, name: str, k_tiles: int, dtype: Any, out: Any
) -> None:
    plan = chapter.Plan(**PLANS[name])
    bM, bN, bK = plan.tile
    A, B = normal(rng, device, dtype, (2 * bM, k_tiles * bK), (bN, k_tiles * bK))
    C = torch.full((2 * bM, bN), float("nan"), dtype=out, device=device)
    assert_product(chapter.wgmma_gemm(A, B, C, plan), A, B)


def test_integers_are_exact_and_nothing_else_is_written(
    chapter: ModuleType, rng: np.random.Generator, device: str
) -> None:
    A, B = (torch.from_numpy(rng.integers(-8, 9, (128, 192))).to(BF16).to(device) for _ in range(2))
    memory = torch.full((3, 128, 128), 7.0, device=device)
    assert np.array_equal(chapter.wgmma_gemm(A, B, memory[1]).cpu().numpy(), exact(A, B))
    assert (memory[0] == 7).all() and (memory[2] == 7).all()


@pytest.mark.parametrize("n", [8, 64, 256])
@pytest.mark.parametrize("which", ["one", "rs"])
def test_a_single_product_and_the_map_of_the_manual(
    chapter: ModuleType, rng: np.random.Generator, device: str, n: int, which: str
) -> None:
    """Figure of PTX ISA section 9.7.15.5.1.1: row and column of each register, by its formulas."""
    A, B = normal(rng, device, F16, (64, 64), (n, 64))
    D = torch.full((128, n // 2), float("nan"), device=device)
    tensors = [chapter.from_dlpack(t, assumed_align=16) for t in (A, B, D)]
    chapter.cute.compile(getattr(chapter, which), *tensors)(*tensors)
    t, v = np.arange(128)[:, None], np.arange(n // 2)
    rows, cols = 16 * (t // 32) + t % 32 // 4 + 8 * (v // 2 % 2), 2 * (t % 4) + v % 2 + 8 * (v // 4)
    assert np.abs(D.cpu().numpy() - exact(A, B)[rows, cols]).max() < 1e-3


GOOD = (128, 64)
REFUSED: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "ragged M": (lambda z: (z(100, 64), z(GOOD)), {}, ValueError, "M=100"),
    "ragged K": (lambda z: (z(128, 40), z(128, 40)), {}, ValueError, "K=40"),
    "other K": (lambda z: (z(GOOD), z(128, 128)), {}, ValueError, "MxK"),
    "M-major": (lambda z: (z(64, 128).T, z(GOOD)), {}, ValueError, "row-major without gaps"),
    "float32": (lambda z: (z(GOOD).float(), z(GOOD).float()), {}, TypeError, "A is torch.float32"),
    "mixed": (lambda z: (z(GOOD), z(GOOD).half()), {}, TypeError, "B is torch.float16"),
    "a batch": (lambda z: (z(2, *GOOD), z(GOOD)), {}, ValueError, "3 dimensions"),
    "N of 12": (lambda z: (z(GOOD), z(GOOD)), {"atom_n": 12}, ValueError, "multiple of 8"),
    "N of 264": (lambda z: (z(GOOD), z(GOOD)), {"atom_n": 264}, ValueError, "multiple of 8"),
    "3 along M": (lambda z: (z(GOOD), z(GOOD)), {"warpgroups": (3, 1)}, ValueError, "does not divide"),
    "no warpgroup": (lambda z: (z(GOOD), z(GOOD)), {"warpgroups": (0, 1)}, ValueError, "at least one"),
    "bK = 32": (lambda z: (z(GOOD), z(GOOD)), {"tile": (128, 128, 32)}, ValueError, "bK is 64"),
    "one stage": (lambda z: (z(GOOD), z(GOOD)), {"stages": 1}, ValueError, "2 stages at least"),
    "8 stages": (lambda z: (z(GOOD), z(GOOD)), {"stages": 8}, ValueError, "bytes at most"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_what_it_does_not_support(chapter: ModuleType, device: str, case: str) -> None:
    build, options, error, says = REFUSED[case]

    def zeros(*shape: Any) -> torch.Tensor:
        return torch.zeros(*shape, device=device, dtype=BF16)

    with pytest.raises(error, match=says):
        chapter.wgmma_gemm(*build(zeros), plan=chapter.Plan(**options))


def test_the_kernel_keeps_to_the_contract(chapter: ModuleType) -> None:
    before = notebooks.load("07_mma_sync").mma_gemm_kernel
    contract.assert_one_idea(before, chapter.wgmma_gemm_kernel)
    assert difference(chapter.one_kernel, chapter.rs_kernel).come <= 8
    assert len(body(chapter.one_kernel)) <= 30
    contract.assert_contract(CHAPTER)


@pytest.mark.emulator
def test_all_threads_hold_the_same_descriptors_and_the_count_is_the_texts(chapter: ModuleType) -> None:
    """256 WGMMAs for K = 1024 and 128x128x64 with atoms of 64x64; none is fewer or more with K = 64."""
    A, B, C = (torch.zeros(s, dtype=F16) for s in ((128, 1024), (128, 1024), (128, 128)))
    issues = descriptors.used(chapter.wgmma_gemm_launch, A, B, C, chapter.Plan(atom_n=64, stages=2))
    assert len(issues) == 256 and all(issue.a is not None and issue.a.swizzle == 1 for issue in issues)


def test_machine_code_has_no_wait_besides_ours(chapter: ModuleType, device: str) -> None:
    tensors = [chapter.from_dlpack(torch.zeros(1024, 1024, device=device, dtype=BF16), assumed_align=16)] * 3
    info = inspect(chapter.cute.compile(chapter.wgmma_gemm_launch, *tensors, chapter.Plan()))
    assert info.spills == 0 and info.count("HGMMA") == 8 and info.count("LDSM") == 0
    assert info.count("WARPGROUP.DEPBAR") == info.count("WARPGROUP.ARRIVE") == 1
    assert notebooks.load(CHAPTER, ("imports", "kernel", "helpers")).ctas_per_sm(info, chapter.Plan()) == 2
    assert chapter.Plan(stages=6).shared_bytes > 228 * 1024 // 2  # one CTA


SAYS = {
    "added from the start": "Uninitialized",
    "no wait for the copies": "InFlight",
    "no barrier": "MissingBarrier",
    "one stage too far": "InFlight",
}


@pytest.mark.emulator
@pytest.mark.parametrize("name", ["as it is", *SAYS, "no proxy fence", "the same 16 of k"])
@pytest.mark.parametrize("warpgroups", [1, 2])
def test_mistakes(chapter: ModuleType, rng: np.random.Generator, name: str, warpgroups: int) -> None:
    assert {*chapter.MISTAKES} == {"as it is", *SAYS, "no proxy fence", "the same 16 of k"}
    module = notebooks.changed(CHAPTER, chapter.MISTAKES[name])
    A, B = normal(rng, "cpu", F16, (128, 320), (128, 320))
    C = torch.full((128, 128), float("nan"))
    plan = replace(module.Plan(), warpgroups=(warpgroups, 1))
    said = mistakes.report(module.wgmma_gemm_launch, A, B, C, plan)
    if name in SAYS:
        assert said.startswith(SAYS[name])
    else:
        assert mistakes.faultless(said)
        assert np.allclose(C.numpy(), exact(A, B), atol=1e-3) == (name != "the same 16 of k")


@pytest.mark.emulator
def test_a_mistake_can_be_tried_on_a_gpu(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `mistakes.on_gpu` calls: the kernel is right, and a wrong sum is told from it."""
    monkeypatch.setattr(chapter, "attempt", partial(chapter.attempt, size=128))
    benchmarks.assert_tried(chapter, "as it is", right=True)
    benchmarks.assert_tried(chapter, "the same 16 of k")


@pytest.mark.emulator
def test_the_benchmark_has_rows_for_every_plan_and_tries_every_mistake(
    chapter: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(chapter, "SIZES", (256,))
    benchmarks.keep_tables_in(tmp_path, monkeypatch)
    monkeypatch.setattr(chapter.mistakes, "on_gpu", lambda notebook, names: [{"mistake": name} for name in names])
    timed = benchmarks.without_a_clock(chapter, monkeypatch)
    rows = bench.validated(chapter.benchmark(), CHAPTER)
    assert timed == [f"07 {chapter.BEST_OF_07}", *(f"08 {name}" for name in chapter.PLANS)]
    assert sum(bool(row.get("rung")) for row in rows) == 1
    written = json.loads((tmp_path / f"{CHAPTER}_mistakes.json").read_text())
    assert [row["mistake"] for row in written["mistakes"]] == [*chapter.MISTAKES]
    launch, operations = chapter.ceiling(128, 256)
    launch()
    assert abs(operations / (2.0 * 256**3) - 1) < 0.01


@pytest.mark.parametrize("n", [64, 256])
def test_the_ceiling_does_the_operations_it_is_timed_for(
    chapter: ModuleType, rng: np.random.Generator, device: str, n: int
) -> None:
    A, B = normal(rng, device, F16, (64, 64), (n, 64))
    D = torch.full((128, n // 2), float("nan"), device=device)
    tensors = [chapter.from_dlpack(t, assumed_align=16) for t in (A, B, D)]
    chapter.cute.compile(chapter.alone, *tensors, 2, 5)(*tensors)
    mma = chapter.Plan(atom_n=n)
    place = layouts.partition(lambda: chapter.make_tiled_mma(chapter.cutlass.Float16, mma), (64, n)).place
    assert np.abs(D.cpu().numpy() - 5 * exact(A, B)[place[..., 0], place[..., 1]]).max() < 1e-3


def test_the_text_has_the_tables_speeds_and_clocks() -> None:
    """What the verdict says of bursts and windows at 4096, and of the clock while they were timed."""
    rows = {(r["kernel"], r["method"].split()[0]): r for r in bench.read(CHAPTER)["rows"] if r["M"] == 4096}
    per_mhz = 132 * 4096e-6  # TFLOP/s on paper
    text = exercises.prose(CHAPTER, "verdict-md")
    alone, ours = rows["08 WGMMA alone", "burst"], rows["08 128x128, 2 CTAs", "burst"]
    before, long = rows["07 128x256x64, 8 warps", "burst"], rows["08 128x128, 2 CTAs", "sustained"]
    share = {id(row): row["ours_tflops"] / row["sm_mhz"] / per_mhz for row in rows.values()}
    ceiling = max(row["tflops"][1] for row in records.read("07_mma_sync", "ceiling"))
    gain, of_07 = ours["ours_tflops"] / before["ours_tflops"], before["ours_tflops"] / ceiling
    of_08 = ours["ours_tflops"] / alone["ours_tflops"]
    printed = long["ours_tflops"] / rows["08 WGMMA alone", "sustained"]["ours_tflops"]
    for said in (
        f"{alone['ours_tflops']:.0f} TFLOP/s in bursts, {alone['ours_tflops'] / (1980 * per_mhz):.2f} of the 1070",
        f"while* they ran: {alone['sm_mhz']} MHz.",
        f"At that clock the paper allows {alone['sm_mhz'] * per_mhz:.0f} TFLOP/s, and "
        f"{alone['ours_tflops']:.0f} are {share[id(alone)]:.2f} of it",
        f"two CTAs have {ours['sm_mhz']} MHz in bursts, cuBLAS {ours['vendor_sm_mhz']}",
        f"two CTAs at {long['sm_mhz']}.",
        f"and keeps {alone['sm_mhz']} MHz; 128x256 loads a quarter less than 128x128, and keeps "
        f"{rows['08 128x256, 2 warpgroups', 'burst']['sm_mhz']}.",
        f"two CTAs have {share[id(long)]:.2f} of what their clock allows, in bursts only {share[id(ours)]:.2f}.",
        f"in bursts the gain is {gain:.2f}, and the ratio of the two ceilings {alone['ours_tflops'] / ceiling:.2f}.",
        f"The kernels reach {of_07:.2f} and {of_08:.2f} of their ceilings (the printed {printed:.2f} is sustained)",
        f"Per cycle the gain is even {share[id(ours)] / share[id(before)]:.2f},",
    ):
        assert said in text, said
    highest = max(r["sm_mhz"] for r in bench.read(CHAPTER)["rows"] if r["method"].startswith("burst"))
    assert f"no kernel of this table runs above {highest} MHz" in text
    without = [r for name in ("17_attention", "18_fa_tma") for r in bench.read(name)["rows"]]
    assert {r["sm_mhz"] for r in without if r["method"].startswith("burst")} == {1980}


def test_atoms_of_64_are_slower_only_within_the_spread() -> None:
    rows = {(r["M"], r["method"], r["kernel"]): r for r in bench.read(CHAPTER)["rows"]}
    for size, method, kernel in rows:
        if kernel == "08 128x128, atoms of 64x64":
            narrow, wide = rows[size, method, kernel], rows[size, method, "08 128x128, 2 CTAs"]
            assert narrow["ours_tflops"] > 0.98 * wide["ours_tflops"]
            assert narrow["ours_us_range"][0] < wide["ours_us_range"][1]


def test_the_mistakes_that_the_gpu_got_right_are_the_texts() -> None:
    found = {row["mistake"]: row["right"] for row in records.read(CHAPTER, "mistakes")}
    assert {name for name, right in found.items() if right == 10} == {"as it is", "no barrier", "no proxy fence"}
    assert sum(right == 0 for right in found.values()) == 4  # these two and two others
    assert "Without the barrier all ten were right" in exercises.prose(CHAPTER, "break-read-md")
