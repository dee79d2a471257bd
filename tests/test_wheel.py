"""The package as `pip install` brings it, away from any checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.emulator
ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("cutetut", "notebooks", "book/data", "_toc.yml", "setup.py", "pyproject.toml", "README.md", "LICENSE")

SCRIPT = """
import cutlass, cutlass.cute as cute, torch
from cutlass.cute.runtime import from_dlpack

@cute.kernel
def kernel(x: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    x[tid] = cutlass.Float32(tid)

@cute.jit
def host(x: cute.Tensor):
    kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1))

x = torch.zeros(32, device="cuda")
host(from_dlpack(x))
print(int(x.sum()))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed wheel, built from a copy so that nothing is left in this checkout."""
    copy, site = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("site")
    for name in SOURCES:
        source = ROOT / name
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        ignore = shutil.ignore_patterns("__pycache__", ".cache", ".ipynb_checkpoints")
        shutil.copytree(source, target, ignore=ignore) if source.is_dir() else shutil.copy(source, target)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    wheel = [*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(copy), str(copy)]
    subprocess.run(wheel, check=True, capture_output=True, timeout=300)
    (built,) = copy.glob("*.whl")
    install = [*pip, "install", "--quiet", "--no-deps", "--target", str(site), str(built)]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    return site


def run(site: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a program outside of the checkout with the wheel's package."""
    environment = {**os.environ, "PYTHONPATH": str(site), "CUTETUT_BACKEND": ""}
    return subprocess.run(command, capture_output=True, text=True, cwd=site.parent, env=environment, timeout=300)


def test_the_command_runs_other_peoples_scripts(site: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run(site, sys.executable, str(site / "bin" / "cutetut"), "emulate", str(tmp_path / "script.py"))
    assert (done.returncode, done.stdout) == (0, f"{32 * 31 // 2}\n"), done.stderr


def test_the_command_helps_and_looks_at_the_machine(site: Path) -> None:
    command = [sys.executable, str(site / "bin" / "cutetut")]
    help_, doctor = run(site, *command, "--help"), run(site, *command, "doctor")
    assert help_.returncode == 0 and help_.stdout.startswith("usage: cutetut ") and "emulate" in help_.stdout
    assert re.fullmatch(r"cutetut \d+\.\d+\.\d+\n", run(site, *command, "--version").stdout)
    assert doctor.returncode == 0 and "can run here" in doctor.stdout, doctor.stdout


def test_a_downloaded_notebook_finds_tables_and_other_chapters(site: Path) -> None:
    code = (
        "from cutetut.course import notebooks\nfrom cutetut.measure import bench\n"
        "assert notebooks.project_root() == notebooks.INSTALLED\n"
        "for path in notebooks.toc():\n"
        "    print(path.stem, bench.data_file(path.stem).is_file())\n"
        "print(bench.read('05_partition_c')['rows'] != [], notebooks.load('04_scalar_fma_gemm').__name__)"
    )
    done = run(site, sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert "05_partition_c True" in done.stdout and "True cutetut_notebook_04_scalar_fma_gemm" in done.stdout
    assert not list((site / "cutetut").rglob(".cache")), "what is installed stays as it is"
