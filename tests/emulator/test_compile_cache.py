"""A kernel compiled by one process is not compiled again by another, and nothing else changes."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cutetut import cli
from cutetut.emulator.host import compile_cache

pytestmark = pytest.mark.emulator

NAME, OTHER = "0" * 64, "1" * 64
FILES = {"module": b"\x00\x01" * 5000, "ptx": b"ret;"}

# Prints how many modules went through the compiler's passes, and the result of a kernel.
SCRIPT = """
import os, sys
from pathlib import Path
folder = Path(sys.argv[1]) / f"ipykernel_{os.getpid()}"
folder.mkdir()
(folder / "cell.py").write_text(Path(sys.argv[2]).read_text())
sys.path.insert(0, str(folder))
import cutetut, torch, cutlass.cute as cute
from cutlass._mlir import passmanager
runs, original = [], passmanager.PassManager.run
def counted(self, *args):
    runs.append(1)
    return original(self, *args)
passmanager.PassManager.run = counted
import cell
x = torch.zeros(int(sys.argv[3]))
ffi = {"enable_tvm_ffi": True} if sys.argv[4] else {}
tensor = cute.runtime.from_dlpack(x, **ffi)
cute.compile(cell.host, tensor, options=sys.argv[4])(tensor)
print("found", len(runs), int(x.sum()))
"""
CELL = """
import cutlass, cutlass.cute as cute

@cute.kernel
def kernel(x: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    x[tid] = cutlass.Float32(FACTOR * tid)

@cute.jit
def host(x: cute.Tensor):
    kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(compile_cache.VARIABLE, str(tmp_path / "kept"))
    return tmp_path / "kept"


def _run(tmp_path: Path, factor: int, elements: int = 32, options: str = "") -> list[str]:
    """What the script prints behind "found"; its error output where it fails."""
    script, cell = tmp_path / "script.py", tmp_path / "cell.txt"
    script.write_text(SCRIPT)
    cell.write_text(CELL.replace("FACTOR", str(factor)))
    arguments = [sys.executable, str(script), str(tmp_path), str(cell), str(elements), options]
    done = subprocess.run(arguments, capture_output=True, text=True, env={**os.environ, "CUTETUT_BACKEND": "emulator"})
    found = re.search(r"^found (.*)$", done.stdout, re.M)
    return found[1].split() if found else [done.stderr]


def test_a_second_process_compiles_nothing(folder: Path, tmp_path: Path) -> None:
    """Its kernels stand in files of other names, as the cells of a notebook do: their names hold a process's number."""
    total = 32 * 31 // 2
    first, second = _run(tmp_path, 2), _run(tmp_path, 2)
    assert first == ["1", str(2 * total)]
    assert second == ["0", str(2 * total)]
    assert _run(tmp_path, 3) == ["1", str(3 * total)], "another kernel is another entry"
    assert len(list(folder.iterdir())) == 2


def test_functions_called_by_tvm_ffi_are_compiled_once_too(folder: Path, tmp_path: Path) -> None:
    found = [_run(tmp_path, 2, options="--enable-tvm-ffi") for _ in range(2)]
    assert [len(each) for each in found] == [2, 2], found
    assert found[0][1] == found[1][1] == str(32 * 31) and int(found[0][0]) > int(found[1][0])


def test_an_error_shows_the_line_of_the_process_that_runs(folder: Path, tmp_path: Path) -> None:
    for _ in range(2):
        (message,) = _run(tmp_path, 2, elements=16)
        assert "OutOfBounds" in message
        assert re.search(r"  cell.py:7:  x\[tid\] = cutlass.Float32\(2 \* tid\)", message)
    assert len(list(folder.iterdir())) == 1


def test_an_entry_comes_back_whole_or_not_at_all(folder: Path) -> None:
    assert compile_cache.load(NAME) is None
    compile_cache.store(NAME, FILES)
    assert compile_cache.load(NAME) == FILES
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], whole[:40] + b"\xff" * 8 + whole[48:], b"not a zip file"):
        path.write_bytes(damaged)
        assert compile_cache.load(NAME) is None
        assert not path.exists()
    compile_cache.store(NAME, FILES)
    assert compile_cache.load(NAME) == FILES


def test_what_was_not_used_for_longest_makes_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_cache, "LARGEST", 50_000)
    names = [f"{i:064x}" for i in range(6)]
    for i, name in enumerate(names):
        compile_cache.store(name, {"module": os.urandom(9_000)})
        os.utime(folder / f"{name}.zip", (i, i))
        assert compile_cache.load(names[0]) is not None, "used again and again"
    assert [compile_cache.load(name) is not None for name in names] == [True, False, False, True, True, True]
    assert compile_cache.use().nbytes < 50_000


@pytest.mark.parametrize("setting", ["off", "0", "/proc/nowhere", "{file}/below"])
def test_no_folder_is_no_cache(setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("kept")
    monkeypatch.setenv(compile_cache.VARIABLE, setting.replace("{file}", str(tmp_path / "file")))
    compile_cache.store(NAME, FILES)
    assert compile_cache.load(NAME) is None
    assert compile_cache.clear().entries == 0
    assert (tmp_path / "file").read_text() == "kept"


def _store_often(path: str) -> None:
    os.environ[compile_cache.VARIABLE] = path
    for _ in range(50):
        compile_cache.store(NAME, FILES)
        found = compile_cache.load(NAME)
        assert found is None or found == FILES


def test_several_processes_share_the_folder(folder: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(_store_often, [str(folder)] * 2)
    assert [path.name for path in folder.iterdir()] == [f"{NAME}.zip"]
    assert zipfile.ZipFile(folder / f"{NAME}.zip").testzip() is None


def test_the_command_says_what_is_kept_and_removes_only_that(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (NAME, OTHER):
        compile_cache.store(name, FILES)
    (folder / "notes.zip").write_text("mine")
    assert cli.main(["cache"]) == 0
    assert re.fullmatch(rf"{folder}: 2 compiled functions, 0.0 MiB, at most 512 MiB\n", capsys.readouterr().out)
    assert cli.main(["cache", "--clear"]) == 0
    assert "removed 2 compiled functions" in capsys.readouterr().out
    assert [path.name for path in folder.iterdir()] == ["notes.zip"]
