"""The directive `{unreported}`: what the emulator does not report, why, and the nearest mistake that it does report.

What it says was recorded in `tests/emulator/data/unreported.json`, which `python -m tests.emulator.unreported` writes.
"""

import json
from collections.abc import Iterator

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from .generated import BadData, Cell, table, with_code
from .vendor import ROOT

RECORDED = ROOT / "tests" / "emulator" / "data" / "unreported.json"


def rows() -> Iterator[list[Cell]]:
    """A row for each mistake; raises BadData for a record without any."""
    record = json.loads(RECORDED.read_text())
    if not record:
        raise BadData("nothing is recorded")
    for row in record:
        nearest = with_code(f"{row['nearest']}: `{row['error']}`")
        yield [with_code(row["what"]), row["answer"], with_code(row["why"]), nearest]


class Unreported(SphinxDirective):
    """A table; a record that is missing or of another shape is an error of the build."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(RECORDED))
        try:
            body = list(rows())
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self.error(f"unreported: {error!r}") from error
        header = ["the kernel", "the emulator's answer", "why", "the nearest that is reported"]
        return [table(header, body, ["unreported", "stacks"])]


def setup(app: Sphinx) -> None:
    app.add_directive("unreported", Unreported)
