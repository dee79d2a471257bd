"""Chapter 08's kernel against float64, its maps against the PTX manual's formulas, and what it refuses."""

from __future__ import annotations

import json
import re
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cutetut import layouts
from cutetut.course import notebooks
from cutetut.figures import banks
from cutetut.inspect import descriptors, profile
from cutetut.inspect.diagnose import diagnose
from cutetut.measure import bench, mistakes, nsight
from tests.chapters import exercises
from tests.chapters.products import exact, wide
from tests.chapters.wgmma import BLAS, DESCRIPTORS, SWIZZLES, assert_described, constraints

CHAPTER = "08_wgmma_ss"


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


def operand(rng: np.random.Generator, rows: int, k: int, mode: str, dtype: torch.dtype, device: str) -> torch.Tensor:
    """A normal (rows, k) matrix, stored K-major or MN-major."""
    values = torch.from_numpy(rng.standard_normal((rows, k) if mode == "K" else (k, rows)))
    return (values if mode == "K" else values.T).to(dtype).to(device)


def multiply(
    chapter: ModuleType, A: torch.Tensor, B: torch.Tensor, dtype: torch.dtype = torch.float32, *options: Any
) -> torch.Tensor:
    C = torch.full((A.shape[0], B.shape[0]), torch.nan, dtype=dtype, device=A.device)
    tensors = [chapter.from_dlpack(t, assumed_align=16) for t in (A, B, C)]
    chapter.cute.compile(chapter.wgmma_gemm, *tensors, *options)(*tensors)
    return C


def error(C: torch.Tensor, A: torch.Tensor, B: torch.Tensor) -> float:
    """The largest difference from numpy's float64 product; NaN where C has one."""
    return float(np.abs(wide(C) - exact(A, B)).max())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("blas", BLAS)
def test_every_major_and_swizzle_matches_float64(
    chapter: ModuleType, rng: np.random.Generator, device: str, blas: str, swizzle: str, dtype: torch.dtype
) -> None:
    A, B = (operand(rng, rows, 128, mode, dtype, device) for rows, mode in zip((128, 256), BLAS[blas], strict=True))
    assert error(multiply(chapter, A, B, torch.float32, swizzle), A, B) <= 1e-4


@pytest.mark.parametrize("b_mode", ["K", "MN"])
@pytest.mark.parametrize("atom_n", [64, 128])
def test_a_from_registers(chapter: ModuleType, rng: np.random.Generator, device: str, b_mode: str, atom_n: int) -> None:
    A, B = operand(rng, 256, 192, "K", torch.float16, device), operand(rng, 128, 192, b_mode, torch.float16, device)
    assert error(multiply(chapter, A, B, torch.float32, "SW128", atom_n, True), A, B) <= 1e-4


@pytest.mark.parametrize("atom_n", [8, 16, 32, 64, 128])
def test_every_width_that_divides_the_tile(
    chapter: ModuleType, rng: np.random.Generator, device: str, atom_n: int
) -> None:
    A, B = (operand(rng, 128, 64, "K", torch.bfloat16, device) for _ in range(2))
    assert error(multiply(chapter, A, B, torch.float32, "SW128", atom_n), A, B) <= 1e-4


