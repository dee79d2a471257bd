"""cute.arch: floating-point arithmetic, approximations and conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cutlass.cute as cute
import numpy as np
import torch
from cutlass import BFloat16, Float16, Float32, Int8, Int32
from cutlass._mlir import ir
from cutlass._mlir.dialects import llvm, vector

from tests.emulator.surface.cases import CASES, REFUSED, by_vector, integers, launch, per_thread, quarters, refused

arch = cute.arch
F32, F16, BF16, I32 = torch.float32, torch.float16, torch.bfloat16, torch.int32
A, B, C = (quarters(seed) for seed in (11, 12, 13))
NEAR_SINGLE = 2.0**-21  # what ex2.approx and rcp.approx keep (PTX ISA sections 9.7.3.14 and 9.7.3.21), and some room

# -- float32 -----------------------------------------------------------------------------------------

per_thread("arch.fmax", arch.fmax, [A, B], F32, np.maximum)
per_thread("arch.fmin", arch.fmin, [A, B], F32, np.minimum)
per_thread("arch.fmax, larger size, product of the signs", lambda x, y: arch.fmax(x, y, abs=True), [A, B], F32,
           lambda x, y: np.maximum(abs(x), abs(y)) * np.copysign(1, x) * np.copysign(1, y))  # fmt: skip
HOLES = torch.where(A > 0, A, torch.nan)
per_thread("arch.fmax, a NaN loses", arch.fmax, [HOLES, B], F32, np.fmax)
per_thread("arch.fmin, a NaN wins", lambda x, y: arch.fmin(x, y, nan=True, ftz=True), [HOLES, B], F32, np.minimum)
per_thread("arch.rcp_approx", arch.rcp_approx, [A + 2], F32, lambda x: 1 / x, NEAR_SINGLE)
per_thread("arch.exp2", arch.exp2, [A], F32, np.exp2, NEAR_SINGLE)
per_thread("arch.exp", arch.exp, [A], F32, np.exp, 4 * NEAR_SINGLE)

# -- float16 and bfloat16: the values are chosen so that every result is exact ------------------------


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


for name, dtype in (("f16", F16), ("bf16", BF16)):
    a, b, c = (x.to(dtype) for x in (A, B, C))
    fma: Callable[..., Any] = getattr(arch, f"fma_{name}")
    pair_fma: Callable[..., Any] = getattr(arch, f"fma_packed_{name}x2")
    per_thread(f"arch.fma_{name}", fma, [a, b, c], dtype, lambda x, y, z: x * y + z)
    per_thread(f"arch.fma_{name}, relu", lambda x, y, z, f=fma: f(x, y, z, relu=True), [a, b, c], dtype,
               lambda x, y, z: relu(x * y + z))  # fmt: skip
    per_thread(f"arch.fma_{name}, oob", lambda x, y, z, f=fma: f(x, y, z, oob=True), [a, b, c], dtype,
               lambda x, y, z: x * y + z)  # fmt: skip
    per_thread(f"arch.fma_packed_{name}x2", lambda x, y, z, f=pair_fma: f((x, y), (y, z), (z, x)), [a, b, c], dtype,
               lambda x, y, z: (x * y + z, y * z + x))  # fmt: skip
    for sign, word in ((1, "add"), (-1, "sub")):
        pair = getattr(arch, f"{word}_packed_{name}x2")
        per_thread(f"arch.{word}_packed_{name}x2", lambda x, y, z, f=pair: f((x, y), (y, z)), [a, b, c], dtype,
                   lambda x, y, z, s=sign: (x + s * y, y + s * z))  # fmt: skip
    near = 2.0**-9 if name == "f16" else 2.0**-7
    per_thread(f"arch.exp2_packed_{name}x2", lambda x, y, n=name: getattr(arch, f"exp2_packed_{n}x2")((x, y)), [a, b],
               dtype, lambda x, y: (np.exp2(x), np.exp2(y)), near)  # fmt: skip
OOB_NAN = torch.full((32,), 0x7FF7, dtype=torch.int16)  # what TMA fills in out of bounds with
for name, dtype in (("f16", F16), ("bf16", BF16)):
    per_thread(f"arch.fma_{name}, oob of a filled element",
               lambda x, y, z, n=name: getattr(arch, f"fma_{n}")(x, y, z, oob=True),
               [OOB_NAN.view(dtype), B.to(dtype), C.to(dtype)], dtype, lambda x, y, z: 0 * z)  # fmt: skip

# -- conversions -------------------------------------------------------------------------------------


def rounded_to_tf32(x: np.ndarray) -> np.ndarray:
    """To 10 fraction bits, ties away from zero, as float32 bits."""
    bits = x.astype(np.float32).view(np.uint32)
    return (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)


FINE = torch.from_numpy(np.random.default_rng(14).standard_normal((32, 8)).astype(np.float32))
per_thread("arch.cvt_f32_tf32", lambda x: Int32(arch.cvt_f32_tf32(x)), [FINE[:, 0]], I32, rounded_to_tf32)
per_thread("arch.cvt_f32_bf16", lambda x: BFloat16(arch.cvt_f32_bf16(x.ir_value())), [FINE[:, 0]], BF16,
           lambda x: torch.from_numpy(x).float().bfloat16().double().numpy())  # fmt: skip
BYTES = torch.from_numpy(np.random.default_rng(15).integers(-128, 128, (32, 8)).astype(np.int8))
EXACT = BYTES.double().numpy()
per_thread("arch.cvt_i8_bf16", lambda x: BFloat16(arch.cvt_i8_bf16(Int8(x).ir_value())),
           [integers(16, I32, -128, 128)], BF16, lambda x: x)  # fmt: skip
by_vector("arch.cvt_f32x2_bf16x2", arch.cvt_f32x2_bf16x2, FINE[:, :2], BF16, 2, FINE[:, :2].bfloat16().double().numpy())
by_vector("arch.cvt_i8x2_to_f32x2", arch.cvt_i8x2_to_f32x2, BYTES[:, :2], F32, 2, EXACT[:, :2])
by_vector("arch.cvt_i8x4_to_f32x4", arch.cvt_i8x4_to_f32x4, BYTES[:, :4], F32, 4, EXACT[:, :4])
by_vector("arch.cvt_i8_bf16_intrinsic", lambda v: arch.cvt_i8_bf16_intrinsic(v, 8), BYTES, BF16, 8, EXACT)
NIBBLES = np.stack([BYTES.numpy() << 4 >> 4, BYTES.numpy() >> 4], axis=2).reshape(32, 16)  # the low one first
LOW_NIBBLES = BYTES.numpy() << 4 >> 4
by_vector("arch.sext_unpacked_i4x4_to_i8x4", lambda v: arch.sext_unpacked_i4x4_to_i8x4(v), BYTES[:, :4] & 15,
          torch.int8, 4, LOW_NIBBLES[:, :4])  # fmt: skip
by_vector("arch.sext_unpacked_i4_i8_intrinsic", lambda v: arch.sext_unpacked_i4_i8_intrinsic(v, 8), BYTES & 15,
          torch.int8, 8, LOW_NIBBLES)  # fmt: skip


def nibbles(values: Any, count: int) -> Any:
    """A vector of bytes as one of 4-bit values."""
    return llvm.bitcast(ir.VectorType.get([count], ir.IntegerType.get_signless(4)), values)


def of_nibbles(name: str, operation: Callable, count: int, dtype: torch.dtype, want: np.ndarray) -> None:
    want = want[:, :count]
    by_vector(name, lambda v: operation(nibbles(v, count)), BYTES[:, : count // 2], dtype, want.shape[1], want)


E4M3 = torch.from_numpy(NIBBLES.astype(np.float32)).to(torch.float8_e4m3fn).view(torch.int8).numpy()
of_nibbles("arch.cvt_i4x2_to_bf16x2", arch.cvt_i4x2_to_bf16x2, 2, BF16, NIBBLES)
of_nibbles("arch.cvt_i4x4_to_bf16x4", arch.cvt_i4x4_to_bf16x4, 4, BF16, NIBBLES)
of_nibbles("arch.cvt_i4x8_to_bf16x8", arch.cvt_i4x8_to_bf16x8, 8, BF16, NIBBLES)
of_nibbles("arch.cvt_i4x8_to_mxf8x8", lambda v: arch.cvt_i4x8_to_mxf8x8(v, dst_type=Int8.mlir_type), 8, torch.int8,
           E4M3)  # fmt: skip
of_nibbles("arch.cvt_i4_mxf8_intrinsic", lambda v: arch.cvt_i4_mxf8_intrinsic(v, 8, Int8), 8, torch.int8, E4M3)

of_nibbles("arch.cvt_i4_bf16", lambda v: vector.from_elements(
    ir.VectorType.get([1], BFloat16.mlir_type), [arch.cvt_i4_bf16(vector.extract(v, [], [1]))]), 2, BF16,
    NIBBLES[:, 1:2])  # fmt: skip

# -- what sm_90a, or this version of the DSL, does not have --------------------------------------------


def refuse_per_thread(name: str, operation: Callable) -> None:
    """The compiler refuses operation(x, y) on float32 values."""

    def check(device: str) -> None:
        result = torch.zeros(32, 2, device=device)

        def body(tid: Any, x: Any, y: Any) -> None:
            first, second = operation(x[tid], x[tid])
            y[tid, 0], y[tid, 1] = Float32(first), Float32(second)

        launch(body, [A.to(device), result])

    refused(name, check)


for word in ("add", "sub", "mul"):
    packed = getattr(arch, f"{word}_packed_f32x2")
    refuse_per_thread(f"arch.{word}_packed_f32x2", lambda x, y, f=packed: f((x, y), (y, x)))
refuse_per_thread("arch.fma_packed_f32x2", lambda x, y: arch.fma_packed_f32x2((x, y), (y, x), (x, x)))
refuse_per_thread("arch.exp_packed_f32x2", lambda x, y: arch.exp_packed_f32x2((x, y)))
for name, cast in (("f16", Float16), ("bf16", BFloat16)):
    for word in ("add", "sub"):
        narrowing = getattr(arch, f"{word}_packed_{name}x2_f32x2_f32x2")
        refuse_per_thread(f"arch.{word}_packed_{name}x2_f32x2_f32x2", lambda x, y, f=narrowing: f((x, y), (y, x)))
        mixed = getattr(arch, f"{word}_packed_f32x2_{name}x2_f32x2")
        refuse_per_thread(f"arch.{word}_packed_f32x2_{name}x2_f32x2",
                          lambda x, y, f=mixed, c=cast: f((c(x), c(y)), (y, x)))  # fmt: skip
    mixed_fma = getattr(arch, f"fma_packed_f32x2_{name}x2_f32x2_f32x2")
    refuse_per_thread(f"arch.fma_packed_f32x2_{name}x2_f32x2_f32x2",
                      lambda x, y, f=mixed_fma, c=cast: f((c(x), c(y)), (y, x), (y, y)))  # fmt: skip


def refuse_vector(name: str, operation: Callable, dtype: torch.dtype, columns: int) -> None:
    """The compiler refuses operation(vector of 8 bytes)."""
    by_vector(name, operation, BYTES, dtype, columns, np.zeros((32, columns)))
    REFUSED[name] = CASES.pop(name)


refuse_vector("arch.cvt_i4_bf16_intrinsic", lambda v: arch.cvt_i4_bf16_intrinsic(nibbles(v, 16), 16), BF16, 16)
refuse_vector("arch.cvt_i8x2_to_bf16x2", arch.cvt_i8x2_to_bf16x2, BF16, 2)
refuse_vector("arch.cvt_i8x4_to_bf16x4", arch.cvt_i8x4_to_bf16x4, BF16, 4)
for count in (2, 4, 8):
    refuse_vector(f"arch.cvt_f4e2m1x{count}_to_f16x{count}",
                  lambda v, n=count: getattr(arch, f"cvt_f4e2m1x{n}_to_f16x{n}")(llvm.bitcast(
                      ir.VectorType.get([n], ir.IntegerType.get_signless(4)), v)), F16, count)  # fmt: skip
refuse_vector("arch.cvt_f4e2m1_f16", lambda v: arch.cvt_f4e2m1_f16(vector.extract(nibbles(v, 16), [], [0])), F16, 1)
refuse_vector("arch.cvt_f32x4_to_fnv8e5m3x4", arch.cvt_f32x4_to_fnv8e5m3x4, F32, 4)
