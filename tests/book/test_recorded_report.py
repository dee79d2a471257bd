"""The report that the README and the book's first page show is what the emulator says today."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.book import recorded_report

pytestmark = pytest.mark.emulator


def test_the_recorded_report_is_the_emulators() -> None:
    said = recorded_report.report()
    advice = "run `python -m tests.book.recorded_report --write`"
    assert recorded_report.RECORD.read_text(encoding="utf-8") == said, advice
    assert recorded_report.in_readme(recorded_report.README.read_text(encoding="utf-8")) == said, advice


def test_the_report_names_both_lines() -> None:
    source = recorded_report.SCRIPT.read_text(encoding="utf-8").splitlines()
    text = recorded_report.RECORD.read_text(encoding="utf-8")
    for line in ("row[tid] = x[tid]", "y[tid] = row[127 - tid]"):
        number = next(i for i, one in enumerate(source, 1) if one.strip() == line)
        assert f"missing_barrier.py:{number}:  {line}" in text


def test_with_the_barrier_there_is_nothing_to_report(tmp_path: Path) -> None:
    fixed = recorded_report.SCRIPT.read_text(encoding="utf-8").replace(
        "# cute.arch.sync_threads() is missing here", "cute.arch.sync_threads()"
    )
    (tmp_path / "fixed.py").write_text(fixed, encoding="utf-8")
    with pytest.raises(RuntimeError, match="reports nothing of fixed.py: reversed\n"):
        recorded_report.report(tmp_path / "fixed.py")
