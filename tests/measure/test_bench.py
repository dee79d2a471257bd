"""Benchmarks: the arithmetic and the turns against a timer with a known clock, the tables, and the refusals."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest
import torch

from cutetut.course import exemptions, notebooks, provenance
from cutetut.measure import bench
from cutetut.measure.bench import BenchError, NeedsGPU
from tests.facts import FACTS
from tests.measure.conftest import ROW, FakeTimer


def measured(timer, **options):
    settings = {"flops": 2e9, "labels": {"M": 64}, "seconds": 0.2, "timer": timer, **options}
    return bench.measure(lambda: "ours", lambda: "vendor", **settings)


def test_speeds_and_ratio_follow_from_the_times():
    burst, sustained = measured(FakeTimer())
    for row in (burst, sustained):
        assert row["M"] == 64
        assert row["ours_tflops"] == pytest.approx(1.0)  # 2e9 operations in 2 ms
        assert row["vendor_tflops"] == pytest.approx(2.0)
        assert row["ratio"] == pytest.approx(0.5)
        assert row["ours_us"] == pytest.approx(2000)
    assert burst["method"] == "burst of 40 launches"
    assert sustained["method"] == "sustained 200 ms"
    assert (burst["launches"], sustained["launches"]) == (40, 100)
    assert [row["sm_mhz"] for row in (burst, sustained)] == [1940, 1880]
    assert [row["vendor_sm_mhz"] for row in (burst, sustained)] == [1540, 1700]  # at its own number of launches


class Throttled(FakeTimer):
    """A GPU whose clock falls by 10 MHz each time, and cannot be read the first time."""

    def timed(self, function, launches):
        seconds, _ = super().timed(function, launches)
        times = len(self.log)
        return bench.Timed(seconds, 2000 - 10 * times if times > 1 else None)


def test_a_row_has_the_median_of_the_clocks_at_which_it_was_timed():
    burst, sustained = measured(Throttled())
    ours = [2000 - 10 * place for place in (6, 12, 14, 20, 22)]  # with the rests, the log's length after each burst
    assert burst["sm_mhz"] == ours[2] and sustained["sm_mhz"] < burst["vendor_sm_mhz"] < 2000


def test_a_clock_that_cannot_be_read_is_no_number():
    class Unread(FakeTimer):
        def timed(self, function, launches):
            return super().timed(function, launches)._replace(mhz=None)

    assert [(row["sm_mhz"], row["vendor_sm_mhz"]) for row in measured(Unread())] == [(None, None)] * 2


class Varying(FakeTimer):
    """A GPU whose rounds take 1, 2, 3, ... times as long for us, and one time for the vendor."""

    def timed(self, function, launches):
        side = function()
        self.log.append(side)
        rounds = max(0, self.log.count("ours") - 2) if side == "ours" else 1
        return bench.Timed(self.cost[side] * launches * max(1, rounds), 1980)


def test_a_row_keeps_the_spread_of_its_repeats():
    burst, sustained = measured(Varying())
    assert burst["ours_us_range"] == pytest.approx([2000, 10000])  # five rounds
    assert burst["vendor_us_range"] == pytest.approx([1000, 1000])
    assert burst["ratio_range"] == pytest.approx([0.1, 0.5])
    assert burst["ratio_range"][0] < burst["ratio"] < burst["ratio_range"][1]
    assert sustained["ours_us_range"] == pytest.approx([12000, 16000])  # three rounds
    assert bench.validated([{**ROW, **burst}], "a")[0]["ratio_range"] == burst["ratio_range"]


def test_a_disturbed_round_shows_in_the_spread_and_not_in_the_median():
    burst, _ = measured(FakeTimer())  # the first of the vendor's bursts takes ten times as long
    assert burst["ratio"] == pytest.approx(0.5)
    assert burst["vendor_us_range"] == pytest.approx([1000, 10000])
    assert burst["ratio_range"] == pytest.approx([0.5, 5.0])


def test_rows_of_kernels_that_took_turns_are_found_by_the_other_kernel():
    """A vendor is found whatever its version; a kernel whose name only begins alike is another one."""
    names = ("cuDNN", "cuDNN 9.19.0", "19 K4", "19 K4, causal", "cuDNNX")
    rows = [{**ROW, "vendor": name} for name in names]
    assert [row["vendor"] for row in bench.against(rows, "cuDNN")] == ["cuDNN", "cuDNN 9.19.0"]
    assert [row["vendor"] for row in bench.against(rows, "19 K4")] == ["19 K4"]


def test_ratios_are_shown_with_their_spread_where_it_is_known():
    new = {**ROW, "ratio": 0.9264, "ratio_range": [0.9213, 0.929], "ours_us": 10.0, "ours_us_range": [9.0, 11.0]}
    assert bench.ratio(new) == "0.926 [0.921, 0.929]"
    assert bench.ratio(ROW) == "0.0270"
    before = {**new, "ours_us": 20.0, "ours_us_range": [18.0, 22.0]}
    assert bench.gain(new, before) == "2.00 [1.64, 2.44]"  # 18 / 11, 22 / 9
    assert bench.gain(new, ROW) == "0.100"
    printed = bench.table([new, {**ROW, "M": 256}])
    assert "0.926 [0.921, 0.929]" in printed and "range" not in printed
    assert printed.splitlines()[-1].endswith("               0.0270")


def test_sides_take_turns_and_a_burst_begins_after_a_rest():
    timer = FakeTimer()
    measured(timer)
    warm_up, bursts, windows = timer.log[:4], timer.log[4:24], timer.log[24:30]
    assert [side for side, _ in warm_up] == ["ours", "ours", "vendor", "vendor"]
    assert [entry[0] for entry in bursts[::2]] == ["rest"] * 10
    turns = [entry[0] for entry in bursts[1::2]]
    assert turns == ["ours", "vendor", "vendor", "ours", "ours", "vendor", "vendor", "ours", "ours", "vendor"]
    assert [entry[0] for entry in windows] == turns[:6]  # a window is an average already


def test_bursts_of_a_slow_kernel_are_shorter():
    timer = FakeTimer(ours=0.3)
    burst, sustained = measured(timer)
    assert burst["launches"] == 3 and sustained["launches"] == 1
    assert ("vendor", 40) in timer.log


def test_of_several_vendors_the_fastest_counts_and_all_are_told():
    timer = FakeTimer()
    timer.cost |= {"torch": 1e-3, "Lt": 0.8e-3}
    sides = {name: (lambda name=name: name) for name in ("torch", "Lt")}
    settings: dict[str, Any] = {"flops": 2e9, "labels": {"M": 64}, "seconds": 0.2, "timer": timer}
    burst, sustained = bench.measure(lambda: "ours", sides, **settings)
    for row in (burst, sustained):
        assert row["vendor"] == "Lt" and row["vendor_tflops"] == pytest.approx(2.5)
        assert row["torch_tflops"] == pytest.approx(2.0) and row["Lt_tflops"] == pytest.approx(2.5)
        assert row["ratio"] == pytest.approx(0.4) and row["ratio_range"][1] == pytest.approx(0.4)
    assert sustained["vendor_sm_mhz"] == 1500 + 250  # of the fastest
    turns = [side for side, _ in timer.log[6:] if side != "rest"]
    assert turns[:6] == ["ours", "torch", "Lt", "Lt", "torch", "ours"]
    for wrong in ({}, {"ours": sides["Lt"]}):
        with pytest.raises(ValueError, match="by names other than 'ours'"):
            bench.measure(lambda: "ours", wrong, **settings)


@pytest.mark.parametrize("wrong", [{"flops": 0}, {"seconds": 0}, {"flops": float("nan")}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError, match="must be positive"):
        measured(FakeTimer(), **wrong)


@pytest.mark.emulator
def test_the_emulator_is_never_timed():
    def launch():
        raise AssertionError("it was launched")

    with pytest.raises(NeedsGPU, match=r"bench\.recorded\(name\).*Hopper GPU host"):
        bench.compare(launch, launch, flops=1, size={"M": 1}, vendor_name="cuBLAS")


@pytest.mark.gpu
def test_on_a_gpu_a_kernel_compared_with_itself_is_as_fast():

    a, b = torch.randn(2, 4096, 4096, device="cuda", dtype=torch.bfloat16)
    flops = 2 * 4096**3
    rows = bench.compare(lambda: a @ b, lambda: a @ b, flops=flops, size={"M": 4096}, vendor_name="cuBLAS")
    for row in rows:
        assert 0.9 < row["ratio"] < 1.1
        assert 100 < row["ours_tflops"] < 1000  # an H200's dense bf16 peak is 989 TFLOP/s


# --- the notebook's contract and the recorded table


def test_bench_writes_rows_and_provenance_which_recorded_prints(benched, project, capsys):
    benched(f"def benchmark():\n    return [{ROW!r} | {{'ours_tflops': speed, 'M': m}} for m in (128, 4096)]")
    path = bench.run("04_a")
    assert path == project / "book" / "data" / "04_a.json"
    content = json.loads(path.read_text())
    assert content["provenance"] == FACTS
    assert [row["M"] for row in content["rows"]] == [128, 4096]
    printed = capsys.readouterr().out
    bench.recorded("04_a")
    shown = capsys.readouterr().out
    where = "NVIDIA H200, driver 580.1, CUDA 13.0, torch 2.11.0, CuTe DSL 4.8.1, 2026-01-02"
    assert shown == f"Measured on {where}\n{printed}"
    constant, header, small, large = printed.splitlines()
    assert constant.startswith("kernel: scalar, vendor: cuBLAS, inputs: random normal float32")
    assert header.split("  ")[-1].strip() == "ratio"
    assert small.split() == ["128", "1.23", "45.7", "0.0270"] and large.split()[0] == "4096"


def test_a_part_has_a_function_and_a_table_of_its_own(benched, project, capsys):
    benched(f"def benchmark():\n    raise AssertionError\ndef benchmark_few():\n    return [{ROW!r}]")
    with pytest.raises(BenchError, match="python -m cutetut bench 04_a --part few"):
        bench.read("04_a", "few")
    path = bench.run("04_a", "few")
    assert path == project / "book" / "data" / "04_a_few.json" and bench.read("04_a", "few")["notebook"] == "04_a"
    capsys.readouterr()
    bench.recorded("04_a", "few")
    assert "1.23" in capsys.readouterr().out
    with pytest.raises(BenchError, match="must define `def benchmark_many"):
        bench.run("04_a", "many")


def test_a_further_column_may_be_measured_for_some_rows_only(benched):
    extra = "{'sectors': 8.0}", "{'sectors': float('nan')}", "{'sectors': None}", "{}"
    rows = ", ".join(f"{ROW!r} | {{'M': {m}}} | {more}" for m, more in enumerate(extra))
    benched(f"def benchmark():\n    return [{rows}]")
    bench.run("04_a")
    read = bench.read("04_a")["rows"]
    assert [row.get("sectors") for row in read] == [8.0, None, None, None]
    lines = [line.split() for line in bench.table(read).splitlines()]
    assert lines[1][-1] == "sectors" and lines[2][-1] == "8.00"
    assert [len(line) for line in lines[3:]] == [4, 4, 4]


def test_recorded_says_when_the_kernels_have_changed(benched, capsys):
    benched(f"def benchmark():\n    return [{ROW!r}]")
    bench.run("04_a")
    benched(f"def benchmark():\n    return [{ROW!r}]  # edited")
    capsys.readouterr()
    bench.recorded("04_a")
    assert "belong to an earlier version" in capsys.readouterr().out


ADDED = "[rows(m) for m in (1, 2)]"


def more(benched):
    """A notebook whose table has been measured, and which can measure more rows."""
    benched(f"def rows(m):\n    return {ROW!r} | {{'M': m}}\ndef benchmark():\n    return [rows(128)]")
    return bench.run("04_a")


def test_rows_are_added_to_a_table_of_the_same_code(benched):
    path = more(benched)
    assert bench.add("04_a", ADDED) == path
    content = bench.read("04_a")
    assert [row["M"] for row in content["rows"]] == [128, 1, 2]
    assert content["added"] == [ADDED] and content["code_hash"] == bench.current_hash("04_a")


def test_rows_of_other_code_or_another_machine_are_not_added(benched, monkeypatch):
    path = more(benched)
    before = path.read_text()
    for wrong, problem in (("rows(", "is not a Python expr"), ("[]", "non-empty list"), ("", "not a Python expr")):
        with pytest.raises(BenchError, match=problem):
            bench.add("04_a", wrong)
    monkeypatch.setattr(provenance, "collect", lambda: FACTS | {"date": "2026-01-03", "driver": "590.1"})
    with pytest.raises(BenchError, match="measured with driver 580.1, this machine has 590.1"):
        bench.add("04_a", ADDED)
    benched(f"def benchmark():\n    return [{ROW!r}]  # edited")
    with pytest.raises(BenchError, match="has changed since its table was measured"):
        bench.add("04_a", ADDED)
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("x = 1", "must define `def benchmark"),
        ("def benchmark():\n    return []", "non-empty list of rows"),
        ("def benchmark():\n    return None", "non-empty list of rows"),
        ("def benchmark():\n    return [{'M': 1}]", "row 0 of benchmark.. lacks kernel, vendor"),
        (f"def benchmark():\n    return [{ROW!r} | {{'ratio': float('nan')}}]", "ratio = nan, not a positive"),
        (f"def benchmark():\n    return [{ROW!r} | {{'ours_tflops': 0}}]", "ours_tflops = 0, not a positive"),
    ],
)
def test_a_malformed_benchmark_is_refused_and_writes_nothing(benched, project, source, problem):
    benched(source)
    with pytest.raises(BenchError, match=problem):
        bench.run("04_a")
    assert not list((project / "book" / "data").iterdir())


def test_a_notebook_without_a_bench_cell_is_named(benched):
    benched("x = 1", tag="other")
    with pytest.raises(notebooks.NotebookError, match="04_a has no cell tagged `bench`"):
        bench.run("04_a")


def test_no_permission_is_found_before_measuring(benched, monkeypatch):
    benched("def benchmark():\n    raise AssertionError('it measured')")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(BenchError, match="nothing was measured"):
        bench.run("04_a")


@pytest.mark.parametrize("content", ["", "[]", '{"rows": []}'])
def test_a_damaged_table_says_how_to_make_a_new_one(benched, project, content):
    (project / "book" / "data" / "04_a.json").write_text(content)
    with pytest.raises(BenchError, match=r"python -m cutetut bench 04_a"):
        bench.recorded("04_a")


def test_a_missing_table_says_how_to_make_one(benched):
    with pytest.raises(BenchError, match="nothing was measured for 04_a yet; on a Hopper GPU host"):
        bench.recorded("04_a")


# --- the committed tables

DATA = [path.stem for path in (notebooks.project_root() / "book" / "data").glob("*.json")]
TABLES = sorted({path.stem for path in notebooks.toc()} & set(DATA))


def test_every_file_of_measurements_belongs_to_a_chapter():
    """A chapter's table has its name; what else it measured has its name and another word behind it."""
    chapters = [path.stem for path in (notebooks.project_root() / "notebooks").glob("*.ipynb")]
    assert not [name for name in DATA if not any(f"{name}_".startswith(f"{chapter}_") for chapter in chapters)]


