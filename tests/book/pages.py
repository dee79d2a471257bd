"""What the tests need to know of a built page: its anchors, its links, and what it makes a browser load."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Attributes whose address a browser loads without being asked.
LOADED = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "source": ("src", "srcset"),
    "iframe": ("src",),
    "embed": ("src",),
    "object": ("data",),
    "video": ("src", "poster"),
    "audio": ("src",),
    "track": ("src",),
    "image": ("href", "xlink:href"),
    "use": ("href", "xlink:href"),
    "input": ("src",),
    "body": ("background",),
}
# A <link> is loaded unless it only names a relation to another page.
LINKS_NOT_LOADED = {
    "canonical",
    "next",
    "prev",
    "search",
    "index",
    "author",
    "license",
    "alternate",
    "top",
    "up",
}
CSS_LOADS = re.compile(r"""url\(\s*['"]?([^'")\s]+)|@import\s+['"]([^'"]+)""", re.IGNORECASE)


def css_addresses(text: str) -> list[str]:
    """Return what a style sheet makes a browser load; comments do not count."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return [url or imported for url, imported in CSS_LOADS.findall(text)]


def is_remote(address: str) -> bool:
    """Whether an address leads to another host. `data:` and `blob:` hold their content themselves."""
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme not in ("", "data", "blob")


@dataclass
class Page(HTMLParser):
    """One parsed HTML file."""

    path: Path
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    _style: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.ids.add(values["id"])
        if tag == "a" and "name" in values:
            self.ids.add(values["name"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "link" and not set(values.get("rel", "").split()) & LINKS_NOT_LOADED:
            self.loads.append(values.get("href", ""))
        for name in LOADED.get(tag, ()):
            if name in values:
                entries = values[name].split(",") if name == "srcset" else [values[name]]
                self.loads.extend(entry.split()[0] for entry in entries if entry.strip())
        self.loads.extend(css_addresses(values.get("style", "")))
        self._style = tag == "style"

    def handle_data(self, data: str) -> None:
        if self._style:
            self.loads.extend(css_addresses(data))

    def handle_endtag(self, tag: str) -> None:
        self._style = False

    def __hash__(self) -> int:
        return hash(self.path)


def broken_links(page: Page, pages: dict[Path, Page]) -> list[str]:
    """Return the links of a page that lead to no file or anchor of the book, and malformed remote ones."""
    broken = []
    for link in page.links:
        parts = urlsplit(link)
        if parts.scheme == "mailto":
            continue
        if parts.scheme or parts.netloc:
            if parts.scheme != "https" or "." not in parts.netloc or " " in link:
                broken.append(f"{link} (not a well-formed https address)")
            continue
        target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
        if not target.is_file():
            broken.append(f"{link} (no such file)")
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
            broken.append(f"{link} (no such anchor)")
    return broken


@functools.cache
def of_the_book(path: Path) -> Page:
    """Return a page of the book that was built for this test run, which does not change: it is parsed once."""
    return Page(path)
