"""Accesses that nothing orders are told, with both lines; the same kernels with their order get no alarm.

The kernels are in tests/emulator/bugs/order_*.py, the changed lines in ordering/.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict
from pathlib import Path

import pytest

from cutetut.emulator.errors import EmulatorError, EmulatorWarning, MissingBarrier
from cutetut.explore import first_failure
from tests.emulator.ordering import record
from tests.emulator.ordering.cases import HARMLESS, KERNELS, MISTAKES
from tests.emulator.ordering.model import Launch, check_report, missing, unnamed
from tests.emulator.ordering.words import WORDS
from tests.emulator.policies import POLICIES

RECORD = json.loads(record.FILE.read_text())
FEW = ["late", "early", "random:1"]
ORDERS = [*((policy, "order") for policy in POLICIES), ("late", "random:1"), ("random:1", "random:2")]


# in the usual order all CTAs arrive before the first one looks, and then the look does order them; and the reader of
# two buffers is never late
BY_SCHEDULE = {"grid_without_wait", "one_mbarrier_for_two_buffers"}


@pytest.mark.emulator
@pytest.mark.parametrize("name", sorted(BY_SCHEDULE))
def test_some_need_another_order_of_warps(name: str, tmp_path: Path) -> None:
    mistake = MISTAKES[name]
    loaded = KERNELS[mistake.kernel].load(tmp_path, mistake.changes)
    found = first_failure(Launch(KERNELS[mistake.kernel], loaded), schedules=[f"random:{seed}" for seed in range(20)])
    assert found is not None and isinstance(found.error, mistake.errors)
    assert not missing(loaded, mistake, found.error)


@pytest.mark.emulator
@pytest.mark.parametrize("name", [name for name in MISTAKES if name not in BY_SCHEDULE])
def test_unordered_accesses_are_told(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However early or late operations complete, the report is of the right type and names every line."""
    mistake = MISTAKES[name]
    kernel = KERNELS[mistake.kernel]
    loaded = kernel.load(tmp_path, mistake.changes)
    launch = Launch(kernel, loaded)
    for policy in FEW:
        monkeypatch.setenv("CUTETUT_ASYNC", policy)
        with warnings.catch_warnings(), pytest.raises(mistake.errors) as caught:
            warnings.simplefilter("error", EmulatorWarning)
            launch()
        assert not missing(loaded, mistake, caught.value), f"{policy}:\n{caught.value}"
        assert isinstance(caught.value, EmulatorError | EmulatorWarning)
        check_report(caught.value.report, str(caught.value))
        assert not unnamed(loaded, mistake.lines, caught.value.report), caught.value.report
        assert caught.value.report.locations


@pytest.mark.emulator
@pytest.mark.parametrize(("what", "warp"), [("stores", 0), ("loads", 1)])
def test_a_lane_that_signals_for_others_is_named(what: str, warp: int, tmp_path: Path) -> None:
    """Lane 0 has arrived, so a barrier between the warps is there: what is missing is the meeting of the lanes."""
    mistake = MISTAKES[f"elected_lane_arrives_for_{what}"]
    kernel = KERNELS[mistake.kernel]
    with pytest.raises(MissingBarrier) as caught:
        Launch(kernel, kernel.load(tmp_path, mistake.changes))()
    assert caught.value.hint.startswith(f"cute.arch.sync_warp() in warp {warp} before lane 0 signals for the others")


@pytest.mark.emulator
@pytest.mark.parametrize("name", ["flag_of_the_cta", "sums_within_the_cta"])
def test_a_scope_that_leaves_the_other_thread_out_is_blamed(name: str, tmp_path: Path) -> None:
    """Both accesses are strong: a flag between them, as for ordinary ones, would be the wrong remedy."""
    mistake = MISTAKES[name]
    kernel = KERNELS[mistake.kernel]
    with pytest.raises(MissingBarrier) as caught:
        Launch(kernel, kernel.load(tmp_path, mistake.changes))()
    assert caught.value.kind == "narrow-scope" and 'scope="gpu"' in caught.value.hint


@pytest.mark.parametrize("name", [*KERNELS, *HARMLESS])
def test_ordered_accesses_get_no_alarm(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder, device: str
) -> None:
    kernel, changes = HARMLESS.get(name, (name, ()))
    launch = Launch(KERNELS[kernel], KERNELS[kernel].load(tmp_path, changes), device)
    for policy, schedule in ORDERS:
        monkeypatch.setenv("CUTETUT_ASYNC", policy)
        monkeypatch.setenv("CUTETUT_SCHEDULE", schedule)
        launch()
        assert launch.right, (policy, schedule)
    assert not [w for w in recwarn if issubclass(w.category, EmulatorWarning)]


@pytest.mark.emulator
@pytest.mark.parametrize("name", MISTAKES)
def test_the_lines_of_a_mistake_are_in_its_file(name: str, tmp_path: Path) -> None:
    loaded = KERNELS[MISTAKES[name].kernel].load(tmp_path, MISTAKES[name].changes)
    for part in MISTAKES[name].lines:
        loaded.line(part)


def test_every_kernel_has_a_mistake() -> None:
    assert {mistake.kernel for mistake in MISTAKES.values()} == set(KERNELS) - {"own"}


@pytest.mark.emulator
@pytest.mark.parametrize("name", MISTAKES)
def test_the_record_has_what_the_emulator_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The book shows the record: `python -m tests.emulator.ordering --write` brings it up to date."""
    facts = RECORD["provenance"]
    monkeypatch.setenv("CUTETUT_ASYNC", facts["policy"])
    monkeypatch.setenv("CUTETUT_SCHEDULE", facts["schedule"])
    assert [asdict(record.row(name, record.ask(name)))] == [row for row in RECORD["mistakes"] if row["name"] == name]


def test_the_record_has_every_mistake_and_no_alarm() -> None:
    """That the correct kernels get no alarm is tested above."""
    assert [row["name"] for row in RECORD["mistakes"]] == list(MISTAKES)
    assert RECORD["correct"] == {"kernels": len(KERNELS), "variants": len(HARMLESS), "alarms": []}


def test_every_mistake_is_put_into_words_of_its_own() -> None:
    assert set(WORDS) == set(MISTAKES)
    assert len(set(WORDS.values())) == len(WORDS)
