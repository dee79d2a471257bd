"""Registers of which only a part was written: fine as long as that part alone is used, an error otherwise.

In every line %r9, %h9 and %rd9 are never written; %r1 is the thread.  What is expected is computed by hand or by numpy.
"""

from __future__ import annotations

import numpy as np
import pytest

from cutetut.emulator.errors import Uninitialized
from tests.emulator.harness import kernel, run

START = """mov.u32 %r1, %tid.x; ld.param.b64 %rd1, [p0]; mad.wide.u32 %rd2, %r1, 4, %rd1; cvt.u16.u32 %h1, %r1;
mov.u32 %r8, 0xA5; mov.u32 %r7, 0x01020304;"""
HALF = "mov.b32 %r3, {%h1, %h9};"  # the lower half holds the thread, nothing wrote the upper one
HIGH = "mov.b32 %r3, {%h9, %h1};"
I = np.arange(64, dtype=np.uint32)  # noqa: E741


def launch(lines: str, store: str = "st.global.b32 [%rd2], %r2;") -> np.ndarray:
    out = np.zeros(64, np.uint32)
    run(kernel(f"{START}\n{lines}\n{store}"), out, block=(64, 1, 1))
    return out


def halves(x: np.ndarray) -> np.ndarray:
    """x in float16, as bits."""
    return x.astype(np.float16).view(np.uint16).astype(np.uint32)


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        # byte permutation: only written bytes are picked; signs copied from written bytes; a selector in a register
        (HALF + "prmt.b32 %r2, %r3, %r8, 0x4410;", I | 0xA5A5 << 16),
        (HIGH + "prmt.b32 %r2, %r3, %r8, 0x4432;", I | 0xA5A5 << 16),
        (HALF + "prmt.b32 %r2, %r9, %r3, 0xCC54;", I),
        (HALF + "mov.u32 %r4, 0x1010; prmt.b32 %r2, %r3, %r9, %r4;", I * 0x10001),
        (HALF + "mov.u32 %r4, 2; prmt.b32.rc16 %r2, %r3, %r9, %r4;", I * 0x10001),
        # masks
        (HALF + "and.b32 %r2, %r3, 0xFFFF;", I),
        (HALF + "and.b32 %r2, %r3, 0xF0F;", I & 0xF0F),
        ("and.b32 %r2, %r9, 0;", 0 * I),
        (HALF + "or.b32 %r2, %r3, 0xFFFF0000;", I | 0xFFFF0000),
        (HALF + "mov.u32 %r4, 0xFFFF; lop3.b32 %r2, %r3, %r4, %r1, 0x6A;", (I & 0xFFFF) ^ I),
        (HALF + "not.b32 %r4, %r3; and.b32 %r2, %r4, 0xFFFF;", ~I & 0xFFFF),
        # shifts, also by amounts that are no whole bytes
        (HALF + "shl.b32 %r2, %r3, 16;", I << 16),
        (HALF + "shl.b32 %r4, %r3, 19; shr.u32 %r2, %r4, 19;", I),
        (HIGH + "shr.u32 %r2, %r3, 16;", I),
        (HIGH + "shr.s32 %r2, %r3, 18;", I >> 2),
        (HALF + "shl.b32 %r4, %r3, %r1; and.b32 %r2, %r4, 0xFF;", np.where(I < 32, I << np.minimum(I, 31), 0) & 0xFF),
        (HALF + "shf.l.wrap.b32 %r2, %r1, %r3, 24;", (I << 24).astype(np.uint32)),
        # bit fields
        (HALF + "bfe.u32 %r2, %r3, 2, 14;", I >> 2),
        (HALF + "bfe.s32 %r2, %r3, 0, 5;", ((I & 31 ^ 16).astype(np.int32) - 16).view(np.uint32)),
        (HALF + "bfi.b32 %r2, %r3, %r7, 8, 16;", 0x01000004 | I << 8),
        (HALF + "bfi.b32 %r2, %r7, %r3, 16, 16;", I | 0x03040000),
        # conversions: the low bits of an integer; each half of a pair from its own float
        (HALF + "cvt.u16.u32 %h2, %r3; cvt.u32.u16 %r2, %h2;", I),
        (HALF + "cvt.u32.u16 %r2, %r3;", I),
        (HALF + "cvt.u32.u8 %r2, %r3;", I),
        (HALF + "cvt.s32.s8 %r2, %r3;", I),
        (HALF + "cvt.rn.f32.u16 %f1, %r3; cvt.rzi.u32.f32 %r2, %f1;", I),
        ("cvt.rn.f32.u32 %f1, %r1; cvt.rn.f16x2.f32 %r3, %f9, %f1; and.b32 %r2, %r3, 0xFFFF;", halves(I)),
        # sums and products carry upwards only; pairs do not carry at all
        (HALF + "add.u32 %r4, %r3, %r3; mul.lo.u32 %r4, %r4, 3; and.b32 %r2, %r4, 0xFFFF;", 6 * I),
        (HALF + "mov.u32 %r4, 0x3c003c00; fma.rn.f16x2 %r4, %r4, %r4, %r3; add.f16x2 %r4, %r4, %r3;"
         " sub.f16x2 %r4, %r4, %r3; and.b32 %r2, %r4, 0xFFFF;", 0x3C00 + 0 * I),
        # dot products: the half of b that counts, and factors that are zero
        ("prmt.b32 %r3, %r7, %r9, 0x4410; dp2a.lo.u32.u32 %r2, %r1, %r3, 5;", 5 + 4 * I),
        ("prmt.b32 %r3, %r7, %r9, 0x1044; dp2a.hi.u32.u32 %r2, %r1, %r3, 5;", 5 + 4 * I),
        (HALF + "mov.u32 %r4, 7; dp2a.lo.u32.u32 %r2, %r3, %r4, 5;", 5 + 7 * I),
        (HALF + "mov.u32 %r4, 0x0102; dp4a.u32.u32 %r2, %r3, %r4, 5;", 5 + 2 * (I & 255)),
        # parts of wider registers
        ("mov.b64 %rd5, {%r1, %r9}; mov.b64 {%r2, %r4}, %rd5;", I),
        ("mov.b64 %rd5, {%r9, %r1}; shr.u64 %rd5, %rd5, 32; cvt.u32.u64 %r2, %rd5;", I),
        ("mov.b64 %rd5, {%r1, %r9}; mov.b64 {%r2, _}, %rd5;", I),
        # selection and shuffles move the marks of what they move
        (HALF + "setp.lt.u32 %p1, %r1, 9; selp.b32 %r4, %r3, %r1, %p1; and.b32 %r2, %r4, 0xFFFF;", I),
        (HALF + "shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1; and.b32 %r2, %r4, 0xFFFF;", I ^ 1),
    ],
)  # fmt: skip
def test_the_written_part_may_be_used(lines: str, wanted: np.ndarray) -> None:
    np.testing.assert_array_equal(launch(lines), wanted)


