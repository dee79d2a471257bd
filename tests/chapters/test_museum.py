"""The museum of bugs: each exhibit is told at the right lines, and mended it is silent and equal to float64."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cutetut.course import notebooks, provenance
from cutetut.explore import under
from cutetut.inspect.diagnose import NO_FAULT
from cutetut.measure import bench, mistakes, records, sanitizer
from tests.chapters import benchmarks, exercises

CHAPTER = "museum_of_bugs"
LINES = 60  # of a kernel, at most

# how the report begins, and lines of Python that it names
TOLD = {
    "staged": ("MissingBarrier: load of shared memory", ["= o_shared[tid // 8", "o_shared[i, tid] ="]),
    "sums": ("MissingBarrier: store to shared memory", ["partial_sums[tid // 32] = total", "mY[n] = partial_sums[0]"]),
    "some_warps": ("DivergentBarrier: barrier 0 is met at different lines", ["warps 2-3", "warps 0-1"]),
    "no_work": ("MissingBarrier: warp 2 comes to barrier 1", ["# BUG no_work", "barrier(barrier_id=1"]),
    "parity": ("MissingBarrier: the wait for phase 2", ["# BUG parity"]),
    "two_buffers": ("IllegalInstruction: one more arrival", ["mbarrier_arrive_and_expect_tx(bar"]),
    "one_turn": ("Deadlock", ["mbarrier_wait(full, 0)", "256 bytes announced by warp 0"]),
    "peer": ("InFlight: load of shared memory", ["cute.copy(copy, cute.group_modes(row"]),
    "scope": ("MissingBarrier: load of shared memory", ["copied with cp.async", "# BUG scope", "cute.copy(copy, "]),
    "gone": ("MissingBarrier: the CTA exits", ["of_peer(row, 1 - rank"]),
    "empty": (
        "MissingFence: the TMA store reads",
        ["CTA (1, 0, 0)", "state[i, tid] = Float32(0.0)", "cute.copy(store"],
    ),
    "unfenced": ("MissingFence: operand A of the WGMMA", ["cute.gemm(mma", "sX[i // cols, i % cols] ="]),
    "two_groups": (
        "warning: a store to shared memory",
        ["WGMMA of warp 0", "sX[i // cols, i % cols] =", "cute.gemm(mma"],
    ),
    "prefetch": ("InFlight: a copy overwrites shared memory", ["cute.copy(out, ", "cute.copy(copy, "]),
    "refill": ("MissingBarrier: a store to shared memory", ["c_shared[row, tid % 32] =", "cute.copy(store"]),
    "early": ("MissingBarrier: load of byte", ["= mT[cta, 127 - tid]", "mT[cta, tid] ="]),
    "maps": ("InFlight: the tensor map is changed", ["update_tma_descriptor", "tma_desc_ptr"]),
}


@pytest.fixture(scope="module")
def museum() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


def asked(museum: ModuleType, name: str, completes: str = "late") -> tuple[str, bool]:
    """What the emulator says of an exhibit, and whether its result is right."""
    exhibit = museum.EXHIBITS[name.removesuffix(museum.FIXED)]
    torch.manual_seed(11)
    arguments = exhibit.inputs()
    with under(completes, "order"):
        said = mistakes.report(museum.kernel_of(name), *arguments)
    return said, torch.equal(arguments[-1].double(), exhibit.exact(*arguments))


def test_there_are_enough_exhibits(museum: ModuleType) -> None:
    assert set(museum.EXHIBITS) == set(TOLD) and len(TOLD) >= 12


@pytest.mark.emulator
@pytest.mark.parametrize("name", TOLD)
def test_an_exhibit_is_told(museum: ModuleType, name: str) -> None:
    said, _ = asked(museum, name)
    begins, named = TOLD[name]
    assert said.startswith(begins), said
    for part in named:
        assert part in said, said


@pytest.mark.emulator
@pytest.mark.parametrize("name", TOLD)
def test_mended_it_is_silent_and_right(museum: ModuleType, name: str) -> None:
    for completes in ("late", "early", "random:3"):
        said, right = asked(museum, name + museum.FIXED, completes)
        assert said == NO_FAULT and right, (completes, said)


def test_each_mistake_is_marked_once_and_its_kernel_is_short(museum: ModuleType) -> None:
    marked = []
    for cell in notebooks.notebook(CHAPTER).cells:
        if "kernel" in cell.tags:
            marked += re.findall(r"# BUG (\w+):", cell.source)
            for node in ast.parse(cell.source).body:
                assert (node.end_lineno or 0) - node.lineno < LINES
    assert marked == list(museum.EXHIBITS)


def test_each_exhibit_has_a_plate_with_its_year_and_its_public_thread(museum: ModuleType) -> None:
    cells = notebooks.read(CHAPTER).cells
    runs = [cell.id.removesuffix("-run") for cell in cells if cell.id.endswith("-run")]
    assert len(runs) == len(museum.EXHIBITS)
    for number, (ident, name) in enumerate(zip(runs, museum.EXHIBITS, strict=True), start=1):
        plate, kernel, run = (
            next(cell.source for cell in cells if cell.id == ident + end) for end in ("-md", "", "-run")
        )
        thread = ident.rsplit("-", 1)[1]
        assert f"\n### {number}. " in f"\n{plate}" and re.search(r", 20\d\d, ", plate) and "*Cost:*" in plate
        assert re.search(rf"\(https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/{thread}\)", plate), ident
        assert f"# BUG {name}:" in kernel and run == f'show("{name}")\non_silicon("{name}")'


@pytest.mark.emulator
def test_a_mended_kernel_that_is_wrong_does_not_pass(museum: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """`show` compares with float64: another expectation fails."""
    wrong = {**vars(museum.EXHIBITS["gone"]), "exact": lambda X, Y: museum.mirrored(X)}
    monkeypatch.setitem(museum.EXHIBITS, "gone", museum.Exhibit(**wrong))
    with pytest.raises(AssertionError, match="elements are wrong"):
        museum.show("gone")


@pytest.mark.emulator
@pytest.mark.parametrize("name", ["refill", "early", "maps"])
def test_exhibits_can_be_tried_on_a_gpu(museum: ModuleType, name: str) -> None:
    """What `mistakes.on_gpu` calls, twice: new input each time, and right where it is mended."""
    launch, right = museum.attempt(name + museum.FIXED)
    for _ in range(2):
        launch()
        assert right()


def recorded(museum: ModuleType) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Tables as the benchmark records them."""
    names = [name + end for name in museum.EXHIBITS for end in ("", museum.FIXED)]
    runs = [{"mistake": name, "right": 60, "wrong": 40, "ended": "ends"} for name in names]
    runs[0] |= {"right": 0, "wrong": 0, "ended": "hangs"}
    said = {"racecheck": ["Race at m_0f.py:7 and n_1e.py:8"], "synccheck": []}
    rows = [{"mistake": name, "tool": tool, "said": said[tool], "ended": "right"}
            for name in museum.EXHIBITS for tool in museum.TOOLS]  # fmt: skip
    return runs, {"version": "2025.3", "rows": rows}


