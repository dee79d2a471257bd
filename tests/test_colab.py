"""The chapters as Colab gets them, and the cell that installs the course there."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

pytestmark = pytest.mark.emulator
FOLDER = Path(__file__).resolve().parent.parent / "examples" / "colab"
BOOTSTRAP = FOLDER / "bootstrap.py"
LINK = re.compile(r"\]\(([^)\s]*)\)")


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The programs that the cell starts; none is started."""
    started: list[list[str]] = []

    def run(command: list[str], check: bool) -> None:
        assert check, "a failed installation must not go unnoticed"
        started.append(command)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setitem(os.environ, "CUTETUT_BACKEND", "")
    monkeypatch.delitem(os.environ, "CUTETUT_BACKEND")
    return started


@pytest.fixture
def colab(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Colab's module, which writes down what it is asked for."""
    asked: list[str] = []
    google, module, output = (ModuleType(name) for name in ("google", "google.colab", "google.colab.output"))
    output.enable_custom_widget_manager = lambda: asked.append("widgets")  # type: ignore[attr-defined]
    module.output = output  # type: ignore[attr-defined]
    for each in (google, module, output):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    return asked


def texts(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


def run_cell() -> None:
    exec(compile(BOOTSTRAP.read_text(), str(BOOTSTRAP), "exec"), {"__name__": "__main__"})


def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> importlib.machinery.ModuleSpec | None:
        return None if name == "cutetut" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)


def test_where_the_course_is_installed_the_cell_does_nothing(commands: list[list[str]]) -> None:
    run_cell()
    assert commands == [] and "CUTETUT_BACKEND" not in os.environ


def test_on_colab_it_installs_the_course_and_lets_widgets_be_shown(
    commands: list[list[str]], colab: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing(monkeypatch)
    run_cell()
    assert [command[1:4] for command in commands] == [["-m", "pip", "install"]]
    assert commands[0][-1].startswith("cutetut[course] @ git+https://github.com/")
    assert colab == ["widgets"] and os.environ["CUTETUT_BACKEND"] == "emulator"


def test_elsewhere_it_installs_the_course_only(commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    missing(monkeypatch)
    run_cell()
    assert len(commands) == 1 and "CUTETUT_BACKEND" not in os.environ


def test_every_chapter_is_written_with_the_cell_after_its_title_and_links_to_what_is_published(tmp_path: Path) -> None:
    program = [sys.executable, str(FOLDER / "notebooks.py"), str(tmp_path / "out")]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    chapters = sorted((FOLDER.parents[1] / "notebooks").glob("*.ipynb"))
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == [path.name for path in chapters] != []
    for path in chapters:
        written = nbformat.read(tmp_path / "out" / path.name, as_version=4)
        nbformat.validate(written)
        title, cell = written.cells[:2]
        assert title.source.startswith("# ") and cell.source == BOOTSTRAP.read_text().rstrip("\n")
        del written.cells[1]
        assert all(link.startswith("https://") for cell in texts(written) for link in LINK.findall(cell.source))
        original = nbformat.read(path, as_version=4)
        for cell in (*texts(written), *texts(original)):
            cell.source = LINK.sub("]()", cell.source)
        assert written == original


def test_without_a_folder_it_says_what_to_type() -> None:
    done = subprocess.run([sys.executable, str(FOLDER / "notebooks.py")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "Usage: notebooks.py FOLDER" in done.stderr
