"""Small random programs as trees, turned into PTX by one function and executed thread by thread by another.

The interpreter knows nothing of PTX, warps or scheduling: each thread is a Python generator that
runs alone and only stops where all threads exchange a value.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np

MASK = 0xFFFFFFFF
VARIABLES = 6
Operand = str | int  # "v3", "tid" or a constant


def signed(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


OPERATIONS: dict[str, Callable[[int, int], int]] = {  # PTX mnemonic: Python on unsigned 32-bit numbers
    "add.u32": lambda a, b: a + b,
    "sub.u32": lambda a, b: a - b,
    "mul.lo.u32": lambda a, b: a * b,
    "mul.hi.s32": lambda a, b: signed(a) * signed(b) >> 32,
    "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b,
    "xor.b32": lambda a, b: a ^ b,
    "min.u32": lambda a, b: min(a, b),
    "max.s32": lambda a, b: max(signed(a), signed(b)),
    "shl.b32": lambda a, b: a << b if b < 32 else 0,
    "shr.u32": lambda a, b: a >> b if b < 32 else 0,
    "shr.s32": lambda a, b: signed(a) >> min(b, 31),
}
COMPARES: dict[str, Callable[[int, int], bool]] = {
    "lt.u32": lambda a, b: a < b,
    "ge.s32": lambda a, b: signed(a) >= signed(b),
    "eq.u32": lambda a, b: a == b,
    "ne.s32": lambda a, b: a != b,
}


@dataclass(frozen=True)
class Assign:
    to: str
    operation: str
    a: Operand
    b: Operand


@dataclass(frozen=True)
class If:
    compare: str
    a: Operand
    b: Operand
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]


@dataclass(frozen=True)
class Loop:
    """Runs (count & mask) times, at least once; the number may differ from thread to thread."""

    count: Operand
    mask: int
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Exchange:
    """Every thread gets the value of the thread `shift` further on in its block."""

    to: str
    value: Operand
    shift: int


Statement = Assign | If | Loop | Exchange


# -- making programs ------------------------------------------------------------------------------


class Maker:
    """Draws a random program; exchanges only stand where every thread of the block comes by."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def pick(self, choices: list[str]) -> str:
        return choices[int(self.rng.integers(len(choices)))]

    def operand(self) -> Operand:
        kind = self.rng.random()
        if kind < 0.65:
            return f"v{self.rng.integers(VARIABLES)}"
        return "tid" if kind < 0.85 else int(self.rng.integers(0, 40))

    def block(self, depth: int, uniform: bool) -> tuple[Statement, ...]:
        return tuple(self.statement(depth, uniform) for _ in range(int(self.rng.integers(1, 6))))

    def statement(self, depth: int, uniform: bool) -> Statement:
        kind = self.rng.random()
        target = f"v{self.rng.integers(VARIABLES)}"
        if uniform and kind < 0.25:
            return Exchange(target, self.operand(), int(self.rng.integers(0, 70)))
        if depth and kind < 0.45:
            return If(
                self.pick(list(COMPARES)), self.operand(), self.operand(), self.block(depth - 1, False),
                self.block(depth - 1, False) if self.rng.random() < 0.6 else (),
            )  # fmt: skip
        if depth and kind < 0.6:
            if uniform and self.rng.random() < 0.5:
                return Loop(int(self.rng.integers(1, 4)), 3, self.block(depth - 1, True))
            return Loop(self.operand(), 7, self.block(depth - 1, False))
        return Assign(target, self.pick(list(OPERATIONS)), self.operand(), self.operand())

    def program(self) -> tuple[Statement, ...]:
        return tuple(s for _ in range(4) for s in self.block(3, True))


# -- to PTX ---------------------------------------------------------------------------------------


