"""The directive `{counted}`: what Nsight Compute counted of the chapters' kernels, which the emulator counts too.

The numbers were recorded in `tests/emulator/data/ncu.json`; `tests/emulator/test_ncu.py` holds the emulator to them.
"""

import importlib
import re
from collections.abc import Container, Mapping

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
NotCompared = Mapping[str, tuple[set[str], str]]


def rows(launches: Mapping[str, Mapping[str, int]], not_compared: NotCompared) -> list[list[str]]:
    """A row for each chapter's kernel, a star behind what is not compared; raises BadData when there is none."""
    found = []
    for name, counts in launches.items():
        if not name.startswith("chapter"):
            continue
        hidden = {what for each, (names, _) in not_compared.items() if re.search(each, name) for what in names}
        cells = []
        for pair in COLUMNS.values():
            shown = [what for what in pair if counts[what]]
            star = "*" if hidden.intersection(shown) else ""
            cells.append(" / ".join(f"{counts[what]:,}" for what in pair) + star if shown else "")
        found.append([name.removeprefix("chapter "), *cells])
    if not found:
        raise BadData("no chapter's kernel was recorded")
    return found


def held_equal(launches: Mapping[str, Mapping[str, int]], not_compared: NotCompared, metrics: Container[str]) -> int:
    """How many recorded counts that are not zero the emulator is held to."""
    return sum(
        not any(what in names and re.search(each, name) for each, (names, _) in not_compared.items())
        for name, counts in launches.items()
        for what, value in counts.items()
        if value and what in metrics
    )


class Counted(SphinxDirective):
    """Two paragraphs and a table; a record that is missing or of another shape is an error of the build."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(RECORDED))
        compare = importlib.import_module("tests.emulator.ncu_compare")
        not_compared: NotCompared = compare.NOT_COMPARED
        try:
            facts, launches = compare.read(RECORDED)
            body = rows(launches, not_compared)
            equal = held_equal(launches, not_compared, compare.METRICS)
            measured = f"{facts['gpu']}, driver {facts['driver']}, Nsight Compute {facts['ncu']}, {facts['date']}"
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self.error(f"counted: {error!r}") from error
        why = "; ".join(reason for each, (_, reason) in not_compared.items() if "chapter" in each)
        totals = f"{len(launches) - len(body)} launches of one instruction were counted besides these {len(body)}"
        return [
            nodes.paragraph("", f"Counted on an {measured}. {totals}; {equal:,} counts other than zero are compared."),
            table(["kernel", *COLUMNS], body, ["counted", "measured"]),
            nodes.paragraph("", f"* not compared, because: {why}."),
        ]


def setup(app: Sphinx) -> None:
    app.add_directive("counted", Counted)
