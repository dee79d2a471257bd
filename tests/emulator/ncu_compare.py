"""The emulator's counters beside Nsight Compute's.

    python -m tests.emulator.ncu_compare record [--only TEXT] [--out FILE]   # on a host with a Hopper GPU
    python -m tests.emulator.ncu_compare [--only TEXT] [--all-rows]          # anywhere

`record` launches every case of counter_cases.py and every kernel of counter_chapters.py once under `ncu` and writes
what it counted to data/ncu.json (600 launches take several minutes); without it, a row for each count that was
recorded is printed beside the emulator's: sectors, requests, wavefronts, bank conflicts. test_ncu.py holds the two
equal.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from cutetut.columns import aligned
from cutetut.measure import nsight

PARTS = CASES, CHAPTERS = "^(?!chapter)", "^chapter"
RECORDED = Path(__file__).parent / "data" / "ncu.json"

Question = Callable[[Any], int]  # of a tally
LSU = "pipe_lsu_mem"
METRICS: dict[str, tuple[str, Question]] = {  # our name -> Nsight Compute's, and ours
    "global ld requests": (
        f"l1tex__t_requests_{LSU}_global_op_ld.sum",
        lambda t: t.requests("ld") + t.requests("cp.async"),
    ),
    "global ld sectors": (
        f"l1tex__t_sectors_{LSU}_global_op_ld.sum",
        lambda t: t.sectors("ld") + t.sectors("cp.async"),
    ),
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
        "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts_cache_access.sum",
        lambda t: t.wavefronts("cp.async"),
    ),
    "cp.async conflicts": (
        f"smsp__sass_l1tex_data_bank_conflicts_{LSU}_shared_op_ldgsts_cache_access.sum",
        lambda t: t.bank_conflicts("cp.async"),
    ),
}
ONLY_NCU = {  # recorded too; the emulator has no such counts
    "wgmma wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum",
    "wgmma conflicts": f"l1tex__data_bank_conflicts_{LSU}_shared_op_gmma.sum",
}
# Counts that are not compared, by the launches they belong to (a regular expression), and why.
_READ = {"shared ld wavefronts", "shared ld conflicts"}
_WRITTEN = {"shared st wavefronts", "shared st conflicts"}
NOT_COMPARED: dict[str, tuple[set[str], str]] = {
    "^(cp.async|chapter (07|08|09|10))": (
        {"shared loads", "shared ld wavefronts"},
        "the assembler puts three shared loads of its own, whose results nobody reads, in front of the first cp.async",
    ),
    "^chapter 06 [345]": (
        {"shared loads"},
        "the assembler puts shared loads of its own, whose results nobody reads, in front of cp.async",
    ),
    "^chapter 06 5 lanes 4x8, copies spread": (_READ, "a conflict of 3,168 wavefronts depends on when cp.async writes"),
    "^chapter 07 (128x128x32|no swizzle)": (
        {"ldmatrix", *_READ},
        "the PTX executes 832 ldmatrix, the assembler's code 768; both take 4, or 16 without swizzle, wavefronts each",
    ),
    "^chapter 07 .*x64": (
        _READ,
        "161 conflicts of 3,489 wavefronts in one run, 276 in another: cp.async writes meanwhile",
    ),
    "^(atom|red) global 4 B, random 2$": (
        {"global atom sectors", "global red sectors"},
        "a sector more than the rule of atomic_sectors gives, which the other 77 launches follow; why is not known",
    ),
    "^chapter (07|08|09|10)": (
        {"cp.async wavefronts", "cp.async conflicts"},
        "ncu counts none for a cp.async that bypasses L1; chapter 09's speed, 145, 257 and 446 TFLOP/s, shows them",
    ),
    "^chapter 09 INTER": (
        {"global ld sectors"},
        "a sector whose two halves go to different 32 bytes of shared memory is counted twice",
    ),
    "^chapter 1[1-4]": (_WRITTEN, "more wavefronts than the stores have, presumably of waits on mbarriers"),
}


def what_is_compared() -> dict[str, Any]:
    """The counts that the emulator has, too, and those of some launches that are left out of the comparison."""
    left_out = [
        {"launches": each, "counts": sorted(names), "why": why} for each, (names, why) in NOT_COMPARED.items()
    ]
    return {"compared": list(METRICS), "not_compared": left_out}


def names_of_metrics() -> dict[str, str]:
    """Nsight Compute's name for each of ours."""
    return {**{name: metric for name, (metric, _) in METRICS.items()}, **ONLY_NCU}


def launches(only: str = "") -> dict[str, Callable[[str], None]]:
    """Every launch whose name a regular expression matches, in the order in which ncu sees them.

    Called with a torch device: "cuda", or "cpu" for the emulator.
    """
    from tests.emulator.counter_cases import cases
    from tests.emulator.counter_chapters import chapters

    named: dict[str, Callable[[str], None]] = {str(case): case.launch_on for case in cases()}
    if only != CASES:  # the notebooks take a while to load
        named |= chapters()
    return {name: launch for name, launch in named.items() if re.search(only, name)}


