"""Chapter 12's kernels, loaded from their notebook: TMA copy, one-buffer GEMM and pipeline, against float64."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut import bench, notebooks
from cutetut.diagnose import diagnose

NAME = "12_tma_pipeline"
BF16, F16 = torch.bfloat16, torch.float16
HALF_ULP = {BF16: 2.0**-8, F16: 2.0**-11}  # of the result, relative
CONFIGURATIONS = [(128, 1, 2), (128, 2, 1), (128, 3, 2), (128, 6, 1), (256, 1, 2), (256, 2, 2), (256, 4, 2)]


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(NAME)


def matrix(rng: np.random.Generator, rows: int, columns: int, device: str, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal((rows, columns)).astype(np.float32)).to(dtype).to(device)


def wide(tensor: torch.Tensor) -> np.ndarray:
    return np.asarray(tensor.cpu().double().numpy())


def assert_product(C: torch.Tensor, A: torch.Tensor, B: torch.Tensor) -> None:
    """C is A B^T up to float32 sums of K exact products and one rounding to C's dtype."""
    exact, magnitude = wide(A) @ wide(B).T, np.abs(wide(A)) @ np.abs(wide(B)).T
    bound = A.shape[1] * 2.0**-22 * magnitude + HALF_ULP[C.dtype] * np.abs(exact) * (1 + 2.0**-8) + 2.0**-24
    assert (np.abs(wide(C) - exact) <= bound).all()


# The copy -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize(
    ("shape", "stages", "ctas"),
    [((32, 256), 1, 1), ((2, 8), 4, 2), ((33, 264), 2, 3), ((100, 1000), 3, 1), ((70, 512), 12, 2), ((128, 256), 8, 9)],
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
        (lambda d: (torch.zeros(1, 8, device=d).half(),), ValueError, "2 rows or more"),
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
    for stages in (0, 13):
        with pytest.raises(ValueError, match=f"stages={stages}"):
            chapter.tma_copy(X, stages=stages)


# The GEMMs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_gemm_matches_float64_in_every_configuration(
    chapter: ModuleType, rng: np.random.Generator, device: str, configuration: tuple[int, int, int]
) -> None:
    bN, stages, consumers = configuration
    A, B = matrix(rng, 256, 448, device), matrix(rng, 256, 448, device)
    C = torch.full((256, 256), float("nan"), dtype=BF16, device=device)
    assert chapter.tma_gemm(A, B, C, bN=bN, stages=stages, consumers=consumers) is C
    assert_product(C, A, B)


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("shape", [(2, 8, 8), (63, 136, 72), (129, 264, 200), (300, 120, 128)], ids=str)
@pytest.mark.parametrize("stages", [1, 3])
def test_gemm_clips_ragged_sizes_and_stays_inside(
    chapter: ModuleType,
    rng: np.random.Generator,
    device: str,
    dtype: torch.dtype,
    shape: tuple[int, int, int],
    stages: int,
) -> None:
    M, N, K = shape
    A, B = matrix(rng, M, K, device, dtype), matrix(rng, N, K, device, dtype)
    memory = torch.full((M + 2, N), 7.0, dtype=dtype, device=device)
    chapter.tma_gemm(A, B, memory[1:-1], bN=128, stages=stages)
    assert_product(memory[1:-1], A, B)
    assert (memory[0] == 7).all() and (memory[-1] == 7).all()


