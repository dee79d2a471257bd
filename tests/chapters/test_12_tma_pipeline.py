"""Chapter 12's kernels, loaded from their notebook: TMA copy, one-buffer GEMM and pipeline, against float64."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut.course import notebooks
from cutetut.measure import mistakes
from tests.chapters import exercises
from tests.chapters.products import assert_product, exact, normal, wide

NAME = "12_tma_pipeline"
BF16, F16 = torch.bfloat16, torch.float16
CONFIGURATIONS = [
    (64, 1, 1), (64, 8, 2), (128, 1, 2), (128, 2, 1), (128, 3, 2), (128, 6, 1), (192, 2, 1), (192, 5, 2),
    (256, 1, 2), (256, 2, 2), (256, 4, 2),
]  # fmt: skip


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(NAME, exercises.HELPER_TAGS)


def matrix(rng: np.random.Generator, rows: int, columns: int, device: str, dtype: torch.dtype = BF16) -> torch.Tensor:
    return normal(rng, device, dtype, (rows, columns))[0]


# The copy -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize(
    ("shape", "stages", "ctas"),
    [
        ((32, 256), 1, 1),
        ((1, 8), 4, 2),
        ((2, 264), 3, 1),
        ((33, 264), 2, 3),
        ((100, 1000), 3, 1),
        ((70, 512), 12, 2),
        ((480, 264), 14, 1),
        ((128, 256), 8, 9),
    ],
)
def test_copy_is_exact_and_stays_inside(
    chapter: ModuleType, rng: np.random.Generator, device: str, dtype: torch.dtype, shape: tuple[int, int],
    stages: int, ctas: int,
) -> None:  # fmt: skip
    X = matrix(rng, *shape, device, dtype)
    memory = torch.full((shape[0] + 1, shape[1]), 7.0, dtype=dtype, device=device)
    chapter.tma_copy(X, memory[:-1], stages=stages, ctas=ctas)
    assert torch.equal(memory[:-1], X)
    assert (memory[-1] == 7).all()


@pytest.mark.parametrize(
    ("build", "error", "says"),
    [
        (lambda d: (torch.zeros(4, 8, device=d),), TypeError, "must be float16"),
        (lambda d: (torch.zeros(4, 12, device=d).half(),), ValueError, "multiple of 8 columns"),
        (lambda d: (torch.zeros(0, 8, device=d).half(),), ValueError, "not empty"),
        (lambda d: (torch.zeros(4, 0, device=d).half(),), ValueError, "multiple of 8 columns"),
        (lambda d: (torch.zeros(8, 8, device=d).half().T,), ValueError, "row-major without gaps"),
        (lambda d: (torch.zeros(65, device=d).half()[1:].reshape(8, 8),), ValueError, "16 bytes"),
        (lambda d: (torch.zeros(8, 8, device=d).half(), torch.zeros(8, 16, device=d).half()), ValueError, "one shape"),
    ],
)
def test_copy_refuses_what_it_does_not_support(
    chapter: ModuleType,
    device: str,
    build: Callable[[str], tuple[torch.Tensor, ...]],
    error: type[Exception],
    says: str,
) -> None:
    with pytest.raises(error, match=says):
        chapter.tma_copy(*build(device))


def test_copy_refuses_stages_that_do_not_fit(chapter: ModuleType, device: str) -> None:
    X = torch.zeros(8, 8, dtype=BF16, device=device)
    for stages in (0, 15):
        with pytest.raises(ValueError, match=f"stages={stages}"):
            chapter.tma_copy(X, stages=stages)


# The GEMMs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_gemm_matches_float64_in_every_configuration(
    chapter: ModuleType, rng: np.random.Generator, device: str, configuration: tuple[int, int, int]
) -> None:
    bN, stages, consumers = configuration
    A, B = matrix(rng, 256, 448, device), matrix(rng, 384, 448, device)
    C = torch.full((256, 384), float("nan"), dtype=BF16, device=device)
    assert chapter.tma_gemm(A, B, C, bN=bN, stages=stages, consumers=consumers) is C
    assert_product(C, A, B)


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("shape", [(1, 8, 8), (2, 8, 8), (63, 136, 72), (129, 264, 200), (300, 120, 128)], ids=str)
@pytest.mark.parametrize(("bN", "stages"), [(128, 1), (128, 3), (192, 2)])
def test_gemm_clips_ragged_sizes_and_stays_inside(
    chapter: ModuleType,
    rng: np.random.Generator,
    device: str,
    dtype: torch.dtype,
    shape: tuple[int, int, int],
    bN: int,
    stages: int,
) -> None:
    M, N, K = shape
    A, B = matrix(rng, M, K, device, dtype), matrix(rng, N, K, device, dtype)
    memory = torch.full((M + 2, N), 7.0, dtype=dtype, device=device)
    chapter.tma_gemm(A, B, memory[1:-1], bN=bN, stages=stages)
    assert_product(memory[1:-1], A, B)
    assert (memory[0] == 7).all() and (memory[-1] == 7).all()


def test_gemm_is_exact_on_integers(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    A, B = (torch.from_numpy(rng.integers(-2, 3, (128, 320)).astype(np.float32)).half().to(device) for _ in range(2))
    C = chapter.tma_gemm(A, B, bN=128, stages=2)
    assert np.array_equal(wide(C), exact(A, B))


@pytest.mark.parametrize(("bN", "consumers"), [(64, 2), (128, 1), (128, 2), (192, 2), (256, 2)])
def test_gemm_puts_every_element_in_its_place(chapter: ModuleType, device: str, bN: int, consumers: int) -> None:
    """One nonzero per row of A and B, and no two equal products in a row or column."""
    A, B = torch.zeros(128, 72), torch.zeros(256, 72)
    A[:, 71], B[:, 71] = torch.arange(128), 2.0 ** (torch.arange(256) % 4)
    B[:, 70], A[:, 70] = torch.arange(256), 1.0
    C = chapter.tma_gemm(A.half().to(device), B.half().to(device), bN=bN, stages=2, consumers=consumers)
    assert np.array_equal(wide(C), exact(A, B))


def test_gemm_spreads_nan_to_its_row_only(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    A, B = matrix(rng, 128, 64, device), matrix(rng, 128, 64, device)
    A[5, 2] = float("nan")
    C = chapter.tma_gemm(A, B, bN=128, stages=2).cpu()
    expected = torch.zeros(128, 128, dtype=torch.bool)
    expected[5] = True
    assert torch.equal(C.isnan(), expected)


def test_one_compilation_serves_all_sizes(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    chapter.tma_gemm(matrix(rng, 128, 64, device), matrix(rng, 128, 64, device), bN=128, stages=2)
    before = dict(chapter._compiled)
    A, B = matrix(rng, 70, 136, device), matrix(rng, 200, 136, device)
    assert_product(chapter.tma_gemm(A, B, bN=128, stages=2), A, B)
    assert chapter._compiled == before


GOOD = (128, 64)


@pytest.mark.parametrize(
    ("a", "b", "options", "error", "says"),
    [
        (torch.zeros(GOOD).bfloat16(), torch.zeros(GOOD).half(), {}, TypeError, "B is torch.float16"),
        (torch.zeros(GOOD), torch.zeros(GOOD), {}, TypeError, "A is torch.float32"),
        (torch.zeros(128, 60).half(), torch.zeros(128, 60).half(), {}, ValueError, "K=60"),
        (torch.zeros(GOOD).half(), torch.zeros(100, 64).half(), {}, ValueError, "N=100"),
        (torch.zeros(0, 64).half(), torch.zeros(GOOD).half(), {}, ValueError, "M=0,"),
        (torch.zeros(128, 0).half(), torch.zeros(128, 0).half(), {}, ValueError, "K=0"),
        (torch.zeros(GOOD).half(), torch.zeros(128, 128).half(), {}, ValueError, "MxK, NxK and MxN"),
        (torch.zeros(2, *GOOD).half(), torch.zeros(GOOD).half(), {}, ValueError, "3 dimensions"),
        (torch.zeros(64, 128).half().T, torch.zeros(GOOD).half(), {}, ValueError, "row-major without gaps"),
        (torch.zeros(GOOD).half(), torch.zeros(GOOD).half(), {"bN": 320}, ValueError, "bN=320"),
        (torch.zeros(GOOD).half(), torch.zeros(GOOD).half(), {"bN": 128, "stages": 7}, ValueError, "7 stages"),
        (torch.zeros(GOOD).half(), torch.zeros(GOOD).half(), {"stages": 0}, ValueError, "stages=0"),
        (torch.zeros(GOOD).half(), torch.zeros(GOOD).half(), {"bN": 256, "stages": 5}, ValueError, "shared memory"),
        (torch.zeros(GOOD).half(), torch.zeros(GOOD).half(), {"consumers": 1}, ValueError, "256 accumulators"),
        (torch.zeros(GOOD).half(), torch.zeros(GOOD).half(), {"bN": 128, "consumers": 3}, ValueError, "consumers=3"),
    ],
)
def test_gemm_refuses_what_it_does_not_support(
    chapter: ModuleType, device: str, a: torch.Tensor, b: torch.Tensor, options: dict[str, int], error: type[Exception],
    says: str,
) -> None:  # fmt: skip
    with pytest.raises(error, match=says):
        chapter.tma_gemm(a.to(device), b.to(device), **options)


@pytest.mark.parametrize(("bN", "stages"), [(64, 8), (128, 1), (128, 6), (192, 5), (256, 1), (256, 4)])
def test_every_configuration_that_is_allowed_fits_an_sm(chapter: ModuleType, device: str, bN: int, stages: int) -> None:
    chapter.refuse_configuration(bN, stages, 2)
    info = compiled(chapter, device, bN, stages, 2)
    assert info.shared_bytes <= chapter.SHARED
    assert info.spills == 0
    assert 288 * -(-info.registers // 8) * 8 <= 65536
    assert "clock64" not in info.ptx


def compiled(chapter: ModuleType, device: str, bN: int, stages: int, consumers: int) -> Any:
    tensors = [
        torch.zeros(rows, columns, dtype=BF16, device=device) for rows, columns in ((128, 64), (256, 64), (128, 256))
    ]
    arguments = [chapter.from_dlpack(t, assumed_align=16) for t in tensors]
    return chapter.inspect(chapter.cute.compile(chapter.gemm_launch, *arguments, bN, stages, consumers, None))


# The clock ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bN", "stages", "consumers"), [(128, 2, 2), (128, 3, 1), (256, 2, 2)])
def test_a_traced_launch_computes_the_same_and_its_clock_runs_forward(
    chapter: ModuleType, rng: np.random.Generator, device: str, bN: int, stages: int, consumers: int
) -> None:
    A, B = matrix(rng, 256, 320, device), matrix(rng, 256, 320, device)
    clock = chapter.traced(A, B, bN=bN, stages=stages, consumers=consumers)
    assert clock.shape == (2 + consumers, 6, 3, 2 * (256 // bN))
    producer, groups, observer = clock[0, :-1], clock[1:-1], clock[-1, :-1]
    assert (producer[:, 0] > 0).all() and (producer[:, 1] >= producer[:, 0]).all()
    assert (np.diff(producer[:, 1], axis=0) > 0).all()
    assert (observer[:, 1] > producer[:, 1]).all(), "a tile lands after it was asked for"
    assert (groups[:, :-1, 1] >= groups[:, :-1, 0]).all()
    assert (groups[:, 1:, 2] > groups[:, :-1, 1]).all(), "math ends after it began"
    reused = producer[stages:, 1], groups[:, 1:, 2].min(axis=0)[:-stages]
    assert (reused[0] > reused[1]).all(), "a stage is filled again after its math"


# What goes wrong ----------------------------------------------------------------------------------------------

NAMED = {
    "no wait for full": "Uninitialized",
    "no wait for empty": "IllegalInstruction",
    "half the bytes": "AsyncMismatch",
    "twice the bytes": "Deadlock",
    "producer's parity": "Deadlock",
    "consumers' parity": "Uninitialized",
    "released too early": "InFlight",
    "no wait for the WGMMAs": "InFlight",
    "swizzles differ": "warning",
    "no proxy fence": "MissingFence",
    "slab not waited for": "InFlight",
    "copy: no wait for the store": "InFlight",
}


@pytest.mark.emulator
@pytest.mark.parametrize("name", NAMED)
def test_a_mistake_is_named(names: dict[str, Any], capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert names["MISTAKES"].keys() == NAMED.keys()
    names["explain"](name)
    report = capsys.readouterr().out.split("\n+ ")[1]
    assert f"\n{NAMED[name]}:" in report
    assert re.search(r"changed_\w+\.py:\d+", report)


@pytest.mark.emulator
@pytest.mark.parametrize("name", ["", "copy"])
def test_no_alarm_without_a_mistake(names: dict[str, Any], name: str) -> None:
    said, C, expected = names["emulate"](notebooks.changed(NAME), name)
    assert mistakes.faultless(said) and "warning" not in said
    assert np.abs(wide(C) - wide(expected)).max() < 0.5


@pytest.mark.parametrize("name", ["gemm", "copy"])
def test_an_attempt_without_a_mistake_is_right(
    chapter: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(chapter.MISTAKES, name, [])
    launch, right = chapter.attempt(name, 128)
    assert not right(), "nothing is written yet"
    for _ in range(2):
        launch()
        assert right()


@pytest.mark.filterwarnings("ignore:operand A of the WGMMA")
def test_an_attempt_with_a_mistake_is_wrong(chapter: ModuleType) -> None:
    launch, right = chapter.attempt("swizzles differ", 128)
    launch()
    assert not right()


@pytest.mark.parametrize(
    ("name", "opcode", "fewer"),
    [
        ("no wait for the WGMMAs", "WARPGROUP.DEPBAR", 1),
        ("no proxy fence", "FENCE.VIEW.ASYNC", 2),
        ("copy: no wait for the store", "DEPBAR", 1),
    ],
)
def test_what_passes_on_a_gpu_is_missing_from_the_machine_code(
    chapter: ModuleType, device: str, name: str, opcode: str, fewer: int
) -> None:
    """The assembler puts nothing back, as it does for some omissions of chapter 08."""
    counts = []
    for mistake in ([], [name]):
        replacements = [pair for each in mistake for pair in chapter.MISTAKES[each]]
        launch, arguments, _, _ = chapter.problem(notebooks.changed(NAME, replacements), name, 128, 128, device)
        tensors = [chapter.as_cute(a) if isinstance(a, torch.Tensor) else a for a in arguments]
        counts.append(chapter.inspect(chapter.cute.compile(launch, *tensors)).count(opcode))
    assert counts[0] - counts[1] == fewer


@pytest.mark.gpu
def test_a_mistake_on_the_gpu_is_told_from_what_is_right() -> None:
    assert mistakes.on_gpu(NAME, ["swizzles differ"]) == [
        {"mistake": "swizzles differ", "right": 0, "wrong": 10, "ended": "ends"}
    ]


# The notebook -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The exercises' checks with what they use: the kernels, the mistakes, the helpers of the first broken cell."""
    checks = [f"exercise-{number}-check" for number in CHECKS]
    return exercises.defined(NAME, checks, tmp_path_factory.mktemp("cells"))


