"""Chapter 15's model: its choices against what was measured, its predictions, and its counts by hand."""

from __future__ import annotations

import random
import statistics
from types import ModuleType
from typing import Any

import pytest
import torch

from cutetut.course import notebooks
from cutetut.measure import bench, records

CHAPTER = "15_past_cublas"
BF16, FP16, FP8, FP32 = torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float32


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


def test_the_choice_for_any_shape_can_be_made(chapter: ModuleType) -> None:
    """Every shape of the zoo, and random ones of all types: a plan that is not refused and fits by its own account."""
    zoo = [chapter.typed(*shape) for shapes in chapter.ZOO.values() for shape in shapes]
    assert len(zoo) >= 32 and len(set(zoo)) == len(zoo)
    draw = random.Random(15)
    types = ((BF16, BF16), (FP16, FP16), (FP8, BF16), (BF16, FP32), (FP16, FP32), (FP8, FP32))
    for _ in range(300):
        dtype, out = draw.choice(types)
        M, N, K = int(2 ** draw.uniform(0, 14)), 8 * int(2 ** draw.uniform(0, 12)), 16 * int(2 ** draw.uniform(0, 10))
        zoo.append((M, N, K, dtype, out))
    for M, N, K, dtype, out in zoo:
        plan = chapter.choose(M, N, K, dtype, out)
        assert not chapter.refusal(plan, K * dtype.itemsize), (M, N, K, plan)
        assert plan.out == out.itemsize and plan.stages >= 2
        assert 0 < chapter.cost(M, N, K, plan, dtype.itemsize)["seconds"] < 1


OTHERS = (  # no plans
    "torch", "cuBLASLt", " ahead", " ahead 2", " ping-pong", " hilbert", " group 4", " group 16", " summed in CTA 0",
    ", turned", " shifted", " shifted by one", " two at once", " four at once", " turned by four", " turned by eleven",
)  # fmt: skip
Key = tuple[Any, ...]  # M, N, K, and the types of A and C
Times = dict[str, float]  # microseconds by the plan's name


def key_of(row: dict[str, Any]) -> Key:
    return row["M"], row["N"], row["K"], getattr(torch, row["dtype"]), getattr(torch, row["out"])


def zoo_rows(chapter: ModuleType, method: str) -> list[tuple[Key, dict[str, Any]]]:
    """The rows of all tables of the zoo that were measured in this way, with their keys."""
    rows = [row for part in chapter.ZOO for row in bench.read(CHAPTER, part)["rows"]]
    return [(key_of(row), row) for row in rows if row["method"].startswith(method)]


def candidates(chapter: ModuleType, key: Key) -> dict[str, Any]:
    """The plans among which the model chooses, by name and in its order."""
    size, width = (each.itemsize for each in key[3:])
    return {chapter.told(plan): plan for plan in chapter.candidates(*key[:3], size, width)}


def seconds(chapter: ModuleType, key: Key, plan: Any) -> float:
    return float(chapter.cost(*key[:3], plan, key[3].itemsize)["seconds"])


def predicted(chapter: ModuleType, method: str) -> dict[Key, float]:
    """What the model expects over what was measured in this way, for each shape of the zoo by its table's plan."""
    return {
        key: seconds(chapter, key, candidates(chapter, key)[row["plan"]]) * 1e6 / row["us"]
        for key, row in zoo_rows(chapter, method)
    }


def on_one_level(runs: list[Times]) -> Times:
    """Several runs as one: each times what makes its plans agree, in the middle, with those that came before.

    A run's clock depends on how warm the GPU is: plans measured in two runs differ by up to a tenth, all of them alike.
    """
    found: dict[str, list[float]] = {}
    left = sorted(runs, key=len, reverse=True)
    while left:
        left.sort(key=lambda run: -len(run.keys() & found.keys()))
        run = left.pop(0)
        if found and not run.keys() & found.keys():
            continue  # nothing says how it compares
        shared = [statistics.median(found[plan]) / us for plan, us in run.items() if plan in found]
        for plan, us in run.items():
            found.setdefault(plan, []).append(us * (statistics.median(shared) if shared else 1.0))
    return {plan: statistics.median(us) for plan, us in found.items()}


ORDERS, SUMS, ROWS = 18, 19, 21  # runs of the races with which tiles' order, who adds up, and what is loaded changed


