"""The seeds of random tests: the same few in each `make test`, so that a failure repeats, and others each night."""

from __future__ import annotations

import os

VARIABLE = "CUTETUT_SEEDS"
MORE = 10  # times as many where others are asked for


def seeds(count: int) -> range:
    """The seeds 0 to `count` - 1; where CUTETUT_SEEDS=FIRST is set, ten times as many from FIRST on."""
    first = os.environ.get(VARIABLE)
    return range(int(first), int(first) + MORE * count) if first else range(count)
