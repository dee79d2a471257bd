"""Machine code against numpy: every form, random programs and every kind of selection, equal bit for bit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from cutetut.emulator import launch, ptx
from cutetut.emulator.compiled import engine, recipe
from cutetut.emulator.errors import OutOfBounds, Uninitialized, UnknownInstruction
from cutetut.emulator.machine.memory import GlobalMemory
from cutetut.emulator.measure.counters import Counting
from cutetut.emulator.measure.observe import observing
from cutetut.emulator.measure.timing import Timing
from cutetut.emulator.units.alu.convert import FLOATS
from cutetut.emulator.units.alu.forms import FORMS, INTEGER
from tests.emulator import alu_forms
from tests.emulator.harness import HEADER, on_gpu, run
from tests.seeds import seeds

pytestmark = [pytest.mark.emulator, pytest.mark.skipif(on_gpu(), reason="about the emulator's two ways to compute")]
THREADS = 1024
BYTES = {"b": 1, "h": 2, "r": 4, "d": 8}
DECLARED = {"p": "pred", "b": "b8", "h": "b16", "r": "b32", "d": "b64"}
SPECIAL_32 = np.array(
    [0, 1, 2, 3, 0x80000000, 0x80000001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001,
     0xFFC00123, 0x00800000, 0x80800000, 0x007FFFFF, 0x00400000, 0x3F800000, 0xBF800000, 0x3F000000, 0x7F7FFFFF,
     0x477FE000, 0x477FF000, 0x38800000, 0x387FC000, 0x33000000, 0x00FFFFFF, 0x01000000, 0x5F800000, 0x4F000000,
     0x4EFFFFFF, 0xCF000000, 31, 32, 33, 64, 255, 256, 0x7E800000, 0x7E800001, 0x7F7FC000, 0x3F7FFFFF], np.uint32,
)  # fmt: skip
SPECIAL_16 = np.array(
    [0, 1, 0x8000, 0x8001, 0x7FFF, 0xFFFF, 0x7C00, 0xFC00, 0x7C01, 0x7E00, 0x0400, 0x03FF, 0x3C00, 0x7BFF, 0x7F80,
     0xFF80, 0x7F81, 0x0080, 0x007F, 0x3F80, 0x7F7F, 0x7FF7], np.uint16,
)  # fmt: skip
SPECIAL_64 = np.array(
    [0, 1, 1 << 63, (1 << 63) - 1, (1 << 64) - 1, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000,
     0x7FF0000000000001, 0x3FF0000000000000, 0x43E0000000000000, 0xC3E0000000000000, 0x43F0000000000000,
     0x41E0000000000000, 0xBFE0000000000000, 0x0010000000000000, 0x000FFFFFFFFFFFFF, 0x47EFFFFFF0000000], np.uint64,
)  # fmt: skip


def inputs(seed: int) -> dict[str, np.ndarray]:
    """Three registers of each class for every thread: special values, random patterns, and small numbers."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, special in (("b", SPECIAL_16.astype(np.uint8)), ("h", SPECIAL_16), ("r", SPECIAL_32), ("d", SPECIAL_64)):
        bits = 8 * special.itemsize
        values = rng.integers(0, 1 << bits, (3, THREADS), special.dtype, endpoint=False) if bits < 64 else (
            rng.integers(0, (1 << 64) - 1, (3, THREADS), np.uint64)
        )  # fmt: skip
        chosen = rng.random((3, THREADS))
        values = np.where(chosen < 0.5, rng.choice(special, (3, THREADS)), values)
        near = _near_one(rng, bits)
        values = np.where(chosen > 0.8, near, values)
        found[name] = np.ascontiguousarray(values.astype(special.dtype))
    return found


