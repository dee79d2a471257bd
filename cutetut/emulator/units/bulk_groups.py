"""Bulk groups: the stores of the copy engine that a thread has issued, and its waits (PTX ISA section 9.7.9.28)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..checks.async_ordering import AsyncOrdering
from ..machine.memory import threads_of
from ..machine.opcodes import Selection, Step, UnitState, opcode, state, unsupported
from ..machine.pending import Operation
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

    def reset(self) -> None:
        self.open.clear()
        self.committed.clear()

    def add(self, thread: int, operation: Operation) -> None:
        self.open.setdefault(thread, []).append(operation)

    def commit(self, thread: int) -> None:
        self.committed.setdefault(thread, []).append(self.open.pop(thread, []))

    def wait(self, thread: int, keep: int, read_only: bool) -> None:
        """Finish all but the newest `keep` groups, or only their reading of shared memory."""
        groups = self.committed.get(thread, [])
        ready = groups[: max(0, len(groups) - keep)]
        until: dict[int, int] = {}  # lanes with the same operands issue one store, which counts as its first lane's
        for operation in (op for group in ready for op in group):
            if read_only and operation.read is not None:
                if not operation.done:
                    operation.read()
            else:
                self.machine.pending.complete(operation)
            until[operation.thread] = max(operation.time, until.get(operation.thread, 0))
        for issuer, time in until.items():
            self._waited(thread, issuer, time, read_only)
        if not read_only:
            self.committed[thread] = groups[len(ready) :]

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

    def _waited(self, thread: int, issuer: int, time: int, read_only: bool) -> None:
        """A thread has waited for the stores that count as an issuer's, up to a time."""
        order, one = self.machine.unit(AsyncOrdering), slice(thread, thread + 1)
        reading, writing = self.agents(issuer)
        order.waited(one, reading, time)
        if not read_only:
            order.waited(one, writing, time)


@opcode("cp.async.bulk.commit_group", unit="tma", section="9.7.9.28.1", results=0)
def decode_commit(inst: Instruction, machine: Machine) -> Step:
    """Close the thread's group of bulk stores."""

    def step(sel: Selection) -> None:
        for thread in threads_of(sel).tolist():
            machine.unit(BulkGroups).commit(thread)

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
            machine.unit(BulkGroups).wait(thread, keep, read_only)

    return step
