"""Loads and stores of every space, width and vector, and what happens at their limits."""

from __future__ import annotations

import re
from pathlib import Path

import cutlass.cute as cute
import numpy as np
import pytest
import torch
from cutlass.cute.runtime import from_dlpack

from cutetut.emulator.errors import (
    LaunchError,
    Misaligned,
    MissingBarrier,
    OutOfBounds,
    Uninitialized,
    UnknownInstruction,
)
from tests.emulator.harness import kernel, run

# %rd2 is the address of this thread's element of p0, %rd4 that of p1; `a` and `b` are the element sizes.
ADDRESSES = """
mov.u32 %r100, %tid.x;
ld.param.b64 %rd1, [p0];
ld.param.b64 %rd3, [p1];
mad.wide.u32 %rd2, %r100, {a}, %rd1;
mad.wide.u32 %rd4, %r100, {b}, %rd3;
"""
N = 64
DTYPES = {"u8": np.uint8, "s8": np.int8, "b8": np.uint8, "u16": np.uint16, "s16": np.int16, "b16": np.uint16,
          "u32": np.uint32, "s32": np.int32, "b32": np.uint32, "f32": np.float32, "u64": np.uint64,
          "s64": np.int64, "b64": np.uint64, "f64": np.float64}  # fmt: skip
REGISTER = {2: "%h1", 4: "%r1", 8: "%rd10"}


def random_bits(rng: np.random.Generator, dtype: type, n: int = N) -> np.ndarray:
    return rng.integers(0, 256, n * np.dtype(dtype).itemsize, dtype=np.uint8).view(dtype)


def widened(values: np.ndarray, kind: str, width: int) -> np.ndarray:
    """Sign extension for .s types, zero extension for the others: section 6.5 and table 27 of the PTX ISA."""
    size = values.dtype.itemsize
    raw = values.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[size])
    if kind.startswith("s"):
        raw = raw.view({1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}[size])
    return raw.astype(f"i{width}").view(f"u{width}")


def loads() -> list[tuple[str, int]]:
    """The types of ld with the register widths they may be loaded into."""
    sizes = {kind: np.dtype(dtype).itemsize for kind, dtype in DTYPES.items()}
    return [(k, w) for k, size in sizes.items() for w in (2, 4, 8) if size == w or (size < w and k[0] != "f")]


def test_a_shared_address_and_its_offset_add_up_in_32_bits() -> None:
    """CuTe DSL compiles a tile with a falling coordinate to a register below zero and an offset above the tile."""
    out = np.zeros(1, np.uint32)
    body = """.shared .align 16 .b32 s[8]; mov.u32 %r1, s; sub.u32 %r1, %r1, 4096; mov.u32 %r2, 7;
    ld.param.b64 %rd1, [p0]; st.shared.b32 [%r1+4104], %r2; mov.u32 %r3, s; ld.shared.b32 %r4, [%r3+8];
    st.global.b32 [%rd1], %r4;"""
    run(kernel(body), out, block=(1, 1, 1))
    assert out[0] == 7


@pytest.mark.parametrize(("kind", "width"), loads())
@pytest.mark.parametrize("space", ["global", "shared", "local", "generic"])
def test_a_narrow_load_extends_to_the_register(rng: np.random.Generator, kind: str, width: int, space: str) -> None:
    dtype = DTYPES[kind]
    size = np.dtype(dtype).itemsize
    data, out = random_bits(rng, dtype), np.zeros(N, f"u{width}")
    raw = {1: "b8", 2: "b16", 4: "b32", 8: "b64"}[size]
    register = {4: "%f1", 8: "%fd1"}[size] if kind.startswith("f") else REGISTER[width]
    copy = {1: "%h9", 2: "%h9", 4: "%r9", 8: "%rd9"}[size]
    load = f"ld.{space}.{kind} {register}, [%rd2];" if space == "global" else f"ld.{kind} {register}, [%rd2];"
    if space in ("shared", "local"):
        where = f"mov.u32 %r20, buf; mad.lo.u32 %r20, %r100, {size if space == 'shared' else 0}, %r20;"
        load = f"{where} ld.global.{raw} {copy}, [%rd2]; st.{space}.{raw} [%r20], {copy};"
        load += f"ld.{space}.{kind} {register}, [%r20];"
    declare = f".{space} .align 8 .b8 buf[{N * 8}];" if space in ("shared", "local") else ""
    body = f"{declare}\n{ADDRESSES.format(a=size, b=width)}\n{load}\nst.global.b{8 * width} [%rd4], {register};"
    run(kernel(body, 2), data, out, block=(N, 1, 1))
    np.testing.assert_array_equal(out, widened(data, kind, width))


