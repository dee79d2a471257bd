"""Where the curriculum explains what it uses: names in code, and the glossary's terms in prose.

    python -m cutetut.course.concordance [NAME ...]    what these chapters, or all, use before anything explains it

A name of `cute`, `cutlass` or `cutetut`, or a method of an object of CuTe's, that a visible code cell uses must stand
in backticks in a markdown cell before it, in the same chapter or an earlier one; `names.explains` tells names that
only end alike apart. A term of the glossary that prose uses must be linked or set in bold in the cell of its first
use at the latest. Of a cell that the book folds only the kernels count, since readers unfold those; its tables,
pictures, benchmarks and checks do not. Solutions and headings count for nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutetut.course import exemptions, names, notebooks, prose
from cutetut.course.exemptions import Exemption, Family
from cutetut.course.notebooks import NotebookError

ASIDE = ("Exercises", "Recap")  # the parts in which a chapter asks for its own, or says it again
TITLE = "title"  # the cell in which it says what it is about, and what it needs
FOLDED = frozenset(("hide-input", "hide-cell", "remove-input", "remove-cell"))


@dataclass(frozen=True)
class Place:
    """A cell of a chapter: its id, and the heading it stands under."""

    chapter: str
    cell: str
    heading: str
    is_aside: bool = field(default=False, compare=False)  # in one of the parts ASIDE, or in the TITLE

    def __str__(self) -> str:
        return f"{self.chapter}, cell {self.cell}"


@dataclass
class Entry:
    """A name or a term: where it is first explained, and where each chapter first uses it, with the words there."""

    name: str
    is_term: bool
    explained: Place | None = None
    section: Place | None = None  # the same, but not aside if anything else explains it, too: where a reader is sent
    late: bool = False  # the explanation comes after a use
    uses: dict[str, tuple[Place, str]] = field(default_factory=dict)

    @property
    def first(self) -> str:
        """The chapter that uses it first; "" if none does."""
        return next(iter(self.uses), "")

    @property
    def is_unexplained(self) -> bool:
        """Whether something uses it that nothing before explains."""
        return bool(self.uses) and (self.explained is None or self.late)

    def __str__(self) -> str:
        """What is missing, in a line."""
        place, words = self.uses[self.first]
        what = f"term {self.name!r}, as {words!r}," if self.is_term else f"name `{self.name}`"
        how = "linked or bold" if self.is_term else "in backticks"
        return f"{place}: {what} is " + (f"{how} only in {self.explained}" if self.late else f"nowhere {how}")


def order(drafts: bool = True) -> list[Path]:
    """The chapters as `_toc.yml` has them; drafts, which are not in it, at their number."""
    listed = notebooks.toc()
    if not drafts:
        return listed
    for draft in sorted(set((notebooks.project_root() / "notebooks").glob("*.ipynb")) - set(listed)):
        later = (i for i, path in enumerate(listed) if path.stem > draft.stem)
        listed.insert(next(later, len(listed)), draft)
    return listed


def is_folded(cell: Any) -> bool:
    """Whether the book shows a code cell only to those who unfold it."""
    return not FOLDED.isdisjoint(notebooks.tags(cell))


def glossary(everyday: Iterable[str] | None = None) -> list[prose.Term]:
    """The terms of `book/glossary.md`, with those that count as everyday words, by default the table's."""
    text = (notebooks.project_root() / "book" / "glossary.md").read_text(encoding="utf-8")
    return prose.terms(text, exemptions.everyday() if everyday is None else list(everyday))


def place(chapter: str, cell: str) -> Place:
    """Where a code cell stands, by its chapter's name and its id. Raises NotebookError."""
    heading = ""
    for one in notebooks.read(chapter).cells:
        if one.cell_type == "markdown":
            heading = next((text for _, text in reversed(prose.headings(one.source))), heading)
        elif one.id == cell:
            return Place(chapter, cell, heading)
    raise NotebookError(f"{chapter} has no code cell {cell!r}")


@dataclass(frozen=True)
class Mention:
    """What stands in backticks, with aliases resolved, and where."""

    text: str
    place: Place


