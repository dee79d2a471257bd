"""Tensor maps and what TMA does with them, worked out element by element from the PTX ISA.

On a GPU the driver packs the map; elsewhere `pack` does, which is tested against what the driver packed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

TYPES = {name: code for code, name in enumerate(
    ["u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32.ftz", "tf32", "tf32.ftz"]
)}  # fmt: skip
NBYTES = dict(zip(TYPES, (1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4), strict=True))
CODES = {"u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f32.ftz": 8, "f64": 9,
         "bf16": 10, "tf32": 7, "tf32.ftz": 8}  # fmt: skip
SOMEWHERE = 0x7F0000000000  # an address to pack where nothing is copied


@dataclass(frozen=True)
class Map:
    """What cuTensorMapEncodeTiled is given: sizes, box and element strides in elements, strides in bytes."""

    type: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]  # of dimensions 1 and up
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    interleave: int = 0
    swizzle: int = 0
    l2: int = 0
    nan: int = 0

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def nbytes(self) -> int:
        return NBYTES[self.type]

    @property
    def steps(self) -> tuple[int, ...]:
        """Element strides; the first one has no meaning without interleave."""
        return (1, *(self.element_strides or (1,) * self.rank)[1:])

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(-(-b // s) for b, s in zip(self.box, self.steps, strict=True))

    @property
    def box_bytes(self) -> int:
        return int(np.prod(self.counts)) * self.nbytes

    @property
    def row_bytes(self) -> int:
        """From one row of a box to the next in shared memory: with a swizzle, narrower rows take its whole span."""
        return (16 << self.swizzle) if self.swizzle else self.counts[0] * self.nbytes

    @property
    def shared_bytes(self) -> int:
        """Shared memory from the box's first row to the end of its last."""
        return int(np.prod(self.counts[1:])) * self.row_bytes

    @property
    def tensor_bytes(self) -> int:
        return sum((n - 1) * s for n, s in zip(self.sizes, (self.nbytes, *self.strides), strict=True)) + self.nbytes

    def case(self, address: int = SOMEWHERE) -> dict[str, Any]:
        return {
            "type": self.type, "address": address, "sizes": list(self.sizes), "strides": list(self.strides),
            "box": list(self.box), "element_strides": list(self.element_strides or (1,) * self.rank),
            "interleave": self.interleave, "swizzle": self.swizzle, "l2": self.l2, "nan": self.nan,
        }  # fmt: skip

    def over(self, data: np.ndarray, early: int = 0) -> MapOver:
        """An argument for harness.run: the map of the tensor that lies in `data`, or so many bytes before it."""
        return MapOver(self, data, early)


@dataclass(frozen=True)
class MapOver:
    """A tensor map that a kernel gets the address of; its tensor begins `early` bytes before `array` in this launch."""

    tensor: Map
    array: np.ndarray
    early: int = 0

    def at(self, address: int, encode: Callable[[dict[str, Any]], str] | None) -> np.ndarray:
        """The 128 bytes, at an address that a tensor map may have."""
        case = self.tensor.case(address - self.early)
        image = pack(case).hex() if encode is None else encode(case)
        if image.startswith("CUDA_ERROR"):
            raise RuntimeError(f"cuTensorMapEncodeTiled: {image} for {case}")
        return aligned(np.frombuffer(bytes.fromhex(image), np.uint8))


