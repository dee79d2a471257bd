"""A wait for groups does not include what no group holds: the report names the wait, and says that a commit lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutetut.emulator.errors import EmulatorError
from cutetut.emulator.findings import Report
from tests.emulator.mutants import CASES, Mutant, compiled, load

NOTHING = "pass"


def report(folder: Path, *changes: Mutant) -> Report:
    """What is said of a kernel with these lines replaced."""
    launch, _ = compiled(load(changes[0].kernel, folder, *changes).module, CASES[changes[0].kernel]()[0])
    with pytest.raises(EmulatorError) as caught:
        launch()
    return caught.value.report


BULK_COMMIT = "cp_async_bulk_commit_group()"
WGMMA_WAIT = "warpgroup.wait_group(0)"


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("changes", "wait"),
    [
        ((Mutant("wgmma_tile", "warpgroup.commit_group()", NOTHING),), "warpgroup.wait_group(0)"),
        ((Mutant("wgmma_tile", "warpgroup.commit_group()", WGMMA_WAIT),
          Mutant("wgmma_tile", "    cute.autovec_copy(accumulators", "warpgroup.commit_group(); "
                 "cute.autovec_copy(accumulators, tCgC)")), "warpgroup.wait_group(0)"),
        ((Mutant("tma_copy", BULK_COMMIT, NOTHING),), "cute.arch.cp_async_bulk_wait_group(0, read=True)"),
        ((Mutant("cp_async_gemm", "# in every step", NOTHING),), "cute.arch.cp_async_wait_group(STAGES - 2)"),
    ],
    ids=["wgmma", "wgmma, commit behind the wait", "bulk store", "cp.async"],
)  # fmt: skip
def test_a_wait_that_comes_before_the_commit_is_named(changes: tuple[Mutant, ...], wait: str, tmp_path: Path) -> None:
    found = report(tmp_path, *changes)
    assert [side.source_text.strip() for side in found.sides if "in no group" in side.note] == [wait]
    assert "commit_group between" in found.remedy


@pytest.mark.emulator
def test_a_wait_that_lets_a_group_go_on_since_the_next_is_none(tmp_path: Path) -> None:
    """Of two groups the older one has completed; without its own commit the newer one is none, and the older stays."""
    change = Mutant("tma_gemm", "warpgroup.commit_group()", NOTHING)
    found = report(tmp_path, change)
    noted = [side.source_text.strip() for side in found.sides if "in no group" in side.note]
    assert noted == ["warpgroup.wait_group(1)"] and "commit_group between" in found.remedy