def test_speeds_in_another_unit_say_so():
    assert "ours TB/s  vendor TB/s" in bench.table([{**ROW, "unit": "TB/s"}])
    assert "ours TFLOP/s  vendor TFLOP/s" in bench.table([ROW])
    mixed = bench.table([ROW, {**ROW, "unit": "TB/s"}])
    assert "FLOP/s" not in mixed and "unit" in mixed.splitlines()[1]


@pytest.mark.parametrize(("unit", "shown"), [({}, "TFLOP/s"), ({"unit": "TB/s"}, "TB/s")])
def test_every_column_of_speeds_names_the_unit(unit, shown):
    """So do those of several vendors, whose rows call them `NAME_tflops`, whatever the unit."""
    named = {"cuDNN_tflops": 4.15, "a copy, alone_tflops": 2.5}
    rows = [{**ROW, **unit, **named, "a flash_tflops": speed} for speed in (3.57, 3.99)]
    titles = bench.table(rows).splitlines()[1]
    assert re.findall(rf"(\w+) {shown}", titles) == ["ours", "vendor", "cuDNN", "alone", "flash"]
    assert "tflops" not in bench.table(rows) and f"a copy, alone {shown}" in titles
    mixed = bench.table([{**rows[0], "unit": "TFLOP/s"}, {**rows[1], "unit": "TB/s"}]).splitlines()[1]
    assert "tflops" not in mixed and "cuDNN " in mixed