WRONG = {  # a part of what the check has to say
    1: {
        "lambda kt, stages: (kt // stages, kt & 1, 1)": "is not in stage",
        "lambda kt, stages: (kt % stages, 0, kt // stages & 1 ^ 1)": "does not tell whether it is loaded",
        "lambda kt, stages: (kt % stages, kt // stages & 1, kt // stages & 1)": "the producer waits although",
        "lambda kt, stages: (kt % stages, kt // stages & 1, 1)": "the producer",
        "lambda kt, stages: (kt % stages, kt // stages, kt // stages + 1)": "the producer waits although",
        "lambda kt, stages: None": "return three numbers",
        "lambda kt, stages: divmod(kt, stages)[::-1]": "return three numbers",
    },
    2: {
        "lambda bM, bN, bK, bits: 232448 // ((bM + bN) * bK * bits // 8)": "one more",
        "lambda bM, bN, bK, bits: (232448 - 1024 * bits) // ((bM + bN) * bK * bits // 8)": "leave",  # no barriers
        "lambda bM, bN, bK, bits: (232448 - 1024 * bits) // ((bM + bN) * bK * bits // 8 + 8)": "leave",  # one
        "lambda bM, bN, bK, bits: (232448 - 16384) // ((bM + bN) * bK * bits // 8 + 16)": "leave",  # slabs of 16 bits
        "lambda bM, bN, bK, bits: 500": "leave",
        "lambda bM, bN, bK, bits: 4.5": "whole number",
        "lambda bM, bN, bK, bits: -1": "whole number",
        "lambda bM, bN, bK, bits: float('inf')": "whole number",
        "lambda bM, bN, bK, bits: None": "whole number",
    },
    3: {"8": "not yet", "128": "not yet", "257": "not yet", "0": "not yet", "255.5": "a number", "'many'": "a number"},
    4: {"1": "not 1 times", "16": "not 16 times", "'all'": "not all times", "None": "not None times"},
}
RIGHT = {
    1: [
        "lambda kt, stages: [kt % stages, kt // stages % 2, 1 - kt // stages % 2]",
        "lambda kt, stages: np.array([kt % stages, kt // stages & 1, ~(kt // stages) & 1])",
        "lambda kt, stages: (kt % stages, kt % (2 * stages) >= stages, kt % (2 * stages) < stages)",
    ],
    2: [
        "lambda bM, bN, bK, bits: (232448 - 1024 * bits) // ((bM + bN) * bK * bits / 8 + 16)",
        "lambda bM, bN, bK, bits: np.int64((232448 - 1024 * bits) // ((bM + bN) * bK * bits // 8 + 16))",
    ],
    3: ["256.0", "np.int64(256)"],
    4: ["32.0"],
}
CHECKS = {1: "check_ring", 2: "check_most_stages", 3: "check_arrivals", 4: "check_stores"}


