"""Chapter 01's copy along a walk, loaded from the notebook: any permutation, refusals, traffic, mistakes, benchmark."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut.course import notebooks
from cutetut.course.difference import body, difference
from cutetut.inspect import profile
from cutetut.measure import bench, mistakes, records
from tests.chapters import benchmarks

CHAPTER = "01_layouts"


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


def offsets(shape: Any, stride: Any) -> np.ndarray:
    """The offsets of a layout by its definition, the first mode fastest; independent of CuTe."""
    modes = list(zip(leaves(shape), leaves(stride), strict=True))
    counted = itertools.product(*(range(size) for size, _ in reversed(modes)))
    return np.array([sum(i * d for i, (_, d) in zip(reversed(at), modes, strict=True)) for at in counted])


def leaves(tree: Any) -> list[int]:
    if not isinstance(tree, tuple):
        return [tree]
    return [leaf for part in tree for leaf in leaves(part)]


def test_a_layout_is_a_permutation_exactly_if_its_sorted_strides_are_products(
    chapter: ModuleType, rng: np.random.Generator
) -> None:
    seen = {True: 0, False: 0}
    for _ in range(3000):
        a, b, c = (int(size) for size in rng.choice([1, 2, 3, 4], 3))
        steps = [1, a, a * b] if rng.random() < 0.6 else rng.integers(0, 9, 3).tolist()
        order = rng.permutation(3)
        sizes, strides = [(a, b, c)[i] for i in order], [int(steps[i]) for i in order]
        shape, stride = (sizes[0], (sizes[1], sizes[2])), (strides[0], (strides[1], strides[2]))
        truth = sorted(offsets(shape, stride)) == list(range(a * b * c))
        assert chapter.is_permutation(shape, stride) == truth, (shape, stride)
        seen[truth] += 1
    assert min(seen.values()) > 300


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 32])
def test_strips_are_what_the_text_describes(chapter: ModuleType, width: int) -> None:
    """Along a row of the strip, then its next row, then the next strip."""
    n = 32
    expected = [row * n + left + i for left in range(0, n, width) for row in range(n) for i in range(width)]
    assert offsets(*chapter.strips(n, width)).tolist() == expected


@pytest.mark.parametrize(
    "walk",
    [
        ((1024,), (1,)),
        ((2, 512), (512, 1)),
        ((5, 1024, 3, 7), (3, 105, 1, 15)),
        (((4, 8), (32, 3)), ((96, 384), (3, 1))),
    ],
    ids=str,
)
def test_any_permutation_copies(chapter: ModuleType, rng: np.random.Generator, device: str, walk: Any) -> None:
    x = torch.from_numpy(rng.standard_normal(offsets(*walk).size).astype(np.float32)).to(device)
    assert torch.equal(chapter.copied(x, *walk).double(), x.double())


@pytest.mark.parametrize(
    ("x", "walk", "said"),
    [
        (torch.zeros(1024, dtype=torch.float16), ((1024,), (1,)), "float32 vector"),
        (torch.zeros(32, 32), ((32, 32), (1, 32)), "float32 vector"),
        (torch.zeros(2048)[::2], ((1024,), (1,)), "float32 vector"),
        (torch.zeros(1024), ((32, 32), (1, 33)), "no permutation"),
        (torch.zeros(1024), ((32, 32), (0, 1)), "no permutation"),
        (torch.zeros(2048), ((1024,), (1,)), "1024 steps, 2048 numbers"),
        (torch.zeros(1000), ((1000,), (1,)), "the same multiple of 1024"),
        (torch.zeros(0), ((0,), (1,)), "the same multiple of 1024|no permutation"),
    ],
)
def test_what_it_does_not_support_is_refused(chapter: ModuleType, x: torch.Tensor, walk: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        chapter.copied(x, *walk)


@pytest.mark.emulator
@pytest.mark.parametrize("width", [1, 2, 4, 8, 128])
def test_sectors_are_those_of_the_first_32_offsets(chapter: ModuleType, width: int) -> None:
    walk = chapter.strips(128, width)
    counts = profile.count(chapter.copy, torch.zeros(128**2), torch.zeros(128**2), *walk)
    touched = len(set((offsets(*walk)[:32] // 8).tolist()))
    assert touched == max(4, 32 // width)
    assert counts.sectors_per_request("ld") == counts.sectors_per_request("st") == touched


def test_one_idea_separates_the_two_kernels(chapter: ModuleType) -> None:
    assert len(body(chapter.copy_kernel)) < 15
    assert difference(chapter.gather_kernel, chapter.copy_kernel).come <= 10


# Mistakes and measurements ------------------------------------------------------------------------------------


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("name", "said"), [("a stride too long", "OutOfBounds"), ("stores elsewhere", "MissingBarrier")]
)
def test_mistakes_that_the_emulator_reports(chapter: ModuleType, name: str, said: str) -> None:
    launch, *walk = chapter.mistaken(name, 128)
    assert said in mistakes.report(launch, torch.randn(128**2), torch.zeros(128**2), *walk)


@pytest.mark.emulator
def test_a_mistake_can_be_tried_on_a_gpu(chapter: ModuleType) -> None:
    """What `mistakes.trial` calls, here with the one mistake that the emulator lets run."""
    launch, right = chapter.attempt("a stride too short", 128)
    launch()
    assert not right() and launch.behind() == 0


@pytest.mark.emulator
def test_the_benchmark_has_rows_for_every_walk_and_keeps_its_tables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The whole of it but for the clock and the GPU: kernels run, copies are checked, the files can be read again."""
    smaller = [('"01_layouts", 8192, 8', '"01_layouts", 128, 8'), ("(1, 4, 8, 32, N)", "(1, 8, N)")]
    chapter = notebooks.changed(CHAPTER, smaller, bench.BENCH_TAGS)
    outcome = {"right": 1, "wrong": 9, "ended": "ends"}
    monkeypatch.setattr(chapter.mistakes, "trial", lambda launch, right: outcome)
    benchmarks.keep_tables_in(tmp_path, monkeypatch)
    benchmarks.count_launches(5, monkeypatch)
    timed = benchmarks.without_a_clock(chapter, monkeypatch, ours_too=False)
    rows = bench.validated(chapter.benchmark(), CHAPTER)
    names = ["width 1", "width 8", "width 128", "every 8th", "width 1, padded"]
    assert timed == [f"01 {name}" for name in names]
    assert [(row["kernel"], row["flops"]) for row in rows] == [(name, 8 * 128**2) for name in timed]
    outcomes = [{"mistake": name, **outcome, "behind": 0} for name in chapter.MISTAKES]  # none was launched
    assert records.read(CHAPTER, "mistakes") == outcomes
    counters = records.read(CHAPTER, "counters")
    assert list(counters) == names and set(counters["width 1"]) == set(chapter.COUNTERS)


