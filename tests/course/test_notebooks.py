"""Finding, reading, writing and loading notebooks."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

import nbformat
import pytest

from cutetut.course import notebooks
from cutetut.course.notebooks import NotebookError

ROOT = Path(__file__).resolve().parents[2]
HOPPER_NAMES = re.compile(r"\b(H100|H200|GH200|H800|H20)\b")


# --- finding and reading


def test_a_checkout_has_the_package_and_other_books_are_none(tmp_path, monkeypatch):
    """`_toc.yml` alone says nothing: every Jupyter Book of version 1 has one."""
    package, book, clone = tmp_path / "site" / "cutetut", tmp_path / "book", tmp_path / "book" / "clone"
    for folder in (package / "curriculum", book, clone / "cutetut", clone / "notebooks"):
        folder.mkdir(parents=True)
    for file in (book / "_toc.yml", clone / "_toc.yml", clone / "cutetut" / "__init__.py"):
        file.touch()
    monkeypatch.setattr(notebooks, "_PACKAGE", package)
    monkeypatch.setattr(notebooks, "INSTALLED", package / "curriculum")
    monkeypatch.chdir(book)
    with pytest.raises(NotebookError, match="no checkout of cutetut is here or above: cd into one, or git clone"):
        notebooks.project_root()
    (package / "curriculum" / "_toc.yml").touch()
    assert notebooks.project_root() == package / "curriculum"
    monkeypatch.chdir(clone / "notebooks")
    assert notebooks.project_root() == clone


def test_toc_gives_the_notebooks_in_its_order(make):
    second, first = make("05_b", "1"), make("04_a", "1")
    assert notebooks.toc() == [second, first]


def test_toc_names_what_is_missing(make, project):
    make("04_a", "1").unlink()
    with pytest.raises(NotebookError, match="_toc.yml lists notebooks/04_a, which does not exist"):
        notebooks.toc()
    (project / "_toc.yml").write_text("a: [1")
    with pytest.raises(NotebookError, match="_toc.yml cannot be read"):
        notebooks.toc()


def test_a_notebook_is_found_by_name_file_and_path(make):
    path = make("04_a", "1")
    assert notebooks.find("04_a") == notebooks.find("04_a.ipynb") == notebooks.find(path) == path
    with pytest.raises(NotebookError, match="no notebook named 06_c; there are: 04_a"):
        notebooks.find("06_c")


def test_a_damaged_notebook_is_named(make):
    make("04_a", "1").write_text("{ not json")
    with pytest.raises(NotebookError, match="04_a.ipynb is not a valid notebook"):
        notebooks.read("04_a")


@pytest.mark.parametrize("text", ["{ not json", "[]", "{}", '{"cells": [{"cell_type": "code", "source": 1}]}'])
def test_kernels_of_a_damaged_notebook_are_not_loaded(make, text):
    make("04_a", "1").write_text(text)
    with pytest.raises(NotebookError, match="04_a.ipynb is not a valid notebook"):
        notebooks.load("04_a")


def test_a_changed_kernel_is_a_module_of_its_own(make):
    make("04_a", ("import math", ["imports"]), ("x = 1\ny = 2", ["kernel"]))
    kernel = notebooks.changed("04_a", [("x = 1", "x = math.pi")])
    assert kernel.x > 3 and kernel.y == 2 and notebooks.load("04_a").x == notebooks.changed("04_a").x == 1
    assert notebooks.changed("04_a", [("x = 1", "x = math.pi")]) is kernel


@pytest.mark.parametrize("old", ["z = 3", " = "])
def test_a_change_must_hit_one_place(make, old):
    make("04_a", ("x = 1\ny = 2", ["kernel"]))
    with pytest.raises(NotebookError, match="04_a: found [02] times, and must be there once"):
        notebooks.changed("04_a", [(old, "")])


def test_the_hash_covers_code_and_nothing_else(make):
    book = notebooks.read(make("04_a", "x = 1", "y = 2"))
    before = notebooks.code_hash(book)
    book.cells[0].source = "# Another title"
    book.cells[1].outputs = [nbformat.v4.new_output("stream", text="1")]
    assert notebooks.code_hash(book) == before
    book.cells[1].source, book.cells[2].source = "x = 1y", " = 2"  # the boundary between cells counts
    assert notebooks.code_hash(book) != before


def test_writing_replaces_the_file_whole_and_keeps_its_mode(make):
    path = make("04_a", "x = 1")
    path.chmod(0o640)
    book = notebooks.read(path)
    book.metadata["mark"] = 1
    notebooks.write(book, path)
    assert notebooks.read(path).metadata["mark"] == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    before = path.read_bytes()
    book.metadata["mark"] = object()  # cannot be serialised
    with pytest.raises(TypeError):
        notebooks.write(book, path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["04_a.ipynb"]


def test_a_full_disk_leaves_the_old_file(make, monkeypatch):
    path = make("04_a", "x = 1")
    before = path.read_bytes()

    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        notebooks.write(notebooks.read(path), path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["04_a.ipynb"]


# --- load


def test_load_makes_a_module_of_the_tagged_cells_with_real_source(make):
    import inspect

    kernel = "def area(r):\n    return math.pi * r * r"
    make("04_a", ("import math", ["imports"]), "raise SystemExit", (kernel, ["kernel"]))
    module = notebooks.load("04_a")
    assert module.area(2.0) == pytest.approx(12.566, abs=1e-3)
    assert inspect.getsource(module.area).startswith("def area(r):")
    assert Path(str(module.__file__)).is_file()


def test_loading_again_is_the_same_module_and_after_an_edit_a_new_one(make):
    make("04_a", ("x = 1", ["kernel"]))
    first = notebooks.load("04_a")
    assert notebooks.load("04_a") is first
    make("04_a", ("x = 2", ["kernel"]))
    assert notebooks.load("04_a").x == 2
    assert first.x == 1


def test_load_says_which_cell_and_line_has_the_syntax_error(make):
    make("04_a", "ok = 1", ("x = 1\ny = = 2", ["kernel"]))
    with pytest.raises(NotebookError, match=r"04_a, code cell 2, line 2: invalid syntax: y = = 2"):
        notebooks.load("04_a")


def test_load_needs_a_kernel_cell(make):
    make("04_a", ("import math", ["imports"]), "x = 1")
    with pytest.raises(NotebookError, match="no cell tagged `kernel`"):
        notebooks.load("04_a")


def test_a_cell_that_raises_leaves_no_half_made_module(make):
    make("04_a", ("raise ValueError('from the cell')", ["kernel"]))
    for _ in range(2):
        with pytest.raises(ValueError, match="from the cell"):
            notebooks.load("04_a")


def test_a_wrong_path_is_not_taken_for_the_curriculums_notebook_of_that_name(make, project):
    make("04_a", "1")
    for name in ("/nowhere/04_a.ipynb", "other/04_a", project / "notebooks" / "typo" / "04_a.ipynb"):
        with pytest.raises(NotebookError, match="there is no notebook .*04_a"):
            notebooks.find(name)


def test_modules_of_notebooks_that_were_edited_long_ago_are_removed(make, project, monkeypatch):
    monkeypatch.setattr(notebooks, "KEPT", 3)
    for number in range(6):
        make("04_a", (f"x = {number}", ["kernel"]))
        assert notebooks.load("04_a").x == number
    assert len(list((project / ".cache" / "kernels").glob("*.py"))) == 3


def test_load_works_in_a_read_only_project(make, project, monkeypatch):
    make("04_a", ("x = 'read-only'", ["kernel"]))
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).startswith(str(project)))
    module = notebooks.load("04_a")
    assert module.x == "read-only"
    assert not str(module.__file__).startswith(str(project))
    folders = {Path(str(notebooks.changed("04_a", [("only", new)]).__file__)).parent for new in ("a", "b", "c")}
    assert len(folders) == 1, "one folder for the process, which is removed when it ends"


@pytest.mark.parametrize(("name", "label"), [("05_partition_c", "05"), ("museum_of_bugs", "museum of bugs")])
def test_what_tables_call_a_chapter(name: str, label: str) -> None:
    assert notebooks.label(name) == label
