"""Chapter 23's transform of rows against numpy's float64, its attention, mistakes, benchmark and exercises."""

from __future__ import annotations

import functools
from types import ModuleType

import numpy as np
import pytest
import torch

from cutetut.course import notebooks
from cutetut.inspect.compiled import inspect
from cutetut.measure import bench, mistakes
from tests.chapters import benchmarks, contract, exercises

CHAPTER = "23_fa_incoherent"


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


def sylvester(D: int) -> np.ndarray:
    """The orthogonal Hadamard matrix by Kronecker products."""
    return functools.reduce(np.kron, [np.array([[1.0, 1.0], [1.0, -1.0]])] * (D.bit_length() - 1)) / np.sqrt(D)


def drawn(shape: tuple[int, ...], seed: int = 0, wide: float = 0.0) -> torch.Tensor:
    """Random normal numbers in bfloat16, one of a hundred `wide` times as wide."""
    rng = np.random.default_rng(seed)
    outliers = wide * (rng.random(shape) < 0.01) * rng.standard_normal(shape)
    return torch.from_numpy(rng.standard_normal(shape) + outliers).bfloat16()


@pytest.fixture(scope="module")
def matrices(chapter: ModuleType, device: str) -> dict[int, np.ndarray]:
    """What the kernel multiplies by: it makes its rows of the unit rows, and they are those of a Hadamard matrix."""
    found = {}
    for D in (64, 128, 256):
        units, ones = torch.eye(D)[None, None].bfloat16().to(device), torch.ones(D, device=device).bfloat16()
        numbers = chapter.incoherent(units, ones)[0][0][0, 0].cpu().double().numpy()
        assert (np.abs(numbers) == 448).all()
        found[D] = np.sign(numbers) / np.sqrt(D)
        assert np.allclose(found[D] @ found[D].T, np.eye(D), atol=1e-12)
    return found


def exact(X: torch.Tensor, signs: torch.Tensor, matrix: np.ndarray) -> np.ndarray:
    return np.asarray(X.double().numpy() * signs.cpu().double().numpy() @ matrix)


def assert_rounded(numbers: torch.Tensor, wanted: np.ndarray) -> None:
    """e4m3 numbers within half a step of these, which saturate at 448; NaN fails."""
    off = np.abs(numbers.cpu().double().numpy() - wanted.clip(-448, 448))
    assert (off <= np.maximum((2.0**-4 + 1e-5) * np.abs(wanted), 2.0**-10 + 1e-6)).all()


@pytest.mark.parametrize("D, rows", [(64, 1), (64, 97), (128, 64), (128, 131), (256, 33)])
def test_rows_are_transformed(
    chapter: ModuleType, device: str, matrices: dict[int, np.ndarray], D: int, rows: int
) -> None:
    """Two batches of three heads, with outliers; the largest number of a head becomes 448."""
    X, signs = drawn((2, 3, rows, D), rows, wide=30.0), chapter.random_signs(D)
    (numbers, scale), largest = chapter.incoherent(X.to(device), signs)
    wanted = exact(X, signs, matrices[D])
    tops = np.abs(wanted).max(axis=(2, 3))
    assert np.allclose(largest.cpu().numpy(), tops, rtol=1e-5, atol=0)
    assert np.allclose(scale.cpu().numpy(), tops / 448, rtol=1e-5, atol=0)
    assert_rounded(numbers, wanted / scale.cpu().double().numpy()[..., None, None])


@pytest.mark.parametrize("D", [64, 256])
def test_where_all_is_sent_it_is_the_matrix_of_sylvester(chapter: ModuleType, device: str, D: int) -> None:
    stages = "    butterflies(x, plan.lanes, exchange)\n"
    natural = notebooks.changed(CHAPTER, [(stages, stages.replace("exchange", "across_lanes"))])
    X, signs = drawn((1, 1, 37, D), 3), chapter.random_signs(D)
    (numbers, scale), _ = natural.incoherent(X.to(device), signs)
    assert_rounded(numbers, exact(X, signs, sylvester(D)) / scale.cpu().double().numpy()[..., None, None])