class Writer:
    """The PTX of a program for one block size: variable k is %r(10+k), tid is %r1."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.lines: list[str] = []
        self.labels = 0

    def register(self, operand: Operand) -> str:
        if operand == "tid":
            return "%r1"
        return f"%r{10 + int(operand[1:])}" if isinstance(operand, str) else str(operand)

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def write(self, program: tuple[Statement, ...], depth: int = 0) -> None:
        for statement in program:
            if isinstance(statement, Assign):
                to, a, b = map(self.register, (statement.to, statement.a, statement.b))
                self.lines.append(f"{statement.operation} {to}, {a}, {b};")
            elif isinstance(statement, If):
                self.write_if(statement, depth)
            elif isinstance(statement, Loop):
                self.write_loop(statement, depth)
            else:
                self.write_exchange(statement)

    def write_if(self, s: If, depth: int) -> None:
        otherwise, end = self.label(), self.label()
        self.lines.append(f"setp.{s.compare} %p{depth}, {self.register(s.a)}, {self.register(s.b)};")
        self.lines.append(f"@!%p{depth} bra {otherwise};")
        self.write(s.then, depth + 1)
        self.lines.append(f"bra {end}; {otherwise}:")
        self.write(s.otherwise, depth + 1)
        self.lines.append(f"{end}:")

    def write_loop(self, s: Loop, depth: int) -> None:
        start, counter = self.label(), f"%r{40 + depth}"
        self.lines.append(f"and.b32 {counter}, {self.register(s.count)}, {s.mask}; {start}:")
        self.write(s.body, depth + 1)
        self.lines.append(f"sub.s32 {counter}, {counter}, 1; setp.gt.s32 %p{depth}, {counter}, 0;")
        self.lines.append(f"@%p{depth} bra {start};")

    def write_exchange(self, s: Exchange) -> None:
        self.lines.append(
            f"st.shared.b32 [%r3], {self.register(s.value)}; add.u32 %r4, %r1, {s.shift}; rem.u32 %r4, %r4, "
            f"{self.threads}; mad.lo.u32 %r4, %r4, 4, %r2; bar.sync 0; ld.shared.b32 {self.register(s.to)}, [%r4]; "
            "bar.sync 0;"
        )


def to_ptx(program: tuple[Statement, ...], threads: int) -> str:
    """The body of a kernel: variables start as multiples of the thread number, all are stored to p0 at the end."""
    writer = Writer(threads)
    writer.write(program)
    start = [
        f".shared .align 4 .b32 s[{threads}]; mov.u32 %r1, %tid.x; mov.u32 %r2, s; mad.lo.u32 %r3, %r1, 4, %r2;",
        *(f"mul.lo.u32 %r{10 + k}, %r1, {2 * k + 1};" for k in range(VARIABLES)),
    ]
    end = [
        f"ld.param.b64 %rd1, [p0]; mad.wide.u32 %rd2, %r1, {4 * VARIABLES}, %rd1;",
        *(f"st.global.b32 [%rd2+{4 * k}], %r{10 + k};" for k in range(VARIABLES)),
    ]
    return "\n".join([*start, *writer.lines, *end])


# -- the oracle -----------------------------------------------------------------------------------


class Thread:
    """One thread's variables; `run` yields what it gives away and is sent what everybody gave."""

    def __init__(self, tid: int) -> None:
        self.tid = tid
        self.variables = [tid * (2 * k + 1) & MASK for k in range(VARIABLES)]

    def value(self, operand: Operand) -> int:
        if operand == "tid":
            return self.tid
        return self.variables[int(operand[1:])] if isinstance(operand, str) else operand

    def set(self, name: str, value: int) -> None:
        self.variables[int(name[1:])] = value & MASK

    def run(self, program: tuple[Statement, ...]) -> Generator[int, list[int], None]:
        for s in program:
            if isinstance(s, Assign):
                self.set(s.to, OPERATIONS[s.operation](self.value(s.a), self.value(s.b)))
            elif isinstance(s, If):
                yield from self.run(s.then if COMPARES[s.compare](self.value(s.a), self.value(s.b)) else s.otherwise)
            elif isinstance(s, Loop):
                for _ in range(max(1, self.value(s.count) & s.mask)):
                    yield from self.run(s.body)
            else:
                everybody = yield self.value(s.value)
                self.set(s.to, everybody[(self.tid + s.shift) % len(everybody)])


def interpret(program: tuple[Statement, ...], threads: int) -> np.ndarray:
    """The final variables of every thread of one block, uint32 (threads, VARIABLES)."""
    block = [Thread(tid) for tid in range(threads)]
    running = [thread.run(program) for thread in block]
    given = [next(r, None) for r in running]
    while any(g is not None for g in given):
        everybody = [g for g in given if g is not None]
        assert len(everybody) == threads  # exchanges are uniform
        given = [_send(r, everybody) for r in running]
    return np.array([thread.variables for thread in block], np.uint32)


def _send(thread: Generator[int, list[int], None], everybody: list[int]) -> int | None:
    try:
        return thread.send(everybody)
    except StopIteration:
        return None
