"""What the TMA of a Hopper GPU does where the PTX ISA is silent: `python -m tests.emulator.probe_tma FILE.json`.

Every load of every case below is written down: the driver's verdict on the map, whether the announced bytes came, and
what lies in shared memory after it. The tensor holds the numbers 1, 2, 3 ... in 16 bits, so what arrives says where
it came from; 0 is out of bounds and 0xEEEE was never written.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.emulator.hardware import GpuFault, encode, run_on_gpu
from tests.emulator.tensors import Map
from tests.emulator.test_tma import BOX_AT, load_text

NUMBERS = np.arange(1, 60001, dtype=np.uint16)  # all below 0xEEEE
ORIGIN = (0, 0, 0, 0, 0)


def arrive(tensor: Map, coordinates: tuple[int, ...], nbytes: int, offset: int = 0) -> dict[str, Any]:
    """A load that should bring nbytes to an offset: what arrived, and whether that many bytes were counted."""
    size = -(-max(offset + nbytes, 1024) // 128) * 128
    out, arrived = np.zeros(size, np.uint8), np.zeros(1, np.uint32)
    text = load_text(tensor, offset, nbytes, size // 4)
    found = {"case": tensor.case(), "at": coordinates, "nbytes": nbytes, "offset": offset}
    try:
        run_on_gpu(text, tensor.over(NUMBERS), NUMBERS, np.array(coordinates, np.int32), out, arrived,
                   dynamic_smem=BOX_AT + size)  # fmt: skip
    except GpuFault as fault:
        return {**found, "fault": str(fault)}
    return {**found, "came": bool(arrived[0]), "shared": out.tobytes().hex()}


def loads(tensor: Map, moves: Iterator[tuple[int, ...]] | list[tuple[int, ...]], offset: int = 0) -> Iterator[Any]:
    """Loads at several coordinates, or the driver's refusal; the byte count is what the driver notes in the map."""
    image = encode(tensor.case())
    if image.startswith("CUDA_ERROR"):
        yield {"case": tensor.case(), "refused": image}
        return
    nbytes = int.from_bytes(bytes.fromhex(image)[64:72], "little")
    for at in moves:
        yield arrive(tensor, at[: tensor.rank], nbytes, offset)


def interleaved() -> Iterator[dict[str, Any]]:
    """Layouts NC/8HWC8 (16 bytes) and NC/16HWC16 (32 bytes), for which the ISA gives names and no formula."""
    for mode, slices in ((1, 16), (2, 32)):
        for element, size in (("u16", 2), ("u8", 1), ("u32", 4)):
            n = slices // size
            moves = [ORIGIN, (n, 0, 0), (-n, 0, 0), (3 * n, 0, 0), (4 * n, 0, 0), (0, 1, 0), (0, -1, 0), (0, 5, 0),
                     (0, 0, 1), (0, 0, -1), (0, 0, 4), (1, 0, 0), (2 * n, 2, 1)]  # fmt: skip
            for inner in (n, 2 * n, n // 2, 1, 3 * n):
                plain = Map(element, (4 * n, 6, 5), (3 * slices, 24 * slices), (inner, 3, 2), interleave=mode)
                yield from loads(plain, moves if element == "u16" else moves[:8:3])
                if mode == 2:
                    yield from loads(replace(plain, swizzle=1), moves if element == "u16" else moves[:8:3])
        n = slices // 2
        for rank in (4, 5):
            strides = tuple(slices * s for s in (1, 7, 50, 170)[: rank - 1])
            tensor = Map("u16", (3 * n, 6, 5, 3, 2)[:rank], strides, (n, 3, 2, 2, 2)[:rank], interleave=mode,
                         swizzle=mode - 1)  # fmt: skip
            units = [tuple((n if d == 0 else 1) * (d == k) for d in range(rank)) for k in range(rank)]
            for boxed in (tensor, replace(tensor, box=(2 * n, *tensor.box[1:]))):
                yield from loads(boxed, [ORIGIN, *units, (0, -1, -1, -1, -1)])
        steps = Map("u16", (4 * n, 6, 5), (3 * slices, 24 * slices), (n, 4, 4), (1, 2, 3), mode, swizzle=mode - 1)
        yield from loads(steps, [ORIGIN, (n, 1, 1)])
        yield from loads(replace(steps, element_strides=(2, 1, 1)), [ORIGIN, (n, 1, 1)])


def rounding() -> Iterator[dict[str, Any]]:
    """How many elements a box has whose element stride does not divide it; the announced bytes are the floor."""
    for box, step in itertools.product((3, 7, 10, 32), (2, 4, 5, 8)):
        yield from loads(Map("u16", (40, 64), (80,), (16, box), (1, step)), [(8, 3), (0, 60)])


def narrow() -> Iterator[dict[str, Any]]:
    """Rows shorter than the swizzle's span."""
    for mode in (1, 2, 3):
        for inner in range(8, (8 << mode) + 1, 8):
            for offset in (0, 128, 384):
                yield from loads(Map("u16", (128, 24), (256,), (inner, 17), swizzle=mode), [(8, 2)], offset)


def placement() -> Iterator[dict[str, Any]]:
    """Boxes off the 128-byte boundary of shared memory, with each swizzle."""
    for mode in (0, 1, 3):
        for offset in (16, 32, 64):
            yield from loads(Map("u16", (256, 24), (512,), (8 << mode, 8), swizzle=mode), [(16, 2)], offset)


def coordinates() -> Iterator[dict[str, Any]]:
    """First coordinates that are no multiple of 16 bytes, inside the tensor, over its edge and beyond it."""
    tensor = Map("u16", (77, 24), (256,), (16, 8))
    yield from loads(tensor, [(1, 0), (4, 0), (-1, 0), (-2000, 0), (1, -100), (72, 0), (80, 0), (8, 3)])
    yield from loads(Map("u32", (300,), (), (16,)), [(2,), (4,), (296,)])


def nan_bits() -> Iterator[dict[str, Any]]:
    """The pattern that fills what is out of bounds."""
    for element, size in (("f16", 2), ("bf16", 2), ("f32", 4), ("tf32", 4), ("f32.ftz", 4), ("tf32.ftz", 4),
                          ("f64", 8), ("u16", 2), ("s32", 4)):  # fmt: skip
        yield from loads(Map(element, (64 // size,), (), (64 // size,), nan=1), [(1 << 20,), (-64 // size,)])


def main(path: str) -> None:
    found: dict[str, list[dict[str, Any]]] = {}
    for probe in (nan_bits, rounding, narrow, placement, coordinates, interleaved):
        rows = found.setdefault(probe.__name__, [])
        for row in probe():
            rows.append(row)
            if len(rows) % 20 == 0:
                Path(path).write_text(json.dumps(found))
        Path(path).write_text(json.dumps(found))
        counts = [sum(key in row for row in rows) for key in ("refused", "fault", "came")]
        print("{}: {} asked, refused {}, faults {}, ran {}".format(probe.__name__, len(rows), *counts), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
