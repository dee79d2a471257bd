"""Chapter 00: its measuring kernels against numpy, its benchmark on a clock of ours, and what its exercises accept."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut.course import notebooks
from cutetut.measure import bench, records
from tests.chapters import benchmarks, exercises

CHAPTER = "00_start_here"


def test_each_tag_of_the_table_is_in_use() -> None:
    """The table "How to read a chapter" names no tag that no notebook has, and none that hides a difference."""
    cells = [cell for path in notebooks.toc() for cell in notebooks.read(path.stem).cells]
    used = {tag for cell in cells for tag in notebooks.tags(cell)}
    table = next(cell.source for cell in notebooks.read(CHAPTER).cells if cell.id == "read-md")
    named = {tag for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for tag in re.findall(r"`(.+?)`", row)}
    assert len(named) > 5 and named <= used, named - used


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


# The kernels that measure --------------------------------------------------------------------------------------


def walked(chain: torch.Tensor, steps: int) -> int:
    """Where a chain leads from element 0, by Python."""
    at = 0
    for _ in range(steps):
        at = int(chain[at])
    return at


@pytest.mark.parametrize("size", [1024, 4096])
def test_a_random_cycle_visits_each_line_once(chapter: ModuleType, size: int) -> None:
    chain = chapter.random_cycle(size).cpu()
    visited = [walked(chain, steps) for steps in range(size // 128)]
    assert sorted(visited) == list(range(0, size // 4, 32)) and walked(chain, size // 128) == 0


@pytest.mark.parametrize(("warm_up", "steps"), [(0, 1), (5, 17), (16, 100)])
def test_the_chase_follows_the_chain(chapter: ModuleType, warm_up: int, steps: int) -> None:
    chain = chapter.random_cycle(2048)
    out = torch.zeros(2, dtype=torch.int64, device=chapter.cutetut.device)
    arguments = chapter.from_dlpack(chain), chapter.from_dlpack(out)
    chapter.cute.compile(chapter.chase, *arguments, 1, 1)(*arguments, warm_up, steps)
    assert out[1].item() == walked(chain.cpu(), warm_up + steps) and out[0].item() > 0


def test_the_chase_in_shared_memory_follows_the_chain(chapter: ModuleType) -> None:
    order = torch.randperm(chapter.NEAR, generator=torch.Generator().manual_seed(1)).int()
    chain = torch.zeros(chapter.NEAR, dtype=torch.int32)
    chain[order.long()] = order.roll(-1)
    out = torch.zeros(2, dtype=torch.int64, device=chapter.cutetut.device)
    arguments = chapter.from_dlpack(chain.to(chapter.cutetut.device)), chapter.from_dlpack(out)
    chapter.cute.compile(chapter.chase_shared, *arguments, 1)(*arguments, 37)
    assert out[1].item() == walked(chain, 37)


@pytest.mark.parametrize("loads", [1, 2, 4])
def test_the_stream_sums_what_each_thread_reads(chapter: ModuleType, rng: np.random.Generator, loads: int) -> None:
    x = torch.from_numpy(rng.standard_normal(3 * 64 * 8).astype(np.float32)).to(chapter.cutetut.device)
    y = torch.full((3 * 64,), float("nan"), device=chapter.cutetut.device)
    arguments = chapter.from_dlpack(x), chapter.from_dlpack(y)
    chapter.cute.compile(chapter.stream, *arguments, 1, loads, 3, 64)(*arguments, 8 // loads)
    expected = x.cpu().double().numpy().reshape(8, 3 * 64).sum(axis=0)
    assert np.abs(y.cpu().numpy() - expected).max() < 1e-5


@pytest.mark.parametrize("length", [1, 127, 128, 129, 511, 512, 513, 1000, 2048])
def test_four_elements_a_thread_match_float64(chapter: ModuleType, rng: np.random.Generator, length: int) -> None:
    x = torch.from_numpy(rng.standard_normal(length).astype(np.float32)).to(chapter.cutetut.device)
    memory = torch.full((length + 8,), 7.0, device=chapter.cutetut.device)
    y = memory[:length]
    arguments = chapter.from_dlpack(x), chapter.from_dlpack(y), 2.5, -1.25
    chapter.cute.compile(chapter.axpb4, *arguments)(*arguments)
    expected = 2.5 * x.cpu().numpy().astype(np.float64) - 1.25  # rounded once
    assert np.array_equal(y.cpu().numpy(), expected.astype(np.float32)) and (memory[length:] == 7).all()


# The benchmark ------------------------------------------------------------------------------------------------


@pytest.mark.emulator
def test_the_benchmark_writes_what_the_chapter_reads(
    chapter: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = {"right": 10, "wrong": 0, "ended": "ends"}
    small = {"BUFFERS": [1024, 2048], "WARPS": (1,), "STREAMED": 132 * 32 * 4, "STEPS": 64, "ELEMENTS": 1500}
    for name, value in small.items():
        monkeypatch.setattr(chapter, name, value)
    benchmarks.keep_tables_in(tmp_path, monkeypatch)
    benchmarks.without_a_clock(chapter, monkeypatch)
    monkeypatch.setattr(chapter.mistakes, "trial", lambda launch, right: outcome)
    rows = bench.validated(chapter.benchmark(), CHAPTER)
    assert [(row["kernel"], row["vendor"]) for row in rows] == [
        ("00 axpb", "torch.add"), ("00 axpb4", "torch.add"), ("00 axpb4", "torch.mul")
    ]  # fmt: skip
    memory = records.read(CHAPTER, "memory")
    assert [size for size, _ in memory["latency"]["chain"]] == [1024, 2048] and memory["latency"]["mhz"] == 1000
    assert [(row["warps"], row["loads"]) for row in memory["bandwidth"]] == [(1, 1), (1, 4)]
    assert memory["bandwidth"][0]["TB/s"] == pytest.approx(4 * 132 * 32 * 4 / 1e-6 / 1e12)
    assert records.read(CHAPTER, "mistakes") == [{"mistake": name, **outcome} for name in chapter.MISTAKES]


@pytest.mark.parametrize("name", ["y alone", "other data behind y"])
def test_an_attempt_without_a_mistake_is_right(
    chapter: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(chapter.MISTAKES, name, [])
    launch, right = chapter.attempt(name)
    assert not right()
    launch()
    assert right()


@pytest.mark.skipif(not bench.data_file(f"{CHAPTER}_memory").is_file(), reason="not measured yet")
def test_what_the_text_claims_is_in_the_tables() -> None:
    memory = records.read(CHAPTER, "memory")
    chain = dict(memory["latency"]["chain"])
    fma, near = memory["latency"]["fma"], memory["latency"]["shared"]
    l1, l2, hbm = (chain[2**e] for e in (14, 22, 30))
    assert 4 <= fma < 5 < near < l1 < 2 * near < l2 < hbm and hbm > 100 * fma
    speed = {(row["warps"], row["loads"]): row["TB/s"] for row in memory["bandwidth"]}
    law = 132 * 128 / (hbm / memory["latency"]["mhz"] / 1e6) / 1e12
    assert all(measured <= 1.05 * law * warps * loads for (warps, loads), measured in speed.items())
    assert speed[64, 1] > 30 * speed[1, 1] and speed[1, 4] > 0.75 * speed[4, 1]
    axpb = bench.read(CHAPTER)["rows"][0]
    reads = 4e-6 * axpb["elements"] / axpb["ours_us"]  # TB/s; as many bytes are written
    assert round(reads / law) == 17 and reads < speed[64, 1]  # warps of an SM with a load under way


# Exercises ----------------------------------------------------------------------------------------------------

ANSWER = """
@cute.kernel
def {name}({parameters}):
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    i = cta * THREADS + tid
    {body}
