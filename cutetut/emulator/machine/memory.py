"""Memory: where an address of each state space lies, and what may be touched there.

Every space is a piece of this process's own memory: global memory is the tensors themselves,
shared and local memory are buffers of the machine.  A unit turns a PTX address into a *host
address* (`Space.locate`, which checks bounds, alignment and initialised bytes) and then reads or
writes through `HOST`, numpy views that span the whole address space of the process.

Generic addresses (PTX ISA section 5.4) use windows that no host allocation can reach.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..errors import Misaligned, OutOfBounds, Uninitialized
from ..findings import Location
from ..numbers.rounding import UINT
from .access import Access, Checks
from .threads import Selection
from .threads import threads_of as threads_of
from .threads import warps_of as warps_of

SHARED_WINDOW = 1 << 62
LOCAL_WINDOW = 1 << 61
SHARED_BASE = 1024  # the first KiB of a CTA's shared window is reserved on sm_90 (seen on an H200)
SHARED_LIMIT = 227 * 1024  # bytes of shared memory one CTA may use on sm_90

_ORIGIN = 64  # the host views start here, because an array may not start at address 0


class _AddressSpace:
    def __init__(self, dtype: type) -> None:
        n = np.dtype(dtype).itemsize
        self.__array_interface__ = {
            "shape": ((1 << 47) // n,),
            "typestr": np.dtype(dtype).str,
            "data": (_ORIGIN, False),
            "version": 3,
        }


HOST: dict[int, np.ndarray] = {n: np.asarray(_AddressSpace(t)) for n, t in UINT.items()}
FREED = "a tensor that nothing holds any more, or cudaFree, before the last kernel that uses the memory has run"
WRITERS = 2  # instructions that may have been meant to write what nobody has
WRAP = 1 << 31  # what a signed 32-bit number cannot hold any more
CHUNKS: np.ndarray = np.asarray(_AddressSpace(np.complex128))  # the same by 16 bytes, which are only moved
MOVED = {**HOST, 16: CHUNKS}
SHIFT = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4, 32: 5}


def index(host: np.ndarray, nbytes: int) -> np.ndarray:
    """Positions in HOST[nbytes] of host addresses that are multiples of nbytes."""
    return (host - _ORIGIN) >> SHIFT[nbytes]


def chunk_index(host: int) -> int:
    """Position in CHUNKS of a host address that is a multiple of 16."""
    return host - _ORIGIN >> 4


def read_bytes(address: int, nbytes: int) -> bytes:
    """Copy host memory that the caller knows to be valid."""
    return ctypes.string_at(address, nbytes)


@dataclass
class Allocation:
    """A range of host memory that kernels may touch."""

    start: int
    end: int
    label: str
    writable: bool = True
    written: bool = False
    watched: bool = False  # the launch may write it, so the order of accesses is checked,
    writers: tuple[int, ...] = ()  # by these instructions


@dataclass(frozen=True)
class Closed:
    """Why a GPU may not use an address at which there is memory, and what to look at."""

    why: str
    hint: str
    kind: str


Resolver = Callable[[int], "tuple[int, int, str] | None"]


class GlobalMemory:
    """The tensors a launch may touch; everything else is out of bounds.

    `resolver(address)` is asked about an address in no known range and returns (start, bytes, label)
    of the tensor that owns it, or None.  `fresh(addresses)` says which 8-byte words, given by multiples
    of 8, nobody has written since their memory was allocated; None: all memory counts as written.
    `freed(address)` says what an address belonged to that no live memory holds, or None.
    """

    def __init__(self, resolver: Resolver | None = None) -> None:
        self.resolver = resolver
        self.fresh: Callable[[np.ndarray], np.ndarray] | None = None
        self.note: Callable[[Uninitialized, int, str], None] = lambda error, inst, what: None  # another program point
        self.freed: Callable[[int], str | None] = lambda address: None
        self.closed: Callable[[int], Closed | None] = lambda address: None  # why this GPU may not use an address
        self.allocations: list[Allocation] = []
        self.starts: list[int] = []
        self.recent: Allocation | None = None
        self.watch_all = False
        self.checks: Checks | None = None  # set for a launch

    def add(self, address: int, nbytes: int, label: str, writable: bool = True) -> None:
        """Allow kernels to touch nbytes at a host address; ranges that overlap are joined."""
        new = Allocation(address, address + nbytes, label, writable, watched=self.watch_all and writable)
        keep = []
        for old in self.allocations:
            if old.end <= new.start or new.end <= old.start:
                keep.append(old)
                continue
            if old.end - old.start > new.end - new.start:
                new.label = old.label
            new.start, new.end = min(old.start, new.start), max(old.end, new.end)
            new.writable |= old.writable
            new.written |= old.written
            new.watched |= old.watched
        self.allocations = sorted([*keep, new], key=lambda a: a.start)
        self.starts = [a.start for a in self.allocations]
        self.recent = None

    def remove(self, address: int) -> None:
        """Forget the range that starts at an address."""
        self.allocations = [a for a in self.allocations if a.start != address]
        self.starts = [a.start for a in self.allocations]
        self.recent = None

    def find(self, address: int) -> Allocation | None:
        """The allocation that holds an address."""
        position = bisect_right(self.starts, address) - 1
        if position >= 0 and address < self.allocations[position].end:
            return self.allocations[position]
        if self.resolver is not None and 0 < address < 1 << 47:
            found = self.resolver(address)
            if found is not None:
                self.add(*found)
                return self.find(address)
        return None

    def locate(self, address: np.ndarray, sel: Selection, access: Access) -> np.ndarray:
        """Host addresses of global addresses (int64) that threads use themselves; raises what is wrong with it."""
        if not address.size:
            return address
        self.reach(address, access.nbytes, sel, access.stores)
        found = self.recent
        if found is not None and found.watched:
            self._checked(address, sel, access)
        elif access.scope and self.checks is not None:
            self.checks.flag(address, threads_of(sel), access)
        if self.fresh is not None and access.loads and not access.ignores_old:
            self._refuse_unwritten(address, access, sel)
        return address

    def plain(self, allocation: Allocation, access: Access) -> bool:
        """Whether nobody needs to know of an access to an allocation."""
        return not allocation.watched and self.fresh is None and not access.scope

    def _checked(self, address: np.ndarray, sel: Selection, access: Access) -> None:
        """Call the checks, an allocation at a time."""
        assert self.recent is not None and self.checks is not None
        found = self.recent
        if int(address.min()) >= found.start and int(address.max()) < found.end:
            self.checks.globally(found, address, sel, access)
            return
        threads = threads_of(sel)
        for allocation in [a for a in self.allocations if a.watched]:
            mine = (address >= allocation.start) & (address < allocation.end)
            if mine.any():
                self.checks.globally(allocation, address[mine], threads[mine], access)

    def watch(self, address: int | None, instructions: tuple[int, ...] = ()) -> None:
        """The launch may write the allocation of an address by some instructions; without one, every allocation."""
        self.watch_all |= address is None
        for allocation in self.allocations:
            if (address is None or allocation.start <= address < allocation.end) and allocation.writable:
                allocation.watched = True
                allocation.writers = tuple(sorted({*allocation.writers, *instructions}))

    def reach(self, address: np.ndarray, nbytes: int, sel: Selection, store: bool) -> np.ndarray:
        """Host addresses of global addresses, without asking who else uses them; raises OutOfBounds or Misaligned."""
        low, high = int(address.min()), int(address.max()) + nbytes
        found = self.recent
        if found is None or low < found.start or high > found.end:
            found = self.find(low)  # usually another tensor as a whole
            if found is None or high > found.end:
                found = self._locate_slow(address, nbytes, sel, store)
            self.recent = found
        if store:
            self._will_write(found, sel)
        check_alignment(address, nbytes, sel, "global")
        return address

    def allows(self, address: int, nbytes: int) -> bool:
        """Whether one thread may read this many bytes there; `reach` says why not."""
        found = self.find(address) if not address & nbytes - 1 else None
        return found is not None and address + nbytes <= found.end

    def _locate_slow(self, address: np.ndarray, nbytes: int, sel: Selection, store: bool) -> Allocation:
        """The general case: several allocations in one access, or an error."""
        found = None
        for value in np.unique(address).tolist():
            if found is None or not found.start <= value < found.end:
                found = self.find(value)
            if found is None or value + nbytes > found.end:
                raise self._out_of_bounds(value, nbytes, address, sel, store)
            if store:
                self._will_write(found, sel)
        assert found is not None
        return found

    def _will_write(self, allocation: Allocation, sel: Selection) -> None:
        if not allocation.writable:
            raise OutOfBounds(
                f"store to {allocation.label}, which is read-only", threads=threads_of(sel)[:1],
                locations=(Location("global", name=allocation.label, address=allocation.start),),
            )  # fmt: skip
        allocation.written = allocation.watched = True

    def _out_of_bounds(self, value: int, nbytes: int, address: np.ndarray, sel: Selection, store: bool) -> OutOfBounds:
        bad = threads_of(sel)[address == value]
        verb = "store of" if store else "load of"
        if (closed := self.closed(value)) is not None:
            return OutOfBounds(
                f"{verb} {nbytes} bytes at global address {value:#x}, {closed.why}", threads=bad, hint=closed.hint,
                kind=closed.kind, locations=(Location("global", nbytes=nbytes, address=value),),
            )  # fmt: skip
        name = None if self.find(value) else self.freed(value)
        overruns = any(self.find(lane) for lane in address.tolist())  # other lanes say which tensor was meant
        if name is not None and not overruns:
            return OutOfBounds(
                f"{verb} {nbytes} bytes at global address {value:#x}, in the memory of {name}, which has been freed",
                threads=bad, hint=FREED, kind="freed-memory",
                locations=(Location("global", nbytes=nbytes, name=name, address=value),),
            )  # fmt: skip
        where = Location("global", nbytes=nbytes, address=value)
        what = f"{verb} {nbytes} bytes at global address {value:#x}, outside every tensor of this launch"
        near = min(
            self.allocations,
            key=lambda a: min(abs(value - a.start), abs(value - a.end)),
            default=None,
        )
        if near is not None:
            side = f"{value - near.end} bytes past the end" if value >= near.start else "before the start"
            if near.start <= value < near.end:
                side = "across the end"
            elif value < near.start:
                side = f"{near.start - value} bytes before the start"
            where = Location("global", value - near.start, nbytes, near.label, address=value)
            what += f"; the nearest is {near.label}, {near.end - near.start} bytes: the access lies {side} of it"
        return OutOfBounds(what, threads=bad, hint=self._wrapped(value), locations=(where,))

    def _wrapped(self, value: int) -> str | None:
        """What to look at if an address is right but for 32 bits that an index or an offset has overflowed."""
        wide = [sign * 2 * WRAP * size for size in (1, 2, 4, 8, 16) for sign in (1, -1)]  # an index, by its element
        for near in self.allocations:
            small = near.end - near.start < WRAP // 8  # around a large one too many addresses lie that far away
            for distance in [WRAP, -WRAP, *wide] if small else wide:
                if near.start <= value + distance < near.end:
                    return (
                        f"a 32-bit overflow: {abs(distance)} bytes {'after' if distance > 0 else 'before'} this "
                        f"address lies {near.label}; an index or offset beyond 2**31 has to be computed in Int64"
                    )
        return None

    def _refuse_unwritten(self, host: np.ndarray, access: Access, sel: Selection) -> None:
        assert self.fresh is not None
        nbytes = access.nbytes
        first = host & ~7
        bad = self.fresh(first)
        for further in range(8, nbytes, 8):
            if bad.any():
                bad &= self.fresh(first + further)
        if bad.any():
            at = int(host[bad][0])
            found = self.find(at)
            name = found.label if found is not None else "global memory"
            offset = at - found.start if found is not None else None
            error = Uninitialized(
                f"load of {nbytes} bytes reads memory of {name} that nobody has written: torch.empty leaves it so",
                threads=threads_of(sel)[bad],
                hint="torch.zeros, or write it first",
                locations=(Location("global", offset, nbytes, name if offset is not None else "", address=at),),
            )
            others = [inst for inst in found.writers if inst != access.inst] if found is not None else []
            if others:
                error.hint += "; or the wait for those threads of this kernel that will write it"
                for inst in others[:WRITERS]:
                    self.note(error, inst, "this kernel writes there")
            raise error

    def written_labels(self) -> list[str]:
        """Tensors that a launch has stored to so far."""
        return [a.label for a in self.allocations if a.written]


class LocalMemory:
    """Each thread's stack: local variables and the parameters of calls."""

    def __init__(self, threads: int, nbytes: int) -> None:
        self.nbytes = nbytes
        self.stride = -(-nbytes // 16) * 16
        self._buffer = np.zeros(threads * self.stride + 16, np.uint8)
        start = self._buffer.ctypes.data
        self.host_base = start + (-start % 16) + np.arange(threads, dtype=np.int64) * self.stride

    def locate(self, address: np.ndarray, sel: Selection, access: Access) -> np.ndarray:
        """Host addresses of offsets into each thread's stack; raises OutOfBounds or Misaligned."""
        return self.reach(address, access.nbytes, sel, access.stores)

    def reach(self, address: np.ndarray, nbytes: int, sel: Selection, store: bool) -> np.ndarray:
        """The same for an access that is not an instruction's own."""
        bad = (address < 0) | (address + nbytes > self.nbytes)
        if bad.any():
            raise OutOfBounds(
                f"{'store' if store else 'load'} at offset {int(address[bad][0])} of a stack of {self.nbytes} bytes",
                threads=threads_of(sel)[bad],
                locations=(Location("local", int(address[bad][0]), nbytes),),
            )
        check_alignment(address, nbytes, sel, "local")
        return self.host_base[sel] + address


def check_alignment(address: np.ndarray, nbytes: int, sel: Selection, space: str) -> None:
    """Raise Misaligned unless every address is a multiple of the access size (PTX ISA section 6.4.1.1)."""
    if nbytes > 1 and int(np.bitwise_or.reduce(address)) & (nbytes - 1):
        bad = (address & (nbytes - 1)) != 0
        raise Misaligned(
            f"{nbytes}-byte access to {space} memory at address {int(address[bad][0]):#x}, which is not a "
            f"multiple of {nbytes}",
            threads=threads_of(sel)[bad],
            locations=(Location(space, nbytes=nbytes, address=int(address[bad][0])),),
        )
