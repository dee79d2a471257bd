"""A headless Chromium for the tests of the built book; `python -m tests.book.browser` sees to it that there is one.

It is the machine's own, or where there is none the one that `browser_download` brings.  It resolves no host name but
this machine's, so a page that needs the network fails here as it would for a reader without one.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.book import browser_download
from tests.book.browser_download import Browser

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DRIVERS = ("chromedriver", "chromium.chromedriver", "/usr/lib/chromium-browser/chromedriver")
NO_SKIPS = "CUTETUT_NO_SKIPS"
HOW_TO_INSTALL = (
    "Install Chromium and its driver (Debian: apt-get install chromium chromium-driver; "
    "Ubuntu: snap install chromium), or set CUTETUT_BROWSER and CUTETUT_BROWSER_DRIVER "
    "to the paths of Chrome or Chromium and of its chromedriver."
)

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
    """No browser is installed, or it does not start; the message says which, HOW_TO_INSTALL what to do."""


def candidates() -> list[Browser]:
    """Return the browser that CUTETUT_BROWSER names, else the machine's and the downloaded one, those that exist."""
    program = os.environ.get("CUTETUT_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = os.environ.get("CUTETUT_BROWSER_DRIVER") or next(filter(None, map(shutil.which, DRIVERS)), None)
    own = [Browser(program, driver)] if program and driver else []
    downloaded = None if os.environ.get("CUTETUT_BROWSER") else browser_download.downloaded()
    return own + ([downloaded] if downloaded else [])


@functools.cache
def find() -> Browser:
    """Return the first candidate that starts. Raises NoBrowser."""
    reason = "Found no Chromium with a chromedriver"
    for browser in candidates():
        try:
            _start(browser, FLAGS).quit()
            return browser
        except NoBrowser as error:
            reason = str(error)
    raise NoBrowser(reason)


@contextmanager
def chromium(width: int = 1280, height: int = 900, *extra_flags: str) -> Iterator[Chrome]:
    """Yield a browser with a fresh profile and a viewport of `width` x `height` pixels. Raises NoBrowser."""
    # The driver gives each session a profile of its own; a headless shell does not start with one of ours.
    chrome = _start(find(), (*FLAGS, *extra_flags, f"--window-size={width},{height}"))
    try:
        # A window has a least width; a phone's is set on the page instead.
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        yield chrome
    finally:
        chrome.quit()


def _start(browser: Browser, flags: tuple[str, ...]) -> Chrome:
    from selenium import webdriver
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = browser.program
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for flag in flags:
        options.add_argument(flag)
    service = Service(browser.driver, env={**os.environ, **browser.environment})
    try:
        return webdriver.Chrome(options=options, service=service)
    except (WebDriverException, OSError) as error:
        why = " ".join(str(getattr(error, "msg", None) or error).split("Stacktrace")[0].split())
        raise NoBrowser(_broken(browser) or f"{browser.program} does not start: {why.rstrip('.')}") from None


def _broken(browser: Browser) -> str:
    """Return what the loader says of a program that cannot even tell its version; empty when both can."""
    for program in (browser.driver, browser.program):
        try:
            command, environment = [program, "--version"], {**os.environ, **browser.environment}
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{program} does not start: {error}"
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
            return f"{program} does not start: {said[-1].removeprefix(f'{program}: ')}"
    return ""


def why_not() -> str:
    """Return why no browser starts here, in one line; empty when one starts."""
    try:
        find()
        return ""
    except NoBrowser as error:
        return str(error)


def until(seen: Any, condition: Callable[[Any], Any], why: str = "", seconds: float = 30) -> Any:
    """Return what `condition` returns of a browser or of an element as soon as that is true. Raises TimeoutException.

    Selenium itself would look every half second, and tests would sleep for minutes.
    """
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(seen, seconds, poll_frequency=0.05).until(condition, why)


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


def main() -> int:
    """Download a browser where none starts; return 1 where that is impossible and no test may be skipped."""
    reason = why_not()
    if reason and not os.environ.get("CUTETUT_BROWSER") and browser_download.downloaded() is None:
        print(f"No Chromium starts here: downloading one for the tests ({browser_download.MEGABYTES} MB)", flush=True)
        try:
            browser_download.download()
            reason = why_not()
        except browser_download.DownloadError as error:
            reason = f"{error}. {reason}"
    if not reason:
        return 0
    print(f"The tests that need a browser cannot run: {reason}. {HOW_TO_INSTALL}", file=sys.stderr)
    return 1 if os.environ.get(NO_SKIPS) else 0


if __name__ == "__main__":
    sys.exit(main())
