"""Whether the committed notebooks are what their cells print, and belong to their code."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from pathlib import Path

import nbformat
import pytest

from cutetut.course import concordance, execute, exemptions, notebooks, provenance
from tests import warm

ROOT = Path(__file__).resolve().parents[2]
HOPPER_NAMES = re.compile(r"\b(H100|H200|GH200|H800|H20)\b")


COMMITTED = [path.stem for path in notebooks.listed()]
TIMES = re.compile(r"\b(timed_compile|perf_counter|bench\.(compare|measure|CudaTimer)|cuda\.Event|elapsed_time)\(")


WAITING = exemptions.unrecorded()


def test_what_waits_for_a_gpu_says_so():
    """Such a chapter carries no GPU's name, so that its page does not claim one, and each cell has been run."""
    for name, reason in WAITING.items():
        book = notebooks.read(name)
        assert name in COMMITTED and "cutetut" not in book.metadata, f"{name} was recorded: take it out of [unrecorded]"
        assert len(reason.split()) >= 6
        assert all(cell.execution_count for cell in notebooks.code_cells(book) if cell.source)


@pytest.mark.parametrize("name", [name for name in COMMITTED if name not in WAITING])
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
def test_nbval_compares_every_cell(name):
    """What may differ between machines has a pattern in nbval_sanitize.cfg: no cell is left out."""
    book = notebooks.read(name)
    for number, cell in enumerate(notebooks.code_cells(book), start=1):
        assert not any(tag.startswith("nbval-") for tag in notebooks.tags(cell)), f"{name}, code cell {number}"
        marked = re.search(r"^\s*#\s*(NBVAL|PYTEST_VALIDATE)_\w+", cell.source, re.MULTILINE)
        assert not marked, f"{name}, code cell {number}: give what may differ a pattern instead of {marked}"


CONFIG = ROOT / "tests" / "nbval_sanitize.cfg"


def nbval(path, folder, monkeypatch):
    """Let nbval execute a notebook on this session's backend and compare what it prints; return its status and report.

    It runs in this process, which has imported pytest and nbval already. `folder` is for scratch. The notebook's
    kernel is this Python with an environment as a reader's: with pytest's PYTEST_CURRENT_TEST in it, ipykernel leaves
    out what C code prints, and on a GPU that is what cute.printf prints.
    """
    kernel = ["env", "-u", "PYTEST_CURRENT_TEST", *warm.command("ipykernel_launcher", "-f", "{connection_file}")]
    spec = {"argv": kernel, "display_name": "this Python", "language": "python"}
    (folder / "kernels" / "this").mkdir(parents=True)
    (folder / "kernels" / "this" / "kernel.json").write_text(json.dumps(spec))
    no_settings = folder / "pytest.ini"
    no_settings.write_text("[pytest]\n")
    for name, value in {"PYTHONPATH": str(ROOT), "JUPYTER_PATH": str(folder)}.items():
        monkeypatch.setenv(name, value, prepend=os.pathsep)
    monkeypatch.setenv("CUTETUT_PROGRESS", "0")
    of_nbval = ["--nbval", "--nbval-kernel-name=this", "--nbval-cell-timeout=600", f"--nbval-sanitize-with={CONFIG}"]
    ours = ["-q", "--color=no", "--capture=no", "-c", str(no_settings), "-pno:cacheprovider", "-pno:faulthandler"]
    with contextlib.redirect_stdout(io.StringIO()) as report:
        status = pytest.main([*ours, *of_nbval, str(path)])
    return status, report.getvalue()


@pytest.mark.parametrize("name", COMMITTED)
def test_the_notebook_prints_here_what_it_printed_when_recorded(name, tmp_path, monkeypatch):
    """Every cell prints on this session's backend what it printed on the H200."""
    status, report = nbval(notebooks.find(name), tmp_path, monkeypatch)
    assert status == 0, report[-8000:]
    ran = re.search(r"(\d+) passed", report)
    assert ran is not None and int(ran[1]) == len(notebooks.code_cells(notebooks.read(name)))


# ipykernel reads what C code prints in a thread, and does not wait for that thread at a cell's end
FROM_C = "import ctypes, time\nlibc = ctypes.CDLL(None)\nlibc.puts(b'2')\nflushed = libc.fflush(None)\ntime.sleep(1)"


