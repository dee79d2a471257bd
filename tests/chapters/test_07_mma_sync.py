"""Chapter 07's tensor-core GEMM, loaded from its notebook: shapes, dtypes, plans, refusals and exercises."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut.course import notebooks
from cutetut.inspect import profile
from cutetut.measure import bench
from tests.chapters import exercises
from tests.chapters.products import assert_product, exact, normal

CHAPTER = "07_mma_sync"
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("128x128x32, 4 warps", (128, 128, 32)),
        ("128x128x32, 4 warps", (128, 256, 64)),
        ("128x128x32, 4 warps", (256, 128, 224)),
        ("128x128x64, 4 warps", (128, 128, 64)),
        ("128x128x64, 4 warps", (256, 128, 320)),
        ("128x256x64, 8 warps", (128, 256, 128)),
        ("128x256x64, 8 warps", (128, 512, 256)),
    ],
    ids=str,
)
def test_every_plan_matches_float64(
    chapter: ModuleType, rng: np.random.Generator, device: str, name: str, shape: tuple[int, int, int]
) -> None:
    M, N, K = shape
    A, B = normal(rng, device, BF16, (M, K), (N, K))
    C = torch.full((M, N), float("nan"), dtype=BF16, device=device)
    assert chapter.mma_gemm(A, B, C, chapter.PLANS[name]) is C
    assert_product(C, A, B)


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("out", ["same", "float32"])
@pytest.mark.parametrize("atom_k", [16, 8])
def test_types_and_atoms(
    chapter: ModuleType, rng: np.random.Generator, device: str, dtype: torch.dtype, out: str, atom_k: int
) -> None:
    A, B = normal(rng, device, dtype, (128, 96), (128, 96))
    C = torch.full((128, 128), float("nan"), dtype=F32 if out == "float32" else dtype, device=device)
    chapter.mma_gemm(A, B, C, chapter.Plan(atom_k=atom_k))
    assert_product(C, A, B)


@pytest.mark.parametrize(
    "options",
    [
        {"stages": 2},
        {"stages": 5},
        {"swizzled": False},
        {"tile": (64, 64, 64), "stages": 4},
        {"tile": (32, 64, 32), "atoms": (1, 1, 1)},
        {"tile": (128, 64, 32), "atoms": (4, 1, 1)},
        {"tile": (256, 128, 64), "atoms": (4, 2, 1)},
        {"tile": (64, 128, 64), "atoms": (1, 4, 1), "stages": 2, "atom_k": 8},
    ],
    ids=str,
)
@pytest.mark.parametrize("k_tiles", [1, 2, 5])
def test_other_plans(
    chapter: ModuleType, rng: np.random.Generator, device: str, options: dict[str, Any], k_tiles: int
) -> None:
    """Fewer K tiles than stages, as many, and more."""
    plan = chapter.Plan(**options)
    M, N, bK = plan.tile
    A, B = normal(rng, device, F16, (M, k_tiles * bK), (N, k_tiles * bK))
    assert_product(chapter.mma_gemm(A, B, plan=plan), A, B)


def test_integers_are_exact(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    A, B = (torch.from_numpy(rng.integers(-8, 9, (n, 256))).to(BF16).to(device) for n in (128, 256))
    C = torch.full((128, 256), float("nan"), device=device)
    for plan in chapter.PLANS.values():
        assert np.array_equal(chapter.mma_gemm(A, B, C.fill_(float("nan")), plan).cpu().numpy(), exact(A, B))


def test_every_element_is_in_its_place(chapter: ModuleType, device: str) -> None:
    """One nonzero k per row: a swapped index anywhere changes the result, and no sum can hide it."""
    M, N, K = 128, 256, 96
    A, B = torch.zeros(M, K), torch.zeros(N, K)
    A[torch.arange(M), torch.arange(M) % K] = torch.arange(M) + 1.0
    B[:, :] = torch.arange(K) + 1.0
    B[torch.arange(N), torch.arange(N) % K] = -1.0
    C = torch.full((M, N), float("nan"), device=device)
    chapter.mma_gemm(A.bfloat16().to(device), B.bfloat16().to(device), C)
    assert np.array_equal(C.cpu().numpy(), exact(A, B))


def test_nan_and_inf_spread_to_their_row_and_column_only(
    chapter: ModuleType, rng: np.random.Generator, device: str
) -> None:
    A, B = normal(rng, device, BF16, (128, 64), (128, 64))
    A[5, 40], B[77, 0] = float("nan"), float("inf")
    C = chapter.mma_gemm(A, B).cpu()
    touched = torch.zeros(128, 128, dtype=torch.bool)
    touched[5, :], touched[:, 77] = True, True
    assert torch.equal(~C.isfinite(), touched)


def test_writes_into_the_tensor_it_is_given_and_nowhere_else(
    chapter: ModuleType, rng: np.random.Generator, device: str
) -> None:
    A, B = normal(rng, device, BF16, (128, 32), (128, 32))
    memory = torch.full((3, 128, 128), 7.0, dtype=BF16, device=device)
    chapter.mma_gemm(A, B, memory[1])
    assert (memory[0] == 7).all() and (memory[2] == 7).all()
    assert_product(memory[1], A, B)


def test_compiles_once_per_shape_type_and_plan(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    A, B = normal(rng, device, BF16, (128, 32), (128, 32))
    chapter.mma_gemm(A, B)
    before = dict(chapter._compiled)
    chapter.mma_gemm(B, A)
    assert chapter._compiled == before
    chapter.mma_gemm(A, B, plan=chapter.Plan(stages=2))
    assert len(chapter._compiled) == len(before) + 1


# Bad input ----------------------------------------------------------------------------------------------------

GOOD = (128, 64)
REFUSED: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "ragged M": (lambda z: (z(100, 64), z(GOOD)), {}, ValueError, "M=100"),
    "ragged N": (lambda z: (z(GOOD), z(130, 64)), {}, ValueError, "N=130"),
    "ragged K": (lambda z: (z(128, 40), z(128, 40)), {}, ValueError, "K=40"),
    "empty K": (lambda z: (z(128, 0), z(128, 0)), {}, ValueError, "none of them 0"),
    "empty M": (lambda z: (z(0, 64), z(GOOD)), {}, ValueError, "none of them 0"),
    "different K": (lambda z: (z(GOOD), z(128, 32)), {}, ValueError, "MxK"),
    "M-major": (lambda z: (z(64, 128).T, z(GOOD)), {}, ValueError, "row-major without gaps"),
    "every other column": (lambda z: (z(GOOD), z(128, 128)[:, ::2]), {}, ValueError, "B has strides"),
    "float32": (lambda z: (z(GOOD).float(), z(GOOD).float()), {}, TypeError, "A is torch.float32"),
    "mixed types": (lambda z: (z(GOOD), z(GOOD).half()), {}, TypeError, "B is torch.float16"),
    "C of the other type": (lambda z: (z(GOOD), z(GOOD), z(128, 128).half()), {}, TypeError, "C is torch.float16"),
    "C of another shape": (lambda z: (z(GOOD), z(GOOD), z(128, 256)), {}, ValueError, "MxN"),
    "a batch": (lambda z: (z(2, *GOOD), z(GOOD)), {}, ValueError, "3 dimensions"),
    "off by 2 bytes": (lambda z: (z(8193)[1:].reshape(GOOD), z(GOOD)), {}, ValueError, "16 bytes"),
    "another device": (lambda z: (z(GOOD).to("meta"), z(GOOD)), {}, ValueError, "A is on meta"),
    "bK = 16": (lambda z: (z(GOOD), z(GOOD)), {"tile": (128, 128, 16)}, ValueError, "bK = 16"),
    "bM = 0": (lambda z: (z(GOOD), z(GOOD)), {"tile": (0, 128, 32)}, ValueError, "does not divide"),
    "bM = 48": (lambda z: (z(GOOD), z(GOOD)), {"tile": (48, 128, 32)}, ValueError, "does not divide"),
    "two along K": (lambda z: (z(GOOD), z(GOOD)), {"atoms": (2, 2, 2)}, ValueError, "1 along K"),
    "too many warps": (lambda z: (z(GOOD), z(GOOD)), {"atoms": (8, 8, 1)}, ValueError, "at most 32"),
    "one stage": (lambda z: (z(GOOD), z(GOOD)), {"stages": 1}, ValueError, "2 stages at least"),
    "too many stages": (lambda z: (z(GOOD), z(GOOD)), {"stages": 15}, ValueError, "bytes at most"),
    "m16n8k4": (lambda z: (z(GOOD), z(GOOD)), {"atom_k": 4}, ValueError, "atom_k = 4"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_what_it_does_not_support(chapter: ModuleType, device: str, case: str) -> None:
    build, options, error, says = REFUSED[case]
    arguments = build(lambda *shape: torch.zeros(*shape, dtype=BF16, device=device))
    with pytest.raises(error, match=says):
        chapter.mma_gemm(*arguments, plan=chapter.Plan(**options))


@pytest.mark.gpu
def test_refuses_host_memory_on_a_gpu(chapter: ModuleType) -> None:
    with pytest.raises(ValueError, match="A is on cpu"):
        chapter.mma_gemm(torch.zeros(GOOD, dtype=BF16), torch.zeros(GOOD, dtype=BF16))


# What it costs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("swizzled", "wavefronts"), [(True, 4), (False, 16)])
def test_the_swizzle_removes_every_bank_conflict(chapter: ModuleType, swizzled: bool, wavefronts: int) -> None:
    tensors = [torch.zeros(shape, dtype=BF16) for shape in ((128, 64), (128, 64), (128, 128))]
    counts = profile.count(chapter.mma_gemm_launch, *tensors, chapter.Plan(swizzled=swizzled))
    assert counts.wavefronts("ldmatrix") == wavefronts * counts.requests("ldmatrix", "shared")
    assert counts.bank_conflicts("cp.async") == 0


@pytest.mark.parametrize("name", ["128x128x32, 4 warps", "128x128x64, 4 warps", "128x256x64, 8 warps"])
def test_nothing_spills(chapter: ModuleType, device: str, name: str) -> None:
    tensors = [torch.zeros(1024, 1024, dtype=BF16, device=device) for _ in range(3)]
    arguments = [chapter.from_dlpack(t, assumed_align=16) for t in tensors]
    info = chapter.inspect(chapter.cute.compile(chapter.mma_gemm_launch, *arguments, chapter.PLANS[name]))
    assert info.spills == 0
    assert info.shared_bytes == chapter.PLANS[name].shared_bytes
    assert info.registers * chapter.PLANS[name].threads <= 65536


def test_the_ceiling_does_the_operations_it_is_timed_for(device: str) -> None:
    """Each turn adds the product to each accumulator once, so the count of operations is in the result."""
    module = notebooks.load(CHAPTER, bench.BENCH_TAGS)
    A, B, C = module.ceiling_problem()
    arguments = [module.from_dlpack(t, assumed_align=16) for t in (A, B, C)]
    module.cute.compile(module.ceiling, *arguments, 2, 5)(*arguments)
    expected = 5 * exact(A, B)[..., None] + np.arange(16)
    assert np.abs(C.cpu().double().numpy() - expected).max() < 1e-3


# Exercises ----------------------------------------------------------------------------------------------------


cell = partial(exercises.cell, CHAPTER)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The exercises' checks with what they use."""
    before = ("claims", "probe", "classes", "compare", "named", "permutation", "fetch", "conflicts")
    checks = (*before, "ex1", "ex2", "ex3", "ex4")
    rng = torch.Generator().manual_seed(7)  # of the cell that random_problem is in
    return exercises.defined(CHAPTER, checks, tmp_path_factory.mktemp("cells"), rng=rng)


