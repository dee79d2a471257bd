"""What the TMA of a Hopper GPU does where the PTX ISA is silent: `python -m tests.emulator.probe_tma [FILE.json]`.

Every copy of every case below is written down: the driver's verdict on the map, how many bytes the mbarrier was told
of, and what lies in shared memory after a load or in the tensor after a store. What is copied are the numbers
1, 2, 3 ... in 16 bits, so what arrives says where it came from; 0 is out of bounds and 0xEEEE was never written.
test_tma_recorded.py holds the emulator to the answers of an H200 in data/tma.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.emulator.hardware import GpuFault, encode, run_on_gpu
from tests.emulator.harness import kernel
from tests.emulator.tensors import Map
from tests.emulator.test_tma import BOX_AT, SMEM, coordinates_in, store_text

RECORDED = Path(__file__).parent / "data" / "tma.json"
UNWRITTEN = 0xEEEE
NUMBERS = np.arange(1, 60001, dtype=np.uint16)  # all below 0xEEEE
SHARED = 16384  # bytes that a box may lie in
MOST = 65536  # bytes that no box has
ORIGIN = (0, 0, 0, 0, 0)


def counting_text(tensor: Map, offset: int) -> str:
    """One box into shared memory, which goes to p3; p4 gets the number of bytes that the mbarrier was told of.

    The barrier expects MOST bytes; what is missing after the copy is made up in steps of 4 until the phase completes.
    """
    read, operand = coordinates_in(tensor.rank)
    body = f"""mov.u32 %r0, %tid.x; mov.u32 %r1, dyn; setp.ne.u32 %p1, %r0, 0; mov.u32 %r2, 0xEEEEEEEE;
    mad.lo.u32 %r3, %r0, 4, %r1;
    FILL: st.shared.b32 [%r3+{BOX_AT}], %r2; add.u32 %r3, %r3, 128; sub.u32 %r4, %r3, %r1;
    setp.lt.u32 %p2, %r4, {SHARED}; @%p2 bra FILL;
    fence.proxy.async.shared::cta; bar.sync 0; @%p1 bra MEET; ld.param.b64 %rd0, [p0]; {read}
    mbarrier.init.shared::cta.b64 [%r1], 1; fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {MOST};
    cp.async.bulk.tensor.{tensor.rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
        [%r1+{BOX_AT + offset}], [%rd0, {operand}], [%r1];
    mov.u32 %r6, 0;
    SLEEP: nanosleep.u32 10000; add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 20; @%p2 bra SLEEP;
    mov.u32 %r6, {MOST};
    COUNT: mbarrier.test_wait.parity.shared::cta.b64 %p9, [%r1], 0; @%p9 bra DONE;
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 4; sub.u32 %r6, %r6, 4;
    setp.gt.u32 %p2, %r6, 0; @%p2 bra COUNT;
    DONE: ld.param.b64 %rd4, [p4]; st.global.b32 [%rd4], %r6;
    MEET: bar.sync 0; ld.param.b64 %rd3, [p3]; mad.wide.u32 %rd3, %r0, 4, %rd3; mad.lo.u32 %r3, %r0, 4, %r1;
    DUMP: ld.shared.b32 %r5, [%r3+{BOX_AT}]; st.global.b32 [%rd3], %r5;
    add.u32 %r3, %r3, 128; add.u64 %rd3, %rd3, 128; sub.u32 %r4, %r3, %r1;
    setp.lt.u32 %p2, %r4, {SHARED}; @%p2 bra DUMP;"""
    return kernel(body, 5, header=SMEM)


def reach(tensor: Map, at: tuple[int, ...]) -> int:
    """No element of a box that a load reads lies behind this byte of the tensor."""
    counts = [1 if tensor.interleave and d == tensor.rank - 2 else n for d, n in enumerate(tensor.counts)]
    last = [min(a + n * s, size) - 1 for a, n, s, size in zip(at, counts, tensor.steps, tensor.sizes, strict=False)]
    unit = 16 * tensor.interleave or tensor.nbytes
    return sum(max(n, 0) * s for n, s in zip(last, (unit, *tensor.strides), strict=True)) + unit


def loads(
    tensor: Map, moves: Iterable[tuple[int, ...]], offset: int = 0, data: np.ndarray = NUMBERS
) -> Iterator[dict[str, Any]]:
    """Loads at several coordinates, or the driver's refusal of the map."""
    image = encode(tensor.case())
    if image.startswith("CUDA_ERROR"):
        yield {"case": tensor.case(), "refused": image}
        return
    text = counting_text(tensor, offset)
    for at in moves:
        if reach(tensor, at) > data.nbytes:
            continue
        found = {"case": tensor.case(), "at": at[: tensor.rank], "offset": offset}
        out, counted = np.zeros(SHARED, np.uint8), np.zeros(1, np.uint32)
        try:
            run_on_gpu(text, tensor.over(data), data, np.array(at[: tensor.rank], np.int32), out, counted,
                       dynamic_smem=BOX_AT + SHARED)  # fmt: skip
        except GpuFault as fault:
            yield {**found, "fault": str(fault)}
            continue
        used = out.view(np.uint16) != 0xEEEE
        last = (int(np.flatnonzero(used)[-1]) + 1) * 2 if used.any() else 0
        yield {**found, "bytes": int(counted[0]), "shared": out[:last].tobytes().hex()}


def stores(
    tensor: Map,
    moves: Iterable[tuple[int, ...]],
    offset: int = 0,
    source: np.ndarray | None = None,
    operation: str = "",
    words: int = 0,
) -> Iterator[dict[str, Any]]:
    """Stores of a box that holds the numbers 1, 2, 3 ..., into a tensor of 0xEEEE (or so many words), written down."""
    size = -(-(offset + tensor.shared_bytes) // 128) * 128
    image = np.arange(1, size // 2 + 1, dtype=np.uint16) if source is None else source
    name = f"cp.async.bulk.tensor.{tensor.rank}d.global.shared::cta.tile.bulk_group"
    if operation:
        name = f"cp.reduce.async.bulk.tensor.{tensor.rank}d.global.shared::cta.{operation}.tile.bulk_group"
    for at in moves:
        found = {"case": tensor.case(), "at": at, "offset": offset, "store": operation or "copy"}
        data = np.full(words or -(-tensor.tensor_bytes // 2), UNWRITTEN, np.uint16)
        try:
            run_on_gpu(store_text(tensor, name, offset, image.nbytes // 4), tensor.over(data), data,
                       np.array(at, np.int32), image, dynamic_smem=image.nbytes)  # fmt: skip
            yield {**found, "tensor": data.tobytes().hex()}
        except GpuFault as fault:
            yield {**found, "fault": str(fault)}


def stored() -> Iterator[dict[str, Any]]:
    """Boxes that leave shared memory: over the edges, swizzled, narrow, with element strides, off 16 bytes."""
    yield from stores(Map("u16", (60,), (), (32,)), [(0,), (32,), (56,), (-8,), (-32,)])
    tensor = Map("u16", (28, 6), (64,), (16, 3))
    yield from stores(tensor, [(0, 0), (8, 1), (16, 4), (24, 0), (-8, -1), (0, -1), (32, 0), (0, 6)])
    yield from stores(Map("u16", (24, 6), (64,), (16, 3)), [(16, 4), (-8, -1)])
    yield from stores(Map("u16", (32, 8), (64,), (16, 6), (1, 2)), [(0, 0), (8, 3)])
    for mode, inner in ((1, 8), (1, 16), (2, 24), (3, 16), (3, 64)):
        yield from stores(Map("u16", (64, 8), (128,), (inner, 5), swizzle=mode), [(0, 1)], 128)
    yield from stores(Map("u16", (16, 4, 3, 2, 2), (32, 128, 384, 768), (8, 2, 2, 1, 2)), [(8, 1, 1, 0, 0)])
    yield from stores(tensor, [(1, 0)])
    yield from stores(Map("u32", (16, 4), (64,), (8, 2)), [(2, 0)], operation="add")


INTERLEAVED_BOX = np.arange(1, 4097, dtype=np.uint16)  # more than any of the boxes below


def interleaved_stores() -> Iterator[dict[str, Any]]:
    """The same layouts as in `interleaved`, from shared memory to the tensor."""
    for mode, slices in ((1, 16), (2, 32)):
        strides = (9 * slices, 99 * slices)
        for element, size in (("u16", 2), ("u8", 1), ("u32", 4)):
            n = slices // size
            for across in (1, n, n + 1):
                tensor = Map(element, (8, 40, 5), strides, (max(4, 16 // size), across, 2), interleave=mode)
                moves = [ORIGIN[:3], (1, 1, 1), (5, 39, 4), (-1, 0, 0), (0, -1, 0), (0, 0, -1), (8, 0, 0), (0, 0, 5)]
                yield from stores(tensor, moves, source=INTERLEAVED_BOX, words=len(NUMBERS))
        tensor = Map("u16", (8, 40, 5), strides, (8, 16, 2), interleave=mode)
        changed = [replace(tensor, element_strides=steps) for steps in ((2, 1, 1), (1, 2, 1), (1, 1, 2))]
        if mode == 2:
            changed += [replace(tensor, swizzle=swizzle) for swizzle in (1, 2, 3)]
        for rank in (4, 5):
            far = tuple(slices * s for s in (9, 47, 203, 611)[: rank - 1])
            changed.append(Map("u16", (8, 20, 20, 20, 20)[:rank], far, (8, 3, 3, 3, 3)[:rank], interleave=mode))
        for each in changed:
            if not encode(each.case()).startswith("CUDA_ERROR"):
                yield from stores(
                    each, [(0,) * each.rank, (1,) * each.rank], source=INTERLEAVED_BOX, words=len(NUMBERS)
                )
        yield from stores(tensor, [ORIGIN[:3]], 128, source=INTERLEAVED_BOX, words=len(NUMBERS))
        yield from stores(tensor, [(1, 1, 1)], source=INTERLEAVED_BOX, operation="add", words=len(NUMBERS))


FLOATS = np.array([0x3F801000, 0x3F803000, 0x3F801001, 0x3F800FFF, 0xBF801000, 0x007FFFFF, 0x80000001, 0x3FFFF000,
                   0x7F7FFFFF, 0xFF7FF000, 0x7F800000, 0xFF800000, 0x7F800001, 0xFFC01234, 0x7FFFFFFF, 0x00000000,
                   0x80000000, 0x00001000, 0x00003000, 0x007FF000, 0x00800000, 0x00801000, 0x80800FFF, 0x12345678,
                   0xC0FFEE00, 0x3F802000, 0x3F802FFF, 0x3F803001, 0x80400000, 0x00400000, 0x7FBFFFFF, 0x0D15EA5E],
                  np.uint32)  # fmt: skip


def conversions() -> Iterator[dict[str, Any]]:
    """What a load, a store and a reduction make of float32 bits: rounding, subnormals, NaN."""
    for element in ("f32", "f32.ftz", "tf32", "tf32.ftz"):
        tensor = Map(element, (32,), (), (32,))
        yield from loads(tensor, [(0,)], data=FLOATS)
        yield from stores(tensor, [(0,)], source=FLOATS)
        yield from stores(tensor, [(0,)], source=FLOATS, operation="add")  # to 0xEEEEEEEE, about -3.7e28


def counts() -> Iterator[dict[str, Any]]:
    """Bytes of boxes over the edges, beyond them, with element strides, and narrower than the swizzle's span."""
    tensor = Map("u16", (77, 24), (256,), (16, 8))
    yield from loads(tensor, [(0, 0), (72, 20), (-8, -3), (160, 0), (0, -50)])
    yield from loads(Map("u16", (40, 64), (80,), (16, 32), (1, 5)), [(8, 3), (0, 60)])
    for mode in (1, 2, 3):
        for inner in (8, 24, 8 << mode):
            if inner <= 8 << mode:
                yield from loads(Map("u16", (128, 24), (256,), (inner, 17), swizzle=mode), [(8, 2), (-8, 12)], 384)
    yield from loads(Map("u16", (128, 8, 4), (256, 2048), (24, 3, 2), swizzle=3), [(8, 2, 1)])


def interleaved() -> Iterator[dict[str, Any]]:
    """Layouts NC/8HWC8 (16 bytes) and NC/16HWC16 (32 bytes), for which the ISA gives names and no formula."""
    for mode, slices in ((1, 16), (2, 32)):
        strides = (9 * slices, 99 * slices)
        for element, size in (("u16", 2), ("u8", 1), ("u32", 4)):
            n = slices // size
            for across in (1, 3, n, n + 1, 2 * n, 3 * n):
                tensor = Map(element, (8, 40, 5), strides, (max(4, 16 // size), across, 2), interleave=mode)
                yield from loads(tensor, [ORIGIN, (1, 1, 1), (-1, -1, -1), (5, 39, 4)])
        tensor = Map("u16", (8, 40, 5), strides, (8, 16, 2), interleave=mode)
        yield from loads(tensor, [(1, 0, 0), (0, 1, 0), (0, 2, 0), (0, 8, 0), (0, 32, 0), (0, 0, 1)])
        if mode == 2:
            for swizzle in (0, 1, 2, 3):
                yield from loads(replace(tensor, swizzle=swizzle), [ORIGIN, (1, 1, 1)])
                yield from loads(replace(tensor, swizzle=swizzle), [ORIGIN], 128)
        for rank in (4, 5):
            far = tuple(slices * s for s in (9, 47, 203, 611)[: rank - 1])
            sizes = (8, 20, 20, 20, 20)[:rank]
            for special in range(rank):
                box = tuple(2 * slices // 2 if d == special else 2 for d in range(rank))
                yield from loads(Map("u16", sizes, far, (8, *box[1:]), interleave=mode), [ORIGIN, (1,) * rank])
            yield from loads(Map("u16", sizes, far, (8, 3, 3, 3, 3)[:rank], interleave=mode),
                             [ORIGIN, *(tuple(int(d == k) for d in range(rank)) for k in range(rank))])  # fmt: skip
        for steps in ((2, 1, 1), (1, 2, 1), (1, 1, 2)):
            yield from loads(replace(tensor, element_strides=steps), [ORIGIN, (1, 1, 1)])


def runs_of(words: np.ndarray) -> str:
    """16-bit words in short: "7+3" is 7 8 9, "0*4" four zeros; hexadecimal only where nothing was written: "eeee*2"."""
    found, at = [], 0
    while at < len(words):
        first = int(words[at])
        step = int(len(words) > at + 1 and int(words[at + 1]) == first + 1)
        end = at + 1
        while end < len(words) and int(words[end]) == first + step * (end - at):
            end += 1
        found.append(f"{'eeee' if first == UNWRITTEN else first}{'+' if step else '*'}{end - at}")
        at = end
    return " ".join(found)


def words_of(runs: str) -> np.ndarray:
    """The words that `runs_of` shortened."""
    found = []
    for run in runs.split():
        step = "+" in run
        first, count = run.split("+" if step else "*")
        value = UNWRITTEN if first == "eeee" else int(first)
        found.append(value + step * np.arange(int(count)))
    return np.concatenate([np.zeros(0), *found]).astype(np.uint16)


def shortened(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows by their map: {"case": ..., "copies": [{"at", "offset", "bytes", "words"}, ...]}."""
    groups: dict[str, dict[str, Any]] = {}
    for row in rows:
        if "illegal memory access" in row.get("fault", ""):  # the box is larger than this kernel's shared memory
            continue
        group = groups.setdefault(json.dumps(row["case"]), {"case": row["case"], "copies": []})
        copy: dict[str, Any] = {key: row[key] for key in row if key not in ("case", "shared", "tensor")}
        for what in {"shared", "tensor"} & set(row):
            copy["words"] = runs_of(np.frombuffer(bytes.fromhex(row[what]), np.uint16))
        group["copies"].append(copy)
    return list(groups.values())


def write(found: dict[str, list[dict[str, Any]]], facts: dict[str, str], path: Path) -> None:
    """The data file: one line for each map."""
    parts = [f"{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, rows)) + "\n]" for name, rows in found.items()]
    path.write_text(f'{{"provenance": {json.dumps(facts)},\n' + ",\n".join(parts) + "\n}\n")


def main(path: Path) -> None:
    from cutetut.course import provenance

    facts, found = provenance.collect(), {}
    for probe in (counts, conversions, stored, interleaved, interleaved_stores):
        found[probe.__name__] = shortened(probe())
        write(found, facts, path)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDED)
