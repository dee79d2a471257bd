"""A chapter's `benchmark()` on any machine: without a clock, without Nsight Compute, its tables in a scratch folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cutetut.course import provenance
from cutetut.measure import bench, nsight, records
from tests.chapters import exercises


class Clock:
    """A timer for which every call takes a microsecond."""

    def seconds(self, function: Callable[[], Any], launches: int) -> float:
        function()
        return 1e-6 * launches

    def clock_mhz(self, function: Callable[[], Any], launches: int) -> int:
        function()
        return 1000


def without_a_clock(
    chapter: ModuleType, monkeypatch: pytest.MonkeyPatch, ours_too: bool = True, **measured: Any
) -> list[str]:
    """Let `benchmark()` run whole on any machine; the kernels that would have been timed are listed.

    Each is launched once with its vendor's, several of which count as their first, or the vendor's alone. A row has the
    speeds 1 and 2, `measured`, and of what it was asked for the size, the names, the operations, and a unit and a rung
    where they were given.
    """
    timed: list[str] = []

    def compare(ours: Any, vendor: Any, **said: Any) -> list[bench.Row]:
        timed.append(said["kernel"])
        if ours_too:
            ours()
        several = vendor if isinstance(vendor, Mapping) else {said["vendor_name"]: vendor}
        for theirs in several.values():
            theirs()
        names = {"kernel": said["kernel"], "vendor": next(iter(several)), "flops": said["flops"]}
        given = {name: said[name] for name in ("unit", "rung") if said.get(name)}
        speed = {"method": "burst of 40 launches", "inputs": "none", "ours_tflops": 1.0, "vendor_tflops": 2.0}
        times = {"ratio": 0.5, "ours_us": 2.0, "vendor_us": 1.0}
        return [{**said["size"], **names, **given, **speed, **times, **measured}]

    assert chapter.bench is bench
    monkeypatch.setattr(bench, "compare", compare)
    monkeypatch.setattr(bench, "CudaTimer", Clock)
    monkeypatch.setattr(provenance, "collect", dict)
    return timed


def assert_measured(
    chapter: ModuleType, name: str, kernels: list[str], small: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`benchmark()` of a chapter, with these of its constants, measures these kernels and tries all its mistakes."""
    kept: list[tuple[Any, ...]] = []
    for constant, value in small.items():
        monkeypatch.setattr(chapter, constant, value)
    monkeypatch.setattr(chapter.mistakes, "on_gpu", lambda notebook, names: [{"mistake": each} for each in names])
    monkeypatch.setattr(chapter.records, "write", lambda *what: kept.append(what))
    timed = without_a_clock(chapter, monkeypatch)
    torch.manual_seed(17)
    assert len(bench.validated(chapter.benchmark(), name)) == len(kernels)
    assert timed == kernels
    assert kept == [(name, "mistakes", [{"mistake": each} for each in chapter.MISTAKES])]


def assert_tried(chapter: ModuleType, mistake: str, right: bool = False) -> None:
    """What `mistakes.on_gpu` asks of a chapter: a launch of a mistake, and whether its result is right."""
    torch.manual_seed(17)
    launch, is_right = chapter.attempt(mistake)
    launch()
    assert is_right() == right


def keep_tables_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let chapters write their tables to this folder, and read them there."""
    monkeypatch.setattr(bench, "data_file", lambda stem: folder / f"{stem}.json")


def count_launches(launches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Nsight Compute count so many launches of any program, 1.5 of each metric; where it is 0, it is missing."""

    def count(program: list[str], kernels: str, metrics: list[str]) -> list[dict[str, float]]:
        option, source = program
        assert option == "-c"
        compile(source, "program", "exec")
        if not launches:
            raise nsight.NothingCounted("no ncu")
        return [dict.fromkeys(metrics, 1.5) for _ in range(launches)]

    monkeypatch.setattr(nsight, "count", count)


def show(
    chapter: ModuleType, name: str, tflops: Mapping[str, float], cells: list[str], folder: Path,
    monkeypatch: pytest.MonkeyPatch, pairs: Iterable[tuple[str, str]] = (), **more: Any,
) -> None:  # fmt: skip
    """Run the cells that read tables, with tables: each kernel at so many TFLOP/s beside a vendor's 500, a mistake.

    pairs: of kernels that took turns. chapter: what these cells find, with `more`. A launch takes 1 / TFLOP/s of a
    second.
    """
    fields = dict.fromkeys(provenance.FIELDS, "a test's")
    keep_tables_in(folder, monkeypatch)
    monkeypatch.setattr(provenance, "collect", lambda: fields)
    records.write(name, "mistakes", [{"mistake": "no barrier", "right": 9, "wrong": 1, "ended": "hangs"}])
    rows = []
    for kernel, other in (*((kernel, "cuDNN") for kernel in tflops), *pairs):
        speed, theirs = tflops[kernel], 500.0 if other == "cuDNN" else tflops[other]
        times = {"ours_us": 1e6 / speed, "ours_us_range": [0.9e6 / speed, 1.1e6 / speed], "vendor_us": 1e6 / theirs}
        least, most = speed / (1.02 * theirs), speed / (0.98 * theirs)
        ratio = {"ratio": speed / theirs, "ratio_range": [least, most], "vendor_tflops": theirs}
        said = {"kernel": kernel, "vendor": other, "inputs": "none", "ours_tflops": speed}
        said |= {"sm_mhz": 2000, "vendor_sm_mhz": 1990}
        rows += [{**said, **times, **ratio, "method": f"{method} of a test"} for method in ("burst", "sustained")]
    head = {"notebook": name, "provenance": fields, "code_hash": "of an earlier version"}
    (folder / f"{name}.json").write_text(json.dumps({**head, "rows": rows}))
    names = {**vars(chapter), "CHAPTER": name, **more}
    for cell in cells:
        exec(exercises.cell(name, cell), names)
