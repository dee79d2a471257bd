"""The command line and the doctor, on healthy and on broken machines."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from cutetut import backend, cli, doctor
from cutetut.cli import main, parser
from cutetut.doctor import Facts
from cutetut.measure import bench, emulator_bench, turns

ROOT = Path(__file__).resolve().parent.parent
HOPPER = backend.Machine("NVIDIA H200", (9, 0), "2.11.0+cu130", True, backend.DSL_VERSION)
NO_GPU = backend.Machine(torch="2.13.0", dsl=backend.DSL_VERSION)
HEALTHY = Facts(
    python=(3, 11, 9), system="Linux", architecture="x86_64", distribution="Debian", processor="a processor", cores=2,
    memory_gb=16.0, disk_gb=50.0, project="/home/reader/cutetut", installed=False, project_writable=True,
    temporary_writable=True, cache_problem="", machine=NO_GPU, torch_error="", dsl_error="", llvm="0.50.0",
    llvm_error="", driver=None, request="", packages=dict.fromkeys(doctor.CHAPTERS, "1"),
    browser="/usr/bin/chromium", disassembler="/usr/bin/nvdisasm",
)  # fmt: skip
BARE = dict.fromkeys(doctor.CHAPTERS)
INSTALLED = replace(
    HEALTHY, project=None, installed=True, project_writable=False, packages=BARE, browser=None, disassembler=None
)  # `pip install cutetut`, and nothing else


def cutetut(*args, env=None, cwd=ROOT):
    """Run the command line as a reader does."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    command = [sys.executable, "-m", "cutetut", *args]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=300)


def without(*modules):
    """The text of a sitecustomize.py in which importing these modules fails, as if they were not installed."""
    return f"""import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {modules!r}:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)
sys.meta_path.insert(0, Block())
"""


# --- the doctor's checks, each on a machine where it must speak


def test_a_healthy_machine_has_nothing_to_do():
    assert doctor.findings(HEALTHY) == []
    assert doctor.findings(replace(HEALTHY, machine=HOPPER, driver="580.1")) == []
    assert doctor.where(HEALTHY) == "emulator"
    assert doctor.where(replace(HEALTHY, machine=HOPPER)) == "gpu"
    assert "The curriculum can run here" in doctor.report(HEALTHY)


MISSING_TORCH = dataclasses.replace(NO_GPU, torch=None)
OTHER_GPU = dataclasses.replace(HOPPER, gpu="NVIDIA A100", capability=(8, 0))
CPU_TORCH = dataclasses.replace(HOPPER, torch="2.13.0+cpu", torch_cuda=False)
NO_KERNEL = {**dict.fromkeys(doctor.CHAPTERS, "1"), "ipykernel": None}
NO_LAB = {**dict.fromkeys(doctor.CHAPTERS, "1"), "jupyterlab": None}

