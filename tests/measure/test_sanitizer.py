"""A chapter's mistakes under compute-sanitizer, for which a script stands here: what is read, and how a run ends."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from cutetut.measure import mistakes, sanitizer

# stands for Python: what a program of `mistakes` prints and does, by the name of the mistake
PROGRAM = """#!{python}
import json, sys, time
name = sys.argv[5]
if name == "broken":
    sys.exit("ModuleNotFoundError")
print("compiled", flush=True)
if name == "endless":
    time.sleep(60)
ended = {{"hangs": "hangs", "faults": "CUDA error: misaligned address"}}.get(name, "ends")
print(json.dumps({{"right": int(name == "fine"), "wrong": int(name == "racy"), "ended": ended}}), flush=True)
"""
# stands for the tool: it names itself, runs the program and reports a race of one mistake
TOOL = """#!{python}
import os, subprocess, sys
tool = sys.argv[2]
print("========= COMPUTE-SANITIZER", flush=True)
program = sys.argv[sys.argv.index({program!r}):]
if tool == "racecheck" and program[-2] == "racy":
    print("========= Error: Race reported between Write access at k+0x5b0 in a.py:53")
    print("=========     and Read access at k+0x640 in a.py:56 [3072 hazards]")
    print("=========", flush=True)
sys.exit(subprocess.run(program).returncode)
"""


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    texts = {"python": PROGRAM, "compute-sanitizer": TOOL}
    for name, text in texts.items():
        (tmp_path / name).write_text(text.format(python=sys.executable, program=str(python)))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


ENDS = {
    "fine": "right",
    "racy": "wrong",
    "hangs": "hangs",
    "faults": "CUDA error: misaligned address",
    "broken": "not launched",
}


def test_each_mistake_is_watched_by_each_tool() -> None:
    rows = sanitizer.watched("00_start_here", list(ENDS), ("racecheck", "synccheck"))
    assert [(row["tool"], row["mistake"]) for row in rows] == [
        (tool, name) for tool in ("racecheck", "synccheck") for name in ENDS
    ]
    assert all(row["ended"] == ENDS[row["mistake"]] for row in rows)
    race = ["Race between write at a.py:53 and read at a.py:56"]
    assert [row["said"] for row in rows if row["said"]] == [race]
    assert next(row["mistake"] for row in rows if row["said"]) == "racy"


def test_a_kernel_that_never_ends_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizer, "SECONDS", 0.1)
    (row,) = sanitizer.watched("00_start_here", ["endless"], ("synccheck",))
    assert row["ended"] == "hangs" and row["said"] == []


def test_the_mistakes_themselves_are_tried_as_often_as_asked() -> None:
    assert mistakes.program("chapter", "fine", 100)[-3:] == ["chapter", "fine", "100"]


def test_an_outcome_is_found_among_what_a_tool_prints() -> None:
    outcome = {"right": 1, "wrong": 0, "ended": "ends"}
    text = f"========= COMPUTE-SANITIZER\ncompiled\n{json.dumps(outcome)}\n========= ERROR SUMMARY: 0 errors\n"
    assert mistakes.outcome_in(text) == outcome
    assert mistakes.outcome_in("compiled\n") is None


def test_without_the_tool_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(FileNotFoundError, match="compute-sanitizer"):
        sanitizer.watched("00_start_here", ["fine"], ("racecheck",))