@pytest.mark.parametrize(("kind", "count"), [("b8", 2), ("b8", 4), ("b16", 2), ("b16", 4), ("b32", 2), ("b32", 4),
                                             ("b64", 2), ("f32", 4), ("f64", 2)])  # fmt: skip
@pytest.mark.parametrize("space", ["global", "shared", "local"])
def test_vectors_keep_their_order(rng: np.random.Generator, kind: str, count: int, space: str) -> None:
    size = np.dtype(DTYPES[kind]).itemsize
    letter = {"b8": "h", "b16": "h", "b32": "r", "b64": "rd", "f32": "f", "f64": "fd"}[kind]
    data, out = random_bits(rng, np.uint8, N * size * count), np.zeros(N * size * count, np.uint8)
    regs = ", ".join(f"%{letter}{20 + i}" for i in range(count))
    back = ", ".join(f"%{letter}{20 + i}" for i in reversed(range(count)))
    each = size * count
    via = ""
    if space != "global":
        via = f"""
        mov.u32 %r10, buf; mad.lo.u32 %r10, %r100, {each if space == "shared" else 0}, %r10;
        st.{space}.v{count}.{kind} [%r10], {{{regs}}};
        ld.{space}.v{count}.{kind} {{{regs}}}, [%r10];"""
    declare = f".{space} .align 16 .b8 buf[{N * each}];" if space != "global" else ""
    body = f"""{declare}
    {ADDRESSES.format(a=each, b=each)}
    ld.global.v{count}.{kind} {{{regs}}}, [%rd2]; {via}
    st.global.v{count}.{kind} [%rd4], {{{back}}};"""
    run(kernel(body, 2), data, out, block=(N, 1, 1))
    wanted = data.reshape(N, count, size)[:, ::-1]
    np.testing.assert_array_equal(out.reshape(N, count, size), wanted)


def test_a_vector_may_drop_elements_and_use_negative_offsets(rng: np.random.Generator) -> None:
    data, out = random_bits(rng, np.uint32, 4 * N), np.zeros(N, np.uint32)
    body = f"""{ADDRESSES.format(a=16, b=4)}
    add.u64 %rd2, %rd2, 256; ld.global.v4.b32 {{_, %r1, _, %r2}}, [%rd2+-256]; xor.b32 %r3, %r1, %r2;
    st.global.b32 [%rd4], %r3;"""
    run(kernel(body, 2), data, out, block=(N, 1, 1))
    np.testing.assert_array_equal(out, data.reshape(N, 4)[:, 1] ^ data.reshape(N, 4)[:, 3])


def test_one_allocation_of_shared_memory_per_cta(rng: np.random.Generator) -> None:
    """Static and dynamic shared memory do not overlap, and CTAs do not see each other's."""
    ctas = 5
    data, out = random_bits(rng, np.uint32, ctas * N), np.zeros((2, ctas * N), np.uint32)
    body = f"""
    .shared .align 4 .b32 fixed[{N}];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, {N}, %r1;
    ld.param.b64 %rd1, [p0]; mad.wide.u32 %rd2, %r3, 4, %rd1; ld.global.b32 %r4, [%rd2];
    mov.u32 %r5, fixed; mov.u32 %r6, dyn; shl.b32 %r7, %r1, 2; add.u32 %r5, %r5, %r7; add.u32 %r6, %r6, %r7;
    st.shared.b32 [%r5], %r4; not.b32 %r8, %r4; st.shared.b32 [%r6], %r8; bar.sync 0;
    mov.u32 %r9, fixed; mov.u32 %r10, dyn; sub.u32 %r11, {4 * (N - 1)}, %r7;
    add.u32 %r9, %r9, %r11; add.u32 %r10, %r10, %r11;
    ld.shared.b32 %r12, [%r9]; ld.shared.b32 %r13, [%r10];
    ld.param.b64 %rd3, [p1]; mad.wide.u32 %rd4, %r3, 4, %rd3;
    st.global.b32 [%rd4], %r12; st.global.b32 [%rd4+{4 * ctas * N}], %r13;"""
    text = kernel(body, 2, header=".extern .shared .align 16 .b8 dyn[];")
    run(text, data, out, grid=(ctas, 1, 1), block=(N, 1, 1), dynamic_smem=4 * N)
    reversed_tiles = data.reshape(ctas, N)[:, ::-1].ravel()
    np.testing.assert_array_equal(out[0], reversed_tiles)
    np.testing.assert_array_equal(out[1], ~reversed_tiles)


