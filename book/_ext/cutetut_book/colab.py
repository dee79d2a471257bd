"""A chapter's Colab button opens the branch `colab`, where each chapter begins with a cell that installs the course.

The theme's buttons all open the branch that the book is built from; `examples/colab/notebooks.py` writes the other one,
and `.github/workflows/book.yml` publishes it.
"""

from typing import Any

from sphinx.application import Sphinx

HOST, BRANCH = "https://colab.research.google.com/", "colab"


def on_its_branch(url: str, branch: str) -> str:
    """Return the address of the same file on Colab's branch; addresses elsewhere stay as they are."""
    return url.replace(f"/blob/{branch}/", f"/blob/{BRANCH}/", 1) if url.startswith(HOST) else url


def redirect(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Change the links among a page's buttons, those in menus too."""
    branch = app.config.html_theme_options.get("repository_branch") or "main"
    waiting = list(context.get("header_buttons", ()))
    while waiting:
        button = waiting.pop()
        waiting += button.get("buttons", ())
        if "url" in button:
            button["url"] = on_its_branch(button["url"], branch)


def setup(app: Sphinx) -> None:
    app.connect("html-page-context", redirect, priority=900)  # the theme adds its buttons at 501
