"""Instructions that the lanes of a warp execute together (PTX ISA sections 9.7.9.6, 9.7.13.2, 9.7.13.9 to 9.7.13.14).

The scheduler holds lanes back until all that a member mask names have arrived, so a step sees whole
groups.  It still checks them: what the ISA leaves undefined is an error here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..checks.ordering import Ordering
from ..errors import DivergentBarrier, EmulatorError, IllegalInstruction, Uninitialized
from ..machine.lanes import shuffle_sources
from ..machine.memory import threads_of
from ..machine.opcodes import Selection, Step, opcode, unsupported
from ..machine.threads import DONE
from ..ptx.syntax import Operand, Pair, Sink

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction

FULL = 0xFFFFFFFF
BIT = np.uint32(1) << np.arange(32, dtype=np.uint32)


@dataclass
class Groups:
    """Selected threads grouped by warp and member mask.

    `order` sorts the selection by group (None: it is sorted), `starts` are the first positions of
    the groups in that order, `sizes` their lengths and `bits` the lanes that take part.
    """

    order: np.ndarray | None
    starts: np.ndarray
    sizes: np.ndarray
    bits: np.ndarray

    def spread(self, per_group: np.ndarray) -> np.ndarray:
        """One value per group to one per selected thread."""
        values = np.repeat(per_group, self.sizes)
        if self.order is None:
            return values
        result = np.empty_like(values)
        result[self.order] = values
        return result

    def reduce(self, function: np.ufunc, values: np.ndarray) -> np.ndarray:
        """Reduce the values of each group and give every thread its group's result."""
        return self.spread(self.reduced(function, values))

    def reduced(self, function: np.ufunc, values: np.ndarray) -> np.ndarray:
        """One result per group."""
        return function.reduceat(values if self.order is None else values[self.order], self.starts)


class Members:
    """Reads the member mask of an instruction and checks it against the lanes that execute."""

    def __init__(self, inst: Instruction, machine: Machine, operand: Operand) -> None:
        self.inst, self.machine = inst, machine
        self.mask = machine.source(operand, np.uint32)
        self.always_full = self.mask.strides == (0,) and int(self.mask[0]) == FULL

    def whole(self, sel: Selection) -> bool:
        """Whether the selection is whole warps that name all their lanes: nothing needs checking."""
        return self.always_full and isinstance(sel, slice) and not (sel.start | sel.stop) & 31

    def groups(self, sel: Selection) -> Groups:
        """The groups of a selection that is sorted by thread.

        Raises DivergentBarrier when a member does not take part, IllegalInstruction when a lane
        names a mask without itself or lanes of one group name different masks.
        """
        if self.whole(sel):
            count = (sel.stop - sel.start) // 32  # type: ignore[union-attr]
            full = np.full(count, FULL, np.uint32)
            return Groups(None, np.arange(count) * 32, np.full(count, 32), full)
        threads, mask = threads_of(sel), self.mask[sel]
        warp = threads >> 5
        key = (warp << 32) | mask
        order = None
        if (key[1:] < key[:-1]).any():
            order = np.argsort(key, kind="stable")
            key = key[order]
        starts = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
        sizes = np.diff(np.append(starts, len(key)))
        lanes = BIT[threads & 31]
        bits = np.bitwise_or.reduceat(lanes if order is None else lanes[order], starts)
        groups = Groups(order, starts, sizes, bits)
        expected = (key[starts] & FULL).astype(np.uint32) & self._alive()[key[starts] >> 32]
        if (expected != bits).any():
            error = self._wrong_members(threads, mask, groups.spread(expected), groups.spread(bits))
            if not self.machine.scheduler.tolerates("shuffle", error, self.inst):
                raise error
        return groups

    def _alive(self) -> np.ndarray:
        """The lanes of each warp that have not exited, which are all that can take part."""
        alive = self.machine.scheduler.status != DONE
        return np.packbits(alive, bitorder="little").view(np.uint32)

    def _wrong_members(
        self, threads: np.ndarray, mask: np.ndarray, expected: np.ndarray, bits: np.ndarray
    ) -> EmulatorError:
        name = self.inst.opcode
        outside = (mask & BIT[threads & 31]) == 0
        if outside.any():
            return IllegalInstruction(
                f"{name}: the executing lane is not in its own member mask {int(mask[outside][0]):#010x}",
                threads=threads[outside],
                hint="every lane that executes the instruction must be named in the mask it passes",
            )
        first = int(np.flatnonzero(expected != bits)[0])
        missing = int(expected[first] & ~bits[first])
        mates = threads[threads >> 5 == threads[first] >> 5]
        here = int(np.bitwise_or.reduce(BIT[mates & 31]))
        if missing & here:
            return IllegalInstruction(
                f"{name}: lanes {lanes_text(missing & here)} are in the member mask {int(mask[first]):#010x} of "
                "other lanes but pass a different one",
                threads=threads[first : first + 1],
                hint="all lanes named in a member mask must pass the same mask",
            )
        return DivergentBarrier(
            f"{name} needs the lanes of the member mask {int(mask[first]):#010x} together, but lanes "
            f"{lanes_text(missing)} do not execute it",
            threads=threads[first : first + 1],
        )


