"""The PTX parser against regular expressions over the text, and what it says about broken text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import cutlass.cute as cute
import numpy as np
import pytest
import torch
from cutlass.cute.runtime import from_dlpack

from cutetut.emulator import ptx
from cutetut.emulator.errors import PtxSyntaxError
from cutetut.emulator.ptx.constants import constants
from cutetut.emulator.ptx.syntax import registers_in
from cutetut.inspect.compiled import inspect
from tests.emulator import dsl_kernels
from tests.emulator.harness import HEADER, kernel, run

pytestmark = pytest.mark.emulator


def compile_all() -> dict[str, str]:
    """PTX of every kernel in dsl_kernels."""
    x, y = (from_dlpack(torch.zeros(128)) for _ in range(2))
    half = [from_dlpack(torch.zeros(256, dtype=torch.float16), assumed_align=16) for _ in range(2)]
    jobs = {
        "scale": (x, y, 100),
        "reverse": (x, y),
        "warp_sum": (x, y),
        "half_blocks": tuple(half),
        "print_values": (x,),
        "print_kinds": (1, 2, 3.0, 4.0, 5),
    }
    return {name: inspect(cute.compile(getattr(dsl_kernels, name), *args)).ptx for name, args in jobs.items()}


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return compile_all()


def statements(text: str) -> list[str]:
    """Every instruction of the first kernel in order, found without the parser: what ends in a semicolon and is no
    directive, with labels, braces and guards taken away.
    """
    body = text[text.index("{", text.index(".entry")) + 1 : text.rindex("}")]
    body = re.sub(r"//.*", "", body)
    body = re.sub(r"^\s*\.(loc|file).*$", "", body, flags=re.M)
    found = []
    for piece in body.split(";"):
        piece = re.sub(r"^(\s|\{(?=\s)|\}|[$\w]+:(?!:))+", "", piece)
        piece = re.sub(r"^@!?%?\w+\s+", "", piece)
        if piece and not piece.startswith("."):
            found.append(" ".join(piece.split()))
    return found


def flatten(operands: Iterable[object]) -> Iterable[object]:
    """Every operand, with the parts of vectors, addresses and pairs."""
    for operand in operands:
        yield operand
        if isinstance(operand, ptx.Vector | ptx.Group):
            yield from flatten(operand.items)
        elif isinstance(operand, ptx.Address):
            yield operand.base
        elif isinstance(operand, ptx.Pair):
            yield from flatten((operand.first, operand.second))
        elif isinstance(operand, ptx.Negated):
            yield operand.register


NAMES = ["scale", "reverse", "warp_sum", "half_blocks", "print_values", "print_kinds"]


@pytest.mark.parametrize("name", NAMES)
def test_every_instruction_of_a_dsl_kernel_is_found(texts: dict[str, str], name: str) -> None:
    text = texts[name]
    (function,) = ptx.parse(text).kernels.values()
    expected = statements(text)
    assert len(expected) > 10
    assert [i.opcode for i in function.body] == [s.split()[0] for s in expected]
    lines = text.splitlines()
    for inst in function.body:
        assert inst.opcode in lines[inst.line - 1]


@pytest.mark.parametrize("name", NAMES)
def test_every_register_is_resolved_with_its_type(texts: dict[str, str], name: str) -> None:
    text = texts[name]
    (function,) = ptx.parse(text).kernels.values()
    types = {"p": "pred", "rs": "b16", "r": "b32", "rd": "b64", "SP": "b64", "SPL": "b64"}
    for inst, source in zip(function.body, statements(text), strict=True):
        found = [o for o in flatten(inst.operands) if isinstance(o, ptx.Register)]
        named = re.findall(r"%[A-Za-z]+\d*\b(?!\.)", source)
        assert sorted(r.name for r in found) == sorted(named)
        for register in found:
            letters = re.sub(r"[%\d]", "", register.name)
            assert register.type == types[letters]


OPERANDS = {
    "add.u32 %r1, %r2, 5;": ["%r1 %r2", "%r1 %r2"],
    "@!%p1 selp.u32 %r1, %r2, 7, %p2;": ["%r1 %r2 %p2", "%r1 %r2 %p2"],  # a guard is no operand
    "xor.pred %p1, !%p2, %p3;": ["%p1 %p2 %p3", "%p1 %p2 %p3"],
    "shfl.sync.idx.b32 %r1|%p1, %r2, 0, 31, -1;": ["%r1 %p1 %r2", "%r1 %p1 %r2"],
    "ld.global.v2.b32 {%r1, %r2}, [%rd1+8];": ["%r1 %r2", "%r1 %r2 %rd1"],
    "st.shared.b32 [%r3], %r1;": ["%r1", "%r3 %r1"],
    "cp.async.bulk.prefetch.tensor.2d.L2.global [%rd1, {%r1, %r2}];": ["%r1 %r2", "%rd1 %r1 %r2"],
}


@pytest.mark.parametrize("text", OPERANDS)
def test_registers_are_found_in_nested_operands(text: str) -> None:
    (function,) = ptx.parse(kernel(text)).kernels.values()
    found = [" ".join(r.name for r in registers_in(function.body[0].operands, also)) for also in (False, True)]
    assert found == OPERANDS[text]


def test_instructions_know_the_python_line_they_come_from(texts: dict[str, str]) -> None:
    source = Path(dsl_kernels.__file__).read_text().splitlines()
    for name, opcode, wanted in [
        ("reverse", "bar.sync", "sync_threads"),
        ("reverse", "st.shared", "tile[tid] = x[tid]"),
        ("warp_sum", "shfl.sync", "shuffle_sync_bfly"),
        ("warp_sum", "vote.sync", "vote_ballot_sync"),
        ("print_values", "call", "cute.printf"),
    ]:
        (function,) = ptx.parse(texts[name]).kernels.values()
        found = [i for i in function.body if i.opcode.startswith(opcode)]
        assert found, (name, opcode)
        for inst in found:
            assert inst.loc is not None
            assert Path(inst.loc.file).name == "dsl_kernels.py"
            assert wanted in source[inst.loc.line - 1]


HOPPER_FORMS = """
.extern .shared .align 1024 .b8 dyn[];
.global .align 8 .u64 pointers[2] = {table, generic(table)+4};
.const .align 4 .b8 table[8] = {1, 2, 0xff, 4, 5, 6, 7, 8};
.extern .func (.param .b32 status) vprintf (.param .b64 a, .param .b64 b)
;
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 .ptr .global .align 16 out)
.maxntid 384, 1, 1
.minnctapersm 1
.reqnctapercluster 2, 1, 1
{
  .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<5>, %other; .reg .b128 %q; .reg .f32 %f1, %f2;
  .shared .align 16 .b8 buf[64]; .local .align 4 .b8 depot[8]; .pragma "nounroll";
  mov.b64 %rd1, map;
  mov.b32 %r1, dyn;
  elect.sync %r2|%p1, -1;
  @!%p1 bra $L__BB0_2;
  {
  .reg .pred P1;
  LAB_WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 P1, [%r1+8], 0, 10000000; @P1 bra DONE;
  bra.uni LAB_WAIT;
  DONE:
  }
  {
  .reg .pred P1;
  LAB_WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 P1, [%r1+-16], %r2, 10000000; @P1 bra DONE; bra.uni LAB_WAIT;
  DONE:
  }
  cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r1+1024], [%rd1, {%r1, %r2, 0}], [%r2];
  /* a comment; with a semicolon */ wgmma.fence.sync.aligned; // another; one
  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, _,
      %f1}, %rd1, %rd2, %p1, 1, 1, 0, 0;
