"""What the emulator does not report, as the book's page says: each gap is there, and the nearest mistake is told."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cutetut.emulator import errors
from cutetut.explore import first_failure
from tests.emulator import unreported
from tests.emulator.unreported import NOTHING, WARNING, answer, gaps

pytestmark = pytest.mark.emulator


@pytest.mark.parametrize("name", gaps())
def test_a_gap_is_there_and_the_nearest_mistake_is_reported(name: str) -> None:
    gap = gaps()[name]
    assert answer(gap.program) == gap.answer and gap.answer in (NOTHING, WARNING)
    assert issubclass(getattr(errors, answer(gap.twin)), errors.EmulatorError)


def test_the_page_shows_what_the_emulator_says() -> None:
    """Renewed by `python -m tests.emulator.unreported --write`."""
    assert json.loads(unreported.FILE.read_text()) == unreported.record()


def test_a_load_returns_the_value_stored_last_under_every_schedule() -> None:
    """Store buffering: a GPU may give both threads the old value; here one of them always loads the new one."""
    lines = unreported.gaps()["weak memory"].program.lines.replace("END:", "st.global.b32 [%rd3+16], %r8; END:")
    seen = []

    def attempt() -> bool:
        seen.append(tuple(np.flatnonzero(unreported.Program(lines)()[4:6])))
        return bool(seen[-1])

    assert first_failure(attempt, ("late",)) is None
    assert len(set(seen)) > 1, "the schedules did not differ"
