"""The runner of other people's kernels: what it calls passed, what it says of a failure, what it writes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tests.emulator import peers
from tests.emulator.peers import NVIDIA, PEERS, Peer, verdict

pytestmark = pytest.mark.emulator
QUIET = Peer(NVIDIA, "nothing", "{cutlass}/it.py")
PRINTS = Peer(NVIDIA, "nothing", "{cutlass}/it.py", "PASS")
RACE = """Traceback (most recent call last):
  File "k.py", line 3, in <module>
cutetut.emulator.errors.MissingBarrier: load of shared memory
  kernel k, CTA (0, 0, 0)
Look at: a barrier
"""
WARNED = "k.py:3: EmulatorWarning: the CTA exits early\n  kernel k\nPASS\n"


@pytest.mark.parametrize(
    ("peer", "status", "text", "want"),
    [
        (QUIET, 0, "", (True, "")),
        (PRINTS, 0, "PASS\n", (True, "")),
        (PRINTS, 0, "skipped\n", (False, "exit status 0: skipped")),
        (PRINTS, 0, WARNED, (True, "warning: the CTA exits early")),
        (QUIET, 1, RACE, (False, "MissingBarrier: load of shared memory")),
        (QUIET, 1, "wrong arguments\n", (False, "exit status 1: wrong arguments")),
        (
            QUIET,
            1,
            RACE + "\n" + RACE.replace("MissingBarrier", "InFlight"),
            (False, "InFlight: load of shared memory"),
        ),
    ],
)
def test_the_verdict_on_a_run(peer: Peer, status: int, text: str, want: tuple[bool, str]) -> None:
    assert verdict(peer, status, text) == want


def test_every_driver_that_a_command_names_is_there() -> None:
    for name, peer in PEERS.items():
        for word in peers.words(peer, Path("/nowhere")):
            if word.startswith(str(peers.DRIVERS)):
                assert Path(word).is_file(), name


@pytest.mark.parametrize("fault", ["", "a fault of its own"])
@pytest.mark.parametrize(("body", "passes"), [("print('PASS')", True), ("raise ValueError('no')", False)])
def test_a_run_is_printed_and_written(
    body: str,
    passes: bool,
    fault: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = tmp_path / "cutlass/examples/python/CuTeDSL/it.py"
    script.parent.mkdir(parents=True)
    script.write_text(f"import os\nassert os.environ['CUTETUT_ASYNC'] == 'early'\n{body}\n")
    monkeypatch.setattr(peers, "PEERS", {"it": dataclasses.replace(PRINTS, fault=fault)})
    record = tmp_path / "peers.json"
    assert peers.main([str(tmp_path), "--policy", "early", "--write", str(record)]) == int(passes == bool(fault))
    found = json.loads(record.read_text())
    (outcome,) = found["peers"]
    assert found["provenance"]["policy"] == "early"
    assert outcome["passed"] == passes and outcome["fault"] == fault and outcome["cpu_seconds"] > 0
    assert outcome["said"] == ("" if passes else "ValueError: no")
    assert f"{int(passes)} of 1 passed" in capsys.readouterr().out


def test_a_name_that_nobody_has_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        peers.options([str(tmp_path), "no such kernel"])
    assert "no peer is called no such kernel" in capsys.readouterr().err
