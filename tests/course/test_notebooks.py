"""Loading, running and recording notebooks; and whether the committed ones are what their cells print."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

import cutetut
from cutetut import hardware
from cutetut.course import execute, notebooks, provenance
from cutetut.course.notebooks import NotebookError
from tests.facts import FACTS

ROOT = Path(__file__).resolve().parents[2]
HOPPER_NAMES = re.compile(r"\b(H100|H200|GH200|H800|H20)\b")


# --- finding and reading


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


# --- run


def test_run_executes_every_notebook_and_touches_none(make, capsys):
    paths = [make("04_a", "x = 1", "print(x + 1)"), make("05_b", "import os; print(os.getcwd())")]
    before = [path.read_bytes() for path in paths]
    assert execute.run() == 0
    assert [path.read_bytes() for path in paths] == before
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[:2] for line in lines) == [["04_a", "ok"], ["05_b", "ok"]]
    assert all(re.search(r" \d+\.\d s$", line) for line in lines)


def test_run_lists_failures_with_cell_line_and_error_and_goes_on(make, capsys):
    make("04_a", "x = 1", "def f():\n    return 1 / 0\n\nf()")
    make("05_b", "print(1)")
    make("06_c", "x = = 1")
    assert execute.run() == 2
    out = capsys.readouterr().out
    assert "05_b                     ok" in out
    assert "2 of 3 notebooks failed" in out
    assert "04_a, code cell 2, line 4\n    f()\n    ZeroDivisionError: division by zero" in out
    assert "06_c, code cell 1, line 1\n    x = = 1\n    SyntaxError" in out


def test_a_kernel_that_dies_is_a_failure_of_its_cell(make, capsys):
    make("04_a", "x = 1", "import os; os._exit(3)")
    assert execute.run(["04_a"]) == 1
    assert "04_a, code cell 2\n    DeadKernelError" in capsys.readouterr().out


def test_a_cell_that_never_ends_is_stopped(make, capsys, monkeypatch):
    monkeypatch.setattr(execute, "CELL_TIMEOUT", 2)
    make("04_a", "import time\nwhile True: time.sleep(0.1)")
    assert execute.run(["04_a"]) == 1
    assert re.search(r"04_a, code cell 1\n    CellTimeoutError: .*2 seconds", capsys.readouterr().out)


def test_an_expected_exception_is_not_a_failure(make):
    make("04_a", ("1 / 0", ["raises-exception"]), "print('after')")
    assert execute.run() == 0


def test_the_kernel_is_this_python_with_this_package(make):
    here = f"assert sys.executable == {sys.executable!r}\nassert cutetut.__file__ == {cutetut.__file__!r}"
    make("04_a", f"import sys, cutetut\n{here}")
    assert execute.run() == 0


def test_notebooks_run_at_the_same_time(make, capsys, tmp_path):
    """Each waits for the other's file."""
    for mine, other in ((1, 2), (2, 1)):
        make(
            f"0{mine}_a",
            f"import os, pathlib, time\n(pathlib.Path({str(tmp_path)!r}) / '{mine}').touch()\n"
            f"while not (pathlib.Path({str(tmp_path)!r}) / '{other}').exists(): time.sleep(0.05)\n"
            "assert os.environ['OMP_NUM_THREADS'] == '1'",
        )
    assert execute.run(jobs=2) == 0, capsys.readouterr().out
    with pytest.raises(ValueError, match="0 notebooks at a time"):
        execute.run(jobs=0)


def test_an_interrupted_run_leaves_no_kernel_behind(make, project, tmp_path):
    waiting = "import os, pathlib, time\npathlib.Path({!r}).write_text(str(os.getpid()))\ntime.sleep(600)"
    files = [tmp_path / name for name in "ab"]
    for number, file in enumerate(files, start=4):
        make(f"0{number}_a", waiting.format(str(file)))
    code = (
        "from pathlib import Path\nfrom cutetut import execute, notebooks\n"
        f"notebooks.project_root = lambda: Path({str(project)!r})\nexecute.run(jobs=2)"
    )
    running = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not all(file.exists() and file.read_text() for file in files):
        assert running.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in running.communicate(timeout=60)[1]
    for file in files:
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.read_text()), 0)


# --- record


def test_record_refuses_without_a_hopper_gpu_and_executes_nothing(make, monkeypatch):
    import torch

    path = make("04_a", "raise SystemExit")
    before = path.read_bytes()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(provenance.NotRecordable, match=r"(?s)Hopper GPU.*no NVIDIA GPU.*cutetut run"):
        monkeypatch.setattr(hardware, "gpus", lambda: [])
        execute.record()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "NVIDIA A100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (8, 0))
    with pytest.raises(provenance.NotRecordable, match=r"GPU 0 here is NVIDIA A100 with 8\.0"):
        execute.record()
    assert path.read_bytes() == before