@pytest.mark.parametrize("source", ["print(2)", FROM_C], ids=["Python", "C"])
@pytest.mark.parametrize("recorded", [1, 2])
def test_nbval_notices_a_different_output(tmp_path, monkeypatch, source, recorded):
    """The comparison above is able to fail, and sees what C code prints as well."""
    book = nbformat.v4.new_notebook()
    cell = nbformat.v4.new_code_cell(source, execution_count=1)
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=f"{recorded}\n")]
    book.cells.append(cell)
    nbformat.write(book, tmp_path / "one.ipynb")
    status, report = nbval(tmp_path / "one.ipynb", tmp_path, monkeypatch)
    assert status == (0 if recorded == 2 else 1), report[-3000:]
    assert ("Cell outputs differ" in report) == (recorded != 2)


SANITIZED = [
    ("cutetut: kernels run on the GPU (NVIDIA H200)", "cutetut: kernels run in the emulator (no NVIDIA GPU)"),
    ("A is torch.float32 on cuda:0: B must be, too", "A is torch.float32 on cpu: B must be, too"),
    ("compiled in 0.66 s", "compiled in 12.10 s"),
    ("error 3e-16, of the LSE", "error 2e-16, of the LSE"),
    ("<Tensor at 0x7f00aa>", "<Tensor at 0x12345678>"),
    ("/tmp/ipykernel_12/345.py:3: W", "<cell>:3: W"),
    ("see /home/me/x/lib/python3.11/site-packages/cutlass/a.py:3", "see site-packages/cutlass/a.py:3"),
    ("/opt/v/lib/python3.11/site-packages/nvidia_cutlass_dsl/dsl_packages/cutlass/b.py", "site-packages/cutlass/b.py"),
    ("changed_e57bd0ffc4c4.py:135:  cute.copy(a, b)", "changed_4d042b08abf6.py:131:  cute.copy(a, b)"),
    ("A must be a matrix on cuda, not empty", "A must be a matrix on cpu, not empty"),
    ("<?xml version='1'?><svg a='1'>\n<g/></svg>", "<?xml version='1'?><svg a='2'></svg>"),
]
COMPARED = [
    ("not yet: 297 of 300 values are wrong", "not yet: 299 of 300 values are wrong"),
    ("8191 of 16384 elements are wrong", "8192 of 16384 elements are wrong"),
    ("C: 256x256 float32 matches float64 within 1e-04", "C: 256x128 float32 matches float64 within 1e-04"),
    ("changed_e57bd0ffc4c4.py:135:  cute.copy(a, b)", "changed_e57bd0ffc4c4.py:135:  cute.copy(a, c)"),
    ("test_it.py:10:  row[tid] = x[tid]", "test_it.py:11:  row[tid] = x[tid]"),
    ("204 registers", "205 registers"),
    ("error 3e-16", "error 3e-15"),
    ("(16,4):(4,1)", "(16,4):(1,16)"),
    ("1.25", "1.5"),
    ("y on cuda:1", "y on cuda:0"),
]


def _sanitize(text: str) -> str:
    """What nbval does with a sanitizing file: every pair of lines is a substitution, in their order."""
    for pattern, replacement in re.findall("^regex: (.*)$\n^replace: (.*)$", CONFIG.read_text(), re.MULTILINE):
        text = re.sub(pattern, replacement, text)
    return text


@pytest.mark.parametrize(("ours", "theirs"), SANITIZED)
def test_what_differs_between_machines_is_not_compared(ours, theirs):
    assert _sanitize(ours) == _sanitize(theirs)


@pytest.mark.parametrize(("ours", "theirs"), COMPARED)
def test_what_the_kernel_computed_is_compared(ours, theirs):
    assert _sanitize(ours) != _sanitize(theirs)


@pytest.mark.parametrize("name", COMMITTED)
def test_what_the_book_folds_is_folded_in_jupyterlab(name):
    """The tags are the book's; JupyterLab and VS Code read another field, and would show each solution."""
    for cell in notebooks.code_cells(notebooks.read(name)):
        folded = bool(concordance.FOLDED & set(notebooks.tags(cell)))
        assert cell.metadata.get("jupyter", {}).get("source_hidden", False) == folded, cell.id


@pytest.mark.parametrize("name", [path.stem for path in notebooks.listed()])
def test_cells_that_print_times_are_tagged(name):
    for cell in notebooks.notebook(name).cells:
        if "bench" not in cell.tags:  # those define what `cutetut bench` calls
            assert bool(TIMES.search(cell.source)) == (execute.TIMED in cell.tags), f"code cell {cell.number}"
