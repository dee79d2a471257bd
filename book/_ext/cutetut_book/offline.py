"""Make every page load only what the book serves itself: no network is needed to read it."""

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


def drop_thebe(app: Sphinx) -> None:
    """Silence sphinx-thebe, which jupyter-book always loads: no page has a kernel to run live code.

    Its scripts would name a remote address and a third party's repository on every page.
    """
    for listeners in app.events.listeners.values():
        for listener in list(listeners):
            if listener.handler.__module__.startswith("sphinx_thebe"):
                app.disconnect(listener.id)


def setup(app: Sphinx) -> None:
    app.connect("config-inited", use_local_javascript)
    app.connect("builder-inited", drop_thebe, priority=1)
