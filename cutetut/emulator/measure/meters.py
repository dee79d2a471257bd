"""What one execution of an instruction adds to a tally besides itself: memory traffic and arithmetic.

A meter is made when its instruction is decoded and sees the threads that execute it, before they do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..machine.memory import LOCAL_WINDOW, SHARED_WINDOW, threads_of
from ..machine.opcodes import Selection
from ..machine.operands import addresses, elements_of
from ..machine.shared import RANK_SHIFT
from ..machine.threads import WARPGROUP
from ..numbers.matrix_formats import NBYTES
from ..ptx.syntax import BYTES, Immediate, Instruction, Symbol, Vector
from ..units.atomics import Atomic
from ..units.loadstore import Operands
from ..units.mma import LEGAL, LEGAL_SPARSE
from ..units.mma import Form as MmaForm
from ..units.tensormap import TensorMap
from ..units.tma import TensorOperand
from ..units.wgmma import Shape as WgmmaShape
from .coalescing import atomic_sectors, copy_wavefronts, matrix_wavefronts, sectors, wavefronts
from .tally import GLOBAL, SHARED, Tally, Traffic

if TYPE_CHECKING:
    from ..machine.machine import Machine

Meter = Callable[[Selection], None]
WITH_WAVEFRONTS = {"ld", "st"}  # shared atomics take passes of their own, which no rule here gives

# -- accesses of threads --------------------------------------------------------------------------


class _Accesses:
    """Counts accesses of nbytes per thread wherever their addresses lie."""

    def __init__(self, machine: Machine, tally: Tally, operation: str, nbytes: int) -> None:
        self.machine, self.tally, self.operation, self.nbytes = machine, tally, operation, nbytes

    def count(self, space: str, address: np.ndarray, threads: np.ndarray) -> None:
        if not address.size:
            return
        if space == GLOBAL:
            self.to_global(address, threads)
        elif space == SHARED:
            self.to_shared(address, threads)
        elif space == "generic":
            self.to_generic(address, threads)
        else:
            self._add(space, threads)

    def to_generic(self, address: np.ndarray, threads: np.ndarray) -> None:
        """The window of each address decides (PTX ISA section 5.4)."""
        in_shared, in_local = (address & SHARED_WINDOW) != 0, (address & LOCAL_WINDOW) != 0
        self.count(SHARED, address[in_shared] - SHARED_WINDOW, threads[in_shared])
        self.count("local", address[in_local], threads[in_local])
        neither = ~(in_shared | in_local)
        self.count(GLOBAL, address[neither], threads[neither])

    def to_global(self, address: np.ndarray, threads: np.ndarray) -> None:
        traffic = self.tally.at(GLOBAL, self.operation)
        warp = self.machine.warp_of[threads]
        requests, touched = sectors(address, self.nbytes, warp)
        traffic.requests += requests
        traffic.sectors += atomic_sectors(address, warp) if self.operation in ("atom", "red") else touched
        traffic.asked += self.nbytes * len(threads)

    def to_shared(self, address: np.ndarray, threads: np.ndarray) -> None:
        """An address with another CTA's rank is an access to the cluster's distributed shared memory."""
        machine = self.machine
        if machine.shared.clustered:
            abroad = address >> RANK_SHIFT != machine.shared.rank_of[threads]
            if abroad.any():
                self._add("cluster", threads[abroad])
                address, threads = address[~abroad], threads[~abroad]
                if not address.size:
                    return
        self._add(SHARED, threads)
        traffic = self.tally.at(SHARED, self.operation)
        _cover(traffic, address, self.nbytes)
        if self.operation in WITH_WAVEFRONTS:
            warp, lane = machine.warp_of[threads], threads % 32
            traffic.took(*wavefronts(address, self.nbytes, warp, lane, load=self.operation == "ld"))

    def _add(self, space: str, threads: np.ndarray) -> None:
        traffic = self.tally.at(space, self.operation)
        traffic.requests += len(np.unique(self.machine.warp_of[threads]))
        traffic.asked += self.nbytes * len(threads)


def _cover(traffic: Traffic, address: np.ndarray, nbytes: int) -> None:
    """Take in shared accesses, whose addresses in a cluster have the CTA's rank above the offset."""
    offset = address & ((1 << RANK_SHIFT) - 1)
    traffic.cover(int(offset.min()), int(offset.max()) + nbytes)


