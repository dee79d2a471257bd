"""With several processes the tests of a file share one, so that what a fixture compiled is compiled once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = """import os, pytest
@pytest.mark.parametrize("i", range(8))
def test_it(i):
    print("process", os.getpid())
"""


def test_a_file_runs_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(TESTS)
    command = ["-m", "pytest", "-q", "-n", "2", "--dist", "loadscope", "-rP", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert "16 passed" in done.stdout, done.stdout + done.stderr
    processes = [line for line in done.stdout.splitlines() if line.startswith("process ")]
    assert len(processes) == 16 and len(set(processes)) == 2
