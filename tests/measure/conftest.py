"""What tests of measurements share: a GPU with a known clock, a row, and a notebook on what passes for a GPU host."""

from __future__ import annotations

import nbformat
import pytest

from cutetut.course import notebooks, provenance
from cutetut.measure import bench
from tests.facts import FACTS


class FakeTimer:
    """A GPU on which `ours` takes 2 ms and `vendor` 1 ms, and the first of the vendor's bursts is slow."""

    def __init__(self, ours=2e-3, vendor=1e-3):
        self.cost = {"ours": ours, "vendor": vendor}
        self.log = []

    def timed(self, function, launches):
        side = function()
        self.log.append((side, launches))
        disturbed = 10 if len(self.log) == 8 else 1  # the first of the vendor's bursts
        mhz = 1980 - launches if side == "ours" else 1500 + launches
        return bench.Timed(self.cost[side] * launches * disturbed, mhz)

    def rest(self, seconds):
        self.log.append(("rest", seconds))


ROW = {
    "M": 128,
    "kernel": "scalar",
    "vendor": "cuBLAS",
    "inputs": "random normal float32",
    "method": "burst of 40 launches",
    "ours_tflops": 1.2345,
    "vendor_tflops": 45.678,
    "ratio": 0.027026,
    "ours_us": 1.0,
}


@pytest.fixture
def benched(project, monkeypatch):
    """A project with one notebook whose bench cell is given, on a machine that passes for a GPU host."""
    monkeypatch.setattr(notebooks, "project_root", lambda: project)
    monkeypatch.setattr(provenance, "collect", lambda: dict(FACTS))
    monkeypatch.setattr(bench, "_require_gpu", lambda what: None)

    def make(source, tag="bench"):
        book = nbformat.v4.new_notebook()
        for text, tags in (("speed = 1.2345", ["kernel"]), (source, [tag])):
            book.cells.append(nbformat.v4.new_code_cell(text, metadata={"tags": tags}))
        nbformat.write(book, project / "notebooks" / "04_a.ipynb")

    return make
