"""The types of PTX as numpy sees them (PTX ISA section 5.2)."""

from __future__ import annotations

import numpy as np

INTEGER: dict[str, type] = {
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "s8": np.int8, "s16": np.int16, "s32": np.int32, "s64": np.int64,
}  # fmt: skip
BITS: dict[str, type] = {"b8": np.uint8, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64, "pred": np.bool_}
# The host has no bfloat16 and no packed types: those are seen as integers of their width.
DTYPES: dict[str, type] = {
    **INTEGER, **BITS, "f32": np.float32, "f64": np.float64, "f16": np.uint16, "bf16": np.uint16,
    "f16x2": np.uint32, "bf16x2": np.uint32, "u16x2": np.uint32, "s16x2": np.uint32,
}  # fmt: skip
PAIR_DTYPES: dict[str, type] = {"e4m3x2": np.uint16, "e5m2x2": np.uint16, "f16x2": np.uint32, "bf16x2": np.uint32}
