"""What the emulator finds wrong, as data: the description behind the text of every error and warning.

`error.report` of an EmulatorError and of an EmulatorWarning is a `Report`; `Report.as_json()` is made of dictionaries,
lists, strings and numbers only, and `Report.from_json` reads it back.  `collecting` hands a tool every report of the
process, also those that a script catches; `python -m cutetut emulate --report FILE.json` writes them to a file.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

KINDS = {
    "ptx-syntax": "the PTX text does not parse",
    "unknown-instruction": "an instruction, or one of its modifiers, is not emulated",
    "bad-launch": "the launch is impossible, or a setting of the emulator makes no sense",
    "out-of-bounds": "an address lies outside of everything the kernel may touch",
    "freed-memory": "a kernel uses memory that has been freed",
    "no-peer-access": "a kernel uses memory of another GPU, to which its own has not been given access",
    "misaligned": "an address is not a multiple of the access size",
    "uninitialized": "a register or memory is read before anything wrote it",
    "illegal-instruction": "operands that the ISA forbids",
    "divergent-barrier": "threads that must come together to an instruction do not",
    "deadlock": "threads still wait and nothing can wake them",
    "endless": "a kernel still runs when its budget of steps is used up",
    "trap": "the kernel executed trap, or a device-side assertion failed",
    "byte-count": "copies bring more or fewer bytes than an mbarrier was told to expect",
    "swizzle": "memory is read with another swizzle than it was written with",
    "in-flight": "memory or registers of an asynchronous operation are touched before it has completed",
    "missing-barrier": "nothing orders two accesses of shared memory, or of one CTA's threads",
    "missing-lane-sync": "nothing orders two accesses of lanes of one warp",
    "missing-release-acquire": "nothing orders two accesses of global memory",
    "missing-wait": "what an asynchronous operation wrote is used by a thread that cannot know of its end",
    "missing-grid-wait": "a dependent kernel uses what the kernel before it wrote, without griddepcontrol.wait",
    "missing-stream-order": "launches on different streams use the same memory, and no event or wait orders them",
    "missing-gpu-order": "kernels on two GPUs use the same memory, and no flag, event or wait orders them",
    "narrow-scope": "strong accesses to one place, one of which has a scope that does not include the other thread",
    "missing-cluster-barrier": "another CTA's shared memory is used before it has started or after it has exited",
    "missing-proxy-fence": "the async proxy uses what ordinary stores wrote, without a proxy fence",
    "missing-tensormap-fence": "a copy uses a tensor map that was changed, without the fences of tensor maps",
    "missing-init-fence": "an mbarrier is used by those who cannot know yet that it is initialised",
    "missing-wgmma-fence": "WGMMA uses registers that were written or read before, without wgmma.fence",
    "lost-update": "several threads read a value, change it and write it back",
    "conflicting-stores": "several threads store different values to one place at once",
    "non-coherent-load": "ld.global.nc reads what the kernel itself writes",
    "mbarrier-memory": "memory of a live mbarrier is used for something else, or an mbarrier that does not live",
    "too-many-arrivals": "more threads arrive at a barrier than its phase takes",
    "ambiguous-phase": "a wait by parity that may be two phases behind",
    "thread-count": "two sides name different thread counts of one named barrier",
    "early-exit": "a CTA exits while its shared memory is still needed",
    "register-pool": "setmaxnreg has no effect, or cannot be served",
    "internal": "the emulator itself failed",
    "other": "anything else",
}  # fmt: skip


@dataclass(frozen=True)
class Location:
    """A piece of memory, or a barrier.

    space: "shared", "global", "local", "mbarrier", "named barrier", "cluster barrier". offset and nbytes are bytes:
    within its CTA's shared memory, or within the allocation `name` in global memory; a named barrier's offset is its
    number.
    address: in global memory.
    """

    space: str
    offset: int | None = None
    nbytes: int | None = None
    name: str = ""
    cta: tuple[int, ...] | None = None  # whose shared memory or barrier it is
    address: int | None = None

    def __str__(self) -> str:
        """Its name in messages."""
        if self.space == "shared":
            return f"shared memory at offset {self.offset}"
        if self.space == "global":
            return f"byte {self.offset} of {self.name} (global memory)" if self.name else "global memory"
        if self.space == "mbarrier":
            return f"the mbarrier at shared offset {self.offset}"
        return f"barrier {self.offset}" if self.space == "named barrier" else "the cluster's barrier"


@dataclass(frozen=True)
class Side:
    """Threads, or an operation that works for them, at one program point.

    role: what they do there, such as "reads", "writes", "updates" (an atomic operation), "arrives", "waits",
    "initialises", "exits", "missing" (they should arrive, and have not).  lanes and warps count within the CTA; no
    lanes: all, or it is not known which.  operation: of an asynchronous one, what it is; the threads are those that
    issued it.
    """

    role: str
    note: str = ""  # what messages say of it
    kernel: str = ""
    cta: tuple[int, ...] | None = None
    warps: tuple[int, ...] = ()
    lanes: tuple[int, ...] = ()
    operation: str = ""
    at: str = ""  # the barrier that it waits for or arrives at, where there are several
    ptx_line: int | None = None
    ptx_text: str = ""
    file: str = ""
    line: int | None = None
    source: str = ""  # "file.py:12" or "notebook cell 5, line 3", as messages name it
    source_text: str = ""


@dataclass(frozen=True)
class Report:
    """One finding. kind is one of KINDS; error the name of the exception's class, "" of a warning; text all that is
    shown; explanation what happened, remedy what to look at."""

    kind: str
    severity: str  # "error" or "warning"
    error: str
    kernel: str
    explanation: str
    remedy: str
    text: str
    sides: tuple[Side, ...] = ()
    locations: tuple[Location, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The same in dictionaries and lists."""
        found: dict[str, Any] = _lists(asdict(self))
        return found

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Report:
        """Read what `as_json` returned."""
        sides = tuple(Side(**_tuples(side)) for side in data["sides"])
        locations = tuple(Location(**_tuples(place)) for place in data["locations"])
        return cls(**{**data, "sides": sides, "locations": locations})


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}


