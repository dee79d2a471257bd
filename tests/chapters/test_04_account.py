"""Chapter 04's account of its cycles: the rule for L1, experiments, benchmark, and what its exercises accept."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut.course import notebooks, provenance
from cutetut.inspect import profile
from cutetut.measure import bench, mistakes, records
from tests.chapters import benchmarks, exercises

CHAPTER = "04_scalar_fma_gemm"


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


# The experiments ----------------------------------------------------------------------------------------------


@pytest.mark.emulator
def test_each_experiment_asks_for_what_the_chapter_says(
    chapter: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """(FMAs, sectors) of the first CTA, 2 K tiles, one float of C per lane stored."""
    monkeypatch.setattr(chapter, "LOOKED_AT", 128)
    expected = {
        "the kernel": (512, 2304),
        "an eighth of the FMAs": (64, 2304),
        "thread 0's rows of A for all": (512, 128 + 2048),
        "thread 0's rows of B for all": (512, 256 + 128),
        "K tiles 0 and 1 again and again": (512, 2304),
        "warps of 8x4 threads": (512, 128 * 12),
        "A and B M-major": (512, 128 * 9),
    }
    for name, replacements in chapter.EXPERIMENTS.items():
        launch = notebooks.changed(CHAPTER, replacements).scalar_gemm_launch
        A, B, C = (torch.zeros(128, 16), torch.zeros(128, 16), torch.zeros(128, 128))
        if "M-major" in name:
            A, B = torch.zeros(16, 128).T, torch.zeros(16, 128).T
        counts = profile.count(launch, A, B, C)
        if name in expected:
            fmas, sectors = expected[name]
            assert counts.flops("scalar") == 2 * 256 * 2 * fmas, name
            assert counts.sectors("ld") == 2 * sectors, name
        else:  # loads once
            assert counts.sectors("ld") == 2304 and counts.flops("scalar") == 2 * 256 * 2 * 512


def lines(addresses: np.ndarray) -> int:
    """The rule in words, by sets: each quarter of a warp, a cycle for each line of 128 bytes."""
    return sum(len({int(a) * 4 // 128 for a in request[q : q + 8]}) for request in addresses for q in range(0, 32, 8))


@pytest.fixture(scope="module")
def rule(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the chapter's cells that count lines define, with what they use."""
    return exercises.defined(CHAPTER, ["rows", "l1"], tmp_path_factory.mktemp("cells"))


def test_lines_by_quarter_is_the_rule_in_words(rule: dict[str, Any], rng: np.random.Generator) -> None:
    count = rule["lines_by_quarter"]
    for spread in (1, 40, 300, 5000):
        requests = rng.integers(0, spread, (7, 32)) * 4
        assert count(requests) == lines(requests)
    assert [count(np.arange(32) % rows * 32) for rows in (1, 2, 4, 8, 16, 32)] == [4, 8, 16, 32, 32, 32]


