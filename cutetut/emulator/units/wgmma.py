"""Warpgroup matrix multiply: D = A B + D by 128 threads, asynchronously (PTX ISA section 9.7.15).

Four warps hold D (64 x N) in registers, A comes from shared memory or registers, B from shared
memory.  A 64-bit descriptor says where the 8 x 16-byte core matrices of an operand lie; the tensor
core computes every address itself.  Results exist after wgmma.wait_group, not before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..checks.async_ordering import AsyncOrdering
from ..checks.ordering import Ordering
from ..errors import IllegalInstruction
from ..machine.memory import SHARED_BASE
from ..machine.opcodes import Selection, Step, opcode, unsupported
from ..machine.pending import Operation
from ..machine.ranges import Ranges
from ..machine.threads import WARPGROUP
from ..numbers.matrix_formats import NBYTES, to_float64
from ..numbers.rounding import UINT
from ..ptx.syntax import Immediate, Operand, Vector
from .wgmma_fragments import Fragment
from .wgmma_operands import Descriptor as Descriptor
from .wgmma_operands import Place, a_from_registers
from .wgmma_operands import a_register_map as a_register_map
from .wgmma_operands import accumulator_map as accumulator_map
from .wgmma_operands import operand_offsets as operand_offsets
from .wgmma_registers import Wgmma, registers_of, shape_of

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction


@opcode("wgmma.fence", unit="wgmma", role="fences", forms=".sync.aligned",
        section="9.7.15.7.1", results=0, joins="warpgroup",
        ends_block=True)  # fmt: skip
def decode_fence(inst: Instruction, machine: Machine) -> Step:
    """Order the registers' earlier accesses before the WGMMAs that follow."""
    following = machine.block_after(inst)

    def step(sel: Selection) -> int:
        machine.unit(Wgmma).fence(sel)
        machine.unit(Ordering).sync_lanes(sel)  # all lanes are here, and have done what comes before
        return following

    return step


@opcode("wgmma.commit_group", unit="wgmma", forms=".sync.aligned", section="9.7.15.7.2", results=0,
        joins="warpgroup", ends_block=True)  # fmt: skip
def decode_commit(inst: Instruction, machine: Machine) -> Step:
    """Close the warpgroup's group of WGMMAs."""
    following = machine.block_after(inst)

    def step(sel: Selection) -> int:
        for group in machine.unit(Wgmma).split(sel):
            machine.unit(Wgmma).groups.setdefault(group, []).append(machine.unit(Wgmma).open.pop(group, []))
        return following

    return step


@opcode("wgmma.wait_group", unit="wgmma", role="waits", forms=".sync.aligned N", section="9.7.15.7.3", results=0,
        joins="warpgroup", ends_block=True)  # fmt: skip
def decode_wait(inst: Instruction, machine: Machine) -> Step:
    """Wait until at most N of the warpgroup's groups are under way."""
    following = machine.block_after(inst)
    if not isinstance(inst.operands[0], Immediate):
        raise unsupported(inst, "the count must be a constant")
    keep = int(inst.operands[0].value)

    def step(sel: Selection) -> int:
        for group in machine.unit(Wgmma).split(sel):
            machine.unit(Wgmma).wait(group, keep, inst)
        machine.unit(Ordering).sync_lanes(sel)
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


@opcode("wgmma.mma_async", unit="wgmma", role="multiplies", starts="WGMMA",
        section="9.7.15.5", joins="warpgroup", ends_block=True, adds_if=3,
        forms=".sync.aligned.m64nNkK.{f16 f32 s32}.{f16 bf16 tf32 e4m3 e5m2 s8 u8}: A from shared memory or registers, "
              "B from shared memory, both majors for 16-bit types, negation, scale-d, all swizzles")  # fmt: skip
def decode_mma(inst: Instruction, machine: Machine) -> Step:
    """Issue one 64 x N x K product for each warpgroup."""
    return Product(inst, machine).step


@dataclass(frozen=True, eq=False)
class Sources:
    """Where the operands in shared memory lie, for one set of descriptors; addresses are shared ones."""

    places: tuple[Place, ...]
    located: dict[int, tuple[np.ndarray, tuple[Ranges, ...]]] = field(default_factory=dict)

    @cached_property
    def chunks(self) -> np.ndarray:
        """The addresses of all their chunks."""
        return np.concatenate([place.chunks for place in self.places])

    def at(self, base: int, origin: int) -> tuple[np.ndarray, tuple[Ranges, ...]]:
        """The numbers of all chunks, counted from `origin`, and the ranges; `base` is address 0 of a CTA."""
        if base not in self.located:
            ranges = tuple(Ranges(base + p.boundary, p.geometry.starts, p.geometry.ends) for p in self.places)
            self.located[base] = self.chunks + (base - origin) >> 4, ranges
        return self.located[base]


