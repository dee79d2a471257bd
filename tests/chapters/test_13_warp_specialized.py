"""The kernel of chapter 13, loaded from its notebook: shapes, types and configurations against float64."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut.course import notebooks
from cutetut.inspect import profile
from cutetut.measure import rungs
from tests.chapters import exercises
from tests.chapters.products import exact, wide

NAME = "13_warp_specialized"
ROUNDED = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-10, torch.float8_e4m3fn: 2.0**-8}  # C, once


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(NAME, exercises.HELPER_TAGS)


def agrees(chapter: ModuleType, device: str, shape: tuple[int, int, int], dtype: torch.dtype, **change: object) -> None:
    """Compare one product with float64; C starts as NaN, so that an element nobody writes is seen."""
    M, N, K = shape
    rng = np.random.default_rng(sum(shape))
    A, B = (torch.from_numpy(rng.standard_normal((rows, K))).to(dtype) for rows in (M, N))
    expected = exact(A, B)
    C = torch.full((M, N), torch.nan, dtype=chapter.DTYPES[dtype], device=device)
    cfg = dataclasses.replace(chapter.Config(sms=4), **change)
    chapter.gemm(A.to(device), B.to(device), C, cfg)
    error = np.abs(wide(C) - expected)
    slack = (2e-3 if dtype == torch.float8_e4m3fn else 1e-4) * K**0.5
    assert (error <= slack + ROUNDED[dtype] * np.abs(expected)).all(), error.max()  # NaN fails


@pytest.mark.parametrize("shape", [(1, 8, 8), (129, 264, 72), (511, 520, 328), (256, 256, 64), (700, 16, 512)])
def test_ragged_shapes(chapter: ModuleType, device: str, shape: tuple[int, int, int]) -> None:
    agrees(chapter, device, shape, torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn])
def test_types(chapter: ModuleType, device: str, dtype: torch.dtype) -> None:
    agrees(chapter, device, (300, 272, 400), dtype)


@pytest.mark.parametrize(
    "change",
    [
        {"overlap": False},
        {"early": False, "cluster": 1, "sms": 2},
        {"bM": 256, "bN": 128, "order": "row"},
        {"bN": 192, "order": "hilbert", "buffers": 3},
        {"bN": 64, "stages": 8, "buffers": 1, "order": "group 2"},
        {"consumers": 1, "bM": 64, "bN": 128, "stages": 2},
        {"cluster": 4, "bN": 64, "buffers": 1},
    ],
    ids=str,
)
def test_configurations(chapter: ModuleType, device: str, change: dict[str, object]) -> None:
    agrees(chapter, device, (520, 264, 200), torch.bfloat16, **change)


@pytest.mark.parametrize("order", ["row", "group 1", "group 5", "group 8", "hilbert"])
@pytest.mark.parametrize("grid", [(1, 1), (1, 7), (9, 2), (8, 8), (5, 13)])
def test_an_order_takes_every_tile_once(chapter: ModuleType, order: str, grid: tuple[int, int]) -> None:
    rows, columns = grid
    tiles = chapter.tile_order(rows, columns, order)
    assert sorted(tiles) == [(m, n) for m in range(rows) for n in range(columns)]


def test_a_hilbert_curve_moves_one_step_at_a_time(chapter: ModuleType) -> None:
    places = np.array([chapter.hilbert(16, place) for place in range(256)])
    assert (np.abs(np.diff(places, axis=0)).sum(axis=1) == 1).all()


def test_refusals_name_what_to_change(chapter: ModuleType, device: str) -> None:
    good = torch.zeros(128, 64, dtype=torch.bfloat16, device=device)
    with pytest.raises(ValueError, match="'row', 'group G' or 'hilbert'"):
        chapter.gemm(good, good, None, chapter.Config(order="spiral"))
    with pytest.raises(ValueError, match="5 stages need"):
        chapter.gemm(good, good, None, chapter.Config(stages=5))
    with pytest.raises(ValueError, match="3 pieces of C per consumer through 2 buffers"):
        chapter.gemm(good, good, None, chapter.Config(bN=192))
    with pytest.raises(ValueError, match="multiples of 64"):
        chapter.gemm(good, good, None, chapter.Config(bN=96))
    with pytest.raises(ValueError, match="multiples of 16 bytes"):
        chapter.gemm(good[:, :60].contiguous(), good[:, :60].contiguous())
    with pytest.raises(TypeError, match="float16"):
        chapter.gemm(good, good.half())


def test_without_a_trace_no_clock_is_read(chapter: ModuleType, device: str) -> None:
    A, B = (torch.zeros(128, 64, dtype=torch.bfloat16, device=device) for _ in range(2))
    C = torch.zeros(128, 128, dtype=torch.bfloat16, device=device)
    counts = {}
    for traced in (False, True):
        cfg = chapter.Config(trace=traced, sms=2, bN=128)
        trace = torch.zeros(2, 3, 8, 4, dtype=torch.int64, device=device)
        launch = chapter.prepare(A, B, C, cfg, trace)
        counts[traced] = chapter.inspect(launch.func).ptx.count("%clock64")
    assert counts[False] == 0 < counts[True]


EXPERIMENTS = [
    "ping-pong, each a tile of 128x128",
    "one fence per tile of C",
    "nothing queued behind a K tile",
    "24 and 240 registers",
    "C first to leave L2",
]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_compute_the_same(chapter: ModuleType, device: str, name: str) -> None:
    """What was tried and not kept was right too; K is long enough to go round the ring more than twice."""
    assert list(chapter.EXPERIMENTS) == EXPERIMENTS
    lines, cfg = chapter.EXPERIMENTS[name]
    kernel = notebooks.changed(NAME, lines)
    agrees(kernel, device, (300, 264, 832), torch.bfloat16, **dataclasses.asdict(cfg) | {"sms": 2})


@pytest.mark.parametrize(("shape", "clusters"), [((300, 264, 832), 3), ((512, 768, 256), 4)], ids=str)
def test_tiles_left_over_are_multiplied_in_parts(
    chapter: ModuleType, device: str, shape: tuple[int, int, int], clusters: int
) -> None:
    """One left-over tile of four for three clusters, and two of six for four: the parts of a tile run at once."""
    lines, cfg = chapter.ODD_WAVES["odd waves, stream-K"]
    kernel = notebooks.changed(NAME, lines)
    agrees(kernel, device, shape, torch.bfloat16, **dataclasses.asdict(cfg) | {"sms": 2 * clusters})


def test_every_rung_computes_the_same(chapter: ModuleType, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rung of the ladder as `benchmark` launches it, at 256 in place of 4096, against float64."""

    def operands(M: int, N: int, K: int, dtype: torch.dtype) -> list[torch.Tensor]:
        rng = torch.Generator().manual_seed(13)
        A, B = (torch.randn(rows, K, generator=rng).to(device, dtype) for rows in (M, N))
        return [A, B, *(torch.full((M, N), torch.nan, dtype=dtype, device=device) for _ in range(2))]

    def agrees(result: torch.Tensor, theirs: torch.Tensor, dtype: torch.dtype, rung: str) -> None:
        error = np.abs(wide(result) - expected)
        assert (error <= 2e-3 + 2.0**-8 * np.abs(expected)).all(), (rung, error.max())  # NaN fails

    def compare(ours: Callable[[], None], theirs: Callable[[], None], **labels: Any) -> list[dict[str, Any]]:
        return [labels]

    expected = exact(*operands(256, 256, 256, torch.bfloat16)[:2])
    monkeypatch.setattr(chapter, "random_operands", operands)
    monkeypatch.setattr(chapter, "refuse_wrong", agrees)
    monkeypatch.setattr(chapter.bench, "compare", compare)
    names = [row["kernel"] for row in chapter.rung_rows(256)]
    assert [name[:2] for name in names] == ["04", "07", "08", "12", "13"]
    kernels = {rung.notebook[:2]: rung.kernel for rung in rungs.RUNGS[:-1]}
    for name in names[:-1]:
        assert re.fullmatch(kernels[name[:2]], name), name
    assert not re.fullmatch(rungs.RUNGS[-1].kernel, names[-1])  # the headline is the tuner's row, over 2 s


