"""Chapter 17's two attention kernels against float64, their mistakes, and what its exercises say of answers."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut.course import notebooks, provenance
from cutetut.inspect import profile
from cutetut.measure import bench, mistakes, nsight, records
from tests.chapters import benchmarks, contract, exercises
from tests.chapters.attentions import exact, problem, wrong

CHAPTER = "17_attention"


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


@pytest.mark.parametrize("shape", [(2, 130, 37, 24), (1, 5, 64, 8)])
def test_both_kernels(
    chapter: ModuleType, rng: np.random.Generator, device: str, shape: tuple[int, int, int, int]
) -> None:
    Q, K, V = problem(rng, device, *shape)
    expected = exact(Q, K, V, 0.3)
    assert wrong(chapter.attention(Q, K, V, 0.3), expected) == 0
    assert wrong(chapter.attention(Q, K, V, 0.3, fused=False), expected, atol=4e-2) == 0  # of scores in bfloat16


def test_values_that_overflow_without_the_maximum(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    Q, K, V = problem(rng, device, 1, 8, 40, 16)
    assert wrong(chapter.attention(20 * Q, 20 * K, V, 1.0), exact(20 * Q, 20 * K, V, 1.0)) == 0


def test_nan_stays_in_its_row(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    Q, K, V = problem(rng, device, 1, 8, 40, 16)
    Q[0, 3, 5] = torch.nan
    rows = chapter.attention(Q, K, V)[0].isnan().cpu()
    assert rows[3].all() and not rows[[0, 1, 2, 4, 5, 6, 7]].any()


def test_what_is_refused(chapter: ModuleType, device: str) -> None:
    good = torch.ones(1, 4, 16, dtype=torch.bfloat16, device=device)
    cases: list[tuple[tuple[Any, ...], str]] = [
        ((good, good, good.half()), "all must be bfloat16"),
        ((good[0], good, good), "not empty"),
        ((good.mT, good, good), "in one piece"),
        ((good, good[:, :2].contiguous(), good), "do not fit"),
        ((torch.ones(1, 4, 136, device=device).half(),) * 3, "D = 136"),
        ((good, good, good, float("nan")), "scale nan"),
    ]
    for arguments, text in cases:
        with pytest.raises((TypeError, ValueError), match=text):
            chapter.attention(*arguments)


@pytest.mark.emulator
def test_the_scores_cost_eight_bytes_each(chapter: ModuleType) -> None:
    """What K1 moves and K2 does not, for 128 queries and 64 keys."""
    tensors = [torch.zeros(1, n, 16, dtype=torch.bfloat16) for n in (128, 64, 64, 128)]
    scores = torch.zeros(1, 64, 128, dtype=torch.bfloat16)
    naive = profile.count(chapter.naive_launch, *tensors, scores, 0.25, None)
    fused = profile.count(chapter.fused_launch, *tensors, 0.25, None)
    more = sum(32 * (naive.sectors(op) - fused.sectors(op)) for op in ("ld", "st"))
    assert more == 8 * 128 * 64


def test_the_chapter_keeps_to_the_contract(chapter: ModuleType) -> None:
    contract.assert_contract(CHAPTER)
    contract.assert_one_idea(chapter.naive_kernel, chapter.fused_kernel)


ORDER = ("no barrier before reading", "no barrier after reading")
ARITHMETIC = (
    "zeros after the last key count", "O is not corrected", "the sum is not corrected",
    "each step is divided by the sum so far",
)  # fmt: skip


@pytest.mark.emulator
@pytest.mark.parametrize("name", [*ORDER, *ARITHMETIC])
def test_mistakes(chapter: ModuleType, rng: np.random.Generator, name: str) -> None:
    assert {*chapter.MISTAKES} == {*ORDER, *ARITHMETIC}
    module = notebooks.changed(CHAPTER, chapter.MISTAKES[name])
    Q, K, V = problem(rng, "cpu", 1, 64, 61, 16)
    out = torch.full_like(Q, torch.nan)
    said = mistakes.report(module.fused_launch, Q, K, V, out, 0.25, None)
    if name in ORDER:
        assert said.startswith("MissingBarrier"), said
    else:
        assert mistakes.faultless(said) and wrong(out, exact(Q, K, V, 0.25)) > 100


@pytest.mark.emulator
def test_mistakes_can_be_tried_on_a_gpu(chapter: ModuleType) -> None:
    benchmarks.assert_tried(chapter, "O is not corrected")


@pytest.mark.emulator
def test_the_benchmark_measures_both(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = ["17 K1, scores in memory", "17 K2, fused", "17 K2, fused"]  # the last beside K1
    benchmarks.assert_measured(chapter, CHAPTER, kernels, {"SIZE": (1, 40, 40, 16)}, monkeypatch)


@pytest.mark.emulator
@pytest.mark.parametrize("shape", [(2, 130, 64, 64), (1, 128, 96, 32)])
def test_bytes_are_predicted_as_the_emulator_counts_them(shape: tuple[int, int, int, int]) -> None:
    helpers = notebooks.load(CHAPTER, exercises.HELPER_TAGS)
    heads, S, T, D = shape
    whole = -(-S // 128) * 128  # a CTA loads a row for each thread
    tensors = [torch.zeros(heads, n, D, dtype=torch.bfloat16) for n in (whole, T, T, whole)]
    scores = torch.zeros(heads, T, whole, dtype=torch.bfloat16)
    launches = {"K1": (helpers.naive_launch, [scores]), "K2": (helpers.fused_launch, [])}
    for name, (launch, more) in launches.items():
        counts = profile.count(launch, *tensors, *more, 0.25, None)
        assert helpers.predicted_bytes(name, *shape) == (32 * counts.sectors("ld"), 32 * counts.sectors("st"))


def test_both_kernels_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    helpers = notebooks.load(CHAPTER, exercises.HELPER_TAGS)
    monkeypatch.setattr(helpers, "CHAPTER", CHAPTER, raising=False)

    def count(program: list[str], kernels: str, metrics: list[str]) -> list[dict[str, float]]:
        compile(program[1], "program", "exec")
        assert program[0] == "-c" and "naive_kernel" in kernels
        return [dict.fromkeys(metrics, float(n * 2**20)) for n in (1, 2)]

    monkeypatch.setattr(nsight, "count", count)
    benchmarks.keep_tables_in(tmp_path, monkeypatch)
    monkeypatch.setattr(provenance, "collect", lambda: dict.fromkeys(provenance.FIELDS, "a test's"))
    records.write(CHAPTER, "counters", helpers.counted_on_gpu())
    helpers.show_counts()
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("K1: threads load 32 MiB (1552 predicted) and store 32 (1040 predicted)")
    assert said[1] == "K2: threads load 64 MiB (528 predicted) and store 64 (16 predicted); memory: 2 read, 2 written"


# --- exercises

ANSWERS = """
def nans(*arguments):
    return cutlass.Float32(float("nan"))


