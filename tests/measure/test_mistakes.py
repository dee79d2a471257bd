"""Mistakes told apart: what the emulator says of one, and what a GPU, for which a list of results stands here, did."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import cutlass
import cutlass.cute as cute
import pytest
import torch

from cutetut.explore import under
from cutetut.measure import bench, mistakes
from tests.inspect.test_diagnose import copy


class Event:
    """An event of a GPU whose launches end at once, never, or with an error."""

    ends = True

    def record(self) -> None:
        pass

    def query(self) -> bool:
        return Event.ends


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Event]]:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    Event.ends = True
    yield Event


def answers(*results: bool) -> Callable[[], bool]:
    given = iter(results)
    return lambda: next(given)


def test_right_and_wrong_results_are_counted() -> None:
    launched: list[int] = []
    outcome = mistakes.trial(lambda: launched.append(1), answers(True, False, True), launches=3)
    assert outcome == {"right": 2, "wrong": 1, "ended": "ends"} and len(launched) == 3


def test_a_kernel_that_hangs_is_given_up(gpu: type[Event]) -> None:
    gpu.ends = False
    outcome = mistakes.trial(lambda: None, answers(), launches=3, patience=0.01)
    assert outcome == {"right": 0, "wrong": 0, "ended": "hangs"}


def test_what_the_gpu_reports_is_kept() -> None:
    def launch() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be ...")

    outcome = mistakes.trial(launch, answers(), launches=3)
    assert outcome == {"right": 0, "wrong": 0, "ended": "CUDA error: an illegal memory access was encountered"}


@pytest.mark.parametrize("ending, told", [("SIGSEGV", "its process died: Segmentation fault"), ("SIGABRT", "Aborted")])
def test_a_mistake_that_takes_its_process_down_is_an_outcome(
    ending: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!{sys.executable}\nimport os, signal\nos.kill(os.getpid(), signal.{ending})\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    (outcome,) = mistakes.on_gpu("00_start_here", ["any"])
    assert told in outcome.pop("ended") and outcome == {"mistake": "any", "right": 0, "wrong": 0}


def test_one_mistake_at_a_time_is_on_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They compile side by side, and none launches before the process of the one before has ended."""
    program, log = tmp_path / "python", tmp_path / "log"
    program.write_text(
        f"#!{sys.executable}\n"
        "import sys, time\n"
        "def note(what):\n"
        f"    with open({str(log)!r}, 'a') as file: file.write(what + '\\n')\n"
        "note('compiles')\n"
        "time.sleep(0.5)\n"
        "print('compiled', flush=True)\n"
        "sys.stdin.readline()\n"
        "note('launches')\n"
        "time.sleep(0.2)\n"
        "note('ends')\n"
        'print(\'{"right": 1, "wrong": 0, "ended": "ends"}\')\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    found = mistakes.on_gpu("00_start_here", ["one", "two", "three"])
    assert found == [{"mistake": name, "right": 1, "wrong": 0, "ended": "ends"} for name in ("one", "two", "three")]
    assert log.read_text().split() == 3 * ["compiles"] + 3 * ["launches", "ends"]


def test_a_mistake_that_cannot_be_tried_is_an_error() -> None:
    with pytest.raises(bench.BenchError, match="00_start_here, any: KeyError: 'any'"):
        mistakes.on_gpu("00_start_here", ["any"])


def test_a_report_names_the_line_and_leaves_out_the_ptx(capsys: pytest.CaptureFixture[str]) -> None:
    text = mistakes.report(copy, torch.zeros(40), torch.zeros(64), 64)
    assert text.startswith("OutOfBounds: ") and "y[tid] = x[tid]" in text and "PTX line" not in text
    assert not mistakes.faultless(text)
    assert mistakes.faultless(mistakes.report(copy, torch.zeros(40), torch.zeros(64), 40))
    assert capsys.readouterr().out == ""


@cute.kernel
def tickets_kernel(drawn: cute.Tensor, y: cute.Tensor):
    """Each warp draws a ticket and stores at its number; by chance, and in turn always, that is the warp's own."""
    tid, _, _ = cute.arch.thread_idx()
    if tid % 32 == 0:
        ticket = cute.arch.atomic_add(drawn.iterator, cutlass.Int32(1))
        y[(ticket - tid // 32) * 1000 + tid // 32] = ticket


@cute.jit
def tickets(drawn: cute.Tensor, y: cute.Tensor):
    tickets_kernel(drawn, y).launch(grid=(1, 1, 1), block=(128, 1, 1))


def test_a_mistake_that_waits_for_an_unlucky_schedule_is_reported_with_what_reproduces_it() -> None:
    drawn, y = torch.zeros(1, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    assert mistakes.faultless(mistakes.report(tickets, drawn.clone(), y.clone()))
    text = mistakes.report(tickets, drawn, y, seeds=2)
    assert text.startswith("OutOfBounds: ") and "y[(ticket" in text and "PTX line" not in text
    settings = dict(word.split("=") for word in text.splitlines()[-1].split() if "CUTETUT_" in word)
    with under(settings["CUTETUT_ASYNC"], settings["CUTETUT_SCHEDULE"]):
        assert mistakes.report(tickets, drawn, y).startswith("OutOfBounds: ")
    assert (drawn, y.tolist()) == (0, [0, 0, 0, 0]), "a kernel that fails changes no argument"


@cute.kernel
def count_kernel(drawn: cute.Tensor):
    cute.arch.atomic_add(drawn.iterator, cutlass.Int32(1))


@cute.jit
def count(drawn: cute.Tensor):
    count_kernel(drawn).launch(grid=(1, 1, 1), block=(128, 1, 1))


def test_under_many_schedules_every_run_begins_with_the_arguments_as_they_are() -> None:
    drawn = torch.full((1,), 7, dtype=torch.int32)
    text = mistakes.report(count, drawn, seeds=1)
    assert mistakes.faultless(text) and text.endswith("under all 6 schedules")
    assert drawn.item() == 7 + 128


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("    wait(\n        1)\n", "pass", "- wait(\n-     1)\n+ pass\n"),
        ("gone", "", "- gone\n+ (nothing)\n"),
        ("        wait(0)\n        go()\n", "        go()\n", "- wait(0)\n  go()\n"),  # what stays between is no change
        ("    a  =  1  # one\n\n", "    a = 2\n", "- a = 1 # one\n+ a = 2\n"),
        ("    a()\n", "    if b:\n        a()\n", "- a()\n+ if b:\n+     a()\n"),
        ("a()", "if b:\n            a()", "- a()\n+ if b:\n+     a()\n"),  # both begin in the middle of a line
        ("a()", "a()\n            b()\n", "  a()\n+ b()\n"),
        (" * b)\n", ")\n", "- * b)\n+ )\n"),
        ("def f():\n    return 1", "def f():\n    return 2", "  def f():\n-     return 1\n+     return 2\n"),
        ("        a()\n", "    a()\n", "-     a()\n+ a()\n"),  # an indentation is all that changes
    ],
)
def test_replacements_are_shown_line_by_line(
    capsys: pytest.CaptureFixture[str], old: str, new: str, shown: str
) -> None:
    mistakes.show([(old, new), ("x", "y")])
    assert capsys.readouterr().out == f"{shown}- x\n+ y\n"