@pytest.mark.parametrize(("pitch", "expected"), [(4096, (512, 4096)), (32, (512, 4096)), (8, (512, 4096))])
def test_the_kernels_loads_by_its_index_arithmetic(
    rule: dict[str, Any], pitch: int, expected: tuple[int, int]
) -> None:
    """Against the addresses as the chapter's CUDA spells them out."""
    thread, i = np.arange(256)[:, None], np.arange(8)
    row = i % 4 + i // 4 * 64
    found = rule["l1_cycles"](rule["make_tiled_mma"], pitch)
    for operand, rows, total in (("A", thread // 16 * 4 + row, expected[0]), ("B", thread % 16 * 4 + row, expected[1])):
        starts = (rows[:, :, None] * pitch + np.array([0, 4])).reshape(8, 32, 16)
        assert found[operand] == lines(starts.transpose(0, 2, 1).reshape(-1, 32)) == total


def test_m_major_operands_and_one_thread_for_all(rule: dict[str, Any]) -> None:
    cycles = partial(rule["l1_cycles"], rule["make_tiled_mma"])
    assert cycles(k_major=False) == {"A": 512, "B": 512}
    assert cycles(only="B") == {"A": 512, "B": 512} and cycles(only="A") == {"A": 512, "B": 4096}


# The benchmark ------------------------------------------------------------------------------------------------


@pytest.mark.emulator
def test_the_benchmark_writes_what_the_chapter_reads(
    chapter: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = [{"mistake": "no fill", "right": 10, "wrong": 0, "ended": "ends"}]
    monkeypatch.setattr(chapter, "SIZES", (128,))
    monkeypatch.setattr(chapter, "LOOKED_AT", 128)
    monkeypatch.setattr(mistakes, "on_gpu", lambda notebook, names: outcomes)
    benchmarks.keep_tables_in(tmp_path, monkeypatch)
    benchmarks.count_launches(8, monkeypatch)
    benchmarks.without_a_clock(chapter, monkeypatch, ours_too=False)
    rows = bench.validated(chapter.benchmark(), CHAPTER)
    assert [row["vendor"] for row in rows] == ["cuBLAS float32", "cuBLAS bfloat16"]
    table = records.read(CHAPTER, "experiments")
    assert list(table["us"]) == list(chapter.EXPERIMENTS) and len(table["us"]["the kernel"]) == 5
    assert list(table["rows"]) == ["1", "2", "4", "8", "16", "32"] and min(table["rows"].values()) > 0
    stalls = records.read(CHAPTER, "stalls")
    assert list(stalls) == list(chapter.EXPERIMENTS) and set(stalls["the kernel"]) == set(chapter.COUNTERS)
    assert records.read(CHAPTER, "mistakes") == outcomes


def test_an_attempt_without_a_mistake_is_right(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(chapter.MISTAKES, "no fill", [])
    launch, right = chapter.attempt("no fill")
    launch()
    assert right()


def test_the_attempts_with_a_mistake_are_told_apart(chapter: ModuleType) -> None:
    launch, right = chapter.attempt("half of the threads")
    launch()
    assert not right()


# What the text claims of the tables ----------------------------------------------------------------------------


@pytest.mark.skipif(not bench.data_file(f"{CHAPTER}_stalls").is_file(), reason="not measured yet")
def test_what_the_text_claims_is_in_the_tables() -> None:
    counters, table = records.read(CHAPTER, "stalls"), records.read(CHAPTER, "experiments")
    tiles = 16 * 16 * 256
    total = {name: row["cycles"] * 132 / tiles for name, row in counters.items()}
    busy = {name: total[name] * row["L1 %"] / 100 for name, row in counters.items()}
    assert counters["the kernel"]["sectors"] == tiles * 2304  # the emulator's number
    for name, cycles in {"the kernel": 4608, "warps of 8x4 threads": 3072, "A and B M-major": 1024}.items():
        assert cycles <= busy[name] <= 1.02 * cycles  # and some stores
    assert total["the kernel"] == pytest.approx(4608 + total["loads once, before the loop"], rel=0.02)
    assert total["K tiles 0 and 1 again and again"] < 1.1 * 4608
    us = {name: times[2] for name, times in table["us"].items()}
    assert us["thread 0's rows of B for all"] < us["the kernel"] / 2 < us["thread 0's rows of A for all"]
    for rows, quarter in (("1", 1), ("2", 2), ("4", 4), ("8", 8), ("16", 8), ("32", 8)):
        assert table["rows"][rows] == pytest.approx(4 * quarter, rel=0.06)


# A table is read as it was written -----------------------------------------------------------------------------


def test_records_say_what_is_missing_or_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmarks.keep_tables_in(tmp_path, monkeypatch)
    with pytest.raises(bench.BenchError, match="nothing was measured for 04_scalar_fma_gemm_stalls yet.*bench 04"):
        records.read(CHAPTER, "stalls")
    (tmp_path / f"{CHAPTER}_stalls.json").write_text("{")
    with pytest.raises(bench.BenchError, match="cannot be read"):
        records.read(CHAPTER, "stalls")
    (tmp_path / f"{CHAPTER}_stalls.json").write_text(json.dumps({"stalls": 1}))
    with pytest.raises(bench.BenchError, match="is not a recorded table"):
        records.read(CHAPTER, "stalls")


def test_records_say_when_the_kernel_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = {"gpu": "NVIDIA H200", "driver": "1", "cuda": "13.0", "torch": "2", "cutlass_dsl": "4", "date": "2026"}
    benchmarks.keep_tables_in(tmp_path, monkeypatch)
    monkeypatch.setattr(provenance, "collect", lambda: machine)
    records.write(CHAPTER, "some", [1, {"a": 2.5}])
    assert records.read(CHAPTER, "some") == [1, {"a": 2.5}]
    assert "NVIDIA H200" in records.source(CHAPTER, "some") and "changed" not in records.source(CHAPTER, "some")
    monkeypatch.setattr(bench, "current_hash", lambda stem: "another")
    assert "have changed since" in records.source(CHAPTER, "some")


# Exercises ----------------------------------------------------------------------------------------------------

ANSWERS = '''
def transposed_registers(tiled_mma, tCgC):
    return cute.make_rmem_tensor(cute.make_layout((1, (4, 2), (4, 2)), stride=(0, (8, 32), (1, 4))), cutlass.Float32)


def all_one_register(tiled_mma, tCgC):
    return cute.make_rmem_tensor(cute.make_layout((1, (4, 2), (4, 2)), stride=(0, (0, 0), (1, 4))), cutlass.Float32)


def flat(tiled_mma, tCgC):
    return cute.make_rmem_tensor((1, 8, 8), cutlass.Float32)


def ordered(tiled_mma, tCgC):
    layout = cute.make_ordered_layout((1, (4, 2), (4, 2)), order=(0, (3, 4), (1, 2)))
    return cute.make_rmem_tensor(layout, cutlass.Float32)


def columns_first(tiled_mma, tCgC):
    return cute.make_rmem_tensor(cute.make_layout(tCgC.shape, stride=(0, (4, 16), (1, 32))), cutlass.Float32)


def tiled(shape, stride, m=(16, 4), n=(16, 4)):
    def make():
        atoms = cute.make_layout(shape, stride=stride)
        dealt = [cute.make_layout(each, stride=(4, 1)) for each in (m, n)]
        return cute.make_tiled_mma(cute.nvgpu.MmaUniversalOp(cutlass.Float32), atoms, permutation_mnk=(*dealt, None))

    return make


def copy_by_hand(A, B):
    M, N, K = A.shape[0], B.shape[0], A.shape[1]
    a = A.new_zeros(-(-M // 128) * 128, -(-K // 8) * 8)
    b = B.new_zeros(-(-N // 128) * 128, a.shape[1])
    a[:M, :K], b[:N, :K] = A, B
    return scalar_gemm(a, b)[:M, :N].clone()


def ten_more_of_everything(A, B):
    pad = torch.nn.functional.pad
    a, b = (pad(t, (0, 8 - t.shape[1] % 8, 0, 256 - t.shape[0] % 128)) for t in (A, B))
    C = a.new_full((a.shape[0], b.shape[0]), float("nan"))
    return scalar_gemm(a, b, C)[: A.shape[0], : B.shape[0]]


def padded_by_luck(A, B):
    a, b = (torch.empty(-(-len(t) // 128) * 128, -(-t.shape[1] // 8) * 8) for t in (A, B))
    a[: A.shape[0], : A.shape[1]], b[: B.shape[0], : B.shape[1]] = A, B
    return scalar_gemm(a, b)[: A.shape[0], : B.shape[0]]


def by_columns_of_k(A, B):
    def padded(t):
        return torch.nn.functional.pad(t, (0, -t.shape[1] % 8, 0, -t.shape[0] % 128)).contiguous()

    return torch.stack(list(scalar_gemm(padded(A), padded(B)))[: A.shape[0]])[:, : B.shape[0]]
'''
CHECKS = {1: "check_turned", 2: "check_accumulator", 3: "check_intensity", 4: "check_any", 5: "check_faster"}
WRONG = {  # a part of what the check has to say
    1: {
        "(0, 0, 0, 0)": "sectors of a load of A",
        "(16, 2, 16, 2)": "cycles of a load of A",
        "(16, 2, 32)": "4 numbers",
    },
    2: {
        "lambda tiled_mma, tCgC: tiled_mma.make_fragment_C(tCgC)": "64 stores, 0 of them wide",
        "all_one_register": "elements of the product are wrong",
        "flat": "an accumulator of shape",
        "lambda tiled_mma, tCgC: None": "returns NoneType",
        "lambda tiled_mma, tCgC: tCgC.layout": "returns _Layout",
        "lambda tiled_mma, tCgC: tCgC": "",
    },
    3: {
        "lambda bM, bN, bK: 32.0": "a 64x256 tile",
        "lambda bM, bN, bK: float('nan')": "a finite number, not nan",
        "lambda bM, bN, bK: str(bM * bN / (2 * (bM + bN)))": "is a number, not text",
        "lambda bM, bN, bK: (32, 1)": "is a number, not tuple",
        "lambda bM, bN, bK: None": "is a number, not None",
        "lambda bM, bN, bK: bM * bN * bK / (2 * (bM * bK + bN * bK + bM * bN))": "the bytes of C are in it",
    },
    4: {
        "lambda A, B: scalar_gemm(A, B)": "M=100",
        "lambda A, B: 3 * (A @ B.T)": "elements are wrong",
        "lambda A, B: torch.mm(A, B.T)": "`scalar_gemm` has not computed it",
        "lambda A, B: reference.gemm(A, B)": "`scalar_gemm` has not computed it",
        "lambda A, B: A.zero_() @ B.zero_().T": "elements are wrong",
        "lambda A, B: A.new_zeros(A.shape[0], B.shape[0])": "elements are wrong",
        "lambda A, B: A.new_full((A.shape[0], B.shape[0]), float('nan'))": "elements are wrong",
        "padded_by_luck": "20000 of 20000 elements are wrong",
        "lambda A, B: 'product'": "",
        "lambda A, B: (A, B)": "",
    },
    5: {
        "tiled((16, 16, 1), (16, 1, 0))": "18 sectors",
        "tiled((16, 16, 1), (1, 16, 0))": "18 sectors",
        "tiled(((4, 4), (8, 2), 1), ((8, 32), (1, 128), 0))": "4608 cycles of L1 per K tile, and 3072 are enough",
        "tiled((16, 8, 1), (8, 1, 0))": "a TiledMMA of 128 threads",
        "tiled((16, 16, 1), (0, 0, 0))": "",
        "lambda: None": "",
        "lambda: A @ B.T": "",
    },
}
RIGHT = {
    1: ["[16, 2, 32, 4]", "np.array([16.0, 2, 32, 4])", "torch.tensor([16, 2, 32, 4])"],
    2: ["lambda tiled_mma, tCgC: cute.make_fragment_like(tCgC)", "transposed_registers", "ordered", "columns_first"],
    3: [
        "lambda bM, bN, bK: 1 / (2 / bM + 2 / bN)",
        "lambda bM, bN, bK: np.float64(bM * bN) / (2 * (bM + bN))",
        "lambda bM, bN, bK: torch.tensor(2.0 * bM * bN * bK / (4 * bK * (bM + bN)))",
    ],
    4: ["copy_by_hand", "ten_more_of_everything", "by_columns_of_k"],
    5: [
        "tiled(((8, 2), (4, 4), 1), ((4, 128), (1, 32), 0))",
        "tiled(((4, 4), (8, 2), 1), ((1, 32), (4, 128), 0))",
        "tiled(((2, 4, 2), (4, 4), 1), ((4, 8, 32), (1, 64), 0))",
        "tiled(((8, 2), ((2, 2), 4), 1), ((4, 128), ((1, 2), 32), 0))",
    ],
}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The exercises' checks with what they use, and answers of some length."""
    cells = ["rows", "l1", *(f"ex{number}-check" for number in CHECKS)]
    zeros = "zeros = [torch.zeros(shape) for shape in ((bM, bK), (bN, bK), (bM, bN))]"
    extra = f"{zeros}\n\n\n{ANSWERS}\n\nA = B = torch.ones(2, 2)"
    rng = torch.Generator().manual_seed(4)  # of the cell that random_problem is in
    return exercises.defined(CHAPTER, cells, tmp_path_factory.mktemp("cells"), extra, rng=rng)


test_wrong_answers_are_told_why = exercises.wrong_answers_are_told_why(
    CHECKS, exercises.with_no_answers(WRONG), alone=False
)
test_right_answers_of_any_form_are_accepted = exercises.right_answers_are_accepted(CHECKS, RIGHT, alone=False)
