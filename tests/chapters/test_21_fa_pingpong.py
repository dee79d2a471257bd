"""Chapter 21's steps against float64, its model, account and variants, its mistakes, and what its exercises say."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from inspect import signature
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut.course import notebooks
from cutetut.inspect.compiled import inspect
from cutetut.measure import bench
from tests.chapters import attentions, benchmarks, contract, exercises

CHAPTER = "21_fa_pingpong"


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


STEPS = ("step_overlap", "step_turns", "step_straight")


@pytest.mark.parametrize("step", STEPS[1:])
def test_shared_heads_and_ragged_lengths(chapter: ModuleType, device: str, step: str) -> None:
    """Three consumers: the upper ones skip blocks, and take a turn for each; several tiles per CTA."""
    attentions.agrees(
        chapter.prepare, device, (2, 4, 2, 250, 330, 64), causal=True, lengths=[330, 77],
        step=getattr(chapter, step),
    )  # fmt: skip


@pytest.mark.parametrize("keys", [512, 520, 640])
@pytest.mark.parametrize("causal", [False, True])
def test_blocks_with_a_mask_and_without(chapter: ModuleType, device: str, keys: int, causal: bool) -> None:
    """K6c's two loops: none, one or several of the blocks behind the first need a mask."""
    attentions.agrees(chapter.prepare, device, (1, 1, 1, 256, keys, 64), causal=causal, step=chapter.step_straight)


@pytest.mark.parametrize("step", STEPS)
def test_a_large_head_with_rows_that_see_nothing(chapter: ModuleType, device: str, step: str) -> None:
    attentions.agrees(
        chapter.prepare, device, (1, 1, 1, 200, 70, 256), causal=True, align="bottom-right",
        step=getattr(chapter, step),
    )  # fmt: skip


def test_float16_and_every_key(chapter: ModuleType, device: str) -> None:
    attentions.agrees(chapter.prepare, device, (1, 1, 1, 100, 500, 128), torch.float16)


def test_few_queries_of_small_heads_get_four_consumers(chapter: ModuleType, device: str) -> None:
    """And K6b or K6c, whichever was faster; what one consumer cannot do is refused."""
    cfg = chapter.choose(64, 300, 300)
    assert (cfg.step, cfg.consumers, cfg.bN) == (chapter.step_straight, 4, 64)
    attentions.agrees(chapter.prepare, device, (1, 2, 1, 300, 300, 64), causal=True)
    for D, cfg in chapter.CONFIGS.items():
        step = chapter.step_turns if D == 256 else chapter.step_straight
        assert chapter.choose(D, 4096, 4096) == replace(cfg, step=step)
        assert chapter.choose(D, 4096, 4096, 32, 132, windowed=True) == replace(cfg, step=chapter.step_straight)
    one = torch.zeros(1, 1, 64, 128, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="nobody to take turns"):
        chapter.attention(one, one, one, cfg=chapter.Config(chapter.step_turns, consumers=1))


@pytest.mark.parametrize("D", [64, 96, 128, 192, 256])
@pytest.mark.parametrize("windowed", [False, True])
def test_tiles_are_the_smallest_that_all_run_at_once(chapter: ModuleType, D: int, windowed: bool) -> None:
    """Whatever the shape: no smaller tile would do, what is chosen can be compiled, and turns need two consumers."""
    most = chapter.CONFIGS[D].consumers
    for queries, pairs, sms in itertools.product((1, 64, 65, 500, 777, 1025, 9000), (1, 8, 16, 40), (3, 132)):
        cfg = chapter.choose(D, queries, queries, pairs, sms, windowed, windowed)
        chapter.refuse_config(torch.empty(1, 1, 1, D), (9 if windowed else None, None), cfg)
        fitting = [c for c in range(1, most) if pairs * math.ceil(queries / (64 * c)) <= sms]
        usual = 4 if D == 64 and queries <= 1024 else most
        assert cfg.consumers == min(fitting, default=usual)
        assert chapter.takes_turns(cfg) == (D == 256 and cfg.consumers == 2 and not windowed)


