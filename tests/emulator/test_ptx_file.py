"""A PTX file read and launched by itself, against numpy, and what its arguments may not be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutetut.emulator.errors import EmulatorError, LaunchError, OutOfBounds
from cutetut.emulator.ptx_file import PTX

pytestmark = pytest.mark.emulator
SAXPY = """.version 8.8
.target sm_90a
.address_size 64
.visible .entry saxpy(.param .b64 x, .param .b64 y, .param .f32 a, .param .u32 n) {
  .reg .pred %p; .reg .b32 %r<5>; .reg .b64 %d<5>; .reg .f32 %f<4>;
  mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r0, %r0, %r1, %r2;
  ld.param.u32 %r3, [n]; setp.ge.u32 %p, %r0, %r3; @%p ret;
  ld.param.b64 %d0, [x]; ld.param.b64 %d1, [y]; ld.param.f32 %f0, [a];
  mad.wide.u32 %d0, %r0, 4, %d0; mad.wide.u32 %d1, %r0, 4, %d1;
  ld.global.f32 %f1, [%d0]; ld.global.f32 %f2, [%d1]; fma.rn.f32 %f2, %f0, %f1, %f2; st.global.f32 [%d1], %f2;
  ret;
}
"""
SHAPE: dict[str, Any] = {"grid": (4, 1, 1), "block": (64, 1, 1)}


@pytest.fixture
def saxpy(tmp_path: Path) -> PTX:
    file = tmp_path / "saxpy.ptx"
    file.write_text(SAXPY)
    return PTX.read(file)


def operands() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(-9, 9, 200).astype(np.float32), rng.integers(-9, 9, 200).astype(np.float32)


def test_a_file_is_read_and_its_kernel_computes(saxpy: PTX) -> None:
    x, y = operands()
    want = 3 * x + y
    done = saxpy.launch("saxpy", x, y, np.float32(3), np.uint32(200), **SHAPE)
    assert np.array_equal(y, want)
    assert done.printed == "" and done.report.counters.warp_instructions >= 8 * 8
    assert len(repr(done)) < 300 and "warp_instructions=" in repr(done)  # a session of Python shows it


def test_parameters_are_listed_as_declared(saxpy: PTX) -> None:
    assert saxpy.kernels == {"saxpy": (".param .b64 x", ".param .b64 y", ".param .f32 a", ".param .u32 n")}


def test_a_kernel_may_touch_its_arrays_only(saxpy: PTX) -> None:
    x, y = operands()
    with pytest.raises(OutOfBounds, match="x"):
        saxpy.launch("saxpy", x[:150], y, np.float32(3), np.uint32(200), **SHAPE)
    y.flags.writeable = False
    with pytest.raises(EmulatorError):
        saxpy.launch("saxpy", x, y, np.float32(3), np.uint32(200), **SHAPE)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({3: 200}, r"n: int has no size of its own; pass .* np\.int32\(5\)"),
        ({3: np.int64(200)}, r"n \(\.param \.u32 n\) has 4 bytes, the argument 8"),
        ({0: b"1234"}, "has 8 bytes, the argument 4"),
        ({0: np.ones((200, 2), np.float32)[:, 0]}, "x: an array must be C-contiguous"),
        ({0: None}, "x: NoneType has no size"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused(saxpy: PTX, change: dict[int, Any], says: str) -> None:
    arguments: list[Any] = [*operands(), np.float32(3), np.uint32(200)]
    for at, value in change.items():
        arguments[at] = value
    with pytest.raises(LaunchError, match=says):
        saxpy.launch("saxpy", *arguments, **SHAPE)


def test_another_number_of_arguments_and_another_name_are_refused(saxpy: PTX) -> None:
    with pytest.raises(LaunchError, match=r"saxpy has 4 parameters \(.param .b64 x, .*\), not 1"):
        saxpy.launch("saxpy", np.ones(3, np.float32), **SHAPE)
    with pytest.raises(LaunchError, match=r"saxpy\.ptx has no kernel 'daxpy'; it has saxpy"):
        saxpy.launch("daxpy", **SHAPE)


def test_it_needs_neither_torch_nor_the_dsl(tmp_path: Path) -> None:
    file = tmp_path / "saxpy.ptx"
    file.write_text(SAXPY)
    code = f"""import sys, numpy as np
sys.modules.update(torch=None, cutlass=None, cuda=None)
from cutetut.emulator.ptx_file import PTX
x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
PTX.read({str(file)!r}).launch("saxpy", x, y, np.float32(3), np.uint32(64), grid=(1, 1, 1), block=(64, 1, 1))
print(y.sum())"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("192.0\n", "")


def test_arrays_of_any_type_are_listed_with_their_count() -> None:
    text = SAXPY.replace(".param .u32 n", ".param .u32 n, .param .align 64 .b8 map[128], .param .b32 pair[2]")
    assert PTX(text).kernels["saxpy"][4:] == (".param .b8 map[128]", ".param .b32 pair[2]")
