"""Directives that write a page's tables from data at build time.

`{benchmarks}` reads `book/data/*.json`, `{emulated-instructions}` the emulator's opcode table. Data
that is missing, empty or of another shape is an error of the build, never a page with a hole.
"""

import importlib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from .vendor import ROOT

DATA = ROOT / "book" / "data"


class BadData(ValueError):
    """A page's source is missing, empty or of a shape that the page cannot show."""


Cell: TypeAlias = "str | nodes.Node"


def table(header: Sequence[str], rows: Iterable[Sequence[Cell]], classes: Sequence[str] = ()) -> nodes.table:
    """Build a docutils table; a cell is text or an inline node."""
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in header), cols=len(header))
    group += nodes.thead("", _row(header))
    group += nodes.tbody("", *(_row(cells) for cells in rows))
    return nodes.table("", group, classes=["cutetut-table", *classes])


def _row(cells: Sequence[Cell]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        content = nodes.Text(cell) if isinstance(cell, str) else cell
        row += nodes.entry("", nodes.paragraph("", "", content))
    return row


def _code(text: str) -> Cell:
    return nodes.literal("", text) if text else ""


def instructions_by_unit(ops: dict[str, Any]) -> dict[str, list[Any]]:
    """Group the opcode table by hardware unit, each unit's entries in the alphabet's order.

    Raises BadData when the table is empty.
    """
    if not ops:
        raise BadData("the emulator's opcode table is empty: no module registered its instructions")
    units: dict[str, list[Any]] = {}
    for name in sorted(ops):
        units.setdefault(ops[name].unit, []).append(ops[name])
    return dict(sorted(units.items()))


class EmulatedInstructions(SphinxDirective):
    """One table per hardware unit: instruction, forms that are emulated, section of the PTX ISA."""

    def run(self) -> list[nodes.Node]:
        try:
            importlib.import_module("cutetut.emulator.units")  # importing the units fills the table
            ops = importlib.import_module("cutetut.emulator.registry").OPS
            units = instructions_by_unit(ops)
        except (ImportError, AttributeError, BadData) as error:
            raise self.error(f"emulated-instructions: {error}") from error
        out: list[nodes.Node] = [nodes.paragraph("", f"{len(ops)} instructions in {len(units)} units.")]
        for unit, entries in units.items():
            for source in {inspect.getsourcefile(entry.decode) for entry in entries}:
                self.env.note_dependency(str(source))
            rows = [[_code(entry.mnemonic), _code(entry.forms), entry.section] for entry in entries]
            section = nodes.section("", nodes.title("", unit), ids=[nodes.make_id(f"unit {unit}")])
            section += table(["instruction", "forms", "PTX ISA"], rows, ["instructions"])
            out.append(section)
        return out


# What a row of measurements holds beside the sizes of the problem, which come first and differ by chapter.
MEASURED = {
    "kernel": "kernel",
    "vendor": "vendor",
    "inputs": "inputs",
    "method": "method",
    "ours_tflops": "ours, TFLOP/s",
    "vendor_tflops": "vendor, TFLOP/s",
    "ratio": "ratio",
}
NOT_SHOWN = {"ours_us", "vendor_us", "launches", "sm_mhz"}


def benchmark_cells(rows: Sequence[Mapping[str, Any]]) -> tuple[str, list[str], list[list[str]]]:
    """Split measurements into what all rows share, as a sentence, and the header and cells of the rest."""
    keys = [key for key in rows[0] if key not in NOT_SHOWN]
    columns = [
        key for key in keys if isinstance(rows[0][key], float) or len({str(r.get(key)) for r in rows}) > 1
    ]
    shared = ", ".join(f"{MEASURED.get(key, key)}: {rows[0][key]}" for key in keys if key not in columns)
    header = [MEASURED.get(key, key) for key in columns]
    return shared, header, [[_number(row.get(key)) for key in columns] for row in rows]


def _number(value: object) -> str:
    """Three significant digits for what was measured; a size or a name as it is."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"


class Benchmarks(SphinxDirective):
    """One section per chapter with a file in `book/data`: where and on what it was measured, and the table.

    The other files there are drafts' tables, or further measurements that a chapter shows itself.
    """

    def run(self) -> list[nodes.Node]:
        chapters = self.env.found_docs
        files = [file for file in sorted(DATA.glob("*.json")) if f"notebooks/{file.stem}" in chapters]
        if not files:
            raise self.error(
                f"benchmarks: no measurements in {DATA.relative_to(ROOT)}; see python -m cutetut bench"
            )
        return [self.section(file.stem) for file in files]

    def section(self, name: str) -> nodes.section:
        """Return one notebook's section; what bench.read refuses is an error of the build."""
        bench = importlib.import_module("cutetut.bench")
        sentence = importlib.import_module("cutetut.provenance").sentence
        self.env.note_dependency(str(DATA / f"{name}.json"))
        try:
            content = bench.read(name)
            stale = content["code_hash"] != bench.current_hash(name)
            measured_on = sentence(content["provenance"])
        except (bench.BenchError, KeyError, OSError, ValueError) as error:
            raise self.error(f"benchmarks: {name}: {error}") from error
        section = nodes.section("", nodes.title("", name.replace("_", " ")), ids=[nodes.make_id(name)])
        link, _ = self.state.inline_text(f"{{doc}}`/notebooks/{name}`", self.lineno)
        shared, header, cells = benchmark_cells(content["rows"])
        section += nodes.paragraph("", "", *link, nodes.Text(f". Measured on {measured_on}; {shared}."))
        if stale:
            text = (
                "The kernels have changed since: these numbers belong to an earlier version of the notebook."
            )
            section += nodes.warning("", nodes.paragraph("", text))
        section += table(header, cells, ["measured"])
        return section


def setup(app: Sphinx) -> None:
    app.add_directive("emulated-instructions", EmulatedInstructions)
    app.add_directive("benchmarks", Benchmarks)
