"""`python -m cutetut emulate`: a script written for a GPU runs here, and otherwise as `python script.py` would.

The oracle for everything that is not a kernel is the Python interpreter itself, run on the same script; for the
device "cuda", what torch documents about devices.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
import torch

from cutetut import backend
from cutetut.emulate import run
from cutetut.emulator.host import cuda_torch, live
from cutetut.emulator.host.patches import Patches
from tests import warm

pytestmark = pytest.mark.emulator

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "tests" / "scripts"


def emulate(script: Path, *args: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CUTE_", "CUTETUT_"))}
    command = warm.command("cutetut", "emulate", str(script), *args)
    return subprocess.run(
        command, cwd=cwd, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120
    )


# scripts with kernels -----------------------------------------------------------------------------------------


def test_a_script_written_for_a_gpu_runs(tmp_path: Path) -> None:
    done = emulate(SCRIPTS / "vector_add.py", "--n", "333", "--a", "-1.5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["capability (9, 0), 1 device", "cuda:0 True: 333 elements agree"]
    assert done.stderr == "cutetut: times are the emulator's wall time; they say nothing about a GPU\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_that_a_script_starts_have_its_gpus(method: str, tmp_path: Path) -> None:
    script = tmp_path / "starts.py"
    script.write_text(CHILDREN.replace("METHOD", method))
    done = emulate(script, cwd=tmp_path)
    assert done.stdout.splitlines() == ["sum 64.0 on cuda:0 of 1", "exit status 0", "exit status 1"], done.stderr
    assert done.returncode == 0 and "errors.OutOfBounds: store of 4 bytes" in done.stderr
    assert "starts.py:10" in done.stderr


CHILDREN = """import sys
import torch.multiprocessing as mp
import torch
import cutlass, cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack

@cute.kernel
def fill_kernel(x: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    x[i] = 2.0

@cute.jit
def fill(x: cute.Tensor):
    fill_kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1))

def work(queue, n):
    x = torch.zeros(n, device="cuda")
    fill(from_dlpack(x))
    queue.put(f"sum {x.sum().item()} on {x.device} of {torch.cuda.device_count()}")

if __name__ == "__main__":
    context = mp.get_context("METHOD")
    for n in (32, 20):
        queue = context.SimpleQueue()
        process = context.Process(target=work, args=(queue, n))
        process.start()
        if n == 32:
            print(queue.get())
        process.join()
        print("exit status", process.exitcode)
"""


@pytest.mark.parametrize(
    ("name", "value"), [("CUTETUT_ASYNC", "never"), ("CUTETUT_SCHEDULE", "foo"), ("CUTETUT_BUDGET", "x")]
)
def test_what_no_launch_could_follow_is_refused_before_the_script_runs(
    name: str, value: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "says.py"
    script.write_text("print('it ran')")
    assert run(str(script), [], settings={name: value}) == 1
    out, err = capfd.readouterr()
    assert out == "" and err.startswith(f"cutetut emulate: {name}='{value}'") and err.count("\n") == 1


@pytest.mark.parametrize("report", [".", "nowhere/found.json"])
def test_a_report_that_cannot_be_written_is_refused_before_the_script_runs(
    report: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "says.py"
    script.write_text("print('it ran')")
    assert run(str(script), [], report=str(tmp_path / report)) == 1
    out, err = capfd.readouterr()
    assert out == "" and err.startswith("cutetut emulate: the report cannot be written: ") and err.count("\n") == 1


def test_a_script_may_close_its_stdout(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "closes.py"
    script.write_text("import sys\nsys.stdout = open('said.txt', 'w')\nprint(1)\nsys.stdout.close()\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "cutetut", "emulate", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120)
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_a_fault_ends_with_the_typed_error_and_the_scripts_own_frames(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(str(SCRIPTS / "too_far.py"), []) == 1
    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    frames = [line for line in lines if line.startswith('  File "')]
    assert len(frames) == 2 and all(f'"{SCRIPTS / "too_far.py"}"' in line for line in frames)
    assert any(line.startswith("cutetut.emulator.errors.OutOfBounds: store of 4 bytes") for line in lines)
    assert "x (40,) float32" in err and "too_far.py:11" in err and "x[i] = 1.0  # no predicate" in err


def test_a_tensor_that_stayed_on_the_cpu_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(str(SCRIPTS / "forgot_cuda.py"), []) == 1
    assert "LaunchError: x (32,) float32 is in the host's memory" in (err := capfd.readouterr().err)
    assert ".cuda()" in err


KERNEL_CELL = """
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

