"""Run a few lines of PTX, on the emulator or on a GPU: registers are loaded from and stored to numpy arrays."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

Dim = tuple[int, int, int]


@runtime_checkable
class OfAddress(Protocol):
    """An argument that depends on where an array of the same launch lies: a tensor map holds its tensor's address."""

    @property
    def array(self) -> np.ndarray:
        """One of the other arguments."""

    def at(self, address: int, encode: Callable[[dict[str, Any]], str] | None) -> np.ndarray:
        """The bytes whose address the kernel is given; `encode` asks the CUDA driver for a map, None without one."""


Argument = np.ndarray | bytes | OfAddress
HEADER = ".version 8.8\n.target sm_90a\n.address_size 64\n"


def kernel(body: str, params: int = 1, header: str = "", name: str = "k") -> str:
    """PTX of a kernel with `params` 64-bit parameters p0, p1, ... and declared %r, %rd, %f, %h, %p registers."""
    declared = ", ".join(f".param .b64 p{i}" for i in range(params))
    registers = (
        ".reg .pred %p<32>; .reg .b16 %h<64>; .reg .b32 %r<128>; .reg .b64 %rd<64>; "
        ".reg .f32 %f<64>; .reg .f64 %fd<32>;"
    )
    return f"{HEADER}{header}\n.visible .entry {name}({declared}) {{\n{registers}\n{body}\nret;\n}}\n"


def spin(barrier: str, parity: int | str = 0, name: str = "0", scope: str = "", register: str = "%r90") -> str:
    """PTX that waits for a phase of an mbarrier, but not for ever: %p9 and `register` say whether it completed."""
    return f"""mov.u32 {register}, 0;
SPIN{name}: mbarrier.try_wait.parity{scope}.shared::cta.b64 %p9, [{barrier}], {parity}; @%p9 bra ARRIVED{name};
add.u32 {register}, {register}, 1; setp.lt.u32 %p8, {register}, 4000; @%p8 bra SPIN{name};
ARRIVED{name}: selp.u32 {register}, 1, 0, %p9;"""


def wait(barrier: str, parity: int | str = 0, name: str = "0", scope: str = "") -> str:
    """PTX that waits for a phase of an mbarrier and traps if it does not come."""
    return f"{spin(barrier, parity, name, scope)} @!%p9 trap;"


def on_gpu() -> bool:
    """Whether PTX runs on this machine's GPU: `pytest --gpu` asks for it, or CUTETUT_TEST_GPU=1 outside pytest."""
    return os.environ.get("CUTETUT_BACKEND") == "gpu" or os.environ.get("CUTETUT_TEST_GPU") == "1"


def run(
    text: str,
    *arguments: Argument,
    grid: Dim = (1, 1, 1),
    block: Dim = (32, 1, 1),
    cluster: Dim = (1, 1, 1),
    dynamic_smem: int = 0,
    budget: int | None = None,
) -> str:
    """Launch the only kernel of a PTX text with the addresses of arrays as parameters; returns what it printed.

    A bytes argument is the raw value of a parameter.  On a GPU the arrays are copied there and back, and `budget`
    (steps of a wave of CTAs) has no meaning.
    """
    shape: dict[str, Any] = {"grid": grid, "block": block, "cluster": cluster, "dynamic_smem": dynamic_smem}
    if on_gpu():
        from tests.emulator import hardware  # needs the CUDA driver

        return hardware.run_on_gpu(text, *arguments, **shape)
    from cutetut.emulator.ptx_file import PTX  # which the process that launches on a GPU does without

    file = PTX(text)
    passed = [a.at(a.array.ctypes.data, None) if isinstance(a, OfAddress) else a for a in arguments]
    return file.launch(next(iter(file.kernels)), *passed, budget=budget, **shape).printed


def elementwise(lines: str, inputs: list[tuple[np.ndarray, str]], out: np.dtype | type, result: str) -> np.ndarray:
    """Run lines once per thread: each input (array, register) is loaded, `result` is stored and returned.

    All arrays have the same length n <= 1024; types follow from itemsize.
    """
    n = len(inputs[0][0])
    dest = np.zeros(n, out)
    body = ["mov.u32 %r127, %tid.x;"]
    for i, (array, register) in enumerate(inputs):
        size = array.dtype.itemsize
        kind = {1: "u8", 2: "b16", 4: "b32", 8: "b64"}[size]
        body += [
            f"ld.param.b64 %rd60, [p{i}];",
            f"mad.wide.u32 %rd61, %r127, {size}, %rd60;",
            f"ld.global.{kind} {register}, [%rd61];",
        ]
    body.append(lines)
    size = dest.dtype.itemsize
    kind = {1: "u8", 2: "b16", 4: "b32", 8: "b64"}[size]
    body += [
        f"ld.param.b64 %rd60, [p{len(inputs)}];",
        f"mad.wide.u32 %rd61, %r127, {size}, %rd60;",
        f"st.global.{kind} [%rd61], {result};",
    ]
    run(kernel("\n".join(body), len(inputs) + 1), *[a for a, _ in inputs], dest, block=(n, 1, 1))
    return dest