def test_record_writes_outputs_and_provenance_and_is_repeatable(make, monkeypatch):
    monkeypatch.setattr(provenance, "collect", lambda: dict(FACTS))
    path = make("04_a", "import os; print(os.environ['CUTETUT_BACKEND'])", "6 * 7")
    assert execute.record(["04_a"]) == 0
    book = notebooks.read(path)
    assert book.metadata["cutetut"] == {**FACTS, "code_hash": notebooks.code_hash(book)}
    assert book.cells[1].outputs[0].text == "gpu\n"
    assert book.cells[2].outputs[0].data["text/plain"] == "42"
    assert [cell.execution_count for cell in notebooks.code_cells(book)] == [1, 2]
    first = path.read_bytes()
    assert execute.record(["04_a"]) == 0
    assert path.read_bytes() == first


def test_record_leaves_a_failing_notebook_as_it_was_and_records_the_others(make, monkeypatch, capsys):
    monkeypatch.setattr(provenance, "collect", lambda: dict(FACTS))
    bad, good = make("04_a", "print(1)", "1 / 0"), make("05_b", "print(2)")
    before = bad.read_bytes()
    assert execute.record() == 1
    assert bad.read_bytes() == before
    assert notebooks.read(good).metadata["cutetut"]["gpu"] == "NVIDIA H200"
    assert "FAILED, left as it was" in capsys.readouterr().out


def test_record_checks_permission_before_it_executes(make, monkeypatch):
    monkeypatch.setattr(provenance, "collect", lambda: dict(FACTS))
    make("04_a", "raise SystemExit")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(NotebookError, match=r"no permission to write .*04_a.ipynb: nothing was executed"):
        execute.record()


def test_recorded_widgets_keep_their_state_under_repeatable_ids(make, monkeypatch):
    monkeypatch.setattr(provenance, "collect", lambda: dict(FACTS))
    path = make("04_a", "import ipywidgets\nipywidgets.IntSlider(value=3)")
    assert execute.record() == 0
    book = notebooks.read(path)
    states = book.metadata["widgets"][execute.WIDGET_STATE]["state"]
    view = book.cells[1].outputs[0].data["application/vnd.jupyter.widget-view+json"]
    assert states[view["model_id"]]["state"]["value"] == 3
    for state in states.values():  # references between models follow the renaming
        for target in re.findall(r"IPY_MODEL_(\w+)", json.dumps(state)):
            assert target in states
    first = path.read_bytes()
    assert execute.record() == 0
    assert path.read_bytes() == first


def test_recorded_text_names_no_folder_of_this_machine(make, monkeypatch, project):
    monkeypatch.setattr(provenance, "collect", lambda: dict(FACTS))
    source = "import nbformat, warnings\nprint(nbformat.__file__)\nprint(__import__('os').getcwd())\nwarnings.warn('w')"
    path = make("04_a", source)
    assert execute.record() == 0
    text = path.read_text()
    assert "site-packages/nbformat/__init__.py" in text
    assert sys.prefix not in text
    assert "<cell>:4: UserWarning" in text


def test_a_check_that_ends_a_cell_shows_its_line_and_no_measured_digits(make):
    path = make("04_a", "import numpy\nfrom cutetut.check import check\ncheck(numpy.ones(2), numpy.ones(2), atol=0)")
    outputs = execute.executed(path).cells[1].outputs
    assert outputs[-1].output_type == "stream"
    assert outputs[-1].text.endswith("C: 2 float64 matches float64 exactly\n")


# --- the committed notebooks

COMMITTED = [path.stem for path in notebooks.listed()]


@pytest.mark.parametrize("name", COMMITTED)
def test_recorded_outputs_belong_to_the_cells(name):
    """Every notebook was recorded on a Hopper GPU, whole, from the very code it shows."""
    book = notebooks.read(name)
    recorded = book.metadata.get("cutetut")
    again = f"record it on a Hopper GPU host: python -m cutetut record {name}"
    assert recorded, f"{name} was never recorded; {again}"
    assert set(recorded) == {*provenance.FIELDS, "code_hash"}
    assert HOPPER_NAMES.search(recorded["gpu"]), f"{name} was recorded on {recorded['gpu']}; {again}"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", recorded["date"])
    assert recorded["code_hash"] == notebooks.code_hash(book), f"{name}'s code changed since it was recorded; {again}"
    unrun = [cell.source for cell in notebooks.code_cells(book) if cell.source and cell.execution_count is None]
    assert not unrun, f"{name} has cells without a recorded run; {again}"


@pytest.mark.parametrize("name", COMMITTED)
def test_cells_that_are_not_compared_say_why(name):
    """nbval compares every cell's output, except where a tag forbids it for a reason in the cell's metadata."""
    book = notebooks.read(name)
    for number, cell in enumerate(notebooks.code_cells(book), start=1):
        exempt = {"nbval-ignore-output", "nbval-skip"} & set(notebooks.tags(cell))
        if exempt:
            reason = cell.metadata.get("cutetut", {}).get("reason", "")
            assert len(reason.split()) >= 3, f"{name}, code cell {number}: {exempt} needs metadata cutetut.reason"
        marked = re.search(r"^\s*#\s*(NBVAL|PYTEST_VALIDATE)_\w+", cell.source, re.MULTILINE)
        assert not marked, f"{name}, code cell {number}: use a tag with a reason, not {marked}"


