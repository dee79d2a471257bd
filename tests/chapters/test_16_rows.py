"""Chapter 16's softmax and RMSNorm against float64, every rung and mistake, and what its exercises say of answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut.course import notebooks
from cutetut.inspect.compiled import inspect
from cutetut.measure import bench, mistakes
from tests.chapters import benchmarks, contract, exercises

CHAPTER = "16_rows"
ROUNDING = {torch.bfloat16: 2**-8, torch.float16: 2**-10}  # twice a rounding, and the smallest numbers of float16
SMALLEST = {torch.bfloat16: 1e-37, torch.float16: 2**-24}


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


def numbers(rng: np.random.Generator, device: str, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.from_numpy(3 * rng.standard_normal(shape)).to(dtype).to(device)


def exact_softmax(X: torch.Tensor) -> np.ndarray:
    x = X.double().cpu().numpy()
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def exact_rmsnorm(X: torch.Tensor, W: torch.Tensor, eps: float) -> np.ndarray:
    x = X.double().cpu().numpy()
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + eps) * W.double().cpu().numpy()


def assert_close(Y: torch.Tensor, exact: np.ndarray) -> None:
    error = np.abs(Y.double().cpu().numpy() - exact)
    assert (error <= SMALLEST[Y.dtype] + ROUNDING[Y.dtype] * np.abs(exact)).all()  # a NaN fails


@pytest.mark.parametrize(
    ("rung", "plan"),
    [
        ("three_pass", {"warps": 4, "rows": 2, "vectors": 1}),
        ("online", {"warps": 4, "rows": 2, "vectors": 1}),
        ("kept", {"warps": 4, "rows": 2, "vectors": 4}),
        ("cluster", {"warps": 2, "vectors": 4, "cluster": 2}),
        ("softmax", {"warps": 2, "vectors": 4, "cluster": 2}),
    ],
)
def test_every_rung(
    chapter: ModuleType, rng: np.random.Generator, device: str, rung: str, plan: dict[str, int]
) -> None:
    N = 3080
    X = numbers(rng, device, 3, N)
    X[1] -= 200
    X[2, : N - 5] = -torch.inf
    Y = torch.full_like(X, torch.nan)
    arguments = chapter.dynamic(X), chapter.dynamic(Y)
    chapter.cute.compile(getattr(chapter, f"{rung}_launch"), *arguments, chapter.Plan(**plan))(*arguments)
    assert_close(Y, exact_softmax(X))


@pytest.mark.parametrize(("M", "N"), [(17, 8), (3, 2056), (1, 32776)])
def test_softmax_of_chosen_plans(chapter: ModuleType, rng: np.random.Generator, device: str, M: int, N: int) -> None:
    X = numbers(rng, device, M, N)
    assert_close(chapter.softmax(X), exact_softmax(X))


@pytest.mark.parametrize(
    ("dtype", "plan"),
    [
        (torch.bfloat16, {"warps": 2}),
        (torch.float16, {"warps": 1, "rows": 3, "vectors": 8}),
        (torch.bfloat16, {"cluster": 4, "vectors": 2}),
        (torch.float16, {"warps": 2, "rows": 2, "cluster": 2, "vectors": 2}),
    ],
)
def test_warps_rows_and_clusters(
    chapter: ModuleType, rng: np.random.Generator, device: str, dtype: torch.dtype, plan: dict[str, int]
) -> None:
    X, W = numbers(rng, device, 7, 2000, dtype=dtype), numbers(rng, device, 2000, dtype=dtype)
    assert_close(chapter.softmax(X, plan=chapter.Plan(**plan)), exact_softmax(X))
    assert_close(chapter.rmsnorm(X, W, eps=1e-3, plan=chapter.Plan(**plan)), exact_rmsnorm(X, W, 1e-3))


def test_rmsnorm_of_chosen_plans(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    for M, N in ((11, 72), (1, 20000)):
        X, W = numbers(rng, device, M, N), numbers(rng, device, N)
        assert_close(chapter.rmsnorm(X, W, eps=0.5), exact_rmsnorm(X, W, 0.5))


@pytest.mark.parametrize("name", ["softmax", "rmsnorm"])
def test_as_many_ctas_fit_as_the_plans_say(chapter: ModuleType, name: str) -> None:
    """Registers and shared memory allow it without spills, and the clusters hold the row, at every length measured."""
    compiled, choose = {
        "softmax": (chapter.compiled_softmax, chapter.choose),
        "rmsnorm": (chapter.compiled_rmsnorm, chapter.choose_rmsnorm),
    }[name]
    for N in chapter.LENGTHS:
        plan = choose(N)
        assert plan.columns * plan.cluster >= N and plan.cluster <= 16
        assert plan.cluster == 1 or plan.columns * (plan.cluster - 1) < N  # no CTA without numbers
        info = inspect(compiled(N, torch.bfloat16, plan))
        assert info.spills == 0 and info.shared_bytes is not None
        assert plan.ctas_per_sm * (info.shared_bytes + 1024) <= 228 * 1024
        assert plan.ctas_per_sm * plan.threads * -(-info.registers // 8) * 8 <= 65536


@pytest.mark.parametrize("N", [32768, 262144])
def test_the_parked_row_begins_with_a_line_of_shared_memory(chapter: ModuleType, N: int) -> None:
    """128 bytes; kernels whose row begins 16 bytes behind one were 6 to 11 percent slower on an H200."""
    ptx = inspect(chapter.compiled_rmsnorm(N, torch.bfloat16, chapter.choose_rmsnorm(N))).ptx
    places = [int(place) for place in re.findall(r"cp\.async\.cg\.shared\.global \[%r\d+\+(\d+)\]", ptx)]
    assert len(places) == 7 and all(place % 128 == 0 for place in places)  # the eighth is in a register


def test_every_length_has_a_plan(chapter: ModuleType) -> None:
    for N in (8, 16, 264, 1024, 1032, 2056, 4104, 16384, 16392, 32776, 100000, chapter.LONGEST):
        for choose in (chapter.choose, chapter.choose_rmsnorm):
            chapter.refuse_plan(choose(N), N)
            assert choose(N).threads <= 1024


def test_rows_without_a_softmax(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    """As in torch: NaN, and a row of -inf; a row with a single number that is not -inf has one 1."""
    X = numbers(rng, device, 6, 2048)
    X[0, 7], X[1], X[2, 2000], X[3, :2047] = torch.nan, -torch.inf, torch.inf, -torch.inf
    X[4] = 3e38
    Y = chapter.softmax(X).double().cpu()
    assert Y[:3].isnan().all() and Y[3, 2047] == 1 and (Y[3, :2047] == 0).all()
    assert (Y[4] == 1 / 2048).all() and Y[5].isfinite().all()


def test_what_is_refused(chapter: ModuleType) -> None:
    good = torch.ones(4, 64, dtype=torch.bfloat16)
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: chapter.softmax(good.float()), "all must be bfloat16"),
        (lambda: chapter.softmax(good, good.half()), "all must be bfloat16"),
        (lambda: chapter.softmax(good[:, :60].contiguous()), "rows of 60 are not supported"),
        (lambda: chapter.softmax(good[:, :32]), "one behind the other"),
        (lambda: chapter.softmax(good.flatten()[1:65].view(1, 64)), "16-byte aligned"),
        (lambda: chapter.softmax(good[0]), "must be a matrix"),
        (lambda: chapter.softmax(good, good[:2]), "no room"),
        (lambda: chapter.softmax(torch.zeros(1, 2**18 + 8, dtype=torch.bfloat16)), "at most 262144"),
        (lambda: chapter.rmsnorm(good, good[0, :32].contiguous()), "do not fit"),
        (lambda: chapter.softmax(good, plan=chapter.Plan(cluster=2)), "do not fit rows of 64"),
        (lambda: chapter.softmax(torch.zeros(1, 4096).half(), plan=chapter.Plan()), "do not fit rows of 4096"),
        (lambda: chapter.softmax(torch.zeros(1, 2048).half(), plan=chapter.Plan(cluster=3)), "clusters of 3"),
    ]
    for call, text in cases:
        with pytest.raises((TypeError, ValueError), match=text):
            call()


def test_the_chapter_keeps_to_the_contract(chapter: ModuleType) -> None:
    rungs = ("three_pass", "online", "kept", "cluster", "softmax", "rmsnorm")
    kernels = [getattr(chapter, f"{name}_kernel") for name in rungs]
    for before, after in zip(kernels, kernels[1:], strict=False):
        contract.assert_one_idea(before, after)


SAYS = {
    "the CTAs do not wait for each other's start": "MissingBarrier: another CTA's shared memory is used before",
    "nobody waits for the pairs": "InFlight: load of shared memory",
    "the mbarrier expects half of the bytes": "Deadlock: every thread that is left waits",
    "no barrier in the CTA": "MissingBarrier: load of shared memory",
    "nobody waits for the kernel before": "MissingBarrier: load of byte 0 of mY (6, 1024) bfloat16 (global memory)",
    "a CTA leaves while its memory is read": "MissingBarrier: the CTA exits",
}
WRONG_ROWS = {
    "": [],
    "the empty part has the top 0": [0],
    "a thread's maximum starts at 0": [0],
    "-inf is subtracted from -inf": [2, 3],
    "the maximum is not subtracted": [0, 1, 2, 3],
}


@pytest.mark.emulator
@pytest.mark.parametrize("name", [*SAYS, *WRONG_ROWS])
def test_mistakes(chapter: ModuleType, name: str) -> None:
    assert {*chapter.MISTAKES} | {""} == {*SAYS, *WRONG_ROWS}
    launch, plan, _ = chapter.planted(name) if name else (chapter.softmax_launch, chapter.IN_CTA, None)
    if name == "a CTA leaves while its memory is read":
        said = mistakes.report(launch, torch.zeros(4, 32, dtype=torch.int32), False)
    else:
        X = chapter.hard_rows(6, plan.columns * plan.cluster)
        Y = torch.full_like(X, torch.nan)
        said = mistakes.report(launch, X, Y, plan)
    if name in SAYS:
        assert said.startswith(SAYS[name]), said
    else:
        assert mistakes.faultless(said)
        exact = exact_softmax(X)
        wrong = ~(np.abs(Y.double().numpy() - exact) <= 1e-37 + 2**-8 * exact)
        assert np.flatnonzero(wrong.any(axis=1)).tolist() == WRONG_ROWS[name]


@pytest.mark.emulator
def test_a_launch_waits_for_the_one_before(chapter: ModuleType) -> None:
    X = chapter.hard_rows(6, chapter.IN_CTA.columns)
    Y = torch.full_like(X, torch.nan)
    said = mistakes.report(chapter.two_launches(chapter.softmax_launch), X, Y, chapter.IN_CTA)
    assert mistakes.faultless(said), said
    once = torch.as_tensor(exact_softmax(X)).bfloat16()
    np.testing.assert_allclose(Y.double().numpy(), exact_softmax(once), rtol=2**-8, atol=1e-37)


@pytest.mark.emulator
def test_mistakes_can_be_tried_on_a_gpu(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    few = chapter.hard_rows
    monkeypatch.setattr(chapter, "hard_rows", lambda M, N: few(6, N))
    outcomes = {"a CTA leaves while its memory is read": None, "-inf is subtracted from -inf": False}
    for name, expected in outcomes.items():
        launch, right = chapter.attempt(name)
        if expected is not None:  # the other one is a fault here
            launch()
            assert right() is expected


@pytest.mark.emulator
def test_the_benchmark_measures_every_length_and_rung(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chapter, "LENGTHS", (64,))
    monkeypatch.setattr(chapter, "ELEMENTS", 512)
    small = {name: (launch, {"warps": 1, **({"cluster": 2} if "cluster" in choice else {})})
             for name, (launch, choice) in list(chapter.RUNGS.items())[2:]}  # fmt: skip
    monkeypatch.setattr(chapter, "RUNGS", small)
    monkeypatch.setattr(chapter.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(chapter, "rungs", lambda short=chapter.rungs: short(1024))
    kept: list[tuple[Any, ...]] = []
    monkeypatch.setattr(chapter.mistakes, "on_gpu", lambda notebook, names: [{"mistake": name} for name in names])
    monkeypatch.setattr(chapter.records, "write", lambda *what: kept.append(what))
    timed = benchmarks.without_a_clock(chapter, monkeypatch)
    rows = bench.validated(chapter.benchmark(), CHAPTER)
    assert kept == [(CHAPTER, "mistakes", [{"mistake": name} for name in chapter.MISTAKES])]
    assert timed == ["16 softmax", "16 RMSNorm"] + list(chapter.RUNGS)
    assert {row["N"] for row in rows if row["kernel"] == "16 softmax"} == {64}
    plans = chapter.others(16384)
    assert len(plans) > 5 and all(plan.columns * plan.cluster >= 16384 for plan in plans)
    assert replace(chapter.choose(16384), ctas_per_sm=2) in plans


# --- exercises

ANSWERS = """
def zeros(*arguments):
    return arguments[0] * 0.0