def test_blocks_are_shorter_where_the_last_would_be_nearly_empty(chapter: ModuleType) -> None:
    """777 keys are 7 blocks of 112 or of 128; nothing is gained by what fills blocks of 128, has a mask, or is one."""
    assert chapter.choose(128, 777, 777, 16, 132).bN == chapter.choose(64, 1111, 1111, 32, 132).bN == 112
    assert {chapter.choose(128, 777, keys, 16, 132).bN for keys in (64, 512, 1024, 4096, 5000, 16384)} == {128}
    assert chapter.choose(128, 777, 777, 16, 132, masked=True).bN == 128
    assert chapter.keys_paid(777, 112) == 784 + 336 and chapter.keys_paid(777, 128) == 896 + 384


def test_long_sequences_of_wide_heads_leave_through_q(chapter: ModuleType) -> None:
    """Blocks of 80 keys, also where each tile has an SM of its own; else Q's place is needed early."""
    assert chapter.choose(256, 16384, 16384, 8, 132) == chapter.choose(256, 1300, 1300, 8, 132) == chapter.THROUGH_Q
    assert chapter.choose(256, 512, 512, 256, 132) == replace(chapter.CONFIGS[256], step=chapter.step_turns)
    assert chapter.THROUGH_Q.shared_bytes == 2 * 256 * (128 + 4 * 80) + 2048 <= chapter.fa.SHARED


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("step, consumers", [("step_turns", 2), ("step_overlap", 2), ("step_straight", 1)])
def test_o_through_the_place_of_q(
    chapter: ModuleType, device: str, step: str, consumers: int, causal: bool
) -> None:
    """Several tiles per CTA: the next Q comes only when O has been read."""
    cfg = replace(chapter.THROUGH_Q, step=getattr(chapter, step), consumers=consumers)
    attentions.agrees(chapter.prepare, device, (1, 3, 1, 257, 205, 256), causal=causal, cfg=cfg)


@pytest.mark.emulator
def test_q_that_comes_too_early_is_reported(chapter: ModuleType) -> None:
    """Without the wait for the store that reads Q's place, the next tile's Q overwrites O."""
    wait = "                if warp % 4 == 0:\n                    cute.arch.cp_async_bulk_wait_group(0, read=True)\n"
    module = notebooks.changed(CHAPTER, [(wait, "")], bench.BENCH_TAGS)
    cfg = replace(module.THROUGH_Q, step=module.step_straight, consumers=1)
    with pytest.raises(Exception, match="bulk"):
        attentions.agrees(module.prepare, "cpu", (1, 4, 1, 64, 100, 256), cfg=cfg)


@pytest.mark.parametrize("shape", [(1, 1, 1, 130, 300, 64), (1, 1, 1, 100, 200, 96), (1, 3, 1, 60, 777, 128),
                                   (1, 1, 1, 150, 100, 192), (1, 2, 1, 50, 170, 256)], ids=str)  # fmt: skip
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_few_tiles(chapter: ModuleType, device: str, shape: Any, causal: bool) -> None:
    """One consumer, and blocks of 112 keys."""
    B, H, _, queries, keys, D = shape
    assert chapter.choose(D, queries, keys, B * H, 3).consumers == 1
    attentions.agrees(chapter.prepare, device, shape, causal=causal)


@pytest.mark.emulator
@pytest.mark.parametrize("step, D, powers", [("step_turns", 64, 66), ("step_overlap", 256, 34)])
def test_the_softmax_stays_above_the_last_wait(chapter: ModuleType, step: str, D: int, powers: int) -> None:
    """As in the published kernel: no spills, and between the waits of a step all of its powers."""
    Q = torch.zeros(1, 1, 64, D, dtype=torch.bfloat16)
    prepared = chapter.prepare(Q, Q, Q, torch.empty_like(Q), torch.empty(1, 1, 64), step=getattr(chapter, step))
    info = inspect(prepared.compiled)
    waits = [match.start() for match in re.finditer("WARPGROUP.DEPBAR", info.sass)]
    assert info.spills == 0 and len(waits) == 4
    assert info.sass[waits[1] : waits[2]].count("MUFU.EX2") == powers


