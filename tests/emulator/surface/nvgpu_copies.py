"""cute.nvgpu: copy operations between global memory, shared memory and registers, by threads and by the copy engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cutlass
import cutlass.cute as cute
import cutlass.memory
import torch
from cutlass import Float16, Int32
from cutlass.cute import nvgpu
from cutlass.cute.nvgpu import cpasync, warp

from tests.emulator.surface.cases import WARP, case, launch, refused

arch = cute.arch
MATRIX = torch.arange(32 * 32, dtype=torch.int32).reshape(32, 32)

# -- threads: through registers and shared memory ------------------------------------------------------


def through_shared(name: str, atoms: Callable[..., dict[str, Any]]) -> None:
    """Each thread moves four numbers: global, register, shared, register, global, by the atoms given."""

    def check(device: str) -> None:
        result = torch.zeros(4 * WARP, dtype=torch.int32, device=device)

        def body(tid: Any, x: Any, y: Any) -> None:
            chosen = {way: cute.make_copy_atom(nvgpu.CopyUniversalOp(), Int32) for way in ("G2R", "R2S", "S2R", "R2G")}
            chosen.update(atoms())
            buffer = cute.make_tensor(arch.alloc_smem(Int32, 4 * WARP, alignment=16), cute.make_layout(4 * WARP))
            first, second = (cute.make_rmem_tensor(4, Int32) for _ in range(2))
            mine = [cute.local_tile(tensor, (4,), (tid,)) for tensor in (x, y, buffer)]
            cute.copy(chosen["G2R"], mine[0], first)
            cute.copy(chosen["R2S"], first, mine[2])
            arch.sync_threads()
            cute.copy(chosen["S2R"], cute.local_tile(buffer, (4,), (31 - tid,)), second)
            cute.copy(chosen["R2G"], second, mine[1])

        launch(body, [MATRIX.flatten()[: 4 * WARP].to(device), result])
        assert torch.equal(result.cpu().reshape(32, 4), MATRIX.flatten()[: 4 * WARP].reshape(32, 4).flip(0)), name

    case(name)(check)


ORDERS, SCOPES = nvgpu.MemoryOrder, nvgpu.MemoryScope
EVICTIONS = nvgpu.CacheEvictionPriority
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "G2R": [
        {}, {"num_bits_per_copy": 128}, {"invariant": True}, {"memory_order": ORDERS.VOLATILE},
        {"memory_order": ORDERS.ACQUIRE, "memory_scope": SCOPES.GPU},
        {"memory_order": ORDERS.RELAXED, "memory_scope": SCOPES.SYS},
        *({"l1c_evict_priority": priority} for priority in EVICTIONS),
        *({"l2_prefetch_size": size} for size in nvgpu.L2PrefetchSize),
        *({"load_cache_mode": mode} for mode in nvgpu.LoadCacheMode),
    ],
    "R2G": [
        {}, {"num_bits_per_copy": 128}, {"memory_order": ORDERS.RELEASE, "memory_scope": SCOPES.CLUSTER},
        {"memory_order": ORDERS.RELAXED, "memory_scope": SCOPES.GPU},
        *({"l1c_evict_priority": priority} for priority in EVICTIONS),
        *({"store_cache_mode": mode} for mode in nvgpu.StoreCacheMode),
    ],
    "S2R": [{}, {"num_bits_per_copy": 64}, {"memory_order": ORDERS.VOLATILE},
            {"memory_order": ORDERS.ACQUIRE, "memory_scope": SCOPES.CTA}],
    "R2S": [{}, {"num_bits_per_copy": 128}, {"memory_order": ORDERS.VOLATILE},
            {"memory_order": ORDERS.RELEASE, "memory_scope": SCOPES.CTA}],
}  # fmt: skip


def described(options: dict[str, Any]) -> str:
    return " ".join(f"{key}={getattr(value, 'name', value)}" for key, value in options.items()) or "plain"


for way, variants in OPTIONS.items():
    for options in variants:
        through_shared(f"nvgpu.Copy{way}Op, {described(options)}", lambda w=way, o=options: {
            w: cute.make_copy_atom(getattr(nvgpu, f"Copy{w}Op")(), Int32, **o)})  # fmt: skip
for bits in (0, 32, 64, 128):
    through_shared(f"nvgpu.CopyUniversalOp, {bits} bits", lambda b=bits: {
        w: cute.make_copy_atom(nvgpu.CopyUniversalOp(), Int32, num_bits_per_copy=b) for w in OPTIONS})  # fmt: skip

# -- threads: cp.async ---------------------------------------------------------------------------------


def by_cp_async(name: str, bits: int, **options: Any) -> None:
    def check(device: str) -> None:
        result = torch.zeros(4 * WARP, dtype=torch.int32, device=device)

        def body(tid: Any, x: Any, y: Any) -> None:
            atom = cute.make_copy_atom(cpasync.CopyG2SOp(**options), Int32, num_bits_per_copy=bits)
            buffer = cute.make_tensor(arch.alloc_smem(Int32, 4 * WARP, alignment=16), cute.make_layout(4 * WARP))
            width = bits // 32
            for i in range(4 // width):
                at = (tid * (4 // width) + i,)
                cute.copy(atom, cute.local_tile(x, (width,), at), cute.local_tile(buffer, (width,), at))
            arch.cp_async_commit_group()
            arch.cp_async_wait_group(0)
            arch.sync_threads()
            for i in range(4):
                y[4 * tid + i] = buffer[4 * (31 - tid) + i]

        launch(body, [MATRIX.flatten()[: 4 * WARP].to(device), result])
        assert torch.equal(result.cpu().reshape(32, 4), MATRIX.flatten()[: 4 * WARP].reshape(32, 4).flip(0)), name

    case(name, "cpasync.CopyG2SOp")(check)


for bits in (32, 64, 128):
    by_cp_async(f"cpasync.CopyG2SOp, {bits} bits", bits)
for mode in cpasync.LoadCacheMode:
    by_cp_async(f"cpasync.CopyG2SOp, {mode.name}", 128, cache_mode=mode)

# -- a warp: ldmatrix and stmatrix -----------------------------------------------------------------------


@cute.kernel
def matrix_kernel(x: cute.Tensor, y: cute.Tensor, op: cutlass.Constexpr, loads: cutlass.Constexpr):
    """16 x 16 halves: in by plain copies and out by the op, or the other way round; mma.sync's C owns what.

    The buffer of a transposing op is column-major.
    """
    tid, _, _ = arch.thread_idx()
    order = (0, 1) if op.transpose else (1, 0)
    layout = cute.make_ordered_layout((16, 16), order=order)
    buffer = cutlass.memory.SmemAllocator().allocate_tensor(Float16, layout, byte_alignment=16)
    mma = cute.make_tiled_mma(warp.MmaF16BF16Op(Float16, Float16, (16, 8, 16)), permutation_mnk=(16, 16, 16))
    atom = cute.make_copy_atom(op, Float16)
    mine, plain = cute.make_tiled_copy_C(atom, mma).get_slice(tid), mma.get_slice(tid)
    if cutlass.const_expr(loads):
        for i in cutlass.range_constexpr(8):
            buffer[i * 2 + tid // 16, tid % 16] = x[i * 2 + tid // 16, tid % 16]
        arch.sync_threads()
        values = mma.make_fragment_C(plain.partition_C(y))
        cute.copy(atom, mine.partition_S(buffer), mine.retile(values))
        cute.autovec_copy(values, plain.partition_C(y))
    else:
        values = mma.make_fragment_C(plain.partition_C(x))
        cute.autovec_copy(plain.partition_C(x), values)
        cute.copy(atom, mine.retile(values), mine.partition_D(buffer))
        arch.sync_threads()
        for i in cutlass.range_constexpr(8):
            y[i * 2 + tid // 16, tid % 16] = buffer[i * 2 + tid // 16, tid % 16]


@cute.jit
def matrix_host(x: cute.Tensor, y: cute.Tensor, op: cutlass.Constexpr, loads: cutlass.Constexpr):
    matrix_kernel(x, y, op, loads).launch(grid=(1, 1, 1), block=(WARP, 1, 1))


def matrices(name: str, op: Any, loads: bool) -> None:
    def check(device: str) -> None:
        source = MATRIX[:16, :16].half().contiguous()
        result = torch.zeros_like(source, device=device)
        matrix_host(*(cute.runtime.from_dlpack(t, assumed_align=16) for t in (source.to(device), result)), op, loads)
        assert torch.equal(result.cpu(), source), name

    case(name)(check)


for count in (1, 2, 4):
    for transpose in (False, True):
        what = f"{count} matrices{', transposed' if transpose else ''}"
        matrices(f"warp.LdMatrix8x8x16bOp, {what}", warp.LdMatrix8x8x16bOp(transpose, count), True)
        matrices(f"warp.StMatrix8x8x16bOp, {what}", warp.StMatrix8x8x16bOp(transpose, count), False)

# -- what sm_90a does not have ---------------------------------------------------------------------------


def refuse(name: str, op: Any, loads: bool) -> None:
    """An op on 8-bit elements."""

    def check(device: str) -> None:
        def body(tid: Any, y: Any) -> None:
            buffer = cute.make_tensor(arch.alloc_smem(cutlass.Int8, 1024, alignment=16), cute.make_layout((32, 32)))
            values = cute.make_rmem_tensor(32, cutlass.Int8)
            values.fill(0)
            atom = cute.make_copy_atom(op, cutlass.Int8)
            tiled = cute.make_tiled_copy(atom, atom.layout_dst_tv if loads else atom.layout_src_tv, (16, 16))
            mine = tiled.get_slice(tid)
            shared = mine.partition_S(buffer) if loads else mine.partition_D(buffer)
            registers = cute.make_rmem_tensor_like(mine.partition_D(buffer) if loads else mine.partition_S(buffer))
            cute.copy(atom, shared, registers) if loads else cute.copy(atom, registers, shared)
            y[tid] = tid

        launch(body, [torch.zeros(WARP, dtype=torch.int32, device=device)])

    refused(name, check)


refuse("warp.LdMatrix8x16x8bOp", warp.LdMatrix8x16x8bOp(False, 1, unpack_bits=4), True)
refuse("warp.LdMatrix16x8x8bOp", warp.LdMatrix16x8x8bOp(True, 2), True)
refuse("warp.LdMatrix16x16x8bOp", warp.LdMatrix16x16x8bOp(True, 1), True)
refuse("warp.StMatrix16x8x8bOp", warp.StMatrix16x8x8bOp(True, 1), False)