def test_generic_addresses_reach_every_space() -> None:
    """One ld without a space reads global, shared, local or constant memory, chosen per lane."""
    body = f""".shared .align 4 .b32 s[4]; .local .align 4 .b32 l[4];
    {ADDRESSES.format(a=4, b=4)}
    mov.u32 %r1, s; cvta.shared.u64 %rd10, s; mov.u32 %r3, 111; st.shared.b32 [%r1+8], %r3; add.u64 %rd10, %rd10, 8;
    cvta.local.u64 %rd11, l; mov.u32 %r4, 222; st.local.b32 [l+4], %r4; add.u64 %rd11, %rd11, 4;
    mov.u64 %rd12, table; cvta.const.u64 %rd12, %rd12; add.u64 %rd12, %rd12, 12;
    cvta.global.u64 %rd13, %rd2; bar.sync 0;
    and.b32 %r5, %r100, 3; setp.eq.u32 %p1, %r5, 1; setp.eq.u32 %p2, %r5, 2; setp.eq.u32 %p3, %r5, 3;
    mov.u64 %rd14, %rd13;
    @%p1 mov.u64 %rd14, %rd10; @%p2 mov.u64 %rd14, %rd11; @%p3 mov.u64 %rd14, %rd12;
    ld.b32 %r6, [%rd14];
    isspacep.shared %p4, %rd14; isspacep.local %p5, %rd14; isspacep.global %p6, %rd14;
    selp.u32 %r7, 1000, 0, %p4; selp.u32 %r8, 2000, 0, %p5; selp.u32 %r9, 4000, 0, %p6;
    cvta.to.shared.u64 %rd15, %rd10; cvt.u32.u64 %r11, %rd15; sub.u32 %r11, %r11, %r1;
    add.u32 %r6, %r6, %r7; add.u32 %r6, %r6, %r8; add.u32 %r6, %r6, %r9; mad.lo.u32 %r6, %r11, 100000, %r6;
    st.global.b32 [%rd4], %r6;"""
    data, out = np.arange(N, dtype=np.uint32), np.zeros(N, np.uint32)
    run(kernel(body, 2, header=".const .align 4 .b32 table[4] = {0, 0, 0, 333};"), data, out, block=(N, 1, 1))
    where = np.arange(N) % 4
    wanted = np.choose(where, [data + 4000, 1111, 2222, 333])
    constant = where == 3  # whether constant memory counts as global is not what this test is about
    np.testing.assert_array_equal(out[~constant], wanted[~constant] + 800000)
    assert set((out[constant] - 800000).tolist()) <= {333, 4333}


def test_module_variables_start_with_their_values_and_end_with_the_launch() -> None:
    header = """.global .align 4 .b32 counter[2] = {7, 9};
.global .align 8 .u64 pointer = generic(counter)+4;"""
    body = """ld.param.b64 %rd1, [p0]; mov.u64 %rd2, counter; mov.u32 %r9, %tid.x; setp.ne.u32 %p1, %r9, 0; @%p1 ret;
    ld.global.u64 %rd3, [pointer]; ld.b32 %r1, [%rd3]; ld.global.b32 %r2, [counter];
    st.global.b32 [%rd2], %r1; ld.global.b32 %r3, [counter];
    st.global.b32 [%rd1], %r1; st.global.b32 [%rd1+4], %r2; st.global.b32 [%rd1+8], %r3;"""
    for _ in range(2):
        out = np.zeros(3, np.uint32)
        run(kernel(body, header=header), out)
        assert out.tolist() == [9, 7, 9]


