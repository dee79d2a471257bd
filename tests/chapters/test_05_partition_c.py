"""Chapter 05's kernels, loaded from its notebook, under every permutation of its TiledMma, against index loops."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut import layouts
from cutetut.course import notebooks
from cutetut.inspect import profile
from cutetut.inspect.compiled import inspect
from cutetut.measure import bench, mistakes, records
from tests.chapters import benchmarks, contract, exercises
from tests.chapters.products import assert_product, normal

CHAPTER = "05_partition_c"
PERMUTATIONS = "(16,4):(4,1)", "(16,4):(1,16)", "(16,8):(8,1)"


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


def test_every_permutation_is_tested(chapter: ModuleType) -> None:
    assert set(PERMUTATIONS) == chapter.PERMUTATIONS.keys()


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", PERMUTATIONS)
@pytest.mark.parametrize("shape", [(128, 256, 5), (256, 128, 40)])
def test_the_gemm_is_right(
    chapter: ModuleType, rng: np.random.Generator, device: str, shape: tuple[int, int, int], name: str, wide: bool
) -> None:
    """With one K tile that is narrower than the others, and with several."""
    M, N, K = shape
    A, B = normal(rng, device, torch.float32, (M, K), (N, K))
    C = torch.full((M, N), torch.nan, device=device)
    tensors = [chapter.from_dlpack(t, assumed_align=16) for t in (A, B, C)]
    chapter.cute.compile(chapter.gemm, *tensors, chapter.PERMUTATIONS[name], wide)(*tensors)
    assert_product(C, A, B)


@pytest.mark.parametrize("shape", [(127, 128, 8), (128, 129, 8), (128, 128, 12)])
def test_what_the_tiles_do_not_divide_is_refused(chapter: ModuleType, shape: tuple[int, int, int]) -> None:
    M, N, K = shape
    tensors = [chapter.from_dlpack(torch.zeros(size)) for size in ((M, K), (N, K), (M, N))]
    with pytest.raises(ValueError, match=f"M={M}, N={N}, K={K} must be multiples of 128, 128, 8"):
        chapter.cute.compile(chapter.gemm, *tensors, next(iter(chapter.PERMUTATIONS.values())), False)


# Ownership ----------------------------------------------------------------------------------------------------


def positions(group: int, name: str) -> list[int]:
    """The 8 of 128 rows, or columns, of a thread row, or column, as an index loop."""
    far, near, count = {"(16,4):(4,1)": (4, 1, 4), "(16,4):(1,16)": (1, 16, 4), "(16,8):(8,1)": (8, 1, 8)}[name]
    return [far * group + near * r + 64 * again for again in range(8 // count) for r in range(count)]


@pytest.mark.parametrize("name", PERMUTATIONS)
def test_every_thread_signs_what_the_index_loops_say(chapter: ModuleType, device: str, name: str) -> None:
    owner, value = (torch.full((128, 128), -1, dtype=torch.int32, device=device) for _ in range(2))
    claims = torch.zeros_like(owner)
    offset = torch.full((256, 64), -1, dtype=torch.int32, device=device)
    tensors = [chapter.from_dlpack(t, assumed_align=16) for t in (owner, value, claims, offset)]
    chapter.cute.compile(chapter.sign, *tensors, chapter.PERMUTATIONS[name])(*tensors)
    assert (claims == 1).all()
    for thread in (0, 1, 17, 100, 255):
        places = [(r, c) for c in positions(thread % 16, name) for r in positions(thread // 16, name)]
        assert offset[thread].tolist() == [128 * r + c for r, c in places]
        assert all(owner[place] == thread and value[place] == v for v, place in enumerate(places))


@pytest.fixture(scope="module")
def rule(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., bool]:
    """The chapter's rule of which sizes divide."""
    found: Callable[..., bool] = exercises.defined(CHAPTER, ["divide"], tmp_path_factory.mktemp("divide"))["rule"]
    return found


def handed_out(shape: tuple[int, int], stride: tuple[int, int], threads: int, extent: int) -> bool | None:
    """Whether each of `extent` positions has one owner, where they are handed out in rounds; None if CuTe refuses."""
    mma = (((threads, 1, 1), (1, threads, threads)), (shape, stride))

    def make() -> Any:
        import cutlass
        import cutlass.cute as cute

        (grid, steps), (s, d) = mma
        atom = cute.nvgpu.MmaUniversalOp(cutlass.Float32)
        permutation = (cute.make_layout(s, stride=d), None, None)
        return cute.make_tiled_mma(atom, cute.make_layout(grid, stride=steps), permutation_mnk=permutation)

    try:
        part = layouts.partition(make, (extent, 2))
    except layouts.LayoutError:
        return None
    return part.outside() == 0 and bool((part.claims() == 1).all())


