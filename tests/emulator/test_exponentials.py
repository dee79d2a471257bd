"""Powers of two against numpy's, in float64 and rounded to float32."""

from __future__ import annotations

import numpy as np
import pytest

from cutetut.emulator.numbers.exponentials import exp2

pytestmark = pytest.mark.emulator


def rounded(powers: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return powers.astype(np.float32)


@pytest.mark.parametrize("kind", ["patterns", "powers of a softmax", "all exponents of float32"])
def test_it_is_numpys_when_rounded_to_float32(rng: np.random.Generator, kind: str) -> None:
    count = 1_000_000
    if kind == "patterns":
        x = rng.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    elif kind == "powers of a softmax":
        x = -rng.exponential(6, count).astype(np.float32)
    else:
        x = rng.uniform(-151, 129, count).astype(np.float32)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        np.testing.assert_array_equal(rounded(exp2(wide)), rounded(np.exp2(wide)))  # NaN equals NaN here


def test_whole_numbers_give_exact_powers() -> None:
    whole = np.arange(-200.0, 201.0)
    assert (exp2(whole) == np.ldexp(1.0, whole.astype(int))).all()


def test_in_float64_it_is_off_by_little(rng: np.random.Generator) -> None:
    x = rng.uniform(-190, 190, 100_000)
    assert np.abs(exp2(x) / np.exp2(x) - 1).max() < 4 * 2.0**-52


def test_the_ends_of_the_scale() -> None:
    ends = np.array([np.inf, 1e300, 128.0, -150.1, -1e300, -np.inf, -0.0, np.nan])
    assert rounded(exp2(ends))[:-1].tolist() == [np.inf, np.inf, np.inf, 0, 0, 0, 1] and np.isnan(exp2(ends)[-1])
