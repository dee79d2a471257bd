"""2**x in float64, made of operations that IEEE 754 rounds: numpy and machine code get the same bits on every machine.

x is the whole number nearest to it plus a rest of at most a half; a polynomial gives 2**rest, and the whole number
is added to the exponent.  The error is some 2**-52, so that the result rounded to float32 is, but for one value in
many millions that lies just between two, the one nearest to the exact power.
"""

from __future__ import annotations

import math

import numpy as np

LARGEST = 200.0  # more, and less than its negative, is infinite or zero as float32 in any case
TO_WHOLE = 1.5 * 2.0**52  # added to a small number, it leaves the nearest whole number in the lowest bits
MANTISSA = 52
TERMS = tuple(math.log(2) ** k / math.factorial(k) for k in range(13, -1, -1))  # Taylor's, the highest power first


def exp2(x: np.ndarray) -> np.ndarray:
    """2**x of float64; NaN gives some NaN."""
    x = np.minimum(np.maximum(x, -LARGEST), LARGEST)
    shifted = x + TO_WHOLE
    rest = x - (shifted - TO_WHOLE)
    power = np.full_like(rest, TERMS[0])
    for term in TERMS[1:]:
        power *= rest
        power += term
    bits = (shifted.view(np.int64) << MANTISSA) + power.view(np.int64)
    return np.where(x != x, x, bits.view(np.float64))
