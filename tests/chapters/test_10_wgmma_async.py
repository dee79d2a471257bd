"""Chapter 10's kernel against float64, every omission in the emulator, and what the assembler makes of it."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cutetut import layouts
from cutetut.course import notebooks
from cutetut.inspect.compiled import inspect
from cutetut.measure import bench, mistakes
from tests.chapters import benchmarks, contract, exercises
from tests.chapters.products import assert_product, exact, normal

CHAPTER = "10_wgmma_async"


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


def multiply(chapter: ModuleType, A: torch.Tensor, B: torch.Tensor, plan: Any, launch: Any = None) -> torch.Tensor:
    C = torch.full((A.shape[0], B.shape[0]), torch.nan, device=A.device)
    tensors = [chapter.from_dlpack(t, assumed_align=16) for t in (A, B, C)]
    chapter.cute.compile(launch or chapter.async_gemm_launch, *tensors, plan)(*tensors)
    return C


PLANS = ("128x128, 2 CTAs", "128x128, 1 CTA", "128x256, 2 warpgroups", "256x128, 2 warpgroups")


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("k_tiles", [1, 9])
def test_every_plan_matches_float64(
    chapter: ModuleType, rng: np.random.Generator, device: str, name: str, k_tiles: int
) -> None:
    plan = chapter.PLANS[name]
    bM, bN, bK = plan.tile
    A, B = normal(rng, device, torch.bfloat16, (k_tiles * bK, bM), (bN, k_tiles * bK))
    assert_product(multiply(chapter, A.T, B, plan), A.T, B)


def test_it_refuses_two_stages(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    A, B = normal(rng, device, torch.float16, (128, 64), (128, 64))
    with pytest.raises(ValueError, match="2 stages are not enough"):
        multiply(chapter, A, B, chapter.Plan(stages=2))


def test_the_kernel_keeps_to_the_contract(chapter: ModuleType) -> None:
    contract.assert_one_idea(chapter.swizzled.swizzled_gemm_kernel, chapter.async_gemm_kernel)
    contract.assert_contract(CHAPTER)


@pytest.mark.parametrize("accumulators", [1, 2])
@pytest.mark.parametrize("wait", ["each", "turn", "one behind", "fenced"])
def test_the_chain_does_the_operations_it_is_timed_for(
    chapter: ModuleType, rng: np.random.Generator, device: str, accumulators: int, wait: str
) -> None:
    A, B = normal(rng, device, torch.float16, (64, 64), (128, 64))
    D = torch.full((128, 64 * accumulators), torch.nan, device=device)
    tensors = [chapter.from_dlpack(t, assumed_align=16) for t in (A, B, D)]
    compiled = chapter.cute.compile(chapter.chain, *tensors, accumulators, wait, 2, 5)
    compiled(*tensors)
    mma = chapter.wgmma.Plan()
    place = layouts.partition(lambda: chapter.wgmma.make_tiled_mma(chapter.cutlass.Float16, mma), (64, 128)).place
    expected = np.tile(5 * exact(A, B)[place[..., 0], place[..., 1]], accumulators)
    assert np.abs(D.cpu().numpy() - expected).max() < 1e-3
    info, products = inspect(compiled), 4 * accumulators
    assert info.count("WARPGROUP.DEPBAR") == (products + 1 if wait == "each" else 2)  # the assembler adds none
    assert info.count("WARPGROUP.ARRIVE") == (products + 1 if wait == "fenced" else 2)
    groups = len(re.findall(r"HGMMA[^;]* gsb0", info.sass))
    assert groups == (products if wait in ("each", "fenced") else 1)


SAYS = {
    "no wait for copies": "InFlight: operand A",
    "no barrier": "MissingBarrier",
    "no wgmma.fence": "MissingFence: a WGMMA without any wgmma.fence",
    "no commit": "InFlight: a store to shared memory",
    "no wait in the loop": "InFlight: a store to shared memory",
    "a wait for one group fewer": "InFlight: a store to shared memory",
    "no wait at the end": "InFlight: register",
    "one stage too far": "Uninitialized: operand A",
}
SAME_CODE = ("no wgmma.fence", "no commit")


@pytest.mark.emulator
@pytest.mark.parametrize("name", ["", *SAYS, "no proxy fence"])
@pytest.mark.parametrize("warpgroups", [1, 2])
def test_mistakes(chapter: ModuleType, rng: np.random.Generator, name: str, warpgroups: int) -> None:
    assert {*chapter.MISTAKES} == {*SAYS, "no proxy fence"}
    module = chapter.changed(name) if name else chapter
    A, B = normal(rng, "cpu", torch.float16, (128, 448), (128, 448))
    C = torch.full((128, 128), float("nan"))
    said = mistakes.report(module.async_gemm_launch, A, B, C, chapter.Plan(warpgroups=(warpgroups, 1)))
    if name in SAYS:
        assert said.startswith(SAYS[name]), said
    else:
        assert mistakes.faultless(said)
        assert_product(C, A, B)


def test_the_assembler_puts_fence_and_commit_back(chapter: ModuleType, device: str) -> None:
    """The chapter's claim: identical machine code, so no GPU can show the omission."""

    def code(module: ModuleType) -> list[str]:
        tensors = [chapter.from_dlpack(torch.zeros(512, 512, device=device).half(), assumed_align=16)] * 3
        compiled = chapter.cute.compile(module.async_gemm_launch, *tensors, chapter.Plan())
        return re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", inspect(compiled).sass)

    complete = code(chapter)
    assert all(code(chapter.changed(name)) == complete for name in SAME_CODE)
    assert code(chapter.changed("no wait in the loop")) != complete


