"""The directive `{contract}`: what each chapter measures against the numbers that it should keep to."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from cutetut.course import concordance, contract, notebooks

from .generated import Cell, table
from .vendor import ROOT


def described(rule: contract.Rule) -> list[Cell]:
    """A column of the table: its heading, its limits and what it counts."""
    if rule.least == rule.most:
        limits = f"{rule.least:g}"
    elif rule.most == 99:
        limits = f"at least {rule.least:g}"
    else:
        limits = f"at most {rule.most:g}" if not rule.least else f"{rule.least:g} to {rule.most:g}"
    return [rule.column, limits, rule.what]


class Contract(SphinxDirective):
    """The rules, the published chapters' numbers, and a list of the reasons for what exceeds them."""

    def run(self) -> list[nodes.Node]:
        chapters = concordance.order(drafts=False)
        for path in (*chapters, ROOT / "book/data/exemptions.toml"):
            self.env.note_dependency(str(path))
        try:
            measured = [contract.measure(path) for path in chapters]
            header, *body = contract.rows(measured)
            reasons = contract.excused(measured)
        except (notebooks.NotebookError, OSError, ValueError, KeyError) as error:
            raise self.error(f"contract: {error}") from error
        items = (f"{notebooks.label(chapter)}, {column}: {reason}." for (chapter, column), reason in reasons.items())
        return [
            table(["column", "limit", "what it counts"], map(described, contract.RULES), ["contract-rules", "stacks"]),
            nodes.paragraph("", contract.long_both_ways(measured)),
            table(header, body, ["contract"]),
            nodes.paragraph("", "A star marks what exceeds its limit for a reason:"),
            nodes.bullet_list("", *(nodes.list_item("", nodes.paragraph("", item)) for item in items)),
        ]


def setup(app: Sphinx) -> None:
    app.add_directive("contract", Contract)
