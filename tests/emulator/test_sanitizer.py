"""What compute-sanitizer said about the planted bugs on an H200: its output is read right, the record complete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cutetut.measure.sanitizer import reports, shortened
from tests.emulator.expected import EXPECTED
from tests.emulator.mutants import CASES, MUTANTS
from tests.emulator.sanitize import RUNS, TOOLS
from tests.emulator.sanitizer_table import RECORDED, changed_line, ending, main, summarise

pytestmark = pytest.mark.emulator

RACES = """========= COMPUTE-SANITIZER
compiled
========= Error: Race reported between Write access at kernel+0x5b0 in a.py:53
=========     and Read access at kernel+0x640 in a.py:56 [3072 hazards]
=========     and Read access at kernel+0x710 in a.py:56 [3072 hazards]
=========
========= Error: Race reported between Write access at kernel+0x5c0 in a.py:53
=========     and Read access at kernel+0x6e0 in a.py:56 [16 hazards]
=========
========= Warning: Race reported between Read access at kernel+0x10 in a.py:9
=========     and Write access at kernel+0x20 in a.py:8 [8 hazards]
=========
right 1 times, wrong 0 times
========= RACECHECK SUMMARY: 3 hazards displayed (2 errors, 1 warning)
"""
BARRIER = """========= COMPUTE-SANITIZER
========= Barrier error detected. Missing wait.
=========     at kernel+0x3c0 in b.py:67
=========     by thread (0,0,0) in block (0,0,0)
=========     Barrier is located at shared address 0x400
=========
========= Barrier error detected. Missing wait.
=========     at kernel+0x3c0 in b.py:67
=========     by thread (1,0,0) in block (0,0,0)
=========
========= Target application returned an error
========= ERROR SUMMARY: 2 errors
"""


def run(output: str, status: int | None = 0, launched: bool = True) -> dict[str, Any]:
    return {"name": "x", "tool": "racecheck", "output": output, "status": status, "launched": launched}


def test_each_different_report_is_named_once() -> None:
    assert reports(RACES) == ["Race between write at a.py:53 and read at a.py:56",
                              "Race between read at a.py:9 and write at a.py:8"]  # fmt: skip
    assert reports(BARRIER) == ["Barrier error detected. Missing wait, b.py:67"]
    assert reports("========= COMPUTE-SANITIZER\nright 1 times, wrong 0 times\n========= ERROR SUMMARY: 0 errors") == []


def test_endings() -> None:
    assert ending(run(RACES)) == "right 1 of 1"
    assert ending(run("right 3 times, wrong 7 times")) == "right 3 of 10"
    assert ending(run("right 0 times, wrong 10 times")) == "wrong 10 of 10"
    assert ending(run("compiled", None)) == "hangs"
    assert ending(run("torch.AcceleratorError: CUDA error: misaligned address\nmore", 1)) == "misaligned address"
    with pytest.raises(ValueError, match="was not launched"):
        ending(run("ModuleNotFoundError", 1, launched=False))
    with pytest.raises(ValueError, match="ended with status 1"):
        ending(run("Traceback", 1))


def test_a_run_that_is_missing_is_an_error() -> None:
    with pytest.raises(ValueError, match="tma_gemm was not run alone"):
        summarise([])


def test_records_of_different_hosts_are_not_mixed(tmp_path: Path) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, driver in zip(paths, ("580.1", "580.2"), strict=True):
        path.write_text(json.dumps({"provenance": {"driver": driver}, "runs": []}))
    with pytest.raises(ValueError, match="b.json was not recorded under the conditions of .*a.json"):
        main([str(path) for path in paths])


def test_long_output_keeps_both_ends() -> None:
    text = shortened("kernel_cutlass_abc_0 begins\n" + "x" * 20000 + "\nends")
    assert text.startswith("kernel begins") and text.endswith("ends") and len(text) < 8000


def test_the_record_is_of_these_kernels_and_bugs() -> None:
    record = json.loads(RECORDED.read_text())
    assert record["provenance"]["gpu"] == "NVIDIA H200" and record["provenance"]["compute_sanitizer"]
    kernels = record["kernels"]
    assert list(kernels) == [*CASES, *MUTANTS], "record again on a Hopper GPU host"
    for name, row in kernels.items():
        assert set(TOOLS) <= set(row)
        if name in MUTANTS:
            assert row["of"] == MUTANTS[name].kernel and row["line"] == changed_line(name)
            assert row["emulator"] == (EXPECTED[name].error.__name__ if name in EXPECTED else "EmulatorWarning")


def test_the_correct_kernels_are_right_on_an_h200() -> None:
    kernels = json.loads(RECORDED.read_text())["kernels"]
    for name in CASES:
        assert kernels[name]["alone"]["end"] == f"right {RUNS} of {RUNS}"