def lanes_text(bits: int) -> str:
    """The lane numbers of a mask, such as "0, 4, 5"."""
    return ", ".join(str(lane) for lane in range(32) if bits >> lane & 1)


def _split(operand: Operand) -> tuple[Operand, Operand]:
    """d|p as its two parts; a plain d has no predicate."""
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, Sink())


def _check_count(inst: Instruction, count: int) -> None:
    if len(inst.operands) != count:
        raise unsupported(inst, f"{len(inst.operands)} operands where the ISA has {count}")


# -- shfl.sync ------------------------------------------------------------------------------------


@opcode("shfl.sync", unit="warp", forms=".up .down .bfly .idx .b32  d|p, a, b, c, membermask", section="9.7.9.6",
        joins=4, passes_on=1)  # fmt: skip
def decode_shfl(inst: Instruction, machine: Machine) -> Step:
    """Read a register of another lane of the warp."""
    mode = inst.parts[2] if len(inst.parts) == 4 else ""
    if mode not in ("up", "down", "bfly", "idx") or inst.parts[-1] != "b32":
        raise unsupported(inst)
    _check_count(inst, 5)
    result, flag = _split(inst.operands[0])
    d, p = machine.target(result, np.uint32), machine.target(flag, np.bool_)
    wants_flag = not isinstance(flag, Sink)
    a = machine.source(inst.operands[1], np.uint32)
    members = Members(inst, machine, inst.operands[4])
    sources = shuffle_sources(inst, machine)

    def step(sel: Selection) -> None:
        j, inside = sources(sel)
        together: Selection = sel
        if not members.whole(sel):  # warps that are whole may be among these, too, where others have gone elsewhere
            groups = members.groups(sel)
            bits = groups.spread(groups.bits)
            _check_sources(inst, machine, sel, j & 31, bits)
            together = threads_of(sel)[bits == FULL]
        machine.unit(Ordering).shuffled(together)
        d[sel] = a[j]
        if wants_flag:
            p[sel] = inside

    return step


def _check_sources(inst: Instruction, machine: Machine, sel: Selection, j: np.ndarray, bits: np.ndarray) -> None:
    """A lane that is not a member, or has exited, has no value to read."""
    bad = (bits & BIT[j]) == 0
    if bad.any():
        threads = threads_of(sel)[bad]
        warp = threads >> 5 == threads[0] >> 5
        readers = int(np.bitwise_or.reduce(BIT[threads[warp] & 31]))
        sources = int(np.bitwise_or.reduce(BIT[j[bad][warp]]))
        error = Uninitialized(
            f"{inst.opcode}: lanes {lanes_text(readers)} read from lanes {lanes_text(sources)}, which do not take part "
            "in the shuffle: the value is undefined",
            threads=threads,
            hint="the member mask, the offset, and lanes of the warp that have exited or do not exist",
        )
        if not machine.scheduler.tolerates("shuffle", error, inst):
            raise error


