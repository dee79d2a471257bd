"""Tensor copies against loops over elements: loads, stores, reductions, swizzles, edges, multicast."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cutetut.emulator.errors import IllegalInstruction, Misaligned, UnknownInstruction
from tests.emulator.harness import kernel, run, spin
from tests.emulator.tensors import NBYTES, TYPES, Map, aligned, loaded, pack, random_tensor, stored
from tests.emulator.test_tensormap import RECORDED

SMEM = ".extern .shared .align 1024 .b8 dyn[];"
BOX_AT = 1024  # where boxes begin; the barrier lies in front
MAP = "ld.param.b64 %rd0, [p0];"


def coordinates_in(rank: int, first: int = 40) -> tuple[str, str]:
    """PTX that reads p2 into registers, and the operand that lists them."""
    lines = "".join(f"ld.global.b32 %r{first + d}, [%rd2+{4 * d}];" for d in range(rank))
    return f"ld.param.b64 %rd2, [p2]; {lines}", "{" + ", ".join(f"%r{first + d}" for d in range(rank)) + "}"


def load_text(
    tensor: Map, offset: int, nbytes: int, words: int, state: str = "shared::cluster", hint: bool = False
) -> str:
    """One box into shared memory, then `words` 32-bit words of it to p3; p4 becomes 1 if exactly `nbytes` were counted.

    A later phase of the barrier, which expects none, must complete with its arrival.
    """
    read, operand = coordinates_in(tensor.rank)
    more, policy = (".L2::cache_hint", ", %rd9") if hint else ("", "")
    body = f"""mov.u32 %r0, %tid.x; mov.u32 %r1, dyn; setp.ne.u32 %p1, %r0, 0; mov.u32 %r2, 0xEEEEEEEE;
    mad.lo.u32 %r3, %r0, 4, %r1;
    FILL: st.shared.b32 [%r3+{BOX_AT}], %r2; add.u32 %r3, %r3, 128; sub.u32 %r4, %r3, %r1;
    setp.lt.u32 %p2, %r4, {4 * words}; @%p2 bra FILL;
    fence.proxy.async.shared::cta; bar.sync 0; @%p1 bra WAIT;
    {MAP} {read}
    mbarrier.init.shared::cta.b64 [%r1], 1; fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {nbytes};
    {"createpolicy.fractional.L2::evict_first.b64 %rd9, 1.0;" if hint else ""}
    cp.async.bulk.tensor.{tensor.rank}d.{state}.global.tile.mbarrier::complete_tx::bytes{more}
        [%r1+{BOX_AT + offset}], [%rd0, {operand}], [%r1]{policy};
    WAIT: bar.sync 0; {spin("%r1")} bar.sync 0; @%p1 bra LATER; nanosleep.u32 20000;
    mbarrier.arrive.shared::cta.b64 _, [%r1]; mbarrier.test_wait.parity.shared::cta.b64 %p9, [%r1], 1;
    @!%p9 mov.u32 %r90, 2;
    LATER: ld.param.b64 %rd3, [p3]; ld.param.b64 %rd4, [p4];
    mad.wide.u32 %rd3, %r0, 4, %rd3; mad.lo.u32 %r3, %r0, 4, %r1;
    DUMP: ld.shared.b32 %r5, [%r3+{BOX_AT}]; st.global.b32 [%rd3], %r5;
    add.u32 %r3, %r3, 128; add.u64 %rd3, %rd3, 128; sub.u32 %r4, %r3, %r1;
    setp.lt.u32 %p2, %r4, {4 * words}; @%p2 bra DUMP;
    @!%p1 st.global.b32 [%rd4], %r90;"""
    return kernel(body, 5, header=SMEM)


def load(
    tensor: Map, data: np.ndarray, coordinates: tuple[int, ...], offset: int = 0, **more: Any
) -> np.ndarray:  # fmt: skip
    """Bytes of shared memory from the 1 KiB boundary before the box, after a load."""
    size = -(-(offset + tensor.shared_bytes) // 128) * 128
    out, arrived = np.zeros(size, np.uint8), np.zeros(1, np.uint32)
    text = load_text(tensor, offset, tensor.box_bytes, size // 4, **more)
    run(text, tensor.over(data), data, np.array(coordinates, np.int32), out, arrived, dynamic_smem=BOX_AT + size)
    assert arrived[0] == 1, f"the barrier was told of {'fewer' if arrived[0] == 0 else 'more'} bytes"
    return out


def check_load(
    rng: np.random.Generator, tensor: Map, coordinates: tuple[int, ...], offset: int = 0, **more: object
) -> None:
    data = random_tensor(rng, tensor)
    got = load(tensor, data, coordinates, offset, **more)
    np.testing.assert_array_equal(got, loaded(tensor, data, coordinates, offset), err_msg=f"{tensor} at {coordinates}")


def test_the_packer_agrees_with_the_driver() -> None:
    for recorded in json.loads(RECORDED.read_text())["maps"]:
        assert pack(recorded["case"])[:64].hex() == recorded["image"][:128], recorded["case"]


# -- loads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("element", TYPES)
def test_loads_of_every_element_type(rng: np.random.Generator, element: str) -> None:
    size = NBYTES[element]
    unit = 16 // size
    tensor = Map(element, (80, 11), (80 * size,), (2 * unit, 5))
    for coordinates in ((0, 0), (16, 3), (80 - unit, 8), (-unit, -2)):
        check_load(rng, tensor, coordinates)


def edges(tensor: Map, lowest: int | None = None) -> list[list[int]]:
    """Coordinates around both ends of every dimension; those of dimension 0 at multiples of 16 bytes."""
    found = [[-b, -1, 0, 1, n - b, n - 1, n] for n, b in zip(tensor.sizes, tensor.box, strict=True)]
    unit = 16 // tensor.nbytes
    found[0] = [c // unit * unit for c in found[0]]
    return [[c for c in row if lowest is None or c >= lowest] for row in found]


RANKS = [
    Map("u16", (300,), (), (64,)),
    Map("u8", (100, 7), (112,), (48, 4)),
    Map("f16", (40, 6, 5), (96, 640), (16, 3, 2)),
    Map("u32", (20, 5, 4, 3), (96, 512, 2064), (8, 2, 3, 2)),
    Map("u64", (10, 4, 3, 3, 2), (80, 320, 976, 2944), (2, 3, 2, 2, 2)),
]


@pytest.mark.parametrize("tensor", RANKS, ids=lambda t: f"{t.rank}d")
def test_boxes_over_every_edge(rng: np.random.Generator, tensor: Map) -> None:
    """Coordinates from one box before the tensor to one behind it; what lies outside is zero and counts as bytes."""
    for _ in range(8):
        check_load(rng, tensor, tuple(int(rng.choice(e)) for e in edges(tensor)))


def test_a_box_larger_than_the_tensor(rng: np.random.Generator) -> None:
    tensor = Map("f16", (24, 3), (64,), (64, 8))
    check_load(rng, tensor, (0, 0))
    check_load(rng, tensor, (-40, -5))


@pytest.mark.parametrize("offset", [0, 128, 256, 384, 896])
@pytest.mark.parametrize(("mode", "inner"), [(m, i) for m in (1, 2, 3) for i in range(16, (16 << m) + 1, 16)])
def test_swizzles(rng: np.random.Generator, mode: int, inner: int, offset: int) -> None:
    """The swizzle looks at shared addresses; a row of a narrow box leaves the rest of its span alone."""
    tensor = Map("u8", (256, 24), (256,), (inner, 17), swizzle=mode)
    check_load(rng, tensor, (16, 2), offset)


@pytest.mark.parametrize("mode", [1, 2, 3])
def test_swizzled_boxes_over_the_edge(rng: np.random.Generator, mode: int) -> None:
    span = {1: 32, 2: 64, 3: 128}[mode]
    tensor = Map("f16", (40, 9, 3), (96, 1024), (span // 2, 5, 2), swizzle=mode)
    for coordinates in ((-8, -1, 0), (32, 7, 2), (8, 0, -1)):
        check_load(rng, tensor, coordinates)


@pytest.mark.parametrize("steps", [(1, 2, 1), (1, 1, 3), (1, 4, 2), (1, 8, 1)])
def test_element_strides(rng: np.random.Generator, steps: tuple[int, ...]) -> None:
    box = (16, 8, 6)
    tensor = Map("u16", (40, 20, 12), (80, 1600), box, steps)
    for coordinates in ((0, 0, 0), (8, 5, 3), (-8, -3, -2), (32, 17, 10)):
        check_load(rng, tensor, coordinates)


@pytest.mark.parametrize(("box", "step"), [(32, 5), (7, 2), (10, 8), (3, 4)])
def test_an_element_stride_that_does_not_divide_the_box(rng: np.random.Generator, box: int, step: int) -> None:
    """ceil(box / stride) elements, says the driver's documentation."""
    check_load(rng, Map("u16", (40, 64), (80,), (16, box), (1, step)), (8, 3))


