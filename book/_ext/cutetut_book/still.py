"""Keep a widget's still picture in the page, for a reader whose browser runs no JavaScript."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

WIDGET = "application/vnd.jupyter.widget-view+json"
PICTURES = ("image/svg+xml", "image/png")


class PictureWithoutScript(SphinxPostTransform):
    """Add an output's picture, as <noscript>, to its widget; MyST-NB would keep the widget alone."""

    default_priority = 3  # MyST-NB chooses one form of each output at 4
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        for bundle in self.document.findall(nodes.container):
            if bundle.get("nb_element") != "mime_bundle":
                continue
            forms = {form["mime_type"]: form for form in bundle.children if isinstance(form, nodes.container)}
            picture = next((forms[mime] for mime in PICTURES if mime in forms), None)
            if WIDGET in forms and picture is not None:
                forms[WIDGET] += nodes.raw("", "<noscript>", format="html")
                forms[WIDGET] += [child.deepcopy() for child in picture.children]
                forms[WIDGET] += nodes.raw("", "</noscript>", format="html")


def setup(app: Sphinx) -> None:
    app.add_post_transform(PictureWithoutScript)