@cute.kernel
def fill_kernel(x: cute.Tensor, value: cute.Float32):
    i, _, _ = cute.arch.thread_idx()
    x[i] = value

@cute.jit
def fill(x: cute.Tensor, value: cute.Float32):
    fill_kernel(x, value).launch(grid=(1, 1, 1), block=(32, 1, 1))
"""


def notebook(path: Path, *cells: str) -> Path:
    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    page.cells.insert(0, nbformat.v4.new_markdown_cell("this is no code"))
    nbformat.write(page, path)
    return path


def test_a_notebook_runs_cell_by_cell(tmp_path: Path) -> None:
    cells = (KERNEL_CELL, "%pwd\nx = torch.zeros(32, device='cuda')", "fill(from_dlpack(x), 7)\nx.sum().item()")
    done = emulate(notebook(tmp_path / "page.ipynb", *cells), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "Out[3]: 224.0"
    assert [path.name for path in tmp_path.iterdir()] == ["page.ipynb"]


def test_a_script_that_leaves_its_folder_first_is_compiled(tmp_path: Path) -> None:
    """CuTe DSL reads the source of a kernel, whose script was named from the folder that it leaves."""
    text = f"import os\nos.chdir('/')\n{KERNEL_CELL}\nx = torch.zeros(32, device='cuda')\nfill(from_dlpack(x), 7)"
    (tmp_path / "script.py").write_text(f"{text}\nprint(x.sum().item())\n")
    done = emulate(Path("script.py"), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "224.0\n"), done.stderr


@pytest.mark.parametrize("text", ['{"cells": [', "[]", '{"metadata": {}}'])
def test_what_is_no_notebook_is_one_line(text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "page.ipynb").write_text(text)
    assert run(str(tmp_path / "page.ipynb"), []) == 1
    error = capfd.readouterr().err
    assert error.startswith("cutetut emulate: page.ipynb is not a valid notebook: ") and error.count("\n") == 1


def test_a_fault_in_a_notebook_ends_it_with_the_cells_line(tmp_path: Path) -> None:
    cells = (KERNEL_CELL, "x = torch.zeros(8, device='cuda')\nfill(from_dlpack(x), 7)", "print('not reached')")
    done = emulate(notebook(tmp_path / "page.ipynb", *cells), cwd=tmp_path)
    assert done.returncode == 1 and "not reached" not in done.stdout
    assert done.stderr.count("OutOfBounds: store of 4 bytes") == 1 and "x[i] = value" in done.stderr
    assert "x (8,) float32" in done.stderr and "fill(from_dlpack(x), 7)" in done.stderr


INSPECTED = """
from cutetut import answers
from cutetut.inspect import diagnose, profile

