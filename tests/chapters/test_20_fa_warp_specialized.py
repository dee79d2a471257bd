"""Chapter 20's two kernels against float64, their mistakes, their order of tiles, and what its exercises say."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import ModuleType
from typing import Any

import pytest
import torch

from cutetut.course import notebooks
from cutetut.inspect.compiled import inspect
from cutetut.measure import mistakes, records
from tests.chapters import attentions, benchmarks, contract, exercises

CHAPTER = "20_fa_warp_specialized"


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, exercises.HELPER_TAGS)


RUNGS = ("specialized_launch", "persistent_launch")


@pytest.mark.parametrize(("rung", "causal"), list(zip(RUNGS, (True, False), strict=True)))
def test_shared_heads_and_ragged_lengths(chapter: ModuleType, device: str, rung: str, causal: bool) -> None:
    shape = (2, 4, 2, 130, 170, 64)
    attentions.agrees(chapter.prepare, device, shape, causal=causal, lengths=[170, 77], launch=getattr(chapter, rung))


@pytest.mark.parametrize(
    ("shape", "given"),
    [
        ((1, 2, 2, 1, 200, 256), {"scale": 0.3}),
        ((1, 1, 1, 200, 70, 64), {"causal": True, "align": "bottom-right"}),
        ((2, 1, 1, 100, 90, 64), {"lengths": [0, -7]}),
        ((1, 2, 1, 100, 150, 64), {"dtype": torch.float16, "causal": True}),
    ],
    ids=str,
)
def test_rung_2(
    chapter: ModuleType, device: str, shape: tuple[int, int, int, int, int, int], given: dict[str, Any]
) -> None:
    """One query, many keys, rows that see nothing, a scale, and the other type."""
    attentions.agrees(chapter.prepare, device, shape, **given)


def test_consumers_that_skip_blocks(chapter: ModuleType, device: str) -> None:
    """Four consumers and blocks of 64 keys: the upper ones see three blocks fewer than the lowest."""
    cfg = replace(chapter.CONFIGS[64], consumers=4, bN=64, stages=4)
    attentions.agrees(chapter.prepare, device, (1, 1, 1, 300, 300, 64), causal=True, cfg=cfg)


def test_nan_reaches_the_rows_that_see_it(chapter: ModuleType, device: str) -> None:
    Q, K, V = attentions.operands(device, 1, 1, 1, 200, 200, 64, torch.bfloat16)
    K[0, 0, 150] = torch.nan
    spread = chapter.attention(Q, K, V, causal=True)[0].isnan().any(3)[0, 0].cpu()
    assert spread.nonzero().ravel().tolist() == list(range(150, 200))


def test_what_is_refused(chapter: ModuleType, device: str) -> None:
    good = torch.ones(1, 2, 64, 64, dtype=torch.bfloat16, device=device)
    three = torch.ones(1, 3, 64, 64, dtype=torch.bfloat16, device=device)
    cases: list[tuple[tuple[torch.Tensor, ...], dict[str, Any], str]] = [
        ((good, good, good.half()), {}, "all must be float16"),
        ((good[0], good, good), {}, "without a 0"),
        ((three, good, good), {}, "a multiple of theirs"),
        ((good, good, good), {"scale": float("nan")}, "scale is nan"),
        ((good, good, good), {"scale": 0}, "scale is 0"),
        ((good, good, good), {"align": "middle"}, "'middle'"),
        ((good, good, good), {"lengths": torch.ones(3, dtype=torch.int32, device=device)}, "1 int32 numbers"),
        ((good, good, good), {"cfg": chapter.CONFIGS[128]}, "head dimension of 128"),
        ((good, good, good), {"cfg": replace(chapter.CONFIGS[64], consumers=5)}, "1 to 4 consumers"),
        ((good, good, good), {"cfg": replace(chapter.CONFIGS[64], stages=1)}, "at least 2 stages"),
        ((good, good, good), {"cfg": replace(chapter.CONFIGS[64], bN=256, stages=2)}, "registers per thread"),
    ]
    for tensors, given, text in cases:
        with pytest.raises((TypeError, ValueError), match=text):
            chapter.attention(*tensors, **given)


def test_an_order_has_every_tile_once_and_the_longest_first(chapter: ModuleType) -> None:
    """And the tiles of a head lie together: no further apart than those of at_once heads."""
    for rows, heads, batches, at_once in ((3, 4, 1, 2), (5, 3, 2, 4), (1, 1, 1, 9)):
        order = chapter.tile_order(rows, heads, batches, at_once, True)
        assert sorted(order) == sorted(product(range(rows), range(heads), range(batches)))
        for pair in product(range(heads), range(batches)):
            places = [place for place, (_, *of) in enumerate(order) if tuple(of) == pair]
            assert [order[place][0] for place in places] == list(range(rows))[::-1]
            assert places[-1] - places[0] < rows * at_once


@pytest.mark.emulator
def test_nothing_spills(chapter: ModuleType) -> None:
    """And the products stand in the code that the head dimension says: two of QK, two of PV."""
    Q = torch.zeros(1, 1, 64, 256, dtype=torch.bfloat16)
    info = inspect(chapter.prepare(Q, Q, Q, torch.empty_like(Q), torch.empty(1, 1, 64)).compiled)
    products = 2 * 256 // 16 + 2 * 64 // 16  # blocks of 64 keys
    assert (info.spills, info.count("LDL"), info.count("HGMMA")) == (0, 0, products)


def test_the_chapter_keeps_to_the_contract(chapter: ModuleType) -> None:
    contract.assert_contract(CHAPTER)
    contract.assert_one_idea(chapter.k4.wgmma_kernel, chapter.specialized_attention_kernel)
    contract.assert_one_idea(chapter.specialized_attention_kernel, chapter.persistent_attention_kernel)


def test_the_drawing_and_the_prediction_have_the_cycles_of_chapter_19() -> None:
    """A softmax with its conversion, and what else a step takes besides the two products of 256 cycles."""
    clocks = records.read("19_fa_wgmma", "clocks")
    parts = dict(zip(clocks["parts"], clocks["runs"]["1 CTA per SM"], strict=True))
    softmax = round(parts["softmax"] + parts["convert"], -1)
    rest = round(sum(parts.values()) - parts["softmax"] - parts["convert"] - 512, -1)
    assert f"PRODUCT, SOFTMAX, LOAD, STORE = 512, {softmax:.0f}, " in exercises.cell(CHAPTER, "look")
    said = exercises.prose(CHAPTER, "predict-md")
    assert f"a softmax of {softmax:.0f} cycles, and {rest:.0f} for waits" in said
    assert f"2048 + {softmax:.0f} + {rest:.0f} = {2048 + softmax + rest:.0f}" in said


# --- mistakes

NAMED = {
    "every thread counted": "Deadlock",
    "V given back too early": "MissingBarrier",
    "Q given back before the last scores": "InFlight",
    "O not fenced": "MissingFence",
    "unseen blocks not given back": "Deadlock",
    "the counter not set back": "",
}


@pytest.mark.emulator
@pytest.mark.parametrize("name", NAMED)
def test_mistakes(chapter: ModuleType, name: str) -> None:
    assert chapter.MISTAKES.keys() == NAMED.keys()
    said, counter, out, expected = chapter.emulate(notebooks.changed(CHAPTER, chapter.MISTAKES[name]), launches=2)
    if name != "the counter not set back":
        return attentions.assert_named(said, NAMED[name], out, expected)
    assert mistakes.faultless(said) and counter.item() == 3  # two tiles, then one for a CTA that finds none left
    wrong = ~((out.double() - expected).abs() < 2e-2).all(3)[0, 0]
    assert 0 < wrong.sum() < len(wrong)


@pytest.mark.emulator
def test_no_alarm_without_a_mistake(chapter: ModuleType) -> None:
    said, counter, out, expected = chapter.emulate(chapter, launches=2)
    attentions.assert_named(said, "", out, expected)
    assert counter.item() == 0


@pytest.mark.emulator
def test_a_second_launch_shows_the_counter(chapter: ModuleType) -> None:
    """Also how `attempt` judges it, on the GPU host."""
    launch, right = chapter.attempt("the counter not set back")
    launch()
    assert right()
    launch()
    assert not right()


# --- the benchmark


@pytest.mark.emulator
def test_the_benchmark_measures_every_rung(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """At one small shape; whether K4 is among them depends on the length."""
    monkeypatch.setattr(chapter.itertools, "product", lambda *_: [(128, True)])
    kernels = ["20 a CTA per tile", "20 persistent", "20 persistent, row by row"]
    kernels += ["20 persistent, row by row", "20 persistent"]  # each beside the one below
    benchmarks.assert_measured(chapter, CHAPTER, kernels, {"TOKENS": 128, "WIDTH": 128}, monkeypatch)


# --- exercises

ANSWERS = """
def by_mask(S, bM, bN):
    return sum(b < min(a + bM, S) for a in range(0, S, bM) for b in range(0, S, bN))