def test_parameters_of_every_size_lie_at_their_offsets() -> None:
    text = kernel("", 1).replace(
        ".param .b64 p0",
        ".param .b64 out, .param .b8 c, .param .align 2 .b16 h, .param .b32 w, .param .align 16 .b8 s[24], "
        ".param .f32 f",
    )
    body = """ld.param.b64 %rd1, [out]; ld.param.s8 %r1, [c]; ld.param.u16 %r2, [h]; ld.param.b32 %r3, [w];
    ld.param.v2.b32 {%r4, %r5}, [s+8]; ld.param.b64 %rd3, [s+16]; ld.param.f32 %f1, [f];
    mov.b64 %rd4, s; ld.param.b32 %r6, [%rd4+4];
    st.global.b32 [%rd1], %r1; st.global.b32 [%rd1+4], %r2; st.global.b32 [%rd1+8], %r3;
    st.global.v2.b32 [%rd1+16], {%r4, %r5}; st.global.b64 [%rd1+24], %rd3; st.global.f32 [%rd1+32], %f1;
    st.global.b32 [%rd1+36], %r6;"""
    out = np.zeros(10, np.uint32)
    struct = np.arange(100, 106, dtype=np.uint32)
    values = [np.int8(-3).tobytes(), np.uint16(65535).tobytes(), np.uint32(12345).tobytes(), struct.tobytes(),
              np.float32(1.5).tobytes()]  # fmt: skip
    run(text.replace("\nret;", body + "\nret;"), out, *values, block=(1, 1, 1))
    assert out[0] == 0xFFFFFFFD and out[1] == 65535 and out[2] == 12345
    assert out[4:6].tolist() == [102, 103] and out[6:8].tolist() == [104, 105]
    assert out[8:9].view(np.float32)[0] == 1.5 and out[9] == 101


# -- what must be an error ------------------------------------------------------------------------


@cute.kernel
def overrun_kernel(x: cute.Tensor, y: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    i = cta * 64 + tid
    y[i] = x[i]  # no predicate: the last CTA runs over


@cute.jit
def overrun(x: cute.Tensor, y: cute.Tensor):
    overrun_kernel(x, y).launch(grid=(2, 1, 1), block=(64, 1, 1))


@pytest.mark.emulator
def test_out_of_bounds_names_kernel_cta_warp_lane_and_both_lines() -> None:
    x, y = torch.zeros(100), torch.zeros(128)
    with pytest.raises(OutOfBounds) as error:
        overrun(from_dlpack(x), from_dlpack(y))
    text = str(error.value)
    source = Path(__file__).read_text().splitlines()
    line = next(i for i, words in enumerate(source, 1) if "no predicate" in words)
    place = error.value.place
    assert place is not None
    # element 100 is the first outside: thread 36 of CTA 1, lane 4 of warp 1
    assert (place.cta, place.warp, place.lane, place.thread) == ((1, 0, 0), 1, 4, (36, 0, 0))
    assert "overrun_kernel" in place.kernel and f"test_memory.py:{line}" in text
    assert place.source_text.strip().startswith("y[i] = x[i]")
    assert "load of 4 bytes" in text and "400 bytes" in text and re.search(r"PTX line \d+:\s+ld\.global", text)


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("lines", "error", "says", "lane"),
    [
        ("ld.global.b32 %r1, [%rd2+4];", OutOfBounds, "0 bytes past the end", 31),
        ("ld.global.b64 %rd5, [%rd4];", Misaligned, "8-byte access to global", 1),
        ("st.global.b16 [%rd2+1], %h1;", Misaligned, "multiple of 2", 0),
        ("mov.u64 %rd6, 0; ld.global.b32 %r1, [%rd6];", OutOfBounds, "outside every tensor", 0),
        ("st.shared.b32 [%r3+64], %r2;", OutOfBounds, "offset 128 of shared memory", 16),
        ("st.shared.b32 [%r3+-4], %r2;", OutOfBounds, "offset -4 of shared memory", 0),
        ("st.shared.b16 [%r3+1], %h1;", Misaligned, "shared", 0),
        ("ld.shared.b32 %r1, [%r3]; st.global.b32 [%rd4], %r1;", Uninitialized, "nothing has written", 0),
        ("@%p1 st.shared.b32 [%r3], %r2; bar.sync 0; ld.shared.b32 %r1, [%r3]; st.global.b32 [%rd4], %r1;",
         Uninitialized, "offset 40", 10),
        ("st.shared.b8 [%r3], %h1; ld.shared.b16 %h2, [%r3]; st.global.b16 [%rd4], %h2;",
         Uninitialized, "nothing has written", 0),
        ("mov.u32 %r9, 8; st.local.b32 [%r9], %r2;", OutOfBounds, "stack of 8 bytes", 0),
        ("mov.u32 %r9, l; st.local.b32 [%r9+2], %r2;", Misaligned, "local", 0),
        ("st.global.b32 [table], %r2;", OutOfBounds, "read-only", 0),
        ("cvta.shared.u64 %rd9, s; ld.b32 %r1, [%rd9+256];", OutOfBounds, "of shared memory", 0),
    ],
)  # fmt: skip
def test_bad_addresses_are_typed_errors(lines: str, error: type[Exception], says: str, lane: int) -> None:
    body = f""".shared .align 4 .b32 s[32]; .local .align 4 .b8 l[8];
    {ADDRESSES.format(a=4, b=4)}
    mov.u32 %r2, 1; mov.u16 %h1, 1; mov.u32 %r3, s; mad.lo.u32 %r3, %r100, 4, %r3; setp.lt.u32 %p1, %r100, 10;
    {lines}"""
    data, out = np.zeros(32, np.uint32), np.zeros(64, np.uint32)
    with pytest.raises(error, match=re.escape(says)) as caught:
        run(kernel(body, 2, header=".const .align 4 .b32 table[4] = {1, 2, 3, 4};"), data, out)
    place = caught.value.place  # type: ignore[attr-defined]
    assert (place.kernel, place.cta, place.warp, place.lane) == ("k", (0, 0, 0), 0, lane)
    assert place.ptx_text.split()[0 if not place.ptx_text.startswith("@") else 1] in lines


