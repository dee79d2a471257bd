"""Running notebooks, several at a time, and recording their outputs on what passes for a GPU host."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import cutetut
from cutetut import hardware
from cutetut.course import execute, notebooks, provenance
from cutetut.course.notebooks import NotebookError
from tests.facts import FACTS

ROOT = Path(__file__).resolve().parents[2]
HOPPER_NAMES = re.compile(r"\b(H100|H200|GH200|H800|H20)\b")


# --- run


def test_run_executes_every_notebook_and_touches_none(make, capsys):
    paths = [make("04_a", "x = 1", "print(x + 1)"), make("05_b", "import os; print(os.getcwd())")]
    before = [path.read_bytes() for path in paths]
    assert execute.run() == 0
    assert [path.read_bytes() for path in paths] == before
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[:2] for line in lines) == [["04_a", "ok"], ["05_b", "ok"]]
    assert all(re.search(r" \d+\.\d s$", line) for line in lines)


@pytest.mark.parametrize(("chosen", "found"), [(None, "auto"), ("emulator", "emulator")])
def test_run_hands_the_backend_to_the_kernels(make, monkeypatch, chosen, found):
    monkeypatch.setenv("CUTETUT_BACKEND", "auto")
    make("04_a", f"import os; assert os.environ['CUTETUT_BACKEND'] == {found!r}")
    assert execute.run(backend=chosen) == 0


def test_what_c_code_prints_stays_out_of_the_progress_lines(make, capfd):
    """A kernel repeats on its own standard output what C code, or a GPU's printf, prints in a cell."""
    make("04_a", "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.puts(b'from C')\nlibc.fflush(None)")
    assert execute.run() == 0
    assert re.fullmatch(r"04_a +ok +\d+\.\d s\n", capfd.readouterr().out)


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


def test_an_interrupted_run_says_where_and_leaves_no_kernel_behind(make, project, tmp_path):
    waiting = "import os, pathlib, time\npathlib.Path({!r}).write_text(str(os.getpid()))\ntime.sleep(600)"
    files = [tmp_path / name for name in "ab"]
    for number, file in enumerate(files, start=4):
        make(f"0{number}_a", waiting.format(str(file)))
    code = (
        "from pathlib import Path\nfrom cutetut.course import execute, notebooks\n"
        f"notebooks.project_root = lambda: Path({str(project)!r})\nexecute.run(jobs=2)"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not all(file.exists() and file.read_text() for file in files):
        assert running.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    printed, errors = running.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert "04_a: in code cell 1\n" in printed and "05_a: in code cell 1\n" in printed
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


def test_what_a_cell_prints_is_recorded_in_one_piece(make, monkeypatch):
    monkeypatch.setattr(provenance, "collect", lambda: dict(FACTS))
    path = make("04_a", "import time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.3)")
    assert execute.record(["04_a"]) == 0
    assert [output.text for output in notebooks.read(path).cells[1].outputs] == ["0\n1\n2\n"]


def test_record_leaves_a_failing_notebook_as_it_was_and_records_the_others(make, monkeypatch, capsys):
    monkeypatch.setattr(provenance, "collect", lambda: dict(FACTS))
    bad, good = make("04_a", "print(1)", "1 / 0"), make("05_b", "print(2)")
    before = bad.read_bytes()
    assert execute.record() == 1
    assert bad.read_bytes() == before
    assert notebooks.read(good).metadata["cutetut"]["gpu"] == "NVIDIA H200"
    assert "FAILED, left as it was" in capsys.readouterr().out


def test_what_ran_on_several_gpus_says_so(make, monkeypatch):
    monkeypatch.setattr(provenance, "collect", lambda: dict(FACTS))
    path = make("04_a", "def later():\n    return emulate.gpus(2)")
    assert execute.record(["04_a"]) == 0
    assert notebooks.read(path).metadata["cutetut"]["gpu"] == "2 x NVIDIA H200"


WAITS = (
    "import os, pathlib, time\n(pathlib.Path({folder!r}) / '{mine}').touch()\nuntil = time.monotonic() + 60\n"
    "while not (pathlib.Path({folder!r}) / '{other}').exists(): time.sleep(0.05); assert time.monotonic() < until"
)


def test_notebooks_are_recorded_at_the_same_time_and_those_that_print_times_alone(make, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(provenance, "collect", lambda: dict(FACTS))
    folder = str(tmp_path / "marks")
    Path(folder).mkdir()
    make("00_timed", (f"import os; print(sorted(os.listdir({folder!r})))", ["timed"]))
    make("01_a", WAITS.format(folder=folder, mine="one", other="two") + "\nprint(os.environ['CUTETUT_BACKEND'])")
    make("02_b", WAITS.format(folder=folder, mine="two", other="one"), f"pathlib.Path({folder!r}, 'end').touch()")
    assert execute.record(jobs=2) == 0, capsys.readouterr().out
    assert notebooks.read("00_timed").cells[1].outputs[0].text == "['end', 'one', 'two']\n"
    assert notebooks.read("01_a").cells[1].outputs[0].text == "gpu\n"
    said = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert sorted(said) == [["00_timed", "recorded"], ["01_a", "recorded"], ["02_b", "recorded"]]
    assert said[-1] == ["00_timed", "recorded"]
    with pytest.raises(ValueError, match="0 notebooks at a time"):
        execute.record(jobs=0)


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