def nans(*arguments):
    return arguments[0] * float("nan")


@cute.jit
def at_once(a, b, c):
    top = cute.arch.fmax(a[0], cute.arch.fmax(b[0], c[0]))
    unit = finite(top)
    return top, a[1] * power(a[0] - unit) + b[1] * power(b[0] - unit) + c[1] * power(c[0] - unit)


@cute.jit
def from_behind(a, b, c):
    return merge(c, merge(b, a))


@cute.jit
def empty_first(a, b, c):
    pair = -cutlass.Float32.inf, cutlass.Float32(0.0)
    for each in cutlass.range_constexpr(3):
        pair = merge(pair, (a, b, c)[each])
    return pair


@cute.jit
def unguarded(a, b, c):
    top = cute.arch.fmax(a[0], cute.arch.fmax(b[0], c[0]))
    return top, a[1] * power(a[0] - top) + b[1] * power(b[0] - top) + c[1] * power(c[0] - top)


@cute.jit
def two_of_three(a, b, c):
    return merge(a, b)


def squares(x):
    return (x * x).reduce(cute.ReductionOp.ADD, 0.0, 0)


def one_by_one(x):
    total = cutlass.Float32(0.0)
    for i in range(cute.size(x.shape)):
        total += x[i] * x[i]
    return total