def test_a_wrong_result_is_not_timed(chapter: ModuleType) -> None:
    right = torch.ones(8, 8)
    chapter.refuse_wrong(right * 1.004, right, torch.bfloat16, "rounded")
    for wrong in (right * 1.006, right.clone().fill_diagonal_(torch.nan), right.roll(1) - 2):
        with pytest.raises(AssertionError, match="off: relative error"):
            chapter.refuse_wrong(wrong, right, torch.bfloat16, "off")


@pytest.mark.emulator
def test_c_is_stored_once(chapter: ModuleType) -> None:
    """256x256x128 by one cluster: a TMA store is issued by every lane that gets there, so one lane must be elected."""
    shapes = ((256, 128), (256, 128), (256, 256))
    A, B, C = (torch.zeros(*shape, dtype=torch.bfloat16) for shape in shapes)
    order, trace = torch.zeros(1, dtype=torch.int32), torch.zeros(1, 1, 1, 1, dtype=torch.int64)
    counts = profile.count(chapter.gemm_launch, A, B, C, order, trace, 1, chapter.Config())
    stores = counts.traffic["global", "tma store"]
    assert (stores.asked, stores.requests) == (C.nbytes, 256 * 256 // (64 * 64))


def test_clocks_that_two_warps_noted_make_a_timeline(chapter: ModuleType) -> None:
    """A consumer's warps share an entry: what it holds of one may be later than the next event of another."""
    late = [[[10, 20, 30, -1]], [[50, 40, 60, -1], [70, 75, 90, 95]], [[50, 40, 45, -1], [-1, -1, -1, -1]]]
    found = chapter.spans(late)
    assert chapter.Timeline({"one": found}, kinds=["waits", "loads", "multiplies", "stores"])
    assert [(one.start, one.end) for one in found] == [
        (10, 20), (20, 30), (50, 50), (50, 60), (70, 75), (75, 95), (50, 50), (50, 50)
    ]  # fmt: skip


# Exercises ----------------------------------------------------------------------------------------------------

SNAKE = "for top in (0, 8) for n in (range(c) if top == 0 else range(c)[::-1]) for m in range(top, top + 8)"
CHECKS = {1: "check_budget", 2: "check_stages", 3: "check_order"}
WRONG = {  # a part of what the check has to say
    1: {
        "16, 160": "a multiple of 8 from 24",
        "32.0, 160": "as an integer, and not 32.0",
        "None, None": "and not None",
        "64, 152": "66560 registers",
        "40, 144": "too few",
    },
    2: {
        "lambda bM, bN, c, b: (230400 - 8192 * c * b) / (128 * (bM + bN))": "no whole number",
        "lambda bM, bN, c, b: None": "None is no whole number",
        "lambda bM, bN, c, b: 230400 // (128 * (bM + bN))": "do not fit",
        "lambda bM, bN, c, b: (230400 - 8192 * b) // (128 * (bM + bN))": "do not fit",
        "lambda bM, bN, c, b: {256: 4, 128: 6 if bM == 128 else 4, 64: 8}.get(bN, 5)": "one more does too",
    },
    3: {
        "lambda r, c: None": "pairs",
        "lambda r, c: [m + 65536 * n for m, n in tile_order(r, c, 'group 8')]": "pairs",
        "lambda r, c: [(0, 0)] * (r * c)": "of which 1535 are missing",
        "lambda r, c: tile_order(r, c, 'group 8') + [(0, 0)]": "1537 entries",
        f"lambda r, c: [(n, m) {SNAKE}]": "of which 1280 are missing",
        "lambda r, c: tile_order(r, c, 'hilbert')": "468 strips",
    },
}
RIGHT = {
    1: ["np.int64(56), 152"],
    2: [
        "lambda bM, bN, c, b: np.floor((1800 - 64 * c * b) / (bM + bN))",
        "lambda bM, bN, c, b: next(s for s in range(99) if 1800 < 64 * c * b + (s + 1) * (bM + bN))",
    ],
    3: [
        f"lambda r, c: ([m, n] {SNAKE})",
        f"lambda r, c: np.array([(m, n) {SNAKE}])",
        f"lambda r, c: torch.tensor([(r - 1 - m, n) {SNAKE}])",
    ],
}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The exercises' checks with what they use."""
    return exercises.defined(NAME, [f"ex{number}-check" for number in CHECKS], tmp_path_factory.mktemp("cells"))


test_wrong_answers_are_told_why = exercises.wrong_answers_are_told_why(CHECKS, WRONG)


@pytest.mark.emulator
@pytest.mark.parametrize(("number", "answer"), exercises.tries(RIGHT))
def test_right_answers_of_any_form_are_accepted(
    names: dict[str, Any], capsys: pytest.CaptureFixture[str], number: int, answer: str
) -> None:
    """With what they reach: "right: 407 strips of A and B"."""
    assert exercises.verdict(f"{CHECKS[number]}({answer})", names, capsys).startswith("right")
