"""cuTensorMapEncodeTiled: check a tensor's description as CUDA's driver does, and pack it into a tensor map.

The rules are those that the CUDA driver API documents for the function; the layout of the image is the one
that `tensormap.py` reads.  Behind it an H200's driver notes two words that TMA does not need: the bytes of a box
and the alignment it asks of shared memory.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from ..errors import EmulatorError

# CUtensorMapDataType -> (element type in the image, whether f32 holds tf32, bytes)
TYPES: dict[int, tuple[int, bool, int]] = {
    0: (0, False, 1), 1: (1, False, 2), 2: (2, False, 4), 3: (3, False, 4), 4: (4, False, 8), 5: (5, False, 8),
    6: (6, False, 2), 7: (7, False, 4), 8: (9, False, 8), 9: (10, False, 2), 10: (8, False, 4), 11: (7, True, 4),
    12: (8, True, 4),
}  # fmt: skip
FLOATING = range(6, 13)
SPAN = {0: None, 1: 32, 2: 64, 3: 128}  # CUtensorMapSwizzle: bytes the inner dimension of a box may have
SHARED_ALIGNMENT = {0: 16, 1: 256, 2: 512, 3: 1024}


class TensorMapError(EmulatorError):
    """A tensor map is asked for that TMA cannot use; CUDA's driver answers with an error code."""

    hint = "the rules of cuTensorMapEncodeTiled in the CUDA driver API"


@dataclass(frozen=True)
class Tiled:
    """The arguments of cuTensorMapEncodeTiled: strides in bytes and without dimension 0, enumerations as numbers."""

    kind: int
    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: int
    swizzle: int
    l2: int
    nan_fill: int

    def check(self) -> None:
        """Raises TensorMapError with the first rule that is broken."""
        for holds, rule in self._rules():
            if not holds:
                raise TensorMapError(f"a tensor map cannot be made: {rule}")

    def _rules(self) -> list[tuple[bool, str]]:
        rank, inner = len(self.sizes), self.box[0] * TYPES.get(self.kind, (0, False, 1))[2] if self.box else 0
        align = 32 if self.interleave == 2 else 16
        span = SPAN.get(self.swizzle)
        return [
            (self.kind in TYPES, f"the data type {self.kind} is none that sm_90 has"),
            ((3 if self.interleave else 1) <= rank <= 5,
             f"the rank is {rank}; it must be 1 to 5, and at least 3 when interleaved"),
            (self.interleave in (0, 1, 2) and self.swizzle in SPAN and self.l2 in range(4) and self.nan_fill in (0, 1),
             f"interleave {self.interleave}, swizzle {self.swizzle}, L2 promotion {self.l2}, "
             f"out-of-bounds fill {self.nan_fill}: one is no value of its enumeration"),
            (self.address % align == 0, f"the global address {self.address:#x} is no multiple of {align}"),
            (all(0 < n <= 1 << 32 for n in self.sizes), f"the sizes are {self.sizes}; each must be 1 to 2^32"),
            (all(s % align == 0 and 0 <= s < 1 << 40 for s in self.strides),
             f"the strides are {self.strides} bytes; each must be a multiple of {align} below 2^40"),
            (all(0 < b <= 256 for b in self.box), f"the box is {self.box}; each dimension must be 1 to 256"),
            (all(0 < e <= 8 for e in self.element_strides),
             f"the element strides are {self.element_strides}; each must be 1 to 8"),
            (bool(self.interleave) or inner % 16 == 0,
             f"the inner dimension of the box has {inner} bytes, which is no multiple of 16"),
            (bool(self.interleave) or span is None or inner <= span,
             f"the inner dimension of the box has {inner} bytes, more than the swizzle's {span}"),
            (self.interleave != 2 or self.swizzle == 1, "32-byte interleave goes with the 32-byte swizzle only"),
            (not self.nan_fill or self.kind in FLOATING, "filling with NaN needs a floating-point type"),
        ]  # fmt: skip

    def pack(self) -> bytes:
        """The 128 bytes; raises TensorMapError when the description breaks a rule."""
        self.check()
        rank = len(self.sizes)
        code, tf32, nbytes = TYPES[self.kind]
        control = (rank - 1) << 4 | code << 7 | self.interleave << 11 | self.swizzle << 13
        control |= self.nan_fill << 15 | tf32 << 16 | self.l2 << 17
        strides = [s // 16 for s in self.strides] + [0] * (5 - rank)
        low = [s & 0xFFFFFFFF for s in strides]
        high = sum(s >> 32 << 4 * i for i, s in enumerate(strides))
        sizes = [n - 1 for n in self.sizes] + [0] * (5 - rank)
        box = [b - 1 for b in self.box] + [0] * (5 - rank)
        steps = sum((e - 1) << 3 * i for i, e in enumerate(self.element_strides))
        halves = [*low, high, *sizes, steps | box[0] << 24, sum(b << 8 * i for i, b in enumerate(box[1:])), 0]
        nbytes = math.prod(b // e for b, e in zip(self.box, self.element_strides, strict=True)) * nbytes
        return struct.pack("<QI13I2Q48x", self.address, control, *halves, nbytes, SHARED_ALIGNMENT[self.swizzle])
