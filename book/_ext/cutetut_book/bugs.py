"""The directive `{planted-bugs}`: what an H200, compute-sanitizer and the emulator make of the same mistakes.

The runs were recorded in `tests/emulator/data/sanitizer.json`, which `tests/emulator/sanitize.py` explains.
"""

import json
from collections.abc import Mapping
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from .generated import BadData, Cell, table
from .vendor import ROOT

RECORDED = ROOT / "tests" / "emulator" / "data" / "sanitizer.json"
TOOLS = ("racecheck", "synccheck", "memcheck", "initcheck")
Kernels = Mapping[str, Mapping[str, Any]]


def found_by_tools(kernels: Kernels, name: str) -> dict[str, list[str]]:
    """The messages of each tool about a bug, without those that it prints for the correct kernel as well."""
    bug = kernels[name]
    correct = kernels[bug["of"]]
    said = {tool: [text for text in bug[tool]["said"] if text not in correct[tool]["said"]] for tool in TOOLS}
    return {tool: texts for tool, texts in said.items() if texts}


def rows(kernels: Kernels) -> list[list[Cell]]:
    """A row for each bug: its name and line, the H200's answer, what the tools say, the emulator's error."""
    found: list[list[Cell]] = []
    for name, bug in kernels.items():
        if bug["of"] == name:
            continue
        says = [
            f"{tool}: {texts[0]}" + (f" and {len(texts) - 1} more" if len(texts) > 1 else "")
            for tool, texts in found_by_tools(kernels, name).items()
        ]
        hangs = all(bug[tool]["end"] == "hangs" for tool in TOOLS)
        nothing = "nothing: the kernel hangs under every tool" if hangs else "nothing"
        what = nodes.inline("", f"{name.replace('_', ' ')}, ")
        what += nodes.literal("", bug["line"])
        found.append([what, bug["alone"]["end"], "; ".join(says) or nothing, nodes.literal("", bug["emulator"])])
    return found


def sentences(record: Mapping[str, Any]) -> list[str]:
    """The totals, and where they were counted; raises BadData for a record without bugs."""
    kernels: Kernels = record["kernels"]
    bugs = [name for name, row in kernels.items() if row["of"] != name]
    if not bugs:
        raise BadData("no bug is recorded")
    always = sum(kernels[name]["alone"]["end"].startswith("right 10 ") for name in bugs)
    named = sum(bool(found_by_tools(kernels, name)) for name in bugs)
    silent = sum(all(kernels[name][tool]["end"] == "hangs" for tool in TOOLS)
                 and not found_by_tools(kernels, name) for name in bugs)  # fmt: skip
    false = {name: tool for name, row in kernels.items() if row["of"] == name for tool in TOOLS if row[tool]["said"]}
    facts = record["provenance"]
    alarm = "; ".join(f"{tool} also reports {name}, which is correct" for name, tool in false.items())
    return [
        f"With {always} of {len(bugs)} bugs the H200 still returns the right result in 10 runs of 10. "
        f"compute-sanitizer reports {named} of the bugs, and misses {silent} because the kernel hangs under each of "
        "its tools"
        + (f"; {alarm}. " if alarm else ". ")
        + f"The emulator reports all {len(bugs)}.",
        f"Measured on an {facts['gpu']}, driver {facts['driver']}, compute-sanitizer {facts['compute_sanitizer']} with "
        f"its default options, CuTe DSL {facts['cutlass_dsl']}, {facts['date']}; a kernel that did not end within 9 s "
        "counts as hanging.",
    ]


class PlantedBugs(SphinxDirective):
    """Two paragraphs and a table; a record that is missing or of another shape is an error of the build."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(RECORDED))
        try:
            record = json.loads(RECORDED.read_text())
            text = sentences(record)
            body = rows(record["kernels"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self.error(f"planted-bugs: {error!r}") from error
        header = ["one changed line", "the H200", "compute-sanitizer", "the emulator"]
        return [*(nodes.paragraph("", sentence) for sentence in text), table(header, body, ["bugs", "stacks"])]


def setup(app: Sphinx) -> None:
    app.add_directive("planted-bugs", PlantedBugs)
