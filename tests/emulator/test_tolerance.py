"""CUTETUT_WARN and CUTETUT_WAIVE: a kernel goes on after what is undefined but often harmless, and nothing else."""

from __future__ import annotations

import os
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest

from cutetut.cli import _with_kinds, parser
from cutetut.emulate import run as emulate
from cutetut.emulator.checks.tolerance import KINDS, Tolerance, Waiver
from cutetut.emulator.errors import (
    DivergentBarrier,
    EmulatorError,
    EmulatorWarning,
    IllegalInstruction,
    LaunchError,
    MissingBarrier,
    OutOfBounds,
    Uninitialized,
)  # fmt: skip
from tests import warm
from tests.emulator.harness import kernel, run

pytestmark = pytest.mark.emulator

ROOT = Path(__file__).resolve().parents[2]
START = """.shared .align 16 .b32 buf[64];
mov.u32 %r1, %tid.x; ld.param.b64 %rd1, [p0]; mad.wide.u32 %rd2, %r1, 4, %rd1;
mov.u32 %r10, buf; mad.lo.u32 %r10, %r1, 4, %r10; setp.lt.u32 %p1, %r1, 20;"""
STORE = "st.global.b32 [%rd2], %r2;"
I = np.arange(64)  # noqa: E741

REGISTER = "@%p1 mov.u32 %r2, 7;"
LOOP = """ld.shared.b32 %r3, [%r10]; mov.u32 %r2, 1; @!%p1 mov.u32 %r2, 2;
L: setp.eq.u32 %p2, %r3, 0; @%p2 bra END; sub.u32 %r3, %r3, 1; add.u32 %r2, %r2, 10; bra L; END:"""
GENERIC = "cvt.u64.u32 %rd4, %r10; cvta.shared.u64 %rd4, %rd4; ld.b32 %r2, [%rd4];"
GUARD = "mov.u32 %r2, 1; @%p4 mov.u32 %r2, 2;"
BULK = """mov.u32 %r2, 5; mov.u32 %r12, buf; setp.eq.u32 %p2, %r1, 0;
@%p2 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r12], 16; cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0; bar.sync 0;"""
HALF_MASK = "shfl.sync.bfly.b32 %r2, %r1, 1, 31, 0xFFFF;"  # executed by all 32 lanes
BALLOT = "vote.sync.ballot.b32 %r2, %p1, 0xFFFF;"
EXITED = "setp.gt.u32 %p2, %r1, 31; @%p2 exit; @!%p1 exit; shfl.sync.down.b32 %r2, %r1, 4, 31, -1;"
RACE = """st.shared.b32 [%r10], %r1; mov.u32 %r11, buf; xor.b32 %r12, %r1, 32; mad.lo.u32 %r11, %r12, 4, %r11;
ld.shared.b32 %r2, [%r11];"""


def launch(lines: str) -> np.ndarray:
    out = np.zeros(64, np.uint32)
    run(kernel(f"{START}\n{lines}\n{STORE}"), out, block=(64, 1, 1))
    return out


CASES = [
    ("uninitialized", REGISTER, Uninitialized, np.where(I < 20, 7, 0)),
    ("uninitialized", LOOP, Uninitialized, np.where(I < 20, 1, 2)),
    ("uninitialized", GENERIC, Uninitialized, 0 * I),
    ("uninitialized", GUARD, Uninitialized, 0 * I + 1),
    ("uninitialized", BULK, Uninitialized, 0 * I + 5),
    ("shuffle", HALF_MASK, IllegalInstruction, I ^ 1),
    ("shuffle", BALLOT, IllegalInstruction, np.where(I < 32, 0xFFFFF, 0)),
    ("shuffle", EXITED, Uninitialized, np.where(I < 20, np.minimum(I + 4, 31), 0)),
    ("race", RACE, MissingBarrier, I ^ 32),
]


