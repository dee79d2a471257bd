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
    (1, 2, 1, 250, 140, 96),
    (1, 2, 2, 70, 333, 192),
]


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_ragged_shapes(chapter: ModuleType, device: str, shape: Any, causal: bool) -> None:
    attentions.agrees(chapter.prepare, device, shape, causal=causal)


@pytest.mark.parametrize("D", [64, 96, 128, 192, 256])
def test_float16(chapter: ModuleType, device: str, D: int) -> None:
    attentions.agrees(chapter.prepare, device, (1, 2, 1, 150, 222, D), torch.float16, causal=True)


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("lengths", [(100, 100), (0, 333), (-7, 1), (333, 10**9)])
def test_lengths(chapter: ModuleType, device: str, lengths: tuple[int, int], causal: bool) -> None:
    """Longer than there are keys counts as all of them, shorter than none as none."""
    attentions.agrees(chapter.prepare, device, (2, 2, 1, 100, 333, 64), lengths=list(lengths), causal=causal)


NUMBERS = [math.nan, math.inf]  # times 0 both are NaN


@pytest.mark.parametrize("value", NUMBERS, ids=str)
@pytest.mark.parametrize("D", [64, 96, 128, 192, 256])
def test_nothing_beyond_the_lengths_does_harm(chapter: ModuleType, device: str, D: int, value: float) -> None:
    """Of batches that end in the midst of a block, with one, with the tensor, and before their first key."""
    attentions.agrees(chapter.prepare, device, (4, 2, 1, 100, 250, D), lengths=[100, 192, 250, 0], beyond=value)
    attentions.packed_agree(chapter.prepare, device, [90, 70, 30], [70, 200, 60], (2, 1, D), spoiled=1, value=value)


SEEN_IN_PART = [  # the step, or what `choose` takes; which keys a row sees
    (None, {"causal": True}),
    (None, {"window": (40, 10)}),
    (None, {"window": (None, 30)}),
    ("step_turns", {"causal": True}),
    ("step_overlap", {"causal": True}),
]


@pytest.mark.parametrize("step, given", SEEN_IN_PART, ids=str)
def test_nor_where_rows_see_a_part_only(chapter: ModuleType, device: str, step: str | None, given: Any) -> None:
    given = given | ({"step": getattr(chapter, step)} if step else {})
    attentions.agrees(chapter.prepare, device, (2, 4, 2, 300, 300, 128), lengths=[77, 257], beyond=math.nan, **given)


def sequence_first(V: torch.Tensor) -> torch.Tensor:
    """(S, B, H, D) in memory: from a row to the next is farther than from a batch to the next."""
    return V.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)


def apart(V: torch.Tensor) -> torch.Tensor:
    """NaN between the batches, whose distance is no multiple of a row's."""
    B, H, S, D = V.shape
    memory = torch.full((B, H * S * D + 8), torch.nan, dtype=V.dtype, device=V.device)
    return memory[:, : H * S * D].unflatten(1, (H, S, D)).copy_(V)


@pytest.mark.parametrize("layout", [sequence_first, apart, torch.Tensor.contiguous])
def test_lengths_wherever_the_batches_of_v_lie(chapter: ModuleType, device: str, layout: Any) -> None:
    """K lies elsewhere: it is (B, S, H, D) in memory."""
    for keys in (333, 1):
        attentions.agrees(
            chapter.prepare, device, (3, 2, 1, 70, keys, 64), lengths=[200, 0, 1], beyond=math.inf, laid_out=layout
        )  # fmt: skip


@pytest.mark.parametrize("queries, keys", [(300, 100), (100, 300), (65, 64)])
def test_bottom_right(chapter: ModuleType, device: str, queries: int, keys: int) -> None:
    """With more queries than keys, the first ones see nothing: O is 0 and LSE -inf."""
    attentions.agrees(chapter.prepare, device, (1, 2, 1, queries, keys, 64), causal=True, align="bottom-right")


WINDOWS = [  # batch, heads, heads of Q per head of K, queries, keys, D; the window
    ((1, 2, 1, 300, 300, 64), (100, None)),  # four consumers
    ((1, 1, 1, 1100, 1100, 64), (70, 30)),  # three
    ((1, 2, 2, 300, 500, 128), (0, 0)),  # a single key
    ((1, 1, 1, 300, 500, 128), (129, 0)),
    ((1, 1, 1, 500, 100, 96), (33, 5)),  # the last queries see no key
    ((1, 1, 1, 150, 400, 192), (300, 200)),
    ((1, 1, 1, 200, 300, 256), (130, 2)),
    ((1, 1, 1, 130, 130, 128), (10**9, None)),
]


