"""Chapter 14: three rungs against float64, orders and lists of work, the flag, the mistakes, the exercises."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cutetut.course import notebooks
from cutetut.inspect.compiled import inspect
from cutetut.measure import bench, mistakes
from tests.chapters import benchmarks, contract, exercises
from tests.chapters.products import assert_product, normal

CHAPTER = "14_persistent"
SMALL = {"tile": (128, 64, 64), "atom_n": 64, "stages": 3, "buffers": 1}


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


@pytest.mark.parametrize(
    ("rung", "shape", "plan", "ctas"),
    [
        ("persistent", (256, 192, 328), SMALL, 4),  # two tiles for two CTAs, one for the others; the ring goes round
        ("overlapped", (257, 264, 456), {}, 2),  # ragged; pieces and buffers of the real tile
        ("overlapped", (130, 200, 64), SMALL, 3),  # fewer K tiles than pieces of C
        ("stream-K", (384, 128, 520), SMALL, 4),  # a whole wave, then two tiles for four CTAs
        ("stream-K", (128, 72, 1280), SMALL, 5),  # two ragged tiles, each of three CTAs
    ],
)
def test_every_rung_matches_float64_each_time_it_is_launched(
    chapter: ModuleType,
    rng: np.random.Generator,
    device: str,
    rung: str,
    shape: tuple[int, int, int],
    plan: dict[str, Any],
    ctas: int,
) -> None:
    M, N, K = shape
    A, B = normal(rng, device, torch.bfloat16, (M, K), (N, K))
    C = torch.empty(M, N, dtype=A.dtype, device=device)
    launch = chapter.prepare(rung, A, B, C, chapter.Plan(**plan), "group 2", ctas)
    for _ in range(2):
        C.fill_(torch.nan)
        launch()
        assert_product(C, A, B)


@pytest.mark.parametrize(
    ("shape", "plan", "says"),
    [
        ((128, 256, 64), {"stages": 5}, "5 stages need 279552 bytes"),
        ((128, 192, 64), {"tile": (128, 192, 64), "atom_n": 192}, "buffers must divide the pieces"),
        ((128, 60, 64), {}, "C has strides"),
        ((1, 64, 64), {}, "none below 2"),
        ((128, 64, 64), {"registers": (40, 240)}, "240 registers"),
    ],
)
def test_it_refuses_in_a_sentence(
    chapter: ModuleType, rng: np.random.Generator, device: str, shape: tuple[int, ...], plan: dict[str, Any], says: str
) -> None:
    M, N, K = shape
    A, B = normal(rng, device, torch.float16, (M, K), (N, K))
    with pytest.raises(ValueError, match=says):
        chapter.prepare("overlapped", A, B, torch.empty(M, N, device=device).half(), chapter.Plan(**plan), ctas=1)


def test_the_kernels_keep_to_the_contract(chapter: ModuleType) -> None:
    rungs = (
        chapter.specialized.specialized_gemm_kernel,
        chapter.persistent_gemm_kernel,
        chapter.overlapped_gemm_kernel,
        chapter.streamk_gemm_kernel,
    )
    for before, after in zip(rungs, rungs[1:], strict=False):
        contract.assert_one_idea(before, after)
    contract.assert_contract(CHAPTER)


def test_the_old_tile_in_registers_needs_what_the_producer_gives(chapter: ModuleType, device: str) -> None:
    """No wait but ours, no spill with setmaxnreg, and some without it."""
    A, B, C = (torch.zeros(*shape, device=device).half() for shape in ((256, 640), (512, 640), (256, 512)))
    info = inspect(chapter.prepare("overlapped", A, B, C, chapter.Plan(), ctas=3).func)
    assert info.spills == 0 and info.count("HGMMA") == 20 and info.count("WARPGROUP.DEPBAR") == 6
    still = notebooks.changed(CHAPTER, notebooks.load(CHAPTER, exercises.HELPER_TAGS).NOTHING_MOVES)
    assert inspect(still.prepare("overlapped", A, B, C, chapter.Plan(), ctas=3).func).spills > 0


# -- orders and lists -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["row", "group 1", "group 3", "group 8", "hilbert"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 3), (8, 8), (3, 20)])
def test_an_order_has_each_tile_once(chapter: ModuleType, order: str, rows: int, columns: int) -> None:
    tiles = chapter.tile_order(rows, columns, order)
    assert sorted(tiles) == [(m, n) for m in range(rows) for n in range(columns)]


@pytest.mark.parametrize("order", ["", "rows", "group", "group 0", "group x", "hilbert 8"])
def test_an_unknown_order_is_refused(chapter: ModuleType, order: str) -> None:
    with pytest.raises(ValueError, match="must be 'row', 'group G' or 'hilbert'"):
        chapter.tile_order(2, 2, order)


def test_hilberts_curve_goes_from_neighbour_to_neighbour(chapter: ModuleType) -> None:
    curve = chapter.hilbert(16)
    steps = {abs(a - c) + abs(b - d) for (a, b), (c, d) in zip(curve, curve[1:], strict=False)}
    assert steps == {1} and len(curve) == 256


def dealt(entries: list[tuple[int, ...]], ctas: int) -> list[list[tuple[int, ...]]]:
    return [entries[cta::ctas] for cta in range(ctas)]


@pytest.mark.parametrize(("tiles", "k_tiles", "ctas"), [(6, 8, 4), (7, 5, 3), (13, 16, 6), (5, 1, 4), (2, 40, 9)])
def test_work_is_dealt_out_once_evenly_and_without_a_circle_of_waits(
    chapter: ModuleType, tiles: int, k_tiles: int, ctas: int
) -> None:
    order = chapter.tile_order(tiles, 1, "row")
    entries, slots = chapter.work_list(order, k_tiles, ctas, tiles % ctas)
    done = sorted((m, k) for m, _, begin, end, *_ in entries for k in range(begin, end))
    assert done == [(m, k) for m in range(tiles) for k in range(k_tiles)]  # each K tile of each tile once
    work = [sum(end - begin for _, _, begin, end, *_ in share) for share in dealt(entries, ctas)]
    assert max(work) - min(work) <= 1
    left = [slot for _, _, begin, _, slot, _ in entries if begin]
    assert sorted(left) == list(range(slots))
    for m, _, begin, _, first, others in entries:
        if begin == 0:  # the owner waits for all that others do of its tile
            theirs = [slot for tile, _, start, _, slot, _ in entries if tile == m and start]
            assert sorted(theirs) == list(range(first, first + others))
    finished = set[int]()  # let CTAs run as far as they can; a circle would stop them all
    waiting = [list(share) for share in dealt(entries, ctas)]
    while any(waiting):
        before = sum(map(len, waiting))
        for share in waiting:
            while share and set(range(share[0][4], share[0][4] + share[0][5])) <= finished:
                _, _, begin, _, slot, _ = share.pop(0)
                finished |= {slot} if begin else set()
        assert sum(map(len, waiting)) < before


def test_work_without_whole_waves_first_is_refused(chapter: ModuleType) -> None:
    for streamed in (1, 7, -1):
        with pytest.raises(ValueError, match="there must be whole waves"):
            chapter.work_list(chapter.tile_order(6, 1, "row"), 4, 4, streamed)


def test_predicted_traffic_is_what_the_waves_touch(chapter: ModuleType) -> None:
    """Where one wave takes everything, each matrix is read once; one tile at a time reads a row and a column each."""
    gigabytes = notebooks.load(CHAPTER, exercises.HELPER_TAGS).gigabytes
    both = 2 * 2048**2 * 2 / 1e9
    for order in chapter.TIMED_ORDERS:
        assert gigabytes(2048, order, ctas=16 * 8) == pytest.approx(both)
        assert gigabytes(2048, order, ctas=1) == pytest.approx(16 * 8 * (128 + 256) * 2048 * 2 / 1e9)


def test_which_orders_touch_the_fewest_is_as_the_chapter_says() -> None:
    gigabytes = notebooks.load(CHAPTER, exercises.HELPER_TAGS).gigabytes
    hilbert, eights, rows = (gigabytes(8192, order) for order in ("hilbert", "group 8", "row"))
    assert (round(hilbert, 2), round(eights, 2)) == (1.38, 1.49) and eights < rows
    assert gigabytes(4096, "row") < min(gigabytes(4096, "group 4"), gigabytes(4096, "group 8"))


# -- what happens in the kernels ------------------------------------------------------------------------------------


def test_each_cta_takes_every_fourth_tile(chapter: ModuleType, device: str) -> None:
    order = torch.tensor(chapter.tile_order(3, 5, "row"), dtype=torch.int32).to(device)
    owner = torch.full((3, 5), -1, dtype=torch.int32).to(device)
    tensors = [chapter.from_dlpack(t) for t in (owner, order)]
    chapter.cute.compile(chapter.owners, *tensors, 4)(*tensors, 4)
    assert owner.flatten().tolist() == [place % 4 for place in range(15)]


SAYS = {  # the fault, and the line that the report names
    "the last stage of a tile is kept": ("Deadlock", "(step // stages & 1) ^ 1)"),
    "the parity starts over with each tile": ("InFlight: operand A", "cute.gemm(tiled_mma"),
    "no wait for the buffer": ("InFlight: a store to shared memory", "cute.copy(to_shared, piece"),
    "no proxy fence": ("MissingFence: the TMA store", "cute.copy(to_shared, piece"),
    "the flag before all have written": ("MissingBarrier: load of", "mSums[slot, consumer, v, tid % 128]"),
    "the flag is raised relaxed": ("MissingBarrier: load of", "mSums[slot, consumer, v, tid % 128]"),
    "the flag stays up": ("the emulator found no fault", "0 of 24576 elements are wrong; flags up afterwards: 2"),
}


@pytest.mark.emulator
def test_mistakes(names: dict[str, Any], chapter: ModuleType) -> None:
    assert {*SAYS} == {*chapter.MISTAKES}
    for name, (fault, where) in SAYS.items():
        said = names["broken"](name)
        assert said.startswith(fault) and where in said, (name, said)


@pytest.mark.emulator
def test_without_a_mistake_the_same_problem_is_right(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(names["MISTAKES"], "none", ("stream-K", []))
    said = names["broken"]("none")
    assert mistakes.faultless(said) and "0 of 24576 elements are wrong; flags up afterwards: 0" in said


@pytest.mark.emulator
def test_a_flag_that_stays_up_spoils_the_second_launch(chapter: ModuleType) -> None:
    """The chapter's claim: a test that launches once does not see it."""
    lines = chapter.MISTAKES["the flag stays up"][1]
    for module, right in ((chapter, True), (notebooks.changed(CHAPTER, lines), False)):
        X, Y, sums = torch.randn(2, 128, 4), torch.zeros(128, 4), torch.zeros(1, 1, 4, 128)
        flags = torch.zeros(1, 1, dtype=torch.int32)
        assert mistakes.faultless(mistakes.report(module.flagged, X, Y, sums, flags))
        torch.testing.assert_close(Y, X[0] + X[1])
        assert (int(flags) == 0) == right
        again = mistakes.report(module.flagged, X, Y, sums, flags)
        assert mistakes.faultless(again) == right, again