def test_gemm_is_exact_on_integers(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    A, B = (torch.from_numpy(rng.integers(-2, 3, (128, 320)).astype(np.float32)).half().to(device) for _ in range(2))
    C = chapter.tma_gemm(A, B, bN=128, stages=2)
    assert np.array_equal(wide(C), wide(A) @ wide(B).T)


@pytest.mark.parametrize(("bN", "consumers"), [(128, 1), (128, 2), (256, 2)])
def test_gemm_puts_every_element_in_its_place(chapter: ModuleType, device: str, bN: int, consumers: int) -> None:
    """One nonzero per row of A and B, and no two equal products in a row or column."""
    A, B = torch.zeros(128, 72), torch.zeros(256, 72)
    A[:, 71], B[:, 71] = torch.arange(128), 2.0 ** (torch.arange(256) % 4)
    B[:, 70], A[:, 70] = torch.arange(256), 1.0
    C = chapter.tma_gemm(A.half().to(device), B.half().to(device), bN=bN, stages=2, consumers=consumers)
    assert np.array_equal(wide(C), wide(A) @ wide(B).T)


def test_gemm_spreads_nan_to_its_row_only(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    A, B = matrix(rng, 128, 64, device), matrix(rng, 128, 64, device)
    A[5, 2] = float("nan")
    C = chapter.tma_gemm(A, B, bN=128, stages=2).cpu()
    expected = torch.zeros(128, 128, dtype=torch.bool)
    expected[5] = True
    assert torch.equal(C.isnan(), expected)


def test_gemm_compiles_once_per_shape(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    A, B = matrix(rng, 128, 64, device), matrix(rng, 128, 64, device)
    chapter.tma_gemm(A, B, bN=128, stages=2)
    before = dict(chapter._compiled)
    assert_product(chapter.tma_gemm(2 * A, B, bN=128, stages=2), 2 * A, B)
    assert chapter._compiled == before


GOOD = (128, 64)


@pytest.mark.parametrize(
    ("a", "b", "options", "error", "says"),
    [
        (torch.zeros(GOOD).bfloat16(), torch.zeros(GOOD).half(), {}, TypeError, "B is torch.float16"),
        (torch.zeros(GOOD), torch.zeros(GOOD), {}, TypeError, "A is torch.float32"),
        (torch.zeros(128, 60).half(), torch.zeros(128, 60).half(), {}, ValueError, "K=60"),
        (torch.zeros(GOOD).half(), torch.zeros(100, 64).half(), {}, ValueError, "N=100"),
        (torch.zeros(1, 64).half(), torch.zeros(GOOD).half(), {}, ValueError, "M=1,"),
        (torch.zeros(128, 0).half(), torch.zeros(128, 0).half(), {}, ValueError, "K=0"),
        (torch.zeros(GOOD).half(), torch.zeros(128, 128).half(), {}, ValueError, "MxK, NxK and MxN"),
        (torch.zeros(2, *GOOD).half(), torch.zeros(GOOD).half(), {}, ValueError, "3 dimensions"),
        (torch.zeros(64, 128).half().T, torch.zeros(GOOD).half(), {}, ValueError, "row-major without gaps"),
        (torch.zeros(GOOD).half(), torch.zeros(GOOD).half(), {"bN": 192}, ValueError, "bN=192"),
        (torch.zeros(GOOD).half(), torch.zeros(GOOD).half(), {"stages": 7}, ValueError, "stages=7"),
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


@pytest.mark.parametrize(("bN", "stages"), [(128, s) for s in range(1, 7)] + [(256, s) for s in range(1, 5)])
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

FULL_WAIT = "            cute.arch.mbarrier_wait(full + stage, turn & 1)\n"
EMPTY_WAIT = "            cute.arch.mbarrier_wait(empty + stage, (turn & 1) ^ 1)\n"
BYTES = "(full + stage, (bM + bN) * bK * dtype.width // 8)"
BROKEN = {
    "no wait for full": (FULL_WAIT, "", "Uninitialized"),
    "no wait for empty": (EMPTY_WAIT, "", "IllegalInstruction"),
    "half the bytes": (BYTES, BYTES.replace("// 8", "// 16"), "AsyncMismatch"),
    "twice the bytes": (BYTES, BYTES.replace("// 8", "// 4"), "Deadlock"),
    "producer's parity": ("(turn & 1) ^ 1)", "turn & 1)", "Deadlock"),
    "consumers' parity": (FULL_WAIT, FULL_WAIT.replace("turn & 1", "(turn & 1) ^ 1"), "Uninitialized"),
    "no wait_group": ("            warpgroup.wait_group(1)", "            pass", "InFlight"),
    "no proxy fence": (
        '            cute.arch.fence_proxy("async.shared", space="cta")',
        "            pass",
        "MissingFence",
    ),
}


@pytest.mark.emulator
@pytest.mark.parametrize("case", BROKEN)
def test_one_broken_line_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str) -> None:
    old, new, error = BROKEN[case]
    source = notebooks.tagged_source(NAME)
    assert source.count(old) == 1
    file = tmp_path / "changed.py"
    file.write_text(source.replace(old, new))
    spec = importlib.util.spec_from_file_location("changed", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    A, B, C = (torch.ones(rows, columns, dtype=BF16) for rows, columns in ((128, 320), (128, 320), (128, 128)))
    capsys.readouterr()
    diagnose(module.gemm_launch, A, B, C, 128, 2, 2, None)
    said = capsys.readouterr().out
    assert said.startswith(f"{error}:"), said
    assert re.search(r"changed\.py:\d+", said)


# The notebook -------------------------------------------------------------------------------------------------


def cell(name: str) -> str:
    return str(next(c.source for c in notebooks.read(NAME).cells if c.id == name))


@pytest.fixture(scope="module")
def names(chapter: ModuleType) -> dict[str, Any]:
    """What the exercises' checks may use: the kernels, and the helpers of the first broken cell."""
    space = dict(vars(chapter))
    exec(cell("break-wait").rsplit("\n\n\n", 1)[0], space)
    return space


@pytest.mark.emulator
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_exercises_start_with_not_yet_and_their_solutions_are_right(
    names: dict[str, Any], capsys: pytest.CaptureFixture[str], number: int
) -> None:
    exec(cell(f"exercise-{number}-check"), names)
    capsys.readouterr()
    exec(cell(f"exercise-{number}"), names)
    start = capsys.readouterr().out
    exec(cell(f"exercise-{number}-solution"), names)
    solution = capsys.readouterr().out
    assert "not yet" in start and "right" not in start
    assert solution == "right\n"


def test_kernel_bodies_stay_short() -> None:
    for code in notebooks.code_cells(notebooks.read(NAME)):
        if "kernel" in notebooks.tags(code):
            for body in re.split(r"^(?=@cute\.)", code.source, flags=re.MULTILINE):
                assert len(body.splitlines()) <= 90


def test_the_benchmark_measures_only_what_the_kernels_accept() -> None:
    module = notebooks.load(NAME, bench.BENCH_TAGS)
    for bN, stages, consumers in module.SERIAL + module.PIPELINES + module.BEST:
        module.refuse_configuration(bN, stages, consumers)
    assert {s for bN, s, _ in module.PIPELINES if bN == 128} == {2, 3, 4, 5, 6}


@pytest.mark.emulator
def test_the_timeline_of_a_traced_launch_can_be_drawn(
    chapter: ModuleType, rng: np.random.Generator, device: str
) -> None:
    A, B = matrix(rng, 128, 512, device), matrix(rng, 128, 512, device)
    clock = chapter.traced(A, B, bN=128, stages=2)[..., 0]
    timeline = {"bN": 128, "stages": 2, "clock": clock.tolist()}
    space = dict(vars(chapter))
    exec(cell("timeline-figure").rsplit("\n\n\n", 1)[0], space)
    at = space["events"](timeline)
    assert all(len(at[name]) == 8 for name in at)
    assert (at["granted"] < at["landed"]).all() and (at["landed"] <= at["started"]).all()
    assert (at["started"] < at["done"]).all()
    picture = space["draw_timelines"]([timeline, timeline])
    assert len(picture.figure.axes) == 2
    assert picture.png().startswith(b"\x89PNG")
    numbers = cell("timeline-numbers").split("\n\n\n")[0]
    exec(numbers, space)
    assert "consumer waits" in space["summary"](timeline)