x = torch.zeros(32)
answers.emulated(fill, x, 7)
print(x.sum().item(), profile.count(fill, torch.zeros(32), 7).requests("st"))
print(profile.count(fill, torch.zeros(32, device="cuda"), 7).requests("st"))
diagnose.diagnose(fill, torch.zeros(8), 7)
fill(from_dlpack(x), 7)
"""


def test_what_chapters_inspect_in_the_emulator_lies_in_host_memory_here_too(tmp_path: Path) -> None:
    """The checks of exercises judge with tensors on the CPU; elsewhere in the notebook a kernel cannot reach them."""
    done = emulate(notebook(tmp_path / "page.ipynb", KERNEL_CELL, INSPECTED), cwd=tmp_path)
    assert done.stdout.startswith("224.0 1\n1\nOutOfBounds: store of 4 bytes"), done.stdout + done.stderr
    assert done.returncode == 1 and "x (32,) float32 is in the host's memory" in done.stderr


def test_a_notebook_leaves_the_process_as_it_was(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def state() -> tuple[Any, ...]:
        return sys.modules["__main__"], sys.excepthook, sys.displayhook, list(sys.path)

    before = state()
    assert run(str(notebook(tmp_path / "page.ipynb", "raise SystemExit(5)", "print('not reached')")), []) == 5
    assert run(str(notebook(tmp_path / "page.ipynb", "x = 3", "x + 1")), []) == 0
    assert "not reached" not in (out := capfd.readouterr().out) and "Out[2]: 4" in out
    assert state() == before


# everything else, against the interpreter ----------------------------------------------------------------------

PLAIN = {
    "arguments": "import sys; print(sys.argv[1:], __name__, sys.path[0] == __import__('os').path.dirname(__file__))",
    "stdin": "print(input().upper())",
    "exit code": "import sys; print('bye'); sys.exit(7)",
    "exit text": "raise SystemExit('gone')",
    "exit nothing": "raise SystemExit",
    "exception": "def f():\n    return 1 / 0\nf()",
    "chained": "try:\n    [][0]\nexcept IndexError as e:\n    raise KeyError('k') from e",
    "syntax error": "x = 1\nfor while in\n",
    "import of a neighbour": "import neighbour; print(neighbour.VALUE)",
    "missing import": "import no_such_module_at_all",
    "own excepthook": "import sys\nsys.excepthook = lambda *a: print('mine', a[0].__name__)\n1 / 0",
    "other folder": "import os\nos.chdir('/')\nprint(os.getcwd(), os.path.isabs(__file__))\nimport neighbour",
    "name as typed": "import os, sys\nprint(sys.argv[0], __file__, __spec__, __package__)\nos.chdir('/')\n1 / 0",
    "main guard": "if __name__ == '__main__':\n    print('main', __import__('__main__').__dict__ is globals())",
}


@pytest.mark.parametrize("typed", ["absolute", "relative"])
@pytest.mark.parametrize("name", PLAIN)
def test_plain_scripts_behave_as_under_python(
    name: str, typed: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "script.py" if typed == "absolute" else Path("script.py")
    script.write_text(PLAIN[name] + "\n")
    (tmp_path / "neighbour.py").write_text("VALUE = 42\n")
    expected = subprocess.run(
        [sys.executable, str(script), "a", "--b"], input="word\n", capture_output=True, text=True, cwd=tmp_path
    )
    if name == "stdin":
        done = subprocess.run(
            [sys.executable, "-m", "cutetut", "emulate", str(script)],
            input="word\n",
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        status, out, err = done.returncode, done.stdout, done.stderr
    else:
        status = run(str(script), ["a", "--b"])
        out, err = capfd.readouterr()
    sys.modules.pop("neighbour", None)
    assert (status, out) == (expected.returncode, expected.stdout)
    assert err.splitlines() == expected.stderr.splitlines()


def test_what_a_script_leaves_in_a_cycle_is_finished_at_the_end(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "class Log:\n"
        "    def __init__(self): self.me = self\n"
        "    def __del__(self): print('finished', flush=True)\n"
        "log = Log()\n"
    )
    plain = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert emulate(script, cwd=tmp_path).stdout == plain.stdout == "finished\n"


def test_a_missing_script_and_a_folder_are_as_under_python(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "program"
    program.mkdir()
    for path in (tmp_path / "nothing.py", program):
        plain = subprocess.run([sys.executable, str(path)], capture_output=True, text=True)
        assert run(str(path), []) == plain.returncode
        assert capfd.readouterr().err == plain.stderr
    (program / "beside.py").write_text("VALUE = 42")
    (program / "__main__.py").write_text("import sys, beside; print(__name__, __file__, sys.argv[1:], sys.path[0])")
    plain = subprocess.run([sys.executable, str(program), "a"], capture_output=True, text=True)
    assert run(str(program), ["a"]) == plain.returncode == 0
    sys.modules.pop("beside")
    assert capfd.readouterr().out == plain.stdout


def test_the_process_is_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import os, sys, torch, cutetut
        assert torch.cuda.is_available() and cutetut.device == "cuda"
        os.environ["LEFT_BEHIND"] = "1"; os.chdir("/"); sys.path.insert(0, "/nowhere"); sys.argv.append("x")
        sys.excepthook = print
        raise SystemExit(3)
        """)
    )
    monkeypatch.chdir(tmp_path)
    before = (list(sys.argv), list(sys.path), dict(os.environ), os.getcwd(), sys.modules["__main__"], sys.excepthook)
    names = {name: getattr(torch.cuda, name) for name in dir(torch.cuda)}
    generator = torch.Generator
    assert run(str(script), []) == 3
    after = (list(sys.argv), list(sys.path), dict(os.environ), os.getcwd(), sys.modules["__main__"], sys.excepthook)
    assert after == before
    assert {name: getattr(torch.cuda, name) for name in dir(torch.cuda)} == names
    assert torch.Generator is generator and not torch.cuda.is_available()
    assert backend.activate().device == "cpu" and live.on_device(torch.ones(1))
    with pytest.raises((RuntimeError, AssertionError)):
        torch.ones(1, device="cuda")


