"""The notebooks are tests, too: nbval executes each cell in this session and compares its output with the recorded one.

    pytest notebooks/07_mma_sync.ipynb

What may differ between machines has a pattern in tests/nbval_sanitize.cfg; no cell is left out.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests import warm

ROOT = Path(__file__).resolve().parent
KERNEL = "cutetut-tests"


def pytest_configure(config: pytest.Config) -> None:
    if config.pluginmanager.hasplugin("nbval"):
        config.option.nbval = True
        config.option.nbval_kernel_name = KERNEL
        config.option.nbval_cell_timeout = 600
        config.option.nbval_sanitize_with = str(ROOT / "tests" / "nbval_sanitize.cfg")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Make the Jupyter kernel that executes notebooks: this Python, with the environment of a reader.

    With pytest's PYTEST_CURRENT_TEST in it, ipykernel leaves out what C code prints, and on a GPU that is what
    cute.printf prints.
    """
    if not any(item.path.suffix == ".ipynb" for item in session.items):
        return
    python = ["env", "-u", "PYTEST_CURRENT_TEST", *warm.command("ipykernel_launcher", "-f", "{connection_file}")]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {"PYTHONPATH": path, "CUTETUT_PROGRESS": "0"}
    spec = {"argv": python, "display_name": KERNEL, "language": "python", "env": environment}
    folder = Path(tempfile.mkdtemp(prefix="cutetut-kernel-"))
    session.config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    (folder / "kernels" / KERNEL).mkdir(parents=True)
    (folder / "kernels" / KERNEL / "kernel.json").write_text(json.dumps(spec))
    os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("JUPYTER_PATH")]))
