"""The book's Sphinx extension makes tables of recorded data, and refuses what it cannot show."""

from __future__ import annotations

import ast
import base64
import io
import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import cutetut_book
import nbformat
import pytest
from cutetut_book import bugs, counted, folders, generated, ordering, peers, unreported, vendor
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import docutils_namespace

from cutetut.measure import rungs, tables
from tests.emulator import ncu_compare
from tests.facts import FACTS

Build = Callable[[dict[str, str]], tuple[str, Path]]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Return a function that builds named sources with this extension: (its warnings, folder of pages)."""

    def run(sources: dict[str, str]) -> tuple[str, Path]:
        if len(sources) > 1:
            sources["index.md"] += "\n```{toctree}\n:glob:\n**\n```\n"
        for name, text in sources.items():
            (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "src" / name).write_text(text)
        warnings = io.StringIO()
        config = {
            "extensions": ["myst_nb", "cutetut_book", "notfound.extension"],
            "html_baseurl": "https://someone.example.org/fork/",
            "nb_execution_mode": "off",
            "html_theme": "basic",
            "root_doc": "index",
        }
        out = tmp_path / "out"
        folders = (tmp_path / "src", None, out, tmp_path / "trees")
        with docutils_namespace():  # undo what this build registers
            Sphinx(*folders, "html", config, status=None, warning=warnings).build(force_all=True)
        return warnings.getvalue(), out

    return run


def notebook(metadata: dict[str, Any], *outputs: dict[str, Any], title: str = "# A title") -> str:
    book = nbformat.v4.new_notebook(metadata=metadata)
    book.cells.append(nbformat.v4.new_markdown_cell(title))
    if outputs:
        cell = nbformat.v4.new_code_cell("show", execution_count=1)
        cell.outputs = [nbformat.v4.new_output("display_data", data=data) for data in outputs]
        book.cells.append(cell)
    return str(nbformat.writes(book))


@pytest.mark.parametrize(
    ("canonical", "path"), [(None, "/fork/"), ("https://cutetut.readthedocs.io/en/stable/", "/en/stable/")]
)
def test_the_page_for_a_wrong_address_is_of_the_place_that_publishes_it(
    build: Build, monkeypatch: pytest.MonkeyPatch, canonical: str | None, path: str
) -> None:
    """Of the address in _config.yml, also on a fork; Read the Docs says where it puts the pages."""
    monkeypatch.delenv("READTHEDOCS_CANONICAL_URL", raising=False)
    if canonical:
        monkeypatch.setenv("READTHEDOCS_CANONICAL_URL", canonical)
    said, pages = build({"index.md": "# Index\n"})
    found = re.findall(r'(?:href|src)="([^"]*)_static/[^"]*"', (pages / "404.html").read_text())
    assert said == "" and set(found) == {path}


def test_provenance_stands_under_the_title(build: Build) -> None:
    said, pages = build({"index.md": "# Index\n", "chapter.ipynb": notebook({"cutetut": FACTS})})
    assert said == ""
    html = (pages / "chapter.html").read_text()
    title, line = (
        html.index("A title</a>" if "A title</a>" in html else "A title"),
        html.index("cutetut-provenance"),
    )
    assert title < line
    assert all(value in html[line:] for value in FACTS.values())


def test_incomplete_provenance_is_a_warning(build: Build) -> None:
    partial = {key: value for key, value in FACTS.items() if key != "driver"}
    said, _ = build({"index.md": "# Index\n", "chapter.ipynb": notebook({"cutetut": partial})})
    assert "metadata.cutetut lacks driver" in said


def test_notebook_without_provenance_says_so(build: Build) -> None:
    said, pages = build({"index.md": "# Index\n", "chapter.ipynb": notebook({})})
    assert said == ""
    assert "Not recorded" in (pages / "chapter.html").read_text()


def test_widget_keeps_its_picture(build: Build) -> None:
    pixel = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
    view = {"version_major": 2, "version_minor": 0, "model_id": "abc"}
    outputs: list[dict[str, Any]] = [
        {"application/vnd.jupyter.widget-view+json": view, "image/png": pixel, "text/plain": "w"},
        {"image/png": pixel, "text/plain": "an ordinary figure"},
    ]
    _, pages = build({"index.md": "# Index\n", "chapter.ipynb": notebook({}, *outputs)})
    html = (pages / "chapter.html").read_text()
    assert html.count('class="cutetut-still"') == 1
    assert html.count("<img") == 2
    assert '"model_id": "abc"' in html


def test_no_measurements_is_an_error(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated, "ROOT", tmp_path)
    monkeypatch.setattr(generated, "DATA", tmp_path / "empty")
    said, _ = build({"index.md": "# Index\n\n```{benchmarks}\n```\n"})
    assert "ERROR: benchmarks: no measurements in empty" in said


def test_malformed_measurements_are_an_error(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cutetut.measure import bench

    (tmp_path / "04_scalar_fma_gemm.json").write_text(json.dumps({"rows": []}))
    monkeypatch.setattr(generated, "DATA", tmp_path)
    monkeypatch.setattr(bench, "data_file", lambda name: tmp_path / f"{name}.json")
    said, _ = build({"index.md": "# Index\n\n```{benchmarks}\n```\n", "notebooks/04_scalar_fma_gemm.md": "# Chapter\n"})
    assert "ERROR: benchmarks: 04_scalar_fma_gemm: 04_scalar_fma_gemm.json is not a recorded table" in said


@pytest.mark.parametrize("stale", [False, True])
def test_measurements_become_a_table(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stale: bool
) -> None:
    from cutetut.measure import bench

    common = {"kernel": "scalar", "vendor": "cuBLAS", "inputs": "random normal", "method": "burst"}
    speeds = [(1.2345, 49.4), (0.5, 123.456)]
    rows = [
        {"M": 256 * n, **common, "ours_tflops": ours, "vendor_tflops": vendor, "ratio": ours / vendor}
        for n, (ours, vendor) in enumerate(speeds, 1)
    ]
    content = {"provenance": FACTS, "code_hash": "old" if stale else "now", "rows": rows}
    (tmp_path / "04_scalar_fma_gemm.json").write_text(json.dumps(content))
    (tmp_path / "04_scalar_fma_gemm_probes.json").write_text("{}")  # a chapter's further measurements are no table
    (tmp_path / "05_draft.json").write_text(json.dumps(content))  # nor is what belongs to no page
    monkeypatch.setattr(generated, "DATA", tmp_path)
    monkeypatch.setattr(bench, "data_file", lambda name: tmp_path / f"{name}.json")
    monkeypatch.setattr(bench, "current_hash", lambda name: "now")
    sources = {"index.md": "# Index\n\n```{benchmarks}\n```\n", "notebooks/04_scalar_fma_gemm.md": "# Chapter\n"}
    said, pages = build(sources)
    assert said == ""
    html = (pages / "index.html").read_text()
    for text in ("NVIDIA H200", "vendor: cuBLAS", "256", "512", "1.23", "123", "0.0250", "0.00405"):
        assert f"{text}" in html
    assert ("earlier version of the notebook" in html) == stale


def rows_of(sizes: int, kernels: int) -> list[dict[str, Any]]:
    """Rows by two methods whose ratio tells size, kernel and method."""
    return [
        {
            **{"M": 256 << m, "N": 256 << m, "K": 256 << m, "kernel": f"04 way {k}", "vendor": "cuBLAS"},
            **{"inputs": "random normal", "method": method, "ours_tflops": 1.0 + m + k / 10, "vendor_tflops": 10.0},
            **{"ratio": (1.0 + m + k / 10) / 10, "sectors": 4.0 + k},
        }
        for m in range(sizes)
        for k in range(kernels)
        for method in ("burst of 40 launches", "sustained 200 ms")
    ]


def cells_of(html: str) -> list[list[str]]:
    """The text of a page's table rows."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", html, re.DOTALL)
    parts = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[unescape(re.sub("<[^>]*>", "", cell)).replace("\xa0", " ").strip() for cell in row] for row in parts]


