"""Ownership maps written as index loops, as a CUDA programmer would: an oracle that knows no layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cutetut.widgets import ThreadMap

Table = npt.NDArray[np.int64]
PERMUTATIONS = {"(16,4):(4,1)": (4, 1), "(16,4):(1,16)": (1, 16), "(16,8):(8,1)": (8, 1)}


def positions(group: int, permutation: str) -> list[int]:
    """The 8 of 128 positions that one of 16 thread groups owns."""
    per_group = 8 if permutation.startswith("(16,8)") else 4
    between_groups, between_own = PERMUTATIONS[permutation]
    first = [group * between_groups + i * between_own for i in range(per_group)]
    return first + [p + 64 for p in first] if per_group == 4 else first


def scalar_gemm_tables(permutation: str) -> tuple[Table, Table, Table]:
    """owner, value and offset of a row-major 128x128 tile dealt to 16x16 threads."""
    owner, value = np.zeros((2, 128, 128), dtype=np.int64)
    for thread in range(256):
        for m, row in enumerate(positions(thread // 16, permutation)):
            for n, col in enumerate(positions(thread % 16, permutation)):
                owner[row, col], value[row, col] = thread, m + 8 * n
    return owner, value, np.arange(128 * 128).reshape(128, 128)


def scalar_gemm(permutation: str) -> ThreadMap:
    """The map of one permutation, with coordinates and strides."""
    owner, value, offset = scalar_gemm_tables(permutation)
    _, own = PERMUTATIONS[permutation]
    if permutation.startswith("(16,8)"):
        coords: list[Any] = [(0, m, n) for n in range(8) for m in range(8)]
        return ThreadMap(owner, value, offset=offset, coords=coords, stride=(0, 128, 1), layout="(1,8,8):(0,128,1)")
    coords = [(0, (m % 4, m // 4), (n % 4, n // 4)) for n in range(8) for m in range(8)]
    return ThreadMap(
        owner,
        value,
        offset=offset,
        coords=coords,
        stride=(0, (own * 128, 64 * 128), (own, 64)),
        layout=f"(1,(4,2),(4,2)):(0,({own * 128},8192),({own},64))",
    )


def scalar_gemm_maps() -> dict[str, ThreadMap]:
    """The three permutations, by name."""
    return {name: scalar_gemm(name) for name in PERMUTATIONS}


def mma_m16n8k16_c() -> ThreadMap:
    """The accumulator of mma.m16n8k16, from the row and column formulas of PTX ISA 9.7.14.5.8."""
    owner, value = np.zeros((2, 16, 8), dtype=np.int64)
    for lane in range(32):
        for i in range(4):
            row, col = lane // 4 + (8 if i >= 2 else 0), 2 * (lane % 4) + i % 2
            owner[row, col], value[row, col] = lane, i
    return ThreadMap(owner, value)


def wgmma_m64(columns: int) -> ThreadMap:
    """The accumulator of wgmma.m64nN, 128 threads: warps stacked, each like m16n8 repeated along N."""
    owner, value = np.zeros((2, 64, columns), dtype=np.int64)
    for row in range(64):
        for col in range(columns):
            owner[row, col] = 32 * (row // 16) + 4 * (row % 8) + (col % 8) // 2
            value[row, col] = col % 2 + 2 * (row % 16 // 8) + 4 * (col // 8)
    return ThreadMap(owner, value)


def rows_and_columns() -> tuple[ThreadMap, ThreadMap]:
    """A 4x4 tile twice: each thread owns a row, each thread owns a column."""
    row, col = np.mgrid[:4, :4]
    return ThreadMap(row, col), ThreadMap(col, row)
