"""Measurements in several processes: one has the GPU at a time, and the others compile meanwhile."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import cutlass.cute as cute
import pytest

from cutetut.measure import turns

# A measurement that notes when it had the GPU and when it compiled; `cute.compile` is replaced by a pause.
PROGRAM = """
import json, sys, time
import cutlass.cute as cute
from cutetut.measure import turns

compiled, used = [], []

def compiling():
    start = time.monotonic()
    time.sleep(0.6)
    compiled.append((start, time.monotonic()))

cute.compile = compiling
with turns.taken():
    for _ in range(2):
        start = time.monotonic()
        time.sleep(0.3)
        used.append((start, time.monotonic()))
        cute.compile()
with open(sys.argv[1], "w") as file:
    json.dump({"compiled": compiled, "used": used}, file)
"""


def overlap(one: list[float], other: list[float]) -> float:
    return min(one[1], other[1]) - max(one[0], other[0])


def test_one_process_at_a_time_has_the_gpu_and_another_compiles_meanwhile(tmp_path: Path) -> None:
    files = [tmp_path / f"{i}.json" for i in range(3)]
    assert turns.side_by_side([["-c", PROGRAM, str(file)] for file in files], jobs=3) == []
    found = [json.loads(file.read_text()) for file in files]
    pairs = [(a, b) for a in range(3) for b in range(a)]
    used = [(one, other) for a, b in pairs for one in found[a]["used"] for other in found[b]["used"]]
    assert len(used) == 12 and all(overlap(one, other) <= 0 for one, other in used)
    beside = [overlap(u, c) for a, b in [*pairs, *((b, a) for a, b in pairs)]
              for u in found[a]["used"] for c in found[b]["compiled"]]  # fmt: skip
    assert max(beside) > 0.1


def test_who_was_named_first_is_next(tmp_path: Path) -> None:
    had: list[int] = []

    def use(number: int) -> None:
        with turns.Queue(tmp_path / f"place{number:03}"):
            had.append(number)
            time.sleep(0.2)

    threads = [threading.Thread(target=use, args=(number,)) for number in (2, 3, 1, 0)]
    for thread in threads:  # while the first of them has the GPU, the others come in this order
        thread.start()
        time.sleep(0.04)
    for thread in threads:
        thread.join()
    assert had == [2, 0, 1, 3]


def test_alone_nothing_is_locked_and_compile_is_the_dsl_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(turns.VARIABLE, raising=False)
    before = cute.compile
    with turns.taken():
        assert cute.compile is before


def test_compile_is_the_dsl_s_again_afterwards_and_keeps_its_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(turns.VARIABLE, str(tmp_path / "place000"))
    before = cute.compile

    @cute.jit
    def nothing() -> None:
        pass

    with pytest.raises(ZeroDivisionError), turns.taken():
        assert cute.compile is not before
        cute.compile(nothing)()
        cute.compile[cute.GenerateLineInfo(True)](nothing)()
        raise ZeroDivisionError
    assert cute.compile is before


def test_a_program_that_fails_is_returned_and_the_others_run(capfd: Any) -> None:
    start = time.monotonic()
    bad = ["-c", "raise SystemExit('no such kernel')"]
    assert turns.side_by_side([bad, ["-c", "print('measured')"]], jobs=2) == [bad]
    said = capfd.readouterr().out
    assert "no such kernel" in said and "measured" in said and time.monotonic() - start < 60