def test_a_narrow_store_uses_the_low_bytes() -> None:
    np.testing.assert_array_equal(launch(HALF, "st.global.b16 [%rd2], %r3;"), I)


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("lines", "which"),
    [
        (HALF + "prmt.b32 %r2, %r3, %r8, 0x4420;", "byte 1"),
        (HALF + "prmt.b32 %r2, %r3, %r8, 0x44B0;", "byte 1"),  # the sign of byte 3
        (HALF + "mov.u32 %r4, 0x3010; prmt.b32 %r2, %r3, %r9, %r4;", "byte 3"),
        (HALF + "prmt.b32 %r2, %r8, %r7, %r3; mov.u32 %r4, %r9; prmt.b32 %r2, %r8, %r7, %r4;", "the value in"),
        (HALF + "and.b32 %r2, %r3, 0x1FFFF;", "byte 2"),
        (HALF + "or.b32 %r2, %r3, 0xFF000000;", "byte 2"),
        (HALF + "xor.b32 %r2, %r3, %r3;", "bytes 2, 3"),
        (HALF + "shl.b32 %r2, %r3, 15;", "byte 3"),
        (HIGH + "shr.u32 %r2, %r3, 15;", "byte 0"),
        (HALF + "shr.s32 %r2, %r3, 24;", "the value in"),
        (HALF + "shl.b32 %r4, %r1, %r3; mov.u32 %r2, %r4; shl.b32 %r2, %r1, %r9;", "the value in"),
        (HALF + "shf.l.wrap.b32 %r2, %r3, %r1, 17;", "bytes 0, 1, 2"),
        (HALF + "bfe.u32 %r2, %r3, 2, 15;", "byte 1"),
        (HALF + "bfe.s32 %r2, %r3, 2, 15;", "bytes 1, 2, 3"),
        (HALF + "bfi.b32 %r2, %r3, %r7, 8, 17;", "byte 3"),
        (HALF + "bfi.b32 %r2, %r7, %r3, 16, 15;", "byte 3"),
        (HALF + "cvt.u32.u16 %r2, %r3; mov.u32 %r2, %r3;", "bytes 2, 3"),
        (HIGH + "cvt.u32.u8 %r2, %r3;", "byte 0"),
        (HIGH + "cvt.s32.s8 %r2, %r3;", "the value in"),
        ("cvt.rn.f32.u32 %f1, %r1; cvt.rn.f16x2.f32 %r2, %f9, %f1;", "bytes 2, 3"),
        ("cvt.rn.f32.u32 %f1, %r1; cvt.rn.f16x2.f32 %r2, %f1, %f9;", "bytes 0, 1"),
        (HIGH + "add.u32 %r2, %r3, 1;", "the value in"),
        (HALF + "mul.hi.u32 %r2, %r3, 3;", "the value in"),
        (HALF + "add.f16x2 %r2, %r3, %r7;", "bytes 2, 3"),
        ("prmt.b32 %r3, %r7, %r9, 0x1044; mov.u32 %r4, 0x10000; dp2a.lo.u32.u32 %r2, %r4, %r3, 5;", "the value in"),
        (HALF + "mov.u32 %r4, 0x107; dp2a.lo.u32.u32 %r2, %r3, %r4, 5;", "the value in"),
        (HALF + "mov.u32 %r4, 0x10002; dp4a.u32.u32 %r2, %r3, %r4, 5;", "the value in"),
        ("mov.b64 %rd5, {%r1, %r9}; mov.b64 {%r4, %r2}, %rd5;", "the value in"),
        (HALF + "setp.lt.u32 %p1, %r1, 9; selp.b32 %r2, %r3, %r1, %p1;", "bytes 2, 3"),
        (HALF + "shfl.sync.bfly.b32 %r2, %r3, 1, 31, -1;", "bytes 2, 3"),
    ],
)  # fmt: skip
def test_use_of_the_other_part_is_an_error(lines: str, which: str) -> None:
    with pytest.raises(Uninitialized) as error:
        launch(lines)
    assert f"register %r2 is used, and nothing has written {which}" in str(error.value)
    place = error.value.place
    assert place is not None and (place.warp, place.lane) == (0, 0)


