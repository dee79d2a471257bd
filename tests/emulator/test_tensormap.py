"""The 128-byte tensor map against the driver that packs it.

`data/tensormaps.json` holds what cuTensorMapEncodeTiled of an H200's driver made of each case below.
On a GPU (`--gpu`) the driver is asked again; without one its recorded answers are decoded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cutetut.emulator.units import tensormap
from tests.emulator.hardware import encode
from tests.emulator.tensors import NBYTES, TYPES

RECORDED = Path(__file__).parent / "data" / "tensormaps.json"
STRIDES = [1 << 12, 1 << 37, 3 << 36, (1 << 39) + 48]
BASE: dict[str, Any] = {
    "type": "f16", "address": 0x7F0000001000, "sizes": [512, 256], "strides": [1024], "box": [64, 32],
    "element_strides": [1, 1], "interleave": 0, "swizzle": 0, "l2": 0, "nan": 0,
}  # fmt: skip


def cases() -> list[dict[str, Any]]:
    """One parameter varied at a time, then all of them."""
    found = [BASE]
    found += [{**BASE, "type": t, "strides": [512 * NBYTES[t]], "box": [16, 32]} for t in TYPES]
    found += [{**BASE, "swizzle": s, "box": [16, 32]} for s in (1, 2, 3)]
    found += [{**BASE, "l2": p} for p in (1, 2, 3)]
    found += [{**BASE, "nan": 1}]
    found += [{**BASE, "element_strides": e} for e in ([1, 2], [1, 8], [1, 5])]
    found += [{**BASE, "address": a} for a in (0x10, 0x7FFFFFFFFFF0)]
    found += [{**BASE, "box": b} for b in ([256, 1], [8, 256], [128, 2])]
    found += [{**BASE, "sizes": s} for s in ([1, 1], [512, 1 << 32], [1 << 20, 3])]
    found += [{**BASE, "strides": [s]} for s in (1 << 36, (1 << 40) - 16, 16)]
    for rank in (3, 4, 5):
        found.append(
            {**BASE, "sizes": [64, 33, 17, 9, 5][:rank], "strides": STRIDES[: rank - 1],
             "box": [32, 16, 4, 2, 3][:rank], "element_strides": [1, 2, 3, 1, 2][:rank]}
        )  # fmt: skip
    found += [{**BASE, "interleave": 1, "sizes": [512, 64, 16], "strides": [1024, 1 << 16], "box": [8, 8, 8],
               "element_strides": [1, 1, 1]}]  # fmt: skip
    found += [{**BASE, "interleave": 2, "sizes": [512, 64, 16], "strides": [1024, 1 << 16], "box": [16, 8, 8],
               "element_strides": [1, 1, 1], "swizzle": 1}]  # fmt: skip
    return found


@pytest.fixture(scope="module")
def images(on_gpu: bool) -> list[str]:
    if on_gpu:
        return [encode(case) for case in cases()]
    recorded = json.loads(RECORDED.read_text())
    assert [r["case"] for r in recorded["maps"]] == cases(), "record the cases again on a Hopper GPU host"
    return [r["image"] for r in recorded["maps"]]


def test_decode_reads_what_the_driver_packed(images: list[str]) -> None:
    for case, image in zip(cases(), images, strict=True):
        assert not image.startswith("CUDA_ERROR"), f"{case}: {image}"
        found = tensormap.decode(bytes.fromhex(image))
        assert found.address == case["address"]
        assert found.element == case["type"], case
        assert found.nbytes == NBYTES[case["type"]]
        assert list(found.sizes) == case["sizes"]
        assert list(found.strides[1:]) == case["strides"]
        assert list(found.box) == case["box"]
        assert list(found.element_strides) == case["element_strides"]
        assert (found.interleave, found.swizzle, int(found.nan_fill)) == (
            case["interleave"],
            case["swizzle"],
            case["nan"],
        )


def record() -> None:
    """Write the driver's answers down: `python -m tests.emulator.test_tensormap` on a Hopper GPU host."""
    maps = [{"case": case, "image": encode(case)} for case in cases()]
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text(json.dumps({"source": "cuTensorMapEncodeTiled, H200", "maps": maps}, indent=0) + "\n")


if __name__ == "__main__":
    record()
