"""A headless Chromium from npm and its driver from PyPI, kept in this Python environment: no root, no system package.

`browser.json` pins both by version and hash.  The npm package carries the browser, the libraries that it needs
beside glibc, and a font, all packed with brotli, which Node.js unpacks.  The driver must be of the browser's main
version.  Both are for Linux on x86-64 only.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = Path(__file__).with_name("browser.json")
MEGABYTES = 120  # of the two downloads together

# Reads brotli from standard input, writes what it unpacks to standard output.
UNPACK = (
    "require('stream').pipeline(process.stdin, require('zlib').createBrotliDecompress(), process.stdout,"
    "(error) => { if (error) { console.error(error.message); process.exit(1); } })"
)

# The machine's own fonts where it has some, and the font that came with the browser.
FONTS = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <include ignore_missing="yes">/etc/fonts/fonts.conf</include>
  <dir>{folder}</dir>
  <cachedir>{cache}</cachedir>
</fontconfig>
"""


class DownloadError(RuntimeError):
    """No browser could be downloaded for this machine; the message says why."""


@dataclass(frozen=True)
class Browser:
    """A browser, its driver, and the environment variables that both need."""

    program: str
    driver: str
    environment: dict[str, str] = field(default_factory=dict)


def folder() -> Path:
    """Return where the pinned browser is kept: in this Python environment, under a name of its own for each pin."""
    key = hashlib.sha256(MANIFEST.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:12]
    return Path(sys.prefix) / "share" / "cutetut-browser" / key


def downloaded() -> Browser | None:
    """Return the pinned browser if it has been downloaded."""
    here = folder()
    if not here.is_dir():
        return None
    libraries = os.pathsep.join(filter(None, (str(here / "lib"), os.environ.get("LD_LIBRARY_PATH", ""))))
    environment = {"LD_LIBRARY_PATH": libraries, "FONTCONFIG_FILE": str(here / "fonts.conf")}
    return Browser(str(here / "chromium"), str(here / "chromedriver_py" / "chromedriver_linux64"), environment)


def download() -> Browser:
    """Download the pinned browser unless that has been done. Raises DownloadError."""
    if (browser := downloaded()) is not None:
        return browser
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise DownloadError(f"no browser is pinned for {platform.system()} on {platform.machine()}")
    here = folder()
    try:
        here.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=here.parent) as scratch:
            ready = Path(scratch, "ready")
            ready.mkdir()
            _browser(Path(scratch), ready, here)
            _driver(ready)
            keep(ready, here)
    except (OSError, subprocess.SubprocessError, tarfile.TarError) as error:
        raise DownloadError(f"the browser could not be downloaded: {error}") from None
    browser = downloaded()
    assert browser is not None
    return browser


def keep(ready: Path, here: Path) -> None:
    """Give the complete folder its final name, unless another process was faster."""
    try:
        ready.rename(here)
    except OSError:
        if not here.is_dir():
            raise


def _browser(scratch: Path, ready: Path, final: Path) -> None:
    from cutetut_book import vendor

    pin = json.loads(MANIFEST.read_text())["browser"]
    spec = f"{pin['package']}@{pin['version']}"
    try:
        tarball = vendor.download(spec, pin["integrity"], scratch)
    except vendor.VendorError as error:
        raise DownloadError(str(error)) from None
    extract(tarball, scratch)
    packed = scratch / "package" / "bin"
    _unpack(packed / "chromium.br", ready / "chromium")
    (ready / "chromium").chmod(0o755)
    for name in ("al2023", "fonts", "swiftshader"):
        _unpack(packed / f"{name}.tar.br", scratch / f"{name}.tar")
        extract(scratch / f"{name}.tar", ready)
    (ready / "fonts.conf").write_text(FONTS.format(folder=final / "fonts", cache=final / "font-cache"))


def extract(path: Path, into: Path) -> None:
    """Unpack a tar file whose hash has been checked."""
    with tarfile.open(path) as archive:
        # Python 3.11.0 to 3.11.3 have no filters; what is unpacked here has the pinned hash.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(into)


def _unpack(packed: Path, to: Path) -> None:
    from cutetut_book import vendor

    node = [vendor.node_command(), "-e", UNPACK]
    with packed.open("rb") as source, to.open("wb") as target:
        done = subprocess.run(node, stdin=source, stdout=target, stderr=subprocess.PIPE, text=True, timeout=300)
    if done.returncode:
        raise DownloadError(f"{packed.name} could not be unpacked: {done.stderr.strip()}")


def _driver(ready: Path) -> None:
    """Install the driver's wheel into the folder; pip checks its hash."""
    pin = json.loads(MANIFEST.read_text())["driver"]
    requirement = ready / "driver.txt"
    requirement.write_text(f"{pin['package']}=={pin['version']} --hash=sha256:{pin['sha256']}\n")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command = [*pip, "--target", str(ready), "-r", str(requirement)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
        raise DownloadError(f"pip could not fetch {pin['package']}: {said[-1]}")
    for other in (ready / "chromedriver_py").glob("chromedriver_[mw]*"):  # of macOS and Windows
        other.unlink()
