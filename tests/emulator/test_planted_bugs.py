"""One line of a correct kernel changed: the emulator must name the fault, the lines that take part, and the way out.

The kernels are in tests/emulator/bugs, the changed lines in mutants.py; expected lines are found in the changed
source.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cutetut.emulator.checks.swizzles import Swizzles
from cutetut.emulator.errors import AsyncMismatch, EmulatorWarning, LaunchError, MissingBarrier, MissingFence
from cutetut.emulator.machine.pending import Operation, Pending
from tests.emulator.expected import EXPECTED, GEMM_LINE, LOAD_A
from tests.emulator.harness import kernel, run
from tests.emulator.mutants import CASES, MUTANTS, Mutant, compiled, load
from tests.emulator.ordering.model import check_report, unnamed
from tests.emulator.policies import right_under_every_policy

WARNINGS = {"exit_under_bulk_store", "registers_without_a_bound", "swizzles_differ"}


def test_every_mutant_has_its_test() -> None:
    assert set(EXPECTED) | WARNINGS == set(MUTANTS)
    assert len(MUTANTS) >= 16


@pytest.mark.emulator
@pytest.mark.parametrize("name", EXPECTED)
def test_planted_bug(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTETUT_ASYNC", "late")
    expected, mutant = EXPECTED[name], MUTANTS[name]
    loaded = load(mutant.kernel, tmp_path, mutant)
    launch, _ = compiled(loaded.module, CASES[mutant.kernel]()[0])
    started = time.process_time()
    with pytest.raises(expected.error) as caught:
        launch()
    assert time.process_time() - started < 1
    error = caught.value
    report = str(error)
    assert type(error) is expected.error
    for pattern in expected.says:
        assert re.search(pattern, report), f"{pattern!r} is not in\n{report}"
    if expected.at:
        assert error.place is not None and error.place.source == loaded.line(expected.at), report
    for part in expected.lines:
        assert re.search(re.escape(loaded.line(part)) + r"\b", report), f"{loaded.line(part)} is not in\n{report}"
    assert re.search(expected.hint, error.hint), error.hint
    check_report(error.report, report)
    assert not unnamed(loaded, [expected.at] if expected.at else [], error.report)


@pytest.mark.emulator
def test_a_long_list_of_registers_is_shown_by_its_ends(tmp_path: Path) -> None:
    mutant = MUTANTS["no_wgmma_fence"]
    launch, _ = compiled(load(mutant.kernel, tmp_path, mutant).module, CASES[mutant.kernel]()[0])
    with pytest.raises(MissingFence) as caught:
        launch()
    place = caught.value.place
    assert place is not None and place.ptx_text.count(",") > 32
    assert re.search(r"wgmma\.mma_async\S+\s+\{%r\d+, \.\.\., %r\d+\}, %rd\d+, %rd\d+, ", str(caught.value))


@pytest.mark.emulator
def test_bytes_that_nobody_announced_are_noticed_even_when_they_come_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second copy belongs to the next phase of its mbarrier, for which nobody has waited."""
    monkeypatch.setenv("CUTETUT_ASYNC", "early")
    mutant = MUTANTS["too_few_bytes_expected"]
    loaded = load(mutant.kernel, tmp_path, mutant)
    launch, _ = compiled(loaded.module, CASES[mutant.kernel]()[0])
    with pytest.raises(MissingBarrier, match="operand B of the WGMMA reads .* which a copy has filled") as caught:
        launch()
    assert loaded.line(GEMM_LINE) in str(caught.value) and loaded.line("cute.copy(load_b") in str(caught.value)


SHARED = ".shared .align 16 .b8 s[64]; .shared .align 8 .b64 bar;"
START = """ld.param.b64 %rd1, [p0]; mov.u32 %r1, bar; mov.u32 %r2, s; mbarrier.init.shared::cta.b64 [%r1], 1;
fence.mbarrier_init.release.cluster;"""
COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"


@pytest.mark.emulator
def test_bytes_that_nobody_announced_or_read_are_noticed_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTETUT_ASYNC", "early")
    text = kernel(f"""{START} mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 32; {COPY} [%r2], [%rd1], 32, [%r1];
    {COPY} [%r2+32], [%rd1], 32, [%r1]; W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0; @!%p1 bra W;""",
    header=SHARED)  # fmt: skip
    with pytest.raises(AsyncMismatch, match="have brought 32 bytes more than expect_tx announced"):
        run(text, np.zeros(16, np.uint32), block=(1, 1, 1))


