"""cute.nvgpu: matrix multiply operations of a thread, a warp and a warpgroup, one tile each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cutlass
import cutlass.cute as cute
import numpy as np
import torch
from cutlass import BFloat16, Float8E4M3FN, Float8E5M2, Float16, Float32, Float64, Int8, Int32, Uint8
from cutlass.cute.nvgpu import OperandMajorMode, warp, warpgroup

from tests.emulator.surface.cases import case, numpy_of, refused

TORCH: dict[Any, torch.dtype] = {
    Float16: torch.float16, BFloat16: torch.bfloat16, Float32: torch.float32, Float64: torch.float64,
    Float8E4M3FN: torch.float8_e4m3fn, Float8E5M2: torch.float8_e5m2, Int8: torch.int8, Uint8: torch.uint8,
    Int32: torch.int32, cutlass.TFloat32: torch.float32,
}  # fmt: skip
EIGHT_BITS = (Float8E4M3FN, Float8E5M2)


def operand(rows: int, columns: int, seed: int, kind: Any) -> torch.Tensor:
    """Small integers, so that every product and sum is exact."""
    low = 0 if kind is Uint8 else -4
    return torch.from_numpy(np.random.default_rng(seed).integers(low, 5, (rows, columns))).float().to(TORCH[kind])


def view_of(tensor: torch.Tensor, kind: Any, device: str) -> cute.Tensor:
    """A CuTe tensor; DLPack has no 8-bit floats, so those travel as bytes."""
    moved = tensor.to(device)
    if kind not in EIGHT_BITS:
        return cute.runtime.from_dlpack(moved, assumed_align=16)
    view = cute.runtime.from_dlpack(moved.view(torch.uint8), assumed_align=16)
    view.element_type = kind
    return view


# -- from registers: a thread's FMA, mma.sync ----------------------------------------------------------


@cute.kernel
def register_kernel(mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor, tiled_mma: cute.TiledMma):
    tid, _, _ = cute.arch.thread_idx()
    thr_mma = tiled_mma.get_slice(tid)
    tCgA, tCgB, tCgC = thr_mma.partition_A(mA), thr_mma.partition_B(mB), thr_mma.partition_C(mC)
    tCrA, tCrB = tiled_mma.make_fragment_A(tCgA), tiled_mma.make_fragment_B(tCgB)
    tCrC = tiled_mma.make_fragment_C(tCgC)
    cute.autovec_copy(tCgA, tCrA)
    cute.autovec_copy(tCgB, tCrB)
    tCrC.fill(1)
    cute.gemm(tiled_mma, tCrC, tCrA, tCrB, tCrC)
    cute.autovec_copy(tCrC, tCgC)


@cute.jit
def register_gemm(
    mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor, make: cutlass.Constexpr, threads: cutlass.Constexpr
):  # fmt: skip
    register_kernel(mA, mB, mC, make()).launch(grid=(1, 1, 1), block=(threads, 1, 1))


def from_registers(
    name: str, make: Callable[..., Any], kinds: tuple[Any, Any, Any], shape: tuple[int, int, int], threads: int
) -> None:
    """C = A B^T + 1 by one atom; kinds of A, B and C."""

    def check(device: str) -> None:
        m, n, k = shape
        a, b = operand(m, k, 1, kinds[0]), operand(n, k, 2, kinds[1])
        c = torch.zeros((m, n), dtype=TORCH[kinds[2]], device=device)
        views = view_of(a, kinds[0], device), view_of(b, kinds[1], device), cute.runtime.from_dlpack(c)
        register_gemm(*views, make, threads)
        np.testing.assert_array_equal(numpy_of(c), a.double().numpy() @ b.double().numpy().T + 1)

    case(name)(check)


for kind in (Float32, Float64, Float16):
    from_registers(f"nvgpu.MmaUniversalOp, {kind.__name__}",
                   lambda d=kind: cute.make_tiled_mma(cute.nvgpu.MmaUniversalOp(d), cute.make_layout((8, 4, 1))),
                   (kind, kind, kind), (8, 4, 4), 32)  # fmt: skip
SIXTEEN = [(Float16, Float32), (Float16, Float16), (BFloat16, Float32)]
for ab, acc in SIXTEEN:
    for k in (8, 16):
        from_registers(f"warp.MmaF16BF16Op, {ab.__name__} {acc.__name__} k{k}",
                       lambda a=ab, c=acc, k=k: cute.make_tiled_mma(warp.MmaF16BF16Op(a, c, (16, 8, k))),
                       (ab, ab, acc), (16, 8, k), 32)  # fmt: skip
for k in (4, 8):
    from_registers(f"warp.MmaTF32Op, k{k}", lambda k=k: cute.make_tiled_mma(warp.MmaTF32Op((16, 8, k))),
                   (cutlass.TFloat32, cutlass.TFloat32, Float32), (16, 8, k), 32)  # fmt: skip
for ab in EIGHT_BITS:
    for acc in (Float32, Float16):
        for k in (16, 32):
            from_registers(f"warp.MmaFP8Op, {ab.__name__} {acc.__name__} k{k}",
                           lambda a=ab, c=acc, k=k: cute.make_tiled_mma(warp.MmaFP8Op(a, c, (16, 8, k))),
                           (ab, ab, acc), (16, 8, k), 32)  # fmt: skip

# -- from shared memory and registers: wgmma -----------------------------------------------------------


@cute.kernel
def warpgroup_kernel(
    mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor, tiled_mma: cute.TiledMma, a_layout: cute.ComposedLayout,
    b_layout: cute.ComposedLayout, from_registers: cutlass.Constexpr,
):  # fmt: skip
    tid, _, _ = cute.arch.thread_idx()
    smem = cutlass.memory.SmemAllocator()
    sA = smem.allocate_tensor(mA.element_type, a_layout.outer, byte_alignment=1024, swizzle=a_layout.inner)
    sB = smem.allocate_tensor(mB.element_type, b_layout.outer, byte_alignment=1024, swizzle=b_layout.inner)
    for source, target in ((mA, sA), (mB, sB)):
        rows, columns = source.shape
        for i in cutlass.range_constexpr(rows * columns // 128):
            target[(i * 128 + tid) // columns, (i * 128 + tid) % columns] = source[
                (i * 128 + tid) // columns, (i * 128 + tid) % columns
            ]
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()
    thr_mma = tiled_mma.get_slice(tid)
    tCsA, tCsB, tCgC = thr_mma.partition_A(sA), thr_mma.partition_B(sB), thr_mma.partition_C(mC)
    tCrB = tiled_mma.make_fragment_B(tCsB)
    tCrA = tiled_mma.make_fragment_A(tCsA)
    if cutlass.const_expr(from_registers):
        cute.autovec_copy(thr_mma.partition_A(mA), tCrA)
    accumulators = tiled_mma.make_fragment_C(tCgC)
    accumulators.fill(1)
    warpgroup.fence()
    for block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
        cute.gemm(tiled_mma, accumulators, tCrA[None, None, block], tCrB[None, None, block], accumulators)
    warpgroup.commit_group()
    warpgroup.wait_group(0)
    cute.autovec_copy(accumulators, tCgC)


@cute.jit
def warpgroup_gemm(
    mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor, make: cutlass.Constexpr, a_atom: cutlass.Constexpr,
    b_atom: cutlass.Constexpr, from_registers: cutlass.Constexpr,
):  # fmt: skip
    layouts = []
    for tensor, kind in ((mA, a_atom), (mB, b_atom)):
        atom = warpgroup.make_smem_layout_atom(kind, tensor.element_type)
        layouts.append(cute.tile_to_shape(atom, tensor.shape, order=(0, 1)))
    warpgroup_kernel(mA, mB, mC, make(), *layouts, from_registers).launch(grid=(1, 1, 1), block=(128, 1, 1))


K_MAJOR, MN_MAJOR = OperandMajorMode.K, OperandMajorMode.MN
SMEM, RMEM = warpgroup.OperandSource.SMEM, warpgroup.OperandSource.RMEM
ATOMS = warpgroup.SmemLayoutAtomKind


def by_warpgroup(
    name: str, make: Callable[..., Any], kinds: tuple[Any, Any, Any], k: int, atoms: tuple[Any, Any],
    registers: bool = False,
) -> None:  # fmt: skip
    """C (64 x 64) = A B^T + 1."""

    def check(device: str) -> None:
        a, b = operand(64, k, 3, kinds[0]), operand(64, k, 4, kinds[1])
        c = torch.zeros((64, 64), dtype=TORCH[kinds[2]], device=device)
        views = view_of(a, kinds[0], device), view_of(b, kinds[1], device), cute.runtime.from_dlpack(c)
        warpgroup_gemm(*views, make, *atoms, registers)
        np.testing.assert_array_equal(numpy_of(c), a.double().numpy() @ b.double().numpy().T + 1)

    words = ("make_smem_layout_atom", "fence", "commit_group", "wait_group")
    case(name, name.split(",")[0], *(f"warpgroup.{word}" for word in words))(check)


for ab, acc in SIXTEEN:
    for source in (SMEM, RMEM):
        by_warpgroup(f"warpgroup.MmaF16BF16Op, {ab.__name__} {acc.__name__} {source.name}",
                     lambda a=ab, c=acc, s=source: cute.make_tiled_mma(
                         warpgroup.MmaF16BF16Op(a, c, (64, 64, 16), s, K_MAJOR, K_MAJOR)),
                     (ab, ab, acc), 64, (ATOMS.K_SW128, ATOMS.K_SW128), source is RMEM)  # fmt: skip
for kind in ("INTER", "SW32", "SW64", "SW128"):
    for major in (K_MAJOR, MN_MAJOR):
        atom = getattr(ATOMS, f"{major.name}_{kind}")
        by_warpgroup(f"warpgroup.MmaF16BF16Op, {major.name}_{kind}",
                     lambda m=major: cute.make_tiled_mma(
                         warpgroup.MmaF16BF16Op(Float16, Float32, (64, 64, 16), SMEM, m, m)),
                     (Float16, Float16, Float32), 64, (atom, atom))  # fmt: skip
for a in EIGHT_BITS:
    for b in EIGHT_BITS:
        for acc in (Float32, Float16):
            by_warpgroup(f"warpgroup.MmaF8Op, {a.__name__} {b.__name__} {acc.__name__}",
                         lambda a=a, b=b, c=acc: cute.make_tiled_mma(
                             warpgroup.MmaF8Op(a, b, c, (64, 64, 32), SMEM, K_MAJOR, K_MAJOR)),
                         (a, b, acc), 64, (ATOMS.K_SW64, ATOMS.K_SW64))  # fmt: skip
for a in (Int8, Uint8):
    for b in (Int8, Uint8):
        by_warpgroup(f"warpgroup.MmaI8Op, {a.__name__} {b.__name__}",
                     lambda a=a, b=b: cute.make_tiled_mma(
                         warpgroup.MmaI8Op(a, b, Int32, (64, 64, 32), SMEM, K_MAJOR, K_MAJOR)),
                     (a, b, Int32), 64, (ATOMS.K_SW64, ATOMS.K_SW64))  # fmt: skip

# -- what sm_90a does not have ---------------------------------------------------------------------------


def refuse(name: str, make: Callable[..., Any]) -> None:
    def check(device: str) -> None:
        tensor = cute.runtime.from_dlpack(torch.zeros((16, 8), device=device))
        register_gemm(tensor, tensor, tensor, lambda: cute.make_tiled_mma(make()), 32)

    refused(name, check)


E8, E4 = cutlass.Float8E8M0FNU, cutlass.Float4E2M1FN
refuse("warp.MmaF16BF16SparseOp",  # in 4.8.1 its MLIR type is missing
       lambda: warp.MmaF16BF16SparseOp(Float16, Float32, (16, 8, 32), warp.SparseMetadataFormat.TID))  # fmt: skip
refuse("warp.MmaMXF4Op", lambda: warp.MmaMXF4Op(E4, Float32, E8))
refuse("warp.MmaMXF4NVF4Op", lambda: warp.MmaMXF4NVF4Op(E4, Float32, E8))
refuse("warp.MmaMXF8Op", lambda: warp.MmaMXF8Op(Float8E4M3FN, Float32, E8))
refuse("warp.MmaMXF8F6F4Op", lambda: warp.MmaMXF8F6F4Op(Float8E4M3FN, E4, Float32, E8))
