"""Chapter 24's flash decode against float64, its rungs and mistakes, and what its exercises say of answers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
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
    "lanes do not meet before the slot is filled": "warning: store to shared memory",
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


@pytest.fixture
def small(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The chapter with small shapes and no clock; what its benchmarks time is listed."""
    for name, value in {"SHAPES": {(1, 1): 128, (2, 1): 64}, "LONG": (1, 1), "HEAD": 64, "STAGES": (2,)}.items():
        monkeypatch.setattr(chapter, name, value)
    monkeypatch.setattr(chapter, "PAGES", (16,))
    monkeypatch.setattr(chapter, "BACKENDS", {"cuDNN": SDPBackend.MATH})
    return benchmarks.without_a_clock(chapter, monkeypatch)


@pytest.mark.emulator
def test_the_benchmark_measures_every_shape_and_rung(
    chapter: ModuleType, small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[tuple[Any, ...]] = []
    monkeypatch.setattr(chapter.mistakes, "on_gpu", lambda notebook, names, at_once: [notebook, *names])
    monkeypatch.setattr(chapter.records, "write", lambda *what: kept.append(what))
    rows = bench.validated(chapter.benchmark(), CHAPTER)
    slow = ["24 one CTA", "24 split", "24 slots: 2", "24 4 x the CTAs"]
    assert small == [*slow, *["24 flash decode"] * 2]
    assert {row["keys"] for row in rows if row["kernel"] == "24 flash decode"} == {128, 64}
    assert all(row["flops"] == 2 * 2 * row["B"] * row["Hk"] * row["keys"] * 64 for row in rows)
    assert kept == [(CHAPTER, "mistakes", [CHAPTER, *chapter.MISTAKES])]


@pytest.mark.emulator
def test_pages_are_measured_beside_none_and_their_reasons_tried(chapter: ModuleType, small: list[str]) -> None:
    """Each is checked against float64 before it is timed, also in the emulator."""
    rows = bench.validated(chapter.benchmark_pages(), CHAPTER)
    slots = "of 16, 4 warps of two slots", *(f"of 16{how}, 4 warps of three slots" for how in ("", ", waited for"))
    in_order = [f"of 16, sorted, {how}" for how in ("8 warps of one slot", "4 warps of three slots")]
    tried = [*slots, *in_order, "of 16, sorted, no table, 4 warps of three slots"]
    assert small == [*["24 pages of 16"] * 2, *(f"24 pages {how}" for how in tried), "24 no hint for L2"]
    assert [row["B"] for row in rows] == [1, 2, *[1] * 7]
    assert {row["vendor"] for row in rows} == {"without pages"}


@pytest.mark.emulator
def test_what_the_tried_kernels_differ_in(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    """Requests of a block of K and V: four of half a row each, twice as many from pages of 16; a hint, or none."""
    Q, K, V = cache(rng, device, 1, 1, 4, 64, 128)
    known = torch.tensor([64], dtype=torch.int32, device=device)
    unhinted = notebooks.changed(CHAPTER, chapter.VARIANTS["no hint for L2"])
    requests, hints = [], []
    for module, page in ((chapter, 0), (chapter, 16), (chapter, 64), (unhinted, 0)):
        plan = module.choose(4, 128, page)
        given = [*paged(rng, K, V, [64], page)] if page else [K, V]
        module.prepared(Q, *given[:2], known, *given[2:], plan=plan)
        info = inspect(module._compiled[torch.bfloat16, 128, plan])
        requests.append(info.count("UTMALDG") / (plan.stages + 1))  # in front of the loop, a block per slot; in it, one
        hints.append(str(chapter.EVICT_FIRST) in info.ptx)
    assert requests == [4, 8, 4, 4] and hints == [True, True, True, False]
    pages = chapter.sorted_pages(K, V, 16)
    assert pages[2].tolist() == [[0, 1, 2, 3]]
    assert_exact(chapter.decode(Q, *pages[:2], known, pages[2]), exact(Q, K, V, [64]))
    unread = torch.full_like(pages[2], 1 << 20)
    computed = notebooks.changed(CHAPTER, chapter.VARIANTS["no table"])
    assert_exact(computed.decode(Q, *pages[:2], known, unread), exact(Q, K, V, [64]))


def test_the_plan_leaves_a_block_under_way_for_every_warp(chapter: ModuleType) -> None:
    """With pages eight warps of few slots: 128 KiB, as much as four warps of two have, and a part for each warp."""
    for group, D, page in itertools.product((1, 4, 16), (64, 128), (0, 16, 64, 256)):
        plan = chapter.choose(group, D, page)
        ring = plan.warps * plan.stages * 4 * plan.keys * D
        assert (plan.warps, plan.page) == (8 if page else 4, page)
        assert 64 << 10 <= ring <= chapter.SHARED - plan.warps * group * 4 * (D + 1)
        assert plan.stages <= 2 or not page


@pytest.mark.emulator
def test_a_turn_waits_for_its_keys_before_it_waits_for_the_table(
    chapter: ModuleType, rng: np.random.Generator, device: str
) -> None:
    """By the machine code: a number that all lanes share would go into a uniform register, in front of that wait."""
    Q, K, V = cache(rng, device, 1, 1, 4, 64, 128)
    known, plan = torch.tensor([64], dtype=torch.int32, device=device), replace(chapter.choose(4, 128), page=16)
    found = {}
    for name, module in (("late", chapter), ("first", notebooks.changed(CHAPTER, chapter.VARIANTS["waited for"]))):
        pages = paged(rng, K, V, [64], 16)
        module.prepared(Q, *pages[:2], known, pages[2], plan=plan)
        code = inspect(module._compiled[torch.bfloat16, 128, plan]).sass
        wait = code.index("SYNCS.PHASECHK")
        load = list(re.finditer(r"LDG\.E (R\d+),", code[:wait]))[-1]
        found[name] = bool(re.search(rf"(SHFL|R2UR).*\b{load[1]}\b", code[load.end() : wait]))
    assert found == {"late": False, "first": True}


def sustained(part: str = "") -> dict[tuple[str, int], dict[str, Any]]:
    """The recorded sustained rows by kernel and batch."""
    rows = bench.read(CHAPTER, part)["rows"]
    return {(row["kernel"], row["B"]): row for row in rows if row["method"].startswith("sustained")}


def test_the_prose_says_what_was_measured() -> None:
    """A table that is recorded again may differ by a percent; where it differs more, the text has to change."""
    rows = sustained()
    prose = {cell.id: " ".join(cell.source.split()) for cell in notebooks.read(CHAPTER).cells}
    last, first = rows["24 flash decode", 1], rows["24 one CTA", 1]
    told = [float(number) for number in re.findall(r"(\d\.\d\d)\b", prose["stake-md"])]
    measured = [first["ours_tflops"], last["ours_tflops"], last["vendor_tflops"]]
    assert told == pytest.approx(measured, rel=0.015)
    speed = {kernel: row["ours_tflops"] / last["ours_tflops"] for (kernel, batch), row in rows.items() if batch == 1}
    assert 0.97 < speed["24 split"] < 0.99 and "The ring gains 1 to 2 percent" in prose["verdict-md"]
    assert 0.915 < speed["24 4 x the CTAs"] < 0.935 and "cost 7 to 8 percent" in prose["verdict-md"]
    level = [batch for (kernel, batch), row in rows.items() if kernel == "24 flash decode" and row["ratio"] < 1]
    assert level == [64] and "the only shape at which we are not ahead of cuDNN, but level" in prose["verdict-md"]
    pages = {kernel: row["ratio"] for (kernel, batch), row in sustained("pages").items() if batch == 1}
    plain = {f"24 pages of {page}" for page in (16, 64, 256)}
    every = [row["ratio"] for (kernel, _), row in sustained("pages").items() if kernel in plain]
    assert len(every) == 12 and min(every) > 0.97 and "97.5 percent" in prose["verdict-md"]
    kinds = ("", ", sorted", ", sorted, no table", ", waited for")
    said = [pages[f"24 pages of 16{kind}, 4 warps of three slots"] for kind in kinds]
    said += [pages["24 pages of 16"], pages["24 pages of 16, 4 warps of two slots"]]
    reason = prose["verdict-md"].partition("### What slows")[2]
    told = [float(number) for number in re.findall(r"(\d\.\d\d\d)\b", reason)]
    assert told == pytest.approx(said, abs=0.01)
