"""The emulator's counters beside Nsight Compute's, on a host with a Hopper GPU.

    python -m tests.emulator.ncu_compare [--only TEXT] [--all-rows] [--sass]

runs every case of counter_cases.py and the kernels of chapters 04 and 05 once under `ncu` and once in the
emulator, and prints a row for each count that Nsight Compute has: sectors, requests, wavefronts, bank
conflicts. The exit status is 1 if any differs, 2 if nothing could be measured.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

Question = Callable[[Any], int]  # of a tally
LSU = "pipe_lsu_mem"
METRICS: dict[str, tuple[str, Question]] = {  # our name -> Nsight Compute's, and ours
    "global ld requests": (f"l1tex__t_requests_{LSU}_global_op_ld.sum", lambda t: t.requests("ld")),
    "global ld sectors": (f"l1tex__t_sectors_{LSU}_global_op_ld.sum", lambda t: t.sectors("ld")),
    "global st requests": (f"l1tex__t_requests_{LSU}_global_op_st.sum", lambda t: t.requests("st")),
    "global st sectors": (f"l1tex__t_sectors_{LSU}_global_op_st.sum", lambda t: t.sectors("st")),
    "global atom requests": (f"l1tex__t_requests_{LSU}_global_op_atom.sum", lambda t: t.requests("atom")),
    "global atom sectors": (f"l1tex__t_sectors_{LSU}_global_op_atom.sum", lambda t: t.sectors("atom")),
    "global red requests": (f"l1tex__t_requests_{LSU}_global_op_red.sum", lambda t: t.requests("red")),
    "global red sectors": (f"l1tex__t_sectors_{LSU}_global_op_red.sum", lambda t: t.sectors("red")),
    "shared loads": ("smsp__inst_executed_op_shared_ld.sum", lambda t: t.requests("ld", "shared")),
    "shared stores": ("smsp__inst_executed_op_shared_st.sum", lambda t: t.requests("st", "shared")),
    "ldmatrix": ("smsp__inst_executed_op_ldsm.sum", lambda t: t.requests("ldmatrix", "shared")),
    "shared ld wavefronts": (
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
        lambda t: t.wavefronts("ld") + t.wavefronts("ldmatrix"),
    ),
    "shared st wavefronts": (
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
        lambda t: t.wavefronts("st") + t.wavefronts("stmatrix"),
    ),
    "shared ld conflicts": (
        f"l1tex__data_bank_conflicts_{LSU}_shared_op_ld.sum",
        lambda t: t.bank_conflicts("ld") + t.bank_conflicts("ldmatrix"),
    ),
    "shared st conflicts": (
        f"l1tex__data_bank_conflicts_{LSU}_shared_op_st.sum",
        lambda t: t.bank_conflicts("st") + t.bank_conflicts("stmatrix"),
    ),
    "cp.async wavefronts": (
        "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum",
        lambda t: t.wavefronts("cp.async"),
    ),
    "cp.async conflicts": (
        "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum",
        lambda t: t.bank_conflicts("cp.async"),
    ),
}
BY_PATCHING = {"cp.async wavefronts", "cp.async conflicts"}  # slow: ncu rewrites the kernel to count them
# The assembler puts three shared loads of its own, whose results nobody reads, in front of the first cp.async.
LOADS_OF_CP_ASYNC = {"shared loads", "shared ld wavefronts"}


@dataclass
class Work:
    """One launch: how it is called in the table, how to do it on a GPU, and how to count it in the emulator."""

    name: str
    launch: Callable[[], None]
    count: Callable[[], Any]


def works(only: str) -> Iterator[Work]:
    """Every launch, in the order in which ncu sees them."""
    from tests.emulator.counter_cases import cases

    for case in cases():
        name = f"{case.operation} {case.space} {case.nbytes} B, {case.name}"
        if only in name:
            yield Work(name, lambda case=case: _launch_case(case), lambda case=case: _count_case(case))  # type: ignore[misc]
    for name, function, shapes, constants in _chapters():
        if only in name:
            yield Work(
                name,
                lambda f=function, s=shapes, c=constants: _launch_chapter(f, s, c),  # type: ignore[misc]
                lambda f=function, s=shapes, c=constants: _count_chapter(f, s, c),  # type: ignore[misc]
            )


def _chapters() -> Iterator[tuple[str, Any, tuple[tuple[int, int], ...], tuple[Any, ...]]]:
    """The scalar GEMMs of chapters 04 and 05: name, launching function, shapes of A, B and C, constants."""
    from cutetut import notebooks

    scalar, partition = notebooks.load("04_scalar_fma_gemm"), notebooks.load("05_partition_c")
    yield "chapter 04", scalar.scalar_gemm_launch, ((256, 64), (256, 64), (256, 256)), ()
    for name, permutation in partition.PERMUTATIONS.items():
        for wide in (False, True):
            label = f"chapter 05 {name} {'wide' if wide else 'plain'}"
            yield label, partition.gemm, ((256, 16), (256, 16), (256, 256)), (permutation, wide)


def _launch_chapter(function: Any, shapes: tuple[tuple[int, int], ...], constants: tuple[Any, ...]) -> None:
    import cutlass.cute as cute
    import torch
    from cutlass.cute.runtime import from_dlpack

    tensors = [from_dlpack(torch.zeros(*shape, device="cuda"), assumed_align=16) for shape in shapes]
    cute.compile(function, *tensors, *constants)(*tensors)
    torch.cuda.synchronize()


def _count_chapter(function: Any, shapes: tuple[tuple[int, int], ...], constants: tuple[Any, ...]) -> Any:
    import torch

    from cutetut import profile

    return profile.count(function, *(torch.zeros(*shape) for shape in shapes), *constants)


def _launch_case(case: Any) -> None:
    from tests.emulator.hardware import launch_here  # in this process, which ncu watches

    launch_here(case.text, *case.arguments())


def _count_case(case: Any) -> Any:
    from cutetut.emulator.counters import Counting
    from cutetut.emulator.observe import observing

    counter = Counting()
    with observing(counter):
        case.launch()
    return counter.total()


# -- Nsight Compute --------------------------------------------------------------------------------


class NothingMeasured(RuntimeError):
    """Nsight Compute is missing or did not measure; the message has its words."""


def measure(only: str, sass: bool) -> list[dict[str, float]]:
    """The metrics of every launch, in order, from a child process under ncu; raises NothingMeasured."""
    tool = shutil.which("ncu")
    if tool is None:
        raise NothingMeasured("ncu (Nsight Compute) is not on the PATH")
    known = _known_metrics(tool)
    wanted = [metric for name, (metric, _) in METRICS.items() if name not in BY_PATCHING]
    metrics = [metric for metric in wanted if not known or metric.removesuffix(".sum") in known]
    if sass:
        metrics += [METRICS[name][0] for name in sorted(BY_PATCHING)]
    return _run_ncu(tool, metrics, only)


def _known_metrics(tool: str) -> set[str]:
    """The hardware metrics that this version has for this GPU; empty if it does not say."""
    done = subprocess.run([tool, "--query-metrics"], capture_output=True, text=True, check=False)
    return set(re.findall(r"^\s*(\w+__\w+)", done.stdout, re.MULTILINE))


def _run_ncu(tool: str, metrics: list[str], only: str) -> list[dict[str, float]]:
    command = [
        tool, "--csv", "--clock-control", "none", "--target-processes", "all", "--print-units", "base",
        "--kernel-name", "regex:^(case_|kernel_cutlass_)", "--metrics", ",".join(metrics),
        sys.executable, "-m", "tests.emulator.ncu_compare", "--launch", "--only", only,
    ]  # fmt: skip
    environment = {**os.environ, "CUTETUT_BACKEND": "gpu", "CUTETUT_TEST_GPU": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    lines = done.stdout.splitlines()
    head = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    words = (done.stdout[-3000:] if head is None else "") + done.stderr[-3000:]
    if head is None or done.returncode:
        raise NothingMeasured(f"ncu ended with status {done.returncode} and said:\n{words.strip()}")
    found: dict[int, dict[str, float]] = {}
    for row in csv.DictReader(lines[head:]):
        if row["ID"].isdigit() and re.fullmatch(r"[\d,.]+", row["Metric Value"] or ""):
            found.setdefault(int(row["ID"]), {})[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    return [found[number] for number in sorted(found)]


# -- the table -------------------------------------------------------------------------------------


def compare(only: str, every_row: bool, sass: bool = False) -> int:
    """Print the table; returns the exit status."""
    try:
        measured = measure(only, sass)
    except NothingMeasured as error:
        print(error, file=sys.stderr)
        return 2
    todo = list(works(only))
    if len(todo) != len(measured) or not todo:
        print(f"{len(todo)} launches are expected and ncu measured {len(measured)}", file=sys.stderr)
        return 2
    rows, agreed, different = [], 0, 0
    for work, metrics in zip(todo, measured, strict=True):
        tally = work.count()
        for name, (metric, ours) in METRICS.items():
            if metric not in metrics or (work.name.startswith("cp.async") and name in LOADS_OF_CP_ASYNC):
                continue
            emulated, counted = ours(tally), metrics[metric]
            if emulated == counted == 0:
                continue
            agreed += emulated == counted
            different += emulated != counted
            if every_row or emulated != counted or work.name.startswith("chapter"):
                verdict = "" if emulated == counted else "DIFFERENT"
                rows.append((work.name, name, str(emulated), f"{counted:.0f}", verdict))
    _print([("launch", "count", "emulator", "ncu", ""), *rows])
    missing = sorted(name for name, (metric, _) in METRICS.items() if not any(metric in m for m in measured))
    print(
        f"{len(todo)} launches: {agreed} counts agree, {different} differ; ncu had none of: {', '.join(missing) or '-'}"
    )
    return int(different > 0)


def _print(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def main() -> int:
    """Compare, or with --launch (under ncu) only launch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="launches whose name contains this, such as 'chapter' or 'ldmatrix'")
    parser.add_argument("--all-rows", action="store_true", help="also the rows of cases that agree")
    parser.add_argument("--sass", action="store_true", help="also the bank conflicts of cp.async; slow")
    parser.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.launch:
        for work in works(options.only):
            work.launch()
        return 0
    for name in ("CUTETUT_BACKEND", "CUTETUT_TEST_GPU"):
        os.environ.pop(name, None)  # this process counts in the emulator
    return compare(options.only, options.all_rows, options.sass)


if __name__ == "__main__":
    sys.exit(main())