@pytest.mark.emulator
def test_a_release_or_a_fence_would_do(chapter: ModuleType) -> None:
    """The chapter's claim of the flag: either of the two releases the others' stores, and with neither it is a race."""
    no_fence = ("        cute.arch.fence_acq_rel_gpu()\n", "")
    relaxed = ('sem="release"', 'sem="relaxed"')
    for lines, right in (([no_fence], True), ([relaxed], True), ([no_fence, relaxed], False)):
        module = notebooks.changed(CHAPTER, lines)
        X, Y, sums = torch.randn(2, 128, 4), torch.zeros(128, 4), torch.zeros(1, 1, 4, 128)
        said = mistakes.report(module.flagged, X, Y, sums, torch.zeros(1, 1, dtype=torch.int32))
        assert mistakes.faultless(said) == right, said
        assert not right or torch.equal(Y, X[0] + X[1])


@pytest.mark.emulator
def test_a_mistake_can_be_tried_on_a_gpu(chapter: ModuleType) -> None:
    launch, right = chapter.attempt("the flag stays up")
    launch()
    assert isinstance(right(), bool)


@pytest.mark.emulator
def test_the_benchmark_has_rows_for_every_rung(
    chapter: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(chapter, "SIZE", 256)
    monkeypatch.setattr(chapter, "LARGE", 384)
    monkeypatch.setattr(chapter, "ODD", ((128, 128, 192),))
    small = chapter.Plan(**SMALL)  # 132 CTAs at once are more than there are tiles
    monkeypatch.setattr(chapter, "Plan", lambda: small)
    benchmarks.keep_tables_in(tmp_path, monkeypatch)
    monkeypatch.setattr(chapter.mistakes, "on_gpu", lambda notebook, names: [{"mistake": name} for name in names])
    asked: list[Any] = []

    def counted(program: list[str], kernels: str, metrics: list[str]) -> list[dict[str, float]]:
        asked.append((program, kernels))
        return [dict.fromkeys(metrics, 1.0) for _ in chapter.COUNTED_ORDERS]

    monkeypatch.setattr(chapter.nsight, "count", counted)
    timed = benchmarks.without_a_clock(chapter, monkeypatch)
    rows = bench.validated(chapter.benchmark(), CHAPTER)
    rungs = [f"14 {rung}" for rung in chapter.RUNGS]
    orders = [f"14 order {order}" for order in chapter.TIMED_ORDERS]
    assert timed == ["13 specialized", *rungs, *rungs[1:], *orders]
    assert sum(bool(row.get("rung")) for row in rows) == 1
    assert [*chapter.records.read(CHAPTER, "counters")] == [*chapter.COUNTED_ORDERS]
    (program, kernels) = asked[0]
    compile(program[1], "program", "exec")
    assert kernels == chapter.overlapped_gemm_kernel.__name__
    monkeypatch.setattr(chapter.nsight, "count", lambda *given: [])
    assert chapter.counted_on_gpu() == {}


# -- the exercises --------------------------------------------------------------------------------------------------

ANSWERS = """
def eleven_columns(rows, columns):
    for left in range(0, columns, 11):
        yield from ((m, n) for m in range(rows) for n in range(left, min(columns, left + 11)))


def of_24_rows(rows, columns):
    tiles = [(m, n) for n in range(columns) for m in range(12)]
    return tiles + [(23 - m, columns - 1 - n) for m, n in tiles]


def there_and_back(rows, columns):
    place = lambda m, n: (m // 12, n if m // 12 % 2 == 0 else -n)
    return sorted(tile_order(rows, columns, "row"), key=lambda tile: place(*tile))


def in_pairs_of_groups(rows, columns):  # one group of 12 there and one back, and then what is left as it comes
    done = [tile for tile in there_and_back(rows, columns) if rows // 24 * 24 > tile[0]]
    return done + [tile for tile in tile_order(rows, columns, "row") if tile not in done]


def whole_groups_alone(rows, columns):
    return [tile for tile in there_and_back(rows, columns) if rows // 12 * 12 > tile[0]]


def only_at(rows, columns, wanted):
    return there_and_back(rows, columns) if (rows, columns) == wanted else tile_order(rows, columns, "row")


def as_an_array(rows, columns):
    return np.array(there_and_back(rows, columns))


def without_one(rows, columns):
    return there_and_back(rows, columns)[:-1]


def one_twice(rows, columns):
    return [*without_one(rows, columns), (0, 0)]


def raises(rows, columns):
    raise ValueError("no")


def stops_halfway(rows, columns):
    yield from there_and_back(rows, columns)[:100]
    raise ValueError("no more")


def never_ends(rows, columns):
    while True:
        yield 0, 0


def by_divmod(place, rows, columns):
    group, inside = place // (8 * columns), place % (8 * columns)
    height = cutlass.min(rows - 8 * group, cutlass.Int32(8))
    return 8 * group + inside % height, inside // height


@cute.jit
def by_branch(place: cutlass.Int32, rows: cutlass.Int32, columns: cutlass.Int32):
    top = place // (8 * columns) * 8
    height = cutlass.Int32(8)
    if rows - top < 8:
        height = rows - top
    inside = place - top * columns
    return top + inside % height, inside // height


def whole_groups_only(place, rows, columns):
    return place // (8 * columns) * 8 + place % 8, place % (8 * columns) // 8


def two_groups_only(place, rows, columns):
    top = cutlass.Int32(place >= 8 * columns) * 8
    height, inside = cutlass.min(8, rows - top), place - top * columns
    return top + inside % height, inside // height


def always_the_first(place, rows, columns):
    return cutlass.Int32(0), cutlass.Int32(0)


@cute.jit
def by_release_of_each(values: cute.Tensor, mSums: cute.Tensor, mFlag: cute.Tensor, tid: cutlass.Int32):
    for v in cutlass.range_constexpr(4):
        mSums[tid, v] = values[v]
    cute.arch.fence_acq_rel_gpu()
    cute.arch.sync_threads()
    if tid == 127:
        cute.arch.atomic_add(mFlag.iterator, cutlass.Int32(1), sem="release", scope="gpu")


@cute.jit
def no_barrier(values: cute.Tensor, mSums: cute.Tensor, mFlag: cute.Tensor, tid: cutlass.Int32):
    cute.autovec_copy(values, mSums[tid, None])
    if tid == 0:
        cute.arch.fence_acq_rel_gpu()
        cute.arch.atomic_add(mFlag.iterator, cutlass.Int32(1), sem="release", scope="gpu")


@cute.jit
def every_thread_raises(values: cute.Tensor, mSums: cute.Tensor, mFlag: cute.Tensor, tid: cutlass.Int32):
    cute.autovec_copy(values, mSums[tid, None])
    cute.arch.atomic_add(mFlag.iterator, cutlass.Int32(1), sem="release", scope="gpu")


@cute.jit
def until_all_raised(values: cute.Tensor, mSums: cute.Tensor, mFlag: cute.Tensor, tid: cutlass.Int32):
    raised = cutlass.Int32(0)
    while raised != 128:
        raised = cute.arch.atomic_add(mFlag.iterator, cutlass.Int32(0), sem="acquire", scope="gpu")
    cute.arch.sync_threads()
    if tid == 0:
        mFlag[0] = 0
    for v in cutlass.range_constexpr(4):
        values[v] = values[v] + mSums[tid, v]


@cute.jit
def ones_instead(values: cute.Tensor, mSums: cute.Tensor, mFlag: cute.Tensor, tid: cutlass.Int32):
    for v in cutlass.range_constexpr(4):
        mSums[tid, v] = cutlass.Float32(1.0)
    cute.arch.sync_threads()
    if tid == 0:
        cute.arch.atomic_add(mFlag.iterator, cutlass.Int32(1), sem="release", scope="gpu")


@cute.jit
def hands(values: cute.Tensor, mSums: cute.Tensor, mFlag: cute.Tensor, tid: cutlass.Int32):
    cute.autovec_copy(values, mSums[tid, None])
    cute.arch.sync_threads()
    if tid == 0:
        cute.arch.fence_acq_rel_gpu()
        cute.arch.atomic_add(mFlag.iterator, cutlass.Int32(1), sem="release", scope="gpu")


@cute.jit
def takes(values: cute.Tensor, mSums: cute.Tensor, mFlag: cute.Tensor, tid: cutlass.Int32):
    if tid == 0:
        raised = cutlass.Int32(0)
        while raised == 0:
            raised = cute.arch.atomic_add(mFlag.iterator, cutlass.Int32(0), sem="acquire", scope="gpu")
        mFlag[0] = 0
    cute.arch.sync_threads()
    for v in cutlass.range_constexpr(4):
        values[v] = values[v] + mSums[tid, v]


@cute.jit
def leaves_it_down(values: cute.Tensor, mSums: cute.Tensor, mFlag: cute.Tensor, tid: cutlass.Int32):
    cute.autovec_copy(values, mSums[tid, None])


@cute.jit
def lowers_by_adding(values: cute.Tensor, mSums: cute.Tensor, mFlag: cute.Tensor, tid: cutlass.Int32):
    if tid == 64:
        raised = cutlass.Int32(0)
        while raised != 1:
            raised = cute.arch.atomic_add(mFlag.iterator, cutlass.Int32(0), sem="acquire", scope="gpu")
        cute.arch.atomic_add(mFlag.iterator, cutlass.Int32(-1))
    cute.arch.sync_threads()
    for v in cutlass.range_constexpr(3, -1, -1):
        values[v] = mSums[tid, v] + values[v]


@cute.jit
def leaves_it_up(values: cute.Tensor, mSums: cute.Tensor, mFlag: cute.Tensor, tid: cutlass.Int32):
    if tid == 0:
        raised = cutlass.Int32(0)
        while raised == 0:
            raised = cute.arch.atomic_add(mFlag.iterator, cutlass.Int32(0), sem="acquire", scope="gpu")
    cute.arch.sync_threads()
    for v in cutlass.range_constexpr(4):
        values[v] = values[v] + mSums[tid, v]


@cute.jit
def nans(values: cute.Tensor, mSums: cute.Tensor, mFlag: cute.Tensor, tid: cutlass.Int32):
    takes(values, mSums, mFlag, tid)
    values.fill(float("nan"))
"""
NUMBERS = exercises.NUMBERS
RIGHT_SLOTS = "len([e for e in work_list(tile_order(64, 16, 'row'), 64, 120, 64)[0] if e[2]])"
CHECKS: dict[str, tuple[list[str], list[str]]] = {  # wrong answers, and right ones
    "check_waves": (
        ["9, 64, 120", "9, 63, 112", "9, 64, 0", *(f"{x}, 64, 112" for x in NUMBERS)],
        [f"9, 64, {RIGHT_SLOTS}", f"np.int64(9), 64.0, torch.tensor({RIGHT_SLOTS})"],
    ),
    "check_order": (
        [
            *exercises.FUNCTIONS,
            "without_one",
            "one_twice",
            *("raises", "stops_halfway", "never_ends"),
            "lambda r, c: [(0, 0)]",
            *(f"lambda r, c: tile_order(r, c, '{order}')" for order in ("row", "hilbert", "group 8", "group 12")),
            "lambda r, c: [(m, n) for n in range(c) for m in range(r)]",
            "of_24_rows",
            "whole_groups_alone",
            "lambda r, c: there_and_back(24, 27)",
            "lambda r, c: only_at(r, c, (24, 27))",
            "lambda r, c: there_and_back(r, c) if r * c > 132 else of_24_rows(r, c)",
            "lambda rows: []",
        ],
        ["eleven_columns", "there_and_back", "as_an_array"],
    ),
    "check_tile_at": (
        [*exercises.FUNCTIONS, "whole_groups_only", "two_groups_only", "always_the_first"],
        ["by_divmod", "by_branch"],
    ),
    "check_hand_over": (
        [
            *(f"{x}, takes" for x in exercises.FUNCTIONS),
            *(f"hands, {x}" for x in exercises.FUNCTIONS[:6]),
            *("no_barrier, takes", "ones_instead, takes", "hands, leaves_it_up", "hands, nans"),
            *("every_thread_raises, takes", "hands, until_all_raised"),
        ],
        ["hands, lowers_by_adding", "by_release_of_each, takes", "every_thread_raises, until_all_raised"],
    ),
}


HINTS = {  # wrong answers, and what the check says of each
    2: {
        "lambda r, c: tile_order(r, c, 'group 8')": "waves of 24x27 tiles may touch 122, these 139 rows and columns",
        "lambda r, c: tile_order(r, c, 'group 12')": "126 rows and columns: look at a wave that begins in one group",
        "lambda r, c: only_at(r, c, (24, 27))": "waves of 25x27 tiles may touch 155, these 180 rows and columns",
        "in_pairs_of_groups": "waves of 29x31 tiles may touch 188, these 205 rows and columns",
        "of_24_rows": "each of the 25 * 27 tiles must be there once",
        "raises": "your function raises ValueError: no",
        "stops_halfway": "ValueError: no more",
        "never_ends": "each of the 24 * 27 tiles must be there once",
        "lambda r, c: tile_order(r, c)": "your function raises TypeError: tile_order() missing 1 required",
        "lambda r, c: 'text'": "order(24, 27) is a list of pairs",
        "lambda r, c: None": "order(24, 27) is a list of pairs",
        "lambda r, c: [1, 2, 3]": "order(24, 27) is a list of pairs",
        "lambda r, c: (there_and_back if r > 12 else of_24_rows)(r, c)": "each of the 5 * 7 tiles must be there once",
    },
    3: {"whole_groups_only": "11x4, whose last group is lower: OutOfBounds", "two_groups_only": "27x4"},
    4: {
        "leaves_it_down, takes": "Deadlock",
        "every_thread_raises, takes": "MissingBarrier: atomic operation on byte 0 of mFlag",
    },
}
JUDGES = {2: "check_order", 3: "check_tile_at", 4: "check_hand_over"}
names = exercises.judges_of(CHAPTER, ANSWERS, cells=["break-it"])
test_wrong_answers_are_told_why = exercises.wrong_answers_are_told_why(JUDGES, HINTS)
test_answers_are_judged = exercises.answers_are_judged(CHECKS)
test_each_solution_belongs_to_an_exercise = exercises.solutions_belong_to_exercises(CHAPTER)


def test_the_drawn_costs_are_cycles_at_each_kernels_own_clock() -> None:
    """4000 us at 2 MHz are 8000 cycles, 2000 us at 1 MHz are 2000: of four tiles each saves 1500."""
    rows = {"12 wide": {"ours_us": 4000.0, "sm_mhz": 2}, "12 C by TMA": {"ours_us": 2000.0, "sm_mhz": 1}}
    clock = np.zeros((1, 1, 2))
    clock[0, 0] = 100, 740
    names: dict[str, Any] = {
        "np": np,
        "records": SimpleNamespace(read=lambda name, what: [{"plan": "wide", "clock": clock.tolist()}]),
        "chapter08": SimpleNamespace(rows_of=lambda name, method: rows),
    }
    exec(exercises.definitions(CHAPTER, "look"), names)
    assert names["costs"]("12", "wide") == (600, 1500)


def test_the_drawn_costs_are_in_the_text() -> None:
    names: dict[str, Any] = vars(notebooks.load(CHAPTER, exercises.HELPER_TAGS)).copy()
    names["chapter08"] = notebooks.load("08_wgmma", ("imports", "kernel", "bench", "helpers"))
    exec(exercises.definitions(CHAPTER, "look"), names)
    start, store = names["costs"]()
    text = exercises.prose(CHAPTER, "look-md")
    assert f"{start:,.0f} until a CTA's first tile is there, and {store:,.0f} to store" in text
    assert f"three starts, {3 * start:,.0f};" in exercises.cell(CHAPTER, "measure-md")