PROBES_SAY = {
    "overwrite: stores before the wait": "InFlight: a store",
    "overwrite: no proxy fence": "MissingFence: operand A",
    "pair: no barrier": "MissingFence: operand A",
    "pair: no proxy fence": "MissingFence: operand A",
    "pair: no wgmma.fence": "MissingFence: a WGMMA",
    "pair: no commit": "InFlight: register",
    "pair: no wait": "InFlight: register",
}


@pytest.mark.emulator
def test_probes(chapter: ModuleType) -> None:
    assert {*chapter.PROBES} == {*PROBES_SAY, "overwrite: complete", "pair: complete"}
    for name in chapter.PROBES:
        launch, (A, B, D), expected = chapter.probe(name)
        said = mistakes.report(launch, A, B, D)
        if name in PROBES_SAY:
            assert said.startswith(PROBES_SAY[name]), (name, said)
        else:
            assert mistakes.faultless(said) and ((D.double() - expected).abs() <= 1e-2).all()


@pytest.mark.emulator
def test_the_emulator_takes_a_proxy_fence_after_the_barrier(chapter: ModuleType) -> None:
    (fence, _), (meet, _) = chapter.without("pair", "stores") + chapter.without("pair", "barrier")
    late = notebooks.changed(CHAPTER, [(fence + meet, meet + fence)])
    _, (A, B, D), expected = chapter.probe("pair: complete")
    assert mistakes.faultless(mistakes.report(late.pair, A, B, D)) and ((D.double() - expected).abs() <= 1e-2).all()


@pytest.mark.emulator
def test_mistakes_and_probes_can_be_tried_on_a_gpu(chapter: ModuleType) -> None:
    """What `mistakes.on_gpu` calls: right where nothing is missing, and told from wrong."""
    for name in ("pair: complete", "overwrite: complete", "no proxy fence"):
        launch, right = chapter.attempt(name)
        launch()
        assert right()


