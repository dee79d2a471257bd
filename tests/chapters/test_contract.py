"""Every chapter keeps to the contract's numbers, or says why it does not."""

from __future__ import annotations

import functools

import pytest

from cutetut.course import concordance, contract, exemptions

CHAPTERS = [path.stem for path in concordance.order()]


@functools.cache
def measured(chapter: str) -> contract.Measured:
    return contract.measure(chapter)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_keeps_to_the_contract(chapter: str) -> None:
    found = measured(chapter)
    reasons = contract.excused([found])
    broken = {rule.column: found.values[rule.column] for rule in found.broken()}
    assert {column: value for column, value in broken.items() if (chapter, column) not in reasons} == {}, found.untagged


def test_each_exemption_is_needed_and_has_a_reason() -> None:
    listed = exemptions.of("contract")
    needed = contract.excused(measured(chapter) for chapter in CHAPTERS)
    assert [one for one in listed if (one.chapter, one.what) not in needed] == []
    assert [one for one in listed if len(one.reason.split()) < 3] == []


def test_what_is_measured_is_there() -> None:
    """No column is empty because its measure looks past the chapters."""
    for rule in contract.RULES:
        if rule.column != "untagged":
            assert any(measured(chapter).values[rule.column] for chapter in CHAPTERS), rule.column


def test_the_whole_table_is_printed_and_nothing_in_it_lacks_a_reason() -> None:
    """`pytest -s` shows it."""
    assert contract.main(()) == 0
    assert [row[0] for row in contract.rows(map(measured, CHAPTERS))] == ["chapter", *CHAPTERS]
