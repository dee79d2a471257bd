"""cute.arch: integer arithmetic, bits and special registers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import cutlass.cute as cute
import numpy as np
import torch
from cutlass import Int16, Int32, Uint16, Uint32, Uint64

from tests.emulator.surface.cases import WARP, integers, per_thread

arch = cute.arch
I32, I64 = torch.int32, torch.int64
A, B, C = (integers(seed) for seed in (1, 2, 3))
WIDE_A, WIDE_B = (integers(seed, I64) for seed in (4, 5))
SMALL = integers(6, I32, 0, 4)


def on_ints(function: Callable[..., Any]) -> Callable[..., Any]:
    """An oracle from Python's integers, which have no width, to one or several results per thread."""

    def want(*arrays: np.ndarray) -> Any:
        rows = [function(*(int(v) for v in row)) for row in zip(*arrays, strict=True)]
        if isinstance(rows[0], tuple):
            return tuple(np.array(column, object) for column in zip(*rows, strict=True))
        return np.array(rows, object)

    return want


def unsigned(value: int, bits: int = 32) -> int:
    return value % (1 << bits)


def signed(value: int, bits: int = 32) -> int:
    value = unsigned(value, bits)
    return value - (1 << bits) if value >> (bits - 1) else value


def ints(name: str, operation: Callable, inputs: list[torch.Tensor], want: Callable, out: torch.dtype = I32) -> None:
    per_thread(name, operation, inputs, out, on_ints(want))


# -- bits --------------------------------------------------------------------------------------------

for bits, tensor, other, kind, to_unsigned in ((32, A, B, I32, Uint32), (64, WIDE_A, WIDE_B, I64, Uint64)):
    ints(f"arch.popc, {bits} bits", arch.popc, [tensor], lambda x, b=bits: unsigned(x, b).bit_count(), kind)
    ints(f"arch.clz, {bits} bits", arch.clz, [tensor], lambda x, b=bits: b - unsigned(x, b).bit_length())
    ints(f"arch.bfind, {bits} bits, signed", arch.bfind, [tensor], lambda x: (x if x >= 0 else ~x).bit_length() - 1)
    ints(f"arch.bfind, {bits} bits, unsigned", lambda x, u=to_unsigned: arch.bfind(u(x)), [tensor],
         lambda x, b=bits: unsigned(x, b).bit_length() - 1)  # fmt: skip
    ints(f"arch.brev, {bits} bits", arch.brev, [tensor],
         lambda x, b=bits: int(f"{unsigned(x, b):0{b}b}"[::-1], 2), kind)  # fmt: skip
    ints(f"arch.bfe, {bits} bits, signed", lambda x: arch.bfe(x, 3, 7), [tensor], lambda x: signed(x >> 3, 7), kind)
    ints(f"arch.bfe, {bits} bits, unsigned", lambda x, u=to_unsigned: arch.bfe(u(x), 3, 7), [tensor],
         lambda x: x >> 3 & 127, kind)  # fmt: skip
    ints(f"arch.bfi, {bits} bits", lambda x, y: arch.bfi(x, y, 3, 7), [tensor, other],
         lambda x, y: y & ~(127 << 3) | (x & 127) << 3, kind)  # fmt: skip
    ints(f"arch.mul_hi, {bits} bits, signed", arch.mul_hi, [tensor, other],
         lambda x, y, b=bits: x * y >> b, kind)  # fmt: skip
    ints(f"arch.mul_hi, {bits} bits, unsigned", lambda x, y, u=to_unsigned: arch.mul_hi(u(x), u(y)),
         [tensor, other], lambda x, y, b=bits: unsigned(x, b) * unsigned(y, b) >> b, kind)  # fmt: skip


def lookup(x: int, y: int, z: int) -> int:
    """lop3 by its definition: bit 4x + 2y + z of the table 0x1b."""
    return sum((0x1B >> ((x >> i & 1) << 2 | (y >> i & 1) << 1 | z >> i & 1) & 1) << i for i in range(32))


def permuted(x: int, y: int) -> int:
    both = unsigned(x) | unsigned(y) << 32
    return sum((both >> 8 * nibble & 255) << 8 * i for i, nibble in enumerate((2, 6, 3, 7)))


def funnel(kind: str) -> Callable[[int, int], int]:
    """shf by 37: modulo 32, or clamped to 32; left keeps the upper half, right the lower one."""
    by = 32 if "clamp" in kind else 5

    def shift(low: int, high: int) -> int:
        both = unsigned(high) << 32 | unsigned(low)
        return both << by >> 32 if kind in ("l", "clamp_left") else both >> by

    return shift


ints("arch.lop3", lambda x, y, z: arch.lop3(x, y, z, 0x1B), [A, B, C], lookup)
ints("arch.prmt", lambda x, y: Int32(arch.prmt(x, y, 0x7362)), [A, B], permuted)
for kind in ("l", "r", "clamp_left", "clamp_right"):
    ints(f"arch.shf, {kind}", lambda x, y, k=kind: arch.shf(x, y, 37, k), [A, B], funnel(kind))
ints("arch.log2_of_pow2_int", arch.log2_of_pow2_int, [torch.tensor([1 << i % 31 for i in range(WARP)], dtype=I32)],
     lambda x: x.bit_length() - 1)  # fmt: skip

# -- arithmetic --------------------------------------------------------------------------------------


def low24(value: int, is_signed: bool) -> int:
    return signed(value, 24) if is_signed else unsigned(value, 24)