def ones(*arguments):
    return cutlass.Float32(1.0)


def same(x, head, query, key):
    return x


def by_exp(x, head, query, key):
    e = cute.math.exp(x / 10.0)
    return 20.0 - 40.0 / (e + 1.0)


@cute.jit
def by_constant(x, head, query, key):
    c = cutlass.Float32(20.0)
    return c * cute.math.tanh(x / c)


def by_product(x, head, query, key):
    return cute.math.tanh(x * 0.05) * 20


def clipped(x, head, query, key):
    return cute.arch.fmin(cute.arch.fmax(x, -20.0), 20.0)


def only_from_above(x, head, query, key):
    return cute.arch.fmin(x, 20.0 * cute.math.tanh(x / 20.0))


@cute.jit
def by_branch(x, head, query, key):
    distance = query - key if query > key else key - query
    return x - cutlass.Float32(distance) / cutlass.Float32(2 << head)


def by_float(x, head, query, key):
    away = cutlass.Float32(query) - cutlass.Float32(key)
    return x - cute.arch.fmax(away, -away) * cute.math.exp2(cutlass.Float32(-1 - head))


@cute.jit
def by_loop(x, head, query, key):
    slope = cutlass.Float32(0.5)
    for _ in cutlass.range(head):
        slope = slope * 0.5
    return x - slope * cutlass.Float32(cutlass.max(query - key, key - query))


def one_slope(x, head, query, key):
    return x - 0.5 * cutlass.Float32(cutlass.max(query - key, key - query))


@cute.jit
def by_distance(x, head, query, key):
    back = query - key
    return -cutlass.Float32.inf if back < 0 or back > 7 else x


@cute.jit
def two_steps(x, head, query, key):
    if key > query:
        x = -cutlass.Float32.inf
    if key + 8 <= query:
        x = -cutlass.Float32.inf
    return x