BROKEN: list[tuple[dict[str, Any], bool, str, str]] = [
    ({"python": (3, 10, 4)}, True, "Python 3.10.4 is not supported", "install Python 3.11 to 3.13"),
    ({"python": (3, 14, 0)}, True, "Python 3.14.0 is not supported", "make PYTHON="),
    ({"system": "Darwin"}, True, "does not exist for Darwin", "Linux container"),
    ({"architecture": "riscv64"}, True, "on riscv64", "use 64-bit Linux"),
    ({"torch_error": "No module", "machine": MISSING_TORCH}, True, "torch cannot be", "pip install -r requirements"),
    ({"machine": dataclasses.replace(NO_GPU, dsl="4.7.0")}, True, "CuTe DSL 4.7.0 is installed", "==4.8.1"),
    ({"machine": dataclasses.replace(NO_GPU, dsl="5.0.0")}, True, "CuTe DSL 5.0.0 is installed", "==4.8.1"),
    ({"machine": dataclasses.replace(HOPPER, dsl="5.0.0")}, False, "CuTe DSL 5.0.0 is installed", "==4.8.1"),
    ({"dsl_error": "No module named 'cutlass'"}, True, "cannot be imported: No module", "pip install nvidia-cutlass"),
    ({"llvm": None, "llvm_error": "No module"}, False, "llvmlite is not installed", f"pip install '{doctor.LLVM}'"),
    ({"llvm_error": "OSError: no libLLVM"}, True, "llvmlite 0.50.0 cannot be imported: OSError", "CUTETUT_JIT=0"),
    ({"request": "gpu"}, True, "no NVIDIA GPU was found", "unset CUTETUT_BACKEND"),
    ({"request": "gpu", "machine": OTHER_GPU}, True, "=gpu, but NVIDIA A100 has", "unset CUTETUT_BACKEND"),
    ({"request": "tpu"}, True, "is not a backend", "unset CUTETUT_BACKEND"),
    ({"machine": OTHER_GPU}, False, "NVIDIA A100 has compute capability 8.0", "run in the emulator"),
    ({"machine": CPU_TORCH}, False, "a build without CUDA", "install a CUDA build of torch"),
    ({"project": None}, True, "no checkout of cutetut", "cd into one, or git clone"),
    ({"project": "/srv/c", "project_writable": False}, True, "no permission to write /srv/c", "chown"),
    ({"temporary_writable": False}, True, "no temporary folder", "TMPDIR"),
    ({"cache_problem": "Not a directory"}, False, "kept (Not a directory)", "CUTETUT_CACHE"),
    ({"disk_gb": 0.2}, True, "0.2 GB of disk", "free some"),
    ({"disk_gb": 1.0}, False, "1.0 GB of disk", "free some"),
    ({"memory_gb": 1.0}, False, "1.0 GB of memory", "one notebook at a time"),
    ({"packages": NO_KERNEL}, True, "not installed: ipykernel", "requirements.txt"),
    ({"packages": NO_LAB}, False, "not installed: jupyterlab", "requirements.txt"),
    ({"disassembler": None}, True, "no nvdisasm", "pip install nvidia-cuda-nvdisasm"),
    ({"browser": None}, False, "no Chromium", "chromium-driver"),
]


@pytest.mark.parametrize(("change", "fatal", "what", "remedy"), BROKEN)
def test_each_problem_is_named_with_its_remedy(change, fatal, what, remedy):
    facts = replace(HEALTHY, **change)
    matching = [finding for finding in doctor.findings(facts) if what in finding.what]
    assert len(matching) == 1, doctor.findings(facts)
    assert remedy in matching[0].remedy
    assert matching[0].fatal is fatal
    text = doctor.report(facts)
    assert f"{'Problem' if fatal else 'Note'}: {matching[0].what}" in text
    assert ("cannot run here yet" in text) is fatal


def test_every_check_has_a_machine_on_which_it_speaks():
    spoken = {check.__name__ for check in doctor.CHECKS for change, *_ in BROKEN if check(replace(HEALTHY, **change))}
    assert spoken == {check.__name__ for check in doctor.CHECKS}


# the same where the package was installed, and there is no checkout whose files could help
AWAY: list[tuple[dict[str, Any], bool, str, str]] = [
    ({}, False, "not installed: ipykernel, ", "pip install 'cutetut[course]'"),
    ({}, False, "no nvdisasm", "pip install nvidia-cuda-nvdisasm"),
    ({"python": (3, 10, 4)}, True, "Python 3.10.4 is not supported", "python3.12 -m pip install cutetut"),
    ({"torch_error": "No module", "machine": MISSING_TORCH}, True, "torch cannot be", "pip install torch numpy"),
    ({"machine": dataclasses.replace(NO_GPU, dsl="4.7.0")}, True, "CuTe DSL 4.7.0 is installed", "==4.8.1"),
    ({"memory_gb": 1.0}, False, "1.0 GB of memory", "one notebook at a time"),
]


