"""Which exercises are kept as right: those that a reader's JupyterLab runs, each once, and what cannot be kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from cutetut import answers, cli, progress
from cutetut.course import exercises

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = "/home/reader/notebooks/04_scalar_fma_gemm.ipynb"
JUDGED = """
from cutetut import answers

@answers.judged
def check(answer):
    if answers.number(answer) != 3:
        raise answers.NotYet("count again")
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a reader who has solved nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "cutetut" / "right.txt"


def run(client: Any, code: str, metadata: dict[str, Any]) -> str:
    """What a kernel prints of code that JupyterLab sends with a cell's metadata."""
    message = client.session.msg("execute_request", {"code": code, "silent": False}, metadata=metadata)
    client.shell_channel.send(message)
    printed = ""
    while True:
        said = client.get_iopub_msg(timeout=60)
        if said["parent_header"].get("msg_id") != message["header"]["msg_id"]:
            continue
        if said["msg_type"] == "stream":
            printed += said["content"]["text"]
        assert said["msg_type"] != "error", said["content"]
        if said["msg_type"] == "status" and said["content"]["execution_state"] == "idle":
            return printed


def test_what_a_kernel_of_jupyterlab_keeps(state: Path) -> None:
    """A right answer in an exercise's cell: no wrong one, none of a solution's cell or of a cell without an id."""
    exercise = {"cellId": "ex1", "cutetut": {"difficulty": 1}, "tags": ["exercise"]}
    manager = KernelManager(kernel_name="python3")
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    manager.kernel_spec.argv = command
    manager.start_kernel(env={**os.environ, "PYTHONPATH": str(ROOT), progress.NOTEBOOK: NOTEBOOK}, cwd=str(ROOT))
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        run(client, JUDGED, {})
        assert run(client, "check(4)", exercise) == "not yet: count again\n"
        assert run(client, "check(3)", {"cellId": "ex1-solution", "tags": ["solution"]}) == "right\n"
        assert run(client, "check(3)", {"cutetut": {"difficulty": 1}}) == "right\n"
        assert run(client, "check(3)", {}) == "right\n" and not state.exists()
        assert run(client, "check(3); check(3)", exercise) == "right\nright\n"
        assert state.read_text() == "04_scalar_fma_gemm/ex1\n"
        state.parent.chmod(0o755)
        state.unlink()
        state.mkdir()  # what is there cannot be written
        said = run(client, "check(3)", exercise).splitlines()
        assert said[0] == "right" and said[1].startswith("(`cutetut progress` will not know: ") and len(said) == 2
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_nothing_is_kept_outside_of_jupyter(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(progress.NOTEBOOK, NOTEBOOK)  # a test that is started in JupyterLab's terminal
    answers.judged(lambda: None)()
    assert progress.here() is None and not state.exists()


@pytest.mark.parametrize(
    ("notebook", "key"),
    [("a/01_layouts.ipynb", "01_layouts/ex"), ("01_layouts-Copy2.ipynb", "01_layouts/ex"), ("", None)],
)
def test_whose_exercise_runs(notebook: str, key: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Shell:
        parent_header = {"metadata": {"cellId": "ex", "cutetut": {"difficulty": 3}}}

    class IPython:
        @staticmethod
        def get_ipython() -> Shell:
            return Shell()

    monkeypatch.setitem(sys.modules, "IPython", IPython)
    monkeypatch.setenv(progress.NOTEBOOK, notebook)
    assert progress.here() == key


KEEP = """
import sys
from cutetut import progress
for i in range(60):
    progress.keep(f"{sys.argv[1]}/ex{i}")
    progress.keep(f"all/ex{i}")
"""


def test_several_processes_lose_nothing_and_repeat_nothing(state: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = [subprocess.Popen([sys.executable, "-c", KEEP, name], env=environment) for name in "abc"]
    assert [process.wait(timeout=300) for process in running] == [0, 0, 0]
    lines = state.read_text().splitlines()
    assert sorted(lines) == sorted(f"{name}/ex{i}" for name in ("a", "b", "c", "all") for i in range(60))


def test_a_line_that_was_cut_off_spoils_no_other(state: Path) -> None:
    state.parent.mkdir()
    state.write_text("01_layouts/ex1\n01_lay")
    progress.keep("01_layouts/ex2")
    assert progress.kept() == {"01_layouts/ex1", "01_lay", "01_layouts/ex2"}


def test_the_file_stays_small(state: Path) -> None:
    state.parent.mkdir()
    state.write_text("x" * (progress.LARGEST - 4))
    with pytest.raises(OSError, match="64 KiB"):
        progress.keep("01_layouts/ex2")
    assert state.stat().st_size < progress.LARGEST


def test_the_command_prints_what_is_right_and_what_is_left(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, *others = exercises.of_chapter("01_layouts")
    for key in (second.key, "01_layouts/no_such", "no_chapter/ex1"):
        progress.keep(key)
    assert cli.main(["progress"]) == 0
    said = capsys.readouterr().out.splitlines()
    (line,) = (line.split() for line in said if line.startswith("01_layouts"))
    left = ", ".join(str(each.number) for each in (first, *others))
    assert " ".join(line) == f"01_layouts 1 of {2 + len(others)} {left}"
    assert said[-1] == f"1 of {len(exercises.collect())} exercises are right; kept in {state}"


def test_before_the_first_right_answer_it_says_where_to_begin(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["progress"]) == 0
    begin, last = capsys.readouterr().out.splitlines()[-2:]
    assert "JupyterLab" in begin and "make lab" in begin and last.startswith("0 of ") and not state.exists()


def test_the_exercises_of_a_chapter_are_listed_by_name(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, *_ = listed = exercises.of_chapter("24_flash_decode")
    progress.keep(second.key)
    progress.keep("01_layouts/equal")
    assert cli.main(["progress", "24_flash_decode"]) == 0
    _, *rows, last = capsys.readouterr().out.splitlines()
    assert len(rows) == len(listed) and all(each.title in row for each, row in zip(listed, rows, strict=True))
    assert rows[1].endswith("yes") and not rows[0].endswith("yes") and first.title in rows[0]
    assert last.startswith(f"1 of {len(listed)} exercises")
    assert cli.main(["progress", "99_nothing"]) == 1
    said = capsys.readouterr()
    assert not said.out and said.err.startswith("cutetut progress: ") and said.err.count("\n") == 1


@pytest.mark.parametrize("broken", ["folder", "bytes", "no home"])
def test_a_list_that_cannot_be_read_is_one_line(
    state: Path, broken: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if broken == "folder":
        state.mkdir(parents=True)
    elif broken == "bytes":
        state.parent.mkdir()
        state.write_bytes(json.dumps("é").encode("utf-16"))
    else:
        monkeypatch.delenv("XDG_STATE_HOME")

        def nobody() -> Path:
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.setattr(Path, "home", nobody)
    assert cli.main(["progress"]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("cutetut progress: ") and len(said.err.splitlines()) == 1 and not said.out
