"""Bulk groups: the stores of the copy engine that a thread has issued, and its waits (PTX ISA section 9.7.9.28)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..checks.async_ordering import AsyncOrdering
from ..machine.memory import threads_of
from ..machine.opcodes import Selection, Step, UnitState, opcode, state, unsupported
from ..machine.pending import Operation, Pending
from ..ptx.syntax import Immediate

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction


@state
class BulkGroups(UnitState):
    """Each thread's committed groups of stores, oldest first, and the group it is filling."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.open: dict[int, list[Operation]] = {}
        self.committed: dict[int, list[list[Operation]]] = {}
        self.read: dict[int, int] = {}  # how many of the committed groups have read all, as the thread has waited for

    def reset(self) -> None:
        self.open.clear()
        self.committed.clear()
        self.read.clear()

    def add(self, thread: int, operation: Operation) -> None:
        self.open.setdefault(thread, []).append(operation)

    def commit(self, thread: int) -> None:
        self.committed.setdefault(thread, []).append(self.open.pop(thread, []))

    def wait(self, threads: np.ndarray, keep: int, inst: Instruction) -> None:
        """These threads finish all but their newest `keep` groups, or only the reading of shared memory by them."""
        read_only = inst.parts[-1] == "read"
        for thread in threads.tolist() if self.open else ():
            kept = self.committed.get(thread, [])[-keep:] if keep else []
            Pending.passed(inst, self.open.get(thread, []), (op for group in kept for op in group))
        alike: dict[tuple[int, int], list[int]] = {}  # lanes with the same operands issue one store, and wait for it
        for thread in filter(self.committed.get, threads.tolist()):
            for waited in self._finish(thread, keep, read_only).items():
                alike.setdefault(waited, []).append(thread)
        for (issuer, time), waiting in alike.items():
            self._waited(np.array(waiting), issuer, time, read_only)

    def _finish(self, thread: int, keep: int, read_only: bool) -> dict[int, int]:
        """Finish a thread's groups; up to which time those of each issuer that it had not waited for before."""
        groups = self.committed.get(thread, [])
        ready = max(0, len(groups) - keep)
        until: dict[int, int] = {}
        for operation in (op for group in groups[self.read.get(thread, 0) if read_only else 0 : ready] for op in group):
            if read_only and operation.read is not None:
                if not operation.done:
                    operation.read()
            else:
                self.machine.pending.complete(operation)
            until[operation.thread] = max(operation.time, until.get(operation.thread, 0))
        self.read[thread] = max(ready, self.read.get(thread, 0))
        if not read_only:
            self.committed[thread] = groups[ready:]
            self.read[thread] -= ready
        return until

    def agents(self, thread: int) -> tuple[int, int]:
        """The columns in the clocks of a thread's bulk stores: of their reading, and of their writing."""
        order = self.machine.unit(AsyncOrdering)
        return order.agent("bulk source", thread, thread), order.agent("bulk", thread, thread)

    def begin(self, thread: int) -> tuple[int, int, int]:
        """A thread issues a bulk store: both columns, and the time of this one in them."""
        reading, writing = self.agents(thread)
        order = self.machine.unit(AsyncOrdering)
        time = order.next_time(reading)
        order.next_time(writing)
        return reading, writing, time

    def _waited(self, threads: np.ndarray, issuer: int, time: int, read_only: bool) -> None:
        """Threads have waited for the stores that count as an issuer's, up to a time."""
        order = self.machine.unit(AsyncOrdering)
        for agent in self.agents(issuer)[: 1 if read_only else 2]:
            order.waited(threads, agent, time)


@opcode("cp.async.bulk.commit_group", unit="tma", section="9.7.9.28.1", results=0)
def decode_commit(inst: Instruction, machine: Machine) -> Step:
    """Close the thread's group of bulk stores."""

    def step(sel: Selection) -> None:
        for thread in threads_of(sel).tolist():
            machine.unit(BulkGroups).commit(thread)

    return step


@opcode("cp.async.bulk.wait_group", unit="tma", role="waits", forms="{.read} N", section="9.7.9.28.2", results=0)
def decode_wait(inst: Instruction, machine: Machine) -> Step:
    """Wait until at most N groups are under way; with .read only their sources must be free."""
    if not isinstance(inst.operands[0], Immediate):
        raise unsupported(inst, "the count must be a constant")
    keep = int(inst.operands[0].value)

    def step(sel: Selection) -> None:
        machine.unit(BulkGroups).wait(threads_of(sel), keep, inst)

    return step