@pytest.mark.emulator
def test_the_benchmark_has_rows_for_every_plan(
    chapter: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(chapter, "SIZE", 256)
    benchmarks.keep_tables_in(tmp_path, monkeypatch)
    monkeypatch.setattr(chapter.mistakes, "on_gpu", lambda notebook, names: [{"mistake": name} for name in names])
    some = {name: chapter.PLANS[name] for name in PLANS[2:3]}  # the rest is the same again
    monkeypatch.setattr(chapter, "PLANS", some)
    monkeypatch.setattr(chapter, "CHAIN", {name: chapter.CHAIN[name] for name in list(chapter.CHAIN)[-1:]})
    timed = benchmarks.without_a_clock(chapter, monkeypatch)
    rows = bench.validated(chapter.benchmark(), CHAPTER)
    plans = [f"{number} {name}" for name in chapter.PLANS for number in ("09", "10")]
    assert timed == [*plans, *chapter.CHAIN] and sum(bool(row.get("rung")) for row in rows) == 1
    assert (tmp_path / f"{CHAPTER}_mistakes.json").is_file()


# What the table says ---------------------------------------------------------------------------------------------

ROWS = {(row["kernel"], row["method"].split()[0]): row for row in bench.read(CHAPTER)["rows"]}
WAITS = ("each", "turn", "one behind", "fenced")
CHAINS = [f"10 chain: {n}, {wait}" for n in ("1 accumulator", "2 accumulators") for wait in WAITS]


def cycles(kernel: str, method: str) -> float:
    row = ROWS[kernel, method]
    return float(row["ours_us"] * row["sm_mhz"])


def test_cycles_of_the_chains_are_as_the_text_says() -> None:
    """They are the same in bursts and sustained, so there it is the clock that differs."""
    text, products = exercises.prose(CHAPTER, "kernel-md"), 4 * (4096**3 // (132 * 64 * 128 * 64))
    assert all(abs(cycles(name, "sustained") / cycles(name, "burst") - 1) < 0.015 for name in CHAINS)
    once = {name.removeprefix("10 chain: "): cycles(name, "sustained") / products for name in CHAINS}
    each, turn, behind = (once[f"1 accumulator, {wait}"] for wait in WAITS[:3])
    assert f"`each` takes {each:.0f} per product" in text
    assert f"the {behind:.0f} of `one behind`, {each - behind:.0f} are lost" in text
    assert f"4 * ({turn:.1f} - {behind:.1f}) = {4 * (turn - behind):.0f} cycles per wait" in text
    lost = 8 * (once["2 accumulators, turn"] - once["2 accumulators, one behind"])
    assert f"With two accumulators that is {lost:.0f}," in text
    slower = [
        of(f"10 chain: {n}, fenced") / of(f"10 chain: {n}, one behind")
        for of in (lambda name: ROWS[name, "burst"]["ours_us"], lambda name: cycles(name, "burst"))
        for n in ("1 accumulator", "2 accumulators")
    ]
    assert [round(100 * (ratio - 1), 1) for ratio in slower] == pytest.approx([3, 1.3, 5, 2], abs=0.25)
    found = {name: tuple(ROWS[name, method]["sm_mhz"] for method in ("sustained", "burst")) for name in CHAINS}
    (sustained, burst), (lower, _) = found[CHAINS[0]], found[CHAINS[2]]
    assert f"{sustained} MHz for `each` and {lower} for `one behind`" in text and f"runs at {burst}." in text
    assert max(max(clocks) for clocks in found.values()) == burst < 1980


def test_gains_by_cycles_are_as_the_text_says() -> None:
    text, name, wide = exercises.prose(CHAPTER, "break-md"), "128x128, 1 CTA", "10 128x256, 2 warpgroups"
    before, after = (ROWS[f"{number} {name}", "burst"] for number in ("09", "10"))
    assert f"one CTA gains {100 * (before['ours_us'] / after['ours_us'] - 1):.0f} percent." in text
    by_cycles = cycles(f"09 {name}", "burst") / cycles(f"10 {name}", "burst")
    assert f"By cycles one CTA gains more, {100 * (by_cycles - 1):.0f} percent" in text
    assert f"{after['sm_mhz']} MHz and not {before['sm_mhz']}." in text
    ours, alone = ROWS[wide, "sustained"], ROWS[f"{CHAINS[6]}", "sustained"]
    assert f"{ours['sm_mhz']} MHz and not {alone['sm_mhz']};" in text
    assert ours["ours_tflops"] / alone["ours_tflops"] == pytest.approx(2 / 3, abs=0.03)
    assert cycles(CHAINS[6], "sustained") / cycles(wide, "sustained") == pytest.approx(4 / 5, abs=0.03)


def test_cycles_are_counted_at_each_rows_own_clock(capsys: pytest.CaptureFixture[str]) -> None:
    """3968 us at 100 MHz are 100 cycles for each of 3968 products, and twice as many at twice the clock."""
    rows = {"burst": 200, "sustained": 100}
    table = {m: {CHAINS[0]: {"ours_us": 3968.0, "sm_mhz": mhz, "ours_tflops": 1.0}} for m, mhz in rows.items()}
    chapter08 = SimpleNamespace(rows_of=lambda name, method="sustained": table[method])
    exec(exercises.cell(CHAPTER, "chain-recorded"), {"chapter08": chapter08, "CHAPTER": CHAPTER})
    sustained, burst = [line for line in capsys.readouterr().out.splitlines() if CHAINS[0] in line]
    assert sustained.endswith(" 100               100.0") and burst.endswith(" 200               200.0")
