"""Say under each chapter's title on which machine its outputs were recorded."""

import json
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)

# Field of `metadata.cutetut` -> how the line names it.
FIELDS = {
    "gpu": "{}",
    "driver": "driver {}",
    "cuda": "CUDA {}",
    "torch": "torch {}",
    "cutlass_dsl": "CuTe DSL {}",
    "date": "{}",
}


def line(metadata: dict[str, Any]) -> tuple[str, bool]:
    """Return the sentence about a notebook's `metadata.cutetut`, and whether the notebook is recorded."""
    if not metadata:
        return "Not recorded: no output on this page comes from a GPU run yet.", False
    return "Outputs recorded on " + ", ".join(form.format(metadata[key]) for key, form in FIELDS.items()), True


def add_line(app: Sphinx, doctree: nodes.document) -> None:
    """Insert the sentence after the title of a notebook's page; an incomplete record is a warning."""
    docname = app.env.docname
    path = app.env.doc2path(docname)
    if not str(path).endswith(".ipynb"):
        return
    with open(path, encoding="utf-8") as source:
        metadata = json.load(source)["metadata"].get("cutetut", {})
    missing = [key for key in FIELDS if metadata and key not in metadata]
    if missing:
        logger.warning("metadata.cutetut lacks %s: record the notebook again", ", ".join(missing), location=docname)
        return
    text, recorded = line(metadata)
    title = next(iter(doctree.findall(nodes.title)), None)
    if title is None:
        logger.warning("the notebook has no title to put its provenance under", location=docname)
        return
    classes = ["cutetut-provenance", "recorded" if recorded else "not-recorded"]
    title.parent.insert(title.parent.index(title) + 1, nodes.paragraph("", text, classes=classes))


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", add_line)
