"""Which exercises a reader has solved: a line for each in a small file of the user's, which `cutetut progress` reads.

Only JupyterLab tells a kernel which notebook and which cell it runs, and what the cell's metadata are. So nothing is
kept where a check runs elsewhere: in tests, in `cutetut run` and `cutetut record`, or in a cell with a solution.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
from pathlib import Path
from typing import Any

LARGEST = 1 << 16  # bytes: a file that has become larger is no list of exercises
NOTEBOOK = "JPY_SESSION_NAME"  # Jupyter's server sets it to the notebook's path


def file() -> Path:
    """Where the list is, in the user's state (XDG base directory specification); RuntimeError without a home."""
    chosen = os.environ.get("XDG_STATE_HOME", "")
    return (Path(chosen) if os.path.isabs(chosen) else Path.home() / ".local" / "state") / "cutetut" / "right.txt"


def here() -> str | None:
    """The exercise whose cell JupyterLab is running for a reader, as "04_scalar_fma_gemm/ex1"; None elsewhere."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    request: Any = getattr(shell, "parent_header", None) or {}
    metadata, notebook = request.get("metadata", {}), Path(os.environ.get(NOTEBOOK, "")).stem
    cell, ours = metadata.get("cellId"), metadata.get("cutetut")
    if not (notebook and isinstance(cell, str) and isinstance(ours, dict) and "difficulty" in ours):
        return None
    return f"{re.sub(r'-Copy[0-9]*$', '', notebook)}/{cell}"  # what JupyterLab calls a duplicate


def keep(exercise: str) -> None:
    """Add an exercise to the list, once, whatever other processes do at the same time. Raises OSError, RuntimeError."""
    path = file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as listed:
        fcntl.flock(listed, fcntl.LOCK_EX)
        listed.seek(0)
        text = listed.read(LARGEST + 1)
        if exercise in text.splitlines():
            return
        if len(text) + len(exercise) >= LARGEST:
            raise OSError(f"{path} has more than {LARGEST >> 10} KiB")
        cut_off = text and not text.endswith("\n")  # where a disk was full
        listed.write("\n" * bool(cut_off) + exercise + "\n")


def note() -> None:
    """Keep the exercise that runs here, if one does; where that fails, print one line that says why."""
    try:
        if exercise := here():
            keep(exercise)
    except (OSError, RuntimeError, UnicodeDecodeError) as error:
        print(f"(`cutetut progress` will not know: {error})")


def kept() -> set[str]:
    """What is in the list. Raises OSError, RuntimeError or UnicodeDecodeError if it cannot be read."""
    try:
        with file().open(encoding="utf-8") as listed:
            return set(listed.read(LARGEST).splitlines())
    except FileNotFoundError:
        return set()
