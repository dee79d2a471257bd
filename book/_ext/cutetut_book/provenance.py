"""Say under each chapter's title on which machine its outputs were recorded."""

import html
import json

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

from cutetut.course import provenance

logger = logging.getLogger(__name__)

NOT_RECORDED = (
    "Not recorded on a GPU since it was changed: these outputs are the emulator's. "
    "What a table says of a GPU was measured there."
)


def add_line(app: Sphinx, doctree: nodes.document) -> None:
    """Insert the sentence after the title of a notebook's page; an incomplete record is a warning."""
    docname = app.env.docname
    path = app.env.doc2path(docname)
    if not str(path).endswith(".ipynb"):
        return
    with open(path, encoding="utf-8") as source:
        facts = json.load(source)["metadata"].get("cutetut", {})
    missing = [key for key in provenance.FIELDS if facts and key not in facts]
    title = next(iter(doctree.findall(nodes.title)), None)
    if missing:
        text = f"metadata.cutetut lacks {', '.join(missing)}: record the notebook again"
        logger.warning(text, location=docname)
    elif title is None:
        logger.warning("the notebook has no title to put its provenance under", location=docname)
    else:
        text = f"Outputs recorded on {provenance.sentence(facts)}" if facts else NOT_RECORDED
        kind = "recorded" if facts else "not-recorded"
        # Raw, so that the line is no part of the page's description in its metadata.
        line = f'<p class="cutetut-provenance {kind}">{html.escape(text)}</p>'
        title.parent.insert(title.parent.index(title) + 1, nodes.raw("", line, format="html"))


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", add_line)
