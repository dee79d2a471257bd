"""The 64-bit matrix descriptors of WGMMA: those that a running kernel uses, and what their bits mean.

    for wgmma in descriptors.used(gemm, A, B, C):
        print(wgmma.opcode, wgmma.a, wgmma.b)

`used` computes no descriptor: its bits are those in the registers of the kernel, which runs in the emulator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cutetut.emulator.machine.opcodes import Opcode, Selection, Step
from cutetut.emulator.measure.observe import observing
from cutetut.emulator.ptx.syntax import Vector
from cutetut.emulator.units.wgmma import Descriptor
from cutetut.inspect import run

if TYPE_CHECKING:
    from cutetut.emulator.machine.machine import Machine
    from cutetut.emulator.ptx.syntax import Instruction

__all__ = ["FIELDS", "DescriptorError", "Issue", "NoWgmma", "encode", "fields", "roles", "used"]

# name, lowest bit, number of bits, bytes that 1 stands for (0: not an amount of bytes); PTX ISA 9.7.15.5.1.2.2
FIELDS = (
    ("start address", 0, 14, 16),
    ("leading byte offset", 16, 14, 16),
    ("stride byte offset", 32, 14, 16),
    ("base offset", 49, 3, 0),
    ("swizzle", 62, 2, 0),
)

SWIZZLE_BYTES = {0: 16, 1: 128, 2: 64, 3: 32}  # code of the swizzle -> bytes of a row of its pattern; 0 is no swizzle


class DescriptorError(ValueError):
    """A value that no matrix descriptor, or no field of one, can have; the message says which it can."""


class NoWgmma(RuntimeError):
    """The function ran without issuing a WGMMA; the message says what to do."""


@dataclass(frozen=True)
class Issue:
    """One WGMMA of one warpgroup: its opcode, and the 64 bits that describe A (None in registers) and B."""

    opcode: str
    a_bits: int | None
    b_bits: int
    warpgroup: int

    @property
    def a(self) -> Descriptor | None:
        """The decoded descriptor of A; None if A comes from registers."""
        return None if self.a_bits is None else Descriptor.decode(self.a_bits)

    @property
    def b(self) -> Descriptor:
        """The decoded descriptor of B."""
        return Descriptor.decode(self.b_bits)


def fields(bits: int) -> list[tuple[str, str, int, int | None]]:
    """Return (name, bit range, raw value, bytes or None) of each field of a 64-bit matrix descriptor."""
    rows: list[tuple[str, str, int, int | None]] = []
    for name, low, width, unit in FIELDS:
        raw = bits >> low & (1 << width) - 1
        rows.append((name, f"{low}-{low + width - 1}", raw, raw * unit if unit else None))
    return rows


def encode(start: int, leading: int, stride: int, base_offset: int = 0, swizzle: int = 0) -> int:
    """Return the 64 bits of a matrix descriptor (PTX ISA section 9.7.15.5.1.2.2).

    start, leading, stride: bytes, multiples of 16 below 2^18. base_offset: 0 to 7. swizzle: 0 none, 1 128 bytes,
    2 64 bytes, 3 32 bytes. Raises DescriptorError, which names the field, for anything else.
    """
    bits = 0
    for (name, low, width, unit), value in zip(FIELDS, (start, leading, stride, base_offset, swizzle), strict=True):
        step, most = unit or 1, ((1 << width) - 1) * (unit or 1)
        if not 0 <= value <= most or value % step:
            kind = f"a multiple of {step}" if unit else "a whole number"
            raise DescriptorError(f"{name} is {value}; it must be {kind} from 0 to {most}")
        bits |= value // step << low
    return bits


def roles(swizzle: int, mn_major: bool) -> tuple[str, str]:
    """Return what the leading and the stride byte offset stand for (PTX ISA section 9.7.15.5.1.2.1), in words.

    swizzle: the code in the descriptor, 0 to 3. mn_major: whether the operand is MN-major, which the instruction says
    and not the descriptor. "not used" where the hardware does not look at the field. Raises DescriptorError for
    another code.
    """
    if swizzle not in SWIZZLE_BYTES:
        raise DescriptorError(f"swizzle is {swizzle}; it must be a whole number from 0 to 3")
    span = SWIZZLE_BYTES[swizzle]
    if mn_major:
        along_mn = f"step along M or N, from {span} bytes to the next {span}"
        along_k = "step along K, from 8 to the next 8"
        return (along_mn, along_k) if swizzle else (along_k, along_mn)
    return (
        "not used" if swizzle else "step along K, from 16 bytes to the next 16",
        "step along M or N, from 8 rows to the next 8",
    )


def used(function: Callable[..., Any], *args: Any) -> list[Issue]:
    """Compile a `@cute.jit` function, run it once in the emulator and return its WGMMAs in the order of issue.

    args: what the function takes. Torch tensors, 16-byte aligned and on any device, become CuTe tensors with the
    same strides; those on the CPU are written to. Raises NoWgmma where none was issued, and
    whatever compiling and running raise.
    """
    recorder = _Recorder()
    with run.emulated():
        call = run.prepare(function, args, run.in_place)
        with observing(recorder):
            call()
    if not recorder.issues:
        raise NoWgmma("the kernel issued no WGMMA: pass a function whose kernel calls cute.gemm with a warpgroup MMA")
    return recorder.issues


class _Recorder:
    """An observer that notes the descriptors of each WGMMA in front of its step."""

    def __init__(self) -> None:
        self.issues: list[Issue] = []

    def watch(self, machine: Machine) -> _Watcher:
        return _Watcher(self.issues, machine)


class _Watcher:
    def __init__(self, issues: list[Issue], machine: Machine) -> None:
        self.issues, self.machine = issues, machine

    def executed(self, step: Step, inst: Instruction, entry: Opcode) -> Step:
        if not inst.opcode.startswith("wgmma.mma_async"):
            return step
        a, b = inst.operands[1:3]
        a_row = None if isinstance(a, Vector) else self.machine.source(a, np.uint64)
        b_row = self.machine.source(b, np.uint64)

        def run(sel: Selection) -> object:
            threads = np.arange(sel.start, sel.stop) if isinstance(sel, slice) else sel
            for first in threads[::128].tolist():
                a_bits = None if a_row is None else int(a_row[first])
                self.issues.append(Issue(inst.opcode, a_bits, int(b_row[first]), first // 128))
            return step(sel)

        return run

    def issued(self, step: Step, inst: Instruction, entry: Opcode) -> Step:
        return step
