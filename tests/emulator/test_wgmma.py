"""Warpgroup matrix products against float64, with operands laid out by the canonical layouts of the PTX ISA."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from cutetut.emulator.errors import (
    EmulatorWarning,
    IllegalInstruction,
    InFlight,
    MissingFence,
    Uninitialized,
    UnknownInstruction,
)  # fmt: skip
from tests.emulator.canonical import Operand, compact
from tests.emulator.fragments import BYTES, UINT, from_bits, to_bits
from tests.emulator.harness import kernel, run
from tests.emulator.warpgroups import (
    BF16,
    F16,
    PRODUCTS,
    TF32,
    Form,
    Step,
    a_fragments,
    behind,
    d_places,
    integers,
    legal_n,
    multiply,
    simple,
    wgmma_text,
)


@pytest.mark.parametrize("source", ["shared", "registers"])
@pytest.mark.parametrize("form", PRODUCTS, ids=str)
def test_every_n(rng: np.random.Generator, form: Form, source: str) -> None:
    for n in legal_n(form):
        this = replace(form, n=n)
        a, b, d = integers(rng, this)
        got = multiply(this, [simple(this, source == "registers")], [a], [b], d)
        np.testing.assert_array_equal(got, a @ b.T + d, err_msg=f"N = {n}")


@pytest.mark.parametrize("order", ["k first", "mn first", "padded"])
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize(("a_mn", "b_mn"), [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("n", [8, 24, 64, 136, 256])
def test_canonical_layouts_of_16_bit_types(
    rng: np.random.Generator, n: int, a_mn: bool, b_mn: bool, swizzle: int, order: str
) -> None:
    form = replace(BF16 if n == 24 else F16, n=n)
    operands = []
    for rows, mn in ((64, a_mn), (n, b_mn)):
        operand = compact(rows, 16, 2, mn, swizzle, "mn first" if order == "mn first" else "k first")
        if order == "padded":  # the strides carry their own gaps, a multiple of the pattern's size
            operand = replace(operand, leading=operand.leading + 1024 * (2 if mn else 0),
                              stride=operand.stride + 1024 * (1 if swizzle else 3))  # fmt: skip
        operands.append(operand)
    a, b, d = integers(rng, form)
    got = multiply(form, [Step(operands[0], behind(*operands))], [a], [b], d)
    np.testing.assert_array_equal(got, a @ b.T + d)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("form", [f for f in PRODUCTS if BYTES[f.a] != 2 and f.d != "f16" and f.a == f.b], ids=str)
def test_canonical_layouts_of_other_types(rng: np.random.Generator, form: Form, swizzle: int) -> None:
    form = replace(form, n=48)
    a, b, d = integers(rng, form)
    got = multiply(form, [simple(form, False, swizzle)], [a], [b], d)
    np.testing.assert_array_equal(got, a @ b.T + d)


def test_the_two_operands_may_have_different_swizzles(rng: np.random.Generator) -> None:
    a, b, d = integers(rng, F16)
    first, second = compact(64, 16, 2, True, 32), compact(64, 16, 2, False, 64)
    np.testing.assert_array_equal(multiply(F16, [Step(first, behind(first, second))], [a], [b], d), a @ b.T + d)


@pytest.mark.parametrize("swizzle", [32, 64, 128])
@pytest.mark.parametrize("form", [F16, TF32, Form(64, "s32", "s8", "s8"), Form(64, "f32", "e4m3", "e5m2")], ids=str)
def test_steps_along_k_move_the_start_address_inside_the_swizzle(
    rng: np.random.Generator, form: Form, swizzle: int
) -> None:
    """A K-major tile as wide as the swizzle: each instruction starts 32 bytes further, base offset 0."""
    count, nbytes = swizzle // 32, BYTES[form.a]
    whole_a = compact(64, swizzle // nbytes, nbytes, False, swizzle)
    whole_b = behind(whole_a, compact(64, swizzle // nbytes, nbytes, False, swizzle))
    a, b = (rng.integers(0, 5, (64, swizzle // nbytes)).astype(float) for _ in range(2))
    d = rng.integers(-64, 65, (64, 64)).astype(float)
    image = np.zeros(-(-whole_b.end // 16) * 16, np.uint8)
    whole_a.place(image, a, form.a)
    whole_b.place(image, b, form.b)
    got = chain_over(form, image, [(whole_a, whole_b, 32 * i) for i in range(count)], d)
    np.testing.assert_array_equal(got, a @ b.T + d)


def chain_over(form: Form, image: np.ndarray, steps: list[tuple[Operand, Operand, int]], d: np.ndarray) -> np.ndarray:
    """Run a chain on an image that already holds the tiles; each step moves both start addresses."""
    table = np.array([[a.descriptor, b.descriptor, a.start + more, b.start + more] for a, b, more in steps], np.uint64)
    places = d_places(form.n)
    registers = np.ascontiguousarray(to_bits(d[places], form.d)).view(np.uint32)
    text = wgmma_text(form, len(image) // 16, False, len(steps), (0, 0), "1")
    run(text, image, table, registers, np.zeros((128, 4 * len(steps)), np.uint32), block=(128, 1, 1),
        dynamic_smem=len(image))  # fmt: skip
    found = np.full((64, form.n), np.nan)
    found[places] = from_bits(registers.view(UINT[BYTES[form.d]]), form.d)
    return found


LAST_ROWS = 512  # bytes of rows 48 to 63 of a 64 x 16 tile


def with_a_last(order: str) -> Step:
    """B in front of A, no swizzle; k first: the last 512 bytes of A are its last 16 rows, else half of 32 rows."""
    b = compact(32, 16, 2, False, 0)
    return Step(behind(b, compact(64, 16, 2, False, 0, order)), b)


@pytest.mark.emulator
def test_rows_of_a_that_nothing_wrote_are_a_warning_and_leave_the_other_rows_right(rng: np.random.Generator) -> None:
    form = Form(32, "f32", "f16", "f16")
    a, b, d = integers(rng, form)
    with pytest.warns(EmulatorWarning, match="nothing has written 16 of the 64 rows of operand A.*row 48 first"):
        got = multiply(form, [with_a_last("k first")], [a], [b], d, unwritten=LAST_ROWS)
    assert np.array_equal(got[:48], (a @ b.T + d)[:48])


@pytest.mark.emulator
def test_half_a_row_of_a_that_nothing_wrote_is_an_error(rng: np.random.Generator) -> None:
    form = Form(32, "f32", "f16", "f16")
    a, b, d = integers(rng, form)
    with pytest.raises(Uninitialized, match="operand A of the WGMMA reads shared memory that nothing has written"):
        multiply(form, [with_a_last("mn first")], [a], [b], d, unwritten=LAST_ROWS)


@pytest.mark.emulator
@pytest.mark.filterwarnings("ignore::cutetut.emulator.errors.EmulatorWarning")
def test_a_store_that_comes_to_such_rows_while_they_are_read_says_that_the_read_was_too_early(
    rng: np.random.Generator,
) -> None:
    form = Form(32, "f32", "f16", "f16")
    step = with_a_last("k first")
    assert step.a is not None
    late = f"st.shared.b32 [dyn+{step.a.end - 16}], 0; wgmma.commit_group.sync.aligned;"
    a, b, d = integers(rng, form)
    with pytest.raises(InFlight, match="still being read by") as error:
        multiply(form, [step], [a], [b], d, unwritten=LAST_ROWS, change=("wgmma.commit_group.sync.aligned;", late))
    assert "nothing had been written there when it was read" in str(error.value)
    assert error.value.hint.startswith("the wait for that copy")


@pytest.mark.parametrize(("swizzle", "shift"), [(128, s) for s in range(1, 8)] + [(64, 1), (64, 2), (64, 3), (32, 1)])
def test_base_offset_of_a_pattern_off_its_boundary(rng: np.random.Generator, swizzle: int, shift: int) -> None:
    """The pattern starts `shift` rows of 128 bytes behind its boundary; the swizzle counts from its start."""
    form = replace(F16, n=32)
    a, b, d = integers(rng, form)
    left = compact(64, 16, 2, False, swizzle)
    right = behind(left, compact(32, 16, 2, False, swizzle))
    right = replace(right, start=right.start + 128 * shift, base_offset=shift)
    np.testing.assert_array_equal(multiply(form, [Step(left, right)], [a], [b], d), a @ b.T + d)


@pytest.mark.parametrize("source", ["shared", "registers"])
@pytest.mark.parametrize(("negate_a", "negate_b"), [(1, -1), (-1, 1), (-1, -1)])
@pytest.mark.parametrize("form", [f for f in PRODUCTS if f.d == "f32" and f.a == f.b], ids=str)
def test_negation(rng: np.random.Generator, form: Form, negate_a: int, negate_b: int, source: str) -> None:
    form = replace(form, n=16, negate_a=negate_a, negate_b=negate_b)
    a, b, d = integers(rng, form)
    got = multiply(form, [simple(form, source == "registers")], [a], [b], d)
    np.testing.assert_array_equal(got, negate_a * negate_b * (a @ b.T) + d)


@pytest.mark.parametrize("form", [f for f in PRODUCTS if f.a == f.b], ids=str)
def test_scale_d_is_a_predicate(rng: np.random.Generator, form: Form) -> None:
    form = replace(form, n=16)
    a, b, d = integers(rng, form)
    got = multiply(form, [simple(form, False)], [a], [b], d * np.nan if form.d != "s32" else d, scale_d="0")
    np.testing.assert_array_equal(got, a @ b.T)


@pytest.mark.parametrize("source", ["shared", "registers"])
@pytest.mark.parametrize("form", [f for f in PRODUCTS if f.a == f.b], ids=str)
def test_a_chain_accumulates_in_order_of_issue(rng: np.random.Generator, form: Form, source: str) -> None:
    form = replace(form, n=32)
    steps: list[Step] = []
    for _ in range(4):
        step = simple(form, source == "registers")
        if steps:
            start = -(-steps[-1].b.end // 1024) * 1024
            moved = replace(step.a, start=start) if step.a is not None else None
            step = Step(moved, replace(step.b, start=start) if moved is None else behind(moved, step.b))
        steps.append(step)
    data = [integers(rng, form) for _ in steps]
    a, b, d = [x[0] for x in data], [x[1] for x in data], data[0][2]
    got = multiply(form, steps, a, b, d, scale_d="0")
    np.testing.assert_array_equal(got, sum(x @ y.T for x, y in zip(a, b, strict=True)))


@pytest.mark.parametrize("satfinite", [False, True])
@pytest.mark.parametrize("form", [f for f in PRODUCTS if f.d == "s32"], ids=str)
def test_integers_over_the_whole_range(rng: np.random.Generator, form: Form, satfinite: bool) -> None:
    form, span = replace(form, n=16, satfinite=satfinite), {"s8": (-128, 128), "u8": (0, 256)}
    a = rng.integers(*span[form.a], (64, 32)).astype(float)
    b = rng.integers(*span[form.b], (16, 32)).astype(float)
    d = rng.integers(-(1 << 31), 1 << 31, (64, 16)).astype(float)
    exact = (a @ b.T + d).astype(np.int64)
    wrapped = (exact & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    wanted = np.clip(exact, -(1 << 31), (1 << 31) - 1) if satfinite else wrapped
    np.testing.assert_array_equal(multiply(form, [simple(form, False)], [a], [b], d), wanted)


ERROR = {"f32": 2.0**-20, "f16": 2.0**-9}  # of sum |a b| + |d|
ERROR_FLOAT8 = 2.0**-11  # 8-bit formats accumulate in about 14 bits on Hopper


@pytest.mark.parametrize("form", [f for f in PRODUCTS if f.d != "s32"], ids=str)
def test_fractions_stay_within_the_bound(rng: np.random.Generator, form: Form) -> None:
    form = replace(form, n=64)
    a, b, d = (from_bits(to_bits(rng.normal(size=s), t), t) for s, t in
               (((64, form.k), form.a), ((64, form.k), form.b), ((64, 64), form.d)))  # fmt: skip
    left, right = a, b
    if form.a == "tf32":
        left, right = (
            (x.astype(np.float32).view(np.uint32) & 0xFFFFE000).view(np.float32).astype(float) for x in (a, b)
        )
    size = np.abs(left) @ np.abs(right).T + np.abs(d)
    bound = ERROR[form.d] if BYTES[form.a] > 1 else max(ERROR[form.d], ERROR_FLOAT8)
    error = np.abs(multiply(form, [simple(form, False)], [a], [b], d) - (left @ right.T + d))
    assert (error <= bound * size).all(), (error / size).max()


# -- against CuTe ---------------------------------------------------------------------------------


@pytest.mark.emulator
@pytest.mark.parametrize("n", [8, 64, 256])
def test_registers_are_those_that_cute_prints(n: int) -> None:
    import cutlass
    import cutlass.cute as cute

    from cutetut import layouts
    from cutetut.emulator.units.wgmma import a_register_map, accumulator_map

    def atom() -> cute.TiledMma:
        group = cute.nvgpu.warpgroup
        major = cute.nvgpu.OperandMajorMode.K
        op = group.MmaF16BF16Op(
            cutlass.Float16, cutlass.Float32, (64, n, 16), group.OperandSource.RMEM, major, major
        )  # fmt: skip
        return cute.make_tiled_mma(op)

    row, col = accumulator_map(n)
    np.testing.assert_array_equal(layouts.offsets(lambda: atom().tv_layout_C_tiled), (row + 64 * col).T)
    row, col = a_register_map(16, 2)
    np.testing.assert_array_equal(layouts.offsets(lambda: atom().tv_layout_A_tiled), (row + 64 * col).T)


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("opcode", "flags"),
    [("m64n12k16.f32.f16.f16", ", 1, 1, 0, 0"), ("m64n264k16.f32.f16.f16", ", 1, 1, 0, 0"),
     ("m64n8k8.f32.f16.f16", ", 1, 1, 0, 0"), ("m64n8k16.f16.bf16.bf16", ", 1, 1, 0, 0"),
     ("m64n8k16.f32.f16.bf16", ", 1, 1, 0, 0"), ("m64n8k16.f32.f16.f16", ", 1, 1"),
     ("m64n8k8.f32.tf32.tf32", ", 1, 1, 1, 1"),
     ("m64n8k16.f32.f16.f16", ", 2, 1, 0, 0"), ("m64n40k32.s32.s8.s8", ""), ("m64n8k32.s32.s8.e4m3", ""),
     ("m64n8k16.satfinite.f32.f16.f16", ", 1, 1, 0, 0"), ("m64n8k256.s32.b1.b1.and.popc", ""),
     ("m128n8k16.f32.f16.f16", ", 1, 1, 0, 0")],
)  # fmt: skip
def test_other_forms_raise_by_name(opcode: str, flags: str) -> None:
    text = f"wgmma.mma_async.sync.aligned.{opcode} {{%r0, %r1, %r2, %r3}}, %rd0, %rd1, %p1{flags};"
    with pytest.raises(UnknownInstruction, match=opcode.replace(".", r"\.")):
        run(kernel(text), np.zeros(1), block=(128, 1, 1))


@pytest.mark.emulator
def test_sparse_wgmma_raises_by_name() -> None:
    text = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%r0, %r1, %r2, %r3}, %rd0, %rd1, %r4, 0, %p1, 1, 1;"
    with pytest.raises(UnknownInstruction, match=r"wgmma\.mma_async\.sp"):
        run(kernel(text), np.zeros(1), block=(128, 1, 1))


@pytest.mark.emulator
def test_an_operand_outside_shared_memory_is_an_error(rng: np.random.Generator) -> None:
    form = replace(F16, n=8)
    step = simple(form, True)
    a, b, d = integers(rng, form)
    image = np.zeros(1024, np.uint8)  # the descriptor reaches further
    outside = Step(None, replace(step.b, start=1024 - 64))
    with pytest.raises(
        IllegalInstruction, match=r"operand B reaches from shared offset \d+ to \d+; the CTA has 1024 bytes"
    ):
        multiply_unplaced(form, outside, a, d, image)


def multiply_unplaced(form: Form, step: Step, a: np.ndarray, d: np.ndarray, image: np.ndarray) -> None:
    """Run one instruction whose B is not placed in the image."""
    table = np.array([[0, step.b.descriptor, 0, step.b.start]], np.uint64)
    registers = to_bits(d[d_places(form.n)], form.d).view(np.uint32)
    text = wgmma_text(form, len(image) // 16, True, 1, (0, 0), "1")
    run(text, image, table, registers, a_fragments(a, form.a), block=(128, 1, 1), dynamic_smem=len(image))


@pytest.mark.emulator
def test_the_fence_is_needed_before_the_first(rng: np.random.Generator) -> None:
    form = replace(F16, n=8)
    step = simple(form, True)
    text = wgmma_text(form, 64, True, 1, (0, 0), "1").replace("wgmma.fence.sync.aligned;", "")
    table = np.array([[0, step.b.descriptor, 0, 0]], np.uint64)
    with pytest.raises(MissingFence, match=r"wgmma\.fence"):
        run(text, np.zeros(1024, np.uint8), table, np.zeros((128, 4), np.uint32), np.zeros((128, 4), np.uint32),
            block=(128, 1, 1), dynamic_smem=1024)  # fmt: skip


IN_FLIGHT = """.shared .align 128 .b8 b[256]; mov.u32 %r1, %tid.x;
 mov.u32 %r2, b; shl.b32 %r3, %r1, 1; add.u32 %r3, %r3, %r2;
