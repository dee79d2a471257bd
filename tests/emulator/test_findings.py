"""What is found is data as well: kinds, sides and locations, for tools; how it is collected and written to a file.

That the two lines of every mistake in tests/emulator/bugs are sides of its report is asserted where the mistakes are
run: test_ordering.py and test_planted_bugs.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest

from cutetut.emulator import errors, findings
from cutetut.emulator.errors import Deadlock, EmulatorError, EmulatorWarning, MissingBarrier, OutOfBounds
from cutetut.emulator.findings import KINDS, Location, Report, Side, collecting, operation_of, role_of
from cutetut.emulator.units import load_all
from tests import warm
from tests.emulator.harness import kernel, run

ROOT = Path(errors.__file__).parents[2]
SHARED = ".shared .align 8 .b64 bar[4]; .shared .align 16 .b8 s[256];"
START = """mov.u32 %r0, %tid.x; mov.u32 %r1, bar; mov.u32 %r2, s; ld.param.b64 %rd0, [p0]; shr.u32 %r3, %r0, 5;
and.b32 %r4, %r0, 31; setp.ne.u32 %p1, %r0, 0; setp.ne.u32 %p7, %r4, 0; shl.b32 %r5, %r0, 2; add.u32 %r5, %r5, %r2;"""
RACE = """st.shared.b32 [%r5], %r0; xor.b32 %r6, %r0, 63; shl.b32 %r6, %r6, 2; add.u32 %r6, %r6, %r2;
ld.shared.b32 %r7, [%r6];"""


def fails(lines: str, warps: int) -> Report:
    with pytest.raises(EmulatorError) as caught:
        run(kernel(f"{START}\n{lines}", header=SHARED), np.zeros(64, np.uint32), block=(32 * warps, 1, 1))
    return caught.value.report


def classes(base: type[EmulatorError]) -> list[type[EmulatorError]]:
    return [base, *(found for child in base.__subclasses__() for found in classes(child))]


@pytest.mark.parametrize("error", classes(EmulatorError), ids=lambda error: error.__name__)
def test_every_error_is_of_a_kind(error: type[EmulatorError]) -> None:
    assert error.kind in KINDS


def test_every_kind_is_used_and_every_kind_that_is_used_exists() -> None:
    text = "".join(path.read_text() for path in Path(errors.__file__).parent.rglob("*.py") if path != _own())
    used = set(re.findall(r'\bkind\s*=\s*"([a-z-]+-[a-z-]+)"', text))
    assert used <= set(KINDS)
    assert {kind for kind in KINDS if f'"{kind}"' not in text} == set()


def _own() -> Path:
    return Path(findings.__file__)


@pytest.mark.emulator
def test_a_race_has_two_sides() -> None:
    report = fails(RACE, 2)
    assert (report.kind, report.severity, report.error) == ("missing-barrier", "error", "MissingBarrier")
    assert report.kernel == "k"
    reads, writes = report.sides
    assert (reads.role, reads.cta, reads.warps, reads.operation) == ("reads", (0, 0, 0), (0,), "")
    assert reads.lanes == tuple(range(32))  # all of them race; the text names the first
    assert (writes.role, writes.cta, writes.warps, writes.lanes) == ("writes", (0, 0, 0), (1,), (31,))
    assert reads.ptx_text.startswith("ld.shared.b32") and writes.ptx_text.startswith("st.shared.b32")
    assert reads.ptx_line is not None and writes.ptx_line is not None
    (where,) = report.locations
    assert (where.space, where.offset, where.nbytes, where.cta) == ("shared", 32 + 252, 4, (0, 0, 0))
    assert report.remedy in report.text and report.explanation == report.text.splitlines()[0]


@pytest.mark.emulator
def test_an_address_outside_of_everything_is_located() -> None:
    report = fails("add.u64 %rd0, %rd0, 256; @!%p1 ld.global.b32 %r6, [%rd0];", 1)
    assert report.kind == "out-of-bounds" and report.error == OutOfBounds.__name__
    (side,), (where,) = report.sides, report.locations
    assert (side.role, side.lanes) == ("reads", (0,))
    assert (where.space, where.offset, where.nbytes) == ("global", 256, 4) and where.name and where.address


WAITS = "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+8], 0; @!%p2 bra W;"


@pytest.mark.emulator
def test_a_deadlock_names_the_barrier_the_waiters_and_who_is_missing() -> None:
    """Warp 1 waits for two arrivals; warp 0's is there, and warp 2, which sleeps at a named barrier, owes the other."""
    report = fails(f"""@!%p1 mbarrier.init.shared::cta.b64 [%r1+8], 2;
    bar.sync 0; setp.eq.u32 %p3, %r3, 1; @%p3 bra W; setp.eq.u32 %p3, %r3, 2; @%p3 bra T;
    @!%p7 mbarrier.arrive.shared::cta.b64 _, [%r1+8]; bra END;
    T: bar.sync 3, 64; @!%p7 mbarrier.arrive.shared::cta.b64 _, [%r1+8]; bra END;
    {WAITS} END:""", 3)  # fmt: skip
    assert report.kind == "deadlock" and report.error == Deadlock.__name__
    at = "the mbarrier at shared offset 8"
    assert {(s.role, s.warps, s.at, s.ptx_text.split()[0]) for s in report.sides} == {
        ("waits", (1,), at, "mbarrier.try_wait.parity.shared::cta.b64"),
        ("arrives", (0,), at, "@!%p7"),
        ("missing", (2,), at, "@!%p7"),
        ("waits", (2,), "barrier 3", "bar.sync"),
    }
    assert set(report.locations) == {
        Location("mbarrier", 8, 8, cta=(0, 0, 0)), Location("named barrier", 3, cta=(0, 0, 0)),
    }  # fmt: skip
    assert str(report.locations[0]) in report.text


