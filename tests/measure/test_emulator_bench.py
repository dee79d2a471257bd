"""The benchmark of the emulator itself, whose pieces are whole processes."""

from __future__ import annotations

import re

import pytest

from cutetut.measure import bench, emulator_account, emulator_bench

SCRIPT = """
import sys
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

@cute.kernel
def twice(x: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    x[tid] = x[tid] * 2.0

@cute.jit
def launch(x: cute.Tensor):
    twice(x).launch(grid=(1, 1, 1), block=(32, 1, 1))

assert sys.argv[1:] == {arguments}
x = torch.arange(32.0, device="cuda")
compiled = cute.compile(launch, from_dlpack(x))
compiled(from_dlpack(x))
print("PASS" if (x.cpu() == torch.arange(32) * {factor}).all() else "FAIL")
"""


def peers(folder, factor):
    """A folder like that of NVIDIA's sources, with a small script in the place of theirs."""
    script = folder / emulator_bench.SCRIPT
    script.parent.mkdir(parents=True)
    script.write_text(SCRIPT.format(arguments=list(emulator_bench.SIZE), factor=factor))
    return str(folder)


def test_a_process_tells_what_it_took():
    busy = "import time\nwhile time.process_time() < 0.5: pass\nmemory = b'1' * (100 << 20)"
    used = emulator_bench.process(["-S", "-c", busy])
    assert 0.5 <= used.cpu_seconds < 2 and used.seconds > 0.4 and used.mebibytes > 100
    with pytest.raises(bench.BenchError, match="failed with exit status 3"):
        emulator_bench.process(["-S", "-c", "raise SystemExit(3)"])


def test_the_peer_is_measured_cold_and_warm_with_its_account(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(emulator_bench.PEERS, peers(tmp_path, factor=2))
    emulator_bench.run(["peer"])
    out = capsys.readouterr().out
    whole = [float(s) for s in re.findall(r"the whole process, (?:cold|warm) compile cache: ([\d.]+) s of CPU", out)]
    found = re.findall(r"^ +([\d.]+) +([\d.]+)  (.+)$", out, re.M)
    rows = {what: (float(cold), float(warm)) for cold, warm, what in found}
    floor = rows.pop(emulator_bench.NOT_OURS)
    assert len(whole) == 2 and set(rows) == set(emulator_account.PARTS)
    for state in (0, 1):
        together = sum(cpu[state] for cpu in rows.values())
        assert 0.5 * whole[state] < together < 2 * whole[state]
        assert all(rows[what][state] > 0 for what in (emulator_account.TORCH, emulator_account.COMPILING))
        ours = rows[emulator_account.OURS][state] + rows[emulator_account.LAUNCHES][state]
        assert floor[state] == pytest.approx(together - ours, abs=0.05)
    assert rows[emulator_account.COMPILING][1] < rows[emulator_account.COMPILING][0]


def test_a_peer_whose_check_fails_is_not_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(emulator_bench.PEERS, peers(tmp_path, factor=3))
    with pytest.raises(bench.BenchError, match="did not print PASS"):
        emulator_bench.run(["peer"])
    assert "FAIL" in capsys.readouterr().out


def test_without_the_peers_sources_it_says_where_to_get_them(tmp_path, monkeypatch, capsys):
    for folder in ("", str(tmp_path)):
        monkeypatch.setenv(emulator_bench.PEERS, folder)
        emulator_bench.run(["peer"])
        assert "git clone" in capsys.readouterr().out