def _near_one(rng: np.random.Generator, bits: int) -> np.ndarray:
    """Patterns of numbers of moderate size, whose sums and products neither overflow nor vanish."""
    numbers = rng.normal(0, 3, (3, THREADS)) * np.exp2(rng.integers(-12, 12, (3, THREADS)))
    if bits == 64:
        return numbers.view(np.uint64)
    if bits == 32:
        return numbers.astype(np.float32).view(np.uint32)
    return numbers.astype(np.float16).view(np.uint16) if bits == 16 else rng.integers(0, 40, (3, THREADS))


def program(lines: list[str], guards: list[str], skip: str = "") -> tuple[str, list[str]]:
    """A kernel that loads the sources, runs the lines, and stores what each has written; and the classes stored."""
    written: list[str] = []
    body = []

    def target(match: re.Match[str]) -> str:
        written.append(match[1])
        return f"%{match[1]}o{len(written) - 1}"

    for line, guard in zip(lines, guards, strict=True):
        body.append(guard + re.sub(r"\$([pbhrd])", target, line))
    declared = [f".reg .{DECLARED[c]} %{c}{x};" for c in "pbhrd" for x in "abc"]
    declared += [f".reg .{DECLARED[c]} %{c}o{i};" for i, c in enumerate(written)]
    text = [*declared, ".reg .b32 %tid0, %bit; .reg .b64 %at, %base; .reg .pred %skip; mov.u32 %tid0, %tid.x;"]
    for i, (name, size) in enumerate(BYTES.items()):
        text.append(f"ld.param.b64 %base, [p{i}]; mad.wide.u32 %at, %tid0, {size}, %base;")
        text += [f"ld.global.b{8 * size} %{name}{x}, [%at+{j * size * THREADS}];" for j, x in enumerate("abc")]
    for x, y in zip("abc", "bca", strict=True):
        text.append(f"and.b32 %bit, %r{x}, 1; setp.eq.b32 %p{x}, %bit, 1;")
        text.append(f"and.b32 %bit, %r{y}, 7; setp.lt.u32 %skip, %bit, 3;")
    for i, c in enumerate(written):
        text.append(f"mov.pred %po{i}, %pa;" if c == "p" else _copy(c, f"%{c}o{i}", f"%{c}{'abc'[i % 3]}"))
    text += [skip, *body, "END:"]
    text.append("ld.param.b64 %base, [p4]; mad.wide.u32 %at, %tid0, 8, %base;")
    for i, c in enumerate(written):
        if c == "p":
            text.append(f"selp.b32 %bit, 1, 0, %po{i}; st.global.b32 [%at+{i * 8 * THREADS}], %bit;")
        else:
            text.append(f"st.global.b{8 * BYTES[c]} [%at+{i * 8 * THREADS}], %{c}o{i};")
    params = ", ".join(f".param .b64 p{i}" for i in range(5))
    return f"{HEADER}\n.visible .entry k({params}) {{\n" + "\n".join(text) + "\nret;\n}\n", written


def _copy(c: str, to: str, source: str) -> str:
    return f"cvt.u8.u8 {to}, {source};" if c == "b" else f"mov.b{8 * BYTES[c]} {to}, {source};"


def both_ways(
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    seed: int = 0,
    guards: list[str] | None = None,
    skip: str = "",
    threads: int = THREADS,
) -> set[str]:
    """Run the lines with numpy and compiled, compare every bit; the opcodes that were left to numpy."""
    text, written = program(lines, guards or [""] * len(lines), skip)
    data = inputs(seed)
    results = []
    left, executed = _watch_recipes(monkeypatch)
    for jit in ("0", "1"):
        monkeypatch.setenv("CUTETUT_JIT", jit)
        executed.clear()
        out = np.zeros((len(written), THREADS), np.uint64)
        run(text, *data.values(), out, block=(threads, 1, 1))
        results.append(out)
        assert bool(executed) == (jit == "1")
    wrong = np.flatnonzero((results[0] != results[1]).any(axis=1))
    if len(wrong):
        raise AssertionError(_difference(lines, written, data, results, int(wrong[0])))
    return left


