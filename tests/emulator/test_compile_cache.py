"""A kernel compiled by one process is not compiled again by another, and nothing else changes."""

from __future__ import annotations

import linecache
import multiprocessing
import os
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import cutlass.cute as cute
import pytest
import torch
from cutlass._mlir.passmanager import PassManager
from cutlass.cute.runtime import from_dlpack

from cutetut import cli
from cutetut.emulator.errors import OutOfBounds
from cutetut.emulator.host import compilation, compile_cache

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


def _host_in(folder: Path) -> Any:
    """The cell's host function from a file in this folder."""
    folder.mkdir()
    (folder / "cell.py").write_text(CELL.replace("FACTOR", "2"))
    return runpy.run_path(str(folder / "cell.py"))["host"]


def test_the_same_kernel_in_another_folder_is_the_same_entry(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its errors show the line of the file it was loaded from, also when the first one has gone."""
    runs: list[str] = []
    original = PassManager.run

    def counted(self: PassManager, *args: Any) -> Any:
        runs.append(name)
        return original(self, *args)

    monkeypatch.setattr(PassManager, "run", counted)
    name = ""
    for name in ("first", "zweiter Ordner, für später"):
        x = torch.zeros(16)
        function = cute.compile(_host_in(tmp_path / name), from_dlpack(x))
        with pytest.raises(OutOfBounds) as caught:
            function(from_dlpack(x))
        assert "  cell.py:7:  x[tid] = cutlass.Float32(2 * tid)" in str(caught.value)
        assert {side.file for side in caught.value.report.sides} == {str(tmp_path / name / "cell.py")}
        shutil.rmtree(tmp_path / name)
        linecache.checkcache()
    assert runs == ["first"] and len(list(folder.iterdir())) == 1


def test_files_of_one_name_in_two_folders_stay_apart() -> None:
    here, there = "/home/me/", "/tmp/x y/"
    module = '#loc = loc("{}a.py":1:2)\n#loc1 = loc("{}a.py":3:4)\n#loc2 = loc("in \\22/tmp/a.py\\22"(#loc1))\n"/s/t"'
    apart, folders = compilation._anywhere(module.format(here, there))
    assert folders == [here, there] and apart == module.format("<folder 0>/", "<folder 1>/")
    assert compilation._anywhere(module.format(there, here)) == (apart, [there, here])
    assert compilation._anywhere(module.format(here, here)) == (module.format(*["<folder 0>/"] * 2), [here])
    ptx = b'\t.file\t1 "/home/me/a.py"\n\t.file\t2 "/tmp/x y/a.py"\n\t.file\t3 "/opt/b.py"\n\t.file\t4 "c.py"\n'
    kept = compilation._without_folders(ptx, folders)
    assert kept == ptx.replace(here.encode(), b"<folder 0>/").replace(there.encode(), b"<folder 1>/")
    assert compilation._with_folders(kept, folders) == ptx
    moved = ptx.replace(here.encode(), b"/q/").replace(there.encode(), b"/home/you/")
    assert compilation._with_folders(kept, ["/q/", "/home/you/"]) == moved


@pytest.mark.parametrize("folder", [r"/a \22b\22/", r"/a\5Cb/"])
def test_a_folder_that_ptx_cannot_quote_stays_part_of_the_entry(folder: str) -> None:
    text = f'#loc = loc("{folder}a.py":1:2)'
    assert compilation._anywhere(text) == (text, [])


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


def test_few_entries_look_for_what_must_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looks through the whole folder, so it is done once for many entries, and the limit holds all the same."""
    looks: list[Path] = []
    original = compile_cache._make_room

    def counted(where: Path) -> None:
        looks.append(where)
        original(where)

    monkeypatch.setattr(compile_cache, "_make_room", counted)
    monkeypatch.setattr(compile_cache, "LARGEST", 160_000)
    most = 0
    for i in range(300):
        compile_cache.store(compile_cache.key(b"%d" % i), {"module": os.urandom(1_000)})
        most = max(most, compile_cache.use().nbytes) if i % 20 == 0 else most
    assert 90 < len(looks) < 190
    assert 0.8 * compile_cache.LARGEST < most < 1.1 * compile_cache.LARGEST


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
    said = capsys.readouterr().out
    assert said == f"{folder}: 2 compiled or disassembled kernels, 0.0 of at most 512 MiB\n"
    assert cli.main(["cache", "--clear"]) == 0
    assert "removed 2 compiled or disassembled kernels" in capsys.readouterr().out
    assert [path.name for path in folder.iterdir()] == ["notes.zip"]


@pytest.mark.parametrize("words", [["cache"], ["cache", "--clear"]], ids=" ".join)
def test_the_command_makes_no_folder(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor does the doctor, who asks the same."""
    monkeypatch.setenv(compile_cache.VARIABLE, str(tmp_path / "not" / "yet"))
    assert cli.main(words) == 0
    assert "0 compiled or disassembled kernels" in capsys.readouterr().out
    assert compile_cache.why_not() == "" and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["cache"], ["cache", "--clear"]], ids=" ".join)
@pytest.mark.parametrize("below", ["proc", "file"])
def test_the_command_says_that_nothing_can_be_kept(
    below: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Root may write everywhere, but not here."""
    (tmp_path / "file").write_text("kept")
    home = Path("/proc/nowhere") if below == "proc" else tmp_path / "file"
    for name in (compile_cache.VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{home}/.cache/cutetut/compiled: nothing can be kept there (")
    assert said.endswith("set CUTETUT_CACHE to a folder that can be written\n")
    assert (tmp_path / "file").read_text() == "kept"