@pytest.mark.parametrize(("kind", "lines", "error", "wanted"), CASES)
def test_a_warning_in_place_of_an_error(
    kind: str, lines: str, error: type[EmulatorError], wanted: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = ",".join({*KINDS} - {kind})
    monkeypatch.setenv("CUTETUT_WARN", others)
    with pytest.raises(error) as found:
        launch(lines)
    for value in ("1", kind):
        monkeypatch.setenv("CUTETUT_WARN", value)
        with pytest.warns(EmulatorWarning, match=f"{kind}: {error.__name__}: ") as warned:
            result = launch(lines)
        np.testing.assert_array_equal(result, wanted.astype(np.uint32))
        assert found.value.what in str(warned[0].message) and f"PTX line {found.value.place.ptx_line}" in str(  # type: ignore[union-attr]
            warned[0].message
        )


def test_other_errors_stay_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTETUT_WARN", "1")
    with pytest.raises(OutOfBounds):
        launch("mov.u32 %r2, 1; ld.global.b32 %r3, [%rd2+256];")
    with pytest.raises(DivergentBarrier):
        launch("mov.u32 %r2, 1; @%p1 bra A; bar.warp.sync 0xF00FFFFF; bra B; A: bar.sync 0; B:")


def place_of(text: str) -> int:
    """The line of the store in a kernel's PTX."""
    return 1 + text[: text.index(STORE)].count("\n")


def test_a_waiver_is_for_one_kind_at_one_line_and_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    line = place_of(kernel(f"{START}\n{REGISTER}\n{STORE}"))
    for wrong in (f"race@PTX:{line}", f"uninitialized@PTX:{line + 1}", f"uninitialized@kernel.py:{line}"):
        monkeypatch.setenv("CUTETUT_WAIVE", wrong)
        with pytest.raises(Uninitialized):
            launch(REGISTER)
    monkeypatch.setenv("CUTETUT_WAIVE", f"race@kernel.py:1; uninitialized@PTX:{line}")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        for _ in range(3):
            np.testing.assert_array_equal(launch(REGISTER), np.where(I < 20, 7, 0))
    assert [str(w.message) for w in warned] == [f"uninitialized: waived at PTX:{line}"]


def test_the_line_of_the_load_or_of_the_use_may_be_waived(monkeypatch: pytest.MonkeyPatch) -> None:
    text = kernel(f"{START}\n{LOOP}\n{STORE}")
    load, use = (1 + text[: text.index(word)].count("\n") for word in ("ld.shared", "@%p2 bra END"))
    assert load != use
    monkeypatch.setenv("CUTETUT_WAIVE", f"uninitialized@PTX:{load}")
    with pytest.warns(EmulatorWarning, match="waived"):
        launch(LOOP)
    monkeypatch.setenv("CUTETUT_WAIVE", f"uninitialized@PTX:{use}")
    with pytest.warns(EmulatorWarning, match="waived"):
        launch(LOOP)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CUTETUT_WARN", "deadlock"),
        ("CUTETUT_WARN", "race,2"),
        ("CUTETUT_WAIVE", "race"),
        ("CUTETUT_WAIVE", "race@kernel.py"),
        ("CUTETUT_WAIVE", "out of bounds@kernel.py:3"),
    ],
)
def test_what_cannot_be_tolerated_is_refused(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(LaunchError):
        launch("mov.u32 %r2, 1;")


def test_the_environment() -> None:
    assert Tolerance.from_environment({}) == Tolerance()
    assert Tolerance.from_environment({"CUTETUT_WARN": "0"}).kinds == set()
    found = Tolerance.from_environment({"CUTETUT_WARN": "race", "CUTETUT_WAIVE": "shuffle@a/b.py:3;"})
    assert found.kinds == {"race"} and found.waivers == (Waiver("shuffle", "a/b.py:3"),)


# the command line ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "warn", "waive", "script"),
    [
        (["k.py", "--warn"], "", [], ["--warn"]),
        (["--warn", "k.py", "-n", "3"], "all", [], ["-n", "3"]),
        (["--warn=race", "k.py"], "race", [], []),
        (["--waive", "race@k.py:1", "--warn", "k.py", "--warn"], "all", ["race@k.py:1"], ["--warn"]),
        (["--waive=race@k.py:1", "--waive", "shuffle@k.py:2", "k.py"], "", ["race@k.py:1", "shuffle@k.py:2"], []),
    ],
)
def test_options_before_the_script(given: list[str], warn: str, waive: list[str], script: list[str]) -> None:
    options = parser().parse_args(_with_kinds(["emulate", *given]))
    assert (options.warn, options.waive, options.script, options.args) == (warn, waive, "k.py", script)


SCRIPT = """
import cutlass, cutlass.cute as cute, torch
from cutlass.cute.runtime import from_dlpack

@cute.kernel
def show_kernel(x: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    tile = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(32), 16)
    x[i] = tile[i]

@cute.jit
def show(x: cute.Tensor):
    show_kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1))

x = torch.ones(32).cuda()
for _ in range(3):
    show(from_dlpack(x))
print("sum", x.sum().item())
"""
LINE = 1 + SCRIPT[: SCRIPT.index("x[i] = tile")].count("\n")


def command(*options: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CUTE_", "CUTETUT_"))}
    return subprocess.run(
        warm.command("cutetut", "emulate", *options),
        env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_a_script_goes_on_with_warn_and_with_a_waiver(tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text(SCRIPT)
    done = command("--warn", str(script))
    assert (done.returncode, done.stdout) == (0, "sum 0.0\n")
    assert done.stderr.count("EmulatorWarning: uninitialized: Uninitialized: load of shared memory") == 1
    assert "x[i] = tile[i]" in done.stderr
    done = command("--waive", f"uninitialized@show.py:{LINE}", str(script))
    assert (done.returncode, done.stdout) == (0, "sum 0.0\n")
    assert done.stderr.count("EmulatorWarning") == 1 and f"waived at show.py:{LINE}" in done.stderr
    done = command("--warn=race,shuffle", str(script))
    assert done.returncode == 1 and "errors.Uninitialized: load of shared memory" in done.stderr


def test_a_wrong_waiver_is_refused_before_the_script_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "show.py"
    script.write_text("print('ran')")
    assert emulate(str(script), [], waive=["everything@show.py:1"]) == 1
    out, err = capfd.readouterr()
    assert out == "" and "cutetut emulate: 'everything' in CUTETUT_WAIVE cannot be tolerated; these can: " in err
