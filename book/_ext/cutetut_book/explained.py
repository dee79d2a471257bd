"""The directive `{explained}`: where each name of the chapters' code and each term of the glossary is explained.

And the role `{cell}`, as in {cell}`05_partition_c/step-1`: a link to the section that a chapter's cell is in. Both are
filled in when pages are written, since they link to sections of other pages.
"""

import itertools
from collections.abc import Iterable
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective, SphinxRole

from cutetut.course import concordance, names, notebooks
from cutetut.course.concordance import Entry, Place

from .generated import Cell, table
from .vendor import ROOT

GLOSSARY = "book/glossary"


class Explained(nodes.General, nodes.Element):
    """Where the table will be."""


class ExplainedDirective(SphinxDirective):
    """Leave a place for the table, with a section for each initial letter."""

    def run(self) -> list[nodes.Node]:
        for path in (*concordance.order(drafts=False), ROOT / f"{GLOSSARY}.md", ROOT / "book/data/exemptions.toml"):
            self.env.note_dependency(str(path))
        return [Explained()]


class CellLink(nodes.Inline, nodes.TextElement):
    """Where the link to a cell's section will be; `cell` is what the role was given."""


class CellRole(SphinxRole):
    """Leave a place for the link."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        return [CellLink(self.rawtext, cell=self.text)], []


def initial(entry: Entry) -> str:
    """The letter under which a reader looks for an entry: of `cute.arch.thread_idx` it is T."""
    return sought(entry)[:1].upper()


def sought(entry: Entry) -> str:
    """What a reader looks for: a term, or the last part of a name."""
    return entry.name if entry.is_term else names.token(entry.name)


def lettered(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """The entries that are explained somewhere, by initial letter, in alphabetical order."""
    found = sorted((e for e in entries if e.section), key=lambda e: (sought(e).casefold(), e.name))
    return {letter: list(group) for letter, group in itertools.groupby(found, key=initial)}


def plain(text: str) -> str:
    """A heading as it is compared: without markup, punctuation and case."""
    return "".join(filter(str.isalnum, text)).casefold()


def anchors(doctree: nodes.document) -> dict[str, str]:
    """The address within the page of each of its headings; of two with the same words, that of the first."""
    found: dict[str, str] = {}
    for section in doctree.findall(nodes.section):
        found.setdefault(plain(section[0].astext()), section["ids"][0])
    return found


class Links:
    """Makes links from one page to sections of chapters, and to terms of the glossary."""

    def __init__(self, app: Sphinx, docname: str) -> None:
        self._app, self._from = app, docname
        self._anchors: dict[str, dict[str, str]] = {}

    def place(self, place: Place, label: bool = True) -> nodes.reference:
        """The chapter's label, if wanted, and the heading; ExtensionError for one that the page does not have."""
        before = f"{notebooks.label(place.chapter)} " if label else ""
        return self._reference(f"notebooks/{place.chapter}", place.heading, before + place.heading)

    def entry(self, entry: Entry) -> nodes.Node:
        """The name as code, or the term as a link to the glossary; ExtensionError for one that the glossary lacks."""
        if not entry.is_term:
            return nodes.literal("", entry.name.lstrip("."))
        return self._reference(GLOSSARY, entry.name, entry.name)

    def _reference(self, page: str, heading: str, text: str) -> nodes.reference:
        if page not in self._anchors:
            self._anchors[page] = anchors(self._app.env.get_doctree(page))
        anchor = self._anchors[page].get(plain(heading))
        if anchor is None:
            raise ExtensionError(f"explained: {page} has no heading {heading!r}")
        address = self._app.builder.get_relative_uri(self._from, page)
        return nodes.reference("", text, internal=True, refuri=f"{address}#{anchor}")


def row(entry: Entry, links: Links) -> list[Cell]:
    """The entry, where it is explained, and the further chapters that use it."""
    assert entry.section is not None  # the others are left out
    others = [notebooks.label(chapter) for chapter in entry.uses if chapter != entry.section.chapter]
    return [links.entry(entry), links.place(entry.section), ", ".join(others)]


def fill(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put tables and links where they belong; what cannot be read or linked is an error of the build."""
    links = Links(app, docname)
    for link in list(doctree.findall(CellLink)):
        chapter, _, cell = link["cell"].partition("/")
        try:
            link.replace_self(links.place(concordance.place(chapter, cell), link.get("label", True)))
        except (notebooks.NotebookError, OSError) as error:  # the latter for a chapter that has no page
            raise ExtensionError(f"cell: {error}") from error
    for place in list(doctree.findall(Explained)):
        try:
            found = lettered(concordance.collect(concordance.order(drafts=False)))
        except (notebooks.NotebookError, OSError, ValueError, KeyError) as error:
            raise ExtensionError(f"explained: {error}") from error
        header = ["what", "explained in", "also used in"]
        sections: list[nodes.Node] = []
        for letter, entries in found.items():
            section = nodes.section("", nodes.title("", letter), ids=[f"letter-{letter.lower()}"])
            section += table(header, (row(entry, links) for entry in entries), ["explained", "stacks"])
            sections.append(section)
        place.replace_self(sections)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_node(Explained)
    app.add_node(CellLink)
    app.add_role("cell", CellRole())
    app.add_directive("explained", ExplainedDirective)
    app.connect("doctree-resolved", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