class Product:
    """One wgmma.mma_async of a kernel."""

    def __init__(self, inst: Instruction, machine: Machine) -> None:
        self.inst, self.machine, self.state = inst, machine, machine.unit(Wgmma)
        self.shape = shape = Shape.of(inst)
        d, a, b, scale_d, *flags = inst.operands
        self.a_in_registers = isinstance(a, Vector)
        *self.factors, self.transpose = _flags(inst, shape, flags, self.a_in_registers)
        self.d = self._fragment(d)
        self.a = self._fragment(a) if self.a_in_registers else None
        self.keep = machine.predicate(scale_d)
        self.descriptors = [machine.source(x, np.uint64) for x in ((b,) if self.a_in_registers else (a, b))]
        self.names = "B" if self.a_in_registers else "AB"
        self.sources: dict[tuple[int, ...], Sources] = {}  # by their descriptors' bits
        self.what = f"the WGMMA m64n{shape.n}k{shape.k}"
        self.following = machine.block_after(inst)

    def _fragment(self, operand: Operand) -> Fragment:
        if not isinstance(operand, Vector):
            raise unsupported(self.inst, "a vector of registers is needed")
        for register in operand.items:
            self.machine.bank_row(register)
        return self.state.fragments[registers_of(operand)]

    def step(self, sel: Selection) -> int:
        """Issue it for the warpgroups of a selection."""
        groups = self.state.split(sel)
        keeps = self._uniform(self.keep(sel), groups, "scale-d").tolist()
        rows = [
            self._uniform(row[sel], groups, f"the descriptor of operand {name}").tolist()
            for name, row in zip(self.names, self.descriptors, strict=True)
        ]
        for group, keep, *bits in zip(groups, keeps, *rows, strict=True):
            self._issue(group, keep, tuple(bits))
        return self.following

    def _uniform(self, values: np.ndarray, groups: list[int], what: str) -> np.ndarray:
        """A value for each warpgroup; raises where its threads have different ones (section 9.7.15.5.1.2.2)."""
        of_groups = values.reshape(-1, WARPGROUP)
        different = of_groups != of_groups[:, :1]
        if not different.any():
            return of_groups[:, 0]
        which, thread = (int(i) for i in np.argwhere(different)[0])
        first, other = of_groups[which, 0], of_groups[which, thread]
        shown = [str(bool(v)) if v.dtype == np.bool_ else f"{int(v):#x}" for v in (first, other)]
        warp = self.machine.in_cta[groups[which]] // 32
        raise IllegalInstruction(
            f"{what} is not the same in all threads of the warpgroup: {shown[0]} in lane 0 of warp {warp}, {shown[1]} "
            f"in lane {thread % 32} of warp {warp + thread // 32}",
            threads=np.array([groups[which] + thread]),
            hint="compute it from values that all four warps share, such as the warpgroup's number and not the warp's",
        )

    def _issue(self, group: int, keep: bool, bits: tuple[int, ...]) -> None:
        machine, state = self.machine, self.state
        for role, fragment in (("D", self.d), ("A", self.a)):
            if fragment is not None:
                state.check_fenced(fragment, group)
                if fragment.contested:
                    state.check_uses(fragment, role, shape_of(self.inst), group)
        sources = self.sources.get(bits)
        if sources is None:
            sources = self.sources[bits] = self._located(bits, group)
        base, shared, order = int(machine.shared.base[group]), machine.shared, machine.unit(AsyncOrdering)
        unwritten = state.operands.check(sources.places, base, group, self.inst)
        chunks, reads = sources.at(base, shared.origin)
        agent = state.agent(group)
        time = order.next_time(agent)
        order.note_reading(chunks, agent, time, self.inst.index)

        def run() -> None:
            product = multiply(self._left(sources, base, group), self._read(sources, base, group, -1))
            if unwritten is not None and self.shape.d != "s32":
                product[unwritten] = np.nan
            state.accumulate(self.d, group, self.shape.d, product, keep, self.shape.saturate)
            state.finished(operation)

        operation = Operation(self.what, self.inst, group, run, reads=reads)
        operation.time = time
        state.issue(operation, self.d, self.a)

    def _located(self, bits: tuple[int, ...], group: int) -> Sources:
        """Where these descriptors point to; raises where that is outside the CTA's shared memory."""
        shape, places, nbytes = self.shape, [], self.machine.shared.nbytes
        for name, value in zip(self.names, bits, strict=True):
            which = "AB".index(name)
            rows, kind = (64, shape.n)[which], (shape.a, shape.b)[which]
            place = Place.of(name, value, rows, shape.k, NBYTES[kind], bool(self.transpose[which]))
            if place.high > SHARED_BASE + nbytes or place.low < SHARED_BASE:
                raise IllegalInstruction(
                    f"operand {name} reaches from shared offset {place.low - SHARED_BASE} to "
                    f"{place.high - SHARED_BASE}; the CTA has {nbytes} bytes", threads=np.array([group]),
                    hint="the descriptor's strides and the shared-memory layout it was made from",
                )  # fmt: skip
            places.append(place)
        return Sources(tuple(places))

    def _read(self, sources: Sources, base: int, group: int, which: int) -> np.ndarray:
        """The elements of A (which = 0) or B (-1) in shared memory as float64."""
        kind, cta = (self.shape.a, self.shape.b)[which], int(self.machine.cta_of[group])
        return self.state.operands.read(sources.places[which], base, kind, self.factors[which], cta)

    def _left(self, sources: Sources, base: int, group: int) -> np.ndarray:
        """The elements of A, 64 x K, wherever they are."""
        if self.a is None:
            return self._read(sources, base, group, 0)
        kind, nbytes = self.shape.a, NBYTES[self.shape.a]
        for fragment in (self.a, *self.a.overlapping):  # it may have been D
            self.state.flush(fragment, slice(group, group + WARPGROUP))
        raw = self.machine.bank[self.a.bank, group : group + WARPGROUP]  # (registers, threads) of 32 bits
        elements: np.ndarray = np.ascontiguousarray(raw.T).view(UINT[nbytes]).ravel()  # low parts first
        matrix = to_float64(elements.take(a_from_registers(self.shape.k, 4 // nbytes), mode="clip"), kind)
        return matrix if self.factors[0] == 1 else matrix * self.factors[0]


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


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A (M x K) times B (N x K) transposed, exactly up to float64 rounding."""
    return a @ b.T
