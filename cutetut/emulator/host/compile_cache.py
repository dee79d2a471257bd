"""Compiled kernels on disk, and their machine code as text: a second process does not do again what a first one did.

An entry is found by a hash of everything that went into it, and never changes.  It is one zip file, which carries
checksums: a file that was cut short counts as no entry.  Entries appear under their names when they are whole, so any
number of processes may share the folder.  A folder that cannot be written means no cache, never an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

VARIABLE = "CUTETUT_CACHE"  # a folder, or "off"
LARGEST = 1 << 29  # bytes in all entries; those not used for longest go first
FEW = 7 / 8  # of LARGEST stays when there is too much, so that not every new entry has to make room
LOOK = 1 / 64  # of LARGEST: after about this many new bytes the folder, of thousands of files, is looked through
_SUFFIX, _UNFINISHED = ".zip", ".unfinished-"
_OURS = re.compile(rf"[0-9a-f]{{64}}{re.escape(_SUFFIX)}|{re.escape(_UNFINISHED)}.*")


def folder() -> Path | None:
    """Where the entries are; None when the variable says "off"."""
    chosen = os.environ.get(VARIABLE, "").strip()
    if chosen.lower() in ("off", "0"):
        return None
    if chosen:
        return Path(chosen).expanduser()
    with contextlib.suppress(RuntimeError):  # no home folder
        return user_cache() / "compiled"
    return None


def user_cache() -> Path:
    """This package's folder in the user's cache (XDG base directory specification); RuntimeError without a home."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(chosen) if os.path.isabs(chosen) else Path.home() / ".cache") / "cutetut"


def key(*parts: bytes) -> str:
    """The name of the entry made from these parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def load(name: str) -> dict[str, bytes] | None:
    """The files of an entry, by name; None when there is none, or none that is whole."""
    if (path := _path(name)) is None:
        return None
    try:
        with zipfile.ZipFile(path) as entry:
            files = {each: entry.read(each) for each in entry.namelist()}
        os.utime(path)  # it was used just now
    except FileNotFoundError:
        return None
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError):
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    return files


def store(name: str, files: Mapping[str, bytes]) -> None:
    """Keep an entry; where that cannot be done, nothing happens."""
    if (path := _path(name)) is None:
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(prefix=_UNFINISHED, dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                _write(file, files)
            os.replace(unfinished, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
            raise
        if _is_turn(name, path.stat().st_size):
            _make_room(path.parent)


def _is_turn(name: str, nbytes: int) -> bool:
    """Whether this entry looks for what must go: a share of entries that grows with their size, drawn by their names.

    So processes that store one entry each look through the folder as often as one that stores them all.
    """
    return int(name[:8], 16) / 2**32 < nbytes / (LOOK * LARGEST)


def _write(file: BinaryIO, files: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as entry:
        for each, content in files.items():
            entry.writestr(each, content)


@dataclass(frozen=True)
class Use:
    """What the cache holds; `folder` is None when it is off."""

    folder: Path | None
    entries: int
    nbytes: int


def use() -> Use:
    """How many entries are kept, and in how many bytes."""
    where = folder()
    entries = _entries(where) if where is not None else []
    return Use(where, len(entries), sum(nbytes for _, nbytes, _ in entries))


def why_not() -> str:
    """Why nothing can be kept, in the system's words; empty where it can, or where the cache is off.

    Makes nothing: of a folder that is not there yet it tries the one that it would be made in.
    """
    where = folder()
    try:
        if where is not None:
            there = next(path for path in (where, *where.parents) if path.exists())
            tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def clear() -> Use:
    """Remove every entry; returns what there was."""
    before = use()
    if before.folder is not None:
        for _, _, path in _entries(before.folder):
            with contextlib.suppress(OSError):
                os.unlink(path)
    return before


def _path(name: str) -> Path | None:
    where = folder()
    return None if where is None else where / (name + _SUFFIX)


def _entries(where: Path) -> list[tuple[float, int, str]]:
    """(time of last use, bytes, path) of each entry, and of what an interrupted process left; no other file."""
    found = []
    with contextlib.suppress(OSError), os.scandir(where) as listing:
        for item in listing:
            if not _OURS.fullmatch(item.name):
                continue
            with contextlib.suppress(OSError):  # another process has just removed it
                status = item.stat()
                found.append((status.st_mtime, status.st_size, item.path))
    return found


def _make_room(where: Path) -> None:
    entries = _entries(where)
    total = sum(nbytes for _, nbytes, _ in entries)
    if total <= LARGEST:
        return
    for _, nbytes, path in sorted(entries):
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= nbytes
        if total <= LARGEST * FEW:
            return
