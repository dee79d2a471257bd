"""Tensor copies against loops over elements: loads, stores, reductions, swizzles, edges, multicast, changed maps."""

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
    """One box into shared memory, then `words` 32-bit words of it to p3; p4 becomes 1 when the barrier completed."""
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
    WAIT: bar.sync 0; {spin("%r1")}
    ld.param.b64 %rd3, [p3]; ld.param.b64 %rd4, [p4]; mad.wide.u32 %rd3, %r0, 4, %rd3; mad.lo.u32 %r3, %r0, 4, %r1;
    DUMP: ld.shared.b32 %r5, [%r3+{BOX_AT}]; st.global.b32 [%rd3], %r5;
    add.u32 %r3, %r3, 128; add.u64 %rd3, %rd3, 128; sub.u32 %r4, %r3, %r1;
    setp.lt.u32 %p2, %r4, {4 * words}; @%p2 bra DUMP;
    @!%p1 st.global.b32 [%rd4], %r90;"""
    return kernel(body, 5, header=SMEM)


def load(
    tensor: Map, data: np.ndarray, coordinates: tuple[int, ...], offset: int = 0, **more: Any
) -> np.ndarray:  # fmt: skip
    """Bytes of shared memory from the 1 KiB boundary before the box, after a load."""
    size = -(-(offset + tensor.box_bytes) // 128) * 128
    out, arrived = np.zeros(size, np.uint8), np.zeros(1, np.uint32)
    text = load_text(tensor, offset, tensor.box_bytes, size // 4, **more)
    run(text, tensor.over(data), data, np.array(coordinates, np.int32), out, arrived, dynamic_smem=BOX_AT + size)
    assert arrived[0] == 1, "the barrier's phase did not complete: another number of bytes arrived"
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


def edges(tensor: Map, *, beyond: bool = True) -> list[list[int]]:
    """Coordinates around both ends of every dimension; those of dimension 0 at multiples of 16 bytes."""
    found = [[-b, -1, 0, 1, n - b, n - 1, *[n] * beyond] for n, b in zip(tensor.sizes, tensor.box, strict=True)]
    unit = 16 // tensor.nbytes
    return [[c // unit * unit for c in found[0]], *found[1:]]


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
    """The swizzle looks at shared addresses; rows of a narrow box lie densely."""
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


@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
def test_nan_fill(rng: np.random.Generator, element: str) -> None:
    size = NBYTES[element]
    tensor = Map(element, (32, 4), (32 * size,), (32 // size, 3), nan=1)
    data = aligned(rng.integers(0, 64, tensor.tensor_bytes).astype(np.uint8))
    got = load(tensor, data, (32 - 16 // size, 2))
    zero = loaded(tensor, data, (32 - 16 // size, 2), 0, fill=0)
    marks = loaded(tensor, np.ones_like(data), (32 - 16 // size, 2), 0, fill=0)
    outside = (marks[: tensor.box_bytes] == 0).reshape(-1, size).all(axis=1)
    values = got[: tensor.box_bytes].reshape(-1, size)
    np.testing.assert_array_equal(values[~outside], zero[: tensor.box_bytes].reshape(-1, size)[~outside])
    filled = values[outside]
    wide = np.zeros((len(filled), 4), np.uint8)
    if element == "bf16":  # the upper half of a float32
        wide[:, 2:] = filled
        filled = wide
    kind = {"f16": np.float16, "bf16": np.float32, "f32": np.float32, "f64": np.float64}[element]
    assert len(filled) and np.isnan(np.ascontiguousarray(filled).view(kind)).all()


@pytest.mark.parametrize("element", ["tf32", "tf32.ftz", "f32", "f32.ftz"])
def test_loads_round_to_tf32_and_flush_subnormals(rng: np.random.Generator, element: str) -> None:
    """tf32: to the nearest of 10 fraction bits, ties to even; .ftz: subnormals become zero of their sign."""
    bits = rng.integers(0, 1 << 32, 64, dtype=np.uint32)
    bits[bits & 0x7F800000 == 0x7F800000] = 0x3F800000
    bits[:8] = 0x3F801000, 0x3F803000, 0x3F801001, 0x3F800FFF, 0xBF801000, 0x007FFFFF, 0x80000001, 0x3FFFF000
    tensor = Map(element, (64,), (), (64,))
    got = load(tensor, aligned(bits).view(np.uint8), (0,)).view(np.uint32)
    wanted = []
    for value in bits.tolist():
        if element.endswith(".ftz") and value & 0x7F800000 == 0:
            value &= 0x80000000
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
    for _ in range(6):
        coordinates = tuple(int(rng.choice(e)) for e in edges(tensor, beyond=False))
        data = random_tensor(rng, tensor)
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
@pytest.mark.parametrize("mode", [1, 2, 3])
def test_stores_of_swizzled_boxes(rng: np.random.Generator, mode: int, offset: int) -> None:
    tensor = Map("u8", (256, 24), (256,), ({1: 32, 2: 64, 3: 128}[mode], 9), swizzle=mode)
    data = random_tensor(rng, tensor)
    image = rng.integers(0, 255, -(-(offset + tensor.box_bytes) // 128) * 128).astype(np.uint8)
    wanted = stored(tensor, data, image, (208, -2), offset)
    store(tensor, data, image, (208, -2), offset)
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


# -- maps that the kernel changes -----------------------------------------------------------------

BASE = Map("f16", (64, 8, 4, 3, 2), (128, 1024, 4096, 12288), (32, 4, 2, 1, 1))
CHANGES: dict[str, list[tuple[int, int, dict[str, Any]]]] = {
    "global_dim": [(d, 7 + d, {"sizes": d}) for d in range(5)],
    "box_dim": [(d, 3 + d, {"box": d}) for d in range(5)],
    "element_stride": [(d, 2 + d, {"element_strides": d}) for d in range(5)],
    "global_stride": [(d, (5 << 36) + 16 * (d + 1), {"strides": d}) for d in range(4)],
}
CODES = [("rank", "2", {"rank": 3}), ("swizzle_mode", "3", {"swizzle": 3}), ("swizzle_mode", "1", {"swizzle": 1}),
         ("interleave_layout", "2", {"interleave": 2}), ("fill_mode", "1", {"nan": 1}),
         *(("elemtype", str(code), {"type": name}) for name, code in
           {"u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f32.ftz": 8, "f64": 9,
            "bf16": 10, "tf32": 11, "tf32.ftz": 12}.items())]  # fmt: skip


def changed(change: dict[str, Any], value: int | None) -> bytes:
    """The image of BASE with one parameter changed."""
    case = BASE.case()
    for name, what in change.items():
        if name == "rank":
            image = bytearray(pack(case)[:64])
            image[8] = image[8] & 0x8F | what - 1 << 4
            return bytes(image)
        if value is None:
            case[name] = what
        else:
            values = list(case[name])
            values[what] = value
            case[name] = values
    return pack(case)[:64]


def replace_map(field: str, operands: str, space: str) -> bytes:
    """The map BASE after one tensormap.replace in global or shared memory."""
    kind = "b64" if "stride" in field and "element" not in field else "b32"
    image = aligned(np.frombuffer(pack(BASE.case()), np.uint8))
    if space == "global":
        body = f"ld.param.b64 %rd0, [p0]; tensormap.replace.tile.{field}.global.b1024.{kind} [%rd0], {operands};"
        run(kernel(body), image, block=(1, 1, 1))
        return bytes(image[:64])
    body = f"""ld.param.b64 %rd0, [p0]; mov.u32 %r0, %tid.x; mov.u32 %r1, dyn; mad.lo.u32 %r2, %r0, 4, %r1;
    mad.wide.u32 %rd1, %r0, 4, %rd0; ld.global.b32 %r3, [%rd1]; st.shared.b32 [%r2], %r3; bar.warp.sync -1;
    setp.ne.u32 %p1, %r0, 0; @!%p1 tensormap.replace.tile.{field}.shared::cta.b1024.{kind} [%r1], {operands};
    bar.warp.sync -1; ld.shared.b32 %r3, [%r2]; st.global.b32 [%rd1], %r3;"""
    run(kernel(body, header=SMEM), image, dynamic_smem=128)
    return bytes(image[:64])


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("field", CHANGES)
def test_replacing_a_size_or_stride(field: str, space: str) -> None:
    for ordinal, value, change in CHANGES[field]:
        assert replace_map(field, f"{ordinal}, {value}", space) == changed(change, value), (field, ordinal)


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(("field", "value", "change"), CODES)
def test_replacing_a_code(field: str, value: str, change: dict[str, Any], space: str) -> None:
    assert replace_map(field, value, space) == changed(change, None)


def test_a_map_changed_in_shared_memory_and_copied_by_a_warp(rng: np.random.Generator) -> None:
    """The way of a grouped GEMM: map to shared memory, tensormap.replace, cp_fenceproxy, acquire, copy."""
    tensor = Map("f16", (64, 8), (128,), (32, 4))
    data = random_tensor(rng, tensor)
    image = aligned(np.frombuffer(pack(replace(tensor, sizes=(8, 8), strides=(256,)).case()), np.uint8))
    out, arrived, other = np.zeros(256, np.uint8), np.zeros(1, np.uint32), aligned(np.zeros(128, np.uint8))
    body = f"""ld.param.b64 %rd0, [p0]; ld.param.b64 %rd1, [p1]; ld.param.b64 %rd2, [p2];
    mov.u32 %r0, %tid.x; mov.u32 %r1, dyn; mad.lo.u32 %r2, %r0, 4, %r1; setp.ne.u32 %p1, %r0, 0;
    mad.wide.u32 %rd3, %r0, 4, %rd0; ld.global.b32 %r3, [%rd3]; st.shared.b32 [%r2+128], %r3; bar.warp.sync -1;
    @%p1 bra COPY; mov.u64 %rd5, 128; mov.u32 %r5, 64;
    tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r1+128], %rd1;
    tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r1+128], 0, %r5;
    tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r1+128], 0, %rd5;
    mbarrier.init.shared::cta.b64 [%r1], 1; fence.mbarrier_init.release.cluster;
    COPY: bar.warp.sync -1; add.u32 %r6, %r1, 128;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd2], [%r6], 128;
    fence.proxy.tensormap::generic.acquire.gpu [%rd2], 128; @%p1 bra WAIT;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256; mov.u32 %r7, 16; mov.u32 %r8, 1;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
        [%r1+{BOX_AT}], [%rd2, {{%r7, %r8}}], [%r1];
    WAIT: bar.warp.sync -1; {spin("%r1")}
    ld.param.b64 %rd4, [p3]; mad.wide.u32 %rd4, %r0, 8, %rd4; mad.lo.u32 %r2, %r0, 8, %r1;
    ld.shared.b64 %rd6, [%r2+{BOX_AT}]; st.global.b64 [%rd4], %rd6;
    ld.param.b64 %rd4, [p4]; @!%p1 st.global.b32 [%rd4], %r90;"""
    run(kernel(body, 5, header=SMEM), image, data, other, out, arrived, dynamic_smem=BOX_AT + 256)
    assert arrived[0] == 1
    np.testing.assert_array_equal(out, loaded(tensor, data, (16, 1), 0))


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
@pytest.mark.parametrize("mode", ["im2col", "tile::gather4", "im2col::w"])
def test_other_modes_raise_by_name(mode: str) -> None:
    text = f"""cp.async.bulk.tensor.4d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes
    [%r1], [%rd0, {{%r2, %r3, %r4, %r5}}], [%r6], {{%h1, %h2}};"""
    with pytest.raises(UnknownInstruction, match=mode):
        run(kernel(text), np.zeros(1))
