"""The book's own Sphinx extension: local JavaScript, recorded-on lines, and pages generated from data."""

import sys
from typing import Any

from sphinx.application import Sphinx

from . import (
    bugs,
    card,
    counted,
    front,
    generated,
    ladder,
    offline,
    ordering,
    peers,
    provenance,
    recorded,
    rooms,
    still,
    vendor,
)

# The pages describe this checkout's package, whichever one is installed.
sys.path.insert(0, str(vendor.ROOT))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register every part of the extension; each can be read on its own."""
    for part in (offline, provenance, still, card, front):
        part.setup(app)
    for directives in (generated, bugs, ordering, counted, peers, rooms, ladder, recorded):
        directives.setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
