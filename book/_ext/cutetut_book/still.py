"""Keep a widget's still picture in the page: for a browser without JavaScript, for print and for a widget that fails.

The style sheet hides the picture on the screen as soon as its widget is drawn, and the widget on paper.
"""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

WIDGET = "application/vnd.jupyter.widget-view+json"
PICTURES = ("image/svg+xml", "image/png")
OPENING, CLOSING = '<div class="cutetut-still">', "</div>"


class StillPicture(SphinxPostTransform):
    """Add an output's picture to its widget; MyST-NB would keep the widget alone."""

    default_priority = 3  # MyST-NB chooses one form of each output at 4
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        for bundle in self.document.findall(nodes.container):
            if bundle.get("nb_element") != "mime_bundle":
                continue
            forms = {form["mime_type"]: form for form in bundle.children if isinstance(form, nodes.container)}
            picture = next((forms[mime] for mime in PICTURES if mime in forms), None)
            if WIDGET in forms and picture is not None:
                forms[WIDGET] += nodes.raw("", OPENING, format="html")
                forms[WIDGET] += [child.deepcopy() for child in picture.children]
                forms[WIDGET] += nodes.raw("", CLOSING, format="html")


def setup(app: Sphinx) -> None:
    app.add_post_transform(StillPicture)