def _load_or_store(inst: Instruction, machine: Machine, tally: Tally) -> Meter | None:
    operation = "st" if inst.parts[0] == "st" else "ld"
    access = Operands(inst, machine)
    if access.space == "param":
        return None  # parameters are constants of the instructions that use them
    space = access.space
    if isinstance(access.where.base, Symbol) and space != "const":
        space = machine.symbol_space(access.where.base.name)
    counted = _Accesses(machine, tally, operation, access.total)
    return lambda sel: counted.count(space, access.address(sel), threads_of(sel))


def _atomic(inst: Instruction, machine: Machine, tally: Tally) -> Meter:
    atomic = Atomic(inst, machine, 1 if inst.parts[0] == "atom" else 0)
    counted = _Accesses(machine, tally, inst.parts[0], atomic.total)
    return lambda sel: counted.count(atomic.form.space, atomic.address(sel), threads_of(sel))


def _copy(inst: Instruction, machine: Machine, tally: Tally) -> Meter:
    """cp.async: a global load and a shared store in one; a source size of zero loads nothing."""
    to, source, size, *rest = inst.operands
    assert isinstance(size, Immediate)
    if "L2::cache_hint" in inst.parts:
        rest = rest[:-1]
    get_to, get_from = addresses(inst, machine, to), addresses(inst, machine, source)
    taken = machine.source(rest[0], np.uint32) if rest else None
    nbytes = int(size.value)
    counted = _Accesses(machine, tally, "cp.async", nbytes)

    def meter(sel: Selection) -> None:
        threads = threads_of(sel)
        put, origin = get_to(threads), get_from(threads)
        reads = np.full(len(threads), True) if taken is None else taken[threads] > 0
        counted.count(SHARED, put, threads)
        counted.count(GLOBAL, origin[reads], threads[reads])
        warp, lane = machine.warp_of[threads], threads % 32
        if "ca" in inst.parts:
            passes = copy_wavefronts(origin, reads, put, nbytes, warp, lane)
        else:  # past L1: the copies of chapter 09 are as slow as their stores would be
            passes = wavefronts(put, nbytes, warp, lane, load=False)
        tally.at(SHARED, "cp.async").took(*passes)

    return meter


def _remote(inst: Instruction, machine: Machine, tally: Tally) -> Meter:
    """st.async and red.async: registers to a CTA of the cluster, usually another one."""
    to, value = inst.operands[:2]
    address = addresses(inst, machine, to)
    count = len(elements_of(value))
    counted = _Accesses(machine, tally, ".".join(inst.parts[:2]), count * BYTES[inst.parts[-1]])
    return lambda sel: counted.count(SHARED, address(sel), threads_of(sel))


def _matrix_rows(inst: Instruction, machine: Machine, tally: Tally) -> Meter:
    """ldmatrix and stmatrix: eight lanes name the rows of each matrix."""
    operation = inst.parts[0]
    where = inst.operands[operation == "ldmatrix"]
    address = addresses(inst, machine, where)
    count = next(int(p[1]) for p in inst.parts if p in ("x1", "x2", "x4"))

    def meter(sel: Selection) -> None:
        naming = threads_of(sel).reshape(-1, 32)[:, : 8 * count]
        rows = address(naming.ravel())
        traffic = tally.at(SHARED, operation)
        _cover(traffic, rows, 16)
        traffic.requests += len(naming)
        traffic.asked += 16 * naming.size
        traffic.took(*matrix_wavefronts(rows.reshape(-1, 8)))

    return meter


# -- copy engines and matrix units ----------------------------------------------------------------


def _tensor_copy(inst: Instruction, machine: Machine, tally: Tally) -> Meter:
    """TMA: out-of-bounds elements are not read or written in global memory; a multicast is read once."""
    operation = "tma load"
    if "bulk_group" in inst.parts:
        operation = "tma reduce" if inst.parts[1] == "reduce" else "tma store"
    load = operation == "tma load"
    tensor = TensorOperand(inst, machine, inst.operands[1 if load else 0])
    mask = machine.source(inst.operands[3], np.uint16) if "multicast::cluster" in inst.parts else None

    def meter(sel: Selection) -> None:
        for thread in threads_of(sel).tolist():
            box, coordinates = tensor.at(thread)
            copies = 1 if mask is None else int(mask[thread]).bit_count()
            for space, nbytes in ((GLOBAL, inside_bytes(box, coordinates)), (SHARED, box.box_bytes * copies)):
                traffic = tally.at(space, operation)
                traffic.requests += 1
                traffic.asked += nbytes

    return meter


