"""What is installed: the pinned packages are those that pyproject.toml asks for, and what is stated twice agrees."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cutetut import backend

pytestmark = pytest.mark.emulator
ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
LOCK = ROOT / "requirements.txt"
DOCS = ROOT / "book" / "requirements.txt"
BUILD = "PYTHONPATH=. jupyter-book build . -W -n --keep-going"


def pins(path: Path) -> dict[str, str]:
    """Return the version of each package that a file of pinned packages names."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    found: dict[str, str] = {}
    for line in lines:
        match = re.fullmatch(r"([\w.-]+)==(\S+)( +#.*)?", line)
        assert match, f"{path.name}: not a pin: {line}"
        found[canonicalize_name(match[1])] = match[2]
    assert len(found) == len(lines), f"{path.name} pins a package twice"
    return found


def asked_for(*lists: list[str]) -> list[Requirement]:
    return [Requirement(text) for requirements in lists for text in requirements]


EXTRAS = PROJECT["optional-dependencies"]
ALL = asked_for(PROJECT["dependencies"], *(EXTRAS[name] for name in ("course", "book", "test")))


@pytest.mark.parametrize(
    ("path", "requirements"), [(LOCK, ALL), (DOCS, asked_for(PYPROJECT["dependency-groups"]["docs"]))]
)
def test_the_pins_are_what_pyproject_asks_for(path: Path, requirements: list[Requirement]) -> None:
    pinned = pins(path)
    for requirement in requirements:
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not pinned in {path.name}: make lock"
        assert requirement.specifier.contains(version), f"{path.name} has {requirement.name} {version}: make lock"


def test_no_extra_is_left_out_of_the_pins() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert set(re.findall(r"--extra (\w+)", makefile)) == set(EXTRAS)


def test_both_books_are_built_with_the_same_versions() -> None:
    everything, docs = pins(LOCK), pins(DOCS)
    assert {name: everything.get(name) for name in docs} == docs


def test_the_pins_force_no_build_of_torch() -> None:
    """Which CUDA packages torch needs, its own metadata says; a CPU build needs none."""
    forced = [name for name in pins(LOCK) if name.endswith(("-cu12", "-cu13")) and "cutlass" not in name]
    assert forced == [] and "triton" not in pins(LOCK) and "nvidia-cuda-runtime" not in pins(LOCK)


def test_what_builds_the_published_book_has_no_torch() -> None:
    assert not {"torch", backend.DSL_PACKAGE, "llvmlite", "cutetut"} & set(pins(DOCS))
    jobs = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text())["build"]["jobs"]
    assert jobs["install"] == ["pip install -r book/requirements.txt"]
    steps = yaml.safe_load((ROOT / ".github/workflows/book.yml").read_text())["jobs"]["build"]["steps"]
    assert BUILD in jobs["build"]["html"] and BUILD in [step.get("run") for step in steps]


def test_the_published_book_finds_its_extension_where_nothing_of_this_is_installed() -> None:
    """As in a fresh environment: without .pth files, by which this checkout is installed, and without torch."""
    name, value = BUILD.split(" ")[0].split("=")
    code = f"""import sys; sys.path += [{sysconfig.get_path("purelib")!r}, "book/_ext"]
sys.modules.update(torch=None, cutlass=None, llvmlite=None); import cutetut_book"""
    command = [sys.executable, "-P", "-S", "-c", code]
    for environment, found in (({name: value}, True), ({}, False)):
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert (done.returncode == 0) == found, done.stderr


def test_one_version_of_the_compiler_everywhere() -> None:
    dsl = Requirement(next(text for text in PROJECT["dependencies"] if text.startswith(backend.DSL_PACKAGE)))
    assert str(dsl.specifier) == f"=={backend.DSL_VERSION}" and pins(LOCK)[backend.DSL_PACKAGE] == backend.DSL_VERSION