@pytest.mark.emulator
def test_a_deadlock_names_who_could_come_to_a_named_barrier() -> None:
    report = fails("""@!%p1 mbarrier.init.shared::cta.b64 [%r1+8], 1; bar.sync 0; setp.eq.u32 %p3, %r3, 1; @%p3 bra T;
    W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+8], 0; @!%p2 bra W; bar.sync 2, 64; bra END;
    T: bar.sync 2, 64; END:""", 2)  # fmt: skip
    assert ("missing", (0,), "barrier 2") in {(s.role, s.warps, s.at) for s in report.sides}
    assert ("waits", (1,), "barrier 2") in {(s.role, s.warps, s.at) for s in report.sides}


SPIN = "L: ld.volatile.global.b32 %r5, [%rd0]; setp.eq.u32 %p3, %r5, 0; @%p3 bra L;"


@pytest.mark.emulator
def test_lanes_that_are_missing_are_sides() -> None:
    """One lane spins and never comes; it would leave the kernel after its loop."""
    report = fails(f"@%p7 bra ON; {SPIN} bra END; ON: bar.warp.sync 0xffffffff; END:", 1)
    assert report.kind == "divergent-barrier"
    here, missing = report.sides
    assert (here.role, here.lanes, here.ptx_text.split()[0]) == ("waits", (1,), "bar.warp.sync")
    assert (missing.role, missing.warps, missing.lanes) == ("missing", (0,), (0,))
    assert missing.ptx_text.split()[0] == "ld.volatile.global.b32"


def test_json_keeps_everything() -> None:
    side = Side("reads", "note", "k", (1, 2, 3), (4,), (5, 6), "TMA copy", "b", 7, "ld", "f.py", 8, "f.py:8", "x = y")
    place = Location("shared", 16, 4, "row", (0, 0, 1), 4096)
    report = Report("missing-barrier", "error", "MissingBarrier", "k", "what", "hint", "text", (side,), (place,))
    data = json.loads(json.dumps(report.as_json()))
    assert data["sides"][0]["lanes"] == [5, 6] and data["locations"][0]["cta"] == [0, 0, 1]
    assert Report.from_json(data) == report


