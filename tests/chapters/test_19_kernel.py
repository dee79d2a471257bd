"""The attention kernel of chapter 19, loaded from its notebook: shapes, types and configurations against float64."""

from __future__ import annotations

import dataclasses
import math
import re
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from cutetut.course import notebooks
from cutetut.measure import bench
from tests.chapters.attentions import assert_attention, operands, visible


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load("19_fa_pingpong", bench.BENCH_TAGS)


def agrees(
    chapter: ModuleType, device: str, shape: tuple[int, int, int, int, int, int], dtype: torch.dtype = torch.bfloat16,
    causal: bool = False, align: str = "top-left", lengths: list[int] | None = None, scale: float | None = None,
    **change: Any,
) -> None:  # fmt: skip
    """One call, few CTAs so that each takes several tiles; O starts as NaN, so that a row nobody writes is seen."""
    Q, K, V = operands(device, *shape, dtype)
    cfg = dataclasses.replace(chapter.CONFIGS[Q.shape[3]], **{"sms": 4} | change)
    out, LSE = torch.full_like(Q, torch.nan), torch.full(Q.shape[:3], torch.nan, device=device)
    numbers = None if lengths is None else torch.tensor(lengths, dtype=torch.int32, device=device)
    launch = chapter.prepare(Q, K, V, out, LSE, causal=causal, align=align, lengths=numbers, scale=scale, cfg=cfg)
    launch()
    launch()  # the counter of tiles is back at 0
    diagonal = K.shape[2] - Q.shape[2] if align == "bottom-right" else 0
    seen = visible(Q, K, causal, diagonal, lengths)
    assert_attention(out, LSE, Q, K, V, seen, scale or 1 / math.sqrt(Q.shape[3]))


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
    agrees(chapter, device, shape, causal=causal)


@pytest.mark.parametrize("D", [64, 128, 256])
def test_float16(chapter: ModuleType, device: str, D: int) -> None:
    agrees(chapter, device, (1, 2, 1, 150, 222, D), torch.float16, causal=True)


@pytest.mark.parametrize("lengths", [(100, 100), (0, 333), (-7, 1), (333, 10**9)])
def test_lengths(chapter: ModuleType, device: str, lengths: tuple[int, int]) -> None:
    """Longer than there are keys counts as all of them, shorter than none as none."""
    agrees(chapter, device, (2, 2, 1, 100, 333, 64), lengths=list(lengths))
    agrees(chapter, device, (2, 2, 1, 100, 333, 64), lengths=list(lengths), causal=True)


@pytest.mark.parametrize("queries, keys", [(300, 100), (100, 300), (65, 64)])
def test_bottom_right(chapter: ModuleType, device: str, queries: int, keys: int) -> None:
    """With more queries than keys, the first ones see nothing: O is 0 and LSE -inf."""
    agrees(chapter, device, (1, 2, 1, queries, keys, 64), causal=True, align="bottom-right")


@pytest.mark.parametrize("scale", [0.02, 1.0])
def test_scale(chapter: ModuleType, device: str, scale: float) -> None:
    agrees(chapter, device, (1, 2, 1, 100, 300, 64), scale=scale)


@pytest.mark.parametrize(
    "change",
    [
        {"overlap": False},
        {"pingpong": False},
        {"overlap": False, "pingpong": False},
        {"slack": 8.0},
        {"stages": 3, "bN": 64},
        {"bN": 160, "buffers": 1},
    ],
    ids=str,
)
def test_configurations(chapter: ModuleType, device: str, change: dict[str, Any]) -> None:
    agrees(chapter, device, (1, 2, 1, 300, 500, 128), causal=True, **change)


FOUR: dict[str, Any] = {"consumers": 4, "bN": 64, "stages": 4}


@pytest.mark.parametrize("change", [{"consumers": 1, "pingpong": False}, FOUR, {"stages": 4}], ids=str)
def test_consumers(chapter: ModuleType, device: str, change: dict[str, Any]) -> None:
    """Also where a consumer's 64 rows see fewer blocks of keys than those below them."""
    agrees(chapter, device, (1, 2, 1, 300, 500, 64), **change)
    agrees(chapter, device, (1, 2, 1, 500, 500, 64), causal=True, **change)
    agrees(chapter, device, (1, 2, 1, 500, 200, 64), causal=True, align="bottom-right", **change)


def test_few_queries_get_smaller_blocks(chapter: ModuleType) -> None:
    assert chapter.choose(64, 1024) == dataclasses.replace(chapter.CONFIGS[64], **FOUR)
    for D, queries in ((64, 4096), (128, 1024), (256, 1)):
        assert chapter.choose(D, queries) == chapter.CONFIGS[D]


