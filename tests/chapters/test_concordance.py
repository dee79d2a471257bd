"""The curriculum explains names in visible code and the glossary's terms before it uses them."""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest

from cutetut.course import concordance, exemptions, notebooks
from cutetut.course.concordance import Entry

CHAPTERS = [path.stem for path in concordance.order()]


@functools.cache
def entries() -> list[Entry]:
    return concordance.collect(concordance.order())


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_uses_what_was_explained(chapter: str) -> None:
    assert [str(entry) for entry in concordance.unexplained(entries()) if entry.first == chapter] == []


def test_the_walk_sees_the_curriculum() -> None:
    """It must not pass because it looks past what chapters use."""
    seen = {entry.name for entry in entries() if entry.uses}
    assert {"cute.kernel", "cute.make_layout", ".partition_C", "cutetut.check.check", "warp", "layout"} <= seen
    for path in concordance.order():
        assert any(path.stem in entry.uses for entry in entries() if not entry.is_term), path.stem


def test_each_exemption_is_needed_and_has_a_reason() -> None:
    assert concordance.unneeded(entries()) == []
    listed = [*exemptions.of("names"), *exemptions.of("terms")]
    assert [one for one in listed if len(one.reason.split()) < 3 or one.chapter not in CHAPTERS] == []


def test_each_everyday_word_is_needed() -> None:
    """Counted as a use like any other word, it would have no explanation in time."""
    walk = concordance.Walk(concordance.glossary(everyday=()), exemptions.families())
    for chapter in concordance.order():
        walk.read(chapter)
    found = {name: entry for term in concordance.glossary() for name in term.names if (entry := walk.terms[term.name])}
    assert {word for word in exemptions.everyday() if not found[word].is_unexplained} == set()


def test_each_family_is_needed() -> None:
    used = {entry.name for entry in entries() if entry.uses and not entry.is_term}
    for family in exemptions.families():
        assert family.explained_by in used, family
        walk = concordance.Walk(concordance.glossary(), [one for one in exemptions.families() if one != family])
        for chapter in concordance.order():
            walk.read(chapter)
        alone = {name for name, entry in walk.names.items() if entry.is_unexplained}
        assert any(re.fullmatch(family.pattern, name) for name in alone), family


def test_each_term_of_the_glossary_is_met() -> None:
    """In a chapter's prose, as a name in a chapter's code, or by a link from another page of the book."""
    met = {entry.name for entry in entries()}
    root = notebooks.project_root()
    pages = "".join(path.read_text() for path in (root / "book").glob("*.md") if path.stem != "glossary")
    code = {word for path in concordance.order() for cell in notebooks.read(path).cells for word in _words(cell)}
    missing = [
        term.name
        for term in concordance.glossary()
        if term.name not in met and not term.introduced(pages) and code.isdisjoint(", ".join(term.names).split(", "))
    ]
    assert missing == []


def _words(cell: Any) -> list[str]:
    """The names in a cell's code, or between its backticks, and those in what it prints."""
    printed = "".join(output.get("text", "") for output in cell.get("outputs", ()))
    code = cell.source + printed if cell.cell_type == "code" else " ".join(re.findall(r"`[^`]*`", cell.source))
    return re.findall(r"\w+", code)


def test_drafts_and_published_chapters_are_in_one_order() -> None:
    assert CHAPTERS == sorted(CHAPTERS)
    assert {path.stem for path in notebooks.toc()} <= set(CHAPTERS)