@pytest.mark.parametrize(("change", "fatal", "what", "remedy"), AWAY)
def test_without_a_checkout_each_remedy_works_without_one(change, fatal, what, remedy):
    facts = replace(INSTALLED, **change)
    (found,) = [finding for finding in doctor.findings(facts) if what in finding.what]
    assert remedy in found.remedy and found.fatal is fatal
    text = doctor.report(facts)
    assert ("Kernels cannot run here yet." if fatal else "Kernels can run here: cutetut emulate script.py") in text
    for of_a_checkout in ("make ", "requirements.txt", "jupyter-book", "checkout", "Chromium"):
        assert of_a_checkout not in text


def test_the_doctor_looks_for_all_that_the_chapters_need():
    """Who has Jupyter already, and installs cutetut alone, may lack only what the cells import, such as matplotlib."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    course = {Requirement(text).name for text in project["optional-dependencies"]["course"]}
    assert course == {*doctor.CHAPTERS, "nvidia-cuda-nvdisasm"} - {doctor.BOOK}  # that one's program is looked for
    (found,) = doctor.findings(replace(HEALTHY, packages={**HEALTHY.packages, "matplotlib": None}))
    assert found.fatal and found.what == "not installed: matplotlib"


def test_the_doctor_asks_for_the_llvmlite_that_the_package_asks_for():
    assert doctor.LLVM in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


def test_kernels_on_a_gpu_need_no_llvmlite():
    assert doctor.findings(replace(HEALTHY, machine=HOPPER, llvm=None, llvm_error="No module")) == []


def test_what_runs_without_a_checkout():
    assert "chapters can run" not in doctor.report(INSTALLED)
    course = {**dict.fromkeys(doctor.CHAPTERS, "1"), "jupyter-book": None}
    complete = replace(INSTALLED, packages=course, disassembler="/usr/bin/nvdisasm")
    assert doctor.findings(complete) == []
    assert "The chapters can run here: cutetut run 00_start_here" in doctor.report(complete)


def test_problems_come_before_notes():
    broken = replace(HEALTHY, memory_gb=1.0, disassembler=None, browser=None)
    order = [finding.fatal for finding in doctor.findings(broken)]
    assert order == [True, False, False]


# --- the commands, as a reader types them


def test_doctor_reports_this_machine():
    done = cutetut("doctor", env={"CUTETUT_BACKEND": ""})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    for part in (f"Python        {sys.version.split()[0]}", backend.DSL_VERSION, "kernels run", "can run here"):
        assert part in done.stdout


@pytest.mark.parametrize("module", ["torch", "cutlass", "numpy"])
def test_doctor_comes_when_a_package_is_missing(tmp_path, module):
    (tmp_path / "sitecustomize.py").write_text(without(module))
    done = cutetut("doctor", env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "CUTETUT_BACKEND": ""})
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"No module named '{module}'" in done.stdout
    assert "Traceback" not in done.stderr


def test_doctor_names_what_the_emulator_compiles_with(tmp_path):
    """Without it kernels run, but slowly, of which nothing else speaks; one that breaks ends them."""
    (tmp_path / "sitecustomize.py").write_text(without("llvmlite"))
    there, broken, mended = (
        cutetut("doctor", env={"PYTHONPATH": f"{path}{os.pathsep}{ROOT}", "CUTETUT_BACKEND": "emulator", **more})
        for path, more in ((ROOT, {}), (tmp_path, {}), (tmp_path, {"CUTETUT_JIT": "0"}))
    )
    assert re.search(r"^llvmlite +\d+\.\d+", there.stdout, re.MULTILINE) and there.returncode == 0, there.stdout
    assert "cannot be imported: ModuleNotFoundError: No module named 'llvmlite'" in broken.stdout
    assert broken.returncode == 1 and mended.returncode == 0, mended.stdout


@pytest.mark.emulator
@pytest.mark.parametrize(
    "module, command, target",
    [
        ("torch", "emulate", "script.py"),
        ("cutlass", "emulate", "script.py"),
        ("cuda", "emulate", "script.py"),
        ("IPython", "emulate", "page.ipynb"),
        ("nbformat", "run", ""),
        ("cutlass", "bench-emulator", "wgmma"),
    ],
)
def test_a_missing_package_is_one_line_that_names_the_doctor(tmp_path, module, command, target):
    (tmp_path / "sitecustomize.py").write_text(without(module))
    (tmp_path / "script.py").write_text("print(1)")
    (tmp_path / "page.ipynb").write_text('{"cells": []}')
    target = [str(tmp_path / target)] if "." in target else [target or "00_start_here"]
    done = cutetut(command, *target, env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"})
    assert done.returncode == 1 and "Traceback" not in done.stderr
    on_pypi = {"IPython": "ipython", "cutlass": "nvidia-cutlass-dsl", "cuda": "cuda-bindings"}
    package = on_pypi.get(module, module)
    assert f"the package {package} is not installed; `python -m cutetut doctor`" in done.stderr


def test_doctor_explains_an_impossible_backend(monkeypatch):
    done = cutetut("doctor", env={"CUTETUT_BACKEND": "gpu", "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 1
    assert "Problem: CUTETUT_BACKEND=gpu" in done.stdout and "unset CUTETUT_BACKEND" in done.stdout


@pytest.mark.emulator
@pytest.mark.parametrize("command", ["record", "bench"])
def test_what_needs_a_gpu_refuses_in_one_line_of_reason(command):
    name = next((ROOT / "notebooks").glob("0*.ipynb")).stem
    done = cutetut(command, name)
    assert done.returncode == 1
    assert done.stderr.startswith(f"cutetut {command}: this needs a Hopper GPU")
    assert "Traceback" not in done.stderr and done.stdout == ""


def test_an_unknown_notebook_is_named():
    done = cutetut("run", "99_nothing")
    assert done.returncode == 1
    assert "no notebook named 99_nothing; there are: 00_start_here" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("args", [[], ["fly"], ["bench"], ["emulate"]])
def test_wrong_usage_shows_how_it_is_used(args):
    done = cutetut(*args)
    assert done.returncode == 2
    assert "usage: python -m cutetut" in done.stderr
    if args == ["emulate"]:  # a script's own arguments are not required
        assert done.stderr.endswith("the following arguments are required: script\n")


def test_each_command_says_in_its_help_what_it_does(capsys):
    (commands,) = (action.choices for action in parser()._actions if action.dest == "command")
    listed = " ".join(parser().format_help().split())
    for name, command in dict(commands or {}).items():
        said = command.description
        assert f" {name} {said[0].lower()}{said[1:].rstrip('.')}" in listed
        with pytest.raises(SystemExit):
            main([name, "--help"])
        assert said in " ".join(capsys.readouterr().out.split())


def test_rows_and_parts_belong_to_one_notebook(capsys):
    both = ["04_scalar_fma_gemm", "05_partition_c"]
    assert main(["bench", *both, "--add", "[]"]) == 1
    assert capsys.readouterr().err == "cutetut bench: --add adds rows to the table of one notebook: name it\n"
    assert main(["bench", *both, "--part", "few"]) == 1
    assert "--part measures a part" in capsys.readouterr().err
    assert main(["bench", "04_scalar_fma_gemm", "--add", "[]", "--keep"]) == 1
    assert "--add keeps all that the table has" in capsys.readouterr().err


def test_empty_rows_measure_nothing_again(monkeypatch):
    """They are no expression, which `add` says; without them all would be measured, and the table overwritten."""
    called = []
    monkeypatch.setattr(bench, "run", lambda *given: called.append(("run", *given)))
    monkeypatch.setattr(bench, "add", lambda *given: called.append(("add", *given)))
    assert main(["bench", "04_scalar_fma_gemm", "--add", ""]) == 0
    assert called == [("add", "04_scalar_fma_gemm", "")]


def test_parts_of_the_emulators_benchmark(monkeypatch, capsys):
    measured: list[str] = []
    parts = {part: partial(measured.append, part) for part in emulator_bench.PARTS}
    monkeypatch.setattr(emulator_bench, "PARTS", parts)
    assert main(["bench-emulator"]) == main(["bench-emulator", "notebooks", "wgmma"]) == 0
    assert measured == ["scalar", "wgmma", "peer", "attention", "notebooks", "wgmma"]
    assert main(["bench-emulator", "few"]) == 1
    assert "the emulator's benchmark has no part few; there are: scalar, wgmma" in capsys.readouterr().err
    assert main(["bench", "emulator"]) == 1
    assert "`python -m cutetut bench-emulator` measures it" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["bench-emulator", "--help"])
    listed = capsys.readouterr().out
    assert all(part in listed for part in parts)


def test_the_table_of_commands_has_all_of_them():
    page = (ROOT / "book" / "how_it_runs.md").read_text()
    (choices,) = (action.choices for action in parser()._actions if action.dest == "command")
    assert choices is not None and sorted(re.findall(r"^\| `python -m cutetut ([\w-]+)", page, re.M)) == sorted(choices)


@pytest.mark.parametrize(("failed", "status"), [([], 0), ([["-m", "cutetut", "bench", "04_a", "--part", "few"]], 1)])
def test_parts_are_measured_side_by_side_by_programs_of_their_own(failed, status, monkeypatch, capsys):
    given = []

    def side_by_side(commands, jobs):
        given.append((commands, jobs))
        return failed

    monkeypatch.setattr(turns, "side_by_side", side_by_side)
    assert main(["bench", "04_a", "--part", "few", "--part", "odd", "--jobs", "9", "--keep"]) == status
    commands = [["-m", "cutetut", "bench", "04_a", "--part", part, "--keep"] for part in ("few", "odd")]
    assert given == [(commands, 9)]
    assert ("failed: 04_a --part few" in capsys.readouterr().err) == bool(failed)


def test_run_returns_one_if_a_notebook_failed(monkeypatch):
    from cutetut.course import execute

    monkeypatch.setattr(execute, "run", lambda *_: 2)
    assert main(["run"]) == 1
    monkeypatch.setattr(execute, "run", lambda *_: 0)
    assert main(["run"]) == 0


def test_run_lists_the_chapters_in_the_order_of_the_book(monkeypatch, capsys):
    from cutetut.course import execute, notebooks

    monkeypatch.setattr(execute, "run", None)  # nothing is executed
    assert main(["run", "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    tree = re.findall(r"file: notebooks/(\w+)", (ROOT / "_toc.yml").read_text())
    assert listed == tree and [notebooks.find(name).stem for name in listed] == listed
    with pytest.raises(SystemExit):
        main(["run", "--list", "00_start_here"])
    assert "not allowed with" in capsys.readouterr().err


def test_run_takes_the_backend(monkeypatch, capsys):
    from cutetut.course import execute

    asked = []

    def run(names, jobs, chosen):
        asked.append(chosen)
        return 0

    monkeypatch.setattr(execute, "run", run)
    monkeypatch.setattr(backend, "probe", lambda: NO_GPU)
    assert main(["run"]) == main(["run", "--backend", "emulator"]) == 0
    assert main(["run", "--backend", "gpu"]) == 1
    assert capsys.readouterr().err == "cutetut run: --backend gpu: no NVIDIA GPU was found\n"
    monkeypatch.setattr(backend, "probe", lambda: HOPPER)
    assert main(["run", "--backend", "gpu"]) == 0
    assert asked == [None, "emulator", "gpu"]


def test_record_takes_the_number_of_notebooks_at_a_time(monkeypatch, capsys):
    from cutetut.course import execute

    asked = []

    def record(names, jobs):
        asked.append((names, jobs))
        return 0

    monkeypatch.setattr(execute, "record", record)
    assert main(["record"]) == main(["record", "--jobs", "3", "04_a"]) == 0
    assert asked == [([], None), (["04_a"], 3)]
    with pytest.raises(SystemExit):
        main(["record", "--jobs", "0"])
    with pytest.raises(SystemExit):
        main(["record", "--help"])
    assert "recorded alone" in " ".join(capsys.readouterr().out.split())


def test_an_interruption_is_no_traceback(monkeypatch, capsys):
    from cutetut.course import execute

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "run", interrupted)
    assert main(["run"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_full_disk_is_no_traceback(monkeypatch, capsys):
    from cutetut.course import execute

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(execute, "run", full)
    assert main(["run"]) == 1
    assert "No space left on device; `python -m cutetut doctor` says more" in capsys.readouterr().err


def test_emulate_has_a_file_for_its_report(monkeypatch):
    from cutetut import emulate

    given = []

    def run(*options):
        given.append(options)
        return 0

    monkeypatch.setattr(emulate, "run", run)
    assert main(["emulate", "--report", "found.json", "--warn", "a.py", "--report", "x"]) == 0
    assert given == [("a.py", ["--report", "x"], False, "all", [], "found.json", {}, None, 0)]


def test_emulates_settings_are_variables(monkeypatch):
    from cutetut import emulate

    given = []

    def run(*options):
        given.append(options[-3:])
        return 0

    monkeypatch.setattr(emulate, "run", run)
    early = ["--async", "early", "--budget", "9", "--schedule=random:3"]
    assert main(["emulate", *early, "--gpus", "2", "--ranks", "3", "a.py", "--async", "x"]) == 0
    assert given == [({"CUTETUT_ASYNC": "early", "CUTETUT_SCHEDULE": "random:3", "CUTETUT_BUDGET": "9"}, 2, 3)]


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("--async", "never", "use late, early or random:SEED"),
        ("--schedule", "foo", "use order or random:SEED"),
        ("--budget", "-1", "is not a number of steps, of 1 or more"),
        ("--warn", "rave", "these can: uninitialized, shuffle, race, fragment"),
        ("--waive", "missing-barrier@a.py:3", "these can: uninitialized, shuffle, race, fragment"),
    ],
)
def test_a_bad_option_of_emulate_is_named_as_it_was_typed(option, value, remedy, capsys):
    assert main(["emulate", f"{option}={value}", "never_read.py"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("cutetut emulate: ") and remedy in err and err.count("\n") == 1
    assert option in err and value.split("@")[0] in err and "CUTETUT" not in err


def test_the_help_lists_the_kinds_that_can_be_tolerated():
    from cutetut.emulator.checks import tolerance

    assert tolerance.KINDS == cli.TOLERATED


def test_a_reader_that_has_enough_gets_no_traceback():
    command = f"{sys.executable} -m cutetut doctor | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr, done.stderr


def test_the_doctor_works_in_a_folder_that_was_deleted(tmp_path):
    command = f"mkdir gone && cd gone && rmdir ../gone && {sys.executable} -m cutetut doctor"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120
    )
    assert "Traceback" not in done.stderr and "kernels run" in done.stdout, done.stderr


def test_emulate_hands_the_script_its_own_arguments(monkeypatch):
    from cutetut import emulate

    given = []

    def run(script, args, module, warn, waive, report, settings, gpus, ranks):
        assert (warn, waive, report, settings, gpus, ranks) == ("", [], "", {}, None, 0)
        given.append((script, args, module))
        return 5

    monkeypatch.setattr(emulate, "run", run)
    assert main(["emulate", "a.py", "--mnk", "256,256,128", "-v"]) == 5
    assert main(["emulate", "a.py", "-m", "x"]) == 5
    assert main(["emulate", "-m", "pytest", "-x", "tests", "-m", "slow", "--help"]) == 5
    assert given == [
        ("a.py", ["--mnk", "256,256,128", "-v"], False),
        ("a.py", ["-m", "x"], False),
        ("pytest", ["-x", "tests", "-m", "slow", "--help"], True),
    ]