def by_numpy(S, bM, bN):
    ends = np.minimum(np.arange(bM, S + bM, bM), S)
    return np.int64((-(-ends // bN)).sum())


def by_tensor(S, bM, bN):
    return torch.tensor(float(by_mask(S, bM, bN)))


def half(S, bM, bN):
    return S * S // (2 * bM * bN)


def by_table(S, bM, bN):
    return {n: by_mask(n, bM, bN) for n in (128, 1024, 1000, 700, 5)}[S]


def by_array(rows, heads):
    return np.array([(m, h) for m in range(rows - 1, -1, -1) for h in range(heads)])


def lazily(rows, heads):
    return ([m, heads - 1 - h] for m in range(rows)[::-1] for h in range(heads))


def as_tensor(rows, heads):
    return torch.tensor(list(lazily(rows, heads)))


def by_iterators(rows, heads):
    return map(iter, as_tensor(rows, heads).numpy())


def halves(rows, heads):
    return [(m + 0.5, h) for m, h in lazily(rows, heads)]


def as_text(rows, heads):
    return [(str(m), str(h)) for m, h in lazily(rows, heads)]


def infinite(rows, heads):
    return [(float("inf"), h) for m, h in lazily(rows, heads)]


def endless(rows, heads):
    while True:
        yield 0, 0


def shortest_first(rows, heads):
    return list(lazily(rows, heads))[::-1]


def same_tile(tile):
    return tile


def by_two(tile):
    return tile + 2


def by_x(tile):
    return tile + cute.arch.grid_dim()[0]


@cute.jit
def backwards(tile):
    ctas, _, _ = cute.arch.grid_dim()
    following = tile - (-ctas)
    return following


def with_size(tile):
    x, y, z = cute.arch.grid_dim()
    return x * y * z + tile


@cute.jit
def as_in_the_chapter(K, V, head, batch, blocks, slot, phase, cfg: cutlass.Constexpr):
    for i in cutlass.range(1, blocks, unroll=1):
        v_slot, v_phase = slot, phase
        slot, phase = next_slot(slot, phase, cfg)
        request(K, (blocks - 1 - i, 0, head, batch), slot, phase)
        request(V, (blocks - i, 0, head, batch), v_slot, v_phase)
    request(V, (0, 0, head, batch), slot, phase)
    return next_slot(slot, phase, cfg)


@cute.jit
def value_first(K, V, head, batch, blocks, slot, phase, cfg: cutlass.Constexpr):
    request(V, (blocks - 1, 0, head, batch), slot, phase)
    slot, phase = next_slot(slot, phase, cfg)
    for j in cutlass.range(blocks - 2, -1, -1, unroll=1):
        request(K, (j, 0, head, batch), slot, phase)
        request(V, (j, 0, head, batch), slot, phase)
        slot, phase = next_slot(slot, phase, cfg)
    return slot, phase


@cute.jit
def counting_down(K, V, head, batch, blocks, slot, phase, cfg: cutlass.Constexpr):
    left = blocks
    while left > 0:
        left -= 1
        request(V, (left, 0, head, batch), slot, phase)
        slot, phase = next_slot(slot, phase, cfg)
        if left > 0:
            request(K, (left - 1, 0, head, batch), slot, phase)
    return slot, phase


@cute.jit
def two_stages(K, V, head, batch, blocks, slot, phase, cfg: cutlass.Constexpr):
    for i in cutlass.range(blocks, unroll=1):
        if i > 0:
            request(K, (blocks - 1 - i, 0, head, batch), slot, phase)
        request(V, (blocks - 1 - i, 0, head, batch), slot, phase)
        slot = slot ^ 1
        if slot == 0:
            phase = phase ^ 1
    return slot, phase


@cute.jit
def one_head(K, V, head, batch, blocks, slot, phase, cfg: cutlass.Constexpr):
    return value_first(K, V, 0, batch, blocks, slot, phase, cfg)


@cute.jit
def one_batch(K, V, head, batch, blocks, slot, phase, cfg: cutlass.Constexpr):
    return value_first(K, V, head, 0, blocks, slot, phase, cfg)


@cute.jit
def back_to_the_first(K, V, head, batch, blocks, slot, phase, cfg: cutlass.Constexpr):
    value_first(K, V, head, batch, blocks, slot, phase, cfg)
    return slot, phase


@cute.jit
def counting_slots(K, V, head, batch, blocks, slot, phase, cfg: cutlass.Constexpr):
    for i in cutlass.range(blocks, unroll=1):
        count = slot + i
        at = count % cfg.stages, phase ^ (count // cfg.stages & 1)
        if i > 0:
            request(K, (blocks - 1 - i, 0, head, batch), *at)
        request(V, (blocks - 1 - i, 0, head, batch), *at)
    count = slot + blocks
    return count % cfg.stages, phase ^ (count // cfg.stages & 1)


@cute.jit
def no_values(K, V, head, batch, blocks, slot, phase, cfg: cutlass.Constexpr):
    for i in cutlass.range(1, blocks, unroll=1):
        slot, phase = next_slot(slot, phase, cfg)
        request(K, (blocks - 1 - i, 0, head, batch), slot, phase)
    return next_slot(slot, phase, cfg)


@cute.jit
def by_register(S, keys, first_key, slope):
    lane = cute.arch.lane_idx()
    for i in cutlass.range_constexpr(cute.size(S)):
        key = first_key + i // 4 * 8 + lane % 4 * 2 + i % 2
        S[i] = S[i] + slope * cutlass.Float32(key - keys[i // 2 % 2] + 1)


@cute.jit
def by_key_alone(S, keys, first_key, slope):
    for i in cutlass.range_constexpr(cute.size(S)):  # the query's part is the same in a row: a softmax drops it
        key = first_key + i // 4 * 8 + cute.arch.lane_idx() % 4 * 2 + i % 2
        S[i] = S[i] + slope * cutlass.Float32(key)


@cute.jit
def by_rows(S, keys, first_key, slope):
    for r in cutlass.range_constexpr(2):
        for n in cutlass.range_constexpr(cute.size(S) // 4):
            for c in cutlass.range_constexpr(2):
                away = keys[r] - 1 - first_key - n * 8 - cute.arch.lane_idx() % 4 * 2 - c
                S[4 * n + 2 * r + c] = S[4 * n + 2 * r + c] - cutlass.Float32(away) * slope


@cute.jit
def one_slope(S, keys, first_key, slope):
    by_key_alone(S, keys, first_key, 2.4)


@cute.jit
def one_width(S, keys, first_key, slope):
    for i in cutlass.range_constexpr(32):
        S[i] = S[i] + slope * cutlass.Float32(first_key + i // 4 * 8 + cute.arch.lane_idx() % 4 * 2 + i % 2)


@cute.jit
def by_column(S, keys, first_key, slope):
    for i in cutlass.range_constexpr(cute.size(S)):
        S[i] = S[i] + slope * cutlass.Float32(first_key + i)
"""
KERNELS = [*exercises.FUNCTIONS, "nans"]
CHECKS: dict[str, tuple[list[str], list[str]]] = {  # wrong answers, and right ones
    "check_blocks": ([*KERNELS, "half", "by_table", "lambda *a: '3'", "lambda *a: (1, 2)"],
                     ["by_mask", "by_numpy", "by_tensor"]),
    "check_order": ([*KERNELS, "shortest_first", "halves", "as_text", "infinite", "endless", "lambda r, h: [(0, 0)]",
                     "lambda r, h: 'mh'", "lambda r, h: 5"],
                    ["by_array", "lazily", "as_tensor", "by_iterators"]),
    "check_following": ([*KERNELS, "same_tile", "by_two", "lambda tile: 'next'"], ["by_x", "backwards", "with_size"]),
    "check_requests": ([*KERNELS, "no_values", "as_in_the_chapter", "load_blocks", "two_stages", "one_head",
                        "one_batch", "back_to_the_first"],
                       ["value_first", "counting_down", "counting_slots"]),
    "check_alibi": ([*KERNELS, "by_column", "one_slope", "one_width"], ["by_register", "by_key_alone", "by_rows"]),
    "check_sharing": (
        ["5, 16, 64, 1", "3, 8, 64, 1", "3, 16, 32, 1", "3, 16, 64, 4", "3, 16, 64, 0.25",
         *(", ".join(["3", "16", "64", "1"][:i] + [x] + ["3", "16", "64", "1"][i + 1 :])
           for i in range(4) for x in ("None", "'3'", "float('nan')", "(1, 2)", "True"))],
        ["3, 16, 64, 1", "np.int8(3), 16.0, torch.tensor(64), np.float64(1)"],
    ),
}  # fmt: skip


names = exercises.judges_of(CHAPTER, f"import numpy as np\n{ANSWERS}")
test_answers_are_judged = exercises.answers_are_judged(CHECKS)


test_hints = exercises.wrong_answers_get_hints({
    "check_following(by_two)": "3 CTAs: ",
    "check_following(lambda tile: tile + 1)": "2 CTAs: some tile is computed more than once\n",
    "check_following(lambda tile: tile + 3)": "2 CTAs: 128 of 384 rows are wrong, the first is query 0",
    "check_requests(load_blocks)": "the order is K3 K2 V3 K1 V2 K0 V1 V0",
    "check_blocks(by_table)": "your function raises KeyError: 256",
    "check_order(halves)": "number 1 of a tile is a whole number, not 3.5",
    "check_order(infinite)": "number 1 of a tile is a whole number, not inf",
    "check_requests(two_stages)": "with three stages, slot 0 with phase 0 is not that of K1",
    "check_requests(one_head)": "of head 1 and batch 2 it requests V3 of head 0 and batch 2",
    "check_requests(back_to_the_first)": "with three stages, slot 0 with phase 1 is not the one after four blocks",
    "check_alibi(one_slope)": "0.7 per key, blocks of 32 keys: ",
    "check_alibi(one_width)": "0.7 per key, blocks of 32 keys: ",
    "check_requests(no_values)": "and nothing can wake it: CTA (0, 0, 0), warps [",
    "check_sharing(3, 16, 64, 4)": "who requests a block",
})  # fmt: skip


test_solutions_belong_to_exercises = exercises.solutions_belong_to_exercises(CHAPTER)