# -- what an instruction does, by its name ----------------------------------------------------------

EXECUTES, COPIES, MULTIPLIES = "executes", "copies", "multiplies"
_roles: dict[str, str] = {}  # by mnemonic
_operations: dict[str, str] = {}


def describe(mnemonic: str, role: str, operation: str) -> None:
    """An instruction of a unit: what it does to a location, and what it starts if it is asynchronous."""
    _roles[mnemonic], _operations[mnemonic] = role, operation
    mnemonic_of.cache_clear()


@functools.cache
def mnemonic_of(opcode: str) -> str:
    """The longest mnemonic of a unit's instruction with which an opcode begins, or nothing."""
    parts = opcode.split(".")
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((name for name in names if name in _roles), "")


def operation_of(opcode: str) -> str:
    """Of an asynchronous instruction, what it starts."""
    return _operations.get(mnemonic_of(opcode), "")


def role_of(opcode: str, space: str) -> str:
    """What an instruction does to a location in this space (one of Location's, or none)."""
    role = _roles.get(mnemonic_of(opcode)) or EXECUTES
    if role == COPIES and operation_of(opcode):
        spaces = [part.split("::")[0] for part in opcode.split(".") if part.startswith(("shared", "global"))]
        if space not in spaces:
            return role
        return "writes" if spaces[0] == space else "reads"  # the destination comes first
    return "reads" if role == MULTIPLIES and space else role


# -- collecting findings -----------------------------------------------------------------------------

_listeners: list[Callable[[Report], None]] = []


@contextlib.contextmanager
def collecting(listener: Callable[[Report], None] | None = None) -> Iterator[list[Report]]:
    """While it lasts, every finding of this process is added to the list, and `listener` is called with it.

    An error is added when it ends a launch, whether or not the program catches it; a warning, whenever it is repeated.
    """
    found: list[Report] = []

    def add(report: Report) -> None:
        found.append(report)
        if listener is not None:
            listener(report)

    _listeners.append(add)
    try:
        yield found
    finally:
        _listeners.remove(add)


def publish(report: Report) -> None:
    """Pass a report on to everyone who collects findings."""
    for listener in list(_listeners):
        listener(report)
