"""Chapter 18's attention kernel, whose blocks TMA brings: against float64, its mistakes, and its exercises."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut.course import notebooks, provenance
from cutetut.inspect import profile
from cutetut.inspect.compiled import inspect
from cutetut.measure import bench, mistakes, records
from tests.chapters import benchmarks, contract, exercises
from tests.chapters.attentions import exact, problem, wrong

CHAPTER = "18_fa_tma"


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


@pytest.fixture(scope="module")
def helpers() -> ModuleType:
    """What the chapter's other cells define besides."""
    return notebooks.load(CHAPTER, exercises.HELPER_TAGS)


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("shape", [(2, 130, 37, 24), (1, 5, 160, 8), (3, 1, 1, 16)])
def test_every_length(
    chapter: ModuleType, rng: np.random.Generator, device: str, shape: tuple[int, int, int, int], stages: int
) -> None:
    Q, K, V = problem(rng, device, *shape)
    assert wrong(chapter.attention(Q, K, V, 0.3, stages=stages), exact(Q, K, V, 0.3)) == 0


def test_a_head_does_not_see_the_next_one(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    Q, K, V = problem(rng, device, 2, 20, 37, 16)
    K[1], V[1] = torch.nan, torch.inf
    out = chapter.attention(Q, K, V, 0.3)
    assert wrong(out[:1], exact(Q[:1], K[:1], V[:1], 0.3)) == 0 and out[1].isnan().all()


def test_what_lies_behind_the_last_key_does_not_matter(
    chapter: ModuleType, rng: np.random.Generator, device: str
) -> None:
    Q, K, V = problem(rng, device, 1, 20, 64, 16)
    K[:, 45:], V[:, 45:] = torch.nan, torch.nan
    K, V = K[:, :45], V[:, :45]
    assert wrong(chapter.attention(Q, K, V, 0.3), exact(Q, K, V, 0.3)) == 0


def test_low_scores(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    """Where a zero-filled key would have nearly all of the weight."""
    Q, K, V = problem(rng, device, 1, 20, 33, 16)
    Q[..., 0], K[..., 0] = 1, -100
    assert wrong(chapter.attention(Q, K, V, 1.0), exact(Q, K, V, 1.0)) == 0


def test_what_is_refused(chapter: ModuleType, device: str) -> None:
    good = torch.ones(1, 4, 16, dtype=torch.bfloat16, device=device)
    cases: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((good, good, good.half()), {}, "all must be bfloat16"),
        ((good, good.mT, good), {}, "in one piece"),
        ((good, good, good), {"scale": 0.0}, "scale 0.0"),
        ((good, good, good), {"stages": 0}, "0 stages"),
    ]
    for arguments, options, text in cases:
        with pytest.raises((TypeError, ValueError), match=text):
            chapter.attention(*arguments, **options)


def test_only_the_load_changes(chapter: ModuleType) -> None:
    contract.assert_contract(CHAPTER)
    contract.assert_one_idea(chapter.fused.fused_kernel, chapter.tma_kernel)


@pytest.mark.emulator
def test_the_bytes_of_keys_come_by_tma_and_the_products_stay(chapter: ModuleType, device: str) -> None:
    tensors = [torch.zeros(1, n, 16, dtype=torch.bfloat16) for n in (128, 64, 64, 128)]
    before = profile.count(chapter.fused.fused_launch, *tensors, 0.125, None)
    after = profile.count(chapter.tma_launch, *tensors, 0.125, None)
    both = 2 * 64 * 16 * 2  # bytes of K and V
    assert 32 * (before.sectors("ld") - after.sectors("ld")) == both == after.traffic["global", "tma load"].asked
    arguments = [chapter.from_dlpack(t.to(device), assumed_align=16) for t in tensors]
    launches = (chapter.fused.fused_launch, chapter.tma_launch)
    two, three = (inspect(chapter.cute.compile(launch, *arguments, 0.125, None)) for launch in launches)
    assert two.count("FFMA") == three.count("FFMA") and three.spills == 0
    assert two.count("LDG") > three.count("LDG") and two.count("UTMALDG") == 0 < three.count("UTMALDG")


TOLD = {
    "half of the bytes announced": "AsyncMismatch",
    "always the same parity": "InFlight",
    "requested before all have read": "MissingBarrier",
    "every warp requests": "IllegalInstruction: 4 more arrivals",
    "the stage is read without a wait": "Uninitialized",
}
ARITHMETIC = "zero-filled keys count"


@pytest.mark.emulator
@pytest.mark.parametrize("name", [*TOLD, ARITHMETIC])
def test_mistakes(chapter: ModuleType, rng: np.random.Generator, name: str) -> None:
    assert {*chapter.MISTAKES} == {*TOLD, ARITHMETIC}
    module = notebooks.changed(CHAPTER, chapter.MISTAKES[name])
    Q, K, V = problem(rng, "cpu", 1, 64, 125, 16)
    out = torch.full_like(Q, torch.nan)
    said = mistakes.report(module.tma_launch, Q, K, V, out, 0.25, None)
    if name in TOLD:
        assert said.startswith(TOLD[name]), said
    else:
        assert mistakes.faultless(said) and wrong(out, exact(Q, K, V, 0.25)) > 100
        K, V = K[:, :64].contiguous(), V[:, :64].contiguous()
        mistakes.report(module.tma_launch, Q, K, V, out, 0.25, None)
        assert wrong(out, exact(Q, K, V, 0.25)) == 0  # nothing shows where blocks are full


@pytest.mark.emulator
def test_the_benchmark_and_an_attempt(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = ["17 K1, scores in memory", "17 K2, fused", "18 K3, 1 stage", *["18 K3, 2 stages"] * 3]
    benchmarks.assert_measured(chapter, CHAPTER, kernels, {"SIZE": (1, 40, 40, 16)}, monkeypatch)
    benchmarks.assert_tried(chapter, ARITHMETIC)


def test_the_page_shows_what_was_measured(
    helpers: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    speeds = {"17 K1, scores in memory": 10.0, "17 K2, fused": 20.0, "18 K3, 1 stage": 22.0, "18 K3, 2 stages": 25.0}
    benchmarks.keep_tables_in(tmp_path, monkeypatch)
    monkeypatch.setattr(provenance, "collect", lambda: dict.fromkeys(provenance.FIELDS, "a test's"))
    counts = {**dict.fromkeys(helpers.COUNTERS, 1.0), "issue %": 62.0, "wavefronts": 5.0, "shared loads": 2.0}
    records.write(CHAPTER, "counters", {"17 K2, fused": {**counts, "barrier": 7.5}})
    cells = ["stake", "recorded", "break-gpu"]
    benchmarks.show(helpers, CHAPTER, speeds, cells, tmp_path, monkeypatch, helpers.PAIRS)
    said = capsys.readouterr().out
    assert "18 K3, 2 stages" in said and "25.0 TFLOP/s; cuDNN: 2.00 ms" in said
    assert "TMA, against K2, sustained of a test: 1.25 [" in said and "not as predicted, 0% to 20%" in said
    assert "a second stage, sustained of a test: 1.14 [" in said and "not as predicted, -1% to 1%" in said
    assert "17 K2, fused: 390625 cycles for a block of each of two CTAs" in said  # 1/20 s, 2 rounds of 128 blocks
    assert "issues in 62% of the cycles; 2.5 wavefronts for a load from shared memory, L1 busy for 1%" in said
    assert "cycles: 7.5 barrier, 1.0 " in said
    assert "no barrier" in said and "right  9, wrong  1, hangs" in said


def test_a_block_takes_no_fewer_instructions(helpers: ModuleType) -> None:
    """At least the products, 2 * 32 * 64 FMAs and a load for four of them; and what `bring` did, `widen` does."""
    before, after = (helpers.block_instructions(each) for each in (helpers.fused.fused_launch, helpers.tma_launch))
    assert 5120 < before < 1.25 * 5120 and abs(after - before) < 0.01 * before


def test_launches_are_counted_by_name(helpers: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def count(program: list[str], kernels: str, metrics: list[str]) -> list[dict[str, float]]:
        assert program[0] == "-c" and all(name in program[1] for name in helpers.COUNTED) and "tma_kernel" in kernels
        return [dict.fromkeys(metrics, float(n)) for n in (1, 2)]

    monkeypatch.setattr(helpers.nsight, "count", count)
    found = helpers.counted_on_gpu()
    assert [*found] == ["17 K2, fused", "18 K3, 2 stages"]
    assert [row["cycles"] for row in found.values()] == [1.0, 2.0]


# --- exercises

ANSWERS = """
def nans(*arguments):
    return cutlass.Float32(float("nan"))


def infinite(*arguments):
    return cutlass.Float32.inf


def ones(*arguments):
    return cutlass.Float32(1.0)


def by_division(j, stages):
    turn = j // stages
    return [j - turn * stages, turn % 2]


def by_cases(j, stages):
    return {1: (0, j & 1), 2: (j & 1, j >> 1 & 1), 4: (j & 3, j >> 2 & 1)}[stages]


@cute.jit
def by_branch(j, stages: cutlass.Constexpr):
    left = j % (2 * stages)
    stage, parity = left, cutlass.Int32(0)
    if left >= stages:
        stage, parity = left - stages, cutlass.Int32(1)
    return stage, parity


def by_shift(j, stages):
    return [j & stages - 1, j >> (stages >> 1) & 1]


@cute.jit
def by_steps(j, stages: cutlass.Constexpr):
    stage, parity = j, cutlass.Int32(0)
    while stage >= stages:
        stage, parity = stage - stages, 1 - parity
    return stage, parity


def as_in_the_kernel(j, stages):
    return j % stages, j // stages & 1


def by_operator(j, stages):
    import operator

    return operator.mod(j, stages), operator.and_(operator.floordiv(j, stages), 1)


def by_method(j, stages):
    return j.__mod__(stages), j.__floordiv__(stages) & 1


def beyond(j, stages):
    return j & 3, 0


def never_flips(j, stages):
    return j & stages - 1, 0


def first_stage(j, stages):
    return 0, 0


def by_share(top, total, zeros):
    return 1.0 / (1.0 - zeros * cute.math.exp(-top) / total)


def by_powers(top, total, zeros):
    return total / (total - zeros * cute.math.exp2(top * -1.4426950408889634))


@cute.jit
def in_a_loop(top, total, zeros):
    real = total
    for _ in cutlass.range(cutlass.Int32(zeros)):
        real -= rows.power(-top)
    return total / real


def nothing_to_repair(top, total, zeros):
    return 1.0


def counted_as_one(top, total, zeros):
    return total / (total - zeros)


def by_merging(top, total):
    return rows.merge((top, total), (cutlass.Float32(0.0), cutlass.Float32(1.0)))[1] * rows.power(
        cute.arch.fmax(top, 0.0) - top
    )


def by_exp(top, total):
    return cute.math.exp(-top) + total


@cute.jit
def with_a_limit(top, total):
    return total + (cutlass.Float32.inf if top < -80.0 else cute.math.exp(-top))


def only_the_sum(top, total):
    return total


def one_more(top, total):
    return total + 1.0
"""
OTHER = [*exercises.FUNCTIONS, "nans", "infinite", "ones"]
NUMBERS = ["None", "'32768'", "float('nan')", "(1, 2)", "True", "1.5"]
CHECKS: dict[str, tuple[list[str], list[str]]] = {  # wrong answers, and right ones
    "check_bytes": (
        ["25600, 25600", "32768, 32768", "0, 0", *(f"32768, {x}" for x in NUMBERS), *(f"{x}, 25600" for x in NUMBERS)],
        ["32768, 25600", "np.float64(32768), np.int64(25600)", "torch.tensor(32768), 25600.0"],
    ),
    "check_where": (
        [*OTHER, "never_flips", "first_stage", "by_division", "by_branch", "as_in_the_kernel",
         "by_operator", "by_method", "beyond"],
        ["by_cases", "by_shift", "by_steps"],
    ),
    "check_repair": ([*OTHER, "nothing_to_repair", "counted_as_one"], ["by_share", "by_powers", "in_a_loop"]),
    "check_fill": (
        ["None", "'text'", "(1, 0)", "True", "(True,)", "(True, True)", "(False, False)", "np.float64(1)"],
        ["(True, False)", "[True, False]", "np.array([True, False])"],
    ),
    "check_sink": ([*OTHER, "only_the_sum", "one_more"], ["by_merging", "by_exp", "with_a_limit"]),
}


names = exercises.judges_of(CHAPTER, f"import numpy as np\n{ANSWERS}")
test_answers_are_judged = exercises.answers_are_judged(CHECKS)


test_hints = exercises.wrong_answers_get_hints({
    "check_bytes(32768, 12800)": "each key and each value has 64 numbers",
    "check_where(as_in_the_kernel)": "it can be done without",
    "check_where(by_operator)": "it can be done without",
    "check_where(by_method)": "it can be done without",
    "check_where(beyond)": "70 keys, stages=1: a block is looked for in a stage that does not exist",
    "check_where(never_flips)": "70 keys, stages=1: InFlight: ",
    "check_repair(nothing_to_repair)": "33 keys, stages=2: 40 of 40 rows are wrong; the first is query 0",
    "check_sink(only_the_sum)": "rows are wrong; the first is query ",
})  # fmt: skip


def test_each_exercise_has_a_solution() -> None:
    exercises.assert_paired(CHAPTER)