@opcode("shfl", unit="warp", forms="none: removed from sm_70 on", section="9.7.9.5")
def decode_old_shfl(inst: Instruction, machine: Machine) -> Step:
    """The form without .sync, which sm_90 does not have."""
    raise unsupported(inst, "sm_70 and later have shfl.sync only")


# -- votes ----------------------------------------------------------------------------------------


@opcode("vote.sync", unit="warp", forms=".all .any .uni .pred, .ballot.b32  d, {!}a, membermask", section="9.7.13.9",
        joins=2)  # fmt: skip
def decode_vote(inst: Instruction, machine: Machine) -> Step:
    """Combine a predicate over the lanes of the member mask."""
    modes = {("all", "pred"), ("any", "pred"), ("uni", "pred"), ("ballot", "b32")}
    mode = inst.parts[2:]
    if mode not in modes:
        raise unsupported(inst)
    _check_count(inst, 3)
    d = machine.target(inst.operands[0], np.uint32 if mode[0] == "ballot" else np.bool_)
    predicate = machine.predicate(inst.operands[1])
    members = Members(inst, machine, inst.operands[2])
    lane_bit = BIT[machine.lane]

    def step(sel: Selection) -> None:
        groups, vote = members.groups(sel), predicate(sel)
        ballot = groups.reduced(np.bitwise_or, np.where(vote, lane_bit[sel], np.uint32(0)))
        if mode[0] == "all":
            ballot = ballot == groups.bits
        elif mode[0] == "any":
            ballot = ballot != 0
        elif mode[0] == "uni":
            ballot = (ballot == groups.bits) | (ballot == 0)
        d[sel] = groups.spread(ballot)

    return step


@opcode("vote", unit="warp", forms="none: removed from sm_70 on", section="9.7.13.8")
def decode_old_vote(inst: Instruction, machine: Machine) -> Step:
    """The form without .sync, which sm_90 does not have."""
    raise unsupported(inst, "sm_70 and later have vote.sync only")


@opcode("activemask", unit="warp", forms=".b32 d", section="9.7.13.11")
def decode_activemask(inst: Instruction, machine: Machine) -> Step:
    """The lanes of the warp that execute this instruction together."""
    if inst.parts[1:] != ("b32",):
        raise unsupported(inst)
    _check_count(inst, 1)
    d = machine.target(inst.operands[0], np.uint32)
    here = np.zeros(machine.T, np.bool_)

    def step(sel: Selection) -> None:
        here[:] = False
        here[sel] = True
        d[sel] = np.packbits(here, bitorder="little").view(np.uint32)[machine.warp_of[sel]]

    return step


# -- match, redux, elect --------------------------------------------------------------------------


def _equal_lanes(values: np.ndarray, threads: np.ndarray, groups: Groups) -> np.ndarray:
    """For each thread, the lanes of its group that hold the same value."""
    order = np.arange(len(values)) if groups.order is None else groups.order
    group = np.repeat(np.arange(len(groups.starts)), groups.sizes)
    by_value = np.lexsort((values[order], group))
    ordered = order[by_value]
    group, sorted_values = group[by_value], values[ordered]
    changes = (group[1:] != group[:-1]) | (sorted_values[1:] != sorted_values[:-1])
    starts = np.flatnonzero(np.concatenate(([True], changes)))
    bits = np.bitwise_or.reduceat(BIT[threads[ordered] & 31], starts)
    result = np.empty(len(values), np.uint32)
    result[ordered] = np.repeat(bits, np.diff(np.append(starts, len(values))))
    return result


@opcode("match.any.sync", "match.all.sync", unit="warp", forms=".b32 .b64  d|p, a, membermask", section="9.7.13.10",
        joins=2)  # fmt: skip
