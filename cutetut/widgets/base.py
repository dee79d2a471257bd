"""What all widgets share on Python's side: their files, and a picture for where no JavaScript runs."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import anywidget

from cutetut.figures import Picture

HERE = Path(__file__).parent
COMMENT = re.compile(r"^\s*(//[^\n]*|/\*.*?\*/)$", re.MULTILINE | re.DOTALL)


def source(*names: str) -> str:
    """Return files of this folder, one after the other: one module or one style sheet, no bundler.

    Without indentation and comments, which stand on lines of their own: every widget in a notebook carries it all.
    """
    text = "\n".join((HERE / name).read_text(encoding="utf-8") for name in names)
    return "\n".join(line.strip() for line in COMMENT.sub("", text).splitlines() if line.strip())


class Picker(anywidget.AnyWidget):
    """A widget whose output also holds a still picture of its state, shown where JavaScript is missing."""

    def still(self) -> Picture:
        """Return a figure of the present state."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        bundle = super()._repr_mimebundle_(**kwargs)
        assert bundle is not None  # only a widget without a view has none
        data, metadata = bundle
        data["image/png"] = base64.b64encode(self.still().png()).decode("ascii")
        return data, metadata
