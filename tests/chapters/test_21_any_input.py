"""Chapter 21's attention for any input: lengths, alignments, scales, NaN, strides, and whenever operations complete."""

from __future__ import annotations

import math
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from cutetut.course import notebooks
from cutetut.measure import bench
from tests.chapters import attentions


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load("21_fa_pingpong", bench.BENCH_TAGS)


SHAPES = [  # batch, heads, heads of Q per head of K, queries, keys, D
    (1, 2, 1, 200, 333, 64),
    (2, 4, 2, 130, 70, 64),
    (1, 3, 3, 257, 129, 128),
    (1, 1, 1, 1, 1, 128),
    (1, 2, 1, 70, 1, 256),
    (1, 2, 2, 1, 300, 256),
]


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_ragged_shapes(chapter: ModuleType, device: str, shape: Any, causal: bool) -> None:
    attentions.agrees(chapter.prepare, device, shape, causal=causal)


@pytest.mark.parametrize("D", [64, 128, 256])
def test_float16(chapter: ModuleType, device: str, D: int) -> None:
    attentions.agrees(chapter.prepare, device, (1, 2, 1, 150, 222, D), torch.float16, causal=True)


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("lengths", [(100, 100), (0, 333), (-7, 1), (333, 10**9)])
def test_lengths(chapter: ModuleType, device: str, lengths: tuple[int, int], causal: bool) -> None:
    """Longer than there are keys counts as all of them, shorter than none as none."""
    attentions.agrees(chapter.prepare, device, (2, 2, 1, 100, 333, 64), lengths=list(lengths), causal=causal)


@pytest.mark.parametrize("queries, keys", [(300, 100), (100, 300), (65, 64)])
def test_bottom_right(chapter: ModuleType, device: str, queries: int, keys: int) -> None:
    """With more queries than keys, the first ones see nothing: O is 0 and LSE -inf."""
    attentions.agrees(chapter.prepare, device, (1, 2, 1, queries, keys, 64), causal=True, align="bottom-right")


@pytest.mark.parametrize("scale", [0.02, 1.0])
def test_scale(chapter: ModuleType, device: str, scale: float) -> None:
    attentions.agrees(chapter.prepare, device, (1, 2, 1, 100, 300, 64), scale=scale)


@pytest.mark.parametrize("change", [{"stages": 3, "bN": 64}, {"bN": 160, "buffers": 1}], ids=str)
@pytest.mark.parametrize("kernel", ["K6A", "K6B"])
def test_blocks_of_other_sizes(chapter: ModuleType, device: str, kernel: str, change: dict[str, Any]) -> None:
    launch, step = getattr(chapter, kernel)
    cfg = replace(chapter.fa.CONFIGS[128], step=step, **change)
    attentions.agrees(chapter.prepare, device, (1, 2, 1, 300, 500, 128), causal=True, launch=launch, cfg=cfg)


@pytest.mark.parametrize("kernel, consumers", [("K6A", 1), ("K6B", 4)])
def test_numbers_of_consumers(chapter: ModuleType, device: str, kernel: str, consumers: int) -> None:
    """Also where a consumer's 64 rows see fewer blocks of keys than those below them."""
    launch, step = getattr(chapter, kernel)
    cfg = chapter.fa.Config(step, D=64, bN=64, stages=4, consumers=consumers, buffers=1)
    for shape, given in (
        ((1, 2, 1, 300, 500, 64), {}),
        ((1, 2, 1, 500, 500, 64), {"causal": True}),
        ((1, 2, 1, 500, 200, 64), {"causal": True, "align": "bottom-right"}),
    ):
        attentions.agrees(chapter.prepare, device, shape, launch=launch, cfg=cfg, **given)


@pytest.mark.parametrize("moment", ["early", "random:1", "random:2"])
def test_whenever_copies_and_products_complete(
    chapter: ModuleType, device: str, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.setenv("CUTETUT_ASYNC", moment)
    for shape, kernel, causal in (
        ((1, 2, 1, 300, 500, 64), "K6B", True),
        ((1, 2, 1, 200, 300, 128), "K6A", False),
        ((1, 1, 1, 200, 300, 256), "K6B", True),
    ):
        attentions.agrees(chapter.prepare, device, shape, causal=causal, kernel=getattr(chapter, kernel))


def test_strides_do_not_matter(chapter: ModuleType, device: str) -> None:
    Q, K, V = attentions.operands(device, 2, 2, 1, 100, 100, 64, torch.bfloat16)
    out, LSE = chapter.attention(Q, K, V)
    again, LSE_again = chapter.attention(*(t.contiguous() for t in (Q, K, V)))
    assert out.stride() == Q.stride() and torch.equal(out, again) and torch.equal(LSE, LSE_again)


SPOILED = [  # tensor, place, value
    (0, (0, 0, 5, 0), math.nan),
    (0, (0, 0, 5, 0), math.inf),
    (0, (0, 0, 5), -math.inf),
    (1, (0, 0, 5, 0), math.nan),
    (1, (0, 0, 5, 0), math.inf),
    (1, (0, 0, 200), 300.0),
    (2, (0, 0, 5, 0), math.nan),
    (2, (0, 0, 5, 0), -math.inf),
]


@pytest.mark.parametrize("which, place, value", SPOILED, ids=str)
def test_nan_and_infinities_are_pytorchs(
    chapter: ModuleType, device: str, which: int, place: Any, value: float
) -> None:
    tensors = attentions.operands(device, 1, 1, 1, 300, 300, 64, torch.bfloat16)
    tensors[which][place] = value
    Q, K, V = tensors
    out, _ = chapter.attention(Q, K, V, sms=2)
    with sdpa_kernel(SDPBackend.MATH):
        wanted = scaled_dot_product_attention(Q.float(), K.float(), V.float())
    torch.testing.assert_close(out.float(), wanted, atol=8e-3, rtol=2**-7, equal_nan=True)


def test_nan_of_a_key_reaches_the_rows_that_see_it(chapter: ModuleType, device: str) -> None:
    """PyTorch's plain implementation adds -inf to it, and spreads it to all rows: what chapter 20 says of both."""
    Q, K, V = attentions.operands(device, 1, 1, 1, 300, 300, 64, torch.bfloat16)
    K[0, 0, 250] = math.nan
    with sdpa_kernel(SDPBackend.MATH):
        theirs = scaled_dot_product_attention(Q.float(), K.float(), V.float(), is_causal=True)
    ours, _ = chapter.attention(Q, K, V, causal=True)
    assert theirs.isnan().any(3).all()
    assert ours.isnan().any(3)[0, 0].tolist() == [query >= 250 for query in range(300)]