def test_a_script_may_remove_the_folder_it_is_started_in(tmp_path: Path) -> None:
    """As one does that cleans up after itself: it ends as under python."""
    (tmp_path / "work").mkdir()
    (tmp_path / "script.py").write_text("import os, sys; os.rmdir(os.getcwd()); sys.exit(4)")
    done = emulate(tmp_path / "script.py", cwd=tmp_path / "work")
    assert (done.returncode, done.stderr) == (4, "") and not (tmp_path / "work").exists()


def test_an_unusable_dsl_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(backend, "probe", lambda: backend.Machine(torch="2.13.0", dsl="4.0.0"))
    assert run(str(SCRIPTS / "vector_add.py"), []) == 1
    assert "nvidia-cutlass-dsl==" in capsys.readouterr().err


# the device "cuda" ---------------------------------------------------------------------------------------------


@pytest.fixture
def cuda() -> Iterator[None]:
    patches = Patches()
    try:
        with cuda_torch.whole_device(patches):
            yield
    finally:
        patches.restore()


def test_factories_and_moves_put_tensors_on_the_device(cuda: None) -> None:
    made = [
        torch.zeros(2, device="cuda"),
        torch.randn(2, 3, device=torch.device("cuda")),
        torch.arange(4, device="cuda:0"),
        torch.tensor([1, 2], device=0),
        torch.full((2,), 3.0, device=torch.device("cuda", 0), pin_memory=False),
        torch.ones(2).cuda(),
        torch.ones(2).cuda(0, non_blocking=True),
        torch.ones(2).to("cuda"),
        torch.ones(2).to("cuda", torch.float16),
        torch.ones(2).to(device="cuda", dtype=torch.bfloat16, non_blocking=True),
        torch.ones(2).to(torch.zeros(1, device="cuda")),
        torch.as_tensor(np.ones(2), device="cuda"),
        torch.from_numpy(np.ones(2)).cuda(),
        torch.randint(0, 9, (2,), device="cuda", generator=torch.Generator(device="cuda").manual_seed(1)),
    ]
    for tensor in made:
        assert tensor.is_cuda and not tensor.is_cpu and tensor.device == torch.device("cuda:0")
        assert tensor.get_device() == 0 and "device='cuda:0'" in repr(tensor)
    assert made[8].dtype == torch.float16 and made[9].dtype == torch.bfloat16
    assert made[0].type() == "torch.cuda.FloatTensor"
    plain = torch.ones(2)
    assert not plain.is_cuda and plain.device.type == "cpu" and "cuda" not in repr(plain) and plain.get_device() == -1


def test_new_tensors_begin_where_cudamalloc_lets_memory_begin(cuda: None) -> None:
    """At multiples of 256 bytes, whatever the size and type: what from_dlpack(assumed_align=128) is promised holds."""
    made = []
    for n in (1, 3, 100, 5000, 100_000, 900_000):
        host = torch.arange(n, dtype=torch.float32)
        made += [torch.arange(n, dtype=torch.float32, device="cuda"), host.cuda(), host.to("cuda")]
        assert all(torch.equal(tensor.cpu(), host) for tensor in made[-3:])
        made += [torch.empty(n, dtype=torch.float8_e4m3fn, device="cuda"), torch.as_tensor(host, device="cuda")]
    assert all(tensor.is_cuda and tensor.data_ptr() % 256 == 0 and tensor.storage_offset() == 0 for tensor in made)
    strided = torch.empty_strided((3, 4), (1, 5), device="cuda")
    assert strided.stride() == (1, 5) and strided.fill_(2).sum() == 24
    weight = torch.ones(3, device="cuda", requires_grad=True)
    (2 * weight).sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [2, 2, 2]


