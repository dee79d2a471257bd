"""WGMMA operands in shared memory, by the canonical layouts of the PTX ISA.

The layouts are written as CuTe shapes and strides, in elements, as section 9.7.15.5.1.2.1 tabulates
them; the swizzle is applied to the byte offset inside a pattern that starts at its own boundary.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from tests.emulator.fragments import to_bits

CODE = {0: 0, 128: 1, 64: 2, 32: 3}  # swizzle bytes -> bits 63-62 of the descriptor
Shape = int | tuple["Shape", ...]


def offset(index: int, shape: Shape, stride: Shape) -> int:
    """A CuTe layout of one mode: the index is counted colexicographically through the nested shape."""
    if isinstance(shape, int):
        assert isinstance(stride, int)
        return index * stride
    assert isinstance(stride, tuple)
    total = 0
    for s, d in zip(shape, stride, strict=True):
        size = math.prod(flat(s))
        total += offset(index % size, s, d)
        index //= size
    return total


def flat(shape: Shape) -> list[int]:
    return [shape] if isinstance(shape, int) else [n for part in shape for n in flat(part)]


@dataclass(frozen=True)
class Operand:
    """A matrix of rows x k elements of nbytes in shared memory; leading and stride are in bytes."""

    rows: int
    k: int
    nbytes: int
    mn_major: bool
    swizzle: int  # bytes
    leading: int
    stride: int
    start: int = 0  # where it begins in the image
    base_offset: int = 0

    @property
    def descriptor(self) -> int:
        """All fields but the start address."""
        fields = (self.leading >> 4) << 16 | (self.stride >> 4) << 32
        return fields | self.base_offset << 49 | CODE[self.swizzle] << 62

    @functools.cache  # noqa: B019  a few hundred small arrays
    def offsets(self) -> np.ndarray:
        """Byte offset of every element from the start: (rows, k)."""
        t, s = 16 // self.nbytes, max(1, self.swizzle // 16)
        lbo, sbo = self.leading // self.nbytes, self.stride // self.nbytes
        m, k2 = -(-self.rows // 8), -(-self.k // t)
        rows: tuple[Shape, Shape]
        cols: tuple[Shape, Shape]
        if not self.mn_major and self.swizzle:
            rows, cols = ((8, m), (s * t, sbo)), ((t, k2), (1, t))
        elif not self.mn_major:
            rows, cols = ((8, m), (t, sbo)), ((t, k2), (1, lbo))
        elif self.swizzle:
            rows, cols = ((t, s, -(-self.rows // (t * s))), (1, t, lbo)), ((8, self.k // 8), (s * t, sbo))
        else:
            rows, cols = ((t, 1, -(-self.rows // t)), (1, t, sbo)), ((8, self.k // 8), (t, lbo))
        down = np.array([offset(i, *rows) for i in range(self.rows)])
        right = np.array([offset(i, *cols) for i in range(self.k)])
        at = (down[:, None] + right[None, :]) * self.nbytes
        return at ^ ((at >> 7) & (self.swizzle // 16 - 1 if self.swizzle else 0)) << 4

    def place(self, image: np.ndarray, matrix: np.ndarray, kind: str) -> None:
        raw = to_bits(matrix, kind).reshape(*matrix.shape, 1).view(np.uint8)
        for byte in range(self.nbytes):
            image[self.start + self.offsets() + byte] = raw[..., byte]

    @property
    def end(self) -> int:
        return self.start + int(self.offsets().max()) + self.nbytes


def compact(rows: int, k: int, nbytes: int, mn_major: bool, swizzle: int, order: str = "k first") -> Operand:
    """An operand without gaps; `order` says which of the two strides is the smaller one."""
    t, s = 16 // nbytes, max(1, swizzle // 16)
    if not mn_major:
        if swizzle:
            return Operand(rows, k, nbytes, False, swizzle, 16, 8 * swizzle)
        chunks, groups = k // t, rows // 8
        small, large = (128, 128 * chunks) if order == "k first" else (128 * groups, 128)
        return Operand(rows, k, nbytes, False, 0, small, large)
    atoms, groups = -(-rows // (t * s)), k // 8
    atom = 128 * s  # bytes of eight k
    mn, kk = (atom * groups, atom) if order == "k first" else (atom, atom * atoms)
    leading, stride = (mn, kk) if swizzle else (kk, mn)
    return Operand(rows, k, nbytes, True, swizzle, leading, stride)