def test_registers_that_are_vectors(rng: np.random.Generator) -> None:
    """Inline assembly declares them; their parts have names, and the whole is what ld and st take."""
    body = f"""{{ .reg .v4 .b32 four, more; .reg .v2 .s32 two;
    {ADDRESSES.format(a=16, b=16)}
    ld.global.v4.b32 four, [%rd2]; mov.b32 two.x, four.w; mov.s32 two.y, four.b;
    add.s32 more.x, four.x, 1; mov.b32 more.y, two.r; mov.b32 more.z, two.g; mov.b32 more.w, four.y;
    st.global.v4.b32 [%rd4], more; }}"""
    data, out = rng.integers(0, 1 << 32, (32, 4), np.uint32), np.zeros((32, 4), np.uint32)
    run(kernel(body, 2), data, out)
    np.testing.assert_array_equal(out, np.stack([data[:, 0] + np.uint32(1), data[:, 3], data[:, 2], data[:, 1]], 1))


@pytest.mark.emulator
def test_reading_what_is_copied_later_names_the_copies() -> None:
    """Other instructions that begin with cp.async are none."""
    body = f""".shared .align 16 .b32 s[32]; {ADDRESSES.format(a=4, b=4)}
    mov.u32 %r3, s; mad.lo.u32 %r3, %r100, 4, %r3; cp.async.commit_group; ld.shared.b32 %r1, [%r3];
    cp.async.ca.shared.global [%r3], [%rd2], 4; cp.async.wait_all; st.global.b32 [%rd4], %r1;"""
    with pytest.raises(Uninitialized) as error:
        run(kernel(body, 2), np.zeros(32, np.uint32), np.zeros(32, np.uint32))
    assert re.search(r"the kernel's copies to shared memory: PTX line \d+$", str(error.value), re.MULTILINE)


@pytest.mark.emulator
def test_an_exit_under_a_remote_load_names_that_load() -> None:
    """CTA 0 loads from CTA 1, which leaves without meeting it again."""
    body = """.shared .align 8 .b32 s[34]; mov.u32 %r1, %tid.x; mov.u32 %r2, s; mad.lo.u32 %r3, %r1, 4, %r2;
    mov.u32 %r4, %cluster_ctarank; st.shared.b32 [%r3], %r1; setp.ne.u32 %p1, %r1, 0; add.u32 %r7, %r2, 128;
    @!%p1 mbarrier.init.shared::cta.b64 [%r7], 32; fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive; barrier.cluster.wait; setp.ne.u32 %p2, %r4, 0; @%p2 bra END;
    mapa.shared::cluster.u32 %r5, %r3, 1; ld.shared::cluster.b32 %r6, [%r5];
    mbarrier.arrive.shared::cta.b64 _, [%r7];
    END:"""
    with pytest.raises(MissingBarrier, match="nothing orders that after another CTA's use") as error:
        run(kernel(body, 0), grid=(2, 1, 1), cluster=(2, 1, 1))
    assert re.search(r"the other CTA used it here:\n.*\n  PTX line \d+:  ld\.shared::cluster", str(error.value))