ints("arch.mul_wide, signed", arch.mul_wide, [A, B], lambda x, y: x * y, I64)
ints("arch.mul_wide, unsigned", lambda x, y: arch.mul_wide(Uint32(x), Uint32(y)), [A, B],
     lambda x, y: unsigned(x) * unsigned(y), I64)  # fmt: skip
ints("arch.mul_wide, signed 16 bits", lambda x, y: arch.mul_wide(Int16(x), Int16(y)), [A, B],
     lambda x, y: signed(x, 16) * signed(y, 16))  # fmt: skip
ints("arch.mul_wide, unsigned 16 bits", lambda x, y: arch.mul_wide(Uint16(x), Uint16(y)), [A, B],
     lambda x, y: unsigned(x, 16) * unsigned(y, 16))  # fmt: skip
for high in (False, True):
    for cast, is_signed in ((Int32, True), (Uint32, False)):
        what = f"{'high' if high else 'low'}, {'signed' if is_signed else 'unsigned'}"
        ints(f"arch.mul24, {what}", lambda x, y, c=cast, h=high: arch.mul24(c(x), c(y), h), [A, B],
             lambda x, y, s=is_signed, h=high: low24(x, s) * low24(y, s) >> 16 * h)  # fmt: skip
        ints(f"arch.mad24, {what}", lambda x, y, z, c=cast, h=high: arch.mad24(c(x), c(y), c(z), h), [A, B, C],
             lambda x, y, z, s=is_signed, h=high: (low24(x, s) * low24(y, s) >> 16 * h) + z)  # fmt: skip
ints("arch.add_sat_int", arch.add_sat_int, [A, B], lambda x, y: min(max(x + y, -(1 << 31)), (1 << 31) - 1))
ints("arch.sub_sat_int", arch.sub_sat_int, [A, B], lambda x, y: min(max(x - y, -(1 << 31)), (1 << 31) - 1))


def carried(x: int, y: int, bits: int) -> tuple[int, int]:
    total = unsigned(x, bits) + unsigned(y, bits)
    return total, 2 * x + (total >> bits)


for bits, left, right, kind in ((32, A, B, I32), (64, WIDE_A, WIDE_B, I64)):
    per_thread(f"arch.add_cc, then addc, {bits} bits", lambda x, y: (arch.add_cc(x, y), arch.addc(x, x)), [left, right],
               kind, on_ints(lambda x, y, b=bits: carried(x, y, b)), covers=("arch.add_cc", "arch.addc"))  # fmt: skip
    per_thread(f"arch.sub_cc, then subc, {bits} bits", lambda x, y: (arch.sub_cc(x, y), arch.subc(x, y)), [left, right],
               kind, on_ints(lambda x, y, b=bits: (x - y, x - y - (unsigned(x, b) < unsigned(y, b)))),
               covers=("arch.sub_cc", "arch.subc"))  # fmt: skip
per_thread("arch.mad_cc, then madc", lambda x, y, z: (arch.mad_cc(x, y, z), arch.madc(x, x, y)), [A, B, C], I32,
           on_ints(lambda x, y, z: (x * y + z, x * x + y + (unsigned(x * y) + unsigned(z) >> 32))),
           covers=("arch.mad_cc", "arch.madc"))  # fmt: skip

# -- special registers -------------------------------------------------------------------------------

LANES = torch.arange(WARP, dtype=I32)
for relation in ("lt", "le", "eq", "ge", "gt"):
    ints(f"arch.lanemask_{relation}", lambda x, r=relation: getattr(arch, f"lanemask_{r}")(), [LANES],
         lambda lane, r=relation: sum(getattr(operator, r)(i, lane) << i for i in range(WARP)))  # fmt: skip
CONSTANTS = {  # of one CTA of one warp without dynamic shared memory
    "warp_idx": 0, "cluster_size": 1, "block_idx_in_cluster": 0, "dynamic_smem_size": 0, "total_smem_size": 0,
    "aggr_smem_size": 1024, "nwarpid": 64, "warpsize": WARP, "nsmid": 132, "get_dyn_smem_size": 0,
}  # fmt: skip
for name, value in CONSTANTS.items():
    ints(f"arch.{name}", lambda x, n=name: Int32(getattr(arch, n)()), [LANES], lambda x, v=value: v)
ints("arch.lane_idx", lambda x: arch.lane_idx(), [LANES], lambda lane: lane)
ints("arch.activemask", lambda x: arch.activemask(), [LANES], lambda lane: -1)
ints("arch.make_warp_uniform", lambda x: arch.make_warp_uniform(arch.warp_idx() + 7), [LANES], lambda lane: 7)
TRIPLES = {
    "thread_idx": None, "block_dim": (WARP, 1, 1), "block_idx": (0, 0, 0), "grid_dim": (1, 1, 1),
    "cluster_idx": (0, 0, 0), "cluster_dim": (1, 1, 1), "block_in_cluster_idx": (0, 0, 0),
    "block_in_cluster_dim": (1, 1, 1),
}  # fmt: skip
for name, triple in TRIPLES.items():
    ints(f"arch.{name}", lambda x, n=name: getattr(arch, n)(), [LANES], lambda lane, t=triple: t or (lane, 0, 0))
for name, limit in {"smid": 132, "physical_warp_id": 64}.items():  # which one is the hardware's choice
    ints(f"arch.{name}", lambda x, n=name, top=limit: Int32(getattr(arch, n)() < top), [LANES], lambda lane: 1)
for name in ("clock", "clock64", "globaltimer", "globaltimer_lo", "gridid"):  # clocks do not run backwards
    ints(f"arch.{name}", lambda x, n=name: Int32(getattr(arch, n)() <= getattr(arch, n)()), [LANES], lambda lane: 1)
