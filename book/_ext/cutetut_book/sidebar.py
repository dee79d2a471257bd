"""The list of chapters beside every page has their numbers, by which the text calls them."""

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

from .generated import numbered

FOLDER = "notebooks/"


def add_numbers(app: Sphinx, doctree: nodes.document) -> None:
    """Give the entries of the book's table of contents the chapters' numbers; other pages keep their titles."""
    for toctree in doctree.findall(addnodes.toctree):
        toctree["entries"][:] = [  # in place: the environment has the same list
            (numbered(page.removeprefix(FOLDER)) if page.startswith(FOLDER) else title, page)
            for title, page in toctree["entries"]
        ]


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", add_numbers)
