"""Matrix descriptors put together and taken apart, against bit arithmetic and the emulator's WGMMA."""

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

from cutetut.emulator.units.wgmma import Descriptor, operand_offsets
from cutetut.inspect import descriptors
from cutetut.inspect.descriptors import DescriptorError
from cutetut.widgets import DescriptorDecoder

# what a reader may type wrongly, and what both sides say
REFUSED = {
    "": "type a hexadecimal value, such as 0x4000004000010000",
    "0x": "type a hexadecimal value, such as 0x4000004000010000",
    "0x40g0": '"g" is no hexadecimal digit: those are 0 to 9 and a to f',
    "-1": '"-" is no hexadecimal digit: those are 0 to 9 and a to f',
    "1.5": '"." is no hexadecimal digit: those are 0 to 9 and a to f',
    "0x14000004000010000": "17 digits: a descriptor has 64 bits, 16 digits at most",
}


def random_fields(rng: random.Random) -> tuple[int, int, int, int, int]:
    start, leading, stride = (16 * rng.randrange(1 << 14) for _ in range(3))
    return start, leading, stride, rng.randrange(8), rng.randrange(4)


def by_hand(start: int, leading: int, stride: int, base_offset: int, swizzle: int) -> int:
    """The 64 bits of a descriptor, field by field as PTX ISA section 9.7.15.5.1.2.2 lists them."""
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | base_offset << 49 | swizzle << 62


def test_encode_is_the_inverse_of_what_wgmma_decodes() -> None:
    rng = random.Random(1)
    for _ in range(200):
        fields = random_fields(rng)
        bits = descriptors.encode(*fields)
        assert bits == by_hand(*fields)
        assert Descriptor.decode(bits) == Descriptor(*fields)
        listed = [raw if nbytes is None else nbytes for _, _, raw, nbytes in descriptors.fields(bits)]
        assert tuple(listed) == fields


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"start": 8}, "start address is 8; it must be a multiple of 16 from 0 to 262128"),
        ({"start": 262144}, "start address is 262144"),
        ({"leading": -16}, "leading byte offset is -16"),
        ({"stride": 1025}, "stride byte offset is 1025; it must be a multiple of 16"),
        ({"base_offset": 8}, "base offset is 8; it must be a whole number from 0 to 7"),
        ({"swizzle": 4}, "swizzle is 4; it must be a whole number from 0 to 3"),
    ],
)
def test_a_field_that_cannot_be_is_refused_by_name(change: dict[str, int], says: str) -> None:
    with pytest.raises(DescriptorError, match=says):
        descriptors.encode(**{"start": 0, "leading": 16, "stride": 1024, **change})


@pytest.mark.parametrize("mn_major", [False, True])
@pytest.mark.parametrize("swizzle", range(4))
def test_the_roles_are_those_of_the_canonical_layouts(swizzle: int, mn_major: bool) -> None:
    """Change one offset at a time: along what do the addresses of a 256x16 operand of 16-bit elements move?"""

    def along(before: np.ndarray, after: np.ndarray) -> str:
        column, row = (before != after)[:, 0].any(), (before != after)[0].any()
        return {(False, False): "not used", (True, False): "step along M or N", (False, True): "step along K"}[
            column, row
        ]

    base = operand_offsets(256, 16, 2, mn_major, swizzle, 2048, 1024)
    other_leading = operand_offsets(256, 16, 2, mn_major, swizzle, 4096, 1024)
    other_stride = operand_offsets(256, 16, 2, mn_major, swizzle, 2048, 4096)
    for role, other, by in zip(
        descriptors.roles(swizzle, mn_major), (other_leading, other_stride), (2048, 3072), strict=True
    ):
        assert role.startswith(along(base, other))
        if role == "not used":
            continue
        # "from 8 rows to the next 8", "from 64 bytes to the next 64": where the first step is, in elements
        moved = (other - base)[0] if "along K" in role else (other - base)[:, 0]
        span, what = role.split("from ")[1].split(" to the next ")[0].partition(" ")[::2]
        first = int(span) // 2 if what == "bytes" else int(span)
        assert not moved[:first].any() and moved[first] == by


def test_a_swizzle_that_does_not_exist_has_no_roles() -> None:
    with pytest.raises(DescriptorError, match="swizzle is 4"):
        descriptors.roles(4, False)


# ---- the widget


@pytest.mark.parametrize("text", REFUSED)
def test_a_bad_text_is_refused_with_what_to_change(text: str) -> None:
    with pytest.raises(DescriptorError) as error:
        DescriptorDecoder(text)
    assert str(error.value) == REFUSED[text]


@pytest.mark.parametrize("value", [-1, 1 << 64])
def test_an_integer_beyond_64_bits_is_refused(value: int) -> None:
    with pytest.raises(DescriptorError, match="not a value of 64 bits"):
        DescriptorDecoder(value)


def test_another_major_is_refused() -> None:
    with pytest.raises(traitlets.TraitError, match="major"):
        DescriptorDecoder(0, major="M")


@pytest.mark.parametrize(
    "value", [0x4000004000010000, "0x4000004000010000", " 4000_0040_0001_0000 ", "0X4000004000010000"]
)
def test_integers_and_hexadecimal_text_are_taken(value: Any) -> None:
    view = DescriptorDecoder(value)
    assert (view.value, view.bits) == ("0x4000004000010000", 0x4000004000010000)


def test_a_message_from_the_browser_is_taken_as_it_is() -> None:
    view = DescriptorDecoder(0)
    view.set_state({"value": "0x8000004002000400", "major": "MN"})
    assert (view.bits, view.major) == (0x8000004002000400, "MN")
    with pytest.raises(DescriptorError):
        view.value = "0xg"
    assert view.bits == 0x8000004002000400


def test_the_output_holds_the_view_a_text_and_a_small_picture() -> None:
    view = DescriptorDecoder(descriptors.encode(0x2340 << 4, 16, 1024, 0, 1))
    data, _ = view._repr_mimebundle_()
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == view.model_id
    assert data["text/plain"] == (
        "DescriptorDecoder(0x4000004000012340, K-major: start 144384, LBO 16, SBO 1024, base offset 0, swizzle 1)"
    )
    png = base64.b64decode(data["image/png"])
    assert len(png) < 40_000 and Image.open(BytesIO(png)).width > 500
    assert len(json.dumps(view.get_state())) < 60_000