@pytest.mark.emulator
def test_the_benchmark_tries_every_exhibit_and_its_tables_are_shown(
    museum: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmarks.keep_tables_in(tmp_path, monkeypatch)
    runs, watched = recorded(museum)
    asked_for: dict[str, Any] = {}

    def on_gpu(notebook: str, names: list[str], launches: int, at_once: int) -> list[dict[str, Any]]:
        asked_for.update(notebook=notebook, names=names, launches=launches)
        return runs

    monkeypatch.setattr(museum, "TURNS", 1)
    monkeypatch.setattr(mistakes, "on_gpu", on_gpu)
    monkeypatch.setattr(sanitizer, "version", lambda: watched["version"])
    monkeypatch.setattr(sanitizer, "watched", lambda notebook, names, tools: watched["rows"])
    timed = benchmarks.without_a_clock(museum, monkeypatch)
    monkeypatch.setattr(provenance, "sentence", lambda facts: "a test's GPU")
    assert bench.validated(museum.benchmark(), CHAPTER) and timed == ["two_groups, mended"]
    assert asked_for == {"notebook": CHAPTER, "names": [row["mistake"] for row in runs], "launches": 100}
    assert records.read(CHAPTER, "sanitizer") == watched
    names = dict(vars(museum))
    for cell in ("look", "silicon", "watched"):
        exec(exercises.cell(CHAPTER, cell), names)
    names["on_silicon"]("staged")
    shown = capsys.readouterr().out
    assert names["WATCHERS"] == museum.TOOLS
    assert re.search(r"^all +17 +0 +17 +0$", shown, re.MULTILINE) and "by either tool: 17\n" in shown
    assert " 1  staged       hangs in launch 1 " in shown and shown.count("right 60 of 100") == 33
    assert len(re.findall(r"^ ?\d+  \w+ +1 report, result right +no reports, result right$", shown, re.MULTILINE)) == 17
    assert "right every time: none\n" in shown and "\nhang: staged\n" in shown and "no tool reports: none\n" in shown
    assert "H200, as it shipped: hangs in launch 1\none launch under racecheck: 1 report, result right; sync" in shown
    assert shown.count("racecheck, sums: Race at line 7 and") == 1


def test_mended_kernels_can_be_watched_and_are_shown(
    museum: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of them is asked about; those with a report, or without a right result, are shown one by one."""
    benchmarks.keep_tables_in(tmp_path, monkeypatch)
    monkeypatch.setattr(provenance, "collect", dict)
    monkeypatch.setattr(sanitizer, "version", lambda: "2025.3")
    asked_for: list[tuple[str, ...]] = []

    def watched(notebook: str, names: list[str], tools: tuple[str, ...]) -> list[dict[str, Any]]:
        asked_for.append((notebook, *tools, *names))
        rows = [{"mistake": name, "tool": tools[0], "said": [], "ended": "right"} for name in names]
        rows[1] |= {"said": ["Race at m_0f.py:7"]}
        rows[2] |= {"ended": "wrong"}
        return rows

    monkeypatch.setattr(sanitizer, "watched", watched)
    names = dict(vars(museum))
    for cell in ("look", "silicon", "watched"):
        exec(exercises.cell(CHAPTER, cell), names)
    for tool in names["WATCHERS"]:
        names["watch_mended"](tool)
    exhibits = list(museum.EXHIBITS)
    assert asked_for == [(CHAPTER, tool, *(name + museum.FIXED for name in exhibits)) for tool in museum.TOOLS]
    capsys.readouterr()
    exec(exercises.cell(CHAPTER, "watched"), names)
    shown = capsys.readouterr().out
    for tool in museum.TOOLS:
        assert f"one launch of each mended kernel under {tool}:\nright, and nothing reported: staged, no_work," in shown
    assert shown.count("sums: 1 report, result right; Race at line 7\nsome_warps: no reports, result wrong\n") == 2


@pytest.fixture
def overview(museum: ModuleType, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The names of the museum and of the cell that reads the recorded tables."""
    names = dict(vars(museum))
    exec(exercises.cell(CHAPTER, "look"), names)
    capsys.readouterr()
    return names


def test_the_rooms_of_the_first_table_are_those_of_the_plates(overview: dict[str, Any]) -> None:
    plates = "\n".join(cell.source for cell in notebooks.read(CHAPTER).cells if cell.cell_type == "markdown")
    names, found = list(overview["EXHIBITS"]), {}
    for number, title, room in re.findall(r"^## Room (\d): ([\w ]+)$(.*?)(?=^## )", plates, re.MULTILINE | re.DOTALL):
        numbers = [int(plate) for plate in re.findall(r"^### (\d+)\.", room, re.MULTILINE)]
        found[f"{number}  {title}"] = tuple(names[plate - 1] for plate in numbers)
    assert found == overview["ROOMS"] and sum(map(len, found.values())) == len(names)


def test_the_prose_says_what_was_measured(overview: dict[str, Any]) -> None:
    """The text names exhibits by their numbers; where the tables are recorded anew and differ, it has to change."""
    runs, seen = overview["runs"], overview["seen"]
    names = dict(enumerate(overview["EXHIBITS"], start=1))
    prose = {cell.id: " ".join(cell.source.split()) for cell in notebooks.read(CHAPTER).cells}
    told, launches = prose["silicon-read"], overview["LAUNCHES"]

    def those(wanted: Callable[[str], bool]) -> str:
        *most, last = (str(number) for number, name in names.items() if wanted(name))
        return f"{', '.join(most)} and {last}" if most else last

    def under(tool: str, what: Callable[[dict[str, Any]], bool]) -> str:
        return those(lambda name: what(seen[name, tool]))

    right = [name for name in names.values() if runs[name]["right"] == launches]
    assert len(right) == 13 and "thirteen of the seventeen were right" in prose["title"]
    assert all(runs[name + overview["FIXED"]]["right"] == launches for name in names.values())
    assert f"Exhibit {those(lambda name: runs[name]['wrong'] == launches)} is wrong in every launch" in told
    assert f"Exhibits {those(lambda name: runs[name]['ended'] == 'hangs')} hang in the first launch" in told
    assert f"Exhibit {those(lambda name: 'launch failure' in runs[name]['ended'])} crashes" in told
    assert f"`racecheck` reports exhibits {under('racecheck', lambda row: bool(row['said']))}," in told
    assert under("synccheck", lambda row: bool(row["said"])) == "3 and 5" and "`synccheck` reports exhibit 3," in told
    disturbed = those(
        lambda name: name in right and any(seen[name, t]["ended"] == "wrong" for t in overview["WATCHERS"])
    )
    assert f"Exhibits {disturbed} are right 100 times" in told
    assert {seen["two_buffers", tool]["ended"] for tool in overview["WATCHERS"]} == {"right"}
    assert all(0.97 < row["ratio"] < 1 for row in bench.read(CHAPTER)["rows"]) and "than 3 percent" in prose["recap"]


@pytest.mark.emulator
@pytest.mark.parametrize("name", ["staged", "sums", "some_warps", "peer", "gone"])
def test_racecheck_named_a_line_of_the_emulators_report(
    museum: ModuleType, overview: dict[str, Any], name: str
) -> None:
    told = re.findall(r"\w+\.py:\d+", asked(museum, name)[0])
    said = [re.findall(r"\w+\.py:\d+", report) for report in overview["seen"][name, "racecheck"]["said"]]
    assert set(told) & {place for places in said for place in places}


MORE = """
import numpy as np


@cute.kernel
def two_rows(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    row, other = shared(128), shared(128)
    row[tid] = mX[tid]
    cute.arch.sync_threads()
    other[tid] = row[tid] + row[(tid + 1) % 128]
    cute.arch.sync_threads()
    row[tid] = other[tid] + other[(tid + 1) % 128]
    cute.arch.sync_threads()
    mY[tid] = row[tid] + row[(tid + 1) % 128]


@cute.kernel
def without_shared_memory(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    mY[tid] = mX[tid] + 3.0 * mX[(tid + 1) % 128] + 3.0 * mX[(tid + 2) % 128] + mX[(tid + 3) % 128]


@cute.kernel
def fence_for_all(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    row = shared(128)
    row[tid] = mX[tid]
    for _ in cutlass.range_constexpr(3):
        cute.arch.barrier(barrier_id=3, number_of_threads=128)
        right = row[(tid + 1) % 128]
        cute.arch.barrier(barrier_id=4, number_of_threads=128)
        row[tid] = row[tid] + right
    mY[tid] = row[tid]


@cute.kernel
def only_one_turn(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    mY[tid] = mX[tid] + mX[(tid + 1) % 128]


@cute.kernel
def zeros(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    for i in cutlass.range(tid, cute.size(mY), 128):
        mY[cute.idx2crd(i, mY.shape)] = 0.0


@cute.kernel
def changes_its_input(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    mY[tid] = mX[tid] + 3.0 * mX[(tid + 1) % 128] + 3.0 * mX[(tid + 2) % 128] + mX[(tid + 3) % 128]
    cute.arch.sync_threads()
    mX[tid] = 0.0


@cute.kernel
def writes_nothing(mX: cute.Tensor, mY: cute.Tensor):
    pass


@cute.kernel
def zeros_beside_tma(store: cute.CopyAtom, tY: cute.Tensor, mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    for i in cutlass.range_constexpr(2):
        mY[4 * i + tid // 32, tid % 32] = 0.0


@cute.kernel
def without_tma(store: cute.CopyAtom, tY: cute.Tensor, mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    for i in cutlass.range_constexpr(2):
        mY[4 * i + tid // 32, tid % 32] = 5.0 * mX[4 * i + tid // 32, tid % 32]
"""

FENCE, SYNC = 'cute.arch.fence_proxy("async.shared", space="cta")\n', "cute.arch.sync_threads()\n"
# other right answers, as changes of the folded ones: exercise, what it is called, what is replaced
VARIANTS: dict[str, tuple[int, list[tuple[str, str]]]] = {
    "next_parity": (2, [("(n & 1) ^ 1", "(n + 1) & 1")]),
    "consumers_begin": (
        2,
        [
            (
                "    for n in cutlass.range(mX",
                "    if tid >= 32:\n        cute.arch.mbarrier_arrive(empty)\n    for n in cutlass.range(mX",
            ),
            ("(n & 1) ^ 1", "n & 1"),
        ],
    ),
    "wait_from_the_second": (
        2,
        [
            (
                "            cute.arch.mbarrier_wait(empty, (n & 1) ^ 1)",
                "            if n > 0:\n                cute.arch.mbarrier_wait(empty, (n & 1) ^ 1)",
            ),
        ],
    ),
    "meet_first": (
        3,
        [
            ("        row[tid] = mX[n, rank, tid]", "        meet()\n        row[tid] = mX[n, rank, tid]"),
            ("        meet()  # in", "    meet()  # in"),
        ],
    ),
    "two_places": (
        3,
        [
            ("row = shared(128)", "row = shared(256)"),
            ("row[tid] =", "row[128 * n + tid] ="),
            ("rank, tid)", "rank, 128 * n + tid)"),
        ],
    ),
    "another_barrier": (
        3,
        [("        meet()  # in", "        cute.arch.cluster_arrive()\n        cute.arch.cluster_wait()  # in")],
    ),
    "fence_by_the_reader": (
        4,
        [
            (f"    {FENCE}    {SYNC}", f"    {SYNC}"),
            ("    if tid < 32:\n", f"    if tid < 32:\n        {FENCE}"),
        ],
    ),
    "all_fences": (
        4,
        [("    cute.arch.sync_threads()", '    cute.arch.fence_proxy("async.global")\n    cute.arch.sync_threads()')],
    ),
    "from_shared_memory": (5, [("= mY[4 * i + row, column]", "= tile[4 * i + row, column]")]),
    "two_waits": (5, [("wait_group(0)", "wait_group(0, read=True)\n        cute.arch.cp_async_bulk_wait_group(0)")]),
    "named_barrier": (
        5,
        [
            (
                "    cute.arch.sync_threads()\n    for",
                "    cute.arch.barrier(barrier_id=1, number_of_threads=128)\n    for",
            )
        ],
    ),
}


def variant(name: str) -> str:
    """The source of another right kernel."""
    number, changes = VARIANTS[name]
    source = notebooks.definitions(exercises.cell(CHAPTER, f"ex{number}-solution"))
    source = re.sub(r"def \w+\(", f"def {name}(", source)
    return functools.reduce(replaced, changes, source)


def replaced(source: str, change: tuple[str, str]) -> str:
    assert source.count(change[0]) == 1, (change[0], source)
    return source.replace(*change)


NO_KERNEL = ["nothing", "from_torch", "lambda A, B: A @ B.T", *exercises.OTHER]
ONE_CTA, WITH_TMA = [*NO_KERNEL, "zeros", "writes_nothing"], [*NO_KERNEL, "zeros_beside_tma", "writes_nothing"]
CHECKS: dict[str, tuple[list[str], list[str]]] = {
    "check_sum": ([*ONE_CTA, "only_one_turn"], ["two_rows", "without_shared_memory", "fence_for_all"]),
    "check_handover": (ONE_CTA, ["next_parity", "consumers_begin", "wait_from_the_second"]),
    "check_swap": (ONE_CTA, ["meet_first", "two_places", "another_barrier"]),
    "check_fence": (WITH_TMA, ["fence_by_the_reader", "all_fences", "without_tma"]),
    "check_return": ([*WITH_TMA, "without_tma"], ["from_shared_memory", "two_waits", "named_barrier"]),
}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    unmended = [exercises.definitions(CHAPTER, f"ex{number}") for number in range(1, 6)]
    more = "\n\n".join([MORE, *map(variant, VARIANTS), *unmended])
    return exercises.judges(CHAPTER, tmp_path_factory.mktemp("museum"), more)


test_checks = exercises.answers_are_judged(CHECKS)

REPORTED = {  # what the report of an exercise's kernel names: the fault, and a line that stands at what has to change
    "check_sum(running_sum_kernel)": ("MissingBarrier: store to shared", "row[tid] = total"),
    "check_handover(handover_kernel)": ("Deadlock: every thread", "cute.arch.mbarrier_wait(empty, n & 1)"),
    "check_swap(swap_kernel)": ("MissingBarrier: store to shared", "row[tid] = mX[n, rank, tid]"),
    "check_fence(fence_kernel)": ("MissingFence: the TMA store", "tile[4 * i + tid // 32, tid % 32] = 5.0"),
    "check_return(return_kernel)": ("MissingBarrier: load of byte", "cute.copy(store, source, target[None, 0])"),
}


@pytest.mark.emulator
@pytest.mark.parametrize("call", REPORTED)
def test_the_whole_report_of_a_wrong_kernel_is_printed(
    names: dict[str, Any], capsys: pytest.CaptureFixture[str], call: str
) -> None:
    """From the first line to the line that has to change, and to what to look at."""
    first, *_, look, last = said = exercises.verdict(call, names, capsys).splitlines()
    fault, line = REPORTED[call]
    assert first.startswith(fault) and look.startswith("Look at: ") and last.startswith("not yet: ")
    assert any(re.search(r"\.py:\d+", each) and line in each for each in said[1:]), said


@pytest.mark.emulator
def test_an_answer_may_not_change_its_input(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert "changes mX" in exercises.verdict("check_sum(changes_its_input)", names, capsys)


def test_each_exercise_has_a_folded_solution() -> None:
    exercises.assert_paired(CHAPTER)
