"""Matrices as the bits of registers: element formats by torch, fragments as the PTX ISA states them.

The fragment formulas are those of PTX ISA section 9.7.14.5, written case by case as it states them
(g = laneid / 4, t = laneid % 4); the emulator has one formula for all.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

Place = Callable[[int, int, int], tuple[int, int]]  # (element, g, t) -> (row, column)

A_MAPS: dict[str, Place] = {
    "f64 m8n8k4": lambda i, g, t: (g, t),
    "f64 m16n8k4": lambda i, g, t: (g if i == 0 else g + 8, t),
    "f64 m16n8k8": lambda i, g, t: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
    "f64 m16n8k16": lambda i, g, t: (g if i % 2 == 0 else g + 8, i // 2 * 4 + t),
    "tf32 m16n8k4": lambda i, g, t: (g if i == 0 else g + 8, t),
    "tf32 m16n8k8": lambda i, g, t: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
    "16 m16n8k8": lambda i, g, t: (g if i < 2 else g + 8, 2 * t + (i & 1)),
    "16 m16n8k16": lambda i, g, t: (g if i < 2 or 4 <= i < 6 else g + 8, 2 * t + (i & 1) + (0 if i < 4 else 8)),
    "8 m8n8k16": lambda i, g, t: (g, 4 * t + i),
    "8 m16n8k16": lambda i, g, t: (g if i < 4 else g + 8, 4 * t + (i & 3)),
    "8 m16n8k32": lambda i, g, t: (g if i < 4 or 8 <= i < 12 else g + 8, 4 * t + (i & 3) + (0 if i < 8 else 16)),
}
B_MAPS: dict[str, Place] = {
    "f64 m8n8k4": lambda i, g, t: (t, g),
    "f64 m16n8k4": lambda i, g, t: (t, g),
    "f64 m16n8k8": lambda i, g, t: (t + 4 * i, g),
    "f64 m16n8k16": lambda i, g, t: (t + 4 * i, g),
    "tf32 m16n8k4": lambda i, g, t: (t, g),
    "tf32 m16n8k8": lambda i, g, t: (t if i == 0 else t + 4, g),
    "16 m16n8k8": lambda i, g, t: (2 * t + i, g),
    "16 m16n8k16": lambda i, g, t: (2 * t + (i & 1) + (0 if i < 2 else 8), g),
    "16 m16n8k32": lambda i, g, t: (2 * t + (i & 1) + (0, 8, 16, 24)[i // 2], g),  # of mma.sp only
    "8 m8n8k16": lambda i, g, t: (4 * t + i, g),
    "8 m16n8k16": lambda i, g, t: (4 * t + i, g),
    "8 m16n8k32": lambda i, g, t: (4 * t + (i & 3) + (0 if i < 4 else 16), g),
}
BYTES = {"f64": 8, "tf32": 4, "f32": 4, "s32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}
TORCH = {"f64": torch.float64, "tf32": torch.float32, "f32": torch.float32, "s32": torch.int32, "f16": torch.float16,
         "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "s8": torch.int8,
         "u8": torch.uint8}  # fmt: skip
UINT = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def to_bits(values: np.ndarray, kind: str) -> np.ndarray:
    """Bits of values in a format, rounded by torch."""
    raw = torch.from_numpy(np.ascontiguousarray(values, np.float64)).to(TORCH[kind])
    return raw.view(torch.uint8).numpy().view(UINT[BYTES[kind]]).reshape(values.shape)


def from_bits(bits: np.ndarray, kind: str) -> np.ndarray:
    raw = torch.from_numpy(np.ascontiguousarray(bits).view(np.uint8)).view(TORCH[kind])
    return raw.to(torch.float64).numpy().reshape(bits.shape)


def deal(matrix: np.ndarray, kind: str, place: Place) -> np.ndarray:
    """The fragment of every lane: (32, elements) bits."""
    lanes = [[place(i, lane // 4, lane % 4) for i in range(matrix.size // 32)] for lane in range(32)]
    return to_bits(np.array([[matrix[p] for p in fragment] for fragment in lanes]), kind)


def collect(bits: np.ndarray, kind: str, shape: tuple[int, int], place: Place) -> np.ndarray:
    values, matrix = from_bits(bits, kind), np.full(shape, np.nan)
    for lane in range(32):
        for i in range(bits.shape[1]):
            matrix[place(i, lane // 4, lane % 4)] = values[lane, i]
    return matrix


def c_map(m: int) -> Place:
    if m == 8:
        return lambda i, g, t: (g, 2 * t + i)
    return lambda i, g, t: (g if i < 2 else g + 8, 2 * t + (i & 1))


def registers(bits: np.ndarray) -> np.ndarray:
    """Fragments packed into registers, the first element lowest: (32, registers)."""
    return np.ascontiguousarray(bits).view(np.uint64 if bits.dtype == np.uint64 else np.uint32)