@pytest.mark.parametrize("times", [0.3, 2.0, 500.0])
def test_a_scale_from_before(chapter: ModuleType, device: str, matrices: dict[int, np.ndarray], times: float) -> None:
    """Too large, or so small that numbers saturate; the largest is noted all the same."""
    X, signs = drawn((1, 2, 70, 128), 5), chapter.random_signs(128)
    wanted = exact(X, signs, matrices[128])
    tops = np.abs(wanted).max(axis=(2, 3))
    scale = torch.from_numpy(times * tops / 448).float().to(device)
    (numbers, same), largest = chapter.incoherent(X.to(device), signs, scale)
    assert same is scale and np.allclose(largest.cpu().numpy(), tops, rtol=1e-5, atol=0)
    assert_rounded(numbers, wanted / scale.cpu().double().numpy()[..., None, None])


@pytest.mark.parametrize("times, saturates", [(1, True), (2, False)])
def test_a_scale_from_before_must_be_doubled(
    chapter: ModuleType, device: str, matrices: dict[int, np.ndarray], times: int, saturates: bool
) -> None:
    """As it is, the scale of a batch makes numbers of one that is 1.7 times as wide saturate."""
    before, now, signs = drawn((1, 2, 70, 128), 5), 1.7 * drawn((1, 2, 70, 128), 6), chapter.random_signs(128)
    largest = chapter.incoherent(before.to(device), signs)[1]
    (numbers, scale), _ = chapter.incoherent(now.to(device), signs, times * largest / 448)
    wanted = exact(now, signs, matrices[128]) / scale.cpu().double().numpy()[..., None, None]
    off = np.abs(numbers.cpu().double().numpy() - wanted)
    assert bool((off > 2.0**-10 + (2.0**-4 + 1e-5) * np.abs(wanted)).any()) == saturates


def test_the_largest_of_several_calls_is_kept(
    chapter: ModuleType, device: str, matrices: dict[int, np.ndarray]
) -> None:
    shape, signs = (1, 1, 40, 64), chapter.random_signs(64)
    first, second = drawn(shape, 1), drawn(shape, 2) * 3
    numbers = torch.zeros(shape, dtype=torch.float8_e4m3fn, device=device)
    scale, largest = torch.ones(1, 1, device=device), torch.zeros(1, 1, device=device)
    for X in (first, second, first):
        chapter.prepare(X.to(device), signs, numbers, scale, largest, store=False)()
    assert np.isclose(float(largest), np.abs(exact(second, signs, matrices[64])).max(), rtol=1e-5)
    assert not numbers.cpu().view(torch.uint8).any()  # nothing was stored


def test_a_head_of_zeros_stays_so(chapter: ModuleType, device: str) -> None:
    X = torch.zeros(1, 1, 9, 128, device=device).bfloat16()
    (numbers, scale), largest = chapter.incoherent(X, chapter.random_signs(128))
    assert not numbers.float().any() and float(scale) == 1 and float(largest) == 0