$L__BB0_2:
  setp.lt.and.f32 %p2|%p3, %f1, 0f3F800000, !%p1;
  fma.rn.f32 %f1, %f2, 0fBF800000, %f1;
  mov.b64 {%r3, %r4}, %rd1;
  add.s32 %r5, %r5, -2147483648;
  and.b64 %rd3, %rd3, 0xFFFFFFFFFFFFFFF0;
  mov.f64 %other, 0d3FF0000000000000;
  shfl.sync.bfly.b32 %r6|%p2, %r5, 0x10, 31, 0xffffffff;
  brx.idx %r6, table_of_labels;
table_of_labels: .branchtargets $L__BB0_2, $L_end;
  st.shared.v2.b32 [buf+8], {%r1, %r2};
  { .param .b64 param0; .param .b32 retval0; st.param.b64 [param0], %rd1;
  call.uni (retval0), vprintf, (param0, param0); ld.param.b32 %r7, [retval0]; }
$L_end:
  ret;
}
"""


def test_forms_of_hopper_kernels() -> None:
    module = ptx.parse(HEADER + HOPPER_FORMS)
    k = module.kernels["k"]
    assert k.directives["maxntid"] == (384, 1, 1) and k.directives["reqnctapercluster"] == (2, 1, 1)
    assert [(p.name, p.nbytes, p.align) for p in k.params] == [("map", 128, 64), ("out", 8, 8)]
    assert k.param_offset("out") == 128
    assert module.variables["table"].init == bytes([1, 2, 255, 4, 5, 6, 7, 8])
    assert module.variables["pointers"].pointers == ((0, "table", 0), (8, "table", 4))
    assert module.variables["dyn"].extern and module.variables["dyn"].align == 1024
    body = [(i.opcode.split(".")[0], i) for i in k.body]
    waits = [i for name, i in body if name == "mbarrier"]
    first, second = (i.operands[0] for i in waits)
    assert isinstance(first, ptx.Register) and isinstance(second, ptx.Register)
    assert first != second and first.type == second.type == "pred"  # each brace has its own P1
    assert waits[1].operands[1] == ptx.Address(ptx.Register("%r1", "b32"), -16)
    branches = [i.operands[0].name for name, i in body if name == "bra"]  # type: ignore[union-attr]
    assert len(set(branches)) == 5  # and its own labels
    at = {label: k.body[n].text for label, n in k.labels.items()}
    assert all("try_wait" in at[name] for name in branches if "LAB_WAIT" in name)
    (copy,) = (i for name, i in body if name == "cp")
    assert isinstance(copy.operands[1], ptx.Group) and copy.operands[1].items[1] == ptx.Vector(
        (ptx.Register("%r1", "b32"), ptx.Register("%r2", "b32"), ptx.Immediate(0))
    )
    (mma,) = (i for name, i in body if i.opcode.startswith("wgmma.mma"))
    assert isinstance(mma.operands[0], ptx.Vector) and mma.operands[0].items[2] == ptx.Sink()
    assert mma.line == 1 + (HEADER + HOPPER_FORMS)[: (HEADER + HOPPER_FORMS).index("wgmma.mma")].count("\n")
    (setp,) = (i for name, i in body if name == "setp")
    assert isinstance(setp.operands[0], ptx.Pair)
    assert setp.operands[2] == ptx.Immediate(1.0, 0x3F800000)
    assert setp.operands[3] == ptx.Negated(ptx.Register("%p1", "pred"))
    assert k.branch_targets == {"table_of_labels": ("$L__BB0_2", "$L_end")}
    (call,) = (i for name, i in body if name == "call")
    assert call.operands[1] == ptx.Symbol("vprintf")


@pytest.mark.parametrize(
    ("declaration", "nbytes", "align"),
    [  # the forms of sections 5.1.6.2 and 5.1.6.3; an alignment behind .ptr is that of what the pointer points to
        (".param .u64 .ptr x", 8, 8),
        (".param .u64 .ptr .global .align 4 x", 8, 8),
        (".param .u64 .ptr .global x", 8, 8),
        (".param .u64 .ptr.const.align 1 x", 8, 8),
        (".param .u64 .ptr.align 16 x", 8, 8),
        (".param .u32 .ptr .shared .align 128 x", 4, 4),
        (".param .align 16 .b8 x[24]", 24, 16),
        (".param .align 8 .u32 x", 4, 8),
        (".param .b16 x", 2, 2),
    ],
)
def test_alignment_of_a_parameter(declaration: str, nbytes: int, align: int) -> None:
    text = f"{HEADER}.visible .entry k(.param .u32 n, {declaration}, .param .b8 last) {{ ret; }}"
    k = ptx.parse(text).kernels["k"]
    _, x, _ = k.params
    assert (x.name, x.nbytes, x.align) == ("x", nbytes, align)
    start = max(4, align)
    assert (k.param_offset("x"), k.param_offset("last")) == (start, start + nbytes)


def test_a_pointer_to_words_behind_one_word() -> None:
    """The bytes of (n, pointer) lie where the host's compiler puts those of struct {unsigned n; unsigned *p;}."""
    out = np.zeros(32, np.uint32)
    text = f"""{HEADER}.visible .entry k(.param .u32 n, .param .u64 .ptr .global .align 4 p) {{
.reg .b32 %r<4>; .reg .b64 %rd<4>;
ld.param.b32 %r1, [n]; ld.param.b64 %rd1, [p]; mov.u32 %r2, %tid.x; mad.wide.u32 %rd2, %r2, 4, %rd1;
st.global.b32 [%rd2], %r1; ret; }}"""
    run(text, np.uint32(77).tobytes(), out)
    np.testing.assert_array_equal(out, np.full(32, 77))


