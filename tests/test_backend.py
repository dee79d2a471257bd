"""Which backend is chosen: a table of machines, the words of CUTETUT_BACKEND, and what the process is left with."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cutetut import backend
from cutetut.backend import BackendError, Machine, select

ROOT = Path(__file__).resolve().parent.parent
LAPTOP = Machine(torch="2.13.0", dsl=backend.DSL_VERSION)
HOPPER = Machine("NVIDIA H200", (9, 0), "2.11.0", True, backend.DSL_VERSION)
AMPERE = replace(HOPPER, gpu="NVIDIA A100", capability=(8, 0))
BLACKWELL = replace(HOPPER, gpu="NVIDIA B200", capability=(10, 0))


@pytest.mark.parametrize(
    ("request_", "machine", "name", "device"),
    [
        ("auto", LAPTOP, "emulator", "cpu"),
        ("", LAPTOP, "emulator", "cpu"),
        ("auto", HOPPER, "gpu", "cuda"),
        ("auto", AMPERE, "emulator", "cpu"),
        ("auto", BLACKWELL, "emulator", "cpu"),
        ("auto", replace(HOPPER, torch_cuda=False), "emulator", "cpu"),
        ("gpu", HOPPER, "gpu", "cuda"),
        (" GPU ", HOPPER, "gpu", "cuda"),
        ("emulator", HOPPER, "emulator", "cpu"),
        ("gpu", replace(HOPPER, dsl="4.9.0"), "gpu", "cuda"),
    ],
)
def test_choice(request_: str, machine: Machine, name: str, device: str) -> None:
    chosen = select(request_, machine)
    assert (chosen.name, chosen.device, chosen.on_gpu) == (name, device, name == "gpu")


@pytest.mark.parametrize(
    ("request_", "machine", "said"),
    [
        ("gpu", LAPTOP, ["no NVIDIA GPU", "unset CUTETUT_BACKEND"]),
        ("gpu", AMPERE, ["NVIDIA A100", "8.0", "9.0", "unset CUTETUT_BACKEND"]),
        ("gpu", BLACKWELL, ["NVIDIA B200", "10.0"]),
        ("gpu", replace(HOPPER, torch_cuda=False), ["without CUDA"]),
        ("tpu", HOPPER, ["'tpu'", "gpu, emulator or auto"]),
        ("auto", replace(LAPTOP, dsl="4.7.0"), ["4.7.0", f"nvidia-cutlass-dsl=={backend.DSL_VERSION}"]),
        ("emulator", replace(HOPPER, dsl="4.9.0"), ["4.9.0", f"nvidia-cutlass-dsl=={backend.DSL_VERSION}"]),
        ("auto", replace(LAPTOP, dsl=None), ["not installed", "pip install nvidia-cutlass-dsl"]),
        ("auto", replace(HOPPER, torch=None), ["pip install torch"]),
    ],
)
def test_impossible_requests_say_what_to_do(request_: str, machine: Machine, said: list[str]) -> None:
    with pytest.raises(BackendError) as caught:
        select(request_, machine)
    for words in said:
        assert words in str(caught.value)


def test_line_names_backend_and_reason() -> None:
    assert select("auto", HOPPER).line() == "cutetut: kernels run on the GPU (NVIDIA H200, compute capability 9.0)"
    assert select("auto", LAPTOP).line() == "cutetut: kernels run in the emulator (no NVIDIA GPU was found)"
    assert "compute capability 8.0" in select("auto", AMPERE).line()
    assert "CUTETUT_BACKEND=emulator" in select("emulator", HOPPER).line()


def test_request_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(backend.VARIABLE, "gpu")
    assert select(machine=HOPPER).name == "gpu"
    monkeypatch.setenv(backend.VARIABLE, "emulator")
    assert select(machine=HOPPER).name == "emulator"
    monkeypatch.delenv(backend.VARIABLE)
    assert select(machine=HOPPER).name == "gpu"


def run(code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CUTE_", "CUTETUT_"))}
    environment |= {"PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.mark.emulator
def test_import_prints_one_line_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    code = (
        "import cutetut, os; from cutetut import backend; backend.activate()\n"
        "print(cutetut.device, cutetut.on_gpu, os.environ['CUTE_DSL_ARCH'])\n"
        "import cutlass; from cutlass.cutlass_dsl import CuTeDSL\n"
        "print(CuTeDSL._get_dsl().envar.arch); print(backend.artifact_dir(), os.path.isdir(backend.artifact_dir()))"
    )
    done = run(code, tmp_path, CUTETUT_BACKEND="emulator")
    assert done.returncode == 0, done.stderr
    first, second, arch, folder = done.stdout.splitlines()
    assert first == "cutetut: kernels run in the emulator (CUTETUT_BACKEND=emulator)"
    assert (second, arch) == ("cpu False sm_90a", "sm_90a")
    path, existed = folder.split()
    assert existed == "True" and not os.path.exists(path)
    assert not list(tmp_path.iterdir())
    assert done.stderr == ""


@pytest.mark.emulator
def test_dsl_imported_before_sees_the_settings(tmp_path: Path) -> None:
    code = (
        "import cutlass, cutlass.cute; from cutlass.cutlass_dsl import CuTeDSL\n"
        "import cutetut; e = CuTeDSL._get_dsl().envar\n"
        "print(e.arch, e.disable_file_caching, e.dump_dir == cutetut.backend.artifact_dir())"
    )
    done = run(code, tmp_path, CUTETUT_BACKEND="emulator")
    assert done.stdout.splitlines()[-1] == "sm_90a True True", done.stderr


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"CUTETUT_BACKEND": "cpu"}, "set it to gpu, emulator or auto"),
        ({"CUTETUT_BACKEND": "emulator", "CUTE_DSL_ARCH": "sm_100a"}, "unset CUTE_DSL_ARCH"),
        ({"CUTETUT_BACKEND": "emulator", "TMPDIR": "/proc"}, None),
    ],
)
def test_import_fails_clearly(tmp_path: Path, variables: dict[str, str], said: str | None) -> None:
    if said is None:  # no temporary folder can be written at all
        code = (
            "import tempfile\ndef refuse(*a, **k): raise OSError(28, 'No space left on device')\n"
            "tempfile.mkdtemp = refuse\nimport cutetut, cutlass"
        )
        said = "set TMPDIR to a writable folder"
    else:
        code = "import cutetut, cutlass"
    done = run(code, tmp_path, **{k: v for k, v in variables.items() if k != "TMPDIR"})
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("cutetut.backend.BackendError: ") and said in done.stderr


@pytest.mark.emulator
@pytest.mark.parametrize(
    "code",
    [
        "import cutetut, cutlass",
        "import cutlass.cute; import cutetut",
        "import cutetut, importlib.util as u; u.find_spec('cutlass'); import cutlass.cute",
        "import cutetut; cutetut.device",
    ],
)
def test_a_backend_is_chosen_when_the_dsl_is_there_too(code: str, tmp_path: Path) -> None:
    done = run(code, tmp_path, CUTETUT_BACKEND="emulator")
    assert done.stdout == "cutetut: kernels run in the emulator (CUTETUT_BACKEND=emulator)\n", done.stderr


@pytest.mark.emulator
@pytest.mark.parametrize("package", ["cutetut", "cutetut.emulator.launch", "cutetut.emulator.ptx"])
def test_importing_alone_needs_no_torch_and_prints_nothing(package: str, tmp_path: Path) -> None:
    code = f"import sys; sys.modules.update(torch=None, cutlass=None); import {package}"
    done = run(code, tmp_path, CUTETUT_BACKEND="emulator")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.emulator
def test_commands_leave_the_choice_to_themselves(tmp_path: Path) -> None:
    code = "from cutetut.cli import main; main(['cache']); import cutlass; print('end')"
    done = run(code, tmp_path, CUTETUT_BACKEND="emulator")
    assert "kernels run" not in done.stdout and done.stdout.endswith("end\n"), done.stderr


@pytest.mark.emulator
def test_user_dump_dir_is_kept(tmp_path: Path) -> None:
    done = run(
        "import cutetut; print(cutetut.backend.artifact_dir())",
        tmp_path,
        CUTETUT_BACKEND="emulator",
        CUTE_DSL_DUMP_DIR=str(tmp_path),
    )
    assert done.stdout.splitlines()[-1] == str(tmp_path) and tmp_path.is_dir()