def kept_its_order(chapter: ModuleType, plan: Any, M: int, N: int) -> bool:
    """Whether a plan's tiles are taken in the same order as before run `ORDERS`, or are so many that it counts little.

    The split kernel's are where there is one row of them, the persistent one's where they lay along C's shorter side.
    """
    if isinstance(plan, chapter.Split):
        return M <= plan.bT or M >= 512
    down, across = (N, M) if plan.swap else (M, N)
    return -(-down // (plan.bM * plan.lies[0])) <= -(-across // (plan.bN * plan.lies[1]))


def kept_its_adders(chapter: ModuleType, plan: Any) -> bool:
    """Whether as many CTAs add up a plan's sums as before run `SUMS`, when each had to have 16 columns, not eight."""
    return not isinstance(plan, chapter.Split) or plan.adders == 1 or plan.columns % 16 == 0


def as_now(chapter: ModuleType, key: Key, us: Times, run: int = 0) -> Times:
    """The times of plans whose kernels work in the same way today as in that run, by default an early one."""
    plans = candidates(chapter, key)
    return {
        name: us[name] for name in us
        if name not in plans
        or (run >= ORDERS or kept_its_order(chapter, plans[name], *key[:2]))
        and (run >= SUMS or kept_its_adders(chapter, plans[name]))
        and (run >= ROWS or not chapter.only(key[0], plans[name]))
    }  # fmt: skip


def measured_plans(chapter: ModuleType) -> dict[Key, Times]:
    """Microseconds of each plan that was measured, by shape and types and by the plan's name; bursts."""
    runs: dict[Key, dict[Any, Times]] = {}
    probes = records.read(CHAPTER, "probes")
    rows: list[tuple[dict[str, Any], int | str, Times]]
    rows = [(row, "table", {row["plan"]: row["us"]}) for _, row in zoo_rows(chapter, "burst")]
    rows += [(row, "rivals", {row["plan"]: row["us"][0]}) for row in probes["rivals"]]
    rows += [(row, row["run"], {plan: us[0] for plan, us in row["us"].items()}) for row in probes["races"]]
    rows += [(row, f"duels {row['run']}", {plan: us[0] for plan, us in row["us"].items()}) for row in probes["duels"]]
    for row, run, us in rows:
        key = key_of(row)
        plans = {plan: time for plan, time in us.items() if not plan.endswith(OTHERS)}
        plans = as_now(chapter, key, plans, run if isinstance(run, int) else 0)
        runs.setdefault(key, {}).setdefault(run, {}).update(plans)
    return {key: on_one_level([run for run in found.values() if run]) for key, found in runs.items()}


MISSED = {  # how much slower the choice is than the fastest that was measured, at most, where it is above 2 percent
    (50, 14336, 4096, BF16, BF16): 1.075,  # clusters of four along N; not seen elsewhere
    (300, 5000, 2000, BF16, BF16): 1.065,  # small CTAs, two on an SM, for clusters of four
    (96, 5120, 17920, BF16, BF16): 1.04,  # the same tiles, stored while nothing is multiplied
    (4096, 1536, 2048, BF16, BF16): 1.03,  # in windows it is ahead
    (5000, 5000, 5000, BF16, BF16): 1.03,
    (128, 8192, 28672, BF16, BF16): 1.03,  # sustained, it is the fastest
    (64, 10240, 8192, BF16, BF16): 1.03,  # the same tiles, on another day
    (384, 6144, 4096, BF16, BF16): 1.025,
}


def slower_than_best(chapter: ModuleType, key: Key, us: Times) -> float | None:
    """The time of the model's choice among the candidates that were measured, over the least of any plan.

    None if none of them is a candidate, as where tiles of few rows are 8 rows apart today.
    """
    costs = {name: seconds(chapter, key, plan) for name, plan in candidates(chapter, key).items() if name in us}
    choice = next((plan for plan in costs if costs[plan] <= chapter.ALIKE * min(costs.values())), None)
    return us[choice] / min(us.values()) if choice else None


def test_its_choice_is_within_two_percent_of_the_fastest_that_was_measured(chapter: ModuleType) -> None:
    """In bursts, of those plans whose cost is alike the first."""
    plans = {key: us for key, us in measured_plans(chapter).items() if len(us) > 1}
    slower = {key: ratio for key, us in plans.items() if (ratio := slower_than_best(chapter, key, us))}
    assert len(slower) >= 109
    assert not {key: ratio for key, ratio in slower.items() if ratio > MISSED.get(key, 1.02)}
    assert statistics.mean(slower.values()) < 1.0065


def test_its_choice_is_near_the_fastest_of_sustained_duels(chapter: ModuleType) -> None:
    """Among the plans that took turns in windows: within 2 percent of the fastest, on average 0.3.

    Runs 3 and 4 have two windows of each, which differ by up to 6 percent: within 3.5, on average 0.9.
    """
    slower: dict[Any, float] = {}
    for row in records.read(CHAPTER, "probes")["duels"]:
        key = key_of(row)
        us = {plan: times[0] for plan, times in row["sustained_us"].items() if not plan.endswith(OTHERS)}
        us = as_now(chapter, key, us)
        if len(us) > 1 and (ratio := slower_than_best(chapter, key, us)):
            slower[row["run"], key] = ratio
    for runs, count, most, mean in (((0, 1, 2), 29, 1.02, 1.003), ((3, 4), 23, 1.035, 1.009)):
        found = [ratio for (run, _), ratio in slower.items() if run in runs]
        assert len(found) == count and max(found) < most and statistics.mean(found) < mean, slower


@pytest.mark.parametrize("part", ["few", "between", "unseen", "odd", "types"])
def test_the_tables_of_these_kernels_are_of_the_plans_that_it_chooses(chapter: ModuleType, part: str) -> None:
    measured = {key_of(row): row["plan"] for row in bench.read(CHAPTER, part)["rows"]}
    typed = [chapter.typed(*shape) for shape in chapter.ZOO[part]]
    assert measured == {key: chapter.told(chapter.choose(*key)) for key in typed}


def test_few_rows_get_a_tile_of_at_most_64(chapter: ModuleType) -> None:
    for T in (1, 16, 64):
        for N, K in ((4096, 4096), (28672, 4096), (4096, 14336)):
            plan = chapter.choose(T, N, K, BF16, BF16)
            assert T <= (plan.bT if isinstance(plan, chapter.Split) else plan.bM) <= 64
    alone, shared = (chapter.cost(5000, 5000, 5000, chapter.Wide(cluster=c), 2)["seconds"] for c in (1, 2))
    assert 0.65 < shared / alone < 0.85  # rows of 10,000 bytes: 0.70 of the vendor's speed without multicast, 0.93 with


SUSTAINED = {  # microseconds of a kernel with these tiles, in clusters of two, in windows of 0.4 to 2 s on an H200
    (4096, 4096, 4096): 204.6,
    (8192, 8192, 8192): 1602.3,
    (16384, 16384, 16384): 12696.4,
    (4096, 6144, 4096): 297.6,
    (16384, 4096, 4096): 789.9,
    (8192, 28672, 4096): 2766.1,
    (8192, 4096, 14336): 1393.0,
    (4096, 28672, 8192): 2826.8,
    (8192, 8192, 28672): 5497.4,
    (2048, 128256, 4096): 3105.7,
}


def test_it_predicts_what_was_measured_of_large_products(chapter: ModuleType) -> None:
    """Sustained, in tiles of 128x256: within an eighth."""
    for shape, measured in SUSTAINED.items():
        expected = chapter.cost(*shape, chapter.Wide(), 2)["seconds"] * 1e6
        assert abs(expected / measured - 1) < 0.125, (shape, expected, measured)


def test_it_predicts_the_sustained_windows_of_the_zoo(chapter: ModuleType) -> None:
    """Of more than 128 rows, 2 s long: from 0.855 to 0.99 of what was measured, and the same for all within 3 percent.

    Its constants are fitted to bursts above all, between which and windows it lies.
    """
    ratios = {key: ratio for key, ratio in predicted(chapter, "sustained").items() if key[0] > chapter.FEW}
    assert len(ratios) >= 40
    assert not {shape: ratio for shape, ratio in ratios.items() if not 0.855 < ratio < 0.99}
    assert statistics.pstdev(ratios.values()) < 0.03


def test_it_predicts_products_of_few_rows(chapter: ModuleType) -> None:
    """Up to 128 rows, whose time is that of reading weights, if those take 5 us or longer: within a tenth."""
    ratios = {
        (M, N, K, dtype, out): ratio for (M, N, K, dtype, out), ratio in predicted(chapter, "burst").items()
        if M <= chapter.FEW and N * K * dtype.itemsize > 5e-6 * chapter.MEMORY
    }  # fmt: skip
    assert len(ratios) >= 9
    assert not {shape: ratio for shape, ratio in ratios.items() if not 0.9 < ratio < 1.1}


def test_neighbours_that_want_a_row_cost_l2_what_the_page_says() -> None:
    """From tiles of 64 rows of W and 128 of X, and the other way round, each wanted by as many CTAs."""
    probes = records.read(CHAPTER, "probes")["sharing"]
    cycles = {(row["bW"], row["bT"], row["X asked by"]): row["cycles"] for row in probes}
    cost = {n: (2 * cycles[64, 128, n] - cycles[128, 64, n]) / 192 for n in (1, 2, 4, 8, 16, 128)}  # of a row of X
    assert {n: round(each, 1) for n, each in cost.items()} == {1: 4.1, 2: 3.4, 4: 2.9, 8: 2.2, 16: 1.6, 128: 1.3}


def test_its_waves_are_counted_as_by_hand(chapter: ModuleType) -> None:
    assert chapter.cost(5000, 5000, 5000, chapter.Wide(), 2)["waves"] == 7  # 20 x 20 clusters, 66 at once
    assert chapter.cost(5000, 5000, 5000, chapter.Wide(bN=224), 2)["waves"] == 7  # 20 x 23
    assert chapter.cost(3072, 3072, 8192, chapter.Wide(bN=192), 2)["waves"] == 3  # 12 x 16
    assert chapter.cost(777, 5000, 1992, chapter.Wide(256, 160), 2)["waves"] == 1  # 2 x 32
    assert chapter.cost(777, 5000, 1992, chapter.Wide(256, 160, along="N"), 2)["waves"] == 1  # 4 x 16
    assert chapter.cost(777, 4000, 1992, chapter.Wide(128, 96, along="N"), 2)["waves"] == 3  # 7 x 21
    assert chapter.cost(64, 28672, 4096, chapter.Split(parts=1), 2)["waves"] == 2  # 224 CTAs, 132 at once
    assert chapter.cost(64, 28672, 4096, chapter.Split(parts=1, per_sm=2), 2)["waves"] == 1
