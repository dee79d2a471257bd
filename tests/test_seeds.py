"""Random tests have a seed that the nightly workflow chooses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests import seeds

pytestmark = pytest.mark.emulator
ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = ROOT / ".github" / "workflows" / "nightly.yml"


def test_the_same_seeds_unless_others_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(seeds.VARIABLE, raising=False)
    assert list(seeds.seeds(3)) == [0, 1, 2]
    monkeypatch.setenv(seeds.VARIABLE, "19887766554")
    assert list(seeds.seeds(3)) == list(range(19887766554, 19887766584))


def test_no_test_chooses_its_seeds_itself() -> None:
    files = [path for path in ROOT.glob("tests/**/*.py") if path != Path(__file__)]
    chosen = {path.name: re.findall(r'parametrize\("seed", (.*)\)', path.read_text()) for path in files}
    found = {name: calls for name, calls in chosen.items() if calls}
    assert len(found) >= 8 and all(re.fullmatch(r"seeds\(\d+\)", call) for calls in found.values() for call in calls)


def test_each_night_has_seeds_of_its_own_that_can_be_repeated() -> None:
    workflow = yaml.safe_load(WORKFLOW.read_text())
    on = workflow[True]  # YAML's `on`
    assert on["schedule"] and "seeds" in on["workflow_dispatch"]["inputs"]
    assert workflow["env"][seeds.VARIABLE] == "${{ inputs.seeds || github.run_id }}"
    runs = [step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step]
    assert runs[0] == "make test" and re.fullmatch(r"\S+ -m pytest (\S+) --layout-cases \d+", runs[1])
    assert (ROOT / runs[1].split()[3]).is_file()