@pytest.mark.parametrize("moment", ["early", "random:1", "random:2"])
def test_whenever_copies_and_products_complete(
    chapter: ModuleType, device: str, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.setenv("CUTETUT_ASYNC", moment)
    agrees(chapter, device, (1, 2, 1, 300, 500, 64), causal=True)
    agrees(chapter, device, (1, 2, 1, 300, 300, 64), causal=True, **FOUR)
    agrees(chapter, device, (1, 2, 1, 200, 300, 128))
    agrees(chapter, device, (1, 1, 1, 200, 300, 256), causal=True)


def test_strides_do_not_matter(chapter: ModuleType, device: str) -> None:
    Q, K, V = operands(device, 2, 2, 1, 100, 100, 64, torch.bfloat16)
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


@pytest.mark.parametrize("change", [{}, {"slack": 8.0}], ids=str)
@pytest.mark.parametrize("which, place, value", SPOILED, ids=str)
def test_nan_and_infinities_are_pytorchs(
    chapter: ModuleType, device: str, which: int, place: Any, value: float, change: dict[str, Any]
) -> None:
    tensors = operands(device, 1, 1, 1, 300, 300, 64, torch.bfloat16)
    tensors[which][place] = value
    Q, K, V = tensors
    out, _ = chapter.attention(Q, K, V, cfg=dataclasses.replace(chapter.CONFIGS[64], sms=2, **change))
    with sdpa_kernel(SDPBackend.MATH):
        wanted = scaled_dot_product_attention(Q.float(), K.float(), V.float())
    torch.testing.assert_close(out.float(), wanted, atol=8e-3, rtol=2**-7, equal_nan=True)


def test_nan_of_a_key_reaches_the_rows_that_see_it(chapter: ModuleType, device: str) -> None:
    """PyTorch's plain implementation adds -inf to it, and spreads it to all rows: what the chapter says of both."""
    Q, K, V = operands(device, 1, 1, 1, 300, 300, 64, torch.bfloat16)
    K[0, 0, 250] = math.nan
    with sdpa_kernel(SDPBackend.MATH):
        theirs = scaled_dot_product_attention(Q.float(), K.float(), V.float(), is_causal=True)
    ours, _ = chapter.attention(Q, K, V, causal=True)
    assert theirs.isnan().any(3).all()
    assert ours.isnan().any(3)[0, 0].tolist() == [query >= 250 for query in range(300)]


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("rows, heads, batches, at_once", [(1, 1, 1, 1), (5, 3, 2, 4), (7, 2, 3, 1), (2, 4, 1, 100)])
def test_an_order_takes_every_tile_once(
    chapter: ModuleType, rows: int, heads: int, batches: int, at_once: int, causal: bool
) -> None:
    tiles = chapter.tile_order(rows, heads, batches, at_once, causal)
    assert sorted(tiles) == [(m, h, b) for m in range(rows) for h in range(heads) for b in range(batches)]


def test_the_longest_tiles_of_the_heads_in_work_come_first(chapter: ModuleType) -> None:
    tiles = chapter.tile_order(4, 6, 1, 3, True)
    for section in (tiles[:12], tiles[12:]):
        assert [m for m, _, _ in section] == [3] * 3 + [2] * 3 + [1] * 3 + [0] * 3
        assert len({h for _, h, _ in section}) == 3


def test_sections_are_of_one_size(chapter: ModuleType) -> None:
    """A small last section would end with its longest tiles on a few SMs: 32 heads, 10 at most, are 4 times 8."""
    tiles = chapter.tile_order(5, 8, 4, 10, True)
    assert [m for m, _, _ in tiles] == [m for _ in range(4) for m in (4, 3, 2, 1, 0) for _ in range(8)]


@pytest.mark.parametrize("D", [64, 128, 256])
def test_the_compiler_keeps_the_overlap(chapter: ModuleType, device: str, D: int) -> None:
    """Nothing is spilled, and every power of two of a step stands between its two waits in the machine code."""
    Q, K, V = operands(device, 1, 1, 1, 64, 64, D, torch.bfloat16)
    cfg, LSE = chapter.CONFIGS[D], torch.empty(1, 1, 64, device=device)
    info = chapter.inspect(chapter.prepare(Q, K, V, torch.empty_like(Q), LSE, cfg=cfg).func)
    assert info.spills == 0 and info.shared_bytes <= chapter.shared_bytes(cfg, D) <= chapter.SHARED
    waits = [match.start() for match in re.finditer(r"WARPGROUP\.DEPBAR", info.sass)]
    under = info.sass[waits[1] : waits[2]]  # the first wait is that of a tile's first scores
    assert under.count("MUFU.EX2") == 64 * cfg.bN // 128 + 2  # scores, and two factors


def test_a_trace_has_ordered_clocks_and_costs_nothing_if_off(chapter: ModuleType, device: str) -> None:
    Q, K, V = operands(device, 1, 1, 1, 256, 512, 128, torch.bfloat16)
    out, LSE = torch.empty_like(Q), torch.empty(1, 1, 256, device=device)
    cfg = dataclasses.replace(chapter.CONFIGS[128], sms=1, trace=True)
    trace = torch.zeros(1, 2, 16, 6, dtype=torch.int64, device=device)
    launch = chapter.prepare(Q, K, V, out, LSE, cfg=cfg, trace=trace)
    launch()
    clocks = trace.cpu()[0, :, :6]  # two tiles of 4 blocks each; the first block's scores are no step
    assert (clocks > 0).all() and (clocks.flatten(1).diff() >= 0).all() and (trace.cpu()[0, :, 6:] == 0).all()
    assert "%clock64" in chapter.inspect(launch.func).ptx
    untraced = chapter.prepare(Q, K, V, out, LSE, cfg=dataclasses.replace(cfg, trace=False))
    assert "%clock64" not in chapter.inspect(untraced.func).ptx


def test_refusals_name_what_to_change(chapter: ModuleType, device: str) -> None:
    good = torch.zeros(1, 2, 64, 64, dtype=torch.bfloat16, device=device)
    config = chapter.CONFIGS[64]

    def refused(error: type[Exception], words: str, *tensors: torch.Tensor, **options: Any) -> None:
        with pytest.raises(error, match=words):
            chapter.attention(*tensors, **options)

    refused(TypeError, "float16", good.float(), good, good)
    refused(TypeError, "bfloat16", good, good.half(), good)
    refused(ValueError, "batch, heads, length, dim", good[0], good, good)
    refused(ValueError, "without a 0", good, good[:, :, :0], good[:, :, :0])
    refused(ValueError, "head dimension is 48", *(good[..., :48].contiguous() for _ in range(3)))
    refused(ValueError, "multiple of theirs", good[:, :1], good, good)
    refused(ValueError, "K and V must agree", good, good, good[:, :, :32])
    refused(ValueError, "contiguous", good.mT, good.mT, good.mT)
    refused(ValueError, "multiples of 8 that are not 0", good[:, :, :1].expand(1, 2, 64, 64), good, good)
    refused(ValueError, "positive number", good, good, good, scale=0.0)
    refused(ValueError, "positive number", good, good, good, scale=math.nan)
    refused(ValueError, "'bottom-right' without lengths", good, good, good, align="middle")
    refused(ValueError, "1 int32 numbers", good, good, good, lengths=torch.ones(1, device=device))
    configs: dict[str, dict[str, Any]] = {
        "1 to 4 consumers": {"consumers": 5},
        "multiple of 16": {"bN": 72},
        "168 registers": {"bN": 144},
        "shared memory": {"stages": 8},
        "at least 2 stages": {"stages": 1},
        "nobody to take turns": {"consumers": 1},
    }
    for words, change in configs.items():
        refused(ValueError, words, good, good, good, cfg=dataclasses.replace(config, **change))


def test_no_row_of_the_table_is_empty(chapter: ModuleType) -> None:
    assert all(chapter.variant(name, 128) for name in chapter.VARIANTS)
    assert all(chapter.variant(name, D) for name in chapter.MAIN for D in chapter.CONFIGS)


REPLACING = ["no warp specialization", "nothing of the three"]


@pytest.mark.parametrize("name", REPLACING)
def test_variants_are_right(chapter: ModuleType, device: str, name: str) -> None:
    """The others are configurations, and those are tested above."""
    assert [name for name, (lines, _) in chapter.VARIANTS.items() if lines] == REPLACING
    Q, K, V = operands(device, 1, 2, 1, 300, 500, 128, torch.bfloat16)
    module, cfg = chapter.variant(name, 128)
    out, LSE = torch.full_like(Q, torch.nan), torch.full(Q.shape[:3], torch.nan, device=device)
    module.prepare(Q, K, V, out, LSE, cfg=dataclasses.replace(cfg, sms=cfg.sms or 4))()
    assert_attention(out, LSE, Q, K, V, visible(Q, K, False, 0, None), 128**-0.5)


@pytest.mark.parametrize("name", ["all of it", "no overlap, no ping-pong"])
def test_the_timeline_is_of_consecutive_steps(chapter: ModuleType, name: str) -> None:
    clocks = torch.tensor(chapter.steps(name, S=512, heads=1, cta=0, first=2, last=8, sms=1))
    assert clocks.shape == (2, 6, 6) and clocks.min() == 0 and (clocks.flatten(1).diff() >= 0).all()
