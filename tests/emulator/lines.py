"""Run PTX lines on as many lanes as a test has values."""

from __future__ import annotations

import numpy as np

from tests.emulator.harness import elementwise

BLOCK = 1024


def execute(lines: str, inputs: list[tuple[np.ndarray, str]], out: np.dtype | type, result: str) -> np.ndarray:
    """`elementwise` for inputs of any one length: each input (array, register) is loaded, `result` returned."""
    n = len(inputs[0][0])
    parts = [
        elementwise(lines, [(np.ascontiguousarray(a[i : i + BLOCK]), r) for a, r in inputs], out, result)
        for i in range(0, n, BLOCK)
    ]
    return np.concatenate(parts)


REGISTER = {1: "%h", 2: "%h", 4: "%r", 8: "%rd"}


def call(opcode: str, *values: np.ndarray, out: type) -> np.ndarray:
    """One instruction `opcode d, a, b, ...` on registers of the arrays' widths."""
    names = [f"{REGISTER[v.dtype.itemsize]}{i + 1}" for i, v in enumerate(values)]
    d = f"{REGISTER[np.dtype(out).itemsize]}20"
    return execute(f"{opcode} {', '.join([d, *names])};", list(zip(values, names, strict=True)), out, d)
