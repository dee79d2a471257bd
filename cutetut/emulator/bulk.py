"""Bulk groups, and bulk copies of plain byte ranges (PTX ISA sections 9.7.9.25 and 9.7.9.28)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .errors import IllegalInstruction
from .loadstore import address_getter
from .memory import HOST, index, threads_of
from .pending import Operation
from .ptx import Address, Immediate
from .registry import Selection, Step, opcode, unsupported
from .tma import REDUCTIONS, combine

if TYPE_CHECKING:
    from .machine import Machine
    from .mbarrier import Mbarrier
    from .ptx import Instruction


class BulkGroups:
    """Each thread's committed groups of stores, oldest first, and the group it is filling."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.open: dict[int, list[Operation]] = {}
        self.committed: dict[int, list[list[Operation]]] = {}

    def reset(self) -> None:
        self.open.clear()
        self.committed.clear()

    def add(self, operation: Operation) -> None:
        self.open.setdefault(operation.thread, []).append(operation)

    def commit(self, thread: int) -> None:
        self.committed.setdefault(thread, []).append(self.open.pop(thread, []))

    def wait(self, thread: int, keep: int, read_only: bool) -> None:
        """Finish all but the newest `keep` groups, or only their reading of shared memory."""
        groups = self.committed.get(thread, [])
        ready = groups[: max(0, len(groups) - keep)]
        for operation in (op for group in ready for op in group):
            if read_only and operation.read is not None:
                if not operation.done:
                    operation.read()
            else:
                self.machine.pending.complete(operation)
        if not read_only:
            self.committed[thread] = groups[len(ready) :]


@opcode("cp.async.bulk.commit_group", unit="tma", section="9.7.9.28.1", results=0)
def decode_commit(inst: Instruction, machine: Machine) -> Step:
    """Close the thread's group of bulk stores."""

    def step(sel: Selection) -> None:
        for thread in threads_of(sel).tolist():
            machine.bulk.commit(thread)

    return step


@opcode("cp.async.bulk.wait_group", unit="tma", forms="{.read} N", section="9.7.9.28.2", results=0)
def decode_wait(inst: Instruction, machine: Machine) -> Step:
    """Wait until at most N groups are under way; with .read only their sources must be free."""
    read_only = inst.parts[-1] == "read"
    if not isinstance(inst.operands[0], Immediate):
        raise unsupported(inst, "the count must be a constant")
    keep = int(inst.operands[0].value)

    def step(sel: Selection) -> None:
        for thread in threads_of(sel).tolist():
            machine.bulk.wait(thread, keep, read_only)

    return step


def _sizes(machine: Machine, inst: Instruction, thread: int, nbytes: int, *addresses: int) -> None:
    if nbytes % 16 or any(a % 16 for a in addresses):
        raise IllegalInstruction(
            f"a bulk copy of {nbytes} bytes between {', '.join(map(hex, addresses))}: all must be multiples of 16",
            threads=np.array([thread]),
        )


@opcode("cp.async.bulk", unit="tma", section="9.7.9.25.4.1", results=0,
        forms=".{shared::cta shared::cluster}.global.mbarrier::complete_tx::bytes{.L2::cache_hint} and "
              ".shared::cluster.shared::cta.mbarrier::complete_tx::bytes, .global.shared::cta.bulk_group")  # fmt: skip