@pytest.mark.parametrize("align", ["top-left", "bottom-right"])
@pytest.mark.parametrize("shape, window", WINDOWS, ids=str)
def test_windows(chapter: ModuleType, device: str, shape: Any, window: Any, align: str) -> None:
    attentions.agrees(chapter.prepare, device, shape, window=window, align=align)


def test_a_window_with_lengths_and_a_causal_mask(chapter: ModuleType, device: str) -> None:
    """Causal stands for a window that ends at the query."""
    attentions.agrees(
        chapter.prepare, device, (3, 2, 1, 300, 333, 128), window=(90, None), causal=True, lengths=[333, 120, 0]
    )  # fmt: skip


PACKED = [  # queries and keys of each sequence; heads, heads of Q per head of K, D
    ([100, 0, 1, 70, 200], [130, 5, 0, 64, 200], (2, 2, 64)),
    ([1, 300], [1, 300], (2, 1, 96)),
    ([64, 128, 129], [127, 128, 1], (4, 2, 128)),
    ([90, 70], [70, 200], (1, 1, 192)),
    ([90, 70], [70, 200], (1, 1, 256)),
]


@pytest.mark.parametrize("window", [(None, None), (None, 0), (50, 20)], ids=str)
@pytest.mark.parametrize("queries, keys, shape", PACKED, ids=str)
def test_packed_sequences(
    chapter: ModuleType, device: str, queries: list[int], keys: list[int], shape: Any, window: Any
) -> None:
    """Nothing of a neighbour shows: where it is NaN, and where the own sequence ends in the midst of a block."""
    attentions.packed_agree(chapter.prepare, device, queries, keys, shape, window, "bottom-right", spoiled=1)


def test_what_is_refused(chapter: ModuleType, device: str) -> None:
    Q, K, V = attentions.operands(device, 1, 2, 1, 100, 100, 64, torch.bfloat16)
    for given, said in (
        ({"window": (-1, 0)}, "two numbers of keys"),
        ({"window": (3, 0), "step": chapter.step_turns}, "needs step_straight"),
        ({"cu_seqlens": ([0, 50, 101], [0, 50, 100])}, "within the 100 rows"),
        ({"cu_seqlens": ([0, 60, 50], [0, 50, 100])}, "not decrease"),
        ({"cu_seqlens": ([0, 100], [0, 50, 100])}, "as many"),
        ({"cu_seqlens": ([0, 0], [0, 100])}, "no query"),
        ({"cu_seqlens": ([0, 9], [0, 9]), "lengths": torch.ones(1, dtype=torch.int32, device=device)}, "only one"),
        ({"cfg": chapter.CONFIGS[128]}, "the configuration is for"),
    ):
        with pytest.raises(ValueError, match=said):
            chapter.attention(Q, K, V, **given)
    with pytest.raises(ValueError, match="must be one of"):
        chapter.attention(*(t[..., :32] for t in (Q, K, V)))
    far = torch.empty_strided((1, 1, 100, 64), (2**34, 64, 64, 1), device="meta", dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="within 32 GiB"):
        chapter.dense_spans(Q, far, 0, torch.ones(1, dtype=torch.int32))


@pytest.mark.parametrize("scale", [0.02, 1.0])
def test_scale(chapter: ModuleType, device: str, scale: float) -> None:
    attentions.agrees(chapter.prepare, device, (1, 2, 1, 100, 300, 64), scale=scale)


@pytest.mark.parametrize("change", [{"stages": 3, "bN": 64}, {"bN": 160, "buffers": 1}], ids=str)
@pytest.mark.parametrize("step", ["step_overlap", "step_turns"])
def test_blocks_of_other_sizes(chapter: ModuleType, device: str, step: str, change: dict[str, Any]) -> None:
    cfg = replace(chapter.CONFIGS[128], step=getattr(chapter, step), **change)
    attentions.agrees(chapter.prepare, device, (1, 2, 1, 300, 500, 128), causal=True, cfg=cfg)


