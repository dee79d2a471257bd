"""Where the curriculum explains what it uses: names in code, and the glossary's terms in prose.

    python -m cutetut.course.concordance [NAME ...]    what these chapters, or all, use before anything explains it

A name of `cute`, `cutlass` or `cutetut`, or a method of an object of CuTe's, that a visible code cell uses must stand in
backticks in a markdown cell before it, in the same chapter or an earlier one. A term of the glossary that prose uses must
be linked or set in bold there at the latest where it is first used. Cells that the book folds, and headings, count for
neither. Reasoned exemptions are in `book/data/exemptions.toml`.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutetut.course import names, notebooks, prose
from cutetut.course.notebooks import NotebookError

FOLDED = frozenset(("hide-input", "hide-cell", "helpers", "remove-input", "remove-cell"))
NAME, TERM = "name", "term"


@dataclass(frozen=True)
class Place:
    """A cell of a chapter: its id, and the heading above it."""

    chapter: str
    cell: str
    heading: str

    def __str__(self) -> str:
        return f"{self.chapter}, cell {self.cell}"


@dataclass
class Entry:
    """A name or a term: where it is first explained, and where each chapter first uses it, with the words there."""

    kind: str
    name: str
    explained: Place | None = None
    late: bool = False  # the explanation comes after a use
    uses: dict[str, tuple[Place, str]] = field(default_factory=dict)

    @property
    def unexplained(self) -> bool:
        """Whether something uses it, and nothing before that explains it."""
        return bool(self.uses) and (self.explained is None or self.late)


@dataclass(frozen=True)
class Exemption:
    """A name or a term that may be used in a chapter without an explanation before, and why."""

    kind: str
    name: str
    chapter: str
    reason: str


def order(drafts: bool = True) -> list[Path]:
    """The chapters as `_toc.yml` has them; drafts, which are not in it, at their number."""
    listed = notebooks.toc()
    if not drafts:
        return listed
    others = sorted(set((notebooks.project_root() / "notebooks").glob("*.ipynb")) - set(listed))
    for draft in others:
        later = (i for i, path in enumerate(listed) if path.stem[:2] > draft.stem[:2])
        listed.insert(next(later, len(listed)), draft)
    return listed


def is_folded(cell: Any) -> bool:
    """Whether the book shows a code cell only to those who unfold it."""
    return not FOLDED.isdisjoint(notebooks.tags(cell))


def table() -> dict[str, Any]:
    """`book/data/exemptions.toml`, whose first lines say what is in it."""
    path = notebooks.project_root() / "book" / "data" / "exemptions.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def exemptions() -> list[Exemption]:
    """The exemptions of names and terms."""
    return [
        Exemption(kind, name, chapter, reason)
        for kind in (NAME, TERM)
        for chapter, listed in table().get(f"{kind}s", {}).items()
        for name, reason in listed.items()
    ]


def families() -> dict[str, str]:
    """Names that are explained by another of their kind: a regular expression for them, and the name of that one."""
    return {pattern: one["by"] for pattern, one in table().get("families", {}).items()}


def glossary() -> list[prose.Term]:
    """The terms of `book/glossary.md`; the table of exemptions says which of them are everyday words."""
    text = (notebooks.project_root() / "book" / "glossary.md").read_text(encoding="utf-8")
    return prose.terms(text, table().get("everyday", {}))


def collect(chapters: Iterable[str | Path], terms: Sequence[prose.Term]) -> list[Entry]:
    """Every name and term that these chapters use or explain, in the order in which they meet them."""
    entries = {(TERM, term.name): Entry(TERM, term.name) for term in terms}
    explained: dict[str, Place] = {}  # by a name's last part
    for chapter in chapters:
        aliases: dict[str, str] = {}
        heading = ""
        for cell in notebooks.read(chapter).cells:
            if cell.cell_type == "markdown":
                heading = next((text for _, text in reversed(prose.headings(cell.source))), heading)
                first = next((text for _, text in prose.headings(cell.source)), heading)
                place = Place(notebooks.find(chapter).stem, cell.id, first)
                for token in prose.named(cell.source):
                    explained.setdefault(token, place)
                _read(cell.source, place, terms, entries)
            elif cell.cell_type == "code":
                used = names.used(cell.source, aliases)
                place = Place(notebooks.find(chapter).stem, cell.id, heading)
                for name in [] if is_folded(cell) else used:
                    entry = entries.setdefault((NAME, name), Entry(NAME, name, explained.get(names.token(name))))
                    entry.uses.setdefault(place.chapter, (place, name))
    for entry in entries.values():  # of what is explained late, where
        if entry.kind == NAME and entry.explained is None and (found := explained.get(names.token(entry.name))):
            entry.explained, entry.late = found, True
    return [entry for entry in entries.values() if entry.uses or entry.explained]


def _read(text: str, place: Place, terms: Sequence[prose.Term], entries: dict[tuple[str, str], Entry]) -> None:
    """Note which terms a markdown cell explains, and which it uses."""
    for term in terms:
        entry = entries[TERM, term.name]
        if entry.explained is None and term.introduced(text):
            entry.explained, entry.late = place, bool(entry.uses)
    for name, words in prose.used(prose.plain(text), terms).items():
        entries[TERM, name].uses.setdefault(place.chapter, (place, words))


def unexplained(self) -> bool:
        """Whether something uses it, and nothing before that explains it."""
        return bool(self.uses) and (self.explained is None or self.late)


@dataclass(frozen=True)
class Exemption:
    """A name or a term that may be used in a chapter without an explanation before, and why."""

    kind: str
    name: str
    chapter: str
    reason: str


def order(drafts: bool = True) -> list[Path]:
    """The chapters as `_toc.yml` has them; drafts, which are not in it, at their number."""
    listed = notebooks.toc()
    if not drafts:
        return listed
    others = sorted(set((notebooks.project_root() / "notebooks").glob("*.ipynb")) - set(listed))
    for draft in others:
        later = (i for i, path in enumerate(listed) if path.stem[:2] > draft.stem[:2])
        listed.insert(next(later, len(listed)), draft)
    return listed


def is_folded(cell: Any) -> bool:
    """Whether the book shows a code cell only to those who unfold it."""
    return not FOLDED.isdisjoint(notebooks.tags(cell))


def table() -> dict[str, Any]:
    """`book/data/exemptions.toml`, whose first lines say what is in it."""
    path = notebooks.project_root() / "book" / "data" / "exemptions.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def exemptions() -> list[Exemption]:
    """The exemptions of names and terms."""
    return [
        Exemption(kind, name, chapter, reason)
        for kind in (NAME, TERM)
        for chapter, listed in table().get(f"{kind}s", {}).items()
        for name, reason in listed.items()
    ]


def families() -> dict[str, str]:
    """Names that are explained by another of their kind: a regular expression for them, and the name of that one."""
    return {pattern: one["by"] for pattern, one in table().get("families", {}).items()}


def glossary() -> list[prose.Term]:
    """The terms of `book/glossary.md`; the table of exemptions says which of them are everyday words."""
    text = (notebooks.project_root() / "book" / "glossary.md").read_text(encoding="utf-8")
    return prose.terms(text, table().get("everyday", {}))


def collect(chapters: Iterable[str | Path], terms: Sequence[prose.Term]) -> list[Entry]:
    """Every name and term that these chapters use or explain, in the order in which they meet them."""
    entries = {(TERM, term.name): Entry(TERM, term.name) for term in terms}
    explained: dict[str, Place] = {}  # by a name's last part
    for chapter in chapters:
        aliases: dict[str, str] = {}
        heading = ""
        for cell in notebooks.read(chapter).cells:
            if cell.cell_type == "markdown":
                heading = next((text for _, text in reversed(prose.headings(cell.source))), heading)
                first = next((text for _, text in prose.headings(cell.source)), heading)
                place = Place(notebooks.find(chapter).stem, cell.id, first)
                for token in prose.named(cell.source):
                    explained.setdefault(token, place)
                _read(cell.source, place, terms, entries)
            elif cell.cell_type == "code":
                used = names.used(cell.source, aliases)
                place = Place(notebooks.find(chapter).stem, cell.id, heading)
                for name in [] if is_folded(cell) else used:
                    entry = entries.setdefault((NAME, name), Entry(NAME, name, explained.get(names.token(name))))
                    entry.uses.setdefault(place.chapter, (place, name))
    for entry in entries.values():  # of what is explained late, where
        if entry.kind == NAME and entry.explained is None and (found := explained.get(names.token(entry.name))):
            entry.explained, entry.late = found, True
    return [entry for entry in entries.values() if entry.uses or entry.explained]


def _read(text: str, place: Place, terms: Sequence[prose.Term], entries: dict[tuple[str, str], Entry]) -> None:
    """Note which terms a markdown cell explains, and which it uses."""
    for term in terms:
        entry = entries[TERM, term.name]
        if entry.explained is None and term.introduced(text):
            entry.explained, entry.late = place, bool(entry.uses)
    for name, words in prose.used(prose.plain(text), terms).items():
        entries[TERM, name].uses.setdefault(place.chapter, (place, words))


def _use(entry: Entry, place: Place, words: str, explained: Place | None) -> None:
    entry.uses.setdefault(place.chapter, (place, words))
    if entry.explained is None and explained is not None:
        entry.explained, entry.late = explained, len(entry.uses) > 1


def unexplained(entries: Iterable[Entry], exempt: Iterable[Exemption] = ()) -> list[Entry]:
    """The entries that are used before they are explained, without those that are exempt where they are first used."""
    allowed = {(one.kind, one.name, one.chapter) for one in exempt}
    return [e for e in entries if e.unexplained and (e.kind, e.name, next(iter(e.uses))) not in allowed]


def unneeded(entries: Iterable[Entry], exempt: Iterable[Exemption]) -> list[Exemption]:
    """The exemptions of what is explained in time, or is not first used in that chapter."""
    needed = {(e.kind, e.name, next(iter(e.uses))) for e in entries if e.unexplained}
    return [one for one in exempt if (one.kind, one.name, one.chapter) not in needed]


def sentence(entry: Entry) -> str:
    """What is missing, as a line: the name or the term, where it is first used, and where it is explained if at all."""
    place, words = next(iter(entry.uses.values()))
    what = f"name `{entry.name}`" if entry.kind == NAME else f"term {entry.name!r}, as {words!r},"
    never = "in backticks" if entry.kind == NAME else "linked or bold"
    return f"{place}: {what} " + (f"is {never} only in {entry.explained}" if entry.late else f"is nowhere {never}")


def main(asked: Sequence[str]) -> int:
    """Print what these chapters, or all, use unexplained; returns 1 if there is anything."""
    try:
        wanted = {notebooks.find(name).stem for name in asked}
        entries = collect(order(), glossary())
        missing = [e for e in unexplained(entries, exemptions()) if not wanted or next(iter(e.uses)) in wanted]
    except (NotebookError, OSError, ValueError) as error:
        print(error)
        return 1
    for entry in missing:
        print(sentence(entry))
    print(f"{len(missing)} of {len(entries)} names and terms are used before anything explains them")
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
