"""The emulator's counters are those that Nsight Compute counted on an H200: single instructions, chapters' kernels.

`python -m tests.emulator.ncu_compare record` on a Hopper GPU host writes the numbers down again.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cutetut.measure.nsight import NothingCounted
from tests.emulator import ncu_compare
from tests.emulator.ncu_compare import comparable, count, launches, recorded

pytestmark = pytest.mark.emulator

RECORDED = recorded()
Launches = dict[str, Callable[[str], None]]


@pytest.fixture(scope="module")
def every() -> Launches:
    return launches("")


def test_every_launch_was_recorded(every: Launches) -> None:
    assert list(every) == list(RECORDED), "record again on a Hopper GPU host"


@pytest.mark.parametrize("name", RECORDED)
def test_counts_are_those_of_nsight_compute(every: Launches, name: str) -> None:
    emulated = count(every[name])
    wanted = comparable(name, RECORDED[name])
    assert {what: emulated[what] for what in wanted} == wanted
    assert len(wanted) > 10 or name.startswith("cp.async") or len(wanted) == len(RECORDED[name])


def test_what_is_not_compared_belongs_to_recorded_launches() -> None:
    for launch, (counts, why) in ncu_compare.NOT_COMPARED.items():
        assert why and counts <= set(ncu_compare.METRICS)
        assert any(re.search(launch, name) for name in RECORDED)


def test_the_record_says_what_is_compared() -> None:
    """The book's page counts by it."""
    record = json.loads(ncu_compare.RECORDED.read_text())
    assert {key: record[key] for key in ncu_compare.what_is_compared()} == ncu_compare.what_is_compared()


FAKE_NCU = """#!{python}
import sys
metrics = sys.argv[sys.argv.index("--metrics") + 1].split(",")
assert sys.argv[sys.argv.index("--clock-control") + 1] == "none" and sys.argv[-3:-1] == ["launch", "--only"]
print("a line of the program")
print('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"')
for number in range({launches}):
    for place, metric in enumerate(metrics):
        print(f'"{{number}}","case","{{metric}}","","{{1000 * number + place:,}}"')
"""


def pretend(folder: Path, monkeypatch: pytest.MonkeyPatch, launches: int) -> None:
    """An ncu that knows no GPU: it counts 1000 times the launch, plus the metric's place."""
    tool = folder / "ncu"
    tool.write_text(FAKE_NCU.format(python=sys.executable, launches=launches))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_what_ncu_prints_is_read_in_the_order_of_the_launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only = "ld global 4 B, stride"
    names = list(launches(only))
    pretend(tmp_path, monkeypatch, len(names))
    found = ncu_compare.measure(only, names)
    assert list(found) == names and len(names) == 7
    for number, counts in enumerate(found.values()):
        assert list(counts.values()) == [1000 * number + place for place in range(len(counts))]


def test_a_launch_that_ncu_missed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path, monkeypatch, 6)
    with pytest.raises(NothingCounted, match="counted 6 launches, and 7 were expected"):
        ncu_compare.measure("ld global 4 B, stride", list(launches("ld global 4 B, stride")))


def test_without_ncu_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NothingCounted, match="not on the PATH"):
        ncu_compare.measure("ldmatrix", [])


def test_the_comparison_shows_what_differs(
    every: Launches, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "ld global 4 B, stride 8"
    right = {name: count(every[name])}
    monkeypatch.setattr(ncu_compare, "recorded", lambda: right)
    assert ncu_compare.compare(name, every_row=False) == 0
    assert "4 counts agree, 0 differ" in capsys.readouterr().out
    right[name]["global ld sectors"] -= 1
    assert ncu_compare.compare(name, every_row=False) == 1
    assert "DIFFERENT" in capsys.readouterr().out
