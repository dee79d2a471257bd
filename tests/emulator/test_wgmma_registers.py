"""What a kernel may do wrong with the registers and descriptors of WGMMAs, each beside the same done right."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cutetut.emulator.errors import (
    EmulatorError,
    EmulatorWarning,
    IllegalInstruction,
    InFlight,
    MissingFence,
    Uninitialized,
)
from tests.emulator.fragments import from_bits, to_bits
from tests.emulator.harness import run
from tests.emulator.mutants import CASES, Mutant, compiled, load
from tests.emulator.warpgroups import BF16, F16, Form, a_fragments, d_places, integers, simple, wgmma_text

pytestmark = pytest.mark.emulator  # on a GPU a missing fence or an accumulator that nobody set is no error

SMALL = replace(F16, n=8)  # four registers of D, as many as of A
FENCE, COMMIT = "wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;"
WAIT = "wgmma.wait_group.sync.aligned 0;"
A, B = "%rd10", "%rd11"  # the descriptors
TRUE, FALSE = "%p3", "%p4"


def vector(name: str, count: int = 4) -> str:
    return "{" + ", ".join(f"%{name}{i}" for i in range(count)) + "}"


def mma(d: str, a: str = A, scale_d: str = TRUE, shape: str = "m64n8k16.f32.f16.f16", b: str = B) -> str:
    """One WGMMA with K-major operands."""
    majors = "0, 0" if a.startswith("%rd") else "0"
    return f"wgmma.mma_async.sync.aligned.{shape} {d}, {a}, {b}, {scale_d}, 1, 1, {majors};"


D, E, REGISTERS = vector("d"), vector("e"), vector("a")


class Case:
    """A 64 x n x 16 product of small integers, and a kernel that loads D and A into registers and runs some lines."""

    def __init__(self, rng: np.random.Generator, form: Form = SMALL) -> None:
        self.form, self.step = form, simple(form, False)
        self.a, self.b, self.d = integers(rng, form)

    def run(self, lines: str, *, drop: str = "\0", scale_d: str = "1", block: int = 128, grid: int = 1) -> np.ndarray:
        """D as it is stored at the end; lines of the loading part that hold `drop` are left out.

        Threads behind the first warpgroup leave after the barrier.
        """
        form, operands = self.form, (self.step.a, self.step.b)
        image = np.zeros(-(-operands[1].end // 1024) * 1024, np.uint8)
        table = np.zeros((1, 4), np.uint64)
        for i, (operand, matrix) in enumerate(zip(operands, (self.a, self.b), strict=True)):
            assert operand is not None
            operand.place(image, matrix, form.a)
            table[0, i], table[0, 2 + i] = operand.descriptor, operand.start
        places = d_places(form.n)
        registers = np.ascontiguousarray(to_bits(self.d[places], form.d)).view(np.uint32)
        text = wgmma_text(form, len(image) // 16, True, 1, (0, 0), scale_d)
        before, _, after = text.partition(FENCE)
        before = before.replace("bar.sync 0;", "bar.sync 0; setp.ge.u32 %p5, %r0, 128; @%p5 bra END;")
        before = before.replace("[%rd3+8]", "[%rd3+8]; ld.global.b64 %rd10, [%rd3]; ld.global.b32 %r10, [%rd3+16]; "
                                "add.u32 %r10, %r10, %r1; shr.u32 %r10, %r10, 4; cvt.u64.u32 %rd6, %r10; "
                                "or.b64 %rd10, %rd10, %rd6")  # fmt: skip
        before = "\n".join(line for line in before.splitlines() if drop not in line)
        more = ".reg .b32 %e<4>; setp.ne.b32 %p4, 0, 0; shr.u32 %r20, %r0, 5;"
        text = f"{before}\n{more}\n{lines}\nst.global.b32 {after.partition('st.global.b32')[2]}"
        text = text.replace("ret;", "END: ret;")
        run(text, image, table, registers, a_fragments(self.a, form.a), block=(block, 1, 1), grid=(grid, 1, 1),
            dynamic_smem=len(image))  # fmt: skip
        found = np.full((64, form.n), np.nan)
        found[places] = from_bits(registers.view(np.float32), "f32") if form.d == "f32" else np.nan
        return found

    def wrong(self, error: type[EmulatorError], lines: str, **how: str) -> str:
        """The report of lines that must be refused."""
        with pytest.raises(error) as caught:
            self.run(lines, **how)  # type: ignore[arg-type]
        assert type(caught.value) is error
        return str(caught.value)


@pytest.fixture(params=["numpy", "machine code"])
def case(rng: np.random.Generator, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    """Arithmetic on these registers is watched one instruction at a time, or a run at a time."""
    monkeypatch.setenv("CUTETUT_JIT", "0" if request.param == "numpy" else "1")
    if request.param != "numpy":
        request.getfixturevalue("at_once")
    return Case(rng)


@pytest.fixture(autouse=True)
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTETUT_ASYNC", "late")


ONE = f"{FENCE} {mma(D)} {COMMIT} {WAIT}"
NO_D = "ld.global.b32 %d"  # the lines that load D


# -- accumulators are operands ----------------------------------------------------------------------


def test_accumulators_that_nothing_has_written(case: Case) -> None:
    report = case.wrong(Uninitialized, ONE, drop=NO_D)
    assert "the WGMMA adds to register %d0, and nothing has written the value in it" in report
    assert "fill them with zero, or set ACCUMULATE to False for the first k block" in report
    assert "wgmma.mma_async" in report


def test_accumulators_that_the_first_wgmma_writes(case: Case) -> None:
    lines = f"{FENCE} {mma(D, scale_d=FALSE)} {mma(D)} {COMMIT} {WAIT}"
    np.testing.assert_array_equal(case.run(lines, drop=NO_D), 2 * case.a @ case.b.T)


@pytest.mark.parametrize("scale_d", ["%ntid.y", "%tid.y"])
def test_it_depends_on_scale_d_when_it_runs(case: Case, scale_d: str) -> None:
    lines = f"mov.u32 %r21, {scale_d}; setp.ne.b32 %p6, %r21, 0; {FENCE} {mma(D, scale_d='%p6')} {COMMIT} {WAIT}"
    if scale_d == "%ntid.y":  # 1
        assert "adds to register %d0" in case.wrong(Uninitialized, lines, drop=NO_D)
    else:
        np.testing.assert_array_equal(case.run(lines, drop=NO_D), case.a @ case.b.T)


def test_a_value_made_of_unwritten_ones_is_unwritten(case: Case) -> None:
    lines = f"mov.b32 %d0, 0; mov.b32 %d1, 0; mov.b32 %d2, 0; add.f32 %d3, %e0, 0f3F800000; {ONE}"
    assert "adds to register %d3" in case.wrong(Uninitialized, lines, drop=NO_D)


@pytest.mark.parametrize(("line", "right"), [("pass", False), ("accumulators.fill(0.0)", True),
                                             ("tiled_mma.set(warpgroup.Field.ACCUMULATE, False)", None)])  # fmt: skip
def test_accumulators_of_a_dsl_kernel(tmp_path: Path, line: str, right: bool | None) -> None:
    """Not filled; filled; not filled, and the first k block overwrites them."""
    mutants = [Mutant("wgmma_tile", "accumulators.fill(0.0)", line)]
    if right is None:
        mutants += [Mutant("wgmma_tile", "ACCUMULATE, True", "tiled_mma.set(warpgroup.Field.ACCUMULATE, block > 0)")]
        mutants[0] = replace(mutants[0], new="pass")
    loaded = load("wgmma_tile", tmp_path, *mutants)
    arguments, want = CASES["wgmma_tile"]()
    launch, tensors = compiled(loaded.module, arguments)
    if right is not False:
        launch()
        assert torch.equal(tensors[-1].double(), want)
        return
    with pytest.raises(Uninitialized, match="the WGMMA adds to register") as caught:
        launch()
    assert caught.value.place is not None and caught.value.place.source == loaded.line("cute.gemm(tiled_mma")
    assert "ACCUMULATE" in caught.value.hint


# -- D becomes A, or the other way round -------------------------------------------------------------


def test_d_in_flight_is_the_next_a(case: Case) -> None:
    report = case.wrong(InFlight, f"{FENCE} {mma(E, scale_d=FALSE)} {FENCE} {mma(D, E)} {COMMIT} {WAIT}")
    assert "register %e0 is used as an element of A by this WGMMA while the WGMMA m64n8k16 is still under way" in report
    assert "the WGMMA was issued here" in report and report.count("PTX line") == 2
    assert "wait_group(0) between the two" in report


def test_d_is_the_next_a_after_a_wait_but_no_fence(case: Case) -> None:
    report = case.wrong(MissingFence, f"{FENCE} {mma(E, scale_d=FALSE)} {COMMIT} {WAIT} {mma(D, E)} {COMMIT} {WAIT}")
    assert "register %e0 is used as an element of A by this WGMMA and was used by the WGMMA m64n8k16 before" in report
    assert report.count("PTX line") == 2


def test_d_is_the_next_a_after_wait_and_fence(case: Case) -> None:
    """The bits of float32 pairs are read as float16: small integers' low halves are 0, the high halves are not."""
    lines = f"{FENCE} {mma(E, scale_d=FALSE)} {COMMIT} {WAIT} {FENCE} {mma(D, E, FALSE)} {COMMIT} {WAIT}"
    first = case.a @ case.b.T
    bits = first[d_places(8)].astype(np.float32).view(np.uint32)  # (thread, register)
    found = case.run(lines)
    fragment = np.zeros((64, 16), np.uint16)
    for thread in range(128):
        g, t = thread // 32 * 16 + thread % 32 // 4, thread % 4
        for register in range(4):
            row, column = g + 8 * (register % 2), 2 * t + 8 * (register // 2)
            fragment[row, column] = bits[thread, register] & 0xFFFF
            fragment[row, column + 1] = bits[thread, register] >> 16
    left = fragment.view(np.float16).astype(float)
    np.testing.assert_array_equal(found, (left @ case.b.T).astype(np.float32))


def test_a_in_flight_is_the_next_d(case: Case) -> None:
    report = case.wrong(InFlight, f"{FENCE} {mma(D, REGISTERS)} {mma(REGISTERS, scale_d=FALSE)} {COMMIT} {WAIT}")
    assert "register %a0 is used as an accumulator by this WGMMA while the WGMMA m64n8k16" in report


def test_two_wgmmas_may_read_the_same_a(case: Case) -> None:
    lines = f"{FENCE} {mma(D, REGISTERS)} {mma(E, REGISTERS, FALSE)} {mma(D, REGISTERS)} {COMMIT} {WAIT}"
    np.testing.assert_array_equal(case.run(lines), 2 * case.a @ case.b.T + case.d)


# -- another shape -----------------------------------------------------------------------------------

PACKED = "m64n16k16.f16.f16.f16"  # four registers too; B is read twice as far, from what lies behind it


@pytest.mark.parametrize("between", ["", f"{COMMIT} {WAIT}"])
def test_another_shape_without_a_fence(case: Case, between: str) -> None:
    lines = f"{FENCE} {mma(D, shape=PACKED, b=A, scale_d=FALSE)} {between} {mma(D)} {COMMIT} {WAIT}"
    report = case.wrong(MissingFence, lines)
    assert "register %d0 is used as an accumulator by this WGMMA and was used by the WGMMA m64n16k16 before" in report
    assert "the other WGMMA was issued here" in report and report.count("PTX line") == 2
    assert "warpgroup.fence" in report


def test_another_shape_after_a_fence(case: Case) -> None:
    """The second overwrites what the first has written."""
    lines = f"{FENCE} {mma(D, shape=PACKED, b=A)} {FENCE} {mma(D, scale_d=FALSE)} {COMMIT} {WAIT}"
    np.testing.assert_array_equal(case.run(lines), case.a @ case.b.T)


def test_values_pass_from_one_shape_to_the_other(case: Case) -> None:
    """float16 pairs become the float32 accumulators of the next WGMMA."""
    lines = f"{FENCE} {mma(D, shape=PACKED, b=A, scale_d=FALSE)} {COMMIT} {WAIT} {FENCE} {mma(D)} {COMMIT} {WAIT}"
    product = (case.a @ case.a[:16].T).astype(np.float16)
    rows, columns = d_places(16)
    pairs = np.ascontiguousarray(product[rows, columns]).view(np.float32)  # (thread, register)
    want = np.zeros((64, 8))
    want[d_places(8)] = pairs
    np.testing.assert_array_equal(case.run(lines), (want + case.a @ case.b.T).astype(np.float32))


# -- descriptors and scale-d -------------------------------------------------------------------------

OFF = "cvt.u64.u32 %rd20, %r20; add.u64 %rd21, %rd11, %rd20;"  # the warp's number is added to the start of B


def test_a_descriptor_that_differs_between_warps(case: Case) -> None:
    report = case.wrong(IllegalInstruction, f"{OFF} {FENCE} {mma(D, b='%rd21')} {COMMIT} {WAIT}")
    assert "the descriptor of operand B is not the same in all threads of the warpgroup" in report
    assert "in lane 0 of warp 0" in report and "in lane 0 of warp 1" in report and "warp 1, lane 0" in report


def test_a_descriptor_from_the_number_of_the_warpgroup(case: Case) -> None:
    lines = f"shr.u32 %r20, %r20, 2; {OFF} {FENCE} {mma(D, b='%rd21')} {COMMIT} {WAIT}"
    np.testing.assert_array_equal(case.run(lines), case.a @ case.b.T + case.d)


def test_scale_d_that_differs_between_warps(case: Case) -> None:
    lines = f"setp.ge.u32 %p6, %r20, 2; {FENCE} {mma(D, scale_d='%p6')} {COMMIT} {WAIT}"
    report = case.wrong(IllegalInstruction, lines)
    assert "scale-d is not the same in all threads of the warpgroup: False in lane 0 of warp 0, True in" in report
    assert "in lane 0 of warp 2" in report


# -- copies after the fence --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a0", "d0"])
def test_a_copy_into_a_register_after_the_fence(case: Case, name: str) -> None:
    lines = f"add.u32 %r21, %r20, 7; {FENCE} mov.b32 %{name}, %r21; {mma(D, REGISTERS)} {COMMIT} {WAIT}"
    report = case.wrong(MissingFence, lines)
    assert "registers of this WGMMA were written since the last wgmma.fence" in report
    assert f"mov.b32 %{name}, %r21" in report


HARMLESS = {
    "before the fence": f"mov.b32 %r21, %a0; {FENCE} mov.b32 %r22, %a0;",
    "a constant, which compilers write where they like": f"{FENCE} mov.b32 %a0, 0;",
    "a register that holds a constant": f"mov.b32 %r21, 0; {FENCE} mov.b32 %a0, %r21;",
    "a copy of a fragment that is unchanged": f"{FENCE} mov.b32 %a0, %a1;",
    "a copy of a constant in a fragment": f"{FENCE} mov.b32 %a1, 0f00000000; mov.b32 %a0, %a1;",
}


@pytest.mark.parametrize("name", HARMLESS)
def test_copies_that_need_no_fence(case: Case, name: str) -> None:
    case.run(f"{HARMLESS[name]} {mma(D, REGISTERS)} {COMMIT} {WAIT}")


def test_a_copy_of_a_fragment_that_was_changed(case: Case) -> None:
    change = f"mov.b32 %e0, 0; {FENCE} add.u32 %e0, %e0, 1; mov.b32 %a0, %e0;"
    report = case.wrong(MissingFence, f"{change} {mma(D, REGISTERS)} {mma(E, scale_d=FALSE)} {COMMIT} {WAIT}")
    assert "add.u32 %e0, %e0, 1" in report


def test_of_several_in_a_row_the_one_that_is_too_early_is_named(case: Case) -> None:
    row = "add.u32 %e0, %e0, 1; add.u32 %e1, %e1, 1; add.f32 %d1, %d1, %d1; add.u32 %e2, %e2, 1;"
    assert "add.f32 %d1, %d1, %d1" in case.wrong(InFlight, f"{FENCE} {mma(D)} {COMMIT} {row} {WAIT}")


def test_of_several_in_a_row_the_one_that_needs_a_fence_is_named(case: Case) -> None:
    row = "mov.b32 %e0, 0; add.u32 %e1, %e0, 1; add.f32 %d1, %d1, %d1; mov.b32 %d2, %d1; add.u32 %e2, %e1, 1;"
    report = case.wrong(MissingFence, f"{FENCE} {mma(D)} {COMMIT} {WAIT} {row} {mma(D)} {COMMIT} {WAIT}")
    assert "add.f32 %d1, %d1, %d1" in report


# -- where the values are ----------------------------------------------------------------------------


def test_ordinary_instructions_between_wgmmas_see_and_change_accumulators(case: Case) -> None:
    again = f"{FENCE} {mma(D)} {COMMIT} {WAIT}"
    lines = f"{again} {again} add.f32 %d1, %d1, 0f40000000; {again} add.f32 %d0, %d0, %d1; {FENCE} {again}"
    want = case.d.copy()
    rows, columns = d_places(8)
    product = case.a @ case.b.T
    want += 2 * product
    want[rows[:, 1], columns[:, 1]] += 2
    want += product
    want[rows[:, 0], columns[:, 0]] += want[rows[:, 1], columns[:, 1]]
    np.testing.assert_array_equal(case.run(lines), want + product)


def test_shared_memory_that_changes_between_wgmmas(case: Case) -> None:
    """The same descriptors again: what was read or found fit to be read before does not count."""
    clear = "mov.b32 %r21, 0; shl.b32 %r22, %r0, 4; add.u32 %r22, %r22, %r1; st.shared.b32 [%r22], %r21;"
    lines = f"{ONE} bar.sync 0; {clear} fence.proxy.async.shared::cta; bar.sync 0; {ONE}"
    image = np.zeros(case.step.b.end, np.uint8)
    assert case.step.a is not None
    case.step.a.place(image, case.a, "f16")
    image[: 128 * 16].reshape(128, 16)[:, :4] = 0
    second = image[case.step.a.offsets()[..., None] + np.arange(2)].copy().view(np.float16)[..., 0].astype(float)
    np.testing.assert_array_equal(case.run(lines), case.a @ case.b.T + second @ case.b.T + case.d)
    report = case.wrong(MissingFence, f"{ONE} bar.sync 0; {clear} bar.sync 0; {ONE}")
    assert "no proxy fence came since" in report


def test_warpgroups_of_a_cta_of_five_warps(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second CTA's first thread has a number that is no multiple of 128."""
    np.testing.assert_array_equal(case.run(ONE, block=160, grid=1), case.a @ case.b.T + case.d)
    monkeypatch.setenv("CUTETUT_WARN", "race")  # all CTAs write the same place
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmulatorWarning)
        case.run(ONE, block=160, grid=3)


@pytest.mark.parametrize("form", [replace(BF16, n=24), replace(F16, n=40)], ids=str)
def test_other_sizes_go_through_the_same_lines(rng: np.random.Generator, form: Form) -> None:
    case = Case(rng, form)
    shape = f"m64n{form.n}k16.f32.{form.a}.{form.b}"
    d = vector("d", form.n // 2)
    lines = f"{FENCE} {mma(d, shape=shape)} {mma(d, REGISTERS, shape=shape)} {COMMIT} {WAIT}"
    np.testing.assert_array_equal(case.run(lines), 2 * case.a @ case.b.T + case.d)
