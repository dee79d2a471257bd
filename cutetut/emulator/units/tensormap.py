"""The 128-byte tensor map that a TMA instruction points to.

PTX calls the image opaque (section 5.5.8).  This layout was derived by changing one parameter at a
time, first in the host code that CuTe DSL generates, then against cuTensorMapEncodeTiled on an H200
(`tests/emulator/test_tensormap.py` repeats that).  As eight little-endian 64-bit words:

    word 0         global address
    word 1  4-6    rank - 1                    word 2  0-31   stride 2 / 16
            7-10   element type                        32-63  stride 3 / 16
            11-12  interleave                  word 3  0-31   stride 4 / 16
            13-14  swizzle                             32-47  bits 36-39 of the four strides
            15     fill NaN out of bounds      word 4, 5, 6   sizes - 1, 32 bits each
            16     f32 holds tf32              word 6  32-46  element strides - 1, 3 bits each
            17-18  L2 promotion                        56-63  box 0 - 1
            32-63  stride 1 / 16               word 7  0-31   box 1 to 4 - 1, 8 bits each

Dimension 0 is the contiguous one, so stride 0 is the element size and not stored.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property

import numpy as np

ELEMENTS: dict[int, tuple[str, int]] = {
    0: ("u8", 1), 1: ("u16", 2), 2: ("u32", 4), 3: ("s32", 4), 4: ("u64", 8), 5: ("s64", 8), 6: ("f16", 2),
    7: ("f32", 4), 8: ("f32.ftz", 4), 9: ("f64", 8), 10: ("bf16", 2),
}  # fmt: skip
SWIZZLE_BYTES = {0: 0, 1: 32, 2: 64, 3: 128}  # the TMA code; a WGMMA descriptor counts the other way


@dataclass(frozen=True)
class TensorMap:
    """A decoded tensor map: sizes, box and element strides in elements, strides in bytes, dimension 0 first.

    `interleave` is 0, or the number of times 16 bytes that lie together (NC/8HWC8 and NC/16HWC16); sizes, box and
    element strides of dimension 0 then count those, whatever the element type (seen on an H200).
    """

    address: int
    element: str
    nbytes: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: int
    swizzle: int
    nan_fill: bool

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def unit(self) -> int:
        """Bytes of one step of dimension 0: an element, or 16 or 32 bytes of channels where they are interleaved."""
        return 16 * self.interleave or self.nbytes

    @cached_property
    def box_bytes(self) -> int:
        """Bytes of one box, out-of-bounds elements included: what is reported to its mbarrier."""
        return int(np.prod(self.counts)) * self.unit

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Element strides that count: the contiguous dimension has none unless the layout is interleaved."""
        return self.element_strides if self.interleave else (1, *self.element_strides[1:])

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Steps copied along each dimension: an element stride takes every n-th of the box.

        Of the slices of an interleaved tensor, its last dimension but one, a box takes one (seen on an H200).
        """
        counts = [-(-b // s) for b, s in zip(self.box, self.steps, strict=True)]
        if self.interleave:
            counts[-2] = 1
        return tuple(counts)

    @property
    def row_pitch(self) -> int:
        """Bytes from one row of a box to the next: with a swizzle its whole span, however narrow the box.

        Interleaved boxes have no such gaps (seen on an H200).
        """
        dense = self.counts[0] * self.unit
        return dense if self.interleave else SWIZZLE_BYTES[self.swizzle] or dense

    @cached_property
    def problems(self) -> list[str]:
        """What breaks the rules of cuTensorMapEncodeTiled, in maps that were packed without it."""
        inner = self.box[0] * self.nbytes
        span, aligned = SWIZZLE_BYTES[self.swizzle], 16 * max(1, self.interleave)
        problems = []
        if self.address % aligned:
            problems.append(f"the global address {self.address:#x} is not a multiple of {aligned}")
        if any(stride % aligned for stride in self.strides[1:]):
            problems.append(f"the strides {self.strides[1:]} are not all multiples of {aligned}")
        if inner % 16:
            problems.append(f"the box is {inner} bytes wide along the contiguous dimension, not a multiple of 16")
        if span and inner > span and not self.interleave:
            problems.append(f"the box is {inner} bytes wide, more than the swizzle's {span}")
        if self.interleave and self.rank < 3:
            problems.append(f"an interleaved tensor of rank {self.rank}; it has at least 3 dimensions")
        return problems

    @cached_property
    def shared_bytes(self) -> int:
        """Bytes of shared memory a box lies in."""
        return int(np.prod(self.counts[1:])) * self.row_pitch


def decode(image: bytes) -> TensorMap:
    """Read a 128-byte tensor map; raises ValueError for an element type that no map uses."""
    words = struct.unpack("<16Q", image)
    control = words[1]
    rank = (control >> 4 & 7) + 1
    kind = control >> 7 & 15
    if rank > 5 or kind not in ELEMENTS:
        raise ValueError(f"not a tensor map: rank {rank}, element type {kind}")
    element, nbytes = ELEMENTS[kind]
    interleave = control >> 11 & 3
    if control >> 16 & 1:
        element = element.replace("f32", "tf32")
    low = (words[1] >> 32, words[2] & 0xFFFFFFFF, words[2] >> 32, words[3] & 0xFFFFFFFF)
    high = [words[3] >> 32 + 4 * i & 15 for i in range(4)]
    strides = tuple((value | top << 32) * 16 for value, top in zip(low, high, strict=True))
    sizes = [words[4], words[4] >> 32, words[5], words[5] >> 32, words[6]]
    box = [words[6] >> 56, words[7], words[7] >> 8, words[7] >> 16, words[7] >> 24]
    return TensorMap(
        address=words[0],
        element=element,
        nbytes=nbytes,
        sizes=tuple((s & 0xFFFFFFFF) + 1 for s in sizes[:rank]),
        strides=(16 * interleave or nbytes, *strides[: rank - 1]),
        box=tuple((b & 0xFF) + 1 for b in box[:rank]),
        element_strides=tuple((words[6] >> 32 + 3 * d & 7) + 1 for d in range(rank)),
        interleave=interleave,
        swizzle=control >> 13 & 3,
        nan_fill=bool(control >> 15 & 1),
    )