def pack(case: dict[str, Any]) -> bytes:
    """The first 64 bytes of a map, by the layout that cutetut/emulator/units/tensormap.py documents."""
    rank = len(case["sizes"])
    word1 = (rank - 1) << 4 | CODES[case["type"]] << 7 | case["interleave"] << 11 | case["swizzle"] << 13
    word1 |= case["nan"] << 15 | int(case["type"].startswith("tf32")) << 16 | case["l2"] << 17
    strides = [s // 16 for s in case["strides"]] + [0] * (5 - rank)
    low = [s & 0xFFFFFFFF for s in strides]
    word3 = low[3] | sum(s >> 32 << (32 + 4 * i) for i, s in enumerate(strides))
    sizes = [s - 1 for s in case["sizes"]] + [0] * (6 - rank)
    box = [b - 1 for b in case["box"]] + [0] * (5 - rank)
    steps = [s - 1 for s in case["element_strides"]] + [0] * (5 - rank)
    word6 = sizes[4] | sum(s << (32 + 3 * i) for i, s in enumerate(steps)) | box[0] << 56
    word7 = sum(b << 8 * i for i, b in enumerate(box[1:]))
    words = [case["address"], word1 | low[0] << 32, low[1] | low[2] << 32, word3, sizes[0] | sizes[1] << 32,
             sizes[2] | sizes[3] << 32, word6, word7]  # fmt: skip
    return b"".join(int(word).to_bytes(8, "little") for word in words) + bytes(64)


def aligned(values: np.ndarray, to: int = 128) -> np.ndarray:
    """A copy whose address is a multiple of `to`, as cuMemAlloc's are."""
    raw = np.zeros(values.nbytes + to, np.uint8)
    start = -raw.ctypes.data % to
    copy = raw[start : start + values.nbytes].view(values.dtype)
    copy[:] = values.ravel()
    return copy


def elements(tensor: Map, coordinates: tuple[int, ...], piece: int = 1) -> Iterator[tuple[int, int | None]]:
    """(byte from the box's begin before swizzling, byte in the tensor or None for out of bounds) of every element.

    Rows end at a multiple of `piece` elements.
    """
    strides = (tensor.nbytes, *tensor.strides)
    limits = (-(-tensor.sizes[0] // piece) * piece, *tensor.sizes[1:])
    for linear, reversed_index in enumerate(itertools.product(*[range(n) for n in reversed(tensor.counts)])):
        row, column = divmod(linear, tensor.counts[0])
        at = [c + i * s for c, i, s in zip(coordinates, reversed(reversed_index), tensor.steps, strict=True)]
        inside = all(0 <= a < n for a, n in zip(at, limits, strict=True))
        place = sum(a * s for a, s in zip(at, strides, strict=True))
        yield row * tensor.row_bytes + column * tensor.nbytes, place if inside else None


def swizzle(address: int, mode: int) -> int:
    """The address after the swizzle: 16-byte chunks of 128-byte lines change places (PTX ISA section 5.5.7)."""
    line, chunk = address >> 7, address >> 4 & 7
    chunk ^= {0: 0, 1: line & 1, 2: line & 3, 3: line & 7}[mode]
    return line << 7 | chunk << 4 | address & 15


def loaded(tensor: Map, data: np.ndarray, coordinates: tuple[int, ...], offset: int, fill: int = 0) -> np.ndarray:
    """Shared memory after a load to `offset`, which counts from a 1 KiB boundary; 0xEE where nothing is written."""
    image = np.full(-(-(offset + tensor.shared_bytes) // 128) * 128, 0xEE, np.uint8)
    nothing = np.frombuffer(fill.to_bytes(tensor.nbytes, "little"), np.uint8)
    for here, there in elements(tensor, coordinates):
        to = swizzle(offset + here, tensor.swizzle)
        image[to : to + tensor.nbytes] = nothing if there is None else data[there : there + tensor.nbytes]
    return image


def stored(tensor: Map, data: np.ndarray, image: np.ndarray, coordinates: tuple[int, ...], offset: int) -> np.ndarray:
    """The tensor's bytes after a store of the box that lies at `offset` of shared memory: in whole pieces of 16."""
    result = data.copy()
    for here, there in elements(tensor, coordinates, 16 // tensor.nbytes):
        if there is not None:
            source = swizzle(offset + here, tensor.swizzle)
            result[there : there + tensor.nbytes] = image[source : source + tensor.nbytes]
    return result


def random_tensor(rng: np.random.Generator, tensor: Map) -> np.ndarray:
    """Bytes of a tensor; small integers in the float formats that a copy rounds or flushes."""
    n = tensor.tensor_bytes
    if tensor.type.startswith(("tf32", "f32")):
        return aligned(rng.integers(-64, 65, n // 4).astype(np.float32)).view(np.uint8)
    return aligned(rng.integers(0, 255, n).astype(np.uint8))