SHAPES = [(16, 4), (8, 8), (8, 4), (4, 2), (8, 3), (3, 8), (16, 5), (5, 16), (16, 8), (4, 6), (32, 2), (24, 2)]


@pytest.mark.emulator
@pytest.mark.parametrize("threads", [4, 6, 16])
def test_the_rule_of_sizes_is_what_counting_says(rule: Callable[..., bool], threads: int) -> None:
    """Two ways: what the rule admits has one owner each, and what it does not admit is refused or dealt out wrongly."""
    seen = set()
    for shape in SHAPES:
        for stride in ((shape[1], 1), (1, shape[0])):
            for extent in (24, 48, 64, 80, 128, 144):
                counted = handed_out(shape, stride, threads, extent)
                assert rule((shape, stride), extent, threads) == bool(counted), (shape, stride, threads, extent)
                seen.add(counted)
    assert seen >= {True, False}


@pytest.mark.emulator
def test_a_permutation_can_be_wrong_in_two_ways_at_once(chapter: ModuleType) -> None:
    part = layouts.partition(partial(chapter.make_mma, ((8, 3), (3, 1)), ((8, 3), (3, 1))), (128, 128))
    assert (part.claims().max(), part.outside()) == (4, 7964)


# Stores -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["halves together", "halves apart", "first halves only"])
def test_the_store_kernel_writes_the_halves_it_is_told_to(chapter: ModuleType, device: str, name: str) -> None:
    C = torch.full((256, 128), torch.nan, device=device)
    tensor = chapter.from_dlpack(C, assumed_align=16)
    chapter.cute.compile(chapter.store, tensor, chapter.ORDERS[name])(tensor)
    expected = torch.ones(256, 128, dtype=torch.bool)
    if name == "first halves only":
        expected[:, torch.arange(128) % 8 >= 4] = False
    assert torch.equal(C.cpu() == 1, expected) and torch.equal(C.cpu().isnan(), ~expected)


def stored_at(kernel: Any) -> list[int]:
    """The places of a kernel's stores within a thread's block, in the order of the machine code, in bytes."""
    found = re.findall(r"STG.*?\[R\d+\.64(?:\+(0x[0-9a-f]+))?\]", inspect(kernel).sass)
    return [int(text or "0", 16) for text in found]


def test_the_order_of_stores_in_the_machine_code(chapter: ModuleType, device: str) -> None:
    """What the explanation of the table rests on: the GEMM with K = 1 stores the halves of a sector apart."""
    A, B, C = (torch.zeros(128, n, device=device) for n in (1, 1, 128))
    tensors = [chapter.from_dlpack(t, assumed_align=16) for t in (A, B, C)]
    orders = {
        name: stored_at(chapter.cute.compile(chapter.store, tensors[2], order))
        for name, order in chapter.ORDERS.items()
    }
    orders["GEMM"] = stored_at(chapter.cute.compile(chapter.gemm, *tensors, chapter.PERMUTATIONS["(16,8):(8,1)"], True))
    between = {
        name: [places.index(place + 16) - i for i, place in enumerate(places) if place % 32 == 0]
        for name, places in orders.items()
        if name != "first halves only"
    }
    assert set(between["halves together"]) == {1} and min(between["halves apart"]) == 8
    assert min(between["GEMM"]) > 4


def test_sectors_of_every_store(chapter: ModuleType) -> None:
    """By hand: two rows of the grid, so many columns of 4 bytes each, in sectors of 32."""
    A, B, C = torch.zeros(128, 1), torch.zeros(128, 1), torch.zeros(128, 128)
    expected = {PERMUTATIONS[0]: 16, PERMUTATIONS[1]: 4, PERMUTATIONS[2]: 32}
    for name, wide in chapter.CASES:
        counts = profile.count(chapter.gemm, A, B, C, chapter.PERMUTATIONS[name], wide)
        assert counts.sectors_per_request("st") == expected[name]


# The contract, the mistakes, the measurement ------------------------------------------------------------------


def test_the_kernel_keeps_to_the_contract(chapter: ModuleType) -> None:
    contract.assert_one_idea(notebooks.load("04_scalar_fma_gemm").scalar_gemm_kernel, chapter.gemm_kernel)
    for kernel in (chapter.sign_kernel, chapter.store_kernel):
        contract.assert_short(kernel)


