"""Builds the book once for all test modules that look at its pages."""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


def toc_files() -> list[str]:
    """Return every file that `_toc.yml` names, in its order."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    chapters = [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]
    return [toc["root"], *chapters]


def notebooks() -> list[str]:
    """Return the chapters that `_toc.yml` names."""
    return [name for name in toc_files() if name.startswith("notebooks/")]


# What publishes the book has none of these, only what book/requirements.txt lists; with this they cannot be imported.
REFUSE = """
import sys
sys.modules.update(dict.fromkeys(("torch", "cutlass", "cuda", "llvmlite")))
"""


def jupyter_book(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Build a book with every warning an error, as where neither torch nor CuTe DSL is installed."""
    program = str(Path(sys.executable).with_name("jupyter-book"))
    path = [str(out), str(ROOT), os.environ.get("PYTHONPATH", "")]  # whichever checkout's package is installed
    (out / "sitecustomize.py").write_text(REFUSE)
    return subprocess.run(
        [program, "build", str(source), "--path-output", str(out), "-W", "-n", "--keep-going"],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "NO_COLOR": "1", "PYTHONPATH": os.pathsep.join(filter(None, path))},
    )


@functools.cache
def built() -> Path:
    """Build the book afresh, once in a test run; return the folder with its pages."""
    out = Path(tempfile.mkdtemp(prefix="cutetut-book-")).resolve()
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    done = jupyter_book(ROOT, out)
    said = done.stdout + done.stderr
    report = [line for line in said.splitlines() if re.search("WARNING|ERROR|Error", line)]
    assert done.returncode == 0, "\n".join(report) or said[-5000:]
    return out / "_build" / "html"