def decode_match(inst: Instruction, machine: Machine) -> Step:
    """Find the lanes of the member mask that hold the same value."""
    every = inst.parts[1] == "all"
    if len(inst.parts) != 4 or inst.parts[3] not in ("b32", "b64"):
        raise unsupported(inst)
    _check_count(inst, 3)
    if isinstance(inst.operands[0], Pair) and not every:
        raise unsupported(inst, "match.any has no predicate")
    result, flag = _split(inst.operands[0])
    d, p = machine.target(result, np.uint32), machine.target(flag, np.bool_)
    a = machine.source(inst.operands[1], np.uint32 if inst.parts[3] == "b32" else np.uint64)
    members = Members(inst, machine, inst.operands[2])

    def step(sel: Selection) -> None:
        groups = members.groups(sel)
        equal = _equal_lanes(a[sel], threads_of(sel), groups)
        if every:
            same = equal == groups.spread(groups.bits)
            d[sel], p[sel] = np.where(same, equal, np.uint32(0)), same
        else:
            d[sel] = equal

    return step


_REDUX: dict[tuple[str, ...], tuple[Callable, type]] = {
    ("add", "u32"): (np.add, np.uint32),
    ("add", "s32"): (np.add, np.uint32),
    ("min", "u32"): (np.minimum, np.uint32),
    ("min", "s32"): (np.minimum, np.int32),
    ("max", "u32"): (np.maximum, np.uint32),
    ("max", "s32"): (np.maximum, np.int32),
    ("and", "b32"): (np.bitwise_and, np.uint32),
    ("or", "b32"): (np.bitwise_or, np.uint32),
    ("xor", "b32"): (np.bitwise_xor, np.uint32),
}


@opcode("redux.sync", unit="warp", forms=".add .min .max .u32 .s32, .and .or .xor .b32  d, a, membermask",
        section="9.7.13.12", joins=2)  # fmt: skip
def decode_redux(inst: Instruction, machine: Machine) -> Step:
    """Reduce a register over the lanes of the member mask."""
    found = _REDUX.get(inst.parts[2:])
    if found is None:
        raise unsupported(inst)
    _check_count(inst, 3)
    function, dtype = found
    d, a = machine.target(inst.operands[0], dtype), machine.source(inst.operands[1], dtype)
    members = Members(inst, machine, inst.operands[2])

    def step(sel: Selection) -> None:
        d[sel] = members.groups(sel).reduce(function, a[sel])  # type: ignore[arg-type]

    return step


@opcode("elect.sync", unit="warp", forms="d|p, membermask", section="9.7.13.14", joins=1)
def decode_elect(inst: Instruction, machine: Machine) -> Step:
    """Elect one lane of the member mask: always the lowest, where the ISA leaves the choice open."""
    if len(inst.parts) != 2 or not isinstance(inst.operands[0], Pair):
        raise unsupported(inst)
    _check_count(inst, 2)
    result, flag = _split(inst.operands[0])
    d, p = machine.target(result, np.uint32), machine.target(flag, np.bool_)
    members = Members(inst, machine, inst.operands[1])

    def step(sel: Selection) -> None:
        groups = members.groups(sel)
        leader = groups.reduce(np.minimum, machine.lane[sel])
        d[sel], p[sel] = leader, leader == machine.lane[sel]

    return step


@opcode("bar.warp.sync", unit="warp", role="waits", forms="membermask", section="9.7.13.2", joins=0, results=0,
        ends_block=True)  # fmt: skip
def decode_bar_warp_sync(inst: Instruction, machine: Machine) -> Step:
    """The lanes of the mask meet here, and know of each other's accesses: not of those of other lanes."""
    _check_count(inst, 1)
    following = machine.block_after(inst)
    members = Members(inst, machine, inst.operands[0])

    def step(sel: Selection) -> int:
        order = machine.unit(Ordering)
        if members.whole(sel):
            order.sync_lanes(sel)
        else:
            groups = members.groups(sel)
            first = groups.starts if groups.order is None else groups.order[groups.starts]
            order.sync_some_lanes(machine.warp_of[sel][first], groups.bits)
        return following

    return step
