"""The book's extension takes only the JavaScript that was pinned."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest
from cutetut_book import vendor


def test_changed_file_is_refused() -> None:
    pinned = "sha512-" + base64.b64encode(hashlib.sha512(b"the file").digest()).decode()
    vendor.check_integrity(b"the file", pinned, "x@1")
    with pytest.raises(vendor.VendorError, match="x@1 is not the pinned file"):
        vendor.check_integrity(b"another file", pinned, "x@1")


def test_fetch_without_a_network_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor, "CACHE", tmp_path / "cache")
    for key, value in {
        "registry": "http://127.0.0.1:9/",
        "fetch_retries": "0",
        "cache": str(tmp_path),
    }.items():
        monkeypatch.setenv(f"npm_config_{key}", value)
    with pytest.raises(vendor.VendorError, match="npm could not fetch @jupyter-widgets/html-manager@"):
        vendor.fetch()
    assert list((tmp_path / "cache").iterdir()) == []  # nothing half done is left to be mistaken for the files


def test_fetched_files_are_those_of_the_manifest() -> None:
    folder = vendor.fetch() / "vendor"
    names = {path.name for path in folder.iterdir()}
    assert {"embed-amd.js", "require.js", "tex-svg-full.js", "anywidget.js"} <= names
    assert sum(name.endswith(".woff2") for name in names) == 4  # the widget manager's icons; the typeface
    assert all(path.stat().st_size > 1000 for path in folder.glob("*.js"))
    notice = (folder / "NOTICE.txt").read_text()
    assert all(entry["package"] in notice for entry in json.loads(vendor.MANIFEST.read_text())["npm"])
