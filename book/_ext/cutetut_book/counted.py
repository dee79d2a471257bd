"""The directive `{counted}`: what Nsight Compute counted of the chapters' kernels, which the emulator counts too.

The numbers were recorded in `tests/emulator/data/ncu.json`; `tests/emulator/test_ncu.py` holds the emulator to them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from .generated import BadData, table
from .vendor import ROOT

RECORDED = ROOT / "tests" / "emulator" / "data" / "ncu.json"
COLUMNS = {  # a heading, and the counts below it
    "global loads: sectors / requests": ("global ld sectors", "global ld requests"),
    "global stores: sectors / requests": ("global st sectors", "global st requests"),
    "shared loads: wavefronts / conflicts": ("shared ld wavefronts", "shared ld conflicts"),
    "shared stores: wavefronts / conflicts": ("shared st wavefronts", "shared st conflicts"),
}
Counts = Mapping[str, int]


class LeftOut(NamedTuple):
    """Counts that are not compared of the launches whose names match a regular expression, and why."""

    launches: str
    counts: Sequence[str]
    why: str


def launches(record: Mapping[str, Any]) -> dict[str, Counts]:
    """What was counted for each launch, by the names of the counts; what was not measured is left out."""
    return {
        name: {what: value for what, value in zip(record["metrics"], counts, strict=True) if value is not None}
        for name, counts in record["launches"].items()
    }


def hidden(name: str, left_out: Sequence[LeftOut]) -> set[str]:
    """The counts of a launch that are not compared."""
    return {what for each in left_out if re.search(each.launches, name) for what in each.counts}


def rows(found: Mapping[str, Counts], left_out: Sequence[LeftOut]) -> list[list[str]]:
    """A row for each chapter's kernel, a star behind what is not compared; raises BadData when there is none."""
    lines = []
    for name, counts in found.items():
        if not name.startswith("chapter"):
            continue
        cells = []
        for pair in COLUMNS.values():
            shown = [what for what in pair if counts[what]]
            star = "*" if hidden(name, left_out).intersection(shown) else ""
            cells.append(" / ".join(f"{counts[what]:,}" for what in pair) + star if shown else "")
        lines.append([name.removeprefix("chapter "), *cells])
    if not lines:
        raise BadData("no chapter's kernel was recorded")
    return lines


def held_equal(found: Mapping[str, Counts], left_out: Sequence[LeftOut], compared: Sequence[str]) -> int:
    """How many recorded counts, zeros left out, the emulator has to match."""
    return sum(
        value != 0 and what in compared and what not in hidden(name, left_out)
        for name, counts in found.items()
        for what, value in counts.items()
    )


class Counted(SphinxDirective):
    """Two paragraphs and a table; a record that is missing or of another shape is an error of the build."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(RECORDED))
        try:
            record = json.loads(RECORDED.read_text(encoding="utf-8"))
            facts, found = record["provenance"], launches(record)
            left_out = [LeftOut(**each) for each in record["not_compared"]]
            body = rows(found, left_out)
            equal = held_equal(found, left_out, record["compared"])
            measured = f"{facts['gpu']}, driver {facts['driver']}, Nsight Compute {facts['ncu']}, {facts['date']}"
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self.error(f"counted: {error!r}") from error
        why = "; ".join(each.why for each in left_out if "chapter" in each.launches)
        totals = f"{len(found) - len(body)} launches of one instruction were counted besides these {len(body)}"
        return [
            nodes.paragraph("", f"Counted on an {measured}. {totals}; {equal:,} counts other than zero are compared."),
            table(["kernel", *COLUMNS], body, ["counted", "measured"]),
            nodes.paragraph("", f"* not compared, because: {why}."),
        ]


def setup(app: Sphinx) -> None:
    app.add_directive("counted", Counted)
