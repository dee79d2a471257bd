"""The address of the whole book leads to its first page, and describes itself as that page does.

A chat or a feed that makes a preview of a link reads the page behind it and follows no redirection.
"""

import html
import re
from pathlib import Path

from sphinx.application import Sphinx

METADATA = re.compile(r'<meta [^>]*\b(?:property|name)="(?:og:[^"]*|description|twitter:[^"]*)"[^>]*>')


def page(first: str, address: str) -> str:
    """Return the HTML of a page that leads to `address`, with the metadata of the page whose HTML is `first`."""
    title = re.search('"og:title" content="([^"]*)"', first)
    where = html.escape(address)
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>{title[1] if title else where}</title>",
        *METADATA.findall(first),
        f'<meta http-equiv="refresh" content="0; url={where}">',
        f'</head><body><a href="{where}">{where}</a></body></html>',
    ]
    return "\n".join(lines) + "\n"


def write(app: Sphinx, error: Exception | None) -> None:
    """Write the page, unless the book's first page is at its address already."""
    if error is not None or app.builder.format != "html" or app.config.root_doc == "index":
        return
    address = app.builder.get_target_uri(app.config.root_doc)
    first = Path(app.outdir, address).read_text(encoding="utf-8")
    Path(app.outdir, "index.html").write_text(page(first, address), encoding="utf-8")


def setup(app: Sphinx) -> None:
    app.connect("build-finished", write)