def inside_bytes(tensor: TensorMap, coordinates: list[int]) -> int:
    """Bytes of a box that exist in the tensor."""
    units = 1
    for start, count, step, size in zip(coordinates, tensor.counts, tensor.steps, tensor.sizes, strict=True):
        at = start + step * np.arange(count)
        units *= int(((at >= 0) & (at < size)).sum())
    return units * tensor.unit


def _bulk_copy(inst: Instruction, machine: Machine, tally: Tally) -> Meter:
    """Bulk copies of byte ranges: to shared memory (of several CTAs: read once), from it, or to another CTA's."""
    operation, spaces = "tma load", (GLOBAL, SHARED)
    if "bulk_group" in inst.parts:
        operation = "tma reduce" if inst.parts[1] == "reduce" else "tma store"
    elif "global" not in inst.parts:
        spaces = (SHARED, "cluster")
    nbytes = machine.source(inst.operands[2], np.uint32)
    mask = machine.source(inst.operands[4], np.uint16) if "multicast::cluster" in inst.parts else None

    def meter(sel: Selection) -> None:
        for thread in threads_of(sel).tolist():
            copies = 1 if mask is None else int(mask[thread]).bit_count()
            for space in spaces:
                traffic = tally.at(space, operation)
                traffic.requests += 1
                traffic.asked += int(nbytes[thread]) * (1 if space == GLOBAL else copies)

    return meter


def _wgmma(inst: Instruction, machine: Machine, tally: Tally) -> Meter:
    """64 x N x K; B comes from shared memory, and A too unless it is in registers."""
    shape = WgmmaShape.of(inst)
    rows = shape.n + (0 if isinstance(inst.operands[1], Vector) else 64)
    operands = rows * shape.k * NBYTES[shape.a]
    flops = 2 * 64 * shape.n * shape.k

    def meter(sel: Selection) -> None:
        groups = len(threads_of(sel)) // WARPGROUP
        traffic = tally.at(SHARED, "wgmma")
        traffic.requests += groups
        traffic.asked += groups * operands
        tally.arithmetic["matrix", shape.a] += groups * flops

    return meter


def _mma(inst: Instruction, machine: Machine, tally: Tally) -> Meter:
    """m x 8 x K by a warp; a sparse one multiplies half of that."""
    sparse = inst.parts[1].startswith("sp")
    form = MmaForm.of(inst, LEGAL_SPARSE if sparse else LEGAL)
    flops = 2 * form.m * 8 * form.k // (2 if sparse else 1)

    def meter(sel: Selection) -> None:
        tally.arithmetic["matrix", form.a] += len(threads_of(sel)) // 32 * flops

    return meter


_PER_TYPE = {"f16": 1, "bf16": 1, "f32": 1, "f64": 1, "f16x2": 2, "bf16x2": 2, "f32x2": 2}


def scalar_flops(inst: Instruction) -> int:
    """What a thread's floating-point operations count for an instruction of scalar arithmetic; 0 for integers."""
    if inst.parts[0] not in ("fma", "mad", "add", "sub", "mul"):
        return 0
    return _PER_TYPE.get(inst.parts[-1], 0) * (2 if inst.parts[0] in ("fma", "mad") else 1)


METERS: dict[str, Callable[[Instruction, Machine, Tally], Meter | None]] = {
    **dict.fromkeys(("ld", "ldu", "st"), _load_or_store),
    **dict.fromkeys(("atom", "red"), _atomic),
    **dict.fromkeys(("cp.async.ca", "cp.async.cg"), _copy),
    **dict.fromkeys(("st.async", "red.async"), _remote),
    **dict.fromkeys(("ldmatrix", "stmatrix"), _matrix_rows),
    **dict.fromkeys(("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor"), _tensor_copy),
    **dict.fromkeys(("cp.async.bulk", "cp.reduce.async.bulk"), _bulk_copy),
    **dict.fromkeys(("mma.sync", "mma.sp", "mma.sp::ordered_metadata"), _mma),
    "wgmma.mma_async": _wgmma,
}
