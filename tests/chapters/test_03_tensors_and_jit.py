"""Chapter 03's transpose and its rungs, loaded from the notebook: shapes, refusals, costs, mistakes, claims."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import cutetut
from cutetut import layouts
from cutetut.course import notebooks
from cutetut.course.difference import difference
from cutetut.inspect import profile
from cutetut.inspect.compiled import inspect
from cutetut.measure import bench, mistakes, records
from tests.chapters import benchmarks, contract

CHAPTER = "03_tensors_and_jit"
FIRST, STAGED, LAST = "03 1 straight", "03 2 through shared memory", "03 3 swizzled"


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


def matrix(rng: np.random.Generator, device: str, M: int, N: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal((M, N))).float().to(device)


def assert_transposed(B: torch.Tensor, A: torch.Tensor) -> None:
    """Bit by bit, against numpy."""
    expected = np.ascontiguousarray(A.cpu().numpy().T).view(np.int32)
    assert np.array_equal(B.cpu().contiguous().numpy().view(np.int32), expected)


@pytest.mark.parametrize("shape", [(1, 1), (1, 65), (65, 1), (63, 64), (64, 64), (128, 192), (130, 71)], ids=str)
def test_matches_numpy(chapter: ModuleType, rng: np.random.Generator, device: str, shape: tuple[int, int]) -> None:
    A = matrix(rng, device, *shape)
    B = torch.full(shape[::-1], float("nan"), device=device)
    assert chapter.transpose(A, B) is B
    assert_transposed(B, A)


def test_bits_that_are_no_numbers_survive(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    bits = rng.integers(-(2**31), 2**31, (70, 66), dtype=np.int64).astype(np.int32)
    bits[:, :3] = 0x7FC01234, -0x800000, -(2**31)  # a NaN with a payload, minus infinity, minus zero
    A = torch.from_numpy(bits.view(np.float32)).to(device)
    assert_transposed(chapter.transpose(A), A)


def test_views_with_a_row_stride_of_their_own(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    wide, memory = matrix(rng, device, 70, 200), torch.full((3, 100, 90), 7.0, device=device)
    A, B = wide[:, 3:103], memory[1][:, 5:75]
    chapter.transpose(A, B)
    assert_transposed(B, A)
    assert (memory[0] == 7).all() and (memory[2] == 7).all()
    assert (memory[1][:, :5] == 7).all() and (memory[1][:, 75:] == 7).all()


def test_one_kernel_serves_all_shapes(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    chapter.transpose(matrix(rng, device, 3, 4))
    before = dict(chapter._compiled)
    chapter.transpose(matrix(rng, device, 100, 5))
    assert chapter._compiled == before and len(before) == 1


@pytest.mark.parametrize("name", [FIRST, STAGED, LAST, "lanes along m", "all guarded"])
@pytest.mark.parametrize("shape", [(64, 128), (70, 133)], ids=str)
def test_every_rung_matches_numpy(
    chapter: ModuleType, rng: np.random.Generator, device: str, name: str, shape: tuple[int, int]
) -> None:
    launches = {
        **chapter.RUNGS,
        "lanes along m": chapter.along_m_launch,
        "all guarded": notebooks.changed(CHAPTER, chapter.EVERYWHERE).transpose_launch,
    }
    A, B = matrix(rng, device, *shape), torch.full(shape[::-1], float("nan"), device=device)
    arguments = [chapter.from_dlpack(t) for t in (A, B)]
    chapter.cute.compile(launches[name], *arguments)(*arguments)
    assert_transposed(B, A)


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "bfloat16": (lambda z: (z(4, 6).bfloat16(),), TypeError, "A is torch.bfloat16"),
    "B of integers": (lambda z: (z(4, 6), z(6, 4).int()), TypeError, "B is torch.int32"),
    "a vector": (lambda z: (z(6), z(6)), ValueError, r"shape \(6,\)"),
    "a batch": (lambda z: (z(2, 4, 6),), ValueError, r"shape \(2, 4, 6\)"),
    "nothing in it": (lambda z: (z(0, 6),), ValueError, "at least one element"),
    "columns": (lambda z: (z(4, 6).T,), ValueError, "A has strides"),
    "columns to write": (lambda z: (z(4, 6), z(4, 6).T), ValueError, "B has strides"),
    "shape of A": (lambda z: (z(4, 6), z(4, 6)), ValueError, r"B must be \(6, 4\)"),
    "one memory": (lambda z: (lambda t: (t[:, :4], t[:, 4:]))(z(4, 8)), ValueError, "views of one memory"),
    "another device": (lambda z: (z(4, 6).to("meta"),), ValueError, "A is on meta"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_what_it_does_not_support(chapter: ModuleType, device: str, case: str) -> None:
    build, error, says = REFUSED[case]
    with pytest.raises(error, match=says):
        chapter.transpose(*build(lambda *shape: torch.zeros(*shape, device=device)))


# What it costs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "each"),  # of a tile: sectors in and out, wavefronts in and out; 128 requests each, by hand
    [
        (FIRST, (4, 32, 0, 0)),
        (STAGED, (4, 4, 1, 32)),
        (LAST, (4, 4, 1, 1)),
    ],
)
def test_sectors_and_wavefronts_of_a_tile(chapter: ModuleType, name: str, each: tuple[int, ...]) -> None:
    counts = profile.count(chapter.RUNGS[name], torch.rand(64, 64), torch.zeros(64, 64))
    found = counts.sectors("ld"), counts.sectors("st"), counts.wavefronts("st"), counts.wavefronts("ld")
    assert found == tuple(128 * one for one in each)


def test_the_other_direction_has_as_many_sectors(chapter: ModuleType) -> None:
    counts = profile.count(chapter.along_m_launch, torch.rand(64, 64), torch.zeros(64, 64))
    assert (counts.sectors("ld"), counts.sectors("st")) == (4096, 512)


def order(chapter: ModuleType, launch: Any) -> str:
    """The loads of global memory and the stores to shared memory in the order of the SASS."""
    A, B = (torch.zeros(64, 64, device=cutetut.device) for _ in range(2))
    dynamic = [chapter.from_dlpack(t).mark_layout_dynamic(leading_dim=1) for t in (A, B)]
    names = chapter.re.findall(r"\b(LDG|STS)\b", inspect(chapter.cute.compile(launch, *dynamic)).sass)
    return "".join({"LDG": "L", "STS": "s"}[name] for name in names)


def test_a_predicate_on_shared_memory_holds_back_loads(chapter: ModuleType) -> None:
    """The chapter's explanation of what a harmless predicate costs."""
    assert order(chapter, chapter.transpose_launch) == "L" * 8 + "s" * 8
    everywhere = order(chapter, notebooks.changed(CHAPTER, chapter.EVERYWHERE).transpose_launch)
    assert sorted(everywhere) == sorted("L" * 8 + "s" * 8) and "sL" in everywhere


