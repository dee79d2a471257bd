"""Chapter 19 beside its kernel: planted bugs, exercises, the timeline and the table of gains, from its own cells."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cutetut import reference
from cutetut.course import notebooks, provenance
from cutetut.measure import bench, mistakes
from cutetut.widgets import Timeline
from tests.chapters import benchmarks, exercises

NAME = "19_fa_pingpong"


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What its cells may use, and the checks: the kernel, the mistakes, `explain`, the maps, what was predicted."""
    checks = [f"exercise-{number}-check" for number in CHECKS]
    return exercises.defined(NAME, checks, tmp_path_factory.mktemp("cells"))


# What goes wrong ----------------------------------------------------------------------------------------------

NAMED = {
    "scores not waited for": "InFlight",
    "P overwritten": "InFlight",
    "O rescaled under PV": "InFlight",
    "no fence for the registers": "MissingFence",
    "V given back too early": "InFlight",
    "nobody has the first turn": "Deadlock",
    "every thread counted": "Deadlock",
    "O not fenced": "MissingFence",
    "a sum that is not corrected": None,  # no tool names wrong mathematics
}


@pytest.mark.emulator
@pytest.mark.parametrize("name", NAMED)
def test_a_mistake_is_named(names: dict[str, Any], capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert names["MISTAKES"].keys() == NAMED.keys()
    names["explain"](name)
    report = capsys.readouterr().out.rsplit("\n+ ", 1)[1]
    if NAMED[name] is None:
        assert "found no fault" in report and re.search(r"O: \d+ of \d+ elements are wrong", report)
    else:
        assert f"\n{NAMED[name]}:" in report
        assert re.search(r"changed_\w+\.py:\d+", report)


@pytest.mark.emulator
@pytest.mark.parametrize("causal", [False, True])
def test_no_alarm_without_a_mistake(names: dict[str, Any], causal: bool) -> None:
    said, out, expected = names["emulate"](names["changed"]([]), causal=causal)
    assert said.startswith("the emulator found no fault")
    assert (out.double() - expected).abs().max() < 1e-2


@pytest.mark.gpu
def test_a_mistake_on_the_gpu_is_told_from_what_is_right() -> None:
    name = "a sum that is not corrected"
    assert mistakes.on_gpu(NAME, [name]) == [{"mistake": name, "right": 0, "wrong": 10, "ended": "ends"}]


def test_an_attempt_is_right_only_if_its_launch_was(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Small, so that the emulator can run it; on the GPU host `mistakes.on_gpu` takes the same two functions."""
    space = names["attempt"].__globals__
    problem = space["problem"]
    monkeypatch.setitem(space, "problem", lambda S, D, device: problem(300, D, device))
    monkeypatch.setitem(space, "MISTAKES", names["MISTAKES"] | {"none": []})
    for name, expected in (("none", True), ("a sum that is not corrected", False)):
        launch, right = names["attempt"](name)
        assert not right(), "a result of NaN is not right"
        launch()
        assert right() is expected
        launch()
        assert right() is expected, "a second launch finds the tiles of the first one taken"


def test_the_benchmark_writes_the_timeline_and_the_mistakes(
    names: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the chapter's own cells read, with the speeds left out, which need a GPU."""
    space = names["benchmark"].__globals__
    small = partial(names["steps"], S=512, heads=1, cta=0, first=2, last=8, sms=1)
    outcomes = [{"mistake": name, "right": 1, "wrong": 9, "ended": "ends"} for name in names["MISTAKES"]]
    asked: list[Any] = []

    def compared(*what: Any) -> list[dict[str, Any]]:
        asked.append(what)
        return [{}]

    monkeypatch.setitem(space, "steps", small)
    monkeypatch.setitem(space, "TRACED", ("all of it", "no overlap"))
    monkeypatch.setitem(space, "compared", compared)
    monkeypatch.setattr(provenance, "collect", dict)
    benchmarks.keep_tables_in(tmp_path, monkeypatch)
    monkeypatch.setattr(mistakes, "on_gpu", lambda notebook, tried: outcomes if notebook == NAME else None)
    rows = names["benchmark"]()
    assert len(rows) == len(asked) == 18 + len(names["MAIN"]) * 3 + len(names["ALONE"])
    timeline, made = (json.loads((tmp_path / f"{NAME}_{what}.json").read_text()) for what in ("timeline", "mistakes"))
    assert timeline["code_hash"] == made["code_hash"] == bench.current_hash(NAME)
    assert np.array(timeline["runs"]["no overlap"]).shape == (2, 6, len(timeline["events"]))
    assert made["mistakes"] == outcomes


# Exercises ----------------------------------------------------------------------------------------------------

WRONG = {  # a part of what the check has to say
    1: {
        "lambda t, v: None": "return two numbers",
        "lambda t, v: (t // 4, v)": "register",
        "lambda t, v: t // 32 * 16 + t % 32 // 4": "return two numbers",
        "lambda t, v: (t // 32 * 16 + t % 32 // 4 + v % 2 * 8, v // 4 * 8 + t % 4 * 2 + v // 2 % 2)": "register 1",
        "lambda t, v: (t // 32 * 16 + t % 32 // 4 + v // 2 % 2 * 8, v // 4 * 8 + t % 4 + v % 2)": "thread 1 ",
        "lambda t, v: (t // 32 * 16 + t % 32 // 4 + v // 2 % 2 * 8, t % 4 * 2 + v % 2)": "register 4 of thread 0",
    },
    2: {
        "lambda top, total, s, slack: None": "return three numbers",
        "lambda top, total, s, slack: (s.max(), total + (2.0 ** (s - s.max())).sum(), 1.0)": "times what it should be",
        "lambda top, total, s, slack: (max(top, s.max() - slack), 0.0, 1.0)": "the sum is 0 times",
        "lambda top, total, s, slack: "
        "(lambda m: (m, total * 2.0 ** (top - m) + (2.0 ** (s - m)).sum(), 2.0 ** (top - m)))"
        "(s.max() if s.max() - top >= slack else top)": "lies 3 above the unit, and slack is 3",
        "lambda top, total, s, slack: "
        "(lambda m: (m, total * 2.0 ** (top - m) + (2.0 ** (s - m)).sum(), 2.0 ** (top - m)))"
        "(s.max() - slack if s.max() - top > slack else top)": "it becomes",
        "lambda top, total, s, slack: (lambda m: (m, total * 2.0 ** (top - m) + (2.0 ** (s - m)).sum(), 1.0))"
        "(s.max() if s.max() - top > slack else top)": "O, rescaled",
    },
    3: {
        '"i // 4 * 8 + i % 2 >= seen - WINDOW"': "rows are wrong",
        '"(i // 4 * 8 + i % 2 < seen) & (i // 4 * 8 + i % 2 >= seen - WINDOW - 1)"': "rows are wrong",
        '"(i // 4 * 8 + i % 2 < seen) & (i // 4 * 8 + i % 2 > seen - WINDOW)"': "rows are wrong",
        '"(i < seen) & (i >= seen - WINDOW)"': "rows are wrong",
        '"(i // 4 * 8 + i % 2 < seen) & (i // 4 * 8 + i % 2 >= seen - 100)"': "with WINDOW = 33",
    },
    4: {
        "lambda S, bM, bN: S * S // 2 // bM // bN": "blocks, not",
        "lambda S, bM, bN: (S // bM) * (S // bM + 1) // 2": "blocks, not",
        "lambda S, bM, bN: sum(-(-(m + 1) * bM // bN) for m in range(-(-S // bM)))": "blocks, not",
    },
}
RIGHT = {
    1: ["lambda t, v: [16 * (t >> 5) + (t % 32 >> 2) + 8 * (v >> 1 & 1), 8 * (v >> 2) + 2 * (t & 3) + (v & 1)]"],
    2: [
        "lambda top, total, s, slack: np.array((lambda m, f: (m, total * f + sum(2.0 ** (x - m) for x in s), f))"
        "(*((s.max(), 2.0 ** (top - s.max())) if s.max() - top > slack else (top, 1.0))))"
    ],
    3: ['"seen - WINDOW <= i // 4 * 8 + i % 2 < seen"'],
    4: ["lambda S, bM, bN: sum(b < min(a + bM, S) for a in range(0, S, bM) for b in range(0, S, bN))"],
}
CHECKS = {1: "check_where", 2: "check_update", 3: "check_window", 4: "check_blocks"}


test_wrong_answers_are_told_why = exercises.wrong_answers_are_told_why(CHECKS, WRONG)
test_right_answers_of_any_form_are_accepted = exercises.right_answers_are_accepted(CHECKS, RIGHT, alone=False)


# The timeline and the table of gains ---------------------------------------------------------------------------


@pytest.fixture
def timeline(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the cells of the timeline define, over simple clocks: steps of 100 cycles, the second consumer 50 behind."""
    one = [[100 * k + t for t in (0, 10, 12, 40, 90, 95)] for k in range(3)]
    two = [[t + 50 for t in step] for step in one]
    apart = [[100 * k + t for t in (0, 10, 12, 60, 90, 90)] for k in range(3)]
    clocks = {
        "events": names["EVENTS"], "runs": {"all of it": [one, two], "no overlap": [apart, apart]},
        "D": 128, "bN": 16,
        "provenance": dict.fromkeys(("gpu", "driver", "cuda", "torch", "cutlass_dsl", "date"), "1"),
    }  # fmt: skip
    helpers = notebooks.load(NAME, exercises.HELPER_TAGS)
    monkeypatch.setattr(helpers, "clocks", clocks, raising=False)
    return vars(helpers)


def test_bars_of_a_step(timeline: dict[str, Any]) -> None:
    first = [tuple(bar[:4]) for bar in timeline["spans"]("all of it") if bar.tile == 0 and bar.row == "consumer 1"]
    assert first == [
        ("consumer 1", "waits", 0, 10),
        ("consumer 1", "softmax", 40, 90),
        ("consumer 1", "QK", 10, 40),
        ("consumer 1", "PV", 40, 95),
    ]
    apart = {bar.kind for bar in timeline["spans"]("no overlap")}
    assert apart == {"waits", "softmax", "QK and PV"}
    Timeline({name: timeline["spans"](name) for name in timeline["clocks"]["runs"]})


def test_numbers_of_a_timeline(timeline: dict[str, Any]) -> None:
    per_step, softmax, together, under_way, busy = timeline["numbers"]("all of it")
    assert (per_step, softmax) == (100, 50) and busy == 2 * 2 * 64 * 16 * 128 / 2048 / 100
    # softmaxes 40..90 and 90..140: never together. Products 10..95, 60..145, 110..195 and so on: from 10 to 345 of 345
    assert together == 0 and under_way == pytest.approx(335 / 345)
    _, softmax, together, under_way, _ = timeline["numbers"]("no overlap")
    assert softmax == 30
    assert together == pytest.approx(90 / 290) and under_way == pytest.approx(150 / 290)


def test_the_gains_are_those_of_the_rows(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    speeds = {"all of it": 300.0, "no overlap": 200.0, "no ping-pong": 240.0, "no overlap, no ping-pong": 150.0}
    rows = [
        {"D": 128, "S": 16384, "causal": False, "kernel": f"19 {name}", "vendor": "cuDNN", "method": method}
        | {"ours_tflops": speed, "ratio": (speed + (method != "burst of 40 launches")) / 200}
        for name, speed in speeds.items()
        for method in ("burst of 40 launches", "sustained 50 ms")
    ]
    exec(exercises.cell(NAME, "gains"), names | {"rows": rows})
    said = capsys.readouterr().out
    predicted = names["predicted"](128)
    gain = predicted["nothing"] / predicted["both"]
    for idea, measured in {
        "ping-pong alone": 200 / 150, "overlap alone": 240 / 150, "overlap beside ping-pong": 300 / 200,
        "ping-pong beside overlap": 300 / 240, "both": 2.0,
    }.items():  # fmt: skip
        line = next(line for line in said.splitlines() if line.startswith(f"{idea} "))
        assert line.split()[-3] == f"{measured:.2f}", line
    assert f"{gain:.2f}     2.00" in said


def test_what_is_predicted_is_what_the_kernel_does(names: dict[str, Any]) -> None:
    """The tiles of the prediction are those of the configurations, and bounds are bounds."""
    for D, (consumers, bN) in names["TILES"].items():
        cfg = names["CONFIGS"][D]
        assert (cfg.consumers, cfg.bN) == (consumers, bN)
        cycles = names["predicted"](D)
        assert cycles["both"] <= min(cycles["overlap"], cycles["ping-pong"]) <= cycles["nothing"]


@pytest.mark.parametrize("causal", [False, True])
def test_errors_are_against_float64(names: dict[str, Any], causal: bool) -> None:
    Q, K, V = (torch.randn(1, 2, 300, 64, dtype=torch.float64) for _ in range(3))
    right = reference.attention(Q, K, V, causal=causal)
    assert names["rms"](right, Q, K, V, causal) < 1e-12
    assert names["rms"](right + 0.5, Q, K, V, causal) == pytest.approx(0.5)


def test_a_trace_has_the_events_that_the_timeline_names(names: dict[str, Any], device: str) -> None:
    Q, K, V = (torch.randn(1, 1, 256, 128, device=device).bfloat16() for _ in range(3))
    trace = torch.zeros(1, 2, 8, len(names["EVENTS"]), dtype=torch.int64, device=device)
    cfg = dataclasses.replace(names["CONFIGS"][128], sms=1, trace=True)
    names["prepare"](Q, K, V, torch.empty_like(Q), torch.empty(1, 1, 256, device=device), cfg=cfg, trace=trace)()
    clocks = trace.cpu()[0, :, 0]
    assert (clocks > 0).all() and (clocks.diff(dim=1) >= 0).all()