@pytest.mark.emulator
def test_an_address_needs_all_its_bytes() -> None:
    with pytest.raises(Uninitialized, match="register %rd5 is used, and nothing has written bytes 4, 5, 6, 7 of it"):
        launch("mov.b64 %rd5, {%r1, %r9}; ld.global.b32 %r2, [%rd5];")


SHARED = """.shared .align 16 .b32 buf[64]; mov.u32 %r10, buf; mad.lo.u32 %r10, %r1, 4, %r10;
st.shared.b16 [%r10], %r1; bar.sync 0; ld.shared.b32 %r3, [%r10];"""


def test_half_a_word_of_shared_memory() -> None:
    np.testing.assert_array_equal(launch(SHARED + "and.b32 %r2, %r3, 0xFFFF;"), I)
    again = "st.shared.b32 [%r10], %r3; bar.sync 0; ld.shared.b16 %r2, [%r10];"
    np.testing.assert_array_equal(launch(SHARED + again), I)


@pytest.mark.emulator
@pytest.mark.parametrize(
    "lines",
    [
        "shr.u32 %r2, %r3, 8;",
        "st.shared.b32 [%r10], %r3; bar.sync 0; ld.shared.b16 %r2, [%r10+2];",
    ],
)
def test_the_other_half_of_a_word_of_shared_memory(lines: str) -> None:
    with pytest.raises(Uninitialized, match=r"load of shared memory that nothing has written: offset 2\b"):
        launch(SHARED + lines)
