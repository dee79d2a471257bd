"""Nsight Compute's counts of kernels: run a program under `ncu` and read the table that it prints."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence

PROGRAM_LIMIT = 600  # seconds for a program under ncu, which runs each kernel several times
ANSWER_LIMIT = 60  # seconds for ncu's version


class NothingCounted(RuntimeError):
    """Nsight Compute is missing, may not count, or counted nothing; the message quotes it."""


def count(program: Sequence[str], kernels: str, metrics: Sequence[str]) -> list[dict[str, float]]:
    """The metrics of each launch of a program, in the order of the launches.

    program: what Python gets on its command line, such as ["-c", "..."]; it runs on the GPU. kernels: a regular
    expression; launches of other kernels are not counted. metrics: their names in Nsight Compute. Each launch is
    counted with the caches and clocks as they are. Raises NothingCounted where ncu is missing, is not allowed to
    read the counters, or where the program fails.
    """
    command = [
        tool(), "--csv", "--clock-control", "none", "--cache-control", "none", "--print-units", "base",
        "--kernel-name", f"regex:{kernels}", "--metrics", ",".join(metrics), sys.executable, *program,
    ]  # fmt: skip
    environment = {**os.environ, "CUTETUT_BACKEND": "gpu"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=PROGRAM_LIMIT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise NothingCounted(f"the program under ncu had not ended after {PROGRAM_LIMIT} s") from error
    found = parse(done.stdout)
    if done.returncode or not found:
        said = f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}".strip()
        raise NothingCounted(f"ncu ended with status {done.returncode} after {len(found)} launches; it said:\n{said}")
    return found


def parse(text: str) -> list[dict[str, float]]:
    """The metrics of each launch in ncu's CSV, in order; what it could not measure is left out."""
    start = text.find('"ID"')
    found: dict[int, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO(text[start:])) if start >= 0 else ():
        if row["ID"].isdigit() and re.fullmatch(r"[\d,.]+", row["Metric Value"] or ""):
            found.setdefault(int(row["ID"]), {})[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    return [found[number] for number in sorted(found)]


def version() -> str:
    """The version of Nsight Compute, such as "2025.3.1.0"; raises NothingCounted where it is missing or hangs."""
    try:
        done = subprocess.run(
            [tool(), "--version"], capture_output=True, text=True, timeout=ANSWER_LIMIT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise NothingCounted(f"{tool()} --version gave no answer in {ANSWER_LIMIT} s") from error
    found = re.search(r"Version ([\d.]+)", done.stdout)
    return found[1] if found else "unknown"


def tool() -> str:
    """The path of ncu; raises NothingCounted where it is missing."""
    found = shutil.which("ncu")
    if found is None:
        raise NothingCounted("ncu (Nsight Compute) is not on the PATH: it comes with the CUDA toolkit")
    return found