def test_the_kernel_keeps_to_the_contract(chapter: ModuleType) -> None:
    rungs = [chapter.straight_kernel, chapter.staged_kernel, chapter.transpose_kernel]
    for before, after in pairwise(rungs):
        contract.assert_one_idea(before, after)
    assert len(difference(*rungs[1:]).lines) == 2  # the swizzle is one line


@pytest.mark.parametrize("along_n", [True, False])
def test_a_tiled_copy_deals_each_element_once(chapter: ModuleType, along_n: bool) -> None:
    dealt = layouts.copied(lambda: chapter.make_copy(chapter.cutlass.Float32, along_n), (64, 64))
    assert (dealt.claims() == 1).all() and dealt.outside() == 0
    lane, warp = np.arange(512) % 32, np.arange(512) // 32
    first = np.stack([warp, lane] if along_n else [lane, warp], axis=-1)
    assert np.array_equal(dealt.place[:, 0], first)
    assert np.array_equal(dealt.offset, dealt.place @ [64, 1])


# Mistakes -----------------------------------------------------------------------------------------------------

SAYS = {"no barrier": "MissingBarrier: load", "only rows guarded": "OutOfBounds", "alignment claimed": "Misaligned"}


def test_every_mistake_is_tried(chapter: ModuleType) -> None:
    assert set(chapter.MISTAKES) == {*SAYS, "swizzle of shorter rows"}


@pytest.mark.emulator
@pytest.mark.parametrize("name", SAYS)
def test_the_emulator_names_the_mistake(chapter: ModuleType, rng: np.random.Generator, name: str) -> None:
    M, N = (100, 70) if chapter.MISTAKES[name] else (9, 128)
    B = torch.zeros(N, M) if chapter.MISTAKES[name] else torch.zeros(M, N)
    assert mistakes.report(chapter.mistaken(name), matrix(rng, "cpu", M, N), B).startswith(SAYS[name])


@pytest.mark.emulator
def test_a_swizzle_of_shorter_rows_is_right_and_slower(chapter: ModuleType, rng: np.random.Generator) -> None:
    launch = chapter.mistaken("swizzle of shorter rows")
    A, B = matrix(rng, "cpu", 100, 70), torch.full((70, 100), float("nan"))
    assert mistakes.faultless(mistakes.report(launch, A, B))
    assert_transposed(B, A)
    assert profile.count(launch, torch.rand(64, 64), torch.zeros(64, 64)).wavefronts("ld") == 256


