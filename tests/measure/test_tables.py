"""What the book and the README say of the measurements: the right rows are chosen, and nothing shown is stale."""

from __future__ import annotations

import itertools
import json
import re

import nbformat
import pytest

from cutetut import figures
from cutetut.cli import main
from cutetut.course import notebooks
from cutetut.measure import bench, results, rungs, tables
from cutetut.measure.bench import BenchError
from tests.facts import FACTS


def row(kernel, size, method, ours, theirs=800.0, **more):
    """A row as bench.compare makes it."""
    labels = {"M": size, "N": size, "K": size, "kernel": kernel, "vendor": "cuBLAS bfloat16", "inputs": "random normal"}
    speeds = {"method": method, "ours_tflops": ours, "vendor_tflops": theirs, "ratio": ours / theirs}
    return {**labels, **speeds, "ours_us": 1.0, "vendor_us": 1.0, "launches": 40, "sm_mhz": 1980, **more}


@pytest.fixture
def book(project, monkeypatch):
    """Write a chapter with its measurements into an empty project."""
    monkeypatch.setattr(notebooks, "project_root", lambda: project)
    (project / "book" / "_static").mkdir()
    (project / "README.md").write_text(f"before\n\n{tables.MARKS[0]}\nold\n{tables.MARKS[1]}\n\nafter\n")
    listed: list[str] = []

    def write(name, rows, part="", in_toc=True, date="2026-01-02"):
        nbformat.write(nbformat.v4.new_notebook(), project / "notebooks" / f"{name}.ipynb")
        about = {"notebook": name, "provenance": {**FACTS, "date": date}, "code_hash": "now"}
        bench.data_file(bench.stem(name, part)).write_text(json.dumps({**about, "rows": rungs.marked(name, rows)}))
        if in_toc and f"  - file: notebooks/{name}\n" not in listed:
            listed.append(f"  - file: notebooks/{name}\n")
        (project / "_toc.yml").write_text("format: jb-book\nroot: book/intro\nchapters:\n" + "".join(listed))
        return project

    return write


def scalar(ours=10.0):
    return [row("04 scalar FMA", 4096, method, ours) for method in ("burst of 40 launches", "sustained 200 ms")]


# ---- lines


def test_rows_by_several_methods_become_one_line():
    rows = [
        row("04 a", 512, "burst", 1.0, sectors=4.0, bandwidth=1.25),
        row("04 a", 512, "sustained", 2.0, sectors=4.0, bandwidth=1.5),
        row("04 b", 512, "burst", 3.0, N=64),
    ]
    first, second = results.lines(rows)
    shared = {"vendor": "cuBLAS bfloat16", "inputs": "random normal"}
    assert first.labels == {"size": "512³", "kernel": "04 a", **shared}
    assert first.extra == {"sectors": "4.00", "bandwidth": "1.25, 1.50"}
    assert (first.cell("burst"), first.cell("sustained")) == ("0.00125 (1.00 / 800)", "0.00250 (2.00 / 800)")
    assert second.labels == {"size": "512×64×512", "kernel": "04 b", **shared}
    assert second.cell("sustained") == ""


@pytest.mark.parametrize("unit", [None, "TB/s"])
def test_the_speed_of_another_library_is_named_with_its_unit(unit: str | None) -> None:
    """A column called tflops would lie where speeds are bytes per second."""
    named = {} if unit is None else {"unit": unit}
    (line,) = results.lines([row("24 a", 512, "burst", 4.0, **{"cuDNN_tflops": 4.25}, **named)])
    assert line.extra == {f"cuDNN {unit or 'TFLOP/s'}": "4.25"}


def test_a_cell_has_the_spread_of_the_repeats():
    (line,) = results.lines([row("04 a", 512, "burst", 400.0, ratio_range=[0.49, 0.525], ours_us_range=[1.0, 2.0])])
    assert line.cell("burst") == "0.500 [0.490, 0.525] (400 / 800)"
    assert line.extra == {} and "ratio_range" not in line.labels


def test_what_was_measured_twice_is_on_two_lines():
    rows = [row("04 a", 512, method, ours) for ours in (1.0, 2.0) for method in ("burst", "sustained")]
    assert [line.cell("burst") for line in results.lines(rows)] == ["0.00125 (1.00 / 800)", "0.00250 (2.00 / 800)"]
    assert [list(line.rows) for line in results.lines(rows)] == [["burst", "sustained"]] * 2


def test_every_committed_row_is_on_its_chapters_page_once():
    for path in notebooks.toc():
        if bench.data_file(path.stem).is_file():
            rows = bench.read(path.stem)["rows"]
            found = [one for line in results.lines(rows) for one in line.rows.values()]
            assert sorted(map(id, found)) == sorted(map(id, rows)), path.stem


