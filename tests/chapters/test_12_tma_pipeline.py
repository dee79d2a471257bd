"""Chapter 12's ring under the GEMM: float64, both spellings of it, C by TMA, its clock, its mistakes and exercises."""

from __future__ import annotations

import contextlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut.course import notebooks
from cutetut.inspect.compiled import inspect
from cutetut.measure import bench, mistakes, records
from tests.chapters import benchmarks, contract, exercises
from tests.chapters.exercises import FUNCTIONS, NUMBERS
from tests.chapters.products import assert_product, exact, normal, wide

CHAPTER = "12_tma_pipeline"
F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
WIDE = "128x256, 2 warpgroups"


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


def cute_tensors(chapter: ModuleType, *tensors: torch.Tensor) -> list[Any]:
    return [chapter.from_dlpack(t, assumed_align=16) for t in tensors]


def multiply(
    chapter: ModuleType, A: torch.Tensor, B: torch.Tensor, plan: Any, launch: Any = None, out: torch.dtype = F32
) -> torch.Tensor:
    C = torch.full((A.shape[0], B.shape[0]), torch.nan, dtype=out, device=A.device)
    tensors = cute_tensors(chapter, A, B, C)
    chapter.cute.compile(launch or chapter.ring_gemm_launch, *tensors, plan)(*tensors)
    return C


@pytest.mark.parametrize(
    ("name", "K", "out"),
    [
        ("128x128, 2 CTAs", 64, BF16),
        ("128x128, 1 CTA", 584, F32),
        (WIDE, 320, BF16),
        ("256x128, 2 warpgroups", 72, F32),
    ],
)
def test_every_plan_matches_float64(
    chapter: ModuleType, rng: np.random.Generator, device: str, name: str, K: int, out: torch.dtype
) -> None:
    bM, bN, _ = chapter.PLANS[name].tile
    A, B = normal(rng, device, BF16, (bM, K), (2 * bN, K))
    assert_product(multiply(chapter, A, B, chapter.PLANS[name], out=out), A, B)


@pytest.mark.parametrize(("a", "b"), [("MN", "K"), ("K", "MN")])
def test_operands_of_either_major(
    chapter: ModuleType, rng: np.random.Generator, device: str, a: str, b: str
) -> None:
    A, B = (normal(rng, device, F16, (128, 200) if major == "K" else (200, 128))[0] for major in (a, b))
    A, B = (t if major == "K" else t.T for t, major in ((A, a), (B, b)))
    assert_product(multiply(chapter, A, B, chapter.Plan()), A, B)