def _watch_recipes(monkeypatch: pytest.MonkeyPatch) -> tuple[set[str], list[int]]:
    left: set[str] = set()
    executed: list[int] = []
    find, call = recipe.Recipe._form, engine.Chain.__call__

    def watched(self, inst, machine, masked):
        found = find(self, inst, machine, masked)
        if found is None:
            left.add(inst.opcode)
        return found

    def counted(self, start, stop, mask):
        executed.append(self.count)
        call(self, start, stop, mask)

    monkeypatch.setattr(recipe.Recipe, "_form", watched)
    monkeypatch.setattr(engine.Chain, "__call__", counted)
    return left, executed


def _difference(
    lines: list[str], written: list[str], data: dict[str, np.ndarray], results: list[np.ndarray], row: int
) -> str:
    thread = int(np.flatnonzero(results[0][row] != results[1][row])[0])
    number = -1
    for line in lines:
        number += len(re.findall(r"\$[pbhrd]", line))
        if number >= row:
            break
    values = {f"{name}{x}": hex(int(data[name][i, thread])) for name in data for i, x in enumerate("abc")}
    return f"{line}: numpy {results[0][row, thread]:#x}, compiled {results[1][row, thread]:#x} of {values}"


def batches(lines: list[str], size: int = 60) -> list[list[str]]:
    return [lines[i : i + size] for i in range(0, len(lines), size)]


