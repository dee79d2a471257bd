"""What the measurements in `book/data` say together: the headline tables and the ladder.

`python -m cutetut tables` writes the README's tables and the ladder's figure; a test fails when either is
older than the measurements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from cutetut import figures
from cutetut.course import notebooks
from cutetut.measure import bench, rungs
from cutetut.measure.bench import BenchError, Row
from cutetut.measure.results import speeds
from cutetut.measure.rungs import Rung

METHODS = ("burst", "sustained")
SIZES = (4096, 8192)
SEQUENCE = 16384  # tokens, of attention
VENDOR = "cuBLAS bfloat16"
CUBLAS = (VENDOR, "cuBLAS", "torch")  # what rows call it; torch's product is cuBLAS'

MARKS = ("<!-- measured: python -m cutetut tables -->", "<!-- /measured -->")


def rung_row(rung: Rung, size: int, method: str) -> Row | None:
    """The fastest of a rung's rows at M = N = K = size, beside cuBLAS in bfloat16; None if there is none.

    Raises BenchError when the chapter's file holds no row of the rung's own kernel at all.
    """
    rows = rungs.own(bench.read(rung.notebook, rung.part)["rows"])
    if not rows:
        raise BenchError(f"{rung.notebook} has no row of its rung, one that is marked `{rungs.MARK}`: see rungs.py")
    fitting = [
        row
        for row in rows
        if row.get("M") == row.get("N") == row.get("K") == size
        and row["method"].startswith(method)
        and row["vendor"] in CUBLAS
        and not row.get("dtype", "").startswith("float8")
    ]
    return max(fitting, key=lambda row: row["ours_tflops"], default=None)


def measured(asked: Iterable[Rung] | None = None) -> list[Rung]:
    """Those of the given rungs, by default of all GEMM rungs, whose chapter is in the book and has been measured."""
    chapters = {path.stem for path in notebooks.toc()}
    every = rungs.RUNGS if asked is None else asked
    files = {rung: bench.data_file(bench.stem(rung.notebook, rung.part)) for rung in every}
    return [rung for rung, file in files.items() if rung.notebook in chapters and file.is_file()]


def headline() -> tuple[list[str], list[list[str]]]:
    """Header and cells of the GEMM table: a line per rung, a column per method and size."""
    header = ["chapter", *(f"{method}, {size}" for method in METHODS for size in SIZES)]
    body = []
    for rung in measured():
        rows = [rung_row(rung, size, method) for method in METHODS for size in SIZES]
        body.append([f"{rung.notebook[:2]} {rung.idea}", *("" if row is None else speeds(row) for row in rows)])
    return header, body


def attention() -> tuple[list[str], list[list[str]]]:
    """Header and cells of the attention table: a line per head dimension and mask; no lines if none were measured.

    A cell has the row beside the library that was faster there.
    """
    rows: list[Row] = []
    for rung in measured([rungs.ATTENTION]):
        rows = [row for row in rungs.own(bench.read(rung.notebook, rung.part)["rows"]) if row["S"] == SEQUENCE]
    body = []
    for head_dim, causal in sorted({(row["D"], row["causal"]) for row in rows}):
        same_shape = [row for row in rows if (row["D"], row["causal"]) == (head_dim, causal)]
        cells = []
        for method in METHODS:
            by_method = [row for row in same_shape if row["method"].startswith(method)]
            row = max(by_method, key=lambda row: row["vendor_tflops"], default=None)
            cells.append("" if row is None else f"{speeds(row)} {row['vendor']}")
        body.append([f"{head_dim}{', causal' if causal else ''}", *cells])
    return [f"head dimension, {SEQUENCE} tokens", *METHODS], body


def measured_on() -> str:
    """On what and when the headline's rows were measured, as a sentence."""
    facts = [bench.read(rung.notebook, rung.part)["provenance"] for rung in measured((*rungs.RUNGS, rungs.ATTENTION))]
    machines = dict.fromkeys(
        f"{f['gpu']}, driver {f['driver']}, CUDA {f['cuda']}, torch {f['torch']}, CuTe DSL {f['cutlass_dsl']}"
        for f in facts
    )
    dates = sorted({f["date"] for f in facts})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"Measured on {'; '.join(machines)}; {when}."


def ladder(size: int = 4096, method: str = "sustained") -> figures.Picture:
    """The speed of every rung at M = N = K = size by one method, beside cuBLAS in the same run."""
    rows = {rung.idea: row for rung in measured() if (row := rung_row(rung, size, method)) is not None}
    if not rows:
        raise BenchError(f"no rung was measured at {size}; see python -m cutetut bench")
    return figures.ladder(
        {idea: row["ours_tflops"] for idea, row in rows.items()},
        vendor=(VENDOR, [row["vendor_tflops"] for row in rows.values()]),
        title=f"C = A Bᵀ, M = N = K = {size}, {method}",
    )


# --- what is written


def files() -> dict[Path, str]:
    """What the README and the ladder's figure should hold, by file. Raises BenchError."""
    readme = notebooks.project_root() / "README.md"
    text = readme.read_text(encoding="utf-8")
    if any(text.count(mark) != 1 for mark in MARKS):
        raise BenchError(f"README.md must hold {MARKS[0]!r} and {MARKS[1]!r} once each, around its table")
    before, rest = text.split(MARKS[0])
    tables = [markdown(*table) for table in (headline(), attention()) if table[1]]
    region = "\n\n".join([MARKS[0], *tables, measured_on(), MARKS[1]])
    return {
        readme: before + region + rest.split(MARKS[1])[1],
        readme.parent / "book" / "_static" / "ladder.svg": ladder().svg(),
    }


def stale() -> list[str]:
    """The names of files that do not show the present measurements; of a figure its description is compared."""
    return [path.name for path, text in files().items() if _on_disk(path) != _compared(text)]


def write() -> list[str]:
    """Write the files that differ from what they should hold, in outlines too; returns their names."""
    written = []
    for path, text in files().items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            notebooks.replace_text(path, text)
            written.append(path.name)
    return written


def _on_disk(path: Path) -> str:
    """What is compared of a file; empty if it is missing."""
    return _compared(path.read_text(encoding="utf-8")) if path.is_file() else ""


def _compared(text: str) -> str:
    """An SVG's description, since its outlines differ by matplotlib's version; other text as it is."""
    described = re.search(r"<dc:description>(.*?)</dc:description>", text, re.DOTALL)
    return described[1] if described else text


def markdown(header: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    rows = [header, ["---"] * len(header), *body]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