@pytest.mark.emulator
def test_registers_without_a_bound_are_ignored_as_ptxas_does(tmp_path: Path) -> None:
    mutant = MUTANTS["registers_without_a_bound"]
    loaded = load(mutant.kernel, tmp_path, mutant)
    arguments, want = CASES[mutant.kernel]()
    launch, tensors = compiled(loaded.module, arguments)
    with pytest.warns(EmulatorWarning, match="setmaxnreg has no effect") as found:
        launch()
    assert loaded.line("setmaxregister_decrease") in str(found[0].message)
    assert "min_blocks_per_mp" in str(found[0].message)
    assert torch.equal(tensors[-1].double(), want)


@pytest.mark.emulator
def test_a_cta_that_exits_under_its_bulk_store_gets_a_warning(tmp_path: Path) -> None:
    mutant = MUTANTS["exit_under_bulk_store"]
    loaded = load(mutant.kernel, tmp_path, mutant)
    launch, _ = compiled(loaded.module, CASES[mutant.kernel]()[0])
    what = r"the CTA exits while .* still being read by the TMA store of 8192 bytes at coordinates \(0, 128\)"
    with pytest.warns(EmulatorWarning, match=what) as found:
        launch()
    message = str(found[0].message)
    assert loaded.line("cute.copy(store,") in message and "wait_group.read 0" in message


@pytest.mark.emulator
def test_a_swizzle_that_only_wgmma_uses_gives_wrong_numbers_and_a_warning(tmp_path: Path) -> None:
    mutant = MUTANTS["swizzles_differ"]
    loaded = load(mutant.kernel, tmp_path, mutant)
    arguments, want = CASES[mutant.kernel]()
    launch, tensors = compiled(loaded.module, arguments)
    with pytest.warns(
        EmulatorWarning, match="operand A of the WGMMA is read with the 128-byte swizzle; .* no swizzle"
    ) as found:
        launch()
    message = str(found[0].message)
    assert loaded.line(GEMM_LINE) in message and loaded.line(LOAD_A) in message
    assert len(found) == 1
    assert not torch.equal(tensors[-1].double(), want)


@pytest.mark.emulator
@pytest.mark.parametrize("wgmma", [0, 1, 3])
def test_two_different_swizzles_are_an_error(wgmma: int) -> None:
    notes: list[Any] = []
    body = [SimpleNamespace(index=0, loc=None, opcode="")]
    scheduler = SimpleNamespace(turn=1, note=lambda *a: notes.append(a), warn=lambda *a: notes.append(a))
    shared = SimpleNamespace(span=2048, origin=0)
    shadow = SimpleNamespace(wrote=np.zeros(128, np.int64), chunk_granules=lambda chunk: chunk[:, None])
    order = SimpleNamespace(shadow=shadow)  # instruction 0 has written everything
    machine: Any = SimpleNamespace(
        scheduler=scheduler, kernel=SimpleNamespace(body=body), shared=shared, unit=lambda _: order
    )
    visible = Swizzles(machine)
    visible.load(0, 1024, 1 + 2, 0)  # TMA with the 64-byte swizzle
    inst: Any = body[0]
    visible.check(np.arange(64), 2, inst, 0, "B")
    visible.check(np.arange(64, 128), 3, inst, 0, "B")  # not written by TMA
    visible.check(np.arange(8), wgmma, inst, 0, "B")  # 128 bytes at a boundary: no swizzle moves anything there
    assert not notes
    with pytest.raises(AsyncMismatch, match="operand B of the WGMMA is read with .*; TMA wrote it with the 64-byte"):
        visible.check(np.arange(64), wgmma, inst, 0, "B")
    assert len(notes) == 1
    visible.load(1024, 1024, 1, 0)  # without a swizzle: a tensor may lie swizzled in global memory already
    visible.check(np.arange(64, 128), wgmma, inst, 0, "B")
    assert len(notes) == 1 + (wgmma > 0)


# -- no alarm on correct kernels ------------------------------------------------------------------


@pytest.mark.parametrize("kernel", CASES)
def test_correct_kernels_under_every_policy(
    kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder, device: str
) -> None:
    loaded = load(kernel, tmp_path)
    arguments, want = CASES[kernel]()
    launch, tensors = compiled(loaded.module, arguments, device)
    right_under_every_policy(launch, tensors[-1], want, monkeypatch, recwarn)


