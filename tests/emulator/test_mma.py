"""Warp-wide matrix products and moves against float64, with fragments read off the PTX ISA."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from cutetut.emulator.errors import IllegalInstruction, Misaligned, Uninitialized, UnknownInstruction
from tests.emulator.fragments import A_MAPS, B_MAPS, BYTES, UINT, c_map, collect, deal, from_bits, registers, to_bits
from tests.emulator.harness import kernel, run


@dataclass(frozen=True)
class Case:
    shape: str
    d: str
    a: str
    b: str

    @property
    def family(self) -> str:
        return f"{self.a if self.a in ('f64', 'tf32') else 8 * BYTES[self.a]} {self.shape}"

    @property
    def m(self) -> int:
        return int(self.shape[1:].split("n")[0])

    @property
    def k(self) -> int:
        return int(self.shape.split("k")[1])

    def __str__(self) -> str:
        return f"{self.shape}.{self.d}.{self.a}.{self.b}"


INTEGERS = [(a, b) for a in ("s8", "u8") for b in ("s8", "u8")]
FLOATS8 = [(a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
CASES = [
    *(Case(s, d, "f16", "f16") for s in ("m16n8k8", "m16n8k16") for d in ("f16", "f32")),
    *(Case(s, "f32", "bf16", "bf16") for s in ("m16n8k8", "m16n8k16")),
    *(Case(s, "f32", "tf32", "tf32") for s in ("m16n8k4", "m16n8k8")),
    *(Case(s, "f64", "f64", "f64") for s in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")),
    *(Case(s, "s32", a, b) for s in ("m8n8k16", "m16n8k16", "m16n8k32") for a, b in INTEGERS),
    *(Case(s, d, a, b) for s in ("m16n8k16", "m16n8k32") for d in ("f16", "f32") for a, b in FLOATS8),
]


def run_mma(opcode: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, tail: str = "", header: str = "") -> np.ndarray:
    """Execute one mma with the given registers (32, n) in every lane; returns the registers of D."""
    d = np.zeros_like(c)
    wide = c.dtype == np.uint64
    prefix, size, kind = ("%rd", 8, "b64") if wide else ("%r", 4, "b32")
    if wide:
        prefix, kind = "%fd", "f64"
    lines, names, first = [header, "mov.u32 %r120, %laneid;"], [], 0
    for i, x in enumerate((a, b, c)):
        lines += [f"ld.param.b64 %rd50, [p{i}];", f"mad.wide.u32 %rd50, %r120, {size * x.shape[1]}, %rd50;"]
        mine = [f"{prefix}{first + j}" for j in range(x.shape[1])]
        lines += [f"ld.global.{kind} {name}, [%rd50+{size * j}];" for j, name in enumerate(mine)]
        first += x.shape[1]
        names.append("{" + ", ".join(mine) + "}")
    result = [f"{prefix}{first + j}" for j in range(c.shape[1])]
    lines.append(f"{opcode} {{{', '.join(result)}}}, {', '.join(names)}{tail};")
    lines += ["ld.param.b64 %rd50, [p3];", f"mad.wide.u32 %rd50, %r120, {size * c.shape[1]}, %rd50;"]
    lines += [f"st.global.{kind} [%rd50+{size * j}], {name};" for j, name in enumerate(result)]
    run(kernel("\n".join(lines), 4), a, b, c, d)
    return d


def product(case: Case, a: np.ndarray, b: np.ndarray, c: np.ndarray, more: str = "") -> np.ndarray:
    """D of one mma.sync, from and to matrices."""
    bits = run_mma(
        f"mma.sync.aligned.{case.shape}.row.col{more}.{case.d}.{case.a}.{case.b}.{case.d}",
        registers(deal(a, case.a, A_MAPS[case.family])), registers(deal(b, case.b, B_MAPS[case.family])),
        registers(deal(c, case.d, c_map(case.m))),
    )  # fmt: skip
    return collect(bits.view(UINT[BYTES[case.d]]), case.d, (case.m, 8), c_map(case.m))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products_of_integers_are_exact(rng: np.random.Generator, case: Case) -> None:
    low = 0 if "u8" in (case.a, case.b) else -4
    a = rng.integers(low, 5, (case.m, case.k)).astype(float)
    b = rng.integers(low, 5, (case.k, 8)).astype(float)
    c = rng.integers(-64, 65, (case.m, 8)).astype(float)
    np.testing.assert_array_equal(product(case, a, b, c), a @ b + c)


@pytest.mark.parametrize("case", [c for c in CASES if c.d == "s32"], ids=str)
def test_integer_products_over_the_whole_range(rng: np.random.Generator, case: Case) -> None:
    span = {"s8": (-128, 128), "u8": (0, 256)}
    a = rng.integers(*span[case.a], (case.m, case.k)).astype(float)
    b = rng.integers(*span[case.b], (case.k, 8)).astype(float)
    c = rng.integers(-(1 << 31), 1 << 31, (case.m, 8)).astype(float)
    exact = (a @ b + c).astype(np.int64)
    np.testing.assert_array_equal(product(case, a, b, c), (exact & 0xFFFFFFFF).astype(np.uint32).view(np.int32))
    saturated = np.clip(exact, -(1 << 31), (1 << 31) - 1)
    np.testing.assert_array_equal(product(case, a, b, c, ".satfinite"), saturated)


ERROR = {"f64": 2.0**-51, "f32": 2.0**-21, "f16": 2.0**-9}  # of sum |a b| + |c|
ERROR_FLOAT8 = 2.0**-11  # the accumulators of the 8-bit formats are shorter than float32 on Hopper


@pytest.mark.parametrize("case", [c for c in CASES if c.d != "s32"], ids=str)
def test_products_of_fractions_stay_within_the_bound(rng: np.random.Generator, case: Case) -> None:
    a = from_bits(to_bits(rng.normal(size=(case.m, case.k)), case.a), case.a)
    b = from_bits(to_bits(rng.normal(size=(case.k, 8)), case.b), case.b)
    c = from_bits(to_bits(rng.normal(size=(case.m, 8)), case.d), case.d)
    if case.a == "tf32":  # the low 13 bits are ignored, so they may hold anything
        a_used, b_used = ((x.astype(np.float32).view(np.uint32) & 0xFFFFE000).view(np.float32) for x in (a, b))
    else:
        a_used, b_used = a, b
    size = np.abs(a_used) @ np.abs(b_used) + np.abs(c)
    bound = ERROR[case.d] if BYTES[case.a] > 1 else max(ERROR[case.d], ERROR_FLOAT8)
    error = np.abs(product(case, a, b, c) - (a_used.astype(float) @ b_used.astype(float) + c))
    assert (error <= bound * size).all(), (error / size).max()


def test_not_a_number_and_infinity_spread_along_rows_and_columns() -> None:
    case = Case("m16n8k16", "f32", "f16", "f16")
    a, b, c = np.ones((16, 16)), np.ones((16, 8)), np.zeros((16, 8))
    a[3, 5], a[4, 6], b[7, 2] = np.nan, np.inf, -np.inf
    wanted = np.full((16, 8), 16.0)
    wanted[3], wanted[4], wanted[:, 2] = np.nan, np.inf, -np.inf
    wanted[3, 2] = wanted[4, 2] = np.nan
    np.testing.assert_array_equal(product(case, a, b, c), wanted)


def test_two_warps_multiply_their_own_tiles(rng: np.random.Generator) -> None:
    x = rng.integers(0, 1 << 16, 64, dtype=np.uint32) & 0x3C003C00  # halves that are 0 or 1 or a power of two
    text = """mov.u32 %r127, %tid.x; ld.param.b64 %rd1, [p0]; mad.wide.u32 %rd2, %r127, 4, %rd1;
    ld.global.b32 %r1, [%rd2]; mov.b32 %r9, 0;
    mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r2, %r3}, {%r1, %r1}, {%r1}, {%r9, %r9};
    ld.param.b64 %rd1, [p1]; mad.wide.u32 %rd2, %r127, 4, %rd1; st.global.b32 [%rd2], %r2;"""
    both, single = np.zeros(64, np.uint32), np.zeros(32, np.uint32)
    run(kernel(text, 2), x, both, block=(64, 1, 1))
    for warp in (0, 1):
        run(kernel(text, 2), x[32 * warp : 32 * warp + 32].copy(), single)
        np.testing.assert_array_equal(both[32 * warp : 32 * warp + 32], single)


# -- mma.sp ---------------------------------------------------------------------------------------

SPARSE = [
    Case(s, d, t, t) for s in ("m16n8k16", "m16n8k32") for t, d in (("f16", "f16"), ("f16", "f32"), ("bf16", "f32"))
]


@pytest.mark.parametrize("ordered", ["", "::ordered_metadata"])
@pytest.mark.parametrize("case", SPARSE, ids=str)
def test_sparse_products(rng: np.random.Generator, case: Case, ordered: str) -> None:
    """Two of every four elements of A; the metadata word of a row group covers 16 columns of rows g and g + 8."""
    dense, kept = np.zeros((16, case.k)), np.zeros((16, case.k // 2))
    words_per_group = case.k // 16
    for selector in range(4 // words_per_group):
        metadata = np.full(32, 0xEEEEEEEE, np.uint32)  # what the other lanes hold must not matter
        metadata[[4 * g + selector * words_per_group + w for g in range(8) for w in range(words_per_group)]] = 0
        dense[:] = 0
        for row in range(16):
            for quad in range(case.k // 4):
                pair = sorted(rng.choice(4, 2, replace=False).tolist())
                for j, position in enumerate(pair):
                    value = float(rng.integers(-4, 5))
                    kept[row, 2 * quad + j] = dense[row, 4 * quad + position] = value
                    lane = 4 * (row % 8) + selector * words_per_group + quad // 4
                    metadata[lane] |= np.uint32(position << (16 * (row // 8) + 4 * (quad % 4) + 2 * j))
        b, c = rng.integers(-4, 5, (case.k, 8)).astype(float), rng.integers(-64, 65, (16, 8)).astype(float)
        text = f"mma.sp{ordered}.sync.aligned.{case.shape}.row.col.{case.d}.{case.a}.{case.b}.{case.d}"
        half = A_MAPS[f"16 m16n8k{case.k // 2}"]
        c_bits = registers(deal(c, case.d, c_map(16)))
        with_metadata = np.concatenate([c_bits, metadata[:, None]], axis=1)  # loaded like one more register of C
        got = run_sparse(text, registers(deal(kept, case.a, half)), registers(deal(b, case.b, B_MAPS[case.family])),
                         with_metadata, selector)  # fmt: skip
        wanted = dense @ b + c
        np.testing.assert_array_equal(collect(got.view(UINT[BYTES[case.d]]), case.d, (16, 8), c_map(16)), wanted)


def run_sparse(opcode: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, selector: int) -> np.ndarray:
    """Like run_mma; the last register of C is the metadata."""
    count = c.shape[1] - 1
    d, first = np.zeros((32, count), np.uint32), 0
    lines, names = ["mov.u32 %r120, %laneid;"], []
    for i, x in enumerate((a, b, c)):
        lines += [f"ld.param.b64 %rd50, [p{i}];", f"mad.wide.u32 %rd50, %r120, {4 * x.shape[1]}, %rd50;"]
        mine = [f"%r{first + j}" for j in range(x.shape[1])]
        lines += [f"ld.global.b32 {name}, [%rd50+{4 * j}];" for j, name in enumerate(mine)]
        first += x.shape[1]
        names.append(mine)
    metadata = names[2].pop()
    groups = ", ".join("{" + ", ".join(mine) + "}" for mine in names)
    result = [f"%r{first + j}" for j in range(count)]
    lines.append(f"{opcode} {{{', '.join(result)}}}, {groups}, {metadata}, {selector};")
    lines += ["ld.param.b64 %rd50, [p3];", f"mad.wide.u32 %rd50, %r120, {4 * count}, %rd50;"]
    lines += [f"st.global.b32 [%rd50+{4 * j}], {name};" for j, name in enumerate(result)]
    run(kernel("\n".join(lines), 4), a, b, c, d)
    return d


@pytest.mark.emulator
def test_metadata_that_names_an_element_twice_is_an_error() -> None:
    ones = np.full((32, 2), 0x3C003C00, np.uint32)
    with pytest.raises(IllegalInstruction, match="two different elements"):
        run_sparse("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", ones, ones, np.zeros((32, 5), np.uint32), 0)


# -- against CuTe ---------------------------------------------------------------------------------


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("op", "k", "per"),
    [("MmaF16BF16Op", 8, 2), ("MmaF16BF16Op", 16, 2), ("MmaTF32Op", 4, 1), ("MmaTF32Op", 8, 1), ("MmaFP8Op", 16, 4),
     ("MmaFP8Op", 32, 4)],
)  # fmt: skip
def test_fragments_are_those_that_cute_prints(op: str, k: int, per: int) -> None:
    import cutlass
    import cutlass.cute as cute

    from cutetut import layouts
    from cutetut.emulator.units.mma import fragment_a, fragment_b, fragment_c

    def atom() -> cute.TiledMma:
        make = getattr(cute.nvgpu.warp, op)
        kinds = {1: (), 2: (cutlass.Float16, cutlass.Float32), 4: (cutlass.Float8E4M3FN, cutlass.Float32)}[per]
        return cute.make_tiled_mma(make(*kinds, (16, 8, k)))

    def tv_layout(name: str) -> cute.Layout:
        return getattr(atom(), f"tv_layout_{name}_tiled")

    for name, rows, (row, col) in (
        ("A", 16, fragment_a(16, k, per)),
        ("B", 8, fragment_b(k, per)[::-1]),
        ("C", 16, fragment_c(16)),
    ):
        printed = layouts.offsets(partial(tv_layout, name))
        np.testing.assert_array_equal(printed, (row + col * rows).T, err_msg=name)


# -- ldmatrix, stmatrix, movmatrix ----------------------------------------------------------------

COPY_IN = """mov.u32 %r127, %tid.x; ld.param.b64 %rd1, [p0]; mad.wide.u32 %rd2, %r127, 64, %rd1;
shl.b32 %r126, %r127, 6; mov.u32 %r125, smem; add.u32 %r126, %r126, %r125;"""
SMEM = ".shared .align 128 .b8 smem[2048];"


def move_text(instruction: str, count: int, load: bool) -> str:
    """Fill 2 KiB of shared memory from p0, move matrices from or to the rows that p1 lists; p2 holds the registers."""
    names = [f"%r{j}" for j in range(count)]
    lines = [COPY_IN]
    for j in range(0, 64, 16):
        lines += [
            f"ld.global.v4.b32 {{%r20, %r21, %r22, %r23}}, [%rd2+{j}];",
            f"st.shared.v4.b32 [%r126+{j}], {{%r20, %r21, %r22, %r23}};",
        ]
    lines += [
        "bar.sync 0;",
        "ld.param.b64 %rd3, [p1]; mad.wide.u32 %rd4, %r127, 4, %rd3; ld.global.b32 %r30, [%rd4];",
        f"add.u32 %r30, %r30, %r125; ld.param.b64 %rd5, [p2]; mad.wide.u32 %rd6, %r127, {4 * count}, %rd5;",
    ]
    vector = "{" + ", ".join(names) + "}"
    if load:
        lines += [f"{instruction} {vector}, [%r30];"]
        lines += [f"st.global.b32 [%rd6+{4 * j}], {name};" for j, name in enumerate(names)]
        return kernel("\n".join(lines), 3, header=SMEM)
    lines += [f"ld.global.b32 {name}, [%rd6+{4 * j}];" for j, name in enumerate(names)]
    lines += [f"{instruction} [%r30], {vector};", "bar.sync 0;"]
    for j in range(0, 64, 4):
        lines += [f"ld.shared.b32 %r20, [%r126+{j}]; st.global.b32 [%rd2+{j}], %r20;"]
    return kernel("\n".join(lines), 3, header=SMEM)


def row_offsets(rng: np.random.Generator, count: int) -> np.ndarray:
    """A different 16-byte row for each of the first 8 * count lanes; what the others hold must not matter."""
    offsets = np.full(32, 3, np.uint32)
    offsets[: 8 * count] = rng.permutation(128)[: 8 * count] * 16
    return offsets


@pytest.mark.parametrize("space", [".shared", ".shared::cta"])
@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(rng: np.random.Generator, count: int, trans: str, space: str) -> None:
    memory = rng.integers(0, 1 << 16, 1024).astype(np.uint16)
    offsets, out = row_offsets(rng, count), np.zeros((32, count, 2), np.uint16)
    run(move_text(f"ldmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16", count, True), memory, offsets, out)
    for lane in range(32):
        for j in range(count):
            for h in range(2):
                row, column = lane // 4, lane % 4 * 2 + h
                if trans:
                    row, column = column, row
                assert out[lane, j, h] == memory[offsets[8 * j + row] // 2 + column], (lane, j, h)


@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix(rng: np.random.Generator, count: int, trans: str) -> None:
    memory = rng.integers(0, 1 << 16, 1024).astype(np.uint16)
    wanted = memory.copy()
    offsets, values = row_offsets(rng, count), rng.integers(0, 1 << 16, (32, count, 2)).astype(np.uint16)
    for lane in range(32):
        for j in range(count):
            for h in range(2):
                row, column = lane // 4, lane % 4 * 2 + h
                if trans:
                    row, column = column, row
                wanted[offsets[8 * j + row] // 2 + column] = values[lane, j, h]
    run(move_text(f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16", count, False), memory, offsets, values)
    np.testing.assert_array_equal(memory, wanted)


def test_movmatrix(rng: np.random.Generator) -> None:
    x, out = rng.integers(0, 1 << 16, (64, 2)).astype(np.uint16), np.zeros((64, 2), np.uint16)
    text = """mov.u32 %r9, %tid.x; ld.param.b64 %rd1, [p0]; mad.wide.u32 %rd2, %r9, 4, %rd1; ld.global.b32 %r1, [%rd2];
    movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r1;
    ld.param.b64 %rd1, [p1]; mad.wide.u32 %rd2, %r9, 4, %rd1; st.global.b32 [%rd2], %r1;"""
    run(kernel(text, 2), x, out, block=(64, 1, 1))
    for warp in (0, 1):
        matrix = x[32 * warp : 32 * warp + 32].reshape(8, 8)
        np.testing.assert_array_equal(out[32 * warp : 32 * warp + 32].reshape(8, 8), matrix.T)


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.emulator
@pytest.mark.parametrize(
    "form",
    ["mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", "mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16",
     "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16",
     "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32",
     "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32"],
)  # fmt: skip
def test_other_forms_raise_by_name(form: str) -> None:
    registers = "{%r1, %r2, %r3, %r4}, {%r1, %r2, %r3, %r4}, {%r1, %r2}, {%r1, %r2, %r3, %r4}"
    with pytest.raises(UnknownInstruction, match=form.replace(".", r"\.")):
        run(kernel(f"{form} {registers};"), np.zeros(1))


@pytest.mark.emulator
def test_a_fragment_with_too_few_registers_is_refused() -> None:
    with pytest.raises(UnknownInstruction, match="2 registers where the fragment has 4"):
        run(kernel("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1, %r2, %r3, %r4}, {%r1, %r2}, {%r1, %r2}, "
                   "{%r1, %r2, %r3, %r4};"), np.zeros(1))  # fmt: skip


@pytest.mark.emulator
def test_ldmatrix_rows_are_aligned_and_written() -> None:
    load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2];"
    with pytest.raises(Misaligned, match="16-byte access"):
        run(kernel("mov.u32 %r2, smem; add.u32 %r2, %r2, 8; " + load, header=SMEM), np.zeros(1))
    with pytest.raises(Uninitialized, match="nothing has written"):
        run(kernel("mov.u32 %r2, smem; " + load, header=SMEM), np.zeros(1))