def count(launch: Callable[[str], None]) -> dict[str, int]:
    """What the emulator counts of one launch."""
    from cutetut.inspect import profile

    with profile.counting() as tally:
        launch("cpu")
    return {name: ours(tally) for name, (_, ours) in METRICS.items()}


def comparable(launch: str, recorded: dict[str, int]) -> dict[str, int]:
    """The recorded counts that the emulator has too."""
    hidden = {name for each, (names, _) in NOT_COMPARED.items() if re.search(each, launch) for name in names}
    return {name: value for name, value in recorded.items() if name in METRICS and name not in hidden}


# -- Nsight Compute --------------------------------------------------------------------------------


def measure(only: str, names: list[str]) -> dict[str, dict[str, int]]:
    """The counts of the launches that match, whose names are known; raises nsight.NothingCounted."""
    by_metric = {metric: name for name, metric in names_of_metrics().items()}
    program = ["-m", "tests.emulator.ncu_compare", "launch", "--only", only]
    found = [
        {by_metric[metric]: int(value) for metric, value in counts.items()}
        for counts in nsight.count(program, "^(case_|kernel_cutlass_)", list(by_metric))
    ]
    if len(found) != len(names):
        raise nsight.NothingCounted(f"ncu counted {len(found)} launches, and {len(names)} were expected")
    return dict(zip(names, found, strict=True))


def record(only: str, out: Path) -> None:
    """Measure and write, the cases and the chapters side by side: one compiles while the other measures.

    Raises nsight.NothingCounted, after writing the part that was measured, and NotRecordable without a Hopper GPU.
    """
    from cutetut.course import provenance

    names = list(launches(only))
    tool = nsight.version()
    facts = {**provenance.collect(), "ncu": tool}
    measured: dict[str, dict[str, int]] = {}
    with ThreadPoolExecutor() as both:
        parts = {each: [name for name in names if re.search(each, name)] for each in ([only] if only else PARTS)}
        for part in as_completed([both.submit(measure, *each) for each in parts.items()]):
            measured |= part.result()
            write({name: measured[name] for name in names if name in measured}, facts, out)
    print(f"{len(measured)} launches in {out}")


def write(measured: dict[str, dict[str, int]], facts: dict[str, str], out: Path) -> None:
    """One line of JSON for each launch: its counts in the order of "metrics", null for what was not measured.

    The head says which of them the emulator is held to, for the book's page.
    """
    head = json.dumps({"provenance": facts, "metrics": names_of_metrics(), **what_is_compared()})
    rows = [
        f"{json.dumps(name)}: {json.dumps([counts.get(what) for what in names_of_metrics()])}"
        for name, counts in measured.items()
    ]
    out.write_text(f'{head[:-1]},\n"launches": {{\n' + ",\n".join(rows) + "\n}}\n")


def read(file: Path) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """What `write` wrote: where it was measured, and what ncu counted of each launch, by our names."""
    record = json.loads(file.read_text())
    launches = {
        name: {what: value for what, value in zip(record["metrics"], counts, strict=True) if value is not None}
        for name, counts in record["launches"].items()
    }
    return record["provenance"], launches


def recorded() -> dict[str, dict[str, int]]:
    """What ncu counted of each launch on an H200."""
    return read(RECORDED)[1]


# -- the table -------------------------------------------------------------------------------------


def compare(only: str, every_row: bool) -> int:
    """Print the table; returns the exit status."""
    rows, agreed, different = [], 0, 0
    measured = recorded()
    todo = {name: launch for name, launch in launches(only).items() if name in measured}
    for name, launch in todo.items():
        emulated = count(launch)
        for what, counted in comparable(name, measured[name]).items():
            if emulated[what] == counted == 0:
                continue
            agreed += emulated[what] == counted
            different += emulated[what] != counted
            if every_row or emulated[what] != counted or name.startswith("chapter"):
                verdict = "" if emulated[what] == counted else "DIFFERENT"
                rows.append((name, what, str(emulated[what]), str(counted), verdict))
    table = [("launch", "count", "emulator", "ncu", ""), *rows]
    print(aligned(table))
    print(f"{len(todo)} launches: {agreed} counts agree, {different} differ")
    return int(different > 0 or not todo)


def main() -> int:
    """Compare, record, or (under ncu) launch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="compare", choices=["compare", "record", "launch"])
    parser.add_argument("--only", default="", help="launches whose name matches, such as 'chapter' or 'ldmatrix'")
    parser.add_argument("--all-rows", action="store_true", help="also the rows of cases that agree")
    parser.add_argument("--out", type=Path, default=RECORDED, help="where to record")
    options = parser.parse_args()
    if options.what == "compare":
        return compare(options.only, options.all_rows)
    if options.what == "record":
        record(options.only, options.out)
        return 0
    for launch in launches(options.only).values():
        launch("cuda")
    return 0


if __name__ == "__main__":
    sys.exit(main())
