"""Non-bulk asynchronous copies of 4, 8 or 16 bytes per thread (PTX ISA section 9.7.9.25.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .loadstore import address_getter
from .memory import HOST, index, threads_of
from .pending import Operation
from .ptx import Address, Immediate
from .registry import Selection, Step, opcode, unsupported

if TYPE_CHECKING:
    from .machine import Machine
    from .ptx import Instruction


class CopyGroups:
    """Each thread's cp.async groups; operations are per instruction, so groups hold (operation, threads)."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.open: dict[int, list[Operation]] = {}
        self.committed: dict[int, list[list[Operation]]] = {}

    def reset(self) -> None:
        self.open.clear()
        self.committed.clear()

    def add(self, operation: Operation, threads: np.ndarray) -> None:
        for thread in threads.tolist():
            self.open.setdefault(thread, []).append(operation)

    def commit(self, threads: np.ndarray) -> None:
        for thread in threads.tolist():
            self.committed.setdefault(thread, []).append(self.open.pop(thread, []))

    def wait(self, threads: np.ndarray, keep: int) -> None:
        for thread in threads.tolist():
            groups = self.committed.get(thread, [])
            ready = len(groups) - keep
            for operation in (op for group in groups[: max(0, ready)] for op in group):
                self.machine.pending.complete(operation)
            self.committed[thread] = groups[max(0, ready) :]

    def all_of(self, thread: int) -> list[Operation]:
        return [op for group in self.committed.get(thread, []) for op in group] + self.open.get(thread, [])


@opcode("cp.async.ca", "cp.async.cg", unit="cp_async", section="9.7.9.25.3.1", results=0,
        forms=".shared.global{.L2 hints} [dst], [src], 4 | 8 | 16{, source bytes}{, cache policy}")  # fmt: skip
def decode_cp_async(inst: Instruction, machine: Machine) -> Step:
    """Copy a few bytes per thread; a smaller source size fills the rest with zeros."""
    to, source, size, *rest = inst.operands
    if not isinstance(to, Address) or not isinstance(source, Address) or not isinstance(size, Immediate):
        raise unsupported(inst)
    hints = [p for p in inst.parts if p.startswith("L2::")]
    if "L2::cache_hint" in hints:
        rest = rest[:-1]
    nbytes = int(size.value)
    if nbytes not in (4, 8, 16) or (inst.parts[2] == "cg" and nbytes != 16):
        raise unsupported(inst, f"a copy of {nbytes} bytes")
    get_to, get_from = address_getter(machine, to), address_getter(machine, source)
    taken = machine.source(rest[0], np.uint32) if rest else None
    unit = min(nbytes, 8)

    def step(sel: Selection) -> None:
        threads = threads_of(sel)
        count = np.full(len(threads), nbytes) if taken is None else np.minimum(taken[threads].astype(np.int64), nbytes)
        origin, some = get_from(threads), count > 0
        if some.any():
            machine.memory.locate(origin[some], nbytes if taken is None else 4, threads[some], False)
        hosts = machine.shared.claim_many(get_to(threads), nbytes, threads)

        def run() -> None:
            lanes = np.arange(nbytes)[None, :]
            inside = lanes < count[:, None]
            values = np.zeros((len(threads), nbytes), np.uint8)
            values[inside] = HOST[1][index((origin[:, None] + lanes)[inside], 1)]
            words = values.view({4: np.uint32, 8: np.uint64}[unit])
            for part in range(nbytes // unit):
                HOST[unit][index(hosts + part * unit, unit)] = words[:, part]
            machine.shared.mark_written_many(hosts, nbytes)

        spans = tuple((int(h), int(h) + nbytes) for h in hosts)
        operation = Operation(f"the cp.async of {nbytes} bytes per thread", inst, int(threads[0]), run, writes=spans)
        machine.copies.add(operation, threads)
        machine.pending.issue(operation)

    return step


@opcode("cp.async.commit_group", unit="cp_async", section="9.7.9.25.3.2", results=0)
def decode_commit(inst: Instruction, machine: Machine) -> Step:
    """Close the thread's group of copies."""
    return lambda sel: machine.copies.commit(threads_of(sel))


@opcode(
    "cp.async.wait_group", "cp.async.wait_all", unit="cp_async", forms="N, or all", section="9.7.9.25.3.3", results=0
)
def decode_wait(inst: Instruction, machine: Machine) -> Step:
    """Wait until at most N of the thread's groups are under way."""
    every = inst.parts[2] == "wait_all"
    keep = 0 if every or not isinstance(inst.operands[0], Immediate) else int(inst.operands[0].value)

    def step(sel: Selection) -> None:
        threads = threads_of(sel)
        if every:
            machine.copies.commit(threads)
        machine.copies.wait(threads, keep)

    return step


@opcode("cp.async.mbarrier.arrive", unit="cp_async", forms="{.noinc}.shared.b64 [addr]", section="9.7.13.15.15",
        results=0)  # fmt: skip
def decode_arrive(inst: Instruction, machine: Machine) -> Step:
    """Arrive at an mbarrier when the thread's earlier copies are complete."""
    where = inst.operands[0]
    if not isinstance(where, Address):
        raise unsupported(inst)
    address = address_getter(machine, where)
    counts = "noinc" in inst.parts

    def step(sel: Selection) -> None:
        threads = threads_of(sel)
        hosts = machine.shared.locate_barrier(address(threads), threads, False, inst.index)
        for thread, host in zip(threads.tolist(), hosts.tolist(), strict=True):
            barrier = machine.mbarriers.at(host, np.array([thread]))
            if not counts:
                barrier.pending += 1
            before = machine.copies.all_of(thread)

            def run(barrier=barrier, thread=thread, before=before) -> None:  # type: ignore[no-untyped-def]
                for earlier in before:
                    machine.pending.complete(earlier)
                machine.mbarriers.arrive(barrier, 1, inst, np.array([thread]))

            machine.pending.issue(Operation("the arrival that follows cp.async", inst, thread, run))

    return step