def test_every_notebook_that_measures_has_a_table():
    measuring = [
        path.stem
        for path in notebooks.toc()
        if any("bench" in notebooks.tags(cell) for cell in notebooks.code_cells(notebooks.read(path)))
    ]
    assert measuring, "no notebook has a cell tagged `bench`"
    assert TABLES == sorted(measuring)


def test_what_was_measured_was_measured_on_these_kernels():
    """All that a chapter measured, its parts and records too, but for what is listed with a reason."""
    chapters = {path.stem for path in (notebooks.project_root() / "notebooks").glob("*.ipynb")}
    earlier = set()
    for name in DATA:
        content = json.loads(bench.data_file(name).read_text())
        chapter = next(each for each in chapters if f"{name}_".startswith(f"{each}_"))
        if content["code_hash"] != bench.current_hash(chapter):
            earlier.add(name)
    again = "measure again (python -m cutetut bench), or list it under [superseded] with a reason"
    assert sorted(earlier) == sorted(exemptions.superseded()), again
    assert all(len(reason.split()) >= 3 for reason in exemptions.superseded().values())


def test_committed_tables_are_of_a_hopper_gpu():
    assert TABLES, "nothing was measured yet"
    for name in TABLES:
        content = bench.read(name)
        assert re.search("H[12]00", content["provenance"]["gpu"])
        for row in content["rows"]:
            assert row["ratio"] == pytest.approx(row["ours_tflops"] / row["vendor_tflops"])
