"""The directive `{peers}`: kernels that other people wrote, and how they ran in the emulator.

The runs were recorded in `tests/emulator/data/peers.json`, which `python -m tests.emulator.peers` writes.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from .generated import BadData, table
from .vendor import ROOT

RECORDED = ROOT / "tests" / "emulator" / "data" / "peers.json"
Runs = Sequence[Mapping[str, Any]]


def sentence(facts: Mapping[str, str], runs: Runs) -> str:
    """How many passed, and which versions ran when; raises BadData for a record without runs."""
    if not runs:
        raise BadData("no kernel was recorded")
    passed = [run for run in runs if run["passed"]]
    warned = sum(bool(run["said"]) for run in passed)
    sources = ", ".join(f"{source} {facts[source]}" for source in dict.fromkeys(run["source"] for run in runs))
    with_warning = f", {warned} of them with a warning" if warned else ""
    faulty = sum(bool(run["fault"]) for run in runs)
    and_faulty = f"; {faulty} with a fault of its own" if faulty else ""
    return (
        f"{len(passed)} of {len(runs)} passed{with_warning}{and_faulty}: {sources}, CuTe DSL {facts['cutlass_dsl']}, "
        f"completions {facts['policy']}, {facts['date']}."
    )


def rows(runs: Runs) -> list[list[str]]:
    """A row for each kernel: its name, whose it is, what it covers, how it ended, its time on one core."""
    found = []
    for run in runs:
        end = ", ".join(filter(None, ["passed" if run["passed"] else "", run["said"]]))
        if run["fault"]:
            end += f". The fault: {run['fault']}."
        found.append([run["name"], run["source"], run["covers"], end, f"{run['cpu_seconds']:.1f} s"])
    return found


class Peers(SphinxDirective):
    """A paragraph and a table; a record that is missing or of another shape is an error of the build."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(RECORDED))
        try:
            record = json.loads(RECORDED.read_text())
            text = sentence(record["provenance"], record["peers"])
            body = rows(record["peers"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self.error(f"peers: {error!r}") from error
        header = ["kernel", "from", "what it covers", "result", "CPU time"]
        return [nodes.paragraph("", text), table(header, body, ["peers", "stacks"])]


def setup(app: Sphinx) -> None:
    app.add_directive("peers", Peers)
