"""Run PTX lines on as many lanes as a test has values."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager

import numpy as np
import pytest

from cutetut.emulator.errors import UnknownInstruction
from tests.emulator.harness import kernel, on_gpu, run

BLOCK = 1024
REGISTER = {1: "%h", 2: "%h", 4: "%r", 8: "%rd"}
TYPE = {1: "u8", 2: "b16", 4: "b32", 8: "b64"}


def execute(lines: str, inputs: list[tuple[np.ndarray, str]], out: np.dtype | type, result: str) -> np.ndarray:
    """Run lines once per lane: each input (array, register) is loaded, `result` is stored and returned.

    All arrays have one length, any; what is loaded and stored follows from itemsize.
    """
    n = len(inputs[0][0])
    block = min(n, BLOCK)
    grid = -(-n // block)
    body = ["mov.u32 %r125, %tid.x; mov.u32 %r126, %ctaid.x;", f"mad.lo.u32 %r127, %r126, {block}, %r125;"]
    for i, (array, register) in enumerate(inputs):
        size = array.dtype.itemsize
        body += _address(i, size) + [f"ld.global.{TYPE[size]} {register}, [%rd61];"]
    dest = np.zeros(grid * block, out)
    size = dest.dtype.itemsize
    body += [lines, *_address(len(inputs), size), f"st.global.{TYPE[size]} [%rd61], {result};"]
    padded = [np.resize(array, grid * block) for array, _ in inputs]
    run(kernel("\n".join(body), len(inputs) + 1), *padded, dest, grid=(grid, 1, 1), block=(block, 1, 1))
    return dest[:n]


def _address(param: int, size: int) -> list[str]:
    return [f"ld.param.b64 %rd60, [p{param}];", f"mad.wide.u32 %rd61, %r127, {size}, %rd60;"]


def call(opcode: str, *values: np.ndarray, out: type) -> np.ndarray:
    """One instruction `opcode d, a, b, ...` on registers of the arrays' widths."""
    names = [f"{REGISTER[v.dtype.itemsize]}{i + 1}" for i, v in enumerate(values)]
    d = f"{REGISTER[np.dtype(out).itemsize]}20"
    return execute(f"{opcode} {', '.join([d, *names])};", list(zip(values, names, strict=True)), out, d)


def refused(opcode: str = "") -> AbstractContextManager[object]:
    """Around a form that sm_90a does not have: the emulator names it as unknown, on a GPU the assembler complains."""
    if on_gpu():
        return pytest.raises(RuntimeError, match=r"ptxas .*error")
    return pytest.raises(UnknownInstruction, match=re.escape(opcode))