def test_numbers() -> None:
    literals = ["0", "-1", "42U", "0x1F", "-0x10", "0XffU", "017", "0b101", "1.5", "-2.25", "0f40490FDB"]
    (k,) = ptx.parse(kernel("\n".join(f"mov.b32 %r1, {n};" for n in literals))).kernels.values()
    values = [i.operands[1].value for i in k.body[:-1]]  # type: ignore[union-attr]
    assert values == [0, -1, 42, 31, -16, 255, 15, 5, 1.5, -2.25, pytest.approx(3.1415927, abs=1e-7)]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("add.u32 %r1, %r2, %undeclared;", "%undeclared is not declared"),
        ("add.u32 %r1, %r2, [%r3;", "expected"),
        ("add.u32 %r1, %r2 %r3;", "unexpected '%r3'"),
        ("add.u32 %r1, {%r2, ;", "an operand is missing"),
        ("add.u32 %r1, %r2, #3;", "cannot read"),
        ("mov.u32 %r1, 09;", "cannot read the number 09"),
        ("@%nothing bra L;", "%nothing is not a declared predicate"),
        ("bra nowhere;", "no label nowhere"),
        ("st.global.u32 [missing], %r1;", "missing is not declared"),
        ("brx.idx %r1, list; list: .branchtargets nowhere;", "nowhere"),
        ("!!!;", "cannot read"),
        (".reg .b33 %x;", "not a register declaration"),
        (".reg .b32 %r1;", "declared twice"),
        (".shared .b7 x[4];", "not a declaration"),
        (".loc 1;", ".loc needs"),
        ("mov.u32 %r1, -%r2;", "- needs a number"),
        ("mov.u32 %r1, !5;", "! needs a predicate"),
        ("ld.global.u32 %r1, [%rd1+%rd2];", "offset must be an integer"),
    ],
)
def test_broken_text_names_its_line(line: str, says: str) -> None:
    text = kernel(f"mov.u32 %r1, 1;\n// comment; here\nmov.u32\n %r2, 2;\n{line}\nmov.u32 %r3, 3;")
    number = 1 + text[: text.index(line)].count("\n")
    with pytest.raises(PtxSyntaxError) as error:
        ptx.parse(text)
    assert says in str(error.value)
    if "branchtargets" not in line:
        assert f"PTX line {number}:" in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "garbage",
        HEADER + ".visible .entry k( .param .b64 p0 {",
        HEADER + ".visible .entry k() { ret;",
        HEADER + ".visible .entry k() { .reg .b32 %r<2>; mov.u32 %r1, 1 }",
        HEADER + ".visible .entry ()",
        HEADER + ".section .debug_str {",
        HEADER + ".global .b32 x = {nonsense;",
        HEADER + ".global .b64 x = nonsense;",
    ],
)
def test_truncated_text_is_an_error(text: str) -> None:
    with pytest.raises(PtxSyntaxError, match="PTX line"):
        ptx.parse(text)


# -- registers that hold one constant ---------------------------------------------------------------


def test_constants_are_followed_through_copies_and_comparisons() -> None:
    text = kernel("""mov.b32 %r1, 0; mov.b32 %r2, %r1; setp.ne.b32 %p1, %r2, 0; setp.eq.b32 %p2, %r2, 0;
    mov.b32 %r3, 0f3F800000; mov.b32 %r4, 1; mov.b32 %r4, 1; mov.b32 %r5, 1; mov.b32 %r5, 2; mov.b32 %r6, %tid.x;
    @%p1 mov.b32 %r7, 0; mov.b32 %r8, 0; add.u32 %r8, %r8, 1; mov.b32 %r9, %r8; setp.lt.s32 %p3, %r1, 0;
    setp.ne.b32 %p4, %r6, 0; mov.b64 {%r10, %r11}, %rd1; mov.b32 %r10, 0;""")
    found = constants(next(iter(ptx.parse(text).kernels.values())))
    assert found == {"%r1": 0, "%r2": 0, "%p1": 0, "%p2": 1, "%r3": 0x3F800000, "%r4": 1}