def first_eight(x):
    total = cutlass.Float32(0.0)
    for i in range(8):
        total += x[i] * x[i]
    return total


def one(x):
    return cutlass.Float32(1.0)


def by_root(x, total):
    return x / cute.math.sqrt(total)


def by_rsqrt(x, total):
    return x * cute.math.rsqrt(total, fastmath=True)


def mean(x, total):
    return x * cute.math.rsqrt(total / 1000)


def times(x, total):
    return cute.math.exp2(cute.math.log2(total) * -0.5) * x


def by_log2(x, e, mine, top, total):
    return x - top - cute.math.log2(total) / LOG2E


def one_log(x, e, mine, top, total):
    return (x - top) - cute.math.log(total)


def fast(x, e, mine, top, total):
    return x - (top + cute.math.log(total, fastmath=True))


def unscaled(x, e, mine, top, total):
    return x - mine - cute.math.log(total)


def no_total(x, e, mine, top, total):
    return x - top


def base_two(x, e, mine, top, total):
    return x - top - cute.math.log2(total)


def base_ten(x, e, mine, top, total):
    return x - top - cute.math.log10(total)


def make_average(before, between, after):
    @cute.kernel
    def kernel(mX: cute.Tensor, mY: cute.Tensor):
        lane, rank = cute.arch.lane_idx(), cute.arch.block_idx_in_cluster()
        smem = cutlass.memory.SmemAllocator()
        box = smem.allocate_tensor(cutlass.Float32, cute.make_layout((4, 2)), byte_alignment=16)
        number = cute.make_rmem_tensor(1, cutlass.Float32)
        if cutlass.const_expr(before):
            meet()
        for row in cutlass.range(mX.shape[0], unroll=1):
            side = row % 2 if cutlass.const_expr(before == "buffers") else 0
            number[0] = mX[row, rank]
            if lane < 4:
                place = cute.arch.map_dsmem_ptr(box.iterator + rank + 4 * side, lane)
                cute.autovec_copy(number, cute.make_tensor(place, cute.make_layout(1)))
            if cutlass.const_expr(between):
                meet()
            total = box[0, side] + box[1, side] + box[2, side] + box[3, side]
            if cutlass.const_expr(after):
                meet()
            if lane == 0:
                mY[row, rank] = total * 0.25

    return kernel