@pytest.mark.emulator
@pytest.mark.parametrize("shape", [(64, 64), (100, 70), (1, 1)], ids=str)
def test_without_a_mistake_there_is_no_alarm(
    chapter: ModuleType, rng: np.random.Generator, shape: tuple[int, int]
) -> None:
    for launch in chapter.RUNGS.values():
        A, B = matrix(rng, "cpu", *shape), torch.full(shape[::-1], float("nan"))
        assert mistakes.faultless(mistakes.report(launch, A, B))
        assert_transposed(B, A)


@pytest.mark.emulator
def test_a_mistake_can_be_tried_on_a_gpu(chapter: ModuleType) -> None:
    """What `mistakes.on_gpu` calls, here with the one mistake that the emulator lets run."""
    launch, right = chapter.attempt("swizzle of shorter rows", M=100, N=70)
    launch()
    assert right()


# What was measured --------------------------------------------------------------------------------------------


@pytest.mark.emulator
def test_the_benchmark_has_rows_for_every_rung_and_keeps_its_tables(
    chapter: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The whole of it but for the clock: kernels run, results are checked, and the files can be read again."""
    monkeypatch.setattr(chapter, "SIZES", ((64, 128), (65, 130)))
    monkeypatch.setattr(chapter, "spread", lambda launch: (launch(), 0.01)[1])
    monkeypatch.setattr(chapter.mistakes, "on_gpu", lambda notebook, names: names)
    benchmarks.keep_tables_in(tmp_path, monkeypatch)
    benchmarks.count_launches(6, monkeypatch)
    timed = benchmarks.without_a_clock(chapter, monkeypatch, ours_too=False)
    rows = bench.validated(chapter.benchmark(), CHAPTER)
    whole = [FIRST, STAGED, LAST, chapter.ALONG_M, chapter.ALL, chapter.NONE, chapter.STATIC, "torch copy"]
    ragged = [FIRST, STAGED, LAST, "torch copy"]
    assert timed == whole + ragged
    assert [(row["M"], row["kernel"]) for row in rows] == list(zip([64] * 8 + [65] * 4, timed, strict=True))
    assert {row["unit"] for row in rows} == {"TB/s"} and {row["spread"] for row in rows} == {0.01}
    assert records.read(CHAPTER, "mistakes") == list(chapter.MISTAKES)
    assert list(records.read(CHAPTER, "counters")) == [*chapter.COUNTED, "torch transpose"]


def test_what_the_text_claims_is_in_the_tables(chapter: ModuleType) -> None:
    if not bench.data_file(CHAPTER).is_file():
        pytest.skip(f"not measured yet: python -m cutetut bench {CHAPTER}, on an H200")
    rows = [r for r in bench.read(CHAPTER)["rows"] if r["method"].startswith("burst")]
    at = {(row["M"], row["kernel"]): row["ours_tflops"] for row in rows}
    square = {kernel: speed for (M, kernel), speed in at.items() if M == 8192}
    spread = max(row["spread"] for row in rows if row["M"] == 8192)
    square["torch transpose"] = rows[0]["vendor_tflops"]
    copy = square["torch copy"]
    for name in (chapter.ALL, chapter.NONE, chapter.STATIC, "torch copy"):  # no difference can be claimed
        assert abs(square[name] / square[LAST] - 1) < spread < 0.1
    assert square[FIRST] < copy / 5 < copy / 4 < square[chapter.ALONG_M]  # slower than predicted, and faster
    assert 1.5 < square[STAGED] < 2.03 and 0.8 < square[chapter.ALONG_M] / square[STAGED] < 1.25
    assert 0.5 * at[8191, "torch copy"] < at[8191, LAST] < 0.9 * at[8191, "torch copy"]
    counters = records.read(CHAPTER, "counters")
    written = [row["DRAM out"] for row in counters.values()]
    assert max(written) < 1.1 * min(written)
    assert counters[FIRST]["L2 writes"] == pytest.approx(32 * counters[LAST]["L2 writes"], rel=0.02)
    assert counters[STAGED]["wavefronts out"] == pytest.approx(4096 * 128**2, rel=0.01)
    assert counters[FIRST]["L1 sectors out"] == counters[chapter.ALONG_M]["L1 sectors in"] == 4096 * 128**2
    busy = {name: row["L2 busy %"] / square[name] for name, row in counters.items()}
    assert busy[chapter.ALONG_M] < 1.3 * busy[LAST] and busy["torch transpose"] > 2.5 * busy[chapter.ALONG_M]
    outcomes = {row["mistake"]: (row["right"], row["wrong"]) for row in records.read(CHAPTER, "mistakes")}
    assert outcomes["only rows guarded"] == outcomes["swizzle of shorter rows"] == (10, 0)