def decode_bulk_copy(inst: Instruction, machine: Machine) -> Step:
    """Copy a range of bytes whose addresses and size are multiples of 16."""
    known = {"cp", "async", "bulk", "shared::cta", "shared::cluster", "global", "mbarrier::complete_tx::bytes",
             "bulk_group", "L2::cache_hint"}  # fmt: skip
    for part in inst.parts:
        if part not in known:
            raise unsupported(inst, f"modifier .{part}")
    to, source, size, *rest = inst.operands
    if not isinstance(to, Address) or not isinstance(source, Address):
        raise unsupported(inst, "addresses must be in brackets")
    get_to, get_from, nbytes = (
        address_getter(machine, to),
        address_getter(machine, source),
        machine.source(size, np.uint32),
    )
    if inst.parts[3] == "global":
        return _bulk_store(machine, inst, get_to, get_from, nbytes, None)
    if not isinstance(rest[0], Address):
        raise unsupported(inst, "the mbarrier must be [address]")
    barrier = address_getter(machine, rest[0])
    from_global = inst.parts[4] == "global"

    def step(sel: Selection) -> None:
        for thread in threads_of(sel).tolist():
            one = np.array([thread])
            count, target, origin = int(nbytes[thread]), int(get_to(one)[0]), int(get_from(one)[0])
            _sizes(machine, inst, thread, count, target, origin)
            if from_global:
                ends = np.array([origin, origin + count - 16])
                machine.memory.locate(ends, 16, np.array([thread, thread]), False)
            else:
                origin = machine.shared.async_source(origin, count, thread)
            host = machine.shared.claim(target, count, thread, inst.index)
            signal = machine.shared.host_of(int(barrier(one)[0]), thread, inst=inst.index)
            bar = machine.mbarriers.signalled(signal, thread)
            reads = () if from_global else ((origin, origin + count),)
            run = _copy_runner(machine, host, origin, count, bar, int(machine.cta_of[thread]))
            what = f"the bulk copy of {count} bytes"
            writes = ((host, host + count),)
            machine.pending.issue(Operation(what, inst, thread, run, bar, writes, reads, nbytes=count))

    return step


def _copy_runner(machine: Machine, host: int, origin: int, count: int, bar: Mbarrier, cta: int) -> Callable[[], None]:
    def run() -> None:
        lanes = np.arange(count // 8, dtype=np.int64) * 8
        HOST[8][index(host + lanes, 8)] = HOST[8][index(origin + lanes, 8)]
        machine.shared.mark_written(host, count)
        machine.mbarriers.complete_bytes(bar, count, cta)

    return run


def _bulk_store(machine, inst, get_to, get_from, nbytes, reduction):  # type: ignore[no-untyped-def]
    operation_name, element = reduction or (None, "u64")
    unit_bytes = 8 if reduction is None else {"16": 2, "32": 4, "64": 8}[element[-2:]]

    def step(sel: Selection) -> None:
        for thread in threads_of(sel).tolist():
            one = np.array([thread])
            count, target, origin = int(nbytes[thread]), int(get_to(one)[0]), int(get_from(one)[0])
            _sizes(machine, inst, thread, count, target, origin)
            machine.memory.locate(np.array([target, target + count - 16]), 16, np.array([thread, thread]), True)
            host = machine.shared.async_source(origin, count, thread)
            lanes = np.arange(count // unit_bytes, dtype=np.int64) * unit_bytes
            _issue_bulk_store(machine, inst, thread, host, target, lanes, unit_bytes, operation_name, element)

    return step


def _issue_bulk_store(machine, inst, thread, host, target, lanes, unit_bytes, name, element):  # type: ignore[no-untyped-def]
    captured: list[np.ndarray] = []
    unit = HOST[unit_bytes]
    nbytes = len(lanes) * unit_bytes

    def read() -> None:
        if not captured:
            captured.append(unit[index(host + lanes, unit_bytes)])
            operation.reads = ()

    def run() -> None:
        read()
        combine(name, element, index(target + lanes, unit_bytes), unit, captured[0])

    operation = Operation(
        f"the bulk store of {nbytes} bytes", inst, thread, run, reads=((host, host + nbytes),), read=read
    )
    machine.bulk.add(operation)
    machine.pending.issue(operation)


@opcode("cp.reduce.async.bulk", unit="tma", section="9.7.9.25.4.2", results=0,
        forms=".global.shared::cta.bulk_group{.L2::cache_hint}.{add min max inc dec and or xor}.type")  # fmt: skip
def decode_bulk_reduce(inst: Instruction, machine: Machine) -> Step:
    """Combine a range of shared memory into global memory element by element."""
    name = next((p for p in inst.parts if p in REDUCTIONS), None)
    if name is None or inst.parts[4:6] != ("global", "shared::cta"):
        raise unsupported(inst)
    to, source, size = inst.operands[:3]
    if not isinstance(to, Address) or not isinstance(source, Address):
        raise unsupported(inst, "addresses must be in brackets")
    element = inst.parts[-1]
    return _bulk_store(
        machine, inst, address_getter(machine, to), address_getter(machine, source),
        machine.source(size, np.uint32), (name, element),
    )  # fmt: skip