def nbval(path, folder):
    """Let nbval execute a notebook on this session's backend and compare what it prints; `folder` is for scratch.

    Its kernel is this Python, started as a reader's is: with pytest's PYTEST_CURRENT_TEST in the environment,
    ipykernel leaves out what C code prints, and on a GPU that is what cute.printf prints.
    """
    kernel = ["env", "-u", "PYTEST_CURRENT_TEST", sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": kernel, "display_name": "this Python", "language": "python"}
    (folder / "kernels" / "this").mkdir(parents=True)
    (folder / "kernels" / "this" / "kernel.json").write_text(json.dumps(spec))
    config = ROOT / "tests" / "nbval_sanitize.cfg"
    options = ["--nbval", "--nbval-kernel-name=this", "--nbval-cell-timeout=600", f"--nbval-sanitize-with={config}"]
    command = [sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", *options, str(path)]
    first = {"PYTHONPATH": str(ROOT), "JUPYTER_PATH": str(folder)}
    paths = {name: os.pathsep.join(filter(None, [value, os.environ.get(name)])) for name, value in first.items()}
    environment = {**os.environ, **paths, "CUTETUT_PROGRESS": "0"}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=1800)


@pytest.mark.parametrize("name", COMMITTED)
def test_the_notebook_prints_here_what_it_printed_when_recorded(name, tmp_path):
    """Every cell prints on this session's backend what it printed on the H200."""
    done = nbval(notebooks.find(name), tmp_path)
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-2000:]}"
    ran = re.search(r"(\d+) passed", done.stdout)
    assert ran is not None and int(ran[1]) == len(notebooks.code_cells(notebooks.read(name)))


FROM_C = "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.puts(b'2')\nflushed = libc.fflush(None)"


@pytest.mark.parametrize("source", ["print(2)", FROM_C], ids=["Python", "C"])
@pytest.mark.parametrize("recorded", [1, 2])
def test_nbval_notices_a_different_output(tmp_path, source, recorded):
    """The comparison above is able to fail, and sees what C code prints as well."""
    book = nbformat.v4.new_notebook()
    cell = nbformat.v4.new_code_cell(source, execution_count=1)
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=f"{recorded}\n")]
    book.cells.append(cell)
    nbformat.write(book, tmp_path / "one.ipynb")
    done = nbval(tmp_path / "one.ipynb", tmp_path)
    assert done.returncode == (0 if recorded == 2 else 1), done.stdout[-3000:]
    assert ("Cell outputs differ" in done.stdout) == (recorded != 2)


SANITIZED = [
    ("cutetut: kernels run on the GPU (NVIDIA H200)", "cutetut: kernels run in the emulator (no NVIDIA GPU)"),
    ("compiled in 0.66 s", "compiled in 12.10 s"),
    ("<Tensor at 0x7f00aa>", "<Tensor at 0x12345678>"),
    ("/tmp/ipykernel_12/345.py:3: W", "<cell>:3: W"),
    ("see /home/me/x/lib/python3.11/site-packages/cutlass/a.py:3", "see site-packages/cutlass/a.py:3"),
    ("/opt/v/lib/python3.11/site-packages/nvidia_cutlass_dsl/dsl_packages/cutlass/b.py", "site-packages/cutlass/b.py"),
    ("<?xml version='1'?><svg a='1'>\n<g/></svg>", "<?xml version='1'?><svg a='2'></svg>"),
]
COMPARED = [
    ("C: 256x256 float32 matches float64 within 1e-04", "C: 256x128 float32 matches float64 within 1e-04"),
    ("204 registers", "205 registers"),
    ("(16,4):(4,1)", "(16,4):(1,16)"),
    ("1.25", "1.5"),
]


def _sanitize(text: str) -> str:
    """What nbval does with a sanitizing file: every pair of lines is a substitution, in their order."""
    config = (ROOT / "tests" / "nbval_sanitize.cfg").read_text()
    for pattern, replacement in re.findall("^regex: (.*)$\n^replace: (.*)$", config, re.MULTILINE):
        text = re.sub(pattern, replacement, text)
    return text


@pytest.mark.parametrize(("ours", "theirs"), SANITIZED)
def test_what_differs_between_machines_is_not_compared(ours, theirs):
    assert _sanitize(ours) == _sanitize(theirs)


@pytest.mark.parametrize(("ours", "theirs"), COMPARED)
def test_what_the_kernel_computed_is_compared(ours, theirs):
    assert _sanitize(ours) != _sanitize(theirs)