def test_the_best_line_is_the_fastest_of_each_size_vendor_and_type():
    speeds = {"x": 1.0, "y": 3.0, "probe": 9.0}
    rows = [
        row(kernel, size, "sustained", ours * size, dtype=dtype, **({} if kernel == "probe" else {"rung": True}))
        for size, dtype, (kernel, ours) in itertools.product((512, 1024), ("bf16", "fp8"), speeds.items())
    ]
    found = results.best(results.lines(rows))
    assert [(line.labels["size"], line.labels["dtype"], line.labels["kernel"]) for line in found] == [
        ("512³", "bf16", "y"), ("512³", "fp8", "y"), ("1024³", "bf16", "y"), ("1024³", "fp8", "y")
    ]  # fmt: skip


def test_of_attention_each_shape_is_a_size_of_its_own():
    shapes = list(itertools.product((64, 128), (1024, 4096), (False, True)))
    rows = [
        {**row(kernel, 0, "burst", ours), "D": D, "S": S, "causal": causal}
        for D, S, causal in shapes
        for kernel, ours in (("19 all of it", 500.0), ("19 no overlap", 400.0))
    ]
    rows = [{key: value for key, value in one.items() if key not in "MNK"} for one in rows]
    found = results.best(results.lines(rows))
    assert [(line.labels["D"], line.labels["S"], line.labels["causal"]) for line in found] == [
        tuple(map(str, shape)) for shape in shapes
    ]
    assert {line.labels["kernel"] for line in found} == {"19 all of it"}


# ---- the headline


def test_the_headline_shows_the_fastest_of_each_rungs_own_kernels(book):
    burst, sustained = "burst of 40 launches", "sustained 2000 ms"
    book("04_scalar_fma_gemm", [*scalar(), row("04 scalar FMA", 4096, burst, 11.0, 50.0, vendor="cuBLAS float32")])
    rows = [
        row("07 128x128x32, 4 warps", 4096, burst, 300.0),
        row("07 128x256x64, 8 warps", 4096, burst, 400.0),
        row("07 128x256x64, 8 warps", 4096, sustained, 350.0, 700.0),
        row("07 128x256x64, 8 warps", 8192, sustained, 420.0, 700.0),
        row("07 mma.sync alone", 4096, burst, 600.0),
        row("04 scalar FMA", 8192, burst, 10.0),
        row("07 128x256x64, 8 warps", 4096, burst, 500.0, N=512),
    ]
    book("07_mma_sync", rows)
    tuned = [
        row("13 two", 8192, burst, 780.0, 790.0, vendor="cuBLAS", dtype="bfloat16", rung=True),
        row("13 two", 8192, burst, 1300.0, 1400.0, vendor="torch._scaled_mm", dtype="float8_e4m3fn", rung=True),
        row("13 all of it", 8192, burst, 799.0, 790.0, vendor="cuBLAS", dtype="bfloat16"),
    ]
    book("13_warp_specialized", tuned)
    book("14_persistent", [row("14 a", 4096, burst, 760.0, vendor="torch", dtype="bfloat16", rung=True)])
    book("12_tma_pipeline", [row("12 ring", 4096, burst, 700.0, rung=True)], in_toc=False)
    header, body = tables.headline()
    assert header == ["chapter", "burst, 4096", "burst, 8192", "sustained, 4096", "sustained, 8192"]
    assert body == [
        ["04 scalar FMA, float32", "0.0125 (10.0 / 800)", "", "0.0125 (10.0 / 800)", ""],
        ["07 mma.sync", "0.500 (400 / 800)", "", "0.500 (350 / 700)", "0.600 (420 / 700)"],
        ["13 warp specialized", "", "0.987 (780 / 790)", "", ""],
        ["14 persistent", "0.950 (760 / 800)", "", "", ""],
    ]
    assert tables.ladder().text.splitlines() == [
        "scalar FMA, float32: 10 TFLOP/s, 1.2% of cuBLAS bfloat16",
        "mma.sync: 350 TFLOP/s, 50.0% of cuBLAS bfloat16",
        "cuBLAS bfloat16: 800, 700 TFLOP/s",
    ]


def test_attention_is_compared_with_the_library_that_was_faster(book):
    def attention(head_dim, causal, vendor, theirs, method="burst", sequence=16384):
        size = {"D": head_dim, "S": sequence, "causal": causal}
        made = row("21", 1, method, 600.0, theirs, vendor=vendor)
        return {key: value for key, value in (size | made).items() if key not in "MNK"}

    rows = [
        attention(128, False, "cuDNN", 605.0),
        attention(128, False, "flash-attn", 665.0),
        attention(128, False, "cuDNN", 590.0, "sustained"),
        attention(128, True, "cuDNN", 559.0),
        attention(64, False, "flash-attn", 540.0),
        attention(64, False, "flash-attn", 500.0, sequence=1024),
    ]
    book("21_fa_pingpong", rows, "long")
    assert tables.attention()[1] == [
        ["64", "1.11 (600 / 540) flash-attn", ""],
        ["128", "0.902 (600 / 665) flash-attn", "1.02 (600 / 590) cuDNN"],
        ["128, causal", "1.07 (600 / 559) cuDNN", ""],
    ]


