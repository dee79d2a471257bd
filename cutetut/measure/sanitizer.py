"""Programs under compute-sanitizer on a GPU: run one with a time limit, and read what a tool reports.

A program prints the line `mistakes.COMPILED` before its first launch, from which on it has less time: what comes
before, the imports and the compiler, takes long under a tool, and a kernel that hangs takes forever.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cutetut.course import notebooks
from cutetut.measure import mistakes

START_SECONDS = 60.0  # to import, compile and load under a tool
SECONDS = 9.0  # from the first launch to the end; a correct kernel takes far less
ALONE = "alone"  # in place of a tool's name: the program without one
TOOLS = ("racecheck", "synccheck", "memcheck")
AT_ONCE = 15  # processes: most of their time they compile

_PLACE = re.compile(r" in (\w+\.py:\d+)")
_ACCESS = re.compile(r"(Read|Write) access at .* in (\w+\.py:\d+)")
_START = re.compile(r"^========= (?:Error: |Warning: )?([A-Z].*)")
_NOT_REPORTS = ("COMPUTE-SANITIZER", "Target application", "ERROR SUMMARY", "RACECHECK SUMMARY", "Program hit", "Error")


def command(program: Sequence[str], tool: str) -> list[str]:
    """A program under a tool, or `ALONE`."""
    if tool == ALONE:
        return list(program)
    quiet = ["--show-backtrace", "no", "--print-limit", "20"]
    if tool == "memcheck":  # it reports the driver look-ups that fail as they should in every CUDA program
        quiet += ["--report-api-errors", "no"]
    return ["compute-sanitizer", "--tool", tool, *quiet, *program]


def examine(program: Sequence[str], tool: str, root: Path) -> dict[str, Any]:
    """Run a program once, in a folder: what it printed, its exit status (None: it took too long), seconds.

    Raises FileNotFoundError where the program, or compute-sanitizer, is missing.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        printed = Path(folder) / "printed"
        with printed.open("wb") as output:
            process = subprocess.Popen(
                command(program, tool), stdout=output, stderr=subprocess.STDOUT, cwd=root, start_new_session=True,
                env={**os.environ, "CUTETUT_BACKEND": "gpu"},
            )  # fmt: skip
        launched: float | None = None
        while process.poll() is None:
            time.sleep(0.2)
            now = time.monotonic()
            if launched is None and mistakes.COMPILED in printed.read_text(errors="replace").splitlines():
                launched = now
            if now - began > START_SECONDS or (launched is not None and now - launched > SECONDS):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        status, text = process.returncode, printed.read_text(errors="replace")
    killed = status == -signal.SIGKILL
    return {
        "status": None if killed else status, "launched": launched is not None,
        "seconds": round(time.monotonic() - began, 1), "output": shortened(text),
    }  # fmt: skip


def shortened(text: str) -> str:
    """Output with short names of kernels, and without the middle where it is long."""
    text = re.sub(r"kernel_cutlass_\w+", "kernel", text)
    return text if len(text) < 8000 else f"{text[:6000]}\n[...]\n{text[-1500:]}"


def version() -> str:
    """The version of compute-sanitizer, or "unknown"."""
    done = subprocess.run(["compute-sanitizer", "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"Version ([\d.]+)", done.stdout)
    return found[1] if found else "unknown"


def reports(output: str) -> list[str]:
    """The different reports in a tool's output: "message, FILE:LINE [and FILE:LINE]", in the order of appearance."""
    found: list[str] = []
    block: list[str] = []
    for line in [*output.splitlines(), "========= "]:
        if line.startswith("=========     "):
            block.append(line)
            continue
        if block and (text := _report(block)) not in found:
            found.append(text)
        start = _START.match(line)
        block = [line] if start and not start[1].startswith(_NOT_REPORTS) else []
    return found


def _report(block: list[str]) -> str:
    start = _START.match(block[0])
    assert start is not None
    if accesses := _ACCESS.findall("\n".join(block)):
        kinds = dict.fromkeys(f"{kind.lower()} at {place}" for kind, place in accesses)
        return f"Race between {' and '.join(kinds)}"
    message = re.sub(r" at (kernel|\S+\+0x).*| in \S+\.py.*", "", start[1]).rstrip(".")
    places = dict.fromkeys(_PLACE.findall("\n".join(block)))
    return f"{message}, {' and '.join(places)}" if places else message


# -- a chapter's mistakes ---------------------------------------------------------------------------


def watched(notebook: str, names: Sequence[str], tools: Sequence[str] = TOOLS) -> list[mistakes.Outcome]:
    """What each tool reports for one launch of each mistake of a chapter: mistake, tool, said, ended.

    said: its `reports`. ended: "right", "wrong", "hangs", what CUDA reported, or "not launched". Raises
    FileNotFoundError where compute-sanitizer is missing.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        tasks = [(notebook, name, tool) for tool in tools for name in names]
        return list(pool.map(lambda task: _watched(*task), tasks))


def _watched(notebook: str, name: str, tool: str) -> mistakes.Outcome:
    run = examine([sys.executable, "-u", *mistakes.program(notebook, name, 1)[1:]], tool, notebooks.project_root())
    return {"mistake": name, "tool": tool, "said": reports(run["output"]), "ended": _ending(run)}


def _ending(run: dict[str, Any]) -> str:
    if not run["launched"]:
        return "not launched"
    outcome = mistakes.outcome_in(run["output"])
    if run["status"] is None or outcome is None:
        return "hangs" if run["status"] is None else f"ended with status {run['status']}"
    if outcome["ended"] != "ends":
        return str(outcome["ended"])
    return "right" if outcome["right"] else "wrong"
