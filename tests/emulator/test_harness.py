"""The harness itself: a fault or a hang on a GPU costs one test and no more, and tests go to the right machine."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cutetut.emulator import errors
from tests.emulator import hardware

HERE = Path(__file__).parent
FAKE = """
import os, sys, time
sys.path.insert(0, {root!r})
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
while True:
    kind, *rest = connection.recv()
    text = rest[0] if kind == "run" else kind
    if text == "die":
        os._exit(3)
    if text == "hang":
        time.sleep(60)
    arrays = [a * 2 for a in rest[1]] if kind == "run" else None
    states = {{"fault": "fault", "refused": "error"}}
    connection.send((states[text], text) if text in states else ("ok", (str(os.getpid()), arrays)))
"""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A worker without a GPU: it doubles the arrays, says its process id, and fails when a text asks for it."""
    script = tmp_path / "worker.py"
    script.write_text(FAKE.format(root=str(hardware.ROOT)))
    monkeypatch.setattr(hardware, "COMMAND", (sys.executable, str(script)))
    monkeypatch.setattr(hardware, "_worker", None)
    yield
    hardware._end_worker(kill=True)


def launch(text: str, seconds: float = 20) -> tuple[str, list[int]]:
    """(what was printed, the array afterwards)"""
    array = np.arange(3)
    return hardware.run_on_gpu(text, array, seconds=seconds), array.tolist()


@pytest.mark.emulator
def test_arrays_come_back_in_place_and_one_worker_serves_many_launches(worker: None) -> None:
    first, array = launch("fine")
    assert array == [0, 2, 4]
    assert launch("fine")[0] == first


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("text", "error", "says"),
    [("fault", hardware.GpuFault, "fault"), ("die", hardware.GpuFault, "ended with status 3"),
     ("hang", hardware.GpuTimeout, "no answer within 0.5 s")],
)  # fmt: skip
def test_after_a_fault_the_next_launch_has_a_fresh_worker(
    worker: None, text: str, error: type[Exception], says: str
) -> None:
    first, _ = launch("fine")
    with pytest.raises(error, match=says):
        launch(text, 0.5)
    second, array = launch("fine")
    assert second != first and array == [0, 2, 4]


@pytest.mark.emulator
def test_an_error_that_leaves_the_context_alone_keeps_the_worker(worker: None) -> None:
    first, _ = launch("fine")
    with pytest.raises(hardware.GpuFault, match="refused"):
        launch("refused")
    assert launch("fine")[0] == first


@pytest.mark.emulator
@pytest.mark.parametrize("path", sorted(HERE.glob("test_*.py")), ids=lambda p: p.stem)
def test_what_expects_the_emulators_errors_stays_off_the_gpu(path: Path) -> None:
    """A test that expects a typed error of the emulator would fault or hang there, so it has the marker."""
    typed = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    tree = ast.parse(path.read_text())
    if any("pytest.mark.emulator" in ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)):
        return
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            calls = [n for n in ast.walk(node) if isinstance(n, ast.Call) and ast.unparse(n.func) == "pytest.raises"]
            expected = {name.id for call in calls for name in ast.walk(call) if isinstance(name, ast.Name)} & typed
            marks = " ".join(map(ast.unparse, node.decorator_list))
            assert not expected or "mark.emulator" in marks, f"{node.name} expects {expected}"
