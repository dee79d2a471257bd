"""Randomly generated kernels: the emulator and a GPU (`--gpu`) against a plain Python interpreter of the same program.

A program is a list of operations on eight 32-bit registers per thread: arithmetic, shuffles, votes,
exchanges through shared memory, divergent branches and loops, reductions, and integer mma.  Every
operation knows its PTX and what it does to a list of Python integers, so all three must agree bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.emulator.fragments import A_MAPS, B_MAPS, c_map
from tests.emulator.harness import kernel, run
from tests.seeds import seeds

THREADS, REGISTERS, MASK = 64, 8, 0xFFFFFFFF
State = list[list[int]]  # registers of every thread


def signed(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


def _permuted(both: int, bytes_low_first: tuple[int, ...]) -> int:
    return sum((both >> 8 * byte & 0xFF) << 8 * i for i, byte in enumerate(bytes_low_first))


@dataclass
class Program:
    """PTX text and the same thing as functions on the state of the threads that execute it."""

    lines: list[str] = field(default_factory=list)
    steps: list[Callable[[State, list[int]], None]] = field(default_factory=list)
    labels: int = 0

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"


Expression = Callable[[int, int, int], int]
ARITHMETIC: dict[str, Expression] = {  # PTX with operands d, a, b, c -> value
    "add.u32 {d}, {a}, {b};": lambda a, b, c: a + b,
    "sub.u32 {d}, {a}, {b};": lambda a, b, c: a - b,
    "mul.lo.u32 {d}, {a}, {b};": lambda a, b, c: a * b,
    "mul.hi.u32 {d}, {a}, {b};": lambda a, b, c: a * b >> 32,
    "mul.hi.s32 {d}, {a}, {b};": lambda a, b, c: signed(a) * signed(b) >> 32,
    "mad.lo.u32 {d}, {a}, {b}, {c};": lambda a, b, c: a * b + c,
    "and.b32 {d}, {a}, {b};": lambda a, b, c: a & b,
    "or.b32 {d}, {a}, {b};": lambda a, b, c: a | b,
    "xor.b32 {d}, {a}, {b};": lambda a, b, c: a ^ b,
    "not.b32 {d}, {a};": lambda a, b, c: ~a,
    "neg.s32 {d}, {a};": lambda a, b, c: -a,
    "min.u32 {d}, {a}, {b};": lambda a, b, c: min(a, b),
    "max.s32 {d}, {a}, {b};": lambda a, b, c: max(signed(a), signed(b)),
    "abs.s32 {d}, {a};": lambda a, b, c: abs(signed(a)),
    "shl.b32 {d}, {a}, 5;": lambda a, b, c: a << 5,
    "shr.u32 {d}, {a}, 7;": lambda a, b, c: a >> 7,
    "shr.s32 {d}, {a}, 9;": lambda a, b, c: signed(a) >> 9,
    "shf.l.wrap.b32 {d}, {a}, {b}, {c};": lambda a, b, c: (b << 32 | a) << (c & 31) >> 32,
    "popc.b32 {d}, {a};": lambda a, b, c: a.bit_count(),
    "clz.b32 {d}, {a};": lambda a, b, c: 32 - a.bit_length(),
    "brev.b32 {d}, {a};": lambda a, b, c: int(f"{a:032b}"[::-1], 2),
    "bfe.u32 {d}, {a}, 3, 11;": lambda a, b, c: a >> 3 & 0x7FF,
    "bfi.b32 {d}, {a}, {b}, 4, 9;": lambda a, b, c: b & ~(0x1FF << 4) | (a & 0x1FF) << 4,
    "prmt.b32 {d}, {a}, {b}, 0x6240;": lambda a, b, c: _permuted(b << 32 | a, (0, 4, 2, 6)),
    "lop3.b32 {d}, {a}, {b}, {c}, 0xE8;": lambda a, b, c: a & b | b & c | a & c,
    "dp4a.u32.u32 {d}, {a}, {b}, {c};": lambda a, b, c: (
        c + sum((a >> s & 255) * (b >> s & 255) for s in (0, 8, 16, 24))
    ),
    "sad.u32 {d}, {a}, {b}, {c};": lambda a, b, c: c + abs(a - b),
}


COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "lt.u32": lambda a, b: a < b, "ge.s32": lambda a, b: signed(a) >= signed(b), "eq.u32": lambda a, b: a == b,
    "ne.s32": lambda a, b: a != b, "gt.s32": lambda a, b: signed(a) > signed(b),
}  # fmt: skip


class Generator:
    """Draws operations from a seeded random generator."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.program = Program()

    def pick(self, options: list[str]) -> str:
        return options[int(self.rng.integers(len(options)))]

    def register(self) -> int:
        return int(self.rng.integers(REGISTERS))

    def arithmetic(self) -> None:
        text = self.pick(list(ARITHMETIC))
        value, (d, a, b, c) = ARITHMETIC[text], (self.register() for _ in range(4))
        self.program.lines.append(text.format(d=f"%r{d}", a=f"%r{a}", b=f"%r{b}", c=f"%r{c}"))

        def step(state: State, threads: list[int]) -> None:
            for t in threads:
                state[t][d] = value(state[t][a], state[t][b], state[t][c]) & MASK

        self.program.steps.append(step)

    def select(self) -> None:
        name, (d, a, b) = self.pick(list(COMPARISONS)), (self.register() for _ in range(3))
        self.program.lines.append(f"setp.{name} %p1, %r{a}, %r{b}; selp.b32 %r{d}, %r{b}, %r{a}, %p1;")

        def step(state: State, threads: list[int]) -> None:
            for t in threads:
                x, y = state[t][a], state[t][b]
                state[t][d] = y if COMPARISONS[name](x, y) else x

        self.program.steps.append(step)

    def float_of_integers(self) -> None:
        """Sums and products of small integers are exact in float32."""
        d, a, b, c = (self.register() for _ in range(4))
        self.program.lines.append(
            f"and.b32 %r20, %r{a}, 1023; and.b32 %r21, %r{b}, 1023; and.b32 %r22, %r{c}, 4095; "
            "cvt.rn.f32.u32 %f0, %r20; cvt.rn.f32.u32 %f1, %r21; cvt.rn.f32.u32 %f2, %r22; "
            f"fma.rn.f32 %f0, %f0, %f1, %f2; sub.f32 %f0, %f0, %f1; cvt.rzi.s32.f32 %r{d}, %f0;"
        )

        def step(state: State, threads: list[int]) -> None:
            for t in threads:
                x, y, z = state[t][a] & 1023, state[t][b] & 1023, state[t][c] & 4095
                state[t][d] = (x * y + z - y) & MASK

        self.program.steps.append(step)

    # -- all threads together -----------------------------------------------------------------

    def shuffle(self) -> None:
        d, a, distance = self.register(), self.register(), int(self.rng.integers(1, 32))
        self.program.lines.append(f"shfl.sync.bfly.b32 %r{d}, %r{a}, {distance}, 31, -1;")

        def step(state: State, threads: list[int]) -> None:
            old = [state[t][a] for t in range(THREADS)]
            for t in threads:
                state[t][d] = old[t ^ distance]

        self.program.steps.append(step)

    def vote(self) -> None:
        d, a, b = (self.register() for _ in range(3))
        self.program.lines.append(f"setp.lt.u32 %p1, %r{a}, %r{b}; vote.sync.ballot.b32 %r{d}, %p1, -1;")

        def step(state: State, threads: list[int]) -> None:
            bits = [state[t][a] < state[t][b] for t in range(THREADS)]
            for t in threads:
                first = t // 32 * 32
                state[t][d] = sum(bits[first + lane] << lane for lane in range(32))

        self.program.steps.append(step)

    def reduce(self) -> None:
        d, a = self.register(), self.register()
        self.program.lines.append(f"redux.sync.add.s32 %r{d}, %r{a}, -1;")

        def step(state: State, threads: list[int]) -> None:
            sums = [sum(state[t][a] for t in range(32 * w, 32 * w + 32)) & MASK for w in range(THREADS // 32)]
            for t in threads:
                state[t][d] = sums[t // 32]

        self.program.steps.append(step)

    def exchange(self) -> None:
        """Through shared memory, each thread reads what another one wrote."""
        d, a = self.register(), self.register()
        shift, odd = int(self.rng.integers(64)), int(self.rng.integers(32)) * 2 + 1
        self.program.lines.append(
            f"mad.lo.u32 %r20, %r31, 4, %r30; st.shared.b32 [%r20], %r{a}; bar.sync 0; "
            f"mad.lo.u32 %r20, %r31, {odd}, {shift}; and.b32 %r20, %r20, 63; mad.lo.u32 %r20, %r20, 4, %r30; "
            f"ld.shared.b32 %r{d}, [%r20]; bar.sync 0;"
        )

        def step(state: State, threads: list[int]) -> None:
            old = [state[t][a] for t in range(THREADS)]
            for t in threads:
                state[t][d] = old[(t * odd + shift) % THREADS]

        self.program.steps.append(step)

    def count(self) -> None:
        """Threads add into eight words of shared memory; the order does not matter."""
        d, a, b = (self.register() for _ in range(3))
        self.program.lines.append(
            "mov.u32 %r20, 0; and.b32 %r21, %r31, 7; mad.lo.u32 %r21, %r21, 4, %r30; st.shared.b32 [%r21], %r20; "
            "bar.sync 0; "
            f"and.b32 %r22, %r{a}, 7; mad.lo.u32 %r22, %r22, 4, %r30; red.shared.add.u32 [%r22], %r{b}; bar.sync 0; "
            f"ld.shared.b32 %r{d}, [%r21]; bar.sync 0;"
        )

        def step(state: State, threads: list[int]) -> None:
            words = [0] * 8
            for t in threads:
                words[state[t][a] & 7] += state[t][b]
            for t in threads:
                state[t][d] = words[t & 7] & MASK

        self.program.steps.append(step)

    def multiply(self) -> None:
        """m16n8k16 of bytes: A is two registers, B one, C and D four."""
        a, c = (self.rng.permutation(REGISTERS)[:count].tolist() for count in (2, 4))
        b = self.register()
        names = [", ".join(f"%r{r}" for r in rows) for rows in (c, a, [b], c)]
        self.program.lines.append(
            "mma.sync.aligned.m16n8k16.row.col.s32.s8.u8.s32 " + ", ".join("{" + n + "}" for n in names) + ";"
        )

        def step(state: State, threads: list[int]) -> None:
            for first in range(0, THREADS, 32):
                lanes = [[state[first + lane][r] for r in (*a, b, *c)] for lane in range(32)]
                for lane, values in enumerate(_multiply(lanes)):
                    for r, value in zip(c, values, strict=True):
                        state[first + lane][r] = value

        self.program.steps.append(step)

    # -- control flow -------------------------------------------------------------------------

    def branch(self) -> None:
        name, a, b = self.pick(list(COMPARISONS)), self.register(), self.register()
        otherwise, end = self.program.label(), self.program.label()
        self.program.lines.append(f"setp.{name} %p2, %r{a}, %r{b}; @!%p2 bra {otherwise};")
        then = self.body()
        self.program.lines.append(f"bra {end}; {otherwise}:")
        other = self.body()
        self.program.lines.append(f"{end}:")

        def step(state: State, threads: list[int]) -> None:
            taken = [t for t in threads if COMPARISONS[name](state[t][a], state[t][b])]
            rest = [t for t in threads if t not in set(taken)]
            for chosen, steps in ((taken, then), (rest, other)):
                for inner in steps:
                    inner(state, chosen)

        self.program.steps.append(step)

    def loop(self) -> None:
        a, again = self.register(), self.program.label()
        self.program.lines.append(f"and.b32 %r25, %r{a}, 7; {again}:")
        body = self.body()
        self.program.lines.append(f"sub.u32 %r25, %r25, 1; setp.ge.s32 %p3, %r25, 0; @%p3 bra {again};")

        def step(state: State, threads: list[int]) -> None:
            left = {t: (state[t][a] & 7) + 1 for t in threads}
            while running := [t for t in threads if left[t]]:
                for inner in body:
                    inner(state, running)
                for t in running:
                    left[t] -= 1

        self.program.steps.append(step)

    def body(self) -> list[Callable[[State, list[int]], None]]:
        """Operations of single threads, taken out of the program's list of steps."""
        outside, self.program.steps = self.program.steps, []
        for _ in range(int(self.rng.integers(1, 5))):
            [self.arithmetic, self.select, self.float_of_integers][int(self.rng.integers(3))]()
        mine, self.program.steps = self.program.steps, outside
        return mine

    def build(self, count: int) -> Program:
        alone = [self.arithmetic, self.select, self.float_of_integers, self.branch, self.loop]
        together = [self.shuffle, self.vote, self.reduce, self.exchange, self.count, self.multiply]
        for _ in range(count):
            group = alone if self.rng.random() < 0.6 else together
            group[int(self.rng.integers(len(group)))]()
        return self.program


def _multiply(lanes: list[list[int]]) -> list[list[int]]:
    """mma.m16n8k16.s32.s8.u8.s32 of one warp: registers (a0, a1, b, c0..c3) of each lane -> d0..d3."""
    a, b, place = np.zeros((16, 16), np.int64), np.zeros((16, 8), np.int64), c_map(16)
    for lane, (a0, a1, b0, *_) in enumerate(lanes):
        g, t = lane // 4, lane % 4
        for i in range(8):
            byte = (a0 if i < 4 else a1) >> 8 * (i % 4) & 0xFF
            a[A_MAPS["8 m16n8k16"](i, g, t)] = byte - 256 * (byte >> 7)
        for i in range(4):
            b[B_MAPS["8 m16n8k16"](i, g, t)] = b0 >> 8 * i & 0xFF
    product = a @ b
    return [
        [(int(product[place(i, lane // 4, lane % 4)]) + registers[3 + i]) & MASK for i in range(4)]
        for lane, registers in enumerate(lanes)
    ]


@pytest.mark.parametrize("seed", seeds(60))
def test_random_program(seed: int) -> None:
    program = Generator(seed).build(25)
    rng = np.random.default_rng(1000 + seed)
    start = rng.integers(0, 1 << 32, (THREADS, REGISTERS), dtype=np.uint32)
    start[:, :2] = rng.integers(0, 50, (THREADS, 2))  # small values too, so that comparisons go both ways
    out = start.copy()
    loads = "".join(f"ld.global.b32 %r{i}, [%rd1+{4 * i}];" for i in range(REGISTERS))
    stores = "".join(f"st.global.b32 [%rd1+{4 * i}], %r{i};" for i in range(REGISTERS))
    text = f"""mov.u32 %r31, %tid.x; mov.u32 %r30, smem; ld.param.b64 %rd0, [p0];
    mad.wide.u32 %rd1, %r31, {4 * REGISTERS}, %rd0; {loads}
    {chr(10).join(program.lines)}
    {stores}"""
    run(kernel(text, header=f".shared .align 4 .b8 smem[{4 * THREADS}];"), out, block=(THREADS, 1, 1))
    state: State = [[int(v) for v in row] for row in start]
    for step in program.steps:
        step(state, list(range(THREADS)))
    np.testing.assert_array_equal(out, np.array(state, np.uint32))