@pytest.mark.emulator
def test_nothing_holds_the_assembler_in_the_straight_step(chapter: ModuleType) -> None:
    """As in the published kernel: no spills, no serialised products, and most powers behind the last wait."""
    Q = torch.zeros(1, 1, 64, 128, dtype=torch.bfloat16)
    prepared = chapter.prepare(Q, Q, Q, torch.empty_like(Q), torch.empty(1, 1, 64), step=chapter.step_straight)
    info = inspect(prepared.compiled)
    parts = info.sass.split("WARPGROUP.DEPBAR")
    assert info.spills == 0 and len(parts) == 7 and "BAR.ARV" not in info.sass  # and no turns
    assert parts[4].count("MUFU.EX2") + parts[5].count("MUFU.EX2") == 66
    assert parts[4].count("MUFU.EX2") < 22 and parts[5].count("F2FP") == 32


def test_the_chapter_keeps_to_the_contract(chapter: ModuleType) -> None:
    contract.assert_contract(CHAPTER)
    contract.assert_one_idea(chapter.fa.persistent_attention_kernel, chapter.pingpong_attention_kernel)
    contract.assert_one_idea(chapter.fa.step, chapter.step_overlap)
    contract.assert_one_idea(chapter.step_overlap, chapter.step_turns)
    contract.assert_one_idea(chapter.step_overlap, chapter.step_straight)


# --- the model and the account


@pytest.fixture(scope="module")
def drawn() -> dict[str, Any]:
    """What the folded cells of the model define."""
    cell = exercises.cell(CHAPTER, "look")
    names: dict[str, Any] = {}
    exec(notebooks.definitions(cell), names)
    return names


@pytest.mark.parametrize("product, softmax, other", [(512, 512, 0), (512, 1500, 100), (100, 40, 7)])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("turns", [False, True])
def test_the_model_never_multiplies_twice_at_once(
    drawn: dict[str, Any], overlap: bool, turns: bool, product: int, softmax: int, other: int
) -> None:
    bars = drawn["model"](overlap, turns, product, softmax, other)
    cores = sorted(bar[2:4] for bar in bars if bar[1] in ("QK", "PV"))
    assert all(end <= start for (_, end), (start, _) in zip(cores, cores[1:], strict=False))
    cycles = drawn["per_step"](overlap, turns, product=product, softmax=softmax, other=other)
    alone = product + max(product, softmax) + other if overlap else 2 * product + softmax + other
    assert cycles == pytest.approx(max(4 * product, alone))  # the cores' work for both, or a consumer's own


def test_the_parts_of_a_step_are_the_step(chapter: ModuleType) -> None:
    """Two consumers, steps of 100 cycles, a clock that turns over, and a tile's end that does not count."""
    moments = np.array([0, 10, 30, 35, 75, 80, 88])
    starts = np.array([0, 100, 200, 1200, 1300, 1400])
    run = [((2**32 - 250 + shift + starts[:, None] + moments) % 2**32).tolist() for shift in (0, 40)]
    parts = chapter.parts_of(run)
    assert parts.tolist() == [10, 20, 5, 40, 5, 8, 12] and parts.sum() == 100


@pytest.mark.emulator
def test_clocks_are_in_order(chapter: ModuleType) -> None:
    """Of the emulator's clock: seven moments of each step, of both consumers, and turns that pass to and fro."""
    first, second = (np.array(one) for one in chapter.clocks_of("both", 2, S=640, heads=1, sms=1))
    assert len(first) == len(second) > 10 and first.shape[1] == len(chapter.EVENTS)
    for one in (first, second):
        assert (np.diff(one, axis=1) >= 0).all()


