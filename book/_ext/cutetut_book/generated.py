"""Directives that write a page's tables from data at build time.

`{benchmarks}` reads `book/data/*.json`, `{emulated-instructions}` the emulator's opcode table. Data
that is missing, empty or of another shape is an error of the build, never a page with a hole.
"""

import importlib
import inspect
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from .vendor import ROOT

DATA = ROOT / "book" / "data"


class BadData(ValueError):
    """A page's source is missing, empty or of a shape that the page cannot show."""


def table(header: Sequence[str], rows: Iterable[Sequence[str | nodes.Node]], classes: Sequence[str] = ()) -> nodes.table:
    """Build a docutils table; a cell is text or an inline node."""
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in header), cols=len(header))
    group += nodes.thead("", _row(header))
    group += nodes.tbody("", *(_row(cells) for cells in rows))
    return nodes.table("", group, classes=["cutetut-table", *classes])


def _row(cells: Sequence[str | nodes.Node]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        content = nodes.Text(cell) if isinstance(cell, str) else cell
        row += nodes.entry("", nodes.paragraph("", "", content))
    return row


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
    """One table per hardware unit: the instruction, the forms that are emulated, and its section of the PTX ISA."""

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
            rows = [
                [nodes.literal("", entry.mnemonic), nodes.literal("", entry.forms) if entry.forms else "", entry.section]
                for entry in entries
            ]
            section = nodes.section("", nodes.title("", unit), ids=[nodes.make_id(f"unit {unit}")])
            section += table(["instruction", "forms", "PTX ISA"], rows, ["instructions"])
            out.append(section)
        return out


def setup(app: Sphinx) -> None:
    sys.path.insert(0, str(ROOT))  # the list is of this checkout's emulator, whichever one is installed
    app.add_directive("emulated-instructions", EmulatedInstructions)
