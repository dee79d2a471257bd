"""Directives that write a page's tables from data at build time.

`{headline}` and `{benchmarks}` read `book/data/*.json`, `{emulated-instructions}` the emulator's opcode
table. Data that is missing, empty or of another shape is an error of the build, never a page with a hole.
"""

import html
import inspect
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from cutetut.course import notebooks, prose, provenance
from cutetut.emulator import units
from cutetut.emulator.machine import opcodes
from cutetut.measure import bench, results, rungs, tables

from .vendor import ROOT

DATA = ROOT / "book" / "data"


class BadData(ValueError):
    """A page's source is missing, empty or of a shape that the page cannot show."""


Cell: TypeAlias = "str | nodes.Node"


def table(header: Sequence[str], rows: Iterable[Iterable[Cell]], classes: Sequence[str] = ()) -> nodes.table:
    """Build a docutils table; a cell is text or an inline node."""
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in header), cols=len(header))
    group += nodes.thead("", _row(header))
    group += nodes.tbody("", *(_row(cells) for cells in rows))
    return nodes.table("", group, classes=["cutetut-table", *classes])


def _row(cells: Iterable[Cell]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        content = nodes.Text(cell) if isinstance(cell, str) else cell
        row += nodes.entry("", nodes.paragraph("", "", content))
    return row


def _code(text: str) -> Cell:
    return nodes.literal("", text) if text else ""


def with_code(text: str) -> nodes.inline:
    """Text in which what stands between backticks is code."""
    out = nodes.inline()
    for i, part in enumerate(text.split("`")):
        out += nodes.literal("", part) if i % 2 else nodes.Text(part)
    return out


def instructions_by_unit(ops: dict[str, Any]) -> dict[str, list[Any]]:
    """Group the opcode table by hardware unit, each unit's entries in alphabetical order.

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
            units.load_all()  # importing the units fills the table
            by_unit = instructions_by_unit(opcodes.OPS)
        except (ImportError, AttributeError, BadData) as error:
            raise self.error(f"emulated-instructions: {error}") from error
        out: list[nodes.Node] = [nodes.paragraph("", f"{len(opcodes.OPS)} instructions in {len(by_unit)} units.")]
        for unit, entries in by_unit.items():
            for source in {inspect.getsourcefile(entry.decode) for entry in entries}:
                self.env.note_dependency(str(source))
            rows = [[_code(entry.mnemonic), _code(entry.forms), entry.section] for entry in entries]
            section = nodes.section("", nodes.title("", unit), ids=[nodes.make_id(f"unit {unit}")])
            section += table(["instruction", "forms", "PTX ISA"], rows, ["instructions"])
            out.append(section)
        return out


FOLDED = 8  # lines, from which a table shows the fastest of each size and folds the rest


def benchmark_table(lines: Sequence[Any]) -> tuple[str, list[str], list[list[str]]]:
    """Split lines of cutetut.measure.results into what all share, as text, and the header and cells of the rest."""
    labels, methods, extra = (
        dict.fromkeys(key for line in lines for key in getattr(line, part)) for part in ("labels", "rows", "extra")
    )
    differs = [key for key in labels if len({line.labels.get(key) for line in lines}) > 1]
    columns = differs or list(labels)[:1]
    shared = ", ".join(f"{key}: {lines[0].labels[key]}" for key in labels if key not in columns)
    cells = []
    for line in lines:
        named = [line.labels.get(key, "") for key in columns]
        speeds = [_unbroken(line.cell(method)) for method in methods]
        cells.append([*named, *speeds, *(line.extra.get(key, "") for key in extra)])
    return shared, [*columns, *methods, *extra], cells


def _unbroken(text: str) -> str:
    """The two speeds of a cell stay on one line."""
    return text.replace(" / ", "\N{NO-BREAK SPACE}/\N{NO-BREAK SPACE}")


def numbered(chapter: str) -> str:
    """A chapter's number and title, such as "05 Who owns which element: partition_C". Raises BadData without one."""
    cells = notebooks.read(chapter).cells
    found = prose.headings(cells[0].source) if cells else []
    if not found:
        raise BadData(f"{chapter} has no title")
    number = notebooks.label(chapter)
    return f"{number} {found[0][1]}" if number.isdigit() else found[0][1]


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
        self.env.note_dependency(str(DATA / f"{name}.json"))
        try:
            content = bench.read(name)
            stale = content["code_hash"] != bench.current_hash(name)
            measured_on = provenance.sentence(content["provenance"])
        except (bench.BenchError, KeyError, OSError, ValueError) as error:
            raise self.error(f"benchmarks: {name}: {error}") from error
        lines = results.lines(content["rows"])
        shared, header, cells = benchmark_table(lines)
        section = nodes.section("", nodes.title("", numbered(name)), ids=[nodes.make_id(name)])
        link, _ = self.state.inline_text(f"{{doc}}`/notebooks/{name}`", self.lineno)
        section += nodes.paragraph("", "", *link, nodes.Text(f". Measured on {measured_on}; {shared}."))
        if stale:
            text = (
                "The kernels have changed since: these numbers belong to an earlier version of the notebook."
            )
            section += nodes.warning("", nodes.paragraph("", text))
        if len(lines) < FOLDED:
            section += table(header, cells, ["measured"])
        else:
            fastest = results.best(lines)
            chosen = [row for row, line in zip(cells, lines, strict=True) if any(line is one for one in fastest)]
            used = [column for column in range(len(header)) if any(row[column] for row in chosen)]
            section += nodes.paragraph("", "The fastest of each size:")
            short = ([row[column] for column in used] for row in (header, *chosen))
            section += table(next(short), short, ["measured"])
            section += folded(f"All {len(lines)} measurements", table(header, cells, ["measured"]))
        return section


def folded(summary: str, content: nodes.Node) -> list[nodes.Node]:
    """Return content that a page shows when the reader opens it; it needs no JavaScript."""
    opening = f'<details class="cutetut-folded"><summary>{html.escape(summary)}</summary>'
    return [nodes.raw("", opening, format="html"), content, nodes.raw("", "</details>", format="html")]


class Headline(SphinxDirective):
    """The tables that compare the chapters, as in the README, and where their numbers come from."""

    def run(self) -> list[nodes.Node]:
        try:
            shown = [found for found in (tables.headline(), tables.attention()) if found[1]]
            source = tables.measured_on()
            names = [bench.stem(rung.notebook, rung.part) for rung in tables.measured((*rungs.RUNGS, rungs.ATTENTION))]
        except (bench.BenchError, KeyError, OSError, ValueError) as error:
            raise self.error(f"headline: {error}") from error
        for name in names:
            self.env.note_dependency(str(DATA / f"{name}.json"))
        built = [table(header, [map(_unbroken, row) for row in body], ["measured"]) for header, body in shown]
        return [*built, nodes.paragraph("", source)]


def setup(app: Sphinx) -> None:
    app.add_directive("emulated-instructions", EmulatedInstructions)
    app.add_directive("benchmarks", Benchmarks)
    app.add_directive("headline", Headline)
