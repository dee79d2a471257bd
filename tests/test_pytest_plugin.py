"""`pytest --emulate`, as the author of a project with CuTe DSL kernels uses it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import warm

pytestmark = pytest.mark.emulator
ROOT = Path(__file__).resolve().parent.parent

TESTS = '''
import cutlass, cutlass.cute as cute, pytest, torch
from cutlass.cute.runtime import from_dlpack

assert torch.cuda.is_available(), "asked while tests are collected"

@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, sync: cutlass.Constexpr):
    tid, _, _ = cute.arch.thread_idx()
    row = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(128))
    row[tid] = x[tid]  # stored
    if cutlass.const_expr(sync == "all"):
        cute.arch.sync_threads()
    if cutlass.const_expr(sync == "some"):
        if tid < 64:
            cute.arch.barrier(barrier_id=1, number_of_threads=128)
        y[tid] = row[tid]
    else:
        y[tid] = row[127 - tid]  # read

@cute.jit
def reverse(x: cute.Tensor, y: cute.Tensor, sync: cutlass.Constexpr):
    kernel(x, y, sync).launch(grid=(1, 1, 1), block=(128, 1, 1))

def run(sync):
    assert "H200" in torch.cuda.get_device_name(0) and torch.cuda.get_device_capability() == (9, 0)
    x = torch.arange(128.0, device="cuda")
    y = torch.empty_like(x)
    reverse(from_dlpack(x), from_dlpack(y), sync)
    assert torch.equal(y, x.flip(0))

def test_right():
    run("all")

def test_race():
    run("none")

def test_hang():
    run("some")

@pytest.mark.schedules(2)
def test_often():
    run("all")

@pytest.mark.schedules
def test_caught():
    try:
        run("none")
    except Exception:
        pass

def test_wrong_number():
    assert False, "of the test itself"
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text("import torch\nassert torch.cuda.device_count() == 1\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    return tmp_path


def run(project: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "CUTE"))}
    environment |= variables
    # without nbval, which takes a second to import
    arguments = ["pytest", "-p", "no:cacheprovider", "-p", "no:nbval", "--color=no", *options]
    command = warm.command(*arguments) if options else [sys.executable, "-m", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=project, env=environment, timeout=300)


def test_a_missing_package_is_one_line(project: Path, tmp_path: Path) -> None:
    folder = tmp_path / "without"
    folder.mkdir()
    (folder / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')")
    paths = [str(folder), str(ROOT)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "CUTE"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:nbval", "--emulate"], cwd=project,
        env=environment | {"PYTHONPATH": os.pathsep.join(paths)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 4 and "Traceback" not in done.stderr, done.stderr
    assert "--emulate: the package torch is not installed; `python -m cutetut doctor`" in done.stderr


def test_failures_have_the_emulators_explanation(project: Path) -> None:
    done = run(project, "--emulate", "-rA", "-k", "not often and not caught")
    assert "3 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "cutetut: kernels run in the emulator (--emulate)" in done.stdout
    race = done.stdout.split("_ test_race _")[1].split("\n____")[0]
    assert "MissingBarrier: load of shared memory" in race and "Look at: a barrier" in race
    assert "y[tid] = row[127 - tid]  # read" in race and "row[tid] = x[tid]  # stored" in race
    assert "nvidia_cutlass_dsl" not in race, "no frame of the compiler"
    assert "Deadlock: every thread that is left waits" in done.stdout.split("_ test_hang _")[1].split("\n____")[0]
    assert "cutetut, call" not in done.stdout, "no finding is told twice"


ENDLESS = """
import cutlass, cutlass.cute as cute, torch
from cutlass.cute.runtime import from_dlpack

@cute.kernel
def kernel(x: cute.Tensor):
    value = x[0]
    while value < 1.0:  # for ever
        value = value * 0.5
    x[0] = value

@cute.jit
def host(x: cute.Tensor):
    kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1))

def test_endless():
    host(from_dlpack(torch.zeros(32, device="cuda")))

def test_after():
    pass
"""


def test_a_kernel_that_never_ends_is_stopped_and_the_next_test_runs(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(ENDLESS)
    done = run(tmp_path, "--emulate", CUTETUT_BUDGET="20000")
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "BudgetExceeded" in done.stdout and "CUTETUT_BUDGET=<steps>" in done.stdout
    assert re.search(r"test_it\.py:(9|10):  (while value < 1\.0|value = value \* 0\.5)", done.stdout), done.stdout


def test_a_test_runs_under_many_schedules_and_tells_what_it_caught(project: Path) -> None:
    done = run(project, "--emulate", "-v", "-rA", "-n", "2", "-k", "often or caught")
    runs = set(re.findall(r"PASSED test_it.py::(test_\w+\[\w+\])", done.stdout))
    assert runs == {f"test_often[{name}]" for name in ("late", "early", "random0", "random1")} | {
        f"test_caught[{name}]" for name in ("late", "early", "random0", "random1", "random2")
    }, done.stdout + done.stderr
    assert done.stdout.count("MissingBarrier") + done.stdout.count("nothing orders the two") >= 5
    assert "cutetut, call" in done.stdout


def test_every_test_under_many_schedules(project: Path) -> None:
    done = run(project, "--emulate", "--schedules", "1", "-k", "right or often")
    assert "7 passed" in done.stdout, done.stdout  # 3 of test_right, and 4 of test_often, whose marker names 2


def test_bad_options_are_reported(project: Path) -> None:
    done = run(project, "--emulate", "--schedules", "-1")
    assert "must be 0 or more, not -1" in done.stdout + done.stderr and done.returncode
    done = run(project, "--schedules", "1")
    assert "--schedules needs --emulate" in done.stdout + done.stderr and done.returncode


def test_nothing_is_loaded_unless_asked_for(tmp_path: Path) -> None:
    text = "import sys\ndef test(): assert not {'cutetut', 'torch', 'cutlass'} & set(sys.modules)\n"
    (tmp_path / "test_it.py").write_text(text)
    assert "1 passed" in run(tmp_path).stdout


def test_the_example_passes_as_its_workflow_runs_it(tmp_path: Path) -> None:
    example = tmp_path / "ci"
    shutil.copytree(ROOT / "examples" / "ci", example)
    workflow = yaml.safe_load((example / ".github" / "workflows" / "test.yml").read_text())
    commands = [step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step]
    assert commands[-1] == "pytest --emulate"
    assert "12 passed" in run(example, "--emulate").stdout