def test_results_views_and_likes_stay_on_the_device(cuda: None) -> None:
    x = torch.randn(4, 6, device="cuda")
    for tensor in (x + 1, x[1:], x.T, x.sum(), torch.empty_like(x), x.new_zeros(3), x.half(), torch.cat([x, x]),
                   torch.softmax(x, 0), x.clone(), x.contiguous(), *x.split(2), x.max(0).values):  # fmt: skip
        assert tensor.is_cuda
    for tensor in (x.cpu(), x.to("cpu"), x.cpu() + 1, torch.empty_like(x, device="cpu"), x.to(torch.ones(1))):
        assert not tensor.is_cuda


def test_moves_copy_across_devices_only(cuda: None) -> None:
    host = torch.zeros(3)
    x = host.cuda()
    x += 1
    assert host.tolist() == [0, 0, 0]
    back = x.cpu()
    x += 1
    assert back.tolist() == [1, 1, 1] and x.tolist() == [2, 2, 2]
    assert x.cuda() is x and x.to("cuda") is x and x.to("cuda:0", torch.float32) is x and host.cpu() is host
    array = np.zeros(3)
    on_gpu = torch.as_tensor(array, device="cuda")
    on_gpu += 1
    assert array.tolist() == [0, 0, 0]
    host.copy_(x)
    assert not host.is_cuda and host.tolist() == [2, 2, 2]
    assert x.to("cpu", copy=True).tolist() == [2, 2, 2]


def test_numpy_of_a_device_tensor_is_refused_as_by_torch(cuda: None) -> None:
    x = torch.ones(2, device="cuda")
    for convert in (lambda: x.numpy(), lambda: np.asarray(x)):
        with pytest.raises(TypeError, match=r"Use Tensor\.cpu\(\)"):
            convert()
    assert x.cpu().numpy().tolist() == [1, 1] == x.tolist()


