"""Stages that are filled again while somebody still reads them: the reader and the copy, or store, are named.

Two consumer warpgroups share the stages of bugs/two_consumers.py, four warps those of bugs/cp_async_gemm.py.  An H200
gave the right numbers 20 times out of 20 with each stage given back too early, and with the store that is too early.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from cutetut.emulator.errors import EmulatorWarning, InFlight, MissingBarrier
from tests.emulator.mutants import CASES, Case, Loaded, Mutant, compiled, load
from tests.emulator.policies import POLICIES, right_under_every_policy

COMMIT, RELEASE = "warpgroup.commit_group()", "release(empty + stage, True)"
GEMM, STORE = "cute.gemm(tiled_mma", "cute.autovec_copy(narrow,"


def case() -> Case:
    rng = torch.Generator().manual_seed(7)
    a, b = (torch.randint(-3, 4, (rows, 320), generator=rng).half() for rows in (128, 64))
    return [a, b, torch.zeros(128, 64, dtype=torch.float16)], a.double() @ b.double().T


def planted(folder: Path, *changes: tuple[str, str]) -> Loaded:
    return load("two_consumers", folder, *(Mutant("two_consumers", old, new) for old, new in changes))


def early(who: str) -> list[tuple[str, str]]:
    """These consumers give the stage back before their WGMMAs have read it, the others after."""
    return [(COMMIT, f"{COMMIT}; release(empty + stage, {who})"), (RELEASE, f"release(empty + stage, not ({who}))")]


@pytest.mark.emulator
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("who", ["warp < 8", "warp >= 8", "warp > 0"])
def test_a_stage_given_back_too_early(who: str, policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That another consumer is the last to have read the stage, and waited first, does not hide it."""
    monkeypatch.setenv("CUTETUT_ASYNC", policy)
    loaded = planted(tmp_path, *early(who))
    launch, _ = compiled(loaded.module, case()[0])
    with pytest.raises((MissingBarrier, InFlight), match="a copy .*shared memory.* read") as caught:
        launch()
    report = str(caught.value)
    assert loaded.line(GEMM) in report and re.search(r"cute.copy\(load_[ab]", report), report


@pytest.mark.emulator
@pytest.mark.parametrize("policy", POLICIES)
def test_a_store_over_what_another_warpgroup_has_read(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """Nothing but their speed says that the other consumer is done: a warning if it was, an error if not."""
    monkeypatch.setenv("CUTETUT_ASYNC", policy)
    loaded = planted(tmp_path, ("# both have read", "pass"))
    arguments, want = case()
    launch, tensors = compiled(loaded.module, arguments)
    launch()
    assert torch.equal(tensors[-1].double(), want)
    found = [w for w in recwarn if issubclass(w.category, EmulatorWarning)]
    message = str(found[0].message)
    assert len(found) == 1 and "a store to shared memory" in message and "by chance" in message
    assert loaded.line(STORE) in message and loaded.line(GEMM) in message


@pytest.mark.emulator
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("to", ["consumer", "1 - consumer"])
def test_a_store_over_what_a_wgmma_under_way_reads(
    to: str, policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTETUT_ASYNC", policy)
    store = f"{COMMIT}; sA[thread // TILE, thread % TILE, 2 * stage + {to}] = cutlass.Float16(0.0)"
    loaded = planted(tmp_path, (COMMIT, store))
    launch, _ = compiled(loaded.module, case()[0])
    with pytest.raises((InFlight, MissingBarrier), match="a store to shared memory .*read") as caught:
        launch()
    assert loaded.line("sA[thread // TILE") in str(caught.value) and loaded.line(GEMM) in str(caught.value)


@pytest.mark.emulator
@pytest.mark.parametrize("policy", POLICIES)
def test_cp_async_into_a_stage_that_other_warps_read(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The barrier comes behind the copies of the next stage instead of before them: loads still find what they need."""
    monkeypatch.setenv("CUTETUT_ASYNC", policy)
    read = "cute.copy(read_a, tXsA[None, None, None, k % STAGES], tXrA)"
    changes = ("sync_threads()", "pass"), (read, f"cute.arch.sync_threads(); {read}")
    loaded = load("cp_async_gemm", tmp_path, *(Mutant("cp_async_gemm", old, new) for old, new in changes))
    launch, _ = compiled(loaded.module, CASES["cp_async_gemm"]()[0])
    what = "cp.async to shared memory at offset .*, which warp . has loaded from, and nothing orders the two"
    with pytest.raises(MissingBarrier, match=what) as caught:
        launch()
    assert loaded.line("cute.copy(copy, tAgA[None, None, None, ahead]") in str(caught.value)
    assert re.search(r"cp_async_gemm.py:\d+:  cute.*copy\(read_[ab]", str(caught.value))


def test_the_kernel_is_right_under_every_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder, device: str
) -> None:
    arguments, want = case()
    launch, tensors = compiled(planted(tmp_path).module, arguments, device)
    right_under_every_policy(launch, tensors[-1], want, monkeypatch, recwarn)