def test_integers_are_exact_and_only_c_is_written(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    """A, B and C are parts of larger matrices; what surrounds C stays."""
    whole = torch.from_numpy(rng.integers(-4, 5, (256, 320))).to(torch.float16).to(device)
    A, B = whole[128:, 64:256], whole[:128, 128:]
    around = torch.full((128, 384), 7.0, device=device)
    C = around[:, 128:256]
    tensors = [chapter.from_dlpack(t, assumed_align=16) for t in (A, B, C)]
    chapter.cute.compile(chapter.wgmma_gemm, *tensors)(*tensors)
    assert error(C, A, B) == 0.0
    assert (around[:, :128] == 7).all() and (around[:, 256:] == 7).all()


@pytest.mark.parametrize(
    ("shape", "options", "says"),
    [
        ((100, 128, 64), (), "M must be a multiple of 128"),
        ((128, 96, 64), (), "N of 128"),
        ((128, 128, 32), (), "K of 64"),
        ((128, 128, 64), ("SW256",), "must be one of INTER, SW32, SW64, SW128"),
        ((128, 128, 64), ("SW128", 48), "MMA atom: a 128x64 tile of B"),
        ((128, 128, 64), ("SW128", 0), "atom_n is 0: the N of a WGMMA is a multiple of 8"),
        ((128, 128, 64), ("SW128", 264), "multiple of 8 from 8 to 256"),
    ],
)
def test_what_it_refuses(
    chapter: ModuleType, rng: np.random.Generator, device: str, shape: tuple[int, int, int], options: Any, says: str
) -> None:
    m, n, k = shape
    A, B = operand(rng, m, k, "K", torch.float16, device), operand(rng, n, k, "K", torch.float16, device)
    with pytest.raises(ValueError, match=says):
        multiply(chapter, A, B, torch.float32, *options)


def test_it_refuses_other_types_and_a_from_registers_that_is_mn_major(
    chapter: ModuleType, rng: np.random.Generator, device: str
) -> None:
    A, B = (operand(rng, 128, 64, "MN", torch.float16, device) for _ in range(2))
    with pytest.raises(ValueError, match="K-major A only"):
        multiply(chapter, A, B, torch.float32, "SW128", 64, True)
    with pytest.raises(TypeError, match="both must be Float16"):
        multiply(chapter, A.float(), B.float())
    with pytest.raises(TypeError, match="both must be Float16"):
        multiply(chapter, A, B.bfloat16())
    with pytest.raises(TypeError, match="C is"):
        multiply(chapter, A, B, torch.float64)


def test_it_refuses_tensors_that_the_copies_cannot_take(
    chapter: ModuleType, rng: np.random.Generator, device: str
) -> None:
    A = operand(rng, 128, 64, "K", torch.float16, device)
    C = torch.zeros(128, 128, device=device)
    fine = [chapter.from_dlpack(t, assumed_align=16) for t in (A, A, C)]
    batched = chapter.from_dlpack(A[None], assumed_align=16)
    dynamic = chapter.from_dlpack(A, assumed_align=16).mark_layout_dynamic()
    for wrong, says in (
        (batched, "two dimensions"),
        (dynamic, "known at compile time"),
        (chapter.from_dlpack(A), "A is copied by 16 bytes at a time"),
    ):
        with pytest.raises(ValueError, match=says):
            chapter.cute.compile(chapter.wgmma_gemm, wrong, *fine[1:])


@pytest.mark.parametrize("shapes", [((128, 64), (64, 64)), ((64, 32), (64, 32)), ((64, 64), (128, 64))])
def test_the_single_tile_refuses_other_shapes(
    chapter: ModuleType, device: str, shapes: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    """D has room for n = 64."""
    A, B = (torch.zeros(*shape, dtype=torch.float16, device=device) for shape in shapes)
    tensors = [chapter.from_dlpack(t, assumed_align=16) for t in (A, B, torch.zeros(128, 32, device=device))]
    for function, constants in ((chapter.one, ()), (chapter.alone, (chapter.K_MAJOR, "SW128", 1, 1))):
        with pytest.raises(ValueError, match=r"must be \(64, 64\), \(n, 64\)"):
            chapter.cute.compile(function, *tensors, *constants)


def test_the_two_constraints_are_independent(chapter: ModuleType) -> None:
    """All four combinations of holding and failing occur, and the messages say which."""
    assert tuple(chapter.SWIZZLES) == SWIZZLES
    found = constraints(chapter.mma_constraint, chapter.swizzle_constraint, (chapter.K_MAJOR, chapter.MN_MAJOR))
    assert set(found.values()) == {(a, b) for a in (True, False) for b in (True, False)}


@pytest.mark.parametrize("n", [8, 64, 256])
def test_the_accumulator_map_is_that_of_the_manual(chapter: ModuleType, device: str, n: int) -> None:
    """Figure of PTX ISA section 9.7.15.5.1.1, found by computing m + 64 n."""
    A, B = torch.zeros(64, 64), torch.zeros(n, 64)
    A[:, 0], A[:, 1] = torch.arange(64), 1
    B[:, 0], B[:, 1] = 1, 64 * torch.arange(n)
    D = torch.full((128, n // 2), torch.nan, device=device)
    tensors = [chapter.from_dlpack(t, assumed_align=16) for t in (A.half().to(device), B.half().to(device), D)]
    chapter.cute.compile(chapter.one, *tensors)(*tensors)
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        for v in range(n // 2):
            row = 16 * warp + lane // 4 + (8 if v % 4 >= 2 else 0)
            col = 8 * (v // 4) + 2 * (lane % 4) + v % 2
            assert D[thread, v].item() == row + 64 * col


@pytest.mark.parametrize(("mode", "swizzle", "expected"), DESCRIPTORS)
@pytest.mark.emulator
def test_descriptors_of_the_running_kernel(
    chapter: ModuleType, rng: np.random.Generator, mode: str, swizzle: str, expected: tuple[int | None, int, int]
) -> None:
    A, B = (operand(rng, 128, 64, mode, torch.float16, "cpu") for _ in range(2))
    issues = descriptors.used(chapter.wgmma_gemm, A, B, torch.zeros(128, 128), swizzle)
    assert len(issues) == 2 * 2 * 4
    assert_described(issues, expected)


@pytest.mark.emulator
def test_a_from_registers_has_no_descriptor(chapter: ModuleType, rng: np.random.Generator) -> None:
    A, B = (operand(rng, 128, 64, "K", torch.float16, "cpu") for _ in range(2))
    issues = descriptors.used(chapter.wgmma_gemm, A, B, torch.zeros(128, 128), "SW128", 128, True)
    assert len(issues) == 2 * 4 and all(issue.a is None and issue.b.stride == 1024 for issue in issues)


FAULTS = {
    "wgmma.fence": "MissingFence: a WGMMA without any wgmma.fence before it",
    "commit_group": "InFlight: register",
    "wait_group": "InFlight: register",
    "fence.proxy.async": "MissingFence: operand A of the WGMMA reads shared memory",
    "bar.sync": "MissingBarrier: operand A of the WGMMA reads shared memory",
    "wait before overwriting A": "InFlight: a store to shared memory that is still being read by the WGMMA",
}


@pytest.mark.emulator
def test_the_emulator_names_what_is_left_out(
    chapter: ModuleType, rng: np.random.Generator, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTETUT_ASYNC", "late")  # early, as on a GPU, an omission may do no harm
    assert set(chapter.OMISSIONS) == set(FAULTS)
    for without, says in FAULTS.items():
        A, B = (operand(rng, 64, 64, "K", torch.float16, "cpu") for _ in range(2))
        diagnose(chapter.one, A, B, torch.zeros(128, 32), without)
        assert capsys.readouterr().out.startswith(says), without


@pytest.mark.parametrize("n", [64, 128, 256])
@pytest.mark.parametrize("mode", ["K", "MN"])
def test_the_ceiling_does_the_operations_it_is_timed_for(
    chapter: ModuleType, rng: np.random.Generator, device: str, mode: str, n: int
) -> None:
    """Each turn adds the product once, so the count of operations is in the result."""
    A, B = (operand(rng, rows, 64, "K", torch.bfloat16, device) for rows in (64, n))
    D = torch.full((128, n // 2), torch.nan, device=device)
    tensors = [chapter.from_dlpack(t, assumed_align=16) for t in (A, B, D)]
    major = chapter.K_MAJOR if mode == "K" else chapter.MN_MAJOR
    chapter.cute.compile(chapter.alone, *tensors, major, "SW128", 2, 5)(*tensors)
    place = layouts.partition(lambda: chapter.make_mma(chapter.cutlass.BFloat16, major, major, n), (64, n)).place
    expected = 5 * exact(A, B)
    assert np.abs(D.cpu().numpy() - expected[place[..., 0], place[..., 1]]).max() < 1e-3


def test_an_attempt_is_right_as_often_as_it_is_launched(chapter: ModuleType) -> None:
    launch, right = chapter.attempt("")
    for _ in range(3):
        launch()
        assert right()


def test_an_attempt_that_leaves_a_result_unwritten_is_wrong(
    chapter: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_value = notebooks.changed(CHAPTER, [("mD[tid, v] = tCrC[v]", "mD[tid, 0] = tCrC[0]")])
    monkeypatch.setattr(chapter, "one", one_value.one)
    launch, right = chapter.attempt("")
    launch()
    assert not right()


@pytest.mark.gpu
def test_the_kernel_with_nothing_left_out_is_right_on_the_gpu() -> None:
    assert mistakes.on_gpu(CHAPTER, [""]) == [{"mistake": "", "right": 10, "wrong": 0, "ended": "ends"}]


def test_each_case_gets_the_counts_of_its_own_launch(
    chapter: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a counter that counts 1000 times the launch, plus the place of the metric, stores first."""
    names = [name for name, *_ in chapter.conflict_cases()]

    def count(program: list[str], kernels: str, metrics: list[str]) -> list[dict[str, float]]:
        assert program[0] == "-c" and all(re.search(kernels, name) for name in ("wgmma_kernel", "read_kernel"))
        return [{metric: 1000.0 * n + place for place, metric in enumerate(metrics)} for n in range(len(names))]

    monkeypatch.setattr(nsight, "count", count)
    found = chapter.conflicts_counted()
    assert list(found) == names
    for number, (name, counts) in enumerate(found.items()):
        first = 0 if name.startswith("write") else 3
        assert counts == [1000 * number + first + place for place in range(3)]


@pytest.mark.emulator
def test_a_kernel_without_wgmma_has_none() -> None:
    start = notebooks.load("00_start_here")
    with pytest.raises(descriptors.NoWgmma, match="issued no WGMMA"):
        descriptors.used(start.axpb, torch.ones(4), torch.ones(4), 1.0, 1.0)


def test_the_fields_of_a_descriptor() -> None:
    bits = 0x123 | 0x45 << 16 | 0x67 << 32 | 5 << 49 | 2 << 62
    assert [row[2:] for row in descriptors.fields(bits)] == [
        (0x123, 0x1230), (0x45, 0x450), (0x67, 0x670), (5, None), (2, None),
    ]  # fmt: skip


def test_bank_groups_are_named_and_bad_tables_refused() -> None:
    picture = banks.bank_groups({"rows of 128 bytes": 128 * np.arange(8)[:, None] + 2 * np.arange(64)})
    assert repr(picture) == "rows of 128 bytes: first row in bank groups 0 1 2 3 4 5 6 7"
    assert picture.png().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="table of"):
        banks.bank_groups({"a": np.arange(8)})
    with pytest.raises(ValueError, match="from 0 on"):
        banks.bank_groups({"a": np.full((2, 2), -1)})


# What the H200 said -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def probes() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(bench.data_file(f"{CHAPTER}_probes").read_text())
    return content


def test_the_probes_are_of_these_kernels(probes: dict[str, Any]) -> None:
    assert probes["code_hash"] == bench.current_hash(CHAPTER), f"measure again: python -m cutetut bench {CHAPTER}"
    assert re.search("H[12]00", probes["provenance"]["gpu"])


def test_the_emulator_counts_what_nsight_compute_counted(chapter: ModuleType, probes: dict[str, Any]) -> None:
    """Requests, wavefronts and bank conflicts of the stores and loads of shared memory, in all twelve kernels."""
    assert len(probes["conflicts"]) == 12
    for name, op, function, shapes, constants in chapter.conflict_cases():
        tensors = (torch.zeros(*shape, dtype=torch.float16) for shape in shapes)
        counts = profile.count(function, *tensors, *constants)
        emulated = [counts.requests(op, "shared"), counts.wavefronts(op), counts.bank_conflicts(op)]
        assert probes["conflicts"][name] == emulated, name


def test_the_h200_was_right_with_nothing_left_out(probes: dict[str, Any]) -> None:
    found = {outcome["mistake"]: outcome for outcome in probes["omissions"]}
    assert found.keys() == {"", *FAULTS}
    assert found[""] == {"mistake": "", "right": mistakes.LAUNCHES, "wrong": 0, "ended": "ends"}


# Exercises ----------------------------------------------------------------------------------------------------

USED = ("major-table", "legal-kernel", "atoms", "swizzle", "place", "constraints-table", "raw-kernel", "map")
CHECKS = [f"exercise-{number}-check" for number in range(1, 6)]


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The checks, with the chapter's kernels and the cells that they use."""
    maps = 'maps = {"measured": ThreadMap(*measured_map(64))}'
    return SimpleNamespace(**exercises.defined(CHAPTER, [*USED, *CHECKS], tmp_path_factory.mktemp("exercises"), maps))


ANSWERS: list[tuple[str, tuple[Any, ...], str]] = [
    ("check_owner", (np.int64(78), 11), "right"),
    ("check_owner", (11, 78), "not yet: threads go from 0 to 127"),
    ("check_owner", (46, 11), "not yet: value 11 of thread 46 is (27, 21)"),
    ("check_owner", (78, 9), "not yet: value 9 of thread 78 is (35, 21)"),
    ("check_byte", (np.int64(326),), "right"),
    ("check_byte", (358,), "not yet: that is element (5, 3), and the swizzle is missing"),
    ("check_byte", (327,), "not yet: no element begins there"),
    ("check_byte", (342,), "not yet: that is element"),
    ("check_offsets", (np.int64(512), np.int64(2048)), "right"),
    ("check_offsets", (2048, 512), "not yet: A[0, 8] lies at byte 2048 and is read from byte 512"),
    ("check_offsets", (1024, 2048), "not yet: A[32, 0] lies at byte 512"),
    ("check_offsets", (16368, 16368), "not yet: A[0, 8]"),
    ("check_offsets", (520, 2048), "not yet: both are whole multiples of 16"),
    ("check_tile", (64, 72, "SW128"), "right"),
    ("check_tile", (72, 64, "INTER"), "right"),
    ("check_tile", (np.int64(96), 64, "SW64"), "right"),
    ("check_tile", (32, 64, "SW32"), "not yet: two whole numbers, at least 4096 elements"),
    ("check_tile", (96, 64, "SW128"), "not yet: the layout atom does not fit"),
    ("check_tile", (-96, -64, "SW64"), "not yet: two whole numbers"),
    ("check_tile", (64, 64, "SW64"), "not yet: both constraints hold"),
    ("check_waits", (np.int64(1), np.int64(0)), "right"),
    ("check_waits", (0, 0), "not yet: no fault, but neither is there one with (1, 0)"),
    ("check_waits", (1, 1), "not yet: InFlight: register"),
    ("check_waits", (2, 0), "not yet: InFlight: register"),
    ("check_waits", (-1, 0), "not yet: each N is a whole number"),
]


def test_the_two_halves_of_exercise_5_add_up_to_the_product(checks: SimpleNamespace, rng: np.random.Generator) -> None:
    """What its solution declares right is right: otherwise the emulator's silence would prove nothing."""
    A, B = (operand(rng, 64, 64, "K", torch.float16, "cpu") for _ in range(2))
    D = torch.full((2, 128, 32), torch.nan)
    assert mistakes.faultless(mistakes.report(checks.two, A, B, D, (1, 0)))
    place = layouts.partition(lambda: checks.make_mma(checks.F16, checks.K_MAJOR, checks.K_MAJOR), (64, 64)).place
    assert np.abs(D.sum(0).numpy() - exact(A, B)[place[..., 0], place[..., 1]]).max() < 1e-4


@pytest.mark.parametrize(("check", "answer", "says"), ANSWERS)
def test_unusual_right_answers_are_accepted_and_wrong_ones_told_why(
    checks: SimpleNamespace,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    check: str,
    answer: tuple[Any, ...],
    says: str,
) -> None:
    monkeypatch.setenv("CUTETUT_ASYNC", "late")  # early, a wait that is too short may do no harm
    capsys.readouterr()
    getattr(checks, check)(*answer)
    said = capsys.readouterr().out
    assert said.startswith(says) and said.count("\n") == 1, said