CHECKS = {1: "check_slot", 2: "check_pitch", 3: "check_renamed", 4: "check_m_major"}
WRONG = {  # a part of what the check has to say
    1: {
        "14, 2": "A[11][4]",
        "3, 2": "is A[",
        "15, 3": "A[11][7]",
        "15, 6": "is A[",
        "15.5, 2": "lanes go from",
        "None, -1": "lanes go from",
    },
    2: {
        "64": "32 wavefronts",
        "80": "8 wavefronts",
        "96": "16 wavefronts",
        "65": "not a multiple of 16",
        "136": "twice the room",
        "56": "overlap",
        "72.5": "whole number",
        "None": "whole number",
    },
    3: {
        "((16,), (1,))": "[0, 1, 8, 9]",
        "((2, 4, 2), (8, 2, 1))": "a lane has k",
        "((2, 4, 2), (2, 4, 1))": "[0, 2, 1, 3]",
        "((2, 4, 2), (1, 1, 1))": "",
        "((16,), (0,))": "",
        "((4, 4), (1, 8))": "",
        "((2, 4, 2, 2), (1, 4, 2, 16))": "",
        "None": "",
    },
    4: {
        "lambda: ldmatrix(4, False)": "cannot compile",
        "lambda: ldmatrix(2, True)": "with 16 loads",
        "lambda: ldmatrix(1, True)": "with 32 loads",
        "lambda: cute.nvgpu.CopyUniversalOp()": "",
        "lambda: None": "cannot compile",
    },
}
RIGHT = {
    1: ["15, 2", "15.0, np.int64(2)"],
    2: ["72", "88", "120", "72.0"],
    3: ["((2, 4, 2), (1, 4, 2))", "(((2, 2, 2), 2), ((1, 8, 4), 2))", "((2, (2, 2), (2, 1)), (1, (4, 8), (2, 0)))"],
    4: ["lambda: ldmatrix(4, True)", "lambda: warp.LdMatrix8x8x16bOp(transpose=True, num_matrices=4)"],
}


@pytest.mark.parametrize(("number", "answer"), exercises.tries(WRONG))
def test_wrong_answers_are_told_why(
    names: dict[str, Any], capsys: pytest.CaptureFixture[str], number: int, answer: str
) -> None:
    said = exercises.refused("", f"{CHECKS[number]}({answer})", names, capsys)
    assert WRONG[number][answer] in said, said


@pytest.mark.parametrize(("number", "answer"), exercises.tries(RIGHT))
def test_right_answers_of_any_form_are_accepted(
    names: dict[str, Any], capsys: pytest.CaptureFixture[str], number: int, answer: str
) -> None:
    assert exercises.verdict("", f"{CHECKS[number]}({answer})", names, capsys) == "right\n"
