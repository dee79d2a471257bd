"""With several processes the tests of a file share one, so that what a fixture compiled is compiled once.

The files that take longest come first: then no process is left with one of them when the others have ended.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import LONGEST, OF_THE_BOOK

ROOT = Path(__file__).resolve().parent.parent
TESTS = """import os, pytest
@pytest.mark.parametrize("i", range(8))
def test_it(i):
    print("process", os.getpid())
"""


def _pytest(folder: Path, *options: str) -> str:
    """What pytest with two processes prints of two files of tests in the folder, one of them of LONGEST."""
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    for name in ("test_a.py", LONGEST[-1]):
        (folder / name).write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadscope"]
    less = ["-p", "no:cacheprovider", "-p", "no:nbval"]  # nbval takes a second to import
    done = subprocess.run(
        [*command, *less, *options, str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout + done.stderr


def test_a_file_runs_in_one_process(tmp_path: Path) -> None:
    said = _pytest(tmp_path, "-rP")
    assert "16 passed" in said, said
    processes = [line for line in said.splitlines() if line.startswith("process ")]
    assert len(processes) == 16 and len(set(processes)) == 2


def test_what_takes_longest_begins(tmp_path: Path) -> None:
    found = [line.split("::")[0] for line in _pytest(tmp_path, "--collect-only").splitlines() if "::" in line]
    assert [Path(file).name for file in found] == [LONGEST[-1]] * 8 + ["test_a.py"] * 8
    assert set(LONGEST) <= {file.name for file in (ROOT / "tests").rglob("test_*.py")}


def test_all_files_that_look_at_the_built_book_share_it() -> None:
    """A file that is missing in OF_THE_BOOK may run in another process, which then builds the book once more."""
    imports = re.compile(r"^from tests\.book\.building import .*\bbuilt\b", re.MULTILINE)
    looking = {file.name for file in (ROOT / "tests").rglob("test_*.py") if imports.search(file.read_text())}
    assert looking == set(OF_THE_BOOK)
