"""Whether the committed notebooks are what their cells print, and belong to their code."""

from __future__ import annotations

import collections
import contextlib
import io
import re
import tomllib
from pathlib import Path

import nbformat
import pytest

from cutetut.course import concordance, execute, exemptions, notebooks, provenance

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


@pytest.fixture
def with_our_hooks(tmp_path, monkeypatch):
    """Call pytest in this process, with the hooks of the project's conftest.py; return its status and report."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.setenv("JUPYTER_PATH", "")  # they add a folder to it

    def call(*arguments):
        plugins = ["-pconftest", "-pno:cacheprovider", "-pno:faulthandler"]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            status = pytest.main(["-q", "--color=no", "--capture=no", f"-c{tmp_path}/pytest.ini", *plugins, *arguments])
        return status, said.getvalue()

    return call


def test_every_cell_of_every_notebook_is_executed(with_our_hooks):
    """`make test` names no folder, so that pytest takes those of pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "notebooks" in settings["testpaths"]
    assert re.search(r"-m pytest --durations=10 \$\(if", (ROOT / "Makefile").read_text())
    status, said = with_our_hooks("--collect-only", str(ROOT / "notebooks"))
    assert status == 0, said
    collected = collections.Counter(re.findall(r"^\S*?(\w+)\.ipynb::Cell \d+$", said, re.MULTILINE))
    assert collected == {name: len(notebooks.code_cells(notebooks.read(name))) for name in COMMITTED}


# ipykernel reads what C code prints in a thread, and does not wait for that thread at a cell's end
FROM_C = "import ctypes, time\nlibc = ctypes.CDLL(None)\nlibc.puts(b'2')\nflushed = libc.fflush(None)\ntime.sleep(1)"


@pytest.mark.parametrize("source", ["print(2)", FROM_C], ids=["Python", "C"])
@pytest.mark.parametrize("recorded", [1, 2])
def test_nbval_notices_a_different_output(tmp_path, with_our_hooks, source, recorded):
    """The comparison is able to fail, and sees what C code prints as well."""
    book = nbformat.v4.new_notebook()
    cell = nbformat.v4.new_code_cell(source, execution_count=1)
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=f"{recorded}\n")]
    book.cells.append(cell)
    nbformat.write(book, tmp_path / "one.ipynb")
    status, said = with_our_hooks(str(tmp_path / "one.ipynb"))
    assert status == (0 if recorded == 2 else 1), said[-3000:]
    assert ("Cell outputs differ" in said) == (recorded != 2)


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