# --- mistakes

NAMED = {
    "scores not waited for": "InFlight",
    "P overwritten": "InFlight",
    "O rescaled under PV": "InFlight",
    "V given back too early": "InFlight",
    "nobody has the first turn": "Deadlock",
    "a turn lost with a skipped block": "Deadlock",
    "the turn passed on before PV is queued": "",
}


@pytest.mark.emulator
@pytest.mark.parametrize("name", NAMED)
def test_mistakes(chapter: ModuleType, name: str) -> None:
    assert chapter.MISTAKES.keys() == NAMED.keys()
    said, out, expected = chapter.emulate(chapter.broken_module(name))
    attentions.assert_named(said, NAMED[name], out, expected)


@pytest.mark.emulator
def test_mistakes_can_be_tried_on_a_gpu(chapter: ModuleType) -> None:
    benchmarks.assert_tried(chapter, "the turn passed on before PV is queued", right=True)


# --- benchmarks


@pytest.mark.emulator
def test_the_benchmarks_measure_every_pair(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small shape; kernels are checked as there, and the controls, whose results are wrong, are only compiled."""
    monkeypatch.setattr(chapter.graphs, "captured", lambda launches: launches[0])
    monkeypatch.setattr(chapter.mistakes, "on_gpu", lambda notebook, names: [])
    kept: list[Any] = []
    monkeypatch.setattr(chapter.records, "write", lambda _, what, content: kept.append(what))
    timed = benchmarks.without_a_clock(chapter, monkeypatch, ours_too=False)
    torch.manual_seed(21)
    monkeypatch.setattr(chapter, "PAPER", {"B": 1, "S": 64, "D": 64})
    monkeypatch.setattr(chapter, "PAIRS", [("21 K6b", "20 K5"), ("overlap, no loads", "cuDNN")])
    assert len(bench.validated(chapter.benchmark(), CHAPTER)) == len(chapter.PAIRS)
    assert timed == [name for name, _ in chapter.PAIRS] and kept == ["mistakes"]
    (row,) = chapter.beside_vendors(1, 64, 64, True, group=4, heads=4, exact=True)
    assert row["group"] == 4 and row["heads"] == 4
    assert 0 < row["ours_error"] < 4e-3 and 0 < row["cuDNN_error"] < 5e-3  # of rounding
    (row,) = chapter.beside_vendors(1, 64, 64, False, window=(20, 3))
    seen = attentions.visible(torch.empty(1, 1, 64, 64), torch.empty(1, 1, 64, 64), False, 0, None, (20, 3))
    assert row["seen"] == "window 20 + 1 + 3" and row["flops"] == 4 * 32 * 64 * int(seen.sum())
    (row,) = chapter.packed_beside_vendors((40, 1, 23), 64)
    assert row["vendor"] == "cuDNN, one by one" and row["flops"] == 2 * 32 * 64 * (40**2 + 1 + 23**2)


PARTS = {"long": 12, "short": 12, "far": 2, "heads": 6, "wide": 10, "windows": 5, "errors": 10}  # shapes of each


@pytest.mark.parametrize("part", PARTS)
def test_every_shape_that_a_part_measures_has_a_kernel(
    chapter: ModuleType, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """A shape that is refused would cost the whole part, and show on a GPU host only."""
    asked: list[Any] = []

    def noted(function: Any) -> Any:
        def call(*given: Any, **named: Any) -> list[bench.Row]:
            bound = signature(function).bind(*given, **named)
            bound.apply_defaults()
            asked.append(bound.arguments)
            return []

        return call

    for name in ("beside_vendors", "packed_beside_vendors"):
        monkeypatch.setattr(chapter, name, noted(getattr(chapter, name)))
    monkeypatch.setattr(chapter.records, "write", lambda *what: None)
    assert getattr(chapter, f"benchmark_{part}")() == [] and len(asked) == PARTS[part]
    for shape in asked:
        queries, window = shape.get("S", sum(shape.get("lengths", ()))), shape.get("window") or (None, None)
        heads = shape.get("heads") or 2048 // shape["D"]
        assert queries in (512, 2048, 4096, 16384, 32768, 65536) or shape.get("exact")
        assert heads % shape.get("group", 1) == 0
        Q, pairs, masked = torch.empty(1, 1, 1, shape["D"]), shape.get("B", 0) * heads, window != (None, None)
        cfg = chapter.choose(shape["D"], queries, queries, pairs, 132, masked, window[0] is not None)
        chapter.refuse_config(Q, window, cfg)


# --- exercises

ANSWERS = """
@cute.jit
def modulo(w):
    following = (w + 1) % 3
    cute.arch.barrier_arrive(barrier_id=TURN + following, number_of_threads=256)


@cute.jit
def by_branch(w):
    if w % 3 == 2:
        cute.arch.barrier_arrive(barrier_id=TURN, number_of_threads=256)
    else:
        cute.arch.barrier_arrive(barrier_id=TURN + 1 + w % 3, number_of_threads=256)


def by_helper(w):
    your_turn(w, 3)


@cute.jit
def backwards(w):
    cute.arch.barrier_arrive(barrier_id=TURN + (w + 2) % 3, number_of_threads=256)


@cute.jit
def of_384(w):
    cute.arch.barrier_arrive(barrier_id=TURN + (w + 1) % 3, number_of_threads=384)


def one_too_far(w):
    your_turn(w + 1, 3)


def by_numpy(p, s, o):
    return np.maximum(4 * p, np.maximum(2 * p, p + s) + o)


def as_tensor(p, s, o):
    return torch.tensor([float(4 * p), float(p + s + o), float(2 * p + o)]).max()


def by_sorting(p, s, o):
    return sorted([4 * p, p + s + o, 2 * p + o])[-1]


def always_cores(p, s, o):
    return 4 * p


def short_softmax_forgotten(p, s, o):
    return max(4 * p, p + s + o)


@cute.jit
def doubled(x):
    n = cutlass.Int32(x)
    n = n - 1 if cutlass.Float32(n) > x else n
    f = x - cutlass.Float32(n)
    p = cutlass.Float32(0.0018775767)
    for c in cutlass.range_constexpr(5):
        p = p * f + (0.0089893397, 0.0558263180, 0.2401536, 0.6931530, 0.9999999)[c]
    scale = ((n + 127) << 23).bitcast(cutlass.Float32)
    return p * scale


def halves(x):
    n = cute.math.floor(x)
    f = (x - n) * 0.6931471805599453
    y = 1.0 + f * (1.0 + f * (0.5 + f * (1.0 / 6 + f * (1.0 / 24 + f * (1.0 / 120)))))
    return y * ((cutlass.Int32(n) + 127) * 8388608).bitcast(cutlass.Float32)


@cute.jit
def by_squaring(x):
    t = x * (0.6931472 / 4096)
    y = 1.0 + t * (1.0 + t * (0.5 + t * (1.0 / 6)))
    for _ in cutlass.range_constexpr(12):
        y = y * y
    return y


@cute.jit
def by_factor(new, top, scale):
    return cute.math.exp2((top - new) * scale, fastmath=True) < 2.0**-8


def by_distance(new, top, scale):
    return new - top > 8.0 / scale


@cute.jit
def by_branch_of_inf(new, top, scale):
    moved = new > top
    if top != -cutlass.Float32.inf:
        moved = new * scale > top * scale + 8.0
    return moved


def without_scale(new, top, scale):
    return new - top > 8.0


def of_one_scale(new, top, scale):
    return new - top > 32.0


def of_other_scale(new, top, scale):
    return new - top > 4.0


def from_the_limit_on(new, top, scale):
    return (new - top) * scale >= 8.0


def by_power(new, top, scale):
    return cute.math.exp2((new - top) * scale) > 256.0


def never(new, top, scale):
    return new * 0.0 > 1.0


@cute.jit
def coarse(x):
    n = cute.math.floor(x)
    return (1.0 + x - n) * ((cutlass.Int32(n) + 127) << 23).bitcast(cutlass.Float32)
"""
KINDS = [*exercises.FUNCTIONS, "nans"]
TEXTS = ["None", "'text'", "np.float64(3)", "float('nan')", "(1, 2)", "nothing", "from_torch"]
CHECKS: dict[str, tuple[list[str], list[str]]] = {  # wrong answers, and right ones
    "check_step": (
        [*TEXTS, "'hgcjidbeaf'", "'hfgcjibdea'", "'hfgcjidbeaa'", "'hfgcjidbe'", "'hfgcjidabe'"],
        ["'hfgcjidbea'", "list('ghfcjidbea')", "'fghcjidbae'", "'H, F, G, C, J, D, B, E, A, I'"],
    ),
    "check_pass_on": ([*KINDS, "backwards", "of_384"], ["modulo", "by_branch", "by_helper"]),
    "check_cycles": (
        [*KINDS, "always_cores", "short_softmax_forgotten", "lambda p, s, o: '9'"],
        ["by_numpy", "as_tensor", "by_sorting"],
    ),
    "check_power": ([*KINDS, "coarse", "cute.math.exp2"], ["doubled", "halves", "by_squaring"]),
    "check_turns": (
        [*TEXTS, "'mhfgcyjidbea'", "'hmfgcyjbieda'", "'mhfgcjbyieda'"],
        ["'mhfgcyjbieda'", "tuple('gmhfcybjieda')", "'fmghcybjidea'", "'m h f g c y b d a i e j'"],
    ),
    "check_slack": (
        [*KINDS, "without_scale", "of_one_scale", "of_other_scale", "from_the_limit_on", "never"],
        ["by_factor", "by_distance", "by_branch_of_inf", "by_power"],
    ),
}


names = exercises.judges_of(CHAPTER, f"import numpy as np\n{ANSWERS}")
test_answers_are_judged = exercises.answers_are_judged(CHECKS)

test_a_hint_names_the_mistake = exercises.wrong_answers_get_hints({
    "check_step('hfgcjidabe')": "only because the compiler moves the conversion to P after the wait",
    "check_step('hjidafgcbe')": "; Look at: warpgroup.wait_group(0) before the accumulators are used",
    "check_pass_on(one_too_far)": "and nothing can wake it: CTA (0, 0, 0), warps [0-3] wait at barrier 5: 128 of 256",
    "check_cycles(always_cores)": "p = 512, s = 2000, o = 0: the model's step is longer",
    "check_cycles(lambda p, s, o: 9999)": "p = 512, s = 512, o = 0: the model's step is shorter",
    "check_turns('mhfgcjbyieda')": "the turn is passed on after a wait",
    "check_turns('mhfgcyjidbea')": "PV runs under the softmax",
    "check_slack(of_one_scale)": "scale 2.0: from top 2 to new 6.0625 the unit moves",
    "check_slack(from_the_limit_on)": "scale 0.25: from top 8 to new 40 the unit stays",
})  # fmt: skip
test_solutions_belong_to_exercises = exercises.solutions_belong_to_exercises(CHAPTER)


def test_the_error_is_that_of_each_output(chapter: ModuleType) -> None:
    """What a function returns, or what it leaves in `out`; an output of NaN has no small error."""
    wanted, out = torch.tensor([3.0, 4.0], dtype=torch.float64), torch.tensor([3.0, 4.5])
    sides = {"ours": lambda: None, "theirs": lambda: torch.tensor([3.0, 5.0])}
    assert chapter.errors_of(sides, out, wanted) == {"ours_error": 0.1, "theirs_error": 0.2}
    assert not chapter.errors_of({"theirs": lambda: torch.full((2,), torch.nan)}, out, wanted)["theirs_error"] < 1
