"""Chapter 11's copies, probes and exercises: exact copies of any shape, CuTe's layouts, faults with their lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut.course import notebooks
from cutetut.inspect.compiled import inspect
from cutetut.measure import bench, mistakes
from tests.chapters import benchmarks, contract, exercises
from tests.chapters.exercises import FUNCTIONS, NUMBERS
from tests.chapters.products import normal

CHAPTER = "11_tma"
F16, BF16 = torch.float16, torch.bfloat16


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


def launched(chapter: ModuleType, launch: Any, *arguments: Any) -> Any:
    """Compile and run a launch function on tensors and constants; returns what was compiled."""
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    given = [chapter.from_dlpack(a, assumed_align=16) if isinstance(a, torch.Tensor) else a for a in arguments]
    compiled = chapter.cute.compile(launch, *given)
    compiled(*(chapter.from_dlpack(t, assumed_align=16) for t in tensors))
    return compiled


@pytest.mark.parametrize(("dtype", "stages", "ctas"), [(BF16, 1, 3), (F16, 2, 1), (BF16, 3, 4), (BF16, 14, 2)])
def test_the_copy_is_exact_and_stays_inside(
    chapter: ModuleType, rng: np.random.Generator, device: str, dtype: torch.dtype, stages: int, ctas: int
) -> None:
    for shape in ((32, 256), (1, 8), (2, 264), (33, 264), (100, 1000), (480, 264)):
        (X,) = normal(rng, device, dtype, shape)
        memory = torch.full((shape[0] + 1, shape[1]), 7.0, dtype=dtype, device=device)
        assert chapter.tma_copy(X, memory[:-1], stages=stages, ctas=ctas) is not None
        assert torch.equal(memory[:-1], X) and (memory[-1] == 7).all()


REFUSED: list[tuple[Callable[[str], tuple[torch.Tensor, ...]], dict[str, int], type[Exception], str]] = [
    (lambda d: (torch.zeros(4, 8, device=d),), {}, TypeError, "must be float16"),
    (lambda d: (torch.zeros(4, 8, device=d).half(), torch.zeros(4, 8, device=d).bfloat16()), {}, TypeError, "bfloat16"),
    (lambda d: (torch.zeros(4, 12, device=d).half(),), {}, ValueError, "each of its rows"),
    (lambda d: (torch.zeros(0, 8, device=d).half(),), {}, ValueError, "not empty"),
    (lambda d: (torch.zeros(8, device=d).half(),), {}, ValueError, "matrices"),
    (lambda d: (torch.zeros(8, 8, device=d).half().T,), {}, ValueError, "row-major"),
    (lambda d: (torch.zeros(65, device=d).half()[1:].reshape(8, 8),), {}, ValueError, "16 bytes"),
    (lambda d: (torch.zeros(8, 8, device=d).half(), torch.zeros(8, 16, device=d).half()), {}, ValueError, "one shape"),
    (lambda d: (torch.zeros(8, 8, device=d).half(),), {"stages": 15}, ValueError, "stages=15"),
    (lambda d: (torch.zeros(8, 8, device=d).half(),), {"stages": 0}, ValueError, "stages=0"),
    (lambda d: (torch.zeros(8, 8, device=d).half(),), {"ctas": 0}, ValueError, "ctas=0"),
]


def test_the_copy_refuses_what_it_does_not_support(chapter: ModuleType, device: str) -> None:
    for build, options, error, says in REFUSED:
        with pytest.raises(error, match=says):
            chapter.tma_copy(*build(device), **options)


def test_the_kernel_keeps_to_the_contract(chapter: ModuleType) -> None:
    contract.assert_one_idea(chapter.one_buffer_kernel, chapter.tma_copy_kernel)
    contract.assert_contract(CHAPTER)


@pytest.mark.parametrize(
    ("shape", "box", "which"),
    [
        ((13, 24), (8, 16), (1, 1)),
        ((100, 200), (32, 64), (3, 3)),
        ((5, 8), (16, 64), (0, 0)),
        ((64, 64), (8, 64), (7, 0)),
    ],
)
def test_a_box_over_the_edge_arrives_with_zeros(
    chapter: ModuleType, rng: np.random.Generator, device: str, shape: tuple[int, int], box: tuple[int, int],
    which: tuple[int, int],
) -> None:  # fmt: skip
    (X,) = normal(rng, device, F16, shape)
    got = torch.full(box, float("nan"), dtype=F16, device=device)
    launched(chapter, chapter.edge_launch, X, got, which, box[0] * box[1] * 2)
    expected = torch.zeros(box, dtype=F16)
    inside = X.cpu()[which[0] * box[0] :, which[1] * box[1] :][: box[0], : box[1]]
    expected[: inside.shape[0], : inside.shape[1]] = inside
    assert torch.equal(got.cpu(), expected)


KINDS = {f"{mode}_{s}": boxes for mode, counts in {"K": (8, 4, 2, 1), "MN": (64, 32, 16, 1)}.items()
         for s, boxes in zip(("INTER", "SW32", "SW64", "SW128"), counts, strict=True)}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_tma_puts_every_element_where_the_layout_atom_says(chapter: ModuleType, device: str, kind: str) -> None:
    """Against chapter 09's places, which are CuTe's plain layout with the XOR on byte addresses."""
    chapter09 = notebooks.load("09_swizzled_smem", ("imports", "kernel", "helpers"))
    numbered = torch.arange(64 * 64, dtype=torch.int16).reshape(64, 64)
    X = numbered if kind.startswith("K") else numbered.T.contiguous().T
    words = torch.full((64 * 64,), -1, dtype=torch.int16, device=device)
    compiled = launched(chapter, chapter.arrange_launch, X.to(device), words, kind)
    at = np.full(64 * 64, -1)
    at[words.cpu().numpy()] = 2 * np.arange(64 * 64)
    assert (at.reshape(64, 64) == chapter09.as_it_lies(kind, (64, 64))).all()
    assert inspect(compiled).count("UTMALDG") == KINDS[kind]


def test_multicast_brings_the_tile_to_both(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    (X,) = normal(rng, device, F16, (16, 64))
    both = torch.full((2, 16, 64), float("nan"), dtype=F16, device=device)
    launched(chapter, chapter.share_launch, X, both)
    assert torch.equal(both, X.expand(2, 16, 64))


def test_ctas_add_to_one_box_and_store_to_their_own(chapter: ModuleType, device: str) -> None:
    add, store = chapter.cpasync.CopyReduceBulkTensorTileS2GOp, chapter.cpasync.CopyBulkTensorTileS2GOp
    rows, columns = chapter.SENT
    for op, own, ctas, times, expected in ((add, False, 5, 2, 5.0), (store, True, 3, 2, 1.0)):
        Y = torch.zeros((ctas * times if own else times) * rows, columns, device=device)
        compiled = launched(chapter, chapter.send_launch, Y, op, True, own, ctas, times)
        assert (Y == expected).all()
        assert inspect(compiled).count("UTMASTG") + inspect(compiled).count("UTMAREDG") == 1


SAYS = {  # the fault, and a part of the line that it names
    "no wait for the load": ("InFlight: the TMA store reads", "cute.copy(store, tYsY"),
    "the other parity": ("InFlight: the TMA store reads", "cute.copy(store, tYsY"),
    "half the bytes": ("Deadlock", "cute.arch.mbarrier_wait(full + i % stages"),
    "twice the bytes": ("Deadlock", "cute.arch.mbarrier_wait(full + i % stages"),
    "no wait for the store": ("InFlight: a copy overwrites", "cute.copy(load, tXgX"),
    "one store too few awaited": ("InFlight: a copy overwrites", "cute.copy(load, tXgX"),
    "multicast: half expected": ("AsyncMismatch", "cute.copy(load, tXgX, tXsX, tma_bar_ptr=bar, mcast_mask"),
    "multicast: nobody meets": ("MissingBarrier: another CTA's", "cute.copy(load, tXgX, tXsX, tma_bar_ptr=bar, mcast"),
    "send: no proxy fence": ("MissingFence: the TMA store reads", "cute.copy(send, tYsX"),
}
NO_FAULT = "multicast: nobody waits to leave"


@pytest.mark.emulator
def test_mistakes(chapter: ModuleType) -> None:
    assert {*chapter.MISTAKES} == {*SAYS, NO_FAULT}
    for name in chapter.MISTAKES:
        launch, arguments, written, expected = chapter.problem(name)
        said = mistakes.report(launch, *arguments)
        if name == NO_FAULT:
            assert mistakes.faultless(said) and torch.equal(written, expected)
            continue
        fault, line = SAYS[name]
        assert said.startswith(fault) and line in said, (name, said)


@pytest.mark.emulator
def test_the_benchmark_runs_whole(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every row, the probes of who issues a store, and what launches mistakes on a GPU; without a clock."""
    monkeypatch.setattr(chapter, "SIZE", 64)
    copies = {name: (stages, 2, columns // 256) for name, (stages, _, columns) in chapter.COPIES.items()}
    monkeypatch.setattr(chapter, "COPIES", {name: copies[name] for name in [*copies][::3]})
    monkeypatch.setattr(chapter.mistakes, "on_gpu", lambda notebook, names: [{"mistake": name} for name in names])
    written: dict[str, Any] = {}
    monkeypatch.setattr(chapter.records, "write", lambda name, what, content: written.update({what: content}))
    measured = chapter.lanes_measured
    monkeypatch.setattr(chapter, "lanes_measured", lambda: measured(ctas=2, times=2))
    timed = benchmarks.without_a_clock(chapter, monkeypatch)
    rows = bench.validated(chapter.benchmark(), CHAPTER)
    assert [row["kernel"] for row in rows] == [*chapter.COPIES] and timed[: len(rows)] == [*chapter.COPIES]
    assert {*written} == {"lanes", "mistakes"}
    assert [row["sum"] for row in written["lanes"]["sums"]][0] == 1.0  # with elect_one: one warp adds once
    assert len(written["lanes"]["speeds"]) == 4
    once, right = chapter.attempt(NO_FAULT)
    once()
    assert right()


# Exercises -----------------------------------------------------------------------------------------------------

MORE = """
def plus_one(arrivals, count):
    return np.int64(arrivals // count + 1) % 2


def by_counting(arrivals, count):
    parity = 1
    for _ in range(arrivals // count):
        parity = 1 - parity
    return torch.tensor(parity)


@cute.jit
def brought(load: cute.CopyAtom, tXgX: cute.Tensor, tXsX: cute.Tensor, bar: cute.Pointer, nbytes: cutlass.Constexpr,
            turn: cutlass.Int32):
    with cute.arch.elect_one():
        cute.arch.mbarrier_expect_tx(bar, nbytes)
        cute.arch.mbarrier_arrive(bar)
    cute.copy(load, tXgX[None, turn], tXsX[None, 0], tma_bar_ptr=bar)
    cute.arch.mbarrier_wait(bar, turn % 2)


def loaded_first(load, tXgX, tXsX, bar, nbytes, turn):
    cute.copy(load, tXgX[None, turn], tXsX[None, 0], tma_bar_ptr=bar)
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(bar, nbytes)
    cute.arch.mbarrier_wait(bar, turn & 1)


def no_wait(load, tXgX, tXsX, bar, nbytes, turn):
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(bar, nbytes)
    cute.copy(load, tXgX[None, turn], tXsX[None, 0], tma_bar_ptr=bar)


def always_the_first(load, tXgX, tXsX, bar, nbytes, turn):
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(bar, nbytes)
    cute.copy(load, tXgX[None, 0], tXsX[None, 0], tma_bar_ptr=bar)
    cute.arch.mbarrier_wait(bar, turn & 1)


def parity_is_the_turn(load, tXgX, tXsX, bar, nbytes, turn):
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(bar, nbytes)
    cute.copy(load, tXgX[None, turn], tXsX[None, 0], tma_bar_ptr=bar)
    cute.arch.mbarrier_wait(bar, turn)


def half_announced(load, tXgX, tXsX, bar, nbytes, turn):
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(bar, nbytes // 2)
    cute.copy(load, tXgX[None, turn], tXsX[None, 0], tma_bar_ptr=bar)
    cute.arch.mbarrier_wait(bar, turn & 1)


def always_512_bytes(load, tXgX, tXsX, bar, nbytes, turn):
    brought(load, tXgX, tXsX, bar, 512, turn)


def parities_of_five(load, tXgX, tXsX, bar, nbytes, turn):
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(bar, nbytes)
    cute.copy(load, tXgX[None, turn], tXsX[None, 0], tma_bar_ptr=bar)
    cute.arch.mbarrier_wait(bar, (0b01010 >> turn) & 1)


@cute.jit
def sent_by_lane_0(store: cute.CopyAtom, tYsX: cute.Tensor, tYgY: cute.Tensor, turn: cutlass.Int32):
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()
    if cute.arch.lane_idx() == 0:
        cute.copy(store, tYsX, tYgY[None, turn])
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0, read=True)
    cute.arch.sync_threads()


def waits_for_all_of_it(store, tYsX, tYgY, turn):
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_warp()
    with cute.arch.elect_one():
        cute.copy(store, tYsX, tYgY[None, turn])
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0)
    cute.arch.sync_warp()


def no_meeting_before(store, tYsX, tYgY, turn):
    cute.arch.fence_proxy("async.shared", space="cta")
    with cute.arch.elect_one():
        cute.copy(store, tYsX, tYgY[None, turn])
        cute.arch.cp_async_bulk_commit_group()
    cute.arch.cp_async_bulk_wait_group(0, read=True)
    cute.arch.sync_warp()


def no_wait_for_reading(store, tYsX, tYgY, turn):
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_warp()
    with cute.arch.elect_one():
        cute.copy(store, tYsX, tYgY[None, turn])
        cute.arch.cp_async_bulk_commit_group()
    cute.arch.sync_warp()


def to_the_first_box(store, tYsX, tYgY, turn):
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_warp()
    with cute.arch.elect_one():
        cute.copy(store, tYsX, tYgY[None, 0])
        cute.arch.cp_async_bulk_commit_group()
    cute.arch.cp_async_bulk_wait_group(0)
    cute.arch.sync_warp()


def to_the_first_four(store, tYsX, tYgY, turn):
    sent_by_lane_0(store, tYsX, tYgY, turn & 3)
"""
CHECKS: dict[str, tuple[list[str], list[str]]] = {  # wrong answers, and right ones
    "check_box": (
        ["64, 64", "80, 64", "4096, 4096", "0, 64", "-4096, 64", "8192, 64", *(f"4096, {x}" for x in NUMBERS)],
        ["4096, 64", "4096.0, np.int64(64)", "torch.tensor(4096), np.float64(64)"],
    ),
    "check_passing": (
        [*FUNCTIONS, "lambda arrivals, count: 1", "lambda arrivals, count: arrivals // count & 1", "lambda a: 1"],
        [
            "plus_one",
            "by_counting",
            "lambda a, c: float((a // c) % 2 == 0)",
            "lambda a, c: a // c % 2 == 0",
            "lambda a, c: np.int64(a // c) % 2 == 0",
        ],
    ),
    "check_bring": (
        [
            *(*FUNCTIONS, "no_wait", "always_the_first", "half_announced", "parity_is_the_turn"),
            *("always_512_bytes", "parities_of_five"),
        ],
        ["brought", "loaded_first"],
    ),
    "check_send": (
        [*FUNCTIONS, "no_meeting_before", "no_wait_for_reading", "to_the_first_box", "to_the_first_four"],
        ["sent_by_lane_0", "waits_for_all_of_it"],
    ),
}


names = exercises.judges_of(CHAPTER, MORE)
test_answers_are_judged = exercises.answers_are_judged(CHECKS)
test_each_solution_belongs_to_an_exercise = exercises.solutions_belong_to_exercises(CHAPTER)

test_a_wrong_answer_gets_a_hint = exercises.wrong_answers_get_hints({
    "check_box(4096, 32)": "not yet: the first number is right; count again what lies inside the tensor, in bytes",
    "check_box(0, 0)": "not yet: a barrier can expect from 1",
    "check_bring(parity_is_the_turn)": "not yet: a parity is 0 or 1",
    "check_bring(always_512_bytes)": "not yet: Deadlock",
    "check_bring(parities_of_five)": "not yet: InFlight: load of shared memory",
})  # fmt: skip