def test_a_chapter_that_renamed_its_kernel_is_named(book):
    book("07_mma_sync", [row("mma", 4096, "burst", 1.0)])
    with pytest.raises(BenchError, match="07_mma_sync has no row of its rung"):
        tables.headline()


@pytest.mark.parametrize("rung", [*rungs.RUNGS, rungs.ATTENTION])
def test_committed_rows_are_marked_as_new_ones_would_be(rung):
    rows = bench.read(rung.notebook, rung.part)["rows"]
    unmarked = [{key: value for key, value in one.items() if key != rungs.MARK} for one in rows]
    assert rungs.marked(rung.notebook, unmarked) == (rows if rung.kernel else unmarked)  # without: the chapter marks
    assert 0 < len(rungs.own(rows)) and rungs.marked("another", unmarked) == unmarked


def test_the_mark_is_in_no_label_and_no_table():
    marked = [{**one, "rung": True} for one in scalar()]
    assert results.lines(marked)[0].labels == results.lines(scalar())[0].labels
    assert bench.table(marked) == bench.table(scalar())


def test_the_source_names_each_machine_once_and_the_span_of_dates(book):
    book("04_scalar_fma_gemm", scalar())
    machine = "NVIDIA H200, driver 580.1, CUDA 13.0, torch 2.11.0, CuTe DSL 4.8.1"
    assert tables.measured_on() == f"Measured on {machine}; 2026-01-02."
    book("07_mma_sync", [row("07 128x128x32, 4 warps", 4096, "burst", 1.0)], date="2026-01-05")
    assert tables.measured_on() == f"Measured on {machine}; 2026-01-02 to 2026-01-05."


# ---- what is written


def test_the_tables_follow_the_measurements(book, capsys):
    project = book("04_scalar_fma_gemm", scalar())
    assert tables.stale() == ["README.md", "ladder.svg"]
    assert main(["tables"]) == 0
    assert capsys.readouterr().out == "wrote README.md, ladder.svg\n"
    text = (project / "README.md").read_text()
    assert text.startswith("before\n\n<!-- measured") and text.endswith("<!-- /measured -->\n\nafter\n")
    assert "| 04 scalar FMA, float32 | 0.0125 (10.0 / 800) |  | 0.0125 (10.0 / 800) |  |" in text
    assert "old" not in text
    assert tables.stale() == [] == tables.write()
    book("04_scalar_fma_gemm", scalar(ours=20.0))
    assert tables.stale() == ["README.md", "ladder.svg"]


def test_the_readme_says_how_long_sustained_windows_are_at_least():
    """Of the GEMMs' table, and of that of attention."""
    text = " ".join((notebooks.project_root() / "README.md").read_text().split())
    said = re.findall(r"sustained (?:is back to back )?for ([\d.]+) s", text)
    gemms = [tables.rung_row(rung, size, "sustained") for rung in tables.measured() for size in tables.SIZES]
    attention = bench.read(rungs.ATTENTION.notebook, rungs.ATTENTION.part)["rows"]
    for seconds, rows in zip(said, (gemms, attention), strict=True):
        methods = [row["method"] for row in rows if row and row["method"].startswith("sustained")]
        assert float(seconds) == min(int(method.split()[1]) for method in methods) / 1000


def test_a_figure_is_stale_by_its_numbers_and_not_by_its_outlines(book):
    project = book("04_scalar_fma_gemm", scalar())
    tables.write()
    figure = project / "book" / "_static" / "ladder.svg"
    figure.write_text(figure.read_text().replace("<path", "<path data-other-version=''"))
    assert tables.stale() == []
    figure.write_text(figure.read_text().replace("10 TFLOP/s", "11 TFLOP/s"))
    assert tables.stale() == ["ladder.svg"]


def test_a_readme_without_its_marks_is_refused(book, capsys):
    project = book("04_scalar_fma_gemm", scalar())
    (project / "README.md").write_text("nothing here")
    assert main(["tables"]) == 1
    assert "README.md must hold '<!-- measured" in capsys.readouterr().err


def test_nothing_measured_is_an_error_that_says_what_to_type(book):
    book("04_scalar_fma_gemm", [row("04 scalar FMA", 512, "burst", 1.0)])
    with pytest.raises(BenchError, match="no rung was measured at 4096; see python -m cutetut bench"):
        tables.files()


def test_an_svg_is_the_same_on_every_run_and_says_what_it_shows():
    def drawn():
        return figures.ladder({"a": 1.0, "b": 2.0}, vendor=("c", 3.0)).svg()

    assert drawn() == drawn()
    assert (
        "<dc:description>a: 1 TFLOP/s, 33.3% of c\nb: 2 TFLOP/s, 66.7% of c\nc: 3 TFLOP/s</dc:description>" in drawn()
    )


def test_readme_and_ladder_show_what_was_measured():
    assert tables.stale() == [], "type: python -m cutetut tables"
