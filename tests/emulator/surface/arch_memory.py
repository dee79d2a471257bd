"""cute.arch: warp-wide exchange, atomics, plain loads and stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cutlass.cute as cute
import numpy as np
import torch
from cutlass import Float32, Int32, Int64
from cutlass._mlir import ir

from tests.emulator.surface.cases import WARP, case, integers, launch, numpy_of, per_thread, quarters, refused, same

arch = cute.arch
I32, I64, F32, F16, BF16, F64 = torch.int32, torch.int64, torch.float32, torch.float16, torch.bfloat16, torch.float64
A, WIDE, REAL = integers(21), integers(22, I64), quarters(23)
FEW = integers(24, I32, 0, 4)
LANES = np.arange(WARP)

# -- warps -------------------------------------------------------------------------------------------

per_thread("arch.shuffle_sync", lambda x: arch.shuffle_sync(x, 5), [A], I32, lambda x: x[5])
per_thread("arch.shuffle_sync, 16 bits", lambda x: arch.shuffle_sync(x, 5), [REAL.half()], F16, lambda x: x[5])
per_thread("arch.shuffle_sync, 64 bits", lambda x: arch.shuffle_sync(x, 5), [WIDE], I64, lambda x: x[5])
per_thread("arch.shuffle_sync_up", lambda x: arch.shuffle_sync_up(x, 3), [A], I32,
           lambda x: x[np.where(LANES < 3, LANES, LANES - 3)])  # fmt: skip
per_thread("arch.shuffle_sync_down", lambda x: arch.shuffle_sync_down(x, 3), [A], I32,
           lambda x: x[np.where(LANES > 28, LANES, (LANES + 3) % 32)])  # fmt: skip
per_thread("arch.shuffle_sync_bfly", lambda x: arch.shuffle_sync_bfly(x, 3), [A], I32, lambda x: x[LANES ^ 3])
per_thread("arch.warp_reduction", lambda x: arch.warp_reduction(x, lambda a, b: a + b, threads_in_group=8), [REAL], F32,
           lambda x: np.repeat(x.reshape(4, 8).sum(axis=1), 8))  # fmt: skip
per_thread("arch.warp_reduction_max", arch.warp_reduction_max, [REAL], F32, np.max)
per_thread("arch.warp_reduction_sum", arch.warp_reduction_sum, [REAL], F32, np.sum)
VOTES: dict[str, Callable[[np.ndarray], int]] = {
    "any": lambda x: int((x > 0).any()), "all": lambda x: int((x > 0).all()),
    "uni": lambda x: int((x > 0).all() or (x <= 0).all()),
    "ballot": lambda x: sum(int(v > 0) << i for i, v in enumerate(x)),
}  # fmt: skip
for kind, vote in VOTES.items():
    for what, votes in (("mixed", A), ("all true", A | 1 & 0x7FFFFFFF | 1), ("all false", A * 0)):
        per_thread(f"arch.vote_{kind}_sync, {what}", lambda x, k=kind: Int32(getattr(arch, f"vote_{k}_sync")(x > 0)),
                   [votes], I32, vote)  # fmt: skip
UFUNCS = {"max": np.max, "min": np.min, "add": np.sum, "and": np.bitwise_and.reduce, "or": np.bitwise_or.reduce,
          "xor": np.bitwise_xor.reduce}  # fmt: skip
for kind, function in UFUNCS.items():
    per_thread(f"arch.warp_redux_sync, {kind}", lambda x, k=kind: arch.warp_redux_sync(x, k), [A], I32,
               lambda x, f=function: f(x.astype(np.int64)))  # fmt: skip
for kind, function in (("umax", np.max), ("umin", np.min)):
    per_thread(f"arch.warp_redux_sync, {kind}", lambda x, k=kind: arch.warp_redux_sync(x, k), [A], I32,
               lambda x, f=function: f(x.astype(np.int32).view(np.uint32)))  # fmt: skip
per_thread("arch.match_sync, any", lambda x: arch.match_sync(0xFFFFFFFF, x), [FEW], I32,
           lambda x: np.array([sum(int(v == w) << i for i, w in enumerate(x)) for v in x]))  # fmt: skip
per_thread("arch.match_sync, any of 64 bits", lambda x: arch.match_sync(0xFFFFFFFF, x), [FEW.to(I64) << 40], I32,
           lambda x: np.array([sum(int(v == w) << i for i, w in enumerate(x)) for v in x], object))  # fmt: skip
for what, values, result in (("different", FEW, 0), ("equal", FEW * 0, -1)):
    per_thread(f"arch.match_sync, all, {what}", lambda x: arch.match_sync(0xFFFFFFFF, x, "all"), [values], I32,
               lambda x, r=result: r)  # fmt: skip


def redux_of_floats(device: str) -> None:
    def body(tid: Any, x: Any, y: Any) -> None:
        y[tid] = arch.warp_redux_sync(x[tid], "fmax")

    launch(body, [REAL.to(device), torch.zeros(WARP, device=device)])


refused("arch.warp_redux_sync, floats", redux_of_floats)

# -- atomics: thread order is the hardware's choice, so the old values are compared as sets ------------

PLACES = 4
FOLDS: dict[str, np.ufunc] = {
    "add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "max": np.maximum,
    "min": np.minimum,
}  # fmt: skip


def atomic(name: str, operation: Callable, values: torch.Tensor, start: torch.Tensor, fold: Callable) -> None:
    """operation(pointer, value) of 32 threads on 4 places; fold(old, value) is what it does, in any order."""

    def check(device: str) -> None:
        memory, old = start.to(device, copy=True), torch.zeros(WARP, dtype=start.dtype, device=device)

        def body(tid: Any, x: Any, places: Any, result: Any) -> None:
            result[tid] = operation(places.iterator + tid % PLACES, x[tid])

        launch(body, [values.to(device), memory, old])
        given, first = numpy_of(values), numpy_of(start)
        for place in range(PLACES):
            total = first[place]
            for value in given[place::PLACES]:
                total = fold(total, value)
            assert numpy_of(memory)[place] == total, f"{name}, place {place}"
        assert len(set(numpy_of(old).tolist()) & set(first.tolist())) > 0, f"{name}: nobody saw the first value"

    case(name)(check)


SMALL = integers(25, I32, -100, 100)
for word, fold in FOLDS.items():
    for dtype in (I32, I64):
        atomic(f"arch.atomic_{word}, {dtype}", getattr(arch, f"atomic_{word}"), SMALL.to(dtype),
               torch.full((PLACES,), 77, dtype=dtype), fold)  # fmt: skip
for dtype in (F32, F64, F16, BF16):
    atomic(f"arch.atomic_add, {dtype}", arch.atomic_add, REAL.to(dtype), torch.ones(PLACES, dtype=dtype), np.add)
for word, fold in (("fmax", np.maximum), ("fmin", np.minimum)):
    atomic(f"arch.atomic_{word}", getattr(arch, f"atomic_{word}"), REAL, torch.zeros(PLACES), fold)
    atomic(f"arch.atomic_{word}, sign known", lambda p, v, w=word: getattr(arch, f"atomic_{w}")(p, v, sign_bit=False),
           REAL.abs(), torch.ones(PLACES), fold)  # fmt: skip
atomic("arch.atomic_max_float32", arch.atomic_max_float32, REAL.abs(), torch.zeros(PLACES), np.maximum)
for order, scope in (("relaxed", "gpu"), ("release", "cta"), ("acquire", "cluster"), ("acq_rel", "sys")):
    atomic(f"arch.atomic_add, {order}.{scope}", lambda p, v, o=order, s=scope: arch.atomic_add(p, v, sem=o, scope=s),
           SMALL, torch.zeros(PLACES, dtype=I32), np.add)  # fmt: skip


@case("arch.atomic_exch")
def exchange(device: str) -> None:
    """Every value goes in once and comes out once, or stays."""
    memory, old = torch.full((1,), -1, dtype=I32, device=device), torch.zeros(WARP, dtype=I32, device=device)

    def body(tid: Any, place: Any, result: Any) -> None:
        result[tid] = arch.atomic_exch(place.iterator, tid)

    launch(body, [memory, old])
    assert sorted([*old.tolist(), *memory.tolist()]) == [-1, *range(WARP)]


@case("arch.atomic_cas")
def compare_and_swap(device: str) -> None:
    """One thread of each place finds the zero; all others find what it wrote."""
    for dtype, number in ((I32, Int32), (I64, Int64)):
        memory, old = torch.zeros(PLACES, dtype=dtype, device=device), torch.zeros(WARP, dtype=dtype, device=device)

        def body(tid: Any, places: Any, result: Any, number: Any = number) -> None:
            result[tid] = arch.atomic_cas(places.iterator + tid % PLACES, cmp=number(0), val=number(tid + 1))

        launch(body, [memory, old])
        for place in range(PLACES):
            seen, kept = old.cpu().numpy()[place::PLACES], int(memory[place])
            assert (kept - 1) % PLACES == place and sorted(seen.tolist()) == [0, *[kept] * 7]


REDUCTIONS = {
    "add": ("u32", "s32", "u64", "f32", "f64", "f16", "bf16"), "min": ("s32", "s64"), "max": ("s32", "s64"),
    "umin": ("u32", "u64"), "umax": ("u32", "u64"), "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64"),
}  # fmt: skip
TORCH = {"f32": F32, "f64": F64, "f16": F16, "bf16": BF16}


def reduction(word: str, kind: str) -> None:
    dtype = TORCH.get(kind, I64 if kind.endswith("64") else I32)
    values = (REAL if kind in TORCH else SMALL.abs() if word in ("umin", "umax") else SMALL).to(dtype)
    start = torch.full((PLACES,), 3, dtype=dtype)

    def check(device: str) -> None:
        memory = start.to(device, copy=True)

        def body(tid: Any, x: Any, places: Any) -> None:
            arch.red(places.iterator + tid % PLACES, x[tid], op=word, dtype=kind, sem="relaxed", scope="gpu")

        launch(body, [values.to(device), memory])
        rows = numpy_of(values).reshape(-1, PLACES)
        want = FOLDS[word.removeprefix("u")].reduce(np.concatenate([numpy_of(start)[None], rows]), axis=0)
        same(numpy_of(memory), want)

    case(f"arch.red, {word}.{kind}")(check)


for word, kinds in REDUCTIONS.items():
    for kind in kinds:
        reduction(word, kind)

# -- loads and stores ----------------------------------------------------------------------------------

PRIORITIES = ("evict_normal", "evict_first", "evict_last", "evict_no_allocate", "evict_unchanged")
LOADS: list[dict[str, str]] = [
    {}, {"sem": "relaxed", "scope": "gpu"}, {"sem": "acquire", "scope": "cta"}, {"sem": "acquire", "scope": "sys"},
    *({"cop": cop} for cop in ("ca", "cg", "cs", "lu", "cv")),
    *({"level1_eviction_priority": p} for p in PRIORITIES),
    *({"level_prefetch_size": f"size_{n}b"} for n in (64, 128, 256)),
]  # fmt: skip
STORES: list[dict[str, str]] = [
    {}, {"sem": "relaxed", "scope": "gpu"}, {"sem": "release", "scope": "cluster"},
    *({"cop": cop} for cop in ("wb", "cg", "cs", "wt")),
    *({"level1_eviction_priority": p} for p in PRIORITIES),
]  # fmt: skip


def copy(name: str, move: Callable, source: torch.Tensor) -> None:
    """move(thread, from, to) of 32 threads copies a tensor."""

    def check(device: str) -> None:
        result = torch.zeros_like(source, device=device)
        launch(lambda tid, x, y: move(tid, x.iterator, y.iterator), [source.to(device), result])
        assert torch.equal(result.cpu(), source), name

    case(name)(check)


def named(options: dict[str, str]) -> str:
    return " ".join(options.values()) or "plain"


for options in LOADS:
    copy(f"arch.load, {named(options)}",
         lambda tid, x, y, o=options: arch.store(y + tid, arch.load(x + tid, Int32, **o)), A)  # fmt: skip
for options in STORES:
    copy(f"arch.store, {named(options)}",
         lambda tid, x, y, o=options: arch.store(y + tid, arch.load(x + tid, Int32), **o), A)  # fmt: skip
for dtype in (I64, F32, F64, torch.int8, torch.int16):
    copy(f"arch.load, {dtype}", lambda tid, x, y: arch.store(y + tid, arch.load(x + tid, x.dtype)), A.to(dtype))
for width in (2, 4):
    copy(f"arch.load, {width} values", lambda tid, x, y, w=width: arch.store(
        y + w * tid, arch.load(x + w * tid, ir.VectorType.get([w], Float32.mlir_type))),
        torch.arange(WARP * width, dtype=F32))  # fmt: skip


@case("arch.prefetch")
def prefetch(device: str) -> None:
    def body(tid: Any, x: Any, y: Any) -> None:
        arch.prefetch((x.iterator + tid).llvm_ptr, cache_level="L2")
        arch.prefetch((x.iterator + tid).llvm_ptr, cache_level="L1")
        y[tid] = x[tid]

    result = torch.zeros(WARP, dtype=I32, device=device)
    launch(body, [A.to(device), result])
    assert torch.equal(result.cpu(), A)


@case("arch.inline_ptx")
def inline(device: str) -> None:
    def body(tid: Any, x: Any, y: Any) -> None:
        y[tid] = arch.inline_ptx("add.s32 {$w0}, {$r0}, 5;", write_only_types=[Int32], read_only_args=[x[tid]])

    result = torch.zeros(WARP, dtype=I32, device=device)
    launch(body, [A.to(device), result])
    assert torch.equal(result.cpu(), A + 5)
