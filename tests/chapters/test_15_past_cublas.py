"""Chapter 15: both kernels against float64, the model's choices, what the emulator says of mistakes, and its bench."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut.course import notebooks
from cutetut.course.difference import body, difference
from cutetut.emulator.errors import EmulatorWarning
from cutetut.inspect.compiled import inspect
from cutetut.measure import bench
from tests.chapters import benchmarks, contract, exercises
from tests.chapters.products import assert_product, exact, wide

CHAPTER = "15_past_cublas"
BF16, FP16, FP8, FP32 = torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float32


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


def agrees(
    chapter: ModuleType, device: str, shape: tuple[int, int, int], plan: Any, dtype: torch.dtype = BF16, out: Any = None
) -> None:
    """One product against float64; C starts as NaN, so that an element nobody writes is seen."""
    M, N, K = shape
    rng = np.random.default_rng(sum(shape))
    A, B = (torch.from_numpy(rng.standard_normal((rows, K))).to(dtype).to(device) for rows in (M, N))
    C = torch.full((M, N), torch.nan, dtype=out or (BF16 if dtype == FP8 else dtype), device=device)
    chapter.gemm(A, B, C, plan)
    if dtype != FP8:
        return assert_product(C, A, B)
    expected = exact(A, B)  # the tensor core adds float8 products with fewer bits than float32 has
    assert (np.abs(wide(C) - expected) <= 2e-3 * K**0.5 + 2.0**-8 * np.abs(expected)).all()


# --- the kernels


@pytest.mark.parametrize("shape", [(1, 8, 8), (129, 264, 72), (700, 16, 520)])
def test_ragged_shapes_by_the_models_choice(chapter: ModuleType, device: str, shape: tuple[int, int, int]) -> None:
    agrees(chapter, device, shape, None)


def store_rows(chapter: ModuleType, rows: int) -> torch.Tensor:
    """20 rows times 32 columns by a tile that loads 24 of its 64 rows, into a C of so many rows of NaN."""
    plan = chapter.Wide(64, 32, 1, cluster=1)
    plan = dataclasses.replace(plan, rows=chapter.only(20, plan))
    A, B, C = torch.ones(20, 64, dtype=BF16), torch.ones(32, 64, dtype=BF16), torch.full((rows, 32), torch.nan).to(BF16)
    order = chapter.from_dlpack(chapter.order_tensor(1, 1, "row", "cpu")).mark_layout_dynamic()
    arguments = (*map(chapter.as_cute, (A, B, C)), order, chapter.cutlass.Int32(1), chapter.current_stream())
    chapter.cute.compile(chapter.gemm_launch, *arguments, plan)(*arguments)
    return C


@pytest.mark.emulator
@pytest.mark.filterwarnings("error::cutetut.emulator.errors.EmulatorWarning")
def test_rows_of_a_tile_that_are_neither_loaded_nor_stored_are_no_warning(chapter: ModuleType) -> None:
    assert (store_rows(chapter, 20) == 64).all()


@pytest.mark.emulator
def test_rows_of_a_tile_that_are_stored_but_not_loaded_are_a_warning(chapter: ModuleType) -> None:
    with pytest.warns(EmulatorWarning, match="nothing has written 40 of the 64 rows of operand A of the WGMMA, row 24"):
        C = store_rows(chapter, 30)
    assert (C[:20] == 64).all() and (C[20:24] == 0).all() and C[24:].isnan().all()


def distinct(chapter: ModuleType, kind: type) -> set[tuple[Any, torch.dtype, torch.dtype]]:
    """The plans of a kind that the model chooses in the zoo, with the types of A and C."""
    typed = [chapter.typed(*shape) for shapes in chapter.ZOO.values() for shape in shapes]
    found = {(chapter.choose(*one), *one[3:]) for one in typed}
    return {each for each in found if isinstance(each[0], kind)}


def test_every_tile_that_the_model_chooses_in_the_zoo_multiplies_ragged_matrices(
    chapter: ModuleType, device: str
) -> None:
    plans = distinct(chapter, chapter.Wide)
    assert len(plans) >= 6 and {out for *_, out in plans} == {BF16, FP16, FP32}
    for plan, dtype, out in plans:
        shape = plan.bM * plan.cluster - 20, plan.bN + 40, 144
        agrees(chapter, device, shape, dataclasses.replace(plan, clusters=1), dtype, out)


def test_every_split_that_the_model_chooses_in_the_zoo_multiplies_ragged_matrices(
    chapter: ModuleType, device: str
) -> None:
    plans = distinct(chapter, chapter.Split)
    assert len(plans) >= 6 and {plan.parts for plan, *_ in plans} >= {1, 2}
    plans |= {(chapter.Split(128, 256, parts, out=4), BF16, FP32) for parts in (1, 2)}  # of which the zoo has none
    for plan, dtype, out in plans:
        size = torch.empty(0, dtype=dtype).element_size()
        agrees(chapter, device, (plan.bT - 3, plan.bW + 24, (128 * plan.parts + 80) // size), plan, dtype, out)


@pytest.mark.parametrize(
    ("change", "out"),
    [
        ({"bN": 96, "cluster": 1, "early": False}, BF16),
        ({"bM": 256, "bN": 128, "order": "hilbert"}, FP32),
        ({"cluster": 4, "bN": 64, "order": "row"}, BF16),
        ({"cluster": 4, "bN": 32, "along": "N"}, BF16),
        ({"bM": 256, "bN": 160, "along": "N", "overlap": False}, BF16),
        ({"bM": 256, "bN": 144, "along": "N", "overlap": False, "swap": True}, BF16),
        ({"bN": 112, "swap": True}, BF16),
        ({"bN": 64, "cluster": 4, "swap": True}, BF16),
        ({"bM": 64, "bN": 80, "consumers": 1, "along": "N"}, BF16),
        ({"bM": 64, "bN": 48, "consumers": 1}, FP32),
        ({"bM": 192, "bN": 192, "consumers": 3, "cluster": 1, "overlap": False}, BF16),
        ({"bM": 192, "bN": 112, "consumers": 3, "along": "N"}, BF16),
        ({"bM": 192, "bN": 160, "consumers": 3, "overlap": False, "swap": True}, BF16),
    ],
    ids=str,
)
def test_tiles_that_the_tuner_may_try(chapter: ModuleType, device: str, change: dict[str, Any], out: Any) -> None:
    overlap = change.get("overlap", out == BF16)
    agrees(chapter, device, (392, 136, 136), chapter.Wide(**{**change, "overlap": overlap}, clusters=2), out=out)


@pytest.mark.parametrize(
    "plan",
    [{"parts": 8, "bW": 64, "bT": 16}, {"bT": 256, "parts": 2}, {"bT": 72, "parts": 3}, {"bT": 40, "parts": 5},
     {"bT": 24, "parts": 6}],
    ids=str,
)  # fmt: skip
def test_splits_that_the_tuner_may_try(chapter: ModuleType, device: str, plan: dict[str, Any]) -> None:
    agrees(chapter, device, (20, 136, 520), chapter.Split(**plan), FP16)


def test_the_kernels_keep_to_the_contract(chapter: ModuleType) -> None:
    contract.assert_contract(CHAPTER)
    plain, shared = chapter.without("clusters", "early launch"), chapter.without("early launch")
    whole, few = chapter.without("split"), chapter.without("split", "early launch")
    for old, new in (
        (chapter.persistent.overlapped_gemm_kernel, plain.gemm_kernel),
        (plain.gemm_kernel, shared.gemm_kernel),
        (shared.gemm_kernel, chapter.gemm_kernel),
        (chapter.persistent.store_piece, chapter.store_piece),
        (chapter.specialized.specialized_gemm_kernel, few.split_kernel),
        (whole.split_kernel, chapter.split_kernel),
        (chapter.gemm_kernel, notebooks.changed(CHAPTER, chapter.PING_PONG).gemm_kernel),
    ):
        contract.assert_one_idea(old, new)
    assert not difference(whole.gemm_kernel, chapter.gemm_kernel).lines
    for kernel in (plain.gemm_kernel, few.split_kernel):
        assert not [line for line in body(kernel) if "cluster" in line or "rank" in line or "depcon" in line]


def test_what_stands_before_the_cluster_still_multiplies(chapter: ModuleType, device: str) -> None:
    """The diff is between two kernels that work."""
    before = chapter.without("clusters", "early launch")
    agrees(before, device, (260, 136, 200), before.Wide(bN=64, cluster=1, early=False, clusters=2))
    plan = chapter.without("split").Split(bT=32, parts=1)
    agrees(chapter.without("split"), device, (30, 136, 200), plan)


@pytest.mark.parametrize("rows", [139, 200, 257, 300, 777])
@pytest.mark.parametrize("change", [{"bN": 64}, {"bN": 64, "cluster": 1}, {"bN": 64, "swap": True}], ids=str)
def test_last_tiles_move_by_eight_rows_and_leave_their_neighbours_rows(
    chapter: ModuleType, device: str, rows: int, change: dict[str, Any]
) -> None:
    """Every row is stored by one tile only: two stores of a row would be a race, which the emulator reports."""
    shape = (136, rows // 8 * 8, 136) if change.get("swap") else (rows, 136, 136)
    agrees(chapter, device, shape, chapter.Wide(**change, clusters=2))


@pytest.mark.parametrize(("M", "bT", "parts"), [(1, 8, 2), (20, 24, 1), (40, 40, 4), (100, 104, 2), (200, 104, 1)])
def test_tiles_of_few_rows_are_any_multiple_of_eight(
    chapter: ModuleType, device: str, M: int, bT: int, parts: int
) -> None:
    for out in (BF16, FP32):
        agrees(chapter, device, (M, 136, 264), chapter.Split(64, bT, parts), out=out)


@pytest.mark.parametrize("together", [2, 4])
@pytest.mark.parametrize("K", [64, 264, 1000])
def test_k_tiles_are_requested_together(chapter: ModuleType, device: str, together: int, K: int) -> None:
    """Also where their number is no multiple of those, or less than them."""
    agrees(chapter, device, (13, 136, K), chapter.Split(64, 16, 1, together=together))
    agrees(chapter, device, (60, 392, K), chapter.Wide(64, 80, 1, along="N", together=together, clusters=1))


@pytest.mark.parametrize(("rows", "columns"), [(3, 20), (20, 3), (9, 9), (1, 5), (5, 1)])
def test_the_order_of_tiles_follows_the_shorter_side(chapter: ModuleType, rows: int, columns: int) -> None:
    """All tiles once; of the first ones those next to each other lie along it, as many as eight."""
    tiles = [tuple(tile) for tile in chapter.order_tensor(rows, columns, "group 8", "cpu").tolist()]
    assert sorted(tiles) == [(m, n) for m in range(rows) for n in range(columns)]
    first = tiles[: min(8, rows, columns)]
    assert {n for _, n in first} == {0} if rows <= columns else {m for m, _ in first} == {0}


def test_moved_tiles_cover_the_matrix_with_few_rows_beyond_it(chapter: ModuleType) -> None:
    """Stored pieces, those at or behind a tile's own place, are each row once; what is loaded reaches little beyond."""
    for tile, piece in ((128, 8), (256, 8), (128, 64), (192, 64), (256, 64), (224, 32), (96, 32)):
        for size in (*range(1, 3 * tile, 7), 5000, 777):
            stored: list[int] = []
            for own in range(0, size + tile, tile):  # the last one is beyond: a cluster may have such a tile
                first = chapter.moved(own, tile, piece, size)
                assert 0 <= first <= own and (own - first) % piece == 0
                assert first + tile - size < piece or first == 0
                stored += [row for start in range(first, first + tile, piece) if start >= own
                           for row in range(start, start + piece) if row < size]  # fmt: skip
            assert stored == list(range(size))


