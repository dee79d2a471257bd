"""The figure of the online softmax: its numbers are those of a softmax in one piece."""

from __future__ import annotations

import re

import numpy as np
import pytest

from cutetut.figures import attention


def test_the_last_sum_is_that_of_the_whole_row(rng: np.random.Generator) -> None:
    scores = rng.normal(size=(3, 12))
    for row, block in ((0, 4), (2, 3), (1, 12)):
        text = attention.online_softmax(scores, block=block, row=row).text
        found = re.findall(r"maximum (\S+), factor \S+, sum \S+ \+ \S+ = ([\d.]+)", text)
        assert len(found) == 12 // block
        for j, (top, total) in enumerate(found, start=1):
            so_far = scores[row, : j * block]
            assert float(top) == pytest.approx(so_far.max(), abs=0.051)
            assert float(total) == pytest.approx(np.exp(so_far - so_far.max()).sum(), abs=0.0051)


def test_what_was_summed_is_corrected_where_the_maximum_grows() -> None:
    text = attention.online_softmax([[0.0, np.log(4)]], block=1).text
    assert "block 0: maximum 0.0, factor 0.00, sum 0.00 + 1.00 = 1.00" in text
    assert "block 1: maximum 1.4, factor 0.25, sum 0.25 + 1.00 = 1.25" in text


def test_it_is_a_small_png_that_a_phone_can_show(rng: np.random.Generator) -> None:
    png = attention.online_softmax(rng.normal(size=(4, 12)), block=4).png()
    assert len(png) < 20_000 and int.from_bytes(png[16:20], "big") <= 440  # pixels wide: its letters stay readable


@pytest.mark.parametrize(
    ("scores", "options", "words"),
    [
        (np.zeros((2, 12)), {"block": 5}, "do not divide 12 keys"),
        (np.zeros((2, 12)), {"block": 0}, "do not divide"),
        (np.zeros(12), {"block": 4}, "a table of finite numbers"),
        (np.full((2, 4), np.inf), {"block": 4}, "finite"),
        (np.zeros((2, 4)), {"block": 4, "row": 2}, "one of its rows"),
    ],
)
def test_what_cannot_be_drawn_is_refused(scores: np.ndarray, options: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        attention.online_softmax(scores, **options)
