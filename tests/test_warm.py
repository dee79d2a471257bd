"""A process that was forked warm is to its caller what Python started as it is would be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import warm

pytestmark = pytest.mark.emulator

SAYS = """
import os, sys
print(__name__, sys.argv, sys.path[0], os.getcwd(), os.environ.get("COLOUR"), os.environ.get("HOME"), input(), __file__)
print(sorted(set(sys.modules) & {"neighbour"}), "/only/here" in sys.path, file=sys.stderr)
import neighbour
"""
ENDS = {
    "exit code": "import sys; sys.exit(7)",
    "exit text": "raise SystemExit('gone')",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "aborted": "import os; os.abort()",
    "at exit": "import atexit; atexit.register(print, 'last'); print('first')",
    "C": "import ctypes; ctypes.CDLL(None).puts(b'from C')",
}


def both(folder: Path, *arguments: str) -> list[subprocess.CompletedProcess[str]]:
    """What Python does with the module it.py and these arguments, and a warm process."""
    environment = {"PATH": os.environ["PATH"], "COLOUR": "blue", "PYTHONPATH": "/only/here"}
    return [
        subprocess.run(command, input="line\n", capture_output=True, text=True, cwd=folder, env=environment, timeout=60)
        for command in ([sys.executable, "-m", "it", *arguments], warm.command("it", *arguments))
    ]


def test_it_has_the_arguments_folder_environment_and_streams_that_were_asked_for(tmp_path: Path) -> None:
    (tmp_path / "it.py").write_text(SAYS)
    (tmp_path / "neighbour.py").write_text("print('imported')")
    plain, forked = both(tmp_path, "a", "--b")
    assert plain.returncode == forked.returncode == 0, forked.stderr
    assert (plain.stdout, plain.stderr) == (forked.stdout, forked.stderr) and "imported" in forked.stdout


@pytest.mark.parametrize("name", ENDS)
def test_it_ends_as_the_program_ends(tmp_path: Path, name: str) -> None:
    (tmp_path / "it.py").write_text(ENDS[name])
    plain, forked = both(tmp_path)
    assert (plain.returncode, plain.stdout, plain.stderr) == (forked.returncode, forked.stdout, forked.stderr)


def test_torch_is_there_and_nothing_of_ours(tmp_path: Path) -> None:
    (tmp_path / "it.py").write_text("import sys; print({'torch', 'cutlass', 'cutetut', 'tests'} & set(sys.modules))")
    assert [done.stdout for done in both(tmp_path)] == ["set()\n", "{'torch'}\n"]


@pytest.mark.parametrize(("sent", "status", "said"), [(signal.SIGINT, 3, "interrupted\n"), (signal.SIGKILL, -9, "")])
def test_signals_reach_it(tmp_path: Path, sent: signal.Signals, status: int, said: str) -> None:
    """And nothing is left of it when what stands for it is killed."""
    (tmp_path / "it.py").write_text(
        "import os, sys, time\nopen('running', 'w').write(str(os.getpid()))\n"
        "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('interrupted')\n    sys.exit(3)"
    )
    running = subprocess.Popen(warm.command("it"), cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    started, deadline = tmp_path / "running", time.monotonic() + 60
    while not (started.exists() and started.read_text()):
        assert running.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    running.send_signal(sent)
    assert (running.communicate(timeout=60)[0], running.returncode) == (said, status)
    while Path(f"/proc/{started.read_text()}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
