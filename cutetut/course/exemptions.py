"""The exemptions from the curriculum's rules, in `book/data/exemptions.toml`: each has its reason.

Tests fail for an exemption without a reason, and for one that is no longer needed.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

from cutetut.course import notebooks


@dataclass(frozen=True)
class Exemption:
    """Something a chapter may do that a rule forbids: `what` is a name, a term, or a number of the contract."""

    chapter: str
    what: str
    reason: str


@dataclass(frozen=True)
class Family:
    """Names, given by a regular expression, that the explanation of one of them explains."""

    pattern: str
    explained_by: str
    reason: str


def table() -> dict[str, Any]:
    """The file's content. Raises OSError, and ValueError if it is not TOML."""
    path = notebooks.project_root() / "book" / "data" / "exemptions.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def of(kind: str) -> list[Exemption]:
    """The exemptions of "names", "terms" or "contract"."""
    return [
        Exemption(chapter, what, reason)
        for chapter, listed in table().get(kind, {}).items()
        for what, reason in listed.items()
    ]


def families() -> list[Family]:
    """The families of names."""
    return [Family(pattern, one["by"], one["reason"]) for pattern, one in table().get("families", {}).items()]


def everyday() -> dict[str, str]:
    """Terms of the glossary that are also everyday words, which prose may use without a link, and the reason."""
    return dict(table().get("everyday", {}))


def unrecorded() -> dict[str, str]:
    """Chapters whose outputs are the emulator's, because they have not been recorded since they changed, and why."""
    return dict(table().get("unrecorded", {}))


def superseded() -> dict[str, str]:
    """Tables in book/data that were measured with an earlier version of their chapter, and why."""
    return dict(table().get("superseded", {}))
