"""Logic on the bits of integers: functions of two operands, and any function of three (PTX ISA section 9.7.8)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

LOGIC = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
TWO_INPUT: list[Callable[[np.ndarray, np.ndarray], np.ndarray]] = [  # index: bit 2a+b is the value at (a, b)
    lambda a, b: a & 0,
    lambda a, b: ~(a | b),
    lambda a, b: ~a & b,
    lambda a, b: ~a,
    lambda a, b: a & ~b,
    lambda a, b: ~b,
    lambda a, b: a ^ b,
    lambda a, b: ~(a & b),
    lambda a, b: a & b,
    lambda a, b: ~(a ^ b),
    lambda a, b: b,
    lambda a, b: ~a | b,
    lambda a, b: a,
    lambda a, b: a | ~b,
    lambda a, b: a | b,
    lambda a, b: a | ~np.uint32(0),
]


def three_input(table: int) -> Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """The function whose value at bits (a, b, c) is bit 4a+2b+c of table.

    Shannon's expansion over c: f = f0 ^ (c & (f0 ^ f1)), and the difference is a two-input function too.
    """
    low, high = (sum((table >> (2 * i + c) & 1) << i for i in range(4)) for c in (0, 1))
    base, change = TWO_INPUT[low], TWO_INPUT[low ^ high]
    if low == high:
        return lambda a, b, c: base(a, b)
    if low == 0:
        return lambda a, b, c: c & change(a, b)
    return lambda a, b, c: base(a, b) ^ (c & change(a, b))
