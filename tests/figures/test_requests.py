"""The picture of a warp's requests: what it says, its colours, what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import ImageColor

from cutetut import figures
from cutetut.figures.base import ACCENT
from cutetut.figures.requests import LATER, NEVER
from tests.figures.test_tiles_and_charts import VISION, lightness


def test_says_what_the_first_request_asks_for() -> None:
    row, column = np.indices((4, 32))
    tables = {
        "a row": np.where(row == 1, column // 16, -1),
        "a column": np.where(column % 8 == 0, column // 8, -1),
        "halves": np.where(row == 0, column % 8 // 4, -1),
        "nothing": np.full((2, 8), -1),
    }
    assert repr(figures.warp_requests(tables)) == (
        "a row: the first request asks for columns 0-15 in row 1\n"
        "a column: the first request asks for columns 0 in each of 4 rows\n"
        "halves: the first request asks for columns 0-3, 8-11, 16-19, 24-27 in row 0\n"
        "nothing: no first request"
    )


@pytest.mark.parametrize("vision", VISION)
def test_first_later_and_never_differ_in_lightness(vision: str) -> None:
    colors = [np.array(ImageColor.getrgb(color)) for color in (ACCENT, LATER, NEVER)]
    assert np.diff([float(lightness(color, VISION[vision])) for color in colors]).min() > 15


@pytest.mark.parametrize("table", [np.zeros(4), np.zeros((0, 4)), np.full((2, 2), -2)], ids=str)
def test_refuses_what_is_no_table_of_requests(table: np.ndarray) -> None:
    with pytest.raises(ValueError, match="t: the requests must be a table"):
        figures.warp_requests({"t": table})
