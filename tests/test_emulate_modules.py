"""`python -m cutetut emulate -m module`, against `python -m module`; and where emulated programs keep their files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cutetut import emulate
from tests import warm

pytestmark = pytest.mark.emulator

ROOT = Path(__file__).resolve().parent.parent
SHOW = "import sys\nfrom . import neighbour\nprint(neighbour.VALUE, sys.argv, __package__, __name__, sys.path[0])\n"
FILES = {
    "pack/__init__.py": "",
    "pack/__main__.py": SHOW,
    "pack/neighbour.py": "VALUE = 42\n",
    "pack/tool.py": SHOW + "raise SystemExit(3)\n",
    "pack/fails.py": "def f():\n    return 1 / 0\nf()\n",
    "pack/misses.py": "import no_such_module_at_all\n",
    "pack/inner/__init__.py": "",
    "plain.py": "import sys; print(sys.argv, __name__, __spec__.name)\n",
}
CALLS = [
    ["pack", "-x", "1"],
    ["pack.tool", "-m", "more", "--help"],
    ["plain", "script.py"],
    ["pack.fails"],
    ["pack.misses"],
    ["no_such_module_at_all"],
    ["pack.inner"],
    ["pack.nothing.at_all"],
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        warm.command(*command) if command[0] == "cutetut" else [sys.executable, "-m", *command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_modules_run_as_under_python(folder: Path, call: list[str]) -> None:
    expected, done = run(*call, cwd=folder), run("cutetut", "emulate", "-m", *call, cwd=folder)
    assert (done.returncode, done.stdout) == (expected.returncode, expected.stdout)
    without_runner = [line for line in expected.stderr.splitlines() if "<frozen runpy>" not in line]
    assert done.stderr.splitlines() == without_runner


def test_pytest_as_a_module_runs_tests_on_the_device(folder: Path) -> None:
    (folder / "test_device.py").write_text(
        "import torch\n"
        "def test_device():\n    assert torch.zeros(2, device='cuda').is_cuda\n"
        "def test_wrong():\n    assert torch.zeros(2, device='cuda').sum() == 1\n"
    )
    done = run("cutetut", "emulate", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_device.py", cwd=folder)
    assert done.returncode == 1 and "1 failed, 1 passed" in done.stdout
    done = run("cutetut", "emulate", "-m", "pytest", "-q", "test_device.py", "-k", "not wrong", cwd=folder)
    assert done.returncode == 0 and "1 passed, 1 deselected" in done.stdout


def test_a_module_leaves_the_process_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    before = list(sys.argv), list(sys.path), sys.modules["__main__"]
    assert emulate.run("plain", ["a"], module=True) == 0
    assert (sys.argv, sys.path, sys.modules["__main__"]) == before


# -- files ----------------------------------------------------------------------------------------


def test_kernel_caches_of_other_packages_are_left_alone(tmp_path: Path) -> None:
    """As quack does: a cache that is switched on by default, in a folder of the user's."""
    (tmp_path / "program.py").write_text(
        "import os\n"
        "for prefix in ('QUACK', 'FLASH_ATTENTION_CUTE_DSL'):\n"
        "    print(os.getenv(prefix + '_CACHE_ENABLED', '1'), os.getenv(prefix + '_CACHE_DIR', 'the default'))\n"
    )
    users = tmp_path / "users"
    users.mkdir()
    done = run("cutetut", "emulate", "program.py", cwd=tmp_path, XDG_CACHE_HOME=str(tmp_path / "xdg"),
               QUACK_CACHE_DIR=str(users), FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED="1")  # fmt: skip
    own = tmp_path / "xdg" / "cutetut" / "emulate"
    assert done.stdout.splitlines() == [f"0 {own / 'quack'}", f"0 {own / 'flash_attention'}"], done.stderr
    assert not list(users.iterdir()) and not own.exists()


def test_the_cache_is_where_the_xdg_specification_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value, parent in (("/somewhere", Path("/somewhere")), ("", tmp_path / ".cache"), ("a/b", tmp_path / ".cache")):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert emulate.own_cache() == parent / "cutetut" / "emulate"


def test_without_a_home_folder_the_cache_is_a_temporary_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert emulate.own_cache() == Path(tempfile.gettempdir()) / f"cutetut-{os.getuid()}" / "emulate"