def compare_all(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """both_ways for any number of lines."""
    left: set[str] = set()
    for i, batch in enumerate(batches(lines)):
        left |= both_ways(batch, monkeypatch, seed=i)
    return left


# -- every form ------------------------------------------------------------------------------------

USUAL = set(  # what the kernels of the book are made of, nearly
    """fma.rn.f32 add.f32 sub.f32 mul.f32 max.f32 min.f32 div.rn.f32 rcp.approx.ftz.f32 div.full.f32 neg.f32 abs.f32
    sqrt.approx.f32 rsqrt.approx.f32 fma.rn.ftz.f32 mul.ftz.f32 add.ftz.f32 add.s32 add.s64 sub.s32 mul.lo.s32
    mul.wide.u32 mul.wide.s32 mul.hi.u32 mad.lo.s32 mad.wide.u32 shl.b32 shl.b64 shr.u32 shr.s32 shr.u64 and.b32 or.b32
    xor.b32 not.b32 and.b64 or.b64 and.pred or.pred not.pred xor.pred setp.ne.b32 setp.eq.s32 setp.lt.s32 setp.gt.f32
    setp.neu.f32 setp.lt.u64 selp.b32 selp.f32 selp.b64 mov.b32 mov.b64 mov.pred mov.u32 mov.f32 lop3.b32 prmt.b32
    shf.l.wrap.b32 bfe.u32 bfi.b32 popc.b32 clz.b32 cvt.u64.u32 cvt.s64.s32 cvt.u32.u64 cvt.u16.u32 cvt.rn.f32.s32
    cvt.rzi.s32.f32 cvt.rn.f16.f32 cvt.rn.bf16.f32 cvt.rn.bf16x2.f32 cvt.rn.f16x2.f32 cvt.f32.f16 cvt.f32.bf16
    cvt.rna.tf32.f32 add.f16x2 mul.f16x2 add.rn.bf16x2 max.f16x2 div.s32 rem.u32 min.s32 max.s32
    cvta.to.global.u64""".split()
)


@pytest.mark.parametrize("name", [*FORMS])
def test_every_form_of_a_table(name: str, at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    left = compare_all(list(alu_forms.table_lines(name)), monkeypatch)
    assert not left & USUAL


@pytest.mark.parametrize("make", [alu_forms.comparison_lines, alu_forms.set_lines, alu_forms.other_lines])
def test_every_form_without_a_table(
    make: Callable[[], Iterable[str]], at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = compare_all(list(make()), monkeypatch)
    assert not left & USUAL


@pytest.mark.parametrize("to", [*INTEGER, *FLOATS, "pairs"])
def test_every_conversion(to: str, at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = alu_forms.packing_lines() if to == "pairs" else alu_forms.conversion_lines(to)
    assert not compare_all(list(lines), monkeypatch) & USUAL


def test_the_usual_forms_are_among_those() -> None:
    lines = every_line()
    assert not USUAL - {line.split()[0] for line in lines}
    assert len(lines) > 1500


# -- where forms are delicate ----------------------------------------------------------------------


def test_results_that_ftz_flushes_although_they_round_up(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products, quotients and sums just below the smallest normal number, in float32 and in f16."""
    rng = np.random.default_rng(1)
    k = rng.integers(-4, 5, (3, THREADS))
    tiny, one = np.uint32(0x00800000), np.uint32(0x3F800000)
    scale = rng.integers(-2, 3, THREADS) << 23
    r = np.stack([one - scale + k[0], tiny + scale + np.abs(k[1]), rng.choice([0, 1 << 23, 1 << 22, 1 << 31], THREADS)])
    r = r.astype(np.uint32)
    r[2] |= (rng.integers(0, 2, THREADS) << 31).astype(np.uint32)
    half = np.stack([0x3C00 + k[0], 0x0400 + np.abs(k[1]), rng.choice([0, 0x8000, 0x0400, 0x8401], THREADS)])
    half = half.astype(np.uint16)
    monkeypatch.setattr("tests.emulator.test_compiled_runs.inputs", lambda seed: _replaced(inputs_of(seed), r, half))
    names = ("mul", "fma", "div", "rcp", "add", "sub")
    lines = [line for name in names for line in alu_forms.table_lines(name) if "ftz" in line]
    compare_all(lines, monkeypatch)


inputs_of = inputs


def _replaced(data: dict[str, np.ndarray], r: np.ndarray, h: np.ndarray) -> dict[str, np.ndarray]:
    return {**data, "r": r, "h": h}


# -- random programs -------------------------------------------------------------------------------


def every_line() -> list[str]:
    makers: list[Callable[[], Iterable[str]]] = [
        alu_forms.comparison_lines,
        alu_forms.set_lines,
        alu_forms.other_lines,
        alu_forms.packing_lines,
    ]
    lines: list[str] = [line for make in makers for line in make()]
    lines += [line for name in FORMS for line in alu_forms.table_lines(name)]
    return lines + [line for to in (*INTEGER, *FLOATS) for line in alu_forms.conversion_lines(to)]


def chained(lines: list[str], rng: np.random.Generator) -> list[str]:
    """The lines with sources replaced by what lines before them have written, and targets by sources."""
    count, result = 0, []
    known: dict[str, list[str]] = {c: [f"%{c}{x}" for x in "abc"] for c in "pbhrd"}
    for line in lines:
        first, comma, rest = line.partition(",")

        def source(match: re.Match[str]) -> str:
            return str(rng.choice(known[match[1]]))

        result.append(first + comma + re.sub(r"%([phrd])[abc]", source, rest))
        for c in re.findall(r"\$([pbhrd])", line):
            known[c].append(f"%{c}o{count}")
            count += 1
    return result


SKIPS = ("", "@%skip bra END;", "setp.gt.u32 %skip, %tid0, 700; @%skip bra END;", "@%pa bra END;")


@pytest.mark.parametrize("seed", seeds(24))
def test_a_random_program(seed: int, at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    lines = [str(line) for line in rng.choice(every_line(), 50)]
    packed_moves = [line for line in lines if "$" in line.partition(",")[2]]  # mov {$r, $r}
    lines = [line for line in lines if line not in packed_moves]
    lines = chained(lines, rng) + packed_moves
    guards = [str(g) for g in rng.choice(["", "", "@%pa ", "@!%pb "], len(lines))]
    threads = int(rng.choice([THREADS, THREADS, 1000, 50, 33, 1]))
    both_ways(lines, monkeypatch, seed, guards, str(rng.choice(SKIPS)), threads)


# -- when a run is compiled ------------------------------------------------------------------------

LOOP = """.visible .entry k(.param .b64 p0) {
.reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p1;
ld.param.b64 %rd1, [p0];
mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mov.u32 %r3, 1;
mad.wide.u32 %rd2, %r1, 4, %rd1;
LOOP: mad.lo.u32 %r3, %r3, %r1, 7;
xor.b32 %r3, %r3, %r2;
add.u32 %r2, %r2, 1;
setp.lt.u32 %p1, %r2, COUNT;
@%p1 bra LOOP;
st.global.b32 [%rd2+OFFSET], %r3;
ret;
}
"""


def loop(count: int, threads: int = 64, offset: int = 0) -> np.ndarray:
    out = np.zeros(threads, np.uint32)
    run(HEADER + LOOP.replace("COUNT", str(count)).replace("OFFSET", str(offset)), out, block=(threads, 1, 1))
    return out


def expected(count: int, threads: int = 64) -> np.ndarray:
    value, thread = np.ones(threads, np.uint32), np.arange(threads, dtype=np.uint32)
    for i in range(count):
        value = (value * thread + np.uint32(7)) ^ np.uint32(i)
    return value


def test_a_loop_is_compiled_when_it_has_run_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LOADING", 0.0)
    _, executed = _watch_recipes(monkeypatch)
    np.testing.assert_array_equal(loop(20), expected(20))
    assert not executed
    np.testing.assert_array_equal(loop(5000), expected(5000))
    assert set(executed) == {4}  # the setp too; the branch is control
    assert 1000 < len(executed) < 5000


def test_nothing_is_compiled_where_it_is_forbidden(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    _, executed = _watch_recipes(monkeypatch)
    monkeypatch.setenv("CUTETUT_JIT", "0")
    np.testing.assert_array_equal(loop(100), expected(100))
    assert not executed


@pytest.mark.parametrize(("jit", "threads"), [("0", 64), ("1", 64), ("1", 50)])
def test_a_counted_loop_is_compiled_and_counts_the_same(
    jit: str, threads: int, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, executed = _watch_recipes(monkeypatch)
    monkeypatch.setenv("CUTETUT_JIT", jit)
    counter = Counting()
    with observing(counter):
        np.testing.assert_array_equal(loop(100, threads), expected(100, threads))
    assert bool(executed) == (jit == "1")
    total = counter.total()
    kinds = {"mad.u32": 101, "xor.b32": 100, "add.u32": 100, "setp.u32": 100, "mov.u32": 3, "bra": 100}
    assert {kind: total.warps[kind] for kind in kinds} == {kind: 2 * n for kind, n in kinds.items()}
    kinds["bra"] = 99  # taken
    assert {kind: total.threads[kind] for kind in kinds} == {kind: threads * n for kind, n in kinds.items()}


def test_a_step_that_is_timed_is_not_compiled(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    _, executed = _watch_recipes(monkeypatch)
    with observing(Timing()):
        np.testing.assert_array_equal(loop(100), expected(100))
    assert not executed
    loop(100)
    assert executed


@pytest.mark.parametrize("bad", [3, 6])
def test_an_error_between_runs_names_its_own_instruction(bad: int, at_once: None) -> None:
    lines = ["mov.u32 %r1, %tid.x;", "add.u32 %r2, %r1, 1;", "add.u32 %r3, %r2, 1;", "st.global.b32 [%rd1], 5;"]
    lines += ["add.u32 %r2, %r1, 1;", "add.u32 %r3, %r2, 1;", "st.global.b32 [%rd1+4], 6;", "add.u32 %r2, %r3, 1;"]
    lines[bad] = lines[bad].replace("%rd1+4", "%rd1+400").replace("[%rd1]", "[%rd1+400]")
    text = ".visible .entry k(.param .b64 p0) { .reg .b32 %r<9>; .reg .b64 %rd<4>;\nld.param.b64 %rd1, [p0];\n"
    with pytest.raises(OutOfBounds) as caught:
        run(HEADER + text + "\n".join(lines) + "\nret; }", np.zeros(4, np.uint32))
    assert caught.value.place is not None
    assert caught.value.place.ptx_text == lines[bad].rstrip(";")


def test_a_use_of_an_unwritten_register_is_still_found(at_once: None) -> None:
    text = (
        HEADER
        + """.visible .entry k(.param .b64 p0) { .reg .b32 %r<9>; .reg .b64 %rd<4>;
    ld.param.b64 %rd1, [p0]; mov.u32 %r1, 1; add.u32 %r2, %r1, %r3; add.u32 %r4, %r1, %r2;
    st.global.b32 [%rd1], %r4; ret; }"""
    )
    with pytest.raises(Uninitialized):
        run(text, np.zeros(32, np.uint32))


def test_registers_of_a_second_launch_are_its_own(at_once: None) -> None:
    """What was found out about a kernel is kept from launch to launch; addresses are not."""
    module = ptx.parse(HEADER + LOOP.replace("COUNT", "50").replace("OFFSET", "0"))
    for threads in (64, 32, 256):
        out = np.zeros(threads, np.uint32)
        memory = GlobalMemory()
        memory.add(out.ctypes.data, out.nbytes, "out")
        params = [int(out.ctypes.data).to_bytes(8, "little")]
        launch.launch(module, "k", grid=(1, 1, 1), block=(threads, 1, 1), params=params, memory=memory)
        np.testing.assert_array_equal(out, expected(50, threads))
    assert module.kernels["k"].facts.history.recipes


def test_a_kernel_that_was_refused_is_refused_again(at_once: None) -> None:
    """Later launches do not decode arithmetic again, but only of a kernel that was decoded as a whole."""
    text = LOOP.replace("xor.b32 %r3, %r3, %r2;", "add.s16x2 %r2, %r2, %r1; mul.lo.f32 %r3, %r3, %r3;")
    module = ptx.parse(HEADER + text.replace("COUNT", "50").replace("OFFSET", "0"))
    for _ in range(2):
        with pytest.raises(UnknownInstruction):
            launch.launch(module, "k", grid=(1, 1, 1), block=(32, 1, 1), params=[bytes(8)], memory=GlobalMemory())


HOLES = """.visible .entry k(.param .b64 p0, .param .b32 p1) { .reg .b32 %r<12>; .reg .b64 %rd<6>; .reg .pred %p<2>;
    .shared .align 4 .b8 s[512]; ld.param.b64 %rd1, [p0]; ld.param.b32 %r9, [p1]; mov.u32 %r1, %tid.x;
    mov.u32 %r2, s; shl.b32 %r3, %r1, 2; add.u32 %r2, %r2, %r3; setp.lt.u32 %p1, %r1, %r9;
    @%p1 st.shared.b32 [%r2], %r1;
    ld.shared.b32 %r4, [%r2];
    NEXT: add.u32 %r5, %r1, 1; add.u32 %r6, %r5, %r1; selp.b32 %r7, %r4, 7, %p1; add.u32 %r7, %r7, %r6;
    mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
    st.global.b32 [%rd3], %r7; ret; }"""


def test_runs_that_end_elsewhere_in_another_launch_are_others(at_once: None) -> None:
    """A launch that reads unwritten shared memory checks registers that the next one does not."""
    module = ptx.parse(HEADER + HOLES)
    threads = np.arange(128, dtype=np.uint32)
    for written in (64, 128, 64):
        out = np.zeros(128, np.uint32)
        memory = GlobalMemory()
        memory.add(out.ctypes.data, out.nbytes, "out")
        params = [int(out.ctypes.data).to_bytes(8, "little"), written.to_bytes(4, "little")]
        launch.launch(module, "k", grid=(1, 1, 1), block=(128, 1, 1), params=params, memory=memory)
        np.testing.assert_array_equal(out, np.where(threads < written, threads, 7) + 2 * threads + 1)
