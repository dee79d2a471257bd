"""What the emulator says when it fails itself: that it is its own mistake, at which instruction, and what to report."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cutlass.cute.runtime import from_dlpack

from cutetut.emulator import ptx
from cutetut.emulator.errors import InternalError, OutOfBounds, PtxSyntaxError
from cutetut.emulator.host import launches
from cutetut.emulator.machine.opcodes import OPS
from cutetut.emulator.machine.pending import Operation, Pending
from cutetut.emulator.units import load_all
from tests import warm
from tests.emulator.dsl_kernels import reverse
from tests.emulator.harness import kernel, run

pytestmark = pytest.mark.emulator

ROOT = Path(__file__).resolve().parents[2]
BODY = ".loc 1 7 3\nmov.u32 %r1, 5; popc.b32 %r2, %r1;"
SOURCE = kernel(BODY, header=f'.file 1 "{__file__}"')
LINE = 1 + SOURCE[: SOURCE.index("popc")].count("\n")


def broken(monkeypatch: pytest.MonkeyPatch, mnemonic: str, decoder: Callable[..., Any]) -> None:
    load_all()
    monkeypatch.setitem(OPS, mnemonic, replace(OPS[mnemonic], decode=decoder))


def fails(error: BaseException) -> Callable[..., Any]:
    def function(*_: Any) -> Any:
        raise error

    return function


@pytest.mark.parametrize("cause", [KeyError("lost"), IndexError("boolean index did not match"), ZeroDivisionError()])
@pytest.mark.parametrize("when", ["decoded", "ran"])
def test_the_emulators_own_failure(monkeypatch: pytest.MonkeyPatch, when: str, cause: Exception) -> None:
    step = fails(cause)
    broken(monkeypatch, "popc", step if when == "decoded" else lambda inst, machine: step)
    with pytest.raises(InternalError) as error:
        run(SOURCE, np.zeros(1, np.uint32))
    text = str(error.value)
    assert text.startswith(f"the emulator itself failed while it {when} ") and type(cause).__name__ in text
    assert f"PTX line {LINE}:  popc.b32 %r2, %r1" in text and "test_internal_error.py:7:" in text
    assert "not in the kernel" in text and "report it" in text and "PTX file" in text and "the command" in text
    assert error.value.__cause__ is cause


def test_a_failure_when_a_copy_completes_names_the_copy() -> None:
    (k,) = ptx.parse(SOURCE).kernels.values()
    copy = Operation("the copy of 16 bytes", k.body[0], 0, fails(KeyError("lost")))
    pending = Pending("late")
    pending.issue(copy)
    with pytest.raises(InternalError, match="while it completed the copy of 16 bytes: KeyError: 'lost'") as error:
        pending.complete_all()
    assert error.value.operation is copy


def test_a_failure_before_a_launch_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    cause = RuntimeError("Attempted to access the data pointer on an invalid python storage.")
    monkeypatch.setattr(launches, "possible_pointers", fails(cause))
    x = from_dlpack(torch.zeros(128))
    with pytest.raises(InternalError, match="while it looked for the memory that the launch may use: Run") as error:
        reverse(x, x)
    assert "report it" in str(error.value) and error.value.__cause__ is cause


@pytest.mark.parametrize("passing", [KeyboardInterrupt(), MemoryError(), BrokenPipeError()])
def test_what_is_no_failure_of_the_emulator_passes(monkeypatch: pytest.MonkeyPatch, passing: BaseException) -> None:
    broken(monkeypatch, "popc", lambda inst, machine: fails(passing))
    with pytest.raises(type(passing)):
        run(SOURCE, np.zeros(1, np.uint32))


def test_errors_of_the_kernel_stay_what_they_are() -> None:
    with pytest.raises(OutOfBounds):
        run(kernel("mov.u64 %rd1, 64; ld.global.b32 %r1, [%rd1];"), np.zeros(1, np.uint32))
    for line in ("ld.global.b32 %r1;", "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r1], %r2;"):
        with pytest.raises(PtxSyntaxError, match="wrong number of operands"):
            run(kernel(line), np.zeros(1, np.uint32))


SCRIPT = """
import sys
from dataclasses import replace
import cutlass.cute as cute, torch
from cutlass.cute.runtime import from_dlpack
from cutetut.emulator.machine.opcodes import OPS
from cutetut.emulator.units import load_all

@cute.kernel
def one_kernel(x: cute.Tensor):
    x[0] = 1.0

@cute.jit
def one(x: cute.Tensor):
    one_kernel(x).launch(grid=(1, 1, 1), block=(1, 1, 1))

load_all()
def lost(sel):
    return {}["lost"]
OPS["st"] = replace(OPS["st"], decode=lambda inst, machine: lost)
one(from_dlpack(torch.zeros(1).cuda()))
"""


def test_a_script_shows_the_cause_and_keeps_the_ptx_where_the_message_says(tmp_path: Path) -> None:
    script = tmp_path / "one.py"
    script.write_text(SCRIPT)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CUTE_", "CUTETUT_"))}
    environment |= {"PYTHONPATH": str(ROOT), "CUTE_DSL_DUMP_DIR": str(tmp_path)}
    command = warm.command("cutetut", "emulate", str(script))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    cause, _, last = done.stderr.partition("The above exception was the direct cause of the following exception")
    assert "KeyError: 'lost'" in cause and "in lost" in cause
    assert "InternalError: the emulator itself failed while it ran the kernel" in last and "x[0] = 1.0" in last
    assert list(tmp_path.glob("*.ptx"))
