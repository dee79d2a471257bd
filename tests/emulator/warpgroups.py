"""One warpgroup's matrix products in PTX: their forms, the places of fragments, and a run of a chain of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tests.emulator.canonical import Operand, compact
from tests.emulator.fragments import A_MAPS, BYTES, UINT, from_bits, to_bits
from tests.emulator.harness import kernel, run


@dataclass(frozen=True)
class Form:
    """wgmma.mma_async.m64nNkK.d.a.b and its immediate operands."""

    n: int
    d: str
    a: str
    b: str
    negate_a: int = 1
    negate_b: int = 1
    satfinite: bool = False

    @property
    def k(self) -> int:
        return 32 // BYTES[self.a]

    @property
    def registers(self) -> int:
        return self.n // 2 * BYTES[self.d] // 4

    def opcode(self) -> str:
        more = ".satfinite" if self.satfinite else ""
        return f"wgmma.mma_async.sync.aligned.m64n{self.n}k{self.k}{more}.{self.d}.{self.a}.{self.b}"

    def __str__(self) -> str:
        return f"{self.d}.{self.a}.{self.b}"


PRODUCTS = [
    *(Form(8, d, "f16", "f16") for d in ("f16", "f32")), Form(8, "f32", "bf16", "bf16"), Form(8, "f32", "tf32", "tf32"),
    *(Form(8, d, a, b) for d in ("f16", "f32") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    *(Form(8, "s32", a, b) for a in ("s8", "u8") for b in ("s8", "u8")),
]  # fmt: skip


F16, BF16, TF32 = Form(64, "f32", "f16", "f16"), Form(64, "f32", "bf16", "bf16"), Form(64, "f32", "tf32", "tf32")


def legal_n(form: Form) -> Iterator[int]:
    for n in range(8, 257, 8):
        if form.d != "s32" or n in (8, 16, 24) or n % 16 == 0:
            yield n


@functools.cache
def d_places(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of d[i] of every thread: (128, n / 2); the figure of section 9.7.15.5.1.1."""
    rows = np.array(
        [[t // 32 * 16 + t % 32 // 4 + (8 if i % 4 >= 2 else 0) for i in range(n // 2)] for t in range(128)]
    )
    cols = np.array([[i // 4 * 8 + t % 4 * 2 + i % 2 for i in range(n // 2)] for t in range(128)])
    return rows, cols


def a_fragments(matrix: np.ndarray, kind: str) -> np.ndarray:
    """A in registers: warp w holds rows 16 w to 16 w + 15 as the mma.m16n8k fragment; (128, 4) registers."""
    place = A_MAPS[f"{'tf32' if kind == 'tf32' else 8 * BYTES[kind]} m16n8k{matrix.shape[1]}"]
    fragments = []
    for thread in range(128):
        g, t = thread % 32 // 4, thread % 4
        at = [place(i, g, t) for i in range(matrix.shape[1] // 2)]
        fragments.append([matrix[thread // 32 * 16 + row, col] for row, col in at])
    return to_bits(np.array(fragments), kind).view(np.uint32)


def wgmma_text(form: Form, words: int, from_registers: bool, steps: int, major: tuple[int, int], scale_d: str) -> str:
    """Copy an image to shared memory, then D = A B + D in `steps` instructions.

    p0: the image; p1: (A descriptor, B descriptor, A start, B start) of each step; p2: D; p3: A in registers.
    """
    count = form.registers
    d = "{" + ", ".join(f"%d{i}" for i in range(count)) + "}"
    lines = [
        f".reg .b32 %d<{count}>; .reg .b32 %a<{4 * steps}>;",
        "mov.u32 %r0, %tid.x; mov.u32 %r1, dyn; ld.param.b64 %rd0, [p0]; mov.u32 %r2, %r0;",
        f"COPY: setp.ge.u32 %p1, %r2, {words}; @%p1 bra COPIED; mad.wide.u32 %rd1, %r2, 16, %rd0;",
        "ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd1]; shl.b32 %r3, %r2, 4; add.u32 %r3, %r3, %r1;",
        "st.shared.v4.b32 [%r3], {%r4, %r5, %r6, %r7}; add.u32 %r2, %r2, 128; bra COPY;",
        "COPIED: fence.proxy.async.shared::cta; bar.sync 0;",
        f"ld.param.b64 %rd2, [p2]; mad.wide.u32 %rd2, %r0, {4 * count}, %rd2; ld.param.b64 %rd3, [p1];",
        f"ld.param.b64 %rd4, [p3]; mad.wide.u32 %rd4, %r0, {16 * steps}, %rd4;",
    ]
    lines += [f"ld.global.b32 %d{i}, [%rd2+{4 * i}];" for i in range(count)]
    if from_registers:
        lines += [f"ld.global.b32 %a{i}, [%rd4+{4 * i}];" for i in range(4 * steps)]
    for step in range(steps):
        for which in (0, 1):
            lines += [
                f"ld.global.b64 %rd{10 + 2 * step + which}, [%rd3+{32 * step + 8 * which}];",
                f"ld.global.b32 %r10, [%rd3+{32 * step + 16 + 8 * which}]; add.u32 %r10, %r10, %r1;",
                "shr.u32 %r10, %r10, 4; cvt.u64.u32 %rd6, %r10;",
                f"or.b64 %rd{10 + 2 * step + which}, %rd{10 + 2 * step + which}, %rd6;",
            ]
    flags = [] if form.d == "s32" else [form.negate_a, form.negate_b]
    if BYTES[form.a] == 2:
        flags += [major[1]] if from_registers else list(major)
    lines += [f"setp.ne.b32 %p2, {scale_d}, 0;", "wgmma.fence.sync.aligned;"]
    for step in range(steps):
        a = "{" + ", ".join(f"%a{4 * step + i}" for i in range(4)) + "}" if from_registers else f"%rd{10 + 2 * step}"
        rest = "".join(f", {f}" for f in flags)
        lines.append(f"{form.opcode()} {d}, {a}, %rd{11 + 2 * step}, {'%p2' if step == 0 else '%p3'}{rest};")
    lines += ["wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"]
    lines += [f"st.global.b32 [%rd2+{4 * i}], %d{i};" for i in range(count)]
    lines.insert(0, "setp.eq.b32 %p3, 0, 0;")
    text = kernel("\n".join(lines), 4, header=".extern .shared .align 1024 .b8 dyn[];")
    return text.replace(") {\n", ")\n.maxntid 128, 1, 1 {\n", 1)


@dataclass(frozen=True)
class Step:
    """One instruction of a chain: where its operands lie; A is None where it comes from registers."""

    a: Operand | None
    b: Operand


def multiply(
    form: Form, steps: list[Step], a: list[np.ndarray], b: list[np.ndarray], d: np.ndarray, scale_d: str = "1",
    image: np.ndarray | None = None, unwritten: int = 0, change: tuple[str, str] = ("", ""),
) -> np.ndarray:  # fmt: skip
    """D after all steps: a[i] is 64 x k, b[i] is n x k; operands are placed in the image (bytes) here.

    unwritten: so many bytes at the image's end stay as they were in shared memory; change: of the kernel's text.
    """
    operands = [o for step in steps for o in (step.a, step.b) if o is not None]
    if image is None:
        image = np.full(-(-max(o.end for o in operands) // 16) * 16, 0xEE, np.uint8)
    table = np.zeros((len(steps), 4), np.uint64)
    for step, left, right, row in zip(steps, a, b, table, strict=True):
        if step.a is not None:
            step.a.place(image, left, form.a)
            row[0], row[2] = step.a.descriptor, step.a.start
        step.b.place(image, right, form.b)
        row[1], row[3] = step.b.descriptor, step.b.start
    from_registers = steps[0].a is None
    fragments = np.zeros((128, 4 * len(steps)), np.uint32)
    if from_registers:
        fragments = np.concatenate([a_fragments(x, form.a) for x in a], axis=1)
    places = d_places(form.n)
    registers = np.ascontiguousarray(to_bits(d[places], form.d)).view(np.uint32)
    first = steps[0]
    major = (int(first.a is not None and first.a.mn_major), int(first.b.mn_major))
    text = wgmma_text(form, (len(image) - unwritten) // 16, from_registers, len(steps), major, scale_d)
    assert change[0] in text
    text = text.replace(*change) if change[0] else text
    run(text, image, table, registers, np.ascontiguousarray(fragments), block=(128, 1, 1), dynamic_smem=len(image))
    found = np.full((64, form.n), np.nan)
    found[places] = from_bits(registers.view(UINT[BYTES[form.d]]), form.d)
    return found


def integers(rng: np.random.Generator, form: Form) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    a = rng.integers(0 if form.a == "u8" else -4, 5, (64, form.k)).astype(float)
    b = rng.integers(0 if form.b == "u8" else -4, 5, (form.n, form.k)).astype(float)
    return a, b, rng.integers(-64, 65, (64, form.n)).astype(float)


def behind(first: Operand, second: Operand) -> Operand:
    """The second operand moved behind the first, to the next 1 KiB boundary."""
    return replace(second, start=-(-first.end // 1024) * 1024)


def simple(form: Form, in_registers: bool, swizzle: int = 128) -> Step:
    """K-major operands one behind the other."""
    a = compact(64, form.k, BYTES[form.a], False, swizzle)
    b = compact(form.n, form.k, BYTES[form.b], False, swizzle)
    return Step(None, b) if in_registers else Step(a, behind(a, b))