def test_two_stages_and_integers_are_exact(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    A, B = (torch.from_numpy(rng.integers(-8, 9, (128, 392)).astype(np.float32)).half().to(device) for _ in range(2))
    for launch in (chapter.ring_gemm_launch, chapter.library_gemm_launch):
        assert np.array_equal(wide(multiply(chapter, A, B, chapter.Plan(stages=2), launch)), exact(A, B))


def test_a_nan_stays_in_its_row(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    A, B = normal(rng, device, BF16, (128, 136), (128, 136))
    A[5, 130] = torch.nan
    nan = multiply(chapter, A, B, chapter.Plan()).isnan().cpu()
    assert nan[5].all() and nan.sum() == 128


REFUSED: list[tuple[tuple[int, int], tuple[int, int], torch.dtype, dict[str, Any], type[Exception], str]] = [
    ((100, 64), (128, 64), BF16, {}, ValueError, "M=100"),
    ((128, 12), (128, 12), BF16, {}, ValueError, "multiple of 16 bytes"),
    ((128, 64), (128, 72), BF16, {}, ValueError, "MxK, NxK and MxN"),
    ((128, 64), (128, 64), F32, {}, TypeError, "both must be Float16"),
    ((128, 64), (128, 64), BF16, {"stages": 8}, ValueError, "8 stages"),
    ((128, 64), (128, 64), BF16, {"stages": 1}, ValueError, "2 stages at least"),
    ((128, 64), (128, 64), BF16, {"swizzle": "SW64"}, ValueError, "must be 'SW128'"),
]


def test_it_refuses_what_it_does_not_support(chapter: ModuleType, device: str) -> None:
    for a, b, dtype, options, error, says in REFUSED:
        A, B = (torch.zeros(shape, dtype=dtype, device=device) for shape in (a, b))
        with pytest.raises(error, match=says):
            multiply(chapter, A, B, chapter.Plan(**options))


def test_the_kernels_keep_to_the_contract(chapter: ModuleType) -> None:
    contract.assert_one_idea(chapter.step.async_gemm_kernel, chapter.ring_gemm_kernel)
    contract.assert_one_idea(chapter.ring_gemm_kernel, chapter.library_gemm_kernel)
    contract.assert_one_idea(chapter.ring_gemm_kernel, chapter.stored().ring_gemm_kernel)
    contract.assert_contract(CHAPTER)


def test_both_spellings_move_wait_and_multiply_alike(
    chapter: ModuleType, rng: np.random.Generator, device: str
) -> None:
    """The chapter's claim: the library waits in the first turn, too, and the rest that differs is arithmetic."""
    A, B = normal(rng, device, BF16, (128, 704), (128, 704))
    found = []
    for launch in (chapter.ring_gemm_launch, chapter.library_gemm_launch):
        C = torch.full((128, 128), torch.nan, device=device)
        tensors = cute_tensors(chapter, A, B, C)
        compiled = chapter.cute.compile(launch, *tensors, chapter.Plan(stages=3))
        compiled(*tensors)
        assert_product(C, A, B)
        found.append(inspect(compiled).opcodes)
    ours, theirs = found
    words = ("cp.async", "mbarrier", "wgmma", "fence", "elect", "ld.", "st.", "bar.sync")
    differ = {op: theirs[op] - ours[op] for op in ours | theirs if op.startswith(words) and ours[op] != theirs[op]}
    assert differ == {"mbarrier.try_wait.parity.shared.b64": 3 - 1}


@pytest.mark.parametrize(("name", "shape"), [("128x128, 2 CTAs", (100, 136, 72)), (WIDE, (129, 264, 200))])
def test_c_by_tma_is_clipped(
    chapter: ModuleType, rng: np.random.Generator, device: str, name: str, shape: tuple[int, int, int]
) -> None:
    M, N, K = shape
    A, B = normal(rng, device, F16, (M, K), (N, K))
    memory = torch.full((M + 2, N), 7.0, dtype=F16, device=device)
    tensors = cute_tensors(chapter, A, B, memory[1:-1])
    chapter.cute.compile(chapter.stored().ring_gemm_launch, *tensors, chapter.PLANS[name])(*tensors)
    assert_product(memory[1:-1], A, B)
    assert (memory[0] == 7).all() and (memory[-1] == 7).all()


def test_c_by_tma_refuses_what_would_go_to_one_place(chapter: ModuleType, device: str) -> None:
    launch = chapter.stored().ring_gemm_launch
    for shape, out in (((64, 128), BF16), ((128, 64), BF16), ((128, 132), BF16), ((128, 128), F32)):
        A, B = (torch.zeros(rows, 64, dtype=BF16, device=device) for rows in shape)
        with pytest.raises(ValueError, match="C needs"):
            multiply(chapter, A, B, chapter.Plan(), launch, out)


def test_a_tensor_of_coordinates_makes_no_fragment(chapter: ModuleType, device: str) -> None:
    """The chapter's reason for `make_fragment_C` of a shape: where TMA stores C, its partition has no elements."""
    fragments = """
    tCrC = tiled_mma.make_fragment_C(tCgC.shape)
    tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))  # descriptors, (1, M, K, stages)
    tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))  # descriptors, (1, N, K, stages)

    # Copy: request the first stages - 1 tiles
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    for kt in"""  # which the kernel of `cutlass.pipeline` continues in another way
    of_tensor = (fragments, fragments.replace("tCgC.shape", "tCgC"))
    tensors = [torch.zeros(128, columns, dtype=BF16, device=device) for columns in (64, 64, 128)]
    for lines, refused in (([], False), (chapter.TMA_OUT, True)):
        launch = notebooks.changed(CHAPTER, [*lines, of_tensor]).ring_gemm_launch
        with pytest.raises(Exception, match="coord_tensor") if refused else contextlib.nullcontext():
            chapter.cute.compile(launch, *cute_tensors(chapter, *tensors), chapter.Plan())


def test_the_traced_kernel_computes_the_same_and_its_clock_runs_forward(
    chapter: ModuleType, rng: np.random.Generator, device: str
) -> None:
    stages = 2
    A, B = normal(rng, device, BF16, (128, 448), (128, 448))
    C, clock = chapter.traced(A, B, chapter.Plan(stages=stages))
    assert_product(C, A, B)
    warps, filler, observer = clock[:4, :, :, 0], clock[0, :, :, 0], clock[-4, :, 1, 0]
    assert (observer > filler[:, 4]).all() and (filler[:, 4] >= filler[:, 3]).all()
    assert (warps[:, :, 1] >= warps[:, :, 0]).all()
    assert (warps[:, 1:, 2] > warps[:, :-1, 1]).all()  # a product ends after its tile was there
    done = warps[:, 1:, 2].max(axis=0)  # of tile kt; its stage goes to tile kt + stages
    assert (filler[stages:, 4] > done[: len(filler) - stages]).all()


def test_its_bars_can_be_drawn() -> None:
    """The spans that a recorded timeline becomes, from the emulator's clock."""
    shown = notebooks.load(CHAPTER, exercises.HELPER_TAGS)
    A, B = (torch.zeros(128, 448, dtype=BF16, device=shown.cutetut.device) for _ in range(2))
    _, clock = shown.traced(A, B, shown.Plan())
    found = {"plan": "128x128, 2 CTAs", "stages": 3, "bN": 128, "clock": clock[..., 0].tolist()}
    bars = shown.spans(found)
    assert {bar.row for bar in bars} == {"warp 0 requests", "stage 0", "stage 1", "stage 2", "warp 0"}
    assert sum(bar.kind == "loads" for bar in bars) == 6  # all tiles but the last
    assert shown.pictured([found]).run == "128x128, 2 CTAs" and "128x128, 2 CTAs" in shown.summary(found)


def test_the_ladder_has_the_ratios_of_the_table() -> None:
    """Each rung against cuBLAS in its own run, as the stake says it."""
    shown = notebooks.load("08_wgmma", exercises.HELPER_TAGS)
    rows = shown.rows_of(CHAPTER)
    names = [name for name in rows if name.startswith(("10", f"12 {WIDE}"))]
    lines = shown.ladder_of(CHAPTER, names, "speeds").text.splitlines()
    for name, line in zip(names, lines, strict=False):
        assert line.startswith(f"{name}: ")
        assert float(line.split(", ")[-1].split("%")[0]) / 100 == pytest.approx(rows[name]["ratio"], abs=0.006)


SAYS = {  # the fault with two warpgroups, and a part of a line that it names
    "no wait for full": ("Uninitialized: operand A", "cute.gemm(tiled_mma"),
    "the readers' parity": ("InFlight: operand A", "cute.gemm(tiled_mma"),
    "no wait for empty": ("MissingBarrier: a copy to shared memory", "cute.copy(load_A, tAgA[None, ahead]"),
    "the filler's parity": ("Deadlock", "cute.arch.mbarrier_wait(empty + ahead % stages, ahead // stages & 1)"),
    "half the bytes": ("AsyncMismatch", "cute.copy(load_"),
    "twice the bytes": ("Deadlock", "cute.arch.mbarrier_wait(full + stage"),
    "let go too early": ("MissingBarrier: a copy to shared memory", "cute.copy(load_A, tAgA[None, ahead]"),
    "no wait for the products": ("InFlight: a copy overwrites", "cute.copy(load_A, tAgA[None, ahead]"),
    "every thread lets go": ("IllegalInstruction: 256 more arrivals", "cute.arch.mbarrier_arrive(empty"),
    "C by TMA: no proxy fence": ("MissingFence: the TMA store", "cute.copy(store, tCsC"),
    "C by TMA: slab not waited for": ("InFlight: a store to shared memory", "cute.copy(to_shared, slab"),
}
WARNED = "swizzles differ"


@pytest.mark.emulator
def test_mistakes(chapter: ModuleType) -> None:
    assert {*chapter.MISTAKES} == {*SAYS, WARNED}
    for name in chapter.MISTAKES:
        launch, (A, B, C), expected = chapter.problem(name, 128, 448)
        said = mistakes.report(launch, A, B, C, chapter.Plan(warpgroups=(2, 1)))
        if name == WARNED:
            assert said.startswith("warning: operand A of the WGMMA is read with the 128-byte swizzle")
            assert ((C.double() - expected).abs() > 1).any()
            continue
        fault, line = SAYS[name]
        assert said.startswith(fault) and line in said, (name, said)


@pytest.mark.emulator
def test_the_benchmark_runs_whole(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of every kind, the timelines, and what launches mistakes on a GPU; without a clock."""
    monkeypatch.setattr(chapter, "SIZE", 256)
    monkeypatch.setattr(chapter, "PLANS", {name: chapter.PLANS[name] for name in ("128x128, 2 CTAs", WIDE)})
    monkeypatch.setattr(chapter, "OTHERS", ())
    monkeypatch.setattr(chapter, "SWEEP", {})
    monkeypatch.setattr(chapter, "RAGGED", {"both": (200, 264, 136)})
    monkeypatch.setattr(chapter, "clocks", lambda size: {"after a rest": 1980.0})  # asks torch.cuda
    monkeypatch.setattr(chapter.mistakes, "on_gpu", lambda notebook, names: [{"mistake": name} for name in names])
    written: dict[str, Any] = {}
    monkeypatch.setattr(chapter.records, "write", lambda name, what, content: written.update({what: content}))
    timed = benchmarks.without_a_clock(chapter, monkeypatch)
    rows = bench.validated(chapter.benchmark(), CHAPTER)
    names = [f"{number} {name}" for number in ("10", "12") for name in chapter.PLANS] + ["12 library", "12 C by TMA"]
    assert timed == [*names, "12 C by TMA, ragged both"]
    assert [row["kernel"] for row in rows if row.get("rung")] == [f"12 {WIDE}"]
    assert {*written} == {"timelines", "clock", "mistakes"}
    assert [timeline["plan"] for timeline in written["timelines"]] == [WIDE, "128x128, 2 CTAs"]
    once, right = chapter.attempt("no wait for the products")
    assert callable(once) and not right()  # C is NaN until it is launched


@pytest.mark.emulator
def test_the_clock_probe_reads_both_timers(chapter: ModuleType, device: str) -> None:
    out = torch.zeros(2, dtype=torch.int64, device=device)
    kernel = chapter.from_dlpack(out)
    chapter.cute.compile(chapter.clock_launch, kernel)(kernel)
    cycles, ns = out.tolist()
    assert ns >= 1_000_000 and cycles > 0


# What the table says ---------------------------------------------------------------------------------------------

ROWS = {
    (row["kernel"], row["method"].split()[0]): row
    for row in bench.read(CHAPTER)["rows"]
    if row["M"] == row["N"] == row["K"] == 4096
}


def cycles(kernel: str, method: str = "burst", side: str = "") -> float:
    row = ROWS[kernel, method]
    return float(row[f"{side or 'ours'}_us"] * row[f"{side}_sm_mhz" if side else "sm_mhz"])


def test_speeds_and_cycles_are_as_the_text_says() -> None:
    text = exercises.prose(CHAPTER, "verdict-md")
    before, ring, by_tma = (ROWS[kernel, "burst"] for kernel in (f"10 {WIDE}", f"12 {WIDE}", "12 C by TMA"))
    assert f"the stake from {before['ours_tflops']:.0f} to {ring['ours_tflops']:.0f} TFLOP/s" in text
    assert f"in bursts {by_tma['ours_tflops']:.0f} against {ring['ours_tflops']:.0f} TFLOP/s" in text
    assert f"{by_tma['ours_us']:.0f} us against {ring['ours_us']:.0f}." in text
    slow, fast = cycles(f"12 {WIDE}"), cycles("12 C by TMA")
    assert f"{round(fast, -3):,.0f} against {round(slow, -3):,.0f}." in text
    assert f"each tile saves {round((slow - fast) / 4, -2):,.0f} cycles" in text
    assert (slow - fast) / slow == pytest.approx(1 / 9, abs=0.01)
    library, by_hand = (bench.ratio(ROWS[kernel, "burst"]) for kernel in ("12 library", f"12 {WIDE}"))
    assert f"{library} of cuBLAS, and {by_hand}." in text
    for plan in ("128x128, 2 CTAs", "128x128, 1 CTA", WIDE, "256x128, 2 warpgroups"):
        for method in ("burst", "sustained"):
            assert cycles(f"12 {plan}", method) < cycles(f"10 {plan}", method)


def test_cublas_varies_by_its_clock_and_not_by_its_cycles() -> None:
    text, kernels = exercises.prose(CHAPTER, "verdict-md"), {kernel for kernel, _ in ROWS}
    for method, percent in (("burst", 1), ("sustained", 7)):
        speeds = [ROWS[kernel, method]["vendor_tflops"] for kernel in kernels]
        assert round(100 * (max(speeds) / min(speeds) - 1)) == percent
    assert "in bursts by 1 percent, sustained by 7," in text
    clocks = [ROWS[kernel, "sustained"]["vendor_sm_mhz"] for kernel in kernels]
    assert f"cuBLAS runs at {min(clocks)} to {max(clocks)} MHz" in text
    counted = [cycles(kernel, "sustained", "vendor") for kernel in kernels]
    assert max(counted) / min(counted) < 1.01
    assert all(cycles(kernel, "sustained") < cycles(kernel) for kernel in kernels)


def test_the_clock_during_the_launches_is_not_that_after_them() -> None:
    text, after = exercises.prose(CHAPTER, "timeline-read"), records.read(CHAPTER, "clock")
    burst, sustained = (ROWS[f"12 {WIDE}", method]["sm_mhz"] for method in ("burst", "sustained"))
    assert f"after a burst it is {after['behind a burst of 40']:.0f} MHz" in text
    assert f"*During* the burst it was {burst}." in text
    assert f"Sustained it is {sustained}, and {after['behind half a second']:.0f} in the millisecond after" in text
    launches = [round(cycles(f"12 {WIDE}", method), -3) for method in ("sustained", "burst")]
    assert f"{launches[0]:,.0f} to {launches[1]:,.0f}, so" in text
    each = cycles("12 C by TMA") / 4 / 64
    assert f"{round(256 * each, -3):,.0f} cycles with everything around them, {round(each, -1):.0f} for each" in text


# Exercises -----------------------------------------------------------------------------------------------------

MORE = """
def arrays(kt, stages):
    return np.array([kt % stages, (kt // stages) % 2, 1 - (kt // stages) % 2])


def from_a_table(kt, stages):
    turn = divmod(kt, stages)[0]
    return torch.tensor([kt - turn * stages, turn % 2, (turn + 1) % 2])


def same_parity(kt, stages):
    return kt % stages, kt // stages & 1, kt // stages & 1


def by_division(bM, bN, bK, bits):
    element = bits / 8
    return float((232448 - 8192 * element) // ((bM + bN) * bK * element + 16))


def without_slabs(bM, bN, bK, bits):
    return 232448 // ((bM + bN) * bK * bits // 8 + 16)


def with_barriers_of(each, bM, bN, bK, bits):
    return (232448 - 2 * 64 * 64 * bits // 8) // ((bM + bN) * bK * bits // 8 + each)


@cute.jit
def by_turns(load: cute.CopyAtom, tXgX: cute.Tensor, tXsX: cute.Tensor, full: cute.Pointer, empty: cute.Pointer,
             kt: cutlass.Int32, stages: cutlass.Constexpr, nbytes: cutlass.Constexpr):
    turn = kt // stages
    stage = kt - turn * stages
    if turn > 0:
        cute.arch.mbarrier_wait(empty + stage, (turn - 1) % 2)
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(full + stage, nbytes)
    cute.copy(load, tXgX[None, kt], tXsX[None, stage], tma_bar_ptr=full + stage)


def loaded_before_announced(load, tXgX, tXsX, full, empty, kt, stages, nbytes):
    cute.arch.mbarrier_wait(empty + kt % stages, kt // stages + 1 & 1)
    cute.copy(load, tXgX[None, kt], tXsX[None, kt % stages], tma_bar_ptr=full + kt % stages)
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(full + kt % stages, nbytes)


def readers_parity(load, tXgX, tXsX, full, empty, kt, stages, nbytes):
    cute.arch.mbarrier_wait(empty + kt % stages, kt // stages & 1)
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(full + kt % stages, nbytes)
    cute.copy(load, tXgX[None, kt], tXsX[None, kt % stages], tma_bar_ptr=full + kt % stages)


def not_announced(load, tXgX, tXsX, full, empty, kt, stages, nbytes):
    cute.arch.mbarrier_wait(empty + kt % stages, (kt // stages & 1) ^ 1)
    cute.copy(load, tXgX[None, kt], tXsX[None, kt % stages], tma_bar_ptr=full + kt % stages)


def first_tile_only(load, tXgX, tXsX, full, empty, kt, stages, nbytes):
    cute.arch.mbarrier_wait(empty + kt % stages, (kt // stages & 1) ^ 1)
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(full + kt % stages, nbytes)
    cute.copy(load, tXgX[None, 0], tXsX[None, kt % stages], tma_bar_ptr=full + kt % stages)


def always_4096_bytes(load, tXgX, tXsX, full, empty, kt, stages, nbytes):
    by_turns(load, tXgX, tXsX, full, empty, kt, stages, 4096)


def parities_of_three_turns(load, tXgX, tXsX, full, empty, kt, stages, nbytes):
    cute.arch.mbarrier_wait(empty + kt % stages, cutlass.Int32(kt // stages != 1))
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(full + kt % stages, nbytes)
    cute.copy(load, tXgX[None, kt], tXsX[None, kt % stages], tma_bar_ptr=full + kt % stages)


def tried_first(ring, state, add):
    token = ring.consumer_try_wait(state)
    ring.consumer_wait(state, token)
    add(state.index)
    cute.arch.sync_warp()
    ring.consumer_release(state)
    state.advance()
    return state


def a_clone(ring, state, add):
    ring.consumer_wait(state)
    add(state.index)
    following = state.clone()
    following.advance()
    cute.arch.sync_warp()
    ring.consumer_release(state)
    return following


def no_wait(ring, state, add):
    add(state.index)
    cute.arch.sync_warp()
    ring.consumer_release(state)
    state.advance()
    return state


def no_release(ring, state, add):
    ring.consumer_wait(state)
    add(state.index)
    state.advance()
    return state


def adds_nothing(ring, state, add):
    ring.consumer_wait(state)
    ring.consumer_release(state)
    state.advance()
    return state


def no_advance(ring, state, add):
    ring.consumer_wait(state)
    add(state.index)
    cute.arch.sync_warp()
    ring.consumer_release(state)
    return state
"""
CHECKS: dict[str, tuple[list[str], list[str]]] = {  # wrong answers, and right ones
    "check_ring": (
        [
            *FUNCTIONS,
            "same_parity",
            "lambda kt, stages: (0, 0, 1)",
            "lambda kt, stages: (kt % stages, False, True)",
            "lambda kt, stages: kt",
            "lambda kt: (0, 0, 1)",
        ],
        [
            "arrays",
            "from_a_table",
            "lambda kt, s: [kt % s, float(kt // s % 2), np.uint8(kt // s % 2 ^ 1)]",
            "lambda kt, s: (kt % s, kt // s % 2 == 1, kt // s % 2 == 0)",
        ],
    ),
    "check_most_stages": (
        [
            *FUNCTIONS,
            "without_slabs",
            *("lambda *t: with_barriers_of(24, *t)", "lambda *t: with_barriers_of(2 * t[-1], *t)"),
            *("lambda *t: with_barriers_of(8, *t)", "lambda *t: with_barriers_of(0, *t)"),
            *("lambda *tile: 0", "lambda *tile: 1.5", *(f"lambda *t: {x}" for x in NUMBERS)),
        ],
        ["by_division", "lambda *t: np.int64(by_division(*t))", "lambda *t: torch.tensor(by_division(*t))"],
    ),
    "check_fill": (
        [
            *(*FUNCTIONS, "readers_parity", "not_announced", "first_tile_only"),
            *("always_4096_bytes", "parities_of_three_turns"),
        ],
        ["by_turns", "loaded_before_announced"],
    ),
    "check_drain": (
        [*FUNCTIONS, "no_wait", "no_release", "adds_nothing", "no_advance"],
        ["tried_first", "a_clone"],
    ),
}


HINTS = {  # wrong answers that leave threads waiting, and what the check says of whom; one that reads too early
    3: {
        "readers_parity": "warps [1] wait for phase 0 of the mbarrier",
        "not_announced": "1 of 1 arrivals",
        "always_4096_bytes": "3072 bytes pending",
        "parities_of_three_turns": "",
    },
    4: {"no_release": "wait for phase 0 of the mbarrier"},
}
names = exercises.judges_of(CHAPTER, MORE)
test_wrong_answers_are_told_why = exercises.wrong_answers_are_told_why({3: "check_fill", 4: "check_drain"}, HINTS)
test_answers_are_judged = exercises.answers_are_judged(CHECKS)
test_each_solution_belongs_to_an_exercise = exercises.solutions_belong_to_exercises(CHAPTER)