test_wrong_answers_are_told_why = exercises.wrong_answers_are_told_why(CHECKS, WRONG)
test_right_answers_of_any_form_are_accepted = exercises.right_answers_are_accepted(CHECKS, RIGHT)


def test_the_benchmark_measures_only_what_the_kernels_accept(chapter: ModuleType) -> None:
    for configuration in chapter.SWEEP + chapter.BEST:
        chapter.refuse_configuration(*configuration)
    assert set(chapter.BEST) <= set(chapter.SWEEP)
    for bN in (64, 128, 192, 256):  # up to the last that fits
        most = max(stages for n, stages, _ in chapter.SWEEP if n == bN)
        with pytest.raises(ValueError, match="shared memory"):
            chapter.refuse_configuration(bN, most + 1, 2)


def test_the_rungs_before_compute_the_same_product(
    chapter: ModuleType, rng: np.random.Generator, device: str
) -> None:
    A, B = matrix(rng, 256, 128, device), matrix(rng, 256, 128, device)
    C = torch.zeros(256, 256, dtype=BF16, device=device)
    rungs = chapter.rungs_before(A, B, C)
    assert list(rungs) == ["04 scalar FMA", "07 128x256x64, 8 warps", "08 WGMMA 64x128 TN"]
    for name in list(rungs)[1:]:
        rungs[name]()
        assert_product(C, A, B)
        C.zero_()