SAYS = {
    "a wrong stride in the grid": "the emulator found no fault",
    "a permutation that overshoots": "OutOfBounds",
    "C is not filled": "Uninitialized",
}


def test_every_mistake_is_tried(chapter: ModuleType) -> None:
    assert SAYS.keys() == chapter.MISTAKES.keys()


@pytest.mark.emulator
@pytest.mark.parametrize("name", SAYS)
def test_what_the_emulator_says_of_a_mistake(chapter: ModuleType, name: str) -> None:
    launch, rest = chapter.mistaken(name)
    said = mistakes.report(launch, torch.ones(128, 16), torch.ones(128, 16), torch.zeros(128, 128), *rest)
    assert said.startswith(SAYS[name])


@pytest.mark.emulator
def test_a_mistake_can_be_tried_on_a_gpu(chapter: ModuleType) -> None:
    once, right = chapter.attempt("a wrong stride in the grid", size=128)
    once()
    assert not right()


@pytest.fixture
def measured(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[bench.Row]:
    """What the benchmark returns with a clock that stands still; kernels run, results are checked, files written."""

    outcome = {"mistake": "one", "right": 1, "wrong": 9, "ended": "ends"}
    monkeypatch.setattr(chapter, "SIZE", 128)
    monkeypatch.setattr(chapter, "DEPTH", 128)
    monkeypatch.setattr(chapter.mistakes, "on_gpu", lambda notebook, names: [outcome])
    benchmarks.keep_tables_in(tmp_path, monkeypatch)
    benchmarks.count_launches(13, monkeypatch)
    benchmarks.without_a_clock(chapter, monkeypatch, ours_too=False, method="sustained 100 ms")
    return bench.validated(chapter.benchmark(), CHAPTER)


@pytest.mark.emulator
def test_the_benchmark_has_a_row_for_everything_and_keeps_its_tables(
    chapter: ModuleType, measured: list[bench.Row]
) -> None:
    names = [chapter.label(*case) for case in chapter.CASES]
    names += [*chapter.ORDERS, "torch.outer", "C.fill_", "cuBLAS float32"]
    deep = ["(16,4):(4,1) wide", "(16,8):(8,1) plain"]
    assert [row["kernel"] for row in measured] == names + deep
    assert list(chapter.records.read(CHAPTER, "counters")) == names
    assert chapter.records.read(CHAPTER, "mistakes")[0]["wrong"] == 9
    stored = {row["kernel"]: row["C in TB/s"] for row in measured if row["K"] == 1}
    assert stored["first halves only"] * 2 == stored["halves apart"] == pytest.approx(4 * 128**2 / 2.0 / 1e6)


def test_what_the_text_claims_is_in_the_tables(chapter: ModuleType) -> None:
    try:
        counters = records.read(CHAPTER, "counters")
    except bench.BenchError:
        pytest.skip("not measured yet: python -m cutetut bench 05_partition_c, on an H200")
    rows = bench.read(CHAPTER)["rows"]
    time = {r["kernel"]: r["ours_us"] for r in rows if r["K"] == 1 and r["method"].startswith("sustained")}
    full, wrong = time["(16,4):(4,1) wide"], time["(16,8):(8,1) wide"]
    assert time["(16,4):(1,16) plain"] < 1.15 * full < time["cuBLAS float32"] and full < 1.15 * time["C.fill_"]
    assert 3.6 * full < time["(16,4):(4,1) plain"] < 4.4 * full and time["(16,8):(8,1) plain"] > 7.5 * full
    assert wrong > 3.2 * full and 2 * full < time["halves together"] < 2.6 * full
    assert time["halves apart"] > 0.95 * wrong and time["first halves only"] > 1.8 * full
    halves = {name: row["filled"] for name, row in counters.items()}
    assert halves["first halves only"] > 0.9 * 8192**2 / 8 > 10 * halves["halves together"]
    assert counters["(16,8):(8,1) wide"]["HBM read"] > 1e8
    assert counters["(16,8):(8,1) wide"]["L2 input %"] < counters["(16,4):(4,1) plain"]["L2 input %"] - 10
    for name, wide in chapter.CASES:
        row = counters[chapter.label(name, wide)]
        assert row["sectors/request"] / row["requests"] == {"4": 16, "1": 4, "8": 32}[name.split("(")[2][0]]