@pytest.mark.parametrize(
    "opcode, space, role, operation",
    [
        ("ld.global.nc.b32", "global", "reads", ""), ("st.shared.b32", "shared", "writes", ""),
        ("red.global.add.f32", "global", "updates", ""), ("ldmatrix.sync", "shared", "reads", ""),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.tile", "shared", "writes", "TMA copy"),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.tile", "global", "reads", "TMA copy"),
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group", "shared", "reads", "TMA copy"),
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group", "global", "writes", "TMA copy"),
        ("cp.async.cg.shared.global", "shared", "writes", "cp.async"),
        ("cp.async.mbarrier.arrive.noinc.shared.b64", "mbarrier", "arrives", ""),
        ("cp.async.bulk.wait_group.read", "", "waits", ""), ("cp.async.commit_group", "", "executes", ""),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "shared", "reads", "WGMMA"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "", "multiplies", "WGMMA"),
        ("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32", "shared", "writes", "asynchronous store"),
        ("barrier.cluster.wait.acquire", "cluster barrier", "waits", ""), ("bar.sync", "", "waits", ""),
        ("bar.cta.arrive", "named barrier", "arrives", ""), ("redux.sync.add.s32", "", "executes", ""),
        ("multimem.red.relaxed.gpu.global.add.f32", "global", "updates", ""), ("griddepcontrol.wait", "", "waits", ""),
        ("griddepcontrol.launch_dependents", "", "executes", ""),
        ("mbarrier.complete_tx.relaxed.cta.shared::cta.b64", "mbarrier", "completes", ""),
        ("fma.rn.f32", "", "executes", ""), ("nothing.like.it", "", "executes", ""),
    ],
)  # fmt: skip
def test_an_instruction_says_what_it_does_to_memory(opcode: str, space: str, role: str, operation: str) -> None:
    load_all()
    assert (role_of(opcode, space), operation_of(opcode)) == (role, operation)


@pytest.mark.emulator
def test_all_findings_of_a_process_are_collected_once_each() -> None:
    heard: list[Report] = []
    with collecting(heard.append) as found:
        first = fails(RACE, 2)
        with collecting() as inner:
            second = fails("@!%p1 trap;", 1)
    fails(RACE, 2)
    assert found == heard == [first, second] and inner == [second]


@pytest.mark.emulator
def test_a_warning_has_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTETUT_WARN", "race")
    text = kernel(f"{START}\n{RACE}", header=SHARED)
    with collecting() as found, warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        run(text, np.zeros(64, np.uint32), block=(64, 1, 1))
    (message,) = [w.message for w in shown if isinstance(w.message, EmulatorWarning)]
    assert found == [message.report]
    assert (message.report.severity, message.report.kind) == ("warning", "missing-barrier")
    assert message.report.error == MissingBarrier.__name__
    assert message.report.text == str(message) and len(message.report.sides) == 2


SCRIPT = """
import torch
import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack

@cute.kernel
def flip(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    row = cutlass.utils.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(64))
    row[tid] = mX[tid]
    mY[tid] = row[63 - tid]

@cute.jit
def run(mX: cute.Tensor, mY: cute.Tensor):
    flip(mX, mY).launch(grid=(1, 1, 1), block=(64, 1, 1))

x = torch.ones(64, device="cuda")
try:
    run(from_dlpack(x), from_dlpack(torch.zeros_like(x)))
except Exception:
    if CATCH:
        print("caught")
    else:
        raise
"""


@pytest.mark.emulator
@pytest.mark.parametrize("catches", [True, False])
def test_emulate_writes_a_report(catches: bool, tmp_path: Path) -> None:
    """Also of a script that fails, and of an error that the script catches; the file's path is of the first folder."""
    script, file = tmp_path / "flip.py", tmp_path / "found.json"
    script.write_text(f"import os; os.chdir('/'); CATCH = {catches}" + SCRIPT)
    command = warm.command("cutetut", "emulate", "--report", "found.json", str(script))
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=_environment()
    )
    assert done.returncode == (0 if catches else 1), done.stderr
    data = json.loads(file.read_text())
    assert (data["version"], data["script"], data["status"]) == (1, str(script), done.returncode)
    (found,) = data["findings"]
    report = Report.from_json(found)
    assert report.kind == "missing-barrier" and {side.line for side in report.sides} == {11, 12}
    assert {side.file for side in report.sides} == {str(script)}
    assert catches or report.explanation in done.stderr


@pytest.mark.emulator
def test_a_report_of_nothing_and_one_that_cannot_be_written(tmp_path: Path) -> None:
    script = tmp_path / "nothing.py"
    script.write_text("print('done')")
    for file, status in (("found.json", 0), ("no/such/folder.json", 1)):
        command = warm.command("cutetut", "emulate", "--report", file, str(script))
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False, env=_environment()
        )
        assert (done.returncode, "done" in done.stdout) == (status, status == 0)  # a refusal comes before the script
        assert status == 0 or "the report cannot be written" in done.stderr
    assert json.loads((tmp_path / "found.json").read_text())["findings"] == []


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}
