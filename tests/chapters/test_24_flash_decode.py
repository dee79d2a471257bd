"""Chapter 24's flash decode against float64, its rungs and mistakes, and what its exercises say of answers."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend

from cutetut.course import notebooks
from cutetut.inspect.compiled import inspect
from cutetut.measure import bench, mistakes
from tests.chapters import benchmarks, contract, exercises

CHAPTER = "24_flash_decode"
Tensors = list[torch.Tensor]


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


def random(rng: np.random.Generator, device: str, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape)).to(dtype).to(device)


def cache(
    rng: np.random.Generator, device: str, B: int, heads: int, group: int, S: int, D: int = 64, factor: float = 1.0
) -> Tensors:
    """Q (B, H, D), K and V (B, heads, S, D), random normal; Q and K times the factor."""
    Q, K, V = random(rng, device, B, heads * group, D), *(random(rng, device, B, heads, S, D) for _ in range(2))
    return [factor * Q, factor * K, V]


def exact(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, lengths: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Attention of each query head to the first keys, in numpy's float64: 0 and -inf for none."""
    q, k, v = (t.double().cpu().numpy() for t in (Q, K, V))
    out, lse = np.zeros_like(q), np.full(q.shape[:2], -np.inf)
    group = q.shape[1] // k.shape[1]
    for (b, h), n in ((place, lengths[place[0]]) for place in np.ndindex(q.shape[:2])):
        if n:
            scores = k[b, h // group, :n] @ q[b, h] / np.sqrt(q.shape[2])
            weights = np.exp(scores - scores.max())
            out[b, h] = weights @ v[b, h // group, :n] / weights.sum()
            lse[b, h] = scores.max() + np.log(weights.sum())
    return out, lse


def assert_exact(found: tuple[torch.Tensor, torch.Tensor], expected: tuple[np.ndarray, np.ndarray]) -> None:
    """A NaN fails; weights and results were rounded to 16 bits."""
    out, lse = (t.double().cpu().numpy() for t in found)
    assert (np.abs(out - expected[0]) <= 4e-3 + 2**-8 * np.abs(expected[0])).all()
    assert (np.isneginf(lse) == np.isneginf(expected[1])).all()
    finite = np.isfinite(expected[1])
    assert np.allclose(lse[finite], expected[1][finite], rtol=2e-6, atol=2e-5)


def hidden(K: torch.Tensor, V: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """NaN behind the lengths; returns them as the kernel has them."""
    for b, length in enumerate(lengths):
        K[b, :, length:], V[b, :, length:] = torch.nan, torch.nan
    return torch.tensor(lengths, dtype=torch.int32, device=K.device)


def paged(rng: np.random.Generator, K: torch.Tensor, V: torch.Tensor, lengths: list[int], page: int) -> Tensors:
    """K and V in pages in any order, other pages NaN, and a table with pages that do not exist behind the last."""
    B, heads, S, D = K.shape
    most = -(-S // page)
    numbers = rng.permutation(B * most + 2)
    pages = [torch.full((len(numbers), heads, page, D), torch.nan, dtype=K.dtype, device=K.device) for _ in range(2)]
    table = torch.full((B, most), 2**30, dtype=torch.int32)
    for b, length in enumerate(lengths):
        for i in range(-(-length // page)):
            table[b, i] = int(numbers[b * most + i])
            for target, source in zip(pages, (K, V), strict=True):
                piece = source[b, :, i * page : (i + 1) * page]
                target[int(table[b, i]), :, : piece.shape[1]] = piece
    return [*pages, table.to(K.device)]


@pytest.mark.parametrize(
    ("lengths", "heads", "group", "D", "splits", "dtype"),
    [
        ([0, 1, 33], 2, 4, 64, 3, torch.bfloat16),
        ([130], 1, 1, 64, 1, torch.float16),
        ([65, 128], 1, 9, 64, 2, torch.bfloat16),
        ([150, 31], 1, 4, 128, 7, torch.bfloat16),
    ],
)
def test_decode(
    chapter: ModuleType, rng: np.random.Generator, device: str, lengths: list[int], heads: int, group: int, D: int,
    splits: int, dtype: torch.dtype,
) -> None:  # fmt: skip
    Q, K, V = (t.to(dtype) for t in cache(rng, device, len(lengths), heads, group, max(lengths) + 3, D))
    known = hidden(K, V, lengths)
    assert_exact(chapter.decode(Q, K, V, known, splits=splits), exact(Q, K, V, lengths))


@pytest.mark.parametrize("page", [16, 48, 64])
def test_pages(chapter: ModuleType, rng: np.random.Generator, device: str, page: int) -> None:
    """Pages of fewer keys than a block, of one and a half, and of two; the table ends with the last page."""
    lengths = [100, 0, 17]
    Q, K, V = cache(rng, device, 3, 1, 4, 100)
    known = hidden(K, V, lengths)
    *pages, table = paged(rng, K, V, lengths, page)
    assert_exact(chapter.decode(Q, *pages, known, table, splits=2), exact(Q, K, V, lengths))


def test_a_cache_with_the_heads_inside(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    Q, K, V = cache(rng, device, 2, 2, 4, 70)
    inside = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (K, V)]
    known = torch.tensor([70, 40], dtype=torch.int32, device=device)
    assert_exact(chapter.decode(Q, *inside, known), exact(Q, K, V, [70, 40]))


def test_large_scores_and_a_nan(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    """Exponentials that overflow without their maximum; a query that is NaN spoils its own result, and no other."""
    Q, K, V = cache(rng, device, 1, 1, 4, 100, factor=12.0)
    known = torch.tensor([100], dtype=torch.int32, device=device)
    assert_exact(chapter.decode(Q, K, V, known, splits=2), exact(Q, K, V, [100]))
    Q[0, 2, 5] = torch.nan
    out, lse = chapter.decode(Q, K, V, known, splits=2)
    assert out[0].isnan().all(1).tolist() == lse[0].isnan().tolist() == [False, False, True, False]


def test_launches_one_after_the_other(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    """The counters are back at 0, whatever the lengths have become."""
    Q, K, V = cache(rng, device, 2, 1, 4, 100)
    known = torch.tensor([100, 3], dtype=torch.int32, device=device)
    launch, *found = chapter.prepared(Q, K, V, known, splits=3)
    for lengths in ([100, 3], [0, 100], [64, 64]):
        known.copy_(torch.tensor(lengths))
        found[0].fill_(torch.nan)
        launch()
        assert_exact(found, exact(Q, K, V, lengths))


@pytest.mark.parametrize("rung", ["one", "split", "ring"])
def test_every_rung(chapter: ModuleType, rng: np.random.Generator, device: str, rung: str) -> None:
    Q, K, V = cache(rng, device, 2, 1, 4, 150)
    lengths = [150, 30]
    known, splits = hidden(K, V, lengths), 1 if rung == "one" else 2
    (out, lse), arguments = chapter.rung_arguments(Q.view(2, 1, 4, 64), K, V, known, splits)
    arguments = [*arguments[:5], *arguments[8:]] if rung == "one" else arguments
    plan = chapter.Plan(warps=2, stages=2 if rung == "ring" else 1)
    chapter.cute.compile(getattr(chapter, f"{rung}_launch"), *arguments, plan)(*arguments)
    assert_exact((out.flatten(1, 2), lse.flatten(1, 2)), exact(Q, K, V, lengths))


def test_plans_fit_an_sm(chapter: ModuleType) -> None:
    for group, D in ((16, 128), (1, 64)):
        plan = chapter.choose(group, D)
        assert plan.stages >= 3
        Q, K = torch.zeros(1, group, D).bfloat16(), torch.zeros(1, 1, 32, D).bfloat16()
        launch, *_ = chapter.prepared(Q.to(chapter.cutetut.device), *(K.to(chapter.cutetut.device),) * 2,
                                      torch.ones(1, dtype=torch.int32, device=chapter.cutetut.device))  # fmt: skip
        info = inspect(chapter._compiled[torch.bfloat16, D, plan])
        assert launch and info.spills == 0 and info.shared_bytes is not None and info.shared_bytes <= chapter.SHARED
    assert chapter.split_count(8, 131072, chapter.Plan()) == 16
    assert chapter.split_count(512, 4096, chapter.Plan()) == 1
    assert chapter.split_count(1, 129, chapter.Plan()) == 2  # a block for each warp


def test_what_is_refused(chapter: ModuleType) -> None:
    q, k, n = torch.ones(2, 4, 64).bfloat16(), torch.ones(2, 2, 48, 64).bfloat16(), torch.ones(2, dtype=torch.int32)
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: chapter.decode(q.float(), k, k, n), "all must be bfloat16"),
        (lambda: chapter.decode(q, k, k.half(), n), "all must be bfloat16"),
        (lambda: chapter.decode(q, k, k[:, :1], n), "not .B, H, D."),
        (lambda: chapter.decode(q[0], k, k, n), "not .B, H, D."),
        (lambda: chapter.decode(q, k[:, :, :0], k[:, :, :0], n), "not .B, H, D."),
        (lambda: chapter.decode(q[..., :32], k[..., :32], k[..., :32], n), "heads of 32"),
        (lambda: chapter.decode(q[:, :3], k, k, n), "3 query heads for 2 heads of keys"),
        (lambda: chapter.decode(q.repeat(1, 9, 1), k, k, n), "1 to 16 must share one"),
        (lambda: chapter.decode(q, k.mT.contiguous().mT, k, n), "must lie together"),
        (lambda: chapter.decode(q, k, k, n.long()), "int32"),
        (lambda: chapter.decode(q, k, k, n[:1]), "an entry for each of the batch"),
        (lambda: chapter.decode(q, k[:1], k[:1], n), "as many entries as Q"),
        (lambda: chapter.decode(q, k, k, n[:, None]), "lengths must be .B,."),
        (lambda: chapter.decode(q, k, k, n, n), "most pages"),
        (lambda: chapter.decode(q, k[:, :, :24], k[:, :, :24], n, n[:, None]), "pages of 24"),
    ]
    for call, text in cases:
        with pytest.raises((TypeError, ValueError), match=text):
            call()


def test_the_chapter_keeps_to_the_contract(chapter: ModuleType) -> None:
    kernels = [getattr(chapter, f"{name}_kernel") for name in ("one", "split", "ring", "decode")]
    for before, after in zip(kernels, kernels[1:], strict=False):
        contract.assert_one_idea(before, after)
    contract.assert_contract(CHAPTER)
    exercises.assert_paired(CHAPTER)


SAYS = {
    "the addition neither releases nor acquires": "MissingBarrier: load of byte",
    "a CTA does not meet before it arrives": "MissingBarrier: load of byte",
    "lanes do not meet before the slot is filled": "MissingBarrier: store to shared memory",
}
WRONG = {  # rows of O, (batch entry, head), that are wrong; True where they are NaN
    "": ([], False),
    "parts are averaged": ([0], False),
    "an empty part is divided by its total": ([1], True),
    "the page is one too far": ([0], True),
    "scores behind the last key count": ([0], True),
    "values behind the last key stay": ([0], True),
}
AGAIN = "the counter is not set back"


@pytest.mark.emulator
@pytest.mark.parametrize("name", [*SAYS, *WRONG, AGAIN])
def test_mistakes(chapter: ModuleType, name: str) -> None:
    assert {*chapter.MISTAKES} | {""} == {*SAYS, *WRONG, AGAIN}
    module = chapter.planted(name) if name else chapter
    room, expected = chapter.small("cpu")

    def report() -> str:
        room[3].fill_(torch.nan)
        return mistakes.report(module.decode_launch, *room, 0.125, chapter.cuda.CUstream(0), chapter.PAGED)

    said = report()
    if name in SAYS:
        assert said.startswith(SAYS[name]), said
        return
    assert mistakes.faultless(said)
    if name == AGAIN:
        assert chapter.correct(room, expected) and mistakes.faultless(report()) and room[3].isnan().all()
        return
    bad = ~((room[3].double() - expected[0]).abs() <= 1e-2)
    entries, nan = WRONG[name]
    assert bad.flatten(1).any(1).nonzero()[:, 0].tolist() == entries
    assert bool(room[3].isnan().any()) is nan and chapter.correct(room, expected) is (not entries)


@pytest.mark.emulator
def test_mistakes_can_be_tried_on_a_gpu(chapter: ModuleType) -> None:
    launch, right = chapter.attempt(AGAIN)
    for outcome in (True, False):
        launch()
        assert right() is outcome


@pytest.mark.emulator
def test_the_benchmark_measures_every_shape_and_rung(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SHAPES": {(1, 1): 40, (2, 1): 33}, "LONG": (1, 1), "HEAD": 64, "PAGES": (16,)}.items():
        monkeypatch.setattr(chapter, name, value)
    monkeypatch.setattr(chapter, "BACKENDS", {"cuDNN": SDPBackend.MATH})
    monkeypatch.setattr(chapter, "STAGES", (2,))
    timed = benchmarks.without_a_clock(chapter, monkeypatch)
    rows = bench.validated(chapter.benchmark(), CHAPTER)
    slow = ["24 one CTA", "24 split", "24 slots: 2", "24 4 x the CTAs"]
    assert timed == [*slow, *["24 flash decode", "24 pages of 16"] * 2]
    assert {row["keys"] for row in rows if row["kernel"] == "24 flash decode"} == {40, 33}
    assert all(row["flops"] == 2 * 2 * row["B"] * row["Hk"] * row["keys"] * 64 for row in rows)


# --- exercises

ANSWERS = """
import numpy as np


def nan_part(a, b):
    return a[0] * float("nan"), a[1]


def first_part(a, b):
    return a[0], a[1]


def zero_part(a, b):
    return a[0] * 0.0, a[1] * 0.0


@cute.jit
def unguarded(a, b):
    top = cute.arch.fmax(a[1], b[1])
    of_a, of_b = rows.power(a[1] - top), rows.power(b[1] - top)
    return (a[0] * of_a + b[0] * of_b) / (of_a + of_b), top + cute.math.log(of_a + of_b)


@cute.jit
def by_sigmoid(a, b):
    out, lse = a[0], a[1]
    if b[1] > a[1]:
        out, lse = b[0], b[1]
    share = rows.power(rows.finite(cute.arch.fmin(a[1], b[1])) - lse)
    if a[1] == -cutlass.Float32.inf or b[1] == -cutlass.Float32.inf:
        share = cutlass.Float32(0.0)
    other = a[0] + b[0] - out
    return (out + share * other) / (1.0 + share), lse + cute.math.log(1.0 + share)


@cute.jit
def as_a_list(a, b):
    return list(by_weight(b, a))


@cute.jit
def in_powers_of_two(a, b):
    top = rows.finite(cute.arch.fmax(a[1], b[1]))
    of_a, of_b = (cute.math.exp2((each[1] - top) * rows.LOG2E) for each in (a, b))
    total = of_a + of_b
    safe = cutlass.Float32(1.0) if total == 0.0 else total
    return (a[0] * of_a + b[0] * of_b) / safe, top + cute.math.log2(total) / rows.LOG2E


def gather(value):
    @cute.kernel
    def kernel(mPages: cute.Tensor, mTable: cute.Tensor, mLengths: cute.Tensor, mOut: cute.Tensor):
        d, _, _ = cute.arch.thread_idx()
        key, b, _ = cute.arch.block_idx()
        value(mPages, mTable, mLengths, mOut, d, key, b)

    return kernel


@cute.jit
def turned(mPages, mTable, mLengths, mOut, d, key, b):
    if key >= mLengths[b]:
        mOut[b, key, d] = cutlass.Float32(-1.0)
    else:
        mOut[b, key, d] = mPages[mTable[b, key // 5], key - key // 5 * 5, d]


@cute.jit
def first_filled(mPages, mTable, mLengths, mOut, d, key, b):
    mOut[b, key, d] = cutlass.Float32(-1.0)
    if mLengths[b] > key:
        page = mTable[b, key // mPages.shape[1]]
        mOut[b, key, d] = mPages[page, key % mPages.shape[1], d]


@cute.jit
def flat_offset(mPages, mTable, mLengths, mOut, d, key, b):
    value = cutlass.Float32(-1.0)
    if key < mLengths[b]:
        value = (mPages.iterator + (mTable[b, key // 5] * 5 + key % 5) * 32 + d).load()
    mOut[b, key, d] = value


@cute.jit
def unlooked(mPages, mTable, mLengths, mOut, d, key, b):
    mOut[b, key, d] = mPages[b * 3 + key // 5, key % 5, d]


@cute.jit
def one_too_far(mPages, mTable, mLengths, mOut, d, key, b):
    value = cutlass.Float32(-1.0)
    if key < mLengths[b]:
        value = mPages[mTable[b, (key + 1) // 5], key % 5, d]
    mOut[b, key, d] = value


@cute.jit
def not_a_number(mPages, mTable, mLengths, mOut, d, key, b):
    mOut[b, key, d] = cutlass.Float32(float("nan"))


def sums(add, reset, atomic=False):
    @cute.kernel
    def kernel(mX: cute.Tensor, mPart: cute.Tensor, mCount: cute.Tensor, mY: cute.Tensor):
        lane, (cta, _, _) = cute.arch.lane_idx(), cute.arch.block_idx()
        ctas = mX.shape[0]
        mine = cute.arch.warp_reduction_sum(mX[cta, lane])
        if lane == 0:
            mPart[cta] = mine
            if add(mCount) == ctas - 1:
                total = cutlass.Float32(0.0)
                for other in cutlass.range_constexpr(ctas):
                    total += mPart[ctas - 1 - other]
                mY[0] = total
                if cutlass.const_expr(reset == "stored"):
                    mCount[0] = 0
                elif cutlass.const_expr(reset == "subtracted"):
                    cute.arch.atomic_add(mCount.iterator, cutlass.Int32(-ctas))

    return kernel


def ordered(mCount):
    return cute.arch.atomic_add(mCount.iterator, cutlass.Int32(1), sem="acq_rel", scope="gpu")


@cute.jit
def by_fences(mCount):
    cute.arch.fence_acq_rel_gpu()
    before = cute.arch.atomic_add(mCount.iterator, cutlass.Int32(1))
    cute.arch.fence_acq_rel_gpu()
    return before


def system_wide(mCount):
    return cute.arch.atomic_add(mCount.iterator, cutlass.Int32(1), sem="acq_rel", scope="sys")


def only_released(mCount):
    return cute.arch.atomic_add(mCount.iterator, cutlass.Int32(1), sem="release", scope="gpu")


@cute.kernel
def of_one_cta(mX: cute.Tensor, mPart: cute.Tensor, mCount: cute.Tensor, mY: cute.Tensor):
    mY[0] = cute.arch.warp_reduction_sum(mX[0, cute.arch.lane_idx()])
"""
OTHER = [*exercises.OTHER, "lambda A, B: A @ B.T", "torch.ones(3, 3)"]
CHECKS: dict[str, tuple[list[str], list[str]]] = {  # wrong answers, and right ones
    "check_splits": (
        ["7, 0, 27", "5, 20, 38", "6, 7, 32", "6, 8, 31", "0, 80, 188", "-6, 8, 32", "10**30, 8, 32",
         *(f"{x}, 8, 32" for x in exercises.NUMBERS), *(f"6, 8, {x}" for x in exercises.NUMBERS)],
        ["6, 8, 32", "np.int64(6), 8.0, torch.tensor(32)", "np.float32(6), np.uint8(8), np.array([32])"],
    ),
    "check_average": (
        [*(f"{x}, [0.0]" for x in exercises.OTHER), *(f"[0.0, 0.0], {x}" for x in exercises.OTHER), "[0.0], [0.0]",
         "[], [1.0]", "[1.0, 1.0], [1.0]", "['0', '0'], [0.7]", "torch.ones(3, 3), [0.0]", "[math.inf, 0.0], [0.0]",
         "lambda A, B: A @ B.T, [0.0]"],
        ["[0.0, 0.0], [math.log(2)]", "np.zeros(4), torch.full((2,), math.log(2))",
         "(math.log(0.25),) * 3, [math.log(0.75)]"],
    ),
    "check_merge_two": (
        [*OTHER, "nan_part", "first_part", "zero_part", "unguarded", "merge_two"],
        ["by_sigmoid", "as_a_list", "in_powers_of_two"],
    ),
    "check_gather": (
        [*OTHER, "gather(unlooked)", "gather(one_too_far)", "gather(not_a_number)", "gather_kernel"],
        ["gather(turned)", "gather(first_filled)", "gather(flat_offset)"],
    ),
    "check_sum": (
        [*OTHER, "sums(ordered, '')", "sums(only_released, 'stored')", "of_one_cta", "sum_kernel"],
        ["sums(ordered, 'subtracted')", "sums(by_fences, 'stored')", "sums(system_wide, 'stored')"],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The checks, what they use, and answers that are functions."""
    cells = ("ex3", "ex3-solution", "ex4", "ex5")
    given = "\n\n\n".join(notebooks.definitions(exercises.cell(CHAPTER, name)) for name in cells)
    return exercises.judges(CHAPTER, tmp_path_factory.mktemp(CHAPTER), f"{given}\n{ANSWERS}")


test_answers_are_judged = exercises.answers_are_judged(CHECKS)
