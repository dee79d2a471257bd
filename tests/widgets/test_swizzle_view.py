"""The swizzle view's Python side: CuTe's swizzle, the emulator's count, and what is refused."""

from __future__ import annotations

import base64
import json
import random
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import traitlets
from PIL import Image

from cutetut.widgets import SwizzleView
from tests.widgets.swizzle_oracle import ACCESSES, ATOMS, asked_for, counted, moved_by_cute, random_swizzle

pytestmark = pytest.mark.emulator  # it counts with the emulator


def test_the_swizzle_is_cutes() -> None:
    rng = random.Random(3)
    for swizzle in [swizzle for swizzle, _ in ATOMS.values()] + [random_swizzle(rng) for _ in range(6)]:
        np.testing.assert_array_equal(SwizzleView(swizzle).moved(np.arange(4096)), moved_by_cute(swizzle))


@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("atom", ATOMS)
def test_counts_are_those_of_a_running_instruction(atom: str, access: str) -> None:
    swizzle, row_bytes = ATOMS[atom]
    rows = 8 if access == "core matrix" else 32
    for word in ((0, 0), (rows - 1, row_bytes // 4 - 1), (rows // 2 + 1, 2)):
        view = SwizzleView(swizzle, row_bytes=row_bytes, access=access, word=word)
        offsets = asked_for(access, row_bytes, word)
        assert view.asked().tolist() == offsets
        moved = [moved_by_cute(swizzle)[offset] for offset in offsets]
        assert view.wavefronts() == (counted(access, offsets), counted(access, moved))


def test_the_layout_atoms_read_core_matrices_without_conflicts() -> None:
    found = {atom: SwizzleView(swizzle, row_bytes=n).wavefronts() for atom, (swizzle, n) in ATOMS.items()}
    assert found == {"INTER": (1, 1), "SW32": (2, 1), "SW64": (4, 1), "SW128": (8, 1)}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"swizzle": (3, 4, 2)}, "S is 2, less than B, 3"),
        ({"swizzle": (-1, 4, 3)}, "B, M and S are whole numbers from 0 on"),
        ({"swizzle": (3, 3, 3)}, "M is 3: at least 4 bits stay as they are, so that 16 bytes stay together"),
        ({"swizzle": (3, 7, 3)}, r"M \+ S \+ B is 13: the offsets here have 12 bits"),
        ({"swizzle": (3, 4)}, "swizzle"),
        ({"row_bytes": 48}, "row_bytes"),
        ({"access": "diagonal"}, "access"),
        ({"word": (8, 0)}, r"word \(8, 0\) is outside the tile of 8 rows and 32 words"),
        ({"word": (0, 32)}, r"word \(0, 32\) is outside"),
        ({"word": (0, 4), "row_bytes": 16}, "outside the tile of 8 rows and 4 words"),
    ],
)
def test_what_does_not_exist_is_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(traitlets.TraitError, match=says):
        SwizzleView(**arguments)


def test_another_tile_wraps_the_word_around() -> None:
    view = SwizzleView(access="column", word=(21, 30))
    view.access = "core matrix"
    assert view.word == (5, 30)
    view.row_bytes = 32
    assert view.word == (5, 6)


def test_a_message_from_the_browser_is_taken_as_it_is() -> None:
    view = SwizzleView(word=(7, 31))
    view.set_state({"access": "column", "row_bytes": 64, "word": [31, 15], "swizzle": [2, 4, 3]})
    assert (view.swizzle, view.row_bytes, view.access, view.word) == ((2, 4, 3), 64, "column", (31, 15))


def test_the_output_holds_the_view_a_text_and_a_small_picture() -> None:
    view = SwizzleView(word=(5, 9))
    data, _ = view._repr_mimebundle_()
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == view.model_id
    assert data["text/plain"] == (
        "SwizzleView(S<3,4,3>, rows of 128 bytes, core matrix through word (5, 9): 8 wavefronts without, 1 with)"
    )
    png = base64.b64decode(data["image/png"])
    assert len(png) < 40_000 and Image.open(BytesIO(png)).width > 500
    assert len(json.dumps(view.get_state())) < 60_000


def test_the_picture_marks_words_that_wait() -> None:
    """8 rows of 16 bytes: without the swizzle 7 of 8 rows wait; with it none, so half the picture has no accent."""
    image = np.asarray(Image.open(BytesIO(SwizzleView().still().png())).convert("RGB")).astype(int)
    accent = np.abs(image - [0xB3, 0x40, 0x0A]).max(axis=-1) < 12
    left, right = np.array_split(accent, 2, axis=1)
    assert left.sum() > 1000 and right.sum() == 0