@cute.jit
def by_sum(x, head, query, key):
    hidden = key > query or key < query - 7
    return x + (-cutlass.Float32.inf if hidden else cutlass.Float32(0.0))


@cute.jit
def far_down(x, head, query, key):
    return x if key <= query and key >= query - 7 else -20.0


@cute.jit
def nine_keys(x, head, query, key):
    return x if key <= query and key >= query - 8 else -cutlass.Float32.inf


@cute.jit
def by_parts(a, b):
    top, total = rows.merge((a[0], a[1]), (b[0], b[1]))
    return (a[2] * rows.power(a[0] - top) + b[2] * rows.power(b[0] - top)) / total


def by_weights(a, b):
    top = cute.arch.fmax(a[0], b[0])
    first, second = a[1] * rows.power(a[0] - top), b[1] * rows.power(b[0] - top)
    total = first + second
    return a[2] * rows.power(a[0] - top) / total + b[2] * rows.power(b[0] - top) / total


@cute.jit
def swapped(a, b):
    top = cute.arch.fmax(b[0], a[0])
    right = cute.math.exp(b[0] - top)
    left = cute.math.exp(a[0] - top)
    return (right * b[2] + left * a[2]) * (1.0 / (right * b[1] + left * a[1]))


def undecided(x, head, query, key):
    return x - 0.5 * (query - key if query > key else key - query)


def heedless(a, b):
    left, right = cute.math.exp(a[0]), cute.math.exp(b[0])
    return (a[2] * left + b[2] * right) / (a[1] * left + b[1] * right)


def without_units(a, b):
    return (a[2] + b[2]) / (a[1] + b[1])


def average(a, b):
    return (a[2] / a[1] + b[2] / b[1]) / 2
"""
OTHER = ["None", "'text'", "(1, 2)", "np.float64(3)", "float('nan')", "nothing", "from_torch", "nans", "ones"]
FMAS = 2 * 7168 * 1024 * 128  # of both products
NUMBERS = ["None", "'56'", "float('nan')", "(1, 2)", "True", "1.5"]
CHECKS: dict[str, tuple[list[str], list[str]]] = {  # wrong answers, and right ones
    "check_cost": (
        [
            f"{FMAS}, 56, 4", *(f"{2 * FMAS}, {x}" for x in ("0, 4", "28, 4", "56, 2", "-56, -4")),
            *(f"{2 * FMAS}, 56, {x}" for x in NUMBERS), *(f"{2 * FMAS}, {x}, 4" for x in NUMBERS),
            *(f"{x}, 56, 4" for x in NUMBERS),
        ],
        [f"{2 * FMAS}, 56, 4", f"{2 * FMAS}.0, np.float64(56), np.int8(4)", f"{2 * FMAS}, torch.tensor(56), 4.0"],
    ),
    "check_softcap": ([*OTHER, "same", "clipped", "only_from_above"], ["by_exp", "by_constant", "by_product"]),
    "check_alibi": ([*OTHER, "same", "one_slope"], ["by_branch", "by_float", "by_loop"]),
    "check_window": ([*OTHER, "same", "nine_keys", "far_down"], ["by_distance", "two_steps", "by_sum"]),
    "check_together": ([*OTHER, "without_units", "average"], ["by_parts", "by_weights", "swapped"]),
}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The checks, what they use, and answers that are functions."""
    cells = [f"ex{n}-check" for n in range(1, 6)]
    return exercises.defined(
        CHAPTER, cells, tmp_path_factory.mktemp(CHAPTER), f"import numpy as np\n{exercises.ANSWERS}\n{ANSWERS}"
    )


test_answers_are_judged = exercises.answers_are_judged(CHECKS)


test_hints = exercises.wrong_answers_get_hints({
    "check_cost(10**9, 16, 2)": "there are two products",
    f"check_cost({2 * FMAS}, 56, 2)": "Q and O have a row per query",
    "check_softcap(same)": "rows are wrong; the first is query 0 of head 0: ",
    "check_softcap(only_from_above)": "rows are wrong; the first is query ",
    "check_window(far_down)": "rows are wrong; the first is query ",
    "check_window(nine_keys)": "64 of 80 rows are wrong; the first is query 8 of head 0: ",
    "check_alibi(undecided)": "put @cute.jit above the function",
    "check_together(heedless)": "outputs are wrong, the first where a half has seen no key",
    "check_together(average)": "32 of 32 outputs are wrong, the first where a half has seen no key",
    "check_together(without_units)": "the first where both halves have seen keys",
})  # fmt: skip