def relative_error(out: torch.Tensor, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, causal: bool = False) -> float:
    q, k, v = (t.double().numpy() for t in (Q, K, V))
    k, v = (np.repeat(t, q.shape[1] // k.shape[1], axis=1) for t in (k, v))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
    if causal:
        scores = np.where(np.tri(*scores.shape[2:]) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(3, keepdims=True))
    wanted = weights / weights.sum(3, keepdims=True) @ v
    return float(np.linalg.norm(out.cpu().double().numpy() - wanted) / np.linalg.norm(wanted))


def test_attention_is_that_of_the_plain_numbers(chapter: ModuleType, device: str) -> None:
    """A head of K for two of Q, causal: chapter 22's options pass through."""
    Q, K, V = drawn((1, 4, 130, 64), 1), drawn((1, 2, 130, 64), 2), drawn((1, 2, 130, 64), 3)
    out, _ = chapter.attention(*(X.to(device) for X in (Q, K, V)), chapter.random_signs(64), causal=True)
    assert relative_error(out, Q, K, V, causal=True) < 0.08


def test_outliers_that_meet_are_spread(chapter: ModuleType, device: str) -> None:
    """A column of both Q and K that is 10 times as large: the transform takes away more than half of the error."""
    Q, K, V = (drawn((1, 1, 200, 128), seed) for seed in (1, 2, 3))
    Q[..., 37], K[..., 37] = 10 * Q[..., 37], 10 * K[..., 37]
    operands = [X.to(device) for X in (Q, K, V)]
    plain = relative_error(chapter.fp8.attention(*(chapter.fp8.quantized(X) for X in operands))[0], Q, K, V)
    transformed = relative_error(chapter.attention(*operands, chapter.random_signs(128))[0], Q, K, V)
    assert transformed < 0.5 * plain and plain < 0.3


def test_what_is_not_supported_is_refused(chapter: ModuleType, device: str) -> None:
    X, signs = torch.ones(1, 2, 8, 128, device=device).bfloat16(), chapter.random_signs(128)
    for arguments, word in (
        ((X.mT, chapter.random_signs(64)), "contiguous"), ((X[..., :32].contiguous(), signs[:32]), "D 64, 128 or 256"),
        ((X[:, :, :0], signs), "contiguous"), ((X, signs[:64]), "each of the 128"), ((X, 2 * signs), "1 or -1"),
        ((X, signs, torch.ones(1, 1, device=device)), "one for each"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=word):
            chapter.incoherent(*arguments)
    for wrong in ((X.float(), signs), (X, signs.float()), (X, signs, torch.ones(1, 2, device=device).double())):
        with pytest.raises(TypeError, match="bfloat16 twice"):
            chapter.incoherent(*wrong)


@pytest.mark.emulator
@pytest.mark.parametrize("D", [64, 128, 256])
def test_the_machine_code_is_as_planned(chapter: ModuleType, D: int) -> None:
    """Loads of 16 bytes, half a shuffle for each number and bit of the lane; nothing spills."""
    plan = chapter.PLANS[D]
    mine, lane_bits = D // plan.lanes, plan.lanes.bit_length() - 1
    X, scale = torch.zeros(1, 1, 8, D), torch.ones(1, 1)
    launch = chapter.prepare(X.bfloat16(), chapter.random_signs(D), X.to(torch.float8_e4m3fn), scale, scale.clone())
    info = inspect(launch.compiled)
    assert info.spills == 0 and info.count("LDG.E.128") == 2 * mine // 8 and info.count("STG.E.64") == mine // 8
    assert info.count("SHFL") == mine * lane_bits // 2 + 10 and info.count("F2FP.SATFINITE.E4M3") == mine // 2


def test_the_chapter_keeps_to_the_contract(chapter: ModuleType) -> None:
    contract.assert_contract(CHAPTER)
    contract.assert_one_idea(chapter.chapter16.kept_kernel, chapter.incoherent_kernel)


# --- mistakes and benchmarks

NAMED = {  # what the emulator says, or the factor by which scores are off
    "a stage is left out": 0.5,
    "nothing is divided by the root of D": 128.0,
    "both halves are sums": 1.0,
    "nobody waits for the warps": "MissingBarrier: load of shared memory",
    "the maximum is no atomic": "MissingBarrier",
}


@pytest.mark.emulator
@pytest.mark.parametrize("name", NAMED)
def test_mistakes(chapter: ModuleType, name: str) -> None:
    assert chapter.MISTAKES.keys() == NAMED.keys()
    said, scores = chapter.emulate(notebooks.changed(CHAPTER, chapter.MISTAKES[name]))
    named = NAMED[name]
    if isinstance(named, str):
        assert said.startswith(named), said
    else:
        error, factor = chapter.verdict(scores, chapter.score_problem()[3])
        assert mistakes.faultless(said) and error > 0.4 and factor == pytest.approx(named, rel=0.06)


@pytest.mark.emulator
def test_without_a_mistake_scores_are_right(chapter: ModuleType) -> None:
    said, scores = chapter.emulate(notebooks.changed(CHAPTER))
    assert mistakes.faultless(said) and chapter.verdict(scores, chapter.score_problem()[3])[0] < 0.05


@pytest.mark.emulator
def test_mistakes_can_be_tried_on_a_gpu(chapter: ModuleType) -> None:
    benchmarks.assert_tried(chapter, "a stage is left out", right=False)


@pytest.mark.emulator
def test_the_benchmark_measures_transform_and_attention(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = benchmarks.without_a_clock(chapter, monkeypatch)
    rows = chapter.transforms(70, 64, B=1, heads=2) + chapter.transforms(70, 256, variants=False, B=1, heads=1)
    rows += chapter.attentions(70, 128, ("known scale", "scale first"), B=1, heads=1)
    assert len(bench.validated(rows, CHAPTER)) == 5
    assert timed == ["transform"] * 3 + ["23, known scale", "23, scale first"]


@pytest.mark.emulator
def test_errors_and_mistakes_are_recorded_beside_the_table(
    chapter: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []
    for function in ("attentions", "transforms"):
        monkeypatch.setattr(chapter, function, lambda *sizes, **named: [sizes[:2]])
    monkeypatch.setattr(chapter, "ERROR_SHAPE", (1, 1, 130, 128))
    monkeypatch.setattr(chapter, "DATA", {"paper": (0.001, 10.0), "a column 10 times": (None, 10.0)})
    monkeypatch.setattr(chapter.mistakes, "on_gpu", lambda name, names, at_once: names)
    monkeypatch.setattr(chapter.records, "write", lambda name, what, content: kept.append((name, what, content)))
    assert chapter.benchmark() == [(16384, 128), (16384, 256), (1024, 128)]
    assert chapter.benchmark_rows() == [(16384, 128), (65536, 128), (16384, 64), (16384, 256)]
    (_, errors, of), (name, what, tried) = kept
    assert (errors, name, what, tried) == ("errors", CHAPTER, "mistakes", list(chapter.MISTAKES))
    assert [entry["data"] for entry in of] == ["paper", "a column 10 times"]
    assert of[1]["transformed"] < of[1]["plain"]


@pytest.mark.emulator
def test_errors_are_those_of_the_numbers(chapter: ModuleType) -> None:
    """bf16 is better than the floor, the floor than what has 8 bits everywhere; the size is that of O."""
    of = chapter.errors(0.0, 0.0, (1, 2, 128, 64))
    operands = chapter.drawn_with(0.0, 0.0, (1, 2, 128, 64))
    wanted = chapter.exact_and_floor(*operands)[0]
    assert of["size"] == pytest.approx(float(wanted.square().mean().sqrt()))
    assert of["bf16"] < 0.3 * of["floor"] < 0.3 * min(of["plain"], of["transformed"]) < 0.03 * of["size"]


# --- exercises

ANSWERS = """
import numpy as np


@cute.jit
def from_the_top(x, lanes):
    top = cute.arch.fmax(x.load().reduce(cute.ReductionOp.MAX, 0.0, 0), -x.load().reduce(cute.ReductionOp.MIN, 0.0, 0))
    for offset in (16, 8, 4, 2, 1):
        if cutlass.const_expr(offset < lanes):
            top = cute.arch.fmax(cute.arch.shuffle_sync_bfly(top, offset), top)
    return top


@cute.jit
def of_the_warp(x, lanes):
    return cute.arch.warp_reduction_max(from_the_top(x, 1))


@cute.jit
def of_eight(x, lanes):
    top = cutlass.Float32(0.0)
    for i in cutlass.range_constexpr(8):
        top = cute.arch.fmax(top, cute.math.absf(x[i]))
    return cute.arch.warp_reduction_max(top, threads_in_group=lanes)


@cute.jit
def in_groups(x, lanes):
    top = cute.arch.fmax(x.load().reduce(cute.ReductionOp.MAX, 0.0, 0), -x.load().reduce(cute.ReductionOp.MIN, 0.0, 0))
    return cute.arch.warp_reduction_max(top, threads_in_group=lanes)


@cute.jit
def without_sign(x, lanes):
    top = x.load().reduce(cute.ReductionOp.MAX, 0.0, 0)
    for stage in cutlass.range_constexpr(lanes.bit_length() - 1):
        top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, offset=1 << stage))
    return top


def negative(signs):
    return -signs * torch.sqrt(torch.tensor(float(len(signs)))) * hadamard(len(signs))[:, -1]


def as_list(signs):
    return negative(signs).clamp(-1, 1).tolist()


def as_array(signs):
    return np.sign(signs.numpy())


def too_large(signs):
    return 2 * signs


@cute.jit
def by_halves(x, step: cutlass.Constexpr):
    quarter = cute.size(x) // 4
    both = cute.make_rmem_tensor(2, cutlass.Float16)
    for i in cutlass.range_constexpr(quarter):
        both[0], both[1] = cutlass.Float16(x[i]), cutlass.Float16(x[i + quarter])
        word = cute.recast_tensor(both, cutlass.Uint32)
        word[0] = cute.arch.shuffle_sync_bfly(word[0], step)
        for k, at in ((0, i), (1, i + quarter)):
            kept = x[at + 2 * quarter]
            x[at], x[at + 2 * quarter] = kept - both[k].to(cutlass.Float32), kept + both[k].to(cutlass.Float32)


@cute.jit
def in_bfloat16(x, step: cutlass.Constexpr):
    half = cute.size(x) // 2
    pair = cute.make_rmem_tensor(2, cutlass.BFloat16)
    bits = cute.recast_tensor(pair, cutlass.Int32)
    for i in cutlass.range_constexpr(0, half, 2):
        for k in cutlass.range_constexpr(2):
            pair[k] = x[i + k + half].to(cutlass.BFloat16)
        bits[0] = cute.arch.shuffle_sync_bfly(bits[0], offset=step)
        for k in cutlass.range_constexpr(2):
            x[i + k], x[i + k + half] = x[i + k] + pair[k].to(cutlass.Float32), x[i + k] - pair[k].to(cutlass.Float32)


@cute.jit
def kept_in_float16(x, step: cutlass.Constexpr):
    for i in cutlass.range_constexpr(cute.size(x)):
        x[i] = x[i].to(cutlass.Float16).to(cutlass.Float32)
    by_halves(x, step)


@cute.jit
def of_32_numbers(x, step: cutlass.Constexpr):
    pair = cute.make_rmem_tensor(2, cutlass.Float16)
    bits = cute.recast_tensor(pair, cutlass.Int32)
    for i in cutlass.range_constexpr(0, 16, 2):
        for k in cutlass.range_constexpr(2):
            pair[k] = x[i + k + 16].to(cutlass.Float16)
        bits[0] = cute.arch.shuffle_sync_bfly(bits[0], offset=step)
        for k in cutlass.range_constexpr(2):
            x[i + k], x[i + k + 16] = x[i + k] + pair[k].to(cutlass.Float32), x[i + k] - pair[k].to(cutlass.Float32)


@cute.jit
def through_one_number(x, step: cutlass.Constexpr):
    half = cute.size(x) // 2
    pair, got = cute.make_rmem_tensor(2, cutlass.Float16), cute.make_rmem_tensor(1, cutlass.Int32)
    two = cute.recast_tensor(got, cutlass.Float16)  # 1:0, as `got`
    for i in cutlass.range_constexpr(0, half, 2):
        for k in cutlass.range_constexpr(2):
            pair[k] = x[i + k + half].to(cutlass.Float16)
        got[0] = cute.arch.shuffle_sync_bfly(cute.recast_tensor(pair, cutlass.Int32)[0], offset=step)
        for k in cutlass.range_constexpr(2):
            other = two[k].to(cutlass.Float32)
            x[i + k], x[i + k + half] = x[i + k] + other, x[i + k] - other


@cute.jit
def nothing_sent(x, step: cutlass.Constexpr):
    pass


@cute.jit
def same_twice(x, step: cutlass.Constexpr):
    half = cute.size(x) // 2
    for i in cutlass.range_constexpr(half):
        other = cute.arch.shuffle_sync_bfly(x[i], offset=step)
        x[i], x[i + half] = x[i] + other, x[i] - other


def by_transpose(O, signs):
    return signs * (O @ hadamard(len(signs)).T)


def as_numpy(O, signs):
    return O.numpy() @ hadamard(len(signs)).numpy() * signs.numpy()


def in_float32(O, signs):
    return (O @ hadamard(len(signs)) * signs).float()


def signs_first(O, signs):
    return O * signs @ hadamard(len(signs))
"""
KINDS = [*exercises.FUNCTIONS, "nans"]
CHECKS: dict[str, tuple[list[str], list[str]]] = {  # wrong answers, and right ones
    "check_largest": ([*KINDS, "of_the_warp", "without_sign", "of_eight"], ["from_the_top", "in_groups"]),
    "check_worst": (
        [*KINDS, "too_large", "lambda signs: 0 * signs", "lambda signs: 1j * signs"],
        ["negative", "as_list", "as_array"],
    ),
    "check_packed": (
        [*KINDS, "across_lanes", "exchange", "nothing_sent", "same_twice", "in_bfloat16", "kept_in_float16"]
        + ["of_32_numbers"],
        ["by_halves"],
    ),
    "check_restore": ([*KINDS, "signs_first", "lambda O, signs: O"], ["by_transpose", "as_numpy", "in_float32"]),
}


names = exercises.judges_of(CHAPTER, ANSWERS)
test_answers_are_judged = exercises.answers_are_judged(CHECKS)
test_wrong_answers_get_hints = exercises.wrong_answers_get_hints(
    {
        "check_shuffles(16, 2, 12.54e12)": "these are bytes a second: the rate is in TB/s",
        "check_shuffles(16, 2, 5.5)": "the rate is in TB/s, and ",
        "check_shuffles(16, 10**12, 5.5)": "each stage between lanes costs a shuffle",
        "check_largest(without_sign)": ", of a negative number",
        "check_largest(of_the_warp)": "4 lanes to a row: lane 0 has ",
        "check_largest(nans)": "",
        "check_largest(of_eight)": "of its row of 32 numbers is ",
        "check_shuffles(8, 1.5, 12.54)": "8 lanes with 16 numbers each are not a row of 256",
        "check_worst(nothing)": "for 64 signs the answer is 64 numbers from -1 to 1",
        "check_packed(kept_in_float16)": "random rows are off by 3.",
        "check_restore(nothing)": "D = 64: the answer is a tensor like O",
        "check_worst(lambda signs: 1 // 0)": "your function raises ZeroDivisionError: ",
        "check_packed(through_one_number)": "not orthogonal; if you read an Int32 as two Float16, print the layout",
        "check_restore(signs_first)": "what was done to V last has to be undone first",
        "check_restore(lambda O, signs: O @ hadamard(len(signs)))": ", and the sign of its column is -1",
        "check_restore(lambda O, signs: O[0])": "O is (2, 9, 64), and your answer (9, 64)",
        "check_restore(lambda O, signs: O * float('nan'))": "element (0, 0, 0) is nan and not ",
        "check_restore(lambda O: O)": "your function raises TypeError: ",
    }
)


@pytest.mark.emulator
@pytest.mark.parametrize(
    "answer, right",
    [("16, 2, 12.54", True), ("16.0, np.int64(2), 12.5", True), ("8, 2, 12.54", False), ("16, 4, 6.27", False)]
    + [("16, 2, 4.1", False), ("None, 2, 12.54", False), ("16, 2, float('nan')", False), ("16, '2', 12.54", False)],
)
def test_numbers_are_judged(names: dict, capsys: pytest.CaptureFixture[str], answer: str, right: bool) -> None:
    exercises.assert_judged("check_shuffles", [answer], right, names, capsys)


test_solutions_belong_to_exercises = exercises.solutions_belong_to_exercises(CHAPTER)
