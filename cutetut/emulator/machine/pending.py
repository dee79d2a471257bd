"""Operations that are under way: issued by a thread, completed by somebody else, later.

TMA copies, cp.async and WGMMA are promises.  *When* they complete is the program's business only
through its waits, so the emulator chooses the moment that teaches most: as late as the program
allows (the default), at once, or at a random moment (`CUTETUT_ASYNC=late|early|random:SEED`).
A wait that is missing then shows on every run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

from ..errors import EmulatorError, LaunchError, own_failures
from ..ptx.syntax import Instruction
from .ranges import Ranges
from .running import Running


class Barrier(Protocol):
    """What an operation reports its bytes to, and what an error can ask of it: an mbarrier."""

    def describe(self) -> str:
        """Where it lies and how far its phase is."""
        ...

    def other_phase(self, scheduler: Running, thread: int) -> tuple[str, str] | None:
        """For an error of a thread that uses what a copy is writing: a note and a hint if it has waited before."""


@dataclass(eq=False)
class Operation:
    """One asynchronous operation; `run` has its effect on memory, registers and barriers.

    `writes` and `reads` are what it still needs of shared memory.
    """

    what: str
    inst: Instruction
    thread: int
    run: Callable[[], None]
    barrier: Barrier | None = None
    writes: tuple[Ranges, ...] = ()
    reads: tuple[Ranges, ...] = ()
    after: Operation | None = None  # must not complete before this one
    read: Callable[[], None] | None = None  # takes the source's bytes; `run` does it if nobody did
    nbytes: int = 0  # that it reports to its barrier
    wakes: bool = False  # its completion may let a thread go on
    agent: int = -1  # its column in the clocks, for what is waited for by groups,
    time: int = 0  # and its time there
    waited: bool = False  # the program has waited for it
    passed_by: Instruction | None = None  # its thread's last wait for groups that came while it was in none,
    follower: bool = False  # or that let it go on while one behind it was in none
    done: bool = False


class Pending:
    """All operations under way on one machine."""

    def __init__(self, policy: str | None = None) -> None:
        text = policy if policy is not None else os.environ.get("CUTETUT_ASYNC", "late")
        kind, _, seed = text.partition(":")
        if kind not in ("late", "early", "random") or (seed and (kind != "random" or not seed.isdigit())):
            raise LaunchError(f"CUTETUT_ASYNC={text!r}: use late, early or random:SEED")
        self.kind = kind
        self.random = random.Random(int(seed or 0))
        self.operations: dict[Operation, None] = {}  # in the order of their issue
        self.signals: dict[Barrier, int] = {}  # how many of them will report to a barrier
        self.events = 0  # issues and completions so far: the deadlock detector watches it

    def issue(self, operation: Operation) -> None:
        """Start an operation."""
        self.events += 1
        self.operations[operation] = None
        if operation.barrier is not None:
            self.signals[operation.barrier] = self.signals.get(operation.barrier, 0) + 1
        if self.kind == "early":
            self.complete(operation)

    def complete(self, operation: Operation) -> None:
        """Finish an operation, and first the one it must follow."""
        if operation.done:
            return
        if operation.after is not None:
            self.complete(operation.after)
        operation.done = True
        operation.after = None
        self.events += 1
        del self.operations[operation]
        if operation.barrier is not None:
            self.signals[operation.barrier] -= 1
        run, operation.run = operation.run, _nothing  # it may hold the operation, and both much memory
        try:
            run()
        except Exception as error:
            _failed(operation, error)

    @staticmethod
    def passed(inst: Instruction, in_none: Sequence[Operation], kept: Iterable[Operation]) -> None:
        """A wait for groups goes by operations that are in none, and by those in the groups that it lets go on."""
        for operation in in_none:
            operation.passed_by, operation.follower = inst, False
        for operation in kept if in_none else ():
            operation.passed_by, operation.follower = inst, True

    def signalling(self, barrier: Barrier) -> list[Operation]:
        """The operations under way that will report their bytes to a barrier."""
        return [op for op in self.operations if op.barrier is barrier] if self.signals.get(barrier) else []

    def complete_oldest(self, waking: bool = False) -> bool:
        """Nobody can go on: let the oldest operation complete, or the oldest that may wake somebody.

        False when there is none.
        """
        oldest = next((op for op in self.operations if op.wakes or op.barrier is not None or not waking), None)
        if oldest is None:
            return False
        self.complete(oldest)
        return True

    def complete_oldest_of_each(self, cluster_of: Callable[[int], int], waking: bool) -> bool:
        """The same for every cluster at once: each of them waits for its own operations, and they stay in step."""
        oldest: dict[int, Operation] = {}
        for op in self.operations:
            if op.wakes or op.barrier is not None or not waking:
                oldest.setdefault(cluster_of(op.thread), op)
        for op in oldest.values():
            self.complete(op)
        return bool(oldest)

    def complete_all(self) -> None:
        """The end of a wave: what was issued happens."""
        while self.complete_oldest():
            pass

    def tick(self) -> None:
        """A turn of the scheduler passes; under the random policy some operation may complete."""
        if self.kind == "random" and self.operations and self.random.random() < 0.05:
            self.complete(self.random.choice(list(self.operations)))

    def reading(self, host: int) -> Operation | None:
        """The operation that still reads a host address."""
        return next((op for op in self.operations if any(r.overlap(host, host + 1) for r in op.reads)), None)

    def writing(self, host: int) -> Operation | None:
        """The operation that is about to write a host address."""
        return next((op for op in self.operations if any(r.overlap(host, host + 1) for r in op.writes)), None)


def _nothing() -> None:
    """What an operation that is done does."""


def _failed(operation: Operation, error: Exception) -> NoReturn:
    """Raise the error of an operation."""
    try:
        with own_failures(f"it completed {operation.what}"):
            raise error
    except EmulatorError as found:
        found.operation = found.operation or operation  # it happens here, not where the scheduler is
        raise
