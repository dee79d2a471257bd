"""Make every page load only what the book serves itself: no network is needed to read it."""

from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError

from .vendor import VendorError, fetch

# Loaded on pages with widgets, in this order: the AMD loader, where it finds anywidget, the widget manager.
WIDGET_SCRIPTS: dict[str, dict[str, str]] = {
    "vendor/require.js": {},
    "require-paths.js": {},
    # A module that is not vendored fails at a local address instead of asking a content network for it.
    "vendor/embed-amd.js": {"data-jupyter-widgets-cdn": "widget-module-not-vendored/"},
}


def use_local_javascript(app: Sphinx, config: Config) -> None:
    """Point MyST-NB and MathJax at the vendored files, fetching them if this machine has none yet."""
    try:
        folder = fetch()
    except VendorError as error:
        raise ExtensionError(str(error)) from error
    config.html_static_path.append(str(folder))
    config.nb_ipywidgets_js = WIDGET_SCRIPTS
    config.mathjax_path = "vendor/tex-svg-full.js"


def drop_thebe(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Leave out sphinx-thebe's scripts: there is no kernel to run live code, and they name a remote file."""
    context["script_files"] = [
        script
        for script in context.get("script_files", [])
        if "thebe" not in f"{getattr(script, 'filename', script)}{getattr(script, 'attributes', '')}"
    ]


def setup(app: Sphinx) -> None:
    app.connect("config-inited", use_local_javascript)
    app.connect("html-page-context", drop_thebe, priority=900)  # after every extension has added its own