mov.u16 %h1, 0; st.shared.b16 [%r3], %h1; fence.proxy.async; bar.sync 0;
and.b32 %r4, %r2, 0x3FFFF; shr.u32 %r4, %r4, 4; or.b32 %r4, %r4, 0x80000; mov.b64 %rd5, {%r4, 8};
mov.u32 %r10, 0; mov.u32 %r11, 0; mov.u32 %r12, 0; mov.u32 %r13, 0;
mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, {%r10, %r11, %r12, %r13}, %rd5, 1, 1, 1, 0;
wgmma.commit_group.sync.aligned;"""


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("use", "says", "hint"),
    [
        ("add.u32 %r20, %r12, 1;", "register %r12 is read while .* owns it, as a part of its A fragment",
         "before the A fragment is used"),
        ("add.u32 %r12, %r20, 1;", "register %r12 is written while .* as a part of its A fragment",
         "before the A fragment is used"),
        ("add.f32 %f9, %f2, %f2;", "register %f2 is read while .* owns it$", "before the accumulators are used"),
    ],
)  # fmt: skip
def test_registers_of_a_wgmma_under_way_are_named_by_their_operand(use: str, says: str, hint: str) -> None:
    text = f"mov.u32 %r20, 0; {IN_FLIGHT} {use} wgmma.wait_group.sync.aligned 0;"
    with pytest.raises(InFlight) as error:
        run(kernel(text), np.zeros(1), block=(128, 1, 1))
    assert re.match(says, error.value.what) and hint in error.value.hint
    run(kernel(text.replace(use, "").replace("aligned 0;", f"aligned 0; {use}")), np.zeros(1), block=(128, 1, 1))


@pytest.mark.emulator
def test_an_element_of_a_may_be_read_under_way_where_the_user_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"""mov.u32 %r20, 0; {IN_FLIGHT.replace("mov.u32 %r12, 0;", "mov.u32 %r12, %tid.x;")} add.u32 %r20, %r12, 1;
    wgmma.wait_group.sync.aligned 0;
    ld.param.b64 %rd1, [p0]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd2, %rd1, %rd2; st.global.b32 [%rd2], %r20;"""
    monkeypatch.setenv("CUTETUT_WARN", "uninitialized,shuffle,race")
    with pytest.raises(InFlight, match="%r12 is read"):
        run(kernel(text), np.zeros(128, np.uint32), block=(128, 1, 1))
    for variable, value in (("WARN", "fragment"), ("WAIVE", f"fragment@PTX:{line_of(kernel(text), 'add.u32 %r20')}")):
        monkeypatch.delenv("CUTETUT_WARN", raising=False)
        monkeypatch.setenv(f"CUTETUT_{variable}", value)
        out = np.zeros(128, np.uint32)
        with pytest.warns(EmulatorWarning, match="fragment: "):
            run(kernel(text), out, block=(128, 1, 1))
        np.testing.assert_array_equal(out, np.arange(128) + 1)
    monkeypatch.setenv("CUTETUT_WARN", "1")
    for use in ("add.u32 %r12, %r20, 1;", "add.f32 %f9, %f2, %f2;"):
        with pytest.raises(InFlight, match="is written" if "%r12," in use else "is read"):
            run(kernel(text.replace("add.u32 %r20, %r12, 1;", use)), np.zeros(128, np.uint32), block=(128, 1, 1))


def line_of(text: str, part: str) -> int:
    """The line of a kernel's PTX in which something stands."""
    return 1 + text[: text.index(part)].count("\n")