def test_rounds_and_lines_are_those_of_the_addresses(
    chapter: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chapter, "ctas_per_sm", lambda bN, stages: 2, raising=False)
    for K in (64, 72, 4056, 4096):
        starts = [row * K * 2 + box * 128 for row in range(64) for box in range(3)]
        lines = [len({address // 128 for address in range(start, start + 128)}) for start in starts]
        assert chapter.lines_per_row(K) == np.mean(lines)
    assert [chapter.rounds(128 * m, 256 * n, 256, 4) for m, n in ((1, 1), (11, 24), (5, 53))] == [1, 1, 2]
    assert chapter.rounds(128 * 264 - 127, 1, 64, 1) == 1


def test_the_timeline_of_a_traced_launch_can_be_drawn(
    chapter: ModuleType, rng: np.random.Generator, device: str
) -> None:
    A, B = matrix(rng, 128, 512, device), matrix(rng, 128, 512, device)
    clock = chapter.traced(A, B, bN=128, stages=2)[..., 0]
    timeline = {"bN": 128, "stages": 2, "clock": clock.tolist()}
    at = chapter.events(timeline)
    assert all(at[name].shape == (8,) for name in ("asked", "granted", "landed"))
    assert all(at[name].shape == (2, 8) for name in ("wanted", "got", "started", "done"))
    assert (at["granted"] < at["landed"]).all() and (at["landed"] <= at["started"]).all()
    assert (at["began"][:, None] < at["wanted"]).all() and (at["started"] < at["done"]).all()
    assert (at["done"] <= at["finished"][:, None]).all() and (at["finished"] < at["left"]).all()
    bars = chapter.spans(timeline)
    assert len(bars) == 8 * (4 + 2 * 2) + 2
    assert {bar.row for bar in bars} == {"producer", "stage 0", "stage 1", "consumer 1", "consumer 2"}
    in_stage = sorted((bar.start, bar.end) for bar in bars if bar.row == "stage 1")
    assert all(before[1] <= after[0] for before, after in zip(in_stage, in_stage[1:], strict=False)), "one at a time"
    assert chapter.show([timeline, timeline | {"stages": 3}]).run == "128x128, 2 stages"
    assert chapter.summary(timeline).count("%") == 3