def test_modules_gradients_and_default_devices(cuda: None) -> None:
    layer = torch.nn.Linear(3, 2).cuda()
    assert layer.weight.is_cuda and torch.nn.Linear(3, 2, device="cuda").bias.is_cuda
    x = torch.randn(4, 3, device="cuda", requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None and x.grad.is_cuda and layer.weight.grad.is_cuda
    with torch.device("cuda"):
        assert torch.zeros(2).is_cuda and not torch.zeros(2, device="cpu").is_cuda
    try:
        torch.set_default_device("cuda")
        assert torch.zeros(2).is_cuda
    finally:
        torch.set_default_device(None)
    assert not torch.zeros(2).is_cuda


class Doubled(torch.autograd.Function):
    """y = 2 x, which notes what its gradient is given and what it makes."""

    seen: list[torch.Tensor] = []

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        made = torch.full_like(gradient, 2)
        Doubled.seen += [gradient, made, torch.zeros(1, device=gradient.device)]
        return gradient * made


@pytest.mark.parametrize("how", ["backward", "grad", "function"])
def test_gradients_are_computed_on_the_device(cuda: None, how: str) -> None:
    x = torch.ones(4, device="cuda", requires_grad=True)
    y = Doubled.apply(x).exp().sum()
    Doubled.seen.clear()
    if how == "grad":
        (gradient,) = torch.autograd.grad(y, x)
    else:
        y.backward() if how == "backward" else torch.autograd.backward([y])
        gradient = x.grad
    assert len(Doubled.seen) == 3 and all(tensor.is_cuda for tensor in Doubled.seen)
    assert gradient.is_cuda
    torch.testing.assert_close(gradient.cpu(), torch.full((4,), 2 * float(np.exp(2.0))))
    z = Doubled.apply(torch.ones(2, requires_grad=True)).sum()
    z.backward()
    assert not Doubled.seen[-1].is_cuda, "what is computed on the host stays there"


class Several(torch.autograd.Function):
    """Two outputs where x is and one on the host; notes where the gradients of all three are."""

    where: list[str] = []

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, sparing: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(not sparing)
        return 2 * x, 3 * x, x.detach().cpu().sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[torch.Tensor, None]:
        Several.where = ["none" if each is None else each.device.type for each in gradients]
        return sum(k * each for k, each in zip((2, 3), gradients, strict=False) if each is not None), None


@pytest.mark.parametrize("where", ["cuda", "cpu"])
@pytest.mark.parametrize("used", [0, 1])
def test_the_zeros_for_an_unused_output_are_where_the_output_is(cuda: None, where: str, used: int) -> None:
    x = torch.ones(4, device=where, requires_grad=True)
    outputs = Several.apply(x, False)
    outputs[used].sum().backward()
    assert Several.where == [where, where, "cpu"]
    assert x.grad is not None and x.grad.device.type == where and x.grad.tolist() == [2 + used] * 4
    Several.apply(x, True)[used].sum().backward()
    assert Several.where == [*("none" if i != used else where for i in range(2)), "none"]


def test_custom_operators_for_cuda(cuda: None) -> None:
    @torch.library.custom_op("cutetut_tests::triple", mutates_args=(), device_types="cuda")
    def triple(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(x.shape, device="cuda")
        assert x.is_cuda and out.is_cuda
        return out.copy_(3 * x)

    @torch.library.custom_op("cutetut_tests::add_one", mutates_args=("x",))
    def add_one(x: torch.Tensor) -> None:
        raise NotImplementedError("only for cuda")

    @add_one.register_kernel("cuda")
    def add_one_on_cuda(x: torch.Tensor) -> None:
        x += 1

    x = triple(torch.ones(2, device="cuda"))
    torch.ops.cutetut_tests.add_one(x)
    assert x.is_cuda and x.tolist() == [4, 4]


def test_comparisons_notice_devices(cuda: None) -> None:
    x = torch.ones(2, device="cuda")
    torch.testing.assert_close(x, torch.ones(2, device="cuda"))
    with pytest.raises(AssertionError, match="device"):
        torch.testing.assert_close(x, torch.ones(2))


def test_comparisons_do_not_import_what_no_tensor_can_be_of(cuda: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.distributed.tensor", raising=False)
    torch.testing.assert_close(torch.ones(2), torch.ones(2))
    assert "torch.distributed.tensor" not in sys.modules
    unwrap = cuda_torch._unless_distributed(lambda actual, expected: (expected, actual))
    assert unwrap(1, 2) == (1, 2)
    monkeypatch.setitem(sys.modules, "torch.distributed.tensor", types.ModuleType("t"))
    assert unwrap(1, 2) == (2, 1)


def test_there_is_one_device(cuda: None) -> None:
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1 and torch.cuda.current_device() == 0
    assert torch.cuda.get_device_capability() == (9, 0) == torch.cuda.get_device_capability("cuda:0")
    properties = torch.cuda.get_device_properties(0)
    assert (properties.major, properties.minor, properties.multi_processor_count) == (9, 0, 132)
    assert torch.cuda.get_device_name() == "NVIDIA H200 (emulated by cutetut)"
    assert len(torch.cuda.mem_get_info()) == 2
    torch.cuda.set_device(0)
    torch.cuda.empty_cache()
    torch.cuda.manual_seed(3)
    with torch.cuda.device(0), torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda.nvtx.range_push("x")
        torch.cuda.nvtx.range_pop()
    for elsewhere in (lambda: torch.zeros(1, device="cuda:1"), lambda: torch.zeros(1).cuda(2)):
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            elsewhere()
    with pytest.raises(Exception, match="make_graphed_callables is not emulated"):
        torch.cuda.make_graphed_callables(torch.nn.Linear(1, 1), ())


def test_seeds_repeat(cuda: None) -> None:
    draws = []
    for _ in range(2):
        torch.manual_seed(5)
        draws.append(torch.randn(4, device="cuda").tolist())
    assert draws[0] == draws[1]
    generators = [torch.Generator("cuda").manual_seed(9) for _ in range(2)]
    first, second = (torch.randn(4, device="cuda", generator=g).tolist() for g in generators)
    assert first == second and generators[0].device.type == "cuda"