two_barriers = make_average(True, True, True)
two_buffers = make_average("buffers", True, False)
never_started = make_average(False, True, True)
no_middle = make_average(True, False, True)
overwritten = make_average(True, True, False)


@cute.kernel
def leaves_early(mX: cute.Tensor, mY: cute.Tensor):
    lane, rank = cute.arch.lane_idx(), cute.arch.block_idx_in_cluster()
    box = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(6), byte_alignment=16)
    if lane < 6:
        box[lane] = mX[lane, rank]
    meet()
    number = cute.make_rmem_tensor(1, cutlass.Float32)
    if lane < 6:
        total = cutlass.Float32(0.0)
        for other in cutlass.range_constexpr(4):
            place = cute.arch.map_dsmem_ptr(box.iterator + lane, other)
            cute.autovec_copy(cute.make_tensor(place, cute.make_layout(1)), number)
            total += number[0]
        mY[lane, rank] = total / 4


@cute.kernel
def without_the_others(mX: cute.Tensor, mY: cute.Tensor):
    lane, rank = cute.arch.lane_idx(), cute.arch.block_idx_in_cluster()
    for row in cutlass.range(mX.shape[0], unroll=1):
        if lane == 0:
            mY[row, rank] = (mX[row, 0] + mX[row, 1] + mX[row, 2] + mX[row, 3]) / 4