@pytest.mark.parametrize(("kernels", "is_folded"), [(2, False), (5, True)])
def test_a_long_table_shows_the_fastest_and_folds_the_rest(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernels: int, is_folded: bool
) -> None:
    from cutetut.measure import bench

    slow = {**rows_of(1, 1)[0], "kernel": "04 slow", "method": "once", "sectors": 9.0}  # a method of its own
    content = {"provenance": FACTS, "code_hash": "now", "rows": [*rows_of(2, kernels), slow]}
    (tmp_path / "04_scalar_fma_gemm.json").write_text(json.dumps(content))
    monkeypatch.setattr(generated, "DATA", tmp_path)
    monkeypatch.setattr(bench, "data_file", lambda name: tmp_path / f"{name}.json")
    monkeypatch.setattr(bench, "current_hash", lambda name: "now")
    sources = {"index.md": "# Index\n\n```{benchmarks}\n```\n", "notebooks/04_scalar_fma_gemm.md": "# Chapter\n"}
    said, pages = build(sources)
    assert said == ""
    html = (pages / "index.html").read_text()
    assert html.count("<details") == html.count("</details>") == int(is_folded)
    shown = cells_of(html[: html.index("<details")] if is_folded else html)
    whole = cells_of(html[html.index("<details") :] if is_folded else html)
    header = ["size", "kernel", "burst of 40 launches", "sustained 200 ms", "once", "sectors"]
    expected = []
    for m in range(2):
        for k in range(kernels):
            cell = f"0.{10 + 10 * m + k}0 (1.{k}0 / 10.0)".replace("(1.", f"({1 + m}.")
            expected.append([f"{256 << m}³", f"04 way {k}", cell, cell, "", f"{4 + k}.00"])
    assert whole == [header, *expected, ["256³", "04 slow", "", "", "0.100 (1.00 / 10.0)", "9.00"]]
    if is_folded:  # without the column that would be empty
        fastest = [header, expected[kernels - 1], expected[-1]]
        assert shown == [[*row[:4], *row[5:]] for row in fastest]
        assert f"All {2 * kernels + 1} measurements" in html