class Walk:
    """Reads chapters one after another, as a reader who remembers all that was explained."""

    def __init__(self, terms: Sequence[prose.Term], families: Sequence[Family] = ()) -> None:
        self._terms = terms
        self._families = families
        self._mentions: dict[str, list[Mention]] = {}  # what stood in backticks, by its last part
        self._alone: set[str] = set()  # names that code has imported by themselves
        self._aliases: dict[str, str] = {}
        self.terms = {term.name: Entry(term.name, is_term=True) for term in terms}
        self.names: dict[str, Entry] = {}

    def read(self, chapter: str | Path) -> None:
        """Read the next chapter. Raises NotebookError."""
        stem, heading, aside = notebooks.find(chapter).stem, "", False
        self._aliases = {}
        for cell in notebooks.read(chapter).cells:
            if cell.cell_type == "markdown":
                for title, part in prose.sections(cell.source):
                    heading = title or heading
                    if part.lstrip().startswith("## "):
                        aside = title in ASIDE
                    self._explanations(part, Place(stem, cell.id, heading, aside or cell.id == TITLE))
                for name, words in prose.used(prose.plain(cell.source), self._terms).items():
                    self.terms[name].uses.setdefault(stem, (Place(stem, cell.id, heading), words))
            elif cell.cell_type == "code":
                used = names.used(cell.source, self._aliases)
                self._alone.update(names.resolved(whole, {}) for whole in self._aliases.values())
                if is_folded(cell):
                    solves = "solution" in notebooks.tags(cell)
                    used = [] if solves else names.used(names.kernels(cell.source), dict(self._aliases))
                self._code(used, Place(stem, cell.id, heading))

    def _explanations(self, text: str, place: Place) -> None:
        for named in prose.named(text):
            one = Mention(names.resolved(named, self._aliases), place)
            self._mentions.setdefault(names.token(named), []).append(one)
        for term in self._terms:
            if term.introduced(text):
                entry = self.terms[term.name]
                if entry.explained is None:
                    entry.explained, entry.late = place, bool(entry.uses)
                if entry.section is None and not place.is_aside:
                    entry.section = place

    def _code(self, used: Iterable[str], place: Place) -> None:
        for name in used:
            if name not in self.names:
                self.names[name] = Entry(name, is_term=False, explained=next(iter(self._explanations_of(name)), None))
            self.names[name].uses.setdefault(place.chapter, (place, name))

    def _explanations_of(self, name: str) -> list[Place]:
        """Where the name was explained so far, or else another whose explanation will do."""
        others = (one.explained_by for one in self._families if re.fullmatch(one.pattern, name))
        for sought in (name, *others):
            mentions = self._mentions.get(names.token(sought), ())
            if found := [one.place for one in mentions if names.explains(one.text, sought, sought in self._alone)]:
                return found
        return []

    def entries(self) -> list[Entry]:
        """The names and terms that were used or explained, each in the order in which it was met."""
        for entry in self.names.values():
            places = self._explanations_of(entry.name)
            if entry.explained is None and places:
                entry.explained, entry.late = places[0], True
            entry.section = next((place for place in places if not place.is_aside), None)
        found = (*self.names.values(), *self.terms.values())
        for entry in found:
            entry.section = entry.section or entry.explained
        return [entry for entry in found if entry.uses or entry.explained]


def collect(chapters: Iterable[str | Path]) -> list[Entry]:
    """The names and terms of these chapters, by the table's everyday words and families. Raises NotebookError."""
    walk = Walk(glossary(), exemptions.families())
    for chapter in chapters:
        walk.read(chapter)
    return walk.entries()


def _key(entry: Entry) -> tuple[bool, str, str]:
    return entry.is_term, entry.first, entry.name


def _allowed(kinds: dict[str, bool]) -> dict[tuple[bool, str, str], Exemption]:
    return {(is_term, one.chapter, one.what): one for kind, is_term in kinds.items() for one in exemptions.of(kind)}


KINDS = {"names": False, "terms": True}  # the tables of exemptions, and whether they are of terms


def unexplained(entries: Iterable[Entry]) -> list[Entry]:
    """What is used before it is explained, except what the first chapter to use it need not explain."""
    allowed = _allowed(KINDS)
    return [entry for entry in entries if entry.is_unexplained and _key(entry) not in allowed]


def unneeded(entries: Iterable[Entry]) -> list[Exemption]:
    """The exemptions for what is explained in time after all, or first used in another chapter."""
    needed = {_key(entry) for entry in entries if entry.is_unexplained}
    return [one for key, one in _allowed(KINDS).items() if key not in needed]


def main(asked: Sequence[str]) -> int:
    """Print what these chapters, or all, use unexplained; returns 1 if there is anything."""
    try:
        wanted = {notebooks.find(name).stem for name in asked}
        entries = collect(order())
        missing = [entry for entry in unexplained(entries) if not wanted or entry.first in wanted]
    except (NotebookError, OSError, ValueError) as error:
        print(error)
        return 1
    for entry in missing:
        print(entry)
    print(f"{len(missing)} of {len(entries)} names and terms are used before anything explains them")
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
