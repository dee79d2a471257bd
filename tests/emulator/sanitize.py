"""What compute-sanitizer says about the planted bugs, on a host with a Hopper GPU.

    python -m tests.emulator.sanitize RAW.json [TOOL ...]

runs every mutant of mutants.py, and every correct kernel, alone and under each tool, many at a time, and writes down
what each run printed and how it ended.
"""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cutetut.measure.sanitizer import ALONE, AT_ONCE, examine, version

ROOT = Path(__file__).resolve().parents[2]
TOOLS = (ALONE, "racecheck", "synccheck", "memcheck", "initcheck")
RUNS = 10  # of the program alone; a tool watches one


def examined(name: str, tool: str) -> dict[str, Any]:
    """Run a mutant, or a correct kernel, alone or under a tool."""
    program = [sys.executable, "-u", "-m", "tests.emulator.mutants", name, str(RUNS if tool == ALONE else 1)]
    return {"name": name, "tool": tool, **examine(program, tool, ROOT)}


def main(path: str, tools: list[str]) -> None:
    """Examine all of them, and write after each, so that an interruption loses little."""
    from cutetut.course import provenance
    from tests.emulator.mutants import CASES, MUTANTS

    facts = {**provenance.collect(), "compute_sanitizer": version()}
    work = [(name, tool) for tool in tools or TOOLS for name in [*CASES, *MUTANTS]]
    found: list[dict[str, Any]] = []
    lock = threading.Lock()

    def one(task: tuple[str, str]) -> None:
        result = examined(*task)
        with lock:
            found.append(result)
            Path(path).write_text(json.dumps({"provenance": facts, "runs": found}))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, work))
    print(f"{len(found)} runs, {sum(r['status'] is None for r in found)} killed")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