@pytest.mark.emulator
def test_an_error_says_which_tensors_are_half_written() -> None:
    body = f"""{ADDRESSES.format(a=4, b=4)}
    mov.u32 %r1, 5; st.global.b32 [%rd4], %r1; ld.global.b32 %r2, [%rd2+-8];"""
    data, out = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    with pytest.raises(OutOfBounds) as error:
        run(kernel(body, 2), data, out)
    assert "already written to, so not to be trusted: p1" in str(error.value)


@pytest.mark.emulator
def test_parameters_cannot_be_written() -> None:
    with pytest.raises(OutOfBounds, match="read-only"):
        run(kernel("mov.u32 %r1, 1; mov.b64 %rd1, p0; st.b32 [%rd1], %r1;"), np.zeros(1, np.uint32))


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dynamic_smem": 228 * 1024}, "shared memory"),
        ({"block": (1025, 1, 1)}, "limit is 1024"),
        ({"block": (0, 1, 1)}, "positive"),
        ({"grid": (3, 1, 1), "cluster": (2, 1, 1)}, "not a multiple"),
    ],
)
def test_impossible_launches(options: dict, says: str) -> None:
    with pytest.raises(LaunchError, match=says):
        run(kernel(""), np.zeros(1, np.uint32), **options)


@pytest.mark.emulator
@pytest.mark.parametrize(
    "line",
    [
        "ld.global.b17 %r1, [%rd1];",
        "ld.wrong.b32 %r1, [%rd1];",
        "ld.global.pred %p1, [%rd1];",
        "st.global.v2.b32 [%rd1], {%r1, %r2, %r3};",
        "frobnicate.u32 %r1, %r2;",
        "st.global.sometimes.b32 [%rd1], %r1;",
        "ld.global.L1::sometimes.b32 %r1, [%rd1];",
        "ld.global.L2::512B.b32 %r1, [%rd1];",
        "prefetch.global.L9 [%rd1];",
        "prefetch.sometimes [%rd1];",
        "prefetch.L1 [%rd1], 128;",
        "prefetchu.L2 [%rd1];",
        "applypriority.global.L2::evict_last [%rd1], 128;",
        "cp.async.bulk.prefetch.L2.sometimes [%rd1], 16;",
        "createpolicy.sometimes.b64 %rd2, 0.5;",
        "createpolicy.fractional.L2::evict_last.L2::sometimes.b64 %rd2, 0.5;",
        "fence.proxy.sometimes;",
        "fence.proxy.alias.global;",
        "fence.proxy.async.local;",
        "discard.global.L2 [%rd1], 128;",
    ],
)
def test_unknown_forms_are_refused_before_anything_runs(line: str) -> None:
    out = np.zeros(1, np.uint32)
    body = (
        f"ld.param.b64 %rd1, [p0]; mov.u32 %r1, 1; mov.u32 %r2, 1; mov.u32 %r3, 1; st.global.b32 [%rd1], %r1;\n{line}"
    )
    with pytest.raises(UnknownInstruction) as error:
        run(kernel(body), out)
    assert line.split()[0].rstrip(";") in str(error.value) and "PTX line" in str(error.value)
    assert ("undefined" in str(error.value)) == line.startswith("discard")
    assert out[0] == 0


def test_hints_for_the_caches_change_nothing(rng: np.random.Generator) -> None:
    data, out = rng.integers(0, 99, 32).astype(np.uint32), np.zeros(32, np.uint32)
    before = data.copy()
    hints = """prefetch.global.L1 [%rd2]; prefetch.L2 [%rd2];
    prefetch.global.L2::evict_last [%rd2]; prefetchu.L1 [%rd2];
    and.b64 %rd6, %rd1, -128; applypriority.global.L2::evict_normal [%rd6], 128;
    createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %rd7, 0.5; fence.proxy.alias;
    ld.global.L1::no_allocate.L2::128B.b32 %r1, [%rd2]; st.global.L2::cache_hint.b32 [%rd4], %r1, %rd7;"""
    run(kernel(ADDRESSES.format(a=4, b=4) + hints, 2), data, out, block=(32, 1, 1))
    np.testing.assert_array_equal(out, before)
    np.testing.assert_array_equal(data, before)
