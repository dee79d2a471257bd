"""The directive `{unordered}`: accesses that nothing orders, by class, and what the emulator says of each.

What it says was recorded in `tests/emulator/data/ordering.json`, which `python -m tests.emulator.ordering` writes.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from .generated import BadData, Cell, folded, table
from .vendor import ROOT

RECORDED = ROOT / "tests" / "emulator" / "data" / "ordering.json"
Mistakes = Sequence[Mapping[str, Any]]


def sentences(record: Mapping[str, Any]) -> list[str]:
    """How many mistakes are reported, and what of the correct kernels; raises BadData for a record without mistakes."""
    mistakes, correct, facts = record["mistakes"], record["correct"], record["provenance"]
    if not mistakes:
        raise BadData("no mistake is recorded")
    reported = sum(bool(row["error"]) for row in mistakes)
    missed = [row for row in mistakes if not row["error"]]
    warned = sum(row["warned"] for row in missed)
    alarms = ", ".join(correct["alarms"])
    text = f"The emulator reports {reported} of {len(mistakes)} mistakes."
    if missed:
        with_warning = f", {warned} of them with a warning" if warned else ""
        text += f" The other {len(missed)} end without an error{with_warning}; they come first."
    of_correct = f"In the {correct['kernels']} kernels without a mistake and {correct['variants']} other correct ones"
    of_correct += f", it wrongly reports {alarms}." if alarms else ", it reports nothing."
    how = f"Completions {facts['policy']}, schedule {facts['schedule']}, CuTe DSL {facts['cutlass_dsl']}"
    return [f"{text} {of_correct}", f"{how}, {facts['date']}."]


def by_class(mistakes: Mistakes) -> dict[str, list[Mapping[str, Any]]]:
    """The mistakes that are reported, by what their tables are about."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in mistakes:
        if row["error"]:
            found.setdefault(row["about"], []).append(row)
    return found


def answer(row: Mapping[str, Any]) -> Cell:
    """The emulator's answer to a mistake, as a cell of a table."""
    if not row["error"]:
        return "a\N{NO-BREAK SPACE}warning" if row["warned"] else "nothing"
    name = nodes.inline("", "", nodes.literal("", row["error"]))
    if row["schedule"]:
        name += [nodes.Text(", with "), nodes.literal("", f"CUTETUT_SCHEDULE={row['schedule']}")]
    if not row["all_lines"]:
        name += nodes.Text(", without all the lines that take part")
    return name


class Unordered(SphinxDirective):
    """Two paragraphs, a table of what is missed, and a folded one for each class of what is reported."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(RECORDED))
        try:
            record = json.loads(RECORDED.read_text())
            out: list[nodes.Node] = [nodes.paragraph("", text) for text in sentences(record)]
            missed = [[row["what"], answer(row)] for row in record["mistakes"] if not row["error"]]
            if missed:
                out.append(table(["mistake without error", "the emulator's answer"], missed, ["unordered", "missed"]))
            for about, rows in by_class(record["mistakes"]).items():
                body = [[row["what"], answer(row)] for row in rows]
                shown = table(["the mistake", "the error"], body, ["unordered"])
                out += folded(f"{about}: {len(rows)} reported", shown)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self.error(f"unordered: {error!r}") from error
        return out


def setup(app: Sphinx) -> None:
    app.add_directive("unordered", Unordered)