def test_the_element_stride_of_the_contiguous_dimension_is_ignored(rng: np.random.Generator) -> None:
    check_load(rng, Map("u16", (64, 8), (128,), (16, 4), (2, 1)), (8, 1))


@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "tf32", "f64"])
def test_nan_fill(rng: np.random.Generator, element: str) -> None:
    """The fill of the ISA's "NaN" is one pattern, repeated every 16 bits, in every type."""
    size = NBYTES[element]
    tensor = Map(element, (32, 4), (32 * size,), (32 // size, 3), nan=1)
    data = random_tensor(rng, tensor)
    got = load(tensor, data, (32 - 16 // size, 2))
    fill = int.from_bytes(bytes.fromhex("f77f") * (size // 2), "little")
    np.testing.assert_array_equal(got, loaded(tensor, data, (32 - 16 // size, 2), 0, fill))


@pytest.mark.parametrize("element", ["tf32", "tf32.ftz", "f32", "f32.ftz"])
def test_loads_round_to_tf32(rng: np.random.Generator, element: str) -> None:
    """tf32: to the nearest of 10 fraction bits, ties to even, subnormals too; .ftz makes no difference to a load."""
    bits = rng.integers(0, 1 << 32, 64, dtype=np.uint32)
    bits[bits & 0x7F800000 == 0x7F800000] = 0x3F800000
    bits[:8] = 0x3F801000, 0x3F803000, 0x3F801001, 0x3F800FFF, 0xBF801000, 0x007FFFFF, 0x80000001, 0x3FFFF000
    tensor = Map(element, (64,), (), (64,))
    got = load(tensor, aligned(bits).view(np.uint8), (0,)).view(np.uint32)
    wanted = []
    for value in bits.tolist():
        if element.startswith("tf32"):
            rest, value = value & 0x1FFF, value & ~0x1FFF
            if rest > 0x1000 or (rest == 0x1000 and value & 0x2000):
                value += 0x2000
        wanted.append(value)
    np.testing.assert_array_equal(got, np.array(wanted, np.uint32))


@pytest.mark.parametrize("state", ["shared::cta", "shared::cluster"])
@pytest.mark.parametrize("hint", [False, True])
def test_spellings_of_the_load(rng: np.random.Generator, state: str, hint: bool) -> None:
    check_load(rng, RANKS[2], (8, 1, 1), state=state, hint=hint)


def test_l2_promotion_changes_no_value(rng: np.random.Generator) -> None:
    for l2 in range(4):
        check_load(rng, replace(RANKS[1], l2=l2), (16, 2))


def test_prefetching_a_box_changes_nothing(rng: np.random.Generator) -> None:
    tensor = RANKS[1]
    data = random_tensor(rng, tensor)
    before = data.copy()
    read, operand = coordinates_in(2)
    text = f"{MAP} {read} prefetch.tensormap [%rd0]; cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd0, {operand}];"
    run(kernel(text, 3), tensor.over(data), data, np.array((16, -2), np.int32), block=(1, 1, 1))
    np.testing.assert_array_equal(data, before)


# -- stores and reductions ------------------------------------------------------------------------


def store_text(tensor: Map, opcode: str, offset: int, words: int) -> str:
    """The box that p3 holds goes through shared memory to the tensor."""
    read, operand = coordinates_in(tensor.rank)
    body = f"""mov.u32 %r0, %tid.x; mov.u32 %r1, dyn; setp.ne.u32 %p1, %r0, 0;
    ld.param.b64 %rd3, [p3]; mad.wide.u32 %rd3, %r0, 4, %rd3; mad.lo.u32 %r3, %r0, 4, %r1;
    COPY: ld.global.b32 %r5, [%rd3]; st.shared.b32 [%r3], %r5;
    add.u32 %r3, %r3, 128; add.u64 %rd3, %rd3, 128; sub.u32 %r4, %r3, %r1;
    setp.lt.u32 %p2, %r4, {4 * words}; @%p2 bra COPY;
    fence.proxy.async.shared::cta; bar.sync 0; @%p1 bra END;
    {MAP} {read}
    {opcode} [%rd0, {operand}], [%r1+{offset}];
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
    END:"""
    return kernel(body, 4, header=SMEM)


def store(
    tensor: Map, data: np.ndarray, image: np.ndarray, coordinates: tuple[int, ...], offset: int = 0, operation: str = ""
) -> None:
    """Store or reduce a box of shared memory (bytes from a 1 KiB boundary) into data."""
    name = f"cp.reduce.async.bulk.tensor.{tensor.rank}d.global.shared::cta.{operation}.tile.bulk_group"
    if not operation:
        name = f"cp.async.bulk.tensor.{tensor.rank}d.global.shared::cta.tile.bulk_group"
    text = store_text(tensor, name, offset, len(image) // 4)
    run(text, tensor.over(data), data, np.array(coordinates, np.int32), image,
        dynamic_smem=len(image))  # fmt: skip


@pytest.mark.parametrize("tensor", RANKS, ids=lambda t: f"{t.rank}d")
def test_stores_over_every_edge(rng: np.random.Generator, tensor: Map) -> None:
    """A store may begin at no negative coordinate, and writes 16 bytes where one of them is inside."""
    for _ in range(6):
        coordinates = tuple(int(rng.choice(e)) for e in edges(tensor, lowest=0))
        data = aligned(np.concatenate([random_tensor(rng, tensor), np.zeros(16, np.uint8)]))
        image = rng.integers(0, 255, -(-tensor.box_bytes // 128) * 128).astype(np.uint8)
        wanted = stored(tensor, data, image, coordinates, 0)
        store(tensor, data, image, coordinates)
        np.testing.assert_array_equal(data, wanted, err_msg=str(coordinates))


@pytest.mark.parametrize("element", TYPES)
def test_stores_of_every_element_type(rng: np.random.Generator, element: str) -> None:
    size = NBYTES[element]
    tensor = Map(element, (64, 6), (64 * size,), (32, 4))
    data = random_tensor(rng, tensor)
    image = random_tensor(rng, Map(element, (32 * 4,), (), (32,)))
    wanted = stored(tensor, data, image, (48, 1), 0)
    store(tensor, data, image, (48, 1))
    np.testing.assert_array_equal(data, wanted)


@pytest.mark.parametrize("offset", [0, 128, 640])
@pytest.mark.parametrize(("mode", "inner"), [(1, 16), (1, 32), (2, 48), (2, 64), (3, 32), (3, 128)])
def test_stores_of_swizzled_boxes(rng: np.random.Generator, mode: int, inner: int, offset: int) -> None:
    tensor = Map("u8", (256, 24), (256,), (inner, 9), swizzle=mode)
    data = random_tensor(rng, tensor)
    image = rng.integers(0, 255, -(-(offset + tensor.shared_bytes) // 128) * 128).astype(np.uint8)
    wanted = stored(tensor, data, image, (208, 18), offset)
    store(tensor, data, image, (208, 18), offset)
    np.testing.assert_array_equal(data, wanted)


NUMPY = {"u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64, "f16": np.float16, "f32": np.float32}
ARITHMETIC: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": lambda old, new: old + new, "min": np.minimum, "max": np.maximum,
    "inc": lambda old, new: np.where(old >= new, 0, old + 1),
    "dec": lambda old, new: np.where((old == 0) | (old > new), new, old - 1),
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
REDUCTIONS = [
    *(("add", t) for t in ("u32", "s32", "u64", "f16", "f32", "bf16")),
    *((op, t) for op in ("min", "max") for t in ("u32", "s32", "u64", "s64", "f16", "bf16")),
    ("inc", "u32"), ("dec", "u32"), *((op, t) for op in ("and", "or", "xor") for t in ("u32", "u64")),
]  # fmt: skip


def small_numbers(rng: np.random.Generator, element: str, count: int) -> np.ndarray:
    """Numbers whose sums every format holds exactly, as float64 or the integer type."""
    low = 0 if element.startswith("u") else -50
    values = rng.integers(low, 51, count)
    return values.astype(float) if element == "bf16" else values.astype(NUMPY[element])


def as_bytes(values: np.ndarray, element: str) -> np.ndarray:
    if element == "bf16":
        return aligned((values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)).view(np.uint8)
    return aligned(values).view(np.uint8)


@pytest.mark.parametrize(("operation", "element"), REDUCTIONS)
def test_reductions(rng: np.random.Generator, operation: str, element: str) -> None:
    """A 16 x 4 box that hangs over the right edge of a 32 x 6 tensor."""
    size = NBYTES[element]
    tensor = Map(element, (32, 6), (32 * size,), (16, 4))
    old, new = small_numbers(rng, element, 32 * 6), small_numbers(rng, element, 16 * 4)
    wanted = old.reshape(6, 32).copy()
    wanted[2:6, 24:32] = ARITHMETIC[operation](wanted[2:6, 24:32], new.reshape(4, 16)[:, :8])
    data = as_bytes(old, element)
    store(tensor, data, as_bytes(new, element), (24, 2), operation=operation)
    np.testing.assert_array_equal(data, as_bytes(wanted, element))


# -- multicast ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ctas", "mask"), [(2, 0b01), (2, 0b10), (2, 0b11), (4, 0b1010), (4, 0b1111)])
def test_multicast_reaches_the_same_place_in_every_cta_of_the_mask(
    rng: np.random.Generator, ctas: int, mask: int
) -> None:
    """CTA 0 issues the copy; each CTA of the mask waits at its own barrier and dumps its own shared memory."""
    tensor = Map("f16", (64, 8), (128,), (64, 4), swizzle=3)
    data = random_tensor(rng, tensor)
    words = tensor.box_bytes // 4
    body = f"""mov.u32 %r0, %tid.x; mov.u32 %r1, dyn; mov.u32 %r2, %cluster_ctarank; setp.ne.u32 %p1, %r0, 0;
    mov.u32 %r3, 1; shl.b32 %r3, %r3, %r2; and.b32 %r3, %r3, {mask}; setp.eq.u32 %p4, %r3, 0; or.pred %p5, %p1, %p4;
    @!%p1 mbarrier.init.shared::cta.b64 [%r1], 1; @!%p1 fence.mbarrier_init.release.cluster;
    @!%p5 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {tensor.box_bytes};
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    setp.ne.u32 %p6, %r2, 0; or.pred %p6, %p6, %p1; @%p6 bra WAIT;
    {MAP} mov.u32 %r40, 0; mov.u32 %r41, 2; mov.u16 %h1, {mask};
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster
        [%r1+{BOX_AT}], [%rd0, {{%r40, %r41}}], [%r1], %h1;
    WAIT: bar.sync 0; @%p4 bra END; {spin("%r1")}
    ld.param.b64 %rd3, [p2]; mad.wide.u32 %rd3, %r2, {4 * words}, %rd3; mad.wide.u32 %rd3, %r0, 4, %rd3;
    mad.lo.u32 %r3, %r0, 4, %r1;
    DUMP: ld.shared.b32 %r5, [%r3+{BOX_AT}]; st.global.b32 [%rd3], %r5;
    add.u32 %r3, %r3, 128; add.u64 %rd3, %rd3, 128; sub.u32 %r4, %r3, %r1;
    setp.lt.u32 %p2, %r4, {4 * words}; @%p2 bra DUMP;
    END: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"""
    out = np.full((ctas, tensor.box_bytes), 0xEE, np.uint8)
    run(kernel(body, 3, header=SMEM), tensor.over(data), data, out, grid=(ctas, 1, 1), cluster=(ctas, 1, 1),
        dynamic_smem=BOX_AT + tensor.box_bytes)  # fmt: skip
    for rank in range(ctas):
        wanted = loaded(tensor, data, (0, 2), 0) if mask >> rank & 1 else np.full(tensor.box_bytes, 0xEE)
        np.testing.assert_array_equal(out[rank], wanted, err_msg=f"CTA {rank}")


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("tensor", "message"),
    [(Map("u8", (64, 8), (64,), (24, 2)), "24 bytes wide along the contiguous dimension, not a multiple of 16"),
     (Map("u8", (64, 8), (64,), (64, 2), swizzle=1), "64 bytes wide, more than the swizzle's 32"),
     (Map("u8", (64, 8, 2), (64, 512), (16, 2, 1)), "a 2-dimensional copy with a tensor map of rank 3")],
)  # fmt: skip
def test_illegal_maps(rng: np.random.Generator, tensor: Map, message: str) -> None:
    data = random_tensor(rng, tensor)
    text = load_text(replace(tensor, sizes=(64, 8), strides=(64,), box=tensor.box[:2]), 0, tensor.box_bytes, 32)
    with pytest.raises(IllegalInstruction, match=message):
        run(text, tensor.over(data), data, np.zeros(5, np.int32), np.zeros(128, np.uint8), np.zeros(1, np.uint32),
            dynamic_smem=BOX_AT + 1024)  # fmt: skip


@pytest.mark.emulator
def test_a_box_off_its_boundary(rng: np.random.Generator) -> None:
    with pytest.raises(Misaligned, match="TMA needs a multiple of 128"):
        check_load(rng, RANKS[1], (0, 0), 64)


@pytest.mark.emulator
@pytest.mark.parametrize("at", [(1, 0), (-3, 2), (4, -100)])
def test_a_box_that_begins_off_16_bytes(rng: np.random.Generator, at: tuple[int, int]) -> None:
    tensor = Map("u16", (77, 24), (256,), (16, 8))
    with pytest.raises(IllegalInstruction, match="must begin at a multiple of 16 bytes"):
        check_load(rng, tensor, at)
    with pytest.raises(IllegalInstruction, match="must begin at a multiple of 16 bytes"):
        store(tensor, random_tensor(rng, tensor), np.zeros(256, np.uint8), at)


@pytest.mark.gpu
@pytest.mark.parametrize("at", [(1, 0), (4, -100)])
def test_a_box_that_begins_off_16_bytes_faults(rng: np.random.Generator, at: tuple[int, int]) -> None:
    from tests.emulator.hardware import GpuFault

    tensor = Map("u16", (77, 24), (256,), (16, 8))
    with pytest.raises(GpuFault, match="illegal instruction"):
        check_load(rng, tensor, at)
    with pytest.raises(GpuFault, match="illegal instruction"):
        store(tensor, random_tensor(rng, tensor), np.zeros(256, np.uint8), at)


@pytest.mark.gpu
@pytest.mark.parametrize("offset", [16, 64])
def test_a_box_off_its_boundary_faults(rng: np.random.Generator, offset: int) -> None:
    from tests.emulator.hardware import GpuFault

    with pytest.raises(GpuFault, match="misaligned address"):
        check_load(rng, RANKS[1], (0, 0), offset)


@pytest.mark.emulator
@pytest.mark.parametrize("mode", ["im2col", "tile::gather4", "im2col::w"])
def test_other_modes_raise_by_name(mode: str) -> None:
    text = f"""cp.async.bulk.tensor.4d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes
    [%r1], [%rd0, {{%r2, %r3, %r4, %r5}}], [%r6], {{%h1, %h2}};"""
    with pytest.raises(UnknownInstruction, match=mode):
        run(kernel(text), np.zeros(1))