"""
REVERSED = {  # x in reverse, or not
    "ignores_x": "if i < cute.size(x): y[i] = cutlass.Float32(cute.size(x) - 1 - i)",
    "nan_everywhere": 'if i < cute.size(x): y[i] = x[i] * float("nan")',
    "changes_x": """
    if i < cute.size(x):
        x[i] = 0.0
        y[i] = 0.0""",
    "no_predicate": "y[i] = x[cute.size(x) - 1 - i]",
    "from_the_other_end": "if i < cute.size(x): y[cute.size(x) - 1 - i] = x[i]",
    "one_thread_does_all": """
    if cta == 0 and tid == 0:
        for each in cutlass.range(cute.size(x), unroll=1):
            y[each] = x[cute.size(x) - 1 - each]""",
    "early_out": """
    n = cute.size(x)
    j = n - 1 - i
    if j >= 0:
        y[n - 1 - j] = x[j]""",
}
POLYNOMIALS = {
    "powers": """
    if i < cute.size(x):
        total, power = cutlass.Float32(c[0]), cutlass.Float32(1.0)
        for k in cutlass.range_constexpr(1, len(c)):
            power = power * x[i]
            total = total + c[k] * power
        y[i] = total""",
    "changes_x_for_the_constant": """
    if i < cute.size(x):
        x[i] = 0.0
        y[i] = cutlass.Float32(c[0])""",
    "nan_for_all": 'if i < cute.size(x): y[i] = cutlass.Float32(float("nan"))',
    "by_a_tuple": """
    if i < cute.size(x):
        total = cutlass.Float32(c[-1])
        for factor in c[-2::-1]:
            total = total * x[i] + factor
        y[i] = total""",
    "in_a_fragment": """
    if i < cute.size(x):
        total = cute.make_rmem_tensor(1, cutlass.Float32)
        total[0] = cutlass.Float32(c[-1])
        for factor in reversed(c[:-1]):
            total[0] = total[0] * x[i] + factor
        y[i] = total[0]""",
    "constant": "if i < cute.size(x): y[i] = cutlass.Float32(c[0])",
    "counts_at_run_time": """
    if i < cute.size(x):
        total = cutlass.Float32(c[-1])
        for k in range(1, len(c)):
            total = total * x[i] + c[len(c) - 1 - k]
        y[i] = total""",
    "by_reversed": """
    if i < cute.size(x):
        value = x[i]
        total = cutlass.Float32(c[len(c) - 1])
        for k in cutlass.range_constexpr(len(c) - 2, -1, -1):
            total = c[k] + value * total
        y[i] = total""",
}
CHECKS = {1: "check_idle", 2: "check_reverse", 3: "check_culprit", 4: "check_warps", 5: "check_polynomial"}
WRONG = {  # a part of what the check has to say
    1: {
        "lambda length, threads: 24": "does not leave 24 idle",
        "lambda length, threads: length % threads": "idle",
        "lambda length, threads: float('nan')": "whole number",
        "lambda length, threads: str(-length % threads)": "text",
        "lambda length, threads: None": "None",
        "lambda length, threads: 1 // 0": "ZeroDivisionError",
    },
    2: {
        "reverse_kernel": "elements are not",
        "ignores_x": "128 elements are not",
        "nan_everywhere": "elements are not",
        "changes_x": "your answer changes x",
        "no_predicate": "OutOfBounds",
        "'by a loop'": "a function with @cute.kernel above it is asked for, not text",
        "(1, 2)": "a function with @cute.kernel above it is asked for, not tuple (1, 2)",
    },
    3: {
        "(7, 3, 8)": "another CTA",  # of the chapter's own report
        "(15, 1, 60)": "another lane",
        "(15, 60, 28)": "another warp",
        "{'cta': 15, 'warp': 1, 'lane': 28}": "3 numbers",
    },
    4: {
        "lambda *arguments: 64.0": "Little's law",
        "lambda sms, rate, latency, loads: rate * latency / (sms * loads * 32)": "how many bytes does one warp have",
        "lambda sms, rate, latency, loads: rate * latency / (sms * loads * 4)": "how many bytes does one warp have",
        "lambda sms, rate, latency, loads: rate * latency / (loads * 128)": "how many SMs share the memory",
        "lambda *arguments: float('nan')": "a finite number",
        "lambda *arguments: 'many'": "not text",
        "lambda sms, rate, latency, loads: str(rate * latency / (sms * loads * 128))": "not text",
        "lambda sms, rate, latency, loads: 1 / 0": "ZeroDivisionError",
        "lambda *arguments: None": "a number",
        "lambda *arguments: (1, 2)": "a number",
    },
    5: {
        "polynomial_kernel": "values are wrong", "powers": "floating-point operations", "constant": "values are wrong",
        "nan_for_all": "300 of 300", "changes_x_for_the_constant": "your answer changes x",
        "counts_at_run_time": "nor what `range` counts",
        "'by a loop'": "a function with @cute.kernel above it is asked for, not text",
        "(1, 2)": "a function with @cute.kernel above it is asked for, not tuple (1, 2)",
    },
}
RIGHT = {
    1: [
        "lambda length, threads: (threads - length % threads) % threads",
        "lambda length, threads: np.int64(-length % threads)",
        "lambda length, threads: torch.tensor(-(-length // threads) * threads - length)",
    ],
    2: ["from_the_other_end", "one_thread_does_all", "early_out"],
    3: ["[15, 1, 28]", "np.array([15.0, 1.0, 28.0])", "torch.tensor((15, 1, 28))"],
    4: [
        "lambda sms, rate, latency, loads: int(np.ceil(rate * latency / (sms * loads * 128)))",
        "lambda sms, rate, latency, loads: np.float32(rate * latency / sms / loads / 128)",
        "lambda sms, rate, latency, loads: torch.tensor(rate * latency / (sms * loads * 128))",
    ],
    5: ["polynomial_kernel_of_the_solution", "by_reversed", "by_a_tuple", "in_a_fragment"],
}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The exercises' checks with what they use, and answers that are kernels."""
    cells = [*(f"ex{number}-check" for number in CHECKS), "ex2", "ex5"]
    two = "x: cute.Tensor, y: cute.Tensor"
    answers = [ANSWER.format(name=name, parameters=two, body=body) for name, body in REVERSED.items()]
    three = f"{two}, c: cutlass.Constexpr"
    answers += [ANSWER.format(name=name, parameters=three, body=body) for name, body in POLYNOMIALS.items()]
    solution = exercises.renamed(CHAPTER, "ex5-solution", "polynomial_kernel", "polynomial_kernel_of_the_solution")
    extra = "\n".join([*answers, solution])
    rng = torch.Generator().manual_seed(0)  # of the cell that compiles the kernel
    return exercises.defined(CHAPTER, cells, tmp_path_factory.mktemp("cells"), extra, re=re, rng=rng)


test_wrong_answers_are_told_why = exercises.wrong_answers_are_told_why(CHECKS, exercises.with_no_answers(WRONG))
test_right_answers_of_any_form_are_accepted = exercises.right_answers_are_accepted(CHECKS, RIGHT)
