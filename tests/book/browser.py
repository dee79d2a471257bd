"""A headless Chromium for the tests of the built book; run as a script it says whether one is installed.

The browser is the machine's own: nothing is downloaded. It resolves no host name but this machine's,
so a page that needs the network fails here as it would for a reader without one.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DRIVERS = ("chromedriver", "chromium.chromedriver", "/usr/lib/chromium-browser/chromedriver")
HOW_TO_INSTALL = """\
The book's tests need Chromium and its driver. Found: browser {browser}, driver {driver}.
  Debian:  sudo apt-get update && sudo apt-get install chromium chromium-driver
  Ubuntu:  sudo snap install chromium
  else:    set CUTETUT_BROWSER to Chrome or Chromium, CUTETUT_BROWSER_DRIVER to its chromedriver"""

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",  # containers have a small /dev/shm
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


class NoBrowser(RuntimeError):
    """No Chromium, or no driver for it, is installed; the message says what to type."""


def find() -> tuple[str, str]:
    """Return the paths of the browser and of its driver. Raises NoBrowser."""
    browser = os.environ.get("CUTETUT_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = os.environ.get("CUTETUT_BROWSER_DRIVER") or next(filter(None, map(shutil.which, DRIVERS)), None)
    if browser is None or driver is None:
        raise NoBrowser(HOW_TO_INSTALL.format(browser=browser or "none", driver=driver or "none"))
    return browser, driver


@contextmanager
def chromium(width: int = 1280, height: int = 900, *extra_flags: str) -> Iterator[Chrome]:
    """Yield a browser with a fresh profile and a viewport of `width` x `height` pixels."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    browser, driver = find()
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, *extra_flags, f"--window-size={width},{height}", f"--user-data-dir={profile}"):
            options.add_argument(flag)
        chrome = webdriver.Chrome(options=options, service=Service(driver))
        try:
            # A window has a least width; a phone's is set on the page instead.
            metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
            chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            yield chrome
        finally:
            chrome.quit()


def console_errors(chrome: Chrome) -> list[str]:
    """Return the messages of the page's console at level error since the last call."""
    return [entry["message"] for entry in chrome.get_log("browser") if entry["level"] == "SEVERE"]


def requested(chrome: Chrome) -> list[str]:
    """Return the addresses that the pages asked for since the last call, the browser's own left out."""
    log = chrome.get_log("performance")
    messages: list[dict[str, Any]] = [json.loads(entry["message"])["message"] for entry in log]
    addresses = [
        m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"
    ]
    return [address for address in addresses if not address.startswith("chrome")]


if __name__ == "__main__":
    try:
        find()
    except NoBrowser as missing:
        sys.exit(str(missing))
