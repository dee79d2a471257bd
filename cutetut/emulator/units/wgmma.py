"""Warpgroup matrix multiply: D = A B + D by 128 threads, asynchronously (PTX ISA section 9.7.15).

Four warps hold D (64 x N) in registers, A comes from shared memory or registers, B from shared
memory.  A 64-bit descriptor says where the 8 x 16-byte core matrices of an operand lie; the tensor
core computes every address itself.  Results exist after wgmma.wait_group, not before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..checks.async_ordering import AsyncOrdering
from ..checks.swizzles import Swizzles
from ..errors import IllegalInstruction, InFlight, MissingFence
from ..machine.memory import HOST, SHARED_BASE, index, threads_of
from ..machine.opcodes import Selection, Step, UnitState, opcode, state, unsupported
from ..machine.pending import Operation
from ..machine.ranges import Ranges, joined
from ..machine.threads import WARPGROUP
from ..numbers.matrix_formats import NBYTES, add_rounded, to_float64
from ..numbers.rounding import UINT
from ..ptx.syntax import Immediate, Operand, Register, Vector
from .tma import swizzled

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction

NEVER = -1  # no wgmma.fence yet
SWIZZLE_CHUNKS = {0: 1, 1: 8, 2: 4, 3: 2}  # descriptor code -> 16-byte chunks per row of the pattern
FENCE = "wgmma.fence (warpgroup.fence) before the first WGMMA and after every other use of its registers"
TMA_CODE = {0: 0, 1: 3, 2: 2, 3: 1}  # the tensor map counts the other way


@dataclass(frozen=True)
class Descriptor:
    """A matrix descriptor (PTX ISA section 9.7.15.5.1.2.2); offsets in bytes."""

    start: int
    leading: int
    stride: int
    base_offset: int
    swizzle: int

    @classmethod
    def decode(cls, bits: int) -> Descriptor:
        return cls(
            start=(bits & 0x3FFF) << 4,
            leading=(bits >> 16 & 0x3FFF) << 4,
            stride=(bits >> 32 & 0x3FFF) << 4,
            base_offset=bits >> 49 & 7,
            swizzle=bits >> 62 & 3,
        )


@lru_cache(maxsize=128)
def operand_offsets(
    rows: int, k: int, nbytes: int, mn_major: bool, swizzle: int, leading: int, stride: int
) -> np.ndarray:
    """Byte offset of element (row, k) from the start address, before the swizzle; shape (rows, k).

    The canonical layouts of PTX ISA section 9.7.15.5.1.2.1, T elements to 16 bytes, S chunks to a row.
    """
    t, s = 16 // nbytes, SWIZZLE_CHUNKS[swizzle]
    r, c = np.arange(rows)[:, None], np.arange(k)[None, :]
    if not mn_major:
        if swizzle:
            return r % 8 * (16 * s) + r // 8 * stride + c * nbytes
        return r % 8 * 16 + r // 8 * stride + c % t * nbytes + c // t * leading
    if swizzle:
        return r % t * nbytes + r // t % s * 16 + r // (t * s) * leading + c % 8 * (16 * s) + c // 8 * stride
    return r % t * nbytes + r // t * stride + c % 8 * 16 + c // 8 * leading


@lru_cache(maxsize=8)
def accumulator_map(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of (value, thread) of D, 64 x n; shape (n // 2, 128) (figure in section 9.7.15.5.1.1)."""
    v, t = np.arange(n // 2)[:, None], np.arange(WARPGROUP)[None, :]
    row = t // 32 * 16 + t % 32 // 4 + v // 2 % 2 * 8
    col = t % 4 * 2 + v % 2 + v // 4 * 8
    return np.broadcast_to(row, (n // 2, WARPGROUP)), np.broadcast_to(col, (n // 2, WARPGROUP))


@lru_cache(maxsize=8)
def a_register_map(k: int, per_register: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and k of (element, thread) of A from registers, 64 x k: the A fragment of mma.m16n8k16, per warp."""
    e, t = np.arange(64 * k // WARPGROUP)[:, None], np.arange(WARPGROUP)[None, :]
    p = per_register
    row = t // 32 * 16 + t % 32 // 4 + e // p % 2 * 8
    col = t % 4 * p + e % p + e // (2 * p) * (4 * p)
    return np.broadcast_to(row, e.shape[:1] + (WARPGROUP,)), np.broadcast_to(col, e.shape[:1] + (WARPGROUP,))


@state
class Wgmma(UnitState):
    """Operations and groups of each warpgroup, and which registers belong to them."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.rows: dict[str, int] = {}  # register -> row of the two tables below
        for inst in machine.kernel.body:
            if inst.opcode.startswith("wgmma.mma_async"):
                for register in _registers(*inst.operands[:2]):
                    self.rows.setdefault(register.name, len(self.rows))
        self.busy = np.zeros((len(self.rows), machine.T), np.uint16)  # WGMMAs in flight that own the register
        # since wgmma.fence: 0, or 1 + the instruction that wrote the register, or -1 before the first fence
        self.touched = np.full((len(self.rows), machine.T), NEVER, np.int32)
        self.reset()

    def reset(self) -> None:
        self.busy[:] = 0
        self.touched[:] = NEVER
        self.open: dict[int, list[Operation]] = {}
        self.groups: dict[int, list[list[Operation]]] = {}
        self.last: dict[int, Operation] = {}
        self.in_flight: list[tuple[Operation, np.ndarray, np.ndarray]] = []

    def split(self, sel: Selection) -> list[np.ndarray]:
        """The warpgroups of a selection, each as its 128 thread numbers."""
        threads = threads_of(sel)
        if len(threads) % WARPGROUP or (self.machine.in_cta[threads[::WARPGROUP]] % WARPGROUP).any():
            raise IllegalInstruction(
                "a warpgroup instruction needs four whole warps, the first with a number that is a multiple of 4",
                threads=threads[:1],
            )
        return list(threads.reshape(-1, WARPGROUP))

    def check_access(self, rows: list[int], sel: Selection, results: list[int]) -> None:
        """An ordinary instruction touches registers: none of them may be in flight."""
        for row in rows:
            busy = self.busy[row, sel] != 0
            if busy.any():
                verb = "written" if row in results else "read"
                raise self._still_busy(row, int(threads_of(sel)[busy][0]), verb)

    def _still_busy(self, row: int, thread: int, verb: str) -> InFlight:
        name = next(n for n, r in self.rows.items() if r == row)
        op = next(o for o, mine, threads in self.in_flight if row in mine and thread in threads)
        is_result = name in {register.name for register in _registers(op.inst.operands[0])}
        role, also = ("accumulators are", "") if is_result else ("A fragment is", ", as a part of its A fragment")
        group = thread - thread % WARPGROUP
        open_groups = len(self.groups.get(group, []))
        if op in self.open.get(group, []):
            hint = "warpgroup.commit_group, then wait_group: this WGMMA is in no group yet, so no wait includes it"
        else:
            hint = (f"warpgroup.wait_group(0) before the {role} used; {open_groups} committed groups of this "
                    "warpgroup are still under way")  # fmt: skip
        error = InFlight(
            f"register {name} is {verb} while {op.what} is still under way and owns it{also}",
            threads=np.array([thread]), hint=hint,
        )  # fmt: skip
        self.machine.scheduler.note(error, op.inst, op.thread, "the WGMMA was issued here")
        return error

    def check_fenced(self, held: np.ndarray, threads: np.ndarray) -> None:
        """A WGMMA starts: its registers have not been written since the last wgmma.fence."""
        touched = self.touched[held, threads[0] : threads[0] + WARPGROUP]
        if not touched.any():
            return
        writer = int(touched[touched != 0][0])
        first = threads[:1]
        if writer == NEVER:
            raise MissingFence(
                "a WGMMA without any wgmma.fence before it: its registers may still be on their way", threads=first,
                hint=FENCE,
            )  # fmt: skip
        column = np.flatnonzero((touched == writer).any(axis=0))[0]
        error = MissingFence(
            "registers of this WGMMA were written since the last wgmma.fence", threads=threads[column : column + 1],
            hint=FENCE,
        )  # fmt: skip
        inst = self.machine.kernel.body[writer - 1]
        self.machine.scheduler.note(error, inst, int(threads[column]), "they were written here")
        raise error

    def issue(self, operation: Operation, registers: np.ndarray, threads: np.ndarray) -> None:
        """Start a WGMMA of one warpgroup; it follows the warpgroup's previous one."""
        group = int(threads[0])
        previous = self.last.get(group)
        operation.after = previous if previous is not None and not previous.done else None
        self.last[group] = operation
        self.open.setdefault(group, []).append(operation)
        self.busy[registers, threads[0] : threads[0] + WARPGROUP] += 1
        self.in_flight.append((operation, registers, threads))
        self.machine.pending.issue(operation)

    def finished(self, operation: Operation) -> None:
        """Registers are free again unless a later WGMMA of the chain holds them."""
        at = next(i for i, entry in enumerate(self.in_flight) if entry[0] is operation)
        _, registers, threads = self.in_flight.pop(at)
        self.busy[registers, threads[0] : threads[0] + WARPGROUP] -= 1

    def wait(self, group: int, keep: int) -> None:
        groups = self.groups.get(group, [])
        ready, self.groups[group] = groups[: max(0, len(groups) - keep)], groups[max(0, len(groups) - keep) :]
        operations = [op for g in ready for op in g]
        for operation in operations:
            self.machine.pending.complete(operation)
        if operations:
            last = max(operation.time for operation in operations)
            self.machine.unit(AsyncOrdering).waited(np.arange(group >> 5, (group >> 5) + 4), self.agent(group), last)

    def agent(self, group: int) -> int:
        """The column in the clocks of the WGMMAs of the warpgroup whose first thread this is."""
        return self.machine.unit(AsyncOrdering).agent("wgmma", group, group)


@opcode("wgmma.fence", unit="wgmma", forms=".sync.aligned", section="9.7.15.7.1", results=0, joins="warpgroup",
        ends_block=True)  # fmt: skip
def decode_fence(inst: Instruction, machine: Machine) -> Step:
    """Order the registers' earlier accesses before the WGMMAs that follow."""
    following = machine.block_after(inst)

    def step(sel: Selection) -> int:
        machine.unit(Wgmma).touched[:, sel] = 0
        return following

    return step


@opcode("wgmma.commit_group", unit="wgmma", forms=".sync.aligned", section="9.7.15.7.2", results=0,
        joins="warpgroup", ends_block=True)  # fmt: skip
def decode_commit(inst: Instruction, machine: Machine) -> Step:
    """Close the warpgroup's group of WGMMAs."""
    following = machine.block_after(inst)

    def step(sel: Selection) -> int:
        for threads in machine.unit(Wgmma).split(sel):
            group = int(threads[0])
            machine.unit(Wgmma).groups.setdefault(group, []).append(machine.unit(Wgmma).open.pop(group, []))
        return following

    return step


@opcode("wgmma.wait_group", unit="wgmma", forms=".sync.aligned N", section="9.7.15.7.3", results=0,
        joins="warpgroup", ends_block=True)  # fmt: skip
def decode_wait(inst: Instruction, machine: Machine) -> Step:
    """Wait until at most N of the warpgroup's groups are under way."""
    following = machine.block_after(inst)
    if not isinstance(inst.operands[0], Immediate):
        raise unsupported(inst, "the count must be a constant")
    keep = int(inst.operands[0].value)

    def step(sel: Selection) -> int:
        for threads in machine.unit(Wgmma).split(sel):
            machine.unit(Wgmma).wait(int(threads[0]), keep)
        return following

    return step


LEGAL: dict[tuple[str, str], tuple[str, ...]] = {  # types of A and B -> types of D (section 9.7.15.2)
    ("f16", "f16"): ("f16", "f32"), ("bf16", "bf16"): ("f32",), ("tf32", "tf32"): ("f32",),
    **{(a, b): ("f16", "f32") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")},
    **{(a, b): ("s32",) for a in ("s8", "u8") for b in ("s8", "u8")},
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """What a wgmma.mma_async multiplies: m64 nN kK, element formats of D, A and B."""

    n: int
    k: int
    d: str
    a: str
    b: str
    saturate: bool

    @classmethod
    def of(cls, inst: Instruction) -> Shape:
        """Read the shape from the opcode; raises UnknownInstruction for an illegal one (section 9.7.15.2)."""
        words = [p for p in inst.parts[2:] if p not in ("sync", "aligned", "satfinite")]
        shape, d, a, b = (*words, "", "", "", "")[:4]
        found = re.fullmatch(r"m64n(\d+)k(\d+)", shape)
        n, k = (int(x) for x in found.groups()) if found else (0, 0)
        integer = a in ("s8", "u8")
        legal_n = n % 8 == 0 and 8 <= n <= 256 and (not integer or n in (8, 24) or n % 16 == 0)
        if (a, b) not in LEGAL or k != 32 // NBYTES[a] or not legal_n or d not in LEGAL[a, b]:
            raise unsupported(inst, "not a legal shape and type combination")
        saturate = "satfinite" in inst.parts
        if len(words) > 4 or (saturate and not integer):
            raise unsupported(inst, f"modifier .{words[4] if len(words) > 4 else 'satfinite'}")
        return cls(n, k, d, a, b, saturate)


@opcode("wgmma.mma_async", unit="wgmma", section="9.7.15.5", joins="warpgroup", ends_block=True,
        forms=".sync.aligned.m64nNkK.{f16 f32 s32}.{f16 bf16 tf32 e4m3 e5m2 s8 u8}: A from shared memory or registers, "
              "B from shared memory, both majors for 16-bit types, negation, scale-d, all swizzles")  # fmt: skip
def decode_mma(inst: Instruction, machine: Machine) -> Step:
    """Issue one 64 x N x K product for each warpgroup."""
    shape = Shape.of(inst)
    d, a, b, scale_d, *flags = inst.operands
    a_in_registers = isinstance(a, Vector)
    negate_a, negate_b, transpose = _flags(inst, shape, flags, a_in_registers)
    keep_d = machine.predicate(scale_d)
    registers = _vector_rows(inst, machine, d)
    a_registers = _vector_rows(inst, machine, a) if a_in_registers else np.zeros(0, np.intp)
    held = np.array([machine.unit(Wgmma).rows[r.name] for r in _registers(d, a)], np.intp)
    descriptors = [machine.source(x, np.uint64) for x in ((b,) if a_in_registers else (a, b))]
    following = machine.block_after(inst)

    def issue(threads: np.ndarray) -> None:
        first = threads[:1]
        machine.unit(Wgmma).check_fenced(held, threads)
        agent = machine.unit(Wgmma).agent(int(first[0]))
        time = machine.unit(AsyncOrdering).next_time(agent)
        operands = [_shared_operand(machine, inst, int(row[first[0]]), shape, i + a_in_registers, transpose, first,
                                    agent, time)
                    for i, row in enumerate(descriptors)]  # fmt: skip
        reads = tuple(operand.ranges for operand in operands)
        keep, group = bool(keep_d(first)[0]), slice(int(first[0]), int(first[0]) + WARPGROUP)

        def run() -> None:
            left = _a_from_registers(machine, a_registers, group, shape) if a_in_registers else operands[0].read()
            product = multiply(left * negate_a, operands[-1].read() * negate_b)
            _accumulate(machine, registers, group, shape, product, keep)
            machine.unit(Wgmma).finished(operation)

        operation = Operation(f"the WGMMA m64n{shape.n}k{shape.k}", inst, int(first[0]), run, reads=reads)
        operation.time = time
        machine.unit(Wgmma).issue(operation, held, threads)

    def step(sel: Selection) -> int:
        for threads in machine.unit(Wgmma).split(sel):
            issue(threads)
        return following

    return step


def _flags(
    inst: Instruction, shape: Shape, flags: list[Operand], a_in_registers: bool
) -> tuple[int, int, tuple[int, int]]:
    """Factors of A and B (1 or -1, none for integers) and which of them is MN-major (16-bit types only)."""
    values = [int(f.value) for f in flags if isinstance(f, Immediate)]
    majors = (1 if a_in_registers else 2) if NBYTES[shape.a] == 2 else 0
    if len(values) != len(flags) or len(values) != (0 if shape.d == "s32" else 2 + majors):
        raise unsupported(inst, "scale and transpose flags must be the constants that its types have")
    negate, major = values[:2] or [1, 1], values[2:]
    if not set(negate) <= {1, -1} or not set(major) <= {0, 1}:
        raise unsupported(inst, "scale flags are 1 or -1, transpose flags 0 or 1")
    if not majors:
        return negate[0], negate[1], (0, 0)
    return negate[0], negate[1], (0 if a_in_registers else major[0], major[-1])


def _registers(*operands: Operand) -> list[Register]:
    """The registers of D, and of A where it is a vector and not a descriptor."""
    return [r for o in operands if isinstance(o, Vector) for r in o.items if isinstance(r, Register)]


def _vector_rows(inst: Instruction, machine: Machine, operand: Operand) -> np.ndarray:
    """Rows of the 32-bit register bank that a register vector names."""
    if not isinstance(operand, Vector):
        raise unsupported(inst, "a vector of registers is needed")
    return np.array([machine.bank_row(r) for r in operand.items], np.intp)


@dataclass(frozen=True)
class _Geometry:
    """Where an operand lies, in bytes from the 1 KiB boundary below its start: where that is makes no difference."""

    elements: np.ndarray  # (rows, k)
    chunks: np.ndarray  # the 16-byte chunks it takes, sorted
    starts: np.ndarray  # and the ranges that these make up
    ends: np.ndarray


@lru_cache(maxsize=256)
def _geometry(rows: int, k: int, nbytes: int, mn_major: bool, descriptor: Descriptor) -> _Geometry:
    offsets = operand_offsets(rows, k, nbytes, mn_major, descriptor.swizzle, descriptor.leading, descriptor.stride)
    shift = descriptor.base_offset << 7
    elements = swizzled(descriptor.start + offsets - shift, TMA_CODE[descriptor.swizzle]) + shift
    chunks = np.unique(elements >> 4) << 4
    return _Geometry(elements, chunks, *joined(chunks, 16))


@dataclass(frozen=True)
class _SharedOperand:
    """The elements of A (64 x K) or B (N x K) in host memory: offsets from a multiple of 1 KiB."""

    base: int
    geometry: _Geometry
    chunks: np.ndarray  # their numbers in the shared memory of all CTAs
    format: str

    @property
    def ranges(self) -> Ranges:
        return Ranges(self.base, self.geometry.starts, self.geometry.ends)

    def read(self) -> np.ndarray:
        nbytes = NBYTES[self.format]
        raw = HOST[nbytes][index(self.geometry.elements + self.base, nbytes)]
        return to_float64(raw, self.format)


def _shared_operand(
    machine: Machine, inst: Instruction, bits: int, shape: Shape, which: int, transpose: tuple[int, int],
    first: np.ndarray, agent: int, time: int,
) -> _SharedOperand:  # fmt: skip
    """Where the operand lies; checks that it is there and visible to the async proxy."""
    descriptor = Descriptor.decode(bits)
    boundary = descriptor.start & ~0x3FF
    kind, rows, name = (shape.a, shape.b)[which], (64, shape.n)[which], "AB"[which]
    geometry = _geometry(
        rows, shape.k, NBYTES[kind], bool(transpose[which]), replace(descriptor, start=descriptor.start & 0x3FF)
    )
    low, high = boundary + int(geometry.starts[0]), boundary + int(geometry.ends[-1])
    if high > SHARED_BASE + machine.shared.nbytes or low < SHARED_BASE:
        raise IllegalInstruction(
            f"operand {name} reaches from shared offset {low - SHARED_BASE} to {high - SHARED_BASE}; the CTA has "
            f"{machine.shared.nbytes} bytes",
            threads=first, hint="the descriptor's strides and the shared-memory layout it was made from",
        )  # fmt: skip
    base = boundary + int(machine.shared.base[first[0]])
    at = (geometry.chunks + base - machine.shared.origin) >> 4
    verb = f"operand {name} of the WGMMA reads"
    machine.unit(AsyncOrdering).reading(at, int(first[0]), WARPGROUP, inst.index, verb, agent, time)
    machine.unit(Swizzles).check(at, TMA_CODE[descriptor.swizzle], inst, int(first[0]), name)
    return _SharedOperand(base, geometry, at, kind)


def _a_from_registers(machine: Machine, rows: np.ndarray, threads: slice, shape: Shape) -> np.ndarray:
    nbytes = NBYTES[shape.a]
    raw = machine.bank[rows, threads]  # (registers, threads) of 32 bits
    elements: np.ndarray = np.ascontiguousarray(raw.T).view(UINT[nbytes]).T  # (elements, threads), low part first
    matrix = np.zeros((64, shape.k))
    matrix[a_register_map(shape.k, 4 // nbytes)] = to_float64(elements, shape.a)
    return matrix


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A (M x K) times B (N x K) transposed, exactly up to float64 rounding."""
    return a @ b.T


def _accumulate(
    machine: Machine, rows: np.ndarray, threads: slice, shape: Shape, product: np.ndarray, keep: bool
) -> None:
    """D = product + D, rounded once to D's type; the hardware leaves order and rounding open (section 9.7.15.5)."""
    values: type = {"f32": np.float32, "f16": np.float16, "s32": np.int32}[shape.d]
    packed = shape.d == "f16"  # two values to a register, the even one in its low half
    old: np.ndarray = np.zeros(1, values)
    if keep:
        raw = machine.bank[rows, threads]  # (registers, threads)
        old = np.ascontiguousarray(raw.T).view(values).T if packed else raw.view(values)
    bits = add_rounded(product[accumulator_map(shape.n)], old, shape.d, shape.saturate)
    machine.bank[rows, threads] = np.ascontiguousarray(bits.T).view(np.uint32).T if packed else bits