def recorded(what: str = "") -> dict[str, Any]:
    """The chapter's table of this name, or skip the test."""
    path = bench.data_file(CHAPTER + what)
    if not path.is_file():
        pytest.skip("not measured yet: python -m cutetut bench 01_layouts, on an H200")
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def test_what_the_text_says_of_the_speeds_is_in_the_table() -> None:
    """In bursts: the order, a tenth, and the three surprises."""
    rows = [row for row in recorded()["rows"] if row["method"].startswith("burst")]
    ratio = {row["kernel"].removeprefix("01 "): row["ratio"] for row in rows}
    by_width = [ratio[f"width {width}"] for width in (1, 4, 8, 32, 8192)]
    assert by_width == sorted(by_width) and by_width[-1] > 0.97
    times = {name: ratio["width 8192"] / own for name, own in ratio.items()}
    assert times["width 1"] > 9 and times["every 8th"] < 6 and times["width 8"] > 1.3


def test_what_the_text_says_of_the_traffic_is_in_the_counters() -> None:
    counters = recorded("_counters")["counters"]
    each = {name: row["sectors"] / row["requests"] for name, row in counters.items()}
    widths = {f"width {width}": max(4, 32 // width) for width in (1, 4, 8, 32, 8192)}
    assert each == {**widths, "every 8th": 32, "width 1, padded": 32}
    assert counters["every 8th"]["bytes read"] < 1.1 * 4 * 8192**2


def test_what_the_text_says_of_the_mistakes_is_in_their_table() -> None:
    content = recorded("_mistakes")
    for row in content["mistakes"]:
        assert (row["right"], row["wrong"], row["ended"]) == (0, 10, "ends")
    behind = {row["mistake"]: row.get("behind") for row in content["mistakes"]}
    assert behind["a stride too long"] == 1023  # of the last column all but its first number
