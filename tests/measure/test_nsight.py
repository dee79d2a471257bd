"""Nsight Compute, played by a shell script: what it is asked, what is read, and what becomes of a hang."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cutetut.measure import nsight
from cutetut.measure.nsight import NothingCounted

CSV = (
    '==PROF== Disconnected\n"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
    '"0","gemm","sectors","","1,024"\n"0","gemm","share","","12.5"\n"1","gemm","sectors","","7"\n'
    '"1","gemm","share","","n/a"\n'
)
NcuThat = Callable[[str], Path]


@pytest.fixture
def ncu_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NcuThat:
    """Return a function that puts a shell script on the PATH as ncu; it returns the script's folder."""

    def write(script: str) -> Path:
        (tmp_path / "ncu").write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}\n")
        (tmp_path / "ncu").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        return tmp_path

    return write


def test_the_launches_of_a_program_are_counted(ncu_that: NcuThat) -> None:
    folder = ncu_that('printf "%s\\n" "$@" > asked; echo "$CUTETUT_BACKEND" >> asked; cat table')
    (folder / "table").write_text(CSV)
    found = nsight.count(["-c", "print(1)"], "gemm|copy", ["sectors", "share"])
    assert found == [{"sectors": 1024.0, "share": 12.5}, {"sectors": 7.0}]
    asked = (folder / "asked").read_text().splitlines()
    assert asked[-4:] == [sys.executable, "-c", "print(1)", "gpu"]
    assert asked[asked.index("--kernel-name") + 1] == "regex:gemm|copy"
    assert asked[asked.index("--metrics") + 1] == "sectors,share"


@pytest.mark.parametrize("script", ["echo no permission; exit 1", "echo no permission"])
def test_nothing_counted_quotes_what_was_printed(ncu_that: NcuThat, script: str) -> None:
    ncu_that(script)
    with pytest.raises(NothingCounted, match=r"(?s)ncu ended with status [01] after 0 launches.*no permission"):
        nsight.count(["-c", ""], "gemm", ["sectors"])


def test_a_program_that_hangs_is_given_up(ncu_that: NcuThat, monkeypatch: pytest.MonkeyPatch) -> None:
    ncu_that("exec sleep 60")
    monkeypatch.setattr(nsight, "PROGRAM_LIMIT", 0.2)
    with pytest.raises(NothingCounted, match="the program under ncu had not ended after 0.2 s"):
        nsight.count(["-c", ""], "gemm", ["sectors"])


@pytest.mark.parametrize(("printed", "version"), [("Version 2025.3.1.0 (build 3)", "2025.3.1.0"), ("hello", "unknown")])
def test_the_version_is_read(ncu_that: NcuThat, printed: str, version: str) -> None:
    ncu_that(f'test "$1" = --version && echo "{printed}"')
    assert nsight.version() == version


def test_a_tool_that_hangs_is_given_up(ncu_that: NcuThat, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ncu_that("exec sleep 60")
    monkeypatch.setattr(nsight, "ANSWER_LIMIT", 0.2)
    with pytest.raises(NothingCounted, match=f"{folder}/ncu --version gave no answer in 0.2 s"):
        nsight.version()


def test_a_missing_tool_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NothingCounted, match=r"ncu \(Nsight Compute\) is not on the PATH"):
        nsight.version()
