"""What is known of shared memory ends with what is written over it, and not before."""

from __future__ import annotations

import pytest

from cutetut.emulator.checks.remembered import Remembered

pytestmark = pytest.mark.emulator


@pytest.fixture
def two() -> Remembered:
    remembered = Remembered()
    for cta, base in ((0, 1000), (1, 5000)):
        known = remembered.of(cta, 7)
        known.facts["low"], known.facts["high"] = (base, base + 100, "a"), (base + 100, base + 200, "b")
        known.copies[base] = base, base + 200, (40 + cta, 3)
    return remembered


@pytest.mark.parametrize(
    ("low", "high", "left"),
    [(900, 1000, "low high copy"), (900, 1001, "high"), (1099, 1100, "high"), (1100, 1101, "low"), (1000, 1200, ""),
     (1050, 1150, ""), (1199, 1300, "low"), (1200, 1300, "low high copy")],
)  # fmt: skip
def test_a_copy_ends_what_it_overlaps_in_its_cta(two: Remembered, low: int, high: int, left: str) -> None:
    two.written(0, low, high)
    known = two.of(0, 7)
    assert [*known.facts, *("copy" for _ in known.copies)] == left.split()
    assert len(two.of(1, 7).facts) == 2 and two.of(1, 7).copy_over(5000, 5200) == (41, 3)


def test_another_write_ends_everything(two: Remembered) -> None:
    assert not two.of(1, 8).facts and not two.of(0, 8).copies


def test_only_a_copy_of_all_bytes_answers_for_them(two: Remembered) -> None:
    known = two.of(0, 7)
    assert known.copy_over(1000, 1200) == known.copy_over(1064, 1128) == (40, 3)
    assert known.copy_over(999, 1100) is None and known.copy_over(1100, 1201) is None