WRONG = {
    "mixed": (lambda A: (A, A.half()), TypeError, "must both be"),
    "float32": (lambda A: (A.float(), A.float()), TypeError, "must both be"),
    "rows": (lambda A: (A[:, :60].contiguous(),) * 2, ValueError, "rows of 120 bytes"),
    "transposed": (lambda A: (A.T, A.T), ValueError, "row-major and without gaps"),
    "other K": (lambda A: (A, torch.cat([A, A], dim=1)), ValueError, "A is 128x64, B 128x128"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_supported_is_refused(chapter: ModuleType, device: str, what: str) -> None:
    arguments, kind, words = WRONG[what]
    with pytest.raises(kind, match=words):
        chapter.gemm(*arguments(torch.zeros(128, 64, dtype=BF16, device=device)))


def test_plans_that_cannot_be_made_are_refused(chapter: ModuleType) -> None:
    Wide, Split = chapter.Wide, chapter.Split
    good = [
        Wide(), Wide(bN=224), Wide(bN=32, cluster=1), chapter.THREE, Split(), Split(bT=256, parts=2),
        Wide(64, 80, 1, along="N"), Wide(swap=True, bN=208), Wide(bN=208), Wide(cluster=4, swap=True, bN=160),
        Split(bT=128, parts=1, per_sm=2), Split(bW=64, bT=256, parts=1, per_sm=2), Split(bT=256, parts=4),
        Wide(bN=288, overlap=False), Wide(bN=288, overlap=False, cluster=4, swap=True),
        Split(64, 16, 1, 2, together=4), Split(bT=48, parts=3), Wide(192, 192, 3, overlap=False), Wide(192, 128, 3),
    ]  # fmt: skip
    bad = [
        Wide(bN=250), Wide(bN=288), Wide(bM=192), Wide(consumers=1), Wide(out=4), Wide(bM=192, consumers=3),
        dataclasses.replace(chapter.THREE, overlap=True), Split(bT=12), Split(bW=192), Split(bT=264), Split(parts=9),
        Split(bT=240, parts=4), Split(parts=33), Wide(bN=304, overlap=False), Split(128, 128, 1, 2, together=4),
        Wide(along="K"), Split(bT=144, parts=1, per_sm=2),
        Wide(bN=208, cluster=4), Wide(64, 64, 2), Wide(bN=96, out=4), Wide(bN=96, overlap=False, swap=True, out=4),
        Wide(192, 208, 3, overlap=False), Wide(192, 160, 3),
    ]  # fmt: skip
    assert [chapter.refusal(plan, 4096) for plan in good] == [""] * len(good)
    assert all(chapter.refusal(plan, 4096) for plan in bad)
    assert chapter.refusal(Split(parts=4), 3 * 128) and not chapter.refusal(Split(parts=4), 3 * 128 + 2)


def test_shared_memory_and_registers_are_what_the_plans_say(chapter: ModuleType, device: str) -> None:
    """The compiled kernels, against a CTA's limit, and against half an SM where two are to fit."""
    C = torch.zeros(256, 256, dtype=BF16, device=device)
    tensors = [chapter.as_cute(C)] * 3
    for per_sm, bW, bT in ((1, 128, 256), (2, 128, 128), (2, 64, 256), (3, 64, 192), (3, 128, 80)):
        plan = chapter.Split(bW, bT, 1, per_sm)
        assert not chapter.refusal(plan, 4096) and chapter.refusal(dataclasses.replace(plan, bT=bT + 16), 4096)
        info = inspect(chapter.cute.compile(chapter.split_launch, *tensors, chapter.current_stream(), plan))
        needed = info.shared_bytes or 0
        assert info.spills == 0 and needed + 1024 <= 233472 // per_sm
        assert needed > plan.stages * 128 * (plan.bW + plan.bT)


def test_tiles_that_are_not_refused_keep_their_accumulators_in_registers(chapter: ModuleType, device: str) -> None:
    """Tiles near the limit, as ptxas compiles them; those beyond it would spill."""
    Wide = chapter.Wide
    C = chapter.as_cute(torch.zeros(256, 256, dtype=BF16, device=device))
    order = chapter.from_dlpack(chapter.order_tensor(1, 1, "row", device)).mark_layout_dynamic()
    for plan in (
        Wide(64, 224, 1, along="N"), Wide(128, 224, swap=True), Wide(256, 192, along="N", overlap=False),
        Wide(256, 176, along="N", overlap=False, swap=True), Wide(192, 128, 3), Wide(192, 192, 3, overlap=False),
    ):  # fmt: skip
        assert not chapter.refusal(plan, 4096)
        info = inspect(
            chapter.cute.compile(chapter.gemm_launch, C, C, C, order, chapter.cutlass.Int32(1),
                                 chapter.current_stream(), plan)
        )  # fmt: skip
        assert info.spills == 0, plan
    for plan in (Wide(64, 240, 1), Wide(bN=240), Wide(256, 208, overlap=False)):
        assert "registers" in chapter.refusal(plan, 4096)


# --- what was tried


def test_what_was_tried_multiplies(chapter: ModuleType, device: str) -> None:
    assert len(chapter.TRIED) >= 9
    for lines, plan in chapter.TRIED.values():
        kernels = notebooks.changed(CHAPTER, lines) if lines else chapter
        small = kernels.Wide(**dataclasses.asdict(plan) | {"bN": 64, "clusters": 1})
        agrees(kernels, device, (260, 72, 200), small)  # two tiles for each consumer of the ping-pong
    for lines, plan in chapter.TRIED_OF_FEW.values():
        kernels = notebooks.changed(CHAPTER, lines) if lines else chapter
        agrees(kernels, device, (13, 136, 520), kernels.Split(**dataclasses.asdict(plan)))


@pytest.mark.emulator
def test_a_ping_pong_needs_its_turns(chapter: ModuleType) -> None:
    """A consumer that begins in an odd round of the ring waits for a parity that a fresh barrier has behind it."""
    turns, none = chapter.PING_PONG, chapter.OWN_TILES
    for lines, k_tiles, fault in ((turns, 8, False), (none, 8, True), (none, 3, False)):
        kernels = notebooks.changed(CHAPTER, lines)
        A, B = (torch.ones(rows, 64 * k_tiles).bfloat16() for rows in (256, 64))
        C, order = torch.zeros(256, 64).bfloat16(), chapter.order_tensor(2, 1, "row", "cpu")
        plan = kernels.Wide(bN=64, cluster=1, overlap=False)
        assert plan.stages == 8
        said = chapter.mistakes.report(kernels.gemm_launch, A, B, C, order, 1, chapter.stream_zero(), plan)
        if fault:
            assert said.startswith("Uninitialized") and "passed at once: parity 1" in said
        else:
            assert chapter.mistakes.faultless(said) and bool((C == 64 * k_tiles).all())


# --- mistakes

SAYS = {
    "the neighbour's consumers are not counted": "InFlight: a copy overwrites shared memory",
    "own bytes announced": "AsyncMismatch: phase 0",
    "a CTA leaves early": "MissingBarrier: the CTA exits",
    "sums before the ring is free": "MissingBarrier: another CTA's shared memory is used before",
    "sums read before they are written": "MissingBarrier: store to shared memory",
    "no wait for the kernel before": "MissingBarrier: the TMA load reads",
    "the loop over K may not run": "InFlight: register",
}


@pytest.mark.emulator
@pytest.mark.parametrize("name", ["complete", "sums, complete", "the loop, complete", *SAYS])
def test_mistakes(chapter: ModuleType, name: str) -> None:
    assert {*chapter.MISTAKES} == {*SAYS}
    launch, tensors = chapter.chain(name, 256, "cpu")
    chapter.refill(*tensors[:4])
    said = chapter.mistakes.report(launch, *tensors, chapter.stream_zero(), 256)
    if name in SAYS:
        assert said.startswith(SAYS[name]), said
    else:
        assert chapter.mistakes.faultless(said) and chapter.both_right(*tensors[:4])
        tensors[3][0, 0] = torch.nan
        assert not chapter.both_right(*tensors[:4])


@pytest.mark.emulator
def test_mistakes_can_be_tried_on_a_gpu(chapter: ModuleType) -> None:
    """What `mistakes.on_gpu` calls: right where nothing is missing, also the second time."""
    launch, right = chapter.attempt("complete", 256)
    for _ in range(2):
        launch()
        assert right()


# --- the benchmark


class Proposed:
    """cuBLASLt with two algorithms, both of them torch's."""

    def __init__(self, A: torch.Tensor, B: torch.Tensor, D: torch.Tensor) -> None:
        self.write = lambda: D.copy_(A.float() @ B.float().T)

    def usable(self) -> list[int]:
        return [0, 1]

    def launch(self, proposal: int) -> Any:
        return self.write


@pytest.fixture
def benched(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[ModuleType, list[str]]:
    """The chapter, whose benchmark runs whole on small shapes without a clock, a graph and a cuBLASLt."""
    for name, value in {
        "SIZE": 256, "ODD": (200, 264, 136), "FEW_TRIED": (5, 136, 256), "EARLY": ((32, 128, 256),), "COLD": 1e5,
        "IN_GRAPH": 2, "TURNS": 4,
        "PAIRS": {name: chapter.PAIRS[name] for name in ("as it should be", "no early launch")},
        "ZOO": {"odd": [(200, 264, 136)], "few": [(5, 136, 256)], "types": [(32, 128, 256, FP8)]},
        "TRIED": {"what": ([], chapter.Wide(bN=64)), "how": (chapter.PING_PONG, chapter.Wide(bN=64, overlap=False))},
        "BROUGHT": {"15 128x224, cluster 2": chapter.Wide(bN=224)},
        "rungs_before": lambda A, B, C: {"12": (lambda: C.copy_(A.float() @ B.float().T), C)},
    }.items():  # fmt: skip
        monkeypatch.setattr(chapter, name, value)
    monkeypatch.setattr(chapter.records, "write", lambda *written: (tmp_path / str(written[1])).write_text("done"))
    monkeypatch.setattr(chapter.mistakes, "on_gpu", lambda notebook, names: [{"mistake": name} for name in names])
    monkeypatch.setattr(chapter.graphs, "captured", lambda launches: lambda: [launch() for launch in launches])
    monkeypatch.setattr(chapter.cublaslt, "Product", Proposed)
    monkeypatch.setattr(chapter.cublaslt, "library", lambda: None)
    monkeypatch.setattr(chapter.cublaslt, "version", lambda library: "13.1.0")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return chapter, benchmarks.without_a_clock(chapter, monkeypatch)


@pytest.mark.emulator
def test_the_zoos_parts_have_a_row_for_every_shape(benched: tuple[ModuleType, list[str]]) -> None:
    chapter, _ = benched
    for part in ("odd", "few", "types"):
        (row,) = bench.validated(getattr(chapter, f"benchmark_{part}")(), CHAPTER)
        assert row["vendor"] == "torch" and row["cublaslt"] == "13.1.0" and row["model_us"] > 0 and row["plan"]
        assert row["dtype"] == ("float8_e4m3fn" if part == "types" else "bfloat16") and row["out"] == "bfloat16"
    parts = {name.removeprefix("benchmark_") for name in vars(chapter) if name.startswith("benchmark_")}
    assert parts == {"squares", "odd", "layers", "few", "between", "unseen", "types", "steps", "tried"}


@pytest.mark.emulator
def test_the_benchmark_has_the_ladder_the_steps_and_early_launch(
    benched: tuple[ModuleType, list[str]], tmp_path: Path
) -> None:
    chapter, timed = benched
    parts = chapter.benchmark, chapter.benchmark_steps, chapter.benchmark_tried
    rows = bench.validated([row for part in parts for row in part()], CHAPTER)
    early = ["15 early launch, stream", "15 early launch, graph"]
    tried = ["15 what", "15 how", *(f"15 {name}" for name in chapter.TRIED_OF_FEW)]
    assert timed == ["12", "15 past cuBLAS", *early, *chapter.BROUGHT, *tried]
    assert sum(bool(row.get("rung")) for row in rows) == 1
    assert (tmp_path / "early").is_file() and (tmp_path / "mistakes").is_file()


@pytest.mark.emulator
def test_a_wrong_kernel_is_not_timed(benched: tuple[ModuleType, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    chapter, _ = benched
    monkeypatch.setattr(chapter, "prepare", lambda A, B, C, plan=None: lambda: C.fill_(1.0))
    with pytest.raises(AssertionError, match="relative error"):
        chapter.benchmark_odd()


@pytest.mark.emulator
def test_a_shape_that_fails_costs_no_other_its_rows(
    benched: tuple[ModuleType, list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chapter, _ = benched
    monkeypatch.setitem(chapter.ZOO, "odd", [(200, 264, 136), (40, 64, 128), (104, 64, 72)])
    contest = chapter.contest
    monkeypatch.setattr(chapter, "contest", lambda shape, **more: 1 // 0 if shape[0] == 40 else contest(shape, **more))
    rows = bench.validated(chapter.benchmark_odd(), CHAPTER)
    assert [row["M"] for row in rows] == [200, 104]
    assert "no rows: (40, 64, 128): ZeroDivisionError" in capsys.readouterr().out


@pytest.mark.emulator
def test_the_ladder_has_every_chapters_product(chapter: ModuleType, device: str) -> None:
    """The kernels from 04 to 14, each of which computes the product of the same operands."""
    rng = np.random.default_rng(15)
    A, B = (torch.from_numpy(rng.standard_normal((256, 64))).to(BF16).to(device) for _ in range(2))
    rungs = chapter.rungs_before(A, B, torch.empty(256, 256, dtype=BF16, device=device))
    assert [name[:2] for name in rungs] == ["04", "06", "07", "08", "09", "10", "12", "13", "14"]
    for launch, result in rungs.values():
        result.fill_(torch.nan)
        launch()
        assert_product(result, A, B)


def of_table(chapter: ModuleType, shape: tuple[Any, ...], kernel: str, plan: Any = None) -> list[dict[str, Any]]:
    """Rows of both methods as a benchmark returns them, at half the vendor's speed."""
    M, N, K, dtype, out = chapter.typed(*shape)
    said = chapter.told(plan or chapter.choose(M, N, K, dtype, out))
    size = {"M": M, "N": N, "K": K, "dtype": str(dtype)[6:], "out": str(out)[6:], "plan": said}
    speed = {"ours_tflops": 1.0, "vendor_tflops": 2.0, "ratio": 0.5, "ours_us": 2.0, "us": 2.0, "model_us": 3.0}
    names = {"kernel": kernel, "vendor": "torch", "inputs": "none"}
    return [{**size, **names, **speed, "method": f"{method} of a test"} for method in ("burst", "sustained")]


def test_the_page_shows_what_was_measured_and_what_failed(
    chapter: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cells that read tables, with tables of every part; one shape of "odd" has no row."""
    machine = json.loads(bench.data_file("07_mma_sync").read_text())["provenance"]
    benchmarks.keep_tables_in(tmp_path, monkeypatch)
    names = vars(chapter).copy()
    tables = {part: [row for shape in shapes for row in of_table(chapter, shape, "15 the model's choice")]
              for part, shapes in chapter.ZOO.items()}  # fmt: skip
    tables["odd"] = tables["odd"][2:]
    tables[""] = of_table(chapter, (4096, 4096, 4096), "15 past cuBLAS") + of_table(chapter, (72, 64, 64), "15 rival")
    tables["steps"] = [row for name in chapter.BROUGHT for row in of_table(chapter, chapter.ODD, name)]
    tables["steps"] += of_table(chapter, (64, 4096, 4096), "15 early launch, graph")
    tables["tried"] = of_table(chapter, (4096, 4096, 4096), "15 ping-pong")
    contents: dict[str, dict[str, Any]] = {f"_{part}" if part else "": {"rows": rows} for part, rows in tables.items()}
    contents["_early"] = {"early": {"no wait": {"began": -5, "had": 7, "read": [0.0]}}}
    contents["_mistakes"] = {"mistakes": [{"mistake": "a CTA leaves early", "right": 9, "wrong": 1, "ended": "ends"}]}
    for name, content in contents.items():
        head = {"notebook": CHAPTER, "provenance": machine, "code_hash": "of an earlier version"}
        (tmp_path / f"{CHAPTER}{name}.json").write_text(json.dumps(head | content))
    for name in ("stake", "recorded", "zoo-recorded", "early-recorded", "mistakes-recorded"):
        exec(exercises.cell(CHAPTER, name), names)
    notebooks.load(CHAPTER, exercises.HELPER_TAGS).print_tried()
    said = capsys.readouterr().out
    for text in (
        "5120x5120x5120 torch.bfloat16 has failed, and has no row",
        "all, bursts: geometric mean 0.500, lowest 0.500, 52 shapes",
        "unseen, sustained: geometric mean 0.500, lowest 0.500, 8 shapes",
        "5000: 15 128x224, cluster 2", "<- the model's choice", "64x28672x4096 -> float32",
        "the reader began      -5 ns", "early launch, graph    sustained", "right  9, wrong  1", "ping-pong",
    ):  # fmt: skip
        assert text in said, said
    assert names["ladder"] is not None
