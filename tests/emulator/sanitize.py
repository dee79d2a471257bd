"""What compute-sanitizer says about the planted bugs, on a host with a Hopper GPU.

    python -m tests.emulator.sanitize RAW.json [TOOL ...]

runs every mutant of mutants.py, and every correct kernel, alone and under each tool, many at a time, and writes down
what each run printed and how it ended.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("alone", "racecheck", "synccheck", "memcheck", "initcheck")
RUNS = 10  # of the program alone; a tool watches one
START_SECONDS = 60.0  # to import, compile and load under a tool
SECONDS = 9.0  # from the first launch to the end; a correct kernel takes far less
AT_ONCE = 15


def command(name: str, tool: str) -> list[str]:
    """The program, alone or under a tool."""
    runs = RUNS if tool == "alone" else 1
    program = [sys.executable, "-u", "-m", "tests.emulator.mutants", name, str(runs)]
    if tool == "alone":
        return program
    quiet = ["--show-backtrace", "no", "--print-limit", "20"]
    if tool == "memcheck":  # it reports the driver look-ups that fail as they should in every CUDA program
        quiet += ["--report-api-errors", "no"]
    return ["compute-sanitizer", "--tool", tool, *quiet, *program]


def examine(name: str, tool: str) -> dict[str, Any]:
    """Run once: what was printed, the exit status (None: it was killed for taking too long), seconds."""
    from tests.emulator.mutants import COMPILED

    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        printed = Path(folder) / "printed"
        with printed.open("wb") as output:
            process = subprocess.Popen(
                command(name, tool), stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True,
                env={**os.environ, "CUTETUT_BACKEND": "gpu"},
            )  # fmt: skip
        launched: float | None = None
        while process.poll() is None:
            time.sleep(0.2)
            now = time.monotonic()
            if launched is None and COMPILED in printed.read_text(errors="replace").splitlines():
                launched = now
            if now - began > START_SECONDS or (launched is not None and now - launched > SECONDS):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        status, text = process.returncode, printed.read_text(errors="replace")
    killed = status == -signal.SIGKILL
    return {
        "name": name, "tool": tool, "status": None if killed else status, "launched": launched is not None,
        "seconds": round(time.monotonic() - began, 1), "output": shortened(text),
    }  # fmt: skip


def shortened(text: str) -> str:
    """Output with short names of kernels, and without the middle where it is long."""
    text = re.sub(r"kernel_cutlass_\w+", "kernel", text)
    return text if len(text) < 8000 else f"{text[:6000]}\n[...]\n{text[-1500:]}"


def _version() -> str:
    done = subprocess.run(["compute-sanitizer", "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"Version ([\d.]+)", done.stdout)
    return found[1] if found else "unknown"


def main(path: str, tools: list[str]) -> None:
    """Examine all of them, and write after each, so that an interruption loses little."""
    from cutetut.course import provenance
    from tests.emulator.mutants import CASES, MUTANTS

    facts = {**provenance.collect(), "compute_sanitizer": _version()}
    work = [(name, tool) for tool in tools or TOOLS for name in [*CASES, *MUTANTS]]
    found: list[dict[str, Any]] = []
    lock = threading.Lock()

    def one(task: tuple[str, str]) -> None:
        result = examine(*task)
        with lock:
            found.append(result)
            Path(path).write_text(json.dumps({"provenance": facts, "runs": found}))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, work))
    print(f"{len(found)} runs, {sum(r['status'] is None for r in found)} killed")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