def test_the_headline_is_that_of_the_readme(build: Build) -> None:
    said, pages = build({"index.md": "# Index\n\n```{headline}\n```\n"})
    assert said == ""
    html = (pages / "index.html").read_text()
    readme = (vendor.ROOT / "README.md").read_text()
    region = readme[readme.index(tables.MARKS[0]) : readme.index(tables.MARKS[1])]
    lines = [line[1:-1].split("|") for line in region.splitlines() if line.startswith("|")]
    expected = [[cell.strip() for cell in line] for line in lines if "---" not in line[0]]
    assert expected and cells_of(html) == expected
    assert tables.measured_on() in unescape(html)


def test_a_headline_that_cannot_be_made_is_an_error(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rungs, "RUNGS", (rungs.Rung("05_partition_c", "no rung's rows"),))
    said, _ = build({"index.md": "# Index\n\n```{headline}\n```\n"})
    assert "ERROR: headline: 05_partition_c has no row of its rung" in said


def test_empty_opcode_table_is_an_error(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    from cutetut.emulator.machine import opcodes
    from cutetut.emulator.units import load_all

    load_all()  # before the table is replaced: what is imported later would fill it
    monkeypatch.setattr(opcodes, "OPS", {})
    said, _ = build({"index.md": "# Index\n\n```{emulated-instructions}\n```\n"})
    assert "ERROR: emulated-instructions: the emulator's opcode table is empty" in said


def test_instructions_are_grouped_by_unit() -> None:
    ops: dict[str, Any] = {
        name: SimpleNamespace(mnemonic=name, unit=unit)
        for name, unit in [("sub", "integer"), ("add", "integer"), ("bra", "control")]
    }
    units = generated.instructions_by_unit(ops)
    names = {unit: [entry.mnemonic for entry in entries] for unit, entries in units.items()}
    assert names == {"control": ["bra"], "integer": ["add", "sub"]}


def test_another_checkouts_package_is_refused(tmp_path: Path) -> None:
    cutetut_book.check_package(str(vendor.ROOT / "cutetut" / "__init__.py"))
    with pytest.raises(ExtensionError, match=rf"imports cutetut from {tmp_path}: pip install --no-deps -e "):
        cutetut_book.check_package(str(tmp_path / "__init__.py"))


def test_the_extension_imports_no_test_code_and_nothing_by_name() -> None:
    files = sorted(Path(cutetut_book.__file__).parent.glob("*.py"))
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert "cutetut.measure" in found
    assert not {name for name in found if name.split(".")[0] == "tests" or name == "importlib"}


def bug(of: str, end: str, said: dict[str, list[str]], **more: str) -> dict[str, Any]:
    """A row of the record of planted bugs, whose every run ended alike."""
    return {"of": of, **more, **{tool: {"said": said.get(tool, []), "end": end} for tool in ("alone", *bugs.TOOLS)}}


def test_planted_bugs_become_totals_and_a_table(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    race = "Race between write at k.py:3 and read at k.py:4"
    kernels = {
        "good": bug("good", "right 10 of 10", {"racecheck": ["a false alarm"]}),
        "no_wait": bug("good", "right 10 of 10", {"racecheck": ["a false alarm", race, "more"]},
                       line="k.py:3", emulator="InFlight"),
        "no_count": bug("good", "hangs", {"racecheck": ["a false alarm"]}, line="k.py:9", emulator="Deadlock"),
        "no_fence": bug("good", "wrong 10 of 10", {}, line="k.py:7", emulator="MissingFence"),
    }  # fmt: skip
    record = tmp_path / "sanitizer.json"
    record.write_text(json.dumps({"provenance": {**FACTS, "compute_sanitizer": "2025.3"}, "kernels": kernels}))
    monkeypatch.setattr(bugs, "RECORDED", record)
    said, pages = build({"index.md": "# Index\n\n```{planted-bugs}\n```\n"})
    assert said == ""
    page = (pages / "index.html").read_text()
    assert "With 1 of 3 bugs the H200 still returns the right result" in page
    assert "reports 1 of the bugs, and misses 1 because the kernel hangs" in page
    assert "racecheck also reports good, which is correct" in page
    assert cells_of(page)[1:] == [
        ["no wait, k.py:3", "right 10 of 10", f"racecheck: {race} and 1 more", "InFlight"],
        ["no count, k.py:9", "hangs", "nothing: the kernel hangs under every tool", "Deadlock"],
        ["no fence, k.py:7", "wrong 10 of 10", "nothing", "MissingFence"],
    ]


def test_recorded_counts_become_a_table(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = sorted({what for pair in counted.COLUMNS.values() for what in pair})
    counts = {**dict.fromkeys(names, 0), "global ld sectors": 18432, "global ld requests": 2048}
    record = tmp_path / "ncu.json"
    launches = {"ldmatrix shared": counts, "chapter 04": counts, "chapter 13": {**counts, "shared st wavefronts": 9}}
    ncu_compare.write(launches, {**FACTS, "ncu": "2025.3"}, record)
    monkeypatch.setattr(counted, "RECORDED", record)
    said, pages = build({"index.md": "# Index\n\n```{counted}\n```\n"})
    assert said == ""
    page = (pages / "index.html").read_text()
    assert "Nsight Compute 2025.3" in page and "not compared, because" in page
    assert "1 launches of one instruction were counted besides these 2; 6 counts other than zero are compared" in page
    assert cells_of(page)[1:] == [["04", "18,432 / 2,048", "", "", ""], ["13", "18,432 / 2,048", "", "", "9 / 0*"]]


def test_counts_without_a_chapter_are_an_error(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = tmp_path / "ncu.json"
    ncu_compare.write({}, {**FACTS, "ncu": "2025.3"}, record)
    monkeypatch.setattr(counted, "RECORDED", record)
    said, _ = build({"index.md": "# Index\n\n```{counted}\n```\n"})
    assert "ERROR: counted" in said


def peer(name: str, source: str, said: str = "", passed: bool = True, fault: str = "") -> dict[str, Any]:
    """A row of the record of other people's kernels."""
    ended = {"passed": passed, "said": said, "fault": fault, "seconds": 9.1, "cpu_seconds": 4.26}
    return {"name": name, "source": source, "covers": f"what {name} does", **ended}


def test_other_peoples_kernels_become_a_sentence_and_a_table(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"date": "2026-11-22", "policy": "late", "cutlass_dsl": "4.8", "NVIDIA/cutlass": "71", "q": "6"}
    found = [
        peer("gemm", "NVIDIA/cutlass"), peer("norm", "q", "warning: by chance"),
        peer("fmha", "NVIDIA/cutlass", "Deadlock: every thread waits", passed=False),
        peer("ring", "q", "MissingBarrier: a copy", passed=False, fault="no barrier"),
    ]  # fmt: skip
    record = tmp_path / "peers.json"
    record.write_text(json.dumps({"provenance": facts, "peers": found}))
    monkeypatch.setattr(peers, "RECORDED", record)
    said, pages = build({"index.md": "# Index\n\n```{peers}\n```\n"})
    assert said == ""
    page = (pages / "index.html").read_text()
    assert "2 of 4 passed, 1 of them with a warning; 1 with a fault of its own" in page
    assert "NVIDIA/cutlass 71, q 6, CuTe DSL 4.8, completions late, 2026-11-22" in page
    assert cells_of(page)[1:] == [
        ["gemm", "NVIDIA/cutlass", "what gemm does", "passed", "4.3 s"],
        ["norm", "q", "what norm does", "passed, warning: by chance", "4.3 s"],
        ["fmha", "NVIDIA/cutlass", "what fmha does", "Deadlock: every thread waits", "4.3 s"],
        ["ring", "q", "what ring does", "MissingBarrier: a copy. The fault: no barrier.", "4.3 s"],
    ]


def test_what_is_not_reported_becomes_a_table(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "unreported.json"
    row = {"what": "no fence behind `cp.async`", "why": "it is right", "answer": "nothing", "nearest": "a store",
           "error": "MissingFence"}  # fmt: skip
    record.write_text(json.dumps([row]))
    monkeypatch.setattr(unreported, "RECORDED", record)
    said, pages = build({"index.md": "# Index\n\n```{unreported}\n```\n"})
    assert said == ""
    page = (pages / "index.html").read_text()
    assert cells_of(page)[1:] == [["no fence behind cp.async", "nothing", "it is right", "a store: MissingFence"]]
    assert ">cp.async</span>" in page


def mistake(what: str, error: str, **more: Any) -> dict[str, Any]:
    """A row of the record of unordered accesses."""
    row = {"name": what, "about": "Lanes", "what": what, "error": error, "all_lines": True, "warned": False,
           "schedule": ""}  # fmt: skip
    return {**row, **more}


def test_unordered_accesses_become_what_is_missed_and_a_table_for_each_class(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"policy": "late", "schedule": "order", "cutlass_dsl": "4.8", "date": "2026-11-22"}
    found = [
        mistake("no barrier", "MissingBarrier", schedule="random:7"),
        mistake("no fence", "MissingFence", all_lines=False, about="TMA"),
        mistake("no flag", ""), mistake("no wait", "", warned=True),
    ]  # fmt: skip
    correct = {"kernels": 7, "variants": 3, "alarms": []}
    record = tmp_path / "ordering.json"
    record.write_text(json.dumps({"provenance": facts, "correct": correct, "mistakes": found}))
    monkeypatch.setattr(ordering, "RECORDED", record)
    said, pages = build({"index.md": "# Index\n\n```{unordered}\n```\n"})
    assert said == ""
    page = (pages / "index.html").read_text()
    assert "The emulator reports 2 of 4 mistakes. The other 2 end without an error, 1 of them with a warning" in page
    assert "In the 7 kernels without a mistake and 3 other correct ones, it reports nothing." in page
    assert re.findall("<summary>(.*?)</summary>", page) == ["Lanes: 1 reported", "TMA: 1 reported"]
    header = ["the mistake", "the error"]
    assert cells_of(page) == [
        ["mistake without error", "the emulator’s answer"], ["no flag", "nothing"], ["no wait", "a warning"],
        header, ["no barrier", "MissingBarrier, with CUTETUT_SCHEDULE=random:7"],
        header, ["no fence", "MissingFence, without all the lines that take part"],
    ]  # fmt: skip


def test_alarms_on_correct_kernels_are_said() -> None:
    facts = {"policy": "late", "schedule": "order", "cutlass_dsl": "4.8", "date": "2026-11-22"}
    correct = {"kernels": 7, "variants": 3, "alarms": ["flag"]}
    record = {"provenance": facts, "correct": correct, "mistakes": [mistake("no barrier", "MissingBarrier")]}
    text = ordering.sentences(record)[0]
    assert text.startswith("The emulator reports 1 of 1 mistakes. In") and text.endswith("it wrongly reports flag.")


RECORDS = [  # of each directive: what of the book's extension shows it, its file, and texts that it cannot show
    ("planted-bugs", bugs, "sanitizer.json", ["", "{}", '{"provenance": {}, "kernels": {}}']),
    ("unreported", unreported, "unreported.json", ["", "{}", "[]", '[{"what": "it"}]']),
    ("peers", peers, "peers.json", ["", "{}", '{"provenance": {}, "peers": []}']),
    ("unordered", ordering, "ordering.json", ["", "{}", '{"provenance": {}, "correct": {}, "mistakes": []}']),
]


@pytest.mark.parametrize(
    ("directive", "module", "file", "text"),
    [pytest.param(*record, text, id=f"{record[0]}-{text}") for *record, texts in RECORDS for text in texts],
)
def test_a_record_that_cannot_be_shown_is_an_error(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directive: str, module: ModuleType, file: str,
    text: str,
) -> None:  # fmt: skip
    record = tmp_path / file
    record.write_text(text)
    monkeypatch.setattr(module, "RECORDED", record)
    said, _ = build({"index.md": f"# Index\n\n```{{{directive}}}\n```\n"})
    assert f"ERROR: {directive}" in said


def emulator(folder: Path, docstring: str, **folders: str) -> Path:
    """A package with folders, each with a docstring."""
    for name, text in {".": docstring, **folders}.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "__init__.py").write_text(f'"""{text}"""\n')
    return folder


def test_folders_become_a_picture_and_a_table(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "An emulator: `ptx/` (text to\ninstructions) and `units/` (a < b)."
    pretended = emulator(tmp_path / "e", text, ptx="What `PTX` is;\nno more.\n\nAnd this.", units="Units.")
    monkeypatch.setattr(folders, "EMULATOR", pretended)
    said, pages = build({"index.md": "# Index\n\n```{folders}\n```\n"})
    assert said == ""
    page = (pages / "index.html").read_text()
    drawn = re.findall("<text[^>]*>(.*?)</text>", page)
    assert drawn == ["CuTe DSL, torch, CUDA", "units/", "a &lt; b", "ptx/", "text to instructions"]
    assert cells_of(page)[1:] == [["ptx/", "What PTX is; no more."], ["units/", "Units."]]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("An emulator.", "does not say what is in ptx/"), ("`ptx/` (text), `tpx/` (text)", "names tpx/"),
     (f"`ptx/` ({'text ' * 20})", "says more of ptx/ than fits"), ("", "has no docstring")],
)  # fmt: skip
def test_a_folder_that_cannot_be_shown_is_an_error(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    monkeypatch.setattr(folders, "EMULATOR", emulator(tmp_path / "e", text, ptx="PTX."))
    said, _ = build({"index.md": "# Index\n\n```{folders}\n```\n"})
    assert "ERROR: folders" in said and reason in said


def test_the_table_of_settings_has_what_the_emulator_reads() -> None:
    page = (vendor.ROOT / "book" / "emulator.md").read_text()
    listed = re.findall(r"^\* - `(CUTETUT_[A-Z]+)=", page, re.M)
    sources = (vendor.ROOT / "cutetut" / "emulator").rglob("*.py")
    read = {name for source in sources for name in re.findall(r'"(CUTETUT_[A-Z]+)"', source.read_text())}
    assert len(listed) == len(set(listed))
    assert set(listed) == read
