"""The page that says where names and terms are explained: whole, linked to the right sections, found by the search."""

from __future__ import annotations

import functools
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from cutetut_book import explained
from docutils import nodes
from sphinx.errors import ExtensionError

from cutetut.course import concordance, exemptions, notebooks
from cutetut.course.concordance import Entry, Place
from tests.book.building import built

ROW = re.compile(r"<tr class=\"row-(?:odd|even)\"><td>(.*?)</td>\s*<td>(.*?)</td>\s*<td>(.*?)</td>", re.DOTALL)
LINK = re.compile(r'href="([^"#]*)#([^"]+)">(.*?)</a>', re.DOTALL)


@functools.cache
def entries() -> dict[tuple[bool, str], Entry]:
    """The entries by whether they are terms and what the page shows."""
    found = concordance.collect(concordance.order(drafts=False))
    return {(entry.is_term, entry.name.lstrip(".")): entry for entry in found if entry.explained}


def shown(row: re.Match[str]) -> tuple[bool, str]:
    return "<code" not in row[1], words(row[1])


@pytest.fixture(scope="module")
def page() -> str:
    return (built() / "book" / "explained.html").read_text(encoding="utf-8")


def words(text: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", text)).strip()


def test_each_name_and_term_is_there_once_and_in_order(page: str) -> None:
    listed = [shown(row) for row in ROW.finditer(page)]
    assert sorted(listed) == sorted(entries())
    keys = [name.rpartition(".")[2].casefold() for is_term, name in listed if not is_term]
    assert keys == sorted(keys)
    letters = re.findall(r"<h2>([A-Z])<", page)
    assert letters == sorted(set(letters))


def test_each_link_leads_to_the_heading_that_it_names(page: str) -> None:
    pages: dict[str, str] = {}
    for row in ROW.finditer(page):
        link = LINK.search(row[2])
        assert link, row[2]
        path = (built() / "book" / link[1]).resolve()
        text = pages.setdefault(str(path), path.read_text(encoding="utf-8"))
        heading = re.search(rf'<section [^>]*id="{re.escape(link[2])}"[^>]*>.*?<h\d>(.*?)</h\d>', text, re.DOTALL)
        entry = entries()[shown(row)]
        assert heading and entry.section
        assert explained.plain(words(heading[1])) == explained.plain(entry.section.heading)
        assert words(link[3]) == f"{notebooks.label(entry.section.chapter)} {entry.section.heading}"
        assert path.stem == entry.section.chapter


@functools.cache
def imported() -> set[str]:
    """What cells import from this package by name."""
    code = "\n".join(cell.source for path in notebooks.toc() for cell in notebooks.read(path).cells)
    lines = re.findall(r"^from cutetut\S* import (.*)$", code, re.MULTILINE)
    return {name for line in lines for name in line.split(", ")}


def test_each_section_has_the_name_or_the_term_in_it() -> None:
    """Read from the notebooks themselves: the cell's text has the last part of the name, or the term.

    One of this package's has its module before it, but for `check` and its like, which cells import by name.
    """
    terms = {term.name: term for term in concordance.glossary()}
    families = exemptions.families()
    for (_, name), entry in entries().items():
        assert entry.section
        cells = {cell.id: cell.source for cell in notebooks.read(entry.section.chapter).cells}
        text = cells[entry.section.cell]
        if entry.is_term:
            assert terms[name].introduced(text), name
        elif not any(re.fullmatch(family.pattern, name) for family in families):
            home, last = ("." + name).split(".")[-2:]
            behind = rf"({home}|plots)\." if name.startswith("cutetut.") and last not in imported() else ""
            assert re.search(rf"\b{behind}{last}\b", text), name


def test_the_search_finds_names_and_terms_on_the_page() -> None:
    text = (built() / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    number = index["docnames"].index("book/explained")
    for name in ("partition_c", "ldmatrix", "swizzl"):
        found = index["terms"][name]
        assert number in (found if isinstance(found, list) else [found]), name


def document(*titles: str) -> nodes.document:
    from docutils.utils import new_document

    made = new_document("page")
    for i, title in enumerate(titles):
        section = nodes.section(ids=[f"id{i}"])
        section += nodes.title("", title)
        made += section
    return made


def test_headings_are_compared_without_punctuation() -> None:
    found = explained.anchors(document("A *star*, `x`", "Recap", "Recap"))
    assert found == {"astarx": "id0", "recap": "id1"}


class App:
    """As much of Sphinx as links are made of, with a chapter and the glossary."""

    class env:
        @staticmethod
        def get_doctree(docname: str) -> nodes.document:
            return document(*{"notebooks/00_a": ["Title"], "book/glossary": ["Glossary", "warp"]}[docname])

    class builder:
        @staticmethod
        def get_relative_uri(source: str, target: str) -> str:
            return f"../{target}.html"


def test_a_heading_that_the_page_lacks_is_an_error() -> None:
    links: Any = explained.Links(App, "book/explained")  # type: ignore[arg-type]
    assert links.place(Place("00_a", "c", "Title"))["refuri"] == "../notebooks/00_a.html#id0"
    with pytest.raises(ExtensionError, match="no heading 'Another'"):
        links.place(Place("00_a", "c", "Another"))
    link: Any = links.entry(Entry("warp", True))
    assert link["refuri"] == "../book/glossary.html#id1" and link.astext() == "warp"
    with pytest.raises(ExtensionError, match="no heading 'other'"):
        links.entry(Entry("other", True))
    assert isinstance(links.entry(Entry(".partition_C", False)), nodes.literal)


def test_the_page_is_in_the_toc() -> None:
    assert Path(built(), "book", "explained.html").is_file()
