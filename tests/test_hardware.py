"""GPU facts: what nvidia-smi prints is read, and a machine where it is missing, fails or hangs has none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cutetut import hardware
from cutetut.hardware import Gpu


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts an nvidia-smi on the PATH that prints what is in `answer`, and notes how it was called in `asked`."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n/bin/cat {tmp_path}/answer\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("NVIDIA H200, 9.0, 580.159.04\n", [Gpu("NVIDIA H200", "9.0", "580.159.04")]),
        ("A, 8.0, 1\nB, 9.0, 1\n", [Gpu("A", "8.0", "1"), Gpu("B", "9.0", "1")]),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", []),
        ("no, devices, found\n", []),
        ("", []),
    ],
)
def test_gpus_are_read(smi: Path, text: str, found: list[Gpu]) -> None:
    (smi / "answer").write_text(text)
    assert hardware.gpus() == found
    assert (smi / "asked").read_text().split() == [
        "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader,nounits"
    ]  # fmt: skip


def test_the_driver_is_that_of_the_first_gpu(smi: Path) -> None:
    (smi / "answer").write_text("NVIDIA H200, 9.0, 580.159.04\n")
    assert hardware.driver_version() == "580.159.04"


@pytest.mark.parametrize("failure", [subprocess.TimeoutExpired("nvidia-smi", 30), OSError("not executable")])
def test_a_tool_that_hangs_or_cannot_run_is_no_gpu(
    smi: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(subprocess, "run", fail)
    assert hardware.gpus() == []


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n", "580.159.04"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6\n", "535.54.03"),
        ("nothing of use\n", "unknown"),
        (None, "unknown"),
    ],
)
def test_without_the_tool_the_kernel_module_says_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, version: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(hardware, "_MODULE_VERSION", tmp_path / "version")
    if text is not None:
        (tmp_path / "version").write_text(text)
    assert hardware.gpus() == [] and hardware.driver_version() == version