@cute.kernel
def six_rows(mX: cute.Tensor, mY: cute.Tensor):
    lane, rank = cute.arch.lane_idx(), cute.arch.block_idx_in_cluster()
    box = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(4), byte_alignment=16)
    number = cute.make_rmem_tensor(1, cutlass.Float32)
    for row in cutlass.range_constexpr(6):
        meet()
        number[0] = mX[row, rank]
        if lane < 4:
            place = cute.arch.map_dsmem_ptr(box.iterator + rank, lane)
            cute.autovec_copy(number, cute.make_tensor(place, cute.make_layout(1)))
        meet()
        if lane == 0:
            mY[row, rank] = (box[0] + box[1] + box[2] + box[3]) * 0.25


@cute.kernel
def by_halves(mX: cute.Tensor, mY: cute.Tensor):
    lane, rank = cute.arch.lane_idx(), cute.arch.block_idx_in_cluster()
    box = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(4), byte_alignment=16)
    number = cute.make_rmem_tensor(1, cutlass.Float32)
    meet()
    for row in cutlass.range(mX.shape[0], unroll=1):
        number[0] = mX[row, rank]
        for step in cutlass.range_constexpr(2):
            if lane == 0:
                place = cute.arch.map_dsmem_ptr(box.iterator + 2 * (row % 2) + step, rank ^ (1 << step))
                cute.autovec_copy(number, cute.make_tensor(place, cute.make_layout(1)))
            meet()
            number[0] += box[2 * (row % 2) + step]
        if lane == 0:
            mY[row, rank] = number[0] * 0.25


@cute.kernel
def not_a_number(mX: cute.Tensor, mY: cute.Tensor):
    lane, rank = cute.arch.lane_idx(), cute.arch.block_idx_in_cluster()
    for row in cutlass.range(mX.shape[0], unroll=1):
        if lane == 0:
            mY[row, rank] = cutlass.Float32(float("nan"))
"""
OTHER = ["None", "'text'", "(1, 2)", "np.float64(3)", "float('nan')", "nothing", "from_torch"]
NUMBERS = ["None", "'8'", "float('nan')", "(1, 2)", "True", "1.5"]
CHECKS: dict[str, tuple[list[str], list[str]]] = {  # wrong answers, and right ones
    "check_under_way": (
        ["0, 0", "3, 48", "1, 16", "2, 48", "-2, -32", "10**30, 32",
         *(f"2, {x}" for x in NUMBERS), *(f"{x}, 32" for x in NUMBERS)],
        ["2, 32", "np.int64(2), 32.0", "torch.tensor(2), np.uint8(32)"],
    ),
    "check_merge_three": (
        [*OTHER, "zeros", "nans", "unguarded", "two_of_three"],
        ["at_once", "from_behind", "empty_first"],
    ),
    "check_norm": (
        [*(f"squares, {x}" for x in OTHER), *(f"{x}, by_root" for x in OTHER), "one, by_root", "squares, mean",
         "squares, zeros",
         "squares, nans", "first_eight, by_root"],
        ["squares, by_root", "one_by_one, by_rsqrt", "squares, times"],
    ),
    "check_average": (
        [*OTHER, "never_started", "no_middle", "overwritten", "leaves_early", "not_a_number", "average_kernel",
         "six_rows", "without_the_others"],
        ["two_buffers", "fixed_kernel", "by_halves"],
    ),
    "check_log": (
        [*OTHER, "zeros", "nans", "unscaled", "no_total", "base_two", "base_ten", "log_softmax"],
        ["by_log2", "one_log", "fast"],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The checks, what they use, and answers that are functions."""
    cells = [f"ex{n}-check" for n in range(1, 6)]
    given = [notebooks.definitions(exercises.cell(CHAPTER, name)) for name in ("ex4", "ex4-solution", "ex5")]
    extra = "\n\n".join(["import numpy as np", *given, exercises.ANSWERS, ANSWERS])
    return exercises.defined(CHAPTER, cells, tmp_path_factory.mktemp(CHAPTER), extra)


test_answers_are_judged = exercises.answers_are_judged(CHECKS)


test_hints = exercises.wrong_answers_get_hints({
    "check_merge_three(two_of_three)": "elements are wrong; the first, (0, 1), is ",
    "check_norm(first_eight, by_root)": "with 16 values in a thread: ",
    "check_average(six_rows)": "2 rows: OutOfBounds: load",
    "check_average(without_the_others)": "0 bytes per row go from one CTA to another",
    "check_average(average_kernel)": "MissingBarrier: store to shared memory",
})  # fmt: skip
