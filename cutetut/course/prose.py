"""What a markdown cell says: its words, what it names in backticks, its headings, the glossary's terms that it uses."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

_FENCE = re.compile(r"^ *(```+|~~~+).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
_TERM = re.compile(r"\[(?P<shown>[^\]]*)\]\((?:\.\./book/)?glossary\.md#(?P<anchor>[^)\s]*)\)")
_PAGE = re.compile(r"\[([^\]]*)\]\((?:\.\./book/)?\w+\.(?:md|ipynb)(?:#[^)\s]*)?\)")  # of the book's, the glossary too
_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_MATH = re.compile(r"\$\$.*?\$\$|(?<![\w$])\$(?!\s)[^$\n]+?(?<!\s)\$(?![\w$])", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_TAG = re.compile(r"<(?:!--.*?--|/?[a-zA-Z][^>]*)>", re.DOTALL)
_BOLD = re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*", re.DOTALL)
_HEADING = re.compile(r"^(#{1,6})[ \t]+(.*?)[ \t]*#*$", re.MULTILINE)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_QUALIFIER = re.compile(r"\.?(?:[A-Za-z_]\w*\.)*$")
_WORD = re.compile(r"[^\W_][\w'’.-]*")


def words(text: str) -> int:
    """How many words a reader reads: code between backticks counts; fenced code, markup and addresses do not."""
    return len(_WORD.findall(_TAG.sub(" ", _LINK.sub(r"\1", _FENCE.sub(" ", text)))))


def fenced_lines(text: str) -> int:
    """How many lines of fenced code there are, without empty ones and the fences."""
    return sum(1 for block in _FENCE.finditer(text) for line in block[0].splitlines()[1:-1] if line.strip())


def headings(text: str) -> list[tuple[int, str]]:
    """Each heading's level and what it shows, without markup."""
    return [(len(found[1]), _shown(found[2])) for found in _HEADING.finditer(_FENCE.sub(" ", text))]


def sections(text: str) -> list[tuple[str | None, str]]:
    """A cell's text cut before each heading: what the heading shows, None above the first, and the part.

    A part without text, but for the one of a heading, is left out.
    """
    blank = _FENCE.sub(lambda fence: "·" * len(fence[0]), text)
    starts = [0, *(heading.start() for heading in _HEADING.finditer(blank)), len(text)]
    parts = [text[start:end] for start, end in itertools.pairwise(starts) if text[start:end].strip()]
    return [(shown[0][1] if (shown := headings(part)) else None, part) for part in parts]


def named(text: str) -> set[str]:
    """The names between backticks, with what precedes them: `cute.size`, `.load` of an object, `Constexpr`.

    A plain lower-case word counts only if it stands alone, after a dot, or is called: `x = size` names nothing. The
    text of a link within the book is no name, unless it links a term of the glossary that is one, such as partition_C.
    """
    text = _FENCE.sub(" ", text)
    found: set[str] = set()
    for link in _TERM.finditer(text):
        found |= {name for name in _IDENTIFIER.findall(link["shown"]) if "_" in name}
    for code in _CODE.finditer(_PAGE.sub(" ", text)):
        found |= {_qualified(match) for match in _IDENTIFIER.finditer(code[2]) if _is_name(match)}
    return found


def _is_name(match: re.Match[str]) -> bool:
    """Whether an identifier within a piece of code is there as a name that is explained."""
    before, after = match.string[: match.start()].rstrip(), match.string[match.end() :].lstrip()
    if not (match[0].isalpha() and match[0].islower()):
        return True
    if after.startswith("."):
        return False  # a module, or a variable
    return before.endswith((".", "@")) or after.startswith("(") or not (before or after)


def _qualified(match: re.Match[str]) -> str:
    """An identifier with the names and dots before it: `a.b`, or `.b` after a call or an index."""
    before = _QUALIFIER.search(match.string[: match.start()])
    return (before[0] if before else "") + match[0]


@dataclass(frozen=True)
class Term:
    """A term of the glossary: all its names, the first of which stands for it, and how each is found in prose."""

    names: tuple[str, ...]
    ordinary: frozenset[str] = frozenset()  # names that are everyday words as well: they introduce, but are no use

    @property
    def name(self) -> str:
        """The name that stands for all of them."""
        return self.names[0]

    @property
    def anchor(self) -> str:
        """What a link to it on the glossary's page ends with."""
        return anchor(self.name)

    def introduced(self, text: str) -> bool:
        """Whether a markdown cell links the term, or has it in bold."""
        if any(link["anchor"] == self.anchor for link in _TERM.finditer(text)):
            return True
        bold = [_shown(found[1]) for found in _BOLD.finditer(_FENCE.sub(" ", text))]
        return any(_pattern(name).search(shown) for name in self.names for shown in bold)


def anchor(heading: str) -> str:
    """What follows the # in a link to a heading, by JupyterLab's rule, which the book follows: `TV-layout`."""
    return heading.replace(" ", "-")


def plain(text: str) -> str:
    """A cell's prose without headings, code, formulas, addresses and links to terms or pages of the book."""
    text = _HEADING.sub(" ", _FENCE.sub(" ", text))
    text = _CODE.sub(" … ", _PAGE.sub(" … ", text))  # no word, and what is around it does not join
    return " ".join(_TAG.sub(" ", _LINK.sub(r"\1", _MATH.sub(" ", text))).split())


def without_links(text: str) -> str:
    """A text whose links are their words; code and formulas stay."""
    return _LINK.sub(r"\1", text)


def terms(glossary: str, ordinary: Collection[str] = ()) -> list[Term]:
    """The entries of the glossary's text, in its order: headings of level 3, each with its other names below it."""
    found = []
    for entry in re.split(r"^### ", glossary, flags=re.MULTILINE)[1:]:
        heading, text = entry.split("\n", 1)
        others = re.match(r"\nAlso here: (.*)\.\n", text)
        names = (heading.strip(), *(re.findall(r"\*(.+?)\*", others[1]) if others else ()))
        found.append(Term(names, frozenset(names) & frozenset(ordinary)))
    return found


def used(plain_text: str, terms: Iterable[Term]) -> dict[str, str]:
    """The terms that `plain` text uses, each with the words of its first use; tensor is not used in "tensor cores"."""
    found = []
    for term in terms:
        for name in term.names:
            found += [(m.start(), -m.end(), term, name, m[0]) for m in _pattern(name).finditer(plain_text)]
    uses: dict[str, str] = {}
    covered = 0
    for _, end, term, name, words in sorted(found, key=lambda one: one[:2]):
        if -end > covered:  # not within a longer term
            covered = -end
            if name not in term.ordinary:
                uses.setdefault(term.name, words)
    return uses


@functools.cache
def _pattern(name: str) -> re.Pattern[str]:
    """The name as a word, in the plural too; letter case counts only for names that have capitals."""
    stem, last = re.escape(name[:-1]).replace(r"\ ", r"[\s-]+"), re.escape(name[-1])
    ends = "(?:y|ies)" if last == "y" else f"{last}(?:e?s)?"
    return re.compile(rf"(?<![\w.-]){stem}{ends}(?!\w)", re.NOFLAG if name != name.lower() else re.IGNORECASE)


def _shown(text: str) -> str:
    """A line of Markdown as a reader sees it; stars in code stay."""
    text = _TAG.sub("", _LINK.sub(r"\1", text))
    parts = _CODE.split(text)  # what is between code, the backticks, the code, and so on
    return "".join(part if i % 3 == 2 else part.replace("*", "") for i, part in enumerate(parts) if i % 3 != 1).strip()
