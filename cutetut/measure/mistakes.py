"""Kernels with a line changed on purpose: what the emulator says about each, and what a GPU does with it.

A chapter's cells tagged `bench` keep its mistakes as `MISTAKES`, a name and the replacements of each, as
`notebooks.changed` takes them, and define

    def attempt(name: str) -> tuple[Callable[[], None], Callable[[], bool]]:
        ...  # a function that launches this mistake on the GPU, and one that says whether its result is right

`on_gpu` then tries each in a process of its own, because a GPU may hang or take the process down. The processes compile
side by side and launch one after the other, so that a kernel that hangs is not taken for another one's fault.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cutetut.course import notebooks
from cutetut.emulator.errors import EmulatorWarning
from cutetut.explore import moments, schedules
from cutetut.inspect.diagnose import NO_FAULT, diagnose, first_fault
from cutetut.measure import bench

COMPILED = "compiled"  # a line that a program prints before its first launch
WAIT = "wait"  # to a program: launch when a line comes on standard input
LAUNCHES = 10  # of each mistake: a race may be lost now and then
POLL = 0.001  # seconds between looks at a launch
PATIENCE = 3.0  # seconds until a launch counts as one that hangs
START_LIMIT = 90.0  # seconds for a process, most of which are imports and the compiler
AT_ONCE = 4  # processes: most of their time they compile

Outcome = dict[str, Any]


def report(function: Callable[..., Any], *args: Any, seeds: int = 0) -> str:
    """What `diagnose` prints of a kernel and what it warns of, without the lines of PTX.

    seeds: with some, the kernel runs under many schedules (`diagnose.first_fault`), and the report is of the first that
    fails, with what reproduces it.
    """
    printed = io.StringIO()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        if seeds:
            failure = first_fault(function, *args, seeds=seeds)
            print(failure or f"{NO_FAULT}, under all {len(schedules(seeds)) * len(moments(seeds))} schedules")
        else:
            diagnose(function, *args)
    ours = [str(w.message) for w in caught if issubclass(w.category, EmulatorWarning)]
    messages = dict.fromkeys(ours) if seeds else ours  # many runs repeat the same
    lines = [line for message in messages for line in f"warning: {message}".splitlines()]
    return "\n".join(line for line in [*lines, *printed.getvalue().splitlines()] if "PTX line" not in line)


def faultless(text: str) -> bool:
    """Whether a `report` says that the emulator found no fault; there may be warnings."""
    return NO_FAULT in text


def show(replacements: Iterable[tuple[str, str]]) -> None:
    """Print the removed and the added lines one by one; unchanged lines between them begin with spaces."""
    for old, new in replacements:
        before, after = _side_by_side(old, new)
        for what, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            marks = [("  ", before[a:b])] if what == "equal" else [("- ", before[a:b]), ("+ ", after[c:d])]
            print(*(mark + line for mark, lines in marks for line in lines), sep="\n")
        if not after:
            print("+ (nothing)")


def _side_by_side(old: str, new: str) -> tuple[list[str], list[str]]:
    """The lines of both texts, indented as they are to each other, with one space where a line has several."""
    both = [[line for line in text.splitlines() if line.strip()] for text in (old, new)]
    margins = [margin for lines in both if (margin := _margin(lines)) is not None]
    margin = min(margins, default=0)
    before, after = ([" " * (_indent(line) - margin) + " ".join(line.split()) for line in lines] for lines in both)
    return before, after


def _margin(lines: Sequence[str]) -> int | None:
    """The columns on the left that a text does not need; a first line without any may begin in the middle of a line."""
    if lines and _indent(lines[0]):
        return min(map(_indent, lines))
    if len(lines) < 2:
        return None
    return max(0, min(map(_indent, lines[1:])) - 4 * lines[0].rstrip().endswith(":"))


def _indent(line: str) -> int:
    return (len(line) - len(line.lstrip())) // 4 * 4  # a part of a line may begin with one space


def on_gpu(notebook: str, names: Sequence[str], launches: int = LAUNCHES, at_once: int = AT_ONCE) -> list[Outcome]:
    """What became of each mistake of a chapter, launched `launches` times: mistake, right, wrong, ended.

    at_once: how many processes compile side by side; the GPU is left to one at a time. ended: "ends", "hangs", what
    CUDA reports, or how the process died. Raises bench.BenchError where one could not be tried at all.
    """
    gpu = threading.Lock()
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda name: _in_a_process(notebook, name, launches, gpu), names))


def program(notebook: str, name: str, launches: int) -> list[str]:
    """The command that tries one mistake of a chapter `launches` times."""
    return [sys.executable, "-m", "cutetut.measure.mistakes", notebook, name, str(launches)]


def outcome_in(output: str) -> Outcome | None:
    """The outcome that the output of such a program has, among whatever a tool that watches it prints."""
    for line in output.splitlines():
        if line.startswith('{"right": '):
            found: Outcome = json.loads(line)
            return found
    return None


def _in_a_process(notebook: str, name: str, launches: int, gpu: threading.Lock) -> Outcome:
    nothing = {"mistake": name, "right": 0, "wrong": 0}
    with tempfile.TemporaryFile("w+") as complaints, subprocess.Popen(
        [*program(notebook, name, launches), WAIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints,
        text=True, cwd=notebooks.project_root(),
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        limit = threading.Timer(START_LIMIT, process.kill)
        limit.start()
        compiled = any(line.strip() == COMPILED for line in process.stdout)
        limit.cancel()
        output = ""
        with gpu if compiled else contextlib.nullcontext():
            try:
                output, _ = process.communicate("launch\n" if compiled else None, timeout=START_LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                return {**nothing, "ended": f"no answer in {START_LIMIT:.0f} s"}
        complaints.seek(0)
        reason = (complaints.read().strip().splitlines() or ["no reason given"])[-1]
    if process.returncode == -signal.SIGKILL and not compiled:
        return {**nothing, "ended": f"no answer in {START_LIMIT:.0f} s"}
    if process.returncode < 0:
        return {**nothing, "ended": f"its process died: {_signal(-process.returncode)}"}
    if process.returncode:
        raise bench.BenchError(f"{notebook}, {name}: {reason}")
    outcome = outcome_in(output)
    assert outcome is not None  # a program that ends well has printed it
    return {"mistake": name, **outcome}


def _signal(number: int) -> str:
    return signal.strsignal(number) or f"signal {number}"


def trial(
    launch: Callable[[], None], right: Callable[[], bool], launches: int = LAUNCHES, patience: float = PATIENCE
) -> Outcome:
    """Launch `launches` times, each for `patience` seconds at most; count right and wrong results, say how it ended."""
    results: list[bool] = []
    ended = "ends"
    try:
        for _ in range(launches):
            launch()
            if not _finished_within(patience):
                ended = "hangs"
                break
            results.append(right())
    except RuntimeError as error:  # what CUDA reports of the kernel
        ended = str(error).splitlines()[0]
    return {"right": sum(results), "wrong": len(results) - sum(results), "ended": ended}


def _finished_within(seconds: float) -> bool:
    """Wait at most this long for the GPU to do all that was launched; returns whether it has."""
    import torch

    launched = torch.cuda.Event()
    launched.record()
    deadline = time.monotonic() + seconds
    while not launched.query():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True


def main(notebook: str, name: str, launches: str = str(LAUNCHES), when: str = "") -> None:
    """Try one mistake on this GPU and print the outcome as JSON; with `WAIT`, when a line comes on standard input.

    It does not wait for a kernel that hangs; a tool that watches a process wants it to end in the usual way.
    """
    launch, right = notebooks.load(notebook, bench.BENCH_TAGS).attempt(name)
    print(COMPILED, flush=True)
    if when == WAIT:
        sys.stdin.readline()
    outcome = trial(launch, right, int(launches))
    print(json.dumps(outcome), flush=True)
    if outcome["ended"] != "ends":
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