@pytest.mark.parametrize("step, consumers", [("step_overlap", 1), ("step_turns", 4)])
def test_numbers_of_consumers(chapter: ModuleType, device: str, step: str, consumers: int) -> None:
    """Also where a consumer's 64 rows see fewer blocks of keys than those below them."""
    cfg = chapter.Config(getattr(chapter, step), D=64, bN=64, stages=4, consumers=consumers, buffers=1)
    for shape, given in (
        ((1, 2, 1, 300, 500, 64), {}),
        ((1, 2, 1, 500, 500, 64), {"causal": True}),
        ((1, 2, 1, 500, 200, 64), {"causal": True, "align": "bottom-right"}),
    ):
        attentions.agrees(chapter.prepare, device, shape, cfg=cfg, **given)


@pytest.mark.parametrize("moment", ["early", "random:1", "random:2"])
def test_whenever_copies_and_products_complete(
    chapter: ModuleType, device: str, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.setenv("CUTETUT_ASYNC", moment)
    for shape, step, causal in (
        ((1, 2, 1, 300, 500, 64), "step_turns", True),
        ((1, 2, 1, 200, 300, 128), "step_overlap", False),
        ((1, 1, 1, 200, 300, 192), "step_straight", True),
        ((1, 1, 1, 200, 300, 256), "step_turns", True),
    ):
        attentions.agrees(chapter.prepare, device, shape, causal=causal, step=getattr(chapter, step))
    attentions.packed_agree(chapter.prepare, device, [100, 1, 130], [90, 0, 200], (2, 1, 64), (40, 10), spoiled=0)


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


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_rows_whose_scores_are_all_minus_infinity(chapter: ModuleType, device: str, causal: bool) -> None:
    Q, K, V = attentions.operands(device, 1, 1, 1, 300, 300, 64, torch.bfloat16)
    Q[..., 0] = Q[..., 0].abs() + 1
    K[0, 0, : 200 if causal else 300, 0] = -math.inf
    out, LSE = chapter.attention(Q, K, V, causal=causal)
    with sdpa_kernel(SDPBackend.MATH):
        wanted = scaled_dot_product_attention(Q.float(), K.float(), V.float(), is_causal=causal)
    torch.testing.assert_close(out.float(), wanted, atol=8e-3, rtol=2**-7)
    rows = 200 if causal else 300
    assert (out[0, 0, :rows] == 0).all() and (LSE[0, 0] == -math.inf).sum() == rows


def test_nan_of_a_key_reaches_the_rows_that_see_it(chapter: ModuleType, device: str) -> None:
    """PyTorch's plain implementation adds -inf to it, and spreads it to all rows: what chapter 20 says of both."""
    Q, K, V = attentions.operands(device, 1, 1, 1, 300, 300, 64, torch.bfloat16)
    K[0, 0, 250] = math.nan
    with sdpa_kernel(SDPBackend.MATH):
        theirs = scaled_dot_product_attention(Q.float(), K.float(), V.float(), is_causal=True)
    ours, _ = chapter.attention(Q, K, V, causal=True)
    assert theirs.isnan().any(3).all()
    assert ours.isnan().any(3)[0, 0].tolist() == [query >= 250 for query in range(300)]


BESIDE = [  # batch, heads, heads of Q per head of K, queries, keys, D; causal
    ((2, 4, 1, 999, 999, 64), True),
    ((1, 8, 4, 1111, 555, 64), False),
    ((1, 2, 1, 777, 777, 96), True),
    ((2, 4, 2, 1500, 1500, 128), True),
    ((1, 4, 1, 130, 3001, 128), False),
    ((1, 2, 1, 600, 1234, 192), False),
    ((1, 2, 1, 1027, 1027, 256), True),
]


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["cuDNN", "flash-attn"])
@pytest.mark.parametrize("shape, causal", BESIDE, ids=str)
def test_as_near_to_float64_as_the_libraries(
    chapter: ModuleType, device: str, shape: Any, causal: bool, library: str
) -> None:
    """And so near to each of them, at lengths that no block divides."""
    B, H, group, queries, keys, D = shape
    Q, K, V = attentions.operands(device, B, H, group, queries, keys, D, torch.bfloat16)
    libraries = chapter.vendors(Q, K, V, causal)
    if library not in libraries:
        pytest.skip(f"{library} is not installed: nothing is compared with it")
    out, LSE = torch.full_like(Q, torch.nan), torch.full(Q.shape[:3], torch.nan, device=device)
    sides = {"ours": chapter.prepare(Q, K, V, out, LSE, causal=causal), library: libraries[library]}
    with sdpa_kernel(chapter.VENDOR):
        errors = chapter.errors_of(sides, out, chapter.fa.exact(Q, K, V, causal)[0])
    assert errors["ours_error"] <= 1.05 * errors[f"{library}_error"] < 5e-3
