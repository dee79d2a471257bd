"""The package as `pip install` brings it, away from any checkout."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

pytestmark = pytest.mark.emulator
ROOT = Path(__file__).resolve().parent.parent
SOURCES = (
    "cutetut",
    "notebooks",
    "book/data",
    *("_toc.yml", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "pytest_cutetut.py"),
)

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


PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that nothing is left in this checkout."""
    copy = copied(tmp_path_factory.mktemp("copy"))
    build = [*PIP, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(copy), str(copy)]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    (built,) = copy.glob("*.whl")
    return built


def copied(copy: Path) -> Path:
    """Copy what the package is built from into a folder."""
    for name in SOURCES:
        source = ROOT / name
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        ignore = shutil.ignore_patterns("__pycache__", ".cache", ".ipynb_checkpoints")
        shutil.copytree(source, target, ignore=ignore) if source.is_dir() else shutil.copy(source, target)
    return copy


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed wheel, in the folder of a book of somebody else's."""
    site = tmp_path_factory.mktemp("book") / "site"
    (site.parent / "_toc.yml").write_text("format: jb-book\nroot: index\n")
    install = [*PIP, "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    return site


def run(site: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program outside of the checkout with the wheel's package."""
    environment = {**os.environ, "PYTHONPATH": str(site), "CUTETUT_BACKEND": "", **variables}
    return subprocess.run(command, capture_output=True, text=True, cwd=site.parent, env=environment, timeout=300)


def test_the_command_runs_other_peoples_scripts(site: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run(site, sys.executable, str(site / "bin" / "cutetut"), "emulate", str(tmp_path / "script.py"))
    assert (done.returncode, done.stdout) == (0, f"{32 * 31 // 2}\n"), done.stderr


def test_a_home_that_cannot_be_written_costs_only_the_cache(site: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    nowhere = {"HOME": "/proc/nowhere", "XDG_CACHE_HOME": "", "XDG_CONFIG_HOME": "", "CUTETUT_CACHE": ""}
    command = [sys.executable, str(site / "bin" / "cutetut"), "emulate", str(tmp_path / "script.py")]
    done = run(site, *command, **nowhere)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{32 * 31 // 2}\n", "")
    asked = run(site, *command[:2], "cache", **nowhere)
    assert asked.returncode == 0 and "/proc/nowhere/.cache/cutetut" in asked.stdout and not asked.stderr


def test_pip_is_told_which_versions_of_python_the_wheel_is_for(wheel: Path) -> None:
    """pip then refuses with: Package 'cutetut' requires a different Python: 3.10.13 not in '<3.14,>=3.11'."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    versions = SpecifierSet(metadata["Requires-Python"])
    fits = {version: versions.contains(version) for version in ("3.10.13", "3.11.0", "3.12.9", "3.13.9", "3.14.0")}
    assert fits == {"3.10.13": False, "3.11.0": True, "3.12.9": True, "3.13.9": True, "3.14.0": False}


def test_a_wheel_made_from_the_source_distribution_has_the_chapters_too(tmp_path: Path) -> None:
    """PyPI has both, and `python -m build` makes the wheel from the source distribution."""
    code = "from setuptools import build_meta; print(build_meta.build_sdist('.'))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=copied(tmp_path), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / done.stdout.split()[-1]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    patterns = "notebooks/*.ipynb", "book/data/*.json"
    needed = {str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern)}
    assert needed and needed | {"_toc.yml", "setup.py", "pytest_cutetut.py", "cutetut/py.typed"} <= names


def test_the_command_helps_and_looks_at_the_machine(site: Path) -> None:
    command = [sys.executable, str(site / "bin" / "cutetut")]
    help_, doctor = run(site, *command, "--help"), run(site, *command, "doctor")
    assert help_.returncode == 0 and help_.stdout.startswith("usage: cutetut ") and "emulate" in help_.stdout
    assert re.fullmatch(r"cutetut \d+\.\d+\.\d+\n", run(site, *command, "--version").stdout)
    assert doctor.returncode == 0 and "Kernels can run here: cutetut emulate" in doctor.stdout, doctor.stdout
    assert "free in this folder" in doctor.stdout and "make " not in doctor.stdout


@pytest.mark.parametrize("words", ["record", "record 00_start_here", "bench 06_smem_tiling", "tables"])
def test_what_would_write_into_the_installed_package_is_refused(site: Path, words: str) -> None:
    done = run(site, sys.executable, str(site / "bin" / "cutetut"), *words.split())
    assert done.returncode == 1 and "does not write into its installed package: git clone" in done.stderr, done.stderr


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
