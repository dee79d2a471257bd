"""Chapter 05's GEMM, loaded from its notebook, under every permutation of its TiledMma, against float64."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
import torch

from cutetut.course import notebooks
from tests.chapters.products import assert_product, normal

CHAPTER = "05_partition_c"
PERMUTATIONS = "(16,4):(4,1)", "(16,4):(1,16)", "(16,8):(8,1)"


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER)


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