BARRIER, MEET = "cute.arch.barrier(barrier_id=1, number_of_threads=128)", "cute.arch.sync_threads()"
FENCE = 'cute.arch.fence_proxy("async.shared", space="cta")'
HARMLESS = {
    "the threads meet, then all fence": (
        Mutant("tma_copy", FENCE, "cute.arch.barrier()"), Mutant("tma_copy", BARRIER, FENCE),
    ),
    "the threads meet, then the issuing warp fences": (
        Mutant("tma_copy", FENCE, "cute.arch.barrier()"), Mutant("tma_copy", BARRIER, f"if warp == 0: {FENCE}"),
    ),
    "the warpgroup meets, then fences": (
        Mutant("wgmma_tile", FENCE, "cute.arch.barrier()"), Mutant("wgmma_tile", MEET, FENCE),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HARMLESS)
def test_another_order_that_is_right_too(name: str, tmp_path: Path, device: str) -> None:
    """A proxy fence may stand behind the barrier, in the threads that issue the operation."""
    mutants = HARMLESS[name]
    loaded = load(mutants[0].kernel, tmp_path, *mutants)
    arguments, want = CASES[mutants[0].kernel]()
    launch, tensors = compiled(loaded.module, arguments, device)
    launch()
    assert torch.equal(tensors[-1].cpu().double(), want)


@pytest.mark.emulator
def test_a_fence_by_another_warp_behind_the_barrier_does_not_help(tmp_path: Path) -> None:
    mutants = Mutant("tma_copy", FENCE, "cute.arch.barrier()"), Mutant("tma_copy", BARRIER, f"if warp == 1: {FENCE}")
    launch, _ = compiled(load("tma_copy", tmp_path, *mutants).module, CASES["tma_copy"]()[0])
    with pytest.raises((MissingBarrier, MissingFence)):
        launch()


@pytest.mark.emulator
@pytest.mark.parametrize("policy", ["late", "early", "random:1"])
def test_a_copy_over_what_another_warp_reads(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both warps have waited for the first copy; nothing tells warp 0 that warp 1 has read it."""
    monkeypatch.setenv("CUTETUT_ASYNC", policy)
    wait = "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1]"
    text = kernel(f"""mov.u32 %r3, %tid.x; setp.ne.u32 %p2, %r3, 0; mov.u32 %r1, bar; mov.u32 %r2, s; @%p2 bra M;
    {START}
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 64; {COPY} [%r2], [%rd1], 64, [%r1];
    M: bar.sync 0; W: {wait}, 0; @!%p1 bra W; setp.lt.u32 %p3, %r3, 32; @%p3 bra N; ld.shared.b32 %r4, [%r2+16];
    N: @%p2 bra END; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 64; {COPY} [%r2], [%rd1], 64, [%r1];
    V: {wait}, 1; @!%p1 bra V; END:""", header=SHARED)  # fmt: skip
    with pytest.raises(MissingBarrier, match="a copy to shared memory at offset 16, which warp 1 has read") as caught:
        run(text, np.zeros(16, np.uint32), block=(64, 1, 1))
    assert "ld.shared.b32" in str(caught.value)


# -- when operations complete ---------------------------------------------------------------------


def _operation(log: list[str], name: str, **options: Any) -> Operation:
    inst: Any = None
    return Operation(name, inst, 0, lambda: log.append(name), **options)


@pytest.mark.emulator
def test_late_completes_nothing_before_it_must() -> None:
    pending, log = Pending("late"), list[str]()
    first, second, third = _operation(log, "first"), _operation(log, "second", wakes=True), _operation(log, "third")
    third.after = first
    for operation in (first, second, third):
        pending.issue(operation)
    for _ in range(100):
        pending.tick()
    assert not log
    assert pending.complete_oldest(waking=True) and log == ["second"]
    assert not pending.complete_oldest(waking=True)
    pending.complete(third)
    assert log == ["second", "first", "third"] and not pending.operations


@pytest.mark.emulator
def test_when_nobody_is_ready_every_cluster_gets_its_oldest_operation() -> None:
    pending, log = Pending("late"), list[str]()
    for name, thread in (("a0", 0), ("a1", 40), ("b0", 64), ("b1", 70)):
        pending.issue(_operation(log, name, wakes=name != "a0"))
        list(pending.operations)[-1].thread = thread
    assert pending.complete_oldest_of_each(lambda thread: thread // 64, waking=True) and log == ["a1", "b0"]
    assert pending.complete_oldest_of_each(lambda thread: thread // 64, waking=False) and log[2:] == ["a0", "b1"]
    assert not pending.complete_oldest_of_each(lambda thread: thread // 64, waking=False)


@pytest.mark.emulator
def test_early_completes_at_once_and_random_repeats() -> None:
    log: list[str] = []
    early = Pending("early")
    early.issue(_operation(log, "one"))
    assert log == ["one"] and not early.operations
    runs = []
    for _ in range(2):
        order: list[str] = []
        pending = Pending("random:3")
        for name in "abcdef":
            pending.issue(_operation(order, name))
        for _ in range(1000):
            pending.tick()
        runs.append(order)
    assert runs[0] == runs[1] and sorted(runs[0]) == list("abcdef") and runs[0] != list("abcdef")


@pytest.mark.emulator
@pytest.mark.parametrize("policy", ["never", "late:1", "random:x", ""])
def test_an_unknown_policy_is_an_error(policy: str) -> None:
    with pytest.raises(LaunchError, match="late, early or random:SEED"):
        Pending(policy)
