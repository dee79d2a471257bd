"""data/sanitizer.json: what compute-sanitizer said about each planted bug, in few words.

    python -m tests.emulator.sanitizer_table RAW.json ...     # made by sanitize.py on a Hopper GPU host

    {"provenance": {...}, "kernels": {NAME: {"of": KERNEL, "emulator": ERROR, TOOL: {"said": [...], "end": ...}}}}

A tool's "said" has one entry for each different report, with the lines of Python it names, "line" being that of
the planted change; "end" is how the run ended: "right 1 of 1", "wrong 1 of 1", "hangs", or CUDA's error.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from cutetut.measure.sanitizer import reports
from tests.emulator.expected import EXPECTED
from tests.emulator.mutants import BUGS, CASES, MUTANTS
from tests.emulator.sanitize import TOOLS

RECORDED = Path(__file__).parent / "data" / "sanitizer.json"


def ending(run: dict[str, Any]) -> str:
    """How a run ended; raises ValueError if it never came to its first launch."""
    if not run["launched"]:
        raise ValueError(f"{run['name']} under {run['tool']} was not launched; run it again:\n{run['output'][-500:]}")
    if run["status"] is None:
        return "hangs"
    if result := re.search(r"right (\d+) times, wrong (\d+) times", run["output"]):
        right, wrong = int(result[1]), int(result[2])
        return f"right {right} of {right + wrong}" if right else f"wrong {wrong} of {wrong}"
    if fault := re.search(r"CUDA error: (.*)", run["output"]):
        return fault[1]
    raise ValueError(f"{run['name']} under {run['tool']} ended with status {run['status']}:\n{run['output'][-500:]}")


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The "kernels" of the data file; raises ValueError where a run is missing."""
    found: dict[str, Any] = {}
    by_key = {(run["name"], run["tool"]): run for run in runs}
    for name in [*CASES, *MUTANTS]:
        mutant = MUTANTS.get(name)
        row: dict[str, Any] = {"of": mutant.kernel if mutant else name}
        if mutant:
            row["line"] = changed_line(name)
            row["emulator"] = EXPECTED[name].error.__name__ if name in EXPECTED else "EmulatorWarning"
        for tool in TOOLS:
            run = by_key.get((name, tool))
            if run is None:
                raise ValueError(f"{name} was not run {tool if tool == 'alone' else f'under {tool}'}")
            row[tool] = {"said": reports(run["output"]), "end": ending(run)}
        found[name] = row
    return found


def changed_line(name: str) -> str:
    """ "file.py:12", the line that a mutant changes."""
    mutant = MUTANTS[name]
    lines = (BUGS / f"{mutant.kernel}.py").read_text().splitlines(keepends=True)
    (number,) = [i for i, line in enumerate(lines, 1) if mutant.old in line]
    return f"{mutant.kernel}.py:{number}"


def main(paths: list[str]) -> None:
    """Write the data file from raw records; raises ValueError where they differ in GPU, software or date."""
    raw = {path: json.loads(Path(path).read_text()) for path in paths}
    provenance = raw[paths[0]]["provenance"]
    for path, record in raw.items():
        if record["provenance"] != provenance:
            raise ValueError(f"{path} was not recorded under the conditions of {paths[0]}: {record['provenance']}")
    runs = [run for record in raw.values() for run in record["runs"]]
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in summarise(runs).items())
    RECORDED.write_text(f'{{"provenance": {json.dumps(provenance)},\n"kernels": {{\n{rows}\n}}}}\n')


if __name__ == "__main__":
    main(sys.argv[1:])
