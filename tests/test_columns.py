"""Tables as plain text."""

from __future__ import annotations

import pytest

from cutetut.columns import aligned


def test_columns_are_below_one_another() -> None:
    rows = [("name", "n", ""), ("a longer one", "12", "why"), ("", "345", "")]
    assert aligned(rows, right=(1,)).split("\n") == [
        "name            n",
        "a longer one   12  why",
        "              345",
    ]
    assert aligned([("a", "b")]) == "a  b" and aligned([]) == ""


def test_a_last_column_that_ends_below_itself_keeps_its_width() -> None:
    assert aligned([("a", "b"), ("long", "")], right=(0, 1)) == "   a  b\nlong   "


def test_rows_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError):
        aligned([("a", "b"), ("c",)])
