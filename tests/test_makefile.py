"""What `make` says while it sets up, and when it cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.emulator
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with this Makefile and nothing to install."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "requirements.txt").write_text("")
    return tmp_path


def make(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PIP_"))}
    environment |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull} | variables  # nothing is fetched
    command = ["make", f"PYTHON={sys.executable}", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=180)


def with_pip(checkout: Path, program: str) -> None:
    """Give the checkout an environment whose pip is this program."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", ".venv"], cwd=checkout, check=True, timeout=120)
    (checkout / "pip.py").write_text(program)


@pytest.mark.parametrize("threads", [None, "1"])
def test_the_tests_take_cores_and_not_the_threads_of_openmp(checkout: Path, threads: str | None) -> None:
    variables = {} if threads is None else {"OMP_NUM_THREADS": threads, "OMP_THREAD_LIMIT": threads}
    cores = min(len(os.sched_getaffinity(0)), 4)
    done = make(checkout, "-n", "test", **variables)
    assert f"-n {cores} --dist loadscope" in done.stdout or cores == 1, done.stdout + done.stderr


def test_a_failed_installation_shows_what_pip_wrote_and_starts_afresh(checkout: Path) -> None:
    with_pip(checkout, "import sys\nif 'install' in sys.argv: sys.exit('ERROR: No matching distribution found')\n")
    done = make(checkout, "setup")
    assert done.returncode == 2
    assert "Installing the pinned packages" in done.stdout and "ERROR: No matching distribution found" in done.stderr
    assert not (checkout / ".venv" / ".ready").exists() and (checkout / ".venv" / ".installing").exists()


def test_progress_is_printed_while_pip_is_silent(checkout: Path) -> None:
    """pip writes two lines here and then is silent for longer than the time between two lines of progress.

    Here that is a second, and in the Makefile it is ten: this `sleep` sleeps a tenth of what it is asked for.
    """
    sleep = checkout / "bin" / "sleep"
    sleep.parent.mkdir()
    sleep.write_text(f'#!/bin/sh\nexec {shutil.which("sleep")} $(($1 / 10))\n')
    sleep.chmod(0o755)
    with_pip(
        checkout,
        "import sys, time\n"
        "if '-r' in sys.argv:\n"
        "    print('Collecting torch==2.13.0')\n"
        "    print('  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (2.1 GB)', flush=True)\n"
        "    time.sleep(1.4)\n",
    )
    done = make(checkout, "setup", PATH=f"{sleep.parent}{os.pathsep}{os.environ['PATH']}")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if "in place" in line]
    assert len(lines) == 1 and lines[0].startswith("  Downloading torch-2.13.0 (2.1 GB), "), done.stdout
    assert (checkout / ".venv" / ".ready").exists()


def test_a_python_that_is_too_old_is_named(checkout: Path) -> None:
    old = checkout / "python3.10"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.10.13" && exit 0\nexit 1\n')
    old.chmod(0o755)
    done = make(checkout, f"PYTHON={old}", "setup")
    assert done.returncode == 2 and "needs Python 3.11, 3.12 or 3.13" in done.stderr and "Python 3.10.13" in done.stderr


def test_options_reach_jupyterlab(checkout: Path) -> None:
    done = make(checkout, "-n", "lab", "LAB=--no-browser --ip=0.0.0.0")
    assert "jupyter lab --no-browser --ip=0.0.0.0" in done.stdout, done.stdout + done.stderr


def test_jupyterlab_opens_the_notebooks_and_reaches_the_pages_they_link(checkout: Path) -> None:
    """Its root is the checkout: from notebooks/ as the root, a link to ../book/ leads nowhere."""
    (command,) = (line for line in make(checkout, "-n", "lab").stdout.splitlines() if "jupyter lab" in line)
    assert command.split()[-1] == "--LabApp.default_url=/lab/tree/notebooks"
