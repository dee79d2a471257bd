"""The page that GitHub Pages and Read the Docs show for an address that leads nowhere, `404.html`.

The extension `notfound` writes it. It is shown at addresses of any depth, so its links begin with the book's own path.
"""

import os
from urllib.parse import urlsplit

from sphinx.application import Sphinx
from sphinx.config import Config


def use_the_books_path(app: Sphinx, config: Config) -> None:
    """Take the path from `baseurl`; Read the Docs names its own, which the extension uses by itself."""
    if "READTHEDOCS_CANONICAL_URL" not in os.environ:
        config.notfound_urls_prefix = urlsplit(config.html_baseurl).path


def setup(app: Sphinx) -> None:
    app.connect("config-inited", use_the_books_path)
