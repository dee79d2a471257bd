"""The chapters' own kernels, loaded from their notebooks, against float64 over shapes, dtypes and bad input."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut.course import notebooks
from tests.chapters.products import assert_spreads_nan_and_inf, assert_writes_its_result_alone, exact, normal


@pytest.fixture(scope="module")
def start() -> ModuleType:
    return notebooks.load("00_start_here")


@pytest.fixture(scope="module")
def scalar() -> ModuleType:
    return notebooks.load("04_scalar_fma_gemm", (*notebooks.KERNEL_TAGS, notebooks.HELPERS))


# 00_start_here ------------------------------------------------------------------------------------------------


def run_axpb(module: ModuleType, x: torch.Tensor, y: torch.Tensor, a: float, b: float) -> None:
    arguments = (module.from_dlpack(x), module.from_dlpack(y), a, b)
    module.cute.compile(module.axpb, *arguments)(*arguments)


@pytest.mark.parametrize("length", [1, 31, 127, 128, 129, 1000, 4096])
def test_axpb_matches_float64_at_every_ragged_end(
    start: ModuleType, rng: np.random.Generator, device: str, length: int
) -> None:
    (x,) = normal(rng, device, torch.float32, (length,))
    y = torch.full_like(x, float("nan"))
    run_axpb(start, x, y, 2.5, -1.25)
    # one fused multiply-add is the exact result rounded once
    expected = 2.5 * x.cpu().numpy().astype(np.float64) - 1.25
    assert np.array_equal(y.cpu().numpy(), expected.astype(np.float32))


def test_axpb_leaves_what_follows_the_vector_alone(start: ModuleType, device: str) -> None:
    memory = torch.full((256,), 7.0, device=device)
    run_axpb(start, torch.ones(100, device=device), memory[:100], 1.0, 1.0)
    assert (memory[:100] == 2).all() and (memory[100:] == 7).all()


def test_axpb_follows_the_stride_of_a_view(start: ModuleType, device: str) -> None:
    memory = torch.arange(20.0, device=device)
    y = torch.full((10,), float("nan"), device=device)
    run_axpb(start, memory[::2], y, 1.0, 0.0)
    assert y.tolist() == list(range(0, 20, 2))


@pytest.mark.parametrize(
    ("x", "y", "error", "says"),
    [
        (torch.zeros(8), torch.zeros(9), ValueError, "equal length"),
        (torch.zeros(2, 4), torch.zeros(2, 4), ValueError, "one vector"),
        (torch.zeros(8).half(), torch.zeros(8), TypeError, "must be Float32"),
        (torch.zeros(8), torch.zeros(8).double(), TypeError, "must be Float32"),
    ],
)
def test_axpb_refuses_what_it_does_not_support(
    start: ModuleType, device: str, x: torch.Tensor, y: torch.Tensor, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        run_axpb(start, x.to(device), y.to(device), 1.0, 0.0)


@pytest.mark.gpu
def test_axpb_refuses_host_memory_on_a_gpu(start: ModuleType) -> None:
    with pytest.raises(ValueError, match="not in the GPU's memory"):
        run_axpb(start, torch.zeros(8), torch.zeros(8), 1.0, 0.0)


# 04_scalar_fma_gemm -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape",
    [(128, 128, 8), (128, 128, 16), (256, 128, 24), (128, 384, 8), (384, 128, 40), (256, 256, 128), (128, 256, 520)],
    ids=lambda s: "x".join(map(str, s)),
)
def test_scalar_gemm_matches_float64(
    scalar: ModuleType, rng: np.random.Generator, device: str, shape: tuple[int, int, int]
) -> None:
    M, N, K = shape
    A, B = normal(rng, device, torch.float32, (M, K), (N, K))
    C = torch.full((M, N), float("nan"), device=device)
    assert scalar.scalar_gemm(A, B, C) is C
    expected = exact(A, B)
    # each of K additions rounds by at most half an ulp of a partial sum, |sum| <= |A| |B|.T
    bound = K * 2.0**-24 * exact(A.abs(), B.abs())
    assert (np.abs(C.cpu().numpy() - expected) <= bound).all()


def test_scalar_gemm_is_exact_on_integers(scalar: ModuleType, rng: np.random.Generator, device: str) -> None:
    A, B = (torch.from_numpy(rng.integers(-8, 9, (256, 64)).astype(np.float32)).to(device) for _ in range(2))
    assert np.array_equal(scalar.scalar_gemm(A, B).cpu().numpy(), exact(A, B))


def test_scalar_gemm_puts_every_element_in_its_place(scalar: ModuleType, device: str) -> None:
    """One nonzero per row of A and B, so that a swapped index changes the result and no sum can hide it."""
    M, N, K = 256, 128, 16
    A, B = torch.zeros(M, K), torch.zeros(N, K)
    A[:, 3], B[:, 3] = torch.arange(M), torch.arange(N) + 1
    C = scalar.scalar_gemm(A.to(device), B.to(device)).cpu()
    assert torch.equal(C, torch.arange(M)[:, None] * (torch.arange(N) + 1.0)[None, :])


def test_scalar_gemm_spreads_nan_and_inf_to_their_row_and_column_only(
    scalar: ModuleType, rng: np.random.Generator, device: str
) -> None:
    assert_spreads_nan_and_inf(scalar.scalar_gemm, *normal(rng, device, torch.float32, (128, 8), (128, 8)))


def test_scalar_gemm_writes_into_the_tensor_it_is_given_and_nowhere_else(
    scalar: ModuleType, rng: np.random.Generator, device: str
) -> None:
    assert_writes_its_result_alone(scalar.scalar_gemm, *normal(rng, device, torch.float32, (128, 8), (128, 8)))


def test_scalar_gemm_compiles_once_per_shape(scalar: ModuleType, rng: np.random.Generator, device: str) -> None:
    A, B = normal(rng, device, torch.float32, (128, 8), (256, 8))
    scalar.scalar_gemm(A, B)
    before = dict(scalar.COMPILED)
    second = scalar.scalar_gemm(2 * A, B)
    assert scalar.COMPILED == before
    assert np.abs(second.cpu().numpy() - 2 * exact(A, B)).max() < 1e-4


GOOD = (128, 8)
REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "ragged M": (lambda d: (torch.zeros(100, 8, device=d), torch.zeros(GOOD, device=d)), ValueError, "M=100"),
    "ragged N": (lambda d: (torch.zeros(GOOD, device=d), torch.zeros(130, 8, device=d)), ValueError, "N=130"),
    "ragged K": (lambda d: (torch.zeros(128, 12, device=d), torch.zeros(128, 12, device=d)), ValueError, "K=12"),
    "empty K": (lambda d: (torch.zeros(128, 0, device=d), torch.zeros(128, 0, device=d)), ValueError, "none of them 0"),
    "empty M": (lambda d: (torch.zeros(0, 8, device=d), torch.zeros(GOOD, device=d)), ValueError, "none of them 0"),
    "different K": (lambda d: (torch.zeros(GOOD, device=d), torch.zeros(128, 16, device=d)), ValueError, "MxK"),
    "transposed": (
        lambda d: (torch.zeros(8, 128, device=d).T, torch.zeros(GOOD, device=d)), ValueError, "row-major without gaps"
    ),
    "every other column": (
        lambda d: (torch.zeros(GOOD, device=d), torch.zeros(128, 16, device=d)[:, ::2]), ValueError, r"B has strides"
    ),
    "float64": (
        lambda d: (torch.zeros(GOOD, device=d).double(), torch.zeros(GOOD, device=d)), TypeError, "A is torch.float64"
    ),
    "float16": (
        lambda d: (torch.zeros(GOOD, device=d), torch.zeros(GOOD, device=d).half()), TypeError, "B is torch.float16"
    ),
    "integers": (
        lambda d: (torch.zeros(GOOD, device=d).int(), torch.zeros(GOOD, device=d)), TypeError, "A is torch.int32"
    ),
    "a batch": (
        lambda d: (torch.zeros(2, *GOOD, device=d), torch.zeros(GOOD, device=d)), ValueError, "3 dimensions"
    ),
    "off by 4 bytes": (
        lambda d: (torch.zeros(1025, device=d)[1:].reshape(GOOD), torch.zeros(GOOD, device=d)), ValueError, "16 bytes"
    ),
    "another device": (
        lambda d: (torch.zeros(GOOD, device="meta"), torch.zeros(GOOD, device=d)), ValueError, "A is on meta"
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_scalar_gemm_refuses_what_it_does_not_support(scalar: ModuleType, device: str, case: str) -> None:
    build, error, says = REFUSED[case]
    A, B = build(device)
    with pytest.raises(error, match=says):
        scalar.scalar_gemm(A, B)


@pytest.mark.gpu
def test_scalar_gemm_refuses_host_memory_on_a_gpu(scalar: ModuleType) -> None:
    with pytest.raises(ValueError, match="A is on cpu"):
        scalar.scalar_gemm(torch.zeros(GOOD), torch.zeros(GOOD))


@pytest.mark.parametrize(
    ("shape", "says"), [((128, 256), "must be MxK, NxK and MxN"), ((128, 128, 1), "C has 3 dimensions")]
)
def test_scalar_gemm_refuses_a_result_of_another_shape(
    scalar: ModuleType, device: str, shape: tuple[int, ...], says: str
) -> None:
    operand = torch.zeros(GOOD, device=device)
    untouched = torch.full(shape, 7.0, device=device)
    with pytest.raises(ValueError, match=says):
        scalar.scalar_gemm(operand, operand, untouched)
    assert (untouched == 7).all()


def test_scalar_gemm_refuses_a_tensor_beyond_32_bit_indices(scalar: ModuleType, device: str) -> None:
    try:
        huge = torch.empty(2**28, 8, device=device)  # never touched: address space only
    except RuntimeError:
        pytest.skip("this machine cannot reserve 8 GiB of address space")
    with pytest.raises(ValueError, match=r"2\*\*31"):
        scalar.scalar_gemm(torch.zeros(GOOD, device=device), huge, torch.zeros(1, 1, device=device))
