"""The book's own Sphinx extension: local JavaScript, recorded-on lines, and pages generated from data."""

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

import cutetut

from . import (
    bugs,
    card,
    colab,
    contract,
    counted,
    exercises,
    explained,
    folders,
    front,
    generated,
    ladder,
    notfound,
    offline,
    ordering,
    peers,
    provenance,
    recorded,
    sidebar,
    still,
    unreported,
    vendor,
)


def check_package(file: str) -> None:
    """Raise ExtensionError unless this file, of the imported package, is of the checkout that the pages describe."""
    found, needed = Path(file).resolve().parent, vendor.ROOT / "cutetut"
    if found != needed:
        raise ExtensionError(
            f"the book describes {needed}, but Python imports cutetut from {found}: "
            f"pip install --no-deps -e {vendor.ROOT}, or set PYTHONPATH={vendor.ROOT}"
        )


def setup(app: Sphinx) -> dict[str, Any]:
    """Register every part of the extension; each can be read on its own."""
    check_package(cutetut.__file__)
    for part in (offline, provenance, still, card, colab, front, notfound, sidebar, explained):
        part.setup(app)
    for directives in (
        generated, bugs, ordering, unreported, counted, contract, exercises, peers, folders, ladder, recorded,
    ):  # fmt: skip
        directives.setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
